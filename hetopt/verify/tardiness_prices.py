"""Replay of price bounds on makespan plus weighted tardiness of jobs and machines, in integers and without a solver.

A certificate is a dict of plain numbers that some search produced; nothing here trusts it (where they come from:
:mod:`hetopt.algorithms.tardiness_columns`). Value of a plan: Cmax + sum_j w_j T_j + sum_i omega_i tau_i.

**The slots.** Times are counted in slots of ``unit`` seconds and costs in ticks, both powers of two. Processing times, machines'
ready times and costs are rounded down, and nothing is longer than the horizon H, so each plan becomes one of no greater
value: job j done in slot t costs ``late[j, t]``, machine i done in slot t costs ``end[i, t]``, both never falling in t. Slot
numbers stop at 2 H.

**The bound.** The makespan's slots, from those of R, the latest ready time, on, are cut into intervals. Of one interval, let C be
its first slot, or R where that is later, u_j >= 0 prices of the jobs and v_i >= 0 of the machines' ends, sum_i v_i <= ``slot``,
what a slot of Cmax costs. As Cmax is at least C and at least every machine's end E_i, a plan whose makespan lies in the
interval costs at least

    sum_j u_j + (slot - sum_i v_i) C + sum_i min over sequences of i [ sum_{j in it} (late_j - u_j) + end_i(E_i) + v_i E_i ],

with sequences that end within the interval's last slot, and any plan at least the least of the intervals' bounds.
The minimum over all sequences of different jobs is not taken, but that over a larger set, by a dynamic program over the
slot, the last job and a memory: jobs named by the certificate that this sequence is known to contain. Any memory gives a
bound; with a larger one fewer sequences repeat a job. Of sequences that are no better than another, some are left out:
a job that costs at least its price (without it the others are no later), and neighbours whose exchange would cost less, or
as much and put the smaller number first (the machine ends as before). Starts from slot H on are charged less than they
cost: each job at most once, as if it started in H.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MOST_REMEMBERED", "Slots", "cheapest_makespan", "replay_prices", "slots_of"]

MOST_REMEMBERED = 10
"""Most jobs of the memory of one machine and job: each doubles the states."""

_TICKS = 2.0**40  # of the largest sum of costs
_EXACT = 1 << 52  # sums below it are exact in doubles
_MOST_SLOTS = 1 << 16


class Slots(NamedTuple):
    """The rounded instance.

    Attributes
    ----------
    unit, tick
        Seconds of a slot, and cost of a tick: powers of two.
    horizon
        H, in slots.
    length
        (n, m) slots of each job on each machine, -1 where it cannot run.
    ready
        (m,) slots, at most H.
    late
        (n, 2 H + 1) ticks that a job costs when it is done in a slot; whole numbers.
    end
        (m, 2 H + 1) ticks that a machine costs when it is done in a slot; whole numbers.
    slot
        Ticks that each slot of Cmax costs.
    floor
        Ticks of R, the latest ready time.
    """

    unit: float
    tick: float
    horizon: int
    length: NDArray[np.int64]
    ready: NDArray[np.int64]
    late: NDArray[np.float64]
    end: NDArray[np.float64]
    slot: int
    floor: int


def slots_of(
    time: NDArray[np.float64],
    due: NDArray[np.float64],
    weight: NDArray[np.float64],
    ready: NDArray[np.float64],
    machine_due: NDArray[np.float64],
    machine_weight: NDArray[np.float64],
    *,
    unit: float,
    horizon: int,
) -> Slots:
    """Round an instance down to slots of ``unit`` seconds, a power of two, up to ``horizon`` slots.

    The arrays are those of :class:`hetopt.algorithms.tardiness.Shop`: (n, m) times, ``inf`` where a job cannot run, (n,) due
    dates and weights, (m,) ready times, due dates and weights of the machines.

    Raises
    ------
    ValueError
        The unit is no power of two, or the horizon is not from 1 to 65536.
    """
    if not (math.isfinite(unit) and unit > 0 and math.frexp(unit)[0] == 0.5):
        raise ValueError(f"the unit must be a power of two, not {unit!r}")
    if not 1 <= horizon <= _MOST_SLOTS:
        raise ValueError(f"the horizon must be from 1 to {_MOST_SLOTS} slots, not {horizon!r}")
    able = np.isfinite(time)
    length = np.where(able, np.minimum(np.floor(np.where(able, time, 0.0) / unit), horizon), -1).astype(np.int64)
    first = np.minimum(np.floor(ready / unit), horizon).astype(np.int64)
    clock = unit * np.arange(2 * horizon + 1)
    last = float(ready.max(initial=0.0))
    most = max(float(clock[-1]), last) * (1.0 + float(weight.sum()) + float(machine_weight.sum()))
    tick = 2.0 ** math.frexp(most / _TICKS)[1]
    late = _ticks(weight, np.broadcast_to(clock, (len(weight), len(clock))), due, tick)
    end = _ticks(machine_weight, np.maximum(clock, ready[:, None]), machine_due, tick)
    return Slots(unit, tick, horizon, length, first, late, end, math.floor(unit / tick), math.floor(last / tick))


def _ticks(
    weight: NDArray[np.float64], clock: NDArray[np.float64], due: NDArray[np.float64], tick: float
) -> NDArray[np.float64]:
    """(k, slots) ticks of weight * max(0, clock - due), rounded down and never falling with the clock.

    The difference and the product are each rounded once, which the factor makes up for.
    """
    cost = weight[:, None] * np.maximum(0.0, clock - due[:, None]) / tick * (1 - 2.0**-50)
    return np.maximum.accumulate(np.floor(cost), axis=1)


def replay_prices(certificate: Mapping[str, Any], *facts: ArrayLike) -> float:
    """The bound that a certificate proves; ``facts`` are the six arrays of :func:`slots_of`.

    Raises
    ------
    ValueError
        The certificate is damaged, or speaks about another instance.

    Notes
    -----
    For each interval and machine O(slots * states * jobs) array work, where a job has 2^(its memory) states and counts only
    while its price is above its cost.
    """
    arrays = [np.asarray(fact, np.float64) for fact in facts]
    try:
        slots = slots_of(*arrays, unit=float(certificate["unit"]), horizon=int(certificate["horizon"]))
        memory = [[[int(k) for k in row] for row in machine] for machine in certificate["memory"]]
        intervals = [
            (
                int(one["first"]),
                None if one["last"] is None else int(one["last"]),
                np.array([int(p) for p in one["price"]], np.int64),
                np.array([int(p) for p in one["end_price"]], np.int64),
            )
            for one in certificate["intervals"]
        ]
        tick = float(certificate["tick"])
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"the machine-prices certificate is damaged: {error!r}") from error
    n, m = slots.length.shape
    if tick != slots.tick or len(memory) != m or any(p.shape != (n,) or e.shape != (m,) for _, _, p, e in intervals):
        raise ValueError("the machine-prices certificate does not fit this instance")
    _check_memory(memory, n)
    firsts, lasts = [int(slots.ready.max()), *(one[0] for one in intervals)], [one[1] for one in intervals]
    follow = all(last is not None and last + 1 == first for last, first in zip(lasts, firsts[2:], strict=False))
    if not intervals or firsts[1] > firsts[0] or lasts[-1] is not None or not follow:
        raise ValueError("the machine-prices certificate leaves out some makespans")
    least = min(_interval(slots, first, last, price, end, memory) for first, last, price, end in intervals)
    return math.ldexp(least, math.frexp(slots.tick)[1] - 1)


def _check_memory(memory: list[list[list[int]]], n: int) -> None:
    for i, rows in enumerate(memory):
        good = len(rows) in (0, n) and all(
            len(set(row)) == len(row) <= MOST_REMEMBERED and all(0 <= k < n for k in row) for row in rows
        )
        if not good:
            raise ValueError(f"the machine-prices certificate has a damaged memory for machine {i}")


def _interval(
    slots: Slots,
    first: int,
    last: int | None,
    price: NDArray[np.int64],
    end: NDArray[np.int64],
    memory: list[list[list[int]]],
) -> int:
    """Ticks that each plan whose makespan lies in the interval costs at least."""
    if (price < 0).any() or (end < 0).any() or int(end.sum()) > slots.slot:
        raise ValueError(
            "the machine-prices certificate has a negative price, or ends that cost more than the makespan"
        )
    if (int(price.max(initial=0)) + slots.slot) * 2 * slots.horizon > _EXACT:
        raise ValueError("the machine-prices certificate has prices too large for exact sums")
    total = int(price.sum()) + cheapest_makespan(slots, first, int(end.sum()))
    for i in range(len(end)):
        least = _least(slots, i, price.astype(np.float64), float(end[i]), memory[i], last)
        if least == math.inf:  # no sequence ends in time, so there is no such plan
            return 1 << 62
        total += int(least)
    return total


def cheapest_makespan(slots: Slots, first: int, charged: int) -> int:
    """Ticks of a makespan of slot ``first`` or R, whichever is later, of which ``charged`` a slot are charged elsewhere."""
    if not slots.slot:
        return 0
    return (slots.slot - charged) * max(slots.floor, first * slots.slot) // slots.slot


def _least(
    slots: Slots, i: int, price: NDArray[np.float64], end_price: float, memory: list[list[int]], latest: int | None
) -> float:
    """Least ticks of the sequences of machine i that end by slot ``latest``: a plain twin of the pricing kernel."""
    n = len(price)
    length, first, horizon = slots.length[:, i], int(slots.ready[i]), slots.horizon
    net = slots.late - price[:, None]  # (n, slots), never falling along a row
    ends = slots.end[i] + end_price * np.arange(2 * horizon + 1)
    # Jobs of no length hold up nobody: each is worth at most what it is worth at once.
    short = np.flatnonzero(length == 0)
    extra = float(np.minimum(0.0, net[short, first]).sum())
    long = np.flatnonzero((length > 0) & (net[np.arange(n), np.minimum(first + length, 2 * horizon)] < 0))
    tail = float(np.minimum(0.0, net[long, horizon + length[long]]).sum())
    jobs = long.tolist()
    kept = {j: [k for k in memory[j] if k in set(jobs)] if memory else [] for j in jobs}
    states = [(j, frozenset(s)) for j in jobs for s in _subsets(kept[j])]
    number = {state: s for s, state in enumerate(states)}
    last = np.array([j for j, _ in states], np.int64)
    follow = np.full((len(states), len(jobs)), -1, np.int64)
    for s, (j, seen) in enumerate(states):
        for c, k in enumerate(jobs):
            if k != j and k not in seen:
                follow[s, c] = number[k, (seen | {j}) & frozenset(kept[k])]
    value = np.full((2 * horizon + 1, len(states)), np.inf)
    if first < horizon:
        for k in jobs:
            value[first + length[k], number[k, frozenset()]] = net[k, first + length[k]]
    for t in range(first + 1, horizon):
        here = np.flatnonzero(np.isfinite(value[t]))
        if not here.size:
            continue
        own, done = last[here][:, None], t + length[long]
        add, to = net[long, done], follow[here]
        stay = net[own, t] + add
        swapped = net[long, t - length[own] + length[long]] + net[own, done]
        good = (to >= 0) & (add < 0) & ((stay < swapped) | ((stay == swapped) & (own < long)))
        row, column = np.nonzero(good)
        np.minimum.at(value, (done[column], to[row, column]), value[t, here[row]] + add[column])
    least = value.min(axis=1, initial=np.inf) + ends
    least[first] = ends[first]
    least[horizon:] += tail
    if latest is not None:
        least[latest + 1 :] = np.inf
    return extra + float(least.min())


def _subsets(items: list[int]) -> list[list[int]]:
    """All subsets, in an order that depends on nothing but the list."""
    return [[k for b, k in enumerate(items) if mask >> b & 1] for mask in range(1 << len(items))]
