"""Embedding-table sharding: whole tables on devices that fit them, the busiest device's step as short as possible.

Sets and data
    j in J      embedding tables (jobs); n of them
    g, h in G   devices
    p_jg        seconds of table j's lookups (and their gradients) on device g by themselves, absent where it cannot be
    b_j, B_g    bytes of table j (``memory``), bytes device g has;  Q_g: most tables on device g (``max_tasks``)
    o_j         bytes of table j's pooled vectors for a whole batch (``output``: batch x dimension x width)
    f_g(k)      seconds that holding k tables adds on device g or, below 0, saves, because their kernels are fused: pieces
                ``tables.fusion`` = {device, type or "*": [[k, seconds], ...]}, linear between the points and constant outside;
                f_g(0) = 0. Latencies of the links are added where k > 0.
    e_g         seconds per byte of output: each device works on 1/|G| of the batch, so g sends that share of each vector to
                every other device, one after the other, and with ``training`` gets a gradient of that size back:
                e_g = sum_{h != g} (1/bandwidth_gh + 1/bandwidth_hg) / |G|

Variables
    x_jg in {0, 1}  table j is on device g
    z_gk in {0, 1}  device g holds k tables
    T >= 0          time of the busiest device

Minimise T subject to

    sum_g x_jg = 1                                              for each table                          (1)  assign
    sum_j x_jg = sum_k k z_gk,  sum_k z_gk = 1                  for each device                         (2)  count, one
    sum_j (p_jg + e_g o_j) x_jg + sum_k f_g(k) z_gk <= T        for each device                         (3)  busy
    sum_j b_j x_jg <= B_g                                       for each device with limited memory     (4)  memory
    z_gk = 0 for k > Q_g, or more tables than the k smallest that fit into B_g                          (5)

``lp``: the relaxation; it replaces f_g by its convex envelope over the counts that (5) leaves, and so spreads over all counts
what only an empty device saves. ``cases`` tells them apart: either every device holds a table, or some device holds none,

    z_g0 = 0 for all g,     or     z_g0 = 1 for a device g      for each g                              (6)

and the least of these |G| + 1 relaxations is the bound; their duals are stored and replayed.

The greedy sharders put tables, largest measure first, where the sum of the measure is least and memory is left: ``by-size``
b_j, ``by-dimension`` o_j, ``by-lookup`` l_j, ``by-size-lookup`` l_j log10(rows), with l_j the bytes that a batch's lookups gather
(``activation``) and rows = b_j batch / o_j (option ``batch``); ``round-robin`` counts tables, ``random`` draws.

Sources: D. Zha and others, DreamShard, NeurIPS 2022, for the greedy sharders; Z. Lin and others, Towards universal performance
modeling for machine learning training on multi-GPU platforms, IEEE TPDS 2024, for the costs. (1)-(5) are standard; a
device's cost there is a learned model of all its tables, here it is the sum and a correction by their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import jobs_of, shortfalls
from formulations.assignment._sharders import SHARDERS
from formulations.assignment._sharding_data import Tables, fusion_violation, tables_of
from formulations.assignment._sharding_models import CPSAT, MILP, Cases, proved_by_cases
from hetopt.algorithms.goal_search import Goals, tighten
from hetopt.control import Control
from hetopt.formulation import (
    Evaluation,
    Method,
    Option,
    Outcome,
    Problem,
    Question,
    Relaxed,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.records import Device, Job, Link
from hetopt.solution import Solution
from hetopt.verify.assignment import device_details, placement_violations

__all__ = ["CPSAT", "MILP", "PROBLEM", "Annealing", "Cases", "Sharding"]


class Annealing(Method):
    """Annealing with memory and ever shorter steps as goals."""

    name = "annealing"
    title = "annealing from the best plan of the greedy sharders; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """The sharders, then aims below the best; again from other random numbers while a time limit leaves time."""
        from hetopt.algorithms.goal_search import reach

        tables = tables_of(instance, question)
        goals = _goals(instance, tables)
        n, d = tables.load.shape
        for sharder in SHARDERS:
            if sharder.fits(instance, question) is None and not control.should_stop():
                sharder.run(instance, question, control, options)
        if control.plan is not None:
            plan: NDArray[np.int64] | None = np.array(control.plan.placement)
        else:
            quickest = tables.load.argmin(axis=1)
            plan = reach(goals, quickest, seed=control.seed, proposals=2_000_000, should_stop=control.should_stop)
        attempt = 0
        rows = np.arange(n)

        def busiest(placement: NDArray[np.int64]) -> float:
            held = np.bincount(placement, minlength=d)
            load = np.bincount(placement, weights=tables.load[rows, placement], minlength=d)
            return float((load + tables.fused[np.arange(d), held]).max())

        lowest = float(tables.load.min(axis=1).max() + tables.fused.min())
        while plan is not None and not control.should_stop():
            control.report_plan(Solution.assign(plan))
            plan = tighten(
                lambda value: goals._replace(room=np.full(d, value)),
                busiest,
                plan,
                max(lowest, control.bound if control.bound is not None else 0.0),
                step=1.0 if tables.whole else 0.0,
                seed=control.seed + 7919 * attempt,
                should_stop=control.should_stop,
                report=lambda better: control.report_plan(Solution.assign(better)),  # type: ignore[arg-type,return-value]
            )
            attempt += 1
            if math.isinf(control.remaining) or attempt == 100:
                break
        return Outcome("limit", "time") if control.should_stop() and not control.closed else Outcome()


class Sharding(Problem):
    """Embedding tables on devices with memory, fused kernels and an all-to-all exchange."""

    name = "assignment.sharding"
    objectives = ("sharding",)
    title = "embedding tables on devices with memory, fused kernels and all-to-all exchange, the busiest as short as possible"
    options: ClassVar[tuple[Option, ...]] = (
        Option("training", bool, True, "whether gradients travel back as well"),
        Option(
            "batch", int, 1, "samples in a batch, which tell a table's rows from its bytes (only for by-size-lookup)"
        ),
    )
    uses = frozenset({"time", "memory", "pin", "forbid", "max_tasks", "tables.fusion"})
    methods = (CPSAT(), MILP(), Relaxed(MILP(), "(1)-(5)"), Cases(), Annealing(), *SHARDERS)

    def fits(self, instance: Instance) -> str | None:
        """Whole tables without edges or groups."""
        if len(instance.edges):
            return "tasks depend on each other by edges"
        return "it knows no groups" if (instance.group >= 0).any() else fusion_violation(instance)

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Busiest device: its tables' own seconds, its exchange, what fusing adds; memory and eligibility kept."""
        violations = placement_violations(instance, solution.placement)
        placement = solution.placement
        if placement is None or placement.shape != (instance.n_tasks,):
            return Evaluation(math.inf, violations)
        tables = tables_of(instance, question)
        load, exchange = np.zeros(instance.n_devices), np.zeros(instance.n_devices)
        for g in range(instance.n_devices):
            mine = np.flatnonzero((placement == g) & instance.eligible[:, g])
            sent = math.fsum(instance.output[mine].tolist()) * tables.per_byte[g]
            own = math.fsum([*instance.time[mine, g].tolist(), sent, float(tables.fused[g, len(mine)])])
            load[g], exchange[g] = own, sent
        details = device_details(instance, placement, load)
        for name, seconds in zip(instance.device_names, exchange.tolist(), strict=True):
            details[name]["exchange"] = seconds
        return Evaluation(max(0.0, float(load.max())), violations, {"devices": details})

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integers throughout every value is an integer: round up; else off what rounding p + e o costs; none is below 0."""
        tables = tables_of(instance, question)
        if tables.whole:
            return float(max(0, math.ceil(bound - slack)))
        largest = np.where(np.isfinite(tables.load), tables.load, 0.0).max(axis=1).sum() + abs(tables.fused).max()
        return max(bound - 2.0**-50 * float(largest), 0.0)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A table larger than every device it may be on, more bytes or tables than there is room."""
        return shortfalls(instance, jobs_of(instance))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays the duals of each case (6), and linear duals."""
        if certificate.get("kind") != "cases":
            return super().replay(instance, question, certificate)
        return self.round_bound(instance, question, proved_by_cases(instance, question, certificate), slack=0.0)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The LP's bound and the cases', annealing from the greedy sharders' plans, CP-SAT."""
        few = self.method("cases").fits(instance, question) is None
        return (
            Step("lp", "a bound at once, with its proof", share=0.1),
            *((Step("cases", "a stronger bound while devices are few, with its proof", share=0.2),) if few else ()),
            Step("annealing", "the greedy sharders' plans, then better ones", share=0.5),
            Step("cpsat", "exact, starts from the best plan so far"),
        )

    def sample(self, seed: int) -> Instance:
        """Up to six tables on up to three devices; some with fused kernels, exchange, memory that binds."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 7)), int(rng.integers(1, 4))
        times = rng.integers(1, 20, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.1) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        names = [f"d{g}" for g in range(d)]
        devices = [
            Device(
                name=name,
                memory=int(rng.integers(12, 30)) if rng.random() < 0.6 else None,
                max_tasks=int(rng.integers(2, 6)) if rng.random() < 0.2 else None,
            )
            for name in names
        ]
        jobs = [
            Job(
                name=f"t{j}",
                time=[None if np.isinf(t) else t for t in times[j].tolist()],
                memory=int(rng.integers(1, 9)),
                output=int(rng.integers(0, 9)) if seed % 2 else 0,
                activation=int(rng.integers(1, 50)),
            )
            for j in range(n)
        ]
        links = [Link(source="*", target="*", bandwidth=2.0, latency=1.0), Link(source="d0", target="*", bandwidth=1.0)]
        tables = {"fusion": {"*": [[1, 2.0], [4, -3.0]], "d0": [[1, 0.0], [2, 3.0], [5, 3.5]]}} if seed % 3 == 1 else {}
        question = {"objective": self.name, "training": bool(seed % 4 < 2)}
        return Instance.build(devices, jobs, links if seed % 2 else (), tables=tables, question=question)


def _goals(instance: Instance, tables: Tables) -> Goals:
    n, d = tables.load.shape
    most = np.where(tables.countable, np.arange(n + 1.0), 0.0).max(axis=1)
    return Goals(
        time=tables.load,
        extra=tables.fused,
        memory=instance.memory,
        tasks=np.ones(n),
        cost=np.zeros((n, d)),
        room=np.full(d, np.inf),
        capacity=instance.capacity,
        most=most,
        budget=math.inf,
    )


PROBLEM = Sharding()
