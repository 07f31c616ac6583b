"""Order ideals (down-closed sets) of a precedence graph, all of them, with their covers.

A pipeline plan whose stages follow each other is a chain of ideals: the classes of the first i stages contain every
predecessor of their members. What this module is for: listing the ideals of graphs that have up to some millions of them.
What it is not: it knows no times, devices or nets, and it does not help graphs with many incomparable classes: n isolated
classes have 2^n ideals. The limit is checked before memory is taken.

Ideals are packed 64 classes to a word. They are numbered in the order of their making: the empty set is 0, the full set is
last, and an ideal has a larger number than each of its subsets that is an ideal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit

__all__ = ["Ideals", "TooManyIdeals", "enumerate_ideals"]

_COVERS_PER_IDEAL = 16


class TooManyIdeals(ValueError):
    """The graph has more ideals (or covers) than the caller allows; nothing was kept."""


class Ideals(NamedTuple):
    """All ``N`` ideals of a graph with ``n`` classes.

    Attributes
    ----------
    words
        (N, ceil(n / 64)) members: class v is bit ``v % 64`` of word ``v // 64``.
    parent, last
        (N,) an ideal is its parent plus its largest class ``last``; -1 for the empty set.
    cover_ptr, cover, cover_class
        CSR of covers: ``cover[p]`` is the ideal plus ``cover_class[p]``; classes descend within an ideal.
    """

    words: NDArray[np.uint64]
    parent: NDArray[np.int32]
    last: NDArray[np.int32]
    cover_ptr: NDArray[np.int64]
    cover: NDArray[np.int32]
    cover_class: NDArray[np.int32]

    def members(self, ideal: int) -> NDArray[np.int64]:
        """Classes of an ideal, ascending."""
        bits = np.unpackbits(self.words[ideal].astype("<u8").view(np.uint8), bitorder="little")
        return np.flatnonzero(bits)

    def total(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of ``weight`` (n, k) over each ideal's members, (N, k); O(N k)."""
        sums = np.zeros((len(self.last), weight.shape[1]))
        _totals(self.parent, self.last, np.ascontiguousarray(weight, np.float64), sums)
        return sums


def enumerate_ideals(
    pred_ptr: NDArray[np.int64],
    pred: NDArray[np.int64],
    limit: int = 1_000_000,
    should_stop: Callable[[], bool] = lambda: False,
) -> Ideals | None:
    """List all ideals of a graph given by the predecessors of each class, which must be smaller than the class.

    Class by class, every ideal so far that holds the predecessors is copied with the class added; covers are inherited
    along the way, so that nothing is looked up. O(N n) word operations and O(covers) for N ideals; memory is
    ``8 ceil(n / 64) + 20`` bytes an ideal and 24 bytes a cover at most, before doubling. None if ``should_stop`` (asked once
    a class) says so.

    Raises
    ------
    TooManyIdeals
        If there are more than ``limit`` ideals or 16 times as many covers; the counts are known before the arrays grow.
    ValueError
        If a predecessor is not smaller than its class.
    """
    n = len(pred_ptr) - 1
    if (pred >= np.repeat(np.arange(n), np.diff(pred_ptr))).any() or (pred.size and pred.min() < 0):
        raise ValueError("a predecessor is not a smaller class; expected classes in topological order")
    if limit < n + 1:
        raise TooManyIdeals(f"{n} classes have at least {n + 1} ideals; the limit is {limit}")
    capacity, edges = 1024, 4096
    words = np.zeros((capacity, max(1, -(-n // 64))), np.uint64)
    parent, last = np.full(capacity, -1, np.int32), np.full(capacity, -1, np.int32)
    degree, head = np.zeros(capacity, np.int32), np.full(capacity, -1, np.int64)
    link, cover, added = np.empty(edges, np.int64), np.empty(edges, np.int32), np.empty(edges, np.int32)
    child = np.empty(capacity, np.int32)
    count, covers = 1, 0
    for v in range(n):
        if should_stop():
            return None
        before = np.asarray(pred[pred_ptr[v] : pred_ptr[v + 1]], np.int64)
        more, more_covers = _find(words, count, before, child, degree)
        if count + more > limit or covers + more_covers > _COVERS_PER_IDEAL * limit:
            raise TooManyIdeals(
                f"the first {v + 1} of {n} classes have {count + more} ideals with {covers + more_covers} covers; "
                f"the limit is {limit} ideals and {_COVERS_PER_IDEAL * limit} covers"
            )
        if count + more > capacity:
            capacity = min(limit, max(count + more, 2 * capacity))
            words, child = _grown(words, capacity), _grown(child, capacity)
            parent, last = _grown(parent, capacity), _grown(last, capacity)
            degree, head = _grown(degree, capacity), _grown(head, capacity)
        if covers + more_covers > edges:
            edges = max(covers + more_covers, 2 * edges)
            link, cover, added = _grown(link, edges), _grown(cover, edges), _grown(added, edges)
        _extend(words, count, v, parent, last, child, degree, head, link, cover, added, covers)
        count, covers = count + more, covers + more_covers
    ptr = np.zeros(count + 1, np.int64)
    np.cumsum(degree[:count], out=ptr[1:])
    to, by = np.empty(covers, np.int32), np.empty(covers, np.int32)
    _flatten(count, head, link, cover, added, ptr, to, by)
    return Ideals(words[:count], parent[:count], last[:count], ptr, to, by)


def _grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    larger = np.empty((length, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


@njit
def _find(words, count, before, child, degree):  # type: ignore[no-untyped-def]
    """Rank the ideals that hold all classes in ``before``: their number, and that of the covers they will bring."""
    found = 0
    covers = 0
    for i in range(count):
        holds = True
        for u in before:
            if (words[i, u >> 6] >> np.uint64(u & 63)) & np.uint64(1) == 0:
                holds = False
                break
        child[i] = -1
        if holds:
            child[i] = count + found
            found += 1
            covers += degree[i] + 1
    return found, covers


@njit
def _extend(words, count, v, parent, last, child, degree, head, link, cover, added, covers):  # type: ignore[no-untyped-def]
    """Append the children that :func:`_find` ranked, with the covers between them and from their parents."""
    width = words.shape[1]
    for i in range(count):
        c = child[i]
        if c < 0:
            continue
        for w in range(width):
            words[c, w] = words[i, w]
        words[c, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
        parent[c] = i
        last[c] = v
        degree[c] = degree[i]
        head[c] = -1
        # a cover q of i lies above i, so q holds what v needs too, and the child of q covers the child of i
        e = head[i]
        tail = -1
        while e >= 0:
            cover[covers] = child[cover[e]]
            added[covers] = added[e]
            link[covers] = -1
            if tail < 0:
                head[c] = covers
            else:
                link[tail] = covers
            tail = covers
            covers += 1
            e = link[e]
        cover[covers] = c
        added[covers] = v
        link[covers] = head[i]
        head[i] = covers
        degree[i] += 1
        covers += 1


@njit
def _flatten(count, head, link, cover, added, ptr, to, by):  # type: ignore[no-untyped-def]
    for i in range(count):
        p = ptr[i]
        e = head[i]
        while e >= 0:
            to[p] = cover[e]
            by[p] = added[e]
            p += 1
            e = link[e]


@njit
def _totals(parent, last, weight, sums):  # type: ignore[no-untyped-def]
    for i in range(1, len(last)):
        for k in range(weight.shape[1]):
            sums[i, k] = sums[parent[i], k] + weight[last[i], k]
