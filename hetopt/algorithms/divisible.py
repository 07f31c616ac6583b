"""A load that can be cut anywhere, sent by one port to workers in turn: orders in closed form, exact and by exchanges.

Worker i gets a_i units: ``latency`` + ``send`` a_i seconds on the port, then ``startup`` + ``work`` a_i seconds of its own. For a
given sequence of workers that all get some load, all end together in the best plan, so a_i follow in turn from the end T:

    a_i = (T - C_i - latency_i - startup_i) / (send_i + work_i),    C_i = sum of what the port did before,

each affine in T, and T is where they add up to the load. The best plan of all is one of these, over sequences of subsets: a
worker with nothing only costs latency. Source: V. Bharadwaj, D. Ghose, V. Mani, T. Robertazzi, Scheduling Divisible Loads in
Parallel and Distributed Systems, 1996.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Star", "best_order", "exchange", "loads", "without_latency"]

Floats = NDArray[np.float64]


class Star(NamedTuple):
    """(n,) seconds of each worker: latency, seconds to send a unit, start-up, seconds to work on a unit."""

    latency: Floats
    send: Floats
    startup: Floats
    work: Floats


def loads(star: Star, order: list[int], load: float) -> tuple[float, list[float]] | None:
    """End T and units of the workers in ``order``; None when one would get less than nothing."""
    rate, fixed, slope, before = [], [], 0.0, 0.0  # a_i = rate_i T - fixed_i, port busy until slope T + before
    for i in order:
        pace = float(star.send[i] + star.work[i])
        if pace <= 0:
            return None
        rate.append((1.0 - slope) / pace)
        fixed.append((before + float(star.latency[i] + star.startup[i])) / pace)
        slope += float(star.send[i]) * rate[-1]
        before += float(star.latency[i]) - float(star.send[i]) * fixed[-1]
    total = sum(rate)
    if total <= 0:
        return None
    end = (load + sum(fixed)) / total
    units = [r * end - f for r, f in zip(rate, fixed, strict=True)]
    return None if min(units) < 0 else (end, units)


def without_latency(star: Star, load: float) -> float:
    """End of the best plan when latencies and start-ups are left out, workers in order of their links: a lower bound.

    Without them every worker takes part, and the order of non-decreasing ``send`` is the best one. A worker that computes and
    receives in no time makes it 0.
    """
    if ((star.send + star.work) <= 0).any():
        return 0.0
    order = np.lexsort((star.work, star.send)).tolist()
    free = Star(np.zeros_like(star.send), star.send, np.zeros_like(star.send), star.work)
    found = loads(free, order, load)
    return 0.0 if found is None else found[0]


def best_order(star: Star, load: float, should_stop: Callable[[], bool]) -> tuple[float, list[int]] | None:
    """Least end and its order over all sequences of all subsets; None when stopped. O(n! e) closed forms."""
    n = len(star.send)
    best: tuple[float, list[int]] = (np.inf, [])
    stack: list[list[int]] = [[i] for i in range(n - 1, -1, -1)]
    count = 0
    while stack:
        order = stack.pop()
        count += 1
        if count % 1024 == 0 and should_stop():
            return None
        found = loads(star, order, load)
        if found is not None and found[0] < best[0]:
            best = (found[0], order)
        stack += [[*order, i] for i in range(n - 1, -1, -1) if i not in order]
    return best


def exchange(star: Star, load: float, should_stop: Callable[[], bool], rounds: int = 50) -> tuple[float, list[int]]:
    """End and order that no insertion, removal or swap improves, from the fastest links on."""
    n = len(star.send)
    order: list[int] = []
    end = np.inf
    for i in np.lexsort((star.work, star.send)).tolist():  # in order of the links, each where it helps
        found = loads(star, [*order, i], load)
        if found is not None and found[0] < end:
            end, order = found[0], [*order, i]
    for _ in range(rounds):
        tried = [order[:k] + order[k + 1 :] for k in range(len(order)) if len(order) > 1]
        tried += [[*order[:k], i, *order[k:]] for i in range(n) if i not in order for k in range(len(order) + 1)]
        for k in range(len(order) - 1):
            tried.append([*order[:k], order[k + 1], order[k], *order[k + 2 :]])
        best, best_end = order, end
        for one in tried:
            if should_stop():
                return end, order
            found = loads(star, one, load)
            if found is not None and found[0] < best_end * (1 - 1e-12):
                best, best_end = one, found[0]
        if best is order:
            break
        order, end = best, best_end
    return end, order
