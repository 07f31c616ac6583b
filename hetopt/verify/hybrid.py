"""Check a plan of pipeline stages with tensor and data parallelism and recomputation, and say what it takes, exactly.

What it is for: the facts of such a question (:func:`hybrid_facts`), the seconds a micro-batch of a plan takes, and every
constraint it breaks. What it is not: an optimiser. It shares nothing with :mod:`hetopt.algorithms`; sums are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.records import Mode
from hetopt.verify.assignment import placement_violations

__all__ = ["Configuration", "HybridFacts", "HybridReport", "check_hybrid", "hybrid_facts", "why_unlike"]

RESYNC = 4  # bytes sent and received for each byte of parameters in an all-reduce by parameter servers
_KEYS = ("activation", "parameters", "receive", "send")


@dataclass(frozen=True)
class Configuration:
    """One way to run a task on ``tensor`` devices (a mode of the instance).

    Attributes
    ----------
    name, tensor
        The mode's name and its number of devices.
    seconds
        Forward and backward pass of one micro-batch.
    memory, activation
        Bytes on each device at rest, and for each micro-batch in flight.
    parameters
        Bytes of weights on each device, which replicas keep equal.
    receive, send
        Bytes, by edge number, that the devices of a stage exchange when the edge comes from, or leads to, another stage.
    """

    name: str
    tensor: int
    seconds: float
    memory: float
    activation: float
    parameters: float
    receive: Mapping[int, float]
    send: Mapping[int, float]


@dataclass(frozen=True, eq=False)
class HybridFacts:
    """What the question reads of an instance: configurations of each task, micro-batches in a batch, bytes a second."""

    modes: tuple[tuple[Configuration, ...], ...]
    batch: int
    bandwidth: float
    capacity: float
    devices: int
    edges: NDArray[np.int64]
    data: NDArray[np.float64]


@dataclass(frozen=True)
class HybridReport:
    """What a plan amounts to: seconds, bytes and micro-batches in flight of each stage; sentences about what is wrong."""

    seconds: tuple[float, ...] = ()
    memory: tuple[float, ...] = ()
    in_flight: tuple[int, ...] = ()
    violations: tuple[str, ...] = ()

    @property
    def period(self) -> float:
        """Seconds a micro-batch: the slowest stage."""
        return max(self.seconds, default=math.inf)


def why_unlike(instance: Instance) -> str | None:
    """Why the devices are not the equal devices of one cluster, which the question needs; None when they are."""
    time, capacity = instance.time, instance.capacity
    if not np.isfinite(time).all() or (time != time[:, :1]).any() or (capacity != capacity[0]).any():
        return "its devices differ in time, memory, or in what may run on them; the question is about equal devices"
    if len(instance.devices) > 1 and (len(instance.links) != 1 or not _all_pairs(instance)):
        return "it needs exactly one link, between any two of its devices: each has the same way to all others"
    if instance.links and instance.links[0].latency:
        return "its link has a latency, which the question leaves out"
    return None


def _all_pairs(instance: Instance) -> bool:
    kinds = {device.type for device in instance.devices}
    return all(end == "*" or kinds == {end} for end in (instance.links[0].source, instance.links[0].target))


@lru_cache(maxsize=8)
def hybrid_facts(instance: Instance) -> HybridFacts:
    """Facts of the question.

    ``tables.hybrid`` is ``{"batch": N, "modes": {task: {mode: {"activation", "parameters", "receive", "send"}}}}`` with bytes
    by task name in ``receive`` and ``send``, one entry an edge.

    Raises
    ------
    InputError
        The table is missing or not what it should be, or a mode lacks its time.
    """
    table = instance.tables.get("hybrid")
    if not isinstance(table, Mapping) or set(table) != {"batch", "modes"} or not isinstance(table["modes"], Mapping):
        raise InputError(
            '$.tables.hybrid is not {"batch": micro-batches, "modes": {task: {mode: {...}}}}; expected that'
        )
    batch = table["batch"]
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= 2**31:
        raise InputError(f"$.tables.hybrid.batch is {batch!r}, expected a whole number of micro-batches from 1 on")
    sources: list[dict[str, int]] = [{} for _ in instance.labels]
    targets: list[dict[str, int]] = [{} for _ in instance.labels]
    for e, (u, v) in enumerate(instance.edges.tolist()):
        sources[v][instance.labels[u]], targets[u][instance.labels[v]] = e, e
    modes = []
    for k, label in enumerate(instance.labels):
        given = instance.columns.modes.get(k, ())
        names = [mode.name for mode in given]
        extra = table["modes"].get(label)
        if not given or not isinstance(extra, Mapping) or set(extra) != set(names) or len(set(names)) < len(names):
            raise InputError(
                f"$.tables.hybrid.modes.{label} does not say of each mode of task {label!r} once what it needs; "
                f"expected an entry for each of {names}"
            )
        place = f"$.tables.hybrid.modes.{label}"
        modes.append(
            tuple(
                _configuration(instance.task(k).memory_of(mode), mode, extra[mode.name], place, sources[k], targets[k])
                for mode in given
            )
        )
    for label in table["modes"]:
        if label not in instance.task_index:
            raise InputError(
                f"$.tables.hybrid.modes names {label!r}; {nearest(str(label), instance.labels, what='tasks')}"
            )
    bandwidth = instance.links[0].bandwidth if instance.links else None
    return HybridFacts(
        tuple(modes),
        batch,
        math.inf if bandwidth is None else float(bandwidth),
        float(instance.capacity[0]),
        instance.n_devices,
        instance.edges,
        instance.edge_data,
    )


def _configuration(
    memory: float, mode: Mode, extra: Any, path: str, sources: dict[str, int], targets: dict[str, int]
) -> Configuration:
    path = f"{path}.{mode.name}"
    if not isinstance(extra, Mapping) or set(extra) != set(_KEYS):
        raise InputError(f"{path} is {extra!r}, expected an object with {', '.join(_KEYS)}")
    times = list(mode.time.values()) if isinstance(mode.time, dict) else mode.time or []
    if not times or any(time is None or time != times[0] for time in times):
        raise InputError(f"{path}: the mode needs one `time` on all devices, and has {mode.time!r}")
    activation, parameters = (_bytes(extra[key], f"{path}.{key}") for key in ("activation", "parameters"))
    ends = []
    for key, known in (("receive", sources), ("send", targets)):
        if not isinstance(extra[key], Mapping) or set(extra[key]) != set(known):
            raise InputError(f"{path}.{key} is {extra[key]!r}, expected bytes for each of {sorted(known)}")
        ends.append({known[name]: _bytes(value, f"{path}.{key}.{name}") for name, value in extra[key].items()})
    seconds = times[0]
    assert seconds is not None
    return Configuration(mode.name, mode.devices, seconds, memory, activation, parameters, ends[0], ends[1])


def _bytes(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2.0**1000:
        raise InputError(f"{path} is {value!r}, expected bytes, a number >= 0")
    return value


def check_hybrid(
    instance: Instance, facts: HybridFacts, placement: NDArray[np.int64] | None, details: Mapping[str, Any]
) -> HybridReport:
    """Evaluate a plan and list what is wrong with it.

    ``placement`` (n,) is the first device of each task's stage; ``details`` holds ``stages``, in the order of the pipeline, each
    ``{"devices": [names], "tensor": t, "data": d}``, and ``modes``, the name of each task's mode.
    """
    wrong = [*placement_violations(instance, placement, limits=False)]
    if set(details) != {"stages", "modes"}:
        wrong.append(f"the plan's details hold {sorted(map(str, details))}, expected 'modes' and 'stages'")
    if wrong or placement is None:
        return HybridReport(violations=tuple(wrong))
    stages = _stages(instance, details["stages"], facts, wrong)
    chosen = _chosen(instance, details["modes"], facts, wrong)
    if wrong:
        return HybridReport(violations=tuple(wrong))
    names = instance.device_names
    of = {devices[0]: at for at, (devices, _, _) in enumerate(stages)}
    where = [of.get(device, -1) for device in placement.tolist()]
    for k, at in enumerate(where):
        if at < 0:
            wrong.append(
                f"task {instance.labels[k]!r} is on {names[int(placement[k])]!r}, the first device of no stage"
            )
    wrong += [f"stage {at + 1} of the plan holds no task" for at in range(len(stages)) if at not in where]
    if wrong:
        return HybridReport(violations=tuple(wrong))
    for u, v in facts.edges.tolist():
        if where[u] > where[v]:
            wrong.append(
                f"{instance.labels[v]!r} needs {instance.labels[u]!r}, whose stage comes later in the pipeline"
            )
    seconds, memory, flight = [], [], []
    for at, (devices, tensor, data) in enumerate(stages):
        tasks = [k for k, stage in enumerate(where) if stage == at]
        for k in tasks:
            if chosen[k].tensor != tensor:
                wrong.append(
                    f"task {instance.labels[k]!r} runs in mode {chosen[k].name!r} on {chosen[k].tensor} devices, "
                    f"and its stage has tensor degree {tensor}"
                )
        copies = sum(d for _, _, d in stages[at:])
        flight.append(-(-copies // data))
        need = sum(
            (Fraction(chosen[k].activation) * flight[-1] + Fraction(chosen[k].memory) for k in tasks), Fraction(0)
        )
        if need > facts.capacity:
            over = float(need - Fraction(facts.capacity))
            wrong.append(
                f"device {names[devices[0]]!r} needs {float(need):.12g} bytes of memory with {flight[-1]} micro-batches in "
                f"flight and has {facts.capacity:.12g}: {over:.12g} too many"
            )
        memory.append(float(need))
        seconds.append(float(_seconds(facts, chosen, where, at, tasks, data)))
    if sum(data for _, _, data in stages) > facts.batch:
        copies = sum(data for _, _, data in stages)
        wrong.append(f"the stages have {copies} replicas in all, more than the {facts.batch} micro-batches of a batch")
    return HybridReport(tuple(seconds), tuple(memory), tuple(flight), tuple(wrong))


def _seconds(
    facts: HybridFacts, chosen: list[Configuration], where: list[int], at: int, tasks: list[int], data: int
) -> Fraction:
    """Seconds of a micro-batch on a stage: computation, what crosses its border, its share of keeping replicas equal."""
    work = sum((Fraction(chosen[k].seconds) for k in tasks), Fraction(0))
    crossing = Fraction(0)
    for e, (u, v) in enumerate(facts.edges.tolist()):
        if (where[u] == at) != (where[v] == at):
            sync = chosen[u].send[e] if where[u] == at else chosen[v].receive[e]
            crossing += 2 * (Fraction(float(facts.data[e])) + Fraction(sync))
    resync = sum((Fraction(chosen[k].parameters) for k in tasks), Fraction(0)) * RESYNC * (data - 1) / facts.batch
    traffic = (crossing + resync) / Fraction(facts.bandwidth) if math.isfinite(facts.bandwidth) else Fraction(0)
    return (work + traffic) / data


def _stages(
    instance: Instance, given: Any, facts: HybridFacts, wrong: list[str]
) -> list[tuple[tuple[int, ...], int, int]]:
    """Device numbers, tensor degree and data degree of each stage; complaints go into ``wrong``."""
    stages: list[tuple[tuple[int, ...], int, int]] = []
    seen: set[str] = set()
    for at, stage in enumerate(given if isinstance(given, list) else [None]):
        path = f"stage {at + 1} of the plan"
        if not isinstance(stage, Mapping) or set(stage) != {"devices", "tensor", "data"}:
            wrong.append(f"{path} is {stage!r}, expected devices, tensor and data")
            continue
        devices, tensor, data = stage["devices"], stage["tensor"], stage["data"]
        if not all(type(degree) is int and degree >= 1 for degree in (tensor, data)):
            wrong.append(f"{path} has the degrees {tensor!r} and {data!r}, expected whole numbers from 1 on")
            continue
        if not isinstance(devices, list) or not all(isinstance(v, str) and v in instance.device_index for v in devices):
            wrong.append(f"{path} has the devices {devices!r}, expected a list of device names")
            continue
        if len(devices) != tensor * data:
            wrong.append(f"{path} has {len(devices)} devices, expected {tensor} x {data} = {tensor * data}")
            continue
        if facts.batch % data:
            wrong.append(
                f"{path} has data degree {data}, which does not divide the batch of {facts.batch} micro-batches"
            )
        for name in devices:
            if name in seen:
                wrong.append(f"device {name!r} is named twice in the plan's stages")
            seen.add(name)
        stages.append((tuple(instance.device_index[name] for name in devices), tensor, data))
    return stages


def _chosen(instance: Instance, given: Any, facts: HybridFacts, wrong: list[str]) -> list[Configuration]:
    """Configuration of each task; complaints go into ``wrong``."""
    if not isinstance(given, Mapping) or set(given) != set(instance.labels):
        wrong.append("the plan's modes do not name each task once")
        return []
    chosen = []
    for k, label in enumerate(instance.labels):
        known = {mode.name: mode for mode in facts.modes[k]}
        name = given[label]
        if not isinstance(name, str) or name not in known:
            wrong.append(f"task {label!r} has no mode {name!r}; {nearest(str(name), list(known), what='its modes')}")
            continue
        chosen.append(known[name])
    return chosen
