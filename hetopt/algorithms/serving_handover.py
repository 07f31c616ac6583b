"""Certificates of the hand-over bound (:mod:`hetopt.verify.serving_handover` has the argument): which clusters to tell apart.

Links fall into fast and slow ones at the widest gaps between their capacities; the nodes that fast links join are clusters.
Each parting that comes out is tried, and the one with the least bound kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetopt.algorithms.serving_bound import configuration_bound
from hetopt.algorithms.serving_network import ServingNetwork, strong_components
from hetopt.verify.serving_handover import KIND, clusters_alone, crossing

__all__ = ["hand_over_bound"]

_GAPS = 3  # gaps between capacities looked at
_ABOVE = 1 + 1e-12  # the claim is a rate that is not reached


def hand_over_bound(
    network: ServingNetwork, *, below: float, should_stop: Callable[[], bool] = lambda: False
) -> dict[str, Any] | None:
    """Certificate of the least rate that some parting into clusters excludes, or None when none is less than ``below``.

    A few milliseconds, and a layer-configuration bound for each cluster that may serve alone.
    """
    if network.partial:
        return None
    best = None
    capacity = np.unique(network.effective_capacity()[0])
    capacity = capacity[capacity > 0]
    gaps = np.argsort(-np.diff(np.log(capacity)), kind="stable")[:_GAPS]
    for rate in [*(capacity[gaps + 1].tolist()), np.inf]:
        cluster = strong_components(network, rate)
        if cluster.max() == 0:
            continue
        limit, alone = float(crossing(network, cluster)), []
        for c in clusters_alone(network, cluster):
            if should_stop() or limit >= below:
                break
            part = network.restricted(np.flatnonzero(cluster == c))
            alone.append(configuration_bound(part, precision=1e-4, links=False, should_stop=should_stop))
            limit += float(alone[-1]["rate"])
        if limit * _ABOVE < below and limit > 0 and not should_stop():
            below = limit * _ABOVE
            best = {"kind": KIND, "rate": below, "cluster": cluster.tolist(), "alone": alone}
    return best
