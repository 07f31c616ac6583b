"""The jobs that placement questions decide on: tasks that share a device by ``group`` are one job here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["Jobs", "in_mebibytes", "job_names", "jobs_of", "shortfalls", "time_unit"]


@dataclass(frozen=True, eq=False)
class Jobs:
    """``n`` jobs on ``d`` devices.

    Attributes
    ----------
    time
        (n, d) seconds; ``inf`` where some member cannot run.
    memory
        (n,) bytes; zero where no device has a limit.
    count
        (n,) member tasks.
    member
        (tasks,) job of each task of the instance.
    capacity
        (d,) usable bytes, ``inf`` when unlimited.
    most
        (d,) largest number of tasks, ``inf`` when unlimited.
    ready
        (d,) first second each device is free.
    """

    time: NDArray[np.float64]
    memory: NDArray[np.float64]
    count: NDArray[np.int64]
    member: NDArray[np.int64]
    capacity: NDArray[np.float64]
    most: NDArray[np.float64]
    ready: NDArray[np.float64]

    @property
    def constrained(self) -> bool:
        """Whether some device limits memory or the number of tasks in a way that can bind."""
        memory = self.memory.sum() > self.capacity.min()
        return bool(memory or self.count.sum() > self.most.min())

    def solution(self, placement: NDArray[np.int64]) -> Solution:
        """Plan of the instance's tasks from the device (n,) of each job."""
        return Solution.assign(np.asarray(placement, np.int64)[self.member])

    def placement(self, solution: Solution) -> NDArray[np.int64]:
        """(n,) device of each job in a plan of the tasks; the first member decides."""
        assert solution.placement is not None
        first = np.full(len(self.count), -1, np.int64)
        first[self.member[::-1]] = np.arange(len(self.member))[::-1]
        return solution.placement[first]


def jobs_of(instance: Instance) -> Jobs:
    """Jobs of an instance, groups fused; in order of their first task."""
    n = instance.n_tasks
    most = np.array([np.inf if v.max_tasks is None else v.max_tasks for v in instance.devices], np.float64)
    key = np.where(instance.group >= 0, instance.group, len(instance.columns.group_name) + np.arange(n))
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    member = rank[inverse].astype(np.int64)
    if len(first) == n:
        time, memory, count = instance.time, instance.memory, np.ones(n, np.int64)
    else:
        gather = sparse.csr_array((np.ones(n), (member, np.arange(n))), shape=(len(first), n))
        finite = np.where(instance.eligible, instance.time, 0.0)
        time = np.where(gather @ (~instance.eligible).astype(float) > 0, np.inf, gather @ finite)
        memory = gather @ instance.memory
        count = np.bincount(member)
    return Jobs(time, memory, count, member, instance.capacity, most, instance.available_from)


def time_unit(largest: float) -> float:
    """Seconds per unit of time in a linear model whose largest time is ``largest`` seconds.

    Solvers have absolute tolerances around 1e-7, which make nonsense of microseconds and are too strict for years. The unit
    is a power of two, so that scaling is exact: 1 when the largest time is between 1 and 2^20, else such that it is near 2^10.
    """
    if not 0 < largest < np.inf or 1 <= largest < 2.0**20:
        return 1.0
    return float(2.0 ** (np.frexp(largest)[1] - 11))


def job_names(instance: Instance, jobs: Jobs) -> list[str]:
    """A name for each job: its group's, or its only task's."""
    names = [""] * len(jobs.count)
    for k in range(len(jobs.member) - 1, -1, -1):
        group = int(instance.group[k])
        names[jobs.member[k]] = instance.labels[k] if group < 0 else instance.columns.group_name[group]
    return names


def in_mebibytes(amount: float) -> str:
    """Many bytes once more, in brackets and in whole MiB rounded up; nothing for few.

    Examples
    --------
    >>> in_mebibytes(3 * 2**20 - 1)
    ' (3 MiB)'
    """
    return f" ({np.ceil(amount / 2**20):,.0f} MiB)" if amount >= 2**20 else ""


def shortfalls(instance: Instance, jobs: Jobs) -> tuple[str, ...]:
    """Proof at a glance that no placement exists: the constraint and by how much it is missed; empty when none is seen.

    A group that no device can take, a job larger than every device it can run on, more bytes or tasks than there is room.
    """
    names = instance.device_names
    can = np.isfinite(jobs.time)
    nowhere = np.flatnonzero(~can.any(axis=1))
    if nowhere.size:
        tasks = [instance.labels[k] for k in np.flatnonzero(jobs.member == nowhere[0])[:6]]
        return (
            f"no device can run all of {', '.join(map(repr, tasks))}, which must share one: their times have no device in common",
        )
    # The verifier adds up each device's bytes with one rounding; sums of decimals here may round a little further.
    whole = bool((instance.memory == np.floor(instance.memory)).all())
    more = 1.0 if whole else 1.0 + 1e-12
    room = np.where(can, jobs.capacity, -np.inf).max(axis=1)
    tight = np.flatnonzero(jobs.memory > room * more)
    if tight.size:
        j = int(tight[np.argmax(jobs.memory[tight] - room[tight])])
        job = job_names(instance, jobs)[j]
        where = names[int(np.argmax(np.where(can[j], jobs.capacity, -np.inf)))]
        short = jobs.memory[j] - room[j]
        return (
            f"{job!r} needs {jobs.memory[j]:.12g} bytes, and the roomiest device it can run on, {where!r}, has {room[j]:.12g}: "
            f"{short:.12g} bytes short{in_mebibytes(short)}",
        )
    need, there = float(jobs.memory.sum()), float(jobs.capacity.sum())
    if need > there * more:
        short = need - there
        return (
            f"all tasks need {need:.12g} bytes, and all devices have {there:.12g}: "
            f"{short:.12g} bytes short{in_mebibytes(short)}",
        )
    if jobs.count.sum() > jobs.most.sum():
        return (f"there are {jobs.count.sum()} tasks, and the devices may hold {jobs.most.sum():.0f} together",)
    return ()
