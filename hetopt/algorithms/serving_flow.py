"""The value of a serving plan, fast and in doubles, for searches that look at thousands of plans.

Answers that leave the package are evaluated again, exactly, by :func:`hetopt.verify.serving.max_flow`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["flow_value", "plan_value"]

Ints = NDArray[np.int64]


@njit
def flow_value(layers, rate, link, source, sink, start, end, partial):  # type: ignore[no-untyped-def]
    """Largest flow by shortest augmenting paths on a dense table; node i has entry 2i and exit 2i + 1.

    Arguments are those of the nodes in use: ``rate`` at the layers they keep, links among them, ``end = start + hold``.
    """
    n = len(rate)
    s, t = 2 * n, 2 * n + 1
    room = np.zeros((2 * n + 2, 2 * n + 2))
    scale = 0.0
    for i in range(n):
        room[2 * i, 2 * i + 1] = rate[i]
        scale = max(scale, rate[i])
        if start[i] == 0:
            room[s, 2 * i] = min(source[i], rate[i])
        if end[i] == layers:
            room[2 * i + 1, t] = min(sink[i], rate[i])
        for j in range(n):
            if partial:
                joins = start[j] <= end[i] and end[i] < end[j]
            else:
                joins = start[j] == end[i]
            if joins:
                room[2 * i + 1, 2 * j] = min(link[i, j], rate[i])
    least = scale * 1e-12
    total = 0.0
    before = np.empty(2 * n + 2, dtype=np.int64)
    queue = np.empty(2 * n + 2, dtype=np.int64)
    while True:
        before[:] = -1
        before[s] = s
        queue[0] = s
        head, tail = 0, 1
        while head < tail and before[t] < 0:
            a = queue[head]
            head += 1
            for b in range(2 * n + 2):
                if before[b] < 0 and room[a, b] > least:
                    before[b] = a
                    queue[tail] = b
                    tail += 1
        if before[t] < 0:
            return total
        amount = np.inf
        b = t
        while b != s:
            amount = min(amount, room[before[b], b])
            b = before[b]
        b = t
        while b != s:
            room[before[b], b] -= amount
            room[b, before[b]] += amount
            b = before[b]
        total += amount


def plan_value(network: ServingNetwork, start: Ints, hold: Ints) -> float:
    """Largest flow of a plan up to rounding; nodes with ``hold = 0`` are left out. O(n^2) a path, some hundred paths."""
    used = np.flatnonzero(hold > 0)
    if len(used) == 0:
        return 0.0
    return float(
        flow_value(
            network.layers,
            network.throughput[used, hold[used]],
            network.link[np.ix_(used, used)],
            network.source[used],
            network.sink[used],
            start[used],
            start[used] + hold[used],
            network.partial,
        )
    )
