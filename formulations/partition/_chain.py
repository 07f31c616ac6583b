"""A sequence of layers and its devices as arrays: types of equal devices, classes of links, windows, ticks; and back to plans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.chain_states import States, fixed_states, free_states
from hetopt.errors import InputError, nearest
from hetopt.formulation import Option
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.chain import ChainRules, layer_sequence

if TYPE_CHECKING:  # the programs are compiled when one is run, not when problems are listed
    from hetopt.algorithms.chain_program import Limits, Stage

__all__ = ["MOST_REPLICAS", "OPTIONS", "Chain", "Ticks", "asked", "chain_of", "rules_of", "why_impossible"]

MOST_REPLICAS = 8
OPTIONS = (
    Option(
        "order",
        ("fixed", "free"),
        "fixed",
        "stages use the devices in their order (of tables.order, or of the file), or in any",
    ),
    Option("empty", bool, True, "devices may hold no layer"),
    Option("period", float, None, "most seconds that a device or transfer may be busy for one input"),
    Option("tokens", int, 0, "tokens for which every stage must have KV cache beside its weights"),
    Option("block", int, 1, "tokens of KV cache come in blocks of this size"),
)
_ROOM = 2.0**58  # ticks of all layers and transfers together; FAR is more


def asked(instance: Instance) -> dict[str, Any]:
    """Options as the instance's own question has them, defaults filled in."""
    return {option.name: instance.question.get(option.name, option.default) for option in OPTIONS}


def rules_of(instance: Instance, question: Mapping[str, Any]) -> ChainRules:
    """What the question asks of a plan.

    Raises
    ------
    InputError
        An option out of range, replicas in a fixed order, or a table of the order that does not name each device once.
    """
    free = question["order"] == "free"
    replicas = question.get("replicas", 1)
    period, tokens, block = question["period"], question["tokens"], question["block"]
    for name, value, least in (("period", period, 0), ("tokens", tokens, 0), ("block", block, 1)):
        if value is not None and not least <= value < 2**53:
            raise InputError(f"$.question.{name} is {value!r}, expected a number >= {least}")
    if not 1 <= replicas <= MOST_REPLICAS:
        raise InputError(f"$.question.replicas is {replicas!r}, expected a number from 1 to {MOST_REPLICAS}")
    if replicas > 1 and not free:
        raise InputError("$.question.replicas is more than 1; devices can share a stage with order=free only")
    order = None if free else _order(instance)
    return ChainRules(order, question["empty"], replicas, period, tokens or 0, block)


def _order(instance: Instance) -> tuple[int, ...]:
    names = instance.tables.get("order")
    if names is None:
        return tuple(range(instance.n_devices))
    if not isinstance(names, list):
        raise InputError(f"$.tables.order is {type(names).__name__}, expected a list of device names")
    for name in names:
        if not isinstance(name, str) or name not in instance.device_index:
            raise InputError(f"$.tables.order: {nearest(str(name), instance.device_names, what='devices')}")
    if len(set(names)) != len(names) or len(names) != instance.n_devices:
        raise InputError(f"$.tables.order names {len(set(names))} devices, expected each of {instance.n_devices} once")
    return tuple(instance.device_index[name] for name in names)


@dataclass(frozen=True, eq=False)
class Chain:
    """``n`` layers in sequence, ``t`` types of equal devices, ``c`` classes of links.

    Attributes
    ----------
    sequence
        (n,) task of each layer.
    names
        (d,) names of the devices.
    members
        Devices of each type.
    order
        Devices in the order stages must use them, None when it is free.
    time
        (n, t) seconds, ``inf`` where a layer cannot run.
    memory, kv
        (n,) bytes of weights, and of KV cache per token.
    data
        (n + 1,) bytes that pass each boundary.
    cut
        (n + 1,) whether a stage may end at a boundary.
    way
        Latency and bandwidth of each class of link, None for no link.
    link
        (d, d) class of the link between two devices.
    capacity, price
        (t,) usable bytes, currency per hour (``nan`` where unknown).
    empty
        Whether devices may stay empty.
    copies
        (w,) devices that share a stage of each row of windows; row ``k * replicas + r - 1`` is of type k.
    """

    sequence: NDArray[np.int64]
    names: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    order: tuple[int, ...] | None
    time: NDArray[np.float64]
    memory: NDArray[np.float64]
    kv: NDArray[np.float64]
    data: NDArray[np.float64]
    cut: NDArray[np.bool_]
    way: tuple[tuple[float, float | None] | None, ...]
    link: NDArray[np.int64]
    capacity: NDArray[np.float64]
    price: NDArray[np.float64]
    empty: bool
    copies: NDArray[np.int64]

    @cached_property
    def states(self) -> States:
        """Which devices may be used after which; see :attr:`codes` before asking for it."""
        first = [group[0] for group in self.members]
        if self.order is None:
            t = range(len(self.members))
            among = [[self.link[first[a], first[b] if a != b else self.members[b][-1]] for b in t] for a in t]
            count = [len(group) for group in self.members]
            return free_states(count, among, empty=self.empty, copies=len(self.copies) // len(count))
        kind = np.empty(len(self.order), np.int64)
        for k, group in enumerate(self.members):
            kind[list(group)] = k
        return fixed_states(kind[list(self.order)], self.link[np.ix_(self.order, self.order)], empty=self.empty)

    @property
    def codes(self) -> float:
        """Sets of used devices that a program walks through: in a free order, numbers of each type."""
        if self.order is not None:
            return float(len(self.order))
        return float(math.prod(len(group) + 1 for group in self.members))

    @property
    def owner(self) -> NDArray[np.int64]:
        """(w,) type of each row of windows."""
        replicas = len(self.copies) // len(self.members)
        return np.repeat(np.arange(len(self.members)), replicas)

    @property
    def steps(self) -> float:
        """Steps of one dynamic program."""
        return float(len(self.states.tail) + len(self.states.skip)) * len(self.cut)

    def passing(self) -> NDArray[np.float64]:
        """(c, n + 1) seconds to pass each boundary over each class of link; ``inf`` where there is no way, 0 at boundary 0."""
        rows = [
            np.where(self.data > 0, np.inf, 0.0)
            if way is None
            else way[0] + (self.data / way[1] if way[1] is not None else np.zeros(len(self.data)))
            for way in self.way
        ]
        out = np.array(rows)
        out[:, 0] = 0.0
        return out

    def windows(self, rules: ChainRules, extra: float = 0.0) -> NDArray[np.int64]:
        """(w, n + 1) least start of a stage for each end: what can run, fits the memory with its cache, keeps the period.

        ``extra`` bytes are added to every device.
        """
        n = len(self.sequence)
        from hetopt.algorithms.chain_program import exact_windows

        rows = []
        room = {
            room: exact_windows(self.memory, room + extra, self.kv, rules.tokens)
            for room in set(self.capacity.tolist())
        }
        for k, r in zip(self.owner.tolist(), self.copies.tolist(), strict=True):
            barred = np.flatnonzero(np.isinf(self.time[:, k]))
            low = np.zeros(n + 1, np.int64)
            low[barred + 1] = barred + 1
            low = np.maximum.accumulate(low)
            low = np.maximum(low, room[float(self.capacity[k])])
            if rules.period is not None:
                finite = np.where(np.isinf(self.time[:, k]), 0.0, self.time[:, k])
                low = np.maximum(low, exact_windows(finite, Fraction(rules.period) * r))
            rows.append(low)
        return np.array(rows)

    def solution(self, stages: list[Stage]) -> Solution:
        """Plan of the instance's tasks."""
        placement = np.full(len(self.sequence), -1, np.int64)
        left = [list(group) for group in self.members]
        replicas: dict[str, list[str]] = {}
        for stage in stages:
            w = int(self.states.window[stage.arc])
            if self.order is not None:
                device = self.order[stage.state - 1]
            else:
                held = [left[int(self.owner[w])].pop(0) for _ in range(int(self.copies[w]))]
                device = held[0]
                if held[1:]:
                    replicas[self.names[device]] = [self.names[other] for other in held[1:]]
            placement[self.sequence[stage.start : stage.end]] = device
        return Solution(placement, details={"replicas": replicas} if replicas else {})


@lru_cache(maxsize=8)
def _read(instance: Instance, order: tuple[int, ...] | None, empty: bool, replicas: int) -> Chain:
    sequence = layer_sequence(instance)
    if sequence is None:
        raise InputError("$.jobs: the tasks do not form one sequence by their edges")
    d = instance.n_devices
    seen: dict[tuple[float, float | None] | None, int] = {}
    link = np.zeros((d, d), np.int64)
    for a, one in enumerate(instance.device_names):
        for b, other in enumerate(instance.device_names):
            if a != b:
                found = instance.link(one, other) if instance.links else None
                way = (
                    None
                    if found is None
                    else (float(found.latency), None if found.bandwidth is None else float(found.bandwidth))
                )
                link[a, b] = seen.setdefault(way, len(seen))
    data = dict(zip(map(tuple, instance.edges.tolist()), instance.edge_data.tolist(), strict=True))
    steps = sequence.tolist()
    between = [float(data[pair]) for pair in pairwise(steps)]
    members = _types(instance, link, labelled=replicas > 1, fixed=order is not None)
    first = [group[0] for group in members]
    cut = np.concatenate([[True], instance.columns.cut[sequence[:-1]], [True]])
    for g in np.unique(instance.group[instance.group >= 0]):
        inside = np.flatnonzero(instance.group[sequence] == g)
        cut[inside[0] + 1 : inside[-1] + 1] = False
    return Chain(
        sequence=sequence,
        names=instance.device_names,
        members=tuple(map(tuple, members)),
        order=order,
        time=instance.time[sequence][:, first],
        memory=instance.memory[sequence],
        kv=instance.columns.kv_bytes_per_token[sequence],
        data=np.array([0.0, *between, 0.0]),
        cut=cut,
        way=tuple(seen) or (None,),
        link=link,
        capacity=instance.capacity[first],
        price=np.array(
            [np.nan if instance.devices[k].price is None else instance.devices[k].price for k in first], float
        ),
        empty=empty,
        copies=np.tile(np.arange(1, replicas + 1), len(members)),
    )


def chain_of(instance: Instance, rules: ChainRules) -> Chain:
    """Arrays of an instance under some rules; the last few are kept."""
    return _read(instance, rules.order, rules.empty, rules.replicas)


def _types(instance: Instance, link: NDArray[np.int64], *, labelled: bool, fixed: bool) -> list[list[int]]:
    """Devices by type: those that can be exchanged; in a fixed order those with equal times, memory and price."""
    groups: list[list[int]] = []
    keys: list[tuple[object, ...]] = []
    for b, device in enumerate(instance.devices):
        key = (
            instance.time[:, b].tobytes(),
            float(instance.capacity[b]),
            device.price,
            (device.type or b) if labelled else 0,
        )
        for group, other in zip(groups, keys, strict=True):
            a = group[0]
            rest = np.array([c for c in range(instance.n_devices) if c not in (a, b)], np.int64)
            same = link[a, b] == link[b, a] and (link[a, rest] == link[b, rest]).all()
            if key == other and (fixed or (same and (link[rest, a] == link[rest, b]).all())):
                group.append(b)
                break
        else:
            groups.append([b])
            keys.append(key)
    return groups


@dataclass(frozen=True, eq=False)
class Ticks:
    """Times of a chain in integers, rounded down; ``scale`` ticks are ``unit`` seconds.

    Stages may be shared by up to ``copies`` devices: ``scale`` is a multiple of each such number, so that shares are whole.
    """

    unit: float
    scale: int
    prefix: NDArray[np.int64]
    transfer: NDArray[np.int64]

    @classmethod
    def of(cls, chain: Chain, period: float | None) -> Ticks:
        """Ticks of all layers by type, and of all transfers that keep the period."""
        from hetopt.algorithms.chain_program import FAR

        finite = np.where(np.isinf(chain.time), 0.0, chain.time)
        passing = chain.passing()
        open_ = np.isfinite(passing) & (passing <= (np.inf if period is None else period))
        seconds = np.where(open_, passing, 0.0)
        scale = math.lcm(*range(1, int(chain.copies.max()) + 1))
        devices = sum(map(len, chain.members))
        total = float(finite.max(axis=1).sum() + devices * seconds.max()) * scale
        whole = bool((finite == np.floor(finite)).all() and (seconds == np.floor(seconds)).all())
        unit = 1.0 if (whole and total < 2.0**53) or total == 0 else 2.0 ** (math.frexp(total / _ROOM)[1])
        ticks = np.floor(finite / unit).astype(np.int64) * scale
        prefix = np.zeros((len(chain.members), len(chain.cut)), np.int64)
        np.cumsum(ticks.T, axis=1, out=prefix[:, 1:])
        return cls(unit, scale, prefix, np.where(open_, np.floor(seconds / unit).astype(np.int64) * scale, FAR))

    def seconds(self, ticks: int) -> float:
        """Seconds of some ticks, rounded down."""
        exact = Fraction(ticks, self.scale) * Fraction(self.unit)
        near = float(exact)
        return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)

    def limits(self, chain: Chain, low: NDArray[np.int64]) -> Limits:
        """What the dynamic programs are given."""
        from hetopt.algorithms.chain_program import Limits

        return Limits(chain.owner, chain.copies, self.prefix, low, self.transfer, chain.cut)


def feasible(chain: Chain, rules: ChainRules, *, links: bool = True, extra: float = 0.0) -> bool:
    """Whether there is any plan; without ``links`` everything can be passed on, every device has ``extra`` bytes more."""
    from hetopt.algorithms.chain_program import reach, reached_plan

    low = chain.windows(rules, extra)
    passing = chain.passing()
    passes = (
        passing <= (rules.period if rules.period is not None else 1.7e308) if links else np.ones(passing.shape, bool)
    )
    high = np.broadcast_to(np.arange(-1, low.shape[1] - 1), low.shape).copy()
    reached = reach(chain.states, low, high, passes, chain.cut, lambda: False)
    assert reached is not None
    return reached_plan(chain.states, low, high, passes, reached) is not None


def why_impossible(instance: Instance, rules: ChainRules) -> str:
    """One sentence: which constraint leaves no plan, by how much it is missed, and what would mend it."""
    chain = chain_of(instance, rules)
    if feasible(chain, rules, links=False):
        pairs = [
            f"{instance.device_names[a]} -> {instance.device_names[b]}"
            for a, b in np.argwhere(chain.link >= 0).tolist()
            if a != b and chain.way[chain.link[a, b]] is None
        ]
        if pairs:
            return f"connectivity: stages must pass data on, and there is no link {', '.join(pairs[:6])}"
        return f"transfers: links are too slow to pass data on within the period of {rules.period:.9g} s"
    if rules.empty is False and feasible(chain_of(instance, replace(rules, empty=True)), replace(rules, empty=True)):
        return (
            f"min-nodes: each of the {instance.n_devices} devices must hold a layer (empty=false), and no cut into so many "
            "stages keeps the other constraints; with empty devices allowed there is a plan"
        )
    if rules.period is not None and feasible(chain, replace(rules, period=None)):
        least = _least_period(chain, rules, rules.period)
        return (
            f"period: no plan keeps every device and transfer within {rules.period:.9g} s; within {least:.6g} s there is one: "
            f"{least - rules.period:.6g} s short"
        )
    if feasible(chain, rules, extra=math.inf):
        extra = _least_extra(chain, rules)
        cache = f" with KV cache for {rules.tokens} tokens" if rules.tokens else ""
        return (
            f"memory: the layers{cache} fit no sequence of stages; with {extra} bytes more on every device they would"
        )
    return (
        "no cut of the sequence keeps all constraints: what each device can run, cuts, groups, links, memory and period"
    )


def _least_period(chain: Chain, rules: ChainRules, refuted: float) -> float:
    """Seconds within which there is a plan, at most a millionth more than the least; ``refuted`` are too few."""
    passing = chain.passing()
    seconds = np.where(np.isfinite(chain.time), chain.time, 0.0).max(axis=1)
    enough = max(math.fsum(seconds.tolist()), float(passing[np.isfinite(passing)].max(initial=0.0)))
    while enough - refuted > 1e-6 * enough:
        middle = (enough + refuted) / 2
        if feasible(chain, replace(rules, period=middle)):
            enough = middle
        else:
            refuted = middle
    return enough


def _least_extra(chain: Chain, rules: ChainRules) -> int:
    """Least whole number of bytes that, added to every device, make the layers fit."""
    refuted, enough = 0, 1
    while not feasible(chain, rules, extra=enough):
        refuted, enough = enough, 2 * enough
    while enough - refuted > 1:
        middle = (refuted + enough) // 2
        if feasible(chain, rules, extra=middle):
            enough = middle
        else:
            refuted = middle
    return enough
