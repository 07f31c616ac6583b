"""Replay of linear-programming bounds without a solver, safe against rounding.

For min c x + offset, L <= A x <= U, l <= x <= u, *any* y gives the weak-duality bound

    offset + sum_r (y_r L_r if y_r > 0 else y_r U_r) + sum_j min(d_j l_j, d_j u_j),   d = c - A^T y.       (1)

In floating point, d_j is computed with an error of at most gamma_k (|c_j| + sum_r |a_rj y_r|), k = entries of the column
plus two (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3). (1) is evaluated with the worse end of
that interval, every product rounded outwards, and an exactly rounded sum, so the number returned is never above the true
bound; how good y is decides only how tight it is (Neumaier and Shcherbina, Mathematical Programming 99, 2004). Where
products overflow or underflow that error bound does not hold: duals that could underflow are taken as zero (any y is
allowed), columns that still could get the worst underflow added, and an overflow proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.linear import LinearModel

__all__ = ["lp_dual_certificate", "replay_lp_dual", "safe_dual_bound"]

_UNIT = 2.0**-53
_SMALL = 2.0**-500  # products of numbers above this do not underflow


def lp_dual_certificate(method: str, dual: NDArray[np.float64]) -> dict[str, Any]:
    """Certificate of a linear formulation's row duals (rows,): the nonzero ones, by row number."""
    rows = np.flatnonzero(dual)
    return {"kind": "lp-dual", "method": method, "rows": rows.tolist(), "values": np.asarray(dual)[rows].tolist()}


def replay_lp_dual(model: LinearModel, certificate: Mapping[str, Any]) -> float:
    """Bound on the optimum of ``model`` (and of any model it relaxes) that a certificate proves.

    Raises
    ------
    ValueError
        The certificate does not belong to a model of this size, or holds a number that is not finite.
    """
    try:
        rows = np.asarray(certificate["rows"], dtype=np.int64).ravel()
        values = np.asarray(certificate["values"], dtype=np.float64).ravel()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the lp-dual certificate is damaged: {error}") from error
    if rows.shape != values.shape or (rows.size and (rows.min() < 0 or rows.max() >= model.n_rows)):
        raise ValueError(f"the lp-dual certificate does not fit a model with {model.n_rows} rows")
    if not np.isfinite(values).all():
        raise ValueError("the lp-dual certificate holds a number that is not finite")
    dual = np.zeros(model.n_rows)
    dual[rows] = values
    return safe_dual_bound(model, dual)


def safe_dual_bound(model: LinearModel, dual: NDArray[np.float64]) -> float:
    """Rounding-safe value of (1) for row duals (rows,) in the model's sense.

    Returns a lower bound for a minimisation and an upper bound for a maximisation; infinite when the duals prove nothing.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        products, terms = _parts(model, np.asarray(dual, np.float64))
    sign = 1.0 if model.sense == "min" else -1.0
    try:
        total = math.fsum([*products.tolist(), *terms.tolist(), sign * model.offset])
    except (OverflowError, ValueError):  # the sum overflows, or adds opposite infinities
        return -sign * math.inf
    return -sign * math.inf if math.isnan(total) else sign * math.nextafter(total, -math.inf)


def _parts(model: LinearModel, dual: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(rows,) and (columns,) terms of (1) as a minimisation, each rounded down; ``nan`` where something overflows."""
    sign = 1.0 if model.sense == "min" else -1.0
    y = sign * dual
    # A dual that leans on an infinite side proves nothing: drop it, any y is allowed.
    leaning = ((y > 0) & np.isinf(model.row_lower)) | ((y < 0) & np.isinf(model.row_upper))
    y = np.where(leaning | (abs(y) < _SMALL), 0.0, y)
    products = _product(y, np.where(y > 0, model.row_lower, model.row_upper))

    cost, transposed = sign * model.cost, model.matrix.T.tocsr()
    reduced = cost - transposed @ y
    entries = np.diff(transposed.indptr) + 2
    gamma = entries * _UNIT / (1.0 - entries * _UNIT)
    # The computed magnitude errs by the same factor; doubling gamma covers it for any column a machine can hold.
    error = 2.0 * gamma * (abs(cost) + abs(transposed) @ abs(y))
    if (abs(transposed.data[transposed.data != 0]) < _SMALL).any():
        error += entries * math.ulp(0.0)
    low, high = _down(reduced - error), -_down(-(reduced + error))
    corners = [_product(d, bound) for d in (low, high) for bound in (model.lower, model.upper)]
    return products, np.minimum.reduce(corners)


def _product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """a * b rounded down, where 0 times infinity is 0."""
    zero = (a == 0) | (b == 0)
    return np.where(zero, 0.0, np.nextafter(np.where(zero, 1.0, a) * np.where(zero, 1.0, b), -np.inf))


def _down(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The next smaller number; a difference that is exactly zero stays."""
    return np.where(values == 0, 0.0, np.nextafter(values, -np.inf))
