"""Steps of the barrier relaxation: from an ideal, the accelerators with a cut and the blocks without one.

Both search the ideals above one ideal, cover by cover, as far as something that goes on in time may come of it. Part of
:mod:`hetopt.algorithms.latency_barrier`, which says what barriers and blocks are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import inner
from hetopt.algorithms.latency_graph import NEVER, LatencyGraph

__all__ = ["Scratch", "View", "accelerators", "blocks", "scratch_of", "view_of"]

Ints = NDArray[np.int64]


class View(NamedTuple):
    """The arrays of a :class:`~hetopt.algorithms.latency_graph.LatencyGraph` that steps read."""

    acc: Ints
    host: Ints
    size: Ints
    room: Ints
    pred_ptr: Ints
    pred: Ints
    enter: Ints
    succ_ptr: Ints
    leave: Ints
    net_ptr: Ints
    net_source: Ints
    arrive: Ints
    send: Ints
    in_ptr: Ints
    in_net: Ints


class Scratch(NamedTuple):
    """Room for one search at a time; ``target``, ``cost`` and ``other`` are what it found."""

    stamp: Ints
    turn: Ints
    stack: Ints
    pins: Ints
    sends: NDArray[np.bool_]
    inside: Ints
    ready: Ints
    running: Ints
    alone: Ints
    target: Ints
    cost: Ints
    other: Ints
    best: Ints


def view_of(graph: LatencyGraph) -> View:
    """What steps read of a graph."""
    return View(*(getattr(graph, name) for name in View._fields))


def scratch_of(graph: LatencyGraph, ideals: int) -> Scratch:
    """Room for the steps from any of a number of ideals."""
    n, nets = graph.n, len(graph.arrive)
    return Scratch(
        np.zeros(ideals, np.int64),
        np.zeros(1, np.int64),
        np.zeros((n + 2, 5), np.int64),
        np.zeros(nets, np.int64),
        np.zeros(nets, np.bool_),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(ideals, np.int64),
        np.zeros(ideals, np.int64),
        np.zeros(ideals, np.int64),
        np.zeros(ideals + 1, np.int64),
    )


@inner
def accelerators(i, limit, g, lattice, cut, hold, hold_open, s):  # type: ignore[no-untyped-def]
    """Ideals that an accelerator with a cut leads to from ideal ``i``, with its load, while load + hold stays below limit.

    Fills ``s.target``, ``s.cost`` and, with bytes, ``s.other``; returns how many, and the steps taken. Nets are counted by
    pins inside; what has arrived stays paid, while what is sent may still be kept inside by a larger set.
    """
    s.turn[0] += 1
    turn = s.turn[0]
    found = 0
    steps = 0
    depth = 0
    s.stack[0, 0] = i
    s.stack[0, 1] = lattice.ptr[i]
    s.stack[0, 2] = -1
    s.stamp[i] = turn
    sure = 0
    send = 0
    size = 0
    held = 0
    while depth >= 0:
        current = s.stack[depth, 0]
        p = s.stack[depth, 1]
        if p < lattice.ptr[current + 1]:
            s.stack[depth, 1] = p + 1
            j = lattice.cover[p]
            v = lattice.node[p]
            steps += 1
            if s.stamp[j] == turn or g.acc[v] >= NEVER or size + g.size[v] > g.room[0]:
                continue
            s.stamp[j] = turn
            sure += g.acc[v]
            size += g.size[v]
            held += cut[v]
            for q in range(g.in_ptr[v], g.in_ptr[v + 1]):
                h = g.in_net[q]
                if g.net_source[h] == v:
                    s.sends[h] = True
                    send += g.send[h]
                elif s.pins[h] == 0:
                    sure += g.arrive[h]
                s.pins[h] += 1
                if s.sends[h] and s.pins[h] == g.net_ptr[h + 1] - g.net_ptr[h]:
                    send -= g.send[h]
            depth += 1
            s.stack[depth, 0] = j
            s.stack[depth, 1] = lattice.ptr[j]
            s.stack[depth, 2] = v
            if sure + (hold[j] if held > 0 else hold_open[j]) >= limit:
                s.stack[depth, 1] = lattice.ptr[j + 1]
            elif held > 0:
                s.target[found] = j
                s.cost[found] = sure + send
                s.other[found] = size
                found += 1
        else:
            v = s.stack[depth, 2]
            depth -= 1
            if v < 0:
                continue
            sure -= g.acc[v]
            size -= g.size[v]
            held -= cut[v]
            for q in range(g.in_ptr[v], g.in_ptr[v + 1]):
                h = g.in_net[q]
                if s.sends[h] and s.pins[h] == g.net_ptr[h + 1] - g.net_ptr[h]:
                    send += g.send[h]
                s.pins[h] -= 1
                if g.net_source[h] == v:
                    s.sends[h] = False
                    send -= g.send[h]
                elif s.pins[h] == 0:
                    sure -= g.arrive[h]
    return found, steps


@inner
def blocks(i, limit, g, lattice, cut, rest, beyond, s):  # type: ignore[no-untyped-def]
    """Ideals that a block without a cut leads to from ideal ``i``, with its length, where length + rest is below limit.

    ``beyond`` bounds what follows any larger block; nodes outside may run beside the block, so tails do not.
    ``s.other`` is the length of the block all on the host, ``NEVER`` where it cannot be.
    """
    s.turn[0] += 1
    turn = s.turn[0]
    found = 0
    steps = 0
    depth = 0
    s.stack[0, 0] = i
    s.stack[0, 1] = lattice.ptr[i]
    s.stack[0, 2] = -1
    s.stack[0, 3] = 0
    s.stack[0, 4] = 0
    s.stamp[i] = turn
    while depth >= 0:
        current = s.stack[depth, 0]
        p = s.stack[depth, 1]
        if p < lattice.ptr[current + 1]:
            s.stack[depth, 1] = p + 1
            j = lattice.cover[p]
            v = lattice.node[p]
            steps += 1
            if s.stamp[j] == turn or cut[v]:
                continue
            s.stamp[j] = turn
            on_host = 0
            on_acc = 0
            alone = 0
            for q in range(g.pred_ptr[v], g.pred_ptr[v + 1]):
                u = g.pred[q]
                at = g.enter[q]
                if s.inside[u] == turn:
                    on_host = max(on_host, s.ready[u])
                    alone = max(alone, s.alone[u])
                    at = min(s.running[u], s.ready[u] + at)
                on_acc = max(on_acc, at)
            on_host = min(NEVER, on_host + g.host[v])
            on_acc = min(NEVER, on_acc + g.acc[v])
            done = max(s.stack[depth, 3], min(on_host, on_acc))
            if done + beyond[j] >= limit:
                continue
            s.ready[v] = min(on_host, on_acc + g.leave[v])
            s.running[v] = on_acc
            s.alone[v] = min(NEVER, alone + g.host[v])
            hosted = max(s.stack[depth, 4], s.alone[v])
            s.inside[v] = turn
            length = done
            for q in range(lattice.front_ptr[j], lattice.front_ptr[j + 1]):
                u = lattice.front[q]
                if s.inside[u] == turn:
                    length = max(length, s.ready[u])
                    steps += 1
            if length + rest[j] < limit:
                s.target[found] = j
                s.cost[found] = length
                s.other[found] = hosted
                found += 1
            depth += 1
            s.stack[depth, 0] = j
            s.stack[depth, 1] = lattice.ptr[j]
            s.stack[depth, 2] = v
            s.stack[depth, 3] = done
            s.stack[depth, 4] = hosted
        else:
            v = s.stack[depth, 2]
            if v >= 0:
                s.inside[v] = 0
            depth -= 1
    return found, steps
