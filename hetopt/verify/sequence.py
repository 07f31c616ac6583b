"""Check a plan that runs one task at a time on each device, and give each task's completion.

For independent tasks with start times. Release dates and devices' availability are kept; nothing runs side by side. Shares
nothing with any model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.verify.assignment import placement_violations

__all__ = ["check_sequence", "gantt_details"]

# Of the moment compared, for sums of decimals; integers are compared as they are. Of the latest completion instead, a long
# task anywhere would let short ones that weigh much run side by side.
TOLERANCE = 1e-9


def check_sequence(
    instance: Instance, placement: NDArray[np.int64] | None, start: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """(n,) completion of each task, and a sentence for each broken constraint.

    Completions are ``inf`` where a task has no place or no start.
    """
    n = instance.n_tasks
    missing = np.full(n, np.inf)
    wrong = list(placement_violations(instance, placement, limits=False))
    if placement is None or placement.shape != (n,):
        return missing, tuple(wrong)
    if start is None or start.shape != (n,):
        return missing, (*wrong, "the plan has no start times, one a task")
    known = (placement >= 0) & (placement < instance.n_devices) & np.isfinite(start)
    where = np.where(known, placement, 0)
    done = np.where(known, start + instance.time[np.arange(n), where], np.inf)
    unstarted = np.flatnonzero(~np.isfinite(start))
    wrong += [f"task {instance.labels[k]!r} has no start time" for k in unstarted[:20].tolist()]
    if wrong or not known.all():
        return done, tuple(wrong)
    keep = 1.0 if _whole(start) and _whole(done) else 1.0 - TOLERANCE
    release = instance.columns.release[instance.job_of]
    for limit, why in ((release, "its release"), (instance.available_from[placement], "its device is available")):
        for k in np.flatnonzero(start < limit * keep)[:20].tolist():
            wrong.append(f"task {instance.labels[k]!r} starts at {start[k]:.9g}, before {why} at {limit[k]:.9g}")
    # A task of no length may run at the moment another one starts or ends, but not inside it.
    order = np.lexsort((done, start, placement))
    a, b = order[:-1], order[1:]
    clash = np.flatnonzero((placement[a] == placement[b]) & (start[b] < done[a] * keep))
    for k in clash[:20].tolist():
        first, second = instance.labels[int(a[k])], instance.labels[int(b[k])]
        device = instance.device_names[int(placement[a[k]])]
        wrong.append(f"tasks {first!r} and {second!r} run on {device!r} at the same time, at {start[b[k]]:.9g}")
    return done, tuple(wrong)


def gantt_details(
    instance: Instance, placement: NDArray[np.int64], done: NDArray[np.float64]
) -> dict[str, dict[str, float]]:
    """Last completion and number of tasks by device name, for people."""
    out = {}
    for i, name in enumerate(instance.device_names):
        mine = placement == i
        out[name] = {"finish": float(done[mine].max(initial=0.0)), "tasks": int(mine.sum())}
    return out


def _whole(values: NDArray[np.float64]) -> bool:
    return bool((values == np.floor(values)).all()) and float(np.abs(values).max(initial=0.0)) < 2.0**53
