"""A sequence of layers on pools of equal units: least cost of all samples, by shortest paths over candidate periods.

The cost of a plan is its period times its rate (price of all units). For a period tau, a stage takes the fewest units within tau,
and the least rate R(tau) is a shortest path over boundaries; R falls as tau grows, and only at the periods that some stage with
some units has, the candidates. So all candidates in a range (a, b] cost at least the smallest of them times R(b): ranges are
halved, the most promising one first, and dropped when that product is no better than a plan.

Where stages on one pool share its units, the path has labels (rate, units taken of each pool) that are kept while none dominates
them, and while rate plus the rest without sharing could still be better. What it is not: it reads no instance.

Sources: the question is that of J. Liu et al., HeterPS, Future Generation Computer Systems 148 (2023); the scan of periods is
ours.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["PoolTable", "Provision", "cheapest_provision", "least_rate", "quickest"]

MARGIN = 1e-12  # relative, what sums in floating point may be off


@dataclass(frozen=True, eq=False)
class PoolTable:
    """``n`` layers on ``t`` pools.

    Attributes
    ----------
    seconds
        (t, k, n + 1, n + 1) seconds a sample of the stage from boundary i to boundary j on 1..k units, ``inf`` where impossible
        or beyond the pool's units; never more on more units.
    price
        (t,) of a unit.
    units
        (t,) units of each pool.
    shared
        Whether stages on the same pool share its units.
    """

    seconds: NDArray[np.float64]
    price: NDArray[np.float64]
    units: NDArray[np.int64]
    shared: bool

    @cached_property
    def candidates(self) -> NDArray[np.float64]:
        """Periods that some stage has, ascending."""
        found = np.unique(self.seconds)
        return found[np.isfinite(found)]

    def fewest(self, period: float) -> NDArray[np.int64]:
        """(t, n + 1, n + 1) fewest units within ``period``; one more than any pool has when none do."""
        within = self.seconds <= period
        return np.asarray(np.where(within.any(axis=1), within.argmax(axis=1), within.shape[1]) + 1, np.int64)


@dataclass(frozen=True)
class Provision:
    """Stages ``(pool, begin, end, units)`` and the price of all their units."""

    stages: tuple[tuple[int, int, int, int], ...]
    rate: float


def least_rate(table: PoolTable, period: float, ceiling: float = np.inf) -> Provision | None:
    """The cheapest stages within ``period``; None when none cost less than ``ceiling``."""
    count = table.fewest(period)
    fee = np.where(count <= table.units[:, None, None], table.price[:, None, None] * count, np.inf)
    plain = _shortest(fee, count)
    if plain is None or plain.rate >= ceiling:
        return None
    taken = np.zeros(len(table.units), np.int64)
    for pool, _, _, units in plain.stages:
        taken[pool] += units
    if not table.shared or (taken <= table.units).all():
        return plain
    return _labels(table, fee, count, ceiling)


def _shortest(fee: NDArray[np.float64], count: NDArray[np.int64]) -> Provision | None:
    """Cheapest path over boundaries whose neighbouring stages are on different pools."""
    t, n = len(fee), fee.shape[1] - 1
    best = np.full((t, n + 1), np.inf)
    start = np.zeros((t, n + 1), np.int64)
    other = np.full((t, n + 1), np.inf)  # cheapest way to a boundary by a stage on any other pool
    other[:, 0] = 0.0
    for j in range(1, n + 1):
        sums = other[:, :j] + fee[:, :j, j]
        start[:, j] = np.argmin(sums, axis=1)
        best[:, j] = sums[np.arange(t), start[:, j]]
        for pool in range(t):
            other[pool, j] = np.min(np.delete(best[:, j], pool), initial=np.inf)
    if not np.isfinite(best[:, n]).any():
        return None
    pool, j, stages = int(np.argmin(best[:, n])), n, []
    rate = float(best[pool, n])
    while j:
        i = int(start[pool, j])
        stages.append((pool, i, j, int(count[pool, i, j])))
        if i:
            others = best[:, i].copy()
            others[pool] = np.inf
            pool = int(np.argmin(others))
        j = i
    return Provision(tuple(stages[::-1]), rate)


def _rest(fee: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n + 1,) least rate of the layers behind each boundary, without sharing and whatever the pools."""
    n = fee.shape[1] - 1
    least, rest = fee.min(axis=0), np.full(n + 1, np.inf)
    rest[n] = 0.0
    for i in range(n - 1, -1, -1):
        rest[i] = np.min(least[i, i + 1 :] + rest[i + 1 :])
    return rest


class _Label(NamedTuple):
    """A way to a boundary: its rate, units taken of each pool, its last stage and the way before that."""

    rate: float
    taken: tuple[int, ...]
    stage: tuple[int, int, int, int] | None
    before: _Label | None


def _labels(table: PoolTable, fee: NDArray[np.float64], count: NDArray[np.int64], ceiling: float) -> Provision | None:
    """As :func:`least_rate` where units are shared."""
    t, n = len(fee), fee.shape[1] - 1
    rest = _rest(fee) * (1 - MARGIN)
    first = [_Label(0.0, (0,) * t, None, None)]
    kept: dict[tuple[int, int], list[_Label]] = {}
    for j in range(1, n + 1):
        for pool in range(t):
            found = []
            for i in np.flatnonzero(np.isfinite(fee[pool, :j, j])).tolist():
                units, price = int(count[pool, i, j]), float(fee[pool, i, j])
                for label in [b for p in range(t) if p != pool for b in kept[i, p]] if i else first:
                    taken = label.taken[pool] + units
                    if taken <= table.units[pool] and label.rate + price + rest[j] < ceiling:
                        all_taken = (*label.taken[:pool], taken, *label.taken[pool + 1 :])
                        found.append(_Label(label.rate + price, all_taken, (pool, i, j, units), label))
            kept[j, pool] = _undominated(sorted(found, key=lambda label: label[:2]))
    ends = [label for pool in range(t) for label in kept[n, pool]]
    if not ends:
        return None
    label = min(ends, key=lambda label: label.rate)
    stages, rate = [], label.rate
    while label.stage is not None and label.before is not None:
        stages.append(label.stage)
        label = label.before
    return Provision(tuple(stages[::-1]), rate)


def _undominated(found: list[_Label]) -> list[_Label]:
    """Labels, sorted by rate, of which none takes as many units of every pool as an earlier one."""
    kept: list[_Label] = []
    taken = np.array([label.taken for label in found], np.int64)
    for at, label in enumerate(found):
        if not (taken[: len(kept)] <= taken[at]).all(axis=1).any():
            taken[len(kept)] = taken[at]
            kept.append(label)
    return kept


def quickest(table: PoolTable) -> float | None:
    """The least period of any plan; None when there is none."""
    low, high = -1, len(table.candidates) - 1
    if high < 0 or least_rate(table, float(table.candidates[high])) is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if least_rate(table, float(table.candidates[middle])) is None:
            low = middle
        else:
            high = middle
    return float(table.candidates[high])


def cheapest_provision(
    table: PoolTable,
    limit: float,
    should_stop: Callable[[], bool],
    report: Callable[[Provision, float], None],
) -> tuple[float, float | None]:
    """Least period times rate over plans of a period of at most ``limit``; returns a bound on it, and the best value.

    ``report`` is told each plan that is better than all before, and its value. The bound is within 1e-12 of the best unless it
    was told to stop; the best is None when there is no plan.
    """
    periods = table.candidates[table.candidates <= limit]
    best: float | None = None
    heap = [(0.0, -1, len(periods) - 1)] if len(periods) else []
    while heap:
        bound, a, b = heap[0]
        if best is not None and bound >= best:
            break
        if should_stop():
            return bound * (1 - MARGIN), best
        heapq.heappop(heap)
        first = float(periods[a + 1])
        found = least_rate(table, float(periods[b]), np.inf if best is None or not first else best / first)
        if found is None:
            continue
        own = max(float(table.seconds[pool, units - 1, i, j]) for pool, i, j, units in found.stages)
        if best is None or own * found.rate < best:
            best = own * found.rate
            report(found, best)
        below = int(np.searchsorted(periods, own)) - 1  # between its own period and b nothing can be cheaper
        middle = (a + below) // 2
        for low, high in ((a, middle), (middle, below)):
            if high > low:
                heapq.heappush(heap, (float(periods[low + 1]) * found.rate, low, high))
    return (0.0 if best is None else best * (1 - MARGIN)), best
