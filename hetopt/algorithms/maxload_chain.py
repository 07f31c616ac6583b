"""Linear extensions of a stage graph, and the places in them where a pipeline stage may end.

What they are for: every prefix of a linear extension is an order ideal, so the best split of one extension into stages is
a contiguous plan. For graphs with too many ideals it is the plan; for the others it is the start of the exact search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.maxload_kernels import Chain
from hetopt.algorithms.stagecosts import NEVER, StageCosts
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


def chain_of(costs: StageCosts, size: Ints, room: Ints, order: Ints, stops: Ints, passes: int) -> Chain:
    """The chain of an extension with the loads of all stages between two of ``S`` stops; O(t passes (pins + S^2)).

    Whether a stage [a, b) pays for a net is a sum of terms "these two pins lie in [a, b)": with the pins in order of place,
    it holds at least one of them when (pins inside) - (neighbouring pins inside) is 1; it receives when that holds less
    "the source is inside"; it sends when the source is inside less "the first and the last pin are". Each term is a weight
    at (last stop not after the first pin, first stop after the last pin), and two cumulative sums make the table.
    """
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    stop_before = np.searchsorted(stops, np.arange(len(order)), side="right") - 1
    net = np.repeat(np.arange(len(costs.net_source)), np.diff(costs.net_ptr))
    place = position[costs.net_pin]
    by_place = np.lexsort((place, net))
    net, place = net[by_place], place[by_place]
    first, last = place[costs.net_ptr[:-1]], place[costs.net_ptr[1:] - 1]
    source = position[costs.net_source]
    neighbours = np.flatnonzero(net[1:] == net[:-1])
    types = len(costs.time)
    loads = np.zeros((types, passes, len(stops), len(stops)), np.int64)
    held = np.append(0, np.cumsum(size[order]))[stops]
    from_pin = stop_before[np.concatenate([place, place[neighbours], source, first])]
    to_pin = stop_before[np.concatenate([place, place[neighbours + 1], source, last])] + 1
    which = np.concatenate([net, net[neighbours], np.arange(len(source)), np.arange(len(source))])
    for t in range(types):
        arrive, leave = costs.arrive[t], costs.leave[t]
        weight = np.concatenate([arrive[net], -arrive[net[neighbours]], leave - arrive, -leave])
        for p in range(passes):
            mine = np.flatnonzero((weight != 0) & ((costs.net_pass[which] == p) | (passes == 1)))
            time = costs.time[t, p, order]
            runs = time < NEVER
            done = np.append(0, np.cumsum(np.where(runs, time, 0)))[stops]
            stuck = np.append(0, np.cumsum(~runs))[stops]
            _fill(loads[t, p], from_pin[mine], to_pin[mine], weight[mine], done, stuck, held, room[t])
    return Chain(order, stops, loads)


@njit
def _fill(table, from_stop, to_stop, weight, done, stuck, held, room):  # type: ignore[no-untyped-def]
    """Add up weights over all intervals that hold both stops, and times; ``NEVER`` where an interval cannot be a stage."""
    for k in range(len(weight)):
        table[from_stop[k], to_stop[k]] += weight[k]
    stops = len(done)
    column = np.zeros(stops, np.int64)
    for a in range(stops - 1, -1, -1):
        paid = 0
        for b in range(stops):
            paid += table[a, b]
            column[b] += paid
            if stuck[b] > stuck[a] or held[b] - held[a] > room:
                table[a, b] = NEVER
            else:
                table[a, b] = column[b] + done[b] - done[a]


def choose_stops(costs: StageCosts, order: Ints, work: NDArray[np.float64], number: int, keep: Ints) -> Ints:
    """About ``number`` stops for a long chain: in bins of equal work, the place that the least weight crosses.

    ``work`` (n,) is what balances stages. All places near those in ``keep`` are stops too, up to as many again.
    """
    n = len(order)
    if n + 1 <= number:
        return np.arange(n + 1)
    position = np.empty(n, np.int64)
    position[order] = np.arange(n)
    crossing = np.zeros(n + 1)
    if len(costs.net_source):
        weight = (costs.arrive.max(axis=0) + costs.leave.max(axis=0)).astype(np.float64)
        first = np.minimum.reduceat(position[costs.net_pin], costs.net_ptr[:-1])
        last = np.maximum.reduceat(position[costs.net_pin], costs.net_ptr[:-1])
        change = np.bincount(first + 1, weight, n + 2) - np.bincount(last + 1, weight, n + 2)
        crossing = np.cumsum(change)[: n + 1]
    done = np.append(0.0, np.cumsum(work[order]))
    share = done / done[-1] if done[-1] > 0 else np.zeros(n + 1)
    # half of a bin's width is by count, so that stretches without work are not skipped
    bins = np.minimum((0.5 * (share + np.arange(n + 1) / n) * number).astype(np.int64), number - 1)
    cheapest = np.lexsort((crossing, bins))
    chosen = cheapest[np.unique(bins[cheapest], return_index=True)[1]]
    around = number // max(1, 2 * len(keep))
    near = (keep[:, None] + np.arange(-around, around + 1)[None, :]).ravel()
    return np.unique(np.concatenate([chosen, near[(near >= 0) & (near <= n)], keep, [0, n]]).astype(np.int64))
