"""Facts of jobs with setups, units for models, and plans as sequences; the docstring of ``setup_times`` has the mathematics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["horizon_of", "least_setup", "model_unit", "orders_of", "plan_of", "setup_of", "unit_of", "whole_numbers"]

_BITS = 31  # CP-SAT's presolve multiplies numbers of this size without overflow


def setup_of(instance: Instance) -> NDArray[np.float64]:
    """(d, n, n) setups; InputError when the table is not what it should be."""
    n, d = instance.n_tasks, instance.n_devices
    try:
        setup = np.array(instance.tables["setup"], np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"$.tables.setup is no array of numbers: {error}") from None
    if setup.shape != (d, n, n):
        raise InputError(f"$.tables.setup has shape {setup.shape}, expected {d} devices x {n} jobs x {n} jobs")
    if not (np.isfinite(setup) & (setup >= 0)).all():
        raise InputError("$.tables.setup holds a number that is negative or not finite; expected seconds >= 0")
    return setup


def least_setup(instance: Instance) -> NDArray[np.float64]:
    """(d, n) least setup before each job on each device, over the jobs that can run there; 0 for a job that is alone."""
    setup = setup_of(instance)
    off = np.eye(instance.n_tasks, dtype=bool)[None] | ~instance.eligible.T[:, :, None]
    least = np.where(off, np.inf, setup).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


def whole_numbers(instance: Instance) -> bool:
    """Whether all times and setups are integers."""
    setup = setup_of(instance)
    return instance.integral and bool((setup == np.floor(setup)).all())


def horizon_of(instance: Instance) -> float:
    """No plan without needless waiting takes longer."""
    slowest = np.where(instance.eligible, instance.time, 0.0).max(axis=1).sum()
    return float(slowest + setup_of(instance).max(axis=(0, 2), initial=0.0).sum())


def model_unit(instance: Instance) -> float:
    """Seconds per unit of time in the linear models, a power of two."""
    return time_unit(max(float(instance.time[instance.eligible].max()), float(setup_of(instance).max(initial=0.0))))


def unit_of(instance: Instance) -> float:
    """Seconds per integer unit: 1 for small integers, else a power of two; sums stay below 2^31."""
    horizon = horizon_of(instance)
    return 1.0 if whole_numbers(instance) and horizon < 2.0**_BITS else 2.0 ** (math.frexp(horizon)[1] - _BITS)


def plan_of(instance: Instance, machine: NDArray[np.int64], position: NDArray[np.int64]) -> Solution:
    """Plan that runs each device's jobs by position, each as early as possible; names the sequences that starts leave open."""
    setup, start, orders = setup_of(instance), np.zeros(instance.n_tasks), []
    for i in range(instance.n_devices):
        mine = np.flatnonzero(np.asarray(machine) == i)
        orders.append(mine[np.argsort(np.asarray(position)[mine], kind="stable")].tolist())
        clock = 0.0
        for k, j in enumerate(orders[i]):
            start[j] = clock + (setup[i, orders[i][k - 1], j] if k else 0.0)
            clock = start[j] + instance.time[j, i]
    plain = Solution(placement=np.array(machine, np.int64), start=start)
    seen = zip(instance.device_names, orders, orders_of(instance, plain), strict=True)
    told = {name: [instance.labels[j] for j in order] for name, order, read in seen if order != read}
    return replace(plain, details={"sequence": told}) if told else plain


def orders_of(instance: Instance, solution: Solution) -> list[list[int]]:
    """Jobs of each device in the order they run: by start and end, or as ``details.sequence`` has it where these do not rise.

    Jobs of no length may share a moment, and only their sequence says which setups lie between them.
    """
    assert solution.placement is not None and solution.start is not None
    placement, start = solution.placement, solution.start
    done = start + instance.time[np.arange(instance.n_tasks), placement]
    rank = np.lexsort((done, start))
    orders = [rank[placement[rank] == i].tolist() for i in range(instance.n_devices)]
    told = solution.details.get("sequence")
    for name, tasks in told.items() if isinstance(told, Mapping) else ():
        i = instance.device_index.get(name)
        if i is None or not isinstance(tasks, Sequence) or isinstance(tasks, str):
            continue
        order = [instance.task_index.get(task, -1) if isinstance(task, str) else -1 for task in tasks]
        moments = [(float(start[j]), float(done[j])) for j in order if j >= 0]
        if sorted(order) == sorted(orders[i]) and moments == sorted(moments):
            orders[i] = order
    return orders
