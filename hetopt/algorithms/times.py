"""Time matrices of unrelated machines: the checks, loads and makespan that every kernel for them shares.

A time matrix has a row per job and a column per machine; ``inf`` means that the machine cannot run the job. A plan is an
int array with the machine of each job. The *makespan* is the latest moment at which a machine that has a job is done; a
machine without a job does not count, however late it becomes free. This file knows no algorithm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["FloatArray", "IntArray", "check_ready", "check_times", "is_integral", "machine_loads", "makespan"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_EXACT = 2.0**53


def check_times(time: ArrayLike, runnable: bool = False) -> FloatArray:
    """Return ``time`` as a C-ordered float64 matrix after checking it.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    runnable
        Ask that every job can run somewhere, too.

    Raises
    ------
    ValueError
        When it is not a matrix with at least one machine, a time is negative or not a number, or (with ``runnable``) a
        job has no machine.
    """
    matrix = np.ascontiguousarray(time, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f"time must be a (jobs, machines) matrix with at least one machine, not shape {matrix.shape}")
    if matrix.size and not matrix.min() >= 0:  # written so that nan fails as well
        job, machine = np.argwhere(~(matrix >= 0))[0]
        raise ValueError(f"time[{job}, {machine}] is {matrix[job, machine]}: times are numbers from 0 to inf")
    if runnable and matrix.size:
        stuck = np.flatnonzero(matrix.min(axis=1) == np.inf)
        if stuck.size:
            raise ValueError(f"job {stuck[0]} cannot run on any machine")
    return matrix


def check_ready(ready: ArrayLike | None, machines: int) -> FloatArray:
    """Return machine ready times as a fresh float64 vector, zeros for None.

    Raises
    ------
    ValueError
        When the length is not ``machines`` or a ready time is negative, infinite or not a number.
    """
    if ready is None:
        return np.zeros(machines)
    vector = np.array(ready, dtype=np.float64)
    if vector.shape != (machines,):
        raise ValueError(f"ready must have one entry for each of the {machines} machines, not shape {vector.shape}")
    if not (np.isfinite(vector) & (vector >= 0)).all():
        raise ValueError("ready times must be finite and not negative")
    return vector


def is_integral(*arrays: FloatArray) -> bool:
    """Whether every finite entry is an integer small enough (below 2**53) for exact float arithmetic."""
    for array in arrays:
        finite = array[np.isfinite(array)]
        if finite.size and not ((finite == np.floor(finite)).all() and finite.max() < _EXACT):
            return False
    return True


def machine_loads(time: FloatArray, plan: IntArray, ready: FloatArray | None = None) -> FloatArray:
    """Load of each machine under a complete plan: its ready time plus the times of its jobs, added in job order.

    Parameters
    ----------
    time
        (n, m) times.
    plan
        (n,) machine of each job.
    ready
        (m,) ready times, zero if None.

    Raises
    ------
    ValueError
        When a job has no machine.
    """
    if plan.size and plan.min() < 0:
        raise ValueError(f"job {int(np.argmin(plan))} has no machine, so the plan has no loads")
    machines = time.shape[1]
    loads = np.zeros(machines) if ready is None else ready.astype(np.float64)
    if plan.size:
        loads += np.bincount(plan, weights=time[np.arange(len(plan)), plan], minlength=machines)
    return loads


def makespan(time: FloatArray, plan: IntArray, ready: FloatArray | None = None) -> float:
    """Latest load among the machines that have a job; 0 without jobs. Arguments as in :func:`machine_loads`."""
    loads = machine_loads(time, plan, ready)
    return float(loads[plan].max()) if plan.size else 0.0
