"""What the serving question reads from an instance, and how its plans are written; shared by its methods.

Not the question itself: that is :mod:`formulations.partition.flow`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.errors import InputError
from hetopt.instance import HOST, Instance
from hetopt.solution import Solution

__all__ = ["network_of", "solution_of"]


@lru_cache(maxsize=4)
def network_of(instance: Instance, partial: bool) -> ServingNetwork:
    """The serving network that an instance states.

    Raises
    ------
    InputError
        ``tables.layers`` or ``tables.throughput`` is missing or not what it should be.
    """
    d = instance.n_devices
    layers, table = instance.tables.get("layers"), instance.tables.get("throughput")
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise InputError(f"$.tables.layers is {layers!r}, expected the number of layers, a whole number from 1 on")
    try:
        rates = np.array(table, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"$.tables.throughput is no table of numbers: {error}") from None
    if rates.ndim != 2 or len(rates) != d:
        raise InputError(f"$.tables.throughput has shape {rates.shape}, expected a row for each of the {d} devices")
    link, source, sink = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    rank = np.full((d + 1, d + 1), -1)
    for entry in instance.links:
        pairs = ((entry.source, entry.target), (entry.target, entry.source))
        for a, b in pairs[: 2 if entry.both else 1]:
            capacity = np.inf if entry.bandwidth is None else float(entry.bandwidth)
            for i, first in _ends(instance, a):
                for j, second in _ends(instance, b):
                    if i == j or first + second <= rank[i, j]:
                        continue
                    rank[i, j] = first + second
                    if i < d and j < d:
                        link[i, j] = capacity
                    elif j < d:
                        source[j] = capacity
                    else:
                        sink[i] = capacity
    try:
        return ServingNetwork(layers, rates, link, source, sink, instance.device_names, partial)
    except ValueError as error:
        raise InputError(f"$.tables.throughput and $.links do not state a serving network: {error}") from None


def _ends(instance: Instance, pattern: str) -> list[tuple[int, int]]:
    """(device number, how specific the pattern is) of what a link's end stands for; the number of devices is the host."""
    d = instance.n_devices
    if pattern == HOST:
        return [(d, 2)]
    if pattern in instance.device_index:
        return [(instance.device_index[pattern], 2)]
    if pattern == "*":
        return [(i, 0) for i in range(d)]
    return [(i, 1) for i, device in enumerate(instance.devices) if device.type == pattern]


def solution_of(network: ServingNetwork, start: Any, hold: Any) -> Solution:
    """The plan with these first layers and numbers of layers, (n,) each; nodes with ``hold`` 0 are left out."""
    keep = np.asarray(hold) > 0
    return Solution(
        details={
            "start": {n: int(s) for n, s, k in zip(network.names, start, keep, strict=True) if k},
            "hold": {n: int(h) for n, h, k in zip(network.names, hold, keep, strict=True) if k},
        }
    )
