"""Best profit of one device under a load limit, by dynamic programming over (frontier state, load bucket).

Given a profit for every class, which set of load at most ``T`` earns most? The sweep of :mod:`frontier_order` makes this a
resource-constrained longest path. Loads are kept exactly, but only one entry per state and bucket of width ``T / buckets``.
What happens when entries meet there decides what the answer is good for:

* :func:`most_profit` lets the least load and the largest profit survive even if they come from different sets. Every set is
  dominated by some entry, so the answer is an *upper bound*, equal to the best profit when no two loads share a bucket.
  Because phantoms made of two sets would soon be too good, a third number takes part: the *excess* ``profit - slope * load``,
  whose largest value survives likewise and which no phantom load can inflate. A set within the limit earns at most
  ``excess + slope * T``; with the slope near what a second is worth at the best sets, a few hundred buckets do what ten
  thousand could not.
* :func:`best_set` keeps one real set, the one with the larger excess. The answer is a set with its true load, a *lower
  bound* on the best profit.

What this is not: memory of the device isn't looked at (a relaxation: callers put a price on bytes into the profit). Floats
are used throughout; :mod:`hetopt.verify.maxload_certificates` repeats the bound in exact integers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.frontier_order import Frontier
from hetopt.algorithms.jit import njit

__all__ = ["PricedSet", "best_set", "most_profit"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_NONE = -1e300
# Entries looked at in one kernel call: some tens of milliseconds, so that time limits and Ctrl-C are seen.
_CHUNK = 10_000_000


class PricedSet(NamedTuple):
    """A set of classes ((n,) bool over all classes of the graph), its profit and its load; empty when none was found."""

    members: BoolArray
    profit: float
    load: float


def most_profit(graph: Frontier, profit: FloatArray, limit: float, buckets: int = 500, slope: float = 0.0) -> float:
    """Upper bound on the profit of the sets with load at most ``limit``.

    Parameters
    ----------
    graph
        Frontier of the device type, built for this limit or a larger one.
    profit
        (n,) profit of a class; may be negative.
    limit
        Seconds a device may be loaded with; positive.
    buckets
        Load resolution; more is tighter and slower.
    slope
        Profit a second, at least 0. Any value gives a valid bound.

    Returns
    -------
    float
        At least the best profit; minus infinity when the frontier has no path.

    Notes
    -----
    Complexity: O(steps * entries), at most ``buckets + 1`` entries a state, fewer where few sets are worth keeping.
    """
    run = _run(graph, profit, limit, buckets, slope, True)
    if not len(run.profit):
        return -np.inf
    return float(np.minimum(run.profit, run.excess + slope * limit * (1.0 + 1e-9)).max())


def best_set(graph: Frontier, profit: FloatArray, limit: float, buckets: int = 500, slope: float = 0.0) -> PricedSet:
    """A set with load at most ``limit`` and large profit; the best one when no two loads share a bucket.

    Parameters and complexity as for :func:`most_profit`, and 8 bytes of memory for each entry.
    """
    run = _run(graph, profit, limit, buckets, slope, False)
    members = np.zeros(len(profit), dtype=bool)
    if not len(run.profit):
        return PricedSet(members, -np.inf, 0.0)
    entry = int(run.profit.argmax())
    found = PricedSet(members, float(run.profit[entry]), float(run.load[entry]))
    for i in range(len(graph.order) - 1, -1, -1):
        step = int(run.parent[run.start[i + 1] + entry])
        members[graph.order[i]] = step & 1
        entry = step >> 1
    return found


class _Run(NamedTuple):
    """Entries of the last state; for real sets, each entry's step: place of its origin in the layer before, and side."""

    profit: FloatArray
    excess: FloatArray
    load: FloatArray
    parent: NDArray[np.int64]
    start: NDArray[np.int64]


def _run(graph: Frontier, profit: FloatArray, limit: float, buckets: int, slope: float, optimistic: bool) -> _Run:
    n = len(graph.order)
    width = int(np.diff(graph.first).max())
    # Reserved, not touched: the operating system hands out only the pages that entries fill.
    table = np.empty((3, 2, width * (buckets + 1)))
    table[:, 0, 0] = 0.0
    ends = np.zeros((2, width + 1), dtype=np.int64)
    ends[0, 1:] = 1
    parent = np.empty(1 if optimistic else graph.states * (buckets + 1), dtype=np.int64)
    start = np.zeros(n + 2, dtype=np.int64)
    start[1] = 1
    gain = np.ascontiguousarray(profit[graph.order], dtype=np.float64)
    layer, state = 0, 0
    while layer < n:
        layer, state = _sweep(
            graph.first, graph.enter_ptr, graph.enter, graph.load, graph.left, gain, slope, limit, optimistic,
            buckets, table, ends, parent, start, layer, state, _CHUNK,
        )  # fmt: skip
    last = table[:, n % 2, : ends[n % 2, 1]]
    return _Run(last[0], last[1], last[2], parent, start)


@njit
def _sweep(  # type: ignore[no-untyped-def]
    first, enter_ptr, enter, step_load, left, gain, slope, limit, optimistic,
    buckets, table, ends, parent, start, layer, state, budget,
):  # fmt: skip
    """Advance the sweep from (layer, state of the next layer); where to go on after ``budget`` entries or the last layer.

    ``table`` holds profit, excess and load of the entries of two layers, state by state, loads ascending; ``ends[k, s]`` is
    where the entries of state s begin. ``start`` counts entries of all layers, for ``parent``.
    """
    n = len(gain)
    scale = buckets / limit
    ceiling = limit * (1.0 + 1e-9)
    profits, excesses, loads = table[0], table[1], table[2]
    most = 1
    for t in range(len(first) and first[-1]):
        most = max(most, enter_ptr[t + 1] - enter_ptr[t])
    place, stop, side = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    head, add, earn, surplus = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    done = 0
    while layer < n:
        now, nxt = layer % 2, (layer + 1) % 2
        base, following = first[layer], first[layer + 1]
        if state == 0:
            ends[nxt, 0] = 0
        while state < first[layer + 2] - following:
            if done > budget:
                return layer, state
            t = following + state
            ways = enter_ptr[t + 1] - enter_ptr[t]
            highest = ceiling - left[t, 0]
            for j in range(ways):
                step = enter[enter_ptr[t] + j]
                s, x = step >> 1, step & 1
                place[j], stop[j], side[j] = ends[now, s - base], ends[now, s - base + 1], x
                add[j] = step_load[s, x]
                earn[j] = gain[layer] if x == 1 else 0.0
                surplus[j] = earn[j] - slope * add[j]
                head[j] = loads[now, place[j]] + add[j] if place[j] < stop[j] else np.inf
            end = ends[nxt, state]
            top, with_it, bucket = _NONE, _NONE, -1
            while True:
                best = 0
                l = head[0] if ways > 0 else np.inf
                for j in range(1, ways):
                    if head[j] < l:
                        l = head[j]
                        best = j
                if l > highest:
                    break
                origin = place[best]
                p, q = profits[now, origin] + earn[best], excesses[now, origin] + surplus[best]
                place[best] = origin + 1
                head[best] = loads[now, origin + 1] + add[best] if origin + 1 < stop[best] else np.inf
                done += 1
                # An entry of no more load that is at least as good in all that counts makes this one useless.
                if p <= top and (q <= with_it or not optimistic):
                    continue
                k = min(int(l * scale), buckets)
                if k != bucket:
                    bucket = k
                    profits[nxt, end], excesses[nxt, end], loads[nxt, end] = p, q, l
                    end += 1
                elif optimistic:
                    profits[nxt, end - 1] = max(profits[nxt, end - 1], p)
                    excesses[nxt, end - 1] = max(excesses[nxt, end - 1], q)
                elif q > excesses[nxt, end - 1]:
                    profits[nxt, end - 1], excesses[nxt, end - 1], loads[nxt, end - 1] = p, q, l
                else:
                    continue
                if p > top:
                    top, with_it = p, q
                if not optimistic:
                    parent[start[layer + 1] + end - 1] = (origin << 1) | side[best]
            ends[nxt, state + 1] = end
            state += 1
        start[layer + 2] = start[layer + 1] + ends[nxt, state]
        layer += 1
        state = 0
    return layer, state
