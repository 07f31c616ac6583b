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
    names = instance.device_names

    def capacity(a: str, b: str) -> float:
        found = instance.link(a, b)
        return 0.0 if found is None else np.inf if found.bandwidth is None else float(found.bandwidth)

    link = np.array([[0.0 if a == b else capacity(a, b) for b in names] for a in names])
    source = np.array([capacity(HOST, a) for a in names])
    sink = np.array([capacity(a, HOST) for a in names])
    try:
        return ServingNetwork(layers, rates, link, source, sink, instance.device_names, partial)
    except ValueError as error:
        raise InputError(f"$.tables.throughput and $.links do not state a serving network: {error}") from None


def solution_of(network: ServingNetwork, start: Any, hold: Any) -> Solution:
    """The plan with these first layers and numbers of layers, (n,) each; nodes with ``hold`` 0 are left out."""
    keep = np.asarray(hold) > 0
    return Solution(
        details={
            "start": {n: int(s) for n, s, k in zip(network.names, start, keep, strict=True) if k},
            "hold": {n: int(h) for n, h, k in zip(network.names, hold, keep, strict=True) if k},
        }
    )
