"""Plans as device numbers, their loads, and simulated annealing on them.

A plan says for every class on which device it is. :func:`anneal` walks from a plan that fits by moving single classes,
connected clusters and swaps, under the potential ``sum_d (load_d / reference) ** power``, which follows the largest load but
sees progress below it. It knows several device types, different rates in and out, memory and classes that cannot run
everywhere. Loads are updated from counters of pins per net and device: O(degree) a moved class, memory O(nets * devices).

What this is not: a bound, nor the best search there is where two devices' classes can be divided anew
(:mod:`hetopt.algorithms.maxload_search`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["Devices", "anneal", "device_loads", "devices", "fits"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_STEPS = 50_000  # moves of one kernel call, less than 0.2 s


class Devices(NamedTuple):
    """Single devices of a stage graph, types in order: type, memory (bytes) and rates (seconds per unit of net weight)."""

    type: IntArray
    memory: FloatArray
    rate_in: FloatArray
    rate_out: FloatArray


def devices(graph: StageGraph) -> Devices:
    """One row per device: ``count[0]`` devices of type 0, then those of type 1, and so on."""
    kind = np.repeat(np.arange(len(graph.count)), graph.count)
    return Devices(kind, graph.memory[kind], graph.rate_in[kind], graph.rate_out[kind])


def device_loads(graph: StageGraph, device: IntArray) -> FloatArray:
    """Load of every device (seconds) under the plan ``device`` ((n,) device of each class), recomputed from the arrays.

    Notes
    -----
    Infinite where a class sits on a type it cannot run on. Complexity: O(n + pins log pins).
    """
    d = devices(graph)
    load = np.zeros(len(d.type))
    np.add.at(load, device, graph.time[np.arange(graph.n), d.type[device]])
    net = np.repeat(np.arange(len(graph.net_weight)), np.diff(graph.net_ptr))
    touched = np.unique(net * len(d.type) + device[graph.net_pin])
    h, where = np.divmod(touched, len(d.type))
    home = device[graph.net_source[h]]
    reached = np.bincount(h, minlength=len(graph.net_weight))
    into = where != home
    np.add.at(load, where[into], d.rate_in[where[into]] * graph.net_weight[h[into]])
    out = ~into & (reached[h] > 1)
    np.add.at(load, where[out], d.rate_out[where[out]] * graph.net_weight[h[out]])
    return load


def fits(graph: StageGraph, device: IntArray) -> bool:
    """Whether every class can run where it is put and no device's memory is exceeded (relative tolerance 1e-9)."""
    d = devices(graph)
    used = np.bincount(device, graph.size, len(d.type))
    return bool(
        np.isfinite(graph.time[np.arange(graph.n), d.type[device]]).all() and (used <= d.memory * (1 + 1e-9)).all()
    )


def anneal(
    graph: StageGraph,
    device: IntArray,
    *,
    steps: int,
    hot: float,
    cold: float,
    power: float = 20.0,
    cluster: float = 6.0,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[IntArray, IntArray]:
    """Simulated annealing from a plan that fits.

    Parameters
    ----------
    graph
        Classes, nets and types.
    device
        (n,) device of each class; respects memory.
    steps
        Moves tried.
    hot, cold
        First and last temperature, in units of the potential (the most loaded device counts one).
    power
        Exponent of the potential.
    cluster
        Mean size of the connected clusters that are moved.
    seed
        For the walk's own generator.

    Returns
    -------
    tuple
        Best plan met (by largest load) and last plan, (n,) each; both respect memory.

    Notes
    -----
    Complexity: O(cluster * degree + devices) a move.
    """
    d = devices(graph)
    count = len(d.type)
    own_ptr, own = graph.nets_of_classes()
    now = device.copy()
    pins = np.zeros((len(graph.net_weight), count), dtype=np.int64)
    np.add.at(pins, (np.repeat(np.arange(len(graph.net_weight)), np.diff(graph.net_ptr)), now[graph.net_pin]), 1)
    load, used = device_loads(graph, now), np.bincount(now, graph.size, count)
    reference = max(float(load.max()), 1e-300)
    best, record = now.copy(), np.array([load.max()])
    # Spread, and never zero, where the generator would stay.
    state = np.array([(2 * seed + 1) * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64)
    done = 0
    while done < steps and not should_stop() and count > 1 and graph.n > 0:
        share = min(_STEPS, steps - done)
        fall = [hot * (cold / hot) ** (k / steps) for k in (done, done + share)]
        _walk(
            graph.time, graph.size, d.type, d.memory * (1 + 1e-9), d.rate_in, d.rate_out, graph.net_ptr, graph.net_pin,
            graph.net_source, graph.net_weight, own_ptr, own,
            now, pins, load, used, best, record, state, share, *fall, power, reference, cluster,
        )  # fmt: skip
        done += share
    return best, now


@njit
def _random(state):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1): xorshift64, shifts only, so that the walk is the same with and without numba."""
    z = state[0]
    z ^= z << np.uint64(13)
    z ^= z >> np.uint64(7)
    z ^= z << np.uint64(17)
    state[0] = z
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit
def _shift(v, s, t, time, kind, rate_in, rate_out, net_ptr, net_source, net_weight, own_ptr, own, device, pins, load):  # type: ignore[no-untyped-def]
    """Move class v from device s to t: counters, loads and plan."""
    load[s] -= time[v, kind[s]]
    load[t] += time[v, kind[t]]
    for j in range(own_ptr[v], own_ptr[v + 1]):
        h = own[j]
        size = net_ptr[h + 1] - net_ptr[h]
        at_s, at_t, w = pins[h, s], pins[h, t], net_weight[h]
        source = net_source[h]
        home = device[source]
        # Only s and t can change what they pay: elsewhere neither the pins nor "the source is not here" change.
        if home == s:
            if at_s < size:
                load[s] -= rate_out[s] * w
        elif at_s > 0:
            load[s] -= rate_in[s] * w
        if home == t:
            if at_t < size:
                load[t] -= rate_out[t] * w
        elif at_t > 0:
            load[t] -= rate_in[t] * w
        if source == v:
            home = t
        at_s -= 1
        at_t += 1
        pins[h, s] = at_s
        pins[h, t] = at_t
        if home == s:
            if at_s < size:
                load[s] += rate_out[s] * w
        elif at_s > 0:
            load[s] += rate_in[s] * w
        if home == t:
            if at_t < size:
                load[t] += rate_out[t] * w
        elif at_t > 0:
            load[t] += rate_in[t] * w
    device[v] = t


@njit
def _walk(  # type: ignore[no-untyped-def]
    time,
    size,
    kind,
    memory,
    rate_in,
    rate_out,
    net_ptr,
    net_pin,
    net_source,
    net_weight,
    own_ptr,
    own,
    device,
    pins,
    load,
    used,
    best,
    record,
    state,
    steps,
    hot,
    cold,
    power,
    reference,
    cluster,
):  # fmt: skip
    """``steps`` moves, temperature falling geometrically from hot to cold; ``best`` and ``record[0]`` keep the best plan."""
    n, count = len(size), len(load)
    stack = np.zeros(n, dtype=np.int64)
    mark = np.full(n, -1, dtype=np.int64)
    before, before_used = load.copy(), used.copy()
    now = 0.0
    for d in range(count):
        now += (max(load[d], 0.0) / reference) ** power
    for step in range(steps):
        temperature = hot * (cold / hot) ** (step / steps)
        v = int(_random(state) * n)
        if _random(state) < 0.3:
            top = 0
            for d in range(1, count):
                if load[d] > load[top]:
                    top = d
            for _ in range(20):
                if device[v] == top:
                    break
                v = int(_random(state) * n)
        s = device[v]
        if _random(state) < 0.8 and own_ptr[v + 1] > own_ptr[v]:
            h = own[own_ptr[v] + int(_random(state) * (own_ptr[v + 1] - own_ptr[v]))]
            t = device[net_pin[net_ptr[h] + int(_random(state) * (net_ptr[h + 1] - net_ptr[h]))]]
        else:
            t = int(_random(state) * count)
        if t == s:
            continue
        wanted = 1
        if _random(state) < 0.6:
            wanted = 1 + int(-np.log(1.0 - _random(state)) * cluster)
        # Breadth first over nets from v, on device s only.
        found, read = 1, 0
        stack[0] = v
        mark[v] = step
        while read < found and found < wanted:
            u = stack[read]
            read += 1
            for j in range(own_ptr[u], own_ptr[u + 1]):
                h = own[j]
                for q in range(net_ptr[h], net_ptr[h + 1]):
                    w = net_pin[q]
                    if found < wanted and mark[w] != step and device[w] == s:
                        mark[w] = step
                        stack[found] = w
                        found += 1
        partner, partner_home = -1, -1
        if found == 1 and _random(state) < 0.4:
            w = int(_random(state) * n)
            if device[w] != s:
                partner, partner_home = w, device[w]
        able = True
        for i in range(found):
            able &= time[stack[i], kind[t]] < np.inf
        if partner >= 0:
            able &= time[partner, kind[s]] < np.inf
        if not able:
            continue
        for d in range(count):
            before[d] = load[d]
            before_used[d] = used[d]
        for i in range(found):
            u = stack[i]
            used[s] -= size[u]
            used[t] += size[u]
            _shift(
                u,
                s,
                t,
                time,
                kind,
                rate_in,
                rate_out,
                net_ptr,
                net_source,
                net_weight,
                own_ptr,
                own,
                device,
                pins,
                load,
            )
        if partner >= 0:
            used[partner_home] -= size[partner]
            used[s] += size[partner]
            _shift(
                partner,
                partner_home,
                s,
                time,
                kind,
                rate_in,
                rate_out,
                net_ptr,
                net_source,
                net_weight,
                own_ptr,
                own,
                device,
                pins,
                load,
            )
        after = np.inf
        if used[t] <= memory[t] and used[s] <= memory[s]:
            after = 0.0
            for d in range(count):
                after += (max(load[d], 0.0) / reference) ** power
        if after <= now or _random(state) < np.exp((now - after) / temperature):
            now = after
            top = 0
            for d in range(1, count):
                if load[d] > load[top]:
                    top = d
            if load[top] < record[0] * (1.0 - 1e-12):
                record[0] = load[top]
                for u in range(n):
                    best[u] = device[u]
        else:
            if partner >= 0:
                _shift(
                    partner,
                    s,
                    partner_home,
                    time,
                    kind,
                    rate_in,
                    rate_out,
                    net_ptr,
                    net_source,
                    net_weight,
                    own_ptr,
                    own,
                    device,
                    pins,
                    load,
                )
            for i in range(found):
                _shift(
                    stack[i],
                    t,
                    s,
                    time,
                    kind,
                    rate_in,
                    rate_out,
                    net_ptr,
                    net_source,
                    net_weight,
                    own_ptr,
                    own,
                    device,
                    pins,
                    load,
                )
            # Copied, not recomputed: undoing by arithmetic would let rounding errors pile up.
            for d in range(count):
                load[d] = before[d]
                used[d] = before_used[d]
