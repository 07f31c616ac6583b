"""CP-SAT through OR-Tools: native constraint programs, and pure integer linear models.

A formulation writes its own :class:`CpProgram`; that is where CP-SAT is strong. Linear models are taken as well when every
column is a bounded integer and every number is an integer: CP-SAT computes in integers, and scaling or rounding data is a
decision with consequences for the proof, so it is made by a formulation and never here.

Native options are the fields of CP-SAT's parameters, for example ``{"linearization_level": 2}``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.linear import LinearModel
from hetopt.solvers.adapter import Adapter
from hetopt.solvers.base import Answer, Capability, Options, SolverError, Verdict, check_native
from hetopt.solvers.checks import hopeless, trivial, validated
from hetopt.solvers.watch import VERDICTS, Watch

__all__ = ["STATUS", "CpProgram", "CpSat", "solve"]

STATUS: dict[str, Verdict] = {
    "OPTIMAL": ("optimal", None),
    "FEASIBLE": ("limit", "other"),
    "INFEASIBLE": ("infeasible", None),
    "UNKNOWN": ("limit", "other"),
    "MODEL_INVALID": ("error", None),
}

EXACT = 2.0**53  # integers up to here are exact in floating point
ANY = 2**63 - 1  # "no bound" of a CP-SAT row


@dataclass(frozen=True)
class CpProgram:
    """A CP-SAT model with the variables that make up a point.

    Attributes
    ----------
    model
        ``ortools.sat.python.cp_model.CpModel``. A start hint replaces the hints it holds.
    variables
        Integer variables or literals; their values, in this order, are the point ``x`` of answers, hints and incumbents.
    to_bound
        Turns a bound on the model's objective into a bound on the question's objective. When times were scaled and
        rounded to integers, this is where the rounding direction enters the proof.
    sense
        Sense of the model's objective.
    name
        Used in messages.
    """

    model: Any
    variables: Sequence[Any]
    to_bound: Callable[[float], float] = float
    sense: Literal["min", "max"] = "min"
    name: str = "program"


class CpSat(Adapter):
    """Constraint programs and pure integer linear models by CP-SAT."""

    name: ClassVar[str] = "cpsat"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        ("cp", "hint", "events", "interrupt", "deterministic", "memory_limit")
    )
    package: ClassVar[str] = "ortools"
    distribution: ClassVar[str] = "ortools"
    status_table: ClassVar[Mapping[str, Verdict]] = STATUS
    work_limit: ClassVar[bool] = True

    def solve(
        self, model: CpProgram | LinearModel, options: Options | None = None, control: Control | None = None
    ) -> Answer:
        """Solve a constraint program, or an integer linear model with integer data.

        For a :class:`CpProgram` the answer's ``x`` holds (variables,) 64-bit integers, and ``objective`` and ``bound``
        are both passed through ``to_bound``: the objective is the optimistic reading of the model's value, and the
        value of the plan is for the engine to recompute.

        Raises
        ------
        SolverMissing, SolverError, InputError
            As :meth:`Adapter.solve`; a continuous column, an unbounded one or data that are not integers are a
            SolverError that names the first culprit.
        """
        options = options or Options()
        self.require("cp", f"the model {model.name!r}")
        count = model.n_columns if isinstance(model, LinearModel) else len(model.variables)
        if options.hint is not None and np.shape(options.hint) != (count,):
            raise InputError(f"the hint has shape {np.shape(options.hint)}, expected ({count},)")
        if isinstance(model, CpProgram):
            return _gap_told(self.watched(model, options, control), model.sense)
        early = hopeless(model) or (trivial(model) if model.n_columns == 0 else None)
        if early is not None:
            return replace(early, solver=self.name, version=self.version())
        _refuse_inexact(model)
        answer = self.watched(model, options, control)
        if answer.x is not None:
            answer = replace(answer, x=answer.x.astype(np.float64))
        return validated(answer, model)

    def run(self, model: CpProgram | LinearModel, options: Options, watch: Watch) -> Answer:
        """Set the parameters, solve, and translate; see :meth:`CpSat.solve`."""
        from ortools.sat.python import cp_model

        if isinstance(model, LinearModel):
            cp, where = _cp_model(model), np.arange(model.n_columns)
        else:
            cp = model.model
            where = np.array([variable.index for variable in model.variables], np.int64)
        to_bound: Callable[[float], float] = float if isinstance(model, LinearModel) else model.to_bound
        solver = cp_model.CpSolver()
        if options.hint is not None:
            _add_hint(cp, where, options.hint)

        class Told(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
            def on_solution_callback(self) -> None:
                watch.incumbent(_values(self.response_proto, where))

        told: list[float] = []

        def tell(value: float) -> None:
            told.append(value)
            _tell_bound(to_bound, watch, value)

        has_objective = cp.has_objective()
        if has_objective:
            solver.best_bound_callback = tell
        watch.on_stop = solver.stop_search
        with ExitStack() as stack:
            if options.log_file is not None:
                log = stack.enter_context(open(options.log_file, "w", encoding="utf-8"))
                solver.log_callback = lambda line: print(line, file=log)
            _configure(solver.parameters, options, watch)
            started = time.monotonic()
            status = solver.solve(cp, Told()).name
        reason, limit = self.verdict(status)
        if reason == "error":
            raise SolverError(f"cpsat refuses the model {model.name!r}: {cp.validate() or status}")
        if reason == "limit":
            reason, limit = _which_limit(solver, watch, time.monotonic() - started)
        answer = Answer(reason, self.name, self.version(), status, limit)
        if status in ("OPTIMAL", "FEASIBLE"):
            answer = replace(answer, x=_values(solver.response_proto, where))
        if not has_objective or status == "INFEASIBLE":
            return answer
        # until there is a bound, 0 (when the run ends before the search) or the end of the integers stands in its place
        known = (answer.x is not None or bool(told)) and abs(solver.best_objective_bound) < 2.0**62
        bound = to_bound(solver.best_objective_bound) if known else None
        value = to_bound(solver.objective_value) if answer.x is not None else None
        return replace(answer, objective=value, bound=bound)


def solve(model: CpProgram | LinearModel, options: Options | None = None, control: Control | None = None) -> Answer:
    """Solve a constraint program or an integer linear model with CP-SAT; see :meth:`CpSat.solve`."""
    return CpSat().solve(model, options, control)


def _cp_model(model: LinearModel) -> Any:
    """The linear model as a CP-SAT model with the same columns in the same order, filled a row at a time."""
    from ortools.sat.python import cp_model

    cp = cp_model.CpModel()
    cp.name = model.name
    proto = cp.proto
    low, high = model.lower.astype(np.int64), model.upper.astype(np.int64)
    change = np.flatnonzero((np.diff(low) != 0) | (np.diff(high) != 0)) + 1
    for start, end in zip([0, *change.tolist()], [*change.tolist(), len(low)], strict=True):
        one = cp_model.CpModel().proto.variables.add()
        one.domain.extend([int(low[start]), int(high[start])])
        proto.variables.extend([one] * (end - start))
    a = model.matrix
    starts, columns, values = a.indptr.tolist(), a.indices.tolist(), a.data.astype(np.int64).tolist()
    for k, (lower, upper) in enumerate(zip(_row_bounds(model.row_lower), _row_bounds(model.row_upper), strict=True)):
        row = proto.constraints.add().linear
        row.vars.extend(columns[starts[k] : starts[k + 1]])
        row.coeffs.extend(values[starts[k] : starts[k + 1]])
        row.domain.extend([lower, upper])
    # CP-SAT minimises; a maximisation is written with negated costs and a scaling factor of -1
    sign = 1 if model.sense == "min" else -1
    priced = np.flatnonzero(model.cost)
    proto.objective.vars.extend(priced.tolist())
    proto.objective.coeffs.extend((sign * model.cost[priced]).astype(np.int64).tolist())
    proto.objective.offset = sign * model.offset
    proto.objective.scaling_factor = float(sign)
    return cp


def _refuse_inexact(model: LinearModel) -> None:
    """Raise a sentence about the first number or column that CP-SAT cannot take as it is."""
    a = model.matrix

    def culprit(bad: NDArray[np.bool_], name: Callable[[int], str], what: str) -> None:
        found = np.flatnonzero(bad)
        if found.size:
            raise SolverError(f"cpsat cannot take the model {model.name!r}: {name(int(found[0]))} {what}")

    def row_of(entry: int) -> str:
        return model.row_name(int(np.searchsorted(a.indptr, entry, side="right")) - 1)

    culprit(~model.integrality, model.column_name, "is continuous, and CP-SAT knows integers only")
    unbounded = ~(np.isfinite(model.lower) & np.isfinite(model.upper))
    culprit(unbounded, model.column_name, "has no finite bounds, and a bound made up here could cut off solutions")
    exact = "is not an integer below 2**53; scale the data in the formulation"
    culprit(_inexact(model.lower) | _inexact(model.upper), model.column_name, f"has a bound that {exact}")
    culprit(_inexact(model.row_lower) | _inexact(model.row_upper), model.row_name, f"has a bound that {exact}")
    culprit(_inexact(a.data), row_of, f"has a coefficient that {exact}")
    culprit(_inexact(model.cost), model.column_name, f"has a cost that {exact}")


def _inexact(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    bad: NDArray[np.bool_] = np.isfinite(values) & ((values != np.round(values)) | (abs(values) >= EXACT))
    return bad


def _row_bounds(values: NDArray[np.float64]) -> list[int]:
    return [int(v) if np.isfinite(v) else (ANY if v > 0 else -ANY) for v in values.tolist()]


def _values(response: Any, where: NDArray[np.int64]) -> NDArray[np.int64]:
    """Values of the variables with indices ``where``; a negative index is the negation of a literal."""
    solution = np.array(list(response.solution), np.int64)
    return np.where(where >= 0, solution[where], 1 - solution[-where - 1])


def _tell_bound(to_bound: Callable[[float], float], watch: Watch, value: float) -> None:
    """Called in a thread of CP-SAT's, where an exception would end the process; it comes up again with the final bound."""
    with suppress(Exception):
        watch.bound(to_bound(value))


def _add_hint(cp: Any, where: NDArray[np.int64], hint: ArrayLike) -> None:
    """Replace the model's hints; a hint for the negation of a literal is one for the literal."""
    values = np.asarray(hint, np.float64)
    known = np.isfinite(values)
    index, value = where[known], np.round(values[known]).astype(np.int64)
    negated = index < 0
    cp.clear_hints()
    cp.proto.solution_hint.vars.extend(np.where(negated, -index - 1, index).tolist())
    cp.proto.solution_hint.values.extend(np.where(negated, 1 - value, value).tolist())


def _configure(parameters: Any, options: Options, watch: Watch) -> None:
    parameters.catch_sigint_signal = False  # Ctrl-C is Python's
    parameters.log_to_stdout = False
    parameters.log_search_progress = options.log_file is not None
    parameters.random_seed = options.seed
    parameters.num_workers = 1 if options.deterministic else options.threads
    parameters.relative_gap_limit = options.relative_gap
    if options.deterministic and options.time_limit is not None:
        parameters.max_deterministic_time = options.time_limit
    if watch.remaining is not None:
        parameters.max_time_in_seconds = watch.remaining
    if options.memory_limit is not None:
        parameters.max_memory_in_mb = max(1, options.memory_limit // 2**20)
    fields = [name for name in dir(parameters) if hasattr(parameters, f"clear_{name}")]
    check_native("cpsat", options.native, [*fields, "subsolvers", "extra_subsolvers", "ignore_subsolvers"])
    for name, value in options.native.items():
        current = getattr(parameters, name)
        words = isinstance(current, str) or "string" in type(current).__name__
        for item in value if isinstance(value, (list, tuple)) else [value]:
            # in protobuf's text format, strings stand in quotes, and numbers and enumerations do not
            word = f'"{item}"' if words else str(item).lower() if isinstance(item, bool) else str(item)
            if not parameters.merge_text_format(f"{name}: {word}"):
                raise InputError(f"cpsat does not accept the value {item!r} for its option {name!r}")


def _which_limit(solver: Any, watch: Watch, seconds: float) -> Verdict:
    """Which limit ended a search that CP-SAT only calls feasible or unknown."""
    if watch.cause is not None:
        return VERDICTS[watch.cause]
    parameters = solver.parameters
    worked = solver.deterministic_time
    allowed = parameters.max_time_in_seconds  # it stops a little early rather than late
    if seconds >= min(0.95 * allowed, allowed - 0.1) or worked >= 0.95 * parameters.max_deterministic_time:
        return "limit", "time"
    return "limit", "other"


def _gap_told(answer: Answer, sense: str) -> Answer:
    """CP-SAT says optimal as soon as the gap asked for is met; only a bound that meets the value is a proof."""
    if answer.reason == "optimal" and answer.objective is not None and answer.bound is not None:
        short = answer.objective - answer.bound if sense == "min" else answer.bound - answer.objective
        if short > 1e-9 * max(1.0, abs(answer.objective)):
            return replace(answer, reason="limit", limit="gap")
    return answer
