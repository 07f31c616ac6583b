"""Lower bounds on the makespan of a task graph on unrelated devices: ways through the graph, and work between heads and tails.

*Head* of task v on device p: the earliest moment it can start there in any schedule. A task's predecessors on other devices
send their results; those on its own device run one after the other. Let r_u be the earliest arrival of predecessor u from
elsewhere, predecessors by falling r. If the first k run on p and the next does not, v starts no earlier than r of that one
and than the first k, each from its head on, one at a time on p. The head is the least of that over k. *Tail*: the same in the
graph read backwards. Then

    makespan >= max_v min_p head_vp + time_vp + tail_vp                                                  (path)
    makespan >= a + b + sum_{v in S} min_p y_p time_vp,   y >= 0, sum y = 1,   a, b = least head, tail in S   (head-load-tail)

the second because between a and makespan - b all of S must run, on device p for at most that long. Both are searched here in
floating point; :mod:`hetopt.verify.schedule_bounds` proves what is found with code of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.dag_graph import TaskGraph, reverse
from hetopt.algorithms.jit import njit
from hetopt.algorithms.makespan_lp import machine_prices

__all__ = ["WIDEST", "HeadLoadTail", "head_load_tail", "heads", "path_bound", "tails"]

Floats = NDArray[np.float64]

WIDEST = (
    64  # predecessors of one task that are considered on its own device; more would weigh more time than they prove
)
_TAILS = 400  # different tails tried


class HeadLoadTail(NamedTuple):
    """The bound with what proves it: tasks of head >= ``head`` and tail >= ``tail``, under ``prices`` (m,)."""

    bound: float
    head: float
    tail: float
    prices: Floats


def heads(graph: TaskGraph) -> Floats:
    """(n, m) earliest start of each task on each device, ``inf`` where it cannot run; O(e m^2 + n m (k^2 + d log d))."""
    return np.asarray(
        _heads(
            graph.topological, graph.time, graph.pred_start, graph.pred, graph.pred_data, graph.latency, graph.slowness,
            graph.release, graph.free,
        )
    )  # fmt: skip


def tails(graph: TaskGraph) -> Floats:
    """(n, m) least time from the end of each task on each device to the end of all."""
    return heads(reverse(graph))


def path_bound(graph: TaskGraph, head: Floats, tail: Floats) -> float:
    """max over tasks of min over devices of head + time + tail."""
    return float((head + graph.time + tail).min(axis=1).max(initial=0.0))


def head_load_tail(
    graph: TaskGraph, head: Floats, tail: Floats, should_stop: Callable[[], bool] = lambda: False
) -> HeadLoadTail:
    """Best set S among those of a least head and a least tail; prices from all tasks, then twice from the best set's own."""
    least_head, least_tail = head.min(axis=1), tail.min(axis=1)
    inside = np.ones(len(least_head), bool)
    best = HeadLoadTail(0.0, 0.0, 0.0, np.full(len(graph.free), 1.0 / len(graph.free)))
    for _ in range(3):
        before = best.bound
        for prices in _prices(graph.time[inside]):
            work = np.where(graph.time < np.inf, graph.time, np.inf)
            priced = np.where(np.isfinite(work), work * prices, np.inf).min(axis=1)
            bound, a, b = _best_set(least_head, least_tail, priced)
            if bound > best.bound:
                best = HeadLoadTail(bound, a, b, prices)
            if should_stop():
                return best
        inside = (least_head >= best.head) & (least_tail >= best.tail)
        if best.bound <= before or not inside.any():
            break
    return best


def _prices(time: Floats) -> list[Floats]:
    """Prices of devices' time with sum 1: exact where speeds are related, and by dual ascent."""
    found = []
    if np.isfinite(time).all() and (time.sum(axis=0) > 0).all():
        related = 1.0 / time.sum(axis=0)
        found.append(related / related.sum())
    weights, _ = machine_prices(np.ascontiguousarray(time), np.zeros(time.shape[1]), rounds=100)
    if np.isfinite(weights).all() and weights.sum() > 0:
        found.append(weights / weights.sum())
    return found


def _best_set(head: Floats, tail: Floats, work: Floats) -> tuple[float, float, float]:
    """Largest a + b + work of the tasks with head >= a and tail >= b, with a and b."""
    floors = np.unique(tail)
    if len(floors) > _TAILS:
        floors = np.unique(np.quantile(tail, np.linspace(0, 1, _TAILS), method="lower"))
    order = np.argsort(-head, kind="stable")
    bound, a, b = _sweep(head[order], tail[order], work[order], floors)
    return float(bound), float(a), float(b)


@njit
def _sweep(head: Any, tail: Any, work: Any, floors: Any) -> Any:
    best, best_head, best_tail = 0.0, 0.0, 0.0
    for b in floors:
        total = 0.0
        for k in range(len(head)):
            if tail[k] >= b:
                total += work[k]
                if head[k] + total + b > best:
                    best, best_head, best_tail = head[k] + total + b, head[k], b
    return best, best_head, best_tail


@njit
def _heads(topological: Any, time: Any, pred_start: Any, pred: Any, data: Any, latency: Any, slowness: Any,
           release: Any, free: Any) -> Any:  # fmt: skip
    n, m = time.shape
    head = np.zeros((n, m))
    for v in topological:
        first, many = pred_start[v], pred_start[v + 1] - pred_start[v]
        remote = np.empty(many)
        for q in range(m):
            if time[v, q] == np.inf:
                head[v, q] = np.inf
                continue
            floor = max(release[v], free[q])
            for j in range(many):
                u = pred[first + j]
                least = np.inf
                for p in range(m):
                    if p != q:
                        there = head[u, p] + time[u, p] + latency[p, q] + data[first + j] * slowness[p, q]
                        least = min(least, there)
                remote[j] = least
            order = np.argsort(-remote, kind="mergesort")
            best = max(floor, remote[order[0]]) if many else floor
            begin, length = np.empty(WIDEST), np.empty(WIDEST)  # predecessors on q, by head
            for k in range(1, min(many, WIDEST) + 1):
                u = pred[first + order[k - 1]]
                if time[u, q] == np.inf:
                    break  # it cannot be on q, and so no further one need be
                i = k - 1
                while i > 0 and begin[i - 1] > head[u, q]:
                    begin[i], length[i] = begin[i - 1], length[i - 1]
                    i -= 1
                begin[i], length[i] = head[u, q], time[u, q]
                end = 0.0
                for i in range(k):
                    end = max(end, begin[i]) + length[i]
                end = max(end, floor)
                if k < many and k < WIDEST:
                    best = min(best, max(end, remote[order[k]]))
                else:
                    best = min(best, end)
                if end >= best:
                    break
            head[v, q] = best
    return head
