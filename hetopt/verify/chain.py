"""Check a plan that cuts a sequence of layers into stages on devices, in exact numbers.

What it is for: the value of a plan and every constraint it breaks, from the instance's own facts. What it is not: a bound on
other plans (:mod:`hetopt.verify.chain_proof`). It shares nothing with the programs of :mod:`hetopt.algorithms`; sums are Python
integers or fractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.verify.assignment import placement_violations

__all__ = ["ChainReport", "ChainRules", "Exact", "alike", "all_ways", "check_chain", "exact", "layer_sequence"]

Exact = int | Fraction


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
    ways = all_ways(instance)
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
    seconds = [sum(exact(instance.time[part, members[0]])) for part, members in zip(parts, stages, strict=True)]
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
    return exact(instance.memory), exact(instance.columns.kv_bytes_per_token)


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
def all_ways(instance: Instance) -> list[list[tuple[float, float | None] | None]]:
    """(d, d) links between all devices; looking one up takes a walk over the list of links."""
    d = range(instance.n_devices)
    return [[_way(instance, a, b) if instance.links and a != b else None for b in d] for a in d]


def exact(values: Any) -> list[Exact]:
    """The numbers as integers where they are whole, else as fractions."""
    return [int(value) if value.is_integer() else Fraction(value) for value in np.asarray(values, np.float64).tolist()]
