"""SciPy's ``milp`` and ``linprog``: the fallback that is always installed.

Both run a copy of HiGHS inside SciPy, without callbacks, start hints, threads or seeds: use the adapter ``highs`` where it
is there. Native options are those of ``scipy.optimize.milp`` and ``linprog(method="highs")``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from hetopt.control import Control
from hetopt.linear import LinearModel
from hetopt.solvers.adapter import Adapter
from hetopt.solvers.base import Answer, Capability, Options, SolverError, Verdict, check_native
from hetopt.solvers.checks import dual_bound
from hetopt.solvers.watch import VERDICTS, Watch

__all__ = ["STATUS", "Scipy", "solve"]

# scipy.optimize.OptimizeResult.status, the same numbers for both functions; 4 stands for all else, and then the status of
# the HiGHS inside, which the message holds, says what
STATUS: dict[str, Verdict] = {
    "0": ("optimal", None),
    "1": ("limit", "other"),
    "2": ("infeasible", None),
    "3": ("unbounded", None),
    "4": ("error", None),
    "4, HiGHS 9": ("infeasible_or_unbounded", None),
    "4, HiGHS 11": ("limit", "objective"),
    "4, HiGHS 12": ("limit", "objective"),
    "4, HiGHS 15": ("limit", "other"),
    "4, HiGHS 16": ("limit", "nodes"),
    "4, HiGHS 18": ("limit", "memory"),
}

MIP_OPTIONS = ("node_limit", "presolve")
LP_OPTIONS = (
    "dual_feasibility_tolerance",
    "ipm_optimality_tolerance",
    "maxiter",
    "presolve",
    "primal_feasibility_tolerance",
    "simplex_dual_edge_weight_strategy",
)


class Scipy(Adapter):
    """Linear and mixed-integer models by SciPy."""

    name: ClassVar[str] = "scipy"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(("lp", "mip", "duals", "deterministic"))
    package: ClassVar[str] = "scipy"
    distribution: ClassVar[str] = "scipy"
    status_table: ClassVar[Mapping[str, Verdict]] = STATUS
    writes_log: ClassVar[bool] = False

    def run(self, model: LinearModel, options: Options, watch: Watch) -> Answer:
        """Call ``milp`` or ``linprog`` and translate; see :meth:`Adapter.solve`."""
        check_native("scipy", options.native, MIP_OPTIONS if model.is_mip else LP_OPTIONS)
        settings: dict[str, Any] = {"disp": False, **options.native}
        if watch.remaining is not None:
            settings["time_limit"] = watch.remaining
        result, dual = _milp(model, options, settings) if model.is_mip else _linprog(model, settings)
        inner = re.search(r"HiGHS Status (\d+)", result.message)
        status = f"{result.status}, HiGHS {inner[1]}" if inner else str(result.status)
        if status not in STATUS:
            status = str(result.status)
        reason, limit = self.verdict(status)
        if reason == "error":
            raise SolverError(f"scipy {self.version()} failed: {result.message}")
        reason = self.told_apart(reason, model, options, watch)
        if reason == "limit" and limit == "other":
            out_of_time = watch.remaining == 0.0 or "ime limit" in result.message
            reason, limit = VERDICTS[watch.cause] if watch.cause else ("limit", "time" if out_of_time else limit)
        answer = Answer(reason, self.name, self.version(), status, limit)
        if reason in ("infeasible", "unbounded", "infeasible_or_unbounded"):
            return answer
        sign = 1.0 if model.sense == "min" else -1.0
        if model.is_mip:
            bound = getattr(result, "mip_dual_bound", None)
            if bound is not None:
                answer = replace(answer, bound=sign * bound + model.offset)
        elif dual is not None and reason == "optimal":
            answer = replace(answer, row_dual=sign * dual, bound=dual_bound(model, sign * dual))
        # a linear program stopped by a limit leaves a point that need not be feasible
        if result.x is not None and (model.is_mip or reason == "optimal"):
            answer = replace(answer, x=result.x, objective=sign * result.fun + model.offset)
        return answer


def solve(model: LinearModel, options: Options | None = None, control: Control | None = None) -> Answer:
    """Solve a model with SciPy; see :meth:`Adapter.solve`."""
    return Scipy().solve(model, options, control)


def _milp(model: LinearModel, options: Options, settings: dict[str, Any]) -> tuple[Any, None]:
    from scipy import optimize

    milp: Any = optimize.milp  # its options are typed by key; ours are checked by check_native
    sign = 1.0 if model.sense == "min" else -1.0
    rows = [optimize.LinearConstraint(model.matrix, model.row_lower, model.row_upper)] if model.n_rows else []
    return milp(
        sign * model.cost,
        integrality=model.integrality.astype(np.int8),
        bounds=optimize.Bounds(model.lower, model.upper),
        constraints=rows,
        options={**settings, "mip_rel_gap": options.relative_gap},
    ), None


def _linprog(model: LinearModel, settings: dict[str, Any]) -> tuple[Any, np.ndarray[Any, Any] | None]:
    """Result and row duals of the minimisation; ``linprog`` knows rows <= b and rows == b only, so rows are split."""
    from scipy import optimize

    linprog: Any = optimize.linprog
    sign = 1.0 if model.sense == "min" else -1.0
    a = sparse.csr_matrix(model.matrix)
    equal = model.row_lower == model.row_upper
    above = np.flatnonzero(~equal & np.isfinite(model.row_upper))
    below = np.flatnonzero(~equal & np.isfinite(model.row_lower))
    same = np.flatnonzero(equal)
    result = linprog(
        sign * model.cost,
        A_ub=sparse.vstack([a[above], -a[below]]) if above.size + below.size else None,
        b_ub=np.concatenate([model.row_upper[above], -model.row_lower[below]]) if above.size + below.size else None,
        A_eq=a[same] if same.size else None,
        b_eq=model.row_lower[same] if same.size else None,
        bounds=np.column_stack([model.lower, model.upper]),
        method="highs",
        options=settings,
    )
    if result.status != 0:
        return result, None
    dual = np.zeros(model.n_rows)
    if same.size:
        dual[same] = result.eqlin.marginals
    if above.size + below.size:
        dual[above] += result.ineqlin.marginals[: above.size]
        dual[below] -= result.ineqlin.marginals[above.size :]
    return result, dual
