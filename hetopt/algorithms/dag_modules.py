"""Pieces of a task graph: modules by modularity, and parts of balanced load with little cut between them.

Both only look at the graph; placing and timing is done elsewhere. No guarantee.

Sources: Y. Ghannane, M. Abdelfattah, arXiv 2308.00127, for mapping module by module; H. Wu, D. Lohmann, W. Schröder-Preikschat,
arXiv 1502.07451, for partitioning a task graph over unequal devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.dag_graph import TaskGraph
from hetopt.algorithms.jit import njit

__all__ = ["balanced_parts", "modules"]


def modules(graph: TaskGraph, *, most: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Tasks in pieces of at most ``most``, each after all pieces that it reads from or that its module's begin with.

    Modules are communities of greatest modularity (Louvain) of the graph without directions, an edge weighing its mean
    transfer and at least a little. Modules that wait for each other in a circle are merged; merged and large ones are cut
    along the topological order, so that every piece can be placed when those before it are.
    """
    import networkx as nx

    n = len(graph.topological)
    place = np.empty(n, np.int64)
    place[graph.topological] = np.arange(n)
    m = len(graph.free)
    share = max(1, m * (m - 1))
    latency, slowness = float(graph.latency.sum()) / share, float(graph.slowness.sum()) / share
    source = np.repeat(np.arange(n), np.diff(graph.succ_start))
    weight = latency + slowness * graph.succ_data
    weight = weight + (float(weight.mean()) * 0.01 if len(weight) and weight.any() else 1.0)
    whole = nx.Graph()
    whole.add_nodes_from(range(n))
    whole.add_weighted_edges_from(zip(source.tolist(), graph.succ.tolist(), weight.tolist(), strict=True))
    found = [sorted(part) for part in nx.community.louvain_communities(whole, seed=seed)]
    module = np.empty(n, np.int64)
    for k, part in enumerate(sorted(found)):
        module[part] = k
    quotient = nx.DiGraph()
    quotient.add_nodes_from(range(len(found)))
    quotient.add_edges_from(
        sorted({(a, b) for a, b in zip(module[source].tolist(), module[graph.succ].tolist(), strict=True)})
    )
    condensed = nx.condensation(quotient)
    first = {c: min(int(place[module == k].min()) for k in data["members"]) for c, data in condensed.nodes(data=True)}
    pieces = []
    for c in nx.lexicographical_topological_sort(condensed, key=first.__getitem__):
        inside = np.flatnonzero(np.isin(module, sorted(condensed.nodes[c]["members"])))
        inside = inside[np.argsort(place[inside])]
        count = -(-len(inside) // most)
        pieces += np.array_split(inside, count)
    return pieces


def balanced_parts(
    time: NDArray[np.float64],
    need: NDArray[np.float64],
    room: NDArray[np.float64],
    edges: NDArray[np.int64],
    weight: NDArray[np.float64],
    limit: float,
    prices: NDArray[np.float64],
) -> NDArray[np.int64] | None:
    """(n,) device of each job with loads of at most ``limit`` where it can be, and little weight of edges between devices.

    Jobs go, largest first, to the device where the load priced by ``prices`` (m,) is cheapest and still within the limit,
    else where the load stays least; then moves that lower the cut, kept within the limit, until none does. None when memory
    (``need``, ``room``) leaves a job without a device. O(passes (n m + e)).
    """
    n, m = time.shape
    load, left, part = np.zeros(m), room.copy(), np.full(n, -1, np.int64)
    for v in np.argsort(-time.min(axis=1), kind="stable").tolist():
        can = np.isfinite(time[v]) & (need[v] <= left)
        if not can.any():
            return None
        after = np.where(can, load + np.where(can, time[v], 0.0), np.inf)
        within = np.where(after <= limit, np.where(can, time[v], 1.0) * prices, np.inf)
        to = int(within.argmin() if np.isfinite(within).any() else after.argmin())
        part[v], left[to] = to, left[to] - need[v]
        load[to] += time[v, to]
    source, target = edges.T
    order = np.argsort(np.r_[source, target], kind="stable")
    start = np.searchsorted(np.r_[source, target][order], np.arange(n + 1))
    _improve(part, load, left, time, need, start, np.r_[target, source][order], np.r_[weight, weight][order], limit)
    return part


@njit
def _improve(
    part: Any, load: Any, left: Any, time: Any, need: Any, start: Any, other: Any, weight: Any, limit: float
) -> None:
    n, m = time.shape
    for _ in range(50):
        moved = 0
        for v in range(n):
            home, tie = part[v], np.zeros(m)
            for j in range(start[v], start[v + 1]):
                tie[part[other[j]]] += weight[j]
            best, to = tie[home], -1
            for p in range(m):
                fits = time[v, p] < np.inf and need[v] <= left[p] and load[p] + time[v, p] <= limit
                if p != home and fits and tie[p] > best * (1 + 1e-12):
                    best, to = tie[p], p
            if to >= 0:
                load[home] -= time[v, home]
                load[to] += time[v, to]
                left[home] += need[v]
                left[to] -= need[v]
                part[v] = to
                moved += 1
        if moved == 0:
            break
