"""Cheapest blocks: K layers served at a rate by nodes side by side and one after another.

A *block* begins and ends with a full hand-over: at its first and last boundary no node's interval is cut. Inside, it is
built as a guillotine cutting: a block of K layers at rate r is one node, or two blocks one after another at the same rate,
or two blocks side by side whose rates add up to r. Given a price for every node, the kernel finds the cheapest block for
every K, every rate on a grid, and every *kind* of first and last boundary; a kind says what a boundary can be joined to
(:class:`Kinds`). Programs over blocks are in :mod:`hetopt.algorithms.serving_chain`. Blocks that are no guillotine cuttings
are not found, so nothing here proves a bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit

__all__ = ["Block", "BlockTable", "Kinds", "Piece", "leaf_kinds", "plain_kinds"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_NEVER = 1e18


class Kinds(NamedTuple):
    """What boundaries are told apart. ``q`` kinds, the first the easiest to join.

    Attributes
    ----------
    join
        (q, q) may a boundary that ends with the one kind be followed by one that begins with the other?
    merge
        (q, q) kind of two boundaries side by side, the first belonging to the smaller rate.
    """

    join: Bools
    merge: Ints

    @property
    def number(self) -> int:
        """How many kinds there are."""
        return len(self.join)


def plain_kinds() -> Kinds:
    """All nodes are linked with each other: one kind."""
    return Kinds(np.ones((1, 1), dtype=bool), np.zeros((1, 1), dtype=np.int64))


def leaf_kinds() -> Kinds:
    """Hubs are linked with every node, leaves only with hubs. Kinds: hubs only; at most half the flow at leaves; any."""
    join = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=bool)
    return Kinds(join, np.array([[0, 1, 2], [1, 1, 2], [1, 2, 2]], dtype=np.int64))


class Piece(NamedTuple):
    """One node of a block: its item, the first layer counted from the block's, the layers kept and the rate planned."""

    item: int
    start: int
    keep: int
    rate: int


class Block(NamedTuple):
    """A block of ``layers`` layers that begins and ends with these kinds of boundaries."""

    layers: int
    first: int
    last: int
    pieces: tuple[Piece, ...]


@njit
def _one_length(K, cost, back, item_keep, item_rate, item_price, item_kind, join, merge):  # type: ignore[no-untyped-def]
    """Fill ``cost[:, :, K]`` from shorter blocks. ``back`` holds (0, item), (1, length, end, begin) or (2, rate, kinds)."""
    q = join.shape[0]
    top = cost.shape[3] - 1
    for j in range(len(item_keep)):
        if item_keep[j] != K:
            continue
        a = item_kind[j]
        for r in range(1, item_rate[j] + 1):
            if item_price[j] < cost[a, a, K, r]:
                cost[a, a, K, r] = item_price[j]
                back[a, a, K, r, 0] = 0
                back[a, a, K, r, 1] = j
    for shorter in range(1, K):
        for a in range(q):
            for x in range(q):
                for y in range(q):
                    if not join[x, y]:
                        continue
                    for b in range(q):
                        for r in range(1, top + 1):
                            value = cost[a, x, shorter, r] + cost[y, b, K - shorter, r]
                            if value < cost[a, b, K, r] - 1e-12:
                                cost[a, b, K, r] = value
                                back[a, b, K, r, 0] = 1
                                back[a, b, K, r, 1] = shorter
                                back[a, b, K, r, 2] = x
                                back[a, b, K, r, 3] = y
    for r in range(2, top + 1):
        for less in range(1, r // 2 + 1):
            for a in range(q):
                for b in range(q):
                    value = cost[a, b, K, less]
                    if value >= _NEVER:
                        continue
                    for x in range(q):
                        for y in range(q):
                            total = value + cost[x, y, K, r - less]
                            s = merge[a, x]
                            e = merge[b, y]
                            if total < cost[s, e, K, r] - 1e-12:
                                cost[s, e, K, r] = total
                                back[s, e, K, r, 0] = 2
                                back[s, e, K, r, 1] = less
                                back[s, e, K, r, 2] = a * q + b
                                back[s, e, K, r, 3] = x * q + y


class BlockTable:
    """Cheapest blocks of one cluster for given prices.

    Parameters
    ----------
    keep, rate
        (m,) layers an item keeps and its rate on the grid, from 1 to ``top``.
    price
        (m,) price of the node behind the item.
    kind
        (m,) kind of both boundaries of a single item.
    longest, top
        Largest number of layers of a block, and the rate of a whole layer on the grid.

    Notes
    -----
    O(longest * top * (longest + top) * kinds^4) time, one kernel call a length.
    """

    def __init__(
        self, keep: Ints, rate: Ints, price: NDArray[np.float64], kind: Ints, kinds: Kinds, longest: int, top: int
    ) -> None:
        q = kinds.number
        self._q, self._top, self._keep = q, top, keep
        self.cost = np.full((q, q, longest + 1, top + 1), _NEVER)
        self._back = np.zeros((q, q, longest + 1, top + 1, 4), dtype=np.int32)
        for length in range(1, longest + 1):
            _one_length(length, self.cost, self._back, keep, rate, price, kind, kinds.join, kinds.merge)

    def blocks(self) -> list[tuple[float, Block]]:
        """(price, block) of the full rate, the cheapest for each length and pair of kinds."""
        found = []
        for first in range(self._q):
            for last in range(self._q):
                for length in range(1, self.cost.shape[2]):
                    price = float(self.cost[first, last, length, self._top])
                    if price < _NEVER:
                        pieces = tuple(self._pieces(first, last, length))
                        found.append((price, Block(length, first, last, pieces)))
        return found

    def _pieces(self, first: int, last: int, length: int) -> list[Piece]:
        """Nodes of the cheapest block, in the order of the cutting."""
        pieces = []
        pending = [(first, last, length, self._top, 0)]
        while pending:
            a, b, k, r, start = pending.pop()
            way, x, y, z = (int(v) for v in self._back[a, b, k, r])
            if way == 0:
                pieces.append(Piece(x, start, k, r))
            elif way == 1:
                pending.append((z, b, k - x, r, start + x))
                pending.append((a, y, x, r, start))
            else:
                pending.append((z // self._q, z % self._q, k, r - x, start))
                pending.append((y // self._q, y % self._q, k, x, start))
        return pieces
