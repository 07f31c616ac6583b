"""R||sum w_j C_j and R|r_j|sum w_j C_j: jobs on unrelated machines, done early on average.

Sets and data
    j in J      jobs (independent tasks)
    i in M      devices, one job at a time
    p_ij        seconds of job j on device i, absent where it cannot run
    w_j, r_j    weight and release of job j; a_i first second device i is free

A plan gives each job a device and a start S_j >= max(r_j, a_i); C_j = S_j + p_ij. Minimise sum_j w_j C_j.

Without release dates a device runs its jobs by Smith's rule, least p_ij / w_j first, so the devices alone decide. With k < j
meaning that k comes before j on device i by that rule:

    sum_i x_ij = 1                                          for each job j                  (1)  assign
    C_j >= a_i + p_ij + sum_{k < j} p_ik x_ik  if x_ij = 1  for each job j, device i        (2)  smith

With release dates, ``cpsat`` has an optional interval [S_j, C_j) for each pair, no two overlapping on a device     (3).

Interval-indexed relaxation ``lp``, over 0 = t_0 < t_1 < ... < t_L, where t_L is so late that every plan without needless
waiting ends before it (all releases and availabilities passed, then all jobs one after the other at their slowest):
    y_ijl >= 0  job j completes on device i in (t_{l-1}, t_l]
    sum_il y_ijl = 1                                        for each job                    (4)  once
    sum_j sum_{k <= l} p_ij y_ijk <= max(0, t_l - a_i)      for each device, interval       (5)  work
    minimise sum w_j max(t_{l-1}, max(r_j, a_i) + p_ij) y_ijl
A job completes no earlier than that, so its optimum is a bound; its dual is replayed without a solver.

``skutella``: a convex program in the shares whose optimum is a bound, replayed from the shares alone, and a plan within 3/2 of
it (no release dates). ``horn``: exact for equal weights and no release dates, a matching of jobs with positions from the end.

Sources: W. Smith, Naval Research Logistics Quarterly 3 (1956); W. Horn, Operations Research 21 (1973); L. Hall, A. Schulz,
D. Shmoys, J. Wein, Mathematics of Operations Research 22 (1997) for (4), (5); M. Skutella, JACM 48 (2001).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from formulations.assignment._completion_data import in_order, releases_of, smith, weights_of
from formulations.assignment._completion_models import CPSAT, LP
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.sequence import check_sequence, gantt_details

__all__ = ["CPSAT", "LP", "PROBLEM", "Annealing", "Horn", "Skutella", "WeightedCompletion", "smith"]


class Horn(Method):
    """Matching of jobs with positions counted from the end of each device."""

    name = "horn"
    title = "matching of jobs with positions from the end; exact for equal weights, no release dates"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Equal weights, no release dates."""
        weight = weights_of(instance)
        if (weight != weight[0]).any():
            return "weights differ"
        return "jobs have release dates" if releases_of(instance).any() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One matching; its value is the optimum by the algorithm's proof."""
        from hetopt.algorithms.completion import horn

        answer = horn(instance.time, ready=instance.available_from)
        plan = smith(instance, answer.plan)
        control.report_plan(plan)
        judged = question.problem.judge(instance, question, plan)
        if not judged.violations:
            control.report_bound(judged.value, "algorithm")
        return Outcome()


class Skutella(Method):
    """Convex program in the shares, rounded by conditional expectations."""

    name = "skutella"
    guarantee = "at most 3/2 times its own bound"
    title = f"Skutella's convex program and rounding, {guarantee}, which is replayed"
    kind = "approximation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """No release dates."""
        return "jobs have release dates" if releases_of(instance).any() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Shares, bound, plan."""
        from hetopt.algorithms.completion_relaxation import skutella

        answer = skutella(
            instance.time, weights_of(instance), ready=instance.available_from, should_stop=control.should_stop
        )
        job, device = np.nonzero(answer.x)
        certificate = {
            "kind": "shares",
            "job": job.tolist(),
            "device": device.tolist(),
            "share": answer.x[job, device].tolist(),
            "mixture": answer.mixture,
        }
        control.report_bound(_replay_shares(instance, certificate), "replayed", certificate)
        control.report_plan(smith(instance, answer.plan))
        return Outcome()


class Annealing(Method):
    """Simulated annealing over placements, from the incumbent."""

    name = "annealing"
    title = "simulated annealing over placements, no release dates; no guarantee"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """No release dates."""
        return "jobs have release dates" if releases_of(instance).any() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Twenty million proposals; again from other random numbers, ever slower, while a time limit leaves time."""
        from hetopt.algorithms.completion_search import anneal_completion

        start = control.plan.placement if control.plan is not None else None
        for attempt in range(100):
            anneal_completion(
                np.where(instance.eligible, instance.time, np.inf),
                weights_of(instance),
                ready=instance.available_from,
                start=start,
                seed=control.seed + 7919 * attempt,
                proposals=20_000_000 << min(attempt // 2, 6),
                should_stop=control.should_stop,
                report=lambda found: control.report_plan(smith(instance, found.plan)),  # type: ignore[arg-type,return-value]
            )
            if control.should_stop():
                return Outcome("limit", "time")
            if math.isinf(control.remaining):
                break
        return Outcome()


class WeightedCompletion(Problem):
    """Weighted sum of completion times, with or without release dates."""

    name = "assignment.weighted_completion"
    objectives = ("weighted-completion",)
    title = "jobs done early on average, by weight (R||sum w_j C_j, R|r_j|sum w_j C_j)"
    unit = ""
    uses = frozenset({"time", "weight", "release", "pin", "forbid", "available_from"})
    methods = (CPSAT(), Horn(), LP(), Skutella(), Annealing())

    def fits(self, instance: Instance) -> str | None:
        """Independent jobs without groups."""
        if len(instance.edges):
            return "tasks depend on each other by edges"
        if (instance.group >= 0).any():
            return "it knows no groups"
        return None if instance.columns.own_task.all() else "jobs consist of several tasks"

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Sum of w_j C_j of the plan's own start times."""
        done, violations = check_sequence(instance, solution.placement, solution.start)
        if not np.isfinite(done).all():
            return Evaluation(math.inf, violations)
        assert solution.placement is not None
        value = math.fsum((weights_of(instance) * done).tolist())
        return Evaluation(value, violations, {"devices": gantt_details(instance, solution.placement, done)})

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integers throughout every value is an integer: round up."""
        facts = (weights_of(instance), releases_of(instance), instance.available_from)
        whole = instance.integral and all((fact == np.floor(fact)).all() for fact in facts)
        return float(math.ceil(bound - slack)) if whole else bound

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """A matching where that is exact; else relaxations and plans, then CP-SAT."""
        if self.method("horn").fits(instance, question) is None:
            return (Step("horn", "weights are equal and there are no release dates: a matching is exact"),)
        if releases_of(instance).any():
            return (Step("lp", "a bound with release dates", share=0.3), Step("cpsat", "exact"))
        return (
            Step("skutella", "plan and bound within 3/2 at once", share=0.3),
            Step("annealing", "good plans quickly, from the rounded one", share=0.3),
            Step("cpsat", "exact, starts from the annealed plan"),
        )

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays shares of the convex program, and linear duals."""
        if certificate.get("kind") == "shares":
            return self.round_bound(instance, question, _replay_shares(instance, certificate), slack=0.0)
        return super().replay(instance, question, certificate)

    def sample(self, seed: int) -> Instance:
        """Up to five jobs on up to three devices; equal or different weights, some release dates."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        times = rng.integers(0, 12, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.2) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        dated, equal = seed % 3 == 2, seed % 4 == 1
        jobs = [
            Job(
                name=f"j{j}",
                time=[None if np.isinf(t) else t for t in times[j].tolist()],
                weight=1 if equal else int(rng.integers(0, 6)),
                release=int(rng.integers(0, 10)) if dated else 0,
            )
            for j in range(n)
        ]
        devices = [
            Device(name=f"d{i}", available_from=int(rng.integers(0, 4)) * int(rng.random() < 0.3)) for i in range(d)
        ]
        return Instance.build(devices, jobs, question={"objective": self.name})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All placements in all orders, each started as early as possible."""
        for plain in super().every_plan(instance, question):
            assert plain.placement is not None
            if not releases_of(instance).any():
                yield smith(instance, plain.placement)
                continue
            for order in permutations(range(instance.n_tasks)):
                yield in_order(instance, plain.placement, np.argsort(order).astype(float))


def _replay_shares(instance: Instance, certificate: Mapping[str, Any]) -> float:
    from hetopt.algorithms.completion_relaxation import completion_bound

    x = np.zeros(instance.time.shape)
    x[np.asarray(certificate["job"], np.int64), np.asarray(certificate["device"], np.int64)] = certificate["share"]
    if releases_of(instance).any():
        raise ValueError("shares prove nothing for jobs with release dates")
    return completion_bound(
        instance.time, x, float(certificate["mixture"]), weights_of(instance), ready=instance.available_from
    )


PROBLEM = WeightedCompletion()
