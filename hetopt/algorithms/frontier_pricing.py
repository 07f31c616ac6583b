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

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.frontier_order import Frontier
from hetopt.algorithms.jit import njit

__all__ = ["PricedSet", "best_set", "most_profit"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_NONE = -1e300
# Work per kernel call, in state-bucket pairs: some tens of milliseconds, so that time limits and Ctrl-C are seen.
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
    Complexity: O(states * buckets) time, O(largest layer * buckets) memory.
    """
    values, excess, _, span = _run(graph, profit, limit, buckets, slope, True, np.empty((1, 1), dtype=np.int32))
    used = values > _NONE
    used[: span[0]] = used[span[1] + 1 :] = False
    if not used.any():
        return -np.inf
    return float(np.minimum(values[used], excess[used] + slope * limit * (1.0 + 1e-9)).max())


def best_set(graph: Frontier, profit: FloatArray, limit: float, buckets: int = 500, slope: float = 0.0) -> PricedSet:
    """A set with load at most ``limit`` and large profit; the best one when no two loads share a bucket.

    Parameters and complexity as for :func:`most_profit`, and 4 bytes of memory for each state and bucket.
    """
    n = len(graph.order)
    large = graph.states and int(np.diff(graph.first).max()) * (buckets + 1) >= 2**30
    parent = np.empty((graph.states, buckets + 1), dtype=np.int64 if large else np.int32)
    values, _, least, span = _run(graph, profit, limit, buckets, slope, False, parent)
    values[: span[0]] = values[span[1] + 1 :] = _NONE
    members = np.zeros(len(profit), dtype=bool)
    bucket = int(values.argmax())
    if values[bucket] == _NONE:
        return PricedSet(members, -np.inf, 0.0)
    found = PricedSet(members, float(values[bucket]), float(least[bucket]))
    state = 0
    for i in range(n - 1, -1, -1):
        step = int(parent[graph.first[i + 1] + state, bucket])
        members[graph.order[i]] = step & 1
        state, bucket = divmod(step >> 1, buckets + 1)
    return found


def _run(
    graph: Frontier,
    profit: FloatArray,
    limit: float,
    buckets: int,
    slope: float,
    optimistic: bool,
    parent: NDArray[np.integer],
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.int64]]:
    """Sweep in chunks; the last state's profit, excess and load by bucket, and its first and last bucket in use."""
    n = len(graph.order)
    width = int(np.diff(graph.first).max())
    values = np.full((2, width, buckets + 1), _NONE)
    excess = np.zeros((2, width, buckets + 1))
    least = np.zeros((2, width, buckets + 1))
    span = np.zeros((2, width, 2), dtype=np.int64)
    span[:, :, 0] = buckets + 1
    span[:, :, 1] = -1
    values[0, 0, 0] = 0.0
    span[0, 0] = 0
    gain = np.ascontiguousarray(profit[graph.order], dtype=np.float64)
    work = np.cumsum(np.diff(graph.first)[:n]) * (buckets + 1) // _CHUNK
    ends = [0, *(np.flatnonzero(np.diff(work)) + 1).tolist(), n]
    for start, stop in pairwise(ends):
        _sweep(
            graph.first, graph.target, graph.load, gain, slope, start, stop, limit, optimistic,
            values, excess, least, span, parent,
        )  # fmt: skip
    return values[n % 2, 0], excess[n % 2, 0], least[n % 2, 0], span[n % 2, 0]


@njit
def _sweep(first, target, load, gain, slope, start, stop, limit, optimistic, values, excess, least, span, parent):  # type: ignore[no-untyped-def]
    """Advance layers ``start .. stop - 1``; row ``s - first[layer]`` of the two-layer tables holds state ``s``.

    ``values`` (profit), ``excess`` and ``least`` (load) of layer ``i`` are at ``[i % 2]``; ``span`` holds the first and last
    bucket in use. ``parent`` is written only for real sets.
    """
    buckets = values.shape[2] - 1
    scale = buckets / limit
    ceiling = limit * (1.0 + 1e-9)
    for i in range(start, stop):
        now, nxt = i % 2, (i + 1) % 2
        base, following = first[i], first[i + 1]
        for t in range(first[i + 2] - following):
            for b in range(span[nxt, t, 0], span[nxt, t, 1] + 1):
                values[nxt, t, b] = _NONE
            span[nxt, t, 0] = buckets + 1
            span[nxt, t, 1] = -1
        for s in range(following - base):
            for x in range(2):
                t = target[base + s, x]
                if t < 0:
                    continue
                t -= following
                extra, add = (gain[i] if x == 1 else 0.0), load[base + s, x]
                surplus = extra - slope * add
                top, with_it = _NONE, _NONE
                for b in range(span[now, s, 0], span[now, s, 1] + 1):
                    p = values[now, s, b]
                    if p == _NONE:
                        continue
                    q = excess[now, s, b]
                    # An entry of less load that is better in all that counts makes this one useless.
                    if p <= top and (q <= with_it or not optimistic):
                        continue
                    if p > top:
                        top, with_it = p, q
                    l = least[now, s, b] + add
                    if l > ceiling:
                        break
                    p += extra
                    q += surplus
                    k = min(int(l * scale), buckets)
                    old = values[nxt, t, k]
                    if old == _NONE:
                        values[nxt, t, k], excess[nxt, t, k], least[nxt, t, k] = p, q, l
                        span[nxt, t, 0] = min(span[nxt, t, 0], k)
                        span[nxt, t, 1] = max(span[nxt, t, 1], k)
                    elif optimistic:
                        values[nxt, t, k] = max(old, p)
                        excess[nxt, t, k] = max(excess[nxt, t, k], q)
                        least[nxt, t, k] = min(least[nxt, t, k], l)
                        continue
                    elif q > excess[nxt, t, k]:
                        values[nxt, t, k], excess[nxt, t, k], least[nxt, t, k] = p, q, l
                    else:
                        continue
                    if not optimistic:
                        parent[following + t, k] = (s * (buckets + 1) + b) * 2 + x
