"""Questions of shares in cvxpy's words: a second statement of each, for reading and as a second opinion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import Cluster, tidy
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solvers.base import Options

__all__ = ["Convex", "Stated", "limits"]


class Stated(NamedTuple):
    """A convex problem.

    Attributes
    ----------
    objective, constraints
        ``cvxpy.Maximize`` or ``cvxpy.Minimize`` of an expression, and all constraints.
    shares
        (n, m) shares at the variables' values.
    value
        The question's value for a value of the expression.
    solver
        cvxpy's; an interior point may miss rules by more than the verifier lets pass, where shares cannot be scaled back.
    """

    objective: Any
    constraints: list[Any]
    shares: Callable[[], NDArray[np.float64]]
    value: Callable[[float], float]
    solver: str = "CLARABEL"


class Statable(Protocol):
    """A problem that states itself."""

    def stated(self, instance: Instance, question: Question) -> Stated:
        """The question as a convex problem."""


def limits(cluster: Cluster, x: Any, room: Any = 1) -> list[Any]:
    """Turns and workers for shares x (n, m), a cvxpy expression; with ``room`` everything is multiplied by it."""
    import cvxpy as cp

    return [cp.sum(x, axis=1) <= room, cluster.scale @ x <= cluster.workers * room]


class Convex(Method):
    """A question's own statement, solved."""

    name = "cvxpy"
    title = "the whole program stated in cvxpy, for reading and as a second opinion"
    kind = "exact"
    engine = "convex"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """State, solve, report; the bound is the solver's word."""
        import cvxpy as cp

        from hetopt.solvers.cvxpy import solve_problem

        if control.should_stop():
            return Outcome("limit", "time")
        problem: Statable = question.problem  # type: ignore[assignment]
        stated = problem.stated(instance, question)
        answer = solve_problem(
            cp.Problem(stated.objective, stated.constraints), Options(native={"solver": stated.solver}), control
        )
        if answer.x is not None:
            control.report_plan(tidy(instance, stated.shares()))
        if answer.reason == "optimal" and answer.bound is not None:
            outward = 5e-7 if stated.objective.NAME == "maximize" else -5e-7
            control.report_bound(stated.value(answer.bound + outward * abs(answer.bound)), "solver")
        if answer.reason == "infeasible":
            told = (f"cvxpy {answer.version} proved that the program has no solution",)
            return Outcome("infeasible", solver=f"cvxpy {answer.version}", infeasible=told)
        return Outcome(solver=f"cvxpy {answer.version}")
