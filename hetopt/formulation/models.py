"""Methods that state a model and leave the search to a solver: MILP and LP, their relaxations, CP-SAT.

A formulation builds its model and reads points back as plans; handing it over, listening to incumbents and bounds, and telling
how the solver ended are here, once for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation.method import Method, Outcome, RunOptions
from hetopt.formulation.question import Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["ConstraintModel", "LinearFormulation", "Relaxed"]


class LinearFormulation(Method):
    """A MILP or LP over a :class:`~hetopt.linear.LinearModel`. Subclasses state build, decode and encode."""

    engine = "linear"
    default_solver: ClassVar[str] = "highs"
    default_native: ClassVar[Mapping[str, Any]] = {}  # the default solver's own options, where they matter

    @abstractmethod
    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The model; ``question`` defaults to the instance's own."""

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Plan of a point of the model; for a relaxation there is none (ValueError)."""
        raise ValueError(f"{self.name} is a relaxation: a point of it is no plan")

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """(columns,) point of the model that states a plan, ``nan`` where it says nothing; None when there is none."""
        return None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Build, hand to a solver, report its plans as they come and its bound at the end."""
        from hetopt import solvers
        from hetopt.verify.bounds import lp_dual_certificate, replay_lp_dual

        model = self.build(instance, question)
        statistics = {"rows": model.n_rows, "columns": model.n_columns, "nonzeros": int(model.matrix.nnz)}
        hint = self.encode(instance, model, control.plan) if control.plan is not None else None
        adapter = solvers.get(options.solver or self.default_solver)
        kind: Any = "mip" if model.is_mip else "lp"
        if options.solver and kind not in adapter.capabilities:
            able = ", ".join(solvers.with_capability(kind))
            raise InputError(f"the solver {options.solver!r} cannot take the {self.name} model; these can: {able}")
        scale = _cost_scale(model)
        weakened: list[float] = []

        def incumbent(x: NDArray[np.float64]) -> None:
            if self.gives_plan:
                _report(control, lambda: self.decode(instance, model, x))

        def tighter(bound: float) -> None:
            # 1e-6 relative is what a floating-point solver's tolerances may have cost.
            if self.gives_bound and np.isfinite(bound):
                slack = 1e-6 * max(1.0, abs(bound))
                doubt = _doubt(model, bound)
                weakened[:] = [doubt] if doubt else []
                if doubt:
                    bound = (
                        max(bound - doubt, _ends(model)[0])
                        if model.sense == "min"
                        else min(bound + doubt, _ends(model)[1])
                    )
                control.report_bound(question.problem.round_bound(instance, question, bound, slack=slack), "solver")

        if options.solver in (None, self.default_solver):
            options = replace(options, native={**self.default_native, **options.native})
        wishes = _options(control, options, hint, incumbent, lambda bound: tighter(bound / scale))
        answer = _ask(adapter, model.with_scaled_objective(scale) if scale != 1.0 else model, wishes, control)
        if answer.x is not None and (model.is_mip or answer.reason == "optimal"):
            incumbent(answer.x)
        proved = None
        if not model.is_mip and answer.row_dual is not None and self.gives_bound:
            certificate = lp_dual_certificate(self.name, answer.row_dual / scale)
            proved = replay_lp_dual(model, certificate)
            if np.isfinite(proved):
                rounded = question.problem.round_bound(instance, question, proved, slack=0.0)
                control.report_bound(rounded, "replayed", certificate)
        if answer.bound is not None and (model.is_mip or answer.reason == "optimal"):
            bound = answer.bound / scale
            if not _near(proved, bound):
                tighter(bound)
        outcome = _outcome(self, answer, statistics)
        if weakened:
            told = f"costs of the {self.name} model lie so far apart that the solver's bound is taken {weakened[0]:.3g} weaker"
            outcome = replace(outcome, notes=(*outcome.notes, told))
        return outcome


class Relaxed(LinearFormulation):
    """The linear relaxation of a formulation: the same rows and columns, no integrality; its duals are a replayed bound."""

    name = "lp"
    kind = "relaxation"

    def __init__(self, exact: LinearFormulation, rows: str) -> None:
        """Relax ``exact``; ``rows`` says which rows of the mathematics it has, such as ``"(1)-(3)"``."""
        self.exact = exact
        self.title = f"LP relaxation of {rows}, bound replayed without a solver"  # type: ignore[misc]

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Where the formulation itself fits."""
        return self.exact.fits(instance, question)

    def size(self, instance: Instance, question: Question) -> int:
        """The formulation's own."""
        return self.exact.size(instance, question)

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The formulation's model without integrality."""
        return self.exact.build(instance, question).relax()


class ConstraintModel(Method):
    """A CP-SAT model written natively. Subclasses state program, decode and encode."""

    engine = "cp"

    @abstractmethod
    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """A :class:`hetopt.solvers.cpsat.CpProgram`; ``control`` gives the incumbent whose value may bound variables."""

    @abstractmethod
    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Plan of the values ``x`` of the program's variables."""

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """(variables,) values that state a plan, ``nan`` where it says nothing; None when there is none."""
        return None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Build, hand to CP-SAT, report plans and bounds as they come."""
        from hetopt import solvers

        program = self.program(instance, question, control)
        hint = self.encode(instance, question, program, control.plan) if control.plan is not None else None

        def incumbent(x: NDArray[np.float64]) -> None:
            if self.gives_plan:
                _report(control, lambda: self.decode(instance, question, program, x))

        def tighter(bound: float) -> None:
            if self.gives_bound:
                control.report_bound(question.problem.round_bound(instance, question, bound, slack=0.0), "solver")

        answer = _ask(solvers.get("cpsat"), program, _options(control, options, hint, incumbent, tighter), control)
        if answer.x is not None:
            incumbent(answer.x)
        if answer.bound is not None:
            tighter(answer.bound)
        return _outcome(self, answer, {})


def _report(control: Control, decode: Callable[[], Solution]) -> None:
    """Offer the plan of a solver's point; a point that cannot be read as a plan is a rejected plan, not an accident."""
    try:
        plan = decode()
    except ValueError as error:
        control.rejected.append(f"{control.method}: the solver's point cannot be read as a plan: {error}")
    else:
        control.report_plan(plan)


def _ask(adapter: Any, model: Any, wishes: Any, control: Control) -> Any:
    """The adapter's answer; an option that the solver does not take is the caller's mistake."""
    try:
        return adapter.solve(model, wishes, control)
    except ValueError as error:
        raise InputError(str(error)) from error


def _doubt(model: LinearModel, bound: float) -> float:
    """What a solver may be off by in the bound of an integer model that is small beside its costs.

    Tolerances are absolute, 1e-6 or so: a column that is off by that is worth 1e-6 of its cost, and a cost that is less than
    1e-7 of another may not be seen. Ten times that is taken off where costs lie so far apart that it can be much of the bound.
    """
    costs = abs(model.cost[model.cost != 0])
    if not model.is_mip or not costs.size:
        return 0.0
    largest = float(costs.max())
    return 1e-5 * largest if largest > 1e8 * float(costs.min()) and largest > 1e3 * abs(bound) else 0.0


def _ends(model: LinearModel) -> tuple[float, float]:
    """Between which values the objective is, whatever the rows say."""
    used = np.flatnonzero(model.cost)
    ends = np.stack([model.cost[used] * model.lower[used], model.cost[used] * model.upper[used]])
    return float(ends.min(axis=0).sum() + model.offset), float(ends.max(axis=0).sum() + model.offset)


def _cost_scale(model: LinearModel) -> float:
    """Power of two by which costs are brought near 1 when they are far from it: solvers have absolute tolerances."""
    largest = float(abs(model.cost).max(initial=0.0))
    return 1.0 if largest == 0 or 2.0**-10 <= largest <= 2.0**30 else float(2.0 ** -np.frexp(largest)[1])


def _near(proved: float | None, bound: float) -> bool:
    """Whether a proved bound is as good as the solver's word, up to the solver's tolerance."""
    return proved is not None and abs(proved - bound) <= 1e-6 * max(abs(proved), abs(bound))


def _outcome(method: Method, answer: Any, statistics: Mapping[str, Any]) -> Outcome:
    """How a solver's call ended, in the engine's terms; SolverError when the solver gave up on the model."""
    from hetopt.solvers import SolverError

    who = f"{answer.solver} {answer.version}"
    if answer.reason in ("error", "unbounded"):
        told = "; ".join((f"{who} ended with {answer.status!r} on the {method.name} model", *answer.notes))
        raise SolverError(told)
    notes = answer.notes
    if answer.reason == "infeasible_or_unbounded":
        notes = (*notes, f"{who} could not tell whether the {method.name} model is infeasible or unbounded")
    reasons = {"optimal": "finished", "infeasible": "infeasible", "interrupted": "interrupted"}
    reason = reasons.get(answer.reason, "limit")
    proof = (f"{who} proved that the {method.name} model has no solution",) if reason == "infeasible" else ()
    limit = answer.limit or ("other" if reason == "limit" else None)
    return Outcome(reason, limit, who, notes, statistics, proof)  # type: ignore[arg-type]


def _options(
    control: Control,
    options: RunOptions,
    hint: NDArray[np.float64] | None,
    on_incumbent: Callable[[NDArray[np.float64]], None],
    on_bound: Callable[[float], None],
) -> Any:
    """The caller's wishes in a solver adapter's terms."""
    from hetopt.solvers import Options

    return Options(
        time_limit=options.work_limit,
        relative_gap=control.relative_gap,
        threads=control.threads,
        seed=control.seed,
        memory_limit=control.memory_limit,
        log_file=options.log_file,
        hint=hint,
        deterministic=options.deterministic,
        native=dict(options.native),
        on_incumbent=on_incumbent,
        on_bound=on_bound,
    )
