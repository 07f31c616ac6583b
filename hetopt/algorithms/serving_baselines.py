"""How serving systems place layers today: plans to start from and to compare with.

Each function returns one plan (start, hold) made by a rule in a blink, without a look at the links. :func:`baselines` returns
all of them. The rules are after the descriptions of the systems they are named for, in this package's terms: a
request passes whole intervals, so boundaries are common to all nodes unless requests may join inside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["Plan", "baselines", "even_split", "petals_like", "separate_pipelines", "swarm_like"]

Ints = NDArray[np.int64]


class Plan(NamedTuple):
    """First layer and number of layers of each node; hold 0 where a node is left out."""

    start: Ints
    hold: Ints


def _boundaries(layers: int, stages: int) -> Ints:
    """Layers at which ``stages`` nearly equal stages begin, and L."""
    return (np.arange(stages + 1) * layers) // stages


def _rates(network: ServingNetwork, node: int, length: Ints) -> NDArray[np.float64]:
    """Rate of the node for each length, 0 beyond its table."""
    longest = network.throughput.shape[1] - 1
    return np.where(length <= longest, network.throughput[node, length.clip(max=longest)], 0.0)


def _staged(network: ServingNetwork, stages: int, order: Ints, *, weakest: bool) -> Plan:
    """Deal nodes to equal stages in turn, or each to the stage that has the least rate so far."""
    border = _boundaries(network.layers, stages)
    start = np.zeros(network.n, dtype=np.int64)
    hold = np.zeros(network.n, dtype=np.int64)
    total = np.zeros(stages)
    length = np.diff(border)
    turn = 0
    for i in order.tolist():
        rate = np.where(
            length < network.throughput.shape[1],
            network.throughput[i, length.clip(max=network.throughput.shape[1] - 1)],
            0.0,
        )
        open_ = np.flatnonzero(rate > 0)
        if len(open_) == 0:
            continue
        stage = int(open_[np.argmin(total[open_])]) if weakest else int(open_[turn % len(open_)])
        turn += 1
        start[i], hold[i] = border[stage], length[stage]
        total[stage] += rate[stage]
    return Plan(start, hold)


def _fewest_stages(network: ServingNetwork, nodes: Ints) -> int:
    """The smallest number of equal stages of which each of the nodes can keep any."""
    for stages in range(1, network.layers + 1):
        length = np.diff(_boundaries(network.layers, stages))
        if all((_rates(network, i, length) > 0).all() for i in nodes.tolist()):
            return stages
    return network.layers


def even_split(network: ServingNetwork) -> Plan:
    """Equal stages, as few as the smallest node allows; nodes are dealt to them in turn."""
    nodes = np.arange(network.n)
    return _staged(network, _fewest_stages(network, nodes), nodes, weakest=False)


def swarm_like(network: ServingNetwork, stages: int | None = None) -> Plan:
    """Equal stages; the fastest node first, each joins the stage with the least total rate (SWARM)."""
    order = np.argsort(-network.throughput.max(axis=1), kind="stable")
    return _staged(network, stages or _fewest_stages(network, np.arange(network.n)), order, weakest=True)


def petals_like(network: ServingNetwork, step: int = 1) -> Plan:
    """Each node in turn keeps as many layers as it can, where the served rate is least (Petals).

    Parameters
    ----------
    step
        Intervals begin at multiples of it and have a multiple of it as length, so that they meet.
    """
    served = np.zeros(network.layers)
    start = np.zeros(network.n, dtype=np.int64)
    hold = np.zeros(network.n, dtype=np.int64)
    for i in range(network.n):
        keep = np.flatnonzero(network.throughput[i, : network.layers + 1] > 0)
        keep = keep[keep % step == 0]
        if len(keep) == 0:
            continue
        k = int(keep.max())
        begins = range(0, network.layers - k + 1, step)
        s = min(begins, key=lambda b: (served[b : b + k].min(), served[b : b + k].mean(), b))
        start[i], hold[i] = s, k
        served[s : s + k] += network.throughput[i, k]
    return Plan(start, hold)


def separate_pipelines(network: ServingNetwork) -> Plan:
    """Nodes of equal rates form pipelines of their own, as short as they can be; what is left over stays out."""
    start = np.zeros(network.n, dtype=np.int64)
    hold = np.zeros(network.n, dtype=np.int64)
    _, kind = np.unique(network.throughput, axis=0, return_inverse=True)
    for t in range(int(kind.max()) + 1):
        nodes = np.flatnonzero(kind.ravel() == t)
        stages = _fewest_stages(network, nodes)
        border = _boundaries(network.layers, stages)
        for p in range(len(nodes) // stages):
            chosen = nodes[p * stages : (p + 1) * stages]
            if (_rates(network, int(chosen[0]), np.diff(border)) > 0).all():
                start[chosen], hold[chosen] = border[:-1], np.diff(border)
    return Plan(start, hold)


def baselines(network: ServingNetwork) -> dict[str, Plan]:
    """All rules, with every number of stages for the one that asks for it and every step that divides L."""
    plans = {"even split": even_split(network), "separate pipelines": separate_pipelines(network)}
    fewest = max(-(-network.layers // max(network.most_layers, 1)), 1)
    for stages in range(fewest, min(network.n, network.layers) + 1):
        plans[f"swarm-like, {stages} stages"] = swarm_like(network, stages)
    for step in range(1, network.most_layers + 1):
        if network.layers % step == 0:
            plans[f"petals-like, step {step}"] = petals_like(network, step)
    return plans
