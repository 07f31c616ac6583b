"""R|r_i, d_j, delta_i|Cmax + sum w_j T_j + sum omega_i tau_i: jobs on unrelated machines, jobs and machines done in time.

Sets and data
    j, k in J          jobs (independent tasks, no release dates)
    i in M             devices, one job at a time
    p_ij               seconds of job j on device i, absent where it cannot run
    d_j, w_j           due date and weight of job j; no due date, no tardiness
    r_i                first second device i is free: ``available_from``
    delta_i, omega_i   due date and weight of device i

A plan gives each job a device and a start S_j >= r_i; C_j = S_j + p_ij. L_i is the last completion on device i, or r_i when it
has no job. T_j = max(0, C_j - d_j), tau_i = max(0, L_i - delta_i). An unused device counts: its tau_i may be positive, and
Cmax = max_i L_i is at least max_i r_i. Minimise Cmax + sum_j w_j T_j + sum_i omega_i tau_i.

``milp``, with x_ij in {0, 1}, y_jk in {0, 1} for j < k (1: j before k on the same device) and B so late that all is done:

    sum_i x_ij = 1                                              for each job                      (1)  assign
    C_j >= r_i + p_ij x_ij - B (1 - x_ij)                       for each job, device              (2)  first
    C_k >= C_j + p_ik - B (3 - x_ij - x_ik - y_jk)              for each pair j < k, device       (3)  before
    C_j >= C_k + p_ij - B (2 - x_ij - x_ik + y_jk)              for each pair j < k, device       (4)  after
    L_i >= r_i + sum_j p_ij x_ij,  Cmax >= L_i                  for each device                   (5)  load, last
    T_j >= C_j - d_j,  tau_i >= L_i - delta_i,  all >= 0                                          (6)  late, overdue

``cpsat`` has an optional interval [S_j, C_j) for each pair, no two overlapping on a device, with (1), (5), (6).

``lp``, the time-indexed relaxation: time in slots of ``u`` seconds, p and r rounded down to slots, x_ijs >= 0 for a start of j
on i in slot s = r_i, ..., H, and a unit of flow z through the slots of each device:

    sum_is x_ijs = 1                                                        for each job             (7)  once
    sum_j x_ijs + z_is = sum_j x_ij(s - p_ij) + z_i(s-1) + [s = r_i]        for each device, s < H   (8)  slot
    Cmax >= sum_is u (s + p_ij) x_ijs                                       for each job             (9)  ends
    minimise Cmax + sum_ijs w_j max(0, u (s + p_ij) - d_j) x_ijs + sum_i omega_i tau_i,  with (5), (6) for devices

The horizon H costs no proof: a start in slot H takes no capacity and stands for every later start, which costs no less. So
its optimum bounds every plan whatever H is, and its dual is replayed without a solver. H is 1.25 times the end of the
dispatching rule's plan; u is 1 for integers unless there would be too many slots.

``columns``, over the sequences s of jobs that device i may run, c_s their weighted tardiness and the device's, E_s their end:

    sum over s that hold j of x_s >= 1                          for each job                            (10) cover
    sum over s of i of x_s = 1                                  for each device                         (11) one
    minimise Cmax + sum_s c_s x_s,  Cmax >= sum over s of i of E_s x_s  for each device,  x_s >= 0      (12) ends

Sequences are found by dynamic programs under prices of the jobs, by column generation; the bound that prices prove is computed in
integers by code of its own (:mod:`hetopt.verify.tardiness_prices` has the argument). Makespans are cut into intervals where
the mean of (12) is too weak, and whole x among the columns near the bound are plans.

``subsets``: exact for at most 12 jobs, the least tardiness of each set of jobs on each device, then partitions under falling
limits on Cmax.

Sources: D. Hitzges, G. Sagnol, ICMLA 2025, arXiv 2512.19527, for the question and the dispatching rule; J. Sousa, L. Wolsey,
Mathematical Programming 54 (1992), for the time-indexed relaxation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from formulations.assignment._tardiness_columns import Columns, known_plan, replay
from formulations.assignment._tardiness_lp import LP, plan_of, shop_of, whole
from formulations.assignment._tardiness_models import CPSAT, MILP
from hetopt.algorithms.tardiness import MOST_JOBS, anneal_tardiness, best_tardiness, dispatch
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.sequence import check_sequence, gantt_details

__all__ = ["CPSAT", "LP", "MILP", "PROBLEM", "Annealing", "Columns", "Dispatch", "Subsets", "Tardiness", "shop_of"]

_FEW = 40  # most jobs for which CP-SAT has been seen to prove anything


class Subsets(Method):
    """Dynamic programs over sets of jobs."""

    name = "subsets"
    title = f"dynamic programs over sets of jobs; exact, at most {MOST_JOBS} jobs"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """At most twelve jobs."""
        return f"there are more than {MOST_JOBS} jobs" if instance.n_tasks > MOST_JOBS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Pairs of nested sets."""
        return int(min(3.0 ** min(instance.n_tasks, 40) * instance.n_devices, 2.0**62))

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Sets, partitions; the value is the optimum by the algorithm's proof."""
        best = best_tardiness(shop_of(instance), should_stop=control.cancelled.is_set)
        if best is None:
            if control.cancelled.is_set():
                return Outcome("interrupted")
            return Outcome("infeasible", infeasible=("the dynamic program found no device for every job",))
        plan = plan_of(instance, best.machine, best.position)
        control.report_plan(plan)
        judged = question.problem.judge(instance, question, plan)
        if not judged.violations:
            control.report_bound(judged.value, "algorithm")
        return Outcome()


class Dispatch(Method):
    """The published dispatching rule."""

    name = "dispatch"
    title = "dispatching rule of Hitzges and Sagnol; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan."""
        found = dispatch(shop_of(instance))
        if found is not None:
            control.report_plan(plan_of(instance, found.machine, found.position))
        return Outcome()


class Annealing(Method):
    """Simulated annealing over sequences, from the best plan or the dispatching rule's."""

    name = "annealing"
    title = "simulated annealing over sequences; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Four million proposals; again from other random numbers, ever slower, while a time limit leaves time.

        A plan known before is the start of every other attempt, which is then cooler.
        """
        shop, attempt = shop_of(instance), 0
        while True:
            anneal_tardiness(
                shop,
                start=known_plan(shop, control.plan) if attempt % 2 == 0 else None,
                seed=control.seed + 7919 * attempt,
                proposals=4_000_000 << min(attempt // 2, 8),
                should_stop=control.should_stop,
                report=lambda plan: control.report_plan(plan_of(instance, plan.machine, plan.position)),  # type: ignore[arg-type,return-value]
            )
            attempt += 1
            if control.should_stop():
                return Outcome("limit", "time")
            if math.isinf(control.remaining) or attempt == 100:
                return Outcome()


class Tardiness(Problem):
    """Makespan plus weighted tardiness of jobs and devices."""

    name = "assignment.tardiness"
    objectives = ("tardiness",)
    title = "makespan plus weighted tardiness of jobs and devices (R|r_i,d_j|Cmax + sum w_j T_j + sum omega_i tau_i)"
    uses = frozenset({"time", "weight", "due", "pin", "forbid", "available_from"})
    methods = (Subsets(), CPSAT(), MILP(), LP(), Columns(), Dispatch(), Annealing())

    def fits(self, instance: Instance) -> str | None:
        """Independent jobs without release dates or groups."""
        if len(instance.edges):
            return "tasks depend on each other by edges"
        if not instance.columns.own_task.all():
            return "jobs consist of several tasks"
        if (instance.group >= 0).any():
            return "it knows no groups"
        return "jobs have release dates" if (instance.columns.release > 0).any() else None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Cmax, tardiness and overdue devices of the plan's own start times."""
        done, violations = check_sequence(instance, solution.placement, solution.start)
        if not np.isfinite(done).all():
            return Evaluation(math.inf, violations)
        assert solution.placement is not None
        last = [float(device.available_from) for device in instance.devices]
        for i, end in zip(solution.placement.tolist(), done.tolist(), strict=True):
            last[i] = max(last[i], end)
        columns = instance.columns
        late = [w * (c - due) for w, c, due in zip(columns.weight, done, columns.due, strict=True) if c > due]
        overdue = [
            device.weight * (end - device.due)
            for device, end in zip(instance.devices, last, strict=True)
            if device.due is not None and end > device.due
        ]
        value = math.fsum([max(last), *late, *overdue])
        details = {
            "makespan": max(last),
            "job_tardiness": math.fsum(late),
            "device_tardiness": math.fsum(overdue),
            "devices": gantt_details(instance, solution.placement, done),
        }
        return Evaluation(value, violations, details)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integers throughout every value is an integer: round up."""
        return float(math.ceil(bound - slack)) if whole(instance) else bound

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Sets of jobs while they are few; else annealing, then plans and bounds by columns, then what they left open."""
        if self.method("subsets").fits(instance, question) is None:
            return (Step("subsets", "few jobs: dynamic programs over sets are exact at once"),)
        first = (
            Step("annealing", "good plans quickly", share=0.1),
            Step("columns", "bounds within a percent as a rule, and plans better than annealing's", share=0.9),
        )
        if instance.n_tasks <= _FEW:
            return (*first, Step("cpsat", "exact, starts from the best plan"))
        return (*first, Step("annealing", "the best plan once more: too many jobs for an exact method"))

    def bounds(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Columns: better than the LP, and faster."""
        return (Step("columns", self.method("columns").title),)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays prices of jobs and devices in integers, and linear duals."""
        if certificate.get("kind") == "machine-prices":
            return self.round_bound(instance, question, replay(instance, certificate), slack=0.0)
        return super().replay(instance, question, certificate)

    def sample(self, seed: int) -> Instance:
        """Up to four jobs on up to three devices; devices busy at first, some without a due date."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        times = rng.integers(0, 12, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.2) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf

        def due() -> int | None:
            return None if rng.random() < 0.2 else int(rng.integers(0, 12))

        jobs = [
            Job(
                name=f"j{j}",
                time=[None if np.isinf(t) else t for t in times[j].tolist()],
                weight=int(rng.integers(0, 6)),
                due=due(),
            )
            for j in range(n)
        ]
        devices = [
            Device(name=f"d{i}", available_from=int(rng.integers(0, 9)), due=due(), weight=int(rng.integers(0, 4)))
            for i in range(d)
        ]
        return Instance.build(devices, jobs, question={"objective": self.name})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All placements in all orders, each job as early as possible."""
        for plain in super().every_plan(instance, question):
            assert plain.placement is not None
            for order in permutations(range(instance.n_tasks)):
                yield plan_of(instance, plain.placement, np.argsort(order))


PROBLEM = Tardiness()
