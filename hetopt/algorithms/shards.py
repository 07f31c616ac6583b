"""Shards on devices with non-decreasing times, the slowest as fast as possible: OLAR and the threshold search. Both exact.

Seconds are (d, total + 1); device i takes ``least[i]`` to ``most[i]`` shards. Sources: L. Lima Pilla, Optimal task assignment
to heterogeneous federated learning devices, IPDPS 2021 (OLAR); C. Wang, X. Wei, P. Zhou, Optimize scheduling of federated
learning on battery-powered mobile devices, IPDPS 2020 (Fed-LBAP).
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

__all__ = ["olar", "threshold"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def olar(seconds: Floats, least: Ints, most: Ints) -> Ints:
    """(d,) shards: from the least on, each next shard to the device that then takes the fewest seconds; O(total log d).

    Raises
    ------
    ValueError
        The limits leave no way to give out all shards.
    """
    total = seconds.shape[1] - 1
    given = least.copy()
    left = total - int(given.sum())
    if left < 0 or int(most.sum()) < total or (least > most).any():
        raise ValueError("the limits leave no way to give out all shards")
    heap = [(float(seconds[i, given[i] + 1]), i) for i in range(len(given)) if given[i] < most[i]]
    heapq.heapify(heap)
    for _ in range(left):
        _, i = heap[0]
        given[i] += 1
        if given[i] < most[i]:
            heapq.heapreplace(heap, (float(seconds[i, given[i] + 1]), i))
        else:
            heapq.heappop(heap)
    return given


def threshold(seconds: Floats, least: Ints, most: Ints) -> tuple[Ints, float]:
    """(d,) shards and their value T, by bisection over all seconds; with less than T too few shards can be given out.

    Raises
    ------
    ValueError
        As :func:`olar`.
    """
    d, total = seconds.shape[0], seconds.shape[1] - 1
    if int(least.sum()) > total or int(most.sum()) < total or (least > most).any():
        raise ValueError("the limits leave no way to give out all shards")
    at = np.arange(total + 1)
    values = np.unique(seconds[(at >= least[:, None]) & (at <= most[:, None])])
    floor = float(seconds[np.arange(d), least].max())

    def room(value: float) -> Ints:
        fit: Ints = np.minimum((seconds <= value).sum(axis=1) - 1, most)
        return fit

    low, high = int(np.searchsorted(values, floor)), len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if int(room(values[middle]).sum()) >= total:
            high = middle
        else:
            low = middle + 1
    given = room(values[low])
    for i in range(d):  # what is too much is taken back, which makes nobody slower
        back = min(int(given.sum()) - total, int(given[i] - least[i]))
        given[i] -= back
    return given, float(values[low])
