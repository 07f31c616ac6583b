"""A round's program (1)-(4) of water filling, by three solvers: an interior point method, cvxpy, and a dense simplex."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from formulations.sharing._cluster import cluster_of, spread
from formulations.sharing._stated import limits
from formulations.sharing._water_rounds import Round, Solver
from hetopt.control import Control
from hetopt.instance import Instance
from hetopt.solvers.base import Options

__all__ = ["by_cone", "by_cvxpy", "by_simplex"]

Floats = NDArray[np.float64]


def by_cone(control: Control) -> Solver:
    """Round programs by an interior point method, whose prices are above 0 for all jobs that cannot rise."""

    def solve(instance: Instance, gain: Floats, level: Floats, weight: Floats) -> Round | None:
        from hetopt.solvers.cone import solve_cone

        cluster = cluster_of(instance)
        i, j = cluster.job, cluster.kind
        n, m, p = len(level), len(cluster.workers), len(i)
        each, pairs = np.arange(n), np.arange(p)
        # Shares in units of the most there can be, workers in those that can be used: jobs far larger than the cluster, or a type
        # far larger than all jobs, leave coefficients near one.
        used = np.minimum(cluster.workers, cluster.scale.sum())
        part = np.minimum(1.0, used[j] / cluster.scale[i])
        best = np.zeros(n)
        np.maximum.at(best, i, gain[i, j] * part)
        unit = np.maximum(level, best)  # rows near one
        rows, columns = np.concatenate([i, each]), np.concatenate([pairs, np.full(n, p)])
        values = np.concatenate([-gain[i, j] * part / unit[i], weight / unit])
        levels = sparse.csr_array((values, (rows, columns)), (n, p + 1))
        turns = sparse.csr_array((part, (i, pairs)), (n, p + 1))
        workers = sparse.csr_array((cluster.scale[i] * part / used[j], (j, pairs)), (m, p + 1))
        positive = sparse.csr_array((-np.ones(p), (pairs, pairs)), (p, p + 1))
        cost = np.zeros(p + 1)
        cost[-1] = -1.0
        right = np.concatenate([-level / unit, np.ones(n + m), np.zeros(p)])
        answer = solve_cone(
            cost, sparse.vstack([levels, turns, workers, positive]), right, nonnegative=2 * n + m + p, cones=[], control=control,
            tolerance=1e-11,
        )  # fmt: skip
        if answer.x is None or answer.dual is None:
            return None
        dual = np.maximum(answer.dual, 0.0)
        scarce = cluster.workers < cluster.scale.sum()  # else (3) implies (4), and the price is 0
        prices = np.where(scarce, dual[2 * n : 2 * n + m] / used, 0.0)
        return Round(spread(instance, answer.x[:p] * part), float(answer.x[p]), dual[:n] / unit, prices)

    return solve


def by_cvxpy(control: Control) -> Solver:
    """Round programs (1)-(4) in cvxpy's words, for reading and as a second opinion."""

    def solve(instance: Instance, gain: Floats, level: Floats, weight: Floats) -> Round | None:
        import cvxpy as cp

        from hetopt.solvers.cvxpy import solve_problem

        cluster, unit = cluster_of(instance), np.maximum(level, gain.max(axis=1))  # rows near one
        x, c = cp.Variable(gain.shape, nonneg=True), cp.Variable()
        rise = cp.sum(cp.multiply(gain / unit[:, None], x), axis=1) >= level / unit + cp.multiply(
            weight / unit, c
        )  # (1), (2)
        turns, workers = limits(cluster, x)  # (3), (4)
        whole = cp.Problem(cp.Maximize(c), [rise, turns, workers])
        native = {"solver": "CLARABEL", **dict.fromkeys(("tol_feas", "tol_gap_abs", "tol_gap_rel"), 1e-11)}
        if solve_problem(whole, Options(native=native), control).x is None:
            return None
        prices = np.maximum(rise.dual_value, 0.0) / unit, np.maximum(workers.dual_value, 0.0)
        return Round(np.asarray(x.value), float(c.value), *prices)

    return solve


def by_simplex(instance: Instance, gain: Floats, level: Floats, weight: Floats) -> Round | None:
    """A round's program by another solver, dense; for tiny instances."""
    from scipy.optimize import linprog

    cluster = cluster_of(instance)
    n, m = gain.shape
    rows = np.zeros((2 * n + m, n * m + 1))
    for i in range(n):
        rows[i, i * m : (i + 1) * m] = -gain[i]
        rows[n + i, i * m : (i + 1) * m] = 1.0
        rows[2 * n + np.arange(m), i * m + np.arange(m)] = cluster.scale[i]
    rows[:n, -1] = weight
    right = np.concatenate([-level, np.ones(n), cluster.workers])
    bounds = [(0, 1 if good else 0) for good in (cluster.rate > 0).ravel().tolist()] + [(0, None)]
    found = linprog(np.r_[np.zeros(n * m), -1.0], rows, right, bounds=bounds, method="highs-ds")
    if found.status != 0:
        return None
    dual = np.maximum(-found.ineqlin.marginals, 0.0)
    return Round(found.x[:-1].reshape(n, m), float(found.x[-1]), dual[:n], dual[2 * n :])
