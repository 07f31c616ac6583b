"""What a label search holds: the graph with its bounds, the labels found so far, and where the search is.

Kernels share one array of numbers, ``Scratch.state``, so that a search can pause between calls; the names of its places are
here. Part of :mod:`hetopt.algorithms.latency_labels`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.latency_barrier import Barriers
from hetopt.algorithms.latency_graph import LatencyGraph
from hetopt.algorithms.latency_lattice import Lattice, tails

__all__ = ["Known", "Labels", "Scratch", "first_label", "known_of", "larger", "places", "scratch_of"]

Ints = NDArray[np.int64]

# Places of ``Scratch.state``.
IDEAL, USED, PHASE = 0, 1, 2  # the ideal at hand, how many accelerators its labels have used, what is tried
HERE, COVER, NEXT = 3, 4, 5  # labels at hand; cover that a host would take; ideal that the step leads to
DEPTH, TURN = 6, 7  # top of the stack of sets, and the search's number, by which ideals are stamped
SURE, SEND, SIZE, HELD, SINKS = 8, 9, 10, 11, 12  # of the set at hand: paid for good, sent as yet, bytes, cuts, sinks
LABELS, NUMBERS = 13, 14  # how many labels and numbers there are
CAP, BEST = 15, 16  # value of the best plan, and its label (-1: the plan is the caller's)
BEAM, LOST = 17, 18  # most labels of a list (0: all), and how many were dropped for that
WORK = 19  # steps since the call began


class Labels(NamedTuple):
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


class Known(NamedTuple):
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


class Scratch(NamedTuple):
    """What changes: ``state`` by the names above; ``head`` of the list of each ideal and number of accelerators; the rest is

    for the ideal at hand: stack of the set, its nets, where each node is (1 in the ideal, 2 in the step) and its number's place.
    """

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


def known_of(graph: LatencyGraph, lattice: Lattice, cut: NDArray[np.bool_], bounds: Barriers) -> Known:
    """The graph's own arrays, tails, cuts, the lattice and its bounds; ``left`` only where nothing outside can begin before.

    ``left`` counts from a moment at which nothing outside the ideal has begun. A label stands for more: a source outside may
    begin while the ideal is at work. Once the ideal holds all sources, everything outside waits for its frontier.
    """
    own: list[Any] = [getattr(graph, name) for name in Known._fields[:15]]
    sources = np.zeros(lattice.words.shape[1], np.uint64)
    for v in np.flatnonzero(np.diff(graph.pred_ptr) == 0).tolist():
        sources[v >> 6] |= np.uint64(1) << np.uint64(v & 63)
    rooted = ((lattice.words & sources) == sources).all(axis=1)
    bounds = bounds._replace(left=np.where(rooted, bounds.left, 0))
    return Known(*[*own, tails(graph), cut, *lattice, *bounds[1:]])


def scratch_of(graph: LatencyGraph, lattice: Lattice, cap: int, beam: int) -> Scratch:
    """The place to begin: nothing searched, and one label to come (:func:`first_label`)."""
    n, nets, ideals, layers = graph.n, len(graph.arrive), len(lattice.words), graph.count + 1
    width = int(np.diff(lattice.front_ptr).max()) + 1
    scratch = Scratch(
        np.zeros(20, np.int64),
        np.full(ideals * layers, -1, np.int32),
        np.zeros(ideals, np.int64),
        np.zeros((n + 2, 4), np.int64),
        np.full((layers, 2), -1),
        np.zeros(nets, np.int64),
        np.zeros(nets, np.bool_),
        np.zeros(n, np.int8),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(width, np.int64),
    )
    scratch.head[0] = 0
    scratch.state[[LABELS, NUMBERS, CAP, BEST, BEAM]] = 1, 1, cap, -1, beam
    return scratch


def first_label(end: int) -> Labels:
    """Room for labels, and the one of the empty ideal; no plan ends before ``end``."""
    labels = _empty(1 << 12, 1 << 14, 1 << 12)
    labels.ideal[0], labels.parent[0], labels.alive[0], labels.after[0] = 0, -1, True, -1
    labels.number[0] = end
    return labels


def _empty(labels: int, numbers: int, starts: int) -> Labels:
    def ints(k: int) -> Any:
        return np.empty(k, np.int32)

    flags = np.zeros(labels, np.bool_), np.zeros(labels, np.bool_)
    at, number, start = (np.zeros(k, np.int64) for k in (labels, numbers, starts))
    return Labels(ints(labels), ints(labels), *flags, ints(labels), at, number, ints(labels), start)


def larger(labels: Labels, scratch: Scratch) -> Labels:
    """Copy with room for at least one more step: a label and ``width`` numbers for each label at hand, and a deeper stack."""
    state, width = scratch.state, len(scratch.made)
    here = max(len(scratch.lead), int(state[HERE]))
    need = (
        int(state[LABELS]) + here,
        int(state[NUMBERS]) + here * width,
        (int(state[DEPTH]) + 3) * here,
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


def places(lattice: Lattice, labels: Labels, best: int, n: int) -> Ints:
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
