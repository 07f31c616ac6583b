"""Replay of upper bounds on the throughput of a serving plan, in integers, without a solver.

A certificate is a dict of plain numbers that some search produced; nothing here trusts it. :func:`check_bound` returns a
rate that no plan reaches, or raises ``ValueError``. (Where certificates come from: :mod:`hetopt.algorithms.serving_bound`.)

**What a plan of rate T looks like.** Every layer l is served by some nodes, and their flows f_i add up to T on every
layer. Node i keeps k_i layers and ``0 < f_i <= rate_i(k_i)``. So layer l shows a *pattern*: a set of pairs (group of the
node, k) with flows that add up to T. A node that keeps k layers is in k patterns.

**Prices.** The certificate has, for each group g of nodes with equal rates, a price ``u[g, k] >= 0`` a layer for
keeping k layers, and potentials ``a[g]`` (entry) and ``b[g]`` (exit). With ``v[g, k] = floor((a[g] + b[g]) / k)``, let P be the
least price ``sum u[g, k] + v[g, k] f / T`` of any pattern. Summed over the L layers,

    L P <= sum over nodes of (k u[g, k] + k v[g, k] f / T)
        <= sum over nodes of k u[g, k] + sum over nodes of (a[g] + b[g]) f / T .

The first sum is at most what the node counts allow. The second is a sum over links: flow on a link from g to h counts
``b[g] + a[h]``, at most ``max(0, b[g] + a[h])`` times what the links from g to h carry together; flow from the source to
g counts ``a[g]``, at most ``s + max(0, a[g] - s) * capacity`` for whatever number s, and likewise at the sink. If L P is
larger than these limits together, no plan has rate T.

**Ends.** The first layer is served by nodes fed by the source, none of them with more flow than its link brings, and the last by
nodes that feed the sink. With P' and P'' the least prices of such patterns, the left side is ``(L - 2) P + P' + P''``.

**Clusters.** Where one node alone serves two successive layers' patterns, one link carries the whole rate. Take the
clusters connected by links that can carry T alone. If every layer were served by one node, the plan would live in one
cluster. When for each cluster a certificate says that its nodes alone cannot do it, some layer is served by two nodes or
more. Patterns of several nodes may then be asked to cost ``several`` more, and the left side grows by that much once.

**Integers.** Rates and capacities are multiplied by a power of two and rounded up, T is rounded down: the scaled network
only allows more. Prices are integers, and the price of flow is rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.verify.serving_handover import KIND as HAND_OVERS
from hetopt.verify.serving_handover import check_hand_overs

if TYPE_CHECKING:
    from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["KIND", "check_bound"]

KIND = "layer-prices"

_BITS = 40  # the rate on the grid has about this many bits
_BUDGET = 1 << 24  # longest price table a replay is willing to fill
_PRICE = 1 << 48  # prices and potentials stay below it, so that int64 cannot wrap
_FLOW_PRICE = 1 << 22  # prices of flow are cut to it, which only makes patterns cheaper

Ints = NDArray[np.int64]


class _Grid(NamedTuple):
    """The scaled network: ``target`` is T, capacities are cut to T a link and summed over a group's links.

    ``nodes`` and ``rate`` have one row for the layers in general, and one each for the first and the last layer (for both
    at once where there is one layer).
    """

    layers: int
    target: int
    nodes: list[Ints]
    rate: list[Ints]
    link: Ints
    source: Ints
    sink: Ints


def check_bound(network: ServingNetwork, certificate: Mapping[str, Any]) -> float:
    """Replay a certificate of this module's kind or of :mod:`hetopt.verify.serving_handover`.

    Parameters
    ----------
    certificate
        ``kind`` (:data:`KIND`), ``rate`` (the claim: no plan has this value or more), ``group`` (n group numbers), ``price``
        (groups x layers kept from 0 on), ``entry``, ``exit``, ``source``, ``sink``, ``several`` (integers) and, for the argument
        on clusters, ``clusters``: certificates of the same rate, one for each cluster that has a link from the source and
        one to the sink that carry the rate, in the order of the clusters' first nodes.

    Returns
    -------
    float
        ``rate``: every plan of the network has a smaller value.

    Raises
    ------
    ValueError
        When the certificate proves nothing, in a sentence.
    """
    if certificate.get("kind") == HAND_OVERS:
        return check_hand_overs(network, certificate, check_bound)
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
    if "clusters" in certificate:
        _check_clusters(network, rate, certificate["clusters"])
    if not _refutes(_scaled(network, rate, group), certificate, "clusters" in certificate, network.partial):
        raise ValueError(f"the prices do not exclude rate {rate}; the certificate proves nothing")
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
    rates = up(network.throughput[first][:, : most + 1])
    source, sink = up(network.source), up(network.sink)
    nodes, restricted = [member.sum(axis=1)], [rates]
    for outside in [source, sink] if network.layers > 1 else [np.minimum(source, sink)]:
        nodes.append(member @ (outside > 0).astype(np.int64))
        restricted.append(np.minimum(rates, (member * outside).max(axis=1)[:, None]))
    return _Grid(
        network.layers, target, nodes, restricted, member @ up(network.link) @ member.T, member @ source, member @ sink
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


def _integers(certificate: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Ints:
    value = np.asarray(certificate[name])
    if value.shape != shape or not np.issubdtype(value.dtype, np.integer) or (np.abs(value) >= _PRICE).any():
        raise ValueError(f"{name} of a certificate must be {shape} integers below 2^48 in size")
    return value.astype(np.int64)


def _refutes(grid: _Grid, certificate: Mapping[str, Any], clusters: bool, partial: bool) -> bool:
    """Do the prices exclude every plan of the target rate?"""
    groups, columns = grid.rate[0].shape
    price = _integers(certificate, "price", (groups, columns))
    entry = _integers(certificate, "entry", (groups,))
    leave = _integers(certificate, "exit", (groups,))
    at_source, at_sink, surcharge = (int(_integers(certificate, name, ())) for name in ("source", "sink", "several"))
    if (price < 0).any() or surcharge < 0:
        raise ValueError("a certificate has a negative price")
    if surcharge and not clusters:
        raise ValueError("a certificate charges for several nodes a layer, but excludes no clusters")
    if partial and (entry.any() or leave.any()):
        raise ValueError("potentials prove nothing when a request may join a node inside its interval")

    # What the plan can pay, as Python integers.
    worth = (price * np.arange(columns)).max(axis=1)
    income = sum(int(w) * int(n) for w, n in zip(worth, grid.nodes[0], strict=True)) - surcharge
    income += _rounded_up(np.maximum(leave[:, None] + entry[None, :], 0), grid.link, grid.target)
    for potential, base, capacity in ((entry, at_source, grid.source), (leave, at_sink, grid.sink)):
        income += base + _rounded_up(np.maximum(potential - base, 0), capacity, grid.target)

    # What it must pay. Adding the same number to every price of flow adds it to every pattern, as flows add up to the
    # target; that makes the prices of flow non-negative.
    flow_price = (entry + leave)[:, None] // np.arange(1, columns)[None, :]
    least: list[int] = []
    ends = len(grid.nodes) - 1
    most_lift = max(0, -int(flow_price.min()))
    for kind, (nodes, rate) in enumerate(zip(grid.nodes, grid.rate, strict=True)):
        usable = [[k for k in range(1, columns) if rate[g, k] > 0 and nodes[g] > 0] for g in range(groups)]
        lift = max([0, *(-int(flow_price[g, k - 1]) for g in range(groups) for k in usable[g])])
        items = [
            [(int(price[g, k]), min(int(flow_price[g, k - 1]) + lift, _FLOW_PRICE), int(rate[g, k])) for k in usable[g]]
            for g in range(groups)
        ]
        # Beyond this price the left side is larger than the right side for certain.
        enough = income // grid.layers + 1
        if kind > 0:
            enough = max(income - (grid.layers - ends) * least[0], 0) + most_lift + 1
        least.append(_least_price(grid.target, nodes.tolist(), items, enough + lift, surcharge) - lift)
        if kind == 0 and least[0] >= enough:
            return True  # without a look at the ends, whose patterns cost as much at least
    return (grid.layers - ends) * least[0] + sum(least[1:]) > income


def _rounded_up(price: Ints, capacity: Ints, target: int) -> int:
    """Sum of ``price * capacity / target``, each term rounded up."""
    used = (price > 0) & (capacity > 0)
    return sum(-(-int(p) * int(c) // target) for p, c in zip(price[used], capacity[used], strict=True))


def _least_price(
    target: int, count: list[int], items: list[list[tuple[int, int, int]]], enough: int, surcharge: int
) -> int:
    """The least price of a pattern, a pattern of several nodes being ``surcharge`` cheaper; or ``enough`` if that is less.

    ``items[g]`` lists (price, price of flow for the whole target, rate). ``best[c, q]`` is the most flow that full items
    with a rounded price of at most q buy: any number of them, or, with a surcharge, c = 0, 1, 2 (or more). The last item
    of a pattern may be used in part.
    """
    width = max(enough, 0) + surcharge
    if width >= _BUDGET:
        raise ValueError(f"the prices need a table of {width} entries; scale them down")
    if width == 0:
        return enough
    steps = ((0, 1), (1, 2), (2, 2)) if surcharge else ((0, 0),)
    best = np.full((3 if surcharge else 1, width), -(1 << 62), dtype=np.int64)
    best[0] = 0
    for copies, group in zip(count, items, strict=True):
        for _ in range(copies):
            more = best.copy()
            for price, flow_price, rate in group:
                paid = price + flow_price * rate // target
                if paid < width:
                    for c, to in steps:
                        np.maximum(more[to, paid:], best[c, : width - paid] + rate, out=more[to, paid:])
            if (more == best).all():
                break
            best = more
    least = enough
    spent = np.arange(width)
    for c, row in enumerate(best):
        reached = np.flatnonzero(row >= target)
        if len(reached):
            least = min(least, int(reached[0]) - (surcharge if c == 2 else 0))
        for price, flow_price, rate in (item for group in items for item in group):
            open_ = (row < target) & (target - row <= rate)
            if flow_price > 0 and open_.any():  # at no price of flow, a part of it costs what the whole costs
                part: Ints = spent[open_] + price + (flow_price * (target - row[open_])) // target
                least = min(least, int(part.min()) - (surcharge if c >= 1 else 0))
    return least
