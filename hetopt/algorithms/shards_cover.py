"""Shards on devices at least total cost with a penalty for classes that nobody trains on: a dynamic program and a greedy.

Costs are (d, total + 1), ``inf`` outside a device's limits; ``held`` (d,) has bit k set where a device holds class k.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_cover", "greedy_cover"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def best_cover(
    cost: Floats, held: Ints, classes: int, penalty: float, should_stop: Callable[[], bool]
) -> tuple[Ints, float] | None:
    """(d,) shards of least cost and that cost, over (device, shards given out, classes covered); None when stopped.

    O(d total^2 2^classes) steps, O(d total 2^classes) memory.
    """
    d, n = cost.shape[0], cost.shape[1]
    sets = np.arange(1 << classes)
    layers = [np.full((n, len(sets)), np.inf)]
    layers[0][0, 0] = 0.0
    for i in range(d):
        before, after = layers[-1], np.full((n, len(sets)), np.inf)
        joined = _joined(before, sets | held[i])
        for take in np.flatnonzero(np.isfinite(cost[i])).tolist():
            if should_stop():
                return None
            source = joined if take else before
            np.minimum(after[take:], source[: n - take] + cost[i, take], out=after[take:])
        layers.append(after)
    missing = classes - _bits(sets, classes)
    final = layers[-1][-1] + penalty * missing
    at, left = int(final.argmin()), n - 1
    value = float(final[at])
    shards = np.zeros(d, np.int64)
    for i in range(d - 1, -1, -1):
        goal, before = layers[i + 1][left, at], layers[i]
        for take in np.flatnonzero(np.isfinite(cost[i, : left + 1])).tolist():
            earlier = np.flatnonzero((sets | held[i]) == at) if take else np.array([at])
            reached = before[left - take, earlier] + cost[i, take]
            if (reached == goal).any():
                shards[i], at, left = take, int(earlier[int(np.argmax(reached == goal))]), left - take
                break
    return shards, value


def _joined(table: Floats, to: Ints) -> Floats:
    """Columns gathered into the column ``to`` of each, the least of those that meet."""
    out = np.full_like(table, np.inf)
    np.minimum.at(out.T, to, table.T)
    return out


def _bits(sets: Ints, classes: int) -> Ints:
    """Number of classes in each set."""
    counted: Ints = ((sets[:, None] >> np.arange(classes)) & 1).sum(axis=1)
    return counted


def greedy_cover(cost: Floats, least: Ints, most: Ints, held: Ints, classes: int, penalty: float) -> Ints | None:
    """(d,) shards: again and again those shards to one device that cost least on average, new classes counted."""
    d, n = cost.shape
    if (least > most).any():
        return None
    given, rows = least.copy(), np.arange(d)
    covered = 0
    for i in np.flatnonzero(given).tolist():
        covered |= int(held[i])
    more = np.arange(1, n)
    while (left := n - 1 - int(given.sum())) > 0:
        at = given[:, None] + more[None, :]
        able = (more[None, :] <= left) & (at <= most[:, None])
        rise = cost[rows[:, None], np.minimum(at, n - 1)] - cost[rows, given][:, None]
        new = _bits(held & ~np.int64(covered), classes)
        rise = rise - penalty * np.where(given == 0, new, 0.0)[:, None]
        average = np.where(able, rise / more, np.inf)
        i, k = divmod(int(average.argmin()), n - 1)
        if not np.isfinite(average[i, k]):
            return None
        given[i] += more[k]
        covered |= int(held[i])
    return given if left == 0 else None
