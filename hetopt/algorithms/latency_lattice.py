"""Ideals of a latency graph, with what a node outside an ideal waits for; cut nodes and tails.

A node v outside an ideal I begins no earlier than each of its ancestors' readiness. Of those in I only the frontier counts
(members with a successor outside), and it counts in full, whichever nodes of the path from there to v are in v's subgraph:
that subgraph starts when all its inputs are there. So an output u of the frontier is of no use before

    min over successors v of u outside I of   max over frontier nodes w that lead to v of ready(w),

and, with F(v) for the frontier nodes that lead to v, only the smallest sets F(v) of u matter. They are kept as bit masks
over the frontier. Where u waits for later nodes anyway, as an output made early and read late does at each cut in between,
ready(u) stops to distinguish plans. What this module is not: it knows no times but releases.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.ideals import Ideals
from hetopt.algorithms.jit import njit
from hetopt.algorithms.latency_graph import LatencyGraph

__all__ = ["Lattice", "cuts", "lattice_of", "tails"]

Ints = NDArray[np.int64]


class Lattice(NamedTuple):
    """``N`` ideals of the nodes.

    Attributes
    ----------
    words
        (N, w) members, 64 to a word.
    ptr, cover, node
        CSR of covers: ideal and the node that it adds.
    front_ptr, front
        CSR of members with a successor outside, ascending.
    wait_ptr, wait, wait_from
        For each entry of ``front``, CSR of what its readers outside wait for: a bit for each entry of the same ideal's
        frontier (its first 64), and a release time.
    """

    words: NDArray[np.uint64]
    ptr: Ints
    cover: NDArray[np.int32]
    node: NDArray[np.int32]
    front_ptr: Ints
    front: NDArray[np.int32]
    wait_ptr: Ints
    wait: NDArray[np.uint64]
    wait_from: Ints


def lattice_of(graph: LatencyGraph, ideals: Ideals) -> Lattice:
    """The ideals with their frontiers; O(N n) word operations."""
    length = np.zeros(len(ideals.last) + 1, np.int64)
    _count_front(ideals.words, graph.succ_ptr, graph.succ, length)
    ptr = np.cumsum(length)
    front = np.empty(int(ptr[-1]), np.int32)
    _list_front(ideals.words, graph.succ_ptr, graph.succ, ptr, front)
    above = np.zeros((graph.n, ideals.words.shape[1]), np.uint64)
    release = graph.release.copy()
    _ancestors(graph.pred_ptr, graph.pred, above, release)
    most = int(np.diff(graph.succ_ptr).max(initial=1))
    held = np.zeros(most, np.uint64), np.zeros(most, np.int64)
    wait_ptr = np.zeros(len(front) + 1, np.int64)
    nothing = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    _waits(ideals.words, graph.succ_ptr, graph.succ, ptr, front, above, release, *held, wait_ptr, *nothing)
    np.cumsum(wait_ptr, out=wait_ptr)
    wait, wait_from = np.zeros(int(wait_ptr[-1]), np.uint64), np.zeros(int(wait_ptr[-1]), np.int64)
    _waits(ideals.words, graph.succ_ptr, graph.succ, ptr, front, above, release, *held, wait_ptr, wait, wait_from)
    covers = ideals.cover_ptr, ideals.cover, ideals.cover_class
    return Lattice(ideals.words, *covers, ptr, front, wait_ptr, wait, wait_from)


def cuts(graph: LatencyGraph) -> NDArray[np.bool_]:
    """(n,) whether a node precedes or follows each other node; O(n edges / 64)."""
    above = [0] * graph.n
    related = [1] * graph.n
    for v in range(graph.n):
        for u in graph.pred[graph.pred_ptr[v] : graph.pred_ptr[v + 1]].tolist():
            above[v] |= above[u] | 1 << u
        related[v] += above[v].bit_count()
    below = [0] * graph.n
    for v in range(graph.n - 1, -1, -1):
        for w in graph.succ[graph.succ_ptr[v] : graph.succ_ptr[v + 1]].tolist():
            below[v] |= below[w] | 1 << w
        related[v] += below[v].bit_count()
    return np.array([r == graph.n for r in related], np.bool_)


def tails(graph: LatencyGraph) -> Ints:
    """(n,) longest path that begins with a node, each node at the faster of its times: a bound on what follows."""
    quick = np.minimum(graph.acc, graph.host)
    tail = quick.copy()
    for v in range(graph.n - 1, -1, -1):
        after = graph.succ[graph.succ_ptr[v] : graph.succ_ptr[v + 1]]
        tail[v] += tail[after].max(initial=0)
    return tail


@njit
def _count_front(words, succ_ptr, succ, length):  # type: ignore[no-untyped-def]
    for i in range(words.shape[0]):
        for u in range(len(succ_ptr) - 1):
            if (words[i, u >> 6] >> np.uint64(u & 63)) & np.uint64(1):
                for q in range(succ_ptr[u], succ_ptr[u + 1]):
                    v = succ[q]
                    if (words[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) == 0:
                        length[i + 1] += 1
                        break


@njit
def _list_front(words, succ_ptr, succ, ptr, front):  # type: ignore[no-untyped-def]
    for i in range(words.shape[0]):
        p = ptr[i]
        for u in range(len(succ_ptr) - 1):
            if (words[i, u >> 6] >> np.uint64(u & 63)) & np.uint64(1):
                for q in range(succ_ptr[u], succ_ptr[u + 1]):
                    v = succ[q]
                    if (words[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) == 0:
                        front[p] = u
                        p += 1
                        break


@njit
def _ancestors(pred_ptr, pred, above, release):  # type: ignore[no-untyped-def]
    """Ancestors of each node, itself included; ``release`` rises to the latest among them."""
    for v in range(len(pred_ptr) - 1):
        above[v, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
        for q in range(pred_ptr[v], pred_ptr[v + 1]):
            u = pred[q]
            release[v] = max(release[v], release[u])
            for k in range(above.shape[1]):
                above[v, k] |= above[u, k]


@njit
def _waits(  # type: ignore[no-untyped-def]
    words, succ_ptr, succ, front_ptr, front, above, release, mask, since, wait_ptr, wait, wait_from
):
    """Smallest sets of frontier nodes that readers wait for: counted in ``wait_ptr``, or written where it says."""
    for i in range(words.shape[0]):
        first = front_ptr[i]
        width = min(64, front_ptr[i + 1] - first)
        for p in range(first, front_ptr[i + 1]):
            u = front[p]
            kept = 0
            for q in range(succ_ptr[u], succ_ptr[u + 1]):
                v = succ[q]
                if (words[i, v >> 6] >> np.uint64(v & 63)) & np.uint64(1):
                    continue
                bits = np.uint64(0)
                for z in range(width):
                    w = front[first + z]
                    if (above[v, w >> 6] >> np.uint64(w & 63)) & np.uint64(1):
                        bits |= np.uint64(1) << np.uint64(z)
                needless = False
                left = 0
                for k in range(kept):
                    if mask[k] & ~bits == 0 and since[k] <= release[v]:
                        needless = True
                    if bits & ~mask[k] == 0 and release[v] <= since[k] and not needless:
                        continue
                    mask[left] = mask[k]
                    since[left] = since[k]
                    left += 1
                kept = left
                if not needless:
                    mask[kept] = bits
                    since[kept] = release[v]
                    kept += 1
            if len(wait) == 0:
                wait_ptr[p + 1] = kept
            else:
                for k in range(kept):
                    wait[wait_ptr[p] + k] = mask[k]
                    wait_from[wait_ptr[p] + k] = since[k]
