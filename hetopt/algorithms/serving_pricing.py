"""The cheapest set of nodes that carries a rate through one layer: a covering knapsack indexed by price.

A layer of a serving plan shows a *pattern*: nodes with their numbers of layers kept, whose flows add up to the target.
Given integer prices the kernels here find, for every budget, the most flow it buys, and from that the cheapest patterns.
Indexing by price keeps rates exact; only prices are rounded. They know nothing of linear programs or of networks
(:mod:`hetopt.algorithms.serving_bound` sets the prices).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit

__all__ = ["Items", "Pattern", "cheapest_patterns"]

Ints = NDArray[np.int64]


class Items(NamedTuple):
    """What patterns are made of: one entry for each group of equal nodes and number of layers kept.

    Attributes
    ----------
    group, keep, rate
        (m,) group of the node, layers it keeps, and the integer rate, at most the target; ordered by group.
    copies
        (groups,) nodes in each group.
    target
        The integer rate that a pattern carries.
    """

    group: Ints
    keep: Ints
    rate: Ints
    copies: Ints
    target: int


class Pattern(NamedTuple):
    """A pattern: positions in :class:`Items` (repeated when used twice), and the flow of each, adding up to the target.

    A flow may be 0: the limit of two nodes of which one carries next to nothing.
    """

    item: tuple[int, ...]
    flow: tuple[int, ...]


@njit
def _fill(group, rate, paid, copies, width, rows, best, choice):  # type: ignore[no-untyped-def]
    """Bounded knapsack by price: ``best[c, q]`` = most rate for at most q with min(c, rows - 1) items or more.

    ``choice[step, c, q]`` is 0 where the step (one node of a group) takes nothing, else 2 (item + 1) + (1 if it came from
    the same c). Returns the number of steps.
    """
    m = len(group)
    step = 0
    start = 0
    while start < m:
        g = group[start]
        stop = start
        while stop < m and group[stop] == g:
            stop += 1
        for _ in range(copies[g]):
            changed = False
            for c in range(rows - 1, -1, -1):  # higher counts first: they read lower ones before these change
                for q in range(width - 1, -1, -1):
                    value = best[c, q]
                    take = 0
                    for j in range(start, stop):
                        p = paid[j]
                        if p > q:
                            continue
                        if c > 0 and best[c - 1, q - p] + rate[j] > value:
                            value = best[c - 1, q - p] + rate[j]
                            take = 2 * (j + 1)
                        if c == rows - 1 and best[c, q - p] + rate[j] > value:
                            value = best[c, q - p] + rate[j]
                            take = 2 * (j + 1) + 1
                    choice[step, c, q] = take
                    if take > 0:  # cells at or below q and rows at or below c have not seen this step yet
                        best[c, q] = value
                        changed = True
            step += 1
            if not changed:
                step -= 1
                break
        start = stop
    return step


@njit
def _last_items(rate, price, flow_price, target, best, rows, width, surcharge, cost, spent, count):  # type: ignore[no-untyped-def]
    """For each item as the last one of a pattern, used as far as needed: least cost, and the cell it continues from."""
    never = np.int64(1) << 60
    for j in range(len(rate)):
        cost[j] = never
        for c in range(rows):
            extra = surcharge if c > 0 else 0
            for q in range(width):
                missing = target - best[c, q]
                if missing > rate[j]:
                    continue
                if missing < 0:
                    missing = 0
                p = q + price[j] + (flow_price[j] * missing) // target - extra
                if p < cost[j]:
                    cost[j] = p
                    spent[j] = q
                    count[j] = c
                if missing == 0 or flow_price[j] == 0:
                    break  # more money on the others cannot help


def cheapest_patterns(
    items: Items, price: Ints, flow_price: Ints, *, limit: int, surcharge: int = 0, most: int = 24
) -> tuple[int, list[tuple[int, Pattern]]]:
    """Patterns of least price, one for each item that may come last.

    Parameters
    ----------
    items
        What patterns are made of.
    price
        (m,) price of an item, >= 0.
    flow_price
        (m,) price of carrying the whole target with the item, >= 0; carrying f costs ``floor(flow_price f / target)``.
    limit
        Patterns that cost this or more are of no interest.
    surcharge
        Taken off the price of a pattern with two nodes or more.
    most
        Look at this many last items, those of the cheapest patterns.

    Returns
    -------
    tuple
        The least price (``limit`` when no pattern is cheaper), and (price, pattern) in ascending order of price. A pattern
        may use one node more of the last item's group than there are when the last item is used in part; else it
        respects the counts. O(nodes * m / groups * limit) time.
    """
    rows = 3 if surcharge > 0 else 1
    width = max(limit + surcharge, 1)
    paid = price + (flow_price * items.rate) // items.target
    best = np.full((rows, width), -(1 << 61), dtype=np.int64)
    best[0] = 0
    choice = np.zeros((int(items.copies.sum()) + 1, rows, width), dtype=np.int32)
    steps = _fill(items.group, items.rate, paid, items.copies, width, rows, best, choice)
    m = len(items.group)
    cost, spent, count = np.empty(m, dtype=np.int64), np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
    _last_items(items.rate, price, flow_price, items.target, best, rows, width, surcharge, cost, spent, count)

    found: dict[Pattern, int] = {}
    least = limit
    for c in range(rows):
        enough = np.flatnonzero(best[c] >= items.target)
        if c == 0 and rows > 1:
            continue
        if len(enough):
            q = int(enough[0])
            chosen = _walk(items, paid, choice, steps, c, q)
            total = q - (surcharge if len(chosen) > 1 else 0)
            found[_complete(items, flow_price, chosen)] = total
            least = min(least, total)
    last = np.argsort(cost, kind="stable")[:most]
    for j in last[cost[last] < limit].tolist():
        chosen = [*_walk(items, paid, choice, steps, int(count[j]), int(spent[j])), j]
        over = np.bincount(items.group[chosen], minlength=len(items.copies)) > items.copies
        if over.any() and (flow_price[j] == 0 or over.sum() > 1):
            continue
        pattern = _complete(items, flow_price, chosen)
        found[pattern] = min(found.get(pattern, limit), int(cost[j]))
        least = min(least, int(cost[j]))
    return least, sorted(((p, pattern) for pattern, p in found.items()), key=lambda pair: pair[0])


def _walk(items: Items, paid: Ints, choice: NDArray[np.int32], steps: int, count: int, q: int) -> list[int]:
    """Items of a cell, read back from the choices."""
    chosen = []
    for step in range(steps - 1, -1, -1):
        take = int(choice[step, count, q])
        if take:
            j = take // 2 - 1
            chosen.append(j)
            q -= int(paid[j])
            count -= 1 - take % 2
    return chosen


def _complete(items: Items, flow_price: Ints, chosen: list[int]) -> Pattern:
    """Give the chosen items flows that add up to the target, the dearest per unit the rest."""
    order = sorted(chosen, key=lambda j: (int(flow_price[j]), j))
    missing = items.target
    flow = []
    for j in order:
        flow.append(min(int(items.rate[j]), missing))
        missing -= flow[-1]
    return Pattern(tuple(order), tuple(flow))
