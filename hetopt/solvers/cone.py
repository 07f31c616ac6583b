"""Clarabel with arrays: conic programs that are built sparse, without a modelling language in between.

    minimise  c y   subject to   b - A y  in  K = nonnegative numbers x second-order cones

For formulations that have their own proof and only need a good point and its duals; what is returned is the solver's word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hetopt.control import Control
from hetopt.solvers.base import SolverMissing
from hetopt.solvers.quiet import quiet

__all__ = ["ConeAnswer", "solve_cone"]


@dataclass(frozen=True)
class ConeAnswer:
    """What came of it: the point y and the duals (rows,), None where there is no good one; the solver, and the limit it met."""

    x: NDArray[np.float64] | None
    dual: NDArray[np.float64] | None
    solver: str
    limit: str | None


def solve_cone(
    cost: ArrayLike,
    matrix: Any,
    right: ArrayLike,
    *,
    nonnegative: int,
    cones: Sequence[int],
    control: Control | None = None,
    tolerance: float | None = None,
) -> ConeAnswer:
    """Solve by an interior point method.

    Parameters
    ----------
    cost, matrix, right
        c (columns,), A (rows, columns) sparse, b (rows,).
    nonnegative, cones
        The first rows are nonnegative; then a second-order cone of each of these sizes.
    control
        Its remaining time limits the run.
    tolerance
        Gap and residuals to end with, where the solver's own 1e-8 is not enough; what falls short of it by a little is returned.

    Raises
    ------
    SolverMissing
        Clarabel is not installed.
    """
    try:
        import clarabel
    except ImportError as error:
        raise SolverMissing("clarabel is not installed; install it with: pip install clarabel") from error
    columns = len(np.asarray(cost))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    if tolerance is not None:
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = 1e3 * tolerance
    if control is not None and np.isfinite(control.remaining):
        settings.time_limit = max(0.01, control.remaining)
    blocks = [clarabel.NonnegativeConeT(nonnegative), *(clarabel.SecondOrderConeT(size) for size in cones)]
    with quiet():
        solver = clarabel.DefaultSolver(
            sparse.csc_matrix((columns, columns)), np.asarray(cost, np.float64), sparse.csc_matrix(matrix),
            np.asarray(right, np.float64), blocks, settings,
        )  # fmt: skip
        found = solver.solve()
    status = str(found.status)
    good = status in ("Solved", "AlmostSolved")
    who = f"clarabel {clarabel.__version__}"
    if not good:
        return ConeAnswer(None, None, who, "time" if "Time" in status else "other")
    return ConeAnswer(np.asarray(found.x), np.asarray(found.z), who, None)
