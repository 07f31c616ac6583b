"""The class that is dearest to have: a minimum-cut bound on the largest load, with its certificate.

Some device holds class v, and the least load of a device with v is a minimum cut (loads are submodular; Lawler's expansion
of nets). :func:`hetopt.algorithms.maxload_bounds.min_cut` computes the same bound in integers; this module names the class,
which is all that :mod:`hetopt.verify.maxload_certificates` needs to replay it, and works with scipy's flows.

What this is not: a bound that sees the other classes. Prices (:mod:`hetopt.algorithms.maxload_columns`) see both; cuts serve
where node orders are too wide for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["cut_certificate"]

_BITS = 29  # of the largest capacity; scipy's flows are 32-bit integers
_LOSS = 1e-6  # relative; a cut of some hundred arcs loses less by rounding each down


def cut_certificate(
    graph: StageGraph, above: float = 0.0, *, cuts: int = 30, should_stop: Callable[[], bool] = lambda: False
) -> dict[str, Any] | None:
    """``maxload-cut`` certificate of the largest cut bound found, if it is above a number of seconds.

    Parameters
    ----------
    graph
        Classes, nets and device types.
    above
        Bound that is known already.
    cuts
        Classes tried, most promising first; each takes one maximum flow a type that pays for communication.
    should_stop
        Asked between flows.
    """
    types = np.flatnonzero(graph.count > 0)
    known = _alone(graph)[:, types]
    tried = np.zeros(graph.n, dtype=bool)
    best, pivot = above, -1
    for _ in range(min(cuts, graph.n)):
        least = np.where(tried, -np.inf, known.min(axis=1))
        v = int(least.argmax())
        # A cut is computed in units of 2^-29 of the class's own load, each arc rounded down.
        if should_stop() or not least[v] > best * (1 + _LOSS):
            break
        tried[v] = True
        value = math.inf
        for i, t in enumerate(types.tolist()):
            if value <= best or not math.isfinite(graph.time[v, t]):
                continue
            load, side = _cheapest_with(graph, v, t, float(known[v, i]))
            known[side, i] = np.minimum(known[side, i], load * (1 + _LOSS))
            value = min(value, load)
        if best < value < math.inf:
            best, pivot = value, v
    if pivot < 0:
        return None
    return {"kind": "maxload-cut", "limit": best * (1 - _LOSS), "class": pivot}


def _alone(graph: StageGraph) -> NDArray[np.float64]:
    """(n, t) load of a device that holds one class only."""
    load = graph.time.copy()
    net = np.repeat(np.arange(len(graph.net_weight)), np.diff(graph.net_ptr))
    source = graph.net_source[net] == graph.net_pin
    for t in range(len(graph.count)):
        rate = np.where(source, graph.rate_out[t], graph.rate_in[t])
        load[:, t] += np.bincount(graph.net_pin, rate * graph.net_weight[net], graph.n)
    return load


def _cheapest_with(graph: StageGraph, v: int, t: int, most: float) -> tuple[float, NDArray[np.int64]]:
    """Least load of a device of type t that holds v, rounded down, and the classes that it then holds.

    A set pays time to the sink, pin -> receive -> source of a net when it has a pin but not the source, and source -> send
    -> pin when it has the source but not all pins. ``most`` is the load of v alone.
    """
    n, nets = graph.n, len(graph.net_weight)
    bits = _BITS - math.frexp(most)[1]
    top = 1 << (_BITS + 1)
    net = np.repeat(np.arange(nets), np.diff(graph.net_ptr))
    receive, send, sink, start = n + np.arange(nets), n + nets + np.arange(nets), n + 2 * nets, n + 2 * nets + 1
    whole = np.full(len(net), math.inf)
    tail = np.concatenate([np.arange(n), graph.net_pin, receive, graph.net_source, send[net], [start]])
    head = np.concatenate([np.full(n, sink), receive[net], graph.net_source, send, graph.net_pin, [v]])
    weight = graph.net_weight
    cost = np.concatenate(
        [graph.time[:, t], whole, graph.rate_in[t] * weight, graph.rate_out[t] * weight, whole, [math.inf]]
    )
    room = np.minimum(np.floor(np.ldexp(np.minimum(cost, 4.0 * most), bits)), float(top)).astype(np.int32)
    capacity = csr_array((room, (tail, head)), shape=(start + 1, start + 1))
    found = maximum_flow(capacity, start, sink)
    rest = csr_array(capacity - found.flow)
    rest.data[rest.data < 0] = 0
    rest.eliminate_zeros()
    side = breadth_first_order(rest, start, return_predecessors=False)
    return math.ldexp(float(found.flow_value), -bits), side[side < n].astype(np.int64)
