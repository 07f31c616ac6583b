"""Check a schedule of a stream of jobs whose devices run at several speeds; give each job's latency and the joules of each task.

Also the replay, without a solver and without compiled code, of lower bounds on mean latency and energy. Shares nothing with any
model. Whether a plan was made without knowing the future cannot be seen in the plan: that is its method's promise.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.schedule import check_schedule
from hetopt.verify.schedule_bounds import heads_and_tails

__all__ = ["Report", "Speed", "check_online", "replay_online_bound", "speeds_of"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-9
_KEYS = ("name", "speed", "power")


class Speed(NamedTuple):
    """A way in which a device runs: times are divided by ``speed``, ``power`` watts are drawn while a task runs."""

    name: str
    speed: float
    power: float


class Report(NamedTuple):
    """(n,) ends of tasks, (jobs,) latencies in seconds and energies in joules, and a sentence for each broken constraint."""

    done: Floats
    latency: Floats
    energy: Floats
    violations: tuple[str, ...]


def speeds_of(instance: Instance) -> tuple[tuple[Speed, ...], ...]:
    """The speeds of each device from ``tables.speeds``; without an entry one, at which times are as given.

    Power there is the device's ``power`` above its ``idle_power``, 0 where it has none.

    Raises
    ------
    InputError
        The table names no device, or an entry is not as expected.
    """
    table = instance.tables.get("speeds", {})
    if not isinstance(table, Mapping):
        raise InputError('$.tables.speeds must map devices, types or "*" to lists of speeds')
    known = {"*", *instance.device_names, *(v.type for v in instance.devices if v.type)}
    for name in table:
        if name not in known:
            raise InputError(f"$.tables.speeds names {name!r}, which is no device or type of the instance")
    rows = {name: _speeds(row, f"$.tables.speeds.{name}") for name, row in table.items()}
    found = []
    for device in instance.devices:
        own = next((rows[key] for key in (device.name, device.type, "*") if key in rows), None)
        above = max(0.0, float(device.power or 0) - float(device.idle_power or 0))
        found.append(own or (Speed("", 1.0, above),))
    return tuple(found)


def _speeds(row: Any, path: str) -> tuple[Speed, ...]:
    if not isinstance(row, list) or not row:
        raise InputError(f'{path} is {row!r}, expected a list of {{"name", "speed", "power"}}')
    found = []
    for k, entry in enumerate(row):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise InputError(f'{path}[{k}] is {entry!r}, expected {{"name", "speed", "power"}}')
        for key in entry:
            if key not in _KEYS:
                raise InputError(f"{path}[{k}] has {key!r}; {nearest(key, _KEYS, what='the keys')}")
        numbers = []
        for key, low in (("speed", 1e-9), ("power", 0.0)):
            value = entry.get(key, 0 if key == "power" else None)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= 1e9:
                raise InputError(f"{path}[{k}].{key} is {value!r}, expected a number from {low:g} to 1e9")
            numbers.append(float(value))
        found.append(Speed(entry["name"], *numbers))
    if len({speed.name for speed in found}) < len(found):
        raise InputError(f"{path} gives two speeds the same name")
    return tuple(found)


def check_online(instance: Instance, solution: Solution, most_energy: float | None = None) -> Report:
    """Recompute a plan; ``most_energy`` is the joules that a job may take.

    Latencies and energies are ``inf`` where a task has no place, no start or no speed.
    """
    n, jobs = instance.n_tasks, instance.n_jobs
    speed, power, wrong = _chosen(instance, solution)
    placement = solution.placement
    seconds = np.full(n, np.inf)
    if placement is not None and placement.shape == (n,):
        where = np.where((placement >= 0) & (placement < instance.n_devices), placement, 0)
        seconds = instance.time[np.arange(n), where] / speed
    done, violations = check_schedule(instance, placement, solution.start, seconds=seconds)
    joules = np.where(np.isfinite(done), np.where(np.isfinite(seconds), seconds, 0.0) * power, np.inf)
    last = np.full(jobs, -np.inf)
    np.maximum.at(last, instance.job_of, done)
    energy = np.bincount(instance.job_of, weights=joules, minlength=jobs).astype(np.float64)
    if most_energy is not None:
        for j in np.flatnonzero(energy > most_energy * (1 + TOLERANCE))[:20].tolist():
            wrong.append(
                f"job {instance.columns.job_name[j]!r} takes {energy[j]:.9g} J and may take {most_energy:.9g}: "
                f"{energy[j] - most_energy:.9g} too many"
            )
    return Report(done, last - instance.columns.release, energy, (*violations, *wrong))


def _chosen(instance: Instance, solution: Solution) -> tuple[Floats, Floats, list[str]]:
    """(n,) speed and power of each task as its plan says, and what is wrong with what it says."""
    n, tables = instance.n_tasks, speeds_of(instance)
    speed, power = np.full(n, np.nan), np.full(n, np.nan)
    told = solution.details.get("speeds", {})
    wrong = [f"the plan's details hold {key!r}, expected 'speeds'" for key in solution.details if key != "speeds"]
    if not isinstance(told, Mapping):
        return speed, power, [*wrong, f"the plan's speeds are {told!r}, expected a name for each task"]
    wrong += [
        f"the plan names a speed of {label!r}, which is no task" for label in told if label not in instance.task_index
    ]
    placement = solution.placement
    for k, label in enumerate(instance.labels):
        i = -1 if placement is None or placement.shape != (n,) else int(placement[k])
        if not 0 <= i < instance.n_devices:
            continue
        name = told.get(label, "")
        found = next((s for s in tables[i] if s.name == name), None)
        if found is None:
            choices = ", ".join(repr(s.name) for s in tables[i])
            wrong.append(
                f"task {label!r} runs on {instance.device_names[i]!r} at the speed {name!r}, expected one of {choices}"
            )
        else:
            speed[k], power[k] = found.speed, found.power
    return speed, power, wrong


def replay_online_bound(instance: Instance, certificate: Mapping[str, Any], energy_price: float) -> float:
    """Mean latency and energy that no plan can beat, as a certificate of kind ``alone`` or ``one-machine`` claims.

    ``alone``: each job as if it had all devices to itself, by heads and tails. ``one-machine``: under prices y of the devices'
    time with sum 1, all devices together do at most one priced second a second, and job j needs the sum of min_i y_i t_vi of
    them; so the stream ends no sooner than on one preemptive machine, where the shortest remaining job first is best for equal
    weights (L. Schrage, Operations Research 16, 1968), and the preemptive order by weight over work minimises the weighted mean
    busy times (M. Goemans, SODA 1997), half a job's work before its end. To either comes the least energy of every task.

    Raises
    ------
    ValueError
        The certificate is of another kind, or holds numbers that prove nothing.
    """
    kind = certificate.get("kind")
    weight, release = instance.columns.weight, instance.columns.release
    fastest = instance.time / np.array([max(s.speed for s in row) for row in speeds_of(instance)])
    if kind == "alone":
        head, tail = heads_and_tails(instance, fastest)
        own = (head + fastest + tail).min(axis=1)
        end = np.array(release)
        np.maximum.at(end, instance.job_of, own)
        total = math.fsum((weight * end).tolist())
    elif kind == "one-machine":
        prices = np.asarray(certificate.get("prices"), dtype=np.float64)
        if prices.shape != (instance.n_devices,) or not np.isfinite(prices).all() or (prices < 0).any():
            raise ValueError(f"expected {instance.n_devices} finite prices >= 0")
        if not prices.sum() > 0:
            raise ValueError("all prices are zero")
        usable = np.isfinite(fastest)
        priced = np.where(usable, np.where(usable, fastest, 0.0) * prices, np.inf).min(axis=1) / prices.sum()
        work = np.bincount(instance.job_of, weights=priced, minlength=instance.n_jobs)
        total = _one_machine(work.tolist(), release.tolist(), weight.tolist())
    else:
        raise ValueError(f"the certificate's kind is {kind!r}, expected 'alone' or 'one-machine'")
    if not math.isfinite(total):
        raise ValueError("some task can be reached on no device: the bound is infinite and proves nothing")
    slack = 2.0**-52 * (instance.n_tasks + 100) * total  # more than all roundings together can have added
    late = total - slack - math.fsum((weight * release).tolist())
    joules = math.fsum(_least_energy(instance).tolist()) * (1 - 2.0**-50)
    return (late + energy_price * joules) / math.fsum(weight.tolist())


def _least_energy(instance: Instance) -> Floats:
    """(n,) joules of each task where it takes least."""
    each = np.array([min(s.power / s.speed for s in row) for row in speeds_of(instance)])
    usable = np.isfinite(instance.time)
    return np.asarray(np.where(usable, np.where(usable, instance.time, 0.0) * each, np.inf).min(axis=1))


def _one_machine(work: list[float], release: list[float], weight: list[float]) -> float:
    """Weighted completions, or what the mean busy times say of them, on one machine that may be taken from a job."""
    equal = len(set(weight)) == 1
    ends = [[release[j], weight[j]] for j in range(len(work)) if work[j] <= 0]
    total = math.fsum(r * w for r, w in ends)
    left = list(work)
    todo = sorted((j for j in range(len(work)) if work[j] > 0), key=lambda j: (release[j], j))
    waiting: list[tuple[float, int]] = []
    at, now = 0, 0.0
    while at < len(todo) or waiting:
        if not waiting:
            now = max(now, release[todo[at]])
        while at < len(todo) and release[todo[at]] <= now:
            j = todo[at]
            heapq.heappush(waiting, (left[j] if equal else -weight[j] / work[j], j))
            at += 1
        key, j = heapq.heappop(waiting)
        comes = release[todo[at]] if at < len(todo) else math.inf
        spent = min(left[j], comes - now)
        if not equal:
            total += weight[j] * spent / work[j] * (now + spent / 2)
        if spent == left[j]:
            now += spent
            total += weight[j] * (now if equal else work[j] / 2)
        else:
            left[j] -= spent
            heapq.heappush(waiting, (left[j] if equal else key, j))
            now = comes
    return total
