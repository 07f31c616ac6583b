"""HiGHS through highspy: the default engine for LPs and MILPs.

Models are handed over as arrays (no Python object per column, row or coefficient), progress comes through callbacks, and
an infeasible LP can be asked for an irreducible infeasible subsystem with :func:`iis`. HiGHS's own time limit is only
looked at between steps and its presolve cannot be interrupted, which is why the run is supervised from outside.

Native options are HiGHS's own, for example ``{"solver": "ipm"}`` for the interior point method with crossover.
"""

from __future__ import annotations

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

__all__ = ["STATUS", "Highs", "iis", "load", "solve"]

STATUS: dict[str, Verdict] = {
    "kNotset": ("error", None),
    "kLoadError": ("error", None),
    "kModelError": ("error", None),
    "kPresolveError": ("error", None),
    "kSolveError": ("error", None),
    "kPostsolveError": ("error", None),
    "kModelEmpty": ("optimal", None),
    "kOptimal": ("optimal", None),
    "kInfeasible": ("infeasible", None),
    "kUnboundedOrInfeasible": ("infeasible_or_unbounded", None),
    "kUnbounded": ("unbounded", None),
    "kObjectiveBound": ("limit", "objective"),
    "kObjectiveTarget": ("limit", "objective"),
    "kTimeLimit": ("limit", "time"),
    "kIterationLimit": ("limit", "iterations"),
    "kUnknown": ("limit", "other"),
    "kSolutionLimit": ("limit", "nodes"),
    "kInterrupt": ("interrupted", None),
    "kMemoryLimit": ("limit", "memory"),
    "kHighsInterrupt": ("interrupted", None),
}

SMALLEST = 1e-12  # HiGHS takes coefficients below this as zero (1e-9 unless told otherwise), which changes the model
# iis_strategy: take the candidate rows from the LP (2), then reduce until irreducible (4). The default returns nothing.
IIS_STRATEGY = 2 + 4
BOUNDED = (2, 3, 4)  # a column's lower bound, its upper bound or both take part; 1 means that neither does


class Highs(Adapter):
    """Linear and mixed-integer models by HiGHS."""

    name: ClassVar[str] = "highs"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        ("lp", "mip", "duals", "hint", "events", "interrupt", "iis", "deterministic", "memory_limit")
    )
    package: ClassVar[str] = "highspy"
    distribution: ClassVar[str] = "highspy"
    status_table: ClassVar[Mapping[str, Verdict]] = STATUS

    def run(self, model: LinearModel, options: Options, watch: Watch) -> Answer:
        """Hand the arrays over, run, and translate; see :meth:`Adapter.solve`."""
        highs = _new_highs()
        _configure(highs, options, watch)
        _pass_model(highs, model)
        notes = _hint(highs, model, options)
        _subscribe(highs, watch, mip=model.is_mip)
        highs.run()
        status = highs.getModelStatus().name
        reason, limit = self.verdict(status)
        reason = self.told_apart(reason, model, options, watch)
        if reason == "error":
            raise SolverError(f"highs {self.version()} failed on the model {model.name!r}: {status}")
        if reason == "interrupted" and watch.cause is not None:
            reason, limit = VERDICTS[watch.cause]
        answer = Answer(reason, self.name, self.version(), status, limit, notes=tuple(notes))
        if reason in ("infeasible", "unbounded", "infeasible_or_unbounded"):
            return answer
        info, solution = highs.getInfo(), highs.getSolution()
        feasible = info.primal_solution_status == 2  # kSolutionStatusFeasible
        x = np.asarray(solution.col_value) if feasible and solution.value_valid else None
        if model.is_mip:
            return replace(
                answer, x=x, objective=info.objective_function_value if feasible else None, bound=info.mip_dual_bound
            )
        dual = np.asarray(solution.row_dual) if solution.dual_valid else None
        bound = dual_bound(model, dual) if dual is not None else None
        return replace(
            answer,
            x=x,
            objective=info.objective_function_value if feasible else None,
            bound=bound,
            row_dual=dual if reason == "optimal" else None,
        )


def solve(model: LinearModel, options: Options | None = None, control: Control | None = None) -> Answer:
    """Solve a model with HiGHS; see :meth:`Adapter.solve`."""
    return Highs().solve(model, options, control)


def load(model: LinearModel) -> Any:
    """A silent ``highspy.Highs`` that holds the model, for whatever this adapter does not offer.

    Raises
    ------
    SolverMissing, SolverError
        HiGHS is not installed, or refuses the model.
    """
    Highs().require("lp", f"the model {model.name!r}")
    highs = _new_highs()
    _pass_model(highs, model)
    return highs


def iis(model: LinearModel, options: Options | None = None) -> tuple[list[str], list[str]]:
    """Names of an irreducible set of rows and columns that already make the LP relaxation infeasible.

    The set is checked: the rows alone, with the bounds of all columns, are solved again and must be infeasible.

    Returns
    -------
    rows, columns
        Row names, and names of the columns whose bounds take part.

    Raises
    ------
    SolverError
        The relaxation is feasible (then no such set exists), HiGHS found no set, or its set is not infeasible.
    """
    options = options or Options()
    adapter = Highs()
    adapter.require("iis", f"the model {model.name!r}")
    highs = _new_highs()
    _configure(highs, options, Watch(options.time_limit))
    highs.setOptionValue("iis_strategy", IIS_STRATEGY)
    _pass_model(highs, model.relax().without_objective())
    _, found = highs.getIis()
    rows = sorted(int(k) for k in found.row_index_)
    columns = sorted(int(k) for k, side in zip(found.col_index_, found.col_bound_, strict=True) if side in BOUNDED)
    if not rows and not columns:
        raise SolverError(f"highs found no infeasible set of rows in the linear relaxation of {model.name!r}")
    alone = _new_highs()
    _pass_model(alone, model.relax().without_objective(), rows=np.asarray(rows, np.int64))
    alone.run()
    if alone.getModelStatus().name != "kInfeasible":
        raise SolverError(f"highs named {len(rows)} rows as infeasible, but by themselves they are not")
    return [model.row_name(k) for k in rows], [model.column_name(k) for k in columns]


def _new_highs() -> Any:
    import highspy

    with quiet():  # the banner comes with construction
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
    highs.setOptionValue("small_matrix_value", SMALLEST)
    return highs


def _configure(highs: Any, options: Options, watch: Watch) -> None:
    ours: dict[str, Any] = {
        "log_to_console": False,
        "mip_abs_gap": 0.0,
        "mip_rel_gap": float(options.relative_gap),
        "random_seed": int(options.seed),
        "threads": 1 if options.deterministic else int(options.threads),
    }
    if ours["threads"] == 1:
        ours["parallel"] = "off"
    if watch.remaining is not None:
        ours["time_limit"] = float(watch.remaining)
    if options.log_file is not None:
        ours |= {"log_file": str(options.log_file), "output_flag": True}
    known = [name for name in dir(highs.getOptions()) if not name.startswith("_")] + ["iis_strategy"]
    check_native("highs", options.native, known)
    for name, value in {**ours, **options.native}.items():
        try:
            accepted = highs.setOptionValue(name, value).name == "kOk"
        except TypeError:
            accepted = False
        if not accepted:
            raise InputError(f"highs does not accept the value {value!r} for its option {name!r}")


def _pass_model(highs: Any, model: LinearModel, *, rows: NDArray[np.int64] | None = None) -> None:
    """Hand over the arrays as they are; HiGHS copies them."""
    import highspy

    a, low, high = model.matrix, model.row_lower, model.row_upper
    if rows is not None:
        a, low, high = a[rows], low[rows], high[rows]
    a, low, high = _without_lost(model, a, low, high)
    if max(a.nnz, *a.shape) >= 2**31:
        raise SolverError(f"highs counts in 32 bits; the model {model.name!r} has {a.nnz} coefficients")
    status = highs.passModel(
        a.shape[1],
        a.shape[0],
        a.nnz,
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMaximize if model.sense == "max" else highspy.ObjSense.kMinimize),
        model.offset,
        model.cost,
        model.lower,
        model.upper,
        low,
        high,
        a.indptr,
        a.indices,
        a.data,
        model.integrality.astype(np.int32),
    )
    if status.name == "kError":
        raise SolverError(f"highs refused the model {model.name!r}: its numbers are out of the range it takes")


def _without_lost(
    model: LinearModel, a: Any, low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
    """Rows without the coefficients that HiGHS would drop, each as much wider as the dropped terms can be worth.

    What is left is a relaxation, so that its bound is one of the model; its points are off by less than tolerances.

    Raises
    ------
    SolverError
        A term without end, on the side that the row limits.
    """
    lost = np.flatnonzero((abs(a.data) < SMALLEST) & (a.data != 0))
    if not lost.size:
        return a, low, high
    row = np.searchsorted(a.indptr, lost, side="right") - 1
    value, column = a.data[lost], a.indices[lost]
    ends = np.stack([value * model.lower[column], value * model.upper[column]])
    least, most = ends.min(axis=0), ends.max(axis=0)
    endless = (np.isfinite(high[row]) & np.isneginf(least)) | (np.isfinite(low[row]) & np.isposinf(most))
    if endless.any():
        k = int(np.argmax(endless))
        raise SolverError(
            f"highs takes the coefficient {value[k]:g} in {model.row_name(int(row[k]))} for zero: the numbers of the model "
            f"{model.name!r} lie too far apart for a solver in floating point; take another method"
        )
    low, high, a = low.copy(), high.copy(), a.copy()
    limited = np.isfinite(low[row]), np.isfinite(high[row])
    np.subtract.at(low, row[limited[0]], most[limited[0]])
    np.subtract.at(high, row[limited[1]], least[limited[1]])
    a.data[lost] = 0.0
    a.eliminate_zeros()
    return a, low, high


def _hint(highs: Any, model: LinearModel, options: Options) -> list[str]:
    """Give the start point to a MIP; an LP by simplex has no use for one without a basis."""
    if options.hint is None:
        return []
    if not model.is_mip:
        return ["highs takes start hints for integer models only; it was ignored"]
    hint = np.asarray(options.hint, np.float64)
    known = np.flatnonzero(np.isfinite(hint)).astype(np.int32)
    status = highs.setSolution(len(known), known, hint[known])
    return ["highs refused the start hint"] if status.name == "kError" else []


def _subscribe(highs: Any, watch: Watch, *, mip: bool) -> None:
    """Have HiGHS ask whether to stop, and tell incumbents and bounds."""
    import highspy

    Kind = highspy.cb.HighsCallbackType
    improving = int(Kind.kCallbackMipImprovingSolution)
    interrupt = int(Kind.kCallbackMipInterrupt)

    def callback(kind: int, message: str, out: Any, back: Any, user: Any) -> None:
        kind = int(kind)
        if kind == improving:
            watch.incumbent(out.mip_solution)
        elif kind == interrupt:
            watch.bound(out.mip_dual_bound)
        if back is not None and watch.stopped:
            back.user_interrupt = True

    highs.setCallback(callback, None)
    kinds = [Kind.kCallbackSimplexInterrupt, Kind.kCallbackIpmInterrupt]
    if mip:
        kinds += [Kind.kCallbackMipInterrupt, Kind.kCallbackMipImprovingSolution]
    for kind in kinds:
        highs.startCallback(kind)
