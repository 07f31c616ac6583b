"""What a network's links look like at a rate: clusters, leaves, and the gateways between clusters.

Searches for plans cannot look at every link all the time. Seen from the rate that a plan is to have, most links either carry
all that could be asked of them or hardly anything. Nodes joined by links of the first sort are a *cluster*; a *leaf* is a
node that is only linked with the nodes that are none; and a *gateway* is a set of nodes of one cluster next to a set of
another whose slow links together carry the rate. All three are found here from the rates and the links alone. They guide
searches and prove nothing.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.serving_network import ServingNetwork, equal_nodes
from hetopt.algorithms.serving_program import LayerProgram, equal_rates

__all__ = ["Gateway", "View", "gateways", "look", "transport"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_CLEAR = 1.25
_DENSE = 0.15  # leaves may have this share of the links among themselves
_EXITS = 60  # sets of nodes tried on the near side of a pair of clusters
_ALIKE = 3  # gateways kept of one kind
_KEPT = 300  # and of one pair of clusters
_WIDE = 3  # most nodes on a side


class View(NamedTuple):
    """Clusters and leaves at a rate.

    Attributes
    ----------
    rate
        The rate looked from.
    group
        (n,) nodes of equal rates.
    cluster
        (n,) clusters.
    leaf
        (n,) is the node a leaf?
    place
        (n,) nodes of a cluster with the same place among the links of their cluster, to the source and to the sink.
    price
        (n,) layers that the layer-configuration program would give for one more node like this.
    """

    rate: float
    group: Ints
    cluster: Ints
    leaf: Bools
    place: Ints
    price: Floats


class Gateway(NamedTuple):
    """Nodes ``exits`` keep ``exit_keep`` layers each, then ``entries`` keep ``entry_keep``; the flows of both sides."""

    exits: tuple[int, ...]
    entries: tuple[int, ...]
    exit_keep: int
    entry_keep: int
    exit_flow: tuple[float, ...]
    entry_flow: tuple[float, ...]


def look(network: ServingNetwork, rate: float, *, strict: bool = False) -> View:
    """The view at a rate. Two small linear programs and O(n^3) array work.

    Parameters
    ----------
    strict
        Links of a cluster carry the whole rate and a quarter more (so that clusters do not hang together by the luckiest of
        their slow links), not only what the nodes at their ends would be asked for in the layer-configuration program.
    """
    group = equal_rates(network)
    program = LayerProgram(network, rate, group, links=False)
    prices = program.solve(to_the_end=True)[1]
    worth = np.ones(network.n)
    if prices is not None:
        worth = (prices.price * np.arange(prices.price.shape[1])).max(axis=1)[group] / prices.scale
    used = np.where(program.usage > 1e-6, program.throughput, 0.0).max(axis=1)
    asked = np.minimum(used, rate)[group]
    asked[asked == 0.0] = rate
    if strict:
        asked[:] = _CLEAR * rate
    good = (network.link > 0) & (network.link >= np.minimum(asked[:, None], asked[None, :]))
    cluster = _components(good | good.T)
    leaf = np.zeros(network.n, dtype=bool)
    if cluster.max() == 0 and not network.partial:
        fine = equal_nodes(network)
        linked = LayerProgram(network, rate, fine, links=True).solve(to_the_end=True)[1]
        if linked is not None:
            leaf = (linked.entry + linked.exit)[fine] > 0
            inside = good[np.ix_(leaf, leaf)]
            if leaf.all() or (leaf.any() and inside.mean() > _DENSE):
                leaf[:] = False
    return View(rate, group, cluster, leaf, _places(network, rate, cluster), worth)


def _components(linked: Bools) -> Ints:
    """Connected components, numbered in the order of their first nodes."""
    reach = linked | np.eye(len(linked), dtype=bool)
    while True:
        further = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
        if (further == reach).all():
            break
        reach = further
    first = reach.argmax(axis=1)
    return np.unique(first, return_inverse=True)[1].astype(np.int64)


def _places(network: ServingNetwork, rate: float, cluster: Ints) -> Ints:
    """Classes of nodes that may be exchanged as far as the links inside their clusters go."""
    same = cluster[:, None] == cluster[None, :]
    plain = np.zeros((network.n, 2))
    plain[:, 1] = rate
    inside = ServingNetwork(
        1, plain, np.where(same, network.link, 0.0), network.source, network.sink, network.names, network.partial
    )
    key = np.column_stack([equal_nodes(inside), cluster])
    return np.unique(key, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


@njit
def transport(ending, starting, capacity):  # type: ignore[no-untyped-def]
    """Largest flow from nodes that offer ``ending`` to nodes that take ``starting`` over links of this capacity.

    By enumeration of the cuts: O(2^p q) for p ending nodes.
    """
    p, q = len(ending), len(starting)
    best = np.inf
    for mask in range(1 << p):
        cut = 0.0
        for i in range(p):
            if not (mask >> i) & 1:
                cut += ending[i]
        for j in range(q):
            over = 0.0
            for i in range(p):
                if (mask >> i) & 1:
                    over += capacity[i, j]
            cut += min(over, starting[j])
        best = min(best, cut)
    return best


def gateways(network: ServingNetwork, view: View) -> list[Gateway]:
    """Ways to pass the view's rate from one cluster to another, of up to three nodes a side and six links.

    For sets of nodes on the near side the best entries of each mix of rates are tried, with every pair of numbers of
    layers that is not smaller than another; of each pair of clusters the few hundred are kept that lose the fewest layers
    at the view's prices.
    """
    found: list[Gateway] = []
    clusters = range(int(view.cluster.max()) + 1)
    for near in clusters:
        for far in clusters:
            if near != far:
                pair = _between(
                    network, view, np.flatnonzero(view.cluster == near), np.flatnonzero(view.cluster == far)
                )
                found += pair
    return found


def _between(network: ServingNetwork, view: View, near: Ints, far: Ints) -> list[Gateway]:
    """Gateways from one cluster to another, those that lose the fewest layers first."""
    rate, most = view.rate, network.most_layers
    capacity = np.minimum(network.link[np.ix_(near, far)], rate)
    found: dict[tuple[object, ...], list[tuple[float, Ints, Ints, int, int]]] = {}
    for p in range(1, _WIDE + 1):
        sets = [c for c in combinations(range(len(near)), p) if capacity[list(c)].sum() >= rate]
        sets.sort(key=lambda c: (-np.sort(capacity[list(c)].sum(axis=0))[::-1][:_WIDE].sum(), c))
        for chosen in sets[:_EXITS]:
            total = capacity[list(chosen)].sum(axis=0)
            exits = near[list(chosen)]
            mix = tuple(sorted(view.group[exits].tolist()))
            for q in range(1, min(_WIDE, 6 // p) + 1):
                for onward, best in _mixes(view.group[far], total, q, rate).items():
                    entries = far[list(best)]
                    price = float(view.price[exits].sum() + view.price[entries].sum())
                    link = network.link[np.ix_(exits, entries)]
                    for k, m in _longest(rate, most, network.throughput[exits], network.throughput[entries], link):
                        alike = found.setdefault((mix, onward, k, m), [])
                        if len(alike) < _ALIKE:
                            alike.append((price - k - m, exits, entries, k, m))
    ranked = sorted((g for alike in found.values() for g in alike), key=lambda g: g[0])
    return [_gateway(network, rate, *g[1:]) for g in ranked[:_KEPT]]


def _mixes(group: Ints, total: Floats, q: int, rate: float) -> dict[tuple[int, ...], tuple[int, ...]]:
    """For each mix of q rate groups the nodes with the most capacity from the chosen exits, if it adds up to the rate."""
    best: dict[int, list[int]] = {}
    for i in np.argsort(-total, kind="stable").tolist():
        if total[i] > 0 and len(best.setdefault(int(group[i]), [])) < q:
            best[int(group[i])].append(i)
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for entries in combinations([i for nodes in best.values() for i in nodes], q):
        if total[list(entries)].sum() >= rate:
            found.setdefault(tuple(sorted(group[list(entries)].tolist())), entries)
    return found


@njit
def _longest(rate, most, exits, entries, link):  # type: ignore[no-untyped-def]
    """Pairs of layers kept by exits and by entries (rows of rates) with which the flow still fits, none below another."""
    longest = [(0, 0) for _ in range(0)]
    m = 0
    for k in range(most, 0, -1):
        if exits[:, k].min() <= 0.0:
            continue
        before = m
        while m < most and transport(exits[:, k], entries[:, m + 1], link) >= rate:
            m += 1
        if m > before:
            longest.append((k, m))
    return longest


def _gateway(network: ServingNetwork, rate: float, exits: Ints, entries: Ints, k: int, m: int) -> Gateway:
    """Flows of the nodes of both sides that add up to the rate: each in turn as little as the others allow."""
    link = network.link[np.ix_(exits, entries)]
    sides = [network.throughput[exits, k].copy(), network.throughput[entries, m].copy()]
    for side in sides:
        for i in range(len(side)):
            side[i] = 0.0  # every cut either counts this node's flow or does not
            side[i] = max(rate - transport(sides[0], sides[1], link), 0.0)
    first, second = sides
    return Gateway(tuple(exits.tolist()), tuple(entries.tolist()), k, m, tuple(first.tolist()), tuple(second.tolist()))
