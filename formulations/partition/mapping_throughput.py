r"""Mapping a network onto unequal devices for throughput: least seconds an input on the busiest device or link.

Any task may lie on any device that can run it (no stages, no contiguity), as when every device has a queue for each task. What
travels from a task to several tasks on one device travels once.

    sets, data
    v in V            tasks, t_vp seconds on device p, m_v bytes;  E edges (u, v) with b_uv bytes
    w_pq              seconds a byte on the link p -> q, or through host memory where there is none;  latency does not count, for
                      inputs follow each other

    variables
    x_vp in {0,1}     v lies on p;      z_upq >= 0  seconds that u keeps the link p -> q busy

    minimise L                                                                                     (mapping-throughput)
    subject to  sum_p x_vp = 1                                                                 (1)  assign
                x_up = x_vp                                   u, v of one group                (2)  group
                sum_v m_v x_vp <= M_p                                                          (3)  memory
                L >= sum_v t_vp x_vp                          for each device                  (4)  load
                z_upq >= b_uv w_pq (x_up + x_vq - 1)          for each edge, p and q           (5)  sends
                L >= sum_u z_upq                              for each link                    (6)  link

``lp`` is (1)-(4), for in the relaxation (5) says nothing; its dual is replayed. ``search`` starts from the least loads and from
one device alone, and moves tasks.

Sources: the system of Y. Ghannane, M. Abdelfattah, arXiv 2308.00127 (a network on a CPU and unequal GPUs, for latency and for
throughput); their program is not public, this one is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import jobs_of, shortfalls, time_unit
from formulations.schedule._graphs import graph, horizon
from formulations.schedule._latency_milp import add_placement
from formulations.schedule.latency import PROBLEM as LATENCY
from hetopt.algorithms.dag_modules import balanced_parts
from hetopt.algorithms.dag_period import period_search
from hetopt.algorithms.makespan_lp import machine_prices
from hetopt.control import Control
from hetopt.formulation import Evaluation, LinearFormulation, Method, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.mapping import check_period

__all__ = ["LP", "MILP", "PROBLEM", "MappingThroughput", "Search"]

MOST = 2_000_000
DRY = 5  # attempts without a better plan after which the search ends, each longer than the one before


class LP(LinearFormulation):
    """(1)-(4)."""

    name = "lp"
    title = "LP (1)-(4): loads of devices"
    kind = "relaxation"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x[task,device]``, ``period``; times in units that suit tolerances."""
        return self.loads(instance)[0].relax()

    def loads(self, instance: Instance) -> tuple[LinearModel, NDArray[np.int64], Any, float]:
        """(1)-(4) with x, L and the unit."""
        g = graph(instance)
        may, (n, d) = np.isfinite(g.time), g.time.shape
        time = np.where(may, g.time, 0.0)
        unit = time_unit(float(time.max(initial=0.0)))
        model = LinearModel("mapping")
        x = add_placement(model, instance)
        period = model.continuous("period", upper=horizon(instance) / unit)
        device = np.broadcast_to(np.arange(d), (n, d))
        terms: list[tuple[Any, Any, Any]] = [(np.arange(d), np.broadcast_to(period, d), 1.0), (device, x, -time / unit)]
        model.rows("load", d, terms, lower=0, labels=(instance.device_names,))  # (4)
        model.minimize(np.atleast_1d(period), unit)
        return model, x, period, unit


class MILP(LP):
    """(1)-(6)."""

    name = "milp"
    title = "MILP (1)-(6)"
    kind = "exact"  # type: ignore[assignment]

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough rows."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} nonzeros, more than {MOST:,}" if size > MOST else None

    def size(self, instance: Instance, question: Question) -> int:
        """Four for each edge and pair of devices."""
        return instance.n_devices * (instance.n_tasks + 4 * instance.n_devices * len(instance.edges))

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x[task,device]``, ``period``, ``busy[task,device,device]``."""
        model, x, period, unit = self.loads(instance)
        g, d = graph(instance), instance.n_devices
        if not len(instance.edges):
            return model
        u, v = instance.edges.T
        may = np.isfinite(g.time)
        edge, p, q = np.nonzero(may[u][:, :, None] & may[v][:, None, :] & ~np.eye(d, dtype=bool)[None])
        seconds = instance.edge_data[edge] * g.slowness[p, q] / unit
        late = seconds > 0
        edge, p, q, seconds = edge[late], p[late], q[late], seconds[late]
        keys, number = np.unique((u[edge] * d + p) * d + q, return_inverse=True)
        busy = model.continuous("busy", len(keys))
        row = np.arange(len(edge))
        terms: list[tuple[Any, Any, Any]] = [
            (row, busy[number], 1.0),
            (row, x[u[edge], p], -seconds),
            (row, x[v[edge], q], -seconds),
        ]
        model.rows("sends", len(edge), terms, lower=-seconds)  # (5)
        links, link = np.unique(keys % (d * d), return_inverse=True)
        total: list[tuple[Any, Any, Any]] = [
            (np.arange(len(links)), np.broadcast_to(period, len(links)), 1.0),
            (link, busy, -1.0),
        ]
        model.rows("link", len(links), total, lower=0)  # (6)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Where each task lies."""
        return Solution.assign(np.argmax(x[model.columns("x")], axis=1))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Places of a plan."""
        if solution.placement is None:
            return None
        point = np.full(model.n_columns, np.nan)
        point[model.columns("x")] = solution.placement[:, None] == np.arange(instance.n_devices)
        return point


class Search(Method):
    """Local search."""

    name = "search"
    title = "moves from balanced loads and from single devices; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Each start, again with other random numbers while a time limit leaves time and something comes of it."""
        g, jobs = graph(instance), jobs_of(instance)
        prices, least = machine_prices(np.ascontiguousarray(jobs.time), np.zeros(instance.n_devices))
        starts = [np.full(instance.n_tasks, i) for i in np.flatnonzero(np.isfinite(g.time).all(axis=0)).tolist()]
        nothing = (np.zeros((0, 2), np.int64), np.zeros(0))
        part = balanced_parts(jobs.time, jobs.memory, jobs.capacity, *nothing, 1.02 * least, prices)
        if part is not None:
            starts.insert(0, part[jobs.member])
        attempt = dry = 0
        while starts:
            before = control.value
            for begin in starts:
                period_search(
                    g,
                    begin,
                    seed=control.seed + 7919 * attempt,
                    rounds=20 << min(attempt, 6),
                    should_stop=control.should_stop,
                    report=lambda found: control.report_plan(Solution.assign(found)),
                )
            attempt += 1
            dry = dry + 1 if control.value == before else 0
            if control.should_stop():
                return Outcome("limit", "time")
            if math.isinf(control.remaining) or dry == DRY:
                break
        return Outcome()


class MappingThroughput(Problem):
    """Period of a network on unequal devices."""

    name = "partition.mapping_throughput"
    objectives = ("mapping-throughput",)
    title = (
        "a network onto unequal devices, least seconds between inputs (any placement, devices and links side by side)"
    )
    uses = frozenset({"time", "memory", "group", "pin", "forbid", "edges", "output", "links"})
    methods = (MILP(), LP(), Search())

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds of the busiest device or link."""
        report = check_period(instance, solution.placement)
        names = instance.device_names
        details = {
            "devices": {name: {"load": load} for name, load in zip(names, report.load.tolist(), strict=True)},
            "links": {
                f"{names[a]} -> {names[b]}": float(report.carried[a, b]) for a, b in np.argwhere(report.carried > 0)
            },
        }
        return Evaluation(report.period, report.violations, details)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A group that runs nowhere, more bytes than there is room."""
        graph(instance)
        return shortfalls(instance, replace(jobs_of(instance), most=np.full(instance.n_devices, np.inf)))

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The LP's bound, a search, the program."""
        steps = [Step("lp", "a bound at once", 0.2), Step("search", "a plan soon", 0.3)]
        if self.method("milp").fits(instance, question) is None:
            steps.append(Step("milp", "exact"))
        return steps

    def sample(self, seed: int) -> Instance:
        """As those of task graphs, without dates."""
        import msgspec

        drawn = LATENCY.sample(seed)
        jobs = [msgspec.structs.replace(job, release=0) for job in drawn.jobs()]
        devices = [msgspec.structs.replace(device, available_from=0) for device in drawn.devices]
        return Instance.build(devices, jobs, drawn.links, question={"objective": self.objectives[0]})


PROBLEM = MappingThroughput()
