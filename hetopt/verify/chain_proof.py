"""Refute that any plan of a sequence of layers is better, in exact numbers: the replay of a chain's bounds.

"No plan has a busiest device below T" or "no plan has room for N tokens", by walking through all sets of used devices. What it is
not: an optimiser; it shares nothing with the programs of :mod:`hetopt.algorithms`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.verify.chain import ChainRules, Exact, alike, all_ways, exact, layer_sequence

__all__ = ["possible"]

MOST_STEPS = 3_000_000  # of a replay, a few seconds


def possible(instance: Instance, rules: ChainRules, *, below: float | None = None) -> bool:
    """Whether some plan keeps the rules, with every device and transfer busy for less than ``below`` seconds.

    Walks through the states "these devices are used, this one last" and the set of boundaries each can be at.

    Raises
    ------
    ValueError
        The tasks form no sequence, or there are more than a few million steps to walk.
    """
    sequence = layer_sequence(instance)
    if sequence is None:
        raise ValueError("the tasks do not form one sequence")
    return _Walk(instance, sequence, rules, below).succeeds()


class _Walk:
    def __init__(self, instance: Instance, sequence: NDArray[np.int64], rules: ChainRules, below: float | None) -> None:
        self.instance, self.rules, self.below = instance, rules, below
        self.n = len(sequence)
        d = instance.n_devices
        self.members: list[list[int]] = []
        for device in range(d):
            for group in self.members if rules.order is None else ():
                label = instance.devices[device].type == instance.devices[group[0]].type is not None
                if (label or rules.replicas == 1) and alike(instance, group[0], device):
                    group.append(device)
                    break
            else:
                self.members.append([device])
        known: dict[tuple[bytes, float], tuple[list[int], list[_Sum]]] = {}
        self.limits: list[tuple[list[int], list[_Sum]]] = []
        for device in (group[0] for group in self.members):
            key = (instance.time[:, device].tobytes(), float(instance.capacity[device]))
            if key not in known:
                known[key] = self._run(instance.time[sequence, device]), self._sums(device, sequence)
            self.limits.append(known[key])
        cut = instance.columns.cut[sequence].tolist()
        self.cuts = sum(1 << p for p in range(1, self.n) if cut[p - 1]) | 1 << self.n
        group_of = instance.group[sequence].tolist()
        for g in sorted(set(group_of) - {-1}):
            inside = [k for k, other in enumerate(group_of) if other == g]
            self.cuts &= ~sum(1 << p for p in range(inside[0] + 1, inside[-1] + 1))
        pair = {
            tuple(edge): float(size) for edge, size in zip(instance.edges.tolist(), instance.edge_data, strict=True)
        }
        order = sequence.tolist()
        self.data = [0.0, *(pair[one] for one in pairwise(order)), 0.0]
        self.open: dict[tuple[float, float | None] | None, int] = {}

    def _run(self, time: NDArray[np.float64]) -> list[int]:
        """(n,) first layer from each start on that cannot run on a device."""
        stop, runs = self.n, [0] * self.n
        for k in range(self.n - 1, -1, -1):
            stop = stop if math.isfinite(time[k]) else k
            runs[k] = stop
        return runs

    def _sums(self, device: int, sequence: NDArray[np.int64]) -> list[_Sum]:
        """What must not add up to too much on a device."""
        rules, instance = self.rules, self.instance
        kv = exact(instance.columns.kv_bytes_per_token[sequence]) if rules.tokens else [0] * self.n
        need = [m + rules.tokens * c for m, c in zip(exact(instance.memory[sequence]), kv, strict=True)]
        time = instance.time[sequence, device]
        seconds = exact(np.where(np.isfinite(time), time, 0.0))
        limits = ((need, float(instance.capacity[device]), False, False), (seconds, rules.period, False, True),
                  (seconds, self.below, True, True))  # fmt: skip
        return [
            _Sum(amounts, Fraction(most), strict, shared)
            for amounts, most, strict, shared in limits
            if most is not None and not math.isinf(most)
        ]

    def _end(self, k: int, copies: int, start: int) -> int:
        """Furthest end of a stage on devices of group ``k``; its start when it cannot hold a layer."""
        run, sums = self.limits[k]
        return min([run[start], *(one.furthest(start, copies) for one in sums)])

    def _passable(self, a: int, b: int) -> int:
        """Boundaries at which device ``a`` can pass on to device ``b``, as bits."""
        way = all_ways(self.instance)[a][b]
        if way not in self.open:
            bits = 0
            for p, size in enumerate(self.data):
                seconds = 0.0 if way is None else way[0] + (size / way[1] if way[1] is not None else 0.0)
                late = self.rules.period is not None and seconds > self.rules.period
                late = late or (self.below is not None and seconds >= self.below)
                if not late and (way is not None or not size):
                    bits |= 1 << p
            self.open[way] = bits
        return self.open[way]

    def succeeds(self) -> bool:
        """Walk through the states, fewest used devices (or earliest in the order) first."""
        d, goal, steps = self.instance.n_devices, 1 << self.n, 0
        links = {self._passable(a, b) for a in range(d) for b in range(d) if a != b}
        # Where every boundary can be passed and devices may stay empty, being further on is never worse.
        furthest = self.rules.empty and all(bits == (2 << self.n) - 1 for bits in links)
        blind = furthest and self.rules.order is None
        states: list[dict[tuple[tuple[int, ...], int], int]] = [{} for _ in range(d + 1)]
        states[0][(0,) * len(self.members) if self.rules.order is None else (), -1] = 1
        for rank in range(d + 1):
            for (used, last), bits in states[rank].items():
                for k, r, now, to in self._moves(used, last):
                    starts = bits
                    if last >= 0:
                        one, other = self.members[last][0], self.members[k][0] if k != last else self.members[k][-1]
                        starts &= self._passable(one, other)
                    reached = 0
                    for q in _bits(starts):
                        reached |= (2 << self._end(k, r, q)) - (2 << q)
                        steps += 1
                    if steps > MOST_STEPS:
                        raise ValueError("the proof is too long to be replayed")
                    reached &= self.cuts
                    if reached & goal and (self.rules.empty or to == d):
                        return True
                    key = (now, -1 if blind else k)
                    both = states[to].get(key, 0) | (reached & ~goal)
                    if both:
                        states[to][key] = 1 << both.bit_length() - 1 if furthest else both
            states[rank] = {}
        return False

    def _moves(self, used: tuple[int, ...], last: int) -> list[tuple[int, int, tuple[int, ...], int]]:
        """Group of devices that may hold the next stage, how many of them, devices used then, and the rank of that state."""
        if self.rules.order is None:
            room = [len(group) - u for group, u in zip(self.members, used, strict=True)]
            choices = [(k, r) for k, most in enumerate(room) for r in range(1, min(most, self.rules.replicas) + 1)]
            return [(k, r, (*used[:k], used[k] + r, *used[k + 1 :]), sum(used) + r) for k, r in choices]
        at = self.rules.order.index(last) + 1 if last >= 0 else 0
        rest = range(at, len(self.rules.order) if self.rules.empty else min(at + 1, len(self.rules.order)))
        return [(self.rules.order[place], 1, (), place + 1) for place in rest]


class _Sum:
    """Amounts of the layers that may add up to at most ``most`` on a device (to less, when ``strict``)."""

    def __init__(self, amounts: list[Exact], most: Fraction, strict: bool, shared: bool) -> None:
        unit = max(amount.denominator for amount in (*amounts, most))  # powers of two: the largest serves all
        self.total = [0, *accumulate(int(amount * unit) for amount in amounts)]
        self.most, self.shared = int(most * unit), shared
        self.find = bisect_left if strict else bisect_right

    def furthest(self, start: int, copies: int) -> int:
        """Furthest end of a stage that ``copies`` devices share; memory is not shared but needed by each."""
        limit = self.most * copies if self.shared else self.most
        return max(start, self.find(self.total, self.total[start] + limit) - 1)


def _bits(number: int) -> list[int]:
    """Numbers of the bits that are set, in order."""
    if number.bit_count() <= 8:  # long numbers of few bits: the text would be as long as the number
        found = []
        while number:
            lowest = number & -number
            found.append(lowest.bit_length() - 1)
            number ^= lowest
        return found
    text = bin(number)[:1:-1]
    return [k for k, bit in enumerate(text) if bit == "1"]
