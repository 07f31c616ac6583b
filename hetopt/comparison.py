"""What a comparison adds to single runs: plans of the user's own, judged for the same question, and doubts of bounds.

No method is run here (:func:`hetopt.compare` does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hetopt.formulation import Outcome, Question, Step
from hetopt.instance import Instance
from hetopt.result import TOLERANCE, Result
from hetopt.run import Run
from hetopt.solution import Solution

__all__ = ["best", "judged", "unrefuted"]


def judged(instance: Instance, question: Question, name: str, plan: Solution) -> Result:
    """A plan that was given, as a Result: its value recomputed, no bound.

    A plan that breaks a constraint is kept in the Result, unverified and without a value; ``messages`` says what it breaks.
    """
    run, step = Run(instance, question), Step(name, "a plan that was given")
    run.control.method = name
    if run.control.report_plan(plan):
        return run.result("finished", Outcome(), step)
    violations = question.problem.judge(instance, question, plan).violations
    why = violations or tuple(run.control.rejected)
    return replace(run.result("error", Outcome(), step), solution=plan, messages=why)


def unrefuted(results: Mapping[str, Result]) -> dict[str, Result]:
    """The results, without bounds that a verified plan of another one beats; what lost its bound says so in ``messages``."""
    values = [(name, r.objective) for name, r in results.items() if r.verified and r.objective is not None]
    return {name: _unrefuted(result, values) for name, result in results.items()}


def _unrefuted(result: Result, values: list[tuple[str, float]]) -> Result:
    bound, sign = result.bound, 1.0 if result.sense == "min" else -1.0
    if bound is None:
        return result
    for name, value in values:
        if sign * (bound - value) > TOLERANCE * max(abs(value), abs(bound)):
            told = (
                f"the bound {bound:.9g} ({result.bound_proof}) contradicts the verified plan of {name} of value {value:.9g}; "
                "the bound is discarded"
            )
            messages = (*result.messages, told)
            return replace(result, bound=None, bound_proof="none", certificate=None, messages=messages)
    return result


def best(results: Mapping[str, Result]) -> tuple[str, str, float | None] | None:
    """Whose plan and whose bound are the best, and the gap between the two; None without a plan or without a bound."""
    plans = {name: r.objective for name, r in results.items() if r.verified and r.objective is not None}
    bounds = {name: r.bound for name, r in results.items() if r.bound is not None and r.bound_proof != "none"}
    if not plans or not bounds:
        return None
    sign = 1.0 if next(iter(results.values())).sense == "min" else -1.0
    plan = min(plans, key=lambda name: sign * plans[name])
    bound = max(bounds, key=lambda name: sign * bounds[name])
    return plan, bound, replace(results[plan], bound=bounds[bound]).gap
