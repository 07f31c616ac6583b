"""Split what two devices hold anew, as well as possible: the large neighbourhood of the non-contiguous max-load search.

Fix every class outside devices a and b. Each way to divide their classes between the two has two loads, and the ways worth
keeping are those where neither load can shrink without the other growing. The sweep of :mod:`frontier_order`, along a given
order and with loads of *both* devices, lists them: a state says for every open net which of the two devices hold a pin, and
keeps the undominated pairs of loads, one for each bucket of the first load. Where buckets are exact, the neighbourhood is
searched completely, although it has ``2 ** m`` members.

What this is not: :func:`~hetopt.algorithms.frontier_order.frontier` builds the same states with guarantees for bounds; here
everything happens in one compiled pass that may drop good splits (buckets) and that gives up when states or work get out of
hand. It makes plans, not bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import inner, njit
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["Splits", "resplit"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_SLOTS = 31  # open nets at a time, two bits each in one key


class Splits(NamedTuple):
    """Undominated ways to divide the classes of two devices.

    Attributes
    ----------
    first, second
        (k,) loads of the two devices in seconds, the first ascending and the second descending.
    classes
        (m,) classes that were divided.
    """

    first: FloatArray
    second: FloatArray
    classes: IntArray
    trace: tuple[IntArray, IntArray]

    def choice(self, k: int) -> NDArray[np.bool_]:
        """(m,) whether each of ``classes`` is on the first device in way ``k``."""
        parent, start = self.trace
        chosen = np.zeros(len(self.classes), dtype=bool)
        for i in range(len(self.classes) - 1, -1, -1):
            step = int(parent[start[i + 1] + k])
            chosen[i] = step & 1
            k = step >> 1
        return chosen


def resplit(
    graph: StageGraph,
    nets: tuple[IntArray, IntArray],
    device: IntArray,
    pair: tuple[int, int],
    types: tuple[int, int],
    order: IntArray,
    limit: float,
    *,
    buckets: int = 300,
    max_states: int = 4096,
    effort: int = 2_000_000,
) -> Splits | None:
    """Undominated ways to divide the classes of two devices with both loads at most ``limit``.

    Parameters
    ----------
    graph, nets
        Stage graph and its ``nets_of_classes()``.
    device
        (n,) device of each class.
    pair, types
        The two devices and their types.
    order
        (n,) order to sweep the classes in; a thin one for the whole graph is thin for every part of it.
    limit
        Largest load of either device, seconds.
    buckets
        Resolution of the first load.
    max_states, effort
        Give up beyond this many states at a time, or pairs of loads looked at (10^6 take about 20 ms).

    Returns
    -------
    Splits or None
        None when no way was found, or it gave up.

    Notes
    -----
    Memory isn't looked at. Complexity: O(classes * states * (open nets + buckets)).
    """
    both = order[(device[order] == pair[0]) | (device[order] == pair[1])]
    if len(both) == 0:
        return None
    rates = np.array([[graph.rate_in[t], graph.rate_out[t]] for t in types])
    time = np.ascontiguousarray(graph.time[both][:, list(types)])
    found = _divide(
        both, time, rates, graph.n, graph.net_ptr, graph.net_pin, graph.net_source, graph.net_weight, *nets,
        limit, buckets, max_states, effort,
    )  # fmt: skip
    first, second, parent, start, complete = found
    if not complete or len(first) == 0:
        return None
    return Splits(first, second, both, (parent, start))


@inner
def _paid(state, home, cut, rates):  # type: ignore[no-untyped-def]
    """What the two devices pay for a net of weight one; state: bit 0 the second, bit 1 the first device holds a pin.

    ``home``: 1 or 0 the source is on the first or second device, 2 elsewhere, 3 not known yet.
    """
    first, second = 0.0, 0.0
    if state == 3 or (cut and state > 0):
        if state & 2:
            into, out = rates[0, 0], rates[0, 1]
            first = min(into, out) if home == 3 else out if home == 1 else into
        if state & 1:
            into, out = rates[1, 0], rates[1, 1]
            second = min(into, out) if home == 3 else out if home == 0 else into
    return first, second


@inner
def _step_prices(i, touched, position, held, net_ptr, net_source, net_weight, rates):  # type: ignore[no-untyped-def]
    """What step i makes the two devices pay: (net touched, its state before, side, device)."""
    price = np.zeros((len(touched), 4, 2, 2))
    for j in range(len(touched)):
        h = touched[j]
        cut = held[h] < net_ptr[h + 1] - net_ptr[h]
        where = position[net_source[h]]
        for old in range(4):
            for x in range(2):
                before, after = 3, 3
                if where < 0:
                    before, after = 2, 2
                elif where == i:
                    after = x
                elif where < i:
                    # The source has been seen: an unmixed net is where its source is, a mixed one has been paid for.
                    if old == 0 or old == 3:
                        continue
                    before = after = old - 1
                a0, b0 = _paid(old, before, cut, rates)
                a1, b1 = _paid(old | (1 << x), after, cut, rates)
                price[j, old, x, 0] = (a1 - a0) * net_weight[h]
                price[j, old, x, 1] = (b1 - b0) * net_weight[h]
    return price


@inner
def _next_states(keys, time, price, nets, slot, missing, table, max_states):  # type: ignore[no-untyped-def]
    """States after one more class, and for each state before and side: the state it leads to, and the two loads it adds.

    Sides: 1 the first device, 0 the second. The number of states is -1 when there are more than ``max_states``.
    """
    before = len(keys)
    after = np.empty(2 * before, dtype=np.uint64)
    goal = np.empty((before, 2), dtype=np.int64)
    add = np.empty((before, 2, 2))
    count = 0
    for s in range(before):
        for x in range(2):
            key = keys[s]
            add[s, x, 0] = time[0] if x == 1 else 0.0
            add[s, x, 1] = time[1] if x == 0 else 0.0
            for j in range(len(nets)):
                h = nets[j]
                shift = np.uint64(2 * slot[h])
                old = int((key >> shift) & np.uint64(3))
                add[s, x, 0] += price[j, old, x, 0]
                add[s, x, 1] += price[j, old, x, 1]
                if missing[h] == 1:
                    key = key & ~(np.uint64(3) << shift)
                else:
                    key = key | (np.uint64(1 << x) << shift)
            # Open addressing; higher slots are folded onto the low bits, which differ most.
            place = int(key ^ (key >> np.uint64(11)) ^ (key >> np.uint64(23)) ^ (key >> np.uint64(41)))
            place &= len(table) - 1
            while table[place] >= 0 and after[table[place]] != key:
                place = (place + 1) & (len(table) - 1)
            if table[place] < 0:
                if count == max_states:
                    return after, goal, add, -1
                table[place] = count
                after[count] = key
                count += 1
            goal[s, x] = table[place]
    table[:] = -1
    return after, goal, add, count


@inner
def _ways_into(goal, count):  # type: ignore[no-untyped-def]
    """CSR of the steps (state before * 2 + side) that lead to each of ``count`` states."""
    ptr = np.zeros(count + 1, dtype=np.int64)
    for s in range(len(goal)):
        for x in range(2):
            ptr[goal[s, x] + 1] += 1
    for t in range(count):
        ptr[t + 1] += ptr[t]
    way = np.empty(2 * len(goal), dtype=np.int64)
    fill = ptr.copy()
    for s in range(len(goal)):
        for x in range(2):
            way[fill[goal[s, x]]] = 2 * s + x
            fill[goal[s, x]] += 1
    return ptr, way


@inner
def _merge(way_ptr, way, add, first, second, ends, scale, buckets, ceiling, new_first, new_second, step):  # type: ignore[no-untyped-def]
    """Undominated pairs of loads of each state, one a bucket, out of the sorted pairs of all ways into it.

    Fills the two loads and the step (pair before * 2 + side) of each pair; returns where each state's pairs end, and how many
    pairs were looked at.
    """
    count = len(way_ptr) - 1
    most = 0
    for t in range(count):
        most = max(most, way_ptr[t + 1] - way_ptr[t])
    place_of = np.empty(most, dtype=np.int64)
    head = np.empty(most)
    new_ends = np.zeros(count + 1, dtype=np.int64)
    end = 0
    done = 0
    for t in range(count):
        ways = way_ptr[t + 1] - way_ptr[t]
        for w in range(ways):
            s, x = way[way_ptr[t] + w] // 2, way[way_ptr[t] + w] % 2
            place_of[w] = ends[s]
            head[w] = first[ends[s]] + add[s, x, 0] if ends[s] < ends[s + 1] else np.inf
        lowest, bucket = np.inf, -1
        while True:
            best, load = -1, np.inf
            for w in range(ways):
                if head[w] < load:
                    best, load = w, head[w]
            if best < 0 or load > ceiling:
                break
            s, x = way[way_ptr[t] + best] // 2, way[way_ptr[t] + best] % 2
            origin = place_of[best]
            place_of[best] += 1
            head[best] = first[origin + 1] + add[s, x, 0] if origin + 1 < ends[s + 1] else np.inf
            done += 1
            other = second[origin] + add[s, x, 1]
            if other >= lowest or other > ceiling:
                continue
            lowest = other
            k = min(int(load * scale), buckets)
            if k != bucket:
                end += 1
            elif new_first[end - 1] + new_second[end - 1] <= load + other:
                # One pair a bucket, the one with less load in all; the last pair would be lost otherwise.
                lowest = new_second[end - 1]
                continue
            bucket = k
            new_first[end - 1], new_second[end - 1] = load, other
            step[end - 1] = 2 * origin + x
        new_ends[t + 1] = end
    return new_ends, done


@njit
def _divide(  # type: ignore[no-untyped-def]
    both, time, rates, n, net_ptr, net_pin, net_source, net_weight, own_ptr, own, limit, buckets, max_states, effort
):  # fmt: skip
    """Sweep over ``both``: loads of the last state, steps back (origin * 2 + side) with offsets, whether it finished."""
    m = len(both)
    scale = buckets / limit
    ceiling = limit * (1.0 + 1e-12)
    position = np.full(n, -1, dtype=np.int64)
    missing = np.zeros(len(net_weight), dtype=np.int64)  # pins of the two devices that the sweep has not met
    for i in range(m):
        position[both[i]] = i
        for j in range(own_ptr[both[i]], own_ptr[both[i] + 1]):
            missing[own[j]] += 1
    held = missing.copy()
    slot = np.full(len(net_weight), -1, dtype=np.int64)
    free = np.arange(_SLOTS - 1, -1, -1)
    unused = _SLOTS

    keys = np.zeros(1, dtype=np.uint64)
    ends = np.zeros(2, dtype=np.int64)
    ends[1] = 1
    first, second = np.zeros(1), np.zeros(1)
    parent = np.empty(max(16, 2 * m), dtype=np.int64)
    start = np.zeros(m + 2, dtype=np.int64)
    start[1] = 1
    size = 16
    while size < 4 * max_states:
        size *= 2
    table = np.full(size, -1, dtype=np.int64)
    nothing = np.zeros(0)
    done = 0
    for i in range(m):
        nets = own[own_ptr[both[i]] : own_ptr[both[i] + 1]]
        for h in nets:
            if slot[h] < 0:
                if unused == 0:
                    return nothing, nothing, parent, start, False
                unused -= 1
                slot[h] = free[unused]
        price = _step_prices(i, nets, position, held, net_ptr, net_source, net_weight, rates)
        after, goal, add, count = _next_states(keys, time[i], price, nets, slot, missing, table, max_states)
        if count < 0:
            return nothing, nothing, parent, start, False
        for h in nets:
            missing[h] -= 1
            if missing[h] == 0:
                free[unused] = slot[h]
                unused += 1
        way_ptr, way = _ways_into(goal, count)
        room = min(2 * len(first), count * (buckets + 1))
        if start[i + 1] + room > len(parent):
            longer = np.empty(2 * (start[i + 1] + room), dtype=np.int64)
            longer[: start[i + 1]] = parent[: start[i + 1]]
            parent = longer
        new_first, new_second, step = np.empty(room), np.empty(room), parent[start[i + 1] :]
        ends, more = _merge(
            way_ptr, way, add, first, second, ends, scale, buckets, ceiling, new_first, new_second, step
        )
        done += more
        if done > effort:
            return nothing, nothing, parent, start, False
        keys, first, second = after[:count], new_first[: ends[count]], new_second[: ends[count]]
        start[i + 2] = start[i + 1] + ends[count]
    return first.copy(), second.copy(), parent, start, True
