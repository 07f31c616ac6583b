"""A toy problem whose methods do what a test tells them: report, lie, raise, wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hetopt import Instance, Solution
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Outcome, Problem, Question, RunOptions, Step

Action = Callable[[Control, RunOptions], Outcome | None]


class Scripted(Method):
    """Runs a function of the test."""

    def __init__(self, name: str, action: Action, kind: str = "exact", why_not: str | None = None) -> None:
        self.name, self.kind, self.title = name, kind, f"the fake {name}"  # type: ignore[misc, assignment]
        self.action, self.why_not = action, why_not

    def fits(self, instance: Instance, question: Question) -> str | None:
        return self.why_not

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        return self.action(control, options) or Outcome()


class Toy(Problem):
    """Each task costs the number of its device (10 for device 0); device 3 is forbidden; value is the sum."""

    name = "toy.sum"
    objectives = ("toy",)
    title = "a toy"

    def __init__(self, *methods: Method, sense: str = "min", steps: Sequence[Step] | None = None) -> None:
        self.methods, self.sense, self._steps = methods, sense, steps  # type: ignore[misc, assignment]

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        if solution.placement is None or solution.placement.shape != (instance.n_tasks,):
            return Evaluation(float("inf"), ("no placement",))
        broken = tuple(f"task {k} is on device 3" for k, i in enumerate(solution.placement.tolist()) if i == 3)
        return Evaluation(float(sum(10 if i == 0 else i for i in solution.placement.tolist())), broken)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        return super().plan(instance, question) if self._steps is None else self._steps


def plan(*devices: int) -> Solution:
    return Solution.assign(devices)


def toy_instance(**more: Any) -> Instance:
    return Instance.from_times([[1.0] * 4], question={"objective": "toy"}, **more)
