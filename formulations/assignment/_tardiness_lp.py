"""The time-indexed relaxation of :mod:`formulations.assignment.tardiness`, its equations (5)-(9).

Also what the other methods of that problem share: the instance as arrays, its horizon, and plans from sequences.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.tardiness import Shop, dispatch
from hetopt.control import Control
from hetopt.formulation import LinearFormulation, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["LP", "horizon_of", "plan_of", "shop_of", "whole"]

_COLUMNS = 250_000  # most columns of the time-indexed relaxation, unless that leaves fewer than sixteen slots
_SLOTS = 1000  # more of them make the bound hardly better, and the program much larger


class LP(LinearFormulation):
    """(5)-(9)."""

    name = "lp"
    title = "time-indexed LP (5)-(9), by interior points; bound replayed without a solver"
    kind = "relaxation"

    def size(self, instance: Instance, question: Question) -> int:
        """Nonzeros: six a column."""
        _, slots = _slots(instance)
        return 6 * int(instance.eligible.sum()) * slots

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``start[k]`` of possible starts, ``idle[device,slot]``, and, in slots, ``last``, ``overdue``, ``makespan``."""
        return _time_indexed(instance)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Interior points without crossover unless told otherwise: simplex takes many times longer, and any dual will do."""
        if options.solver in (None, "highs"):
            options = replace(options, native={"solver": "ipm", "run_crossover": "off", **options.native})
        return super().run(instance, question, control, options)


def _time_indexed(instance: Instance) -> LinearModel:
    """(5)-(9)."""
    shop = shop_of(instance)
    unit, slots = _slots(instance)
    n, d = shop.time.shape
    time, free = np.where(instance.eligible, shop.time, 0.0) / unit, shop.ready / unit
    ready = np.minimum(np.floor(free).astype(np.int64), slots)
    length = np.floor(time).astype(np.int64)
    j, i, s = np.nonzero(instance.eligible[:, :, None] & (np.arange(slots + 1) >= ready[:, None]))
    big = horizon_of(instance) / unit
    model = LinearModel("time-indexed")
    x = model.continuous("start", len(j), upper=1.0)
    alive = np.arange(slots) >= ready[:, None]
    z = model.continuous("idle", (d, slots), upper=alive.astype(float))
    last = model.continuous("last", d, lower=free, upper=big, labels=(instance.device_names,))
    overdue = model.continuous("overdue", d, upper=big, labels=(instance.device_names,))
    makespan = model.continuous("makespan", lower=float(free.max()), upper=big)
    model.rows("once", n, [(j, x, 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (7)
    end = s + length[j, i]
    leaves, arrives = s < slots, end < slots
    cell = np.arange(d * slots).reshape(d, slots)
    flow: list[tuple[Any, Any, Any]] = [
        (cell[i[leaves], s[leaves]], x[leaves], 1.0),
        (cell[i[arrives], end[arrives]], x[arrives], -1.0),
        (cell, z, 1.0),
        (cell[:, 1:], z[:, :-1], -1.0),
    ]
    enters = np.arange(slots) == ready[:, None]
    model.rows(
        "slot", (d, slots), flow, lower=enters, upper=enters, labels=(instance.device_names, range(slots))
    )  # (8)
    everyone = np.arange(n)
    model.rows("ends", n, [(j, x, end), (everyone, makespan, -1.0)], upper=0, labels=(instance.labels,))  # (9)
    each = np.arange(d)
    load: list[tuple[Any, Any, Any]] = [(i, x, time[j, i]), (each, last, -1.0)]
    model.rows("load", d, load, upper=-free, labels=(instance.device_names,))  # (5)
    model.rows("last_job", d, [(each, last, 1.0), (each, makespan, -1.0)], upper=0, labels=(instance.device_names,))
    model.rows(
        "overdue_by", d, [(each, last, 1.0), (each, overdue, -1.0)], upper=shop.machine_due / unit,
        labels=(instance.device_names,),
    )  # (6)  # fmt: skip
    cost = shop.weight[j] * np.maximum(0.0, unit * end - shop.due[j])
    model.minimize(np.concatenate([x, overdue, [makespan]]), np.concatenate([cost, unit * shop.machine_weight, [unit]]))
    return model


def shop_of(instance: Instance) -> Shop:
    """The instance as arrays for the kernels; places that pins and prohibitions exclude are ``inf``."""
    columns, devices = instance.columns, instance.devices
    return Shop(
        np.where(instance.eligible, instance.time, np.inf),
        np.asarray(columns.due[instance.job_of], np.float64),
        np.asarray(columns.weight[instance.job_of], np.float64),
        np.asarray(instance.available_from, np.float64),
        np.array([np.inf if device.due is None else device.due for device in devices], np.float64),
        np.array([device.weight for device in devices], np.float64),
    )


def whole(instance: Instance) -> bool:
    """Whether all facts are integers, and so the values of plans whose weights are."""
    shop = shop_of(instance)
    facts = [fact[np.isfinite(fact)] for fact in shop]
    return instance.integral and all((fact == np.floor(fact)).all() for fact in facts)


def horizon_of(instance: Instance) -> float:
    """No plan without needless waiting takes longer."""
    slowest = np.where(instance.eligible, instance.time, 0.0).max(axis=1)
    return float(instance.available_from.max() + math.fsum(slowest.tolist())) * (1 + 1e-12)


def plan_of(instance: Instance, machine: NDArray[np.int64], rank: NDArray[Any]) -> Solution:
    """Plan that runs each device's jobs by rank, each as early as possible."""
    start, clock = np.zeros(instance.n_tasks), instance.available_from.astype(np.float64)
    for j in np.argsort(rank, kind="stable").tolist():
        i = int(machine[j])
        start[j] = clock[i]
        clock[i] += instance.time[j, i]
    return Solution(placement=np.array(machine, np.int64), start=start)


def _slots(instance: Instance) -> tuple[float, int]:
    """Seconds of a slot of the time-indexed relaxation, a power of two, and the number of slots."""
    shop = shop_of(instance)
    start = dispatch(shop)
    if start is None:
        return 1.0, 1
    ends = shop.ready + np.bincount(
        start.machine, shop.time[np.arange(instance.n_tasks), start.machine], minlength=instance.n_devices
    )
    last = max(1.25 * float(ends.max()), 1e-300)
    most = max(16, min(_SLOTS, _COLUMNS // int(instance.eligible.sum())))
    integers = all(
        (fact == np.floor(fact)).all() for fact in (instance.time[instance.eligible], instance.available_from)
    )
    if integers and last <= most:
        return 1.0, math.ceil(last)
    unit = 2.0 ** math.ceil(math.log2(last / most))
    return unit, math.ceil(last / unit)
