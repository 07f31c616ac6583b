"""One way to answer a question: what a method says of itself, what it is told, and how it ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from hetopt.control import Control
from hetopt.formulation.question import Question
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["Method", "Outcome", "RunOptions"]


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
    guarantee
        Of an approximation: how far its plan may be from its own bound when it is run to its end, such as
        ``"at most twice its own bound"``; empty elsewhere.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[Literal["exact", "relaxation", "approximation", "search", "heuristic"]]
    engine: ClassVar[Literal["linear", "cp", "convex", "algorithm"]] = "algorithm"
    guarantee: ClassVar[str] = ""

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
