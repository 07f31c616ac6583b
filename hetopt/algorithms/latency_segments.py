"""A quick plan for inference latency: the best split of a linear extension into segments that run one after the other.

With the nodes in a topological order, ``best[f, j]`` is the least time in which the first j nodes are done on f
accelerators, where each segment begins when the one before is done:

    best[f, j] = min over i < j of   best[f, i] + longest path of i..j on the host,   best[f - 1, i] + load(i..j).

A valid plan, no better than this; evaluated as it is, its segments may overlap and it may end earlier. O(n^2 (degree +
accelerators)) in numpy: nothing is compiled, so that this is the plan a first run shows. Values are the integers of
:mod:`hetopt.algorithms.latency_graph`; memory is looked at in rounded sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.latency_graph import NEVER, LatencyGraph

__all__ = ["best_segments"]

Ints = NDArray[np.int64]
_ROWS = 256  # beginnings of segments whose longest paths are kept at a time


def best_segments(
    graph: LatencyGraph, order: Ints, should_stop: Callable[[], bool] = lambda: False
) -> tuple[int, Ints] | None:
    """Value of the best split of ``order`` (n,), and place (n,) of each node: -1 the host, else an accelerator.

    None when no split fits, or when ``should_stop``, asked now and then, said so.
    """
    n, layers = graph.n, graph.count + 1
    best = np.full((layers, n + 1), NEVER)
    back = np.full((layers, n + 1), -1)
    runs = np.zeros((layers, n + 1), np.bool_)
    best[0, 0] = graph.floor[0]
    loads = _Loads(graph, order)
    for i in range(n):
        if i % _ROWS == 0:
            if should_stop():
                return None
            hosted = _hosted(graph, order, i, min(i + _ROWS, n))
        release = np.maximum.accumulate(graph.release[order[i:]])
        start = np.maximum(best[:, i, None], release)
        load, end = loads.of(i)
        _improve(best, back, runs, start + hosted[i % _ROWS, i:], i, False)
        if end > i:
            _improve(best[1:], back[1:], runs[1:], start[:-1, : end - i] + load, i, True)
    used = int(np.argmin(best[:, n]))
    value = int(best[used, n])
    if value >= NEVER:
        return None
    place = np.full(n, -1)
    stop = n
    while stop > 0:
        begin = int(back[used, stop])
        if runs[used, stop]:
            used -= 1
            place[order[begin:stop]] = used
        stop = begin
    return value, place


def _improve(best: Ints, back: Ints, runs: NDArray[np.bool_], total: Ints, i: int, on_accelerator: bool) -> None:
    """Take ``total`` (layers, ends) for the segments that begin at ``i`` where it is better."""
    ends = slice(i + 1, i + 1 + total.shape[1])
    better = total < best[:, ends]
    best[:, ends][better] = total[better]
    back[:, ends][better] = i
    runs[:, ends][better] = on_accelerator


def _hosted(graph: LatencyGraph, order: Ints, low: int, high: int) -> Ints:
    """(high - low, n) longest path on the host of each segment from ``low + row``; ``NEVER`` where one cannot be there."""
    n = graph.n
    at = np.empty(n, np.int64)
    at[order] = np.arange(n)
    ready = np.zeros((high - low, n), np.int64)
    first = np.arange(low, high)
    for j, v in enumerate(order.tolist()):
        if j < low:
            continue
        before = at[graph.pred[graph.pred_ptr[v] : graph.pred_ptr[v + 1]]]
        begin = ready[:, before[before >= low]].max(axis=1, initial=0)
        ready[:, j] = np.where(first <= j, np.minimum(begin + graph.host[v], NEVER), 0)
    return np.maximum.accumulate(ready, axis=1)


class _Loads:
    """Loads of the segments of an order on one accelerator."""

    def __init__(self, graph: LatencyGraph, order: Ints) -> None:
        n = graph.n
        at = np.empty(n, np.int64)
        at[order] = np.arange(n)
        self.n, self.room = n, int(graph.room[0])
        able = graph.acc[order] < NEVER
        self.barred = np.append(np.flatnonzero(~able), n)
        self.acc = np.concatenate([[0], np.cumsum(np.where(able, graph.acc[order], 0))])
        self.size = np.concatenate([[0], np.cumsum(graph.size[order])])
        node = np.repeat(np.arange(n), np.diff(graph.in_ptr))
        self.net, pin = graph.in_net, at[node]
        self.source = np.where(graph.net_source < 0, -1, at[graph.net_source])
        reads = pin != self.source[self.net]
        by = np.lexsort((pin[reads], self.net[reads]))
        self.reader, self.read = pin[reads][by], self.net[reads][by]
        self.last = np.full(len(self.source), -1)
        np.maximum.at(self.last, self.read, self.reader)
        self.arrive, self.send = graph.arrive, graph.send

    def of(self, i: int) -> tuple[Ints, int]:
        """Loads of the segments i..j for j = i + 1..end, and the last end that an accelerator can hold."""
        end = int(self.barred[np.searchsorted(self.barred, i)])
        end = min(end, int(np.searchsorted(self.size, self.size[i] + self.room, side="right")) - 1)
        change = np.zeros(self.n + 1, np.int64)
        inner = np.flatnonzero((self.source >= i) & (self.send > 0))
        np.add.at(change, self.source[inner], self.send[inner])
        np.add.at(change, self.last[inner], -self.send[inner])
        ahead = np.flatnonzero((self.source[self.read] < i) & (self.reader >= i))
        _, first = np.unique(self.read[ahead], return_index=True)
        np.add.at(change, self.reader[ahead[first]], self.arrive[self.read[ahead[first]]])
        return self.acc[i + 1 : end + 1] - self.acc[i] + np.cumsum(change[i:end]), end
