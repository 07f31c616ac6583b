"""Lower bounds on the largest device load of any partition, contiguous or not, by column generation.

A *column* is a set of classes that one device of a type can hold within ``T``. If no fractional mixture of columns covers all
classes with the devices there are, no plan stays within ``T``; the dual of that linear program is a price for every class, and
the prices are the proof (:mod:`hetopt.verify.maxload_certificates` replays it). :class:`Refuter` looks for prices that refute
a given ``T``. Columns and prices are kept, so ascending ``T`` is cheap.

    least sum_v w_v a_v   artificial part a_v >= 0 of each class, weight w_v = its worth in the balance bound
    cover      a_v + sum over columns with v of lambda + sum over hosts of y_vt >= 1     price pi_v
    devices    sum over columns of type t of lambda      <= count_t                       price sigma_t
    seconds    sum_v time_vt y_vt                        <= count_t T   (hosts)
    bytes      sum of sizes that type t holds            <= count_t memory_t              price mu_t a byte

Hosts (types that pay no communication) take fractions of classes directly. For prices pi and mu, weak duality gives

    worth = sum pi - sum_t count_t (best profit of type t within T, bytes priced, + mu_t memory_t) - hosts,

and ``worth > 0`` refutes ``T``. The best profits come from :func:`~hetopt.algorithms.frontier_pricing.most_profit`, and the new
columns from :func:`~hetopt.algorithms.frontier_pricing.best_set` at the same prices: several disjoint ones a round, each
with its true load. Prices are smoothed towards the best ones so far (Wentges; the weight follows Pessoa, Sadykov, Uchoa and
Vanderbeck, INFORMS Journal on Computing 30, 2018), starting from the balance bound's. Buckets are doubled when their
optimism, not the missing columns, keeps the worth down.

What this is not: exact. Memory is seen only in total per type, and the linear program's bound may stay below the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.frontier_order import Frontier, frontier, thinnest_frontier
from hetopt.algorithms.frontier_pricing import best_set, most_profit
from hetopt.algorithms.maxload_bounds import balance
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["Prices", "Refutation", "Refuter", "balance_certificate", "certificate_of"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_PRICE_BITS = 40  # a certificate's integer prices add up to about 2^40
_FEWEST, _MOST = 250, 1 << 15  # buckets
_DISJOINT = 8  # columns a round and type
_EMPTY = 1e-9  # artificial weight, of all weight, that counts as none
_CLEAR = 1e-10  # worth, of all prices, that is more than rounding: a replay in integers is sure to see it


class Prices(NamedTuple):
    """A dual point: ``classes`` (n,) pi, ``bytes`` (t,) mu, ``seconds`` (t,) worth of a second on a device of the type."""

    classes: FloatArray
    bytes: FloatArray
    seconds: FloatArray

    def mix(self, other: Prices, share: float) -> Prices:
        """``share`` of these and the rest of the others."""
        return Prices(*(share * a + (1.0 - share) * b for a, b in zip(self, other, strict=True)))


class Refutation(NamedTuple):
    """How an attempt on a limit ended.

    Attributes
    ----------
    certificate
        Proof that no plan has a largest load within the limit, or None.
    exhausted
        The linear program covers everything within the limit: no prices refute it.
    rounds
        Linear programs solved.
    """

    certificate: dict[str, Any] | None
    exhausted: bool
    rounds: int


def certificate_of(
    limit: float, prices: Prices, order: NDArray[np.int64] | None = None, buckets: int = 1
) -> dict[str, Any]:
    """Prices as a ``maxload-prices`` certificate: scaled so that the integer prices of the classes add up to 2^40."""
    scale = 2.0**_PRICE_BITS / max(float(prices.classes.sum()), 1e-300)
    certificate: dict[str, Any] = {
        "kind": "maxload-prices",
        "limit": limit,
        "prices": np.rint(prices.classes * scale).astype(np.int64).tolist(),
    }
    if prices.bytes.any():
        certificate["byte_prices"] = (prices.bytes * scale).tolist()
    if order is not None:
        certificate |= {"order": order.tolist(), "buckets": buckets, "slopes": (prices.seconds * scale).tolist()}
    return certificate


def balance_certificate(graph: StageGraph) -> dict[str, Any] | None:
    """Certificate of the balance bound, a hair below it; None when it is zero or infinite. O(n log n) for two types."""
    value, _ = balance(graph.time, graph.count)
    if not 0 < value < np.inf:
        return None
    return certificate_of(value * (1 - 1e-9), _balance_prices(graph))


def _balance_prices(graph: StageGraph) -> Prices:
    """Dual point of the balance bound, scaled to a mean price of one."""
    _, seconds = balance(graph.time, graph.count)
    with np.errstate(invalid="ignore"):
        worth = np.where(np.isfinite(graph.time), graph.time * seconds, np.inf)
    classes = worth[:, graph.count > 0].min(axis=1)
    scale = 1.0 / max(float(classes.mean()), 1e-300)
    return Prices(classes * scale, np.zeros(len(graph.count)), seconds * scale)


class Refuter:
    """Column generation over one stage graph; keeps columns and prices from one limit to the next larger one.

    Parameters
    ----------
    graph
        Classes, nets and device types; every class runs somewhere.
    most
        Largest limit that will be asked for (the value of a known plan); finite.
    max_states
        Frontier states allowed.
    seed
        For the node orders.

    Raises
    ------
    FrontierTooWide
        No node order needs few enough states.
    """

    def __init__(self, graph: StageGraph, most: float, *, max_states: int = 60_000, seed: int = 0) -> None:
        self.graph = graph
        used = np.flatnonzero(graph.count > 0)
        pays = (graph.rate_in[used] > 0) | (graph.rate_out[used] > 0)
        self.hosts: list[int] = used[~pays].tolist()
        self.types: list[int] = used[pays].tolist()
        self.sweeps: dict[int, Frontier] = {}
        self.order = np.arange(graph.n, dtype=np.int64)
        for t in self.types:
            if not self.sweeps:
                self.sweeps[t] = thinnest_frontier(graph, t, most, max_states, seed)
                self.order = self.sweeps[t].order
            else:
                self.sweeps[t] = frontier(graph, self.order, t, None, most, max_states)
        self.center = _balance_prices(graph)
        self.weight = np.maximum(self.center.classes, 1e-4 * self.center.classes.max())
        self.columns: list[tuple[int, BoolArray, float]] = []
        self.known: set[tuple[int, bytes]] = set()
        self.buckets = _FEWEST
        self.inertia = 0.5
        # Sizes matter only where a type cannot hold everything.
        whole = float(graph.size.sum())
        self.bytes = [t for t in used.tolist() if whole > graph.count[t] * graph.memory[t]]

    def add(self, t: int, members: BoolArray, load: float) -> bool:
        """Keep a set that a device of type t can hold with this load; False when it is known."""
        key = (t, np.packbits(members).tobytes())
        if key in self.known:
            return False
        self.known.add(key)
        self.columns.append((t, members, load))
        return True

    def refute(
        self, limit: float, should_stop: Callable[[], bool] = lambda: False, most_rounds: int = 1 << 60
    ) -> Refutation:
        """Look for prices that prove that no plan has a largest load of at most ``limit``.

        Gives up after ``most_rounds`` linear programs; what was learnt is kept for another attempt.

        Complexity: each round is a linear program of n rows and ``2 + 8`` sweeps a type.
        """
        worth, _ = self._worth(self.center, limit)
        if self._refutes(worth):
            return Refutation(self._certificate(limit, self.center), False, 0)
        master = _Master(self, limit)
        rounds = 0
        while rounds < most_rounds and not should_stop():
            missing, prices = master.solve()
            rounds += 1
            if missing <= _EMPTY * self.graph.n:
                return Refutation(None, True, rounds)
            share, turned = self.inertia, False
            while True:
                point = self.center.mix(prices, share)
                value, optimism, new, step = self._round(point, prices, limit, master)
                if not turned:
                    # Towards the program's prices while that climbs, closer to the best ones where it overshoots.
                    climbs = step > 0
                    self.inertia = (
                        max(0.0, self.inertia - 0.1) if climbs else min(0.95, self.inertia + 0.1 * (1 - self.inertia))
                    )
                    turned = True
                if value > worth:
                    worth, self.center = value, point
                if self._refutes(worth):
                    return Refutation(self._certificate(limit, self.center), False, rounds)
                if new or share == 0.0 or should_stop():
                    break
                share = 0.0 if share < 0.1 else share / 2
            if optimism > 0.5 * (missing - worth) or not new:
                if self.buckets >= _MOST:
                    if not new:
                        return Refutation(None, False, rounds)
                else:
                    self.buckets = min(_MOST, self.buckets * (3 if new else 4) // 2)
        return Refutation(None, False, rounds)

    def _refutes(self, worth: float) -> bool:
        return worth > _CLEAR * float(self.center.classes.sum())

    def _worth(self, point: Prices, limit: float) -> tuple[float, list[float]]:
        """Weak-duality value of a dual point, and the profit bound of each type that pays."""
        graph = self.graph
        worth = float(point.classes.sum())
        bounds = []
        for t, sweep in self.sweeps.items():
            bound = most_profit(sweep, self._profit(point, t), limit, self.buckets, float(point.seconds[t]))
            bounds.append(bound)
            worth -= float(graph.count[t]) * (max(bound, 0.0) + self._rent(point, t))
        for t in self.hosts:
            taken = self._host(self._profit(point, t), t, limit)
            worth -= float(taken @ self._profit(point, t)) + float(graph.count[t]) * self._rent(point, t)
        return worth, bounds

    def _round(self, point: Prices, target: Prices, limit: float, master: _Master) -> tuple[float, float, int, float]:
        """Worth at a point, how much of it the buckets may be hiding, new columns, and the slope towards ``target``."""
        graph = self.graph
        worth, bounds = self._worth(point, limit)
        optimism, new = 0.0, 0
        ascent = np.ones(graph.n)
        for (t, sweep), bound in zip(self.sweeps.items(), bounds, strict=True):
            profit = self._profit(point, t)
            for number in range(min(int(graph.count[t]), _DISJOINT)):
                # The runners-up only have to be good: half the buckets do.
                buckets = max(_FEWEST, self.buckets // (1 if number == 0 else 2))
                found = best_set(sweep, profit, limit, buckets, float(point.seconds[t]))
                if number == 0:
                    optimism += float(graph.count[t]) * (bound - max(found.profit, 0.0))
                    ascent -= float(graph.count[t]) * found.members
                if found.profit <= 0.0:
                    break
                if self.add(t, found.members, found.load):
                    master.add(t, found.members)
                    new += 1
                # Disjoint columns fit together in a plan, so they help the program more than the runners-up do.
                profit = np.where(found.members, -1e3 * self.weight.max(), profit)
        for t in self.hosts:
            ascent -= self._host(self._profit(point, t), t, limit)
        return worth, optimism, new, float(ascent @ (target.classes - self.center.classes))

    def _profit(self, point: Prices, t: int) -> FloatArray:
        return np.asarray(point.classes - point.bytes[t] * self.graph.size)

    def _rent(self, point: Prices, t: int) -> float:
        return float(point.bytes[t] * self.graph.memory[t]) if point.bytes[t] > 0 else 0.0

    def _host(self, profit: FloatArray, t: int, limit: float) -> FloatArray:
        """Fractions of classes that the hosts of a type take for the most profit."""
        time = self.graph.time[:, t]
        taken = np.zeros(len(profit))
        items = np.flatnonzero((profit > 0) & (time <= limit))
        items = items[np.argsort(time[items] / profit[items], kind="stable")]
        room = float(self.graph.count[t]) * limit
        behind = np.cumsum(time[items])
        whole = behind <= room
        taken[items[whole]] = 1.0
        part = int(whole.sum())
        if part < len(items):
            taken[items[part]] = (room - behind[part] + time[items[part]]) / time[items[part]]
        return taken

    def _certificate(self, limit: float, prices: Prices) -> dict[str, Any]:
        return certificate_of(limit, prices, self.order if self.types else None, self.buckets)


class _Master:
    """The restricted linear program for one limit, in HiGHS; columns are appended."""

    def __init__(self, owner: Refuter, limit: float) -> None:
        import highspy

        graph, self.owner, self.limit = owner.graph, owner, limit
        n = graph.n
        self.lp = highspy.Highs()
        self.lp.setOptionValue("output_flag", False)
        self.lp.setOptionValue("threads", 1)
        none, empty = np.array([], dtype=np.int32), np.array([])
        for _ in range(n):
            self.lp.addRow(1.0, highspy.kHighsInf, 0, none, empty)
        self.count_row = {t: n + i for i, t in enumerate(owner.types)}
        self.time_row = {t: n + len(owner.types) + i for i, t in enumerate(owner.hosts)}
        self.byte_row = {t: n + len(owner.types) + len(owner.hosts) + i for i, t in enumerate(owner.bytes)}
        for t in owner.types:
            self.lp.addRow(-highspy.kHighsInf, float(graph.count[t]), 0, none, empty)
        for t in owner.hosts:
            self.lp.addRow(-highspy.kHighsInf, float(graph.count[t]) * limit, 0, none, empty)
        # Bytes are counted in units of the largest size, to keep the matrix near one.
        self.unit = max(float(graph.size.max(initial=0.0)), 1e-300)
        for t in owner.bytes:
            self.lp.addRow(-highspy.kHighsInf, float(graph.count[t] * graph.memory[t]) / self.unit, 0, none, empty)
        for v in range(n):
            self._column(float(owner.weight[v]), [v], [1.0])
        for t in owner.hosts:
            for v in np.flatnonzero(graph.time[:, t] <= limit).tolist():
                rows, values = [v, self.time_row[t]], [1.0, float(graph.time[v, t])]
                if t in self.byte_row:
                    rows, values = [*rows, self.byte_row[t]], [*values, float(graph.size[v]) / self.unit]
                self._column(0.0, rows, values)
        for t, members, load in owner.columns:
            if load <= limit * (1 + 1e-9):
                self.add(t, members)

    def _column(self, cost: float, rows: list[int], values: list[float]) -> None:
        self.lp.addCol(cost, 0.0, np.inf, len(rows), np.array(rows, dtype=np.int32), np.array(values))

    def add(self, t: int, members: BoolArray) -> None:
        """Append a column."""
        rows = [*np.flatnonzero(members).tolist(), self.count_row[t]]
        values = [1.0] * len(rows)
        if t in self.byte_row:
            rows, values = [*rows, self.byte_row[t]], [*values, float(self.owner.graph.size[members].sum()) / self.unit]
        self._column(0.0, rows, values)

    def solve(self) -> tuple[float, Prices]:
        """Artificial weight that is left, and the program's prices."""
        owner = self.owner
        self.lp.run()
        dual = np.asarray(self.lp.getSolution().row_dual)
        types = len(owner.graph.count)
        seconds, byte = np.zeros(types), np.zeros(types)
        for t, row in self.count_row.items():
            seconds[t] = max(0.0, -dual[row]) / self.limit
        for t, row in self.time_row.items():
            seconds[t] = max(0.0, -dual[row])
        for t, row in self.byte_row.items():
            byte[t] = max(0.0, -dual[row]) / self.unit
        classes = np.maximum(dual[: owner.graph.n], 0.0)
        return float(self.lp.getInfo().objective_function_value), Prices(classes, byte, seconds)
