"""A first plan of a pipeline in milliseconds: the classes in topological order, cut where the devices are evenly loaded.

What it is for: something valid in hand before any kernel is compiled, also after the first start of a fresh installation.
It is numpy only. What it is not: good. Transfers are not looked at, and where memory is nearly full, or classes run on few
device types, it may find nothing although there are plans.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["first_plan"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_HALVINGS = 40


def first_plan(graph: StageGraph) -> Ints | None:
    """Device (n,) of each class, numbered type by type, of a chain of ideals within memory; None when none was found.

    Stages go along the classes' own order. The device types take turns in the order given and in the order of speed, each
    tried forwards and backwards; by bisection, the least compute time a device within which all classes find a place.
    O(40 d log n) a try.
    """
    types = np.repeat(np.arange(graph.types), graph.count)
    if not graph.n or not len(types):
        return np.zeros(0, np.int64) if not graph.n else None
    finite = np.isfinite(graph.time)
    # Sums up to each class, and the first class from each one on that a type cannot run.
    behind = np.zeros((graph.n + 1, graph.types))
    np.cumsum(np.where(finite, graph.time, 0.0), axis=0, out=behind[1:])
    sizes = np.concatenate([[0.0], np.cumsum(graph.size)])
    barred = np.where(finite, graph.n, np.arange(graph.n)[:, None])
    barred = np.minimum.accumulate(barred[::-1], axis=0)[::-1]
    speed = np.argsort(behind[-1] / np.maximum(finite.sum(axis=0), 1), kind="stable")
    by_speed = np.argsort(np.argsort(speed)[types], kind="stable")
    plain = np.arange(len(types))
    best, least = None, np.inf
    for devices in (plain, by_speed, plain[::-1], by_speed[::-1]):
        low, high = 0.0, float(behind[-1].max())
        ends = _ends(graph, types[devices], behind, sizes, barred, high)
        if ends is None:
            continue
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            found = _ends(graph, types[devices], behind, sizes, barred, middle)
            if found is None:
                low = middle
            else:
                ends, high = found, middle
        if high < least:
            best, least = devices[np.searchsorted(ends, np.arange(graph.n), side="right")], high
    return best


def _ends(graph: StageGraph, types: Ints, behind: Floats, sizes: Floats, barred: Ints, limit: float) -> Ints | None:
    """(d,) where the stage of each device ends when it takes all it can within ``limit``; None when classes are left."""
    ends, at = np.empty(len(types), np.int64), 0
    # Whole numbers of bytes are added up exactly, others are not.
    slack = 0.0 if (graph.size == np.floor(graph.size)).all() else 1e-12 * float(sizes[-1])
    for k, t in enumerate(types.tolist()):
        if at < graph.n:
            by_time = int(np.searchsorted(behind[:, t], behind[at, t] + limit, side="right")) - 1
            room = sizes[at] + graph.memory[t] - slack if graph.memory[t] < sizes[-1] else np.inf
            by_size = int(np.searchsorted(sizes, max(room, sizes[at]), side="right")) - 1
            at = max(at, min(by_time, by_size, int(barred[at, t])))
        ends[k] = at
    return ends if at >= graph.n else None
