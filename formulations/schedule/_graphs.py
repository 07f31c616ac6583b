"""An instance as a task graph, a schedule as a plan, and the scale in which solvers see its times."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import jobs_of
from hetopt.algorithms.dag_graph import Schedule, TaskGraph, graph_of
from hetopt.algorithms.dag_list import in_order, prioritised
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.schedule import links_between

__all__ = ["graph", "horizon", "plan_of", "schedule_of", "transfer_pairs"]


@lru_cache(maxsize=4)
def graph(instance: Instance) -> TaskGraph:
    """The instance's tasks, edges and devices.

    Raises
    ------
    InputError
        No link leads from a device to another one, and tasks of an edge may run there.
    """
    latency, slowness = links_between(instance)
    e = instance.edges
    if len(e):
        may = instance.eligible.astype(np.float64)
        talks = may[e[:, 0]].T @ may[e[:, 1]] > 0
        names = instance.device_names
        for a, b in np.argwhere(talks & np.isinf(latency))[:1].tolist():
            instance.need_link(names[a], names[b])
    jobs = jobs_of(instance)
    return graph_of(
        instance.time,
        e,
        instance.edge_data,
        latency,
        slowness,
        release=instance.columns.release[instance.job_of],
        free=instance.available_from,
        unit=jobs.member if len(jobs.count) < instance.n_tasks else None,
        memory=instance.memory,
        room=instance.capacity,
    )


def plan_of(found: Schedule) -> Solution:
    """The plan that a schedule is."""
    return Solution(placement=found.machine, start=found.start)


def schedule_of(instance: Instance, machine: NDArray[np.int64], key: NDArray[np.float64]) -> Schedule | None:
    """Each task on ``machine`` (n,), as early as possible, by rising ``key`` (n,); better with gaps, but in that order."""
    return prioritised(graph(instance), -key, wish=machine)


def rescheduled(instance: Instance, solution: Solution) -> Schedule | None:
    """A plan's tasks in the order of their starts, each as early as its device allows."""
    if solution.placement is None or solution.start is None:
        return None
    g = graph(instance)
    place = np.empty(instance.n_tasks, np.int64)
    place[g.topological] = np.arange(instance.n_tasks)
    return in_order(g, np.lexsort((place, solution.start)), wish=solution.placement)


def transfer_pairs(
    instance: Instance,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Edge, device of its source, another device of its target, and seconds of the transfer; those that take time."""
    g = graph(instance)
    if not len(instance.edges):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing, np.zeros(0)
    u, v = instance.edges.T
    may = np.isfinite(g.time)
    d = instance.n_devices
    differ = ~np.eye(d, dtype=bool)
    edge, p, q = np.nonzero(may[u][:, :, None] & may[v][:, None, :] & differ[None])
    seconds = g.latency[p, q] + instance.edge_data[edge] * g.slowness[p, q]
    late = seconds > 0
    return edge[late], p[late], q[late], seconds[late]


def horizon(instance: Instance) -> float:
    """A moment by which some best plan has ended: all tasks one after the other, each transfer waited for."""
    g = graph(instance)
    slowest = np.where(np.isfinite(g.time), g.time, 0.0).max(axis=1)
    edge, _, _, seconds = transfer_pairs(instance)
    transfer = np.zeros(len(instance.edges))
    np.maximum.at(transfer, edge, seconds)
    begin = max(float(g.release.max(initial=0.0)), float(g.free.max(initial=0.0)))
    return 1.001 * (begin + math.fsum(slowest.tolist()) + math.fsum(transfer.tolist()))
