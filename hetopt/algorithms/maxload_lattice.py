"""Compiled step of the max-load dynamic program on all ideals of a graph: the stages that may follow a given ideal.

What it is for: :mod:`hetopt.algorithms.maxload_layers` calls it layer by layer. What it is not: it chooses no windows and keeps
no layers.

Ideals are taken in the order of their worth, so that those in a window follow each other. The ideals above I are those
that hold all classes at the upper end of I: with a row of bits for each class (which ideals hold it), 64 of them are found
at once. A stage ``J \\ I`` pays

    load(J) - load(I) + sum of arrive[h] over nets h that I cuts and the stage touches
                      + sum of leave[h] over nets h that I cuts and J holds all of,

where load(J) is what J pays as one stage: a net that I does not cut costs the stage what it costs J; for one that I cuts
and the stage does not touch the first two terms cancel; one that the stage touches has to be received, or, when the source
comes with the stage, sent, while I paid for the other of the two, and what J pays for sending is missing when J holds it all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.ideals import Ideals
from hetopt.algorithms.jit import njit
from hetopt.algorithms.stagecosts import NEVER, StageCosts

__all__ = ["Lattice", "expand_lattice", "lattice_of"]

_STEPS = 5_000_000  # of one kernel call, some hundredths of a second
_PLACE = np.zeros(67, np.int64)  # 2^b mod 67 differs for all b < 64
_PLACE[[pow(2, b, 67) for b in range(64)]] = np.arange(64)


class Lattice(NamedTuple):
    """``N`` ideals in the order of ``key``, the empty set first and the full set last.

    Attributes
    ----------
    key
        (N,) ascending; at most rounding apart from a sum over the members that is never negative.
    words
        (N, ceil(n / 64)) members.
    load, stuck, held
        (t, 2, N) load of the ideal as one stage in each pass, without (t, N) members that cannot run; (N,) their size.
    heir
        (n,) a class above each class, n where there is none.
    row, made
        (n, ceil(N / 64)) bits of the ideals that hold each class, once (n,) they are made.
    """

    key: NDArray[np.float64]
    words: NDArray[np.uint64]
    load: NDArray[np.int64]
    stuck: NDArray[np.int32]
    held: NDArray[np.int64]
    heir: NDArray[np.int64]
    row: NDArray[np.uint64]
    made: NDArray[np.bool_]

    def members(self, ideal: int) -> NDArray[np.int64]:
        """Classes of an ideal, ascending."""
        bits = np.unpackbits(self.words[ideal].astype("<u8").view(np.uint8), bitorder="little")
        return np.flatnonzero(bits)


def lattice_of(
    ideals: Ideals,
    number: NDArray[np.int64],
    key: NDArray[np.float64],
    costs: StageCosts,
    size: NDArray[np.int64],
    heir: NDArray[np.int64],
    should_stop: Callable[[], bool] = lambda: False,
) -> Lattice | None:
    """Tables of the ideals ``number`` (N,) in that order, of ascending ``key`` (N,); None when stopped.

    The key must grow with the set, up to rounding. O(N (nets of a class) t).
    """
    types, _, n = costs.time.shape
    load = np.zeros((types, 2, len(key)), np.int64)
    stuck, held = np.zeros((types, len(key)), np.int32), np.zeros(len(key), np.int64)
    done = 1
    while done < len(key):
        if should_stop():
            return None
        done = int(_loads(ideals.words, ideals.parent, ideals.last, done, _STEPS, costs, size, load, stuck, held))
    return Lattice(
        key,
        ideals.words[number],
        np.ascontiguousarray(load[:, :, number]),
        np.ascontiguousarray(stuck[:, number]),
        held[number],
        heir,
        np.zeros((n, -(-len(key) // 64)), np.uint64),
        np.zeros(n, np.bool_),
    )


@njit
def _holds(words, ideal, v):  # type: ignore[no-untyped-def]
    return (words[ideal, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) != 0


@njit
def _loads(words, parent, last, first, budget, costs, size, load, stuck, held):  # type: ignore[no-untyped-def]
    """Loads of ideals from number ``first`` on, each from its parent's; returns the first one not done."""
    types = len(stuck)
    steps = 0
    i = first
    while i < len(last) and steps < budget:
        before = parent[i]
        v = last[i]
        held[i] = held[before] + size[v]
        for t in range(types):
            stuck[t, i] = stuck[t, before]
            if costs.time[t, 0, v] >= NEVER or costs.time[t, 1, v] >= NEVER:
                stuck[t, i] += 1
            for p in range(2):
                load[t, p, i] = load[t, p, before]
                if costs.time[t, p, v] < NEVER:
                    load[t, p, i] += costs.time[t, p, v]
        steps += 1
        for q in range(costs.in_ptr[v], costs.in_ptr[v + 1]):
            h = costs.in_net[q]
            some = False
            more = False
            for r in range(costs.net_ptr[h], costs.net_ptr[h + 1]):
                w = costs.net_pin[r]
                steps += 1
                if w != v:
                    if _holds(words, before, w):
                        some = True
                    else:
                        more = True
                    if some and more:
                        break
            sent = some and _holds(words, before, costs.net_source[h])
            p = costs.net_pass[h]
            for t in range(types):
                if some:
                    load[t, p, i] -= costs.leave[t, h] if sent else costs.arrive[t, h]
                if more:
                    sends = sent or costs.net_source[h] == v
                    load[t, p, i] += costs.leave[t, h] if sends else costs.arrive[t, h]
        i += 1
    return i


@njit
def _row(lattice, v):  # type: ignore[no-untyped-def]
    """Make the row of a class; returns the steps taken."""
    if lattice.made[v]:
        return 0
    number = len(lattice.key)
    q, shift = v >> 6, np.uint64(v & 63)
    for w in range(lattice.row.shape[1]):
        bits = np.uint64(0)
        for j in range(64 * w, min(64 * w + 64, number)):
            bits |= ((lattice.words[j, q] >> shift) & np.uint64(1)) << np.uint64(j & 63)
        lattice.row[v, w] = bits
    lattice.made[v] = True
    return number


@njit
def _upper_end(lattice, start, found):  # type: ignore[no-untyped-def]
    """Members of an ideal among which are all those without a member above; returns their number and the steps taken."""
    count = 0
    steps = len(lattice.heir)
    for v in range(len(lattice.heir)):
        if _holds(lattice.words, start, v):
            heir = lattice.heir[v]
            if heir == len(lattice.heir) or not _holds(lattice.words, start, heir):
                steps += _row(lattice, v)
                found[count] = v
                count += 1
    return count, steps


@njit
def _cut_nets(lattice, costs, kind, start, net, outside, ptr):  # type: ignore[no-untyped-def]
    """Nets that an ideal cuts and a device of the kind pays for, with their pins outside; their number and the steps."""
    count = 0
    pins = 0
    steps = len(costs.net_pass)
    for h in range(len(costs.net_pass)):
        if costs.arrive[kind, h] == 0 and costs.leave[kind, h] == 0:
            continue
        before = pins
        for r in range(costs.net_ptr[h], costs.net_ptr[h + 1]):
            v = costs.net_pin[r]
            if not _holds(lattice.words, start, v):
                outside[pins] = v
                pins += 1
        steps += costs.net_ptr[h + 1] - costs.net_ptr[h]
        if before < pins < before + costs.net_ptr[h + 1] - costs.net_ptr[h]:
            for r in range(before, pins):
                steps += _row(lattice, outside[r])
            net[count] = h
            count += 1
            ptr[count] = pins
        else:
            pins = before
    return count, steps


@njit
def expand_lattice(entries, values, first, kind, budget, costs, limits, lattice, potential, reached):  # type: ignore[no-untyped-def]
    """Lower the best value of each ideal that a stage on a device of type ``kind`` makes from ``entries[first:]``.

    ``values`` are those of the entries. Returns the first entry not expanded.
    """
    number = len(lattice.key)
    full = number - 1
    cap0, cap1, cap, room, which = limits.cap[0], limits.cap[1], limits.cap[2], limits.room[0], limits.which[0]
    rows = len(limits.low)
    window = rows - 2  # the row of the potential that the key is
    slack = 1e-9 * abs(lattice.key[full]) + 1e-9
    best, key = reached.best, lattice.key
    load0, load1, stuck, held = lattice.load[kind, 0], lattice.load[kind, 1], lattice.stuck[kind], lattice.held
    nets = len(costs.net_pass)
    upper, net = np.empty(len(lattice.heir), np.int64), np.empty(nets, np.int64)
    outside, ptr = np.empty(len(costs.net_pin), np.int64), np.zeros(nets + 1, np.int64)
    touched, closed = np.empty(nets, np.uint64), np.empty(nets, np.uint64)
    zero, one, ones = np.uint64(0), np.uint64(1), ~np.uint64(0)
    steps = 0
    entry = first
    while entry < len(entries) and steps < budget:
        start = entries[entry]
        value = values[entry]
        useful = value <= (cap0 if which == 0 else cap1)
        for k in range(rows):
            if potential[start, k] + limits.gain[k] < limits.low[k]:
                useful = False
        steps += 1
        if not useful:
            entry += 1
            continue
        low = full
        high = number
        if limits.whole[0] == 0:
            low = np.searchsorted(key, max(limits.low[window], key[start] - slack), side="left")
            high = np.searchsorted(key, min(limits.high[window], key[start] + limits.gain[window]), side="right")
        if low >= high:
            entry += 1
            continue
        ends, more = _upper_end(lattice, start, upper)
        steps += more
        cuts = -1
        for w in range(low >> 6, ((high - 1) >> 6) + 1):
            bits = ones
            for k in range(ends):
                bits &= lattice.row[upper[k], w]
            if w == low >> 6:
                bits &= ones << np.uint64(low & 63)
            if w == high >> 6:
                bits &= ~(ones << np.uint64(high & 63))
            if w == start >> 6:
                bits &= ~(one << np.uint64(start & 63))
            steps += ends + 1
            looked = False
            while bits != zero:
                lowest = bits ^ (bits & (bits - one))
                bits ^= lowest
                j = (w << 6) + _PLACE[lowest % np.uint64(67)]
                steps += 1
                if best[j] <= value or stuck[j] != stuck[start] or held[j] - held[start] > room:
                    continue
                pays0 = load0[j] - load0[start]
                pays1 = load1[j] - load1[start]
                if pays0 > cap0 or pays1 > cap1 or pays0 + pays1 > cap:
                    continue
                if cuts < 0:
                    cuts, more = _cut_nets(lattice, costs, kind, start, net, outside, ptr)
                    steps += more
                if not looked:
                    looked = True
                    for k in range(cuts):
                        some = zero
                        all_of = ones
                        for r in range(ptr[k], ptr[k + 1]):
                            some |= lattice.row[outside[r], w]
                            all_of &= lattice.row[outside[r], w]
                        touched[k] = some
                        closed[k] = all_of
                    steps += ptr[cuts]
                for k in range(cuts):
                    if touched[k] & lowest != zero:
                        h = net[k]
                        pays = costs.arrive[kind, h]
                        if closed[k] & lowest != zero:
                            pays += costs.leave[kind, h]
                        if costs.net_pass[h] == 0:
                            pays0 += pays
                        else:
                            pays1 += pays
                steps += cuts
                worst = max(pays0 if which == 0 else pays1, value)
                if worst < best[j] and pays0 <= cap0 and pays1 <= cap1 and pays0 + pays1 <= cap:
                    fits = True
                    for k in range(rows):
                        if potential[j, k] < limits.low[k] or potential[j, k] > limits.high[k]:
                            fits = False
                    if fits:
                        best[j] = worst
                        reached.back[j] = entry
                        reached.kind[j] = kind
        entry += 1
    return entry
