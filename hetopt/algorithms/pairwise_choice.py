"""One choice a node with costs of nodes and of pairs: messages that bound from below, choices read from them, local search.

Costs are padded to (n, k) and (e, k, k) with ``inf`` (k the largest number of choices). A message (e, 2, k) moves cost between a
pair and its two nodes without changing any choice's total; the sum of all least entries is then a bound, which a sweep never
lowers. :func:`tree` attains the optimum on a forest in one pass. Sources: V. Kolmogorov, Convergent tree-reweighted message
passing for energy minimization, IEEE PAMI 28 (2006); A new look at reweighted message passing, IEEE PAMI 37 (2015), for sweeps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pairs", "descend"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Pairs:
    """Costs with messages.

    Parameters
    ----------
    node
        (n, k) costs, ``inf`` beyond a node's choices.
    ends
        (e, 2) nodes of each pair.
    pair
        (e, k, k) costs, ``inf`` beyond.
    """

    def __init__(self, node: Floats, ends: Ints, pair: Floats) -> None:
        self.node, self.ends, self.pair = node, ends, pair
        self.message = np.zeros((len(ends), 2, node.shape[1]))
        self.at: list[list[tuple[int, int]]] = [[] for _ in range(len(node))]
        for e, (a, b) in enumerate(ends.tolist()):
            self.at[a].append((e, 0))
            self.at[b].append((e, 1))

    def own(self, v: int) -> Floats:
        """(k,) cost of a node with its messages."""
        total: Floats = self.node[v].copy()
        for e, side in self.at[v]:
            total += self.message[e, side]
        return total

    def between(self, e: int, side: int) -> Floats:
        """(k, k) cost of a pair less its messages, ``side`` first."""
        left: Floats = self.pair[e] - self.message[e, 0][:, None] - self.message[e, 1][None, :]
        return left if side == 0 else left.T

    def sweep(self, order: Ints) -> Ints:
        """Collect at each node and hand on to later ones; (n,) choices read on the way."""
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        chosen = np.zeros(len(order), np.int64)
        for v in order.tolist():
            later = [(e, s) for e, s in self.at[v] if rank[self.ends[e, 1 - s]] > rank[v]]
            told = self.own(v)
            for e, s in self.at[v]:
                left = self.between(e, s)
                other = self.ends[e, 1 - s]
                told = told + (left.min(axis=1) if rank[other] > rank[v] else left[:, chosen[other]])
            chosen[v] = int(np.argmin(told))
            self._collect(v)
            if later:
                share = np.where(np.isfinite(self.node[v]), self.own(v), 0.0) / max(
                    len(later), len(self.at[v]) - len(later)
                )
                for e, s in later:
                    self.message[e, s] -= share
        return chosen

    def _collect(self, v: int, only: tuple[tuple[int, int], ...] | None = None) -> None:
        """All that pairs can give to a node goes there."""
        able = np.isfinite(self.node[v])
        for e, s in self.at[v] if only is None else only:
            least = self.between(e, s).min(axis=1)
            self.message[e, s] += np.where(able, np.where(np.isfinite(least), least, 0.0), 0.0)

    def tree(self) -> Ints:
        """(n,) choices of least total on a forest, whose bound the messages then attain; O(e k^2)."""
        order, up = self._rooted()
        for v in order[::-1]:
            if (link := up[v]) is not None:
                e, s = link
                self.message[e, s] -= np.where(np.isfinite(self.node[v]), self.own(v), 0.0)
                self._collect(int(self.ends[e, 1 - s]), ((e, 1 - s),))
        chosen = np.zeros(len(order), np.int64)
        for v in order:
            told = self.own(v)
            if (link := up[v]) is not None:
                e, s = link
                told = told + self.between(e, s)[:, chosen[self.ends[e, 1 - s]]]
            chosen[v] = int(np.argmin(told))
        return chosen

    def _rooted(self) -> tuple[list[int], list[tuple[int, int] | None]]:
        """Nodes with parents first, and the pair (with the node's side) that leads to each one's parent."""
        up: list[tuple[int, int] | None] = [None] * len(self.node)
        seen, order = [False] * len(self.node), []
        for root in range(len(self.node)):
            stack = [] if seen[root] else [root]
            while stack:
                v = stack.pop()
                seen[v] = True
                order.append(v)
                for e, s in self.at[v]:
                    w = int(self.ends[e, 1 - s])
                    if not seen[w]:
                        up[w] = (e, 1 - s)
                        stack.append(w)
        return order, up


def descend(pairs: Pairs, node: Floats, memory: Floats, capacity: float, chosen: Ints, rounds: int = 20) -> Ints | None:
    """(n,) choices within the capacity that no change of one node improves; None when none were found.

    ``node`` and ``memory`` (n, k) are the costs without messages or prices. What exceeds the capacity is mended first, at the
    least cost for what it saves.
    """
    chosen = chosen.copy()
    n = len(chosen)
    rows = np.arange(n)

    def costs(v: int) -> Floats:
        total: Floats = node[v].copy()
        for e, s in pairs.at[v]:
            there = chosen[pairs.ends[e, 1 - s]]
            total += pairs.pair[e][:, there] if s == 0 else pairs.pair[e][there]
        return total

    used = float(memory[rows, chosen].sum())
    for _ in range(2 * n):
        if used <= capacity:
            break
        best, move = np.inf, (-1, -1)
        for v in range(n):
            now, saved = costs(v), memory[v, chosen[v]] - memory[v]
            worth = np.full(len(now), np.inf)
            helps = (saved > 0) & np.isfinite(now)
            worth[helps] = np.maximum(now[helps] - now[chosen[v]], 0.0) / np.minimum(saved[helps], used - capacity)
            m = int(worth.argmin())
            if worth[m] < best:
                best, move = float(worth[m]), (v, m)
        if move[0] < 0:
            return None
        chosen[move[0]] = move[1]
        used = float(memory[rows, chosen].sum())
    if used > capacity:
        return None
    for _ in range(rounds):
        changed = False
        for v in range(n):
            now = np.where(used - memory[v, chosen[v]] + memory[v] <= capacity, costs(v), np.inf)
            m = int(now.argmin())
            if now[m] < now[chosen[v]]:
                used += memory[v, m] - memory[v, chosen[v]]
                chosen[v], changed = m, True
        if not changed:
            break
    return chosen
