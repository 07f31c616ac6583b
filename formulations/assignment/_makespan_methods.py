"""Methods of the makespan question that are algorithms: list rules, rounding, the ladder of bounds.

Each works on the jobs of :mod:`formulations._jobs` (groups fused) and hands arrays to :mod:`hetopt.algorithms`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from formulations._jobs import jobs_of
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance

__all__ = ["LST", "MANY_JOBS", "Greedy", "Ladder"]

MANY_JOBS = 20_000  # beyond it, what is quadratic in the jobs or needs large linear programs is left out
CONFIGURATION_JOBS = 200  # up to here column generation over configurations ends in reasonable time


class Greedy(Method):
    """The best of the list heuristics."""

    name = "greedy"
    title = "best of seven list rules: min-min, max-min, sufferage, max-regret, MCT, MET, OLB; no guarantee"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """The rules know memory, but no task limits."""
        jobs = jobs_of(instance)
        return "list rules know no task limits" if jobs.count.sum() > jobs.most.min() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Each rule once, quick ones first."""
        from hetopt.algorithms import lists

        jobs = jobs_of(instance)
        limits = {"memory": jobs.memory, "capacity": jobs.capacity} if np.isfinite(jobs.capacity).any() else {}
        quick = (lists.mct, lists.met, lists.olb, lists.max_regret)
        thorough = (lists.min_min, lists.sufferage, lists.max_min)  # the last two take time quadratic in the jobs
        for rule in (*quick, *thorough[: 3 if len(jobs.count) <= MANY_JOBS else 1]):
            if control.should_stop():
                return Outcome("limit", "time")
            stop: dict[str, Any] = {"should_stop": control.should_stop} if rule in thorough else {}
            plan = rule(jobs.time, ready=jobs.ready, **limits, **stop)
            if (plan >= 0).all():
                control.report_plan(jobs.solution(plan))
        return Outcome()


class LST(Method):
    """Lenstra, Shmoys and Tardos: least deadline whose relaxation is not refuted, then its shares rounded.

    The rounding is Shchepin and Vakhania's, which moves the split jobs of a forest best: factor 2 - 1/d instead of 2.
    """

    name = "lst"
    guarantee = "at most 2 - 1/d times its own bound"
    title = f"Lenstra-Shmoys-Tardos with Shchepin-Vakhania rounding, {guarantee}"
    kind = "approximation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Its guarantee knows no memory and no task limits."""
        return "its guarantee does not cover memory and task limits" if jobs_of(instance).constrained else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Binary search, rounding; the refuted deadline is the bound, replayed."""
        from hetopt.algorithms.deadline_lp import lst
        from hetopt.algorithms.rounding import shchepin_vakhania
        from hetopt.solvers.quiet import quiet

        jobs = jobs_of(instance)
        with quiet():
            answer = lst(jobs.time, ready=jobs.ready, rounding=shchepin_vakhania, should_stop=control.should_stop)
        control.report_bound(float(answer.lower_bound), "replayed", dict(answer.certificate))
        control.report_plan(jobs.solution(answer.plan))
        return Outcome() if answer.complete else Outcome("limit", "time")


class Climb(Method):
    """Search and bounds in turns: annealing that re-optimises groups of machines, and the ladder's certificates."""

    name = "climb"
    title = "annealing over groups of machines and the ladder of bounds in turns; bounds replayed"
    kind = "search"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """It knows no memory and no task limits."""
        return "it does not cover memory and task limits" if jobs_of(instance).constrained else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Until the gap asked for is met or the time is up; without a limit, three rotations through its settings."""
        from hetopt.algorithms.makespan_search import climb
        from hetopt.solvers.quiet import quiet

        jobs = jobs_of(instance)

        def report(
            plan: Any = None, value: Any = None, bound: Any = None, certificate: dict[str, Any] | None = None
        ) -> None:
            if plan is not None:
                control.report_plan(jobs.solution(plan))
            if bound is not None and certificate is not None:
                rounded = question.problem.round_bound(instance, question, float(bound), slack=0.0)
                control.report_bound(rounded, "replayed", dict(certificate))

        endless = math.isinf(control.remaining)
        with quiet():
            climb(
                jobs.time,
                ready=jobs.ready,
                should_stop=control.should_stop,
                seed=control.seed,
                report=report,
                target_gap=control.relative_gap,
                threads=1,
                rotations=3 if endless else None,
            )
        return Outcome() if endless or control.closed else Outcome("limit", "time")


class Ladder(Method):
    """Bounds of growing strength: linear program, cardinality cuts, Lagrangian knapsacks, configurations.

    Memory and task limits are left out, which can only weaken a bound.
    """

    name = "ladder"
    title = "LP by sifting, cardinality cuts, knapsacks, configurations; each bound replayed over all pairs"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Climb until the gap asked for is met or the rungs are used up."""
        from hetopt.algorithms.lists import mct
        from hetopt.algorithms.makespan_bounds import cardinality_bound, lp_relaxation
        from hetopt.algorithms.makespan_knapsack import configuration_bound, knapsack_bound
        from hetopt.algorithms.times import makespan
        from hetopt.solvers.quiet import quiet

        jobs = jobs_of(instance)
        time, ready, stop = jobs.time, jobs.ready, control.should_stop
        upper = control.value if control.value is not None else makespan(time, mct(time, ready=ready), ready=ready)
        steps = {"lp": 0, "cardinality": 0, "knapsack": 0, "configuration": 0}

        def report(rung: str, bound: float | None, certificate: dict[str, Any] | None) -> None:
            if bound is not None and certificate is not None:
                rounded = question.problem.round_bound(instance, question, float(bound), slack=0.0)
                steps[rung] += control.report_bound(rounded, "replayed", dict(certificate))

        with quiet():
            relaxed = lp_relaxation(time, ready, should_stop=stop)
            report("lp", relaxed.bound, relaxed.certificate)
            if not stop():
                cut = cardinality_bound(
                    time, ready, lower=float(relaxed.bound), upper=upper, weights=relaxed.weights, should_stop=stop
                )
                report("cardinality", cut.bound, cut.certificate)
                # Knapsacks are exact over capacities: on integers only, where deadlines have few bits.
                if not stop() and cut.grid.integral and math.isfinite(upper):
                    top = math.ceil(upper)
                    found = knapsack_bound(cut.grid, cut.deadline, top, cut.weights, should_stop=stop)
                    report("knapsack", found.bound, found.certificate)
                    if not stop() and len(time) <= CONFIGURATION_JOBS:
                        found = configuration_bound(cut.grid, found.deadline, top, found.weights, should_stop=stop)
                        report("configuration", found.bound, found.certificate)
        return (
            Outcome("limit", "time", statistics=steps) if stop() and not control.closed else Outcome(statistics=steps)
        )
