"""Pipeline stages with tensor degree, data degree and a configuration for each class: exact program over order ideals.

A plan is a chain of sets of classes closed under successors: the last stage, the last two, and so on. For a limit on the ticks of
every stage, ``least[I, s]`` is the least number of devices for the set I when its stages' data degrees sum to s; a stage before I
with data degree d has ``ceil((s + d) / d)`` micro-batches in flight, and its cheapest configurations that fit the memory are a
knapsack, decided exactly. The least limit with a plan is found by bisection from both ends.

What it is not: it reads no instance. Time is in integer ticks and memory in integer units, both rounded down by the caller.

Sources: J. Tarnawski, D. Narayanan, A. Phanishayee, Piper: multidimensional planner for DNN parallelization, NeurIPS 2021, for
the question and a program over (ideal, devices, sum); limits, windows by devices left and exact knapsacks are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.hybrid_kernels import (
    ACTIVATION,
    CROSSING,
    FAR,
    FAST_ACTIVATION,
    FAST_MEMORY,
    MEMORY,
    MIXED,
    NONE,
    RESYNC,
    SECONDS,
    WIDTH,
    expand,
)

__all__ = ["Alternative", "HybridStage", "HybridTable", "Lattice", "least_period", "path_lattice", "stages_within"]

_BUDGET = 400_000  # steps of a kernel call, a fraction of a second
_SAME = 1e-3  # relative distance at which bisection gives way to steps from the best plan down


class Alternative(NamedTuple):
    """One configuration of a class: ticks, ticks of keeping two replicas equal, units of memory, ticks of each edge at it."""

    tensor: int
    seconds: int
    resync: int
    activation: int
    memory: int
    crossing: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HybridTable:
    """The question in integers.

    Attributes
    ----------
    choices
        Alternatives of each class; ``crossing`` follows the class's row of ``incident``.
    incident
        For each class the numbers of its edges.
    edges
        (e, 2) classes.
    degrees
        (tensor, data) degrees a stage may have.
    devices, copies, capacity
        Devices in all, largest sum of data degrees, units of memory of a device.
    horizon
        Ticks that no plan exceeds.
    """

    choices: Sequence[Sequence[Alternative]]
    incident: Sequence[Sequence[int]]
    edges: NDArray[np.int64]
    degrees: Sequence[tuple[int, int]]
    devices: int
    copies: int
    capacity: int
    horizon: int


class Lattice(NamedTuple):
    """Sets closed under successors, each numbered above its subsets: covers in CSR form, the class each adds."""

    cover_ptr: NDArray[np.int64]
    cover: NDArray[np.int32]
    cover_class: NDArray[np.int32]


@dataclass(frozen=True)
class HybridStage:
    """Classes of a stage, its degrees, its micro-batches in flight."""

    classes: tuple[int, ...]
    tensor: int
    data: int
    in_flight: int


def path_lattice(order: NDArray[np.int64]) -> Lattice:
    """The chain of sets that grows by one class of ``order`` at a time (last stages first)."""
    n = len(order)
    ptr = np.minimum(np.arange(n + 2), n).astype(np.int64)
    return Lattice(ptr, np.arange(1, n + 1, dtype=np.int32), np.asarray(order, np.int32))


class _Arrays:
    """A table as the kernels take it, with room for their results."""

    def __init__(self, table: HybridTable, lattice: Lattice) -> None:
        n = len(table.choices)
        tensors = sorted({t for t, _ in table.degrees})
        self.table, self.lattice = table, lattice
        self.options = (
            np.array([tensors.index(t) for t, _ in table.degrees], np.int64),
            np.array([d for _, d in table.degrees], np.int64),
            np.array([t * d for t, d in table.degrees], np.int64),
        )
        inc_ptr = np.zeros(n + 1, np.int64)
        np.cumsum([len(edges) for edges in table.incident], out=inc_ptr[1:])
        entry = {(v, e): int(inc_ptr[v]) + i for v, edges in enumerate(table.incident) for i, e in enumerate(edges)}
        inc_node = np.zeros((int(inc_ptr[-1]), 2), np.int64)
        for (v, e), q in entry.items():
            other = int(table.edges[e].sum()) - v
            inc_node[q] = other, entry[other, e]
        low = np.zeros((len(tensors), n, WIDTH), np.int64)
        low_cross = np.zeros((len(tensors), len(inc_node)), np.int64)
        alt_ptr, rows = [0], []
        cross_ptr: list[int] = []
        cross: list[int] = []
        for k, tensor in enumerate(tensors):
            for v in range(n):
                mine = [a for a in table.choices[v] if a.tensor == tensor]
                low[k, v] = _lowest(mine)
                low_cross[k, inc_ptr[v] : inc_ptr[v + 1]] = np.min([a.crossing for a in mine], axis=0) if mine else 0
                for a in mine:
                    rows.append([a.seconds, 0, a.resync, a.activation, a.memory])
                    cross_ptr.append(len(cross))
                    cross += a.crossing
                alt_ptr.append(len(rows))
        self.costs = (
            inc_ptr,
            inc_node,
            np.array(alt_ptr, np.int64),
            low,
            low_cross,
            np.array(rows, np.int64).reshape(-1, 5),
            np.array(cross_ptr, np.int64),
            np.array(cross, np.int64),
        )
        present = np.where(low[:, :, NONE] == 0, low[:, :, SECONDS], 2**62 // max(tensors))
        weight = (present * np.array(tensors)[:, None]).min(axis=0)
        sets = len(lattice.cover_ptr) - 1
        held = np.zeros(sets, np.int64)  # ticks times devices that each set takes at least
        self.parent = np.zeros((sets, 2), np.int64)
        for i in range(sets - 1):
            above = slice(int(lattice.cover_ptr[i]), int(lattice.cover_ptr[i + 1]))
            held[lattice.cover[above]] = held[i] + weight[lattice.cover_class[above]]
            self.parent[lattice.cover[above], 0] = i
            self.parent[lattice.cover[above], 1] = lattice.cover_class[above]
        self.rest = held[-1] - held
        self.weight = int(held[-1])
        self.least = np.empty((sets, table.copies + 1), np.int64)
        self.back, self.back_option = np.zeros(self.least.shape, np.int32), np.zeros(self.least.shape, np.int32)
        self.scratch = (
            np.zeros(sets, np.int32),
            np.zeros(n, np.bool_),
            np.zeros((n + 1, 3), np.int64),
            np.zeros((n + 1, len(tensors), WIDTH), np.int64),
            np.zeros(table.copies + 1, np.int64),
            np.zeros(1, np.int64),
        )

    def probe(self, limit: int, capacity: int, should_stop: Callable[[], bool]) -> list[HybridStage] | None:
        """Stages of a plan within ``limit`` ticks; None when there is none, or it was told to stop."""
        self.least[:] = FAR
        self.least[0, 0] = 0
        self.scratch[0][:] = 0
        at, sets = 0, len(self.least)
        shape = (self.table.devices, capacity)
        while at < sets - 1:
            if should_stop():
                return None
            at = expand(at, _BUDGET, limit, tuple(self.lattice), self.rest, self.costs, self.options, shape,
                        self.least, self.back, self.back_option, self.scratch)  # fmt: skip
        s = int(np.argmin(self.least[-1]))
        if self.least[-1, s] > self.table.devices:
            return None
        j, stages = sets - 1, []
        while j:
            i, o = int(self.back[j, s]), int(self.back_option[j, s])
            tensor, data = self.table.degrees[o]
            stages.append(HybridStage(tuple(sorted(self._classes(j) - self._classes(i))), tensor, data, -(-s // data)))
            j, s = i, s - data
        return stages

    def _classes(self, j: int) -> set[int]:
        found = set()
        while j:
            found.add(int(self.parent[j, 1]))
            j = int(self.parent[j, 0])
        return found


def _lowest(mine: list[Alternative]) -> NDArray[np.int64]:
    """Least numbers over a class's alternatives of one tensor degree, and the memory of the fastest."""
    row = np.zeros(WIDTH, np.int64)
    if not mine:
        row[NONE] = 1
        return row
    fast = min(mine, key=lambda a: (a.seconds, a.activation + a.memory))
    row[SECONDS], row[RESYNC] = fast.seconds, min(a.resync for a in mine)
    row[CROSSING] = 0  # edges are added as they come to cross
    row[ACTIVATION], row[MEMORY] = min(a.activation for a in mine), min(a.memory for a in mine)
    row[FAST_ACTIVATION], row[FAST_MEMORY] = fast.activation, fast.memory
    row[MIXED] = any(a.resync != fast.resync or a.crossing != fast.crossing for a in mine)
    return row


def stages_within(
    table: HybridTable, lattice: Lattice, limit: int, capacity: int, should_stop: Callable[[], bool]
) -> list[HybridStage] | None:
    """Stages, the first of the pipeline first, of at most ``limit`` ticks on devices of ``capacity`` units; None for none."""
    return _Arrays(table, lattice).probe(limit, capacity, should_stop)


def least_period(
    table: HybridTable,
    lattice: Lattice,
    value: Callable[[list[HybridStage]], int | None],
    should_stop: Callable[[], bool],
    *,
    known: int | None = None,
    roughly: bool = False,
) -> tuple[int, int | None]:
    """Narrow ``refuted < least ticks <= known`` and return both: neighbours unless it was told to stop; known None for no plan.

    ``value`` is told the stages of each plan found, and gives their ticks; None, or more than the limit they were found for, says
    that their knapsacks were too large to decide, which ends the search. ``known`` is the value of a plan that the caller has.
    ``roughly``: end when they are close, or when no plan is clearly better than the one known.
    """
    arrays = _Arrays(table, lattice)
    refuted, first = -(-arrays.weight // table.devices) - 1, True
    while known is None or known - refuted > 1:
        near = known is not None and known - refuted <= _SAME * known
        if near and roughly:
            break
        if known is None:
            limit = table.horizon
        elif near or first:  # a plan along an order is the best there is more often than not
            limit = known - max(1, int(_SAME * known) if roughly else 1)
        else:
            limit = (known + refuted) // 2
        first = False
        stages = arrays.probe(limit, table.capacity, should_stop)
        if should_stop():
            break
        if stages is None:
            refuted = limit
            if known is None:
                break
            continue
        ticks = value(stages)
        if ticks is None or ticks > limit:
            break
        known = ticks
    return refuted, known
