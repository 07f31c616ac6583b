"""Seconds predicted from measurements: convex piecewise-linear fits by a linear program, and the critical path over ranks.

For kernels and collectives whose seconds grow with a size, and for a step in which ranks wait for each other at collectives.
Neither replaces a measurement of the whole: contention between streams is not in it. Source: Z. Lin and others, Towards
universal performance modeling for machine learning training on multi-GPU platforms, IEEE TPDS 2024 (critical path with
synchronisation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.errors import InputError

__all__ = ["Fit", "Operation", "critical_path", "piecewise_linear"]


@dataclass(frozen=True)
class Fit:
    """f(x) = base + slope x + sum_k bend_k max(0, x - knot_k), and the mean relative error at the measurements."""

    base: float
    slope: float
    knots: tuple[float, ...]
    bends: tuple[float, ...]
    error: float

    def __call__(self, size: ArrayLike) -> NDArray[np.float64]:
        """Seconds of sizes of any shape."""
        x = np.asarray(size, np.float64)
        over = np.maximum(x[..., None] - np.array(self.knots), 0.0) @ np.array(self.bends)
        total: NDArray[np.float64] = self.base + self.slope * x + over
        return total


def piecewise_linear(size: ArrayLike, seconds: ArrayLike, knots: Sequence[float] = ()) -> Fit:
    """The convex, non-decreasing fit of least mean relative error |f(x) / y - 1|, exactly, by a linear program.

    Parameters
    ----------
    size, seconds
        (n,) measured sizes, 0 or more, and seconds above 0.
    knots
        Sizes at which the slope may rise; none gives ``base + slope x``.

    Raises
    ------
    InputError
        Nothing is measured, a number is out of range, or a knot is no size above 0.
    """
    from scipy.optimize import linprog

    x, y = np.asarray(size, np.float64).ravel(), np.asarray(seconds, np.float64).ravel()
    if not len(x) or x.shape != y.shape or not (np.isfinite(x) & (x >= 0) & np.isfinite(y) & (y > 0)).all():
        raise InputError("expected as many sizes, 0 or more, as seconds, above 0, and at least one of each")
    bend = np.array(sorted(set(map(float, knots))), np.float64)
    if not (np.isfinite(bend) & (bend > 0)).all():
        raise InputError(f"the knots are {list(knots)}, expected sizes above 0")
    unit = float(x.max()) or 1.0  # sizes near one for the solver
    basis = np.column_stack([np.ones_like(x), x / unit, np.maximum(x[:, None] - bend, 0.0) / unit]) / y[:, None]
    n, k = basis.shape
    scale = 1.0 / np.maximum(basis.max(axis=0), 1e-300)  # and columns
    basis = basis * scale
    ones = np.eye(n)
    answer = linprog(
        np.concatenate([np.zeros(k), np.full(n, 1.0 / n)]),
        A_ub=np.block([[basis, -ones], [-basis, -ones]]),
        b_ub=np.concatenate([np.ones(n), -np.ones(n)]),
        method="highs",
    )
    if answer.x is None:
        raise InputError(f"the fit failed: {answer.message}")
    found = answer.x[:k] * scale
    error = float(np.abs(basis @ answer.x[:k] - 1.0).mean())
    bends = tuple((found[2:] / unit).tolist())
    return Fit(float(found[0]), float(found[1]) / unit, tuple(bend.tolist()), bends, error)


@dataclass(frozen=True)
class Operation:
    """One operation of a rank.

    It starts when the one before it on its ``stream`` and all those named in ``after`` (of the same rank) have ended. Operations
    of several ranks with the same ``collective`` start together, when the last of them could, and take the longest's seconds.
    """

    name: str
    seconds: float
    stream: str = "compute"
    after: tuple[str, ...] = ()
    collective: str | None = None


def critical_path(ranks: Sequence[Sequence[Operation]]) -> tuple[float, list[tuple[int, str]]]:
    """Seconds until all ranks have ended, and the chain of (rank, operation) that takes them, first to last.

    Raises
    ------
    InputError
        Two operations of a rank have one name, one waits for a name that is not there, or operations wait for each other in a
        circle (ranks that meet collectives in different orders do); the message names them.
    """
    before: dict[tuple[int, str], list[tuple[int, str]]] = {}
    of: dict[tuple[int, str], Operation] = {}
    meets: dict[str, list[tuple[int, str]]] = {}
    for r, operations in enumerate(ranks):
        last: dict[str, str] = {}
        for one in operations:
            here = (r, one.name)
            if here in of:
                raise InputError(f"rank {r} has two operations {one.name!r}; names are unique in a rank")
            if not 0 <= one.seconds < np.inf:
                raise InputError(
                    f"operation {one.name!r} of rank {r} takes {one.seconds!r} seconds, expected 0 or more"
                )
            of[here] = one
            before[here] = [(r, name) for name in ((last[one.stream],) if one.stream in last else ()) + one.after]
            last[one.stream] = one.name
            if one.collective is not None:
                meets.setdefault(one.collective, []).append(here)
    for here, waits in before.items():
        for there in waits:
            if there not in of:
                raise InputError(
                    f"operation {here[1]!r} of rank {here[0]} waits for {there[1]!r}, which the rank does not have"
                )
    end: dict[tuple[int, str], float] = {}
    cause: dict[tuple[int, str], tuple[int, str] | None] = {}
    left = list(of)
    while left:
        waiting = []
        for here in left:
            if here in end:
                continue
            group = meets[str(of[here].collective)] if of[here].collective is not None else [here]
            if any(there not in end for one in group for there in before[one]):
                waiting.append(here)
                continue
            needed = [there for one in group for there in before[one]]
            latest = max(needed, key=lambda there: end[there], default=None)
            longest = max(of[one].seconds for one in group)
            for member in group:
                end[member], cause[member] = (end[latest] if latest is not None else 0.0) + longest, latest
        if len(waiting) == len(left):
            told = ", ".join(f"{name!r} of rank {r}" for r, name in waiting[:6])
            raise InputError(f"these operations wait for each other: {told}")
        left = waiting
    if not end:
        return 0.0, []
    at: tuple[int, str] | None = max(end, key=lambda here: end[here])
    total, path = end[at], []  # type: ignore[index]
    while at is not None:
        path.append(at)
        at = cause[at]
    return total, path[::-1]
