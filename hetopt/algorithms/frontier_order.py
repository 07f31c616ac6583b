"""Node orders of small frontier width, and the layered state graph that a sweep along such an order spans.

A device's load depends on its set ``S`` of classes only through the time of its members and the nets that ``S`` cuts. If
the classes are decided one after the other (in ``S`` or not), all that later decisions need to know is the *frontier*:
for every net with pins on both sides of the sweep, whether the pins seen are all outside, all inside, or mixed. Graphs of
neural networks are long and thin, so a good order has few reachable frontier states (some hundreds to some ten thousands
in all), and every path through the layered state graph is one set ``S`` with its exact load. :mod:`frontier_pricing` runs
its dynamic program on it.

What this is not: a tree decomposition. Graphs whose path width is large give :class:`FrontierTooWide`, and callers fall
back on bounds that don't look at communication.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["Frontier", "FrontierTooWide", "frontier", "node_orders", "restrict", "thinnest_frontier"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# What is known of the pins of a net that the sweep has met; fresh nets have no such pins.
_OUTSIDE, _INSIDE, _MIXED, _FRESH = 0, 1, 2, 3
_ELSEWHERE = 4
# A state is dropped only when its least load exceeds the limit by more than rounding can explain.
_SLACK = 1e-9


class FrontierTooWide(ValueError):
    """The sweep along an order needs more states than allowed."""


class Frontier(NamedTuple):
    """Layered state graph of a sweep. Layer ``i`` stands before ``order[i]`` is decided; first and last layer have one state.

    Attributes
    ----------
    order
        (m,) classes in the order of the sweep.
    first
        (m + 2,) states of layer ``i`` are ``first[i] .. first[i + 1] - 1``.
    target
        (states, 2) state reached when the class stays outside (column 0) or goes inside (column 1); -1 where that
        cannot lie on a path within the limit.
    load
        (states, 2) seconds that this step adds to the device: its time if inside, and nets that it now pays for.
    other
        (states, 2) seconds added to the device that takes what stays outside; zeros when no such device was named.
    left
        (states, 2) least seconds that any completion adds to the device and to the other one.
    enter_ptr, enter
        CSR of the steps that lead to each state: ``2 * state + column`` of ``target``.
    """

    order: IntArray
    first: IntArray
    target: IntArray
    load: FloatArray
    other: FloatArray
    left: FloatArray
    enter_ptr: IntArray
    enter: IntArray

    @property
    def states(self) -> int:
        """Number of states in all layers."""
        return len(self.target)


def node_orders(graph: StageGraph, starts: int = 6, seed: int = 0) -> list[IntArray]:
    """Candidate orders: the topological one, and greedy ones that keep the number of open nets small.

    Parameters
    ----------
    graph
        Classes and nets.
    starts
        Greedy orders to build: from the first and the last class, the others from random ones.
    seed
        For the random starts.

    Returns
    -------
    list
        Permutations of the classes, each (n,).

    Notes
    -----
    The greedy rule takes, among the neighbours of what is decided, the class that opens fewest nets less those it closes
    (ties: smallest number). Complexity per order: O(pins log pins).
    """
    n = graph.n
    orders = [np.arange(n, dtype=np.int64)]
    if n < 3:
        return orders
    ptr, nets = (a.tolist() for a in graph.nets_of_classes())
    nets_of = [nets[a:b] for a, b in pairwise(ptr)]
    pins = [graph.net_pin[a:b].tolist() for a, b in pairwise(graph.net_ptr.tolist())]
    random = np.random.default_rng(seed)
    first = [0, n - 1, *random.integers(0, n, max(0, starts - 2)).tolist()]
    return orders + [np.array(_greedy_order(start, nets_of, pins), dtype=np.int64) for start in first[:starts]]


def _greedy_order(start: int, nets_of: list[list[int]], pins: list[list[int]]) -> list[int]:
    """Order from ``start`` by the greedy rule; a heap holds the candidates, outdated entries are skipped."""
    left = [len(p) for p in pins]
    fresh = [True] * len(pins)
    done = [False] * len(nets_of)
    score = [sum(1 for h in own if left[h] > 1) for own in nets_of]
    order: list[int] = []
    heap = [(score[start], start)]
    unmet = 0
    while len(order) < len(nets_of):
        while heap and (done[heap[0][1]] or score[heap[0][1]] != heap[0][0]):
            heappop(heap)
        if not heap:
            while done[unmet]:
                unmet += 1
            heap = [(score[unmet], unmet)]
        v = heappop(heap)[1]
        done[v] = True
        order.append(v)
        for h in nets_of[v]:
            left[h] -= 1
            # A net opens once and has a last pin once, so all scores together change O(pins) times.
            change = (-1 if fresh[h] else 0) - (1 if left[h] == 1 else 0)
            for u in pins[h] if fresh[h] or left[h] == 1 else ():
                if not done[u]:
                    score[u] += change
                    heappush(heap, (score[u], u))
            fresh[h] = False
    return order


def frontier(
    graph: StageGraph,
    order: IntArray,
    device_type: int,
    other_type: int | None = None,
    limit: float = np.inf,
    max_states: int = 200_000,
) -> Frontier:
    """Layered state graph of the sets of classes along an order; states that no set within the limit passes are left out.

    Parameters
    ----------
    graph
        Classes, nets and types.
    order
        Classes in the order of the sweep, each once. Classes that are not named are elsewhere, on other devices.
    device_type
        Type of the device that holds the set.
    other_type
        Type of the device that holds the rest of ``order``; None when that rest may be spread over many.
    limit
        Seconds that each of these devices may be loaded with.
    max_states
        Give up beyond this many states.

    Raises
    ------
    FrontierTooWide
        More than ``max_states`` states.

    Notes
    -----
    A device that holds a pin of a cut net pays the rate out if the source is with it, else the rate in; while the source
    has not been seen, the smaller of the two, and the difference when it is. Every path from the first to the last
    state is one set, its load the sum of the steps. Guarantee: no set within the limit is lost (the test allows for
    rounding). Complexity: O(states * open nets).
    """
    position = np.full(graph.n, -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    rates = np.zeros((2, 2))
    rates[_INSIDE] = graph.rate_in[device_type], graph.rate_out[device_type]
    time = np.zeros((len(order), 2))
    time[:, _INSIDE] = graph.time[order, device_type]
    if other_type is not None:
        rates[_OUTSIDE] = graph.rate_in[other_type], graph.rate_out[other_type]
        time[:, _OUTSIDE] = graph.time[order, other_type]
    events, last = _events(graph, position, len(order), rates)
    # Finite, so that a class that cannot run on the device's type never passes.
    ceiling = min(limit * (1.0 + _SLACK), np.finfo(np.float64).max)

    states = np.zeros((1, 0), dtype=np.int8)
    open_nets: list[int] = []
    least = np.zeros((1, 2))
    counts, targets, loads = [1], [], []
    for i in range(len(order)):
        column = {h: j for j, h in enumerate(open_nets)}
        after = [h for h in open_nets if last[h] > i]
        new = [h for h, _ in events[i] if h not in column and last[h] > i]
        halves, steps = [], []
        for x in (_OUTSIDE, _INSIDE):
            value = states.copy()
            step = np.zeros((len(states), 2))
            step[:, x] = time[i, x]
            for h, price in events[i]:
                if h in column:
                    old = states[:, column[h]]
                    step += price[old, x]
                    value[old == 1 - x, column[h]] = _MIXED
                else:
                    step += price[_FRESH, x]
            opened = np.full((len(states), len(new)), x, dtype=np.int8)
            halves.append(np.hstack([value[:, [column[h] for h in after]], opened]))
            steps.append(step)
        reach = np.concatenate([least + steps[0], least + steps[1]])
        alive = np.logical_and(reach[:, 0] <= ceiling, reach[:, 1] <= ceiling)
        index = np.full(len(alive), -1, dtype=np.int64)
        states, index[alive] = _unique_rows(np.vstack(halves)[alive])
        least = np.full((len(states), 2), np.inf)
        np.minimum.at(least, index[alive], reach[alive])
        targets.append(np.where(index >= 0, index + sum(counts), -1).reshape(2, -1).T)
        loads.append(np.stack(steps, axis=1))
        open_nets = after + new
        counts.append(len(states))
        if sum(counts) > max_states:
            raise FrontierTooWide(f"more than {max_states} frontier states along this order")
    counts[-1] = 1  # also when no set stays within the limit
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    target = np.vstack([*targets, np.full((1, 2), -1)]).astype(np.int64)
    load = np.vstack([*loads, np.zeros((1, 2, 2))])
    inside, outside = np.ascontiguousarray(load[:, :, _INSIDE]), np.ascontiguousarray(load[:, :, _OUTSIDE])
    left = np.zeros((len(target), 2))
    every = np.zeros(0, dtype=np.int64)
    return _within(
        Frontier(np.array(order, dtype=np.int64), first, target, inside, outside, left, every, every), ceiling
    )


def _events(
    graph: StageGraph, position: IntArray, steps: int, rates: FloatArray
) -> tuple[list[list[tuple[int, FloatArray]]], dict[int, int]]:
    """For every step the nets it touches, each with what both devices pay; and for every net the step of its last pin.

    What a step costs is an array (net's state before, side of the class, paying side).
    """
    events: list[list[tuple[int, FloatArray]]] = [[] for _ in range(steps)]
    last: dict[int, int] = {}
    symmetric = bool((rates[:, 0] == rates[:, 1]).all())
    merged: dict[tuple[object, ...], tuple[int, IntArray, int, bool, float]] = {}
    for h, (a, b) in enumerate(zip(graph.net_ptr[:-1].tolist(), graph.net_ptr[1:].tolist(), strict=True)):
        places = np.sort(position[graph.net_pin[a:b]])
        cut = bool(places[0] < 0)
        places = places[places >= 0]
        if len(places) == 0:
            continue
        source = int(position[graph.net_source[h]])
        # With equal rates it does not matter where the source is, so nets with the same pins become one.
        key = (places.tobytes(), cut, symmetric or source)
        first, *_, weight = merged.get(key, (h, places, source, cut, 0.0))
        merged[key] = (first, places, source, cut, weight + float(graph.net_weight[h]))
    for h, places, source, cut, weight in merged.values():
        last[h] = int(places[-1])
        for i in places.tolist():
            events[i].append((h, weight * _prices(i, source, cut, rates)))
    return events, last


def _prices(step: int, source: int, cut: bool, rates: FloatArray) -> FloatArray:
    """What touching a net of weight one costs both devices: (state before, side of the class, paying side).

    ``source`` is the step that decides the net's source, -1 when it is elsewhere; ``cut`` says whether a pin is elsewhere.
    """

    def paid(state: int, home: int | None) -> FloatArray:
        price = np.zeros(2)
        for side in (_OUTSIDE, _INSIDE):
            if state in (side, _MIXED) and (cut or state == _MIXED):
                into, out = rates[side]
                price[side] = min(into, out) if home is None else out if home == side else into
        return price

    price = np.zeros((4, 2, 2))
    for state in (_OUTSIDE, _INSIDE, _MIXED, _FRESH):
        for x in (_OUTSIDE, _INSIDE):
            after = x if state in (x, _FRESH) else _MIXED
            if source < 0:
                price[state, x] = paid(after, _ELSEWHERE) - paid(state, _ELSEWHERE)
            elif step < source:
                price[state, x] = paid(after, None) - paid(state, None)
            elif step == source:
                price[state, x] = paid(after, x) - paid(state, None)
            elif state in (_OUTSIDE, _INSIDE):
                # The source has been seen, so an unmixed net is where its source is; a mixed one has been paid for.
                price[state, x] = paid(after, state) - paid(state, state)
    return price


def _unique_rows(rows: NDArray[np.int8]) -> tuple[NDArray[np.int8], IntArray]:
    """Distinct rows and, for every row, the number of its representative."""
    if rows.shape[1] == 0 or len(rows) == 0:
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    # Three values a net: 39 nets fit in one 64-bit key, so long rows are ranked piece by piece.
    key = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, rows.shape[1], 20):
        piece = rows[:, start : start + 20].astype(np.int64)
        value = piece @ (3 ** np.arange(piece.shape[1], dtype=np.int64))
        key = np.unique(key * 3**20 + value, return_inverse=True)[1].astype(np.int64)
    _, representative, inverse = np.unique(key, return_index=True, return_inverse=True)
    return rows[representative], inverse.astype(np.int64)


def _within(graph: Frontier, ceiling: float) -> Frontier:
    """Drop the steps that no path uses with both loads <= ceiling, looking at one load at a time."""
    keep = np.ones((graph.states, 2), dtype=bool)
    for device, load in enumerate((graph.load, graph.other)):
        before = np.full(graph.states, np.inf)
        behind = np.full(graph.states, np.inf)
        before[0] = behind[-1] = 0.0
        layers = list(zip(graph.first[:-2].tolist(), graph.first[1:-1].tolist(), strict=True))
        for a, b in layers:
            for x in (_OUTSIDE, _INSIDE):
                to = graph.target[a:b, x]
                np.minimum.at(before, to[to >= 0], (before[a:b] + load[a:b, x])[to >= 0])
        for a, b in reversed(layers):
            for x in (_OUTSIDE, _INSIDE):
                to = graph.target[a:b, x]
                behind[a:b] = np.minimum(behind[a:b], np.where(to >= 0, load[a:b, x] + behind[to], np.inf))
        through = before[:, None] + load + np.where(graph.target >= 0, behind[graph.target], np.inf)
        keep &= through <= ceiling
        graph.left[:, device] = behind
    return restrict(graph, keep)


def restrict(graph: Frontier, keep: NDArray[np.bool_]) -> Frontier:
    """Frontier with only the steps marked in ``keep`` ((states, 2)), and only the states that complete paths use."""
    target = np.where(keep, graph.target, -1)
    layers = list(zip(graph.first[:-2].tolist(), graph.first[1:-1].tolist(), strict=True))
    ahead = np.zeros(graph.states, dtype=bool)
    ahead[-1] = True
    for a, b in reversed(layers):
        target[a:b][~ahead[target[a:b]]] = -1
        ahead[a:b] = (target[a:b] >= 0).any(axis=1)
    reached = np.zeros(graph.states, dtype=bool)
    reached[0] = True
    for a, b in layers:
        target[a:b][~reached[a:b]] = -1
        to = target[a:b].ravel()
        reached[to[to >= 0]] = True
    used = reached & ahead
    used[0] = used[-1] = True
    number = np.cumsum(used) - 1
    target = target[used]
    first = np.concatenate([[0], np.cumsum(used)])[graph.first].astype(np.int64)
    target = np.where(target >= 0, number[target], -1)
    steps = target.ravel()
    enter = np.argsort(steps, kind="stable")[np.count_nonzero(steps < 0) :]
    enter_ptr = np.searchsorted(steps[enter], np.arange(len(target) + 1))
    return Frontier(graph.order, first, target, graph.load[used], graph.other[used], graph.left[used], enter_ptr, enter)


def thinnest_frontier(
    graph: StageGraph, device_type: int, limit: float = np.inf, max_states: int = 200_000, seed: int = 0
) -> Frontier:
    """Frontier of all classes along the candidate order of :func:`node_orders` that needs the fewest states.

    Raises
    ------
    FrontierTooWide
        Every candidate needs more than ``max_states`` states.
    """
    best: Frontier | None = None
    for order in node_orders(graph, seed=seed):
        allowed = max_states if best is None else best.states
        try:
            found = frontier(graph, order, device_type, None, limit, 2 * allowed)
        except FrontierTooWide:
            continue
        if found.states <= allowed:
            best = found
    if best is None:
        raise FrontierTooWide(f"every order tried needs more than {max_states} frontier states")
    return best
