"""What every solver adapter does the same way: refuse, run under watch, validate.

An adapter translates a :class:`~hetopt.linear.LinearModel` (or, for CP-SAT, a native model; for cvxpy, a convex problem)
into one solver's terms and its answer back. What can be checked of the answer against the model alone is checked here,
once for all solvers, by :func:`~hetopt.solvers.checks.validated`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.linear import LinearModel
from hetopt.solvers.base import (
    Answer,
    Capability,
    Options,
    Reason,
    SolverError,
    SolverMissing,
    Verdict,
    effective_time,
)
from hetopt.solvers.checks import hopeless, may_be_unbounded, trivial, validated
from hetopt.solvers.watch import Watch, supervise

__all__ = ["Adapter"]


class Adapter(ABC):
    """Base of all adapters: refuses what a solver cannot do, runs it under watch, validates what it says.

    A subclass states the class attributes and writes :meth:`run`, which may block: it is called in a thread of its own
    while the caller's thread waits, so that Ctrl-C, limits and progress events work however the solver behaves.

    Attributes
    ----------
    name
        Name in the registry and in answers.
    capabilities
        What it can do; the engine's choices and the tests' matrix are driven by it.
    package, distribution
        Import name and distribution name of the solver's package.
    status_table
        The solver's own status -> (reason, limit); a status that is not in the table is an error, never a guess.
    work_limit
        In deterministic mode the solver counts its work instead of reading the clock.
    writes_log
        It can write its log to a file.
    """

    name: ClassVar[str]
    capabilities: ClassVar[frozenset[Capability]]
    package: ClassVar[str]
    distribution: ClassVar[str]
    status_table: ClassVar[Mapping[str, Verdict]]
    work_limit: ClassVar[bool] = False
    writes_log: ClassVar[bool] = True

    @abstractmethod
    def run(self, model: Any, options: Options, watch: Watch) -> Answer:
        """Solve ``model`` and translate the answer; called in a thread of its own with a running ``watch``."""

    def available(self) -> str | None:
        """None when the solver can be used, otherwise one sentence that says how to install it. Imports nothing."""
        if importlib.util.find_spec(self.package) is None:
            return f"{self.name} needs the package {self.distribution}: pip install {self.distribution}"
        return None

    def version(self) -> str:
        """Version of the solver's distribution; ``"unknown"`` when it is not installed. Imports nothing."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return "unknown"

    def verdict(self, status: str) -> Verdict:
        """(reason, limit) of the solver's own status; SolverError when the table does not know it."""
        try:
            return self.status_table[status]
        except KeyError:
            raise SolverError(f"{self.name} {self.version()} ended with an unknown status {status!r}") from None

    def solve(self, model: LinearModel, options: Options | None = None, control: Control | None = None) -> Answer:
        """Solve a model; every outcome that is not a failure is an :class:`Answer`.

        Ctrl-C stops the solver, cancels ``control`` and returns the best point so far with reason ``"interrupted"``.

        Raises
        ------
        SolverMissing
            The solver's package is not installed.
        SolverError
            The solver cannot take this kind of model, failed, or answered nonsense.
        InputError
            An option is unknown or has no meaning.
        """
        options = options or Options()
        self.require("mip" if model.is_mip else "lp", f"the model {model.name!r}")
        if options.hint is not None and np.shape(options.hint) != (model.n_columns,):
            raise InputError(f"the hint has shape {np.shape(options.hint)}, expected ({model.n_columns},)")
        early = hopeless(model) or (trivial(model) if model.n_columns == 0 else None)
        if early is not None:
            return replace(early, solver=self.name, version=self.version())
        answer = self.watched(model, options, control)
        return validated(answer, model)

    def require(self, capability: Capability, what: str) -> None:
        """Raise unless the solver is installed and has the capability that ``what`` needs."""
        hint = self.available()
        if hint is not None:
            raise SolverMissing(hint)
        if capability not in self.capabilities:
            raise SolverError(
                f"{self.name} cannot solve {what}: that takes a solver with capability {capability!r}, "
                f"and it has {', '.join(sorted(self.capabilities))}"
            )

    def told_apart(self, reason: Reason, model: LinearModel, options: Options, watch: Watch) -> Reason:
        """``reason``, or whether the model is infeasible or unbounded where the solver's word leaves that open.

        It does when the word is for both, and when an integer model is called unbounded, which its relaxation may be alone.
        Such a model is infeasible if no improving direction is open; else it is solved again without its objective.
        A feasible model whose relaxation is unbounded is unbounded too when its data are rational, and floating-point
        numbers are. This happens within what is left of the time; where that is not enough, the question stays open.
        """
        if reason != "infeasible_or_unbounded" and not (reason == "unbounded" and model.is_mip):
            return reason
        if not may_be_unbounded(model):
            return "infeasible"
        again = self.run(model.without_objective(), replace(options, hint=None), watch)
        if again.reason == "optimal":
            return "unbounded"
        return "infeasible" if again.reason == "infeasible" else "infeasible_or_unbounded"

    def watched(self, model: Any, options: Options, control: Control | None) -> Answer:
        """Call :meth:`run` under watch, with notes on the options this solver cannot honour."""
        started = time.monotonic()
        _check_log(options.log_file)
        notes = list(self._ignored(options))
        who = (self.name, self.version())
        counted = options.deterministic and self.work_limit
        seconds = effective_time(replace(options, time_limit=None) if counted else options, control)
        if seconds is not None and seconds <= 0:
            answer = Answer("limit", *who, "not started", "time")
        else:
            answer = supervise(lambda watch: self.run(model, options, watch), options, seconds, control, who)
            if options.deterministic and answer.limit == "time" and not self.work_limit:
                notes.append(
                    f"{self.name} has no work limit: a run that ends at the time limit does not repeat exactly"
                )
        return replace(answer, seconds=time.monotonic() - started, notes=(*notes, *answer.notes))

    def _ignored(self, options: Options) -> Iterable[str]:
        if options.hint is not None and "hint" not in self.capabilities:
            yield f"{self.name} takes no start hint; it was ignored"
        if options.memory_limit is not None and "memory_limit" not in self.capabilities:
            yield f"{self.name} has no memory limit; it was ignored"
        if options.log_file is not None and not self.writes_log:
            yield f"{self.name} writes no log file"
        if options.deterministic and "deterministic" not in self.capabilities:
            yield f"{self.name} does not promise the same answer on each run"


def _check_log(path: str | None) -> None:
    """Refuse a log file that cannot be written, in the same words for all solvers (one of them would just go without)."""
    if path is not None:
        try:
            open(path, "ab").close()
        except OSError as error:
            raise InputError(f"cannot write the log file {str(path)!r}: {error.strerror or error}") from error
