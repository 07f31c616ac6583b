"""Completion of measured tables: how far estimates are off, job by job, on the published throughput oracle of a GPU cluster.

    python benchmarks/completion.py /path/to/simulation_throughputs.json

Jobs on one GPU: for each kind of job, the other kinds are known beside each partner on each type, and of the kind's own row a
part is measured. The error is that of the rest, steps a second beside a partner in parts of those alone. Then single rates on one
type from those on another. The published completion is ``low-rank`` with rank 10 and penalty 0.01.
"""

from __future__ import annotations

import ast
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hetopt.costs.completion import complete, low_rank, mean, neighbours, ridge, soft
from hetopt.costs.fits import monotone_map, rank_one

TYPES = ("k80", "p100", "v100")
PARTS = (0.05, 0.1, 0.2, 0.5)


def slowdowns(oracle: dict[str, Any]) -> np.ndarray:
    """(kinds, types x partners) part of its speed alone that a kind keeps."""
    kinds = [kind for kind in oracle["v100"] if ast.literal_eval(kind)[1] == 1]
    rows = []
    for kind in kinds:
        alone = {name: oracle[name][kind]["null"] for name in TYPES}
        rows.append(
            [
                oracle[name][kind][other][0] / alone[name] if alone[name] > 0 else 0.0
                for name in TYPES
                for other in kinds
            ]
        )
    return np.array(rows)


def alone(oracle: dict[str, Any]) -> np.ndarray:
    """(kinds, types) steps a second alone, of the kinds that run everywhere."""
    rates = np.array([[oracle[name][kind]["null"] for name in TYPES] for kind in oracle["v100"]])
    return rates[(rates > 0).all(axis=1)]


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "published": lambda matrix: low_rank(matrix, False, rank=10, shrink=0.01, rounds=15),
    "low-rank": lambda matrix: low_rank(matrix, False),
    "soft": lambda matrix: soft(matrix, False),
    "neighbours": lambda matrix: neighbours(matrix, False),
    "ridge": lambda matrix: ridge(matrix, False),
    "mean": lambda matrix: mean(matrix, False),
}


def main(arguments: list[str]) -> None:
    """Print both tables."""
    if len(arguments) != 1:
        sys.exit("usage: python benchmarks/completion.py ORACLE.json")
    oracle = json.loads(Path(arguments[0]).read_text())
    table = slowdowns(oracle)
    random = np.random.default_rng(1)
    print("measured", *METHODS)
    for part in PARTS:
        errors: dict[str, list[float]] = {name: [] for name in METHODS}
        for kind in range(len(table)):
            order = [k for k in range(len(table)) if k != kind] + [kind]
            hidden = random.random(table.shape[1]) >= part
            matrix = table[order].copy()
            matrix[-1, hidden] = np.nan
            for name, method in METHODS.items():
                guess = np.clip(method(matrix)[-1], 0.0, 1.0)
                errors[name].append(float(np.abs(guess - table[kind])[hidden].mean()))
        print(part, *(f"{np.mean(found):.3f}" for found in errors.values()))
    rates = np.log(alone(oracle))
    for given, name in enumerate(TYPES):
        for label, fit in (("additive", lambda x: mean(x, True)), ("rank-one", rank_one), ("monotone", monotone_map)):
            off = []
            for kind in range(len(rates)):
                matrix = rates.copy()
                matrix[kind, [j for j in range(len(TYPES)) if j != given]] = np.nan
                off.append(np.abs(np.exp(fit(matrix)[kind] - rates[kind]) - 1))
            median = np.median(off, axis=0)
            print(
                f"from {name} by {label}:",
                *(f"{other} {100 * e:.0f} %" for other, e in zip(TYPES, median, strict=True) if other != name),
            )
    partly = np.exp(rates)
    partly[random.random(rates.shape) < 0.3] = np.nan
    before = time.process_time()
    found = complete(partly)
    print(
        "auto:",
        found.method,
        {name: round(e, 3) for name, e in found.tried.items()},
        f"{time.process_time() - before:.2f} CPU s",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
