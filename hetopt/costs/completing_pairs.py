"""Rates of two kinds of jobs on one device, completed: what part of its speed alone a kind keeps beside another.

``tables.unmeasured_pairs`` has a row ``[type, kind, other kind]`` for each pair that nobody measured; a pair that is neither
there nor in ``tables.together`` does not fit. The table that is completed has a row for each kind and a column for each type
and partner; the entries are parts of one, which are more alike than the rates themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.costs.completion import Completed, complete
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.verify.pairs import pair_rates

__all__ = ["complete_pairs", "unmeasured_pairs"]

Floats = NDArray[np.float64]
LEAST = 0.01  # part of its speed that a kind keeps at least, by any estimate


def unmeasured_pairs(instance: Instance) -> list[tuple[int, str, str]]:
    """Device and kinds of each pair that nobody measured.

    Raises
    ------
    InputError
        The table is none, or a row names no device or kind, or a pair that is measured or named before.
    """
    rows = instance.tables.get("unmeasured_pairs", [])
    if not isinstance(rows, list):
        raise InputError(f"$.tables.unmeasured_pairs is {type(rows).__name__}, expected rows [type, kind, other kind]")
    kinds = instance.tables.get("kind", {})
    known = set(kinds.values()) if isinstance(kinds, Mapping) else set()
    there = {(row[0], *sorted(row[1:3])) for row in instance.tables.get("together", [])}
    found = []
    for r, row in enumerate(rows):
        path = f"$.tables.unmeasured_pairs[{r}]"
        if not isinstance(row, list) or len(row) != 3 or not all(isinstance(word, str) for word in row):
            raise InputError(f"{path} is {row!r:.60}, expected [type, kind, other kind]")
        if row[0] not in instance.device_index:
            raise InputError(f"{path}[0] is {row[0]!r}, which is no device")
        if not {row[1], row[2]} <= known:
            raise InputError(f"{path} names {row[1]!r} and {row[2]!r}, expected kinds of `tables.kind`")
        key = (row[0], *sorted(row[1:]))
        if key in there:
            raise InputError(f"{path} names a pair that is measured, or is named before")
        there.add(key)
        found.append((instance.device_index[row[0]], row[1], row[2]))
    return found


def complete_pairs(
    instance: Instance, method: str = "auto"
) -> tuple[list[list[Any]], list[list[Any]], Completed | None]:
    """Rows of ``together`` with the estimates, rows of ``estimated`` for them, and the table; the times alone must be there.

    Raises
    ------
    InputError
        As :func:`unmeasured_pairs`, or jobs of a kind take different times alone, so that nothing is a part of them.
    """
    missing = unmeasured_pairs(instance)
    together: list[list[Any]] = [list(row) for row in instance.tables.get("together", [])]
    if not missing:
        return together, [], None
    rates = pair_rates(instance)
    names = sorted(set(instance.tables["kind"].values()))
    alone = _alone(instance, rates.kind, names)
    k, m = alone.shape
    kept = np.full((k, m, k), np.nan)
    kept[rates.first, rates.type, rates.second] = rates.rate * alone[rates.first, rates.type]
    kept[rates.second, rates.type, rates.first] = rates.other * alone[rates.second, rates.type]
    table = complete(kept.reshape(k, m * k), method, logarithms=False)
    guess, error = table.values.reshape(k, m, k), table.error.reshape(k, m, k)
    at = {name: number for number, name in enumerate(names)}
    marks: list[list[Any]] = []
    for i, one, two in missing:
        a, b = at[one], at[two]
        parts = [float(np.maximum(guess[x, i, y], LEAST)) for x, y in ((a, b), (b, a))]
        if not (np.isfinite(parts).all() and np.isfinite(alone[[a, b], i]).all()):
            continue
        off = [float(error[x, i, y] / part) for (x, y), part in zip(((a, b), (b, a)), parts, strict=True)]
        device = instance.device_names[i]
        together.append([device, one, two, float(alone[a, i] / parts[0]), float(alone[b, i] / parts[1])])
        marks.append([device, [one, two], [e if np.isfinite(e) else None for e in off], table.method])
    return together, marks, table


def _alone(instance: Instance, kind: NDArray[np.int64], names: list[str]) -> Floats:
    """(k, m) seconds a step of a kind alone, ``inf`` where it cannot run."""
    out = np.full((len(names), instance.n_devices), np.inf)
    for number, name in enumerate(names):
        own = instance.time[kind == number]
        if not (own == own[0]).all():
            raise InputError(f"jobs of the kind {name!r} take different times alone; give them kinds of their own")
        out[number] = own[0]
    return out
