"""The published mixed-integer program of serving by flow, a reference for small networks.

    max  sum_j f_sj
    sum_k h_ik = 1                                          every node keeps some number of layers    (4)
    s_i + sum_k k h_ik <= L                                                                           (5)
    flow into i = flow out of i                                                                       (6)
    flow into i <= sum_k t_i(k) h_ik                        (1) of :mod:`formulations.partition.flow`
    f_ij <= c_ij x_ij, and likewise at source and sink      (2), (3)
    L x_ij <= L - (s_i + k_i - s_j), L x_ij <= L + (s_i + k_i - s_j)     x_ij = 1 only if i's end is j's start    (7)
    L x_sj <= L - s_j,  L x_it <= s_i + k_i                              (8)

Flows are counted in units near the largest rate, so that a solver's absolute tolerances mean something. Beyond a dozen nodes
the relaxation says next to nothing: x_ij is cheap as soon as it may be a fraction.

Source: Y. Mei et al., Helix: serving large language models over heterogeneous GPUs and network via max-flow, ASPLOS 2025, as
in its published model files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.partition._flow import network_of, solution_of
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["MILP"]


class MILP(LinearFormulation):
    """(1)-(8)."""

    name = "milp"
    title = "the published MILP (1)-(8); for a dozen nodes at most"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Requests pass whole intervals."""
        return "it states whole intervals only" if question["partial"] else None

    def size(self, instance: Instance, question: Question) -> int:
        """Two rows for each link, each with a term for every number of layers of either end."""
        network = network_of(instance, False)
        return 4 * int(np.count_nonzero(network.link)) * int(network.throughput.shape[1])

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``start[node]``, ``hold[node,k]``, and ``flow`` and ``join`` for each link, source and sink links first."""
        network = network_of(instance, False)
        n, layers, names = network.n, network.layers, instance.device_names
        rates = network.throughput[:, : layers + 1]
        unit = _unit(rates)
        node, keep = np.nonzero(rates)
        fed, draining = np.flatnonzero(network.source), np.flatnonzero(network.sink)
        a, b = np.nonzero(network.link)
        # Arcs: source links, sink links, links; -1 stands for the outside.
        tail = np.concatenate([np.full(len(fed), -1), draining, a])
        head = np.concatenate([fed, np.full(len(draining), -1), b])
        capacity = np.concatenate([network.source[fed], network.sink[draining], network.link[a, b]])
        capacity = np.minimum(capacity, rates.max()) / unit
        arcs = [(*_outside(names, tail, "source"),), (*_outside(names, head, "sink"),)]
        label = [f"{x}>{y}" for x, y in zip(*arcs, strict=True)]

        model = LinearModel("serving-flow")
        start = model.integer("start", n, upper=layers, labels=(names,))
        hold = model.binary("hold", len(node), labels=([f"{names[i]},{k}" for i, k in zip(node, keep, strict=True)],))
        flow = model.continuous("flow", len(tail), upper=capacity, labels=(label,))
        join = model.binary("join", len(tail), labels=(label,))
        some = np.unique(node)
        model.rows("keeps", n, [(node, hold, 1.0)], lower=np.isin(np.arange(n), some), upper=1, labels=(names,))  # (4)
        every = np.arange(n)
        model.rows("end", n, [(every, start, 1.0), (node, hold, keep)], upper=layers, labels=(names,))  # (5)
        into, out = np.flatnonzero(head >= 0), np.flatnonzero(tail >= 0)
        entering, leaving = (head[into], flow[into], 1.0), (tail[out], flow[out], -1.0)
        model.rows("balance", n, [entering, leaving], lower=0, upper=0, labels=(names,))  # (6)
        model.rows("node", n, [entering, (node, hold, -rates[node, keep] / unit)], upper=0, labels=(names,))  # (1)
        every = np.arange(len(tail))
        model.rows(
            "link", len(tail), [(every, flow, 1.0), (every, join, -capacity)], upper=0, labels=(label,)
        )  # (2), (3)

        inner = np.arange(len(fed) + len(draining), len(tail))
        for block, sign in (("not_after", 1.0), ("not_before", -1.0)):
            row = np.arange(len(inner))
            terms = [
                (row, join[inner], float(layers)),
                (row, start[b], -sign),
                *_ends(a, sign, start, hold, node, keep),
            ]
            model.rows(block, len(inner), terms, upper=layers, labels=([label[e] for e in inner],))  # (7)
        row = np.arange(len(fed))
        terms = [(row, join[row], float(layers)), (row, start[fed], 1.0)]
        model.rows("first", len(fed), terms, upper=layers, labels=(label[: len(fed)],))  # (8)
        row = np.arange(len(draining))
        terms = [
            (row, join[len(fed) + row], float(layers)),
            *_ends(draining, -1.0, start, hold, node, keep),
        ]
        model.rows("last", len(row), terms, upper=0, labels=([label[len(fed) + r] for r in row],))  # (8)
        model.maximize(flow[: len(fed)], unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Intervals by ``start`` and ``hold``."""
        rates = network_of(instance, False).throughput[:, : network_of(instance, False).layers + 1]
        node, keep = np.nonzero(rates)
        hold = np.zeros(len(rates), np.int64)
        chosen = x[model.columns("hold")] > 0.5
        hold[node[chosen]] = keep[chosen]
        return solution_of(network_of(instance, False), np.rint(x[model.columns("start")]).astype(np.int64), hold)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Starts and numbers of layers; a node that is left out keeps as few as it can, which can only add flow."""
        network = network_of(instance, False)
        details = solution.details
        node, keep = np.nonzero(network.throughput[:, : network.layers + 1])
        fewest = np.array([keep[node == i].min(initial=network.layers) for i in range(network.n)])
        hold = np.array([details["hold"].get(v, 0) for v in instance.device_names])
        point = np.full(model.n_columns, np.nan)
        point[model.columns("start")] = [details["start"].get(v, 0) for v in instance.device_names]
        point[model.columns("hold")] = keep == np.where(hold > 0, hold, fewest)[node]
        return point


def _unit(rates: NDArray[np.float64]) -> float:
    """A power of two near the largest rate."""
    return float(2.0 ** np.frexp(rates.max())[1])


def _outside(names: tuple[str, ...], ends: NDArray[np.int64], word: str) -> list[str]:
    return [names[i] if i >= 0 else word for i in ends.tolist()]


def _ends(
    of: NDArray[np.int64],
    sign: float,
    start: NDArray[np.int64],
    hold: NDArray[np.int64],
    node: NDArray[np.int64],
    keep: NDArray[np.int64],
) -> list[tuple[Any, Any, Any]]:
    """Terms of ``sign * (s_i + k_i)`` in row r for the r-th node of ``of``."""
    row, column = np.nonzero(of[:, None] == node[None, :])
    return [(np.arange(len(of)), start[of], sign), (row, hold[column], sign * keep[column])]
