"""Inference latency of a plan, node by node, from the original task arrays.

What it is for: deciding whether a plan of tasks on devices is what it claims, without anything of the code that made it:
no classes, no nets, no ideals, no rounding to integers. What it is not: an optimiser, and a judge of the instance.

A host runs each of its tasks as soon as the task's inputs are ready, any number at a time. The tasks of an accelerator
form numbered subgraphs, which run one after the other in the order of their numbers. A subgraph S of accelerator d begins
when every output from outside S that it reads is ready and the one before is done, takes

    sum of time[v, d] over v in S
    + rate_in[d] * sum of output[u] over tasks u outside S that feed a task in S
    + rate_out[d] * sum of output[u] over tasks u in S that feed a task outside S

(another subgraph of the same accelerator is outside), and hands on all outputs at its end. A plan in which tasks and
subgraphs wait for each other in a circle never ends; a subgraph that is not convex waits for itself. The value is the
moment the last task is ready. Integral data are added up in Python integers, others in floating point, each load with one
rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LatencyReport", "check_latency"]

_SHOWN = 10  # violations of one sort that are written out


class LatencyReport(NamedTuple):
    """What a plan amounts to; numbers are ints where all data are integral, else floats.

    Attributes
    ----------
    value
        Moment the last task is ready; ``inf`` where some task never is.
    ready
        (n,) moment each task is ready, ``inf`` for never.
    runs
        Each subgraph as (device, number, start, end, load), by start.
    memory
        (d,) sum of sizes on each device, with a limit or without.
    violations
        One sentence each; empty when the plan is what it claims.
    """

    value: float
    ready: list[float]
    runs: tuple[tuple[int, int, float, float, float], ...]
    memory: list[float]
    violations: tuple[str, ...]


def check_latency(
    time: ArrayLike,
    size: ArrayLike,
    edges: ArrayLike,
    output: ArrayLike,
    memory: ArrayLike,
    host: ArrayLike,
    rate_in: ArrayLike,
    rate_out: ArrayLike,
    placement: ArrayLike,
    subgraph: ArrayLike | None = None,
    *,
    most: int = 1,
    group: ArrayLike | None = None,
    tasks: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
) -> LatencyReport:
    """Evaluate a placement of ``n`` tasks on ``d`` devices and list what is wrong with it; O(n + e) operations.

    Parameters
    ----------
    time
        (n, d) seconds; ``inf`` where a task cannot run.
    size, output
        (n,) bytes of memory; bytes (or seconds) of output.
    edges
        (e, 2) pairs (producer, consumer).
    memory, rate_in, rate_out
        (d,) bytes (``inf`` without limit), seconds per unit of output received and sent.
    host
        (d,) whether a device is a host; its rates are not read.
    placement
        (n,) device of each task.
    subgraph
        (n,) number of the task's subgraph, from 1, on an accelerator; not read for tasks on a host. All 1 by default.
    most
        Largest number of a subgraph.
    group
        (n,) tasks with the same number must share a device; -1 for none.
    tasks, devices
        Names for the sentences; numbers without.
    """
    check = _Check(
        np.asarray(time, np.float64),
        np.asarray(size, np.float64),
        np.asarray(edges, np.int64).reshape(-1, 2),
        np.asarray(output, np.float64),
        np.asarray(memory, np.float64),
        np.asarray(host, np.bool_),
        np.asarray(rate_in, np.float64),
        np.asarray(rate_out, np.float64),
        np.asarray(placement, np.int64),
        tasks,
        devices,
    )
    n = len(check.time)
    number = np.ones(n, np.int64) if subgraph is None else np.asarray(subgraph, np.int64)
    return check.report(number, most, np.full(n, -1) if group is None else np.asarray(group, np.int64))


class _Check:
    def __init__(
        self,
        time: NDArray[np.float64],
        size: NDArray[np.float64],
        edges: NDArray[np.int64],
        output: NDArray[np.float64],
        memory: NDArray[np.float64],
        host: NDArray[np.bool_],
        rate_in: NDArray[np.float64],
        rate_out: NDArray[np.float64],
        placement: NDArray[np.int64],
        tasks: Sequence[str] | None,
        devices: Sequence[str] | None,
    ) -> None:
        self.time, self.size, self.edges, self.output, self.limit = time, size, edges.tolist(), output, memory
        self.host, self.rate_in, self.rate_out = host, rate_in, rate_out
        self.tasks, self.devices = tasks, devices
        self.wrong: list[str] = []
        n, d = time.shape
        if placement.shape != (n,):
            self.wrong.append(f"the plan places {placement.size} tasks; there are {n}")
            placement = np.resize(np.append(placement.ravel(), -1), n)
        astray = (placement < 0) | (placement >= d)
        self._say([f"{self._task(v)} is on no device" for v in np.flatnonzero(astray).tolist()])
        self.on = np.where(astray, -1, placement).tolist()
        finite = time[np.isfinite(time)]
        self.whole = all(bool((a == np.floor(a)).all()) for a in (finite, output, rate_in[~host], rate_out[~host]))

    def report(self, number: NDArray[np.int64], most: int, group: NDArray[np.int64]) -> LatencyReport:
        n = len(self.on)
        if number.shape != (n,):
            self.wrong.append(f"the plan numbers the subgraphs of {number.size} tasks; there are {n}")
            number = np.ones(n, np.int64)
        held = self._memory()
        self._groups(group.tolist())
        unit, parts = self._units(number.tolist(), most)
        if self.wrong and (unit is None or min(self.on, default=0) < 0):
            return LatencyReport(math.inf, [math.inf] * n, (), held, tuple(self.wrong))
        assert unit is not None
        start, end, loads = self._run(unit, parts)
        ready = [end[k] for k in unit]
        runs = sorted((*key, start[k], end[k], loads[k]) for k, (key, members) in enumerate(parts) if key[1])
        runs.sort(key=lambda run: run[2])
        return LatencyReport(max(ready, default=0), ready, tuple(runs), held, tuple(self.wrong))

    def _task(self, v: int) -> str:
        return f"task {v if self.tasks is None else self.tasks[v]}"

    def _device(self, d: int) -> str:
        return f"device {d if self.devices is None else self.devices[d]}"

    def _say(self, sentences: list[str]) -> None:
        self.wrong += sentences[:_SHOWN]
        if len(sentences) > _SHOWN:
            self.wrong.append(f"{len(sentences) - _SHOWN} more violations of the same sort")

    def _sum(self, values: list[float]) -> float:
        if not all(map(math.isfinite, values)):
            return math.inf
        return sum(map(int, values)) if self.whole else math.fsum(values)

    def _memory(self) -> list[float]:
        """Bytes on each device; a limit is compared in exact fractions."""
        sizes: list[list[float]] = [[] for _ in self.limit]
        for d, s in zip(self.on, self.size.tolist(), strict=True):
            if d >= 0:
                sizes[d].append(s)
        held = []
        for d, limit in enumerate(self.limit.tolist()):
            exact = sum((Fraction(s) for s in sizes[d]), Fraction(0))
            held.append(float(exact))
            if limit < math.inf and exact > Fraction(limit):
                over = float(exact - Fraction(limit))
                self.wrong.append(f"{self._device(d)} holds {held[d]:g} of memory, {over:g} more than its {limit:g}")
        return held

    def _groups(self, group: list[int]) -> None:
        first: dict[int, int] = {}
        split: dict[int, str] = {}
        for v, g in enumerate(group):
            lead = first.setdefault(g, v)
            if g >= 0 and self.on[lead] != self.on[v]:
                places = [
                    f"{self._task(k)} on {self._device(self.on[k]) if self.on[k] >= 0 else 'no device'}"
                    for k in (lead, v)
                ]
                split.setdefault(g, f"group {g} is split: {' and '.join(places)}")
        self._say(list(split.values()))

    def _units(self, number: list[int], most: int) -> tuple[list[int] | None, list[tuple[tuple[int, int], list[int]]]]:
        """What runs as a whole: each task on a host, each subgraph; the unit of each task, and the tasks of each unit."""
        unit: list[int] = []
        parts: list[tuple[tuple[int, int], list[int]]] = []
        index: dict[tuple[int, int], int] = {}
        unable, unknown = [], []
        for v, d in enumerate(self.on):
            if d >= 0 and math.isinf(self.time[v, d]):
                unable.append(f"{self._task(v)} cannot run on {self._device(d)}")
            if d < 0 or self.host[d]:
                unit.append(len(parts))
                parts.append(((d, 0), [v]))
                continue
            if not 1 <= number[v] <= most:
                unknown.append(
                    f"{self._task(v)} is in subgraph {number[v]} of {self._device(d)}; expected a number from 1 to {most}"
                )
            k = index.setdefault((d, number[v]), len(parts))
            if k == len(parts):
                parts.append(((d, number[v]), []))
            parts[k][1].append(v)
            unit.append(k)
        self._say(unable)
        self._say(unknown)
        return (None if unknown or unable else unit), parts

    def _run(
        self, unit: list[int], parts: list[tuple[tuple[int, int], list[int]]]
    ) -> tuple[list[float], list[float], list[float]]:
        """Start, end and load of each unit, in the order in which they can begin."""
        reads: list[set[int]] = [set() for _ in parts]
        sends: list[set[int]] = [set() for _ in parts]
        waits: list[dict[int, tuple[int, int]]] = [{} for _ in parts]
        for u, v in self.edges:
            a, b = unit[u], unit[v]
            if a != b:
                reads[b].add(u)
                sends[a].add(u)
                waits[b].setdefault(a, (u, v))
        for d in range(len(self.limit)):
            own = sorted((key[1], k) for k, (key, _) in enumerate(parts) if key[0] == d and key[1])
            for (_, a), (_, b) in itertools.pairwise(own):
                waits[b].setdefault(a, (parts[a][1][0], parts[b][1][0]))
        loads = []
        for k, ((d, number), members) in enumerate(parts):
            terms = self.time[members, d].tolist() if d >= 0 else [math.inf]
            if number:
                terms += (self.output[sorted(reads[k])] * self.rate_in[d]).tolist()
                terms += (self.output[sorted(sends[k])] * self.rate_out[d]).tolist()
            loads.append(self._sum(terms))
        followers: list[list[int]] = [[] for _ in parts]
        missing = [len(w) for w in waits]
        for b, before in enumerate(waits):
            for a in before:
                followers[a].append(b)
        start = [math.inf] * len(parts)
        end = [math.inf] * len(parts)
        order = [k for k, left in enumerate(missing) if not left]
        for k in order:
            start[k] = max((end[a] for a in waits[k]), default=0)
            end[k] = start[k] + loads[k]
            for b in followers[k]:
                missing[b] -= 1
                if not missing[b]:
                    order.append(b)
        if len(order) < len(parts):
            self._circle(waits, missing, parts)
        return start, end, loads

    def _circle(
        self,
        waits: list[dict[int, tuple[int, int]]],
        missing: list[int],
        parts: list[tuple[tuple[int, int], list[int]]],
    ) -> None:
        """Name a circle among the units that never begin."""
        walk = [next(k for k, left in enumerate(missing) if left)]
        while True:
            before = next(a for a in waits[walk[-1]] if missing[a])
            if before in walk:
                break
            walk.append(before)
        ring = walk[walk.index(before) :][::-1]
        steps = []
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
            u, v = waits[b][a]
            names = [
                f"subgraph {number} of {self._device(d)}" if number else f"{self._task(members[0])}"
                for (d, number), members in (parts[a], parts[b])
            ]
            steps.append(f"{names[1]} waits for {names[0]} ({self._task(u)} before {self._task(v)})")
        self.wrong.append("the plan never ends: " + ", ".join(steps))
