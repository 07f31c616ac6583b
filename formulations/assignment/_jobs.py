"""The jobs that assignment questions decide on: tasks that share a device by ``group`` are one job here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["Jobs", "jobs_of"]


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
