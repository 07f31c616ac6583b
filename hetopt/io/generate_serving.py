"""Made-up clusters for the serving question: device types, clusters with slow links between them, sparse links.

The rates follow the shape of the published tables (Helix): ``k rate(k)`` falls slowly while memory is left for the
requests' caches and ever faster as the layers fill it. Nothing here is a measured device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["serving"]

_SHAPE = 1.6  # how sharply the rate falls as the layers fill the memory
_WORST = 0.55  # share of the rate lost when they fill it


def serving(
    nodes: int,
    layers: int,
    seed: int,
    *,
    types: int = 3,
    clusters: int = 1,
    slow: float = 0.25,
    density: float = 1.0,
    spare: float = 3.0,
    partial: bool = False,
) -> ServingNetwork:
    """A network of a family.

    Parameters
    ----------
    nodes, layers
        Their numbers, >= 1.
    seed
        >= 0; the same arguments give the same network on every platform (PCG64).
    types
        Device types, 1 to 7. Speeds differ by up to 8, the layers that fit by up to 6.
    clusters
        Clusters of about equal size, at least 1.
    slow
        Capacity of a link between clusters as a share of the rate that all nodes would have if the model could be spread
        over them evenly; each link within 20 % of it. Links in a cluster carry whatever the nodes can.
    density
        Probability of a link between two nodes (in both directions); a random tree is added so that all are connected.
        Below 1 only a third of the nodes, at least one, have a link from the source, and as many one to the sink.
    spare
        How often all nodes together can hold the model, at least 1 (a node never holds it more than once).
    partial
        May requests join a node inside its interval?

    Returns
    -------
    ServingNetwork
        Rates and capacities in the same unit.

    Raises
    ------
    ValueError
        When a number is out of range.
    """
    if nodes < 1 or layers < 1 or seed < 0 or not 1 <= types <= 7 or not 1 <= clusters <= nodes:
        raise ValueError(
            "nodes and layers must be at least 1, types 1 to 7, clusters 1 to nodes and the seed not negative"
        )
    if not 0 < density <= 1 or slow <= 0 or spare < 1:
        raise ValueError(
            f"density must be in (0, 1], slow positive, spare at least 1, not {density}, {slow} and {spare}"
        )
    random = np.random.default_rng([seed, nodes, layers, types, clusters])
    kind = np.sort(random.integers(0, types, nodes))
    kind[: min(types, nodes)] = np.arange(min(types, nodes))
    speed = 2000.0 * 8.0 ** random.random(types)
    fits = 6.0 ** random.random(types)
    scale = max(spare * layers / fits[kind].sum(), 1.0 / fits[kind].min())
    most = np.minimum(np.ceil(fits * scale), layers).astype(np.int64)
    throughput = np.zeros((nodes, int(most.max()) + 1))
    for i, t in enumerate(kind):
        keep = np.arange(1, most[t] + 1)
        throughput[i, 1 : most[t] + 1] = np.round(speed[t] / keep * (1 - _WORST * (keep / most[t]) ** _SHAPE), 3)

    cluster = random.permutation(np.arange(nodes) % clusters)
    area = (throughput * np.arange(throughput.shape[1])).max(axis=1).sum() / layers
    link = np.where(
        cluster[:, None] == cluster[None, :], throughput.max(), slow * area * random.uniform(0.8, 1.2, (nodes, nodes))
    )
    link = np.round(link, 3) * _kept(random, nodes, density)
    outside = np.full(nodes, float(np.ceil(throughput.max())))
    source, sink = outside.copy(), outside.copy()
    if density < 1:
        number = max(nodes // 3, 1)
        for end in (source, sink):
            end[random.permutation(nodes)[number:]] = 0.0
    names = tuple(f"type{t}-{i}" for i, t in enumerate(kind))
    return ServingNetwork(layers, throughput, link, source, sink, names, partial)


def _kept(random: np.random.Generator, nodes: int, density: float) -> NDArray[np.bool_]:
    """Symmetric choice of links that connects all nodes."""
    upper = np.triu(random.random((nodes, nodes)) < density, 1)
    for i in range(1, nodes):
        upper[random.integers(0, i), i] = True
    return upper | upper.T
