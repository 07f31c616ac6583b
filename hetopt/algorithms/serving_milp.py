"""The published mixed-integer program of the serving question, as arrays.

    max  sum_j flow(source, j)
    (1)  sum_k hold(i, k) = 1                                          every node keeps some number of layers
    (2)  start(i) + sum_k k hold(i, k) <= L
    (3)  flow in = flow out                                            at every node
    (4)  flow in <= sum_k rate_i(k) hold(i, k)
    (5)  flow(i, j) <= capacity(i, j) switch(i, j)                      on every link, also of source and sink
    (6)  switch(i, j) = 1 only if end(i) = start(j)                     two rows; start(j) = 0 behind the source, end(i) = L
         before the sink

Source: Mei et al., "Helix: Serving Large Language Models over Heterogeneous GPUs and Network via Max-Flow", ASPLOS 2025, as in
its published model files (requests pass whole intervals). A reference and an oracle for small networks: beyond a dozen nodes its
relaxation says next to nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hetopt.algorithms.serving_network import ServingNetwork

__all__ = ["PublishedProgram", "plan_columns", "published_program"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class PublishedProgram(NamedTuple):
    """Maximise ``cost @ x`` with ``row_lower <= rows @ x <= row_upper``, ``lower <= x <= upper``; names as in the files.

    ``integrality`` is 1 for whole numbers. ``names`` are ``start_i``, ``hold_i_k``, ``flow_a_b`` and ``switch_a_b``.
    """

    rows: sparse.csr_array
    row_lower: Floats
    row_upper: Floats
    lower: Floats
    upper: Floats
    cost: Floats
    integrality: NDArray[np.int8]
    names: tuple[str, ...]


def published_program(network: ServingNetwork) -> PublishedProgram:
    """The program of a network.

    Raises
    ------
    ValueError
        When requests may join inside an interval: the published files do not state that.
    """
    if network.partial:
        raise ValueError("the published program has no requests that join inside an interval; set partial to False")
    n, layers = network.n, network.layers
    most = np.where(np.isinf(network.link), network.throughput.max(), network.link)
    ends = [np.where(np.isinf(e), network.throughput.max(), e) for e in (network.source, network.sink)]
    arcs: list[tuple[int | str, int | str, float]] = [
        ("source", int(j), float(ends[0][j])) for j in np.flatnonzero(network.source)
    ]
    arcs += [(int(i), "sink", float(ends[1][i])) for i in np.flatnonzero(network.sink)]
    arcs += [(int(i), int(j), float(most[i, j])) for i, j in zip(*np.nonzero(network.link), strict=True)]
    kept = [(int(i), int(k)) for i, k in zip(*np.nonzero(network.throughput), strict=True)]

    names = [f"start_{i}" for i in range(n)]
    names += [f"hold_{i}_{k}" for i, k in kept]
    names += [f"flow_{a}_{b}" for a, b, _ in arcs]
    names += [f"switch_{a}_{b}" for a, b, _ in arcs]
    hold = n + np.arange(len(kept))
    flow = n + len(kept) + np.arange(len(arcs))
    switch = flow + len(arcs)
    node = np.array([i for i, _ in kept], dtype=np.int64)
    length = np.array([k for _, k in kept], dtype=np.int64)

    entries: list[tuple[int, int, float]] = []
    lower: list[float] = []
    upper: list[float] = []

    def row(terms: list[tuple[int, float]], low: float, high: float) -> None:
        entries.extend((len(lower), column, value) for column, value in terms)
        lower.append(low)
        upper.append(high)

    def end(i: int, sign: float) -> list[tuple[int, float]]:
        own = np.flatnonzero(node == i)
        return [(i, sign), *((int(hold[c]), sign * float(length[c])) for c in own)]

    for i in range(n):
        own = np.flatnonzero(node == i)
        if len(own):
            row([(int(hold[c]), 1.0) for c in own], 1.0, 1.0)  # (1)
        row(end(i, 1.0), -np.inf, float(layers))  # (2)
        into = [(int(flow[e]), 1.0) for e, (_, b, _) in enumerate(arcs) if b == i]
        out = [(int(flow[e]), -1.0) for e, (a, _, _) in enumerate(arcs) if a == i]
        row([*into, *out], 0.0, 0.0)  # (3)
        row([*into, *((int(hold[c]), -float(network.throughput[i, length[c]])) for c in own)], -np.inf, 0.0)  # (4)
    for e, (a, b, capacity) in enumerate(arcs):
        row([(int(flow[e]), 1.0), (int(switch[e]), -capacity)], -np.inf, 0.0)  # (5)
        off = (int(switch[e]), float(layers))
        if a == "source":
            row([(int(b), 1.0), off], -np.inf, float(layers))  # (6)
        elif b == "sink":
            row([*end(int(a), -1.0), off], -np.inf, 0.0)
        else:
            row([*end(int(a), 1.0), (int(b), -1.0), off], -np.inf, float(layers))
            row([*end(int(a), -1.0), (int(b), 1.0), off], -np.inf, float(layers))

    columns = len(names)
    data = np.array([v for _, _, v in entries])
    at = (np.array([r for r, _, _ in entries]), np.array([c for _, c, _ in entries]))
    upper_x = np.full(columns, np.inf)
    upper_x[hold] = upper_x[switch] = 1.0
    upper_x[:n] = layers
    integrality = np.ones(columns, dtype=np.int8)
    integrality[flow] = 0
    cost = np.zeros(columns)
    cost[flow[[e for e, (a, _, _) in enumerate(arcs) if a == "source"]]] = 1.0
    return PublishedProgram(
        sparse.csr_array((data, at), shape=(len(lower), columns)),
        np.array(lower),
        np.array(upper),
        np.zeros(columns),
        upper_x,
        cost,
        integrality,
        tuple(names),
    )


def plan_columns(network: ServingNetwork, start: Ints, hold: Ints) -> dict[str, float]:
    """Values of the program's ``start`` and ``hold`` columns that state a plan.

    The program lets every node keep some layers; a node that is left out keeps the fewest it can, at the start, which can
    only add flow.
    """
    values: dict[str, float] = {}
    for i in range(network.n):
        possible = np.flatnonzero(network.throughput[i])
        k = int(hold[i]) or int(possible.min(initial=network.layers))
        values[f"start_{i}"] = float(start[i]) if hold[i] else 0.0
        values |= {f"hold_{i}_{c}": float(c == k) for c in possible.tolist()}
    return values
