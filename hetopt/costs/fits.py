"""Fits of least absolute error between device types, by linear programs: one factor a job and a type, and monotone maps.

Both take logarithms, leave ``nan`` where no measurement leads, and let a few wild measurements be: an absolute error is not
squared.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Monotone", "monotone", "monotone_map", "rank_one"]

Floats = NDArray[np.float64]
ANCHORS = 3  # jobs on both types from which a map between them is fitted
KNOTS = 3  # pieces of a map at most


def rank_one(matrix: Floats) -> Floats:
    """a_i + b_j of least sum of absolute errors at the entries (n, m) that are known; ``nan`` where nothing connects i and j.

    Known entries join jobs and types; within a connected part a and b follow up to a constant that cancels, between parts nothing
    does.
    """
    from scipy import sparse
    from scipy.optimize import linprog
    from scipy.sparse.csgraph import connected_components

    n, m = matrix.shape
    i, j = np.nonzero(~np.isnan(matrix))
    e = len(i)
    graph = sparse.coo_array((np.ones(e), (i, n + j)), shape=(n + m, n + m))
    part = connected_components(graph, directed=False)[1]
    row = np.arange(e)
    fit = sparse.coo_array((np.ones(2 * e), (np.r_[row, row], np.r_[i, n + j])), shape=(e, n + m))
    eye = sparse.eye_array(e)
    value = matrix[i, j]
    level = float(value.mean())
    answer = linprog(
        np.concatenate([np.zeros(n + m), np.ones(2 * e)]),
        A_eq=sparse.hstack([fit, eye, -eye], format="csr"),
        b_eq=value - level,
        bounds=[(None, None)] * (n + m) + [(0, None)] * (2 * e),
        method="highs",
    )
    if answer.x is None:
        return np.full((n, m), np.nan)
    a, b = answer.x[:n], answer.x[n : n + m]
    return np.where(part[:n, None] == part[None, n:], level + a[:, None] + b[None, :], np.nan)


class Monotone:
    """A non-decreasing piecewise-linear map through ``knots`` that goes on with its last slopes; ``error`` is absolute, mean."""

    def __init__(self, knots: Floats, heights: Floats, error: float) -> None:
        self.knots, self.heights, self.error = knots, heights, error

    def __call__(self, x: Floats) -> Floats:
        """Images of numbers of any shape."""
        if len(self.knots) == 1:
            return np.asarray(self.heights[0] + (x - self.knots[0]))
        slope = np.diff(self.heights) / np.diff(self.knots)
        piece = np.clip(np.searchsorted(self.knots, x, side="right") - 1, 0, len(slope) - 1)
        return np.asarray(self.heights[piece] + slope[piece] * (x - self.knots[piece]))


def monotone(x: Floats, y: Floats) -> Monotone:
    """The map of least sum of absolute errors from x to y, (k,) each, exactly, by a linear program.

    With fewer than six pairs, or all at one x, it is a shift by the median difference.
    """
    from scipy.optimize import linprog

    pieces = min(KNOTS, len(x) // 3)
    knots = np.unique(np.quantile(x, np.linspace(0, 1, pieces + 1))) if pieces > 1 else x[:1]
    if len(knots) < 2:
        shift = float(np.median(y - x))
        return Monotone(np.zeros(1), np.full(1, shift), float(np.abs(y - x - shift).mean()))
    k, n = len(knots), len(x)
    at = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, k - 2)
    part = (x - knots[at]) / (knots[at + 1] - knots[at])
    basis = np.zeros((n, k))
    basis[np.arange(n), at], basis[np.arange(n), at + 1] = 1.0 - part, part
    rise = np.zeros((k - 1, k + 2 * n))
    rise[np.arange(k - 1), np.arange(k - 1)], rise[np.arange(k - 1), np.arange(1, k)] = 1.0, -1.0
    answer = linprog(
        np.concatenate([np.zeros(k), np.ones(2 * n)]),
        A_ub=rise,
        b_ub=np.zeros(k - 1),
        A_eq=np.hstack([basis, np.eye(n), -np.eye(n)]),
        b_eq=y,
        bounds=[(None, None)] * k + [(0, None)] * (2 * n),
        method="highs",
    )
    return Monotone(knots, answer.x[:k], float(answer.fun) / n)


def monotone_map(matrix: Floats) -> Floats:
    """Each missing entry (n, m) from the type whose map to it fits best among those that the job has; ``nan`` where none has."""
    known = ~np.isnan(matrix)
    n, m = matrix.shape
    out, best = np.full((n, m), np.nan), np.full((n, m), np.inf)
    for j in range(m):
        for k in range(m):
            both = known[:, j] & known[:, k]
            if j == k or both.sum() < ANCHORS:
                continue
            found = monotone(matrix[both, k], matrix[both, j])
            better = known[:, k] & (found.error < best[:, j])
            out[better, j] = found(matrix[better, k])
            best[better, j] = found.error
    return out
