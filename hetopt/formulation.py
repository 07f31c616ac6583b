"""What a problem and its methods must offer, and the generic way a linear, CP or convex formulation is run.

A *problem* (one file under ``formulations/``) states a question: its objective, its options, which facts it uses, and an
evaluator that recomputes a plan's value and finds every broken constraint. Its *methods* answer the question: an exact
model, a relaxation (its optimum is a bound), a restriction or heuristic (its answer is a plan), an approximation (both).
Methods report plans and bounds into a :class:`~hetopt.control.Control`; the engine (:mod:`hetopt.solve`) judges them.

This file knows no problem by name; :mod:`hetopt.registry` finds them.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = [
    "ConstraintModel",
    "Evaluation",
    "LinearFormulation",
    "Method",
    "Option",
    "Outcome",
    "Problem",
    "Question",
    "Relaxed",
    "RunOptions",
    "Step",
]


@dataclass(frozen=True)
class Option:
    """One option of a question, such as ``contiguous``.

    ``kind`` is a type (bool, int, float, str, list, dict) or a tuple of allowed strings; ``default`` holds when the
    question is silent; ``aliases`` are other words for some choices.
    """

    name: str
    kind: type | tuple[str, ...]
    default: Any
    help: str
    aliases: Mapping[str, str] = field(default_factory=dict)

    def check(self, value: Any) -> Any:
        """``value`` in the option's type; InputError when it is not.

        Text from a command line is read as the option's type.
        """
        if value is None and self.default is None:
            return None
        if isinstance(self.kind, tuple):
            if isinstance(value, bool):
                value = str(value).lower()
            value = self.aliases.get(value, value) if isinstance(value, str) else value
            if value not in self.kind:
                raise InputError(
                    f"$.question.{self.name} is {value!r}; {nearest(str(value), self.kind, what='the choices')}"
                )
            return value
        if isinstance(value, str) and self.kind is not str:
            value = _parsed(value)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                value = float(value)
            except OverflowError:
                raise InputError(f"$.question.{self.name} is beyond 1e308, expected a smaller number") from None
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            raise InputError(f"$.question.{self.name} is {value!r}, expected {self.kind.__name__}")
        return value


@dataclass(frozen=True)
class Question(Mapping[str, Any]):
    """A problem's question about one instance: objective, and every option with its value (defaults filled in)."""

    problem: Problem
    objective: str
    options: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    def __iter__(self) -> Any:
        return iter(self.options)

    def __len__(self) -> int:
        return len(self.options)

    def to_json(self) -> dict[str, Any]:
        """``{"objective": ..., option: value, ...}``, as in an instance file."""
        return {"objective": self.objective, **self.options}


@dataclass(frozen=True)
class Evaluation:
    """What the verifier says of a plan.

    Attributes
    ----------
    value
        The objective, recomputed from the instance.
    violations
        A sentence for each broken constraint; empty for a valid plan.
    details
        Numbers worth showing: load and memory of each device, the bottleneck.
    """

    value: float
    violations: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step of the automatic climb: a method's name, why it is tried, and its share of the time left (0..1)."""

    method: str
    why: str
    share: float = 1.0


@dataclass(frozen=True)
class RunOptions:
    """What the caller set for a method's solver: its name, and options beyond those in Control.

    ``work_limit`` is set in deterministic runs: seconds of work that the solver counts, in place of a time limit.
    """

    solver: str | None = None
    log_file: str | None = None
    deterministic: bool = False
    native: Mapping[str, Any] = field(default_factory=dict)
    hint: Solution | None = None
    work_limit: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a method ended; plans and bounds went into the Control.

    ``reason``: it finished its work, proved that no plan exists, ran into a limit, was interrupted.
    """

    reason: Literal["finished", "infeasible", "limit", "interrupted"] = "finished"
    limit: str | None = None
    solver: str | None = None
    notes: tuple[str, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)
    infeasible: tuple[str, ...] = ()


class Problem(ABC):
    """One question that can be asked of an instance. Subclass it in a file of its own and set ``PROBLEM`` there.

    Class attributes
    ----------------
    name
        ``family.problem``, unique.
    objectives
        Words by which ``--objective`` and ``question.objective`` may ask for it, the first being the usual one.
    title
        A line for ``hetopt list``.
    sense
        Whether smaller or larger values are better.
    unit
        Unit of the objective, for people ("seconds").
    options
        The question's options.
    uses
        Facts the question reads: names among :data:`FACTS` and ``tables.NAME``; other facts in a file cause a warning.
    methods
        The problem's methods, exact ones first.
    """

    name: ClassVar[str]
    objectives: ClassVar[tuple[str, ...]]
    title: ClassVar[str]
    sense: ClassVar[Literal["min", "max"]] = "min"
    unit: ClassVar[str] = "seconds"
    options: ClassVar[tuple[Option, ...]] = ()
    uses: ClassVar[frozenset[str]] = frozenset({"time"})
    methods: ClassVar[tuple[Method, ...]] = ()

    def fits(self, instance: Instance) -> str | None:
        """Why the question cannot be asked of this instance, or None when it can."""
        return None

    @abstractmethod
    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Recompute a plan's value and find every broken constraint, sharing nothing with any model."""

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """Sentences that prove there is no plan (with the shortfall); empty when no such proof is seen at a glance."""
        return ()

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Steps of ``--method auto``, in order; by default the first exact method that fits, else all that fit."""
        fitting = [m for m in self.methods if m.fits(instance, question) is None]
        exact = [Step(m.name, f"the first exact method that fits ({m.title})") for m in fitting if m.kind == "exact"]
        return exact[:1] or [Step(m.name, f"no exact method fits ({m.title})") for m in fitting]

    def bounds(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Steps of ``hetopt bound``; by default every relaxation and approximation that fits."""
        return [
            Step(m.name, m.title)
            for m in self.methods
            if m.kind in ("relaxation", "approximation") and m.fits(instance, question) is None
        ]

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """The best bound that follows from ``bound``; by default ``bound`` itself.

        A problem whose values are integers on this instance rounds ``bound - slack`` up (``bound + slack`` down when
        maximising). ``slack`` is 0 for a bound that is proved, and a solver's tolerance for one that is its word.
        """
        return bound

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Prove a stored certificate again without a solver; returns the bound, raises ValueError when it does not hold.

        The default understands ``{"kind": "lp-dual", "method": ..., "dual": [...]}`` of any linear formulation.
        """
        from hetopt.verify.bounds import replay_lp_dual

        if certificate.get("kind") != "lp-dual":
            raise ValueError(f"the certificate's kind is {certificate.get('kind')!r}, which {self.name} cannot replay")
        method = self.method(str(certificate.get("method")))
        if not isinstance(method, LinearFormulation):
            raise ValueError(f"the certificate names the method {method.name!r}, which is not a linear formulation")
        if not method.gives_bound:
            raise ValueError(f"the certificate names the {method.kind} {method.name!r}, whose model bounds nothing")
        why_not = method.fits(instance, question)
        if why_not:
            raise ValueError(f"the certificate names the method {method.name!r}, which does not fit: {why_not}")
        proved: float = replay_lp_dual(method.build(instance, question).relax(), certificate)
        if not np.isfinite(proved):
            raise ValueError("the lp-dual certificate proves nothing")
        return self.round_bound(instance, question, proved, slack=0.0)

    def sample(self, seed: int) -> Instance:
        """A tiny random instance that the question fits, for contract tests and documentation.

        It must be small enough for :meth:`every_plan` (some thousands of plans at most), and different for each seed: limits
        that bind, tasks that cannot run everywhere, ties. By default independent jobs with integer times.
        """
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 7)), int(rng.integers(1, 4))
        times = rng.integers(1, 20, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.2) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        return Instance.from_times(times, question={"objective": self.name})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All plans of a tiny instance, valid or not; contract tests take the best valid one as the optimum.

        By default every placement of tasks on devices where they can run.
        """
        choices = [np.flatnonzero(row).tolist() for row in instance.eligible]
        for placement in itertools.product(*choices):
            yield Solution.assign(placement)

    # What every problem shares ---------------------------------------------------------------------------------------

    def judge(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """:meth:`evaluate`, where a plan so damaged that it cannot be read is one more violation, not an accident."""
        try:
            return self.evaluate(instance, question, solution)
        except InputError:
            raise
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            worst = np.inf if self.sense == "min" else -np.inf
            return Evaluation(
                worst, (f"the plan cannot be read as one of {self.name}: {type(error).__name__}: {error}",)
            )

    def question(self, instance: Instance, given: Mapping[str, Any] | None = None) -> Question:
        """The question in force: the instance's own, overridden by ``given``, defaults filled in.

        Raises
        ------
        InputError
            An option that the problem does not have, or a value of the wrong type.
        """
        known = {option.name: option for option in self.options}
        given = dict(given or {})
        own = dict(instance.question)
        if given.get("objective", own.get("objective")) != own.get("objective"):
            # Another question than the file's: its options hold where this problem has them too.
            own = {name: value for name, value in own.items() if name in known}
        asked = {**own, **given}
        objective = asked.pop("objective", None) or self.objectives[0]
        for name in asked:
            if name not in known:
                raise InputError(
                    f"$.question has the unknown key {name!r}; {nearest(name, known, what=f'options of {self.name}')}"
                )
        values = {name: option.check(asked.get(name, option.default)) for name, option in known.items()}
        return Question(self, objective, values)

    def method(self, name: str) -> Method:
        """The method called ``name``; InputError that names the nearest when there is none."""
        for method in self.methods:
            if method.name == name:
                return method
        raise InputError(
            f"{self.name} has no method {name!r}; {nearest(name, [m.name for m in self.methods], what='its methods')}"
        )


class Method(ABC):
    """One way to answer a problem's question.

    Class attributes
    ----------------
    name
        Word for ``--method``, unique in the problem.
    title
        A line that says what it is, with source or guarantee.
    kind
        ``exact``; ``relaxation`` (bound only); ``approximation`` (plan and bound, proven factor); ``search`` (plan and bound
        in turns, no factor); ``heuristic`` (plan).
    engine
        What runs it: ``linear``, ``cp``, ``convex`` or ``algorithm``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[Literal["exact", "relaxation", "approximation", "search", "heuristic"]]
    engine: ClassVar[Literal["linear", "cp", "convex", "algorithm"]] = "algorithm"

    @property
    def gives_bound(self) -> bool:
        """Whether a bound on the method's own model bounds the question: not so for a restriction."""
        return self.kind in ("exact", "relaxation")

    @property
    def gives_plan(self) -> bool:
        """Whether a point of the method's own model is a plan: not so for a relaxation."""
        return self.kind != "relaxation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Why the method cannot answer this question on this instance, or None when it can."""
        return None

    def size(self, instance: Instance, question: Question) -> int:
        """Rough number of nonzeros or states, known before anything is built."""
        return instance.n_tasks * instance.n_devices

    @abstractmethod
    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Work until done or ``control.should_stop()``, reporting plans and bounds into ``control``."""


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

        def incumbent(x: NDArray[np.float64]) -> None:
            if self.gives_plan:
                _report(control, lambda: self.decode(instance, model, x))

        def tighter(bound: float) -> None:
            # 1e-6 relative is what a floating-point solver's tolerances may have cost.
            if self.gives_bound and np.isfinite(bound):
                slack = 1e-6 * max(1.0, abs(bound))
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
        return _outcome(self, answer, statistics)


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


def _parsed(text: str) -> Any:
    """A command line's word as JSON where it is JSON (numbers, true, false, lists), else the word itself."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
