"""A task graph on unrelated devices as arrays: what the list schedules, the annealing and the bounds of task graphs read.

It knows no instance and makes no claims; :func:`graph_of` only sorts edges into rows and finds a topological order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Schedule", "TaskGraph", "graph_of", "reverse"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class TaskGraph(NamedTuple):
    """``n`` tasks, ``m`` devices, ``e`` edges; edges twice, as rows of predecessors and as rows of successors.

    Attributes
    ----------
    time
        (n, m) seconds, ``inf`` where a task cannot run (or a task that must share its device cannot).
    pred_start, pred, pred_data
        (n + 1,), (e,), (e,): predecessors of task v are ``pred[pred_start[v]:pred_start[v + 1]]``, with the bytes they send.
    succ_start, succ, succ_data
        The same of successors.
    latency, slowness
        (m, m) seconds of a transfer of b bytes are ``latency + b * slowness``; zero on the diagonal.
    release
        (n,) first second a task may start.
    free
        (m,) first second a device is free.
    unit, need
        (n,) number of the tasks that share a device (each its own without groups); (n,) bytes that its unit needs.
    room
        (m,) bytes of each device, ``inf`` when unlimited.
    topological
        (n,) tasks, producers first; among those that are ready the smallest number first.
    """

    time: Floats
    pred_start: Ints
    pred: Ints
    pred_data: Floats
    succ_start: Ints
    succ: Ints
    succ_data: Floats
    latency: Floats
    slowness: Floats
    release: Floats
    free: Floats
    unit: Ints
    need: Floats
    room: Floats
    topological: Ints


class Schedule(NamedTuple):
    """Device, start and end of each task (n,), and the last end."""

    machine: Ints
    start: Floats
    end: Floats
    makespan: float


def graph_of(
    time: ArrayLike,
    edges: ArrayLike,
    data: ArrayLike,
    latency: ArrayLike,
    slowness: ArrayLike,
    *,
    release: ArrayLike | None = None,
    free: ArrayLike | None = None,
    unit: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    room: ArrayLike | None = None,
) -> TaskGraph:
    """Arrange the arrays; ``edges`` is (e, 2), ``memory`` (n,) bytes of each task; what is left out does not bind.

    Raises
    ------
    ValueError
        The edges form a cycle.
    """
    times = np.ascontiguousarray(time, np.float64)
    n, m = times.shape
    pairs = np.asarray(edges, np.int64).reshape(-1, 2)
    sent = np.asarray(data, np.float64)
    pred_start, pred, pred_data = _rows(n, pairs[:, 1], pairs[:, 0], sent)
    succ_start, succ, succ_data = _rows(n, pairs[:, 0], pairs[:, 1], sent)
    units = np.arange(n) if unit is None else np.asarray(unit, np.int64)
    bytes_of = np.zeros(n) if memory is None else np.asarray(memory, np.float64)
    if unit is not None:  # whoever shares a device runs where all of its unit can
        cannot = np.zeros((int(units.max(initial=-1)) + 1, m))
        np.add.at(cannot, units, ~np.isfinite(times))
        times = np.where(cannot[units] > 0, np.inf, times)
    return TaskGraph(
        times,
        pred_start,
        pred,
        pred_data,
        succ_start,
        succ,
        succ_data,
        np.ascontiguousarray(latency, np.float64),
        np.ascontiguousarray(slowness, np.float64),
        np.zeros(n) if release is None else np.array(release, np.float64),
        np.zeros(m) if free is None else np.array(free, np.float64),
        units,
        np.asarray(np.bincount(units, weights=bytes_of)[units] if n else bytes_of, np.float64),
        np.full(m, np.inf) if room is None else np.array(room, np.float64),
        _topological(n, pred_start, succ_start, succ),
    )


def reverse(graph: TaskGraph) -> TaskGraph:
    """The graph read backwards: consumers first, transfers the other way, without releases."""
    return graph._replace(
        pred_start=graph.succ_start,
        pred=graph.succ,
        pred_data=graph.succ_data,
        succ_start=graph.pred_start,
        succ=graph.pred,
        succ_data=graph.pred_data,
        latency=np.ascontiguousarray(graph.latency.T),
        slowness=np.ascontiguousarray(graph.slowness.T),
        release=np.zeros(len(graph.release)),
        free=np.zeros(len(graph.free)),
        topological=np.ascontiguousarray(graph.topological[::-1]),
    )


def _rows(n: int, row: Ints, other: Ints, data: Floats) -> tuple[Ints, Ints, Floats]:
    order = np.lexsort((other, row))
    start = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=n), out=start[1:])
    return start, np.ascontiguousarray(other[order]), np.ascontiguousarray(data[order])


def _topological(n: int, pred_start: Ints, succ_start: Ints, succ: Ints) -> Ints:
    import heapq

    waiting = np.diff(pred_start).tolist()
    starts, after = succ_start.tolist(), succ.tolist()
    ready = [v for v in range(n) if waiting[v] == 0]
    order = []
    while ready:
        v = heapq.heappop(ready)
        order.append(v)
        for w in after[starts[v] : starts[v + 1]]:
            waiting[w] -= 1
            if waiting[w] == 0:
                heapq.heappush(ready, w)
    if len(order) < n:
        raise ValueError("the edges form a cycle")
    return np.array(order, np.int64)
