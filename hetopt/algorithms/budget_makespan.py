"""Least makespan of jobs on unrelated machines within a budget for their cost: plan at most twice the bound, cost kept.

Not for plans with memory or task limits, and not for the least cost within a deadline: rounding keeps the cost and stretches
the deadline, so only the question that holds the cost fixed gets a plan that keeps its promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.deadline_lp import deadline_relaxation
from hetopt.algorithms.generalized_assignment import cheapest_by_deadline, cost_bound
from hetopt.algorithms.times import IntArray, check_ready, check_times, is_integral, makespan

__all__ = ["BudgetPlan", "makespan_within_budget", "refuted_deadline"]


class BudgetPlan(NamedTuple):
    """A plan within the budget and a bound on the makespan of every such plan.

    Attributes
    ----------
    plan
        (n,) machine of each job; it costs at most the budget.
    lower_bound
        Every plan within the budget takes at least this long.
    certificate
        Proof: ``{"kind": "cost-weights", "deadline": T, "weights": [...]}`` for :func:`refuted_deadline`, or one of
        :mod:`hetopt.verify.makespan_certificates`, which needs no budget.
    deadline
        Smallest deadline whose shares were rounded; ``inf`` when there was no time for any, or the cheapest plan is as fast
        as the bound.
    complete
        Whether deadline (or makespan) and bound met up to the tolerance.
    """

    plan: IntArray
    lower_bound: float
    certificate: dict[str, Any]
    deadline: float
    complete: bool


def makespan_within_budget(
    time: ArrayLike,
    cost: ArrayLike,
    budget: float,
    *,
    ready: ArrayLike | None = None,
    tolerance: float = 1e-4,
    should_stop: Callable[[], bool] | None = None,
) -> BudgetPlan:
    """Bisect deadlines by the least cost of shares that keep them; round the shares of each that is affordable.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    cost
        (n, m) cost of each job on each machine, finite where it can run.
    budget
        Most that a plan may cost.
    ready
        (m,) times from which the machines are free; zero if None.
    tolerance
        Relative distance of deadline and bound at which bisection ends; for integers it ends when they are equal.
    should_stop
        Asked before each linear program.

    Returns
    -------
    BudgetPlan
        When ``complete``, the makespan is at most ``2 (1 + 2 tolerance)`` times the bound, twice it for integers.

    Raises
    ------
    ValueError
        When the arrays are malformed, or even the cheapest machine of each job costs more than the budget together.

    Notes
    -----
    O(log(1 / tolerance)) linear programs with n m columns. Shares that cost more than the budget refute their deadline by
    their dual prices; the rounding of affordable ones costs no more than they do. Source: Shmoys and Tardos, Mathematical
    Programming 62 (1993).
    """
    matrix = check_times(time, runnable=True)
    start = check_ready(ready, matrix.shape[1])
    prices = np.where(np.isfinite(matrix), np.asarray(cost, dtype=np.float64), np.inf)
    rows = np.arange(len(matrix))

    def total(plan: IntArray) -> float:
        return math.fsum(prices[rows, plan].tolist())

    best = np.lexsort((matrix, prices), axis=1)[:, 0].astype(np.int64)  # the cheapest plan, quick where costs tie
    if not total(best) <= budget:
        raise ValueError(f"the cheapest plan costs {total(best):.12g}, more than the budget {budget:.12g}")
    point = deadline_relaxation(matrix, ready=start, should_stop=should_stop)
    bound, certificate = float(point.lower_bound), dict(point.certificate)
    shortest, deadline = makespan(matrix, best, start), math.inf
    whole = is_integral(matrix, start)
    near = 0.0 if whole else tolerance
    left, high = bound, shortest  # deadlines below ``left`` are refuted, or too close to tell; ``high`` can be kept
    trial = left  # the budget may not bind at all
    while left < high * (1 - near) and not (should_stop is not None and should_stop()):
        try:
            found = cheapest_by_deadline(matrix, prices, trial, ready=start)
        except ValueError:  # no shares keep it: the time alone is too short, by less than the relaxation told
            left = trial + 1 if whole else trial
        else:
            if found.lower_bound > budget:
                bound = max(bound, refuted_deadline(matrix, prices, budget, trial, found.weights, ready=start))
                certificate = {"kind": "cost-weights", "deadline": trial, "weights": found.weights.tolist()}
                left = bound
            elif total(found.plan) <= budget:
                high = deadline = trial
                if makespan(matrix, found.plan, start) < shortest:
                    best, shortest = found.plan, makespan(matrix, found.plan, start)
            else:  # the budget is missed by rounding noise
                left = trial + 1 if whole else trial
        trial = left + (high - left) / 2
        trial = float(math.floor(trial)) if whole else trial
        if not left < trial < high and not whole:
            break
    return BudgetPlan(best, bound, certificate, deadline, bound >= high * (1 - 2 * near))


def refuted_deadline(
    time: ArrayLike,
    cost: ArrayLike,
    budget: float,
    deadline: float,
    weights: ArrayLike,
    *,
    ready: ArrayLike | None = None,
) -> float:
    """Lower bound on the makespan of every plan within the budget, from a deadline that costs more.

    Parameters
    ----------
    weights
        (m,) prices of the machines' time, as in :func:`~hetopt.algorithms.generalized_assignment.cost_bound`.

    Returns
    -------
    float
        The deadline; for integers the next one.

    Raises
    ------
    ValueError
        When arrays are malformed, or the prices do not show that every plan by the deadline costs more than the budget.
    """
    least = cost_bound(time, cost, deadline, weights, ready=ready)
    if not least > budget:
        raise ValueError(f"these weights show costs of {least:.12g} by the deadline {deadline:.12g}, within the budget")
    matrix = check_times(time)
    return (
        float(math.floor(deadline) + 1) if is_integral(matrix, check_ready(ready, matrix.shape[1])) else float(deadline)
    )
