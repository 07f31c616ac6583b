"""Compiled parts of list scheduling: ranks, the order of a ready list, gaps on a device, and placing tasks one after the other.

Arrays in, arrays out. Ties go to the smaller number: of two tasks with equal priority, of two devices with equal finish.
A task of no length takes no device's time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetopt.algorithms.jit import njit

__all__ = ["by_priority", "optimistic_costs", "place", "rank_down", "rank_up", "waves"]

MINIMUM, MAXIMUM, SUFFERAGE, EARLIEST_START = 0, 1, 2, 3


@njit
def gap(ready: float, length: float, start: Any, end: Any, count: int) -> float:
    """First moment >= ready from which ``length`` seconds are free between ``count`` sorted busy times."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if end[middle] > ready:
            high = middle
        else:
            low = middle + 1
    moment = ready
    for k in range(low, count):
        if moment + length <= start[k]:
            return moment
        if end[k] > moment:
            moment = end[k]
    return moment


@njit
def arrival(
    v: int, p: int, pred_start: Any, pred: Any, data: Any, latency: Any, slowness: Any, machine: Any, end: Any
) -> float:
    """Moment at which all that task ``v`` reads is on device ``p``; 0 without predecessors."""
    moment = 0.0
    for j in range(pred_start[v], pred_start[v + 1]):
        u = pred[j]
        there = end[u]
        if machine[u] != p:
            there += latency[machine[u], p] + data[j] * slowness[machine[u], p]
        if there > moment:
            moment = there
    return moment


@njit
def place(order: Any, wish: Any, extra: Any, insertion: bool, time: Any, pred_start: Any, pred: Any, data: Any,
          latency: Any, slowness: Any, release: Any, free: Any, unit: Any, need: Any, room: Any) -> Any:  # fmt: skip
    """Place tasks in a topological ``order``, each where it ends first (end plus ``extra[v, p]``), or where ``wish`` says.

    Parameters
    ----------
    wish
        (n,) device of a task, -1 for any; a wish that its unit or memory forbids is not heard.
    extra
        (n, m) seconds added to an end before devices are compared, or (0, 0) for none.
    insertion
        Use gaps between tasks placed before; else only the time behind the last one.

    Returns
    -------
    machine, start, end, makespan
        The makespan is ``inf`` when some task found no device with room.
    """
    n, m = time.shape
    busy_from, busy_to = np.zeros((m, n)), np.zeros((m, n))
    count = np.zeros(m, np.int64)
    machine, start, end = np.full(n, -1, np.int64), np.zeros(n), np.zeros(n)
    where = np.full(n, -1, np.int64)
    left = room.copy()
    makespan = 0.0
    for k in range(n):
        v = order[k]
        home = where[unit[v]]
        if home < 0 and wish[v] >= 0 and time[v, wish[v]] < np.inf and need[v] <= left[wish[v]]:
            home = wish[v]
        best, chosen, begin = np.inf, -1, 0.0
        for p in range(m):
            if (home >= 0 and p != home) or time[v, p] == np.inf or (home < 0 and need[v] > left[p]):
                continue
            ready = arrival(v, p, pred_start, pred, data, latency, slowness, machine, end)
            ready = max(ready, release[v], free[p])
            length = time[v, p]
            if length == 0.0:
                moment = ready
            elif insertion:
                moment = gap(ready, length, busy_from[p], busy_to[p], count[p])
            else:
                moment = max(ready, busy_to[p, count[p] - 1]) if count[p] else ready
            value = moment + length
            if extra.shape[0]:
                value += extra[v, p]
            if value < best:
                best, chosen, begin = value, p, moment
        if chosen < 0:
            return machine, start, end, np.inf
        if where[unit[v]] < 0:
            where[unit[v]] = chosen
            left[chosen] -= need[v]
        machine[v], start[v] = chosen, begin
        finish = begin + time[v, chosen]
        end[v] = finish
        makespan = max(makespan, finish)
        if time[v, chosen] > 0.0:
            i = count[chosen]
            while i > 0 and busy_from[chosen, i - 1] > begin:
                busy_from[chosen, i] = busy_from[chosen, i - 1]
                busy_to[chosen, i] = busy_to[chosen, i - 1]
                i -= 1
            busy_from[chosen, i], busy_to[chosen, i] = begin, finish
            count[chosen] += 1
    return machine, start, end, makespan


@njit
def waves(rule: int, batches: bool, time: Any, pred_start: Any, pred: Any, data: Any, succ_start: Any, succ: Any,
          latency: Any, slowness: Any, release: Any, free: Any, unit: Any, need: Any, room: Any) -> Any:  # fmt: skip
    """Choose among the ready tasks anew after each placement, each device's time only behind its last task.

    ``MINIMUM``: the pair of task and device that ends first. ``MAXIMUM``: the task whose first end is last.
    ``SUFFERAGE``: the task that loses most when its best device is taken. ``EARLIEST_START``: the pair that starts first.
    With ``batches`` all tasks that are ready are placed before any that becomes ready meanwhile.

    Returns
    -------
    machine, start, end, makespan
        As :func:`place`.
    """
    n, m = time.shape
    machine, start, end = np.full(n, -1, np.int64), np.zeros(n), np.zeros(n)
    where = np.full(n, -1, np.int64)
    left, tail = room.copy(), free.copy()
    waiting = np.zeros(n, np.int64)
    ready, later = np.empty(n, np.int64), np.empty(n, np.int64)
    known = np.zeros((n, m))  # arrival of what a ready task reads: it does not change any more
    n_ready, n_later, done = 0, 0, 0
    for v in range(n):
        waiting[v] = pred_start[v + 1] - pred_start[v]
        if waiting[v] == 0:
            later[n_later] = v
            n_later += 1
    makespan = 0.0
    while done < n:
        if n_later and (n_ready == 0 or not batches):
            for k in range(n_later):
                v = later[k]
                for p in range(m):
                    moment = arrival(v, p, pred_start, pred, data, latency, slowness, machine, end)
                    known[v, p] = max(moment, release[v])
                i = n_ready
                while i > 0 and ready[i - 1] > v:
                    ready[i] = ready[i - 1]
                    i -= 1
                ready[i] = v
                n_ready += 1
            n_later = 0
        best, at, to = -np.inf, -1, -1
        for k in range(n_ready):
            v = ready[k]
            home = where[unit[v]]
            first, second, device = np.inf, np.inf, -1
            for p in range(m):
                if (home >= 0 and p != home) or time[v, p] == np.inf or (home < 0 and need[v] > left[p]):
                    continue
                moment = max(known[v, p], free[p] if time[v, p] == 0.0 else tail[p])
                value = moment if rule == EARLIEST_START else moment + time[v, p]
                if value < first:
                    second, first, device = first, value, p
                elif value < second:
                    second = value
            if device < 0:
                return machine, start, end, np.inf
            if rule == MAXIMUM:
                score = first
            elif rule == SUFFERAGE:
                score = second - first
            else:
                score = -first
            if score > best or at < 0:
                best, at, to = score, k, device
        v = ready[at]
        for k in range(at, n_ready - 1):
            ready[k] = ready[k + 1]
        n_ready -= 1
        if where[unit[v]] < 0:
            where[unit[v]] = to
            left[to] -= need[v]
        machine[v] = to
        start[v] = max(known[v, to], free[to] if time[v, to] == 0.0 else tail[to])
        end[v] = start[v] + time[v, to]
        if time[v, to] > 0.0:
            tail[to] = end[v]
        makespan = max(makespan, end[v])
        done += 1
        for j in range(succ_start[v], succ_start[v + 1]):
            w = succ[j]
            waiting[w] -= 1
            if waiting[w] == 0:
                later[n_later] = w
                n_later += 1
    return machine, start, end, makespan


@njit
def rank_up(topological: Any, own: Any, succ_start: Any, succ: Any, data: Any, latency: float, slowness: float) -> Any:
    """(n,) longest way to the end: own time, transfers of ``latency + data * slowness``, own time included."""
    rank = np.zeros(len(topological))
    for k in range(len(topological) - 1, -1, -1):
        v = topological[k]
        most = 0.0
        for j in range(succ_start[v], succ_start[v + 1]):
            most = max(most, rank[succ[j]] + (latency + data[j] * slowness))
        rank[v] = own[v] + most
    return rank


@njit
def rank_down(topological: Any, first: Any, before: Any, after: Any, pred_start: Any, pred: Any, data: Any,
              latency: float, slowness: float) -> Any:  # fmt: skip
    """(n,) longest way from a source, from ``first`` on: ``before`` of tasks passed, transfers, ``after`` of tasks reached."""
    rank = first.copy()
    for v in topological:
        for j in range(pred_start[v], pred_start[v + 1]):
            u = pred[j]
            way = rank[u] + before[u] + (latency + data[j] * slowness) + after[v]
            rank[v] = max(rank[v], way)
    return rank


@njit
def optimistic_costs(
    topological: Any, time: Any, succ_start: Any, succ: Any, data: Any, latency: float, slowness: float
) -> Any:
    """(n, m) PEFT's table: least time from the end of a task on a device to the end of all, devices always free."""
    n, m = time.shape
    table = np.zeros((n, m))
    for k in range(n - 1, -1, -1):
        v = topological[k]
        for p in range(m):
            most = 0.0
            for j in range(succ_start[v], succ_start[v + 1]):
                w = succ[j]
                least = np.inf
                for q in range(m):
                    way = table[w, q] + time[w, q]
                    if q != p:
                        way += latency + data[j] * slowness
                    least = min(least, way)
                most = max(most, least)
            table[v, p] = most
    return table


@njit
def _sift_up(heap: Any, size: int, priority: Any, v: int) -> None:
    i = size
    while i > 0:
        above = (i - 1) // 2
        u = heap[above]
        if priority[u] > priority[v] or (priority[u] == priority[v] and u < v):
            break
        heap[i] = u
        i = above
    heap[i] = v


@njit
def by_priority(priority: Any, pred_start: Any, succ_start: Any, succ: Any) -> Any:
    """(n,) topological order that always takes the ready task of highest priority; at equal priority the smallest number."""
    n = len(priority)
    waiting = np.empty(n, np.int64)
    heap, order = np.empty(n, np.int64), np.empty(n, np.int64)
    size, done = 0, 0
    for v in range(n):
        waiting[v] = pred_start[v + 1] - pred_start[v]
        if waiting[v] == 0:
            _sift_up(heap, size, priority, v)
            size += 1
    while size > 0:
        v = heap[0]
        order[done] = v
        done += 1
        size -= 1
        last = heap[size]
        i = 0
        while True:
            child = 2 * i + 1
            if child >= size:
                break
            other = child + 1
            if other < size:
                a, b = heap[child], heap[other]
                if priority[b] > priority[a] or (priority[b] == priority[a] and b < a):
                    child = other
            c = heap[child]
            if priority[last] > priority[c] or (priority[last] == priority[c] and last < c):
                break
            heap[i] = c
            i = child
        heap[i] = last
        for j in range(succ_start[v], succ_start[v + 1]):
            w = succ[j]
            waiting[w] -= 1
            if waiting[w] == 0:
                _sift_up(heap, size, priority, w)
                size += 1
    return order
