"""Upper bounds on the throughput of a serving plan: the layer-configuration linear program and its proof in integers.

For a rate T the program asks how many layers the nodes can cover when every layer may be served by any pattern (a set of
nodes with their numbers of layers kept whose flows add up to T), each node being spread over its k layers as one likes:

    max  sum_p z_p
    (1)  sum_p n_p(g, k) z_p <= k y(g, k)              layers that k-keeping nodes of group g are used in
    (2)  sum_k y(g, k) <= N(g),  few <= y <= many      nodes
    (3)  sum_p z_p f_p(g) = flow into g = flow out of g  where f_p(g) = sum of flow / (k T), over links that exist
    (4)  sum of z over patterns of several nodes >= 1    when no cluster of strong links can serve alone

A plan of value T gives a solution with value L, so a value below L refutes T. Patterns are priced by
:func:`~hetopt.algorithms.serving_pricing.cheapest_patterns` with prices rounded to integers, and it is these integers
that become the certificate (replayed by :func:`hetopt.verify.serving_bound.check_bound`, whose docstring has the
proof). Nothing here builds a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_network import ServingNetwork, equal_nodes, strong_components
from hetopt.algorithms.serving_pricing import Items, Pattern, cheapest_patterns

__all__ = ["LayerProgram", "Prices", "Refutation", "area_bound", "configuration_bound", "equal_rates", "refute"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_GRID = 1 << 40  # the target rate in integer units is about this large
_COARSE = 1 << 12  # price of a pattern while columns are generated
_FINE = (1 << 14, 1 << 17)  # and when the bound is taken
_PENALTY = 8.0  # layers lost for flow of the whole rate that has no link; more would need longer price tables


class Prices(NamedTuple):
    """Integer prices of a leaf of a certificate; ``scale`` is about the price of a pattern."""

    price: Ints
    entry: Ints
    exit: Ints
    source: int
    sink: int
    several: int
    scale: int

    def leaf(self) -> dict[str, Any]:
        """The certificate's form."""
        return {
            "price": self.price.tolist(),
            "entry": self.entry.tolist(),
            "exit": self.exit.tolist(),
            "source": self.source,
            "sink": self.sink,
            "several": self.several,
        }


class Refutation(NamedTuple):
    """What is known about a rate: ``layers`` the nodes can cover at it, at most; the certificate when that is below L."""

    layers: float
    certificate: dict[str, Any] | None


def equal_rates(network: ServingNetwork) -> Ints:
    """(n,) group of nodes with the same rates, in the order of the groups' first nodes."""
    _, first, inverse = np.unique(network.throughput, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return order[inverse.ravel()].astype(np.int64)


def area_bound(network: ServingNetwork) -> float:
    """Sum over nodes of the best ``k rate(k)``, divided by L: no plan has a larger value."""
    most = min(network.layers, network.throughput.shape[1] - 1)
    area = network.throughput[:, : most + 1] * np.arange(most + 1)
    return float(area.max(axis=1).sum() / network.layers) * (1 + 1e-12)


class LayerProgram:
    """The linear program of one network, grouping and rate, solved by column generation; keeps its columns between calls.

    Parameters
    ----------
    network
        The question.
    rate
        T.
    group
        (n,) groups; nodes of a group have equal rates.
    links
        State the flow rows (3). Not allowed (they prove nothing) when requests may join inside an interval.
    several
        State row (4).

    Attributes
    ----------
    nodes, most
        (groups,) nodes in each group and (groups, kmax + 1) the most nodes a pattern of any plan could ask for.
    throughput
        (groups, kmax + 1) rates.
    usage
        (groups, kmax + 1) the last solution's y.
    """

    def __init__(
        self, network: ServingNetwork, rate: float, group: Ints, *, links: bool, several: bool = False
    ) -> None:
        import highspy

        self.layers = network.layers
        self.links = links and not network.partial
        self.several = several
        self.group = group
        groups = int(group.max()) + 1
        first = np.array([int(np.flatnonzero(group == g)[0]) for g in range(groups)])
        self.nodes = np.bincount(group, minlength=groups).astype(np.int64)
        columns = min(network.layers, network.throughput.shape[1] - 1) + 1
        scale = _GRID / rate
        whole = np.minimum(np.ceil(network.throughput[first][:, :columns] * scale * (1 + 1e-14)), _GRID).astype(
            np.int64
        )
        at, keep = np.nonzero(whole)
        self.items = Items(at, keep, whole[at, keep], self.nodes, _GRID)
        self.columns = columns
        self.throughput = network.throughput[first][:, :columns]
        self.most = np.where(whole > 0, self.nodes[:, None], 0)
        self.usage = np.zeros((groups, columns))
        self._row_of = np.full((groups, columns), -1)
        self._row_of[at, keep] = np.arange(len(at))

        m = len(at)
        self._highs = highs = highspy.Highs()
        highs.silent()
        highs.setOptionValue("threads", 1)
        infinity = highspy.kHighsInf
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for _ in range(m):
            highs.addRow(-infinity, 0.0, 0, [], [])
        for g in range(groups):
            highs.addRow(-infinity, float(self.nodes[g]), 0, [], [])
        self._into, self._out = m + groups, m + 2 * groups
        self._ends = m + 3 * groups if self.links else m + groups
        if self.links:
            for _ in range(2 * groups):
                highs.addRow(0.0, 0.0, 0, [], [])
            for _ in range(2):
                highs.addRow(1.0, 1.0, 0, [], [])
        self._several_row = self._ends + (2 if self.links else 0)
        if several:
            highs.addRow(1.0, infinity, 0, [], [])
            self._column(-_PENALTY, infinity, [self._several_row], [1.0])
        self._y = highs.getNumCol()
        for j in range(m):
            self._column(0.0, float(self.nodes[at[j]]), [j, m + int(at[j])], [-float(keep[j]), 1.0])
        self._flow: list[tuple[int, int, float]] = []
        if self.links:
            self._add_links(network, rate)
        self._pool: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        self.patterns: list[Pattern] = []
        self._z = highs.getNumCol()
        for j in range(m):  # every item alone, as often as it takes
            times = -(-_GRID // int(self.items.rate[j]))
            flow = [int(self.items.rate[j])] * (times - 1)
            self._add(Pattern((j,) * times, (*flow, _GRID - sum(flow))))

    def _column(self, cost: float, upper: float, rows: list[int], values: list[float]) -> None:
        self._highs.addCol(cost, 0.0, upper, len(rows), np.array(rows, dtype=np.int32), np.array(values))

    def _add_links(self, network: ServingNetwork, rate: float) -> None:
        """Columns of the flow rows: from group to group, from the source, to the sink, and penalised gaps."""
        groups = len(self.nodes)
        member = (self.group[None, :] == np.arange(groups)[:, None]).astype(float)
        link = member @ np.minimum(network.link / rate, 1.0) @ member.T
        for g, h in zip(*np.nonzero(link), strict=True):
            self._column(0.0, float(link[g, h]), [self._out + int(g), self._into + int(h)], [1.0, 1.0])
        source, sink = (member @ np.minimum(end / rate, 1.0) for end in (network.source, network.sink))
        for g in np.flatnonzero(source).tolist():
            self._column(0.0, float(source[g]), [self._into + g, self._ends], [1.0, 1.0])
        for g in np.flatnonzero(sink).tolist():
            self._column(0.0, float(sink[g]), [self._out + g, self._ends + 1], [1.0, 1.0])
        self._capacity = (link, source, sink)
        for g in range(2 * groups):
            for sign in (1.0, -1.0):
                self._column(-_PENALTY, self._highs.inf, [self._into + g], [sign])
        for end in range(2):
            self._column(-_PENALTY, self._highs.inf, [self._ends + end], [1.0])

    def _add(self, pattern: Pattern) -> bool:
        """A column for the pattern, unless it is there already."""
        if pattern in self._pool:
            return False
        self._pool.add(pattern)
        self.patterns.append(pattern)
        entries: dict[int, float] = {}
        for j, f in zip(pattern.item, pattern.flow, strict=True):
            entries[j] = entries.get(j, 0.0) + 1.0
            if self.links and f:
                g, share = int(self.items.group[j]), f / (int(self.items.keep[j]) * _GRID)
                for row in (self._into + g, self._out + g):
                    entries[row] = entries.get(row, 0.0) - share
        if self.several and len(pattern.item) > 1:
            entries[self._several_row] = 1.0
        self._column(1.0, self._highs.inf, list(entries), list(entries.values()))
        return True

    def solve(
        self,
        few: Ints | None = None,
        many: Ints | None = None,
        *,
        to_the_end: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> tuple[float, Prices | None]:
        """Layers that can be covered with node counts ``few <= y <= many``, at most.

        Parameters
        ----------
        few, many
            (groups, kmax + 1) limits of the node counts; 0 and the group sizes when left out.
        to_the_end
            Find the program's value even when it is seen to reach L.

        Returns
        -------
        tuple
            A proven upper bound on the program's value, with the prices that prove it (None when stopped before any).
            The bound is the program's value up to rounding of prices, unless it falls below L or is seen not to: then the
            work ends early.
        """
        few = np.zeros_like(self.most) if few is None else few
        many = self.most if many is None else many
        at, keep = self.items.group, self.items.keep
        for j in range(len(at)):
            self._highs.changeColBounds(self._y + j, float(few[at[j], keep[j]]), float(many[at[j], keep[j]]))
        best, proof = np.inf, None
        for _ in range(500):
            if should_stop():
                break
            self._highs.run()
            solution = self._highs.getSolution()
            value = self._highs.getInfo().objective_function_value
            dual = np.array(solution.row_dual)
            prices = self._rounded(dual, _COARSE)
            limit, found = self._cheapest(prices, many, _COARSE)
            bound = self._layers(prices, limit, few, many)
            if bound < best:
                best, proof = bound, prices
            if best < self.layers * (1 - 1e-6) or (value >= self.layers and not to_the_end):
                break  # refuted, or never to be
            if sum([self._add(p) for cost, p in found if cost < _COARSE - 1]) == 0:
                break
        self.usage[at, keep] = np.array(solution.col_value)[self._y : self._y + len(at)] if proof else 0.0
        if proof is not None and best >= self.layers * (1 - 1e-6) and value < self.layers:
            for scale in _FINE:  # the coarse grid costs up to a tenth of a layer
                prices = self._rounded(dual, scale)
                limit, _ = self._cheapest(prices, many, scale)
                bound = self._layers(prices, limit, few, many)
                if bound < best:
                    best, proof = bound, prices
                if best < self.layers * (1 - 1e-9):
                    break
        return float(best), proof

    def _rounded(self, dual: Floats, scale: int) -> Prices:
        """Duals of the program as integer prices."""
        groups, m = len(self.nodes), len(self.items.group)
        price = np.zeros((groups, self.columns), dtype=np.int64)
        price[self.items.group, self.items.keep] = np.rint(np.maximum(dual[:m], 0.0) * scale)
        entry = leave = np.zeros(groups, dtype=np.int64)
        source = sink = 0
        if self.links:
            entry = np.rint(-dual[self._into : self._into + groups] * scale).astype(np.int64)
            leave = np.rint(-dual[self._out : self._out + groups] * scale).astype(np.int64)
            source, sink = (int(np.rint(d * scale)) for d in dual[self._ends : self._ends + 2])
        several = int(np.rint(max(-dual[self._several_row], 0.0) * scale)) if self.several else 0
        return Prices(price, entry, leave, source, sink, several, scale)

    def _cheapest(self, prices: Prices, many: Ints, limit: int) -> tuple[int, list[tuple[int, Pattern]]]:
        """Least price of a pattern (at most ``limit``), and patterns below it."""
        usable = np.flatnonzero(many[self.items.group, self.items.keep] > 0)
        items = Items(
            self.items.group[usable], self.items.keep[usable], self.items.rate[usable], self.nodes, self.items.target
        )
        flow_price = (prices.entry + prices.exit)[items.group] // items.keep
        lift = max(0, -int(flow_price.min(initial=0)))
        least, found = cheapest_patterns(
            items,
            prices.price[items.group, items.keep],
            flow_price + lift,
            limit=limit + lift,
            surcharge=prices.several,
        )
        back = [(p - lift, Pattern(tuple(int(usable[j]) for j in q.item), q.flow)) for p, q in found]
        return least - lift, back

    def _layers(self, prices: Prices, least: int, few: Ints, many: Ints) -> float:
        """The bound on the number of layers that the prices prove, ``least`` being the least price of a pattern."""
        if least <= 0:
            return np.inf
        worth = prices.price * np.arange(self.columns)
        income = float(self.several * -prices.several)
        for g in range(len(self.nodes)):
            income += float((worth[g] * few[g]).sum())
            left = int(self.nodes[g] - few[g].sum())
            for k in np.argsort(-worth[g], kind="stable").tolist():
                take = min(left, int(many[g, k] - few[g, k]))
                income += float(take * worth[g, k])
                left -= take
        if self.links:
            link, source, sink = self._capacity
            income += float(np.ceil(np.maximum(prices.exit[:, None] + prices.entry[None, :], 0) * link).sum())
            for potential, base, capacity in ((prices.entry, prices.source, source), (prices.exit, prices.sink, sink)):
                income += base + float(np.ceil(np.maximum(potential - base, 0) * capacity).sum())
        return income * (1 + 1e-12) / least


def refute(
    network: ServingNetwork, rate: float, *, links: bool = True, should_stop: Callable[[], bool] = lambda: False
) -> Refutation:
    """Try to show that no plan reaches ``rate``.

    First all nodes of equal rates together, then with the links (groups of exchangeable nodes), then with row (4) when
    every cluster of links that carry the rate alone is refuted by itself.

    Parameters
    ----------
    links
        Use the network at all.
    should_stop
        Asked between linear programs.

    Returns
    -------
    Refutation
        ``certificate`` is None when nothing was shown. Some milliseconds to a second for 60 nodes.
    """
    group = equal_rates(network)
    layers, prices = LayerProgram(network, rate, group, links=False).solve(should_stop=should_stop)
    if links and not layers < network.layers and not network.partial:
        fine = equal_nodes(network)
        more, with_links = LayerProgram(network, rate, fine, links=True).solve(should_stop=should_stop)
        if more < layers:
            layers, prices, group = more, with_links, fine
    if layers < network.layers and prices is not None:
        return Refutation(layers, certificate(rate, group, prices.leaf()))
    clusters = refute_clusters(network, rate, should_stop=should_stop) if links else None
    if clusters is not None:
        group = equal_rates(network)
        fewer, prices = LayerProgram(network, rate, group, links=False, several=True).solve(should_stop=should_stop)
        layers = min(layers, fewer)
        if fewer < network.layers and prices is not None:
            return Refutation(fewer, certificate(rate, group, prices.leaf(), clusters))
    return Refutation(layers, None)


def refute_clusters(
    network: ServingNetwork, rate: float, *, should_stop: Callable[[], bool] = lambda: False
) -> list[dict[str, Any]] | None:
    """Certificates that no cluster of links which carry ``rate`` alone can serve alone; None where one might."""
    component = strong_components(network, rate)
    if component.max() == 0:
        return None
    parts = []
    for c in range(int(component.max()) + 1):
        nodes = np.flatnonzero(component == c)
        if network.source[nodes].max() < rate or network.sink[nodes].max() < rate:
            continue
        part = refute(network.restricted(nodes), rate, links=False, should_stop=should_stop)
        if part.certificate is None:
            return None
        parts.append(part.certificate)
    return parts


def certificate(
    rate: float, group: Ints, tree: dict[str, Any], clusters: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The dict that :func:`hetopt.verify.serving_bound.check_bound` replays."""
    claim: dict[str, Any] = {"kind": "layer-prices", "rate": rate, "group": group.tolist(), "tree": tree}
    if clusters is not None:
        claim["clusters"] = clusters
    return claim


def configuration_bound(
    network: ServingNetwork,
    *,
    above: float = 0.0,
    links: bool = True,
    precision: float = 1e-5,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any] | None:
    """Certificate of about the smallest rate that :func:`refute` excludes, by bisection.

    Parameters
    ----------
    above
        A rate that some plan reaches (0 when none is known); nothing below it is tried.
    precision
        Relative width at which the bisection ends.

    Returns
    -------
    dict or None
        A certificate; None when stopped before the first one was found.
    """
    high = area_bound(network)
    best = refute(network, high, links=False, should_stop=should_stop).certificate
    while best is None:
        high *= 1.0 + 1e-6
        if should_stop():
            return None
        best = refute(network, high, links=False, should_stop=should_stop).certificate
    low = above
    while high - low > precision * high and not should_stop():
        middle = (low + high) / 2
        found = refute(network, middle, links=links, should_stop=should_stop).certificate
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best
