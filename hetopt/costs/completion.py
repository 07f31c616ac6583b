"""A matrix of measurements (jobs by device types) of which some are missing, completed, each estimate with its error.

Nothing is said of entries to which no measurement leads: they stay ``nan``. Methods work on logarithms where the numbers are
seconds or rates, which differ by factors, and on the numbers themselves where they are parts of one (slowdowns). Methods:

* ``mean``: a device's mean, and with logarithms the job's own mean distance from it (additive, least squares by turns).
* ``neighbours``: the three most similar jobs on the entries both have, weighted by 1 / (distance + 1e-4).
* ``ridge``: regression on the jobs that are measured everywhere.
* ``low-rank``: U V^T by alternating ridge regressions; with logarithms, of what ``mean`` leaves.
* ``soft``: singular values lowered by a threshold again and again (soft-impute), likewise.
* ``rank-one``: log p = a_job + b_type of least sum of absolute errors, by a linear program; needs logarithms.
* ``monotone``: from one type to another by the non-decreasing piecewise-linear map of least absolute error, by linear programs.

Which method is best differs from table to table: each is tried on measured entries that are held out, and ``auto`` takes the
one with the least mean error there. Sources: Narayanan et al., OSDI 2020 (low rank for co-location); Mazumder, Hastie,
Tibshirani, JMLR 11, 2010 (soft-impute); Shokry and Youssef, arXiv 2407.16923 (maps between devices).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.costs.fits import monotone_map, rank_one
from hetopt.errors import InputError, nearest

__all__ = ["METHODS", "Completed", "complete", "held_out"]

Floats = NDArray[np.float64]
FOLDS = 5
SINGLE = 40  # measured entries up to which each is held out by itself
NEIGHBOURS = 3
RANK = 3
SHRINK = 0.1  # ridge penalty of the factors of a low-rank fit
ROUNDS = 30
LEAST = 3  # held-out entries of a type from which its own error is told


@dataclass(frozen=True, eq=False)
class Completed:
    """A completed matrix of n jobs and m types.

    Attributes
    ----------
    values
        (n, m) measured entries as they were, estimates, ``nan`` where nothing is known.
    measured
        (n, m) whether an entry was measured.
    error
        (n, m) root mean square error of held-out entries of the type: relative with logarithms, else absolute; 0 where measured.
    method
        Which method made the estimates.
    tried
        Mean absolute error of each method on held-out entries (relative with logarithms); ``nan`` where it says nothing.
    """

    values: Floats
    measured: NDArray[np.bool_]
    error: Floats
    method: str
    tried: Mapping[str, float]


def complete(values: ArrayLike, method: str = "auto", *, logarithms: bool = True) -> Completed:
    """Complete a matrix.

    Parameters
    ----------
    values
        (n, m) measurements, ``nan`` where there is none; above 0 with logarithms.
    method
        One of :data:`METHODS`, or ``auto``.

    Raises
    ------
    InputError
        No such method, nothing measured, a number that cannot be, or a method that needs logarithms without them.
    """
    given = np.array(values, np.float64)
    if given.ndim != 2:
        raise InputError(f"the matrix has shape {given.shape}, expected jobs by types")
    measured = ~np.isnan(given)
    seen = given[measured]
    if not seen.size or not np.isfinite(seen).all() or (logarithms and (seen <= 0).any()):
        raise InputError(f"expected at least one measurement, all finite{' and above 0' if logarithms else ''}")
    names = [name for name in METHODS if logarithms or name not in ("rank-one", "monotone")]
    if method != "auto" and method not in names:
        raise InputError(f"there is no method {method!r} for this matrix; {nearest(method, names, what='methods')}")
    matrix = np.log(given) if logarithms else given
    tested = {name: held_out(matrix, METHODS[name], logarithms) for name in (names if method == "auto" else [method])}
    back = np.exp if logarithms else np.asarray
    errors = {}
    for name, found in tested.items():
        with np.errstate(over="ignore"):
            errors[name] = np.abs(back(found - matrix) - 1.0) if logarithms else np.abs(found - matrix)
    tried = {
        name: float(np.mean(e[~np.isnan(e)])) if (~np.isnan(e)).any() else float("nan") for name, e in errors.items()
    }
    known = {name: int((~np.isnan(found)).sum()) for name, found in tested.items()}
    best = min(
        tried, key=lambda name: (-known[name], tried[name] if tried[name] == tried[name] else np.inf, names.index(name))
    )
    filled = np.where(measured, given, back(METHODS[best](matrix, logarithms)))
    return Completed(filled, measured, np.where(measured, 0.0, _spread(errors[best])), best, tried)


def held_out(matrix: Floats, method: Method, logarithms: bool) -> Floats:
    """(n, m) what a method says of each measured entry when it does not see it; ``nan`` elsewhere.

    Entries are held out one by one where they are few, else in five parts, every fifth entry of the matrix read along its
    diagonals, so that no row or column is emptied at once.
    """
    rows, columns = np.nonzero(~np.isnan(matrix))
    parts = len(rows) if len(rows) <= SINGLE else FOLDS
    order = np.lexsort((rows, (rows + columns) % max(1, matrix.shape[1])))
    out = np.full(matrix.shape, np.nan)
    for part in range(parts):
        hidden = order[part::parts]
        left = matrix.copy()
        left[rows[hidden], columns[hidden]] = np.nan
        if np.isnan(left).all():
            continue
        out[rows[hidden], columns[hidden]] = method(left, logarithms)[rows[hidden], columns[hidden]]
    return out


def _spread(error: Floats) -> Floats:
    """(m,) root mean square of errors (n, m) by column, of all where a column has few; ``nan`` where there is none."""
    known = ~np.isnan(error)
    square = np.where(known, error, 0.0) ** 2
    count = known.sum(axis=0)
    overall = np.sqrt(square.sum() / max(int(count.sum()), 1)) if count.any() else np.nan
    own = np.sqrt(square.sum(axis=0) / np.maximum(count, 1))
    return np.asarray(np.where(count >= LEAST, own, overall), np.float64)


def mean(matrix: Floats, logarithms: bool) -> Floats:
    """The type's mean; with logarithms the job's own mean distance from it as well."""
    known = ~np.isnan(matrix)
    filled = np.where(known, matrix, 0.0)
    column, row = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[0])
    for _ in range(ROUNDS if logarithms else 1):
        column = np.where(known, filled - row[:, None], 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        if logarithms:
            row = np.where(known, filled - column, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    out = row[:, None] + np.where(known.any(axis=0), column, np.nan)
    return np.where(known.sum(axis=1)[:, None] > 0, out, np.nan) if logarithms else out


def neighbours(matrix: Floats, logarithms: bool) -> Floats:
    """Weighted mean of the most similar jobs that have the entry; with logarithms after their mean distance is taken off."""
    known = ~np.isnan(matrix)
    here, filled = known.astype(np.float64), np.where(known, matrix, 0.0)
    shared = here @ here.T
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = (filled @ here.T - here @ filled.T) / shared  # of job a from job b
        square = ((filled**2) @ here.T + here @ (filled**2).T - 2.0 * filled @ filled.T) / shared
    distance = np.maximum(square - apart**2 if logarithms else square, 0.0)
    distance[shared == 0] = np.inf
    np.fill_diagonal(distance, np.inf)
    offset = np.where(shared > 0, apart, 0.0) if logarithms else np.zeros_like(shared)
    out = mean(matrix, logarithms)
    for j in range(matrix.shape[1]):
        have = np.flatnonzero(known[:, j])
        if not len(have):
            continue
        d = distance[:, have]
        near = np.argsort(d, axis=1, kind="stable")[:, :NEIGHBOURS]
        weight = 1.0 / (np.take_along_axis(d, near, axis=1) + 1e-4)
        said = matrix[have[near], j] + np.take_along_axis(offset[:, have], near, axis=1)
        total = weight.sum(axis=1)
        some = total > 0
        out[some, j] = (weight * said).sum(axis=1)[some] / total[some]
    return out


def ridge(matrix: Floats, logarithms: bool) -> Floats:
    """Each job from its own entries by regression on the jobs that have all of them; ``mean`` where there are none."""
    known = ~np.isnan(matrix)
    whole = known.all(axis=1)
    out = mean(matrix, logarithms)
    if not whole.any():
        return out
    reference = matrix[whole]
    centre = reference.mean(axis=0)
    for i in np.flatnonzero(~whole & known.any(axis=1)).tolist():
        have = known[i]
        x = reference[:, have]
        level = (matrix[i, have] - x.mean(axis=0)).mean() if logarithms else 0.0
        within = x - (x.mean(axis=1, keepdims=True) if logarithms else 0.0)
        middle = within.mean(axis=0)
        rest = reference - (x.mean(axis=1, keepdims=True) if logarithms else 0.0)
        own = matrix[i, have] - (matrix[i, have].mean() if logarithms else 0.0)
        centred = within - middle
        penalty = 0.05 * max(1, int(have.sum()))
        weight = np.linalg.solve(centred @ centred.T + penalty * np.eye(len(x)), rest - rest.mean(axis=0))
        base = centre + level if logarithms else centre
        out[i] = base + ((own - middle) @ centred.T) @ weight
    return out


def low_rank(
    matrix: Floats, logarithms: bool, *, rank: int = RANK, shrink: float = SHRINK, rounds: int = ROUNDS
) -> Floats:
    """U V^T with a ridge penalty, by turns; with logarithms of what ``mean`` leaves over."""
    base = mean(matrix, True) if logarithms else np.zeros_like(matrix)
    known = ~np.isnan(matrix)
    left = np.where(known, matrix - base, 0.0)
    random = np.random.default_rng(0)
    u, v = random.random((matrix.shape[0], rank)), random.random((matrix.shape[1], rank))
    for _ in range(rounds):
        u = _ridge_rows(left, known, v, shrink)
        v = _ridge_rows(left.T, known.T, u, shrink)
    return base + u @ v.T


def _ridge_rows(left: Floats, known: NDArray[np.bool_], factor: Floats, shrink: float) -> Floats:
    """(n, k) factor of the rows for that of the columns (m, k)."""
    gram = np.einsum("ij,jk,jl->ikl", known.astype(np.float64), factor, factor)
    gram += shrink * np.eye(factor.shape[1])
    return np.asarray(np.linalg.solve(gram, (left @ factor)[:, :, None])[:, :, 0])


def soft(matrix: Floats, logarithms: bool) -> Floats:
    """Soft-impute at a threshold of a tenth of the largest singular value; with logarithms of what ``mean`` leaves over."""
    base = mean(matrix, True) if logarithms else mean(matrix, False)
    known = ~np.isnan(matrix)
    left = np.where(known, matrix - base, 0.0)
    guess = np.zeros_like(left)
    threshold = 0.1 * float(np.linalg.norm(left, 2)) if left.any() else 0.0
    for _ in range(ROUNDS):
        u, s, vt = np.linalg.svd(np.where(known, left, guess), full_matrices=False)
        guess = (u * np.maximum(s - threshold, 0.0)) @ vt
    return base + guess


Method = Callable[[Floats, bool], Floats]
METHODS: Mapping[str, Method] = {
    "mean": mean,
    "neighbours": neighbours,
    "ridge": ridge,
    "low-rank": low_rank,
    "soft": soft,
    "rank-one": lambda matrix, logarithms: rank_one(matrix),
    "monotone": lambda matrix, logarithms: monotone_map(matrix),
}
