"""Online dispatching of a stream of task graphs: whenever tasks become ready, they are put into the queues of devices, for good.

A task is ready once its job is there and all it reads has ended. At that moment, and not before, its device and speed are
decided, from what is known then: the tasks decided so far, and the jobs that have arrived. What it reads is sent when its device
is decided. Queues are first in, first out. None of the rules has a guarantee.

``met``: least cost alone, whatever the queues (minimum execution time).  ``eft``: in order of numbers, where it ends first.
``etf``: of all that are ready now the pair of task and device that starts first.  ``rank-eft``: by falling way to the end of the
job, where it ends first. With a price of energy, an end is weighed against joules.

Sources: T. Sung, V. Chockalingam, A. Yahja, B. Ryu, arXiv 1906.03724 (2019), and S. Arda et al., IEEE Transactions on Computers
69 (2020), for the stream and the rules; J.-J. Hwang et al., SIAM J. Computing 18 (1989), for ETF.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.dag_graph import TaskGraph
from hetopt.algorithms.dag_list import upward_rank
from hetopt.algorithms.jit import njit

__all__ = ["RULES", "Stream", "dispatch"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MET, EFT, ETF, RANK = 0, 1, 2, 3
RULES = {"met": MET, "eft": EFT, "etf": ETF, "rank-eft": RANK}
_CHUNK = 2_000_000  # pairs looked at between two questions whether to stop, about 0.1 seconds


class Stream(NamedTuple):
    """Jobs over time; a *way* is a device at one of its speeds, ``k`` of them in all.

    Attributes
    ----------
    graph
        All jobs' tasks at their fastest.
    device, speed
        (k,) device of a way, and its number among the device's speeds.
    time, energy
        (n, k) seconds and joules of a task, ``inf`` where it cannot run.
    job
        (n,) job of a task.
    weight
        (jobs,) weight of a second of latency; ``price`` is that of a joule.
    most
        Joules that a job may take.
    """

    graph: TaskGraph
    device: Ints
    speed: Ints
    time: Floats
    energy: Floats
    job: Ints
    weight: Floats
    price: float
    most: float


def dispatch(
    stream: Stream, rule: str, should_stop: Callable[[], bool] = lambda: False
) -> tuple[Ints, Floats, Floats] | None:
    """(n,) way, start and end of each task under a rule of :data:`RULES`; None when it was stopped.

    O(n (k + r)) where r tasks are ready at once, times the inputs of a task; ``etf`` O(n r k).
    """
    g = stream.graph
    n = len(g.time)
    way, start, end = np.full(n, -1, np.int64), np.zeros(n), np.zeros(n)
    tail = g.free.copy()
    least = stream.energy.min(axis=1)
    left = stream.most - np.bincount(stream.job, weights=least, minlength=len(stream.weight))
    rank = upward_rank(g)
    waiting = np.diff(g.pred_start)
    ready_at = g.release.copy()
    heap = np.full(n, -1, np.int64)
    group = np.full(n, -1, np.int64)
    size = np.zeros(2, np.int64)  # of the heap of tasks that will be ready, of the group that is ready now
    clock = np.zeros(1)
    for v in np.flatnonzero(waiting == 0).tolist():
        _push(heap, size, ready_at, v)
    done = 0
    while done < n:
        done = _run(
            RULES[rule], done, _CHUNK, heap, group, size, clock, ready_at, waiting, way, start, end, tail, left, least, rank,
            stream.device, stream.time, stream.energy, stream.job, stream.weight, stream.price,
            g.pred_start, g.pred, g.pred_data, g.succ_start, g.succ, g.latency, g.slowness, g.free,
        )  # fmt: skip
        if done < n and should_stop():
            return None
    return way, start, end


@njit
def _before(a: int, b: int, key: Any) -> bool:
    return bool(key[a] < key[b] or (key[a] == key[b] and a < b))


@njit
def _push(heap: Any, size: Any, key: Any, v: int) -> None:
    i = size[0]
    size[0] += 1
    while i > 0 and _before(v, heap[(i - 1) // 2], key):
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = v


@njit
def _pop(heap: Any, size: Any, key: Any) -> int:
    top = heap[0]
    size[0] -= 1
    v, i = heap[size[0]], 0
    while 2 * i + 1 < size[0]:
        child = 2 * i + 1
        if child + 1 < size[0] and _before(heap[child + 1], heap[child], key):
            child += 1
        if not _before(heap[child], v, key):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = v
    return int(top)


@njit
def _run(rule: int, done: int, budget: int, heap: Any, group: Any, size: Any, clock: Any, ready_at: Any, waiting: Any,
         way: Any, start: Any, end: Any, tail: Any, left: Any, least: Any, rank: Any, device: Any, time: Any, energy: Any,
         job: Any, weight: Any, price: float, pred_start: Any, pred: Any, data: Any, succ_start: Any, succ: Any,
         latency: Any, slowness: Any, free: Any) -> int:  # fmt: skip
    n, many = time.shape
    m = len(free)
    there = np.empty(m)
    while done < n and budget > 0:
        if size[1] == 0:
            clock[0] = max(clock[0], ready_at[heap[0]])
        while size[0] > 0 and ready_at[heap[0]] <= clock[0]:
            v = _pop(heap, size, ready_at)
            i = size[1]
            while i > 0 and group[i - 1] > v:
                group[i] = group[i - 1]
                i -= 1
            group[i] = v
            size[1] += 1
        now = clock[0]
        only = 0
        if rule == RANK:
            for k in range(1, size[1]):
                if rank[group[k]] > rank[group[only]]:
                    only = k
        at, to, begin, first, second = -1, -1, 0.0, np.inf, np.inf
        for k in range(size[1]):
            if rule != ETF and k != only:
                continue
            v = group[k]
            w, room = weight[job[v]], left[job[v]] + least[v]
            for p in range(m):
                late = 0.0
                for j in range(pred_start[v], pred_start[v + 1]):
                    q = device[way[pred[j]]]
                    if q != p:
                        late = max(late, latency[q, p] + data[j] * slowness[q, p])
                there[p] = now + late
            for q in range(many):
                budget -= 1
                if time[v, q] == np.inf or (energy[v, q] > least[v] and energy[v, q] > room):
                    continue
                p = device[q]
                moment = max(there[p], free[p] if time[v, q] == 0.0 else tail[p])
                finish = moment + time[v, q]
                cost = w * (time[v, q] if rule == MET else finish) + price * energy[v, q]
                one, two = (moment, cost) if rule == ETF else (cost, finish)
                if at < 0 or one < first or (one == first and two < second):
                    at, to, begin, first, second = k, q, moment, one, two
        v = group[at]
        for k in range(at, size[1] - 1):
            group[k] = group[k + 1]
        size[1] -= 1
        way[v], start[v], end[v] = to, begin, begin + time[v, to]
        left[job[v]] -= energy[v, to] - least[v]
        if time[v, to] > 0.0:
            tail[device[to]] = end[v]
        done += 1
        for j in range(succ_start[v], succ_start[v + 1]):
            u = succ[j]
            waiting[u] -= 1
            ready_at[u] = max(ready_at[u], end[v])
            if waiting[u] == 0:
                _push(heap, size, ready_at, u)
    return done
