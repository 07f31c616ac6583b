"""Exact search for the least inference latency: labels on the ideal lattice, one convex subgraph an accelerator.

The order in which hosts and accelerators begin their work in a plan is a chain of ideals: each step adds one node on the
host, or all nodes of one accelerator. A *label* of ideal I has the number of accelerators used, the time at which each
node of the frontier (members with a successor outside) is ready, and the latest end of a sink. From I a step adds a node v
on the host,

    ready(v) = host_v + max of release_v and ready(u) over predecessors u,                                         (1)

or, for any ideal J above I, the set S = J \\ I on one more accelerator, within its memory,

    ready(v) = load(S) + max of release_w over w in S and ready(u) over u in I with a successor in S, for v in S.  (2)

A label is dropped when another one of its ideal is no later anywhere and uses no more accelerators, and when it cannot end
before the incumbent: by tails (longest path over nodes outside I that follow a frontier node; a node and its successor may
share an accelerator and be ready together, so nothing inside I counts) and by the barrier bounds of
:mod:`hetopt.algorithms.latency_barrier`. Before that, ready(u) is raised to the earliest moment any successor of u can
start for the sake of everything in I that leads to it (:mod:`hetopt.algorithms.latency_lattice`). Raising is lossless, and
makes labels comparable: at an ideal whose last node is a cut, a label is one number, whatever older outputs are still to
be read. That is what transformers need, where the attention mask and the shared embedding are read to the end.

A set with a cut waits for all of I, and all that follows waits for it. So of the labels of I with the same number of
accelerators only the *lead*, ready first, goes on with such sets; they are searched once an ideal, for all leads together.
A *beam* keeps few labels an ideal: a plan soon, and no proof.

Integers of :mod:`hetopt.algorithms.latency_graph`: no drift, and the optimum is a bound on the true one. Source of the
problem: Tarnawski et al., NeurIPS 2020; the algorithm is our own. Exact; time and memory grow with the labels, which are
few on graphs that are nearly chains and without limit on others; ``number_limit`` keeps them below some 1.5 GB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.latency_barrier import Barriers
from hetopt.algorithms.latency_graph import NEVER, LatencyGraph
from hetopt.algorithms.latency_lattice import Lattice, tails

__all__ = ["LabelAnswer", "search_labels"]

Ints = NDArray[np.int64]

_BUDGET = 2_000_000  # steps of a kernel call, about 0.1 s
(
    _IDEAL, _USED, _PHASE, _COVER, _DEPTH, _SURE, _SEND, _SIZE, _SINKS, _HELD, _TURN, _LABELS, _NUMBERS, _CAP, _HERE,
    _BEST, _WORK, _BEAM, _LOST, _NEXT,
) = range(20)  # fmt: skip
_DONE, _PAUSED, _FULL = 0, 1, 2


_inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)


class LabelAnswer(NamedTuple):
    """``value`` in integers, below the cap, and ``place`` (n,) of each node: -1 the host, else an accelerator in order of
    start; both None when there is no plan below the cap, or none was found.

    ``finished``: everything else was ruled out. ``labels``: how many were kept.
    """

    value: int | None
    place: Ints | None
    finished: bool
    labels: int


class _Labels(NamedTuple):
    """Labels: ideal, parent, whether by an accelerator, whether still in use, the next of its list, place in ``number``."""

    ideal: NDArray[np.int32]
    parent: NDArray[np.int32]
    runs: NDArray[np.bool_]
    alive: NDArray[np.bool_]
    after: NDArray[np.int32]
    at: Ints
    number: Ints
    here: NDArray[np.int32]
    start: Ints


class _Known(NamedTuple):
    """What does not change in a search."""

    acc: Ints
    host: Ints
    release: Ints
    size: Ints
    room: Ints
    pred_ptr: Ints
    pred: Ints
    succ_ptr: Ints
    succ: Ints
    net_ptr: Ints
    net_source: Ints
    arrive: Ints
    send: Ints
    in_ptr: Ints
    in_net: Ints
    tail: Ints
    cut: NDArray[np.bool_]
    words: NDArray[np.uint64]
    ptr: Ints
    cover: NDArray[np.int32]
    node: NDArray[np.int32]
    front_ptr: Ints
    front: NDArray[np.int32]
    wait_ptr: Ints
    wait: NDArray[np.uint64]
    wait_from: Ints
    reached: Ints
    closed: Ints
    left: Ints
    open_left: Ints
    open_total: Ints
    grow: Ints
    grow_open: Ints
    grow_inner: Ints


class _Scratch(NamedTuple):
    state: Ints
    head: NDArray[np.int32]
    stamp: Ints
    stack: Ints
    lead: Ints
    pins: Ints
    sends: NDArray[np.bool_]
    where: NDArray[np.int8]
    place: Ints
    value: Ints
    made: Ints


def search_labels(
    graph: LatencyGraph,
    lattice: Lattice,
    known: Barriers,
    cut: NDArray[np.bool_],
    cap: int,
    *,
    beam: int = 0,
    number_limit: int = 1 << 26,
    should_stop: Callable[[], bool] = lambda: False,
) -> LabelAnswer:
    """Best plan that ends before ``cap``.

    Parameters
    ----------
    lattice
        All ideals of the graph.
    known
        Barrier bounds for a cap that is not below this one.
    cut
        (n,) nodes that precede or follow each other node.
    beam
        Most labels kept of an ideal and number of accelerators, the earliest ones; 0 keeps all. With a beam the answer is
        a plan, and ``finished`` only if none was dropped.
    number_limit
        Integers that labels may hold together (8 bytes each); the search ends unfinished beyond.
    should_stop
        Asked about every 0.1 s.
    """
    n, ideals = graph.n, len(lattice.words)
    if n == 0:
        empty = np.zeros(0, np.int64)
        end = int(graph.floor[0])
        return LabelAnswer(end, empty, True, 0) if end < cap else LabelAnswer(None, None, True, 0)
    same: list[Any] = [getattr(graph, name) for name in _Known._fields[:15]]
    fixed = _Known(*[*same, tails(graph), cut, *lattice, *known[1:]])
    width = int(np.diff(lattice.front_ptr).max()) + 1
    layers = graph.count + 1
    scratch = _Scratch(
        np.zeros(20, np.int64),
        np.full(ideals * layers, -1, np.int32),
        np.zeros(ideals, np.int64),
        np.zeros((n + 2, 4), np.int64),
        np.full((layers, 2), -1),
        np.zeros(len(graph.arrive), np.int64),
        np.zeros(len(graph.arrive), np.bool_),
        np.zeros(n, np.int8),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(width, np.int64),
    )
    labels = _empty(1 << 12, 1 << 14, 1 << 12)
    labels.ideal[0], labels.parent[0], labels.alive[0], labels.after[0] = 0, -1, True, -1
    labels.number[0] = graph.floor[0]
    scratch.head[0] = 0
    state = scratch.state
    state[[_LABELS, _NUMBERS, _CAP, _BEST, _BEAM]] = 1, 1, cap, -1, beam
    while True:
        ended = _search(fixed, labels, scratch, layers, _BUDGET)
        if ended == _DONE or should_stop():
            break
        if ended == _FULL:
            if len(labels.number) >= number_limit:
                break
            labels = _larger(labels, state, width, layers)
    best = int(state[_BEST])
    place = None if best < 0 else _places(lattice, labels, best, n)
    return LabelAnswer(
        int(state[_CAP]) if best >= 0 else None, place, ended == _DONE and not state[_LOST], int(state[_LABELS])
    )


def _empty(labels: int, numbers: int, starts: int) -> _Labels:
    def ints(k: int) -> Any:
        return np.empty(k, np.int32)

    flags = np.zeros(labels, np.bool_), np.zeros(labels, np.bool_)
    at, number, start = (np.zeros(k, np.int64) for k in (labels, numbers, starts))
    return _Labels(ints(labels), ints(labels), *flags, ints(labels), at, number, ints(labels), start)


def _larger(labels: _Labels, state: Ints, width: int, layers: int) -> _Labels:
    """Copy with room for at least one more step: a label and ``width`` numbers for each label at hand, and a deeper stack."""
    here = max(layers, int(state[_HERE]))
    need = (
        int(state[_LABELS]) + here,
        int(state[_NUMBERS]) + here * width,
        (int(state[_DEPTH]) + 3) * here,
    )
    room = [len(labels.ideal), len(labels.number), len(labels.start)]
    for k in range(3):
        if need[k] > room[k]:
            room[k] = max(need[k], 2 * room[k])
    more = _empty(*room)
    pairs: Any = zip(labels, more, strict=True)
    for old, new in pairs:
        new[: len(old)] = old
    return more


def _places(lattice: Lattice, labels: _Labels, best: int, n: int) -> Ints:
    """Walk a label back to the empty ideal; accelerators are numbered by start."""
    steps = []
    while labels.parent[best] >= 0:
        upper, lower = lattice.words[labels.ideal[best]], lattice.words[labels.ideal[labels.parent[best]]]
        bits = np.unpackbits((upper & ~lower).astype("<u8").view(np.uint8), bitorder="little")
        steps.append((bool(labels.runs[best]), np.flatnonzero(bits)))
        best = int(labels.parent[best])
    place, used = np.full(n, -1), 0
    for runs, nodes in reversed(steps):
        if runs:
            place[nodes] = used
            used += 1
    return place


@_inner
def _crowded(h, high, m, x, s):  # type: ignore[no-untyped-def]
    """Whether list ``h`` is full of labels no later than ``high``; if it is full of others, the latest is dropped."""
    count = 0
    worst = high
    drop = -1
    drop_before = -1
    before = -1
    p = s.head[h]
    while p >= 0:
        count += 1
        latest = 0
        for i in range(m):
            latest = max(latest, x.number[x.at[p] + 1 + i])
        if latest > worst:
            worst = latest
            drop = p
            drop_before = before
        before = p
        p = x.after[p]
    if count < s.state[_BEAM]:
        return False
    s.state[_LOST] += 1
    if drop < 0:
        return True
    x.alive[drop] = False
    if drop_before < 0:
        s.head[h] = x.after[drop]
    else:
        x.after[drop_before] = x.after[drop]
    return False


@_inner
def _keep(j, used, parent, runs, k, x, s, layers):  # type: ignore[no-untyped-def]
    """Raise, bound and compare the numbers in ``s.made``; store them as a label of ideal ``j`` if they are of use."""
    state = s.state
    made = s.made
    unused = layers - 1 - used
    first = k.front_ptr[j]
    m = k.front_ptr[j + 1] - first
    if m > 1:
        for i in range(m):
            s.value[i] = made[1 + i]
        for i in range(m):
            least = NEVER
            for q in range(k.wait_ptr[first + i], k.wait_ptr[first + i + 1]):
                start = max(k.wait_from[q], s.value[i])
                bits = k.wait[q]
                z = 0
                while bits:
                    if bits & np.uint64(1):
                        start = max(start, s.value[z])
                    bits >>= np.uint64(1)
                    z += 1
                least = min(least, start)
            made[1 + i] = least
    end = made[0]
    low = NEVER
    high = 0
    for i in range(m):
        u = k.front[first + i]
        low = min(low, made[1 + i])
        high = max(high, made[1 + i])
        for q in range(k.succ_ptr[u], k.succ_ptr[u + 1]):
            if not s.where[k.succ[q]]:
                end = max(end, made[1 + i] + k.tail[k.succ[q]])
    if m > 0:
        if low >= k.reached[layers - 1, j]:
            end = max(end, low + k.left[unused, j])
        end = max(end, high + k.open_left[unused, j], k.open_total[unused, j])
    elif j < len(k.ptr) - 2:
        end = max(end, k.open_total[unused, j])
    state[_WORK] += 4 * m + 4
    if end >= state[_CAP]:
        return
    for fewer in range(used + 1):
        p = s.head[j * layers + fewer]
        while p >= 0:
            state[_WORK] += 1
            base = x.at[p]
            better = True
            for i in range(m + 1):
                if x.number[base + i] > made[i]:
                    better = False
                    break
            if better:
                return
            p = x.after[p]
    for more in range(used, layers):
        h = j * layers + more
        p = s.head[h]
        before = -1
        while p >= 0:
            state[_WORK] += 1
            base = x.at[p]
            worse = True
            for i in range(m + 1):
                if x.number[base + i] < made[i]:
                    worse = False
                    break
            if worse:
                x.alive[p] = False
                if before < 0:
                    s.head[h] = x.after[p]
                else:
                    x.after[before] = x.after[p]
            else:
                before = p
            p = x.after[p]
    if state[_BEAM] > 0 and _crowded(j * layers + used, high, m, x, s):
        return
    c = state[_LABELS]
    base = state[_NUMBERS]
    for i in range(m + 1):
        x.number[base + i] = made[i]
    x.at[c] = base
    x.ideal[c] = j
    x.parent[c] = parent
    x.runs[c] = runs
    x.alive[c] = True
    x.after[c] = s.head[j * layers + used]
    s.head[j * layers + used] = c
    state[_LABELS] = c + 1
    state[_NUMBERS] = base + m + 1
    if j == len(k.ptr) - 2:
        state[_CAP] = made[0]
        state[_BEST] = c


@_inner
def _enter(k, x, s, layers):  # type: ignore[no-untyped-def]
    """Begin with the labels of the ideal and the number of accelerators at hand; how many there are."""
    state = s.state
    i = state[_IDEAL]
    found = 0
    s.lead[state[_USED], 0] = -1
    p = s.head[i * layers + state[_USED]]
    while p >= 0:
        x.here[found] = p
        found += 1
        p = x.after[p]
    state[_HERE] = found
    if found > 0:
        least = NEVER
        for t in range(found):
            latest = 0
            for q in range(k.front_ptr[i + 1] - k.front_ptr[i]):
                latest = max(latest, x.number[x.at[x.here[t]] + 1 + q])
            least = min(least, latest)
            if latest == least and least + k.closed[layers - 1 - state[_USED], i] < state[_CAP]:
                s.lead[state[_USED], 0] = x.here[t]
                s.lead[state[_USED], 1] = latest
        for v in range(len(s.where)):
            s.where[v] = (k.words[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1)
        for q in range(k.front_ptr[i], k.front_ptr[i + 1]):
            s.place[k.front[q]] = 1 + q - k.front_ptr[i]
        state[_WORK] += len(s.where) + found
    return found


@_inner
def _give_back(v, k, s):  # type: ignore[no-untyped-def]
    """Take node ``v`` out of the set at hand."""
    state = s.state
    state[_SURE] -= k.acc[v]
    state[_SIZE] -= k.size[v]
    state[_HELD] -= k.cut[v]
    state[_SINKS] -= k.succ_ptr[v] == k.succ_ptr[v + 1]
    s.where[v] = 0
    for q in range(k.in_ptr[v], k.in_ptr[v + 1]):
        h = k.in_net[q]
        if s.sends[h] and s.pins[h] == k.net_ptr[h + 1] - k.net_ptr[h]:
            state[_SEND] += k.send[h]
        s.pins[h] -= 1
        if k.net_source[h] == v:
            s.sends[h] = False
            state[_SEND] -= k.send[h]
        elif s.pins[h] == 0:
            state[_SURE] -= k.arrive[h]


@_inner
def _take(v, k, s):  # type: ignore[no-untyped-def]
    """Put node ``v`` into the set at hand: what arrived stays paid, what is sent may still be kept inside."""
    state = s.state
    state[_SURE] += k.acc[v]
    state[_SIZE] += k.size[v]
    state[_HELD] += k.cut[v]
    state[_SINKS] += k.succ_ptr[v] == k.succ_ptr[v + 1]
    s.where[v] = 2
    for q in range(k.in_ptr[v], k.in_ptr[v + 1]):
        h = k.in_net[q]
        if k.net_source[h] == v:
            s.sends[h] = True
            state[_SEND] += k.send[h]
        elif s.pins[h] == 0:
            state[_SURE] += k.arrive[h]
        s.pins[h] += 1
        if s.sends[h] and s.pins[h] == k.net_ptr[h + 1] - k.net_ptr[h]:
            state[_SEND] -= k.send[h]


@_inner
def _grow(inner, k, x, s, layers):  # type: ignore[no-untyped-def]
    """One step of the search over sets of an accelerator: take a cover, or give the last node back.

    ``inner``: sets without a cut, for each label at hand; otherwise sets with a cut, for the leads. Whether there is a new
    set at hand, for step (2) with the labels or the leads; if it and larger ones cannot end before the cap, there is none.
    """
    state = s.state
    depth = state[_DEPTH]
    current = s.stack[depth, 0]
    p = s.stack[depth, 1]
    state[_WORK] += 1
    if p == k.ptr[current + 1]:
        state[_DEPTH] = depth - 1
        if s.stack[depth, 2] >= 0:
            _give_back(s.stack[depth, 2], k, s)
        return False
    s.stack[depth, 1] = p + 1
    j = k.cover[p]
    v = k.node[p]
    if s.stamp[j] == state[_TURN] or k.acc[v] >= NEVER or state[_SIZE] + k.size[v] > k.room[0] or (inner and k.cut[v]):
        return False
    s.stamp[j] = state[_TURN]
    _take(v, k, s)
    depth += 1
    state[_DEPTH] = depth
    s.stack[depth, 0] = j
    s.stack[depth, 1] = k.ptr[j]
    s.stack[depth, 2] = v
    s.stack[depth, 3] = max(s.stack[depth - 1, 3], k.release[v])
    unused = layers - 2 - state[_USED]
    least = NEVER
    if inner:
        here = state[_HERE]
        for t in range(here):
            start = max(x.start[(depth - 1) * here + t], k.release[v])
            base = x.at[x.here[t]]
            for q in range(k.pred_ptr[v], k.pred_ptr[v + 1]):
                if s.where[k.pred[q]] == 1:
                    start = max(start, x.number[base + s.place[k.pred[q]]])
            x.start[depth * here + t] = start
            least = min(least, start + k.grow_inner[unused, j])
        state[_WORK] += 2 * here
    else:
        for used in range(layers - 1):
            if s.lead[used, 0] >= 0:
                start = max(s.lead[used, 1], s.stack[depth, 3])
                rest = k.grow[layers - 2 - used, j] if state[_HELD] > 0 else k.grow_open[layers - 2 - used, j]
                least = min(least, start + rest)
        state[_WORK] += layers
    if least + state[_SURE] >= state[_CAP]:
        s.stack[depth, 1] = k.ptr[j + 1]
        return False
    return inner or state[_HELD] > 0


@_inner
def _make(t, k, x, s):  # type: ignore[no-untyped-def]
    """The numbers after a step from the label or lead ``t`` at hand, into ``s.made``; whether they are below the cap.

    In phase 1 the step is (1) with the cover at hand; else it is (2) with the set at hand. A set with a cut waits for the
    whole ideal, and what comes after waits for it: the lead makes the best label, and that is one number.
    """
    state = s.state
    j = state[_NEXT]
    p = s.lead[t, 0] if state[_PHASE] == 3 else x.here[t]
    if p < 0:
        return False
    base = x.at[p]
    if state[_PHASE] == 1:
        v = k.node[state[_COVER]]
        ready = k.release[v]
        for q in range(k.pred_ptr[v], k.pred_ptr[v + 1]):
            ready = max(ready, x.number[base + s.place[k.pred[q]]])
        ready += k.host[v]
        ends = k.succ_ptr[v] == k.succ_ptr[v + 1]
    else:
        if state[_PHASE] == 2:
            ready = x.start[state[_DEPTH] * state[_HERE] + t]
        else:
            ready = max(s.lead[t, 1], s.stack[state[_DEPTH], 3])
        ready += state[_SURE] + state[_SEND]
        ends = state[_SINKS] > 0
    state[_WORK] += 2
    if ready >= state[_CAP]:
        return False
    s.made[0] = max(x.number[base], ready) if ends else x.number[base]
    first = k.front_ptr[j]
    for q in range(first, k.front_ptr[j + 1]):
        u = k.front[q]
        s.made[1 + q - first] = x.number[base + s.place[u]] if state[_PHASE] < 3 and s.where[u] == 1 else ready
    return True


@_inner
def _begin_sets(k, s):  # type: ignore[no-untyped-def]
    state = s.state
    state[_TURN] += 1
    state[_DEPTH] = 0
    s.stack[0, 0] = state[_IDEAL]
    s.stack[0, 1] = k.ptr[state[_IDEAL]]
    s.stack[0, 2] = -1
    s.stack[0, 3] = 0
    s.stamp[state[_IDEAL]] = state[_TURN]


@njit
def _search(k, x, s, layers, budget):  # type: ignore[no-untyped-def]
    """Work through the ideals in order for about ``budget`` steps; done, paused, or out of room for the next step.

    At each ideal, for each number of accelerators used: (0) its labels, (1) hosts, (2) sets without a cut; at the end
    (3) sets with a cut.
    """
    state = s.state
    ideals = len(k.ptr) - 1
    width = len(s.made)
    state[_WORK] = 0
    while state[_IDEAL] < ideals:
        if state[_WORK] > budget:
            return _PAUSED
        if state[_PHASE] == 0:
            state[_WORK] += 1
            if _enter(k, x, s, layers) > 0:
                state[_PHASE] = 1
                state[_DEPTH] = 0
                state[_COVER] = k.ptr[state[_IDEAL]]
                continue
            state[_USED] += 1
            if state[_USED] < layers:
                continue
            state[_PHASE] = 3
            _begin_sets(k, s)
        here = max(layers, state[_HERE])
        full = state[_LABELS] + here > len(x.ideal) or state[_NUMBERS] + here * width > len(x.number)
        if full or (state[_DEPTH] + 2) * here > len(x.start):
            return _FULL
        tried = 0
        if state[_PHASE] == 1:
            p = state[_COVER]
            if p == k.ptr[state[_IDEAL] + 1]:
                state[_PHASE] = 2
                state[_DEPTH] = -1
                if state[_USED] < layers - 1:
                    _begin_sets(k, s)
                    x.start[: state[_HERE]] = 0
                continue
            state[_NEXT] = k.cover[p]
            s.where[k.node[p]] = 2
            if k.host[k.node[p]] < NEVER:
                tried = state[_HERE]
        elif state[_DEPTH] >= 0:
            if not _grow(state[_PHASE] == 2, k, x, s, layers):
                continue
            state[_NEXT] = s.stack[state[_DEPTH], 0]
            tried = state[_HERE] if state[_PHASE] == 2 else layers - 1
        for t in range(tried):
            if _make(t, k, x, s):
                leads = state[_PHASE] == 3
                used = t + 1 if leads else state[_USED] + state[_PHASE] - 1
                parent = s.lead[t, 0] if leads else x.here[t]
                _keep(state[_NEXT], used, parent, state[_PHASE] > 1, k, x, s, layers)
        if state[_PHASE] == 1:
            s.where[k.node[state[_COVER]]] = 0
            state[_COVER] += 1
            continue
        if tried > 0:
            continue
        if state[_PHASE] == 2:
            state[_USED] += 1
            state[_PHASE] = 0 if state[_USED] < layers else 3
            if state[_PHASE] == 3:
                _begin_sets(k, s)
            continue
        state[_PHASE] = 0
        state[_USED] = 0
        state[_IDEAL] += 1
    return _DONE
