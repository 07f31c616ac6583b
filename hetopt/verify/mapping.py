"""Check where a network's tasks lie, and add up each device's and each link's seconds for an input.

When inputs follow each other, the slowest device or link sets the pace: a device computes all of its tasks once an input, a
link carries what tasks on its one end hand to tasks on its other end; computing and carrying go on side by side. What a task
hands to several tasks on one device travels once (the largest of those edges). Shares nothing with any model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.verify.assignment import device_sums, placement_violations
from hetopt.verify.schedule import links_between

__all__ = ["PeriodReport", "check_period"]


@dataclass(frozen=True)
class PeriodReport:
    """What a placement amounts to.

    Attributes
    ----------
    period
        Seconds between inputs: of the busiest device or link.
    load
        (d,) seconds each device computes.
    carried
        (d, d) seconds each link is busy.
    violations
        A sentence for each broken constraint.
    """

    period: float
    load: NDArray[np.float64]
    carried: NDArray[np.float64]
    violations: tuple[str, ...]


def check_period(instance: Instance, placement: NDArray[np.int64] | None) -> PeriodReport:
    """Evaluate a placement (n,)."""
    d, names = instance.n_devices, instance.device_names
    wrong = list(placement_violations(instance, placement, limits=False))
    if wrong or placement is None:
        return PeriodReport(math.inf, np.full(d, np.inf), np.zeros((d, d)), tuple(wrong))
    need = device_sums(instance.memory, placement, d)
    wrong = [
        f"device {names[i]!r} needs {need[i]:.12g} bytes of memory and has {instance.capacity[i]:.12g}: "
        f"{need[i] - instance.capacity[i]:.12g} too many"
        for i in np.flatnonzero(need > instance.capacity).tolist()
    ]
    load = device_sums(instance.time[np.arange(instance.n_tasks), placement], placement, d)
    latency, slowness = links_between(instance)
    largest: dict[tuple[int, int], float] = {}
    for (u, v), sent in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True):
        to = int(placement[v])
        if placement[u] != to:
            largest[u, to] = max(largest.get((u, to), 0.0), sent)
    seconds: dict[tuple[int, int], list[float]] = {}
    for (u, q), sent in largest.items():
        p = int(placement[u])
        if math.isinf(latency[p, q]):
            instance.need_link(names[p], names[q])
            raise InputError(f"$.links: no way leads from {names[p]!r} to {names[q]!r}")
        seconds.setdefault((p, q), []).append(sent * float(slowness[p, q]))
    carried = np.zeros((d, d))
    for pair, parts in seconds.items():
        carried[pair] = math.fsum(parts)
    return PeriodReport(float(max(load.max(initial=0.0), carried.max(initial=0.0))), load, carried, tuple(wrong))
