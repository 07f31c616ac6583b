"""The question of :mod:`.hybrid` in integers, and plans made of a program's stages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.hybrid import RESYNC, Configuration, HybridFacts, hybrid_facts

if TYPE_CHECKING:
    from hetopt.algorithms.hybrid_program import Alternative, HybridStage, HybridTable, Lattice

__all__ = ["Whole", "degrees", "seconds_of", "successors_first", "whole_of"]

MOST_STATES = 20_000  # of one stage's knapsack when its plan is read


def degrees(facts: HybridFacts, question: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Tensor and data degrees that a stage may have: t with a mode, d that divides the batch, t d devices at most."""
    tensors = sorted({mode.tensor for modes in facts.modes for mode in modes})
    most_tensor, most_data = (question[key] or facts.devices for key in ("tensor", "data"))
    data = [d for d in range(1, min(facts.devices, facts.batch, most_data) + 1) if facts.batch % d == 0]
    return [(t, d) for t in tensors if t <= most_tensor for d in data if t * d <= facts.devices]


def seconds_of(facts: HybridFacts, task: int, mode: Configuration) -> tuple[Fraction, Fraction, dict[int, Fraction]]:
    """Seconds of a task's mode: computation, resynchronisation per replica but one, each edge when it crosses.

    A stage of data degree d takes ``(computation + crossing + (d - 1) resynchronisation) / d``.
    """
    speed = 0 if math.isinf(facts.bandwidth) else 1 / Fraction(facts.bandwidth)
    ends = mode.receive.items() | mode.send.items()
    crossing = {e: 2 * (Fraction(float(facts.data[e])) + Fraction(extra)) * speed for e, extra in sorted(ends)}
    return Fraction(mode.seconds), RESYNC * Fraction(mode.parameters) * speed / facts.batch, crossing


def successors_first(facts: HybridFacts, *, deep: bool) -> NDArray[np.int64]:
    """(n,) tasks, each after its successors: depth first, or breadth first."""
    n = len(facts.modes)
    left, before = [0] * n, [[] for _ in range(n)]  # type: list[int], list[list[int]]
    for u, v in facts.edges.tolist():
        left[u] += 1
        before[v].append(u)
    ready, order = [v for v in range(n) if not left[v]], []
    while ready:
        order.append(ready.pop(-1 if deep else 0))
        for u in before[order[-1]]:
            left[u] -= 1
            if not left[u]:
                ready.append(u)
    return np.array(order, np.int64)


@dataclass(frozen=True, eq=False)
class Whole:
    """A question in integers: its table, the seconds of a tick, and the mode (by number) of each alternative."""

    table: HybridTable
    tick: Fraction
    modes: tuple[tuple[int, ...], ...]
    instance: Instance
    facts: HybridFacts

    def lattice(self, limit: int) -> Lattice:
        """All sets closed under successors; TooManyIdeals beyond ``limit``."""
        return _lattice(self.instance, limit)

    def ticks(self, stage: HybridStage, chosen: list[Alternative]) -> int:
        """Ticks of a stage with an alternative for each of its classes, rounded up."""
        inside = set(stage.classes)
        total = 0
        for v, a in zip(stage.classes, chosen, strict=True):
            total += a.seconds + (stage.data - 1) * a.resync
            for e, cost in zip(self.table.incident[v], a.crossing, strict=True):
                total += cost if int(self.table.edges[e].sum()) - v not in inside else 0
        return -(-total // stage.data)

    def cheapest(self, stage: HybridStage) -> list[Alternative] | None:
        """The alternatives of least ticks that fit the memory, a knapsack; None when none was found."""
        inside, table = set(stage.classes), self.table
        rows = []
        for v in stage.classes:
            away = [int(table.edges[e].sum()) - v not in inside for e in table.incident[v]]
            rows.append([
                (
                    a.seconds + (stage.data - 1) * a.resync + sum(c for c, out in zip(a.crossing, away, strict=True) if out),
                    a.activation * stage.in_flight + a.memory,
                    a,
                )
                for a in table.choices[v]
                if a.tensor == stage.tensor
            ])  # fmt: skip
        room = table.capacity - sum(min(size for _, size, _ in row) for row in rows)
        kept: list[tuple[int, int, tuple]] = [(0, 0, ())]  # type: ignore[type-arg]
        for row in rows:
            least = min(size for _, size, _ in row)
            grown = sorted(
                ((cost + c, size + s - least, (before, a)) for cost, size, before in kept for c, s, a in row),
                key=lambda state: state[:2],
            )
            kept, lowest = [], room + 1
            for state in grown:
                if state[1] < lowest:
                    kept.append(state)
                    lowest = state[1]
            if len(kept) > MOST_STATES:
                kept = [*kept[:-1:2], kept[-1]]
        if not kept:
            return None
        chain, chosen = kept[0][2], []
        while chain:
            chain, last = chain
            chosen.append(last)
        return chosen[::-1]

    def plan(self, stages: list[HybridStage]) -> tuple[Solution, int] | None:
        """Plan of a program's stages, on the devices in their order, and its ticks; None when a stage fits no memory."""
        placement, modes = np.zeros(len(self.facts.modes), np.int64), {}
        told, first, worst = [], 0, 0
        for stage in stages:
            chosen = self.cheapest(stage)
            if chosen is None:
                return None
            worst = max(worst, self.ticks(stage, chosen))
            width = stage.tensor * stage.data
            names = list(self.instance.device_names[first : first + width])
            told.append({"devices": names, "tensor": stage.tensor, "data": stage.data})
            for v, a in zip(stage.classes, chosen, strict=True):
                placement[v] = first
                at = next(i for i, other in enumerate(self.table.choices[v]) if other is a)
                modes[self.instance.labels[v]] = self.facts.modes[v][self.modes[v][at]].name
            first += width
        ordered = {label: modes[label] for label in self.instance.labels}
        return Solution(placement, details={"stages": told, "modes": ordered}), worst


def whole_of(instance: Instance, question: Mapping[str, Any], *, up: bool = False) -> Whole:
    """The question in integers: ticks rounded down, memory too (``up``: so that whatever fits in integers fits)."""
    return _whole(instance, tuple(degrees(hybrid_facts(instance), question)), up)


@lru_cache(maxsize=8)
def _whole(instance: Instance, allowed: tuple[tuple[int, int], ...], up: bool) -> Whole:
    from hetopt.algorithms.hybrid_program import Alternative, HybridTable

    facts = hybrid_facts(instance)
    tensors, most_data = {t for t, _ in allowed}, max((d for _, d in allowed), default=1)
    numbers = [[seconds_of(facts, v, mode) for mode in modes] for v, modes in enumerate(facts.modes)]
    total = sum((max(p + (most_data - 1) * w + sum(c.values()) for p, w, c in row) for row in numbers), Fraction(0))
    bits = 59 - math.frexp(float(total * max(most_data, facts.devices)) or 1.0)[1]
    tick = Fraction(1, 2**bits) if bits >= 0 else Fraction(2**-bits)
    shift, capacity = _memory(facts)
    incident: list[list[int]] = [[] for _ in facts.modes]
    for e, pair in enumerate(facts.edges.tolist()):
        for v in pair:
            incident[v].append(e)

    def size(given: float) -> int:
        if capacity is None:
            return 0
        units = Fraction(given) * shift
        return min(math.ceil(units) if up else math.floor(units), capacity + 1)

    choices, kept = [], []
    for v, row in enumerate(numbers):
        mine = [m for m, mode in enumerate(facts.modes[v]) if mode.tensor in tensors]
        kept.append(tuple(mine))
        choices.append([
            Alternative(
                facts.modes[v][m].tensor,
                math.floor(row[m][0] / tick),
                math.floor(row[m][1] / tick),
                size(facts.modes[v][m].activation),
                size(facts.modes[v][m].memory),
                tuple(math.floor(row[m][2][e] / tick) for e in incident[v]),
            )
            for m in mine
        ])  # fmt: skip
    copies = min(facts.devices, facts.batch)
    horizon = math.floor(total / tick) + 1
    table = HybridTable(choices, incident, facts.edges, allowed, facts.devices, copies, capacity or 0, horizon)
    return Whole(table, tick, tuple(kept), instance, facts)


def _memory(facts: HybridFacts) -> tuple[Fraction, int | None]:
    """Units in a byte and units in a device, at most 2^40; no units without a limit."""
    if math.isinf(facts.capacity):
        return Fraction(1), None
    sizes = [
        facts.capacity,
        *(size for modes in facts.modes for mode in modes for size in (mode.memory, mode.activation)),
    ]
    whole = all(size == math.floor(size) for size in sizes)
    bits = 40 - math.frexp(facts.capacity or 1.0)[1]
    shift = Fraction(1) if whole and bits >= 0 else Fraction(2) ** bits
    return shift, math.floor(Fraction(facts.capacity) * shift)


@lru_cache(maxsize=4)
def _lattice(instance: Instance, limit: int) -> Lattice:
    """Sets closed under successors: order ideals of the reversed graph, tasks renumbered in an order that suits it."""
    from hetopt.algorithms.hybrid_program import Lattice
    from hetopt.algorithms.ideals import enumerate_ideals

    order = successors_first(hybrid_facts(instance), deep=True)
    rank = np.argsort(order)
    edges = rank[instance.edges]
    by = np.lexsort((edges[:, 1], edges[:, 0]))
    ptr = np.searchsorted(edges[by, 0], np.arange(instance.n_tasks + 1)).astype(np.int64)
    found = enumerate_ideals(ptr, edges[by, 1].astype(np.int64), limit)
    assert found is not None
    return Lattice(found.cover_ptr, found.cover, order[found.cover_class].astype(np.int32))
