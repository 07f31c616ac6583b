"""A quick plan for inference latency: the best split of a linear extension into segments that run one after the other.

With the nodes in a topological order, ``best[f, j]`` is the least time in which the first j nodes are done on f
accelerators, where each segment begins when the one before is done:

    best[f, j] = min over i < j of   best[f, i] + longest path of i..j on the host,   best[f - 1, i] + load(i..j).

A valid plan, no better than this; evaluated as it is, its segments may overlap and it may end earlier. O(n^2 (degree +
accelerators)). Values are the integers of :mod:`hetopt.algorithms.latency_graph`; memory is looked at in rounded sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.latency_graph import NEVER, LatencyGraph

__all__ = ["best_segments"]

_BUDGET = 2_000_000


def best_segments(
    graph: LatencyGraph, order: NDArray[np.int64], should_stop: Callable[[], bool] = lambda: False
) -> tuple[int, NDArray[np.int64]] | None:
    """Value of the best split of ``order`` (n,), and place (n,) of each node: -1 the host, else an accelerator.

    None when no split fits, or when ``should_stop``, asked about every 0.1 s, said so.
    """
    n, layers = graph.n, graph.count + 1
    best = np.full((layers, n + 1), NEVER)
    back = np.full((layers, n + 1), -1)
    runs = np.zeros((layers, n + 1), np.bool_)
    best[0, 0] = graph.floor[0]
    names: tuple[str, ...] = ("acc", "host", "release", "size", "room", "pred_ptr", "pred", "net_ptr", "net_source")
    names += ("arrive", "send", "in_ptr", "in_net")
    arrays: list[Any] = [getattr(graph, name) for name in names]
    scratch = np.zeros(len(graph.arrive), np.int64), np.zeros(len(graph.arrive), np.bool_), np.zeros(n, np.int64)
    at = 0
    while at < n:
        at = _extend(at, order, best, back, runs, *arrays, *scratch, _BUDGET)
        if at < n and should_stop():
            return None
    used = int(np.argmin(best[:, n]))
    value = int(best[used, n])
    if value >= NEVER:
        return None
    place = np.full(n, -1)
    end = n
    while end > 0:
        begin = int(back[used, end])
        if runs[used, end]:
            used -= 1
            place[order[begin:end]] = used
        end = begin
    return value, place


@njit
def _extend(  # type: ignore[no-untyped-def]
    start, order, best, back, runs, acc, host, release, size, room, pred_ptr, pred, net_ptr, net_source, arrive, send,
    in_ptr, in_net, pins, sends, ready, budget,
):  # fmt: skip
    n = len(order)
    layers = best.shape[0]
    steps = 0
    for i in range(start, n):
        if steps > budget:
            return i
        ready[:] = -1
        longest = 0
        first = 0
        for j in range(i, n):
            v = order[j]
            if host[v] >= NEVER:
                break
            begin = 0
            for q in range(pred_ptr[v], pred_ptr[v + 1]):
                begin = max(begin, ready[pred[q]])
            first = max(first, release[v])
            ready[v] = begin + host[v]
            longest = max(longest, ready[v])
            steps += 1 + layers
            for f in range(layers):
                total = max(best[f, i], first) + longest
                if best[f, i] < NEVER and total < best[f, j + 1]:
                    best[f, j + 1] = total
                    back[f, j + 1] = i
                    runs[f, j + 1] = False
        pins[:] = 0
        sends[:] = False
        load = 0
        held = 0
        first = 0
        for j in range(i, n):
            v = order[j]
            held += size[v]
            if acc[v] >= NEVER or held > room[0]:
                break
            load += acc[v]
            first = max(first, release[v])
            for q in range(in_ptr[v], in_ptr[v + 1]):
                h = in_net[q]
                steps += 1
                if net_source[h] == v:
                    sends[h] = True
                    load += send[h]
                elif pins[h] == 0:
                    load += arrive[h]
                pins[h] += 1
                if sends[h] and pins[h] == net_ptr[h + 1] - net_ptr[h]:
                    load -= send[h]
            steps += 1 + layers
            for f in range(layers - 1):
                total = max(best[f, i], first) + load
                if best[f, i] < NEVER and total < best[f + 1, j + 1]:
                    best[f + 1, j + 1] = total
                    back[f + 1, j + 1] = i
                    runs[f + 1, j + 1] = True
    return n
