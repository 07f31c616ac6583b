"""Linear extensions of a stage graph, and the places in them where a pipeline stage may end.

What they are for: every prefix of a linear extension is an order ideal, so the best split of one extension into stages is
a contiguous plan. For graphs with too many ideals it is the plan; for the others it is the start of the exact search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.maxload_kernels import Chain
from hetopt.algorithms.stagecosts import StageCosts
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["chain_of", "choose_stops", "linear_extension"]

Ints = NDArray[np.int64]


def linear_extension(graph: StageGraph, style: int, seed: int = 0) -> Ints:
    """Classes in a topological order: style 0 depth-first, 1 breadth-first, 2 mostly depth-first at random; O(n + edges)."""
    consumer = np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))
    order = np.argsort(graph.pred, kind="stable")
    ptr = np.zeros(graph.n + 1, np.int64)
    np.cumsum(np.bincount(graph.pred, minlength=graph.n), out=ptr[1:])
    state = np.uint64((2 * seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    return np.asarray(_extension(ptr, consumer[order], np.diff(graph.pred_ptr), style, state), np.int64)


@njit
def _extension(ptr, succ, missing, style, state):  # type: ignore[no-untyped-def]
    n = len(ptr) - 1
    order = np.empty(n, np.int64)
    waiting = np.empty(n, np.int64)
    low, high = 0, 0
    for v in range(n - 1, -1, -1):
        if missing[v] == 0:
            waiting[high] = v
            high += 1
    for placed in range(n):
        take = high - 1
        if style == 1:
            take = low
        elif style == 2:
            # xorshift64; the high bits are the good ones
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            if (state >> np.uint64(60)) < np.uint64(5):
                take = int((state >> np.uint64(20)) & np.uint64(0xFFFFFFFF)) % high
        v = waiting[take]
        if style == 1:
            low += 1
        else:
            waiting[take] = waiting[high - 1]
            high -= 1
        order[placed] = v
        for p in range(ptr[v + 1] - 1, ptr[v] - 1, -1):
            w = succ[p]
            missing[w] -= 1
            if missing[w] == 0:
                waiting[high] = w
                high += 1
    return order


def chain_of(costs: StageCosts, order: Ints, stops: Ints | None = None) -> Chain:
    """The chain of an extension; every place is a stop unless ``stops`` are given."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    nets = len(costs.net_source)
    earliest = np.minimum.reduceat(position[costs.net_pin], costs.net_ptr[:-1]) if nets else np.zeros(0, np.int64)
    return Chain(order, position, np.arange(len(order) + 1) if stops is None else stops, earliest)


def choose_stops(costs: StageCosts, order: Ints, work: NDArray[np.float64], number: int, keep: Ints) -> Ints:
    """About ``number`` stops for a long chain: in bins of equal work, the place that the least weight crosses.

    ``work`` (n,) is what balances stages. Around each place in ``keep`` all places are stops too, ``number`` in total.
    """
    n = len(order)
    if n + 1 <= number:
        return np.arange(n + 1)
    chain = chain_of(costs, order)
    latest = (
        np.maximum.reduceat(chain.position[costs.net_pin], costs.net_ptr[:-1]) if len(chain.earliest) else np.zeros(0)
    )
    weight = (costs.arrive.max(axis=0, initial=0) + costs.leave.max(axis=0, initial=0)).astype(np.float64)
    change = np.bincount(chain.earliest + 1, weight, n + 2) - np.bincount(latest.astype(np.int64) + 1, weight, n + 2)
    crossing = np.cumsum(change)[: n + 1]
    done = np.append(0.0, np.cumsum(work[order]))
    # half a place's share of the bins goes by count, so that stretches without work are not skipped
    share = done / done[-1] if done[-1] > 0 else np.zeros(n + 1)
    bins = np.minimum((0.5 * (share + np.arange(n + 1) / n) * number).astype(np.int64), number - 1)
    cheapest = np.lexsort((crossing, bins))
    first = np.unique(bins[cheapest], return_index=True)[1]
    around = number // max(1, 2 * len(keep))
    near = (keep[:, None] + np.arange(-around, around + 1)[None, :]).ravel()
    return np.unique(np.concatenate([cheapest[first], near[(near >= 0) & (near <= n)], keep, [0, n]]).astype(np.int64))
