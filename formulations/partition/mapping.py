r"""Mapping a network onto unequal devices: one pass as early as possible, by modules and by balanced parts.

The question is that of :mod:`formulations.schedule.latency`, with its sets, its programs (1)-(18), its certificates and its
checker; the two heuristics here cut the graph first.

    minimise C = max_v s_v + sum_p t_vp x_vp        subject to (1)-(8) there                           (mapping)

``lp`` there is the combined bound of paths and loads: C >= f_v, f_v >= f_u + sum_p t_vp x_vp, C >= sum_v t_vp x_vp, which is at
least the longest path of least times and at least the load bound; its dual is replayed.

``modules``: communities of greatest modularity, in an order in which each waits for earlier ones only. Each is mapped exactly,
the tasks before it being fixed: for task v of the module, h_vp the arrival of what it reads from fixed tasks and the
moment p is free of them, g_v its least way to the end of everything,

    minimise C_k,  C_k >= s_v + sum_p t_vp x_vp + g_v,  s_v >= h_vp if x_vp,  with (1), (15), (17)       (19) module

``partition``: for limits (1 + eps) T*, T* the load bound, a mapping of little cut within the limit,

    minimise sum of b_uv over (u, v) on different devices,  sum_v t_vp x_vp <= (1 + eps) T*              (20) balance

by moves, then tasks in order of their mean way to the end; the best over the sweep of eps counts, notes say what each gave.

Sources: Y. Ghannane, M. Abdelfattah, arXiv 2308.00127, for modules (the paper's own program and bound are not public; those
here are ours); H. Wu, D. Lohmann, W. Schröder-Preikschat, arXiv 1502.07451, for balanced parts on unequal devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import jobs_of
from formulations.schedule._graphs import graph, horizon, plan_of, schedule_of
from formulations.schedule._latency_cpsat import CPSAT, Pool, interval_model
from formulations.schedule._latency_milp import LP, MILP
from formulations.schedule.latency import Annealing, Latency, ListSchedule, Paths
from hetopt.algorithms.dag_bounds import tails
from hetopt.algorithms.dag_graph import TaskGraph, graph_of
from hetopt.algorithms.dag_list import upward_rank
from hetopt.algorithms.dag_modules import balanced_parts, modules
from hetopt.algorithms.makespan_lp import machine_prices
from hetopt.control import Control
from hetopt.formulation import Method, Option, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance

__all__ = ["PROBLEM", "Mapping", "Modules", "Parts"]

_PIECE = 20  # tasks that CP-SAT maps well in a second
_WORK = 2.0  # seconds of work, as the solver counts it, for each module
_BITS = 28
_SWEEP = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, math.inf)


class Modules(Method):
    """(19), module by module."""

    name = "modules"
    title = "modules by modularity, each mapped exactly behind those before it; no guarantee"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Nothing that ties modules together but transfers."""
        if (instance.group >= 0).any():
            return "tasks of a group may lie in different modules"
        return "memory ties the modules together" if (instance.memory.sum() > instance.capacity).any() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Each module in turn; the plan at the end."""
        g, tail = graph(instance), tails(graph(instance))
        n = instance.n_tasks
        machine, start, end = np.full(n, -1, np.int64), np.zeros(n), np.zeros(n)
        free = g.free.copy()
        pieces = modules(g, most=_PIECE, seed=control.seed)
        for piece in pieces:
            if control.should_stop():
                return Outcome("limit", "time")
            floor = _floor(g, piece, machine, end, free)
            machine[piece], start[piece] = _mapped(instance, g, piece, floor, tail[piece], control)
            end[piece] = start[piece] + g.time[piece, machine[piece]]
            np.maximum.at(free, machine[piece], end[piece])
        found = schedule_of(instance, machine, start)
        if found is not None:
            control.report_plan(plan_of(found))
        return Outcome(statistics={"modules": len(pieces)})


def _floor(
    g: TaskGraph,
    piece: NDArray[np.int64],
    machine: NDArray[np.int64],
    end: NDArray[np.float64],
    free: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(tasks, d) earliest starts that tasks placed before leave."""
    floor = np.maximum(g.release[piece][:, None], free[None, :])
    for k, v in enumerate(piece.tolist()):
        for j in range(g.pred_start[v], g.pred_start[v + 1]):
            u = int(g.pred[j])
            if machine[u] >= 0:
                there = end[u] + g.latency[machine[u]] + g.pred_data[j] * g.slowness[machine[u]]
                floor[k] = np.maximum(floor[k], there)
    return floor


def _part(g: TaskGraph, piece: NDArray[np.int64], floor: NDArray[np.float64]) -> TaskGraph:
    """The piece as a graph of its own; starts are not before the least floor."""
    number = {v: k for k, v in enumerate(piece.tolist())}
    edges, data = [], []
    for v in piece.tolist():
        for j in range(g.succ_start[v], g.succ_start[v + 1]):
            if int(g.succ[j]) in number:
                edges.append((number[v], number[int(g.succ[j])]))
                data.append(float(g.succ_data[j]))
    return graph_of(g.time[piece], edges, data, g.latency, g.slowness, release=floor.min(axis=1))


def _mapped(
    instance: Instance,
    g: TaskGraph,
    piece: NDArray[np.int64],
    floor: NDArray[np.float64],
    tail: NDArray[np.float64],
    control: Control,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Device and start of each task of a piece, by (19); where each would end first when the solver finds nothing."""
    from hetopt import solvers
    from hetopt.solvers import Options
    from hetopt.solvers.cpsat import CpProgram

    part = _part(g, piece, floor)
    able = np.isfinite(part.time)
    span = horizon(instance) + float(tail[able].max(initial=0.0))
    unit = float(2.0 ** (math.frexp(span)[1] - _BITS)) if span > 0 else 1.0
    length, early, behind = (
        np.ceil(np.where(able, side, 0.0) / unit).astype(np.int64) for side in (part.time, floor, tail)
    )
    model, x, starts, _ = interval_model(part, able, length, early, behind, 2**_BITS, unit)  # (19)
    literals = [literal for row in x for literal in row.values()]
    program = CpProgram(model, [*literals, *starts], name="module")
    wishes = Options(time_limit=_WORK, seed=control.seed, deterministic=True)
    adapter: Any = solvers.get("cpsat")
    answer = adapter.solve(program, wishes, Control(cancelled=control.cancelled))
    if answer.x is None:
        best = np.where(able, floor + np.where(able, part.time, 0.0) + tail, np.inf).argmin(axis=1)
        return best, floor[np.arange(len(piece)), best]
    chosen = np.array([(k, i) for k, row in enumerate(x) for i in row])[np.asarray(answer.x[: len(literals)]) > 0.5]
    machine = np.zeros(len(piece), np.int64)
    machine[chosen[:, 0]] = chosen[:, 1]
    return machine, np.asarray(answer.x[len(literals) :], np.float64) * unit


class Parts(Method):
    """(20), swept."""

    name = "partition"
    title = "parts of little cut within a swept limit on loads, then tasks by mean way to the end; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """A plan for each limit; notes have cut and makespan."""
        g, jobs = graph(instance), jobs_of(instance)
        edges = jobs.member[instance.edges] if len(instance.edges) else np.zeros((0, 2), np.int64)
        outer = edges[:, 0] != edges[:, 1]
        edges, sent = edges[outer], instance.edge_data[outer] if len(edges) else np.zeros(0)
        prices, least = machine_prices(np.ascontiguousarray(jobs.time), np.zeros(instance.n_devices))
        rank = upward_rank(g)
        notes: list[str] = []
        for eps in _SWEEP:
            if control.should_stop():
                return Outcome("limit", "time", notes=tuple(notes))
            part = balanced_parts(jobs.time, jobs.memory, jobs.capacity, edges, sent, (1 + eps) * least, prices)
            found = None if part is None else schedule_of(instance, part[jobs.member], -rank)
            if part is None or found is None:
                continue
            control.report_plan(plan_of(found))
            cut = float(sent[part[edges[:, 0]] != part[edges[:, 1]]].sum())
            notes.append(f"limit {1 + eps:g} x load bound: cut {cut:.6g} bytes, makespan {found.makespan:.6g}")
        return Outcome(notes=tuple(notes))


class Mapping(Latency):
    """Latency of a network, by modules."""

    name = "partition.mapping"
    objectives = ("mapping", "mapping-latency")
    title = "a network onto unequal devices, one pass as early as possible (modules, balanced parts, exact)"
    options: ClassVar[tuple[Option, ...]] = ()
    methods = (CPSAT(), Pool(), MILP(), LP(), Paths(), Modules(), Parts(), ListSchedule("heft"), Annealing())

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """As for task graphs, with modules before the search."""
        first, bound, *rest = super().plan(instance, question)
        if self.method("modules").fits(instance, question) is not None:
            return (first, bound, *rest)
        return (first, bound, Step("modules", "the graph cut into modules, each mapped exactly", 0.3), *rest)


PROBLEM = Mapping()
