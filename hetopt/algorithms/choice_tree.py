"""One choice a task under budgets, exactly: branch and bound with prices of the budgets at each node.

A node has fixed the modes of some tasks and struck out some modes of others. With prices lambda of the budgets
(:mod:`hetopt.algorithms.choice`, equation (1)) and d_tm >= 0, what mode m of task t costs more than the cheapest that is left,
every choice x of the node scores

    s(x) = L(lambda) + sum_t d_{t x_t} + sum_r lambda_r (B_r - a_r(x)),                                                (2)

so that one which beats the best known, U, has no mode with L(lambda) + d_tm >= U: these are struck out below the node, and a node
with L(lambda) >= U is done. Prices come from the parent and climb for a few steps towards U. Tasks whose cheapest mode changes as
they climb are those that the linear relaxation would split; the one that moves most of the budgets' worth for each mode it has
left is branched on, its modes in order of d. For two budgets and 80 tasks of 16 modes that is some ten thousand nodes.

O(modes left * rows) a step. Sources: M. Fisher, The Lagrangian relaxation method, Management Science 27 (1981), for the bound in
a tree; (2) is Lagrangian duality.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit

__all__ = ["search"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 2_000_000  # modes looked at in a call of the kernel, some hundredths of a second
CLIMB = 8  # steps of the prices at a node
FIRST = 200  # and at the root
EPS = 2.0**-52
SLACK = 2.0**-40  # of the sum of all terms at the root: scores closer than this are equal
LEFT = np.iinfo(np.int64).max  # depth at which a mode is struck out, when it is not


def search(
    score: Floats,
    amount: Floats,
    start: Ints,
    budget: Floats,
    prices: Floats,
    value: float,
    on_choice: Callable[[Ints], float | None],
    should_stop: Callable[[], bool],
    limit: int = 1_000_000,
) -> float | None:
    """A bound on the best choice, equal to it but for rounding; None when it was stopped or passed ``limit`` nodes.

    Parameters
    ----------
    score, amount, start, budget, prices
        As in :func:`hetopt.algorithms.choice.lagrangian`, none below 0; a mode of infinite score is out.
    value
        Score of the best choice known, infinity for none.
    on_choice
        Given the modes (tasks,) of a choice that seems to fit and to be better: its score, None when it does not fit.
    """
    tasks, rows = len(start) - 1, len(budget)
    of = np.repeat(np.arange(tasks), np.diff(start))
    cost = score + prices @ amount
    least = np.minimum.reduceat(cost, start[:-1])
    slack = SLACK * float(least.sum() + prices @ budget)
    best = value
    if best == np.inf:  # more than any choice, so that a node of which prices show as much has none
        best = 1.0 + 2 * float(np.maximum.reduceat(np.where(score < np.inf, score, 0.0), start[:-1]).sum()) + 2 * slack
    kept = np.flatnonzero(least.sum() - prices @ budget + cost - least[of] < best + slack)
    first = np.searchsorted(of[kept], np.arange(tasks + 1))
    if (np.diff(first) == 0).any():
        return value - 2 * slack
    unit = np.where(budget > 0, budget, np.maximum(amount.max(axis=1, initial=0.0), 1e-300))
    menu = score[kept], np.ascontiguousarray((amount[:, kept] / unit[:, None]).T), first, budget / unit
    depth = tasks + 1
    price, struck = np.zeros((depth + 1, rows)), np.full(len(kept), LEFT)
    price[0] = prices * unit
    children, ahead, task = np.zeros(len(kept), np.int64), np.zeros((depth, 2), np.int64), np.zeros(depth, np.int64)
    place, chosen = np.array([0, 1, 0]), np.zeros(tasks, np.int64)
    while limit > 0:
        if should_stop():
            return None
        found, nodes = _go(*menu, price, struck, children, ahead, task, place, chosen, best, slack, CHUNK)
        limit -= nodes
        if found == 2:
            return value - 2 * slack
        if found == 1:
            met = on_choice(kept[chosen])
            if met is not None:
                value = best = min(best, met)
    return None


@njit
def _cheapest(score, amount, start, budget, struck, price, chosen, over):  # type: ignore[no-untyped-def]
    """L(price) less what rounding can add to it, the score of the modes ``chosen``, and how much they are ``over`` budgets."""
    value, total, size = 0.0, 0.0, 0.0
    for r in range(len(budget)):
        over[r] = -budget[r]
        size += price[r] * budget[r]
    value -= size
    for t in range(len(chosen)):
        least = np.inf
        for c in range(start[t], start[t + 1]):
            if struck[c] == LEFT:
                cost = score[c]
                for r in range(len(budget)):
                    cost += price[r] * amount[c, r]
                if cost < least:
                    least = cost
                    chosen[t] = c
        value += least
        size += least
        total += score[chosen[t]]
        for r in range(len(budget)):
            over[r] += amount[chosen[t], r]
    return value - (len(chosen) + len(budget) + 4) * EPS * size, total


@njit
def _climb(score, amount, start, budget, struck, price, best, chosen, moved, value, slack, turns):  # type: ignore[no-untyped-def]
    """Prices ``best`` and their bound, how much each task ``moved``, and whether ``chosen`` fits and beats ``value``."""
    over, last = np.empty(len(budget)), np.empty(len(chosen), np.int64)
    bound, step = -np.inf, 1.0
    moved[:] = 0.0
    for turn in range(turns):
        found, total = _cheapest(score, amount, start, budget, struck, price, chosen, over)
        if found > bound:
            bound = found
            best[:] = price
        else:
            step *= 0.6 ** (CLIMB / turns)
        if bound >= value - slack:
            break
        if total < value - slack and (over <= 1e-9).all():
            return bound, True
        if turn:
            for t in range(len(chosen)):
                for r in range(len(budget)):
                    moved[t] += abs(price[r] * (amount[chosen[t], r] - amount[last[t], r]))
        last[:] = chosen
        for r in range(len(budget)):
            if price[r] <= 0.0 and over[r] < 0.0:
                over[r] = 0.0
        size = (over * over).sum()
        if size == 0.0:
            break
        aim = value - found if value < np.inf else 1.0 + abs(found)
        for r in range(len(budget)):
            price[r] = max(0.0, price[r] + step * aim / size * over[r])
    return bound, False


@njit
def _strike(score, amount, start, struck, depth, price, regret, room):  # type: ignore[no-untyped-def]
    """Strike out the modes whose regrets pass ``room``."""
    for t in range(len(start) - 1):
        least = np.inf
        for c in range(start[t], start[t + 1]):
            if struck[c] == LEFT:
                regret[c] = score[c]
                for r in range(len(price)):
                    regret[c] += price[r] * amount[c, r]
                least = min(least, regret[c])
        for c in range(start[t], start[t + 1]):
            if struck[c] == LEFT:
                regret[c] -= least + 16 * EPS * regret[c]
                if regret[c] >= room:
                    struck[c] = depth


@njit
def _pick(start, struck, moved):  # type: ignore[no-untyped-def]
    """The task to branch on: what it moved for each mode it has left, then the fewest modes; -1 when all have one."""
    pick, most, fewest = -1, -1.0, 0
    for t in range(len(moved)):
        left = 0
        for c in range(start[t], start[t + 1]):
            left += struck[c] == LEFT
        if left > 1 and (moved[t] / left > most or (moved[t] / left == most and left < fewest)):
            pick, most, fewest = t, moved[t] / left, left
    return pick


@njit
def _go(  # type: ignore[no-untyped-def]
    score, amount, start, budget, price, struck, children, ahead, task, place, chosen, value, slack, work,
):  # fmt: skip
    """Go on from ``place`` (depth, whether its node is new, whether it has told a choice): 0 when ``work`` is used up,
    1 at a better choice, 2 at the end; and nodes seen.

    The node at ``depth`` has prices ``price[depth]``; its ``task``'s modes not yet tried are ``children[ahead[0]:ahead[1]]``,
    which lie where the task's modes do. ``struck[c]`` is the depth below which mode c is out.
    """
    depth, nodes = place[0], 0
    best, moved, regret = np.empty(len(budget)), np.empty(len(start) - 1), np.empty(len(score))
    while work > 0:
        if place[1]:
            nodes += 1
            work -= (CLIMB + 2) * len(score)
            place[1] = 0
            trial = price[depth].copy()
            turns = CLIMB if depth else FIRST
            bound, better = _climb(
                score, amount, start, budget, struck, trial, best, chosen, moved, value, slack, turns
            )
            if better and not place[2]:
                place[0], place[1], place[2] = depth, 1, 1  # the node comes again, with a better value or without a say
                return 1, nodes
            place[2] = 0
            ahead[depth, 1] = ahead[depth, 0] = 0
            if bound < value - slack:
                price[depth] = best
                _strike(score, amount, start, struck, depth, best, regret, value - slack - bound)
                pick = _pick(start, struck, moved)
                if pick < 0:
                    _, total = _cheapest(score, amount, start, budget, struck, best, chosen, trial)
                    if total < value - slack and (trial <= 1e-9).all():
                        place[0] = depth
                        return 1, nodes
                else:
                    task[depth] = pick
                    end = start[pick]
                    for c in range(start[pick], start[pick + 1]):
                        if struck[c] == LEFT:
                            k = end
                            while k > start[pick] and regret[children[k - 1]] > regret[c]:
                                children[k] = children[k - 1]
                                k -= 1
                            children[k] = c
                            end += 1
                    ahead[depth, 0], ahead[depth, 1] = start[pick], end
        elif ahead[depth, 0] < ahead[depth, 1]:
            child, pick = children[ahead[depth, 0]], task[depth]
            ahead[depth, 0] += 1
            depth += 1
            for c in range(start[pick], start[pick + 1]):
                if c != child and struck[c] == LEFT:
                    struck[c] = depth
            price[depth] = price[depth - 1]
            place[1] = 1
        else:
            for c in range(len(struck)):
                if struck[c] == depth:
                    struck[c] = LEFT
            depth -= 1
            if depth < 0:
                return 2, nodes
    place[0] = depth
    return 0, nodes
