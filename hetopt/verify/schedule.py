"""Check a schedule of task graphs on devices, and say when each task ends. Shares nothing with any model.

Tasks run one at a time on each device, not before their release nor before the device is free; what a task reads from another
device arrives after the link's latency and the bytes over its bandwidth. Transfers do not get in each other's way. Memory is
the sum of the tasks' bytes on a device, whenever they run. A task of no length takes no device's time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.verify.assignment import device_sums, placement_violations

__all__ = ["check_schedule", "links_between"]

TOLERANCE = 1e-9  # of the moment compared, for sums of decimals; whole numbers are compared as they are


def links_between(instance: Instance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d, d) latency in seconds and (d, d) seconds a byte of each pair of devices; ``inf`` and 0 where no link leads.

    A link of the two is taken where there is one; else the way through host memory, when both halves have a link (a device
    that says ``host`` needs none), one half after the other.
    """
    d, names = instance.n_devices, instance.device_names
    latency, slowness = np.full((d, d), np.inf), np.zeros((d, d))
    np.fill_diagonal(latency, 0.0)
    for a in range(d):
        for b in range(d):
            if a == b:
                continue
            direct = instance.link(names[a], names[b])
            if direct is not None:
                halves = [direct]
            else:
                up = None if instance.is_host[a] else instance.link(names[a], "host")
                down = None if instance.is_host[b] else instance.link("host", names[b])
                if (up is None and not instance.is_host[a]) or (down is None and not instance.is_host[b]):
                    continue
                halves = [half for half in (up, down) if half is not None]
            latency[a, b] = sum(half.latency for half in halves)
            slowness[a, b] = sum(1.0 / half.bandwidth if half.bandwidth else 0.0 for half in halves)
    return latency, slowness


def check_schedule(
    instance: Instance,
    placement: NDArray[np.int64] | None,
    start: NDArray[np.float64] | None,
    *,
    seconds: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """(n,) end of each task, and a sentence for each broken constraint.

    Ends are ``inf`` where a task has no place or no start. ``seconds`` (n,) are those of each task where a plan chooses more
    than its device (a speed); by default the task's time there.
    """
    n = instance.n_tasks
    missing = np.full(n, np.inf)
    wrong = list(placement_violations(instance, placement, limits=False))
    if placement is None or placement.shape != (n,):
        return missing, tuple(wrong)
    if not wrong:
        need = device_sums(instance.memory, placement, instance.n_devices)
        wrong += [
            f"device {instance.device_names[i]!r} needs {need[i]:.12g} bytes of memory and has {instance.capacity[i]:.12g}: "
            f"{need[i] - instance.capacity[i]:.12g} too many"
            for i in np.flatnonzero(need > instance.capacity).tolist()
        ]
    if start is None or start.shape != (n,):
        return missing, (*wrong, "the plan has no start times, one a task")
    known = (placement >= 0) & (placement < instance.n_devices) & np.isfinite(start)
    where = np.where(known, placement, 0)
    own = instance.time[np.arange(n), where] if seconds is None else seconds
    known = known & np.isfinite(own)
    done = np.where(known, start + np.where(known, own, 0.0), np.inf)
    wrong += [
        f"task {instance.labels[k]!r} has no start time" for k in np.flatnonzero(~np.isfinite(start))[:20].tolist()
    ]
    if wrong or not known.all():
        return done, tuple(wrong)
    keep = 1.0 if _whole(start) and _whole(done) else 1.0 - TOLERANCE
    release = instance.columns.release[instance.job_of]
    for limit, why in ((release, "its release"), (instance.available_from[placement], "its device is available")):
        for k in np.flatnonzero(start < limit * keep)[:20].tolist():
            wrong.append(f"task {instance.labels[k]!r} starts at {start[k]:.9g}, before {why} at {limit[k]:.9g}")
    wrong += _overlaps(instance, placement, start, done, own > 0, keep)
    wrong += _too_early(instance, placement, start, done, keep)
    return done, tuple(wrong)


def _overlaps(
    instance: Instance,
    placement: NDArray[np.int64],
    start: NDArray[np.float64],
    done: NDArray[np.float64],
    takes_time: NDArray[np.bool_],
    keep: float,
) -> list[str]:
    order = np.lexsort((done, start, placement))
    order = order[takes_time[order]]
    a, b = order[:-1], order[1:]
    clash = np.flatnonzero((placement[a] == placement[b]) & (start[b] < done[a] * keep))
    return [
        f"tasks {instance.labels[int(a[k])]!r} and {instance.labels[int(b[k])]!r} run on "
        f"{instance.device_names[int(placement[a[k]])]!r} at the same time, at {start[b[k]]:.9g}"
        for k in clash[:20].tolist()
    ]


def _too_early(
    instance: Instance,
    placement: NDArray[np.int64],
    start: NDArray[np.float64],
    done: NDArray[np.float64],
    keep: float,
) -> list[str]:
    if not len(instance.edges):
        return []
    latency, slowness = links_between(instance)
    u, v = instance.edges.T
    p, q = placement[u], placement[v]
    names = instance.device_names
    for k in np.flatnonzero(np.isinf(latency[p, q]))[:1].tolist():
        instance.need_link(names[int(p[k])], names[int(q[k])])
        raise InputError(f"$.links: no way leads from {names[int(p[k])]!r} to {names[int(q[k])]!r}")
    there = done[u] + np.where(p != q, latency[p, q] + instance.edge_data * slowness[p, q], 0.0)
    early = np.flatnonzero(start[v] < there * keep)
    return [
        f"task {instance.labels[int(v[k])]!r} starts on {names[int(q[k])]!r} at {start[v[k]]:.9g}, before the result of "
        f"{instance.labels[int(u[k])]!r} from {names[int(p[k])]!r} is there at {there[k]:.9g}"
        for k in early[:20].tolist()
    ]


def _whole(values: NDArray[np.float64]) -> bool:
    return bool((values == np.floor(values)).all()) and float(np.abs(values).max(initial=0.0)) < 2.0**53
