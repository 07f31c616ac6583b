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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms import latency_state as at
from hetopt.algorithms.jit import inner, njit
from hetopt.algorithms.latency_barrier import Barriers
from hetopt.algorithms.latency_dominance import keep
from hetopt.algorithms.latency_graph import NEVER, LatencyGraph
from hetopt.algorithms.latency_lattice import Lattice
from hetopt.algorithms.latency_sets import begin_sets, grow
from hetopt.algorithms.latency_state import first_label, known_of, larger, places, scratch_of

__all__ = ["LabelAnswer", "search_labels"]

Ints = NDArray[np.int64]

_BUDGET = 2_000_000  # steps of a kernel call, about 0.1 s

_DONE, _PAUSED, _FULL = 0, 1, 2


class LabelAnswer(NamedTuple):
    """``value`` in integers, below the cap, and ``place`` (n,) of each node: -1 the host, else an accelerator in order of
    start; both None when there is no plan below the cap, or none was found.

    ``finished``: everything else was ruled out. ``labels``: how many were kept.
    """

    value: int | None
    place: Ints | None
    finished: bool
    labels: int


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
    n = graph.n
    if n == 0:
        empty = np.zeros(0, np.int64)
        end = int(graph.floor[0])
        return LabelAnswer(end, empty, True, 0) if end < cap else LabelAnswer(None, None, True, 0)
    fixed, scratch = known_of(graph, lattice, cut, known), scratch_of(graph, lattice, cap, beam)
    labels, state = first_label(int(graph.floor[0])), scratch.state
    while True:
        ended = _search(fixed, labels, scratch, graph.count + 1, _BUDGET)
        if ended == _DONE or should_stop():
            break
        if ended == _FULL:
            if len(labels.number) >= number_limit:
                break
            labels = larger(labels, scratch)
    best = int(state[at.BEST])
    place = None if best < 0 else places(lattice, labels, best, n)
    return LabelAnswer(
        int(state[at.CAP]) if best >= 0 else None, place, ended == _DONE and not state[at.LOST], int(state[at.LABELS])
    )


@inner
def _enter(k, x, s, layers):  # type: ignore[no-untyped-def]
    """Begin with the labels of the ideal and the number of accelerators at hand; how many there are."""
    state = s.state
    i = state[at.IDEAL]
    found = 0
    s.lead[state[at.USED], 0] = -1
    p = s.head[i * layers + state[at.USED]]
    while p >= 0:
        x.here[found] = p
        found += 1
        p = x.after[p]
    state[at.HERE] = found
    if found > 0:
        least = NEVER
        for t in range(found):
            latest = 0
            for q in range(k.front_ptr[i + 1] - k.front_ptr[i]):
                latest = max(latest, x.number[x.at[x.here[t]] + 1 + q])
            least = min(least, latest)
            if latest == least and least + k.closed[layers - 1 - state[at.USED], i] < state[at.CAP]:
                s.lead[state[at.USED], 0] = x.here[t]
                s.lead[state[at.USED], 1] = latest
        for v in range(len(s.where)):
            s.where[v] = (k.words[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1)
        for q in range(k.front_ptr[i], k.front_ptr[i + 1]):
            s.place[k.front[q]] = 1 + q - k.front_ptr[i]
        state[at.WORK] += len(s.where) + found
    return found


@inner
def _make(t, k, x, s):  # type: ignore[no-untyped-def]
    """The numbers after a step from the label or lead ``t`` at hand, into ``s.made``; whether they are below the cap.

    In phase 1 the step is (1) with the cover at hand; else it is (2) with the set at hand. A set with a cut waits for the
    whole ideal, and what comes after waits for it: the lead makes the best label, and that is one number.
    """
    state = s.state
    j = state[at.NEXT]
    p = s.lead[t, 0] if state[at.PHASE] == 3 else x.here[t]
    if p < 0:
        return False
    base = x.at[p]
    if state[at.PHASE] == 1:
        v = k.node[state[at.COVER]]
        ready = k.release[v]
        for q in range(k.pred_ptr[v], k.pred_ptr[v + 1]):
            ready = max(ready, x.number[base + s.place[k.pred[q]]])
        ready += k.host[v]
        ends = k.succ_ptr[v] == k.succ_ptr[v + 1]
    else:
        if state[at.PHASE] == 2:
            ready = x.start[state[at.DEPTH] * state[at.HERE] + t]
        else:
            ready = max(s.lead[t, 1], s.stack[state[at.DEPTH], 3])
        ready += state[at.SURE] + state[at.SEND]
        ends = state[at.SINKS] > 0
    state[at.WORK] += 2
    if ready >= state[at.CAP]:
        return False
    s.made[0] = max(x.number[base], ready) if ends else x.number[base]
    first = k.front_ptr[j]
    for q in range(first, k.front_ptr[j + 1]):
        u = k.front[q]
        s.made[1 + q - first] = x.number[base + s.place[u]] if state[at.PHASE] < 3 and s.where[u] == 1 else ready
    return True


@njit
def _search(k, x, s, layers, budget):  # type: ignore[no-untyped-def]
    """Work through the ideals in order for about ``budget`` steps; done, paused, or out of room for the next step.

    At each ideal, for each number of accelerators used: (0) its labels, (1) hosts, (2) sets without a cut; at the end
    (3) sets with a cut.
    """
    state = s.state
    ideals = len(k.ptr) - 1
    width = len(s.made)
    state[at.WORK] = 0
    while state[at.IDEAL] < ideals:
        if state[at.WORK] > budget:
            return _PAUSED
        if state[at.PHASE] == 0:
            state[at.WORK] += 1
            if _enter(k, x, s, layers) > 0:
                state[at.PHASE] = 1
                state[at.DEPTH] = 0
                state[at.COVER] = k.ptr[state[at.IDEAL]]
                continue
            state[at.USED] += 1
            if state[at.USED] < layers:
                continue
            state[at.PHASE] = 3
            begin_sets(k, s)
        here = max(layers, state[at.HERE])
        full = state[at.LABELS] + here > len(x.ideal) or state[at.NUMBERS] + here * width > len(x.number)
        if full or (state[at.DEPTH] + 2) * here > len(x.start):
            return _FULL
        tried = 0
        if state[at.PHASE] == 1:
            p = state[at.COVER]
            if p == k.ptr[state[at.IDEAL] + 1]:
                state[at.PHASE] = 2
                state[at.DEPTH] = -1
                if state[at.USED] < layers - 1:
                    begin_sets(k, s)
                    x.start[: state[at.HERE]] = 0
                continue
            state[at.NEXT] = k.cover[p]
            s.where[k.node[p]] = 2
            if k.host[k.node[p]] < NEVER:
                tried = state[at.HERE]
        elif state[at.DEPTH] >= 0:
            if not grow(state[at.PHASE] == 2, k, x, s, layers):
                continue
            state[at.NEXT] = s.stack[state[at.DEPTH], 0]
            tried = state[at.HERE] if state[at.PHASE] == 2 else layers - 1
        for t in range(tried):
            if _make(t, k, x, s):
                leads = state[at.PHASE] == 3
                used = t + 1 if leads else state[at.USED] + state[at.PHASE] - 1
                parent = s.lead[t, 0] if leads else x.here[t]
                keep(state[at.NEXT], used, parent, state[at.PHASE] > 1, k, x, s, layers)
        if state[at.PHASE] == 1:
            s.where[k.node[state[at.COVER]]] = 0
            state[at.COVER] += 1
            continue
        if tried > 0:
            continue
        if state[at.PHASE] == 2:
            state[at.USED] += 1
            state[at.PHASE] = 0 if state[at.USED] < layers else 3
            if state[at.PHASE] == 3:
                begin_sets(k, s)
            continue
        state[at.PHASE] = 0
        state[at.USED] = 0
        state[at.IDEAL] += 1
    return _DONE
