"""The arrays of a serving question: nodes that hold intervals of layers, links between them, a model of ``L`` layers.

Every node keeps one interval of consecutive layers and serves at a rate that depends on how many layers it keeps. A
request enters at the source, passes through nodes whose intervals join end to start, and leaves at the sink after the
last layer. The value of a plan is the largest flow from source to sink. The module holds the data type and what can be
read off it (equal nodes, clusters of strong links); it neither evaluates a plan (:mod:`hetopt.verify.serving`) nor
looks for one (:mod:`hetopt.algorithms.serving`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["ServingNetwork", "equal_nodes", "strong_components"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ServingNetwork:
    """A serving question. ``n`` nodes, ``L`` layers; rates and capacities share one unit (tokens per second, say).

    Attributes
    ----------
    layers
        ``L``, the number of layers a request passes.
    throughput
        (n, kmax + 1) rate of a node that keeps ``k`` layers, 0 where it cannot keep that many. Column 0 is 0. Rates
        need not fall with ``k``.
    link
        (n, n) capacity of the directed link from a node to another, 0 where there is none, ``inf`` where unlimited.
    source
        (n,) capacity of the link from the source, 0 where there is none.
    sink
        (n,) capacity of the link to the sink, 0 where there is none.
    names
        (n,) names used in messages; numbers when left out.
    partial
        May a request join a node inside its interval? Then a link carries flow when the first node's end lies in the
        second node's interval, and the second serves only what is left. Otherwise the end must meet the start.

    Raises
    ------
    ValueError
        When shapes disagree, a number is negative or not a number, or no node can keep a layer.
    """

    layers: int
    throughput: Floats
    link: Floats
    source: Floats
    sink: Floats
    names: tuple[str, ...] = field(default=())
    partial: bool = False

    def __post_init__(self) -> None:
        for name in ("throughput", "link", "source", "sink"):
            value = np.array(getattr(self, name), dtype=np.float64)
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        n = len(self.throughput)
        object.__setattr__(self, "names", tuple(self.names) or tuple(str(i) for i in range(n)))
        if self.layers < 1:
            raise ValueError(f"layers is {self.layers}; a model has at least one layer")
        if n == 0 or self.throughput.ndim != 2 or self.throughput.shape[1] < 2:
            raise ValueError("throughput must have one row a node and a column for every number of layers from 0 on")
        for name, shape in (("link", (n, n)), ("source", (n,)), ("sink", (n,))):
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}; {n} nodes need {shape}")
        if len(self.names) != n:
            raise ValueError(f"{len(self.names)} names for {n} nodes")
        for name in ("throughput", "link", "source", "sink"):
            if np.isnan(getattr(self, name)).any() or (getattr(self, name) < 0).any():
                raise ValueError(f"{name} holds a negative entry or one that is not a number")
        if not np.isfinite(self.throughput).all():
            raise ValueError("throughput must be finite")
        if self.throughput[:, 0].any():
            raise ValueError("throughput of zero layers (column 0) must be 0")
        if np.diagonal(self.link).any():
            raise ValueError("a node has a link to itself; remove it")

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.throughput)

    @property
    def most_layers(self) -> int:
        """Largest number of layers that some node can keep and the model has."""
        usable = self.throughput[:, : self.layers + 1].any(axis=0)
        return int(np.flatnonzero(usable).max()) if usable.any() else 0

    def restricted(self, nodes: Ints) -> ServingNetwork:
        """The question with only these nodes (ascending indices), in this order."""
        return ServingNetwork(
            self.layers,
            self.throughput[nodes],
            self.link[np.ix_(nodes, nodes)],
            self.source[nodes],
            self.sink[nodes],
            tuple(self.names[i] for i in nodes),
            self.partial,
        )

    def effective_capacity(self) -> tuple[Floats, Floats, Floats]:
        """Link, source and sink capacities cut to what the nodes at their ends could ever carry.

        Plans have the same values with them, and links that differ only above that level become equal.
        """
        most = self.throughput[:, : self.layers + 1].max(axis=1)
        return (
            np.minimum(self.link, np.minimum(most[:, None], most[None, :])),
            np.minimum(self.source, most),
            np.minimum(self.sink, most),
        )


def equal_nodes(network: ServingNetwork) -> Ints:
    """Class of every node, so that nodes of a class may be exchanged without changing any value.

    Two nodes are equal when they have the same rates and the same effective capacities to and from every other node,
    to each other in both directions, from the source and to the sink.

    Returns
    -------
    numpy.ndarray
        (n,) class numbers, counted in the order of the classes' first nodes. O(n^3) array work.
    """
    link, source, sink = network.effective_capacity()
    n = network.n
    group = np.full(n, -1, dtype=np.int64)
    first: list[int] = []
    for i in range(n):
        for g, r in enumerate(first):
            others = np.ones(n, dtype=bool)
            others[[i, r]] = False
            if (
                source[i] == source[r]
                and sink[i] == sink[r]
                and link[i, r] == link[r, i]
                and (network.throughput[i] == network.throughput[r]).all()
                and (link[i, others] == link[r, others]).all()
                and (link[others, i] == link[others, r]).all()
            ):
                group[i] = g
                break
        else:
            group[i] = len(first)
            first.append(i)
    return group


def strong_components(network: ServingNetwork, rate: float) -> Ints:
    """Cluster of every node when only links that can carry ``rate`` by themselves count (either direction).

    Returns
    -------
    numpy.ndarray
        (n,) cluster numbers, counted in the order of the clusters' first nodes.
    """
    strong = network.link >= rate
    strong = strong | strong.T
    component = np.full(network.n, -1, dtype=np.int64)
    count = 0
    for i in range(network.n):
        if component[i] >= 0:
            continue
        frontier = np.zeros(network.n, dtype=bool)
        frontier[i] = True
        while frontier.any():
            component[frontier] = count
            frontier = strong[frontier].any(axis=0) & (component < 0)
        count += 1
    return component
