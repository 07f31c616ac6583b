"""A sequence of layers on pools of equal units: least cost of all samples, by shortest paths over candidate periods.

The cost of a plan is its period times its rate (price of all units). For a period tau, a stage takes the fewest units within tau,
and the least rate R(tau) is a shortest path over boundaries; R falls as tau grows, and only at the periods that some stage with
some units has, the candidates. So all candidates in a range (a, b] cost at least the smallest of them times R(b): ranges are
halved, the most promising one first, and dropped when that product is no better than a plan.

Where stages on one pool share its units, the path has labels (rate, units taken of each pool) that are kept while none dominates
them, and while a Lagrangian bound says that they could still be better. What it is not: it reads no instance.

Sources: the question is that of J. Liu et al., HeterPS, Future Generation Computer Systems 148 (2023); the scan of periods is
ours.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["PoolTable", "Provision", "cheapest_provision", "least_rate", "quickest"]

MARGIN = 1e-12  # relative, what sums in floating point may be off
_TOLL_STEPS = 40
_NARROW = 1.02  # ratio of periods up to which a range is worth labels


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

    @cached_property
    def unshared(self) -> PoolTable:
        """The same, every stage by itself: a lower bound."""
        return replace(self, shared=False)

    def fewest(self, period: float) -> NDArray[np.int64]:
        """(t, n + 1, n + 1) fewest units within ``period``; one more than any pool has when none do."""
        within = self.seconds <= period
        return np.asarray(np.where(within.any(axis=1), within.argmax(axis=1), within.shape[1]) + 1, np.int64)


@dataclass(frozen=True)
class Provision:
    """Stages ``(pool, begin, end, units)`` and the price of all their units."""

    stages: tuple[tuple[int, int, int, int], ...]
    rate: float


def least_rate(
    table: PoolTable, period: float, ceiling: float = np.inf, should_stop: Callable[[], bool] = lambda: False
) -> Provision | None:
    """The cheapest stages within ``period``; None when none cost less than ``ceiling``, or it was told to stop."""
    count = table.fewest(period)
    count = np.where(count <= table.units[:, None, None], count, 0)  # 0 units: not within the period
    plain = _shortest(count, table.price)
    if plain is None or plain.rate >= ceiling:
        return None
    if not table.shared or (_taken(plain, len(table.units)) <= table.units).all():
        return plain
    tolls, known = _tolls(table, count, plain, ceiling)
    if tolls is None:
        return None
    if known is not None:
        ceiling = known.rate
    return _labels(table, count, tolls, ceiling, should_stop) or known


def _taken(found: Provision, pools: int) -> NDArray[np.int64]:
    """(t,) units taken of each pool."""
    taken = np.zeros(pools, np.int64)
    for pool, _, _, units in found.stages:
        taken[pool] += units
    return taken


def _fees(count: NDArray[np.int64], price: NDArray[np.float64]) -> NDArray[np.float64]:
    """(t, n + 1, n + 1) price of each stage, ``inf`` where there is none."""
    return np.asarray(np.where(count > 0, price[:, None, None] * count, np.inf))


def _tolls(
    table: PoolTable, count: NDArray[np.int64], found: Provision, ceiling: float
) -> tuple[NDArray[np.float64] | None, Provision | None]:
    """(t,) prices on top, so that paths by price and toll, less the tolls of all units, bound the rate from below.

    Lagrangian multipliers of the units shared, by subgradient steps; None when they prove that no plan is below ``ceiling``. Also
    the cheapest path met on the way that takes no more units than there are and is below the ceiling.
    """
    pools = len(table.units)
    tolls, best, highest = np.zeros(pools), np.zeros(pools), found.rate
    known: Provision | None = None
    mean = float(table.price.mean()) or 1.0
    for step in range(_TOLL_STEPS):
        over = _taken(found, pools) - table.units
        tolls = np.maximum(0.0, tolls + 2 * mean / (1 + step / 4) * over / max(1, int(abs(over).max())))
        path = _shortest(count, table.price + tolls)
        assert path is not None
        bound = path.rate - float(np.dot(tolls, table.units))
        if bound * (1 - MARGIN) >= ceiling:
            return None, None
        if bound > highest:
            best, highest = tolls, bound
        rate = float(np.dot(_taken(path, pools), table.price))
        if rate < ceiling and (_taken(path, pools) <= table.units).all():
            known, ceiling = Provision(path.stages, rate), rate
        found = path
    return best, known


def _shortest(count: NDArray[np.int64], price: NDArray[np.float64]) -> Provision | None:
    """Cheapest path over boundaries whose neighbouring stages are on different pools."""
    fee = _fees(count, price)
    t, n = len(fee), fee.shape[1] - 1
    best = np.full((t, n + 1), np.inf)
    start = np.zeros((t, n + 1), np.int64)
    other = np.full((t, n + 1), np.inf)  # cheapest way to a boundary by a stage on any other pool
    other[:, 0] = 0.0
    pools = np.arange(t)
    for j in range(1, n + 1):
        sums = other[:, :j] + fee[:, :j, j]
        start[:, j] = np.argmin(sums, axis=1)
        best[:, j] = sums[pools, start[:, j]]
        if t > 1:
            low, second = np.partition(best[:, j], 1)[:2]
            other[:, j] = low
            other[int(np.argmin(best[:, j])), j] = second
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
    """(n + 1,) least fee of the layers behind each boundary, without sharing and whatever the pools."""
    n = fee.shape[1] - 1
    least, rest = fee.min(axis=0), np.full(n + 1, np.inf)
    rest[n] = 0.0
    for i in range(n - 1, -1, -1):
        rest[i] = np.min(least[i, i + 1 :] + rest[i + 1 :])
    return rest


@dataclass(frozen=True, eq=False)
class _Ways:
    """Ways to a boundary: (m,) rates; (m, t) units taken; (m, 3) boundary and pool before, and number of the way there."""

    rate: NDArray[np.float64]
    taken: NDArray[np.int64]
    before: NDArray[np.int64]


def _labels(
    table: PoolTable,
    count: NDArray[np.int64],
    tolls: NDArray[np.float64],
    ceiling: float,
    should_stop: Callable[[], bool],
) -> Provision | None:
    """As :func:`least_rate` where units are shared: ways by last pool, kept while rate, tolls and rest are below the ceiling."""
    t, n = len(count), count.shape[1] - 1
    fee, rest = _fees(count, table.price), _rest(_fees(count, table.price + tolls))
    most = (ceiling + float(np.dot(tolls, table.units))) * (1 + MARGIN)
    kept = {(0, t): _Ways(np.zeros(1), np.zeros((1, t), np.int64), np.full((1, 3), -1))}
    for j in range(1, n + 1):
        for pool in range(t):
            if should_stop():
                return None
            found = [_Ways(np.zeros(0), np.zeros((0, t), np.int64), np.zeros((0, 3), np.int64))]
            for i in np.flatnonzero(count[pool, :j, j]).tolist():
                for last in (p for p in range(t) if p != pool) if i else (t,):
                    ways = kept[i, last]
                    taken = ways.taken.copy()
                    taken[:, pool] += count[pool, i, j]
                    rate = ways.rate + fee[pool, i, j]
                    good = (taken[:, pool] <= table.units[pool]) & (rate < ceiling)
                    good &= rate + taken @ tolls + rest[j] < most
                    fine = np.flatnonzero(good)
                    before = np.column_stack([np.full(len(fine), i), np.full(len(fine), last), fine])
                    found.append(_Ways(rate[fine], taken[fine], before))
            kept[j, pool] = _undominated(found)
    ends = [(float(kept[n, pool].rate[0]), pool) for pool in range(t) if len(kept[n, pool].rate)]
    if not ends:
        return None
    best, pool = min(ends)
    at, j, stages = 0, n, []
    while j:
        i, last, way = kept[j, pool].before[at].tolist()
        stages.append((pool, i, j, int(count[pool, i, j])))
        at, j, pool = way, i, last
    return Provision(tuple(stages[::-1]), best)


def _undominated(found: list[_Ways]) -> _Ways:
    """The ways, by rate, of which none takes as many units of every pool as a cheaper one."""
    rate, taken, before = (
        np.concatenate([getattr(ways, key) for ways in found]) for key in ("rate", "taken", "before")
    )
    order = np.lexsort((*taken.T, rate))
    held = np.empty_like(taken)
    kept: list[int] = []
    for at in order.tolist():
        if not (held[: len(kept)] <= taken[at]).all(axis=1).any():
            held[len(kept)] = taken[at]
            kept.append(at)
    return _Ways(rate[kept], taken[kept], before[kept])


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
        first, last = float(periods[a + 1]), float(periods[b])
        ceiling = np.inf if best is None or not first else best / first
        wide = best is not None and last > first * _NARROW
        found = least_rate(table.unshared if wide else table, last, ceiling, should_stop)
        if should_stop():
            return bound * (1 - MARGIN), best
        heapq.heappop(heap)
        if found is None:
            continue
        own = max(float(table.seconds[pool, units - 1, i, j]) for pool, i, j, units in found.stages)
        allowed = not table.shared or bool((_taken(found, len(table.units)) <= table.units).all())
        if allowed and (best is None or own * found.rate < best):
            best = own * found.rate
            report(found, best)
        # a path that is allowed is the best of all periods from its own on
        below = int(np.searchsorted(periods, own)) - 1 if allowed else b
        middle = (a + below) // 2 if below - a > 1 else below
        for low, high in ((a, middle), (middle, below)):
            if high > low:
                heapq.heappush(heap, (float(periods[low + 1]) * found.rate, low, high))
    return (0.0 if best is None else best * (1 - MARGIN)), best
