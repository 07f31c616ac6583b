"""Barrier relaxation of inference latency: a bound on the ideal lattice, and what it says of every ideal.

A node that precedes or follows each other node is a *cut*. A host that runs a cut, and an accelerator that holds one, is a
barrier: everything before it is ready when it starts, and everything after it starts when it is done. Between two
barriers lies a *block* of nodes without a cut. The relaxation keeps barriers exact (load and memory of an accelerator), and
counts accelerators: one for a barrier, and one at least for a block that is not all on the host. A block on the host takes
as long as its longest path; another one as long as its longest path with each node at its cheapest:

    ready(v)   = min(on_host(v), on_acc(v) + leave_v)           as consumers on other devices see it, and at the block's end
    on_host(v) = host_v + max over predecessors u in the block of ready(u)
    on_acc(v)  = acc_v + max over predecessors u of enter_uv outside the block, min(on_acc(u), ready(u) + enter_uv) inside

A set of an accelerator lies within one block, because it is convex; so any plan is a sequence of barriers and blocks that
is no shorter than in the relaxation. With q subgraphs an accelerator, count each of them. Values are the integers of
:mod:`hetopt.algorithms.latency_graph`. Source of the problem: Tarnawski et al., NeurIPS 2020; the relaxation is our own.

Accelerators with a cut are listed once a gap between cuts (:mod:`hetopt.algorithms.latency_gaps`), with the best ideal of
the gap for each amount of memory. Time O(gaps x ideals, pairs of nested ideals of one gap that pass the pruning), each with
the degree of the node added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import inner, njit
from hetopt.algorithms.latency_gaps import earliest, gaps_of, pins_of, within
from hetopt.algorithms.latency_graph import NEVER, LatencyGraph
from hetopt.algorithms.latency_lattice import Lattice, cuts, tails
from hetopt.algorithms.latency_steps import accelerators, blocks, scratch_of, view_of

__all__ = ["Barriers", "barriers"]

Ints = NDArray[np.int64]
_BUDGET = 2_000_000  # steps of a kernel call, about 0.1 s


class Barriers(NamedTuple):
    """Bounds (count + 1, N) for each ideal I, valid for plans that end before ``cap``.

    Attributes
    ----------
    reached
        Earliest time at which all of I is ready and nothing else has begun, by accelerators used; the last number bounds
        every plan. The other rows are by the number of accelerators that are left.
    closed
        Least time from such a moment to the end when the next thing is a barrier.
    left
        Least time from such a moment to the end, whatever comes next.
    open_left
        Least time to the end once all of I is ready, when no barrier needs to be at I: the next barrier is at I or later.
    open_total
        Least end of a plan whose next barrier is at I or later.
    grow
        Least time to the end, beyond what it is charged already, of an accelerator that holds a cut and ends at I or later.
    grow_open
        The same while it holds no cut yet and will.
    grow_inner
        The same of an accelerator that never holds one.
    """

    cap: int
    reached: Ints
    closed: Ints
    left: Ints
    open_left: Ints
    open_total: Ints
    grow: Ints
    grow_open: Ints
    grow_inner: Ints


def barriers(
    graph: LatencyGraph,
    lattice: Lattice,
    cap: int = NEVER,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    backward: bool = True,
) -> Barriers | None:
    """The relaxation, forwards and (unless told otherwise) backwards; None when ``should_stop`` said so in between.

    Parameters
    ----------
    cap
        Only plans that end before this count: ``reached[-1] >= cap`` says that there is none.
    backward
        Without it only ``reached`` is of use.
    """
    size = len(lattice.words)
    cut = cuts(graph)
    arrays = tuple(np.full((graph.count + 1, size), NEVER) for _ in range(9))
    rest, after, reached = np.zeros(size, np.int64), arrays[0], arrays[1]
    view, scratch = view_of(graph), scratch_of(graph, size)
    _remaining(lattice, tails(graph), rest)
    sent, hold, hold_open = np.zeros(size, np.int64), np.full(size, NEVER), np.full(size, NEVER)
    _sent(lattice, cut, graph.net_source, graph.send, *pins_of(graph), sent)
    _hold(lattice, cut, graph.acc, rest, sent, hold, hold_open)
    gaps = gaps_of(graph, lattice, cut)
    after[:, 0] = reached[:, 0] = 0
    at = 0
    while at < size:
        at = _forward(at, cap, view, lattice, cut, gaps, rest, hold, hold_open, after, reached, scratch, _BUDGET)
        if should_stop():
            return None
    bounds = Barriers(cap, *arrays[1:])
    at = size - 1
    while backward and at >= 0:
        at = _backward(at, view, lattice, cut, gaps, rest, sent, bounds, scratch, _BUDGET)
        if should_stop():
            return None
    return bounds


@njit
def _remaining(lattice, tail, rest):  # type: ignore[no-untyped-def]
    """Longest path outside each ideal; it begins at a node that could be added."""
    for i in range(len(rest)):
        for p in range(lattice.ptr[i], lattice.ptr[i + 1]):
            rest[i] = max(rest[i], tail[lattice.node[p]])


@njit
def _sent(lattice, cut, net_source, send, pins, pin_ptr, sent):  # type: ignore[no-untyped-def]
    """What an accelerator with a cut that ends at an ideal sends in any case: it holds all since the ideal's last cut."""
    first = np.zeros(len(sent), np.int64)
    for i in range(len(sent)):
        for p in range(lattice.ptr[i], lattice.ptr[i + 1]):
            j = lattice.cover[p]
            first[j] = max(first[j], first[i], lattice.node[p] if cut[lattice.node[p]] else 0)
    for i in range(len(sent)):
        if len(cut) == 0 or (first[i] == 0 and not (cut[0] and lattice.words[i, 0] & np.uint64(1))):
            continue
        for h in range(len(send)):
            u = net_source[h]
            if u < first[i] or (lattice.words[i, u >> 6] >> np.uint64(u & 63)) & np.uint64(1) == 0:
                continue
            for z in range(pin_ptr[h], pin_ptr[h + 1]):
                v = pins[z]
                if (lattice.words[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) == 0:
                    sent[i] += send[h]
                    break


@njit
def _hold(lattice, cut, acc, rest, sent, hold, hold_open):  # type: ignore[no-untyped-def]
    """Least time to the end of an accelerator with a cut, and of one that will have a cut, by longest paths."""
    for i in range(len(rest) - 1, -1, -1):
        hold[i] = sent[i] + rest[i]
        for p in range(lattice.ptr[i], lattice.ptr[i + 1]):
            v = lattice.node[p]
            j = lattice.cover[p]
            if acc[v] < NEVER:
                hold[i] = min(hold[i], acc[v] + hold[j])
                hold_open[i] = min(hold_open[i], acc[v] + (hold[j] if cut[v] else hold_open[j]))


@njit
def _forward(start, cap, g, lattice, cut, gaps, rest, hold, hold_open, after, reached, s, budget):  # type: ignore[no-untyped-def]
    """Extend barriers from ideal ``start`` on; ``after`` holds those that follow a barrier, from which blocks begin."""
    nothing = np.zeros(reached.shape[1], np.int64)
    steps = 0
    layers = reached.shape[0]
    for i in range(start, reached.shape[1]):
        if steps > budget:
            return i
        for f in range(1, layers):
            after[f, i] = min(after[f, i], after[f - 1, i])
            reached[f, i] = min(reached[f, i], reached[f - 1, i])
        first = reached[layers - 1, i]
        if first + rest[i] < cap:
            for p in range(lattice.ptr[i], lattice.ptr[i + 1]):
                v = lattice.node[p]
                j = lattice.cover[p]
                if cut[v] and g.host[v] < NEVER:
                    for f in range(layers):
                        after[f, j] = min(after[f, j], reached[f, i] + g.host[v])
                        reached[f, j] = min(reached[f, j], after[f, j])
        first = after[layers - 1, i]
        if first + rest[i] < cap:
            found, more = blocks(i, cap - first, g, lattice, cut, rest, nothing, s)
            steps += more + found * layers
            for k in range(found):
                j = s.target[k]
                for f in range(layers):
                    reached[f, j] = min(reached[f, j], after[f, i] + s.other[k])
                    if f > 0:
                        reached[f, j] = min(reached[f, j], after[f - 1, i] + s.cost[k])
        if gaps.first[i] < 0 or layers == 1:
            continue
        first = earliest(i, reached[layers - 1], gaps)
        found, more = accelerators(i, cap - first, g, lattice, cut, hold, hold_open, s)
        steps += more + layers * (found + i - gaps.first[i])
        for k in range(found):
            s.other[k] = within(i, g.room[0] - s.other[k], gaps)
        for f in range(1, layers):
            for k in range(i + 1 - gaps.first[i]):
                one = gaps.order[gaps.first[i] + k]
                s.best[k + 1] = min(s.best[k] if k > 0 else NEVER, reached[f - 1, one] + gaps.more[one])
            for k in range(found):
                if s.other[k] > 0:
                    j = s.target[k]
                    after[f, j] = min(after[f, j], s.best[s.other[k]] + s.cost[k])
                    reached[f, j] = min(reached[f, j], after[f, j])
    return reached.shape[1]


@inner
def _close(i, g, lattice, cut, gaps, b, s):  # type: ignore[no-untyped-def]
    """Least time left when the next thing is an accelerator that goes on from the gap that ends at ``i``; steps taken."""
    closed, left = b.closed, b.left
    layers = b.reached.shape[0]
    top = layers - 1
    first = earliest(i, b.reached[top], gaps)
    found, steps = accelerators(i, b.cap - first, g, lattice, cut, b.grow[top - 1], b.grow_open[top - 1], s)
    wide = i + 1 - gaps.first[i]
    for k in range(found):
        s.other[k] = within(i, g.room[0] - s.other[k], gaps)
    for r in range(1, layers):
        s.best[: wide + 1] = NEVER
        for k in range(found):
            s.best[s.other[k]] = min(s.best[s.other[k]], s.cost[k] + left[r - 1, s.target[k]])
        for k in range(wide, 0, -1):
            if k < wide:
                s.best[k] = min(s.best[k], s.best[k + 1])
            one = gaps.order[gaps.first[i] + k - 1]
            closed[r, one] = min(closed[r, one], s.best[k] + gaps.more[one])
    return steps + layers * (found + wide)


@inner
def _leave(i, g, lattice, cut, b, s):  # type: ignore[no-untyped-def]
    """Least time left when the next thing is a host with a cut, or a block and then a barrier; steps taken."""
    closed, left = b.closed, b.left
    layers = b.reached.shape[0]
    top = layers - 1
    for p in range(lattice.ptr[i], lattice.ptr[i + 1]):
        v = lattice.node[p]
        if cut[v] and g.host[v] < NEVER:
            for r in range(layers):
                closed[r, i] = min(closed[r, i], g.host[v] + left[r, lattice.cover[p]])
    for r in range(layers):
        left[r, i] = closed[r, i]
    found, steps = blocks(i, b.cap - b.reached[top, i], g, lattice, cut, closed[top], b.open_left[top], s)
    for k in range(found):
        j = s.target[k]
        for r in range(layers):
            left[r, i] = min(left[r, i], s.other[k] + closed[r, j])
            if r > 0:
                left[r, i] = min(left[r, i], s.cost[k] + closed[r - 1, j])
    return steps + found * layers


@inner
def _open(i, g, lattice, cut, sent, b):  # type: ignore[no-untyped-def]
    """What is left when no barrier needs to be at ``i``, and of an accelerator that ends at ``i`` or later."""
    open_left, open_total, grow, grow_open, grow_inner = b.open_left, b.open_total, b.grow, b.grow_open, b.grow_inner
    layers = b.reached.shape[0]
    for r in range(layers):
        open_left[r, i] = b.closed[r, i]
        open_total[r, i] = min(NEVER, b.reached[layers - 1 - r, i] + b.closed[r, i])
        if r > 0:
            open_total[r, i] = min(open_total[r, i], open_total[r - 1, i])
        grow[r, i] = min(NEVER, sent[i] + b.left[r, i])
        grow_inner[r, i] = NEVER
    for p in range(lattice.ptr[i], lattice.ptr[i + 1]):
        v = lattice.node[p]
        j = lattice.cover[p]
        for r in range(layers):
            if not cut[v]:
                open_left[r, i] = min(open_left[r, i], open_left[r, j])
                open_total[r, i] = min(open_total[r, i], open_total[r, j])
            if g.acc[v] < NEVER:
                grow[r, i] = min(grow[r, i], g.acc[v] + grow[r, j])
                grow_open[r, i] = min(grow_open[r, i], g.acc[v] + (grow[r, j] if cut[v] else grow_open[r, j]))
                if not cut[v]:
                    grow_inner[r, i] = min(grow_inner[r, i], g.acc[v] + grow_inner[r, j])
    for r in range(layers):
        grow_inner[r, i] = min(grow_inner[r, i], open_left[r, i])


@njit
def _backward(start, g, lattice, cut, gaps, rest, sent, b, s, budget):  # type: ignore[no-untyped-def]
    """Bounds ``b`` on what is left, from ideal ``start`` downwards; where to go on after ``budget`` steps, or -1."""
    steps = 0
    layers, ideals = b.reached.shape
    for i in range(start, -1, -1):
        if steps > budget:
            return i
        if gaps.first[i] >= 0 and layers > 1:
            steps += _close(i, g, lattice, cut, gaps, b, s)
        if i == ideals - 1:
            b.closed[:, i] = 0
            b.left[:, i] = 0
        elif b.reached[layers - 1, i] + rest[i] < b.cap:
            steps += _leave(i, g, lattice, cut, b, s)
        _open(i, g, lattice, cut, sent, b)
    return -1
