"""Replay of upper bounds on the throughput of a serving plan, in integers, without a solver.

A certificate is a dict of plain numbers that some search produced; nothing here trusts it. :func:`check_bound` returns a
rate that no plan reaches, or raises ``ValueError``. (Where certificates come from: :mod:`hetopt.algorithms.serving_bound`.)

**What a plan of rate T looks like.** Every layer l is served by some nodes, and their flows f_i add up to T on every
layer. Node i keeps k_i layers and ``0 < f_i <= rate_i(k_i)``. So layer l shows a *pattern*: a set of pairs (group of the
node, k) with flows that add up to T. A node that keeps k layers is in k patterns.

**Prices.** A leaf of the certificate has, for each group g of nodes with equal rates, a price ``u[g, k] >= 0`` a layer for
keeping k layers, and potentials ``a[g]`` (entry) and ``b[g]`` (exit). With ``v[g, k] = floor((a[g] + b[g]) / k)``, let P be the
least price ``sum u[g, k] + v[g, k] f / T`` of any pattern. Summed over the L layers,

    L P <= sum over nodes of (k u[g, k] + k v[g, k] f / T)
        <= sum over nodes of k u[g, k] + sum over nodes of (a[g] + b[g]) f / T .

The first sum is at most what the node counts allow. The second is a sum over links: flow on a link from g to h counts
``b[g] + a[h]``, at most ``max(0, b[g] + a[h])`` times what the links from g to h carry together; flow from the source to
g counts ``a[g]``, at most ``s + max(0, a[g] - s) * capacity`` for whatever number s, and likewise at the sink. If L P is
larger than these limits together, no plan has rate T.

**Splits.** Any plan has at most m or at least m + 1 nodes of group g that keep k layers, so a tree of such splits with
a leaf of prices at every end is a proof as well; a leaf's node counts then have these limits.

**Clusters.** Where one node alone serves two successive layers' patterns, one link carries the whole rate. Take the
clusters connected by links that can carry T alone. If every layer were served by one node, the plan would live in one
cluster. When for each cluster a certificate says that its nodes alone cannot do it, some layer is served by two nodes or
more. A leaf may then ask patterns of several nodes to cost ``several`` more, and the sum above grows by that much once.

**Integers.** Rates and capacities are multiplied by a power of two and rounded up, T is rounded down: the scaled network
only allows more. Prices are integers, and the price of flow is rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["KIND", "check_bound"]

KIND = "layer-prices"

_BITS = 40  # the rate on the grid has about this many bits
_BUDGET = 1 << 24  # longest price table a replay is willing to fill
_PRICE = 1 << 50  # prices and potentials stay below it, so that int64 cannot wrap
_FLOW_PRICE = 1 << 22  # prices of flow are cut to it, which only makes patterns cheaper

Ints = NDArray[np.int64]


class _Grid(NamedTuple):
    """The scaled network: ``target`` is T, ``rate[g, k]`` and the summed capacities are cut to T a link."""

    layers: int
    target: int
    nodes: Ints
    rate: Ints
    link: Ints
    source: Ints
    sink: Ints


def check_bound(network: ServingNetwork, certificate: Mapping[str, Any]) -> float:
    """Replay a certificate.

    Parameters
    ----------
    certificate
        ``kind`` (:data:`KIND`), ``rate`` (the claim: no plan has this value or more), ``group`` (n group numbers), ``tree``
        and, for the argument on clusters, ``clusters``: certificates of the same rate, one for each cluster that has a
        link from the source and one to the sink that carry the rate, in the order of the clusters' first nodes. A tree
        is a split (``group``, ``keep``, ``at_most``, ``below``, ``above``) or a leaf (``price`` (groups x layers kept
        from 0 on), ``entry``, ``exit``, ``source``, ``sink``, ``several``; all integers).

    Returns
    -------
    float
        ``rate``: every plan of the network has a smaller value.

    Raises
    ------
    ValueError
        When the certificate proves nothing, in a sentence.
    """
    if certificate.get("kind") != KIND:
        raise ValueError(f"a certificate of kind {certificate.get('kind')!r} cannot be replayed; {KIND!r} can")
    rate = float(certificate["rate"])
    if not 0 < rate < np.inf:
        raise ValueError(f"the certificate speaks of rate {rate}; a positive number was expected")
    group = np.asarray(certificate["group"], dtype=np.int64)
    if group.shape != (network.n,) or group.min() < 0:
        raise ValueError(f"the certificate groups {len(group)} nodes; the network has {network.n}")
    for g in range(int(group.max()) + 1):
        members = np.flatnonzero(group == g)
        if len(members) == 0 or (network.throughput[members] != network.throughput[members[0]]).any():
            raise ValueError(f"group {g} is empty or holds nodes of different rates")
    several = 0
    if "clusters" in certificate:
        _check_clusters(network, rate, certificate["clusters"])
        several = 1
    grid = _scaled(network, rate, group)
    few = np.zeros(grid.rate.shape, dtype=np.int64)
    many = np.minimum(grid.nodes[:, None], np.where(grid.rate > 0, grid.nodes[:, None], 0))
    _check_tree(grid, certificate["tree"], few, many, several, network.partial)
    return rate


def _scaled(network: ServingNetwork, rate: float, group: Ints) -> _Grid:
    """Multiply by a power of two, round capacities up and the rate down."""
    shift = _BITS - frexp(rate)[1]
    target = int(np.floor(np.ldexp(rate, shift)))

    def up(value: NDArray[np.float64]) -> Ints:
        return np.ceil(np.ldexp(np.minimum(value, rate), shift)).astype(np.int64).clip(max=target)

    number = int(group.max()) + 1
    first = np.array([int(np.flatnonzero(group == g)[0]) for g in range(number)])
    member = (group[None, :] == np.arange(number)[:, None]).astype(np.int64)
    most = min(network.throughput.shape[1] - 1, network.layers)
    return _Grid(
        network.layers,
        target,
        member.sum(axis=1),
        up(network.throughput[first][:, : most + 1]),
        member @ up(network.link) @ member.T,
        member @ up(network.source),
        member @ up(network.sink),
    )


def _check_clusters(network: ServingNetwork, rate: float, certificates: list[Mapping[str, Any]]) -> None:
    """Every cluster of links that carry ``rate`` alone must be refuted by its own certificate."""
    strong = (network.link >= rate) | (network.link >= rate).T
    left = set(range(network.n))
    pending = list(certificates)
    while left:
        cluster = {min(left)}
        while True:
            grown = cluster | {int(j) for i in cluster for j in np.flatnonzero(strong[i])}
            if grown == cluster:
                break
            cluster = grown
        left -= cluster
        nodes = np.array(sorted(cluster))
        if network.source[nodes].max() < rate or network.sink[nodes].max() < rate:
            continue  # a single chain cannot start or end here
        if not pending:
            raise ValueError("the certificate leaves a cluster out that might serve alone")
        part = pending.pop(0)
        if part.get("rate") != rate:
            raise ValueError(f"a cluster's certificate speaks of rate {part.get('rate')}, not {rate}")
        check_bound(network.restricted(nodes), part)


def _check_tree(grid: _Grid, tree: Mapping[str, Any], few: Ints, many: Ints, several: int, partial: bool) -> None:
    """Every end of the tree must refute the plans within its node counts ``few <= y <= many``."""
    pending = [(tree, few, many)]
    while pending:
        node, few, many = pending.pop()
        if "price" in node:
            if (few > many).any() or (few.sum(axis=1) > grid.nodes).any():
                continue  # no plan has these counts
            many = np.minimum(many, few + (grid.nodes - few.sum(axis=1))[:, None])
            if not _leaf_refutes(grid, node, few, many, several, partial):
                raise ValueError("the prices of a leaf do not exclude the rate; the certificate proves nothing")
            continue
        g, k, m = int(node["group"]), int(node["keep"]), int(node["at_most"])
        if not (0 <= g < few.shape[0] and 1 <= k < few.shape[1] and m >= 0):
            raise ValueError(f"the certificate splits on group {g} and {k} layers, which the network does not have")
        below, above = many.copy(), few.copy()
        below[g, k] = min(below[g, k], m)
        above[g, k] = max(above[g, k], m + 1)
        pending.append((node["below"], few, below))
        pending.append((node["above"], above, many))


def _integers(leaf: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Ints:
    value = np.asarray(leaf[name])
    if value.shape != shape or not np.issubdtype(value.dtype, np.integer) or (np.abs(value) >= _PRICE).any():
        raise ValueError(f"{name} of a leaf must be {shape} integers below 2^50 in size")
    return value.astype(np.int64)


def _leaf_refutes(grid: _Grid, leaf: Mapping[str, Any], few: Ints, many: Ints, several: int, partial: bool) -> bool:
    """Do the leaf's prices exclude every plan with node counts ``few <= y <= many``?"""
    groups, columns = grid.rate.shape
    price = _integers(leaf, "price", (groups, columns))
    entry = _integers(leaf, "entry", (groups,))
    leave = _integers(leaf, "exit", (groups,))
    at_source, at_sink, surcharge = (int(_integers(leaf, name, ())) for name in ("source", "sink", "several"))
    if (price < 0).any() or surcharge < 0:
        raise ValueError("a leaf has a negative price")
    if surcharge and not several:
        raise ValueError("a leaf charges for several nodes a layer, but no clusters are excluded")
    if partial and (entry.any() or leave.any()):
        raise ValueError("potentials prove nothing when a request may join a node inside its interval")

    # What the plan can pay, as Python integers.
    worth = price * np.arange(columns)
    income = sum(_most_worth(int(grid.nodes[g]), worth[g], few[g], many[g]) for g in range(groups))
    income += _rounded_up(np.maximum(leave[:, None] + entry[None, :], 0), grid.link, grid.target)
    for potential, base, capacity in ((entry, at_source, grid.source), (leave, at_sink, grid.sink)):
        income += base + _rounded_up(np.maximum(potential - base, 0), capacity, grid.target)

    # What it must pay: the least price of a pattern must exceed (income - surcharge) / L. Adding the same number to every
    # price of flow adds it to every pattern, as flows add up to T; that makes the prices of flow non-negative.
    keep = np.arange(1, columns)
    flow_price = (entry + leave)[:, None] // keep[None, :]
    lift = max(0, -int(flow_price.min()))
    least = (income - surcharge) // grid.layers + 1 + lift
    if least + surcharge >= _BUDGET:
        raise ValueError(f"a leaf's prices need a table of {least + surcharge} entries; scale them down")
    items = []
    for g in range(groups):
        usable = [k for k in keep.tolist() if grid.rate[g, k] > 0 and many[g, k] > 0]
        flows = [min(int(flow_price[g, k - 1]) + lift, _FLOW_PRICE) for k in usable]
        items.append([(int(price[g, k]), f, int(grid.rate[g, k])) for k, f in zip(usable, flows, strict=True)])
    return not _affordable(grid.target, grid.nodes.tolist(), items, least - 1, surcharge)


def _most_worth(count: int, worth: Ints, few: Ints, many: Ints) -> int:
    """Largest ``sum_k worth[k] y[k]`` with ``few <= y <= many`` and ``sum y <= count``."""
    total = int(sum(int(a) * int(b) for a, b in zip(worth, few, strict=True)))
    left = count - int(few.sum())
    for k in np.argsort(-worth, kind="stable").tolist():
        take = min(left, int(many[k] - few[k]))
        total += take * int(worth[k])
        left -= take
    return total


def _rounded_up(price: Ints, capacity: Ints, target: int) -> int:
    """Sum of ``price * capacity / target``, each term rounded up."""
    used = (price > 0) & (capacity > 0)
    return sum(-(-int(p) * int(c) // target) for p, c in zip(price[used], capacity[used], strict=True))


def _affordable(
    target: int, count: list[int], items: list[list[tuple[int, int, int]]], budget: int, surcharge: int
) -> bool:
    """Is there a pattern of one node within ``budget``, or of several within ``budget + surcharge``?

    ``items[g]`` lists (price, price of flow for the whole target, rate). ``best[c, q]`` is the most flow that full items
    with a rounded price of at most q buy, c = 0, 1, 2 (or more) of them; the last item of a pattern may be used in part.
    """
    width = budget + surcharge + 1
    if width <= 0:
        return False
    best = np.full((3, width), -(1 << 62), dtype=np.int64)
    best[0] = 0
    for copies, group in zip(count, items, strict=True):
        for _ in range(copies):
            more = best.copy()
            for price, flow_price, rate in group:
                paid = price + flow_price * rate // target
                if paid < width:
                    for c, to in ((0, 1), (1, 2), (2, 2)):
                        np.maximum(more[to, paid:], best[c, : width - paid] + rate, out=more[to, paid:])
            if (more == best).all():
                break
            best = more
    if best[1, : budget + 1].max(initial=0) >= target or best[2].max() >= target:
        return True
    spent = np.arange(width)
    for price, flow_price, rate in (item for group in items for item in group):
        if flow_price == 0:
            continue  # using it in part costs what the whole costs
        for c, limit in ((0, budget), (1, budget + surcharge), (2, budget + surcharge)):
            missing = target - best[c]
            open_ = missing <= rate
            paid = spent[open_] + price + (flow_price * missing[open_]) // target
            if (paid <= limit).any():
                return True
    return False
