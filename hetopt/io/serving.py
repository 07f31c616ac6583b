"""State a serving network (rates by layers kept, links, layers) as an instance; reading it back is the question's business."""

from __future__ import annotations

import math

from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.instance import HOST, Instance
from hetopt.records import Device, Job, Link

__all__ = ["instance_of"]


def instance_of(network: ServingNetwork, *, name: str = "", source: str = "") -> Instance:
    """Instance that states a network; the model is one job, whose time is that of one layer's request on a node."""
    names = [f"node{name}" if str(name).isdigit() else str(name) for name in network.names]
    devices = [Device(name=label) for label in names]
    links = []
    for ends, capacities in (
        ([(HOST, b) for b in names], network.source),
        ([(a, HOST) for a in names], network.sink),
        ([(a, b) for a in names for b in names], network.link.ravel()),
    ):
        links += [
            Link(source=a, target=b, bandwidth=None if math.isinf(c) else float(c))
            for (a, b), c in zip(ends, capacities.tolist(), strict=True)
            if c > 0
        ]
    best = network.throughput.max(axis=1)
    times = [1.0 / rate if rate > 0 else None for rate in best.tolist()]
    return Instance.build(
        devices,
        [Job(name="model", time=times)],
        links,
        tables={"layers": network.layers, "throughput": network.throughput.tolist()},
        question={"objective": "serving-flow", **({"partial": True} if network.partial else {})},
        name=name,
        source=source,
    )
