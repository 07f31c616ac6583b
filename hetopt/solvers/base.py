"""The vocabulary of solver adapters: capabilities, options with one name each, answers that hide nothing, errors.

These are the words adapters and the engine share. An answer is what a solver said: whether a plan is valid and a status
deserved is decided by the engine, from the instance.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.errors import InputError

__all__ = [
    "Answer",
    "Capability",
    "Limit",
    "Options",
    "Reason",
    "SolverError",
    "SolverMissing",
    "Verdict",
    "check_native",
    "effective_time",
]

Reason = Literal["optimal", "infeasible", "unbounded", "infeasible_or_unbounded", "limit", "interrupted", "error"]
Limit = Literal["time", "iterations", "nodes", "memory", "gap", "objective", "other"]
Capability = Literal[
    "lp", "mip", "cp", "convex", "duals", "hint", "events", "interrupt", "iis", "deterministic", "memory_limit"
]
Verdict = tuple[Reason, Limit | None]


class SolverError(RuntimeError):
    """A solver failed: it raised, crashed, was killed, or answered nonsense. The message is a sentence for the user."""


class SolverMissing(SolverError):
    """The solver's package is not installed; the message says how to install it."""


@dataclass(frozen=True)
class Options:
    """The common options; every adapter gives each of them the same meaning.

    Attributes
    ----------
    time_limit
        Seconds of wall time for this call; None means no limit.
    relative_gap
        Stop when |objective - bound| <= relative_gap * |objective|; 0 asks for proof.
    threads
        Threads to use; 1 by default, and the only value for which runs are reproducible everywhere.
    seed
        Seed of the solver's random numbers, from 0 to 2**31 - 1.
    memory_limit
        Bytes the process may grow by; used by solvers with capability ``"memory_limit"``, else ignored with a note.
    log_file
        Where the solver's own log goes; None discards it. Never standard output.
    hint
        (columns,) a point to start from, ``nan`` where unknown; a hint, never a constraint. Solvers without capability
        ``"hint"`` ignore it with a note.
    deterministic
        Same answer on each run: one thread, and work limits instead of wall time where the solver has them.
    native
        The solver's own options by their native names; an unknown one is an error that names the nearest.
    on_incumbent
        Called with a copy of each better point (columns,), in the thread that called ``solve``; needs ``"events"``.
    on_bound
        Called with each better bound, in the thread that called ``solve``; needs ``"events"``, and never for an LP.
    """

    time_limit: float | None = None
    relative_gap: float = 0.0
    threads: int = 1
    seed: int = 0
    memory_limit: int | None = None
    log_file: str | None = None
    hint: NDArray[np.float64] | None = None
    deterministic: bool = False
    native: Mapping[str, Any] = field(default_factory=dict)
    on_incumbent: Callable[[NDArray[Any]], None] | None = None
    on_bound: Callable[[float], None] | None = None

    def __post_init__(self) -> None:
        if self.time_limit is not None and not self.time_limit >= 0:
            raise InputError(f"time_limit is {self.time_limit}; expected seconds, 0 or more, or None")
        if not 0 <= self.relative_gap < float("inf"):
            raise InputError(f"relative_gap is {self.relative_gap}; expected a number from 0 on, such as 0.01")
        if self.threads < 1:
            raise InputError(f"threads is {self.threads}; expected at least 1")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed is {self.seed}; expected an integer from 0 to {2**31 - 1}")
        if self.memory_limit is not None and self.memory_limit <= 0:
            raise InputError(f"memory_limit is {self.memory_limit}; expected bytes, more than 0, or None")


@dataclass(frozen=True)
class Answer:
    """What a solver said, in the model's own sense and order. Unknown is None.

    Attributes
    ----------
    reason
        Why it stopped.
    solver, version
        Who answered.
    status
        The solver's own word, for the record.
    limit
        Which limit, when the reason is ``"limit"``.
    x
        (columns,) the best point, or None. Integers are rounded only if within 1e-5 of an integer. 64-bit integers for a
        constraint program, floating point otherwise.
    objective
        Value of x, recomputed from the model's costs.
    bound
        The solver's bound on the optimum (its word, in floating point); never beyond ``objective``.
    row_dual
        (rows,) dual values y for an LP, such that cost - A^T y are the reduced costs; None when there are none. In the
        model's sense (of a maximisation as well): y is the rate at which the optimum moves with the row's bound.
    seconds
        Wall time of the call.
    notes
        Sentences worth showing, for example that a hint was refused.
    """

    reason: Reason
    solver: str
    version: str
    status: str
    limit: Limit | None = None
    x: NDArray[Any] | None = None
    objective: float | None = None
    bound: float | None = None
    row_dual: NDArray[np.float64] | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


def check_native(solver: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a native option that the solver does not have, naming the nearest one.

    Raises
    ------
    InputError
        A name of ``given`` is not in ``known``.
    """
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
            raise InputError(f"{solver} has no option {name!r}; the nearest is {near[0] if near else 'none'!r}")


def effective_time(options: Options, control: Control | None) -> float | None:
    """Seconds a solver may run: the smaller of the option and what the run has left; None without a limit."""
    left = control.remaining if control is not None else float("inf")
    limit = min(left, options.time_limit if options.time_limit is not None else float("inf"))
    return None if limit == float("inf") else max(limit, 0.0)
