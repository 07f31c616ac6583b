"""Jobs with setups as LP (6), MILP (1)-(5) and CP-SAT circuits; the docstring of ``setup_times`` has the numbers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.assignment._setup_data import (
    horizon_of,
    least_setup,
    model_unit,
    orders_of,
    plan_of,
    setup_of,
    unit_of,
)
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["CPSAT", "LP", "MILP"]


class LP(LinearFormulation):
    """(1), (6)."""

    name = "lp"
    title = "LP relaxation (1), (6) with least setups, bound replayed without a solver"
    kind = "relaxation"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x[task,device]`` and ``makespan``, in units that suit tolerances."""
        n, d = instance.time.shape
        unit = model_unit(instance)
        time, least = instance.time / unit, least_setup(instance) / unit
        can = instance.eligible
        model = LinearModel("setup-bound")
        x = model.continuous("x", (n, d), upper=can, labels=(instance.labels, instance.device_names))
        t = model.continuous("makespan", upper=horizon_of(instance) / unit)
        j, i = np.nonzero(can)
        model.rows("assign", n, [(j, x[j, i], 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        terms: list[tuple[Any, Any, Any]] = [(i, x[j, i], time[j, i] + least[i, j]), (np.arange(d), t, -1.0)]
        model.rows("load", d, terms, upper=least.max(axis=1, initial=0.0), labels=(instance.device_names,))  # (6)
        model.minimize(t, unit)
        return model


class MILP(LinearFormulation):
    """(1)-(5)."""

    name = "milp"
    title = "MILP (1)-(5)"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Nonzeros: a few for each pair of jobs on each device."""
        return 7 * instance.n_devices * instance.n_tasks**2

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x[task,device]``, ``y[device,before,after]`` (0 is the idle machine), ``done``, ``makespan``, the last two
        in units that suit tolerances.
        """
        n, d = instance.time.shape
        unit = model_unit(instance)
        time, setup, big = instance.time / unit, setup_of(instance) / unit, horizon_of(instance) / unit
        can = instance.eligible
        model = LinearModel("setup-times")
        x = model.binary("x", (n, d), upper=can, labels=(instance.labels, instance.device_names))
        free = np.zeros((d, n + 1, n + 1))
        free[:, 1:, 1:] = can.T[:, :, None] & can.T[:, None, :] & ~np.eye(n, dtype=bool)
        free[:, 0, 1:], free[:, 1:, 0] = can.T, can.T
        y = model.binary("y", (d, n + 1, n + 1), upper=free)
        done = model.continuous("done", n, upper=big)
        t = model.continuous("makespan", upper=big)
        j, i = np.nonzero(can)
        model.rows("assign", n, [(j, x[j, i], 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        row = np.arange(n * d).reshape(n, d)
        for block, arcs in (("before", y[:, :, 1:].transpose(2, 0, 1)), ("after", y[:, 1:, :].transpose(1, 0, 2))):
            model.rows(block, (n, d), [(row[:, :, None], arcs, 1.0), (row, x, -1.0)], lower=0, upper=0)  # (2)
        model.rows("first", d, [(np.arange(d)[:, None], y[:, 0, 1:], 1.0)], upper=1)  # (3)
        device, before, after = np.nonzero(free[:, 1:, 1:])
        wait = setup[device, before, after] + time[after, device]
        pair = np.arange(len(device))
        terms: list[tuple[Any, Any, Any]] = [
            (pair, done[after], 1.0),
            (pair, done[before], -1.0),
            (pair, y[device, before + 1, after + 1], -big),
        ]
        model.rows("order", len(device), terms, lower=wait - big)  # (4)
        terms = [
            (i, x[j, i], time[j, i]),
            (device, y[device, before + 1, after + 1], setup[device, before, after]),
            (np.arange(d), t, -1.0),
        ]
        model.rows("load", d, terms, upper=0, labels=(instance.device_names,))  # (5)
        model.minimize(t, unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Devices by x, order by the arcs."""
        n, d = instance.time.shape
        y = x[model.columns("y")] > 0.5
        machine = np.argmax(x[model.columns("x")], axis=1)
        position = np.zeros(n, np.int64)
        for i in range(d):
            at, place = 0, 0
            while True:
                following = np.flatnonzero(y[i, at, 1:])
                if not following.size or place > n:
                    break
                at = int(following[0]) + 1
                position[at - 1] = place
                place += 1
        return plan_of(instance, machine, position)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x and arcs of a plan."""
        if solution.placement is None or solution.start is None:
            return None
        point = np.full(model.n_columns, np.nan)
        n, d = instance.time.shape
        point[model.columns("x")] = solution.placement[:, None] == np.arange(d)
        arcs = np.zeros((d, n + 1, n + 1))
        for i, order in enumerate(orders_of(instance, solution)):
            stops = [0, *(k + 1 for k in order), 0]
            if order:
                arcs[i, stops[:-1], stops[1:]] = 1.0
        point[model.columns("y")] = arcs
        return point


class CPSAT(ConstraintModel):
    """A circuit for each device in CP-SAT; decimals are rounded down for the bound."""

    name = "cpsat"
    title = "CP-SAT, a circuit of jobs for each device"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Arcs."""
        return instance.n_devices * (instance.n_tasks + 1) ** 2

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals x_ij, arcs y_ijk, one makespan."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        n, d = instance.time.shape
        setup, can, unit = setup_of(instance), instance.eligible, unit_of(instance)
        time = np.floor(np.where(can, instance.time, 0.0) / unit).astype(np.int64)
        wait = np.floor(setup / unit).astype(np.int64)
        model = cp_model.CpModel()
        makespan = model.new_int_var(0, math.floor(horizon_of(instance) / unit) + 1, "makespan")
        x = {(j, i): model.new_bool_var("") for j, i in zip(*np.nonzero(can), strict=True)}
        y: dict[tuple[int, int, int], Any] = {}
        for j in range(n):
            model.add_exactly_one(x[j, i] for i in range(d) if can[j, i])  # (1)
        for i in range(d):
            mine = np.flatnonzero(can[:, i]).tolist()
            idle = model.new_bool_var("")
            arcs = [(0, 0, idle)]
            terms, weights = [x[j, i] for j in mine], [int(time[j, i]) for j in mine]
            for j in mine:
                arcs.append((j + 1, j + 1, ~x[j, i]))
                model.add_implication(idle, ~x[j, i])
                for key in ((i, 0, j + 1), (i, j + 1, 0), *((i, j + 1, k + 1) for k in mine if k != j)):
                    y[key] = model.new_bool_var("")
                    arcs.append((key[1], key[2], y[key]))
                    if key[1] and key[2]:
                        terms.append(y[key])
                        weights.append(int(wait[i, j, key[2] - 1]))
            model.add_circuit(arcs)  # (2), (3)
            model.add(cp_model.LinearExpr.weighted_sum(terms, weights) <= makespan)  # (5)
        model.minimize(makespan)
        points = [*x.values(), *y.values()]
        return CpProgram(model, points, to_bound=lambda bound: math.ceil(bound - 1e-6) * unit, name=self.name)

    def _arcs(self, instance: Instance) -> tuple[NDArray[np.int64], list[tuple[int, int, int]]]:
        """Pairs (job, device) and arcs (device, before, after), in the order of the program's variables."""
        pairs = np.argwhere(instance.eligible)
        arcs: list[tuple[int, int, int]] = []
        for i in range(instance.n_devices):
            mine = np.flatnonzero(instance.eligible[:, i]).tolist()
            for j in mine:
                arcs += [(i, 0, j + 1), (i, j + 1, 0), *((i, j + 1, k + 1) for k in mine if k != j)]
        return pairs, arcs

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Devices by x, order by the arcs."""
        pairs, arcs = self._arcs(instance)
        values = np.asarray(x) > 0.5
        machine = np.zeros(instance.n_tasks, np.int64)
        chosen = pairs[values[: len(pairs)]]
        machine[chosen[:, 0]] = chosen[:, 1]
        follows = {(i, a): b for (i, a, b), on in zip(arcs, values[len(pairs) :], strict=True) if on}
        position = np.zeros(instance.n_tasks, np.int64)
        for i in range(instance.n_devices):
            at, place = follows.get((i, 0), 0), 0
            while at:
                position[at - 1] = place
                place += 1
                at = follows[i, at]
        return plan_of(instance, machine, position)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """x and arcs of a plan."""
        if solution.placement is None or solution.start is None:
            return None
        pairs, arcs = self._arcs(instance)
        used: set[tuple[int, int, int]] = set()
        for i, order in enumerate(orders_of(instance, solution)):
            stops = [0, *(k + 1 for k in order), 0]
            used |= {(i, a, b) for a, b in pairwise(stops)}
        literals = solution.placement[pairs[:, 0]] == pairs[:, 1]
        return np.concatenate([literals, [arc in used for arc in arcs]]).astype(np.float64)
