"""Check a serving plan and compute its value from the network alone, in exact integers.

:func:`check_plan` says what is wrong with a plan, :func:`max_flow` gives its value and what limits it. Nothing here is
shared with the code that finds plans: capacities become integers without rounding and the flow is found by shortest
augmenting paths. Proofs of bounds are replayed in :mod:`hetopt.verify.serving_bound`.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["ServingFlow", "check_plan", "max_flow"]

Ints = NDArray[np.int64]


class ServingFlow(NamedTuple):
    """A largest flow and what stops it from being larger.

    Attributes
    ----------
    value
        The flow's value, the exact one rounded to the nearest double.
    exact
        The same without rounding.
    node
        (n,) flow through each node.
    link
        (n, n) flow on each link.
    full_nodes, full_links
        A minimum cut: the nodes and the links (pairs; ``-1`` is the source and ``n`` the sink) whose capacities add up
        to the value. More flow needs more of one of these.
    """

    value: float
    exact: Fraction
    node: NDArray[np.float64]
    link: NDArray[np.float64]
    full_nodes: tuple[int, ...]
    full_links: tuple[tuple[int, int], ...]


def check_plan(network: ServingNetwork, start: Ints, hold: Ints) -> None:
    """Raise with the first fault of a plan.

    Parameters
    ----------
    start
        (n,) first layer of each node's interval, from 0.
    hold
        (n,) number of layers; 0 for a node that is left out.

    Raises
    ------
    ValueError
        A sentence that names the node, when an interval leaves the model or a node cannot keep that many layers.
    """
    for name, value in (("start", start), ("hold", hold)):
        if np.shape(value) != (network.n,):
            raise ValueError(f"{name} has shape {np.shape(value)}; the network has {network.n} nodes")
        if not np.issubdtype(np.asarray(value).dtype, np.integer):
            raise ValueError(f"{name} holds {np.asarray(value).dtype} entries; layers are counted in integers")
    for i, (s, k) in enumerate(zip(start.tolist(), hold.tolist(), strict=True)):
        if k == 0:
            continue
        if k < 0 or k >= network.throughput.shape[1] or network.throughput[i, k] <= 0:
            raise ValueError(f"node {network.names[i]} cannot keep {k} layers")
        if s < 0 or s + k > network.layers:
            raise ValueError(
                f"node {network.names[i]} keeps layers {s} to {s + k - 1}; the model has layers 0 to {network.layers - 1}"
            )


def max_flow(network: ServingNetwork, start: Ints, hold: Ints) -> ServingFlow:
    """Largest flow of a plan, exactly.

    A node that keeps layers ``s`` to ``e - 1`` passes at most its rate for ``e - s`` layers. The source feeds nodes with
    ``s = 0``, nodes with ``e = L`` feed the sink, and node i feeds node j when ``e_i = s_j`` (with ``network.partial``:
    when ``s_j <= e_i < e_j``). Capacities are doubles, hence fractions with a power of two below; on their common
    denominator they are integers, and so is everything that follows.

    Returns
    -------
    ServingFlow
        Value, flows and a minimum cut. O(n * links^2) integer steps in the worst case, far less in practice.

    Raises
    ------
    ValueError
        See :func:`check_plan`.
    """
    check_plan(network, start, hold)
    n = network.n
    end = start + hold
    used = np.flatnonzero(hold > 0)
    arcs: list[tuple[int, int, Fraction]] = []  # node i: entry 2i, exit 2i + 1; source 2n, sink 2n + 1
    limit = Fraction(0)
    for i in used.tolist():
        rate = Fraction(float(network.throughput[i, hold[i]]))
        limit += rate
        arcs.append((2 * i, 2 * i + 1, rate))

    def capacity(value: float) -> Fraction:
        return limit if np.isinf(value) else min(Fraction(float(value)), limit)

    for i in used.tolist():
        if start[i] == 0 and network.source[i] > 0:
            arcs.append((2 * n, 2 * i, capacity(network.source[i])))
        if end[i] == network.layers and network.sink[i] > 0:
            arcs.append((2 * i + 1, 2 * n + 1, capacity(network.sink[i])))
        for j in used.tolist():
            joins = start[j] <= end[i] < end[j] if network.partial else start[j] == end[i]
            if joins and network.link[i, j] > 0:
                arcs.append((2 * i + 1, 2 * j, capacity(network.link[i, j])))
    denominator = max((c.denominator for _, _, c in arcs), default=1)  # powers of two: the largest is common
    room: list[dict[int, int]] = [{} for _ in range(2 * n + 2)]
    for a, b, c in arcs:
        room[a][b] = int(c * denominator)
        room[b].setdefault(a, 0)
    total, reached = _augment(room, 2 * n, 2 * n + 1)

    node = np.zeros(n)
    link = np.zeros((n, n))
    full_nodes: list[int] = []
    full_links: list[tuple[int, int]] = []
    for a, b, c in arcs:
        carried = float(Fraction(int(c * denominator) - room[a][b], denominator))
        crosses = a in reached and b not in reached
        if a == 2 * n or b == 2 * n + 1:
            if crosses:
                full_links.append((-1, b // 2) if a == 2 * n else (a // 2, n))
        elif a // 2 == b // 2:
            node[a // 2] = carried
            if crosses:
                full_nodes.append(a // 2)
        else:
            link[a // 2, b // 2] = carried
            if crosses:
                full_links.append((a // 2, b // 2))
    exact = Fraction(total, denominator)
    return ServingFlow(float(exact), exact, node, link, tuple(full_nodes), tuple(full_links))


def _augment(room: list[dict[int, int]], source: int, sink: int) -> tuple[int, set[int]]:
    """Fill ``room`` (residual capacities, changed in place) along shortest paths; value and the source's side of a cut."""
    total = 0
    while True:
        before = {source: source}
        queue = deque([source])
        while queue and sink not in before:
            a = queue.popleft()
            for b, free in room[a].items():
                if free > 0 and b not in before:
                    before[b] = a
                    queue.append(b)
        if sink not in before:
            return total, set(before)
        path = [sink]
        while path[-1] != source:
            path.append(before[path[-1]])
        path.reverse()
        pairs = list(pairwise(path))
        amount = min(room[a][b] for a, b in pairs)
        for a, b in pairs:
            room[a][b] -= amount
            room[b][a] += amount
        total += amount
