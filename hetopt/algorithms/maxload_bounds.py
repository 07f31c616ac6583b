"""Lower bounds on the largest load of any device: balance over device types, and minimum cuts.

What they are for: a certificate for heuristic plans, and a start for exact search. Both hold for every plan, contiguous or
not, and ignore memory. What they are not: tight in general. Balance forgets communication, a minimum cut forgets that the
other classes must go somewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from hetopt.algorithms.jit import njit
from hetopt.algorithms.stagecosts import NEVER, StageCosts

__all__ = ["balance", "min_cut", "worth"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def balance(time: Floats, count: Ints) -> tuple[float, Floats]:
    """Best balance bound of ``n`` classes on ``t`` device types, and the prices that prove it.

    For prices ``c >= 0``, a device of type t with load at most T holds classes of total worth at most ``c[t] T``, where
    class v is worth ``min_t c[t] time[v, t]``; hence ``T >= sum_v min_t c[t] time[v, t] / sum_t count[t] c[t]``. With one
    speed-up ``r`` between k accelerators and l CPUs the best prices give ``W / (k + l / r)``. They are the dual of
    splitting classes fractionally. Two types: all breakpoints in O(n log n); more: cutting planes in t variables.

    The bound is rounded down by eight units in the last place, which covers the rounding of products, sums and quotient.
    It is ``inf`` when a class runs nowhere, and 0 without classes.
    """
    used = np.flatnonzero(count > 0)
    prices = np.zeros(len(count))
    if not len(time):
        return 0.0, prices
    if not np.isfinite(time[:, used]).any(axis=1).all():
        return math.inf, prices
    seconds, devices = time[:, used], count[used].astype(np.float64)
    candidates = [np.eye(len(used))[t] for t in range(len(used))]
    if len(used) == 2:
        candidates.append(_breakpoint(seconds, devices))
    elif len(used) > 2:
        candidates.append(_cutting_planes(seconds, devices))
    values = [worth(seconds, c).sum() / (c * devices).sum() for c in candidates]
    best = candidates[int(np.argmax(values))]
    prices[used] = best
    value = math.fsum(worth(seconds, best)) / math.fsum(best * devices)
    return value * (1 - 2.0**-50), prices


def _priced(time: Floats, prices: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(time), time * prices, np.inf)


def worth(time: Floats, prices: Floats) -> Floats:
    """What each class is worth at some prices, (n,): ``min_t prices[t] time[v, t]`` over the types that run it."""
    return np.asarray(_priced(time, prices).min(axis=1, initial=np.inf))


def _breakpoint(time: Floats, devices: Floats) -> Floats:
    """Best prices (1, s): the bound is quasi-concave in s with breakpoints where a class is worth the same on both."""
    first, second = time[:, 0], time[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.isinf(second), 0.0, first / second)
    ratio[np.isnan(ratio)] = 0.0
    order = np.argsort(ratio, kind="stable")
    s = ratio[order]
    low = np.cumsum(np.where(np.isfinite(first[order]), first[order], 0.0))
    finite_second = np.where(np.isfinite(second[order]), second[order], 0.0)
    high = np.append(np.cumsum(finite_second[::-1])[::-1][1:], 0.0)
    finite = np.isfinite(s)
    if not finite.any():
        return np.array([0.0, 1.0])
    s, low, high = s[finite], low[finite], high[finite]
    return np.array([1.0, s[np.argmax((low + s * high) / (devices[0] + s * devices[1]))]])


def _cutting_planes(time: Floats, devices: Floats) -> Floats:
    """Maximise the concave worth over prices with ``sum devices * prices = 1``; any prices bound, so stop when close."""
    types = len(devices)
    time = time / (np.where(np.isfinite(time), time, 0.0).sum(axis=0).max() or 1.0)
    prices = 1.0 / (types * devices)
    best, best_value = prices, -1.0
    cuts: list[Floats] = []
    for _ in range(60):
        priced = _priced(time, prices)
        choice = priced.argmin(axis=1)
        value = float(priced[np.arange(len(time)), choice].sum())
        if value > best_value:
            best, best_value = prices, value
        cuts.append(np.asarray(np.bincount(choice, time[np.arange(len(time)), choice], types), np.float64))
        rows = np.column_stack([-np.array(cuts), np.ones(len(cuts))])
        found = linprog(
            np.append(np.zeros(types), -1.0),
            A_ub=rows,
            b_ub=np.zeros(len(cuts)),
            A_eq=np.append(devices, 0.0)[None, :],
            b_eq=[1.0],
            bounds=[(0, None)] * types + [(None, None)],
            method="highs",
        )
        if found.status != 0 or -found.fun <= best_value * (1 + 1e-9):
            break
        prices = np.maximum(found.x[:types], 0.0)
    return best


def min_cut(
    costs: StageCosts,
    start: int = 0,
    effort: int = 20_000_000,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[int, int]:
    """Largest over classes v of the least load that a device holding v can have; in the units of the integer costs.

    A load is submodular in the classes a device holds, so the least load with v is a minimum cut (Lawler's expansion of a
    net, one auxiliary node for receiving and one for sending): min over device types, max over classes. Each cut also
    bounds the other classes on its side, which are then skipped; classes are tried in the order of what is known of them.
    Both passes of training count together. At least ``start`` is returned.

    Returns the bound and the number of cuts computed. After ``effort`` arcs have been looked at, or when ``should_stop``,
    the bound so far is returned: it holds at any time, since each class by itself bounds every plan. One cut costs
    O(n^2 pins) at worst.
    """
    types, _, n = costs.time.shape
    if n == 0:
        return start, 0
    seconds = np.minimum(costs.time.sum(axis=1), NEVER)
    nets_of = np.repeat(np.arange(n), np.diff(costs.in_ptr))
    is_source = costs.net_source[costs.in_net] == nets_of
    known = np.empty((types, n), np.int64)
    for t in range(types):
        alone = np.where(is_source, costs.leave[t][costs.in_net], costs.arrive[t][costs.in_net])
        # integers this large lose bits in a float sum: add them up as they are
        known[t] = seconds[t]
        np.add.at(known[t], nets_of, alone)
    known[seconds >= NEVER] = NEVER
    networks: list[_Network | None] = [None] * types
    exact = (costs.arrive.max(axis=1, initial=0) == 0) & (costs.leave.max(axis=1, initial=0) == 0)
    best, cuts, left = start, 0, effort
    tried = np.zeros(n, np.bool_)
    while left > 0 and not should_stop():
        least = np.where(tried, -1, known.min(axis=0))
        v = int(least.argmax())
        if least[v] <= best:
            break
        value = min((int(known[t, v]) for t in range(types) if exact[t]), default=NEVER)
        for t in np.flatnonzero(~exact & (seconds[:, v] < NEVER)).tolist():
            network = networks[t] = networks[t] or _Network(costs, t, seconds[t])
            flow, side, used = network.cut(v, value, left, should_stop)
            left -= used
            cuts += 1
            value = min(value, flow)  # a flow that was stopped is a bound too
            if side is not None:
                known[t, side] = np.minimum(known[t, side], flow)
        tried[v] = True
        best = max(best, min(value, NEVER))
    return best, cuts


class _Network:
    """Arcs of one device type's load function; classes first, then auxiliary nodes, the sink last."""

    def __init__(self, costs: StageCosts, kind: int, seconds: Ints) -> None:
        n, nets = len(seconds), len(costs.net_source)
        length = np.diff(costs.net_ptr)
        net = np.repeat(np.arange(nets), length)
        other = costs.net_pin != costs.net_source[net]
        net, pin = net[other], costs.net_pin[other]
        pair = length[net] == 2
        source = costs.net_source
        into, out = n + np.arange(nets), n + nets + np.arange(nets)
        wide = np.flatnonzero(length > 2)
        sink = n + 2 * nets
        unbounded = np.full((~pair).sum(), 2 * NEVER)
        arcs = [
            (np.arange(n), np.full(n, sink), seconds),
            # a pin in the part without the source: the net arrives
            (pin[pair], source[net[pair]], costs.arrive[kind][net[pair]]),
            (pin[~pair], into[net[~pair]], unbounded),
            (into[wide], source[wide], costs.arrive[kind][wide]),
            # the source in the part and a pin outside: the net leaves
            (source[net[pair]], pin[pair], costs.leave[kind][net[pair]]),
            (source[wide], out[wide], costs.leave[kind][wide]),
            (out[net[~pair]], pin[~pair], unbounded),
        ]
        tail = np.concatenate([a[0] for a in arcs])
        head = np.concatenate([a[1] for a in arcs])
        self.classes, self.sink = n, sink
        self.to = np.stack([head, tail], axis=1).ravel()
        self.capacity = np.stack([np.concatenate([a[2] for a in arcs]), np.zeros(len(tail), np.int64)], axis=1).ravel()
        tails = np.stack([tail, head], axis=1).ravel()
        self.arcs = np.argsort(tails, kind="stable")
        self.ptr = np.zeros(sink + 2, np.int64)
        np.cumsum(np.bincount(tails, minlength=sink + 1), out=self.ptr[1:])

    def cut(
        self, v: int, enough: int, effort: int, should_stop: Callable[[], bool]
    ) -> tuple[int, NDArray[np.int64] | None, int]:
        """Least load with v, the classes on v's side, arcs looked at; no side when stopped or when ``enough`` flows."""
        capacity = self.capacity.copy()
        level, place = np.empty(self.sink + 1, np.int64), np.empty(self.sink + 1, np.int64)
        queue, path = np.empty(self.sink + 1, np.int64), np.empty(self.sink + 2, np.int64)
        flow, used = 0, 0
        while flow < enough:
            if used >= effort or should_stop():
                return flow, None, used
            pushed, looked, done = _augment(
                self.ptr, self.arcs, self.to, capacity, v, self.sink, level, place, queue, path, 2_000_000
            )
            flow, used = flow + int(pushed), used + int(looked)
            if done:
                return flow, np.flatnonzero(level[: self.classes] >= 0), used
        return flow, None, used


@njit
def _augment(ptr, arcs, to, capacity, source, sink, level, place, queue, path, budget):  # type: ignore[no-untyped-def]
    """One or more phases of Dinic's algorithm: pushed flow, arcs looked at, whether the flow is now maximum."""
    pushed = 0
    looked = 0
    while True:
        level[:] = -1
        level[source] = 0
        queue[0] = source
        head, tail = 0, 1
        while head < tail:
            u = queue[head]
            head += 1
            for p in range(ptr[u], ptr[u + 1]):
                looked += 1
                e = arcs[p]
                if capacity[e] > 0 and level[to[e]] < 0:
                    level[to[e]] = level[u] + 1
                    queue[tail] = to[e]
                    tail += 1
        if level[sink] < 0:
            return pushed, looked, True
        place[:] = ptr[:-1]
        depth = 0
        u = source
        while True:
            if u == sink:
                least = capacity[path[0]]
                for d in range(1, depth):
                    least = min(least, capacity[path[d]])
                pushed += least
                back = depth
                for d in range(depth - 1, -1, -1):
                    capacity[path[d]] -= least
                    capacity[path[d] ^ 1] += least
                    if capacity[path[d]] == 0:
                        back = d
                depth = back
                u = to[path[back] ^ 1]
                continue
            if place[u] < ptr[u + 1]:
                e = arcs[place[u]]
                looked += 1
                if capacity[e] > 0 and level[to[e]] == level[u] + 1:
                    path[depth] = e
                    depth += 1
                    u = to[e]
                else:
                    place[u] += 1
            elif depth == 0:
                break
            else:
                level[u] = -2
                depth -= 1
                u = to[path[depth] ^ 1]
                place[u] += 1
            if looked > budget:
                return pushed, looked, False
        if looked > budget:
            return pushed, looked, False
