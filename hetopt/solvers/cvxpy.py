"""CVXPY: convex questions written in its own language, and linear models through the solvers it brings along.

:func:`solve_problem` is for formulations that build a ``cvxpy.Problem`` (finish-time fairness, energy, relaxations whose
duals are wanted); values and duals are left in the problem's own variables and constraints, as its author expects. Linear
models are taken too, to have a second opinion with duals from an interior point method.

The solver is Clarabel unless the model has integer columns (then HiGHS) or ``native={"solver": "SCS"}`` names another of
``cvxpy.installed_solvers()``; the other native options are that solver's own. Clarabel's set-up holds Python's lock and
cannot be interrupted, for minutes where rows are long: large linear models are for the adapters highs, glop and pdlp.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.linear import LinearModel
from hetopt.solvers.adapter import Adapter
from hetopt.solvers.base import Answer, Capability, Options, SolverError, Verdict, check_native
from hetopt.solvers.checks import dual_bound
from hetopt.solvers.quiet import quiet
from hetopt.solvers.watch import VERDICTS, Watch

__all__ = ["STATUS", "Cvxpy", "solve", "solve_problem"]

STATUS: dict[str, Verdict] = {
    "optimal": ("optimal", None),
    "optimal_inaccurate": ("limit", "other"),
    "infeasible": ("infeasible", None),
    "infeasible_inaccurate": ("limit", "other"),
    "unbounded": ("unbounded", None),
    "unbounded_inaccurate": ("limit", "other"),
    "infeasible_or_unbounded": ("infeasible_or_unbounded", None),
    "user_limit": ("limit", "other"),
    "solver_error": ("error", None),
}

# Where the common options go, by the solver's own names; what a solver has no name for is ignored with a note.
NAMES: dict[str, dict[str, str]] = {
    "CLARABEL": {"time_limit": "time_limit", "threads": "max_threads"},
    "HIGHS": {
        "time_limit": "time_limit",
        "relative_gap": "mip_rel_gap",
        "threads": "threads",
        "seed": "random_seed",
        "log_file": "log_file",
    },
    "SCS": {"time_limit": "time_limit_secs", "log_file": "log_csv_filename"},
    "OSQP": {"time_limit": "time_limit"},
}
ALWAYS: dict[str, dict[str, Any]] = {"HIGHS": {"mip_abs_gap": 0.0, "mip_rel_gap": 0.0}}
TOLERANCE = 1e-7  # ten times Clarabel's own tolerance on the duality gap


class Cvxpy(Adapter):
    """Convex problems, and linear and mixed-integer models, by CVXPY's solvers."""

    name: ClassVar[str] = "cvxpy"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(("lp", "mip", "convex", "duals", "deterministic"))
    package: ClassVar[str] = "cvxpy"
    distribution: ClassVar[str] = "cvxpy"
    status_table: ClassVar[Mapping[str, Verdict]] = STATUS

    def run(self, model: LinearModel | Any, options: Options, watch: Watch) -> Answer:
        """Solve a linear model, stated as a CVXPY problem, or such a problem itself; see :meth:`Adapter.solve`."""
        if not isinstance(model, LinearModel):
            return self._solved(model, options, watch, is_mip=model.is_mixed_integer())
        import cvxpy

        x = cvxpy.Variable(
            model.n_columns,
            integer=[np.flatnonzero(model.integrality)] if model.is_mip else False,
            bounds=[model.lower, model.upper],
        )
        a, equal = model.matrix, model.row_lower == model.row_upper
        same = np.flatnonzero(equal)
        above = np.flatnonzero(~equal & np.isfinite(model.row_upper))
        below = np.flatnonzero(~equal & np.isfinite(model.row_lower))
        parts = [
            (same, [a[same] @ x == model.row_lower[same]] if same.size else []),
            (above, [a[above] @ x <= model.row_upper[above]] if above.size else []),
            (below, [a[below] @ x >= model.row_lower[below]] if below.size else []),
        ]
        cost = model.cost @ x + model.offset
        objective = cvxpy.Minimize(cost) if model.sense == "min" else cvxpy.Maximize(cost)
        problem = cvxpy.Problem(objective, [constraint for _, constraints in parts for constraint in constraints])
        answer = self._solved(problem, options, watch, is_mip=model.is_mip)
        answer = replace(answer, reason=self.told_apart(answer.reason, model, options, watch))
        if answer.reason in ("infeasible", "unbounded", "infeasible_or_unbounded") or x.value is None:
            return replace(answer, x=None, objective=None, bound=None)
        answer = replace(answer, x=np.asarray(x.value))
        if answer.reason == "optimal" and not model.is_mip:
            dual = _row_dual(model, parts)
            bound = dual_bound(model, dual, tolerance=TOLERANCE)
            answer = replace(answer, row_dual=dual, bound=answer.bound if bound is None else bound)
        return answer

    def solve_problem(self, problem: Any, options: Options | None = None, control: Control | None = None) -> Answer:
        """Solve a ``cvxpy.Problem``; values are left in its variables, duals in its constraints.

        Returns
        -------
        Answer
            ``x`` holds the values of ``problem.variables()`` one after the other, each flattened in C order; None when
            there are none. An inaccurate optimum is a limit ``"other"``, never optimal.

        Raises
        ------
        SolverMissing, SolverError, InputError
            As :meth:`Adapter.solve`; a problem that breaks the rules of convexity is a SolverError.
        """
        self.require("convex", "a convex problem")
        options = options or Options()
        if not problem.is_dcp():
            raise SolverError("cvxpy cannot solve this problem: it does not follow the rules of disciplined convexity")
        answer = self.watched(problem, options, control)
        if answer.reason == "optimal" and answer.x is not None and not np.isfinite(answer.x).all():
            raise SolverError(f"cvxpy {answer.version} answered a point with values that are not finite")
        return answer

    def _solved(self, problem: Any, options: Options, watch: Watch, *, is_mip: bool) -> Answer:
        import cvxpy

        solver, settings, notes = _settings(options, watch, is_mip=is_mip)
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what CVXPY warns of is in its status
            try:
                problem.solve(solver=solver, verbose=False, **settings)
            except cvxpy.error.SolverError as error:
                raise SolverError(f"cvxpy {self.version()} failed with {solver}: {error}") from error
        reason, limit = self.verdict(problem.status)
        if reason == "error":
            raise SolverError(f"cvxpy {self.version()} failed: {solver} ended with numerical trouble")
        if reason == "limit":
            out_of_time = problem.status == "user_limit" and watch.remaining is not None and watch.remaining <= 0.05
            reason, limit = VERDICTS[watch.cause] if watch.cause else ("limit", "time" if out_of_time else limit)
        status = f"{problem.status} ({solver})"
        answer = Answer(reason, self.name, self.version(), status, limit, notes=tuple(notes))
        if reason in ("infeasible", "unbounded", "infeasible_or_unbounded") or problem.value is None:
            return answer
        values = [variable.value for variable in problem.variables()]
        if any(value is None for value in values) or not np.isfinite(problem.value):
            return answer
        x = np.concatenate([np.asarray(value, np.float64).ravel() for value in values]) if values else np.empty(0)
        bound = _bound(problem, solver, reason, is_mip=is_mip)
        return replace(answer, x=x, objective=float(problem.value), bound=bound)


def solve(model: LinearModel, options: Options | None = None, control: Control | None = None) -> Answer:
    """Solve a linear model with CVXPY; see :meth:`Adapter.solve`."""
    return Cvxpy().solve(model, options, control)


def solve_problem(problem: Any, options: Options | None = None, control: Control | None = None) -> Answer:
    """Solve a ``cvxpy.Problem``; see :meth:`Cvxpy.solve_problem`."""
    return Cvxpy().solve_problem(problem, options, control)


def _settings(options: Options, watch: Watch, *, is_mip: bool) -> tuple[str, dict[str, Any], list[str]]:
    """The solver's name, its settings, and notes on options it has no name for."""
    import cvxpy

    native = dict(options.native)
    solver = str(native.pop("solver", "HIGHS" if is_mip else "CLARABEL")).upper()
    if solver not in cvxpy.installed_solvers():
        raise InputError(f"cvxpy has no solver {solver!r} here; it has {', '.join(cvxpy.installed_solvers())}")
    names = NAMES.get(solver, {})
    wishes: dict[str, Any] = {"threads": 1 if options.deterministic else options.threads}
    if watch.remaining is not None:
        wishes["time_limit"] = max(watch.remaining, 1e-3)
    if is_mip and options.relative_gap:
        wishes["relative_gap"] = options.relative_gap
    if options.seed:
        wishes["seed"] = options.seed
    if options.log_file is not None:
        wishes["log_file"] = str(options.log_file)
    settings = {**ALWAYS.get(solver, {}), **{names[key]: value for key, value in wishes.items() if key in names}}
    ignored = [key for key, value in wishes.items() if key not in names and (key, value) != ("threads", 1)]
    notes = [f"cvxpy's {solver} has no option for {key}; it was ignored" for key in ignored]
    known = _known(solver)
    if known is None and native:
        notes.append(f"the native options of cvxpy's {solver} were passed on unchecked")
    elif known is not None:
        check_native(f"cvxpy's {solver}", native, known)
    return solver, {**settings, **native}, notes


def _known(solver: str) -> list[str] | None:
    """Option names of a solver, or None where they cannot be listed."""
    if solver == "CLARABEL":
        import clarabel

        return ["solver", *(name for name in dir(clarabel.DefaultSettings()) if not name.startswith("_"))]
    if solver == "HIGHS":
        import highspy

        return ["solver", *(name for name in dir(highspy.HighsOptions()) if not name.startswith("_"))]
    return None


def _bound(problem: Any, solver: str, reason: str, *, is_mip: bool) -> float | None:
    """What the solver's own gap says about the optimum; CVXPY itself returns no bound."""
    sign = 1.0 if problem.objective.NAME == "minimize" else -1.0
    value = float(problem.value)
    if solver == "HIGHS" and is_mip:
        info = problem.solver_stats.extra_stats
        gap = info.objective_function_value - info.mip_dual_bound
        return value - sign * abs(gap) if np.isfinite(gap) else None
    if reason == "optimal" and solver in ("CLARABEL", "HIGHS") and not is_mip:
        return value - sign * TOLERANCE * max(1.0, abs(value))
    return None


def _row_dual(model: LinearModel, parts: list[tuple[NDArray[np.int64], list[Any]]]) -> NDArray[np.float64]:
    """Row duals in the model's sense from CVXPY's multipliers, which are those of the minimisation's Lagrangian."""
    sign = 1.0 if model.sense == "min" else -1.0
    dual = np.zeros(model.n_rows)
    for (rows, constraints), side in zip(parts, (-1.0, -1.0, 1.0), strict=True):
        for constraint in constraints:
            dual[rows] += sign * side * np.asarray(constraint.dual_value)
    return dual
