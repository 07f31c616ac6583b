"""What can be checked of a solver's answer against the model alone, and duals turned into a bound.

This is not the verification of a plan (see ``hetopt.verify``): it catches solvers that answer nonsense before anything is
made of it, rounds integers the same way for all of them, and never trusts an objective.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetopt.linear import LinearModel, Violation
from hetopt.solvers.base import Answer, SolverError

__all__ = ["dual_bound", "hopeless", "may_be_unbounded", "trivial", "validated"]

INTEGRALITY = 1e-5  # a value this close to an integer is rounded
CLEAN = 1e-6  # violations up to this, relative to the row's scale, are not worth a word
LOOSE = 1e-4  # beyond this, a point is not what it is said to be
PROOF = 1e-6  # value and bound this close, relative to the value, have met


def validated(answer: Answer, model: LinearModel) -> Answer:
    """The answer with integers rounded, objective recomputed and bound capped, or an error when it is nonsense.

    * A point of the wrong length or with values that are not finite raises, and so do duals like that.
    * A point that breaks a constraint raises when it is called optimal, and is dropped with a note when the solver was
      stopped by a limit (an interrupted simplex method holds such points).
    * A point that holds only before its integers are rounded is dropped, and "optimal" turns into "error" with a note.
    * An objective other than the point's, or a bound beyond it, raises.
    * "Optimal" with a bound short of the value turns into a gap limit: the gap asked for was met, nothing was proved.

    Raises
    ------
    SolverError
        The answer is nonsense; the message says what is wrong with it.
    """
    who = f"{answer.solver} {answer.version}"
    if answer.bound is not None and np.isnan(answer.bound):
        raise SolverError(f"{who} answered a bound that is not a number")
    if answer.bound is not None and (np.isinf(answer.bound) or answer.reason in ("infeasible", "unbounded")):
        answer = replace(answer, bound=None)
    if answer.row_dual is not None:
        dual = np.asarray(answer.row_dual, np.float64)
        if dual.shape != (model.n_rows,) or not np.isfinite(dual).all():
            raise SolverError(f"{who} answered duals of shape {dual.shape} or not finite, expected ({model.n_rows},)")
        answer = replace(answer, row_dual=None if model.is_mip else dual)
    if answer.x is None:
        if answer.reason == "optimal":
            raise SolverError(f"{who} says {answer.status!r} but gave no point")
        return replace(answer, objective=None)
    x = np.asarray(answer.x, np.float64)
    if x.shape != (model.n_columns,):
        raise SolverError(f"{who} answered a point of shape {x.shape}, expected ({model.n_columns},)")
    if not np.isfinite(x).all():
        raise SolverError(f"{who} answered a point with values that are not finite")
    if answer.reason in ("infeasible", "unbounded", "infeasible_or_unbounded"):
        raise SolverError(f"{who} says {answer.status!r} but gave a point")
    return _with_point(answer, model, _tidied(x, model), x)


def _tidied(x: NDArray[np.float64], model: LinearModel) -> NDArray[np.float64]:
    """x with near-integers rounded and bounds overstepped by no more than a tolerance restored."""
    whole = np.round(x)
    x = np.where(model.integrality & (abs(x - whole) <= INTEGRALITY), whole, x)
    inside = np.clip(x, model.lower, model.upper)
    return np.where(abs(inside - x) <= CLEAN * np.maximum(1.0, abs(x)), inside, x) + 0.0  # no negative zeros


def _with_point(answer: Answer, model: LinearModel, x: NDArray[np.float64], raw: NDArray[np.float64]) -> Answer:
    who = f"{answer.solver} {answer.version}"
    worst = _worst(model, x, LOOSE)
    if worst is not None:
        if _worst(model, raw, LOOSE) is None:
            note = f"the point of {who} holds only before its integers are rounded: then {worst}"
            reason = "error" if answer.reason == "optimal" else answer.reason
            return replace(answer, reason=reason, x=None, objective=None, notes=(*answer.notes, note))
        if answer.reason == "optimal":
            raise SolverError(f"{who} says {answer.status!r} of a point that breaks the model: {worst}")
        note = f"the point of {who} was dropped: {worst}"
        return replace(answer, x=None, objective=None, notes=(*answer.notes, note))
    loose = _worst(model, x, CLEAN)
    if loose is not None:
        answer = replace(answer, notes=(*answer.notes, f"the point of {who} is within a loose tolerance: {loose}"))
    objective = model.objective(x)
    scale = max(1.0, abs(objective), float(abs(model.cost) @ abs(x)))
    if answer.objective is not None and not abs(answer.objective - objective) <= LOOSE * scale:
        raise SolverError(f"{who} says the objective is {answer.objective!r}, but its point has {objective!r}")
    bound, sign = answer.bound, 1.0 if model.sense == "min" else -1.0
    if bound is not None:
        if sign * (bound - objective) > LOOSE * scale:
            raise SolverError(f"{who} answered a bound of {bound!r} that its own point with {objective!r} refutes")
        bound = sign * min(sign * bound, sign * objective)
        if answer.reason == "optimal" and sign * (objective - bound) > PROOF * max(1.0, abs(objective)):
            answer = replace(answer, reason="limit", limit="gap")
    return replace(answer, x=x, objective=objective, bound=bound)


def _worst(model: LinearModel, x: NDArray[np.float64], tolerance: float) -> Violation | None:
    found = model.check(x, tolerance=tolerance, most=1)
    return found[0] if found else None


def dual_bound(model: LinearModel, row_dual: NDArray[np.float64], *, tolerance: float = 1e-7) -> float | None:
    """Bound on the LP optimum from any row duals by weak duality, or None when it is infinite.

    Each row and each reduced cost contributes its multiplier times the bound on the side its sign points to. Multipliers
    up to ``tolerance`` (relative to the costs) that point to an infinite side are taken as zero, so this is the solver's
    word; the replayable bound with exact arithmetic is made in ``hetopt.verify``.

    Parameters
    ----------
    model
        The LP, or a MIP whose relaxation is meant.
    row_dual
        (rows,) in the sense of :attr:`Answer.row_dual`.
    """
    sign = 1.0 if model.sense == "min" else -1.0
    y = sign * row_dual
    reduced = sign * model.cost - model.matrix.T @ y
    slack = tolerance * max(1.0, float(abs(model.cost).max(initial=0.0)))
    total = sign * model.offset
    for multiplier, low, high in ((y, model.row_lower, model.row_upper), (reduced, model.lower, model.upper)):
        side = np.where(multiplier > 0, low, high)
        unbounded = ~np.isfinite(side)
        if (abs(multiplier[unbounded]) > slack).any():
            return None
        total += float(np.where(unbounded, 0.0, multiplier) @ np.where(unbounded, 0.0, side))
    return sign * total


def hopeless(model: LinearModel) -> Answer | None:
    """An "infeasible" answer when a column or row, looked at by itself, has no value within its bounds, else None.

    Solvers disagree here: some call such a model invalid, some fail, one of them solves it.
    """
    for low, high, name in (
        (model.lower, model.upper, model.column_name),
        (model.row_lower, model.row_upper, model.row_name),
    ):
        empty = np.flatnonzero((low > high) | (low == np.inf) | (high == -np.inf))
        if empty.size:
            k = int(empty[0])
            note = f"{name(k)} has lower bound {low[k]:g} and upper bound {high[k]:g}: no value fits"
            return Answer("infeasible", "", "", "bounds cross", notes=(note,))
    empty = np.diff(model.matrix.indptr) == 0
    barred = np.flatnonzero(empty & ((model.row_lower > 0) | (model.row_upper < 0)))
    if barred.size:
        note = f"{model.row_name(int(barred[0]))} has no entries, and 0 is not within its bounds"
        return Answer("infeasible", "", "", "empty row", notes=(note,))
    return None


def may_be_unbounded(model: LinearModel) -> bool:
    """Whether the bounds of the columns leave the objective a way to improve for ever; False excludes it."""
    cost = model.cost if model.sense == "min" else -model.cost
    return bool(((cost > 0) & (model.lower == -np.inf)).any() or ((cost < 0) & (model.upper == np.inf)).any())


def trivial(model: LinearModel) -> Answer:
    """Answer for a model without columns and not hopeless, which solvers refuse or get wrong."""
    return Answer("optimal", "", "", "no columns", None, np.empty(0), model.offset, model.offset)
