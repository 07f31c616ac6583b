"""All choices that may still be best, one after the other: those whose regrets fit between a bound and the best choice known.

With prices lambda of the budgets (:mod:`hetopt.algorithms.choice`), d_tm >= 0 is what mode m of task t costs more than the task's
cheapest, its regret, and every choice x scores

    s(x) = L(lambda) + sum_t d_{t x_t} + sum_r lambda_r (B_r - a_r(x))                                                 (2)

so that one within the budgets that beats U has regrets of less than U - L(lambda) together. Few modes have so small a regret, and
the search goes through sets of exchanges in order of regret, depth first; the limit falls with each better choice. A set is left
where exchanges of the regret that is still allowed cannot save enough of some resource, or of the score, at the best rate a unit
of regret of those to come. Where bound and value are close (a thousandth, for two budgets and 80 tasks of 16 modes) some
millions of sets remain.

Sources: E. Balas, E. Zemel, An algorithm for large zero-one knapsack problems, Operations Research 28 (1980), for the core;
(2) is Lagrangian duality.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit

__all__ = ["search"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 2_000_000  # sets a call of the kernel, some hundredths of a second
SLACK = 2.0**-40  # of the sum of all terms: more than rounding can make of it


def search(
    score: Floats,
    amount: Floats,
    start: Ints,
    budget: Floats,
    prices: Floats,
    value: float,
    hits: Ints,
    most_hits: float,
    on_choice: Callable[[Ints], float | None],
    should_stop: Callable[[], bool],
    limit: int = 100_000_000,
) -> float | None:
    """A bound on the best choice, equal to it but for rounding; None when it was stopped or passed ``limit`` sets.

    Parameters
    ----------
    score, amount, start, budget, prices
        As in :func:`hetopt.algorithms.choice.lagrangian`.
    value
        Score of the best choice known, infinity for none.
    hits, most_hits
        (e, c) 1 where a mode is that of an earlier choice, of which a new one may have at most so many.
    on_choice
        Given the modes (tasks,) of a choice that seems to fit and to be better: its score, None when it does not fit.
    """
    tasks = len(start) - 1
    of = np.repeat(np.arange(tasks), np.diff(start))
    cost = score + prices @ amount
    least = np.minimum.reduceat(cost, start[:-1])
    order = np.lexsort((np.arange(len(of)), cost - least[of], of))
    base = order[start[:-1]]
    regret = cost - least[of]
    bound = float(least.sum() - prices @ budget)
    slack = SLACK * float(np.abs(least).sum() + prices @ np.abs(budget))
    other = np.ones(len(of), bool)
    other[base] = False
    items = np.flatnonzero(other & (regret <= value - bound + slack))
    items = items[np.argsort(regret[items], kind="stable")]
    at = base[of[items]]
    depth = tasks + 1
    used, marks = np.zeros((depth, len(budget))), np.zeros((depth, len(hits)), np.int64)
    scores, regrets = np.zeros(depth), np.zeros(depth)
    used[0], marks[0], scores[0] = amount[:, base].sum(axis=1), hits[:, base].sum(axis=1), score[base].sum()
    room = budget + 1e-9 * np.abs(budget)
    if (used[0] <= room).all() and (marks[0] <= most_hits).all() and scores[0] < value:
        value = _lower(value, on_choice(base))
    columns = (
        regret[items],
        of[items],
        score[items] - score[at],
        np.ascontiguousarray((amount[:, items] - amount[:, at]).T),
        np.ascontiguousarray((hits[:, items] - hits[:, at]).T),
    )
    least_regret = slack or 1.0  # what counts for a smaller one, so that rates are finite
    rate = np.vstack([columns[2], columns[3].T]) / np.maximum(columns[0], least_regret)
    saving = np.maximum.accumulate(np.maximum(-rate, 0.0)[:, ::-1], axis=1)[:, ::-1]
    saving = np.ascontiguousarray(np.hstack([saving, np.zeros((len(saving), 1))]).T)
    stack, changed, place = np.zeros(depth, np.int64), np.zeros(tasks, np.bool_), np.zeros(2, np.int64)
    while limit > 0:
        if should_stop():
            return None
        found, seen = _go(
            *columns, saving, used, marks, scores, regrets, stack, changed, place, room, most_hits, value, bound, slack,
            least_regret, CHUNK,
        )  # fmt: skip
        limit -= seen
        if found == 1:
            chosen = base.copy()
            taken = items[stack[: place[0]]]
            chosen[of[taken]] = taken
            value = _lower(value, on_choice(chosen))
        elif found == 2:
            return value - 2 * slack
    return None


def _lower(value: float, found: float | None) -> float:
    return value if found is None else min(value, found)


@njit
def _go(  # type: ignore[no-untyped-def]
    regret, task, more, extra, marked, saving, used, marks, scores, regrets, stack, changed, place, room, most, value, bound,
    slack, least_regret, limit,
):  # fmt: skip
    """Go on from ``place`` (depth, next item): 0 after ``limit`` sets, 1 at a better choice, 2 at the end; and sets seen."""
    depth, k, seen, n, total = place[0], place[1], 0, len(regret), regret.sum()
    while True:
        left = min(value - bound + slack, total) - regrets[depth]
        reach = left + (len(changed) - depth) * least_regret
        hope = k < n and regret[k] <= left and scores[depth] - reach * saving[k, 0] <= value + slack
        for r in range(len(room)):
            hope = hope and used[depth, r] - reach * saving[k, r + 1] <= room[r]
        if hope:
            if not changed[task[k]]:
                seen += 1
                new = depth + 1
                fits = True
                for r in range(len(room)):
                    used[new, r] = used[depth, r] + extra[k, r]
                    fits = fits and used[new, r] <= room[r]
                for e in range(marks.shape[1]):
                    marks[new, e] = marks[depth, e] + marked[k, e]
                    fits = fits and marks[new, e] <= most
                scores[new] = scores[depth] + more[k]
                regrets[new] = regrets[depth] + regret[k]
                stack[depth] = k
                changed[task[k]] = True
                depth = new
                if (fits and scores[new] < value - slack) or seen >= limit:
                    place[0], place[1] = depth, k + 1
                    return (1 if fits and scores[new] < value - slack else 0), seen
            k += 1
        elif depth == 0:
            return 2, seen
        else:
            depth -= 1
            changed[task[stack[depth]]] = False
            k = stack[depth] + 1
