"""Improve a serving plan by small moves: one node elsewhere, or one boundary a layer on.

First improvement, strict, until no move helps: a local optimum of two neighbourhoods, nothing more. It knows links and, where
requests may join inside an interval, that too; so it also serves where the block builder does not look.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.serving_construct import Candidate
from hetopt.algorithms.serving_flow import flow_value, plan_value
from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["climb"]

Ints = NDArray[np.int64]

_BETTER = 1 + 1e-9
_CHUNK = 100  # flows a kernel call computes


@njit
def _try_places(node, begins, ends, value, layers, throughput, link, source, sink, start, hold, partial):  # type: ignore[no-untyped-def]
    """First place of the list that makes the plan better: its number and value, or -1."""
    n = len(start)
    s, h = start.copy(), hold.copy()
    for c in range(len(begins)):
        s[node], h[node] = begins[c], ends[c] - begins[c]
        count = 0
        for i in range(n):
            if h[i] > 0:
                count += 1
        used = np.empty(count, dtype=np.int64)
        count = 0
        for i in range(n):
            if h[i] > 0:
                used[count] = i
                count += 1
        rate = np.empty(count)
        between = np.empty((count, count))
        for a in range(count):
            rate[a] = throughput[used[a], h[used[a]]]
            for b in range(count):
                between[a, b] = link[used[a], used[b]]
        now = flow_value(layers, rate, between, source[used], sink[used], s[used], s[used] + h[used], partial)
        if now > value:
            return c, now
    return -1, value


def climb(
    network: ServingNetwork,
    best: Candidate,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Candidate], None] = lambda _: None,
) -> Candidate:
    """A plan that no single move improves, ``best`` or better.

    A node's new interval begins and ends at boundaries of other nodes (begins or ends at one, where requests may join
    inside). Moving a boundary lengthens the intervals that end there and shortens those that begin there, or the other
    way round.
    """
    improved = True
    while improved and not should_stop():
        improved = False
        for move in (_moved_boundary, _moved_node):
            while not should_stop():
                better = move(network, best, should_stop)
                if better is None:
                    break
                best, improved = better, True
                report(best)
    return best


def _moved_boundary(network: ServingNetwork, best: Candidate, should_stop: Callable[[], bool]) -> Candidate | None:
    end = best.start + best.hold
    for layer in range(1, network.layers):
        before, after = (end == layer) & (best.hold > 0), (best.start == layer) & (best.hold > 0)
        if not (before.any() or after.any()) or should_stop():
            continue
        for step in (1, -1):
            hold = best.hold + step * before - step * after
            start = best.start + step * after
            at = np.arange(network.n)
            if hold.max() >= network.throughput.shape[1] or (start + hold > network.layers).any():
                continue
            if ((best.hold > 0) & ((hold < 1) | (network.throughput[at, hold.clip(0)] <= 0))).any():
                continue
            value = plan_value(network, start, hold)
            if value > best.value * _BETTER:
                return Candidate(value, start, hold)
    return None


def _moved_node(network: ServingNetwork, best: Candidate, should_stop: Callable[[], bool]) -> Candidate | None:
    end = best.start + best.hold
    used = best.hold > 0
    border = np.zeros(network.layers + 1, dtype=bool)
    border[[0, network.layers, *best.start[used].tolist(), *end[used].tolist()]] = True
    order = np.argsort(used * network.throughput[np.arange(network.n), best.hold], kind="stable")
    for node in order.tolist():  # nodes out of use first, then slow ones
        keep = np.flatnonzero(network.throughput[node, : network.layers + 1] > 0)
        begin, length = (v.ravel() for v in np.meshgrid(np.arange(network.layers), keep, indexing="ij"))
        good = begin + length <= network.layers
        begin, finish = begin[good], begin[good] + length[good]
        anchored = border[begin] | border[finish] if network.partial else border[begin] & border[finish]
        begin, finish = begin[anchored], finish[anchored]
        for first in range(0, len(begin), _CHUNK):
            if should_stop():
                return None
            chosen, value = _try_places(
                node,
                begin[first : first + _CHUNK],
                finish[first : first + _CHUNK],
                best.value * _BETTER,
                network.layers,
                network.throughput,
                network.link,
                network.source,
                network.sink,
                best.start,
                best.hold,
                network.partial,
            )
            if chosen >= 0:
                start, hold = best.start.copy(), best.hold.copy()
                start[node], hold[node] = begin[first + chosen], finish[first + chosen] - begin[first + chosen]
                return Candidate(float(value), start, hold)
    return None
