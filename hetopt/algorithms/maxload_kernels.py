"""Compiled steps of the max-load dynamic program: which stages may follow a given prefix, and how loaded they are.

Two kernels do the same on two families of prefixes: all ideals of a graph (:func:`expand_lattice`) and some prefixes of
one linear extension (:func:`expand_chain`). Each takes a list of reached prefixes, walks over all stages that may come
next on one device of one type, and lowers the best value of the prefixes they end in. They work in the integers of
:mod:`hetopt.algorithms.stagecosts` and return after about ``budget`` steps with the place to go on from.

On the lattice a stage grows one class at a time; its load follows from counters of the nets it touches. What is certain
of a load (times, and nets that also have a pin in the prefix: they stay cut however the stage grows) bounds every larger
stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit

__all__ = ["Chain", "Limits", "Reached", "Scratch", "expand_chain", "expand_lattice", "scratch_for"]


class Limits(NamedTuple):
    """What a stage on the device type at hand may be, and which prefixes are of use.

    ``cap`` (3,) largest load in each pass and in both together, ``room`` (1,) memory, ``which`` (1,) pass whose load is
    minimised. A prefix is of use when each of its potentials lies in ``[low, high]`` (k,); a stage adds at most ``gain``
    (k,) to a potential. ``whole`` (1,): 1 when only the full set is of use.
    """

    cap: NDArray[np.int64]
    room: NDArray[np.int64]
    which: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    gain: NDArray[np.float64]
    whole: NDArray[np.int64]


class Chain(NamedTuple):
    """A linear extension: ``order`` (n,) of the classes; ``stops`` (N,) ascending, places where a stage may end, 0 and n
    among them; ``loads`` (t, passes, N, N) of the stage between two stops, ``NEVER`` where it cannot be.
    """

    order: NDArray[np.int64]
    stops: NDArray[np.int64]
    loads: NDArray[np.int64]


class Reached(NamedTuple):
    """Best value (N,) of each prefix in the layer being made, and the entry and device type (-1: none) it came from."""

    best: NDArray[np.int64]
    back: NDArray[np.int32]
    kind: NDArray[np.int8]


class Scratch(NamedTuple):
    """Counters of nets (h,) and prefixes (N,), a stack of depth n, the stamp (1,) used last; one for each family."""

    inside: NDArray[np.int64]
    sends: NDArray[np.bool_]
    state: NDArray[np.int8]
    net_stamp: NDArray[np.int64]
    stamp: NDArray[np.int64]
    stack: NDArray[np.int64]
    last: NDArray[np.int64]


def scratch_for(nets: int, prefixes: int, depth: int) -> Scratch:
    """Fresh counters for ``nets`` nets, ``prefixes`` prefixes and stages of up to ``depth`` classes."""
    return Scratch(
        np.zeros(nets, np.int64),
        np.zeros(nets, np.bool_),
        np.zeros(nets, np.int8),
        np.zeros(nets, np.int64),
        np.zeros(prefixes, np.int64),
        np.zeros((depth + 1, 10), np.int64),
        np.zeros(1, np.int64),
    )


# State of a net with respect to the prefix: 0 no pin in it, 1 pins but not the source, 2 the source.


@njit
def _paid(state, inside, sends, pins, arrive, leave):  # type: ignore[no-untyped-def]
    """What the stage pays for a net that has ``inside`` pins in it, the source among them when ``sends``."""
    if sends:
        return leave if state == 1 or inside < pins else 0
    return arrive if inside > 0 else 0


@njit
def _certain(state, inside, sends, arrive, leave):  # type: ignore[no-untyped-def]
    """What every larger stage pays for the net too."""
    if inside == 0 or state == 0:
        return 0
    if state == 2:
        return arrive
    return leave if sends else min(arrive, leave)


@njit
def expand_lattice(entries, values, first, kind, budget, costs, size, limits, ideals, potential, reached, scratch):  # type: ignore[no-untyped-def]
    """Walk all stages on a device of type ``kind`` after ideals ``entries[first:]`` of value ``values``.

    Depth-first over covers, each ideal once per entry. Returns the first entry not walked.
    """
    full = len(ideals.last) - 1
    cap0, cap1, cap, room, which = limits.cap[0], limits.cap[1], limits.cap[2], limits.room[0], limits.which[0]
    only_full = limits.whole[0] == 1
    best, inside, sends = reached.best, scratch.inside, scratch.sends
    state, net_stamp, stamp, stack = scratch.state, scratch.net_stamp, scratch.stamp, scratch.stack
    now = scratch.last[0]
    steps = 0
    entry = first
    while entry < len(entries) and steps < budget:
        start = entries[entry]
        value = values[entry]
        useful = value <= (cap0 if which == 0 else cap1)
        for k in range(len(limits.low)):
            if potential[start, k] + limits.gain[k] < limits.low[k]:
                useful = False
        if not useful:
            entry += 1
            steps += 1
            continue
        now += 1
        depth = 0
        stack[0, 0] = ideals.cover_ptr[start]
        stack[0, 1] = ideals.cover_ptr[start + 1]
        for k in range(2, 10):
            stack[0, k] = 0
        while depth >= 0:
            p = stack[depth, 0]
            if p >= stack[depth, 1]:
                if depth > 0:
                    v = stack[depth, 2]
                    for q in range(costs.in_ptr[v], costs.in_ptr[v + 1]):
                        h = costs.in_net[q]
                        inside[h] -= 1
                        if costs.net_source[h] == v:
                            sends[h] = False
                depth -= 1
                continue
            # the full set lies above every ideal, along any covers: one path is enough when only it is of use
            stack[depth, 0] = stack[depth, 1] if only_full else p + 1
            d = ideals.cover[p]
            if stamp[d] == now:
                continue
            stamp[d] = now
            steps += 1
            v = ideals.cover_class[p]
            time0 = stack[depth, 3] + costs.time[kind, 0, v]
            time1 = stack[depth, 4] + costs.time[kind, 1, v]
            sure0 = stack[depth, 7]
            sure1 = stack[depth, 8]
            held = stack[depth, 9] + size[v]
            sure = time0 + sure0 + time1 + sure1
            if sure > cap or time0 + sure0 > cap0 or time1 + sure1 > cap1 or held > room:
                continue
            paid0 = stack[depth, 5]
            paid1 = stack[depth, 6]
            for q in range(costs.in_ptr[v], costs.in_ptr[v + 1]):
                h = costs.in_net[q]
                source = costs.net_source[h]
                if net_stamp[h] != now:
                    net_stamp[h] = now
                    state[h] = 0
                    if (ideals.words[start, source >> 6] >> np.uint64(source & 63)) & np.uint64(1):
                        state[h] = 2
                    else:
                        for r in range(costs.net_ptr[h], costs.net_ptr[h + 1]):
                            w = costs.net_pin[r]
                            if (ideals.words[start, w >> 6] >> np.uint64(w & 63)) & np.uint64(1):
                                state[h] = 1
                                break
                arrive = costs.arrive[kind, h]
                leave = costs.leave[kind, h]
                pins = costs.net_ptr[h + 1] - costs.net_ptr[h]
                paid = -_paid(state[h], inside[h], sends[h], pins, arrive, leave)
                certain = -_certain(state[h], inside[h], sends[h], arrive, leave)
                inside[h] += 1
                if source == v:
                    sends[h] = True
                paid += _paid(state[h], inside[h], sends[h], pins, arrive, leave)
                certain += _certain(state[h], inside[h], sends[h], arrive, leave)
                if costs.net_pass[h] == 0:
                    paid0 += paid
                    sure0 += certain
                else:
                    paid1 += paid
                    sure1 += certain
            if time0 + sure0 + time1 + sure1 > cap or time0 + sure0 > cap0 or time1 + sure1 > cap1:
                for q in range(costs.in_ptr[v], costs.in_ptr[v + 1]):
                    h = costs.in_net[q]
                    inside[h] -= 1
                    if costs.net_source[h] == v:
                        sends[h] = False
                continue
            load0 = time0 + paid0
            load1 = time1 + paid1
            if load0 + load1 <= cap and load0 <= cap0 and load1 <= cap1 and (not only_full or d == full):
                load = load0 if which == 0 else load1
                worst = max(load, value)
                if worst < best[d]:
                    fits = True
                    for k in range(len(limits.low)):
                        if potential[d, k] < limits.low[k] or potential[d, k] > limits.high[k]:
                            fits = False
                    if fits:
                        best[d] = worst
                        reached.back[d] = entry
                        reached.kind[d] = kind
            depth += 1
            stack[depth, 0] = ideals.cover_ptr[d]
            stack[depth, 1] = ideals.cover_ptr[d + 1]
            stack[depth, 2] = v
            stack[depth, 3] = time0
            stack[depth, 4] = time1
            stack[depth, 5] = paid0
            stack[depth, 6] = paid1
            stack[depth, 7] = sure0
            stack[depth, 8] = sure1
            stack[depth, 9] = held
        entry += 1
    scratch.last[0] = now
    return entry


@njit
def expand_chain(entries, values, first, kind, budget, costs, size, limits, chain, potential, reached, scratch):  # type: ignore[no-untyped-def]
    """The same on the prefixes of a linear extension, from a table of loads; ``entries`` are numbers of stops.

    ``costs``, ``size`` and ``scratch`` are there for the lattice kernel's sake only.
    """
    loads = chain.loads
    passes = loads.shape[1]
    full = loads.shape[2] - 1
    cap0, cap1, cap, which = limits.cap[0], limits.cap[1], limits.cap[2], limits.which[0]
    steps = 0
    entry = first
    while entry < len(entries) and steps < budget:
        a = entries[entry]
        value = values[entry]
        useful = value <= (cap0 if which == 0 else cap1)
        for k in range(len(limits.low)):
            if potential[a, k] + limits.gain[k] < limits.low[k]:
                useful = False
        steps += 1
        b = full if limits.whole[0] == 1 else a + 1
        while useful and b <= full:
            steps += 1
            fits = True
            for k in range(len(limits.low)):
                if potential[b, k] > limits.high[k]:
                    useful = False
                if potential[b, k] < limits.low[k]:
                    fits = False
            load0 = loads[kind, 0, a, b]
            load1 = loads[kind, 1, a, b] if passes > 1 else 0
            if fits and useful and load0 <= cap0 and load1 <= cap1 and load0 + load1 <= cap:
                worst = max(load0 if which == 0 else load1, value)
                if worst < reached.best[b]:
                    reached.best[b] = worst
                    reached.back[b] = entry
                    reached.kind[b] = kind
            b += 1
        entry += 1
    return entry
