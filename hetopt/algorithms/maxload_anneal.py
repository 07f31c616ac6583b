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

from hetopt.algorithms.draws import uniform
from hetopt.algorithms.jit import inner, njit
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


class _Graph(NamedTuple):
    """What does not change in a walk: classes, devices with their types, nets and the nets of each class."""

    time: FloatArray
    size: FloatArray
    kind: IntArray
    memory: FloatArray
    rate_in: FloatArray
    rate_out: FloatArray
    net_ptr: IntArray
    net_pin: IntArray
    net_source: IntArray
    net_weight: FloatArray
    own_ptr: IntArray
    own: IntArray


class _Plan(NamedTuple):
    """A plan and its books: device of each class, pins (net, device), load and bytes of each device."""

    device: IntArray
    pins: IntArray
    load: FloatArray
    used: FloatArray


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
    fixed = _Graph(
        graph.time, graph.size, d.type, d.memory * (1 + 1e-9), d.rate_in, d.rate_out, graph.net_ptr, graph.net_pin,
        graph.net_source, graph.net_weight, *graph.nets_of_classes(),
    )  # fmt: skip
    now = device.copy()
    pins = np.zeros((len(graph.net_weight), count), dtype=np.int64)
    np.add.at(pins, (np.repeat(np.arange(len(graph.net_weight)), np.diff(graph.net_ptr)), now[graph.net_pin]), 1)
    plan = _Plan(now, pins, device_loads(graph, now), np.bincount(now, graph.size, count).astype(np.float64))
    reference = max(float(plan.load.max()), 1e-300)
    best, record = now.copy(), np.array([plan.load.max()])
    # Spread, and never zero, where the generator would stay.
    state = np.array([(2 * seed + 1) * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64)
    done = 0
    while done < steps and not should_stop() and count > 1 and graph.n > 0:
        share = min(_STEPS, steps - done)
        fall = [hot * (cold / hot) ** (k / steps) for k in (done, done + share)]
        _walk(fixed, plan, best, record, state, share, *fall, power, reference, cluster)
        done += share
    return best, now


@inner
def _busiest(load):  # type: ignore[no-untyped-def]
    top = 0
    for d in range(1, len(load)):
        if load[d] > load[top]:
            top = d
    return top


@inner
def _potential(load, reference, power):  # type: ignore[no-untyped-def]
    total = 0.0
    for d in range(len(load)):
        total += (max(load[d], 0.0) / reference) ** power
    return total


@inner
def _class_to_move(device, load, state):  # type: ignore[no-untyped-def]
    """Any class, or (three times of ten) one of the most loaded device, if twenty draws find one."""
    n = len(device)
    v = int(uniform(state) * n)
    if uniform(state) < 0.3:
        top = _busiest(load)
        for _ in range(20):
            if device[v] == top:
                break
            v = int(uniform(state) * n)
    return v


@inner
def _device_to_try(v, g, device, count, state):  # type: ignore[no-untyped-def]
    """The device of a class that shares a net with ``v`` (four times of five), or any."""
    first, nets = g.own_ptr[v], g.own_ptr[v + 1] - g.own_ptr[v]
    if uniform(state) < 0.8 and nets > 0:
        h = g.own[first + int(uniform(state) * nets)]
        size = g.net_ptr[h + 1] - g.net_ptr[h]
        return device[g.net_pin[g.net_ptr[h] + int(uniform(state) * size)]]
    return int(uniform(state) * count)


@inner
def _cluster(v, wanted, g, device, stack, mark, step):  # type: ignore[no-untyped-def]
    """Up to ``wanted`` classes of the device of ``v`` into ``stack``, breadth first over nets from ``v``; how many."""
    found, read = 1, 0
    stack[0] = v
    mark[v] = step
    while read < found and found < wanted:
        u = stack[read]
        read += 1
        for j in range(g.own_ptr[u], g.own_ptr[u + 1]):
            h = g.own[j]
            for q in range(g.net_ptr[h], g.net_ptr[h + 1]):
                w = g.net_pin[q]
                if found < wanted and mark[w] != step and device[w] == device[v]:
                    mark[w] = step
                    stack[found] = w
                    found += 1
    return found


@inner
def _pays(from_here, at, size, rate_in, rate_out):  # type: ignore[no-untyped-def]
    """Seconds per unit of weight that a device with ``at`` of a net's ``size`` pins pays; ``from_here``: the source is one."""
    if from_here:
        return rate_out if at < size else 0.0
    return rate_in if at > 0 else 0.0


@inner
def _shift(v, s, t, g, plan):  # type: ignore[no-untyped-def]
    """Move class v from device s to t: pins, loads and plan."""
    time, kind, rate_in, rate_out, own = g.time, g.kind, g.rate_in, g.rate_out, g.own
    net_ptr, net_source, net_weight = g.net_ptr, g.net_source, g.net_weight
    device, pins, load = plan.device, plan.pins, plan.load
    load[s] -= time[v, kind[s]]
    load[t] += time[v, kind[t]]
    for j in range(g.own_ptr[v], g.own_ptr[v + 1]):
        h = own[j]
        size, w, source = net_ptr[h + 1] - net_ptr[h], net_weight[h], net_source[h]
        home, at_s, at_t = device[source], pins[h, s], pins[h, t]
        # Only s and t can change what they pay: elsewhere neither the pins nor "the source is not here" change.
        load[s] -= _pays(home == s, at_s, size, rate_in[s], rate_out[s]) * w
        load[t] -= _pays(home == t, at_t, size, rate_in[t], rate_out[t]) * w
        if source == v:
            home = t
        pins[h, s], pins[h, t] = at_s - 1, at_t + 1
        load[s] += _pays(home == s, at_s - 1, size, rate_in[s], rate_out[s]) * w
        load[t] += _pays(home == t, at_t + 1, size, rate_in[t], rate_out[t]) * w
    device[v] = t


@inner
def _move(classes, found, partner, s, t, g, plan):  # type: ignore[no-untyped-def]
    """Move classes from device s to t, and a partner, if there is one, from where it is to s."""
    for i in range(found):
        plan.used[s] -= g.size[classes[i]]
        plan.used[t] += g.size[classes[i]]
        _shift(classes[i], s, t, g, plan)
    if partner >= 0:
        home = plan.device[partner]
        plan.used[home] -= g.size[partner]
        plan.used[s] += g.size[partner]
        _shift(partner, home, s, g, plan)


@njit
def _walk(g, plan, best, record, state, steps, hot, cold, power, reference, cluster):  # type: ignore[no-untyped-def]
    """``steps`` moves, temperature falling geometrically from hot to cold; ``best`` and ``record[0]`` keep the best plan."""
    device, load, used = plan.device, plan.load, plan.used
    n, count = len(g.size), len(load)
    stack = np.zeros(n, dtype=np.int64)
    mark = np.full(n, -1, dtype=np.int64)
    before, before_used = load.copy(), used.copy()
    now = _potential(load, reference, power)
    for step in range(steps):
        temperature = hot * (cold / hot) ** (step / steps)
        v = _class_to_move(device, load, state)
        s, t = device[v], _device_to_try(v, g, device, count, state)
        if t == s:
            continue
        wanted = 1
        if uniform(state) < 0.6:
            wanted = 1 + int(-np.log(1.0 - uniform(state)) * cluster)
        found = _cluster(v, wanted, g, device, stack, mark, step)
        partner, partner_home = -1, -1
        if found == 1 and uniform(state) < 0.4:
            w = int(uniform(state) * n)
            if device[w] != s:
                partner, partner_home = w, device[w]
        able = partner < 0 or g.time[partner, g.kind[s]] < np.inf
        for i in range(found):
            able &= g.time[stack[i], g.kind[t]] < np.inf
        if not able:
            continue
        for d in range(count):
            before[d], before_used[d] = load[d], used[d]
        _move(stack, found, partner, s, t, g, plan)
        after = np.inf
        if used[t] <= g.memory[t] and used[s] <= g.memory[s]:
            after = _potential(load, reference, power)
        if after <= now or uniform(state) < np.exp((now - after) / temperature):
            now = after
            largest = load[_busiest(load)]
            if largest < record[0] * (1.0 - 1e-12):
                record[0] = largest
                best[:] = device
        else:
            if partner >= 0:
                _shift(partner, s, partner_home, g, plan)
            for i in range(found):
                _shift(stack[i], t, s, g, plan)
            # Copied, not recomputed: undoing by arithmetic would let rounding errors pile up.
            for d in range(count):
                load[d], used[d] = before[d], before_used[d]
