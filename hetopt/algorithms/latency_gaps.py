"""Gaps between cuts: what tells the ideals of a gap apart for an accelerator that goes on to the next cut.

Ideals with the same cuts are a *gap*. They are numbered one after the other, and the last of them holds the others. An
accelerator with a cut that goes from ideal I to an ideal J of a later gap holds the gap's nodes outside I. So its load is that
of one that goes from the gap's last ideal to J, and a number that depends on I alone, ``more``: a lower bound, and exact
unless outputs pass over a cut. The same holds of its bytes. So it is enough to list J once a gap. Part of
:mod:`hetopt.algorithms.latency_barrier`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import inner, njit
from hetopt.algorithms.latency_graph import NEVER, LatencyGraph
from hetopt.algorithms.latency_lattice import Lattice

__all__ = ["Gaps", "earliest", "gaps_of", "pins_of", "within"]

Ints = NDArray[np.int64]


class Gaps(NamedTuple):
    """Ideals by gap.

    Attributes
    ----------
    first
        (N,) at the last ideal of a gap that a cut follows, the first one; -1 elsewhere.
    more, bytes
        (N,) what an accelerator that goes on to the next cut pays and needs beyond one that starts at the gap's last ideal.
    order
        (N,) ideals of each gap by ``bytes``, in the gap's own places.
    """

    first: Ints
    more: Ints
    bytes: Ints
    order: Ints


def gaps_of(graph: LatencyGraph, lattice: Lattice, cut: NDArray[np.bool_]) -> Gaps:
    """Gaps of the ideals, what their accelerators pay and hold; O(N (n + pins))."""
    size = len(lattice.words)
    gap, first = np.zeros(size, np.int64), np.full(size, -1)
    more, held = np.zeros(size, np.int64), np.zeros(size, np.int64)
    pins, pin_ptr = pins_of(graph)
    last = np.maximum.reduceat(pins, pin_ptr[:-1]) if len(pins) else pins
    costs = graph.acc, graph.size, graph.in_ptr, graph.in_net, graph.net_source, graph.arrive
    _starts(lattice.words, cut, *costs, last, np.full(len(graph.arrive), -1), gap, more, held)
    ends = np.flatnonzero(np.diff(gap))
    first[ends] = np.concatenate([[0], ends + 1])[: len(ends)]
    return Gaps(first, more, held, np.lexsort((held, gap)))


def pins_of(graph: LatencyGraph) -> tuple[Ints, Ints]:
    """CSR of the pins of each net, as nodes and where each net's begin."""
    nodes = np.repeat(np.arange(graph.n), np.diff(graph.in_ptr))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(graph.in_net, minlength=len(graph.arrive)))])
    return nodes[np.argsort(graph.in_net, kind="stable")], ptr.astype(np.int64)


@njit
def _starts(  # type: ignore[no-untyped-def]
    words, cut, acc, size, in_ptr, in_net, net_source, arrive, last, paid, gap, more, held
):
    """Gap of each ideal, and what an accelerator pays and holds for the gap's nodes outside the ideal.

    The nodes A between two cuts that are outside: their time; what they read that nothing after the next cut reads; less
    what an accelerator would read of them that starts when they are ready. A lower bound, exact unless outputs pass a cut.
    """
    n = len(cut)
    for i in range(len(gap)):
        low = 0
        high = n
        for v in range(n):
            if cut[v]:
                if (words[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) == 0:
                    high = v
                    break
                low = v + 1
                gap[i] += 1
        able = True
        for v in range(low, high):
            if (words[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1):
                continue
            able = able and acc[v] < NEVER
            more[i] += acc[v]
            held[i] += size[v]
            for q in range(in_ptr[v], in_ptr[v + 1]):
                h = in_net[q]
                u = net_source[h]
                if u == v:
                    if last[h] >= high:
                        more[i] -= arrive[h]
                elif (
                    last[h] < high
                    and paid[h] != i
                    and (u < 0 or (words[i, u >> 6] >> np.uint64(u & 63)) & np.uint64(1))
                ):
                    paid[h] = i
                    more[i] += arrive[h]
        if not able:
            more[i] = NEVER


@inner
def within(i, room, gaps):  # type: ignore[no-untyped-def]
    """How many of the ideals of the gap that ends at ``i``, in ``gaps.order``, need at most ``room`` bytes."""
    low = gaps.first[i]
    high = i + 1
    while low < high:
        middle = (low + high) // 2
        if gaps.bytes[gaps.order[middle]] <= room:
            low = middle + 1
        else:
            high = middle
    return low - gaps.first[i]


@inner
def earliest(i, row, gaps):  # type: ignore[no-untyped-def]
    """Earliest time in ``row`` plus what it pays more, over the ideals of the gap that ends at ``i``."""
    least = NEVER
    for k in range(gaps.first[i], i + 1):
        least = min(least, row[k] + gaps.more[k])
    return least
