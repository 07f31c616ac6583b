"""Chains of single nodes along real links, for networks where links are few.

At rate T each node could keep so many layers and still pass T; a chain is a path from the source to the sink over links that
carry T whose nodes keep L layers together. Several chains of disjoint nodes serve side by side. One CP-SAT circuit model
finds them, link by link; unlike the blocks of :mod:`hetopt.algorithms.serving_chain` it never puts nodes side by side
within a chain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_sat import solve_model

__all__ = ["find_paths", "keeps"]

Ints = NDArray[np.int64]

_SLACK = 1 - 1e-9


def keeps(network: ServingNetwork, rate: float) -> Ints:
    """(n,) the most layers with which each node still passes the rate; 0 where none."""
    enough = network.throughput[:, : network.layers + 1] >= rate * _SLACK
    most = enough.shape[1] - 1 - np.argmax(enough[:, ::-1], axis=1)
    return np.where(enough.any(axis=1), most, 0).astype(np.int64)


def find_paths(
    network: ServingNetwork,
    rate: float,
    copies: int = 1,
    *,
    seed: int = 0,
    effort: float = 3.0,
    workers: int = 1,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Ints, Ints] | None:
    """Start and hold of ``copies`` disjoint chains of this rate each, or None when none are found."""
    from ortools.sat.python import cp_model

    keep = keeps(network, rate)
    usable = np.flatnonzero(keep)
    if keep.sum() < copies * network.layers:
        return None
    model = cp_model.CpModel()
    layers = network.layers
    arcs: list[tuple[int, int, Any]] = []
    position = {i: model.new_int_var(0, layers - 1, "") for i in usable.tolist()}
    linked = network.link >= rate * _SLACK
    for i in usable.tolist():
        arcs.append((i + 1, i + 1, model.new_bool_var("")))
        if network.source[i] >= rate * _SLACK:
            enter = model.new_bool_var("")
            arcs.append((0, i + 1, enter))
            model.add(position[i] == 0).only_enforce_if(enter)
        if network.sink[i] >= rate * _SLACK:
            leave = model.new_bool_var("")
            arcs.append((i + 1, 0, leave))
            model.add(position[i] + int(keep[i]) >= layers).only_enforce_if(leave)
        for j in usable.tolist():
            if linked[i, j]:
                follows = model.new_bool_var("")
                arcs.append((i + 1, j + 1, follows))
                model.add(position[j] == position[i] + int(keep[i])).only_enforce_if(follows)
    if copies == 1:
        model.add_circuit(arcs)
    else:
        model.add_multiple_circuit(arcs)
    model.add(sum(v for a, _, v in arcs if a == 0) == copies)
    model.add(sum(int(keep[a - 1]) * ~v for a, b, v in arcs if a == b) >= copies * layers)
    answer = solve_model(model, seed=seed, effort=effort, workers=workers, should_stop=should_stop)
    if not answer.found:
        return None
    start, hold = np.zeros(network.n, dtype=np.int64), np.zeros(network.n, dtype=np.int64)
    for a, b, v in arcs:
        if a > 0 and a != b and answer.value(v):
            start[a - 1] = answer.value(position[a - 1])
            hold[a - 1] = min(int(keep[a - 1]), layers - int(start[a - 1]))
    return start, hold
