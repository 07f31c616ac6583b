"""Cheapest assignment of jobs to unrelated machines under a deadline, at cost at most the optimum's and twice the deadline.

The generalised assignment problem: every job has a time and a cost on each machine, and every machine ends by the deadline.
Whether a plan within the deadline exists is already hard, so the approximation keeps the cost and stretches the deadline.
Not for plans that must keep the deadline exactly: those want an integer program.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.rounding import shmoys_tardos
from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times

__all__ = ["CostPlan", "cheapest_by_deadline", "cost_bound"]


class CostPlan(NamedTuple):
    """A plan at most as costly as the best one that keeps the deadline.

    Attributes
    ----------
    plan
        (n,) machine of each job; loads are at most twice the deadline.
    lower_bound
        Every plan that keeps the deadline costs at least this much (:func:`cost_bound` of ``weights``).
    weights
        (m,) price of each machine's time, >= 0.
    x
        (n, m) the shares that were rounded.
    """

    plan: IntArray
    lower_bound: float
    weights: FloatArray
    x: FloatArray


def cheapest_by_deadline(
    time: ArrayLike, cost: ArrayLike, deadline: float, *, ready: ArrayLike | None = None
) -> CostPlan:
    """Solve the relaxation in shares and round it: (cost, 2 deadline).

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    cost
        (n, m) cost of each job on each machine, finite where it can end by the deadline.
    deadline
        Moment by which the machines should end.
    ready
        (m,) times from which the machines are free; zero if None.

    Raises
    ------
    ValueError
        When the arrays are malformed, or no shares keep the deadline (hence no plan does).
    RuntimeError
        When the linear program was not solved.

    Notes
    -----
    One linear program with n m columns, O(n + m) rows, then :func:`~hetopt.algorithms.rounding.shmoys_tardos`. Source:
    Shmoys and Tardos, Mathematical Programming 62 (1993).
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    matrix, prices, room = _check(time, cost, deadline, ready)
    n, m = matrix.shape
    job, machine = np.nonzero(matrix <= room)
    if np.unique(job).size < n:
        late = np.setdiff1d(np.arange(n), job)[0]
        raise ValueError(f"job {late} cannot end by the deadline {deadline} on any machine")
    x = np.zeros((n, m))
    weights = np.zeros(m)
    if n:
        columns = np.arange(len(job))
        whole = coo_array((np.ones(len(job)), (job, columns)), shape=(n, len(job)))
        # In units of the deadline and of the typical cost, so that the solver's absolute tolerances are relative ones.
        unit = max(float(room.max()), 0.0) or 1.0
        scale = float(np.abs(prices[job, machine]).mean()) or 1.0
        loads = coo_array((matrix[job, machine] / unit, (machine, columns)), shape=(m, len(job)))
        answer = linprog(
            prices[job, machine] / scale,
            loads.tocsr(),
            np.maximum(room, 0.0) / unit,
            whole.tocsr(),
            np.ones(n),
            (0, None),
            "highs-ds",
        )
        if answer.status == 2:
            raise ValueError(f"the jobs cannot all end by the deadline {deadline}, not even in shares")
        if answer.status != 0:
            raise RuntimeError(f"the linear program was not solved: {answer.message}")
        x[job, machine] = np.maximum(answer.x, 0.0)
        x /= x.sum(axis=1, keepdims=True)
        weights = np.maximum(-answer.ineqlin.marginals, 0.0) * (scale / unit)
    plan = shmoys_tardos(matrix, prices, x, ready=ready)
    return CostPlan(plan, cost_bound(matrix, prices, deadline, weights, ready=ready), weights, x)


def cost_bound(
    time: ArrayLike, cost: ArrayLike, deadline: float, weights: ArrayLike, *, ready: ArrayLike | None = None
) -> float:
    """Lower bound on the cost of every plan that keeps the deadline, from prices of the machines' time.

    Paying ``weights_i`` per unit of time on machine i, a plan that keeps the deadline pays at most ``sum_i weights_i
    room_i``, where ``room_i = deadline - ready_i``. So its cost is at least

        sum_j min {cost_ji + weights_i time_ji : time_ji <= room_i} - sum_i weights_i room_i

    for any weights >= 0. Evaluated in floating point with every rounding error bounded and taken off.

    Parameters
    ----------
    weights
        (m,) prices >= 0. The other arguments are as in :func:`cheapest_by_deadline`.

    Returns
    -------
    float
        The bound; ``inf`` when some job cannot end by the deadline.

    Raises
    ------
    ValueError
        When arrays are malformed or a weight is negative or not finite.
    """
    matrix, prices, room = _check(time, cost, deadline, ready)
    price = np.asarray(weights, dtype=np.float64)
    if price.shape != room.shape or not (np.isfinite(price) & (price >= 0)).all():
        raise ValueError(f"weights must be {len(room)} finite numbers from 0 on")
    allowed = matrix <= room
    paid = np.where(allowed, matrix, 0.0) * price
    own = np.where(allowed, prices, 0.0)
    # Two roundings to a pair, each at most half an epsilon of what it rounds; then one each for the exact sums.
    epsilon = np.finfo(float).eps
    least = np.where(allowed, own + paid - 2 * epsilon * (np.abs(own) + paid), np.inf).min(axis=1)
    rent = np.maximum(room, 0.0) * price * (1 + 2 * epsilon)
    if np.isinf(least).any():
        return math.inf
    return math.nextafter(math.fsum([*least.tolist(), *(-rent).tolist()]), -math.inf)


def _check(
    time: ArrayLike, cost: ArrayLike, deadline: float, ready: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Times, costs and what each machine can process by the deadline, rounded up."""
    matrix = check_times(time)
    start = check_ready(ready, matrix.shape[1])
    prices = np.asarray(cost, dtype=np.float64)
    if prices.shape != matrix.shape:
        raise ValueError(f"costs have shape {prices.shape}, times {matrix.shape}")
    if not 0 <= deadline < math.inf:
        raise ValueError(f"the deadline must be a number from 0 on, not {deadline}")
    room = np.where(start > 0, np.nextafter(deadline - start, np.inf), float(deadline))
    odd = np.argwhere((matrix <= room) & ~np.isfinite(prices))
    if odd.size:
        raise ValueError(f"cost[{odd[0, 0]}, {odd[0, 1]}] is {prices[odd[0, 0], odd[0, 1]]}")
    return matrix, prices, room
