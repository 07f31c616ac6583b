"""Read the serving question out of a published Helix layout: the folder's ``ilp_model.lp``.

The model file is the only complete statement of the question: node rates by number of layers, link capacities, and the
pairs that have a link at all. Only that file is read. The reader is strict: every row must be one that the published
models have, with the pattern of coefficients it must have; a file that says anything else is refused with a sentence
that names the row. It does not read solver logs or the simulator's files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.io.importers._text import load_text

__all__ = ["read_layout"]

MODEL = "ilp_model.lp"
MOST_LAYERS = 10_000
MOST_NODES = 2048  # published layouts have some tens

_ROW = re.compile(r"^(\w+): (.*) (<=|>=|=) (\S+)$")
_TERM = re.compile(r"([+-]) (?:([0-9.]+(?:e[+-]?\d+)?) )?([A-Za-z_]\w*)")
_NAME = re.compile(r"^(.+?)_(\d+|source)(?:_(\d+|sink))?$")
_KNOWN = {
    "hold_constraint",
    "end_constraint",
    "node_flow_constraint",
    "node_throughput_constraint",
    "edge_flow_constr",
    "edge_disable_constr",
    "edge_disable_constr1",
    "edge_disable_constr2",
}


def read_layout(folder: str | Path) -> ServingNetwork:
    """The network that a layout's model file states.

    Parameters
    ----------
    folder
        A folder with ``ilp_model.lp`` (or the path of such a file).

    Returns
    -------
    ServingNetwork
        Nodes in the file's numbering; rates and capacities in the file's unit.

    Raises
    ------
    ValueError
        When the file is missing or is not a model of this kind; names the row.
    """
    path = Path(folder)
    if path.is_dir():
        path = path / MODEL
    if not path.is_file():
        raise ValueError(f"{path}: no such file; a layout folder holds {MODEL}")
    rate: dict[tuple[int, int], float] = {}
    capacity: dict[tuple[str, str], float] = {}
    aligned: set[tuple[str, str, str]] = set()
    holds: dict[int, set[int]] = {}
    layers: set[int] = set()
    for name, terms, sense, right in _rows(path):
        parts = _NAME.match(name)
        kind = parts.group(1) if parts else name
        if parts is None or kind not in _KNOWN:
            raise ValueError(f"{path}: row {name} is not part of the published model")
        a, b = parts.group(2), parts.group(3) or ""
        wrong = f"{path}: row {name} is not of the published form"
        if kind == "hold_constraint":
            kept = _kept(terms, a, "hold", 1.0)
            if sense != "=" or right != 1 or kept is None or len(kept) != len(terms):
                raise ValueError(f"{wrong}: sum of hold_{a}_k = 1 was expected")
            holds[int(a)] = kept
        elif kind == "end_constraint":
            if (
                sense != "<="
                or terms.get(f"start_{a}") != 1
                or not _lengths(terms, a, holds.get(int(a), set()), 1.0, 1)
                or not 1 <= right <= MOST_LAYERS
                or not right.is_integer()
            ):
                raise ValueError(f"{wrong}: start_{a} + sum of k hold_{a}_k <= layers was expected")
            layers.add(int(right))
        elif kind == "node_throughput_constraint":
            for variable, c in terms.items():
                if variable.startswith(f"hold_{a}_") and c < 0:
                    rate[int(a), int(variable.rsplit("_", 1)[1])] = -c
                elif not (variable.startswith("flow_") and variable.endswith(f"_{a}") and c == 1):
                    raise ValueError(f"{wrong}: {variable} has coefficient {c}")
            if sense != "<=" or right != 0:
                raise ValueError(f"{wrong}: inflow - sum of rate hold <= 0 was expected")
        elif kind == "edge_flow_constr":
            c = -terms.get(f"switch_{a}_{b}", 0.0)
            if sense != "<=" or right != 0 or len(terms) != 2 or terms.get(f"flow_{a}_{b}") != 1 or c <= 0:
                raise ValueError(f"{wrong}: flow_{a}_{b} - capacity switch_{a}_{b} <= 0 was expected")
            capacity[a, b] = c
        elif kind == "node_flow_constraint":
            out = f"flow_{a}_"
            if sense != "=" or right != 0 or any(c != (-1 if v.startswith(out) else 1) for v, c in terms.items()):
                raise ValueError(f"{wrong}: inflow - outflow = 0 was expected")
        else:
            _check_alignment(kind, a, b, terms, holds, wrong)
            off = 0.0 if b == "sink" else float(max(layers, default=0))
            if sense != "<=" or right != off or terms.get(f"switch_{a}_{b}") not in layers:
                raise ValueError(f"{wrong}: the switch must be off unless the intervals join")
            aligned.add((a, b, kind))
    return _network(path, rate, capacity, aligned, holds, layers)


def _network(
    path: Path,
    rate: dict[tuple[int, int], float],
    capacity: dict[tuple[str, str], float],
    aligned: set[tuple[str, str, str]],
    holds: dict[int, set[int]],
    layers: set[int],
) -> ServingNetwork:
    """Put the rows together and see that they speak of the same nodes."""
    if len(layers) != 1:
        raise ValueError(f"{path}: the end constraints give {sorted(layers)} layers; one number was expected")
    n = len(holds)
    if n == 0 or set(holds) != set(range(n)):
        raise ValueError(f"{path}: nodes are numbered {sorted(holds)[:5]}...; 0 to {n - 1} was expected")
    need = {
        (a, b, f"edge_disable_constr{side}")
        for a, b in capacity
        for side in ([""] if a == "source" or b == "sink" else ["1", "2"])
    }
    if need != aligned:
        odd = sorted(need ^ aligned)[0]
        raise ValueError(f"{path}: link {odd[0]} to {odd[1]} has a capacity or a joining condition but not both")
    if {(i, k) for i, kept in holds.items() for k in kept} != set(rate):
        raise ValueError(f"{path}: the hold variables and the throughput rows give different numbers of layers")
    most = max(k for _, k in rate)
    if n > MOST_NODES or most > MOST_LAYERS:
        raise ValueError(f"{path}: {n} nodes that hold up to {most} layers, more than {MOST_NODES} or {MOST_LAYERS}")
    throughput = np.zeros((n, most + 1))
    for (i, k), value in rate.items():
        throughput[i, k] = value
    link, source, sink = np.zeros((n, n)), np.zeros(n), np.zeros(n)
    for (a, b), value in capacity.items():
        if any(end.isdigit() and int(end) >= n for end in (a, b)):
            raise ValueError(f"{path}: link {a} to {b} names a node that has no hold variables")
        if a == "source":
            source[int(b)] = value
        elif b == "sink":
            sink[int(a)] = value
        else:
            link[int(a), int(b)] = value
    return ServingNetwork(layers.pop(), throughput, link, source, sink)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, float], str, float]]:
    """Rows between ``Subject To`` and ``Bounds``: name, coefficients, sense, right-hand side."""
    text = load_text(path)
    try:
        body = text[text.index("Subject To") + len("Subject To") : text.index("\nBounds")]
    except ValueError:
        raise ValueError(f"{path}: an LP file with the sections Subject To and Bounds was expected") from None
    joined: list[str] = []
    for line in body.splitlines():
        if ":" in line:
            joined.append(line.strip())
        elif line.strip():
            if not joined:
                raise ValueError(f"{path}: the constraints begin with {line.strip()[:40]!r}; a row's name was expected")
            joined[-1] += " " + line.strip()
    for row in joined:
        match = _ROW.match(row)
        if match is None:
            raise ValueError(f"{path}: cannot read the row {row[:60]!r}")
        name, left, sense, right = match.groups()
        signed = left if left[0] in "+-" else "+ " + left
        terms: dict[str, float] = {}
        position = 0
        for term in _TERM.finditer(signed):
            if signed[position : term.start()].strip():
                break
            sign, number, variable = term.groups()
            terms[variable] = float(sign + (number or "1"))
            position = term.end()
        if signed[position:].strip():
            raise ValueError(f"{path}: row {name} has a term that cannot be read: {signed[position:][:40]!r}")
        if not all(map(math.isfinite, terms.values())):
            raise ValueError(f"{path}: row {name} has a coefficient that is too large for a number")
        try:
            side = float(right)
        except ValueError:
            side = math.nan
        if not math.isfinite(side):
            raise ValueError(f"{path}: row {name} ends in {right!r}; a number was expected")
        yield name, terms, sense, side


def _kept(terms: dict[str, float], node: str, stem: str, coefficient: float) -> set[int] | None:
    """Layer counts of the ``stem_node_k`` terms, all with this coefficient; None when one has another."""
    prefix = f"{stem}_{node}_"
    found = {int(v[len(prefix) :]): c for v, c in terms.items() if v.startswith(prefix)}
    return set(found) if all(c == coefficient for c in found.values()) else None


def _lengths(terms: dict[str, float], node: str, kept: set[int], sign: float, extra: int) -> bool:
    """Are all but ``extra`` terms ``sign k hold_node_k``, one for each number of layers kept?"""
    prefix = f"hold_{node}_"
    found = {int(v[len(prefix) :]): c for v, c in terms.items() if v.startswith(prefix)}
    return len(found) + extra == len(terms) and set(found) == kept and all(c == sign * k for k, c in found.items())


def _check_alignment(
    kind: str, a: str, b: str, terms: dict[str, float], holds: dict[int, set[int]], wrong: str
) -> None:
    """The rows that turn a link's switch off unless its ends join: end of ``a`` = start of ``b``."""
    kept = holds.get(int(a), set()) if a != "source" else set()
    if kind != "edge_disable_constr":
        sign = 1.0 if kind == "edge_disable_constr1" else -1.0
        joins = terms.get(f"start_{a}") == sign and terms.get(f"start_{b}") == -sign
        good = joins and _lengths(terms, a, kept, sign, 3)
    elif a == "source":
        good = terms.get(f"start_{b}") == 1 and len(terms) == 2
    else:  # a sink link: L - end <= L (1 - switch)
        good = b == "sink" and terms.get(f"start_{a}") == -1 and _lengths(terms, a, kept, -1.0, 2)
    if not good:
        raise ValueError(f"{wrong}: only links that join an interval's end to another's start are understood")
