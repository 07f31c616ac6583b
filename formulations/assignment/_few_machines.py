"""The dynamic program for a fixed number of machines as a method of questions about the makespan without limits."""

from __future__ import annotations

from formulations._jobs import jobs_of
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance

__all__ = ["FPTAS"]

_MOST_DEVICES = 4
_MOST_STATES = 200_000
_ACCURACIES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0)


class FPTAS(Method):
    """Horowitz and Sahni: loads trimmed to a grid, finer and finer until the gap asked for is met."""

    name = "fptas"
    guarantee = "at most 1 + epsilon times its own bound, epsilon from 0.3 down"
    title = f"Horowitz-Sahni for at most {_MOST_DEVICES} devices, {guarantee}"
    kind = "approximation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few devices, no memory and no task limits."""
        if instance.n_devices > _MOST_DEVICES:
            return f"its states are too many beyond {_MOST_DEVICES} devices"
        return "it does not cover memory and task limits" if jobs_of(instance).constrained else None

    def size(self, instance: Instance, question: Question) -> int:
        """States of the coarsest grid, at most."""
        return int(min((instance.n_tasks / _ACCURACIES[0]) ** (instance.n_devices - 1), _MOST_STATES))

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Each accuracy in turn; the last one that fits into memory stands."""
        from hetopt.algorithms.fptas import horowitz_sahni

        jobs = jobs_of(instance)
        reached = None
        for epsilon in _ACCURACIES:
            try:
                answer = horowitz_sahni(
                    jobs.time, epsilon, ready=jobs.ready, max_states=_MOST_STATES, should_stop=control.should_stop
                )
            except MemoryError as error:
                return Outcome("limit", "memory", notes=(f"fptas: {error}",), statistics={"epsilon": reached})
            control.report_bound(
                question.problem.round_bound(instance, question, answer.lower_bound, slack=0.0), "algorithm"
            )
            control.report_plan(jobs.solution(answer.plan))
            if not answer.complete and not control.closed:
                return Outcome("limit", "time", statistics={"epsilon": reached})
            reached = epsilon
            if control.closed:
                break
        return Outcome(statistics={"epsilon": reached})
