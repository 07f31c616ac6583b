"""What every solver adapter offers: capabilities, options with one name each, and an answer that hides nothing.

An adapter translates a :class:`~hetopt.linear.LinearModel` (or, for CP-SAT, a native model; for cvxpy, a convex problem)
into one solver's terms and its answer back. It never judges: whether a plan is valid and a status deserved is decided by
the engine, from the instance.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control

__all__ = ["Answer", "Capability", "Options", "SolverError", "SolverMissing", "check_native"]

Reason = Literal["optimal", "infeasible", "unbounded", "infeasible_or_unbounded", "limit", "interrupted", "error"]
Limit = Literal["time", "iterations", "nodes", "memory", "gap", "objective", "other"]
Capability = Literal[
    "lp", "mip", "cp", "convex", "duals", "hint", "events", "interrupt", "iis", "deterministic", "memory_limit"
]


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
        Seed of the solver's random numbers.
    memory_limit
        Bytes; used where the solver can be told (capability ``"memory_limit"``), otherwise ignored with a note.
    log_file
        Where the solver's own log goes; None discards it. Never standard output.
    hint
        (columns,) a point to start from, ``nan`` where unknown; a hint, never a constraint.
    deterministic
        Same answer on each run: one thread, and work limits instead of wall time where the solver has them.
    native
        The solver's own options by their native names; an unknown one is an error that names the nearest.
    """

    time_limit: float | None = None
    relative_gap: float = 0.0
    threads: int = 1
    seed: int = 0
    memory_limit: int | None = None
    log_file: str | None = None
    hint: NDArray[np.float64] | None = None
    deterministic: bool = False
    native: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a solver said, in the model's own sense and order. Unknown is None.

    Attributes
    ----------
    reason
        Why it stopped.
    limit
        Which limit, when the reason is ``"limit"``.
    x
        (columns,) the best point, or None. Integers are rounded only if within 1e-5 of an integer.
    objective
        The solver's value of x.
    bound
        The solver's bound on the optimum (its word, in floating point).
    row_dual
        (rows,) dual values y for an LP, such that cost - A^T y are the reduced costs; None when there are none. In the
        model's sense (of a maximisation as well).
    solver, version
        Who answered.
    status
        The solver's own word, for the record.
    seconds
        Wall time inside the solver.
    notes
        Sentences worth showing, for example that a hint was refused.
    """

    reason: Reason
    solver: str
    version: str
    status: str
    limit: Limit | None = None
    x: NDArray[np.float64] | None = None
    objective: float | None = None
    bound: float | None = None
    row_dual: NDArray[np.float64] | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


def check_native(solver: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a native option that the solver does not have, naming the nearest one.

    Raises
    ------
    ValueError
        A name of ``given`` is not in ``known``.
    """
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
            raise ValueError(f"{solver} has no option {name!r}; the nearest is {near[0] if near else 'none'!r}")


def effective_time(options: Options, control: Control | None) -> float | None:
    """Seconds a solver may run: the smaller of the option and what the run has left; None without a limit."""
    left = control.remaining if control is not None else float("inf")
    limit = min(left, options.time_limit if options.time_limit is not None else float("inf"))
    return None if limit == float("inf") else max(limit, 0.0)
