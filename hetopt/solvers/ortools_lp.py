"""GLOP and PDLP through OR-Tools: linear programs only.

GLOP is a simplex method (basic solutions, precise duals); PDLP is a first-order method for LPs too large for simplex, whose
answers are approximate (1e-6 relative by default). Both are called through MathOpt's interface, with the model as
a protocol buffer filled from arrays: of OR-Tools' doors to GLOP, this is the one that does not call an unbounded model
infeasible. OR-Tools' own copy of HiGHS is never used; it crashes when PuLP was imported before.

Native options are the fields of ``GlopParameters`` or ``PrimalDualHybridGradientParams``; nested ones are given as
dicts, for example ``{"termination_criteria": {"simple_optimality_criteria": {"eps_optimal_relative": 1e-8}}}``.
"""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
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
from hetopt.solvers.watch import VERDICTS, Watch

__all__ = ["STATUS", "Glop", "Pdlp", "glop", "pdlp"]

STATUS: dict[str, Verdict] = {
    "TERMINATION_REASON_OPTIMAL": ("optimal", None),
    "TERMINATION_REASON_INFEASIBLE": ("infeasible", None),
    "TERMINATION_REASON_UNBOUNDED": ("unbounded", None),
    "TERMINATION_REASON_INFEASIBLE_OR_UNBOUNDED": ("infeasible_or_unbounded", None),
    "TERMINATION_REASON_IMPRECISE": ("limit", "other"),
    "TERMINATION_REASON_NUMERICAL_ERROR": ("error", None),
    "TERMINATION_REASON_OTHER_ERROR": ("error", None),
    "LIMIT_UNDETERMINED": ("limit", "other"),
    "LIMIT_ITERATION": ("limit", "iterations"),
    "LIMIT_TIME": ("limit", "time"),
    "LIMIT_NODE": ("limit", "nodes"),
    "LIMIT_SOLUTION": ("limit", "other"),
    "LIMIT_MEMORY": ("limit", "memory"),
    "LIMIT_OBJECTIVE": ("limit", "objective"),
    "LIMIT_CUTOFF": ("limit", "objective"),
    "LIMIT_NORM": ("limit", "other"),
    "LIMIT_INTERRUPTED": ("interrupted", None),
    "LIMIT_SLOW_PROGRESS": ("limit", "other"),
    "LIMIT_OTHER": ("limit", "other"),
}

FEASIBLE = 2  # solution_pb2.SOLUTION_STATUS_FEASIBLE


class _OrToolsLp(Adapter):
    """What GLOP and PDLP share."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        ("lp", "duals", "interrupt", "deterministic", "memory_limit")
    )
    package: ClassVar[str] = "ortools"
    distribution: ClassVar[str] = "ortools"
    status_table: ClassVar[Mapping[str, Verdict]] = STATUS
    solver: ClassVar[str]
    accuracy: ClassVar[float]

    def run(self, model: LinearModel, options: Options, watch: Watch) -> Answer:
        """Fill the protocol buffer, solve, and translate; see :meth:`Adapter.solve`."""
        from ortools.math_opt.core.python import solver as core
        from ortools.math_opt.python import mathopt
        from ortools.util.python.solve_interrupter import SolveInterrupter

        parameters = self._parameters(options, watch)
        interrupter = SolveInterrupter()
        watch.on_stop = interrupter.interrupt
        with ExitStack() as stack:
            log = None
            if options.log_file is not None:
                file = stack.enter_context(open(options.log_file, "w", encoding="utf-8"))
                log = lambda lines: file.writelines(f"{line}\n" for line in lines)  # noqa: E731
            result = core.solve(
                _model_proto(model),
                mathopt.SolverType[self.solver].value,
                mathopt.StreamableSolverInitArguments().to_proto(),
                parameters,
                mathopt.ModelSolveParameters().to_proto(),
                log,
                mathopt.CallbackRegistration().to_proto(),
                None,
                interrupter.pybind_interrupter,
            )
        return self._translated(result, model, options, watch)

    def _translated(self, result: Any, model: LinearModel, options: Options, watch: Watch) -> Answer:
        end = result.termination
        status = type(end).DESCRIPTOR.fields_by_name["reason"].enum_type.values_by_number[end.reason].name
        if status in ("TERMINATION_REASON_FEASIBLE", "TERMINATION_REASON_NO_SOLUTION_FOUND"):
            status = type(end).DESCRIPTOR.fields_by_name["limit"].enum_type.values_by_number[end.limit].name
        reason, limit = self.verdict(status)
        reason = self.told_apart(reason, model, options, watch)
        if watch.cause is not None and reason in ("interrupted", "limit"):
            reason, limit = VERDICTS[watch.cause]
        elif status == "LIMIT_UNDETERMINED" and watch.remaining == 0.0:
            limit = "time"  # GLOP does not say which limit it met
        if reason == "error":
            raise SolverError(f"{self.name} {self.version()} failed: {status} {end.detail}".rstrip())
        answer = Answer(reason, self.name, self.version(), status, limit)
        if not result.solutions or reason in ("infeasible", "unbounded", "infeasible_or_unbounded"):
            return answer
        primal, dual = result.solutions[0].primal_solution, result.solutions[0].dual_solution
        if primal.feasibility_status == FEASIBLE:
            x = _dense(primal.variable_values, model.n_columns)
            answer = replace(answer, x=x, objective=primal.objective_value)
        if len(dual.dual_values.ids) or not model.n_rows:
            y = _dense(dual.dual_values, model.n_rows)
            bound = dual_bound(model, y, tolerance=self.accuracy)
            if bound is None and reason == "optimal":
                bound = end.objective_bounds.dual_bound
            answer = replace(answer, bound=bound, row_dual=y if reason == "optimal" else None)
        return answer

    def _parameters(self, options: Options, watch: Watch) -> Any:
        """``SolveParametersProto`` with the common and the native options."""
        from google.protobuf import json_format  # type: ignore[import-untyped]
        from ortools.math_opt import parameters_pb2

        proto = parameters_pb2.SolveParametersProto()
        if watch.remaining is not None:
            proto.time_limit.FromTimedelta(datetime.timedelta(seconds=watch.remaining))
        own = self._own(proto, options)
        check_native(self.name, options.native, own.DESCRIPTOR.fields_by_name)
        try:
            json_format.ParseDict(dict(options.native), own)
        except json_format.ParseError as error:
            raise InputError(f"{self.name} does not accept a native option: {error}") from None
        return proto

    @abstractmethod
    def _own(self, proto: Any, options: Options) -> Any:
        """The solver's own parameters within ``proto``, after setting what only this solver takes."""


class Glop(_OrToolsLp):
    """Linear programs by GLOP's simplex method; one thread."""

    name: ClassVar[str] = "glop"
    solver: ClassVar[str] = "GLOP"
    accuracy: ClassVar[float] = 1e-7

    def _own(self, proto: Any, options: Options) -> Any:
        proto.random_seed = options.seed
        return proto.glop


class Pdlp(_OrToolsLp):
    """Large linear programs by PDLP's first-order method; answers are accurate to about 1e-6."""

    name: ClassVar[str] = "pdlp"
    solver: ClassVar[str] = "PDLP"
    accuracy: ClassVar[float] = 1e-6

    def _own(self, proto: Any, options: Options) -> Any:
        proto.threads = 1 if options.deterministic else options.threads
        return proto.pdlp


def glop(model: LinearModel, options: Options | None = None, control: Control | None = None) -> Answer:
    """Solve an LP with GLOP; see :meth:`Adapter.solve`."""
    return Glop().solve(model, options, control)


def pdlp(model: LinearModel, options: Options | None = None, control: Control | None = None) -> Answer:
    """Solve an LP with PDLP; see :meth:`Adapter.solve`."""
    return Pdlp().solve(model, options, control)


def _model_proto(model: LinearModel) -> Any:
    """``ModelProto`` filled from the model's arrays."""
    from ortools.math_opt import model_pb2

    a, columns, rows = model.matrix, np.arange(model.n_columns), np.arange(model.n_rows)
    proto = model_pb2.ModelProto(name=model.name)
    proto.variables.ids.extend(columns)
    proto.variables.lower_bounds.extend(model.lower)
    proto.variables.upper_bounds.extend(model.upper)
    proto.variables.integers.extend(model.integrality.tolist())
    proto.linear_constraints.ids.extend(rows)
    proto.linear_constraints.lower_bounds.extend(model.row_lower)
    proto.linear_constraints.upper_bounds.extend(model.row_upper)
    priced = np.flatnonzero(model.cost)
    proto.objective.maximize = model.sense == "max"
    proto.objective.offset = model.offset
    proto.objective.linear_coefficients.ids.extend(priced)
    proto.objective.linear_coefficients.values.extend(model.cost[priced])
    kept = a.data != 0
    proto.linear_constraint_matrix.row_ids.extend(np.repeat(rows, np.diff(a.indptr))[kept])
    proto.linear_constraint_matrix.column_ids.extend(a.indices[kept])
    proto.linear_constraint_matrix.coefficients.extend(a.data[kept])
    return proto


def _dense(values: Any, size: int) -> NDArray[np.float64]:
    out = np.zeros(size)
    out[np.fromiter(values.ids, np.int64, len(values.ids))] = np.fromiter(values.values, np.float64, len(values.ids))
    return out
