"""Replay of lower bounds on the largest device load of any partition, contiguous or not, in exact integers.

A certificate is a dict of plain numbers that some search produced; nothing here trusts it, and nothing here is shared with
the code that finds certificates (see :mod:`hetopt.algorithms.maxload_columns`), except the arrays of the stage graph.
:func:`replay` returns a number of seconds that the largest load of *every* plan reaches, or raises ``ValueError``.

**The problem.** Each class goes to one device. A device of type t that holds the set S of classes has the load
``time_t(S)`` plus, for every net, ``rate_in[t]`` times its weight if S has a pin but not the source, and ``rate_out[t]``
times its weight if S has the source but not all pins. Sizes of S add up to at most ``memory[t]``.

**Rounding.** Times and net costs are multiplied by a power of two, which is exact, and rounded down (a product of rate and
weight first steps to the next smaller float unless the rate is 0 or 1). A plan with largest load T has integer loads of at
most ``floor(2^k T)``. So if no plan stays below that in integers, none stays below T.

**Kind ``maxload-prices``**: limit T, integer prices ``pi >= 0`` of the classes, byte prices ``mu >= 0`` of the types.
    In a plan within T, a device of type t collects at most ``p_t``, the largest ``sum of pi_v - mu_t size_v`` over sets with
    load at most T, plus ``mu_t memory_t``. All devices together collect ``sum pi``. So

        sum_t count_t (p_t + mu_t memory_t) < sum_v pi_v                                                        (1)

    refutes T. ``p_t`` is bounded from above in one of two ways. *Knapsack* (hosts, or any type when no ``order`` is given):
    communication is forgotten and the devices of the type are one knapsack of ``count_t T`` seconds, relaxed to fractions;
    with prices from the balance of the types this is the balance bound. *Sweep* along ``order``: the classes are decided one
    by one, a state knows of each open net which sides have a pin and where the source is, and a table keeps one entry for
    each state and load bucket. Where entries meet, the least load, the most profit, and the most excess
    ``profit - slope load`` survive independently, so every set is dominated by an entry, and ``p_t`` is at most the largest
    ``min(profit, excess + slope T)`` at the end. Any order, number of buckets and slope give a valid bound.

**Kind ``maxload-cut``**: limit T, class v.
    Some device holds v. A set with v has a load of at least the value of any flow from v in the network whose cuts are the
    loads (Lawler's expansion of nets). The flow is asked of scipy for every type that can run v, in 30-bit integers, and its
    capacities and conservation are checked, so nothing rests on scipy being right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

if TYPE_CHECKING:
    from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["KINDS", "replay"]

KINDS = ("maxload-prices", "maxload-cut")

_CUT_BITS = 29  # the limit on the grid of a cut; scipy's flows are 32-bit integers
_LOAD_BITS = 36  # the limit on the grid; sums stay below 2^37 in a sweep, products with buckets below 2^57
_SLOPE_BITS = 16  # a slope is a multiple of 2^-16 price units a load unit
_MOST_PROFIT = 1 << 46  # so that a profit and the number of its state fit in one int64
_ROOM = 1 << 62  # everything that a sweep adds up stays below it, so that int64 cannot wrap
_MOST_BUCKETS = 1 << 20
_MOST_STATES = 1 << 15  # of one layer
_MOST_ENTRIES = 1 << 25  # of one layer
_NEVER = 1 << 61

Ints = NDArray[np.int64]


def replay(graph: StageGraph, certificate: Mapping[str, Any]) -> float:
    """Check a certificate and return the bound that it proves.

    Parameters
    ----------
    graph
        Classes, nets and device types.
    certificate
        ``kind`` and ``limit`` (seconds, > 0), and

        * ``maxload-prices``: ``prices`` (n integers >= 0); optionally ``byte_prices`` (a number >= 0 for each type), ``order``
          (a permutation of the classes, or None), and with an order ``buckets`` and ``slopes`` (price units a second, a
          number >= 0 for each type);
        * ``maxload-cut``: ``class``.

    Returns
    -------
    float
        The limit: every plan that respects memory has a device with at least this load.

    Raises
    ------
    ValueError
        The certificate is damaged, doesn't fit the graph, asks for too much work, or doesn't prove its limit.
    """
    kind = certificate.get("kind")
    if kind not in KINDS:
        raise ValueError(f"the certificate's kind is {kind!r}; expected one of {', '.join(KINDS)}")
    limit = _number(certificate, "limit")
    if not 1e-100 < limit < 1e100:
        raise ValueError(f"the certificate's limit is {limit!r}; expected a positive number of seconds")
    if kind == "maxload-cut":
        _replay_cut(graph, limit, certificate.get("class"))
    else:
        _replay_prices(graph, limit, certificate)
    return limit


def _number(source: Mapping[str, Any], name: str) -> float:
    value = source.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"the certificate's {name} is {value!r}; expected a number")
    return float(value)


def _integers(source: Mapping[str, Any], name: str, length: int) -> list[int]:
    found = source.get(name)
    values = found.tolist() if isinstance(found, np.ndarray) else found
    if not isinstance(values, list | tuple) or len(values) != length:
        raise ValueError(f"the certificate's {name} must be a list of {length} integers")
    if not all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
        raise ValueError(f"the certificate's {name} holds something that is not an integer")
    return [int(v) for v in values]


def _per_type(source: Mapping[str, Any], name: str, types: int) -> list[Fraction]:
    values = source.get(name)
    if values is None:
        return [Fraction(0)] * types
    listed = isinstance(values, list | tuple | np.ndarray) and len(values) == types
    if not listed or not all(isinstance(v, int | float | np.number) and 0 <= v < math.inf for v in values):
        raise ValueError(f"the certificate's {name} must be {types} numbers >= 0, one for each device type")
    return [Fraction(float(v)) for v in values]


def _floor(values: NDArray[np.float64], bits: int) -> Ints:
    """``floor(2^bits values)``; infinite and huge ones become ``_NEVER``."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.floor(np.ldexp(values, bits))
    if not (values >= 0).all():
        raise ValueError("the stage graph holds a cost that is negative or not a number")
    return np.where(scaled < _NEVER, scaled, float(_NEVER)).astype(np.int64)


def _products(rate: float, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Net costs that are not above the true products."""
    product = rate * weight
    return product if rate in (0.0, 1.0) else np.maximum(np.nextafter(product, -np.inf), 0.0)


def _replay_prices(graph: StageGraph, limit: float, certificate: Mapping[str, Any]) -> None:
    n, types = graph.n, len(graph.count)
    prices = _integers(certificate, "prices", n)
    if any(p < 0 for p in prices):
        raise ValueError("the certificate holds a negative price")
    byte_prices = _per_type(certificate, "byte_prices", types)
    slopes = _per_type(certificate, "slopes", types)
    order, buckets = None, 1
    if certificate.get("order") is not None:
        order = _integers(certificate, "order", n)
        if sorted(order) != list(range(n)):
            raise ValueError("the certificate's order is not a permutation of the classes")
        (buckets,) = _integers({"buckets": [certificate.get("buckets")]}, "buckets", 1)
        if not 1 <= buckets <= _MOST_BUCKETS:
            raise ValueError(f"the certificate's buckets are {buckets}; expected 1 to {_MOST_BUCKETS}")
    bits = _LOAD_BITS - math.frexp(limit)[1]
    ceiling = math.floor(math.ldexp(limit, bits))
    collected = Fraction(0)
    for t in range(types):
        devices = int(graph.count[t])
        if devices == 0:
            continue
        time = _floor(graph.time[:, t], bits)
        profit = prices
        if byte_prices[t]:
            if not math.isfinite(graph.memory[t]):
                raise ValueError(f"device type {t} has no memory limit, but the certificate puts a price on its bytes")
            collected += devices * byte_prices[t] * Fraction(float(graph.memory[t]))
            profit = [
                p - math.floor(byte_prices[t] * Fraction(float(s))) for p, s in zip(prices, graph.size, strict=True)
            ]
        if order is None or (graph.rate_in[t] == 0 and graph.rate_out[t] == 0):
            collected += _knapsack(time, profit, devices * ceiling, ceiling)
            continue
        arrive = _floor(_products(float(graph.rate_in[t]), graph.net_weight), bits)
        leave = _floor(_products(float(graph.rate_out[t]), graph.net_weight), bits)
        slope = math.floor(slopes[t] * Fraction(2) ** (_SLOPE_BITS - bits))
        collected += devices * _Sweep(graph, time, arrive, leave, ceiling).most(order, profit, slope, buckets)
    if not collected < sum(prices):
        raise ValueError(
            f"the certificate does not prove a load of {limit!r}: devices within it may collect {float(collected):.6g}, "
            f"and all prices together are {float(sum(prices)):.6g}"
        )


def _knapsack(time: Ints, profit: list[int], room: int, ceiling: int) -> Fraction:
    """Upper bound on the profit of items of at most ``ceiling`` each that take ``room`` together (weak duality)."""
    items = [(t, p) for t, p in zip(time.tolist(), profit, strict=True) if p > 0 and t <= ceiling]
    if sum(t for t, _ in items) <= room:
        return Fraction(sum(p for _, p in items))
    # For any price p/t a unit of room: profit <= room p/t + what items earn beyond it. The best one is where room ends.
    left, dear = room, (1, 0)
    for t, p in sorted(items, key=lambda item: item[0] / item[1]):
        dear = (t, p)
        left -= t
        if left < 0:
            break
    t, p = dear
    return Fraction(room * p + sum(max(0, q * t - p * s) for s, q in items), t)


# What a sweep knows of an open net: pins seen inside (1) and outside (2), and the source inside (4) or outside (8).
_PIN = (2, 1)
_SOURCE = (8, 4)
_SETTLED = 16  # what the device pays for the net cannot change any more


class _Sweep:
    """Best profit of one device, by deciding the classes one after the other."""

    def __init__(self, graph: StageGraph, time: Ints, arrive: Ints, leave: Ints, ceiling: int) -> None:
        self.graph, self.time, self.ceiling = graph, time.tolist(), ceiling
        self.arrive, self.leave = arrive.tolist(), leave.tolist()
        self.pins = [graph.net_pin[a:b].tolist() for a, b in zip(graph.net_ptr[:-1], graph.net_ptr[1:], strict=True)]
        self.source = graph.net_source.tolist()

    def most(self, order: list[int], profit: list[int], slope: int, buckets: int) -> int:
        """Upper bound on the profit of a set within the limit."""
        whole = sum(abs(p) for p in profit)
        scaled = whole << _SLOPE_BITS
        # Loads in a table never exceed the ceiling by more than one step before they are dropped.
        if whole >= _MOST_PROFIT or scaled + slope * (2 * self.ceiling) >= _ROOM:
            raise ValueError("the certificate's prices or slopes are too large to be added up in 64-bit integers")
        self.touched: list[list[int]] = [[] for _ in order]
        self.last = [0] * len(self.pins)
        position = {v: i for i, v in enumerate(order)}
        for h, pins in enumerate(self.pins):
            places = sorted(position[v] for v in pins)
            self.last[h] = places[-1]
            for i in places:
                self.touched[i].append(h)
        states: dict[tuple[int, ...], int] = {(): 0}
        open_nets: list[int] = []
        layers: list[tuple[Ints, Ints]] = []
        for i, v in enumerate(order):
            states, open_nets, target, step = self._advance(i, v, states, open_nets)
            layers.append((target, step))
            if len(states) >= _MOST_STATES:
                raise ValueError("the certificate's order needs more states than a replay is willing to look at")
        nothing = np.zeros(1, dtype=np.int64)
        entries = _Entries(nothing, nothing, nothing, nothing)
        for v, (target, step), left in zip(order, layers, _completions(layers), strict=True):
            entries = _layer(entries, target, step, left, profit[v], slope, self.ceiling, buckets)
            if len(entries.load) > _MOST_ENTRIES:
                raise ValueError("the certificate's order and buckets need more memory than a replay is willing to use")
        earned = np.minimum(entries.profit, (entries.excess + slope * self.ceiling) >> _SLOPE_BITS)
        if not len(earned):
            raise ValueError("the sweep lost the empty set: the stage graph's costs are damaged")
        return int(earned.max())

    def _advance(
        self, i: int, v: int, states: dict[tuple[int, ...], int], open_nets: list[int]
    ) -> tuple[dict[tuple[int, ...], int], list[int], Ints, Ints]:
        """Decide class v: states and open nets after it, and for (state, side) the state reached and the seconds added."""
        column = {h: j for j, h in enumerate(open_nets)}
        fresh = [h for h in self.touched[i] if h not in column]
        nets = open_nets + fresh
        kept = [j for j, h in enumerate(nets) if self.last[h] > i]
        # Per touched net and side: (state before) -> (state after, seconds).
        moves = [(column.get(h, len(open_nets) + k), self._moves(h, v)) for k, h in self._numbered(i, column)]
        target = np.full((len(states), 2), -1, dtype=np.int64)
        step = np.zeros((len(states), 2), dtype=np.int64)
        after: dict[tuple[int, ...], int] = {}
        blank = (0,) * len(fresh)
        for state, s in states.items():
            for x in (0, 1):
                values = list(state + blank)
                seconds = self.time[v] if x else 0
                for j, move in moves:
                    values[j], extra = move[x][values[j]]
                    seconds += extra
                if seconds > self.ceiling:
                    continue
                target[s, x] = after.setdefault(tuple([values[j] for j in kept]), len(after))
                step[s, x] = seconds
        return after, [nets[j] for j in kept], target, step

    def _numbered(self, i: int, column: dict[int, int]) -> list[tuple[int, int]]:
        fresh = 0
        numbered = []
        for h in self.touched[i]:
            numbered.append((fresh, h))
            fresh += h not in column
        return numbered

    def _moves(self, h: int, v: int) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """For each side of v: from the net's state before to its state after and the seconds the device pays for that."""

        def due(state: int) -> int:
            inside, outside = bool(state & 1), bool(state & 2)
            if state & 4:
                return self.leave[h] if outside else 0
            if state & 8:
                return self.arrive[h] if inside else 0
            # Whichever side the source is on, a net with pins on both sides costs at least this.
            return min(self.leave[h], self.arrive[h]) if inside and outside else 0

        def settled(state: int) -> bool:
            both = state & 3 == 3
            return both and (bool(state & 12) or self.leave[h] == self.arrive[h])

        moves: tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]] = ({}, {})
        for x in (0, 1):
            for before in range(12):
                after = before | _PIN[x] | (_SOURCE[x] if self.source[h] == v else 0)
                moves[x][before] = (_SETTLED if settled(after) else after, due(after) - due(before))
            moves[x][_SETTLED] = (_SETTLED, 0)
        return moves


def _completions(layers: list[tuple[Ints, Ints]]) -> list[Ints]:
    """For every layer, the least seconds that completing a sweep from each state after it adds."""
    left = [np.zeros(1, dtype=np.int64)]
    for target, step in reversed(layers[1:]):
        left.append(np.where(target >= 0, step + left[-1][target], _NEVER).min(axis=1))
    return left[::-1]


class _Entries(NamedTuple):
    """What a sweep keeps: state, load, profit and excess = 2^16 profit - slope load of each entry, by state, then load."""

    state: Ints
    load: Ints
    profit: Ints
    excess: Ints


def _layer(
    entries: _Entries, target: Ints, step: Ints, left: Ints, gain: int, slope: int, ceiling: int, buckets: int
) -> _Entries:
    """Decide one class."""
    pieces = []
    for x, extra in ((0, 0), (1, gain)):
        to, add = target[entries.state, x], step[entries.state, x]
        # What cannot be completed within the limit is in no set within it.
        inside = np.flatnonzero((to >= 0) & (entries.load + add + left[to] <= ceiling))
        to, add = to[inside], add[inside]
        excess = entries.excess[inside] + (extra << _SLOPE_BITS) - slope * add
        pieces.append((to, entries.load[inside] + add, entries.profit[inside] + extra, excess))
    state, load, profit, excess = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    by_load = np.lexsort((load, state))
    found = _Entries(state[by_load], load[by_load], profit[by_load], excess[by_load])
    found = _Entries(*(array[_useful(found)] for array in found))
    key = found.state * (buckets + 1) + found.load * buckets // ceiling
    first = np.flatnonzero(np.diff(key, prepend=-1))
    if len(first) == 0:
        return found
    best, most = np.maximum.reduceat(found.profit, first), np.maximum.reduceat(found.excess, first)
    return _Entries(found.state[first], found.load[first], best, most)


def _useful(entries: _Entries) -> NDArray[np.bool_]:
    """Entries without one of no more load in the same state that has at least their profit and at least their excess.

    Compared with one such entry only, the most profitable before it; more need not be found.
    """
    # Profits are below 2^46 in size, so a state's number lifts its profits above those of the states before.
    height = entries.profit + (entries.state << 47)
    record = np.concatenate([[-_NEVER], np.maximum.accumulate(height)[:-1]])
    places = np.arange(len(height))
    holder = np.concatenate([[0], np.maximum.accumulate(np.where(height > record, places, 0))[:-1]])
    return np.asarray((height > record) | (entries.excess > entries.excess[holder]))


def _replay_cut(graph: StageGraph, limit: float, pivot: object) -> None:
    if isinstance(pivot, bool) or not isinstance(pivot, int | np.integer) or not 0 <= pivot < graph.n:
        raise ValueError(f"the certificate's class is {pivot!r}; expected one of the {graph.n} classes")
    v = int(pivot)
    bits = _CUT_BITS - math.frexp(limit)[1]
    needed = math.ceil(Fraction(limit) * Fraction(2) ** bits)
    for t in np.flatnonzero(graph.count > 0).tolist():
        time = _floor(graph.time[:, t], bits)
        if time[v] >= needed:
            continue
        arrive = _floor(_products(float(graph.rate_in[t]), graph.net_weight), bits)
        leave = _floor(_products(float(graph.rate_out[t]), graph.net_weight), bits)
        flow = _least_load(graph, time, arrive, leave, v, needed)
        if flow < needed:
            raise ValueError(
                f"the certificate does not prove a load of {limit!r}: class {v} may be on a device of type {t} with "
                f"{math.ldexp(float(flow), -bits)!r}"
            )


def _least_load(graph: StageGraph, time: Ints, arrive: Ints, leave: Ints, v: int, needed: int) -> int:
    """Value of a flow from class v, a lower bound on the load of every set with v; at most ``needed``.

    Nodes: classes, for each net one node for receiving and one for sending it, the sink, and a source that lets ``needed``
    into v. A set pays time to the sink, pin -> receive -> source of the net when it has a pin but not that source, and
    source of the net -> send -> pin when it has that source but not all pins.
    """
    n, nets = graph.n, len(graph.net_weight)
    net = np.repeat(np.arange(nets), np.diff(graph.net_ptr))
    classes, numbers = np.arange(n), np.arange(nets)
    receive, send, sink, start = n + numbers, n + nets + numbers, n + 2 * nets, n + 2 * nets + 1
    everything = np.full(len(net), needed)
    tail = np.concatenate([classes, graph.net_pin, receive, graph.net_source, send[net], [start]])
    head = np.concatenate([np.full(n, sink), receive[net], graph.net_source, send, graph.net_pin, [v]])
    room = np.concatenate([time, everything, arrive, leave, everything, [needed]]).clip(max=needed)
    capacity = csr_array((room.astype(np.int32), (tail, head)), shape=(start + 1, start + 1))
    found = maximum_flow(capacity, start, sink).flow
    flow, allowed = found.astype(np.int64), capacity.astype(np.int64)
    if (flow - allowed).max() > 0 or abs(flow + flow.T).max() != 0:
        raise ValueError("the flow that was found for the certificate exceeds a capacity")
    surplus = np.asarray(flow.sum(axis=1)).ravel()
    if surplus[np.arange(sink)].any():
        raise ValueError("the flow that was found for the certificate is not conserved")
    return int(surplus[start])
