"""Loads, memory and contiguity of a pipeline partition, from the original task arrays.

What it is for: deciding whether a plan of tasks on devices is what it claims, without anything of the code that made it:
no classes, no nets, no ideals, no rounding to integers. What it is not: an optimiser, and a judge of the instance.

A device that holds the tasks S has the load

    sum of time[v, d] over v in S
    + rate_in[d] * sum of weight[u] over tasks u outside S that feed a task in S
    + rate_out[d] * sum of weight[u] over tasks u in S that feed a task outside S

each output at most once in and once out per device. The value is the largest load, or (``variant="max"``) the largest
forward load plus the largest backward load, where times count in the pass of their task and outputs in the pass of the
task that makes them. Integral data are added up in Python integers; others with one rounding per sum.

Contiguity speaks of forward tasks. ``"ideals"``: the devices can be put in an order in which no task feeds a task on an
earlier device. ``"device"``: no path of forward tasks leaves a device and comes back. ``"none"``: anything goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["StageReport", "check_stages"]

_SHOWN = 10  # violations of one sort that are written out


class StageReport(NamedTuple):
    """What a plan amounts to; numbers are ints where all data are integral, else floats.

    Attributes
    ----------
    value
        Largest load, or sum of the two passes' largest loads; ``inf`` where a task runs on a device that cannot run it.
    load, compute, arrive, leave, backward_load
        (d,) seconds of each device: ``load = compute + arrive + leave``, of which ``backward_load`` is the backward pass.
    memory
        (d,) sum of sizes on each device, with a limit or without.
    order
        Devices that hold tasks, in an order that shows contiguity of the kind "ideals"; None when there is none.
    violations
        One sentence each; empty when the plan is what it claims.
    """

    value: float
    load: list[float]
    compute: list[float]
    arrive: list[float]
    leave: list[float]
    backward_load: list[float]
    memory: list[float]
    order: tuple[int, ...] | None
    violations: tuple[str, ...]


def check_stages(
    time: ArrayLike,
    size: ArrayLike,
    edges: ArrayLike,
    weight: ArrayLike,
    memory: ArrayLike,
    rate_in: ArrayLike,
    rate_out: ArrayLike,
    placement: ArrayLike,
    *,
    group: ArrayLike | None = None,
    backward: ArrayLike | None = None,
    contiguity: str = "ideals",
    mirror_orphans: bool = False,
    variant: str = "sum",
    claimed: float | None = None,
    tolerance: float = 1e-9,
    tasks: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
) -> StageReport:
    """Evaluate a placement of ``n`` tasks on ``d`` devices and list what is wrong with it.

    Parameters
    ----------
    time
        (n, d) seconds; ``inf`` where a task cannot run.
    size, weight
        (n,) bytes of memory; bytes (or seconds) of output.
    edges
        (e, 2) pairs (producer, consumer).
    memory, rate_in, rate_out
        (d,) bytes (``inf`` without limit), seconds per unit of weight received and sent.
    placement
        (n,) device of each task.
    group
        (n,) tasks with the same number must share a device; -1 for none.
    backward
        (n,) whether a task belongs to the backward pass.
    contiguity
        ``"ideals"``, ``"device"`` or ``"none"``.
    mirror_orphans
        With ``"ideals"``: backward edges of a group without forward tasks count too, reversed.
    variant
        ``"sum"`` or ``"max"``.
    claimed
        Value that the plan is said to have, compared within the relative ``tolerance``.
    tasks, devices
        Names for the sentences; numbers without.

    Raises
    ------
    ValueError
        If ``contiguity`` or ``variant`` is unknown. Wrong plans are reported, not raised.
    """
    if contiguity not in ("ideals", "device", "none"):
        raise ValueError(f"contiguity is {contiguity!r}; expected 'ideals', 'device' or 'none'")
    if variant not in ("sum", "max"):
        raise ValueError(f"variant is {variant!r}; expected 'sum' or 'max'")
    return _Check(
        np.asarray(time, np.float64),
        np.asarray(size, np.float64),
        np.asarray(edges, np.int64).reshape(-1, 2),
        np.asarray(weight, np.float64),
        np.asarray(memory, np.float64),
        np.asarray(rate_in, np.float64),
        np.asarray(rate_out, np.float64),
        np.asarray(placement, np.int64),
        None if group is None else np.asarray(group, np.int64),
        None if backward is None else np.asarray(backward, np.bool_),
        tasks,
        devices,
    ).report(contiguity, mirror_orphans, variant, claimed, tolerance)


class _Check:
    def __init__(
        self,
        time: NDArray[np.float64],
        size: NDArray[np.float64],
        edges: NDArray[np.int64],
        weight: NDArray[np.float64],
        memory: NDArray[np.float64],
        rate_in: NDArray[np.float64],
        rate_out: NDArray[np.float64],
        placement: NDArray[np.int64],
        group: NDArray[np.int64] | None,
        backward: NDArray[np.bool_] | None,
        tasks: Sequence[str] | None,
        devices: Sequence[str] | None,
    ) -> None:
        self.n, self.d = time.shape
        self.time, self.size, self.edges, self.weight = time, size, edges, weight
        self.limit, self.rate_in, self.rate_out = memory, rate_in, rate_out
        self.backward = np.zeros(self.n, np.bool_) if backward is None else backward
        self.group = np.full(self.n, -1) if group is None else group
        self.task_names, self.device_names = tasks, devices
        self.wrong: list[str] = []
        if placement.shape != (self.n,):
            self.wrong.append(f"the plan places {placement.size} tasks; there are {self.n}")
            placement = np.resize(np.append(placement.ravel(), -1), self.n)
        astray = (placement < 0) | (placement >= self.d)
        self._list(np.flatnonzero(astray), lambda v: f"{self._task(v)} is on no device", "tasks are on no device")
        self.on = np.where(astray, -1, placement)

    def report(
        self, contiguity: str, mirror_orphans: bool, variant: str, claimed: float | None, tolerance: float
    ) -> StageReport:
        compute = self._compute()
        arrive, leave = self._communication()
        memory = self._memory()
        self._groups()
        order = self._stage_order(mirror_orphans, complain=contiguity == "ideals")
        if contiguity == "device":
            self._convexity()
        passes = [[compute[p][k] + arrive[p][k] + leave[p][k] for k in range(self.d)] for p in (0, 1)]
        load = [a + b for a, b in zip(*passes, strict=True)]
        if not self._integral():
            parts = (compute, arrive, leave)
            load = [math.fsum(part[p][k] for part in parts for p in (0, 1)) for k in range(self.d)]
        value = max(load, default=0) if variant == "sum" else sum(max(part, default=0) for part in passes)
        if claimed is not None and not abs(value - claimed) <= tolerance * max(abs(value), abs(claimed)):
            self.wrong.append(f"the plan is said to have the value {claimed!r}; it has {value!r}")
        whole, come, go = ([a + b for a, b in zip(*part, strict=True)] for part in (compute, arrive, leave))
        return StageReport(value, load, whole, come, go, passes[1], memory, order, tuple(self.wrong))

    def _task(self, v: int) -> str:
        return f"task {v if self.task_names is None else self.task_names[v]}"

    def _device(self, d: int) -> str:
        return f"device {d if self.device_names is None else self.device_names[d]}"

    def _list(self, items: NDArray[np.int64], sentence, rest: str) -> None:  # type: ignore[no-untyped-def]
        self.wrong += [sentence(int(x)) for x in items[:_SHOWN]]
        if len(items) > _SHOWN:
            self.wrong.append(f"{len(items) - _SHOWN} more {rest}")

    def _integral(self) -> bool:
        arrays = (self.time[np.isfinite(self.time)], self.weight, self.rate_in, self.rate_out)
        return all(bool((a == np.floor(a)).all()) for a in arrays)

    def _per_device(self, device: NDArray[np.int64], values: NDArray[np.float64], integral: bool) -> list[float]:
        """Sum of values by device: exact in integers, else rounded once."""
        order = np.argsort(device, kind="stable")
        ends = np.searchsorted(device[order], np.arange(self.d + 1))
        chunks = [values[order[ends[k] : ends[k + 1]]].tolist() for k in range(self.d)]
        if integral:
            return [sum(map(int, c)) if all(map(math.isfinite, c)) else math.inf for c in chunks]
        return [math.fsum(c) for c in chunks]

    def _compute(self) -> list[list[float]]:
        placed = np.flatnonzero(self.on >= 0)
        seconds = self.time[placed, self.on[placed]]
        self._list(
            placed[np.isinf(seconds)],
            lambda v: f"{self._task(v)} cannot run on {self._device(int(self.on[v]))}",
            "tasks are on a device that cannot run them",
        )
        result = []
        for part in (False, True):
            chosen = self.backward[placed] == part
            result.append(self._per_device(self.on[placed][chosen], seconds[chosen], self._integral()))
        return result

    def _communication(self) -> tuple[list[list[float]], list[list[float]]]:
        """Arrivals and departures by pass: the distinct pairs of a producer and a device that it feeds elsewhere."""
        producer, consumer = self.edges[:, 0], self.edges[:, 1]
        source, target = self.on[producer], self.on[consumer]
        cut = (source != target) & (source >= 0) & (target >= 0) & (self.weight[producer] > 0)
        pairs = np.unique(producer[cut] * max(self.d, 1) + target[cut])
        sender, receiver = pairs // max(self.d, 1), pairs % max(self.d, 1)
        senders = np.unique(sender)
        integral = self._integral()
        arrive, leave = [], []
        for part in (False, True):
            come = self.backward[sender] == part
            weight = self.weight[sender[come]] * self.rate_in[receiver[come]]
            arrive.append(self._per_device(receiver[come], weight, integral))
            go = senders[self.backward[senders] == part]
            leave.append(self._per_device(self.on[go], self.weight[go] * self.rate_out[self.on[go]], integral))
        return arrive, leave

    def _memory(self) -> list[float]:
        placed = np.flatnonzero(self.on >= 0)
        integral = bool((self.size == np.floor(self.size)).all())
        held = self._per_device(self.on[placed], self.size[placed], integral)
        for k in range(self.d):
            limit = float(self.limit[k])
            if held[k] < limit * (1 - 1e-9) or math.isinf(limit):
                continue
            # near the limit only the exact sum decides
            exact = sum((Fraction(s) for s in self.size[self.on == k].tolist()), Fraction(0))
            if exact > Fraction(limit):
                excess = float(exact - Fraction(limit))
                self.wrong.append(f"{self._device(k)} holds {held[k]:g} of memory, {excess:g} more than its {limit:g}")
        return held

    def _groups(self) -> None:
        member = np.flatnonzero(self.group >= 0)
        numbers, first, inverse = np.unique(self.group[member], return_index=True, return_inverse=True)
        lead = member[first]
        apart = np.flatnonzero(self.on[member] != self.on[lead[inverse]])
        split = np.unique(inverse[apart], return_index=True)
        where = dict(zip(split[0].tolist(), member[apart[split[1]]].tolist(), strict=True))

        def sentence(g: int) -> str:
            a, b = int(lead[g]), where[g]
            places = " and ".join(
                f"{self._task(v)} on {self._device(int(self.on[v])) if self.on[v] >= 0 else 'no device'}"
                for v in (a, b)
            )
            return f"group {numbers[g]} is split: {places}"

        self._list(split[0], sentence, "groups are split")

    def _forward_edges(self, mirror_orphans: bool) -> NDArray[np.int64]:
        producer, consumer = self.edges[:, 0], self.edges[:, 1]
        kept = self.edges[~self.backward[producer] & ~self.backward[consumer]]
        if mirror_orphans:
            alone = np.where(self.group >= 0, self.group, self.group.max(initial=-1) + 1 + np.arange(self.n))
            orphan = ~np.isin(alone, alone[~self.backward])
            mirrored = self.backward[producer] & self.backward[consumer] & (orphan[producer] | orphan[consumer])
            kept = np.concatenate([kept, self.edges[mirrored][:, ::-1]])
        placed = (self.on[kept] >= 0).all(axis=1)
        return np.asarray(kept[placed & (kept[:, 0] != kept[:, 1])])

    def _stage_order(self, mirror_orphans: bool, complain: bool) -> tuple[int, ...] | None:
        """Order of the devices in which every forward edge points onwards; a cycle of devices is named."""
        edges = self._forward_edges(mirror_orphans)
        source, target = self.on[edges[:, 0]], self.on[edges[:, 1]]
        cut = np.flatnonzero(source != target)
        pairs, example = np.unique(source[cut] * max(self.d, 1) + target[cut], return_index=True)
        feeds: dict[int, dict[int, int]] = {int(k): {} for k in np.unique(self.on[self.on >= 0])}
        for pair, e in zip(pairs.tolist(), cut[example].tolist(), strict=True):
            feeds[pair // self.d][pair % self.d] = e
        missing = dict.fromkeys(feeds, 0)
        for targets in feeds.values():
            for k in targets:
                missing[k] += 1
        order = [k for k in sorted(missing) if missing[k] == 0]
        for k in order:
            for follower in feeds[k]:
                missing[follower] -= 1
                if missing[follower] == 0:
                    order.append(follower)
        if len(order) == len(feeds):
            return tuple(order)
        if complain:
            # every device left has a feeder left; walking feeders backwards must come round
            fed_by = {k: j for j in feeds if missing[j] > 0 for k in feeds[j] if missing[k] > 0}
            walk = [next(k for k in sorted(missing) if missing[k] > 0)]
            while fed_by[walk[-1]] not in walk:
                walk.append(fed_by[walk[-1]])
            ring = walk[walk.index(fed_by[walk[-1]]) :][::-1]
            ring = ring[ring.index(min(ring)) :] + ring[: ring.index(min(ring))]
            steps = []
            for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
                u, v = edges[feeds[a][b]].tolist()
                steps.append(f"{self._task(u)} on {self._device(a)} feeds {self._task(v)} on {self._device(b)}")
            self.wrong.append("the stages have no order: " + ", ".join(steps))
        return None

    def _convexity(self) -> None:
        """Complain of each device that a forward path leaves and enters again; devices are bits of one integer."""
        edges = self._forward_edges(mirror_orphans=False)
        before: list[list[int]] = [[] for _ in range(self.n)]
        after: list[list[int]] = [[] for _ in range(self.n)]
        for u, v in edges.tolist():
            before[v].append(u)
            after[u].append(v)
        missing = [len(b) for b in before]
        on = self.on.tolist()
        touched, left = [0] * self.n, [0] * self.n
        order = [v for v in range(self.n) if missing[v] == 0]
        seen = 0
        for v in order:
            for w in after[v]:
                missing[w] -= 1
                if missing[w] == 0:
                    order.append(w)
            if on[v] < 0:
                continue
            own = 1 << on[v]
            above = gone = 0
            for u in before[v]:
                above |= touched[u]
                gone |= left[u]
            if gone & own and not seen & own:
                seen |= own
                through = next(u for u in before[v] if left[u] & own)
                start = through
                while on[start] != on[v]:
                    start = next(u for u in before[start] if touched[u] & own)
                self.wrong.append(
                    f"{self._device(on[v])} is entered again: {self._task(start)} on it leads to {self._task(v)} on it "
                    f"through {self._task(through)} on {self._device(on[through])}"
                )
            touched[v] = above | own
            left[v] = gone | (above & ~own)
        if len(order) < self.n:
            self.wrong.append(
                f"{self.n - len(order)} forward tasks lie on or after a cycle; no device holds a convex part"
            )
