"""Task graphs whose results take memory while somebody still has to read them: list schedules that wait for room, and annealing.

What lies where and when is said in :mod:`hetopt.verify.residence`: weights all the time, a result on its device until its last
reader there and its last transfer away have ended, a copy on each other device that reads it.

:func:`place_in_room` knows the device of every task. It takes ready tasks by falling priority, of those the first one for which
there will be room once all that is placed has ended, and starts it as early as then everything fits from that moment on: a
result whose readers are not all placed counts for ever, so a task that is placed later finds what is promised to earlier ones.
If no ready task will find room, it stops there (a dead end; finding an order without one is NP-hard, as in pebble games:
R. Sethi, SIAM J. Computing 4 (1975)). ``lean`` takes, instead of the first by priority, the task that leaves least behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.dag_anneal import critical_task
from hetopt.algorithms.dag_graph import Schedule, TaskGraph
from hetopt.algorithms.dag_kernels import arrival, gap
from hetopt.algorithms.draws import uniform
from hetopt.algorithms.jit import njit

__all__ = ["Attempt", "anneal_in_room", "attempt", "best_attempt", "place_in_room"]

_STEPS = 64  # between two questions whether to stop
_WHOLE = 2.0**52


class Attempt(NamedTuple):
    """A schedule in room, or as much of one as could be placed.

    Attributes
    ----------
    schedule
        Devices of all tasks; starts and ends of those placed; the makespan is ``inf`` at a dead end.
    left
        Tasks that found no room, 0 for a schedule of all.
    key
        (n,) priorities it was made with.
    """

    schedule: Schedule
    left: int
    key: NDArray[np.float64]


def attempt(
    graph: TaskGraph,
    weights: NDArray[np.float64],
    output: NDArray[np.float64],
    machine: NDArray[np.int64],
    priority: NDArray[np.float64],
    *,
    lean: bool = False,
) -> Attempt:
    """Place tasks on ``machine`` (n,) by falling ``priority`` (n,).

    Parameters
    ----------
    weights, output
        (n,) bytes of a task's weights, and of its result on its own device.
    """
    sizes = _whole_bytes(graph, weights, output)
    start, end, left = place_in_room(lean, machine, priority, *_arrays(graph), *sizes)
    makespan = float(end.max(initial=0.0)) if left == 0 else np.inf
    return Attempt(Schedule(machine, start, end, makespan), int(left), priority)


def best_attempt(
    graph: TaskGraph, weights: NDArray[np.float64], output: NDArray[np.float64], schedules: Iterable[Schedule]
) -> Attempt | None:
    """The best attempt at the devices and the order of each schedule, lean too where the order has a dead end; None of none."""
    best: Attempt | None = None
    for found in schedules:
        for lean in (False, True):
            tried = attempt(graph, weights, output, found.machine, -found.start, lean=lean)
            if best is None or (tried.left, tried.schedule.makespan) < (best.left, best.schedule.makespan):
                best = tried
            if tried.left == 0:
                break
    return best


def anneal_in_room(
    graph: TaskGraph,
    weights: NDArray[np.float64],
    output: NDArray[np.float64],
    first: Attempt,
    *,
    horizon: float,
    seed: int = 0,
    steps: int = 20_000,
    hot: float = 0.03,
    cold: float = 1e-4,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Schedule], object] = lambda schedule: None,
) -> Attempt:
    """Simulated annealing over devices and priorities from a first attempt; each better whole schedule is reported.

    Parameters
    ----------
    horizon
        A makespan that no schedule exceeds: a task left over costs as much.
    steps
        Points to decode, each O(n r + e + n b) with r tasks ready at once and b results held at once.
    hot, cold
        First and last temperature, as shares of the first cost.

    Notes
    -----
    Of its own random numbers: the same plan on any machine.
    """
    n = len(first.key)
    if n == 0:
        return first
    sizes, arrays = _whole_bytes(graph, weights, output), _arrays(graph)
    state = np.array([(seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) & (2**64 - 1)], np.uint64)
    scale = first.schedule.makespan if first.left == 0 else horizon
    current = best = first
    cost = least = _cost(first, horizon)
    for step in range(steps):
        if step % _STEPS == 0 and should_stop():
            break
        temperature = hot * scale * (cold / hot) ** (step / steps)
        wish, key = _neighbour(graph, current, state, 0.3 * min(cost, horizon))
        start, end, left = place_in_room(False, wish, key, *arrays, *sizes)
        makespan = float(end.max())
        tried = Attempt(Schedule(wish, start, end, np.inf if left else makespan), int(left), key if left else -start)
        value = makespan + left * horizon
        if value <= cost or uniform(state) < math.exp((cost - value) / temperature):
            current, cost = tried, value
            if value < least:
                best, least = tried, value
                if best.left == 0:
                    report(best.schedule)
    return best


def _cost(one: Attempt, horizon: float) -> float:
    return float(one.schedule.end.max(initial=0.0)) + one.left * horizon


def _neighbour(
    graph: TaskGraph, one: Attempt, state: NDArray[np.uint64], reach: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Devices and priorities with up to three tasks moved or put forward: one on the chain that ends last, and others."""
    n, m = graph.time.shape
    machine, key = one.schedule.machine.copy(), one.key.copy()
    v = int(uniform(state) * n)
    if one.left == 0 and uniform(state) < 0.6:
        v = critical_task(
            state, one.schedule.machine, one.schedule.start, one.schedule.end, graph.pred_start, graph.pred,
            graph.pred_data, graph.latency, graph.slowness,
        )  # fmt: skip
    for _ in range(1 + int(uniform(state) * 3)):
        which = uniform(state)
        if which < 0.6:
            p = int(uniform(state) * m)
            if graph.time[v, p] < np.inf:
                machine[graph.unit == graph.unit[v]] = p  # those that share its device go along
        if which >= 0.3:
            key[v] += (2.0 * uniform(state) - 1.0) * reach
        row = graph.succ_start if uniform(state) < 0.5 else graph.pred_start
        near = (graph.succ if row is graph.succ_start else graph.pred)[row[v] : row[v + 1]]
        v = (
            int(near[int(uniform(state) * len(near))])
            if len(near) and uniform(state) < 0.5
            else int(uniform(state) * n)
        )
    return machine, key


def _arrays(graph: TaskGraph) -> tuple[Any, ...]:
    return (
        graph.time, graph.pred_start, graph.pred, graph.pred_data, graph.succ_start, graph.succ, graph.latency,
        graph.slowness, graph.release, graph.free, graph.unit,
    )  # fmt: skip


def _whole_bytes(
    graph: TaskGraph, weights: NDArray[np.float64], output: NDArray[np.float64]
) -> tuple[NDArray[np.float64], ...]:
    """Weights, results, bytes of successors and room as whole numbers whose sums are exact: needs rounded up, room down."""
    needs: tuple[NDArray[np.float64], ...] = (weights, output, graph.succ_data)
    total = float(weights.sum() + output.sum() + graph.succ_data.sum())
    whole = all(bool((side == np.floor(side)).all()) for side in needs)
    unit = 1.0 if whole and total < _WHOLE else float(2.0 ** (np.frexp(total)[1] - 50))
    needs = tuple(np.ceil(side / unit) for side in needs)
    return (*needs, np.floor(graph.room / unit))


@njit
def _room_from(moments: Any, deltas: Any, count: int, level: float, most: float) -> float:
    """Moment from which at most ``most`` bytes are taken for ever; ``level`` are taken in the end; ``inf`` when that is more."""
    if level > most:
        return np.inf
    k = count
    while k > 0:
        k -= 1
        level -= deltas[k]
        if level > most:
            return float(moments[k])
    return 0.0


@njit
def _note(moments: Any, deltas: Any, count: int, moment: float, delta: float) -> None:
    """Insert a change in the sorted row; of one moment, what ends before what begins."""
    i = count
    while i > 0 and (moments[i - 1] > moment or (delta < 0.0 and moments[i - 1] == moment)):
        moments[i], deltas[i] = moments[i - 1], deltas[i - 1]
        i -= 1
    moments[i], deltas[i] = moment, delta


@njit
def place_in_room(lean: bool, machine: Any, priority: Any, time: Any, pred_start: Any, pred: Any, pred_data: Any,
                  succ_start: Any, succ: Any, latency: Any, slowness: Any, release: Any, free: Any, unit: Any,
                  weights: Any, output: Any, succ_data: Any, room: Any) -> Any:  # fmt: skip
    """Place tasks on their devices, each as early as there is time and, from then on, room.

    Returns
    -------
    start, end, left
        (n,), (n,), and the number of tasks not placed, whose start and end are 0; ``n`` and more when weights do not fit.
    """
    n, m = time.shape
    start, end = np.zeros(n), np.zeros(n)
    level = np.zeros(m)
    for v in range(n):
        level[machine[v]] += weights[v]
    for p in range(m):
        if level[p] > room[p]:
            return start, end, n + 1
    moments, deltas, count = np.zeros((m, 2 * n)), np.zeros((m, 2 * n)), np.zeros(m, np.int64)
    busy_from, busy_to, busy = np.zeros((m, n)), np.zeros((m, n)), np.zeros(m, np.int64)
    # Of the result of v on q: readers not placed, last end of a reader or a transfer, bytes.
    readers, last, held = np.zeros((n, m), np.int64), np.zeros((n, m)), np.zeros((n, m))
    waiting, ready, n_ready = np.zeros(n, np.int64), np.empty(n, np.int64), 0
    for v in range(n):
        held[v, machine[v]] = output[v]
        for j in range(succ_start[v], succ_start[v + 1]):
            q = machine[succ[j]]
            readers[v, q] += 1
            held[v, q] = max(held[v, q], succ_data[j])
        waiting[v] = pred_start[v + 1] - pred_start[v]
        if waiting[v] == 0:
            ready[n_ready] = v
            n_ready += 1
    done = 0
    while done < n:
        at, value = -1, 0.0
        for k in range(n_ready):
            v = ready[k]
            p = machine[v]
            fits = level[p] + held[v, p] <= room[p]
            for q in range(m):
                if q != p and readers[v, q] > 0 and level[q] + held[v, q] > room[q]:
                    fits = False
            if not fits:
                continue
            score = priority[v]
            if lean:
                score = 0.0
                for q in range(m):
                    if readers[v, q] > 0 and held[v, q] > 0.0:
                        score -= held[v, q] / room[q]
                for j in range(pred_start[v], pred_start[v + 1]):
                    if readers[pred[j], p] == 1 and held[pred[j], p] > 0.0:
                        score += held[pred[j], p] / room[p]
            if at < 0 or score > value or (score == value and (priority[v], -v) > (priority[ready[at]], -ready[at])):
                at, value = k, score
        if at < 0:
            return start, end, n - done
        v = ready[at]
        n_ready -= 1
        ready[at] = ready[n_ready]
        p = machine[v]
        length = time[v, p]
        moment = max(arrival(v, p, pred_start, pred, pred_data, latency, slowness, machine, end), release[v], free[p])
        if held[v, p] > 0.0:
            moment = max(moment, _room_from(moments[p], deltas[p], count[p], level[p], room[p] - held[v, p]))
        for q in range(m):
            if q != p and readers[v, q] > 0 and held[v, q] > 0.0:
                there = _room_from(moments[q], deltas[q], count[q], level[q], room[q] - held[v, q])
                moment = max(moment, there - length)
        if length > 0.0:
            moment = gap(moment, length, busy_from[p], busy_to[p], busy[p])
            i = busy[p]
            while i > 0 and busy_from[p, i - 1] > moment:
                busy_from[p, i], busy_to[p, i] = busy_from[p, i - 1], busy_to[p, i - 1]
                i -= 1
            busy_from[p, i], busy_to[p, i] = moment, moment + length
            busy[p] += 1
        start[v], end[v] = moment, moment + length
        last[v, p] = max(last[v, p], end[v])
        for j in range(succ_start[v], succ_start[v + 1]):
            q = machine[succ[j]]
            if q != p:
                last[v, p] = max(last[v, p], end[v] + (latency[p, q] + succ_data[j] * slowness[p, q]))
            waiting[succ[j]] -= 1
            if waiting[succ[j]] == 0:
                ready[n_ready] = succ[j]
                n_ready += 1
        for q in range(m):  # what begins
            if held[v, q] > 0.0 and (q == p or readers[v, q] > 0):
                _note(moments[q], deltas[q], count[q], start[v] if q == p else end[v], held[v, q])
                count[q] += 1
                level[q] += held[v, q]
        if held[v, p] > 0.0 and readers[v, p] == 0:
            _note(moments[p], deltas[p], count[p], last[v, p], -held[v, p])
            count[p] += 1
            level[p] -= held[v, p]
        for j in range(pred_start[v], pred_start[v + 1]):  # what ends with its last reader
            u = pred[j]
            readers[u, p] -= 1
            last[u, p] = max(last[u, p], end[v])
            if readers[u, p] == 0 and held[u, p] > 0.0:
                _note(moments[p], deltas[p], count[p], last[u, p], -held[u, p])
                count[p] += 1
                level[p] -= held[u, p]
        done += 1
    return start, end, 0
