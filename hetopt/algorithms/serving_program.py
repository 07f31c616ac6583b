"""The layer-configuration linear program of a serving question at one rate, and integer prices that prove its value.

For a rate T the program asks how many layers the nodes can cover when every layer may be served by any *pattern* (a set of
nodes with their numbers of layers kept whose flows add up to T), each node being spread over its k layers as one likes:

    max  sum of all z
    (1)  sum_p n_p(g, k) / k z_p <= N(g)                nodes of each group g
    (2)  sum_p z_p f_p(g) = flow into g = flow out of g   f_p(g) = sum of flow / (k T), over links that exist
    (3)  one layer's patterns only have nodes fed by the source, one other's only nodes that feed the sink
    (4)  patterns of several nodes serve a layer or more    (only when asked for)

A plan of value T gives a solution with value L. Patterns are priced by
:func:`~hetopt.algorithms.serving_pricing.cheapest_patterns` with prices rounded to integers, and these integers prove the bound
(:mod:`hetopt.verify.serving_bound` has the argument). Nothing here builds a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_pricing import Items, Pattern, cheapest_patterns

__all__ = ["FINE", "LayerProgram", "Prices", "equal_rates"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FINE = (1 << 14, 1 << 17)
"""Prices of a pattern when the bound is taken."""

_COARSE = 1 << 12  # and while columns are generated
_BITS = 40  # the rate T in integer units has so many bits
_PENALTY = 8.0  # layers lost for flow of the whole rate that has no link; more would need longer price tables
_ROUNDS = 500
_BELOW = 1 - 1e-7


class Prices(NamedTuple):
    """Integer prices; ``scale`` is about the price of a pattern.

    Attributes
    ----------
    price
        (groups, kmax + 1) for keeping k layers, per layer.
    entry, exit
        (groups,) for flow of the whole rate into and out of a group.
    source, sink
        What such flow is worth at the outside.
    several
        Extra price of a pattern of several nodes.
    """

    price: Ints
    entry: Ints
    exit: Ints
    source: int
    sink: int
    several: int
    scale: int

    def numbers(self) -> dict[str, Any]:
        """The part of a certificate that they make."""
        return {
            "price": self.price.tolist(),
            "entry": self.entry.tolist(),
            "exit": self.exit.tolist(),
            "source": self.source,
            "sink": self.sink,
            "several": self.several,
        }


def equal_rates(network: ServingNetwork) -> Ints:
    """(n,) group of nodes with the same rates, in the order of the groups' first nodes."""
    _, first, inverse = np.unique(network.throughput, axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse.ravel()].astype(np.int64)


class LayerProgram:
    """The program of one network, grouping and rate, solved by column generation.

    Parameters
    ----------
    rate
        T.
    group
        (n,) groups; nodes of a group have equal rates.
    links
        State rows (2). Left out in any case when requests may join inside an interval: they prove nothing then.
    several
        State row (4).

    Attributes
    ----------
    throughput, usage
        (groups, kmax + 1) rates, and how many nodes keep k layers in the last solution.
    """

    def __init__(
        self, network: ServingNetwork, rate: float, group: Ints, *, links: bool, several: bool = False
    ) -> None:
        import highspy

        self.layers, self.group = network.layers, group
        self.links, self.several = links and not network.partial, several
        groups = int(group.max()) + 1
        first = np.array([int(np.flatnonzero(group == g)[0]) for g in range(groups)])
        self.nodes = np.bincount(group, minlength=groups).astype(np.int64)
        columns = min(network.layers, network.throughput.shape[1] - 1) + 1
        self.throughput = network.throughput[first][:, :columns]
        self.usage = np.zeros((groups, columns))
        self._target = int(np.floor(np.ldexp(rate, _BITS - frexp(rate)[1])))
        self.kinds = self._kinds_of_layers(network, rate)

        self._highs = highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for number in self.nodes:
            highs.addRow(-highs.inf, float(number), 0, [], [])
        self._into, self._out = groups, 2 * groups
        self._outside = 3 * groups if self.links else groups
        if self.links:
            for _ in range(2 * groups):
                highs.addRow(0.0, 0.0, 0, [], [])
            for _ in range(2):
                highs.addRow(1.0, 1.0, 0, [], [])
        self._several = self._outside + (2 if self.links else 0)
        if several:
            highs.addRow(1.0, highs.inf, 0, [], [])
            self._column(-_PENALTY, highs.inf, [self._several], [1.0])
        self._one = self._several + several  # rows (3)
        for e in range(len(self.kinds) - 1):
            highs.addRow(1.0, 1.0, 0, [], [])
            self._column(-_PENALTY, highs.inf, [self._one + e], [1.0])
        if self.links:
            self._add_links(network, rate)
        self._pool: set[tuple[int, Pattern]] = set()
        self._patterns: list[tuple[int, Pattern]] = []
        self._z = highs.getNumCol()
        for kind, items in enumerate(self.kinds):
            for j in range(len(items.group)):  # every item alone, as often as it takes
                times = -(-self._target // int(items.rate[j]))
                flow = [int(items.rate[j])] * (times - 1)
                self._add(kind, Pattern((j,) * times, (*flow, self._target - sum(flow))))

    def _kinds_of_layers(self, network: ServingNetwork, rate: float) -> list[Items]:
        """Items of patterns in general, and at the first and the last layer where these are more restricted."""

        def items(outside: Floats) -> Items:
            """Each node passes at most ``outside``."""
            cut = np.array([outside[self.group == g].max() for g in range(len(self.nodes))])
            scaled = np.ldexp(np.minimum(np.minimum(self.throughput, cut[:, None]), rate), _BITS - frexp(rate)[1])
            whole = np.minimum(np.ceil(scaled).astype(np.int64), self._target)
            at, keep = np.nonzero(whole)
            copies = np.bincount(self.group[outside > 0], minlength=len(self.nodes)).astype(np.int64)
            return Items(at, keep, whole[at, keep], copies, self._target)

        general = items(np.full(network.n, np.inf))
        ends = [network.source, network.sink] if network.layers > 1 else [np.minimum(network.source, network.sink)]
        most = np.minimum(self.throughput.max(axis=1), rate)[self.group]
        return [general] + ([items(end) for end in ends] if any((end < most).any() for end in ends) else [])

    def _column(self, cost: float, upper: float, rows: list[int], values: list[float]) -> None:
        self._highs.addCol(cost, 0.0, upper, len(rows), np.array(rows, dtype=np.int32), np.array(values))

    def _add_links(self, network: ServingNetwork, rate: float) -> None:
        """Columns of rows (2): from group to group, from the source, to the sink, and penalised gaps."""
        groups = len(self.nodes)
        member = (self.group[None, :] == np.arange(groups)[:, None]).astype(float)
        link = member @ np.minimum(network.link / rate, 1.0) @ member.T
        for g, h in zip(*np.nonzero(link), strict=True):
            self._column(0.0, float(link[g, h]), [self._out + int(g), self._into + int(h)], [1.0, 1.0])
        source, sink = (member @ np.minimum(end / rate, 1.0) for end in (network.source, network.sink))
        for g in np.flatnonzero(source).tolist():
            self._column(0.0, float(source[g]), [self._into + g, self._outside], [1.0, 1.0])
        for g in np.flatnonzero(sink).tolist():
            self._column(0.0, float(sink[g]), [self._out + g, self._outside + 1], [1.0, 1.0])
        self._capacity = (link, source, sink)
        for row in range(self._into, self._into + 2 * groups):
            for sign in (1.0, -1.0):
                self._column(-_PENALTY, self._highs.inf, [row], [sign])
        for end in range(2):
            self._column(-_PENALTY, self._highs.inf, [self._outside + end], [1.0])

    def _add(self, kind: int, pattern: Pattern) -> bool:
        """A column for the pattern at a kind of layer, unless it is there already."""
        if (kind, pattern) in self._pool:
            return False
        self._pool.add((kind, pattern))
        self._patterns.append((kind, pattern))
        items = self.kinds[kind]
        entries: dict[int, float] = {}
        for j, f in zip(pattern.item, pattern.flow, strict=True):
            g, k = int(items.group[j]), int(items.keep[j])
            entries[g] = entries.get(g, 0.0) + 1.0 / k
            if self.links and f:
                for row in (self._into + g, self._out + g):
                    entries[row] = entries.get(row, 0.0) - f / (k * self._target)
        if self.several and len(pattern.item) > 1:
            entries[self._several] = 1.0
        if kind:
            entries[self._one + kind - 1] = 1.0
        self._column(1.0, self._highs.inf, list(entries), list(entries.values()))
        return True

    def solve(
        self, *, to_the_end: bool = False, should_stop: Callable[[], bool] = lambda: False
    ) -> tuple[float, Prices | None]:
        """Layers that can be covered, at most.

        Parameters
        ----------
        to_the_end
            Find the program's value even when it is seen to reach L.

        Returns
        -------
        tuple
            A proven upper bound on the program's value, with the prices that prove it (None when stopped before any).
            The bound is the program's value up to rounding of prices, unless it falls below L or is seen not to: then the
            work ends early.
        """
        best, proof = np.inf, None
        value = np.inf
        for _ in range(_ROUNDS):
            if should_stop():
                break
            self._highs.run()
            value = float(self._highs.getInfo().objective_function_value)
            dual = np.array(self._highs.getSolution().row_dual)
            prices, least, found = self._price(dual, _COARSE)
            bound = self._layers(prices, least)
            if bound < best:
                best, proof = bound, prices
            if best < self.layers * _BELOW or (value >= self.layers and not to_the_end):
                break  # refuted, or never to be
            if sum([self._add(kind, pattern) for kind, pattern in found]) == 0:
                break
        if proof is not None:
            self._note_usage()
            if best >= self.layers * _BELOW and value < self.layers:
                for scale in FINE:  # the coarse grid costs up to a tenth of a layer
                    prices, least, _ = self._price(dual, scale)
                    bound = self._layers(prices, least)
                    if bound < best:
                        best, proof = bound, prices
                    if best < self.layers * _BELOW:
                        break
        return float(best), proof

    def _note_usage(self) -> None:
        """Nodes that keep k layers in the last solution."""
        self.usage[:] = 0.0
        z = np.array(self._highs.getSolution().col_value)[self._z :]
        for (kind, pattern), amount in zip(self._patterns, z, strict=False):  # patterns added since have none
            items = self.kinds[kind]
            for j in pattern.item if amount > 0 else ():
                self.usage[items.group[j], items.keep[j]] += amount / items.keep[j]

    def _price(self, dual: Floats, scale: int) -> tuple[Prices, list[int], list[tuple[int, Pattern]]]:
        """Duals as integer prices, the least price of a pattern for each kind of layer, and patterns that improve."""
        groups = len(self.nodes)
        keep = np.arange(1, self.throughput.shape[1])
        price = np.zeros(self.throughput.shape, dtype=np.int64)
        price[:, 1:] = np.floor(np.maximum(dual[:groups], 0.0)[:, None] * scale / keep)
        entry = leave = np.zeros(groups, dtype=np.int64)
        source = sink = 0
        if self.links:
            entry = np.rint(-dual[self._into : self._into + groups] * scale).astype(np.int64)
            leave = np.rint(-dual[self._out : self._out + groups] * scale).astype(np.int64)
            source, sink = (int(np.rint(d * scale)) for d in dual[self._outside : self._outside + 2])
        several = int(np.rint(max(-dual[self._several], 0.0) * scale)) if self.several else 0
        prices = Prices(price, entry, leave, source, sink, several, scale)

        least, improving = [], []
        for kind, items in enumerate(self.kinds):
            worth = 1.0 - (dual[self._one + kind - 1] if kind else 0.0)
            limit = int(np.ceil(worth * scale))
            flow_price = (entry + leave)[items.group] // items.keep
            lift = max(0, -int(flow_price.min(initial=0)))
            cheapest, found = cheapest_patterns(
                items,
                price[items.group, items.keep],
                flow_price + lift,
                limit=max(limit + lift, 0),
                surcharge=several,
            )
            least.append(min(cheapest - lift, limit))
            improving += [(kind, pattern) for cost, pattern in found if cost - lift < limit - 1]
        return prices, least, improving

    def _layers(self, prices: Prices, least: list[int]) -> float:
        """The bound on the number of layers that the prices prove, with the least price of a pattern by kind of layer."""
        if least[0] <= 0:
            return np.inf
        worth = (prices.price * np.arange(self.throughput.shape[1])).max(axis=1)
        income = float((worth * self.nodes).sum()) - self.several * prices.several
        if self.links:
            link, source, sink = self._capacity
            income += float(np.ceil(np.maximum(prices.exit[:, None] + prices.entry[None, :], 0) * link).sum())
            for potential, base, capacity in ((prices.entry, prices.source, source), (prices.exit, prices.sink, sink)):
                income += base + float(np.ceil(np.maximum(potential - base, 0) * capacity).sum())
        return (income - sum(least[1:])) * (1 + 1e-12) / least[0] + len(least) - 1
