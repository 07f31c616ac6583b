"""Check a plan that places every task on one device: eligibility, groups, memory, task limits, and the load of each device.

Sums are exact where the data are integers, and exactly rounded (:func:`math.fsum`) where they are decimals. Shares nothing
with any model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance

__all__ = ["device_details", "device_sums", "loads", "placement_violations"]


def device_sums(values: NDArray[np.float64], placement: NDArray[np.int64], d: int) -> NDArray[np.float64]:
    """(d,) sum over the tasks placed on each device of ``values`` (n,); exact for integers, exactly rounded for decimals."""
    whole = bool((values == np.floor(values)).all())
    if whole and values.size and float(values.sum()) < 2.0**53:
        return np.bincount(placement, weights=values, minlength=d).astype(np.float64, copy=False)
    order = np.argsort(placement, kind="stable")
    ends = np.searchsorted(placement[order], np.arange(d + 1))
    sorted_values = values[order].tolist()
    return np.array([math.fsum(sorted_values[ends[i] : ends[i + 1]]) for i in range(d)])


def loads(instance: Instance, placement: NDArray[np.int64]) -> NDArray[np.float64]:
    """(d,) seconds of work on each device; tasks that are unplaced or cannot run where they are count as nothing."""
    used = _usable(instance, placement)
    return device_sums(instance.time[used, placement[used]], placement[used], instance.n_devices)


def placement_violations(
    instance: Instance, placement: NDArray[np.int64] | None, *, limits: bool = True, most: int = 20
) -> tuple[str, ...]:
    """A sentence for each constraint that a placement (n,) breaks, at most ``most`` of each kind; empty when it is valid.

    Checks: every task is placed, on a device of the instance, where it can run; groups share a device; and, unless ``limits``
    is False (for questions that do not use them), the tasks' memory fits and no device holds more than ``max_tasks``.
    """
    if placement is None:
        return ("the plan has no placement",)
    n, d = instance.n_tasks, instance.n_devices
    if placement.shape != (n,):
        return (f"the placement has shape {placement.shape}, expected ({n},)",)
    labels, names = instance.labels, instance.device_names
    off = np.flatnonzero((placement < 0) | (placement >= d))[:most]
    found = [f"task {labels[k]!r} is not placed on any device" for k in off.tolist()]
    placed = np.flatnonzero((placement >= 0) & (placement < d))
    wrong = placed[~instance.eligible[placed, placement[placed]]][:most]
    found += [
        f"task {labels[k]!r} cannot run on {names[i]!r}: {_why_not(instance, k, i)}"
        for k, i in zip(wrong.tolist(), placement[wrong].tolist(), strict=True)
    ]
    found += _split_groups(instance, placement, most)
    if not limits:
        return tuple(found)
    need = device_sums(instance.memory[placed], placement[placed], d)
    for i in np.flatnonzero(need > instance.capacity).tolist():
        short = need[i] - instance.capacity[i]
        found.append(
            f"device {names[i]!r} needs {need[i]:.12g} bytes of memory and has {instance.capacity[i]:.12g}: {short:.12g} too many"
        )
    count = np.bincount(placement[placed], minlength=d)
    for i, device in enumerate(instance.devices):
        if device.max_tasks is not None and count[i] > device.max_tasks:
            found.append(f"device {names[i]!r} holds {count[i]} tasks, at most {device.max_tasks} are allowed")
    return tuple(found)


def device_details(instance: Instance, placement: NDArray[np.int64], load: NDArray[np.float64]) -> dict[str, Any]:
    """Load, memory and number of tasks by device name, for people."""
    used = _usable(instance, placement)
    need = device_sums(instance.memory[used], placement[used], instance.n_devices)
    count = np.bincount(placement[used], minlength=instance.n_devices)
    rows = zip(instance.device_names, load.tolist(), need.tolist(), count.tolist(), strict=True)
    return {name: {"load": value, "memory": memory, "tasks": tasks} for name, value, memory, tasks in rows}


def _usable(instance: Instance, placement: NDArray[np.int64]) -> NDArray[np.int64]:
    placed = np.flatnonzero((placement >= 0) & (placement < instance.n_devices))
    return placed[instance.eligible[placed, placement[placed]]]


def _why_not(instance: Instance, task: int, device: int) -> str:
    columns = instance.columns
    if not np.isfinite(columns.time[task, device]):
        return "no time is given there"
    if task in columns.pin:
        return f"it is pinned to {columns.pin[task]!r}"
    return f"{columns.forbid.get(task)!r} is forbidden"


def _split_groups(instance: Instance, placement: NDArray[np.int64], most: int) -> list[str]:
    group = instance.group
    inside = np.flatnonzero(group >= 0)
    if not inside.size:
        return []
    first = np.full(len(instance.columns.group_name), -1, np.int64)
    first[group[inside[::-1]]] = inside[::-1]
    apart = inside[placement[inside] != placement[first[group[inside]]]]
    seen: set[int] = set()
    found = []
    for k in apart.tolist():
        g = int(group[k])
        if g not in seen and len(seen) < most:
            seen.add(g)
            a, b = instance.labels[int(first[g])], instance.labels[k]
            found.append(f"tasks {a!r} and {b!r} of group {instance.columns.group_name[g]!r} are on different devices")
    return found
