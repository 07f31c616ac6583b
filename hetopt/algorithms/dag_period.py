"""Local search for the placement of a task graph with the least period: the busiest device or link once an input.

Jobs (tasks that share a device) move one at a time, or two change places; a step is taken when the period falls, or stays and
the sum of squares of all loads falls. No guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.dag_graph import TaskGraph
from hetopt.algorithms.jit import njit

__all__ = ["period_search"]


def period_search(
    graph: TaskGraph,
    part: NDArray[np.int64],
    *,
    seed: int = 0,
    rounds: int = 30,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[NDArray[np.int64]], object] = lambda part: None,
) -> NDArray[np.int64]:
    """Best placement (n,) found from ``part``, within the devices' memory; each local optimum is reported.

    Notes
    -----
    A round starts from the best placement with a few tasks moved at random. O(n m e) a pass.
    """
    random = np.random.default_rng(seed)
    n, m = graph.time.shape
    best, least = np.array(part, np.int64), np.inf
    for k in range(rounds):
        now = best.copy()
        for v in random.integers(0, n, min(n, 1 + n // 20)) if k else ():
            able = np.flatnonzero(np.isfinite(graph.time[v]))
            now[graph.unit == graph.unit[v]] = random.choice(able)
        held = np.bincount(now, weights=graph.need / np.bincount(graph.unit, minlength=n)[graph.unit], minlength=m)
        if (held > graph.room).any():
            continue
        for v in range(n):
            _descend(v, now, held, graph.time, graph.succ_start, graph.succ, graph.succ_data, graph.slowness, graph.unit,
                     graph.need, graph.room)  # fmt: skip
            if should_stop():
                break
        value = _period(now, graph.time, graph.succ_start, graph.succ, graph.succ_data, graph.slowness)[0]
        if value < least:
            best, least = now.copy(), value
            report(best)
        if should_stop():
            break
    return best


@njit
def _period(part: Any, time: Any, succ_start: Any, succ: Any, data: Any, slowness: Any) -> Any:
    """Largest load, and the sum of squares of all loads."""
    n, m = time.shape
    load, carried, sent = np.zeros(m), np.zeros((m, m)), np.zeros(m)
    for u in range(n):
        load[part[u]] += time[u, part[u]]
        for j in range(succ_start[u], succ_start[u + 1]):
            q = part[succ[j]]
            sent[q] = max(sent[q], data[j])
        for j in range(succ_start[u], succ_start[u + 1]):
            q = part[succ[j]]
            if q != part[u]:
                carried[part[u], q] += sent[q] * slowness[part[u], q]
            sent[q] = 0.0
    return max(load.max(), carried.max()), (load * load).sum() + (carried * carried).sum()


@njit
def _descend(v: int, part: Any, held: Any, time: Any, succ_start: Any, succ: Any, data: Any, slowness: Any, unit: Any,
             need: Any, room: Any) -> None:  # fmt: skip
    """Put task ``v`` and those that share its device where the period is least."""
    n, m = time.shape
    home = part[v]
    best, to = home, home
    least, squares = _period(part, time, succ_start, succ, data, slowness)
    for p in range(m):
        if p == home or time[v, p] == np.inf or held[p] + need[v] > room[p]:
            continue
        for u in range(n):
            if unit[u] == unit[v]:
                part[u] = p
        value, square = _period(part, time, succ_start, succ, data, slowness)
        if value < least or (value == least and square < squares):
            least, squares, to = value, square, p
    best = to
    for u in range(n):
        if unit[u] == unit[v]:
            part[u] = best
    if best != home:
        held[home] -= need[v]
        held[best] += need[v]
