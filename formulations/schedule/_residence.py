"""Memory over time in a task graph's question: whether it can bind, whether a task is too large, heuristics, and brute force.

:mod:`formulations.schedule.latency` states the mathematics, (19)-(24).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import in_mebibytes, jobs_of
from formulations.schedule._graphs import graph, horizon, plan_of
from hetopt.algorithms.dag_graph import Schedule
from hetopt.algorithms.dag_list import RULES, in_order, list_schedule
from hetopt.algorithms.dag_room import Attempt, anneal_in_room, best_attempt
from hetopt.control import Control
from hetopt.formulation import Outcome, Question
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["annealed", "binds", "candidates", "in_room", "results", "too_large"]

_AGAIN = 100


def results(instance: Instance) -> NDArray[np.float64]:
    """(n,) bytes of each task's result on its own device: its output, or the largest of its edges with bytes of their own."""
    size = np.array(instance.output)
    if len(instance.edges):
        np.maximum.at(size, instance.edges[:, 0], instance.edge_data)
    return size


def binds(instance: Instance, question: Question) -> bool:
    """Whether memory over time is asked for, and some device has less than all weights and all results need together."""
    if question.get("memory", "placed") != "over-time":
        return False
    needs = np.concatenate([instance.memory, results(instance)])
    more = 1.0 if bool((needs == np.floor(needs)).all()) else 1.0 + 1e-12  # sums of decimals may round up
    return bool((math.fsum(needs.tolist()) * more > instance.capacity).any())


def too_large(instance: Instance) -> tuple[str, ...]:
    """A sentence of the task that no device can hold while it runs; empty when there is none.

    While a task takes time its device holds the weights of its group, its result, and every result that it reads or a copy.
    """
    jobs, made = jobs_of(instance), results(instance)
    weights = jobs.memory[jobs.member]
    read = np.zeros(instance.n_tasks)
    if len(instance.edges):
        np.add.at(read, instance.edges[:, 1], instance.edge_data)
    need = weights + made + read
    can = np.isfinite(graph(instance).time)
    # A device where a task takes no time holds nothing for it but weights.
    room = np.where(can, np.where(instance.time > 0, instance.capacity, np.inf), -np.inf)
    short = need - room.max(axis=1)
    v = int(np.argmax(np.where(np.isfinite(short), short, -np.inf))) if len(short) else -1
    if v < 0 or not need[v] > room[v].max() * (1 + 1e-12):
        return ()
    where = instance.device_names[int(room[v].argmax())]
    return (
        f"task {instance.labels[v]!r} needs {need[v]:.12g} bytes while it runs (weights {weights[v]:.12g}, what it reads "
        f"{read[v]:.12g}, its result {made[v]:.12g}), and the roomiest device it can run on, {where!r}, has "
        f"{room[v].max():.12g}: {short[v]:.12g} bytes short{in_mebibytes(float(short[v]))}",
    )


def in_room(instance: Instance, schedules: Iterable[Schedule]) -> Attempt | None:
    """The best attempt at keeping the room with the devices and the order of each schedule; None of no schedule."""
    return best_attempt(graph(instance), instance.memory, results(instance), schedules)


def annealed(instance: Instance, question: Question, control: Control) -> Outcome:
    """List schedules that wait for room; from the best of them annealing again and again while a limit leaves time."""
    g, n = graph(instance), instance.n_tasks
    made, late = results(instance), horizon(instance)
    best: Attempt | None = None
    for found in _first_schedules(instance, question, control):
        tried = in_room(instance, [found])
        assert tried is not None
        if best is None or (tried.left, tried.schedule.makespan) < (best.left, best.schedule.makespan):
            best = tried
            if best.left == 0:
                control.report_plan(plan_of(best.schedule))
        if control.should_stop():
            return Outcome("limit", "time")
    if best is None:
        return Outcome(notes=("no list schedule found room for the weights of every task",))
    for again in range(_AGAIN):
        found_again = anneal_in_room(
            g,
            instance.memory,
            made,
            best,
            horizon=late,
            seed=control.seed + 7919 * again,
            steps=(500 + 20_000 // max(1, n)) << min(again, 8),
            hot=(0.03, 0.1, 0.01, 0.3)[again % 4],
            should_stop=control.should_stop,
            report=lambda schedule: control.report_plan(plan_of(schedule)),
        )
        best = min(best, found_again, key=lambda tried: (tried.left, tried.schedule.makespan))
        if control.should_stop():
            return Outcome("limit", "time")
        if math.isinf(control.remaining) and (best.left == 0 or again >= 3):
            break
    if best.left:
        return Outcome(
            notes=(f"no order was found in which all results find room: {best.left} of {n} tasks were left over",)
        )
    return Outcome()


def _first_schedules(instance: Instance, question: Question, control: Control) -> Iterator[Schedule]:
    """The incumbent, the rules, and each device taking all that it can."""
    g, plan = graph(instance), control.plan
    if plan is not None and plan.placement is not None and plan.start is not None:
        yield Schedule(np.array(plan.placement), np.array(plan.start), np.array(plan.start), math.inf)
    for rule in RULES:
        found = list_schedule(g, rule, rank=question.get("rank", "paper"))
        if found is not None:
            yield found
    for p in range(instance.n_devices):
        found = in_order(g, g.topological, wish=np.full(instance.n_tasks, p))
        if found is not None:
            yield found


def candidates(instance: Instance, placement: NDArray[np.int64]) -> Iterator[Solution]:
    """Plans of a placement, some best one among them: every start is 0, a release, or tight behind another task by (25).

    Exhaustive, for a handful of tasks.
    """
    g, n = graph(instance), instance.n_tasks
    length = instance.time[np.arange(n), placement]
    sent = np.zeros((n, n))
    linked = np.zeros((n, n), bool)
    for (u, v), data in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True):
        p, q = placement[u], placement[v]
        linked[u, v], sent[u, v] = True, g.latency[p, q] + data * g.slowness[p, q] if p != q else 0.0
    floor = np.maximum(g.release, g.free[placement])
    behind = [sorted({0.0, *sent[i][linked[i]].tolist()}) for i in range(n)]
    seen: set[tuple[float, ...]] = set()
    fresh: list[tuple[float, ...]] = [(math.nan,) * n]
    while fresh:
        partial = fresh.pop()
        placed = [i for i in range(n) if not math.isnan(partial[i])]
        if len(placed) == n:
            yield Solution(placement=placement, start=np.array(partial))
        for v in range(n):
            if not math.isnan(partial[v]):
                continue
            tight = (
                partial[i] + length[i] + wait - back
                for i in placed
                for wait, back in product(behind[i], (0.0, length[v]))
            )
            for moment in sorted({float(floor[v]), *(float(s) for s in tight if s >= floor[v])}):
                if _clashes(v, moment, partial, placed, placement, length, linked, sent):
                    continue
                longer = (*partial[:v], moment, *partial[v + 1 :])
                if longer not in seen:
                    seen.add(longer)
                    fresh.append(longer)


def _clashes(
    v: int,
    moment: float,
    partial: tuple[float, ...],
    placed: list[int],
    placement: NDArray[np.int64],
    length: NDArray[np.float64],
    linked: NDArray[np.bool_],
    sent: NDArray[np.float64],
) -> bool:
    """Whether a task at a moment overlaps or does not wait for one that has its place."""
    for i in placed:
        first, last = partial[i], partial[i] + length[i]
        if linked[i, v] and moment < last + sent[i, v]:
            return True
        if linked[v, i] and first < moment + length[v] + sent[v, i]:
            return True
        if placement[i] == placement[v] and length[i] > 0 < length[v] and moment < last and first < moment + length[v]:
            return True
    return False
