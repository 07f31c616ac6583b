"""One choice a task under budgets: Lagrangian prices, the bound they prove, and local search from the choices they make.

With prices lambda_r >= 0 of resources with budgets B_r, each task chooses by itself:

    L(lambda) = sum_t min_m (s_tm + sum_r lambda_r a_rtm) - sum_r lambda_r B_r                                         (1)

is at most the score of every choice within the budgets, and its maximum is the linear relaxation's value. :func:`price` climbs it
by a bundle of one direction (subgradients with Polyak's step); O(total modes * resources) a step. :func:`improve` exchanges one
or two tasks' modes. Sources: M. Fisher, The Lagrangian relaxation method, Management Science 27 (1981); H. Kellerer,
U. Pferschy, D. Pisinger, Knapsack Problems, 2004, ch. 11.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["improve", "lagrangian", "price"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def lagrangian(score: Floats, amount: Floats, start: Ints, budget: Floats, prices: Floats) -> tuple[float, Ints]:
    """Value of (1) and the modes (tasks,) that attain it.

    Parameters
    ----------
    score, amount
        (c,) scores and (r, c) amounts of all modes, task by task.
    start
        (tasks + 1,) first mode of each task.
    budget, prices
        (r,) each.
    """
    cost = score + prices @ amount
    least = np.minimum.reduceat(cost, start[:-1])
    of = np.repeat(np.arange(len(start) - 1), np.diff(start))
    best = np.flatnonzero(cost == least[of])
    chosen = best[np.unique(of[best], return_index=True)[1]]
    return float(least.sum() - prices @ budget), chosen


def price(
    score: Floats,
    amount: Floats,
    start: Ints,
    budget: Floats,
    should_stop: Callable[[], bool],
    on_choice: Callable[[Ints], float | None],
    on_prices: Callable[[Floats], float],
    rounds: int = 120,
) -> None:
    """Climb (1); reports the choices met, improved where they fit, and prices that raise the bound."""
    prices = np.zeros(len(budget))
    bound, value, step, idle = -np.inf, np.inf, 1.0, 0
    unit = np.where(budget > 0, budget, 1.0)
    for turn in range(rounds):
        if should_stop():
            return
        found, chosen = lagrangian(score, amount, start, budget, prices)
        if found > bound:
            bound, idle = max(bound, on_prices(prices.copy())), 0
        else:
            idle += 1
            if idle % 10 == 0:
                step /= 2
        over = (amount[:, chosen].sum(axis=1) - budget) / unit
        if turn % 30 == 0 or ((over <= 0).all() and score[chosen].sum() < value):
            plan = improve(score, amount, start, budget, chosen)
            met = on_choice(plan) if plan is not None else None
            value = value if met is None else min(value, met)
        over[(prices <= 0) & (over < 0)] = 0.0
        size = float(over @ over)
        if size == 0.0 or step < 1e-6:
            return
        aim = value if np.isfinite(value) else found + max(1.0, abs(found))
        prices = np.maximum(prices + step * max(aim - found, 1e-9 * abs(found)) / size * over / unit, 0.0)


def improve(score: Floats, amount: Floats, start: Ints, budget: Floats, chosen: Ints, rounds: int = 200) -> Ints | None:
    """Modes (tasks,) within the budgets, none of which alone can be exchanged for a better one; None when none were found.

    First what exceeds the budgets is mended at the least score for what it saves, then the best exchange is made until there is
    none: of one task, or of one for the worse and another for the better.
    """
    chosen = chosen.copy()
    of = np.repeat(np.arange(len(start) - 1), np.diff(start))
    unit = np.where(budget > 0, budget, 1.0)
    used = amount[:, chosen].sum(axis=1)
    for _ in range(4 * len(chosen)):
        over = np.maximum(used - budget, 0.0) / unit
        if not over.any():
            break
        change = (amount - amount[:, chosen[of]]) / unit[:, None]
        after = np.maximum((used / unit)[:, None] + change - (budget / unit)[:, None], 0.0)
        saved = over.sum() - after.sum(axis=0)
        worth = np.where(saved > 1e-15, np.maximum(score - score[chosen[of]], 0.0) / np.maximum(saved, 1e-15), np.inf)
        m = int(worth.argmin())
        if not np.isfinite(worth[m]):
            return None
        used = used + amount[:, m] - amount[:, chosen[of[m]]]
        chosen[of[m]] = m
    used = amount[:, chosen].sum(axis=1)
    if (used > budget).any():
        return None
    for _ in range(rounds):
        gain = score - score[chosen[of]]
        change = amount - amount[:, chosen[of]]
        fits = ((used[:, None] + change) <= budget[:, None]).all(axis=0)
        alone = np.where(fits & (gain < -1e-15), gain, 0.0)
        m = int(alone.argmin())
        pair = (m, -1) if alone[m] < 0 else _pair(gain, change, of, budget - used)
        if pair[0] < 0:
            return chosen
        for m in pair:
            if m >= 0:
                used = used + amount[:, m] - amount[:, chosen[of[m]]]
                chosen[of[m]] = m
        used = amount[:, chosen].sum(axis=1)
    return chosen


def _pair(gain: Floats, change: Floats, of: Ints, left: Floats) -> tuple[int, int]:
    """Two exchanges of different tasks that together gain and fit; (-1, -1) when there are none among the best few hundred."""
    better = np.flatnonzero(gain < -1e-15)
    better = better[np.argsort(gain[better], kind="stable")][:400]
    saving = np.flatnonzero((gain > 0) & (change < 0).any(axis=0))
    saving = saving[np.argsort(gain[saving], kind="stable")][:400]
    if not better.size or not saving.size:
        return -1, -1
    total = gain[better][:, None] + gain[saving][None, :]
    fits = np.all(change[:, better][:, :, None] + change[:, saving][:, None, :] <= left[:, None, None], axis=0)
    total = np.where(fits & (of[better][:, None] != of[saving][None, :]), total, 0.0)
    at = int(total.argmin())
    if total.ravel()[at] >= -1e-15:
        return -1, -1
    return int(better[at // len(saving)]), int(saving[at % len(saving)])
