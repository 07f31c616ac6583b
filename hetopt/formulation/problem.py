"""A problem: one question that can be asked of an instance, how a plan is judged, and which methods answer it."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from hetopt.errors import InputError, nearest
from hetopt.formulation.method import Method
from hetopt.formulation.models import LinearFormulation
from hetopt.formulation.question import Option, Question
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["Evaluation", "Problem", "Step"]


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
        Facts the question reads, by the names of their fields (``memory``, ``edges``, ``tables.NAME``); others are told.
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

        The default understands ``{"kind": "lp-dual", "method": ..., "dual": [...]}`` of any linear formulation. A method hands
        its certificates to :meth:`Question.prove`, which replays them before they count.
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
