"""Weighted completion as interval-indexed LP (4), (5) and in CP-SAT; the docstring of ``weighted_completion`` has the numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.assignment._completion_data import in_order, releases_of, smith, weights_of
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["CPSAT", "LP"]

_BITS = 31  # CP-SAT's presolve multiplies numbers of this size without overflow


class LP(LinearFormulation):
    """(4), (5): the interval-indexed relaxation."""

    name = "lp"
    title = "interval-indexed LP (4), (5), release dates too; bound replayed without a solver"
    kind = "relaxation"
    ratio = 1.15  # of the geometric intervals; a finer grid is a tighter bound and a larger program

    def size(self, instance: Instance, question: Question) -> int:
        """Nonzeros: each y stands in (4) and in (5) of all later intervals."""
        length = len(_grid(instance, self.ratio))
        return instance.n_tasks * instance.n_devices * length * (length + 2) // 2

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The relaxation with cumulated work, kept sparse by a running total for each device and interval."""
        grid = _grid(instance, self.ratio)
        n, d, length = instance.n_tasks, instance.n_devices, len(grid) - 1
        earliest = np.maximum(releases_of(instance)[:, None], instance.available_from) + instance.time
        can = instance.eligible[:, :, None] & (
            grid[1:] >= np.where(np.isfinite(earliest), earliest, np.inf)[:, :, None]
        )
        model = LinearModel("interval-indexed")
        j, i, l = np.nonzero(can)
        unit = time_unit(float(instance.time[instance.eligible].max()))
        y = model.continuous("y", j.size, upper=1.0)
        room = np.maximum(0.0, grid[1:] - instance.available_from[:, None]) / unit
        work = model.continuous("work", (d, length), upper=room)
        model.rows("once", n, [(j, y, 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (4)
        cell = np.arange(d * length).reshape(d, length)
        terms: list[tuple[Any, Any, Any]] = [
            (i * length + l, y, instance.time[j, i] / unit),
            (cell[:, 1:], work[:, :-1], 1.0),
            (cell, work, -1.0),
        ]  # (5) as work_l >= work_{l-1} + new work
        model.rows("work_of", (d, length), terms, upper=0)
        cost = weights_of(instance)[j] * np.maximum(grid[l], earliest[j, i])
        model.minimize(y, cost)
        return model


class CPSAT(ConstraintModel):
    """(1)-(3) in CP-SAT; decimals are rounded down for the bound."""

    name = "cpsat"
    title = "CP-SAT: Smith's rule (1), (2), or optional intervals (3) with release dates"
    kind = "exact"

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals x_ij, completions C_j, and intervals only where there are release dates."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        unit, weight_unit = _units(instance)
        can = instance.eligible
        time = np.floor(np.where(can, instance.time, 0.0) / unit).astype(np.int64)
        ready = np.floor(instance.available_from / unit).astype(np.int64)
        release = np.floor(releases_of(instance) / unit).astype(np.int64)
        weight = np.floor(weights_of(instance) / weight_unit).astype(np.int64)
        horizon = int(max(ready.max(), release.max()) + time.max(axis=1).sum())
        n, d = can.shape
        model = cp_model.CpModel()
        x = {(j, i): model.new_bool_var("") for j, i in zip(*np.nonzero(can), strict=True)}
        done = [model.new_int_var(0, horizon, "") for _ in range(n)]
        for j in range(n):
            model.add_exactly_one(x[j, i] for i in range(d) if can[j, i])  # (1)
        dated = bool(release.any())
        for i in range(d):
            mine = np.flatnonzero(can[:, i])
            if dated:
                intervals = []
                for j in mine.tolist():
                    begin = model.new_int_var(int(max(release[j], ready[i])), horizon, "")
                    size = int(time[j, i])
                    intervals.append(model.new_optional_interval_var(begin, size, done[j], x[j, i], ""))
                model.add_no_overlap(intervals)  # (3)
                continue
            # Ratios of the exact numbers decide the order, so that the model's order is the plan's.
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(instance.time[mine, i] == 0, 0.0, instance.time[mine, i] / weights_of(instance)[mine])
            order = mine[np.lexsort((mine, ratio))].tolist()
            for place, j in enumerate(order):
                before = order[:place]
                total = cp_model.LinearExpr.weighted_sum([x[k, i] for k in before], time[before, i].tolist())
                model.add(done[j] >= int(ready[i] + time[j, i]) + total).only_enforce_if(x[j, i])  # (2)
        model.minimize(cp_model.LinearExpr.weighted_sum(done, weight.tolist()))
        points = [x[key] for key in x] + done
        to_bound = unit * weight_unit
        return CpProgram(model, points, to_bound=lambda bound: math.ceil(bound - 1e-6) * to_bound, name=self.name)

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Devices of the literals; order on each device by completion, then as early as possible."""
        pairs = np.argwhere(instance.eligible)
        chosen = pairs[np.asarray(x)[: len(pairs)] > 0.5]
        placement = np.full(instance.n_tasks, -1, np.int64)
        placement[chosen[:, 0]] = chosen[:, 1]
        if not releases_of(instance).any():
            return smith(instance, placement)
        # Ends come from CP-SAT in integer units; ties are jobs of no length, which go after what ends when they run.
        ends = np.asarray(x, np.float64)[len(pairs) :]
        own = instance.time[np.arange(instance.n_tasks), placement] / _units(instance)[0]
        rank = np.empty(instance.n_tasks)
        rank[np.lexsort((own == 0, ends))] = np.arange(instance.n_tasks)
        return in_order(instance, placement, rank)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Literals of a plan; completions are left to the solver, for rounding may have moved them."""
        if solution.placement is None:
            return None
        pairs = np.argwhere(instance.eligible)
        literals = np.asarray(solution.placement[pairs[:, 0]] == pairs[:, 1], np.float64)
        return np.concatenate([literals, np.full(instance.n_tasks, np.nan)])


def _grid(instance: Instance, ratio: float) -> NDArray[np.float64]:
    """0 = t_0 < ... < t_L: geometric from the shortest job on, up to where every plan without needless waiting has ended."""
    slowest = np.where(instance.eligible, instance.time, 0.0).max(axis=1)
    end = float(
        max(releases_of(instance).max(initial=0.0), instance.available_from.max()) + math.fsum(slowest.tolist())
    )
    end = math.nextafter(end * (1 + 1e-12), math.inf)
    positive = instance.time[instance.eligible & (instance.time > 0)]
    first = float(positive.min()) if positive.size else end
    points = [0.0]
    step = min(first, end)
    while step < end and len(points) < 400:
        points.append(step)
        step *= ratio
    return np.array([*points, end])


def _units(instance: Instance) -> tuple[float, float]:
    """Seconds and weights per integer unit: 1 for integers that stay small, else powers of two; products stay below 2^62."""
    slowest = np.where(instance.eligible, instance.time, 0.0).max(axis=1).sum()
    span = float(slowest + max(instance.available_from.max(), releases_of(instance).max()))
    facts = (instance.time[instance.eligible], instance.available_from, releases_of(instance))
    whole = all((fact == np.floor(fact)).all() for fact in facts) and span < 2.0**_BITS
    unit = 1.0 if whole else 2.0 ** (math.frexp(span)[1] - _BITS)
    weight = weights_of(instance)
    total = max(float(weight.sum()), 1e-300)
    light = bool((weight == np.floor(weight)).all()) and total < 2.0**20
    return unit, 1.0 if light else 2.0 ** (math.frexp(total)[1] - 20)
