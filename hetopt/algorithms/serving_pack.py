"""Disjoint chains of single nodes along real links, by construction: a first plan wherever links are few.

A chain of rate T is a path from the source to the sink over links that carry T; each of its nodes keeps as many layers as it
can at T, until all L are kept. :func:`pack` lays chains one after another on nodes not yet in use. Each is the best over a
range of rates of what it carries for the worth of its nodes, a node being worth the most layers times rate it could serve.
Then some chains are taken up and laid anew, in other ways, as long as that helps.

The way to go from a node comes from a table: the least worth of nodes that keep the layers still missing, were nodes allowed to
come up twice. A depth-first search with that guide finds a path on which none does, or gives up. Heuristic: nothing here proves
that there is no chain. Nodes side by side within a chain are left to :mod:`hetopt.algorithms.serving_climb`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.serving_flow import plan_value
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_paths import keeps

__all__ = ["Chain", "pack"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SLACK = 1 - 1e-9
_RATES = 24  # tried for each chain
_STEPS = 3000  # of the depth-first search before it gives up
_NOISE = 0.3  # how far from the guide it may stray
_WAITS = 150  # turns without a better plan before the end


class Chain(NamedTuple):
    """Nodes in order, layers they keep, and what the chain carries."""

    nodes: Ints
    keep: Ints
    rate: float


def pack(
    network: ServingNetwork,
    *,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Ints, Ints], None] = lambda start, hold: None,
) -> tuple[Ints, Ints]:
    """Start and hold (n,) of disjoint chains that carry as much together as was found; hold 0 where a node is left out.

    Parameters
    ----------
    seed
        Of the random choices.
    should_stop
        Asked at each rate.
    report
        Called with every better plan.
    """
    packing = _Packing(network, seed)
    chains = packing.lay([], 0.0, should_stop)
    best = packing.plan(chains)
    value = plan_value(network, *best)
    if chains:
        report(*best)
    waited = 0
    while chains and waited < _WAITS and not should_stop():
        waited += 1
        found = packing.lay(packing.some_of(chains), _NOISE, should_stop)
        if _carried(found) < _carried(chains) * _SLACK:
            continue
        if _carried(found) > _carried(chains) * (1 + 1e-9):
            waited = 0
        chains = found
        plan = packing.plan(chains)
        now = plan_value(network, *plan)  # more than the chains carry where links join two of them
        if now > value * (1 + 1e-9):
            best, value = plan, now
            report(*best)
    return best


def _carried(chains: list[Chain]) -> float:
    return sum(chain.rate for chain in chains)


class _Packing:
    """The network at a range of rates."""

    def __init__(self, network: ServingNetwork, seed: int) -> None:
        self.network = network
        self.random = np.random.default_rng([seed, network.n])
        columns = min(network.layers, network.throughput.shape[1] - 1) + 1
        self.rate = network.throughput[:, :columns]
        self.worth = (self.rate * np.arange(columns)).max(axis=1)
        self.worth /= max(self.worth.max(), 1e-300)
        self.rates = self._rates()
        self.keep = [keeps(network, float(rate)) for rate in self.rates]
        self.linked = [network.link >= rate * _SLACK for rate in self.rates]

    def _rates(self) -> Floats:
        """From the most at which all nodes together keep L layers down to the slowest link, in equal ratios."""
        every = np.unique(self.rate[self.rate > 0])
        enough = [rate for rate in every if keeps(self.network, float(rate)).sum() >= self.network.layers]
        if not enough:
            return np.zeros(0)
        caps = [self.network.link, self.network.source, self.network.sink]
        least = min([float(cap[cap > 0].min()) for cap in caps if (cap > 0).any()] + [float(every[0])])
        return np.geomspace(enough[-1], min(least, enough[-1]), _RATES)

    def some_of(self, chains: list[Chain]) -> list[Chain]:
        """Chains without some of them, the slow ones more often."""
        number = len(chains)
        gone = min(number, int(self.random.integers(1, 4)))
        odds = np.array([1.0 / chain.rate for chain in chains])
        out = self.random.choice(number, gone, replace=False, p=odds / odds.sum())
        return [chain for i, chain in enumerate(chains) if i not in out]

    def lay(self, chains: list[Chain], noise: float, should_stop: Callable[[], bool]) -> list[Chain]:
        """Chains and as many more as there is room for, each the best of the rates."""
        free = np.ones(self.network.n, dtype=np.bool_)
        for chain in chains:
            free[chain.nodes] = False
        while True:
            best: Chain | None = None
            most = 0.0
            stray = np.exp(noise * self.random.standard_normal(self.network.n)) if noise else np.ones(self.network.n)
            for level in range(len(self.rates)):
                if should_stop():
                    return chains
                if self.keep[level][free].sum() < self.network.layers:
                    continue
                found = self._chain(level, free, stray)
                if found is None:
                    continue
                gain = found.rate / self.worth[found.nodes].sum()
                if noise:
                    gain *= float(np.exp(noise * self.random.standard_normal() / 3))
                if gain > most:
                    best, most = found, gain
            if best is None:
                break
            chains = [*chains, best]
            free[best.nodes] = False
        return chains

    def _chain(self, level: int, free: Bools, stray: Floats) -> Chain | None:
        """A chain of free nodes at one of the rates, or None."""
        network, rate = self.network, float(self.rates[level])
        nodes, keep = np.empty(network.n, dtype=np.int64), np.empty(network.n, dtype=np.int64)
        number = _search(
            network.layers, self.keep[level], self.linked[level], network.source >= rate * _SLACK,
            network.sink >= rate * _SLACK, self.worth * stray, free & (self.keep[level] > 0), _STEPS, nodes, keep,
        )  # fmt: skip
        if number == 0:
            return None
        nodes, keep = nodes[:number], keep[:number]
        carries = min(float(self.rate[nodes, keep].min()), float(network.source[nodes[0]]))
        carries = min(
            carries, float(network.sink[nodes[-1]]), float(network.link[nodes[:-1], nodes[1:]].min(initial=np.inf))
        )
        return Chain(nodes, keep, carries)

    def plan(self, chains: list[Chain]) -> tuple[Ints, Ints]:
        """Start and hold of each node."""
        start, hold = np.zeros(self.network.n, dtype=np.int64), np.zeros(self.network.n, dtype=np.int64)
        for chain in chains:
            hold[chain.nodes] = chain.keep
            start[chain.nodes] = np.cumsum(chain.keep) - chain.keep
        return start, hold


@njit
def _search(layers, most, linked, enters, leaves, cost, free, steps, nodes, keep):  # type: ignore[no-untyped-def]
    """A path of distinct free nodes that keeps all layers: its length (0: none found), nodes and layers kept.

    ``onward[r, j]`` is the least cost of keeping r more layers beginning with node j, nodes coming up twice allowed.
    """
    n = len(most)
    never = 1e300
    onward = np.full((layers + 1, n), never)
    after = np.full((layers + 1, n), never)  # least ``onward`` over what is linked from j
    for r in range(1, layers + 1):
        for j in range(n):
            if not free[j]:
                continue
            if most[j] >= r and leaves[j]:
                onward[r, j] = cost[j]
            elif r > 1:
                rest = after[max(r - most[j], 1), j]
                if rest < never:
                    onward[r, j] = cost[j] + rest
        for i in range(n):
            if free[i]:
                for j in range(n):
                    if linked[i, j] and onward[r, j] < after[r, i]:
                        after[r, i] = onward[r, j]
    used = np.zeros(n, np.bool_)
    tried = np.zeros((n + 1, n), np.bool_)
    left = np.zeros(n + 1, np.int64)
    left[0] = layers
    depth = 0
    for _ in range(steps):
        r = left[depth]
        best = never
        at = -1
        for j in range(n):
            if used[j] or tried[depth, j] or onward[r, j] >= best:
                continue
            if enters[j] if depth == 0 else linked[nodes[depth - 1], j]:
                best = onward[r, j]
                at = j
        if at < 0:
            if depth == 0:
                return 0
            depth -= 1
            used[nodes[depth]] = False
            continue
        tried[depth, at] = True
        nodes[depth] = at
        if most[at] >= r and leaves[at]:
            keep[depth] = r
            return depth + 1
        keep[depth] = min(most[at], r - 1)
        used[at] = True
        left[depth + 1] = r - keep[depth]
        depth += 1
        tried[depth, :] = False
    return 0
