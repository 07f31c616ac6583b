"""Makespan within a budget: jobs on unrelated machines that cost something, the last one done as early as the budget allows.

Sets and data
    J, M, p_ij, r_i, b_j, B_i, q_j, Q_i     as for assignment.makespan
    c_ij        cost of job j on device i (``cost``), 0 where the file gives none
    C           budget for all jobs together (option ``budget``)

Variables
    x_ij in {0, 1}  job j runs on device i
    T >= 0          makespan

Minimise T subject to

    (1)-(4) of assignment.makespan: assign, load, used, memory, tasks                       (1)
    sum_ij c_ij x_ij <= C                                                                   (2)  budget

``shmoys-tardos``: for a deadline T only pairs with r_i + p_ij <= T count. If the cheapest shares that keep T cost more than C,
then so does every plan, and prices w_i of the devices' time show it:

    sum_j min_i (c_ij + w_i p_ij) - sum_i w_i (T - r_i) > C     refutes T                   (3)

Otherwise the shares are rounded to a plan that costs no more and ends by 2 T. The smallest T not refuted gives factor 2; (3) is
stored and replayed. Sums of decimals may exceed the budget by 1e-9 of it.

Source: D. B. Shmoys, E. Tardos, An approximation algorithm for the generalized assignment problem, Mathematical
Programming 62 (1993).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import jobs_of, shortfalls, time_unit
from formulations.assignment import makespan
from formulations.assignment._costs import cost_of, costs_of, goals_of, missing_cost, search, upper_limit, whole_costs
from hetopt.control import Control
from hetopt.formulation import (
    ConstraintModel,
    Evaluation,
    LinearFormulation,
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
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution

__all__ = ["CPSAT", "MILP", "PROBLEM", "Annealing", "Budget", "ShmoysTardos"]

_BITS = 31  # CP-SAT's presolve multiplies numbers of this size without overflow


class MILP(LinearFormulation):
    """(1), (2)."""

    name = "milp"
    title = "MILP (1), (2)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The makespan's model and a row for the budget."""
        model = makespan.MILP().build(instance)  # (1)
        limit = _budget(instance, question or PROBLEM.question(instance))
        if math.isfinite(limit):
            cost = costs_of(instance, jobs_of(instance))
            unit = time_unit(float(np.where(np.isfinite(cost), cost, 0.0).max()))
            j, i = np.nonzero(np.isfinite(cost))
            model.rows("budget", (), [(0, model.columns("x")[j, i], cost[j, i] / unit)], upper=limit / unit)  # (2)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each job on the device with the largest x."""
        return makespan.MILP().decode(instance, model, x)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x, u and T of a plan."""
        return makespan.MILP().encode(instance, model, solution)


class CPSAT(ConstraintModel):
    """(1), (2) in CP-SAT; decimals are rounded down, so that its bound stays one."""

    name = "cpsat"
    title = "CP-SAT (1), (2), decimals rounded down for the bound"
    kind = "exact"

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """The makespan's program and the budget."""
        from ortools.sat.python import cp_model

        program = makespan.CPSAT().program(instance, question, control)  # (1)
        limit = _budget(instance, question)
        if math.isfinite(limit):
            cost = costs_of(instance, jobs_of(instance))
            paid = cost[np.isfinite(cost)]  # in the order of the program's pairs
            largest = max(float(np.where(np.isfinite(cost), cost, 0.0).max(axis=1).sum()), 1.0)
            exact = whole_costs(instance) and largest < 2.0**_BITS
            unit = 1.0 if exact else 2.0 ** (math.frexp(largest)[1] - _BITS)
            spent = cp_model.LinearExpr.weighted_sum(
                list(program.variables), np.floor(paid / unit).astype(np.int64).tolist()
            )
            program.model.add(spent <= math.floor(min(limit, largest) / unit))  # (2)
        return program

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Each job on its chosen device."""
        return makespan.CPSAT().decode(instance, question, program, x)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """x of a plan."""
        return makespan.CPSAT().encode(instance, question, program, solution)


class ShmoysTardos(Method):
    """Deadlines refuted by (3), affordable shares rounded."""

    name = "shmoys-tardos"
    guarantee = "at most twice its own bound"
    title = f"Shmoys-Tardos rounding within the budget, {guarantee}; bound replayed"
    kind = "approximation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Its guarantee knows no memory and no task limits."""
        return "its guarantee does not cover memory and task limits" if jobs_of(instance).constrained else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Bisection over deadlines."""
        from hetopt.algorithms.budget_makespan import makespan_within_budget
        from hetopt.solvers.quiet import quiet

        jobs = jobs_of(instance)
        with quiet():
            answer = makespan_within_budget(
                jobs.time,
                costs_of(instance, jobs),
                _budget(instance, question),
                ready=jobs.ready,
                should_stop=control.should_stop,
            )
        bound = question.problem.round_bound(instance, question, answer.lower_bound, slack=0.0)
        control.report_bound(bound, "replayed", answer.certificate)
        control.report_plan(jobs.solution(answer.plan))
        return Outcome() if answer.complete or not control.should_stop() else Outcome("limit", "time")


class Annealing(Method):
    """Annealing with the limits as goals."""

    name = "annealing"
    title = "annealing with budget, memory and ever lower makespans as goals; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """From the incumbent, or the cheapest plan."""
        jobs = jobs_of(instance)
        goals = goals_of(instance, jobs)._replace(budget=_budget(instance, question))
        known = control.plan is not None
        start = jobs.placement(control.plan) if known else np.lexsort((jobs.time, goals.cost), axis=1)[:, 0]
        return search(
            instance,
            control,
            start,
            goals,
            lambda value: goals._replace(room=np.full(instance.n_devices, value)),
            lambda plan: float(makespan.finish(instance, plan[jobs.member]).max()),
            float((jobs.time + jobs.ready).min(axis=1).max()),
            1.0 if _whole_times(instance) else 0.0,
        )


class Budget(Problem):
    """Makespan within a budget."""

    name = "assignment.budget"
    objectives = ("budget-makespan",)
    title = "last job done as early as possible within a budget for the jobs' costs (R||Cmax with costs)"
    options = (Option("budget", float, None, "most that all jobs may cost together; none: no limit"),)
    uses = frozenset({"time", "cost", "memory", "group", "pin", "forbid", "available_from", "max_tasks"})
    methods = (CPSAT(), MILP(), Relaxed(MILP(), "(1), (2)"), ShmoysTardos(), Annealing())

    def fits(self, instance: Instance) -> str | None:
        """Every task has a cost wherever it may run, or none has."""
        return missing_cost(instance)

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """The makespan's evaluation, and what the plan costs."""
        told = makespan.PROBLEM.evaluate(instance, question, solution)
        if solution.placement is None or solution.placement.shape != (instance.n_tasks,):
            return told
        cost, limit = cost_of(instance, solution.placement), _budget(instance, question)
        violations = told.violations
        if cost > limit:
            over = f"the budget is {question['budget']:.12g}: {cost - question['budget']:.12g} too much"
            violations = (*violations, f"the plan costs {cost:.12g}, and {over}")
        return Evaluation(told.value, violations, {**told.details, "cost": cost})

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integer times and availabilities every value is an integer: round up."""
        return makespan.PROBLEM.round_bound(instance, question, bound, slack=slack)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """What the makespan's check sees; the cheapest device of each job costs more than the budget."""
        jobs = jobs_of(instance)
        found = shortfalls(instance, jobs)
        if found:
            return found
        limit, least = _budget(instance, question), math.fsum(costs_of(instance, jobs).min(axis=1).tolist())
        if least <= limit * (1 if whole_costs(instance) else 1 + 1e-12):
            return ()
        return (
            f"the jobs cost {least:.12g} on their cheapest devices, and the budget is {question['budget']:.12g}: "
            f"{least - question['budget']:.12g} short",
        )

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays (3), the makespan's certificates and linear duals."""
        from hetopt.algorithms.budget_makespan import refuted_deadline
        from hetopt.verify import makespan_certificates

        jobs = jobs_of(instance)
        if certificate.get("kind") == "cost-weights":
            proved = refuted_deadline(
                jobs.time,
                costs_of(instance, jobs),
                _budget(instance, question),
                float(certificate["deadline"]),
                certificate["weights"],
                ready=jobs.ready,
            )
        elif certificate.get("kind") in makespan_certificates.KINDS:
            proved = float(makespan_certificates.replay(jobs.time, certificate, jobs.ready))
        else:
            return super().replay(instance, question, certificate)
        return self.round_bound(instance, question, proved, slack=0.0)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Rounding for a bound and a first plan, annealing, CP-SAT."""
        limited = jobs_of(instance).constrained
        return (
            Step("lp", "a bound that counts memory and task limits", share=0.2)
            if limited
            else Step("shmoys-tardos", "a plan and a bound at most a factor 2 apart", share=0.3),
            Step("annealing", "good plans quickly", share=0.4),
            Step("cpsat", "exact, starts from the best plan so far"),
        )

    def sample(self, seed: int) -> Instance:
        """Up to six jobs on up to three devices; budgets that bind, now and then one that is too small."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 7)), int(rng.integers(1, 4))
        times, cost = rng.integers(0, 20, (n, d)).astype(float), rng.integers(0, 15, (n, d)).astype(float)
        if seed % 3 == 2:
            times, cost = np.round(times * 1.37, 2), np.round(cost * 0.7, 2)
        times[(rng.random((n, d)) < 0.15) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        devices = [
            Device(
                name=f"d{i}",
                available_from=int(rng.integers(0, 9)) if rng.random() < 0.3 else 0,
                memory=12 if seed % 4 == 3 else None,
            )
            for i in range(d)
        ]
        jobs = [
            Job(
                name=f"j{j}",
                time=[None if np.isinf(t) else t for t in times[j].tolist()],
                cost=[None if np.isinf(t) else c for t, c in zip(times[j].tolist(), cost[j].tolist(), strict=True)],
                memory=int(rng.integers(0, 5)),
                group="g" if rng.random() < 0.15 else None,
            )
            for j in range(n)
        ]
        able = np.where(np.isfinite(times), cost, np.nan)
        least, most = np.nanmin(able, axis=1).sum(), np.nanmax(able, axis=1).sum()
        budget = round(float(least + rng.uniform(-0.05, 0.7) * (most - least)), 2)
        return Instance.build(devices, jobs, question={"objective": self.name, "budget": max(budget, 0.0)})


def _budget(instance: Instance, question: Question) -> float:
    return upper_limit(question["budget"], whole_costs(instance))


def _whole_times(instance: Instance) -> bool:
    free = instance.available_from
    return instance.integral and bool((free == np.floor(free)).all())


PROBLEM = Budget()
