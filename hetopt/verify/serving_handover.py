"""Replay of the hand-over bound on the throughput of a serving plan: nodes to spare limit how many slow links can be used.

Part the nodes into clusters and call links between clusters slow. A plan's flow is a sum of paths. Those inside one cluster are
together below what that cluster serves alone; R is the sum of these limits, each with a certificate of its own. Every other
path crosses at least t slow links, t being 1, or one less than the number of clusters needed to hold L layers.

Take the crossing path with the fewest slow links, say u >= t of them. Its nodes keep L layers together, so at most M nodes are
not on it: the smallest ones, while the others can still hold the model. A slow link carries flow only if its first node's
end is the second one's start. On the path these are u pairs. A node off the path has one start and one end, so it makes at most
two pairs with nodes on the path. Among M nodes off the path there are at most M^2 / 4 pairs: no three nodes are pairwise
joined, as the first's end would be the start of the second and of the third, which starts where the second ends. No two nodes are
joined in both directions. With S(m) the sum of the m largest capacities of slow links, one for each pair of nodes,

    T <= R + S(u + 2 M + M^2 / 4) / u  <=  R + S(t + 2 M + M^2 / 4) / t ,

as S is concave. It says something where memory is short: with few nodes to spare, a crossing can only be a few nodes wide.
It speaks of whole intervals; where requests may join inside an interval it proves nothing.

All sums are exact. (Where certificates come from: :mod:`hetopt.algorithms.serving_handover`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["KIND", "check_hand_overs", "clusters_alone", "crossing"]

KIND = "hand-overs"

Ints = NDArray[np.int64]


def check_hand_overs(
    network: ServingNetwork,
    certificate: Mapping[str, Any],
    check: Callable[[ServingNetwork, Mapping[str, Any]], float],
) -> float:
    """Replay a certificate.

    Parameters
    ----------
    certificate
        ``kind``, ``rate`` (the claim: no plan has this value or more), ``cluster`` (n numbers), and ``alone``: a certificate for
        each of :func:`clusters_alone`, in that order.
    check
        Replays one of those.

    Raises
    ------
    ValueError
        When the certificate proves nothing, in a sentence.
    """
    if network.partial:
        raise ValueError("the hand-over bound proves nothing when a request may join a node inside its interval")
    rate = float(certificate["rate"])
    if not 0 < rate < np.inf:
        raise ValueError(f"the certificate speaks of rate {rate}; a positive number was expected")
    cluster = np.asarray(certificate["cluster"], dtype=np.int64)
    if cluster.shape != (network.n,) or cluster.min() < 0:
        raise ValueError(f"the certificate has clusters of {cluster.size} nodes; the network has {network.n}")
    alone, parts = clusters_alone(network, cluster), certificate["alone"]
    if len(alone) != len(parts):
        raise ValueError(f"{len(alone)} clusters may serve alone; the certificate speaks of {len(parts)}")
    limit = crossing(network, cluster)
    for c, part in zip(alone, parts, strict=True):
        limit += Fraction(check(network.restricted(np.flatnonzero(cluster == c)), part))
    if limit >= Fraction(rate):
        raise ValueError(f"hand-overs allow a rate of {float(limit)}; the certificate claims less than {rate}")
    return rate


def _most(network: ServingNetwork) -> Ints:
    """(n,) the most layers that each node can keep."""
    usable = network.throughput[:, : network.layers + 1] > 0
    return np.asarray((usable * np.arange(usable.shape[1])).max(axis=1), np.int64)


def clusters_alone(network: ServingNetwork, cluster: Ints) -> list[int]:
    """Clusters that can hold all layers and have a link from the source and one to the sink."""
    most = _most(network)
    return [
        c
        for c in range(int(cluster.max()) + 1)
        if int(most[cluster == c].sum()) >= network.layers
        and network.source[cluster == c].any()
        and network.sink[cluster == c].any()
    ]


def crossing(network: ServingNetwork, cluster: Ints) -> Fraction:
    """S(t + 2 M + M^2 / 4) / t: the most flow of paths that cross slow links."""
    most = _most(network)
    held = np.sort(most[most > 0])[::-1]
    if int(held.sum()) < network.layers:
        return Fraction(0)
    spare = len(held) - int(np.searchsorted(np.cumsum(held), network.layers)) - 1
    together = np.sort([int(most[cluster == c].sum()) for c in range(int(cluster.max()) + 1)])[::-1]
    needed = int(np.searchsorted(np.cumsum(together), network.layers)) + 1
    times = max(needed - 1, 1)
    best = network.throughput[:, : network.layers + 1].max(axis=1)
    capacity = np.minimum(np.maximum(network.link, network.link.T), np.minimum(best[:, None], best[None, :]))
    slow = np.sort(capacity[np.triu(cluster[:, None] != cluster[None, :])])[::-1]
    pairs = times + 2 * spare + spare * spare // 4
    return sum(map(Fraction, slow[:pairs].tolist()), Fraction(0)) / times
