"""Weighted tardiness as MILP (1)-(6) and in CP-SAT; the docstring of ``tardiness`` has the numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.assignment._tardiness_lp import horizon_of, plan_of, shop_of
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["CPSAT", "MILP"]

_BITS = 31  # CP-SAT's presolve multiplies numbers of this size without overflow
_WEIGHT_BITS = 20  # of the weights' sum, so that costs stay below 2^51


class MILP(LinearFormulation):
    """(1)-(6)."""

    name = "milp"
    title = "MILP (1)-(6)"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Nonzeros: ten for each pair of jobs on each device."""
        return 5 * instance.n_devices * instance.n_tasks**2

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x[task,device]``, ``y[task,task]``, ``done``, ``late``, ``last``, ``overdue``, ``makespan``,
        all but the first two in units that suit tolerances.
        """
        shop, can = shop_of(instance), instance.eligible
        unit = time_unit(max(float(shop.time[can].max()), float(shop.ready.max())))
        big = horizon_of(instance) / unit
        shop = shop._replace(
            time=shop.time / unit, due=shop.due / unit, ready=shop.ready / unit, machine_due=shop.machine_due / unit
        )
        n, d = can.shape
        model = LinearModel("tardiness")
        names = (instance.labels, instance.device_names)
        x = model.binary("x", (n, d), upper=can, labels=names)
        y = model.binary("y", (n, n), upper=np.triu(np.ones((n, n)), 1), labels=(instance.labels, instance.labels))
        done = model.continuous("done", n, upper=big, labels=names[:1])
        late = model.continuous("late", n, upper=big, labels=names[:1])
        last = model.continuous("last", d, lower=shop.ready, upper=big, labels=names[1:])
        overdue = model.continuous("overdue", d, upper=big, labels=names[1:])
        makespan = model.continuous("makespan", upper=big)
        j, i = np.nonzero(can)
        model.rows("assign", n, [(j, x[j, i], 1.0)], lower=1, upper=1, labels=names[:1])  # (1)
        row = np.arange(len(j))
        first: list[tuple[Any, Any, Any]] = [(row, done[j], 1.0), (row, x[j, i], -shop.time[j, i] - big)]
        model.rows("first", len(j), first, lower=shop.ready[i] - big)  # (2)
        a, b, i = np.nonzero(can[:, None, :] & can[None, :, :] & (np.arange(n)[:, None] < np.arange(n))[:, :, None])
        row = np.arange(len(a))
        for block, one, two, sign in (("before", a, b, -1.0), ("after", b, a, 1.0)):
            terms: list[tuple[Any, Any, Any]] = [
                (row, done[two], 1.0),
                (row, done[one], -1.0),
                (row, x[a, i], -big),
                (row, x[b, i], -big),
                (row, y[a, b], sign * big),
            ]
            model.rows(block, len(a), terms, lower=shop.time[two, i] - (3.0 if sign < 0 else 2.0) * big)  # (3), (4)
        each, everyone = np.arange(d), np.arange(n)
        j, i = np.nonzero(can)
        model.rows("load", d, [(i, x[j, i], shop.time[j, i]), (each, last, -1.0)], upper=-shop.ready, labels=names[1:])
        model.rows("last_job", d, [(each, last, 1.0), (each, makespan, -1.0)], upper=0, labels=names[1:])  # (5)
        model.rows("late_by", n, [(everyone, done, 1.0), (everyone, late, -1.0)], upper=shop.due, labels=names[:1])
        model.rows(
            "overdue_by", d, [(each, last, 1.0), (each, overdue, -1.0)], upper=shop.machine_due, labels=names[1:]
        )  # (6)
        model.minimize(
            np.concatenate([late, overdue, [makespan]]),
            unit * np.concatenate([shop.weight, shop.machine_weight, [1.0]]),
        )
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Devices by x, order by completion, each job as early as possible."""
        machine = np.argmax(x[model.columns("x")], axis=1)
        return _by_ends(instance, machine, x[model.columns("done")])

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x and y of a plan."""
        if solution.placement is None or solution.start is None:
            return None
        point = np.full(model.n_columns, np.nan)
        point[model.columns("x")] = solution.placement[:, None] == np.arange(instance.n_devices)
        rank = _rank(instance, solution)
        point[model.columns("y")] = np.triu(rank[:, None] < rank, 1)
        return point


class CPSAT(ConstraintModel):
    """Optional intervals in CP-SAT; decimals are rounded so that the bound stays one."""

    name = "cpsat"
    title = "CP-SAT, an optional interval for each job and device"
    kind = "exact"

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals x_ij and completions C_j."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        shop, can = shop_of(instance), instance.eligible
        unit, weight_unit = _units(instance)
        horizon = math.floor(horizon_of(instance) / unit) + 1
        time = np.floor(np.where(can, shop.time, 0.0) / unit).astype(np.int64)
        ready = np.floor(shop.ready / unit).astype(np.int64)
        weight, machine_weight = (
            np.floor(w / weight_unit).astype(np.int64) for w in (shop.weight, shop.machine_weight)
        )
        # Times are rounded down and due dates up, so no plan is later in the model than it is.
        due, machine_due = (
            np.ceil(np.minimum(v / unit, horizon)).astype(np.int64) for v in (shop.due, shop.machine_due)
        )
        n, d = can.shape
        model = cp_model.CpModel()
        x = {(j, i): model.new_bool_var("") for j, i in zip(*np.nonzero(can), strict=True)}
        done = [model.new_int_var(0, horizon, "") for _ in range(n)]
        late = [model.new_int_var(0, horizon, "") for _ in range(n)]
        overdue = [model.new_int_var(0, horizon, "") for _ in range(d)]
        makespan = model.new_int_var(int(ready.max()), horizon, "")
        for j in range(n):
            model.add_exactly_one(x[j, i] for i in range(d) if can[j, i])  # (1)
            model.add(late[j] >= done[j] - int(due[j]))
            model.add(makespan >= done[j])
        for i in range(d):
            mine = np.flatnonzero(can[:, i]).tolist()
            intervals = []
            for j in mine:
                begin = model.new_int_var(int(ready[i]), horizon, "")
                intervals.append(model.new_optional_interval_var(begin, int(time[j, i]), done[j], x[j, i], ""))
            model.add_no_overlap(intervals)
            total = cp_model.LinearExpr.weighted_sum([x[j, i] for j in mine], time[mine, i].tolist()) + int(ready[i])
            model.add(makespan >= total)  # (5)
            model.add(overdue[i] >= total - int(machine_due[i]))  # (6)
        terms = [*late, *overdue, makespan]
        costs = [*weight.tolist(), *machine_weight.tolist(), math.floor(1.0 / weight_unit)]
        model.minimize(cp_model.LinearExpr.weighted_sum(terms, costs))
        to_bound = unit * weight_unit
        points = [*x.values(), *done]
        return CpProgram(model, points, to_bound=lambda bound: math.ceil(bound - 1e-6) * to_bound, name=self.name)

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Devices of the literals, order by completion, each job as early as possible."""
        pairs = np.argwhere(instance.eligible)
        chosen = pairs[np.asarray(x)[: len(pairs)] > 0.5]
        machine = np.zeros(instance.n_tasks, np.int64)
        machine[chosen[:, 0]] = chosen[:, 1]
        return _by_ends(instance, machine, np.asarray(x, np.float64)[len(pairs) :])

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Literals and, where nothing is rounded, completions of a plan."""
        if solution.placement is None or solution.start is None:
            return None
        pairs = np.argwhere(instance.eligible)
        literals = np.asarray(solution.placement[pairs[:, 0]] == pairs[:, 1], np.float64)
        done = (solution.start + instance.time[np.arange(instance.n_tasks), solution.placement]) / _units(instance)[0]
        exact = bool((done == np.floor(done)).all())
        return np.concatenate([literals, done if exact else np.full(instance.n_tasks, np.nan)])


def _units(instance: Instance) -> tuple[float, float]:
    """Seconds and weights per integer unit: 1 for integers that stay small, else powers of two."""
    shop, span = shop_of(instance), horizon_of(instance)
    facts = [fact[np.isfinite(fact)] for fact in (shop.time, shop.ready, shop.due, shop.machine_due)]
    integers = all((fact == np.floor(fact)).all() for fact in facts) and span < 2.0**_BITS
    unit = 1.0 if integers else 2.0 ** (math.frexp(span)[1] - _BITS)
    weight = np.concatenate([shop.weight, shop.machine_weight, [1.0]])
    light = bool((weight == np.floor(weight)).all()) and weight.sum() < 2.0**_WEIGHT_BITS
    return unit, 1.0 if light else 2.0 ** (math.frexp(float(weight.sum()))[1] - _WEIGHT_BITS)


def _by_ends(instance: Instance, machine: NDArray[np.int64], done: NDArray[np.float64]) -> Solution:
    """Plan that runs jobs in the order in which they end; jobs of no length go after what ends when they run."""
    rank = np.empty(instance.n_tasks)
    own = instance.time[np.arange(instance.n_tasks), machine]
    rank[np.lexsort((own == 0, done))] = np.arange(instance.n_tasks)
    return plan_of(instance, machine, rank)


def _rank(instance: Instance, solution: Solution) -> NDArray[np.int64]:
    """(n,) place of each job in the order of starts; jobs of no length go before what starts when they run."""
    assert solution.placement is not None and solution.start is not None
    done = solution.start + instance.time[np.arange(instance.n_tasks), solution.placement]
    rank = np.empty(instance.n_tasks, np.int64)
    rank[np.lexsort((done, solution.start))] = np.arange(instance.n_tasks)
    return rank
