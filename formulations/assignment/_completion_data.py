"""Weights and release dates of jobs, and plans by a given order or by Smith's rule, for ``weighted_completion``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["in_order", "releases_of", "smith", "weights_of"]


def weights_of(instance: Instance) -> NDArray[np.float64]:
    """(n,) weights."""
    return np.asarray(instance.columns.weight[instance.job_of])


def releases_of(instance: Instance) -> NDArray[np.float64]:
    """(n,) release dates, seconds."""
    return np.asarray(instance.columns.release[instance.job_of])


def in_order(instance: Instance, placement: NDArray[np.int64], rank: NDArray[np.float64]) -> Solution:
    """Plan that runs each device's jobs by increasing rank, each as early as possible."""
    start = np.zeros(instance.n_tasks)
    clock = instance.available_from.copy()
    release = releases_of(instance)
    for k in np.argsort(rank, kind="stable").tolist():
        i = int(placement[k])
        start[k] = max(clock[i], release[k])
        clock[i] = start[k] + instance.time[k, i]
    return Solution(placement=np.asarray(placement, np.int64), start=start)


def smith(instance: Instance, placement: NDArray[np.int64]) -> Solution:
    """Plan that runs each device's jobs by Smith's rule, without release dates; by list scheduling with them.

    With release dates the job with the least p / w among the released ones goes next, and nothing waits needlessly.
    """
    weight, release = weights_of(instance), releases_of(instance)
    start = np.zeros(instance.n_tasks)
    for i in range(instance.n_devices):
        mine = np.flatnonzero(placement == i)
        if not mine.size:
            continue
        time = instance.time[mine, i]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(time == 0, 0.0, time / weight[mine])
        order = np.lexsort((mine, ratio))
        clock = float(instance.available_from[i])
        if not release[mine].any():
            start[mine[order]] = clock + np.concatenate([[0.0], np.cumsum(time[order])[:-1]])
            continue
        left = order.tolist()
        while left:
            ready = [k for k in left if release[mine[k]] <= clock]
            if not ready:
                clock = min(float(release[mine[k]]) for k in left)
                continue
            start[mine[ready[0]]] = clock
            clock += float(time[ready[0]])
            left.remove(ready[0])
    return Solution(placement=np.asarray(placement, np.int64), start=start)
