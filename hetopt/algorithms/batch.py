"""Batch sizes with balanced update rates: every window of rates, and the adaptive rule as a baseline.

Choices are given device after device: ``rate`` (batches a second), ``gain`` (what is added up), ``of`` (their device). Source of
the rule: Y. Ma, F. Rusu, Heterogeneous CPU+GPU stochastic gradient descent algorithms, arXiv 2004.08771.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["adaptive", "best_window"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def best_window(
    rate: Floats, gain: Floats, of: Ints, devices: int, balance: float, should_stop: Callable[[], bool]
) -> Ints | None:
    """(devices,) choices of most gain with rates within a factor ``balance``; None when there are none or it was stopped.

    The slowest rate of any plan is a rate of some choice; with it as the lower end, each device's best choice in the window is
    independent of the others'. O(choices^2).
    """
    best, value = None, -np.inf
    for low in np.unique(rate).tolist():
        if should_stop():
            return None
        inside = np.flatnonzero((rate >= low) & (rate <= balance * low * (1 + 1e-12)))
        top = np.full(devices, -np.inf)
        np.maximum.at(top, of[inside], gain[inside])
        total = float(top.sum())
        if total > value:
            hits = inside[gain[inside] == top[of[inside]]]
            value, best = total, hits[np.unique(of[hits], return_index=True)[1]]
    return best


def adaptive(rate: Floats, start: Ints, updates: int) -> Ints:
    """(devices,) choices that the adaptive rule arrives at, from the largest batches on.

    A device that finishes a batch with fewer updates than all others takes the next smaller batch of its list, one with more
    takes the next larger one. ``start`` (devices + 1,): first choice of each device, batches growing within a device.
    """
    d = len(start) - 1
    choice, count = start[1:] - 1, np.zeros(d, np.int64)
    queue = [(1.0 / float(rate[choice[w]]), w) for w in range(d)]
    heapq.heapify(queue)
    for _ in range(updates):
        now, w = heapq.heappop(queue)
        count[w] += 1
        others = np.delete(count, w)
        if others.size and count[w] < others.min():
            choice[w] = max(choice[w] - 1, start[w])
        elif others.size and count[w] > others.max():
            choice[w] = min(choice[w] + 1, start[w + 1] - 1)
        heapq.heappush(queue, (now + 1.0 / float(rate[choice[w]]), w))
    return choice
