"""Verify a result: recompute the plan's value, check every constraint, replay the bound. Needs no solver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hetopt.control import NOISE
from hetopt.errors import InputError, VerificationError
from hetopt.formulation import Problem
from hetopt.instance import Instance
from hetopt.registry import problem, problem_for
from hetopt.result import TOLERANCE, Result
from hetopt.solution import Solution

__all__ = ["Report", "verify"]


@dataclass(frozen=True)
class Report:
    """What was verified.

    Attributes
    ----------
    objective
        The plan's value, recomputed; None when the result has no plan.
    bound
        The bound that holds; None when the result claims none.
    bound_proof
        ``replayed`` when the stored certificate proved the bound here and now; otherwise whose word it is.
    statement
        One sentence for people.
    details
        The evaluator's numbers, such as the load of each device.
    """

    objective: float | None
    bound: float | None
    bound_proof: str
    statement: str
    details: dict[str, Any]


def verify(instance: Instance, result: Result | Solution, *, tolerance: float = TOLERANCE) -> Report:
    """Check a result, or a bare plan for the instance's own question, against the instance.

    Parameters
    ----------
    instance
        The instance the result claims to answer.
    result
        A Result (from :func:`hetopt.solve` or a file), or a Solution.
    tolerance
        Relative difference allowed between the claimed and the recomputed value, for decimal data; integral values must
        match exactly.

    Raises
    ------
    VerificationError
        Another instance's digest; a broken constraint; a claimed value that the plan does not have; a certificate that does
        not replay, or proves less than is claimed; a bound that the plan itself beats. ``violations`` lists all of them.
    InputError
        The result names a problem or an option that does not exist.
    """
    if isinstance(result, Result) and result.solution is not None and _claims_nothing(result, instance):
        result = result.solution
    if isinstance(result, Solution):
        chosen = problem_for(instance)
        evaluation = chosen.judge(instance, chosen.question(instance), result)
        if evaluation.violations:
            raise VerificationError(evaluation.violations)
        value = f"{evaluation.value:.9g}"
        return Report(
            evaluation.value, None, "none", f"valid plan of value {value}, no bound", dict(evaluation.details)
        )

    found: list[str] = []
    if result.instance_digest and result.instance_digest != instance.digest:
        raise VerificationError(
            [f"the result belongs to an instance with digest {result.instance_digest}, this one has {instance.digest}"]
        )
    chosen = problem(result.problem)
    question = chosen.question(instance.with_question({}), result.question)
    if result.sense != chosen.sense:
        raise VerificationError(
            [f"the result claims the sense {result.sense!r}, but {chosen.name} has {chosen.sense!r}"]
        )
    objective, details = None, {}
    if result.solution is not None:
        evaluation = chosen.judge(instance, question, result.solution)
        found += evaluation.violations
        objective, details = evaluation.value, dict(evaluation.details)
        if result.objective is None:
            found.append("the result has a plan but claims no value")
        elif not _close(result.objective, objective, tolerance):
            found.append(f"the result claims the value {result.objective!r}, but its plan has {objective!r}")
    elif result.objective is not None:
        found.append(f"the result claims the value {result.objective!r} without a plan")

    bound, proof = result.bound, result.bound_proof
    if bound is None and proof != "none":
        found.append(f"the result claims a bound proof ({proof}) without a bound")
    if bound is not None and result.certificate is not None:
        try:
            proved = chosen.replay(instance, question, result.certificate)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            found.append(f"the bound's certificate does not replay: {error}")
        else:
            short = bound - proved if result.sense == "min" else proved - bound
            if not (math.isfinite(proved) and short <= NOISE * max(abs(bound), abs(proved))):
                found.append(f"the certificate proves the bound {proved!r}, not {bound!r} as claimed")
            else:
                proof = "replayed"
    elif proof == "replayed":
        found.append("the result claims a replayed bound but stores no certificate")
    elif proof == "algorithm" and (doubt := _no_prover(chosen, result.bound_method)):
        found.append(doubt)
    if bound is not None and objective is not None and not found:
        over = bound - objective if result.sense == "min" else objective - bound
        if over > tolerance * max(abs(objective), abs(bound)):
            found.append(
                f"the plan's value {objective!r} is better than the claimed bound {bound!r}, which is therefore wrong"
            )
    if found:
        raise VerificationError(found)
    if result.reason == "infeasible" and result.solution is None:
        again = chosen.precheck(instance, question)
        statement = f"there is no plan, shown again: {again[0]}" if again else _nothing(result)
        return Report(None, bound, proof, statement, details)
    statement = _statement(result, objective, bound, proof)
    return Report(objective, bound, proof, _asked(instance, result, chosen) + statement, details)


def _no_prover(chosen: Problem, name: str) -> str | None:
    """Why no algorithm of this name can have proved a bound; None when one can."""
    kind = {method.name: method.kind for method in chosen.methods}.get(name)
    if kind is None:
        return f"the bound is called the word of {name or 'an unnamed algorithm'}, which is no method of {chosen.name}"
    return f"the bound is called the word of {name}, a heuristic, which proves none" if kind == "heuristic" else None


def _asked(instance: Instance, result: Result, chosen: Problem) -> str:
    """What the result answers, and what about that may surprise a reader who knows only the file."""
    own_objective = (chosen.objectives[0], chosen.name)
    options = ", ".join(f"{k}={v}" for k, v in result.question.items() if k != "objective" or v not in own_objective)
    out = f"{chosen.name}{f' ({options})' if options else ''}: "
    try:
        own: Problem | None = problem_for(instance)
        same = own is chosen and dict(own.question(instance).to_json()) == dict(result.question)
    except InputError:
        own, same = None, False
    if own is not None and not same:
        out = f"{out}not the file's own question ({own.name}); "
    if not result.instance_digest:
        out = f"{out}the result does not say which instance it belongs to; "
    return out


def _claims_nothing(result: Result, instance: Instance) -> bool:
    """Whether it is a plan alone, written by hand: no question, no value, no bound, and not another instance's."""
    claims = (result.objective, result.bound, result.certificate)
    return not result.problem and claims == (None, None, None) and result.instance_digest in ("", instance.digest)


def _close(claimed: float, actual: float, tolerance: float) -> bool:
    if not (math.isfinite(claimed) and math.isfinite(actual)):
        return False
    if actual == int(actual) and claimed == int(claimed):
        return claimed == actual
    return abs(claimed - actual) <= tolerance * max(abs(claimed), abs(actual))


def _nothing(result: Result) -> str:
    return (
        f"no plan; that there is none is the word of {result.solver or result.method or 'the result'}, not checked here"
    )


def _statement(result: Result, objective: float | None, bound: float | None, proof: str) -> str:
    plan = "no plan" if objective is None else f"valid plan of value {objective:.9g}"
    if bound is None:
        return f"{plan}, no bound"
    word = {
        "replayed": "replayed from the certificate",
        "algorithm": f"the word of an algorithm of ours ({result.bound_method}), not run again here",
        "solver": f"the word of {result.solver or 'the solver'}, not checked here",
        "none": "without proof",
    }[proof]
    return f"{plan}, bound {bound:.9g} ({word})"
