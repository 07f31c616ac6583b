"""Total weighted completion time on unrelated machines: 80 published files by annealing, against the published values.

    python benchmarks/weighted_completion.py [--seconds 2] [--log FILE]

Needs the folder ``weighted-completion`` of the reference data (``HETOPT_DATA``). Every plan and every bound is verified, a line
is printed as soon as a file is done, and a value below the published one is called out. Files without a published value are
compared with our bound (Skutella's convex program, replayed) instead. With ``--log`` each file's figures are appended to FILE
as a line of JSON, and files that stand there already are not run again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import hetopt
from formulations.assignment.weighted_completion import smith
from hetopt.algorithms.completion_search import anneal_completion
from hetopt.io import importers

PROPOSALS_A_SECOND = 20_000_000  # below what one core does, so that the time given is kept


def main() -> int:
    """Print a line for each file, one for each size, and the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds of annealing a file")
    parser.add_argument("--log", type=Path, help="file of JSON lines to resume from and to append to")
    asked = parser.parse_args()
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "weighted-completion"
    if not data.is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds weighted-completion", file=sys.stderr)
        return 1
    done: dict[str, dict[str, Any]] = {}
    if asked.log and asked.log.exists():
        done = {row["file"]: row for row in map(json.loads, asked.log.read_text().splitlines())}
    files = sorted(data.glob("*.json.gz"))
    first = importers.get("twct").load(files[0])
    anneal_completion(first.time, first.columns.weight, proposals=10)  # compiles the kernels
    rows = []
    for file in files:
        name = file.name.removesuffix(".json.gz")
        row = done.get(name)
        if row is None:
            row = solved(file, asked.seconds)
            if asked.log:
                with asked.log.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
        rows.append(row)
        told = "none published" if row["published"] is None else f"published {row['published']}, {_above(row):+.4%}"
        below = "  BELOW the published value, verified" if row["published"] and row["value"] < row["published"] else ""
        print(
            f"{name:9} value {row['value']:.0f}, {told}; bound {row['bound']:.0f} (replayed), gap {_gap(row):.2%}; "
            f"{row['seconds']:.2f} CPU s{below}",
            flush=True,
        )
    listed = [row for row in rows if row["published"] is not None]
    rest = [row for row in rows if row["published"] is None]
    for size in dict.fromkeys(row["file"].rpartition("_")[0] for row in listed):
        above = [_above(row) for row in listed if row["file"].rpartition("_")[0] == size]
        print(f"{size:8} {len(above)} files: mean {np.mean(above):+.4%}, largest {max(above):+.4%}")
    every = np.array([_above(row) for row in listed])
    print(
        f"{len(listed)} files with a published value: mean {every.mean():+.4%}, largest {every.max():+.4%}, "
        f"{int((every == 0).sum())} equal, {int((every < 0).sum())} below; annealing at most "
        f"{max(row['seconds'] for row in rows):.2f} CPU s a file"
    )
    gaps = [_gap(row) for row in rest]
    print(f"{len(rest)} files without: mean gap to our bound {np.mean(gaps):.2%}, largest {max(gaps):.2%}")
    return 0


def solved(file: Path, budget: float) -> dict[str, Any]:
    """Value, bound, published value and seconds of one file."""
    with gzip.open(file) as stream:
        listed = json.load(stream).get("published")
    instance = importers.get("twct").load(file)
    started = time.process_time()
    found = anneal_completion(
        instance.time, instance.columns.weight, proposals=max(1, int(budget * PROPOSALS_A_SECOND))
    )
    seconds = time.process_time() - started
    value = hetopt.verify(instance, smith(instance, found.plan)).objective
    bound = hetopt.solve(instance, method="skutella")
    hetopt.verify(instance, bound)
    return {
        "file": file.name.removesuffix(".json.gz"),
        "value": value,
        "published": None if listed is None else listed["objective"],
        "bound": bound.bound,
        "seconds": seconds,
    }


def _above(row: dict[str, Any]) -> float:
    return float(row["value"] / row["published"] - 1)


def _gap(row: dict[str, Any]) -> float:
    return float(1 - row["bound"] / row["value"])


if __name__ == "__main__":
    sys.exit(main())
