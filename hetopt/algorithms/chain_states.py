"""Which devices of a chain have been used: the states and arcs that the dynamic programs over a sequence of layers walk.

A plan cuts the sequence into stages and gives each to a device. A program walks through states "these devices are used, this
one last"; an arc adds a stage on one more device. For a fixed order of devices a state is a device; for a free order it is how
many devices of each type are used (a number in mixed radix), with the type used last where links differ. States are in
topological order, so that one pass over them is a whole program. For arrays only; what a stage may hold is not known here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["States", "arc_count", "fixed_states", "free_states"]

Ints = NDArray[np.int64]


class States(NamedTuple):
    """``s`` states in topological order, state 0 being the start with no stage, and ``a`` arcs sorted by their head.

    Attributes
    ----------
    first
        (s + 1,) the arcs into state k are ``first[k]:first[k + 1]``.
    tail, window, link
        (a,) state an arc leaves; row of the stage windows it uses; class of the link from the last stage to the new one.
    skip
        (s,) state whose plans also belong to this state, a device staying empty; -1 for none.
    final
        (s,) whether a plan may end here.
    """

    first: Ints
    tail: Ints
    window: Ints
    link: Ints
    skip: Ints
    final: NDArray[np.bool_]


def fixed_states(kind: ArrayLike, link: ArrayLike, *, empty: bool) -> States:
    """States for devices in a fixed order: state k + 1 stands for device k.

    Parameters
    ----------
    kind
        (d,) row of the stage windows of each device, in order.
    link
        (d, d) class of the link from one device to another.
    empty
        Whether devices may stay empty.

    With one class of links everywhere a state need not know which device was used last: d arcs; else d (d + 1) / 2.
    """
    kind, link = np.asarray(kind, np.int64), np.asarray(link, np.int64)
    d = len(kind)
    ahead = link[np.triu_indices(d, 1)]
    uniform = not len(ahead) or bool((ahead == ahead[0]).all())
    final = np.zeros(d + 1, bool)
    final[1 if empty and not uniform else d :] = True
    if uniform or not empty:
        skip = np.full(d + 1, -1, np.int64)
        if empty:
            skip[1:] = np.arange(d)
        between = np.concatenate([np.zeros(1, np.int64), link[np.arange(d - 1), np.arange(1, d)]])
        first = np.concatenate([np.zeros(1, np.int64), np.arange(d + 1)])
        return States(first, np.arange(d), kind, between, skip, final)
    head, tail = np.tril_indices(d)
    before = np.maximum(tail - 1, 0)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.arange(d + 1))])
    return States(first, tail, kind[head], link[before, head], np.full(d + 1, -1, np.int64), final)


def free_states(count: ArrayLike, link: ArrayLike, *, empty: bool, copies: int = 1) -> States:
    """States for devices in any order, those of a type being alike.

    Parameters
    ----------
    count
        (t,) devices of each type.
    link
        (t, t) class of the link from a device of one type to another device of another or the same type.
    empty
        Whether devices may stay empty.
    copies
        Largest number of devices that hold one stage together; a stage of type k on r devices uses row ``k * copies + r - 1`` of
        the stage windows.
    """
    count, link = np.asarray(count, np.int64), np.asarray(link, np.int64)
    t = len(count)
    weight = np.concatenate([np.ones(1, np.int64), np.cumprod(count + 1)])
    codes, weight = int(weight[-1]), weight[:-1]
    used = np.arange(codes)[:, None] // weight % (count + 1)
    met = link[(count[:, None] + count[None, :] - 2 * np.eye(t, dtype=np.int64) * (count < 2)) > 0]
    uniform = not len(met) or bool((met == met[0]).all())
    last = 1 if uniform else t  # a state is code (uniform), or 1 + code * t + type used last
    arcs: list[Ints] = []

    def add(head: Ints, tail: Ints, window: int, between: int) -> None:
        arcs.append(np.stack([head, tail, np.full(len(head), window), np.full(len(head), between)]))

    for k in range(t):
        for r in range(1, min(copies, int(count[k])) + 1):
            code = np.flatnonzero(used[:, k] >= r)
            rest = code - r * weight[k]
            for u in range(last):
                to, back = (code, rest) if uniform else (1 + code * t + k, 1 + rest * t + u)
                fits = np.ones(len(code), bool) if uniform else used[rest, u] > 0
                over = met[0] if uniform and len(met) else link[u, k]
                add(to[fits], back[fits], k * copies + r - 1, int(over))
            if not uniform:
                start = code[rest == 0]
                add(1 + start * t + k, np.zeros(len(start), np.int64), k * copies + r - 1, int(link[k, k]))
    s = codes if uniform else 1 + codes * t
    head, *rows = np.concatenate(arcs, axis=1)
    order = np.argsort(head, kind="stable")
    first = np.searchsorted(head[order], np.arange(s + 1))
    final = np.ones(s, bool) if empty else np.arange(s) >= (codes - 1 if uniform else s - t)
    tail, window, between = (row[order] for row in rows)
    return States(first, tail, window, between, np.full(s, -1, np.int64), final)


def arc_count(count: ArrayLike, *, uniform: bool, copies: int = 1) -> float:
    """Upper bound on the arcs of :func:`free_states`, known before anything is built."""
    count = np.asarray(count, np.int64)
    t = len(count)
    return float(math.prod((count + 1).tolist())) * t * min(copies, int(count.max())) * (1 if uniform else t)
