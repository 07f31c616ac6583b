"""The MILP and the linear relaxation of a task graph's makespan; :mod:`formulations.schedule.latency` states them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.schedule._graphs import graph, horizon, plan_of, schedule_of, transfer_pairs
from formulations.schedule._residence import binds
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["LP", "MILP", "add_placement", "unordered"]

MOST = 400_000  # nonzeros beyond which the MILP is hopeless


def add_placement(model: LinearModel, instance: Instance) -> NDArray[np.int64]:
    """Columns x (n, d) with (1), (2) and (3)."""
    n, d = instance.n_tasks, instance.n_devices
    names = (instance.labels, instance.device_names)
    may = np.isfinite(graph(instance).time)
    x: NDArray[np.int64] = model.binary("x", (n, d), upper=may, labels=names)
    row = np.broadcast_to(np.arange(n)[:, None], (n, d))
    model.rows("assign", n, [(row, x, 1.0)], lower=1, upper=1, labels=names[:1])  # (1)
    first = np.full(len(instance.columns.group_name), -1, np.int64)
    inside = np.flatnonzero(instance.group >= 0)
    first[instance.group[inside[::-1]]] = inside[::-1]
    apart = inside[first[instance.group[inside]] != inside]
    if apart.size:
        leader, k = first[instance.group[apart]], np.arange(len(apart) * d).reshape(-1, d)
        model.rows("group", len(apart) * d, [(k, x[apart], 1.0), (k, x[leader], -1.0)], lower=0, upper=0)  # (2)
    limited = np.flatnonzero(np.isfinite(instance.capacity))
    if limited.size and (instance.memory > 0).any():
        scale = time_unit(float(instance.memory.max()))
        terms = [
            (np.broadcast_to(np.arange(len(limited)), (n, len(limited))), x[:, limited],
             np.broadcast_to(instance.memory[:, None] / scale, (n, len(limited))))
        ]  # fmt: skip
        labels = ([names[1][i] for i in limited.tolist()],)
        model.rows("memory", len(limited), terms, upper=instance.capacity[limited] / scale, labels=labels)  # (3)
    return x


def unordered(instance: Instance) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs a < b of tasks neither of which has to wait for the other, by reachability."""
    n, g = instance.n_tasks, graph(instance)
    below = np.eye(n, dtype=bool)
    for v in g.topological[::-1].tolist():
        for w in g.succ[g.succ_start[v] : g.succ_start[v + 1]].tolist():
            below[v] |= below[w]
    a, b = np.nonzero(~(below | below.T))
    return a[a < b], b[a < b]


class MILP(LinearFormulation):
    """(1)-(8)."""

    name = "milp"
    title = "MILP (1)-(8): places, starts and the order of pairs"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough rows, and no memory over time."""
        if binds(instance, question):
            return "memory over time is not stated as a MILP; cpsat states it"
        size = self.size(instance, question)
        return f"it would have up to {size:,} nonzeros, more than {MOST:,}" if size > MOST else None

    def size(self, instance: Instance, question: Question) -> int:
        """Five for each pair of tasks and device, as many for each edge and pair of devices."""
        d = instance.n_devices
        return 5 * d * instance.n_tasks**2 + 5 * len(instance.edges) * d * d

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x[task,device]``, ``start[task]``, ``before[pair]``, ``makespan``; times in units that suit tolerances."""
        g = graph(instance)
        may, n, d = np.isfinite(g.time), instance.n_tasks, instance.n_devices
        late = horizon(instance)
        unit = time_unit(late)
        big, time = late / unit, np.where(may, g.time, 0.0) / unit
        labels = instance.labels
        model = LinearModel("schedule")
        x = add_placement(model, instance)
        start = model.continuous("start", n, lower=g.release / unit, upper=big, labels=(labels,))
        makespan = model.continuous("makespan", upper=big)
        everyone, row = np.arange(n), np.broadcast_to(np.arange(n)[:, None], (n, d))
        ready = (g.free / unit)[None, :] * np.ones((n, 1))
        model.rows("free", n, [(everyone, start, 1.0), (row, x, -ready)], lower=0, labels=(labels,))  # (4)
        ends: list[tuple[Any, Any, Any]] = [(everyone, np.broadcast_to(makespan, n), 1.0), (everyone, start, -1.0)]
        model.rows("ends", n, [*ends, (row, x, -time)], lower=0, labels=(labels,))  # (5)
        if len(instance.edges):
            u, v = instance.edges.T
            each = np.arange(len(u))
            waits: list[tuple[Any, Any, Any]] = [(each, start[v], 1.0), (each, start[u], -1.0)]
            across = np.broadcast_to(each[:, None], (len(u), d))
            model.rows("waits", len(u), [*waits, (across, x[u], -time[u])], lower=0)  # (6)
            edge, p, q, seconds = transfer_pairs(instance)
            each, sent, u, v = np.arange(len(edge)), seconds / unit, u[edge], v[edge]
            across = np.broadcast_to(each[:, None], (len(edge), d))
            terms: list[tuple[Any, Any, Any]] = [
                (each, start[v], 1.0),
                (each, start[u], -1.0),
                (across, x[u], -time[u]),
                (each, x[u, p], -sent),
                (each, x[v, q], -sent),
            ]
            model.rows("transfer", len(edge), terms, lower=-sent)  # (7)
        a, b = unordered(instance)
        before = model.binary("before", len(a))
        pair, i = np.nonzero((time[a] > 0) & (time[b] > 0) & may[a] & may[b])
        row, a, b = np.arange(len(pair)), a[pair], b[pair]
        for block, one, two, sign in (("first", a, b, 1.0), ("second", b, a, -1.0)):
            terms = [
                (row, start[two], 1.0),
                (row, start[one], -1.0),
                (row, x[a, i], -big),
                (row, x[b, i], -big),
                (row, before[pair], -sign * big),
            ]
            model.rows(block, len(pair), terms, lower=time[one, i] - (3.0 if sign > 0 else 2.0) * big)  # (8)
        model.minimize(np.atleast_1d(makespan), unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Devices by x, order by starts, each task as early as possible."""
        machine = np.argmax(x[model.columns("x")], axis=1)
        found = schedule_of(instance, machine, x[model.columns("start")])
        if found is None:
            raise ValueError("the tasks do not fit on the devices of the point")
        return plan_of(found)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Places and orders of a plan."""
        if solution.placement is None or solution.start is None:
            return None
        point = np.full(model.n_columns, np.nan)
        point[model.columns("x")] = solution.placement[:, None] == np.arange(instance.n_devices)
        a, b = unordered(instance)
        point[model.columns("before")] = solution.start[a] <= solution.start[b]
        return point


class LP(LinearFormulation):
    """(1)-(3), (9)-(13)."""

    name = "lp"
    title = "LP (1)-(3), (9)-(13): paths, loads and the least transfer of edges that are cut"
    kind = "relaxation"

    def size(self, instance: Instance, question: Question) -> int:
        """Three for each task and each edge on each device."""
        return 3 * instance.n_devices * (instance.n_tasks + len(instance.edges))

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x``, ``end[task]``, ``cut[edge]``, ``makespan``; times in units that suit tolerances."""
        g = graph(instance)
        may, n, d = np.isfinite(g.time), instance.n_tasks, instance.n_devices
        late = horizon(instance)
        unit = time_unit(late)
        time = np.where(may, g.time, 0.0) / unit
        model = LinearModel("schedule_lp")
        x = add_placement(model, instance)
        end = model.continuous("end", n, upper=late / unit, labels=(instance.labels,))
        makespan = model.continuous("makespan", upper=late / unit)
        everyone, row = np.arange(n), np.broadcast_to(np.arange(n)[:, None], (n, d))
        floor = np.maximum(g.release[:, None], g.free[None, :]) / unit
        model.rows(
            "begins", n, [(everyone, end, 1.0), (row, x, -(time + floor))], lower=0, labels=(instance.labels,)
        )  # (9)
        model.rows("ends", n, [(everyone, np.broadcast_to(makespan, n), 1.0), (everyone, end, -1.0)], lower=0)  # (10)
        device = np.broadcast_to(np.arange(d), (n, d))
        model.rows("load", d, [(np.arange(d), np.broadcast_to(makespan, d), 1.0), (device, x, -time)], lower=0,
                   labels=(instance.device_names,))  # (11)  # fmt: skip
        if len(instance.edges):
            u, v = instance.edges.T
            edge, _, _, seconds = transfer_pairs(instance)
            least = self._least(instance, edge, seconds) / unit
            cut = model.continuous("cut", len(u), upper=1)
            each = np.arange(len(u))
            across = np.broadcast_to(each[:, None], (len(u), d))
            terms: list[tuple[Any, Any, Any]] = [(each, end[v], 1.0), (each, end[u], -1.0), (across, x[v], -time[v])]
            model.rows("waits", len(u), [*terms, (each, cut, -least)], lower=0)  # (12)
            sends = np.flatnonzero(least > 0)
            k = np.arange(len(sends) * d).reshape(-1, d)
            apart = [
                (k, np.broadcast_to(cut[sends][:, None], k.shape), 1.0),
                (k, x[u[sends]], -1.0),
                (k, x[v[sends]], 1.0),
            ]
            model.rows("apart", len(sends) * d, apart, lower=0)  # (13)
        model.minimize(np.atleast_1d(makespan), unit)
        return model.relax()

    @staticmethod
    def _least(instance: Instance, edge: NDArray[np.int64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """(e,) least seconds of a transfer of each edge; 0 where some pair of devices takes none."""
        g, e = graph(instance), len(instance.edges)
        may = np.isfinite(g.time).sum(axis=1)
        both = (np.isfinite(g.time)[instance.edges[:, 0]] & np.isfinite(g.time)[instance.edges[:, 1]]).sum(axis=1)
        pairs = may[instance.edges[:, 0]] * may[instance.edges[:, 1]] - both
        least = np.full(e, np.inf)
        np.minimum.at(least, edge, seconds)
        return np.where((np.bincount(edge, minlength=e) == pairs) & np.isfinite(least), least, 0.0)
