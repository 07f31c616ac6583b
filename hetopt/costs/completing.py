"""An instance whose times are not all measured, completed, with a record of which of its times are estimates and how good.

In an instance a missing time means that a task cannot run there. ``tables.unmeasured``, ``{task: [device, ...]}``, says where
it only has not been tried. Completing fills these in and writes ``tables.estimated``, a row ``[device, [task], [relative
error], method]`` for each (the error is null where nothing could be held out); a time for which nothing is known stays in
``tables.unmeasured``. Pairs likewise: :mod:`hetopt.costs.completing_pairs`. Tasks of a kind (``tables.kind``) whose times
agree, and tasks of equal times, are one row of the table that is completed: a copy of what is held out must not be there to be
found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hetopt.costs.completing_pairs import complete_pairs, unmeasured_pairs
from hetopt.costs.completion import Completed, complete
from hetopt.costs.measuring import anchors
from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.records import Job, Task

__all__ = ["Finished", "complete_instance", "measured_times", "to_measure", "unmeasured"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Finished:
    """A completed instance, its tables (kinds by types; pairs), how many entries were estimated and how many are unknown."""

    instance: Instance
    table: Completed
    pairs: Completed | None
    estimated: int
    unknown: int


def unmeasured(instance: Instance, everywhere: bool = False) -> NDArray[np.bool_]:
    """(n, d) whether a time is missing only because nobody measured it; with ``everywhere`` every missing one is.

    Raises
    ------
    InputError
        ``tables.unmeasured`` is no such table, names no task or device, or a time that is there.
    """
    if everywhere:
        return ~np.isfinite(instance.columns.time)
    table = instance.tables.get("unmeasured", {})
    if not isinstance(table, Mapping):
        raise InputError(f"$.tables.unmeasured is {type(table).__name__}, expected lists of devices by task")
    out = np.zeros((instance.n_tasks, instance.n_devices), bool)
    for name, devices in table.items():
        if name not in instance.task_index:
            near = nearest(str(name), list(instance.task_index)[:10000], what="tasks")
            raise InputError(f"$.tables.unmeasured names {name!r}, which is no task; {near}")
        if not isinstance(devices, list):
            raise InputError(f"$.tables.unmeasured.{name} is {devices!r:.60}, expected a list of devices")
        for device in devices:
            if not isinstance(device, str) or device not in instance.device_index:
                near = nearest(str(device), instance.device_names, what="devices")
                raise InputError(f"$.tables.unmeasured.{name} names {device!r:.60}, which is no device; {near}")
            out[instance.task_index[name], instance.device_index[device]] = True
            if np.isfinite(instance.columns.time[instance.task_index[name], instance.device_index[device]]):
                raise InputError(f"$.tables.unmeasured.{name} names {device!r}, but there is a time for it")
    return out


def measured_times(instance: Instance) -> tuple[Floats, NDArray[np.int64]]:
    """(n, t) seconds by device type, ``nan`` where there is none, and (d,) type of each device.

    Raises
    ------
    InputError
        A time of 0, of which no factor can be made, or devices of one type with different times.
    """
    of = instance.device_type
    first = np.unique(of, return_index=True)[1]
    time = np.where(np.isfinite(instance.columns.time), instance.columns.time, np.nan)
    for i in range(instance.n_devices):
        own, usual = time[:, i], time[:, first[of[i]]]
        if not np.array_equal(own, usual, equal_nan=True):
            raise InputError(
                f"devices {instance.device_names[first[of[i]]]!r} and {instance.device_names[i]!r} are of one type and take "
                "different times; give them types of their own"
            )
    if (time == 0).any():
        task = int(np.argwhere(time == 0)[0, 0])
        raise InputError(f"task {instance.labels[task]!r} takes 0 seconds, from which no other time follows")
    return time[:, first], of


def merged(instance: Instance, times: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """(k, t) different rows of times (n, t), and (n,) row of each task; tasks of a kind whose times agree are one."""
    kinds = instance.tables.get("kind")
    names = dict(kinds) if isinstance(kinds, Mapping) else {}
    members: dict[tuple[str, str], list[int]] = {}
    for task, label in enumerate(instance.labels):
        key = ("kind", str(names[label])) if label in names else ("task", label)
        members.setdefault(key, []).append(task)
    whole = np.array(times)
    for tasks in members.values():
        own = times[tasks]
        known = ~np.isnan(own)
        high, low = np.where(known, own, -np.inf).max(axis=0), np.where(known, own, np.inf).min(axis=0)
        if (high <= low).all():
            whole[tasks] = np.where(np.isfinite(high), high, np.nan)
    _, first, of = np.unique(np.nan_to_num(whole, nan=-1.0), axis=0, return_index=True, return_inverse=True)
    return whole[first], of.ravel()


def complete_instance(instance: Instance, method: str = "auto", *, everywhere: bool = False) -> Finished:
    """Fill in the times that nobody measured; those of tasks that cannot run on a device stay missing.

    Raises
    ------
    InputError
        As :func:`unmeasured`, :func:`measured_times` and :func:`hetopt.costs.completion.complete`, or nothing is unmeasured.
    """
    missing = unmeasured(instance, everywhere)
    if not missing.any() and not unmeasured_pairs(instance):
        raise InputError(
            "nothing is unmeasured: `tables.unmeasured` and `tables.unmeasured_pairs` name nothing; a missing time means that a "
            "task cannot run there"
        )
    times, of = measured_times(instance)
    rows_of, row = merged(instance, times)
    table = complete(rows_of, method)
    guess, error = table.values[row][:, of], table.error[row][:, of]
    fresh = ~table.measured[row][:, of]  # a time that another task of the kind has is no estimate
    fill = missing & np.isfinite(guess) & (guess > 0)
    rows: list[list[Any]] = []
    for task, device in np.argwhere(fill & fresh).tolist():
        off = float(error[task, device])
        told = off if math.isfinite(off) else None
        rows.append([instance.device_names[device], [instance.labels[task]], [told], table.method])
    left: dict[str, list[str]] = {}
    for task, device in np.argwhere(missing & ~fill).tolist():
        left.setdefault(instance.labels[task], []).append(instance.device_names[device])
    tables = {name: value for name, value in instance.tables.items() if name not in ("unmeasured", "estimated")}
    tables["estimated"] = [*instance.tables.get("estimated", []), *rows]
    tables.pop("unmeasured_pairs", None)
    if left:
        tables["unmeasured"] = left
    time = np.where(fill, guess, instance.columns.time).tolist()
    whole = [[None if t == np.inf else t for t in row] for row in time]
    jobs, k = [], 0
    for job in instance.jobs():
        count = 1 if job.tasks is None else len(job.tasks)
        jobs.append(_with_times(job, whole[k : k + count]))
        k += count
    made = _build(instance, jobs, tables)
    unknown = int((missing & ~fill).sum())
    named = len(unmeasured_pairs(instance))
    if not named:
        return Finished(made, table, None, len(rows), unknown)
    pairs_missing = {**tables, "unmeasured_pairs": instance.tables["unmeasured_pairs"]}
    together, marks, pairs = complete_pairs(_build(instance, jobs, pairs_missing), "auto")
    tables |= {"together": together, "estimated": [*tables["estimated"], *marks]}
    done = {(row[0], *row[1]) for row in marks}
    still = [row for row in instance.tables["unmeasured_pairs"] if tuple(row) not in done]
    if still:
        tables["unmeasured_pairs"] = still
    return Finished(_build(instance, jobs, tables), table, pairs, len(rows) + len(marks), unknown + len(still))


def _build(instance: Instance, jobs: list[Job], tables: dict[str, Any]) -> Instance:
    return Instance.build(
        instance.devices, jobs, instance.links, tables=tables, question=instance.question, name=instance.name,
        description=instance.description, source=instance.source,
    )  # fmt: skip


def _with_times(job: Job, times: list[list[float | None]]) -> Job:
    if job.tasks is None:
        return msgspec.structs.replace(job, time=times[0])
    tasks: list[Task] = [msgspec.structs.replace(task, time=row) for task, row in zip(job.tasks, times, strict=True)]
    return msgspec.structs.replace(job, tasks=tasks)


def to_measure(
    instance: Instance,
    wanted: int,
    *,
    reference: str | None = None,
    budget: float | None = None,
    everywhere: bool = False,
) -> dict[str, Any]:
    """Which tasks to measure on which device types, so that each type has anchors in common with the reference.

    Parameters
    ----------
    wanted
        Anchors for each type; of tasks that are alike one is measured.
    reference
        A device or type; the one with the most measurements when not given.
    budget
        Most measurements; None takes as few as there can be.

    Raises
    ------
    InputError
        As :func:`unmeasured` and :func:`hetopt.costs.measuring.anchors`, or there is no such device.
    """
    missing, (times, of) = unmeasured(instance, everywhere), measured_times(instance)
    first = np.unique(of, return_index=True)[1]
    names = [instance.devices[i].type or instance.device_names[i] for i in first.tolist()]
    rows, row = merged(instance, times)
    task_of = np.unique(row, return_index=True)[1]
    known = np.isfinite(rows)
    at = int(known.sum(axis=0).argmax())
    if reference is not None:
        if reference not in names and reference not in instance.device_index:
            raise InputError(f"--reference is {reference!r}; {nearest(reference, names, what='the device types')}")
        at = names.index(reference) if reference in names else int(of[instance.device_index[reference]])
    cost = np.where(missing[task_of][:, first] & ~known, 1.0, np.inf)
    found = anchors(known, cost, at, wanted, budget=budget)
    chosen = {
        instance.labels[task_of[k]]: [names[j] for j in np.flatnonzero(found.chosen[k]).tolist()]
        for k in np.flatnonzero(found.chosen.any(axis=1)).tolist()
    }
    return {
        "reference": names[at], "measure": chosen, "count": int(found.chosen.sum()), "anchors": found.anchors,
        "wanted": min(len(rows), wanted) * (len(names) - 1), "bound": found.bound,
    }  # fmt: skip
