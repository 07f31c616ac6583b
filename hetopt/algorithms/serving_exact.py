"""Small serving questions by CP-SAT: every interval of every node, flows indexed by the boundary where they change hands.

    max  F
    (1)  sum_{s,k} x(i, s, k) <= 1                                  one interval for each node
    (2)  sum_b h(i, s, k, b) <= rate_i(k) x(i, s, k)                  h: flow that enters at layer b of the interval
    (3)  sum of h(i, s, k, b) over b <= l < s + k  =  F               for each layer l
    (4)  sum_j g(i, j, b) = sum of h(i, ..) over intervals that end at b,   g(i, j, b) <= capacity(i, j)
    (5)  sum_i g(i, j, b) = sum of h(j, .., b)                        entering at b (0 from the source, L to the sink)

Without joining inside an interval b is s. Flows are integers of a grid; with capacities rounded up, CP-SAT's bound is a bound
for the network, on CP-SAT's word. Row (3) follows from the others and makes the relaxation strong. For a handful of
nodes; :func:`options` says how large the model would be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_sat import solve_model

__all__ = ["Exact", "options", "solve_small"]

Ints = NDArray[np.int64]

_GRID = 4_000_000  # the known bound in the model's units of flow


class Exact(NamedTuple):
    """A plan (None when none was found) and a rate that no plan exceeds, on the solver's word."""

    start: Ints | None
    hold: Ints | None
    bound: float


def options(network: ServingNetwork) -> int:
    """Number of intervals that nodes can keep, times the layers at which a request may join them."""
    count = 0
    for k in range(1, network.layers + 1):
        if k < network.throughput.shape[1]:
            nodes = int((network.throughput[:, k] > 0).sum())
            count += nodes * (network.layers - k + 1) * (k if network.partial else 1)
    return count


def solve_small(
    network: ServingNetwork,
    high: float,
    *,
    hint: tuple[Ints, Ints] | None = None,
    seed: int = 0,
    effort: float = 20.0,
    workers: int = 1,
    should_stop: Callable[[], bool] = lambda: False,
) -> Exact:
    """Solve the model.

    Parameters
    ----------
    high
        A bound on the value of any plan.
    hint
        Start and hold of a plan to begin with.
    """
    from ortools.sat.python import cp_model

    unit = high / _GRID
    n, layers = network.n, network.layers

    def units(value: float) -> int:
        return int(min(np.ceil(value / unit * (1 - 1e-14)), _GRID))

    model = cp_model.CpModel()
    total = model.new_int_var(0, _GRID, "")
    x: dict[tuple[int, int, int], Any] = {}
    serving: list[list[Any]] = [[] for _ in range(layers)]
    entering: dict[tuple[int, int], list[Any]] = {}
    leaving: dict[tuple[int, int], list[Any]] = {}
    for i in range(n):
        for k in range(1, min(layers, network.throughput.shape[1] - 1) + 1):
            rate = units(network.throughput[i, k])
            if rate == 0:
                continue
            for s in range(layers - k + 1):
                x[i, s, k] = model.new_bool_var("")
                joined = []
                for b in range(s, s + k if network.partial else s + 1):
                    h = model.new_int_var(0, rate, "")
                    joined.append(h)
                    entering.setdefault((i, b), []).append(h)
                    leaving.setdefault((i, s + k), []).append(h)
                    for layer in range(b, s + k):
                        serving[layer].append(h)
                model.add(sum(joined) <= rate * x[i, s, k])
        model.add_at_most_one(v for (j, _, _), v in x.items() if j == i)
    for flows in serving:
        model.add(sum(flows) == total)
    for b in range(1, layers):
        onward: dict[int, list[Any]] = {}
        for i in range(n):
            if (i, b) not in leaving:
                continue
            out = []
            for j in np.flatnonzero(network.link[i]).tolist():
                if (j, b) in entering:
                    g = model.new_int_var(0, units(network.link[i, j]), "")
                    out.append(g)
                    onward.setdefault(j, []).append(g)
            model.add(sum(leaving[i, b]) == sum(out))
        for j in range(n):
            if (j, b) in entering:
                model.add(sum(entering[j, b]) == sum(onward.get(j, [])))
    for i in range(n):
        model.add(sum(entering.get((i, 0), [])) <= units(network.source[i]))
        model.add(sum(leaving.get((i, layers), [])) <= units(network.sink[i]))
    model.maximize(total)
    tips = [] if hint is None else [(v, int(hint[0][i] == s and hint[1][i] == k)) for (i, s, k), v in x.items()]
    answer = solve_model(model, seed=seed, effort=effort, workers=workers, hint=tips, should_stop=should_stop)
    bound = min(high, answer.bound * unit * (1 + 1e-12))
    if not answer.found:
        return Exact(None, None, bound)
    start, hold = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for (i, s, k), v in x.items():
        if answer.value(v):
            start[i], hold[i] = s, k
    return Exact(start, hold, bound)
