"""The time-indexed relaxation of :mod:`formulations.assignment.tardiness`, its equations (5)-(9), as an LP and with whole starts.

Also what the other methods of that problem share: the instance as arrays, and its horizon.
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

__all__ = ["LP", "TimeIndexed", "horizon_of", "shop_of", "whole"]

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


class TimeIndexed(LP):
    """(5)-(9) with whole starts, without the starts that reduced costs exclude."""

    name = "time_indexed"
    title = "time-indexed MIP (5)-(9) without starts that cost too much beside a known plan; a bound"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """The LP's bound first; then starts are whole, and those with which no plan beats the one known are left out.

        With a plan of value U, the LP's bound z and a start's reduced cost c, plans with z + c >= U are of no interest. So the
        bound is the least of U and the bound of what is left.
        """
        from hetopt.verify.bounds import replay_lp_dual

        first = _like(control)
        outcome = LP().run(instance, question, first, options)
        if first.bound is not None and first.bound_proof is not None:
            control.report_bound(first.bound, first.bound_proof, first.certificate)
        known = dispatch(shop_of(instance)) if control.value is None else None
        value = known.value if known is not None else control.value
        if first.certificate is None or value is None or control.should_stop():
            return outcome
        model = LP().build(instance, question)
        dual = np.zeros(model.n_rows)
        dual[first.certificate["rows"]] = first.certificate["values"]
        start = model.columns("start")
        reduced = (model.cost - model.matrix.T @ dual)[start]
        beyond = value - (1.0 if whole(instance) else 0.0) + 1e-6 * value
        second = _like(control)
        keep = replay_lp_dual(model, first.certificate) + reduced <= beyond
        outcome = _Whole(keep).run(instance, question, second, options)
        if outcome.reason == "infeasible":
            control.report_bound(value, "solver")
            return Outcome(solver=outcome.solver, statistics=outcome.statistics)
        if second.bound is not None:
            control.report_bound(min(second.bound, value), "solver")
        return outcome


class _Whole(LP):
    """(5)-(9) with whole starts, of which only those in ``keep`` are allowed."""

    name = "time_indexed"

    def __init__(self, keep: NDArray[np.bool_]) -> None:
        self.keep = keep

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The columns and rows of the relaxation."""
        return _time_indexed(instance, self.keep)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """By the solver's usual means for integer models."""
        return LinearFormulation.run(self, instance, question, control, options)


def _like(control: Control) -> Control:
    """A control of its own for a part of a run: the same limits, none of the plans and bounds."""
    left = None if math.isinf(control.remaining) else max(control.remaining, 0.0)
    return Control(
        time_limit=left,
        relative_gap=control.relative_gap,
        threads=control.threads,
        seed=control.seed,
        memory_limit=control.memory_limit,
        cancelled=control.cancelled,
    )


def _time_indexed(instance: Instance, keep: NDArray[np.bool_] | None = None) -> LinearModel:
    """(5)-(9); with ``keep``, one for each start, starts are whole and only those kept are allowed."""
    shop = shop_of(instance)
    unit, slots = _slots(instance)
    n, d = shop.time.shape
    time, free = np.where(instance.eligible, shop.time, 0.0) / unit, shop.ready / unit
    ready = np.minimum(np.floor(free).astype(np.int64), slots)
    length = np.floor(time).astype(np.int64)
    j, i, s = np.nonzero(instance.eligible[:, :, None] & (np.arange(slots + 1) >= ready[:, None]))
    big = horizon_of(instance) / unit
    model = LinearModel("time-indexed")
    x = model.continuous("start", len(j), upper=1.0) if keep is None else model.binary("start", len(j), upper=keep)
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
    shop = shop_of(instance)
    facts = [fact[np.isfinite(fact)] for fact in shop]
    return instance.integral and all((fact == np.floor(fact)).all() for fact in facts)


def horizon_of(instance: Instance) -> float:
    """No plan without needless waiting takes longer."""
    slowest = np.where(instance.eligible, instance.time, 0.0).max(axis=1)
    return float(instance.available_from.max() + math.fsum(slowest.tolist())) * (1 + 1e-12)


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
