"""Simulated annealing over priorities and devices of a task graph's tasks, each point decoded by placing tasks with insertion.

A point gives each task a priority (its start, put off or brought forward) and a device, or leaves the device to the decoder,
which then takes the one where the task ends first. A step changes a few tasks: one on the chain of tasks that keeps the last
one from ending sooner, and neighbours of it; now and then a window of time is decoded afresh. No guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetopt.algorithms.dag_graph import Schedule, TaskGraph
from hetopt.algorithms.dag_kernels import by_priority, place
from hetopt.algorithms.draws import uniform
from hetopt.algorithms.jit import njit

__all__ = ["anneal", "critical_task"]

_CHUNK = 150_000  # decoded tasks times devices between two questions whether to stop, about 0.1 seconds


def anneal(
    graph: TaskGraph,
    start: Schedule,
    *,
    seed: int = 0,
    steps: int = 20_000,
    hot: float = 0.03,
    cold: float = 1e-4,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Schedule], object] = lambda schedule: None,
) -> Schedule:
    """Best schedule found; each better one is reported.

    Parameters
    ----------
    steps
        Points to decode, O((n + e) m) each.
    hot, cold
        First and last temperature, as shares of the start's makespan.

    Notes
    -----
    Of its own random numbers: the same plan on any machine.
    """
    n, m = graph.time.shape
    grouped = len(np.unique(graph.unit)) < n
    current, best = start, start
    state = np.array([(seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) & (2**64 - 1)], np.uint64)
    at, chunk = 0, max(1, min(steps, _CHUNK // max(1, n * m)))
    while at < steps and not should_stop():
        until = min(steps, at + chunk)
        machine, begin, end, makespan, machine_b, begin_b, end_b, makespan_b = _anneal(
            state, at, until, steps, hot * start.makespan, cold * start.makespan,
            current.machine, current.start, current.end, current.makespan, best.makespan, grouped,
            graph.time, graph.pred_start, graph.pred, graph.pred_data, graph.succ_start, graph.succ,
            graph.latency, graph.slowness, graph.release, graph.free, graph.unit, graph.need, graph.room,
        )  # fmt: skip
        current = Schedule(machine, begin, end, float(makespan))
        if makespan_b < best.makespan:
            best = Schedule(machine_b, begin_b, end_b, float(makespan_b))
            report(best)
        at = until
    return best


@njit
def critical_task(
    state: Any, machine: Any, start: Any, end: Any, pred_start: Any, pred: Any, data: Any, latency: Any, slowness: Any
) -> int:
    """A task on the chain that ends last, a random number of links back."""
    n = len(start)
    v = int(np.argmax(end))
    back = int(uniform(state) * (1 + 2 * np.sqrt(n)))
    for _ in range(back):
        following, latest = -1, -1.0
        for j in range(pred_start[v], pred_start[v + 1]):
            u = pred[j]
            there = end[u]
            if machine[u] != machine[v]:
                there += latency[machine[u], machine[v]] + data[j] * slowness[machine[u], machine[v]]
            if there > latest:
                latest, following = there, u
        if latest < start[v] * (1 - 1e-9) or uniform(state) < 0.1:
            for u in range(n):
                if u != v and machine[u] == machine[v] and abs(end[u] - start[v]) <= 1e-9 * end[u]:
                    following = u
                    break
        if following < 0:
            break
        v = following
    return v


@njit
def _anneal(state: Any, at: int, until: int, steps: int, hot: float, cold: float, machine: Any, start: Any, end: Any,
            makespan: float, least: float, grouped: bool, time: Any, pred_start: Any, pred: Any, data: Any,
            succ_start: Any, succ: Any, latency: Any, slowness: Any, release: Any, free: Any, unit: Any, need: Any,
            room: Any) -> Any:  # fmt: skip
    n, m = time.shape
    nothing = np.zeros((0, 0))
    machine_b, start_b, end_b, makespan_b = machine, start, end, least
    for step in range(at, until):
        temperature = hot * (cold / hot) ** (step / steps) if hot > 0.0 else 0.0
        priority, wish = -start, machine.copy()
        v = critical_task(state, machine, start, end, pred_start, pred, data, latency, slowness)
        for change in range(1 + int(uniform(state) * 3)):
            if change:
                if uniform(state) < 0.5:
                    v = int(uniform(state) * n)
                elif pred_start[v + 1] > pred_start[v] and uniform(state) < 0.5:
                    v = pred[pred_start[v] + int(uniform(state) * (pred_start[v + 1] - pred_start[v]))]
                elif succ_start[v + 1] > succ_start[v]:
                    v = succ[succ_start[v] + int(uniform(state) * (succ_start[v + 1] - succ_start[v]))]
            which = uniform(state)
            if which < 0.7:
                wish[v] = int(uniform(state) * m) if which < 0.45 else -1
                for u in range(n if grouped else 0):  # those that share its device go along
                    if unit[u] == unit[v]:
                        wish[u] = wish[v]
            if which >= 0.3:
                priority[v] += (1.2 * uniform(state) - 0.3) * 0.15 * makespan
        if uniform(state) < 0.08:
            first = uniform(state) * makespan
            last = first + 0.3 * uniform(state) * makespan
            for u in range(n):
                if first <= start[u] < last:
                    wish[u] = -1
        order = by_priority(priority, pred_start, succ_start, succ)
        found, begin, finish, value = place(
            order, wish, nothing, True, time, pred_start, pred, data, latency, slowness, release, free, unit, need, room
        )
        if value <= makespan or (
            temperature > 0.0 and value < np.inf and uniform(state) < np.exp((makespan - value) / temperature)
        ):
            machine, start, end, makespan = found, begin, finish, value
            if value < makespan_b:
                machine_b, start_b, end_b, makespan_b = found, begin, finish, value
    return machine, start, end, makespan, machine_b, start_b, end_b, makespan_b
