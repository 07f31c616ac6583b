"""Why there is no plan, and why this method: the reasons behind an answer, before or without solving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetopt.instance import Instance
from hetopt.registry import problem_for

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """What is known about a question before it is solved.

    Attributes
    ----------
    problem, question
        Which question is asked.
    infeasible
        Sentences that prove there is no plan, with the shortfall; empty when no such proof is seen at a glance.
    steps
        (method, why) of the automatic climb, in order.
    others
        (method, title, why not) of the methods that ``auto`` would not run; why not is None when it could be asked for.
    """

    problem: str
    question: Mapping[str, Any]
    infeasible: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str, str | None], ...]

    def lines(self) -> list[str]:
        """Sentences for a terminal."""
        asked = ", ".join(f"{key}={value}" for key, value in self.question.items())
        out = [f"question: {self.problem} ({asked})"]
        if self.infeasible:
            return [*out, "there is no plan:", *(f"  {sentence}" for sentence in self.infeasible)]
        if self.steps:
            out.append("--method auto would run:")
            out += [f"  {method}: {why}" for method, why in self.steps]
        if self.others:
            out.append("it would not run:" if self.steps else "no method fits:")
            out += [
                f"  {name} ({title}): {why or 'fits; ask for it with --method'}" for name, title, why in self.others
            ]
        return out

    def to_json(self) -> dict[str, Any]:
        """Plain data with the same content."""
        return {
            "problem": self.problem,
            "question": dict(self.question),
            "infeasible": list(self.infeasible),
            "steps": [{"method": method, "why": why} for method, why in self.steps],
            "others": [{"method": name, "title": title, "why_not": why} for name, title, why in self.others],
        }


def explain(
    instance: Instance, *, objective: str | None = None, options: Mapping[str, Any] | None = None
) -> Explanation:
    """Explain how a question would be answered, or why it cannot be.

    Parameters
    ----------
    instance
        What is to be placed.
    objective, options
        As for :func:`hetopt.solve`.
    """
    problem = problem_for(instance, objective)
    given = {**(options or {}), **({"objective": objective} if objective else {})}
    question = problem.question(instance, given)
    infeasible = problem.precheck(instance, question)
    steps = () if infeasible else tuple((step.method, step.why) for step in problem.plan(instance, question))
    chosen = {method for method, _ in steps}
    others = tuple((m.name, m.title, m.fits(instance, question)) for m in problem.methods if m.name not in chosen)
    return Explanation(problem.name, question.to_json(), infeasible, steps, others)
