"""The cheapest sequences of one machine under prices of jobs, for makespan plus weighted tardiness.

The dynamic program of :mod:`hetopt.verify.tardiness_prices`, whose mathematics and rounded instance
(:class:`~hetopt.verify.tardiness_prices.Slots`) this module uses: over the slot, the last job, and which of the jobs that it
remembers the sequence contains. All costs are whole ticks in doubles, so sums are exact. Sequences may repeat a job that
was forgotten in between; :meth:`Pricer.remember` forbids it. Which prices are good is not this module's business.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.verify.tardiness_prices import MOST_REMEMBERED, Slots

__all__ = ["Priced", "Pricer", "Sequence"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_NEAR = 400  # most sequences that are taken because they are near the least


class Sequence(NamedTuple):
    """Jobs of one machine in order, their cost with the machine's own delay in ticks, and the slot in which it is done."""

    machine: int
    jobs: tuple[int, ...]
    cost: float
    end: int


class Priced(NamedTuple):
    """Least ticks of any sequence of a machine beside prices, and some of the cheapest sequences found."""

    least: float
    sequences: list[Sequence]


class Pricer:
    """Machine ``machine`` of a rounded instance, with a memory for each job that may be the last one."""

    def __init__(self, slots: Slots, machine: int) -> None:
        self._slots, self.machine = slots, machine
        self._length = np.ascontiguousarray(slots.length[:, machine])
        self._first = int(slots.ready[machine])
        self._memory = np.full((len(self._length), MOST_REMEMBERED), -1, np.int64)

    @property
    def memory(self) -> list[list[int]]:
        """For each job, the jobs remembered while it is the last one; empty when no job remembers any."""
        rows = [[k for k in row if k >= 0] for row in self._memory.tolist()]
        return rows if any(rows) else []

    def remember(self, jobs: tuple[int, ...]) -> bool:
        """Remember each job that a sequence repeats for as long as it takes to forbid it; whether anything was new."""
        new, seen = False, dict[int, int]()
        for place, job in enumerate(jobs):
            between = jobs[seen[job] + 1 : place] if job in seen else ()
            missing = [k for k in between if job not in self._memory[k]]
            if all(self._memory[k, -1] < 0 for k in missing):
                for k in missing:
                    if job not in self._memory[k]:
                        self._memory[k, np.argmin(self._memory[k])] = job
                        new = True
            seen[job] = place
        return new

    def allows(self, jobs: tuple[int, ...]) -> bool:
        """Whether the memory lets a sequence pass."""
        known: set[int] = set()
        for job in jobs:
            if job in known:
                return False
            known = (known & set(self._memory[job].tolist())) | {job}
        return True

    def sequence(self, jobs: tuple[int, ...]) -> Sequence:
        """The sequence of these jobs with its cost; jobs that would start at the horizon or later are charged as if then."""
        clock, cost = self._first, 0.0
        for job in jobs:
            clock = min(clock, self._slots.horizon) + int(self._length[job])
            cost += float(self._slots.late[job, clock])
        return Sequence(self.machine, jobs, cost + float(self._slots.end[self.machine, clock]), clock)

    def price(self, price: Floats, end_price: float, latest: int | None, most: int, within: float = 0.0) -> Priced:
        """The least of cost - prices of the jobs + ``end_price`` times the end, and up to ``most`` sequences near it.

        Parameters
        ----------
        price
            (n,) whole ticks >= 0 of the jobs.
        end_price
            Whole ticks >= 0 of a slot of the machine's end.
        latest
            Last slot in which the machine may be done; None for no limit.
        most
            Most sequences; each ends with another job. The empty one comes on top.
        within
            Where positive, also the best sequence into each state and slot, if it is at most so many ticks above the least
            and repeats no job.

        Returns
        -------
        Priced
            With a ``least`` of infinity when the machine is not even free by ``latest``.

        Notes
        -----
        O(H (k^2 + k S)) for k jobs that are worth their price somewhere and S states, 2^(its memory) for each of them.
        """
        slots, length, first, horizon = self._slots, self._length, self._first, self._slots.horizon
        width = 2 * horizon + 1
        ends = slots.end[self.machine] + end_price * np.arange(width)
        short = np.flatnonzero(length == 0)
        extra = float(np.minimum(0.0, slots.late[short, first] - price[short]).sum())
        soonest = np.minimum(first + np.maximum(length, 0), 2 * horizon)
        jobs = np.flatnonzero((length > 0) & (slots.late[np.arange(len(length)), soonest] < price))
        tail = float(np.minimum(0.0, slots.late[jobs, horizon + length[jobs]] - price[jobs]).sum())
        ends[horizon:] += tail
        if latest is not None:
            ends[latest + 1 :] = np.inf
        at_once = tuple(short[slots.late[short, first] < price[short]].tolist())
        found = [self.sequence(at_once)] if np.isfinite(ends[first]) else []
        if first >= horizon or not len(jobs):
            return Priced(extra + float(ends[first]), found)
        place = np.full(len(length) + 1, -1, np.int64)
        place[jobs] = np.arange(len(jobs))
        memory = place[self._memory[jobs]]  # -1, no job, stays -1
        net = slots.late[jobs] - price[jobs][:, None]
        value, before, owner = _sequences(net, length[jobs], first, horizon, memory)
        total = value + ends[:, None]
        least = float(ends[first])
        best, at = total.min(axis=0), total.argmin(axis=0)
        least = min(least, float(best.min()))
        taken: set[int] = set()
        for s in np.argsort(best, kind="stable").tolist():
            last = int(owner[s])
            if len(taken) == most or not np.isfinite(best[s]):
                break
            if last not in taken:
                taken.add(last)
                path = _traced(before, owner, length[jobs], int(at[s]), s)
                found.append(self.sequence(at_once + tuple(jobs[path[::-1]].tolist())))
        if within > 0:
            near = np.argwhere(total <= least + within)
            for t, s in near[np.argsort(total[tuple(near.T)], kind="stable")[:_NEAR]].tolist():
                path = _traced(before, owner, length[jobs], t, s)
                if len(set(path)) == len(path):
                    found.append(self.sequence(at_once + tuple(jobs[path[::-1]].tolist())))
        return Priced(extra + least, found)


def _traced(before: NDArray[np.int32], owner: Ints, length: Ints, t: int, s: int) -> list[int]:
    """Jobs of the path into state ``s`` at slot ``t``, last one first."""
    path = []
    while s >= 0:
        path.append(int(owner[s]))
        t, s = t - int(length[owner[s]]), int(before[t, s])
    return path


@njit
def _sequences(net, length, first, horizon, memory):  # type: ignore[no-untyped-def]
    """Least net cost of the sequences into each (slot, state), the state before, and the last job of each state.

    A state is a job with a subset of its memory, whose bits number the row's entries; jobs that are not priced are -1.
    """
    k, width = net.shape
    most = memory.shape[1]
    bits = np.zeros(k, np.int64)
    kept = np.full((k, most), -1, np.int64)
    for j in range(k):
        for b in range(most):
            if memory[j, b] >= 0:
                kept[j, bits[j]] = memory[j, b]
                bits[j] += 1
    offset = np.zeros(k + 1, np.int64)
    for j in range(k):
        offset[j + 1] = offset[j] + (1 << bits[j])
    states = offset[k]
    owner = np.empty(states, np.int64)
    follow = np.full((states, k), -1, np.int64)
    seen = np.zeros(k, np.bool_)
    for j in range(k):
        for mask in range(1 << bits[j]):
            s = offset[j] + mask
            owner[s] = j
            seen[:] = False
            seen[j] = True
            for b in range(bits[j]):
                if (mask >> b) & 1:
                    seen[kept[j, b]] = True
            for c in range(k):
                if not seen[c]:
                    new = 0
                    for b in range(bits[c]):
                        if seen[kept[c, b]]:
                            new |= 1 << b
                    follow[s, c] = offset[c] + new
    value = np.full((width, states), np.inf)
    before = np.full((width, states), -1, np.int32)
    alive = np.zeros((width, k), np.bool_)
    for c in range(k):
        value[first + length[c], offset[c]] = net[c, first + length[c]]
        alive[first + length[c], c] = True
    for t in range(first + 1, horizon):
        for j in range(k):
            if not alive[t, j]:
                continue
            for c in range(k):
                e = t + length[c]
                if c == j or net[c, e] >= 0:
                    continue
                stay = net[j, t] + net[c, e]
                swapped = net[c, t - length[j] + length[c]] + net[j, e]
                if stay > swapped or (stay == swapped and j > c):
                    continue
                for s in range(offset[j], offset[j + 1]):
                    to = follow[s, c]
                    total = value[t, s] + net[c, e]
                    if to >= 0 and total < value[e, to]:
                        value[e, to] = total
                        before[e, to] = s
                        alive[e, c] = True
    return value, before, owner
