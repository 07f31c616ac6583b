"""Generalized assignment: jobs on unrelated machines by a deadline, as cheaply as possible.

Sets and data
    J, M, p_ij, r_i, b_j, B_i, q_j, Q_i     as for assignment.makespan
    c_ij        cost of job j on device i (``cost``), 0 where the file gives none
    D           deadline of every device that has a job (option ``deadline``)

Variables
    x_ij in {0, 1}  job j runs on device i; 0 where r_i + p_ij > D

Minimise sum_ij c_ij x_ij subject to

    (1)-(4) of assignment.makespan: assign, load, used, memory, tasks, with T <= D          (1)

``rounding``: with prices w_i >= 0 of the devices' time, every plan costs at least

    sum_j min_i (c_ij + w_i p_ij) - sum_i w_i (D - r_i)                                     (2)

The best prices are the duals of the relaxation in shares and are stored. Its shares, rounded, cost no more than the optimum but
may need 2 D; from there, annealing returns to the deadline and lowers the cost. Whether any plan keeps the deadline is already
NP-complete. Sums of decimals may exceed the deadline by 1e-9 of it.

Sources: D. B. Shmoys, E. Tardos, Mathematical Programming 62 (1993), for the relaxation and its rounding; G. T. Ross,
R. M. Soland, Mathematical Programming 8 (1975), for the question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import jobs_of, shortfalls
from formulations.assignment import makespan
from formulations.assignment._costs import (
    cost_of,
    costs_of,
    goals_of,
    missing_cost,
    search,
    stuck,
    upper_limit,
    whole_costs,
)
from formulations.assignment.budget import PROBLEM as BUDGET
from hetopt.control import Control
from hetopt.formulation import (
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
from hetopt.solution import Solution

__all__ = ["MILP", "PROBLEM", "Generalized", "Rounding"]

_PAIRS = 200_000  # jobs times devices up to which the relaxation in shares is solved


class MILP(LinearFormulation):
    """(1)."""

    name = "milp"
    title = "MILP (1)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The makespan's model with its makespan limited and the cost as the objective."""
        jobs = jobs_of(instance)
        model = makespan.MILP().build(instance)  # (1)
        x, top = model.columns("x"), model.columns("makespan")
        deadline = _deadline(instance, question or PROBLEM.question(instance))
        if math.isfinite(deadline):
            model.rows("deadline", (), [(0, top, 1.0)], upper=deadline / float(model.cost[top]))
            j, i = np.nonzero(np.isfinite(jobs.time) & (jobs.time + jobs.ready > deadline))
            model.rows("late", len(j), [(np.arange(len(j)), x[j, i], 1.0)], upper=0)
        cost = costs_of(instance, jobs)
        j, i = np.nonzero(np.isfinite(cost))
        model.minimize(x[j, i], cost[j, i])
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each job on the device with the largest x."""
        return makespan.MILP().decode(instance, model, x)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x of a plan."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        placement = jobs_of(instance).placement(solution)
        point = np.full(model.n_columns, np.nan)
        point[model.columns("x")] = placement[:, None] == np.arange(instance.n_devices)
        return point


class Rounding(Method):
    """Shares, rounding, annealing back to the deadline."""

    name = "rounding"
    title = "bound (2) by shares, replayed; their Shmoys-Tardos rounding annealed back to the deadline and made cheaper"
    kind = "search"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """From the incumbent or the rounded shares; from each job's quickest device where the shares are too many."""
        jobs, deadline = jobs_of(instance), _deadline(instance, question)
        goals = goals_of(instance, jobs)._replace(room=np.full(instance.n_devices, deadline))
        start = (jobs.time + jobs.ready).argmin(axis=1)
        if jobs.time.size <= _PAIRS and math.isfinite(deadline) and not control.should_stop():
            rounded = self._shares(instance, question, control, deadline)
            start = start if rounded is None else rounded
        if control.plan is not None:
            start = jobs.placement(control.plan)
        rows = np.arange(len(start))
        return search(
            instance,
            control,
            start,
            goals,
            lambda value: goals._replace(budget=value),
            lambda plan: math.fsum(goals.cost[rows, plan].tolist()),
            math.fsum(goals.cost.min(axis=1).tolist()),
            1.0 if whole_costs(instance) else 0.0,
        )

    def _shares(
        self, instance: Instance, question: Question, control: Control, deadline: float
    ) -> NDArray[np.int64] | None:
        """Reports (2) and returns the rounded shares; None when no shares keep the deadline."""
        from hetopt.algorithms.generalized_assignment import cheapest_by_deadline
        from hetopt.solvers.quiet import quiet

        jobs = jobs_of(instance)
        try:
            with quiet():
                answer = cheapest_by_deadline(jobs.time, costs_of(instance, jobs), deadline, ready=jobs.ready)
        except ValueError:
            return None
        question.prove(instance, control, {"kind": "time-prices", "weights": answer.weights.tolist()})
        return answer.plan


class Generalized(Problem):
    """Least cost by a deadline."""

    name = "assignment.generalized"
    objectives = ("least-cost", "generalized")
    title = "jobs as cheap as possible on unrelated machines that end by a deadline (generalized assignment)"
    unit = "cost"
    options = (Option("deadline", float, None, "seconds by which every device with a job is done; none: no limit"),)
    uses = BUDGET.uses
    methods = (MILP(), Relaxed(MILP(), "(1)"), Rounding())

    def fits(self, instance: Instance) -> str | None:
        """Every task has a cost wherever it may run, or none has."""
        return missing_cost(instance)

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Cost of the placement; the makespan's constraints, and each device done by the deadline."""
        told = makespan.PROBLEM.evaluate(instance, question, solution)
        if solution.placement is None or solution.placement.shape != (instance.n_tasks,):
            return told
        end, limit = makespan.finish(instance, solution.placement), _deadline(instance, question)
        late = tuple(
            f"device {instance.device_names[i]!r} is done at {end[i]:.12g}, {end[i] - question['deadline']:.12g} seconds after "
            f"the deadline {question['deadline']:.12g}"
            for i in np.flatnonzero(end > limit).tolist()
        )
        cost = cost_of(instance, solution.placement)
        return Evaluation(cost, (*told.violations, *late), {**told.details, "makespan": told.value})

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integer costs every value is an integer: round up."""
        return float(math.ceil(bound - slack)) if whole_costs(instance) else bound

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """What the makespan's check sees; a job that cannot end by the deadline anywhere."""
        jobs = jobs_of(instance)
        return shortfalls(instance, jobs) or stuck(instance, jobs, _deadline(instance, question))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays (2) and linear duals."""
        from hetopt.algorithms.generalized_assignment import cost_bound

        if certificate.get("kind") != "time-prices":
            return super().replay(instance, question, certificate)
        jobs = jobs_of(instance)
        weights = np.asarray(certificate["weights"], np.float64)
        deadline = _deadline(instance, question)
        if not math.isfinite(deadline):
            raise ValueError("the certificate prices the time before a deadline, and the question has none")
        proved = cost_bound(jobs.time, costs_of(instance, jobs), deadline, weights, ready=jobs.ready)
        if not math.isfinite(proved):
            raise ValueError("the certificate's prices prove nothing")
        return self.round_bound(instance, question, proved, slack=0.0)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Shares and annealing, then the MILP."""
        return (
            Step("rounding", "a bound by shares and good plans quickly", share=0.4),
            Step("milp", "exact, starts from the best plan so far"),
        )

    def sample(self, seed: int) -> Instance:
        """The budget's samples with a deadline instead, now and then one that is too early."""
        instance = BUDGET.sample(seed)
        jobs = jobs_of(instance)
        quickest = jobs.time.min(axis=1)
        even = float((quickest.sum() + jobs.ready.sum()) / instance.n_devices)
        deadline = max(even, float((jobs.time + jobs.ready).min(axis=1).max()))
        factor = float(np.random.default_rng(seed).uniform(0.9, 1.8))
        deadline = round(deadline * factor, 2) if np.isfinite(deadline) else 10.0
        return instance.with_question({"objective": self.name, "deadline": deadline})


def _deadline(instance: Instance, question: Question) -> float:
    free = instance.available_from
    return upper_limit(question["deadline"], instance.integral and bool((free == np.floor(free)).all()))


PROBLEM = Generalized()
