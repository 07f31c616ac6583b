"""Loads and memory of a pipeline whose stages share devices, keep inputs in flight, overlap transfers or talk directly.

What it is for: judging plans under the rules that :mod:`hetopt.verify.stages` does not know, from the instance's tasks, edges
and links alone. What it is not: an optimiser; nothing of the code that makes plans is used. Groups, eligibility, contiguity and
memory are that module's; here are the stages, the transfers and the loads.

A *stage* is a list of devices; the first holds the tasks, the others are alike and hold the same. Stages are given in pipeline
order, or there is one for each device that holds tasks. For the stage of device i with r devices,

    load = (compute + transfers) / r + sync,  with ``overlap``  max(compute, transfers) / r + sync.

``transfers="host"``: an output with a consumer elsewhere is sent once to host memory, and received once by each device that
needs it; each costs latency + bytes / bandwidth of the device's link with the host. ``"direct"``: it is sent once to each
device that needs it, over the link between the two, and both ends are busy for it. A host device is busy with neither.

``sync``, where there are backward tasks and r > 1: a ring all-reduce of the stage's ``memory`` bytes,
2 (r - 1) (bytes / (r bandwidth) + latency) over the slowest link among its devices, once in ``batch`` inputs; 0 for host devices.

``in_flight="1f1b"``: the k-th stage from the end holds its tasks' ``activation`` k times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import HOST, Instance
from hetopt.verify.stages import check_stages

__all__ = ["RuledReport", "check_rules"]


class RuledReport(NamedTuple):
    """What a plan amounts to; lists have one entry a device, the devices that only share a stage repeat its numbers.

    Attributes
    ----------
    value
        Largest load, or the largest forward load plus the largest backward load.
    load, compute, arrive, leave, sync, memory
        (d,) seconds for each input (compute and transfers before they are shared), and bytes.
    stages
        Devices of each stage, in pipeline order where there is one.
    violations
        One sentence each.
    """

    value: float
    load: list[float]
    compute: list[float]
    arrive: list[float]
    leave: list[float]
    sync: list[float]
    memory: list[float]
    stages: tuple[tuple[int, ...], ...]
    violations: tuple[str, ...]


def check_rules(
    instance: Instance,
    placement: NDArray[np.int64],
    rules: Mapping[str, Any],
    named: object = None,
) -> RuledReport:
    """Evaluate a placement of the tasks under rules.

    Parameters
    ----------
    instance
        Tasks, edges, devices and links.
    placement
        (n,) device of each task.
    rules
        ``contiguous``, ``passes``, ``transfers``, ``overlap``, ``replicas``, ``batch``, ``in_flight`` as the question has them.
    named
        The plan's stages: lists of device names in pipeline order, or None.

    Raises
    ------
    InputError
        Two devices must talk and have no link.
    """
    wrong: list[str] = []
    n, d = instance.n_tasks, instance.n_devices
    on = np.asarray(placement, np.int64)
    if on.shape != (n,) or (n and not 0 <= on.min() <= on.max() < d):
        lost = [math.inf] * d
        return RuledReport(math.inf, lost, lost, lost, lost, lost, lost, (), ("the plan does not place every task",))
    stages = _stages(instance, on, rules, named, wrong)
    number = {i: k for k, stage in enumerate(stages) for i in stage[:1]}
    size = np.asarray(instance.memory, np.float64)
    if rules["in_flight"] == "1f1b":
        flight = np.array([len(stages) - number.get(i, 0) for i in range(d)], np.float64)
        size = size + flight[on] * instance.columns.activation
    nothing = np.zeros(d)
    base = check_stages(
        instance.time, size, instance.edges, np.zeros(n), instance.capacity, nothing, nothing, on,
        group=instance.group, backward=instance.backward, contiguity=rules["contiguous"], mirror_orphans=True,
        tasks=instance.labels, devices=instance.device_names,
    )  # fmt: skip
    wrong += base.violations
    if rules["contiguous"] == "ideals":
        _order(instance, on, number, wrong)
    come, go = _transfers(instance, on, rules["transfers"] == "direct")
    compute = _compute(instance, on)
    passes, sync, shared = [], [0.0] * d, {stage[0]: stage for stage in stages}
    for p in (0, 1):
        row = []
        for i in range(d):
            transfers = math.fsum([*come[p][i], *go[p][i]])
            spent = math.fsum(compute[p][i])
            busy = max(spent, transfers) if rules["overlap"] else math.fsum([*compute[p][i], *come[p][i], *go[p][i]])
            row.append(busy / len(shared.get(i, (i,))))
        passes.append(row)
    for first, stage in shared.items():
        sync[first] = _sync(instance, on, stage, rules["batch"])
    if rules["passes"] == "max":
        load = [a + b for a, b in zip(*passes, strict=True)]
        value = sum(max(row, default=0.0) for row in passes)
    else:
        load = [
            _together(compute, come, go, i, rules["overlap"]) / len(shared.get(i, (i,))) + sync[i] for i in range(d)
        ]
        value = max(load, default=0.0)
    compute_all, arrive_all, leave_all = (
        [math.fsum([*part[0][i], *part[1][i]]) for i in range(d)] for part in (compute, come, go)
    )
    memory = [float(x) for x in base.memory]
    for stage in stages:
        for other in stage[1:]:
            for numbers in (load, compute_all, arrive_all, leave_all, sync, memory):
                numbers[other] = numbers[stage[0]]
    return RuledReport(value, load, compute_all, arrive_all, leave_all, sync, memory, stages, tuple(wrong))


Parts = list[list[list[float]]]  # seconds by pass and device


def _together(compute: Parts, come: Parts, go: Parts, i: int, overlap: bool) -> float:
    spent = [*compute[0][i], *compute[1][i]]
    moved = [*come[0][i], *come[1][i], *go[0][i], *go[1][i]]
    return max(math.fsum(spent), math.fsum(moved)) if overlap else math.fsum([*spent, *moved])


def _stages(
    instance: Instance, on: NDArray[np.int64], rules: Mapping[str, Any], named: object, wrong: list[str]
) -> tuple[tuple[int, ...], ...]:
    """Stages that the plan names, without what cannot be read, or those that its placement makes."""
    used = np.unique(on).tolist()
    if named is None:
        report = check_stages(
            instance.time, instance.memory, instance.edges, np.zeros(instance.n_tasks),
            np.full(instance.n_devices, np.inf), np.zeros(instance.n_devices), np.zeros(instance.n_devices), on,
            group=instance.group, backward=instance.backward, contiguity="none", mirror_orphans=True,
        )  # fmt: skip
        return tuple((i,) for i in report.order or used)
    known = instance.device_index
    if not isinstance(named, Sequence) or not all(
        isinstance(stage, Sequence) and not isinstance(stage, str) and stage and all(x in known for x in stage)
        for stage in named
    ):
        wrong.append("the plan's stages are not lists of device names")
        return tuple((i,) for i in used)
    stages = tuple(tuple(known[x] for x in stage) for stage in named)
    everything = [i for stage in stages for i in stage]
    if len(set(everything)) < len(everything):
        wrong.append("the plan's stages name a device twice")
    if sorted(stage[0] for stage in stages) != used:
        wrong.append("the first devices of the plan's stages are not the devices that hold tasks")
    for stage in stages:
        if len(stage) > rules["replicas"]:
            first, more = instance.device_names[stage[0]], len(stage) - 1
            wrong.append(f"{first} shares its stage with {more} more; replicas is {rules['replicas']}")
        for other in stage[1:]:
            if not _alike(instance, stage[0], other):
                names = instance.device_names
                wrong.append(f"{names[other]} shares the stage of {names[stage[0]]} and is not like it")
    return stages


def _alike(instance: Instance, a: int, b: int) -> bool:
    """Equal times, memory and links with the host."""
    names = instance.device_names
    if not (instance.time[:, a] == instance.time[:, b]).all() or instance.capacity[a] != instance.capacity[b]:
        return False
    if instance.is_host[a] or instance.is_host[b]:
        return bool(instance.is_host[a] and instance.is_host[b])
    ways = [[instance.link(HOST, names[i]), instance.link(names[i], HOST)] for i in (a, b)]
    return all(
        (x is None) == (y is None) and (x is None or (x.bandwidth, x.latency) == (y.bandwidth, y.latency))  # type: ignore[union-attr]
        for x, y in zip(*ways, strict=True)
    )


def _order(instance: Instance, on: NDArray[np.int64], number: Mapping[int, int], wrong: list[str]) -> None:
    """Complain of the first forward edge that leads to an earlier stage."""
    for u, v in instance.edges.tolist():
        if instance.backward[u] or instance.backward[v]:
            continue
        if number.get(int(on[u]), 0) > number.get(int(on[v]), 0):
            wrong.append(f"task {instance.labels[u]} feeds task {instance.labels[v]}, whose stage is earlier")
            return


def _compute(instance: Instance, on: NDArray[np.int64]) -> Parts:
    parts: Parts = [[[] for _ in range(instance.n_devices)] for _ in (0, 1)]
    for v, i in enumerate(on.tolist()):
        parts[int(instance.backward[v])][i].append(float(instance.time[v, i]))
    return parts


def _seconds(instance: Instance, source: str, target: str, bytes_: float) -> float:
    link = instance.need_link(source, target)
    return float(link.latency) + (0.0 if link.bandwidth is None else bytes_ / float(link.bandwidth))


def _transfers(instance: Instance, on: NDArray[np.int64], direct: bool) -> tuple[Parts, Parts]:
    """Seconds of each arrival and departure, by the pass of the task that makes the output."""
    come: Parts = [[[] for _ in range(instance.n_devices)] for _ in (0, 1)]
    go: Parts = [[[] for _ in range(instance.n_devices)] for _ in (0, 1)]
    names, sent = instance.device_names, set()
    for u, v in instance.edges.tolist():
        i, j, weight, p = int(on[u]), int(on[v]), float(instance.output[u]), int(instance.backward[u])
        if i == j or weight == 0:
            continue
        if direct:
            if (u, j) not in sent:
                spent = _seconds(instance, names[i], names[j], weight)
                if not instance.is_host[i]:
                    go[p][i].append(spent)
                if not instance.is_host[j]:
                    come[p][j].append(spent)
        else:
            if u not in sent and not instance.is_host[i]:
                go[p][i].append(_seconds(instance, names[i], HOST, weight))
            if (u, j) not in sent and not instance.is_host[j]:
                come[p][j].append(_seconds(instance, HOST, names[j], weight))
            sent.add(u)
        sent.add((u, j))
    return come, go


def _sync(instance: Instance, on: NDArray[np.int64], stage: tuple[int, ...], batch: int) -> float:
    r = len(stage)
    if r == 1 or not instance.backward.any() or instance.is_host[stage[0]]:
        return 0.0
    bytes_ = math.fsum(instance.memory[on == stage[0]].tolist())
    names = instance.device_names
    slowest = 0.0
    for a, b in itertools.permutations(stage, 2):
        link = instance.need_link(names[a], names[b])
        each = 0.0 if link.bandwidth is None else bytes_ / (r * float(link.bandwidth))
        slowest = max(slowest, each + float(link.latency))
    return 2.0 * (r - 1) * slowest / batch
