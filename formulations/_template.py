"""Least total time: each task on one device, as few device-seconds as possible. A whole problem, to copy and change.

Copy this file into its family's folder under a name of its own and edit it from top to bottom; the registry finds the
``PROBLEM`` at its end, and the contract tests find the problem. Until then, try it with ``--formulation ./my_problem.py``. The
first lines say what the question is; then comes the mathematics as it runs, numbered, with the same numbers in the code.

Sets and data
    j in J      tasks
    i in M      devices
    p_ij        seconds of task j on device i, absent where it cannot run (not given, forbidden, or pinned elsewhere)
    Q_i         most tasks on device i (``max_tasks``)

Variables
    x_ij in {0, 1}  task j runs on device i

Minimise  sum_ij p_ij x_ij  subject to

    sum_i x_ij = 1                  for each task j                     (1)  assign
    sum_j x_ij <= Q_i               for each device i with a limit      (2)  tasks

Relaxed: x_ij >= 0 instead of binary. It gives a bound, replayed without a solver, and no plan (``decode``), although here the
matrix is that of a transportation problem and its vertices are plans.

Sources: F. L. Hitchcock, The distribution of a product from several sources to numerous localities, Journal of Mathematics
and Physics 20 (1941).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.formulation import Evaluation, LinearFormulation, Method, Outcome, Problem, Question, Relaxed, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device
from hetopt.solution import Solution
from hetopt.verify.assignment import loads, placement_violations

__all__ = ["MILP", "PROBLEM", "Fastest", "TotalTime"]


class MILP(LinearFormulation):
    """The model above."""

    name = "milp"
    title = "MILP (1)-(2)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Model (1)-(2); columns ``x[task,device]``."""
        n, d = instance.time.shape
        model = LinearModel("total-time")
        x = model.binary("x", (n, d), upper=instance.eligible, labels=(instance.labels, instance.device_names))
        j, i = np.nonzero(instance.eligible)
        model.rows("assign", n, [(j, x[j, i], 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        limit = _limits(instance)
        model.rows("tasks", d, [(i, x[j, i], 1.0)], upper=limit, labels=(instance.device_names,))  # (2)
        model.minimize(x[j, i], instance.time[j, i])
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each task on the device with the largest x."""
        return Solution.assign(np.argmax(x[model.columns("x")], axis=1))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x of a plan; None for a plan that leaves tasks out."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        point = np.zeros(model.n_columns)
        point[model.columns("x")[np.arange(instance.n_tasks), solution.placement]] = 1.0
        return point


class Fastest(Method):
    """An algorithm of its own reports plans, bounds, or both, and stops when it is told to."""

    name = "fastest"
    title = "each task on its fastest device with room, in file order; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass over the tasks."""
        room = _limits(instance)
        placement = np.full(instance.n_tasks, -1)
        for j, times in enumerate(instance.time):
            if control.should_stop():
                return Outcome("limit", "time")
            i = int(np.argmin(np.where(room > 0, times, np.inf)))
            if not (instance.eligible[j, i] and room[i] > 0):
                return Outcome()  # no plan this way, which proves nothing
            placement[j] = i
            room[i] -= 1
        control.report_plan(Solution.assign(placement))
        return Outcome()


class TotalTime(Problem):
    """What is asked, and what a plan is worth."""

    name = "template.total"
    objectives = ("total-time",)
    title = "as few device-seconds as possible"
    uses = frozenset({"time", "pin", "forbid", "max_tasks"})
    methods = (MILP(), Relaxed(MILP(), "(1)-(2)"), Fastest())

    def fits(self, instance: Instance) -> str | None:
        """Refuse what the mathematics leaves out, rather than answer another question."""
        if (instance.group >= 0).any():
            return "it knows no groups"
        if instance.memory.sum() > instance.capacity.min():
            return "it knows no memory"
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds on all devices together; every broken constraint. Shares nothing with the models."""
        violations = placement_violations(instance, solution.placement)
        if solution.placement is None or solution.placement.shape != (instance.n_tasks,):
            return Evaluation(np.inf, violations)
        return Evaluation(float(loads(instance, solution.placement).sum()), violations)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """More tasks than all devices may hold: the constraint, and by how much it is missed."""
        room = _limits(instance).sum()
        if instance.n_tasks > room:
            return (f"there are {instance.n_tasks} tasks, and the devices may hold {room:.0f} together",)
        return ()

    def sample(self, seed: int) -> Instance:
        """Up to five tasks on up to three devices: ties, limits that bind, tasks that cannot run everywhere."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        times = rng.integers(0, 9, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.2) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        limits = [int(rng.integers(1, n + 2)) if rng.random() < 0.5 else None for _ in range(d)]
        devices = [Device(name=f"d{i}", max_tasks=most) for i, most in enumerate(limits)]
        return Instance.from_times(times, devices=devices, question={"objective": self.name})


def _limits(instance: Instance) -> NDArray[np.float64]:
    """(d,) most tasks on each device, ``inf`` without a limit."""
    return np.array([np.inf if device.max_tasks is None else device.max_tasks for device in instance.devices])


PROBLEM = TotalTime()
