"""An instance as a stream of jobs, a choice of ways as a plan, and the decoding of an order."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.schedule._graphs import graph
from hetopt.algorithms.dag_graph import TaskGraph
from hetopt.algorithms.dag_list import in_order
from hetopt.algorithms.online_dispatch import Stream
from hetopt.formulation import Question
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.online import speeds_of

__all__ = ["at_ways", "decoded", "plan_of", "stream", "value_of", "ways_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def stream(instance: Instance, question: Question) -> Stream:
    """The instance's jobs, its devices at their speeds, and what the question says of energy.

    Raises
    ------
    InputError
        ``tables.speeds`` cannot be read, or no link leads where tasks must talk.
    """
    most = question["job_energy"]
    return _stream(instance, float(question["energy_price"]), math.inf if most is None else float(most))


@lru_cache(maxsize=4)
def _stream(instance: Instance, price: float, most: float) -> Stream:
    g, rows = graph(instance), speeds_of(instance)
    device = np.array([i for i, row in enumerate(rows) for _ in row], np.int64)
    number = np.array([k for row in rows for k in range(len(row))], np.int64)
    rate = np.array([speed.speed for row in rows for speed in row])
    watts = np.array([speed.power for row in rows for speed in row])
    time = np.ascontiguousarray(g.time[:, device] / rate)
    energy = np.where(np.isfinite(time), np.where(np.isfinite(time), time, 0.0) * watts, np.inf)
    fastest = g.time / np.array([max(speed.speed for speed in row) for row in rows])
    return Stream(
        g._replace(time=np.ascontiguousarray(fastest)), device, number, time, energy, np.asarray(instance.job_of),
        np.array(instance.columns.weight), price, most,
    )  # fmt: skip


def plan_of(instance: Instance, data: Stream, way: Ints, start: Floats) -> Solution:
    """The plan of a way (n,) and a start (n,) of each task; speeds are told where there are any."""
    rows = speeds_of(instance)
    told = {
        label: rows[data.device[q]][data.speed[q]].name for label, q in zip(instance.labels, way.tolist(), strict=True)
    }
    named = {label: name for label, name in told.items() if name}
    return Solution(data.device[way], start, details={"speeds": named} if named else {})


def ways_of(instance: Instance, data: Stream, solution: Solution) -> Ints | None:
    """(n,) way of each task in a plan; None where it names none."""
    if solution.placement is None or solution.start is None:
        return None
    told = solution.details.get("speeds", {})
    rows, first = speeds_of(instance), np.searchsorted(data.device, np.arange(instance.n_devices))
    way = np.empty(instance.n_tasks, np.int64)
    for k, (label, i) in enumerate(zip(instance.labels, solution.placement.tolist(), strict=True)):
        names = [speed.name for speed in rows[i]]
        if told.get(label, "") not in names:
            return None
        way[k] = first[i] + names.index(told.get(label, ""))
    return way


def at_ways(data: Stream, way: Ints) -> TaskGraph:
    """The task graph in which each task can run on its way's device alone, at its way's speed."""
    time = np.full(data.graph.time.shape, np.inf)
    each = np.arange(len(way))
    time[each, data.device[way]] = data.time[each, way]
    return data.graph._replace(time=time)


def decoded(data: Stream, way: Ints, key: Floats) -> Floats:
    """(n,) earliest starts of tasks that follow each other on their devices by rising ``key`` (n,), producers first."""
    place = np.empty(len(key), np.int64)
    place[data.graph.topological] = np.arange(len(key))
    found = in_order(
        at_ways(data, way), np.lexsort((place, key)), wish=np.asarray(data.device[way], np.int64), insertion=False
    )
    if found is None:
        raise ValueError("a task was given a device where it cannot run")
    return found.start


def value_of(data: Stream, way: Ints, start: Floats, tasks: Ints | None = None) -> float:
    """Weighted latency and energy of all jobs, or of some tasks' jobs and those tasks; not divided by the weights."""
    some = np.arange(len(way)) if tasks is None else tasks
    last = np.full(len(data.weight), -np.inf)
    np.maximum.at(last, data.job[some], start[some] + data.time[some, way[some]])
    seen = np.isfinite(last)
    arrival = np.zeros(len(data.weight))
    arrival[data.job] = data.graph.release
    return float((data.weight[seen] * (last - arrival)[seen]).sum() + data.price * data.energy[some, way[some]].sum())
