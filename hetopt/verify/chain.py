"""Check a plan that cuts a sequence of layers into stages on devices, and refute that any plan is better, in exact numbers.

What it is for: the value of a plan and every constraint it breaks, from the instance's own facts; and the replay of a bound,
"no plan has a busiest device below T" or "no plan has room for N tokens", by walking through all sets of used devices. What it
is not: an optimiser. It shares nothing with the programs of :mod:`hetopt.algorithms`; sums are Python integers or fractions.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.verify.assignment import placement_violations

__all__ = ["ChainReport", "ChainRules", "alike", "check_chain", "layer_sequence", "possible"]

Exact = int | Fraction
MOST_STEPS = 3_000_000  # of a replay, a few seconds


@dataclass(frozen=True)
class ChainRules:
    """What a plan must keep.

    Attributes
    ----------
    order
        Device numbers in the order in which stages must use them; None when any order will do.
    empty
        Whether devices may stay empty.
    replicas
        Largest number of devices that share a stage.
    period
        Most seconds a device or transfer may be busy for one input; None without limit.
    tokens
        Tokens for which every stage must have KV cache beside its weights.
    block
        Tokens come in blocks of this size.
    """

    order: tuple[int, ...] | None = None
    empty: bool = True
    replicas: int = 1
    period: float | None = None
    tokens: int = 0
    block: int = 1


@dataclass(frozen=True)
class ChainReport:
    """What a plan amounts to.

    Attributes
    ----------
    stages
        Devices of each stage, in the order of the layers.
    layers
        Number of layers of each stage.
    load
        Seconds each device of a stage is busy for one input: its layers' time over its number of devices.
    transfer
        Seconds to pass on between each stage and the next one.
    latency
        Seconds one input takes from end to end: all layers and all transfers; replicas do not shorten it.
    room
        Tokens that each stage has KV cache for, in whole blocks; None where its layers keep none.
    memory
        Bytes of weights of each stage.
    violations
        One sentence each; empty when the plan is valid.
    """

    stages: tuple[tuple[int, ...], ...] = ()
    layers: tuple[int, ...] = ()
    load: tuple[float, ...] = ()
    transfer: tuple[float, ...] = ()
    latency: float = math.inf
    room: tuple[int | None, ...] = ()
    memory: tuple[float, ...] = ()
    violations: tuple[str, ...] = ()

    @property
    def bottleneck(self) -> float:
        """Seconds between two results of a full pipeline: its busiest device or transfer."""
        return max((*self.load, *self.transfer), default=math.inf)

    @property
    def tokens(self) -> float:
        """Most tokens that all stages have KV cache for; ``inf`` when none keeps any."""
        return min((room for room in self.room if room is not None), default=math.inf)


@lru_cache(maxsize=8)
def layer_sequence(instance: Instance) -> NDArray[np.int64] | None:
    """(n,) task numbers in the order of the edges; None when the tasks do not form one path."""
    n, edges = instance.n_tasks, instance.edges
    after = dict(edges.tolist())
    heads = set(after.values())
    if len(edges) != n - 1 or len(after) != n - 1 or len(heads) != n - 1:
        return None
    at = next(k for k in range(n) if k not in heads)
    sequence = [at]
    while at in after:
        at = after[at]
        sequence.append(at)
    if len(sequence) != n:
        return None
    found = np.array(sequence, np.int64)
    found.flags.writeable = False
    return found


def alike(instance: Instance, a: int, b: int) -> bool:
    """Whether exchanging two devices changes nothing: times, usable memory, price, links to every other device."""
    one, other = instance.devices[a], instance.devices[b]
    if not np.array_equal(instance.time[:, a], instance.time[:, b]) or one.price != other.price:
        return False
    ways = _ways(instance)
    if instance.capacity[a] != instance.capacity[b] or ways[a][b] != ways[b][a]:
        return False
    others = (c for c in range(instance.n_devices) if c not in (a, b))
    return all(ways[a][c] == ways[b][c] and ways[c][a] == ways[c][b] for c in others)


def check_chain(
    instance: Instance, placement: NDArray[np.int64] | None, details: Mapping[str, Any], rules: ChainRules
) -> ChainReport:
    """Evaluate a placement (n,) of the layers and list what is wrong with it.

    ``details`` may hold ``{"replicas": {device: [devices that share its stage]}}`` by name.
    """
    sequence = layer_sequence(instance)
    if sequence is None:
        return ChainReport(violations=("the tasks do not form one sequence",))
    unknown = sorted(set(details) - {"replicas"})
    wrong = [f"the plan's details hold the unknown key {key!r}" for key in unknown]
    wrong += placement_violations(instance, placement, limits=False)
    if wrong or placement is None:
        return ChainReport(violations=tuple(wrong))
    where = placement[sequence].tolist()
    starts = [0, *(k for k in range(1, len(where)) if where[k] != where[k - 1])]
    parts = [sequence[a:b].tolist() for a, b in pairwise([*starts, len(where)])]
    leaders = [where[a] for a in starts]
    names, labels = instance.device_names, instance.labels
    for leader in sorted(set(leaders)):
        if leaders.count(leader) > 1:
            wrong.append(
                f"device {names[leader]!r} holds {leaders.count(leader)} separate stretches of the sequence, not one"
            )
    for part in parts[:-1]:
        if not instance.columns.cut[part[-1]]:
            wrong.append(f"the sequence is cut behind {labels[part[-1]]!r}, where no cut is allowed")
    stages = [(leader, *_replicas(instance, details, leader, rules, wrong)) for leader in leaders]
    _check_devices(instance, stages, details, rules, wrong)
    memory, kv = _bytes(instance)
    weights = [sum(memory[k] for k in part) for part in parts]
    cache = [sum(kv[k] for k in part) for part in parts]
    room: list[int | None] = []
    for members, weight, each in zip(stages, weights, cache, strict=True):
        for device in members:
            need, has = weight + each * rules.tokens, float(instance.capacity[device])
            if need > has:
                tokens = f" with {rules.tokens} tokens of KV cache" if rules.tokens else ""
                wrong.append(
                    f"device {names[device]!r} needs {float(need):.12g} bytes of memory{tokens} and has {has:.12g}: "
                    f"{float(need - Fraction(has)):.12g} too many"
                )
        least = min(float(instance.capacity[device]) for device in members)
        blocks = None if not each or math.isinf(least) else (Fraction(least) - weight) // (each * rules.block)
        room.append(None if blocks is None else int(blocks) * rules.block)
    seconds = [sum(_exact(instance.time[part, members[0]])) for part, members in zip(parts, stages, strict=True)]
    loads = [Fraction(total) / len(members) for total, members in zip(seconds, stages, strict=True)]
    transfer = _transfers(instance, parts, leaders, wrong)
    exact_transfer = [Fraction(value) for value in transfer]
    for at, busy in enumerate((*loads, *exact_transfer) if rules.period is not None else ()):
        if rules.period is not None and busy > rules.period:
            what = (
                f"device {names[leaders[at]]!r}"
                if at < len(loads)
                else f"the transfer from {names[leaders[at - len(loads)]]!r}"
            )
            wrong.append(f"{what} is busy for {float(busy):.9g} s, more than the period of {rules.period:.9g} s")
    return ChainReport(
        stages=tuple(stages),
        layers=tuple(map(len, parts)),
        load=tuple(map(float, loads)),
        transfer=tuple(transfer),
        latency=float(sum(seconds, Fraction(0)) + sum(exact_transfer)),
        room=tuple(room),
        memory=tuple(map(float, weights)),
        violations=tuple(wrong),
    )


@lru_cache(maxsize=8)
def _bytes(instance: Instance) -> tuple[list[Exact], list[Exact]]:
    """(n,) bytes of weights, and of KV cache a token, as exact numbers."""
    return _exact(instance.memory), _exact(instance.columns.kv_bytes_per_token)


@lru_cache(maxsize=8)
def _passed(instance: Instance) -> dict[tuple[int, int], float]:
    """Bytes on each edge."""
    pairs = map(tuple, instance.edges.tolist())
    return dict(zip(pairs, instance.edge_data.tolist(), strict=True))


def _replicas(
    instance: Instance, details: Mapping[str, Any], leader: int, rules: ChainRules, wrong: list[str]
) -> tuple[int, ...]:
    """Devices that share the stage of ``leader``; complaints go into ``wrong``."""
    shared = details.get("replicas", {})
    if not isinstance(shared, Mapping):
        return ()
    name = instance.device_names[leader]
    others = shared.get(name, [])
    if not isinstance(others, Sequence) or isinstance(others, str) or not others:
        if name in shared:
            wrong.append(f"the replicas of {name!r} are {others!r}, expected a list of device names")
        return ()
    if not all(isinstance(other, str) and other in instance.device_index for other in others):
        wrong.append(f"the replicas of {name!r} are {others!r}, expected names of devices")
        return ()
    members = tuple(instance.device_index[other] for other in others)
    if len(members) >= rules.replicas:
        wrong.append(f"{len(members) + 1} devices share the stage of {name!r}, at most {rules.replicas} may")
    for other in members:
        same = instance.devices[other].type == instance.devices[leader].type is not None
        if not same or not alike(instance, leader, other):
            wrong.append(
                f"{instance.device_names[other]!r} shares the stage of {name!r}, but is no equal device of its type"
            )
    return members


def _check_devices(
    instance: Instance, stages: list[tuple[int, ...]], details: Mapping[str, Any], rules: ChainRules, wrong: list[str]
) -> None:
    """Replicas by name, each device once, order, empty devices."""
    names = instance.device_names
    shared = details.get("replicas", {})
    leaders = [members[0] for members in stages]
    if not isinstance(shared, Mapping):
        wrong.append(f"the plan's replicas are {shared!r}, expected lists of devices by device")
    else:
        wrong += [f"the plan has replicas of {key!r}, which leads no stage" for key in shared
                  if key not in {names[k] for k in leaders}]  # fmt: skip
    held = [device for members in stages for device in members]
    replicas = [device for members in stages for device in members[1:]]
    wrong += [f"device {names[k]!r} holds more than one stage" for k in sorted(set(replicas)) if held.count(k) > 1]
    if rules.order is not None:
        place = {device: k for k, device in enumerate(rules.order)}
        for a, b in pairwise(leaders):
            if place[a] > place[b]:
                wrong.append(
                    f"device {names[b]!r} holds layers behind those of {names[a]!r}, but comes before it in the order"
                )
    if not rules.empty:
        wrong += [f"device {name!r} holds no layer" for k, name in enumerate(names) if k not in held]


def _transfers(instance: Instance, parts: list[list[int]], leaders: list[int], wrong: list[str]) -> list[float]:
    """Seconds to pass on from each stage to the next; 0 where there is no link and nothing to pass."""
    data, out = _passed(instance), []
    for (one, a), (other, b) in pairwise(zip(parts, leaders, strict=True)):
        size, way = data[one[-1], other[0]], _way(instance, a, b)
        if way is None and size:
            names = instance.device_names
            wrong.append(f"{names[a]!r} must pass {size:.12g} bytes on to {names[b]!r}, but no link leads there")
        out.append(0.0 if way is None else way[0] + (size / way[1] if way[1] is not None else 0.0))
    return out


def _way(instance: Instance, a: int, b: int) -> tuple[float, float | None] | None:
    """Latency and bandwidth of the link between two devices, None when there is none."""
    link = instance.link(instance.device_names[a], instance.device_names[b])
    return None if link is None else (float(link.latency), None if link.bandwidth is None else float(link.bandwidth))


@lru_cache(maxsize=4)
def _ways(instance: Instance) -> list[list[tuple[float, float | None] | None]]:
    """(d, d) links between all devices; looking one up takes a walk over the list of links."""
    d = range(instance.n_devices)
    return [[_way(instance, a, b) if instance.links and a != b else None for b in d] for a in d]


def _exact(values: Any) -> list[Exact]:
    return [int(value) if value.is_integer() else Fraction(value) for value in np.asarray(values, np.float64).tolist()]


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
        kv = _exact(instance.columns.kv_bytes_per_token[sequence]) if rules.tokens else [0] * self.n
        need = [m + rules.tokens * c for m, c in zip(_exact(instance.memory[sequence]), kv, strict=True)]
        time = instance.time[sequence, device]
        seconds = _exact(np.where(np.isfinite(time), time, 0.0))
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
        way = _ways(self.instance)[a][b]
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
