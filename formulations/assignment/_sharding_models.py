"""Models of embedding-table sharding: the MILP (1)-(5), its relaxation, the cases (6), and CP-SAT; numbers as in sharding.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.assignment._sharding_data import tables_of
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, LinearFormulation, Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.bounds import replay_lp_dual

__all__ = ["CPSAT", "MILP", "Cases", "proved_by_cases"]

_BITS = 30  # CP-SAT's presolve multiplies numbers of this size without overflow
_MOST_CASES = 32


class MILP(LinearFormulation):
    """(1)-(5)."""

    name = "milp"
    title = "MILP (1)-(5)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None, case: int | None = None) -> LinearModel:
        """Columns ``x[table,device]``, ``held[device,count]`` and ``busiest``, in units that suit tolerances.

        ``case`` is one of (6): -1 for no empty device, else the number of the empty one.
        """
        tables = tables_of(instance, question)
        n, d = tables.load.shape
        names, devices = instance.labels, instance.device_names
        can, countable = np.isfinite(tables.load), tables.countable.copy()
        if case == -1:
            countable[:, 0] = False
        elif case is not None:
            countable[case, 1:], can[:, case] = False, False
        largest = np.where(np.isfinite(tables.load), tables.load, 0.0).max(axis=1)
        unit = time_unit(max(float(largest.max()), float(abs(tables.fused).max())))
        model = LinearModel("sharding")
        x = model.binary("x", (n, d), upper=can, labels=(names, devices))
        z = model.binary("held", (d, n + 1), upper=countable)
        top = model.continuous("busiest", upper=(float(largest.sum()) + float(abs(tables.fused).max())) / unit)
        j, g = np.nonzero(can)
        at, k = np.nonzero(countable)
        model.rows("assign", n, [(j, x[j, g], 1.0)], lower=1, upper=1, labels=(names,))  # (1)
        counts: list[tuple[Any, Any, Any]] = [(g, x[j, g], 1.0), (at, z[at, k], -k.astype(float))]
        model.rows("count", d, counts, lower=0, upper=0, labels=(devices,))  # (2)
        model.rows("one", d, [(at, z[at, k], 1.0)], lower=1, upper=1, labels=(devices,))  # (2)
        busy: list[tuple[Any, Any, Any]] = [
            (g, x[j, g], tables.load[j, g] / unit),
            (at, z[at, k], tables.fused[at, k] / unit),
            (np.arange(d), top, -1.0),
        ]
        model.rows("busy", d, busy, upper=0, labels=(devices,))  # (3)
        limited = np.flatnonzero(np.isfinite(instance.capacity) & (instance.memory.sum() > instance.capacity))
        if limited.size:
            row = np.full(d, -1)
            row[limited] = np.arange(limited.size)
            inside = row[g] >= 0
            byte = time_unit(float(instance.memory.max()))
            memory = [(row[g[inside]], x[j[inside], g[inside]], instance.memory[j[inside]] / byte)]
            of = [devices[i] for i in limited.tolist()]
            model.rows("memory", limited.size, memory, upper=instance.capacity[limited] / byte, labels=(of,))  # (4)
        model.minimize(top, unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each table on the device with the largest x."""
        return Solution.assign(np.argmax(x[model.columns("x")], axis=1))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x and z of a plan."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        d = instance.n_devices
        point = np.full(model.n_columns, np.nan)
        point[model.columns("x")] = solution.placement[:, None] == np.arange(d)
        held = np.bincount(solution.placement, minlength=d)
        point[model.columns("held")] = held[:, None] == np.arange(instance.n_tasks + 1)
        return point


class Cases(Method):
    """The relaxations of (6)."""

    name = "cases"
    title = (
        "least of the relaxations with no empty device and with each device empty (6), all replayed without a solver"
    )
    kind = "relaxation"
    engine = "linear"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few devices: a relaxation for each."""
        return f"there are more than {_MOST_CASES} devices" if instance.n_devices > _MOST_CASES else None

    def size(self, instance: Instance, question: Question) -> int:
        """Nonzeros of all the relaxations."""
        return 4 * instance.n_tasks * instance.n_devices * (instance.n_devices + 1)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One relaxation a case; the least is the bound once all are solved."""
        from hetopt import solvers
        from hetopt.solvers.base import Options

        adapter = solvers.get("highs")
        duals: list[dict[str, Any]] = []
        for case in range(-1, instance.n_devices):
            if control.should_stop():
                return Outcome("limit", "time")
            if impossible(instance, question, case):
                duals.append({"rows": [], "values": []})
                continue
            model = MILP().build(instance, question, case).relax()
            scale = 1.0 / float(model.cost[model.columns("busiest")])
            answer = adapter.solve(model.with_scaled_objective(scale), Options(threads=control.threads), control)
            if answer.row_dual is None:
                return Outcome(notes=(f"cases: a relaxation ended with {answer.status!r}, so there is no bound",))
            rows = np.flatnonzero(answer.row_dual)
            duals.append({"rows": rows.tolist(), "values": (answer.row_dual[rows] / scale).tolist()})
        question.prove(instance, control, {"kind": "cases", "duals": duals})
        return Outcome()


def impossible(instance: Instance, question: Question, case: int) -> bool:
    """Whether a case of (6) is ruled out at a glance: a device that can hold none, or too little room without one."""
    tables = tables_of(instance, question)
    n, d = tables.load.shape
    if case == -1:
        return n < d or not tables.countable[:, 1:].any(axis=1).all()
    others = np.arange(d) != case
    most = np.where(tables.countable, np.arange(n + 1), 0).max(axis=1)
    if not np.isfinite(tables.load[:, others]).any(axis=1).all() or most[others].sum() < n:
        return True
    return bool(instance.memory.sum() > instance.capacity[others].sum() * (1 + 1e-12))


def proved_by_cases(instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
    """The least of the cases' bounds, from their duals.

    Raises
    ------
    ValueError
        The duals are not one set for each case, or some prove nothing.
    """
    duals = certificate.get("duals")
    cases = range(-1, instance.n_devices)
    if not isinstance(duals, list) or len(duals) != len(cases):
        raise ValueError(f"the certificate must hold the duals of {len(cases)} cases")
    least = math.inf
    for case, dual in zip(cases, duals, strict=True):
        if impossible(instance, question, case):
            continue
        proved = replay_lp_dual(MILP().build(instance, question, case).relax(), dual)
        if not math.isfinite(proved):
            raise ValueError("the duals of a case prove nothing")
        least = min(least, proved)
    if math.isinf(least):
        raise ValueError("no case is left, so there is no plan to bound")
    return least


class CPSAT(ConstraintModel):
    """(1)-(5) in CP-SAT; decimals are rounded down (capacities up), so that its bound stays one."""

    name = "cpsat"
    title = "CP-SAT (1)-(5), decimals rounded down for the bound"
    kind = "exact"

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals x and z, one time of the busiest device."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        tables = tables_of(instance, question)
        n, d = tables.load.shape
        can = np.isfinite(tables.load)
        longest = np.where(can, tables.load, 0.0).max(axis=1)
        total = float(longest.sum()) + float(abs(tables.fused).max())
        whole = tables.whole and total < 2.0**_BITS
        unit = 1.0 if whole else 2.0 ** (math.frexp(total)[1] - _BITS)
        ticks = np.floor(np.where(can, tables.load, 0.0) / unit).astype(np.int64)
        fused = np.floor(tables.fused / unit).astype(np.int64)
        finite = np.isfinite(instance.capacity)
        byte = 2.0 ** max(0, math.frexp(max(float(instance.memory.sum()), 1.0))[1] - _BITS)
        need = np.floor(instance.memory / byte).astype(np.int64)
        model = cp_model.CpModel()
        top = model.new_int_var(0, int(ticks.max(axis=1).sum() + abs(fused).max()), "busiest")
        x = {(j, g): model.new_bool_var("") for j, g in zip(*(a.tolist() for a in np.nonzero(can)), strict=True)}
        for j in range(n):
            model.add_exactly_one(x[j, g] for g in np.flatnonzero(can[j]).tolist())  # (1)
        for g in range(d):
            mine = np.flatnonzero(can[:, g]).tolist()
            counts = np.flatnonzero(tables.countable[g]).tolist()
            held = [model.new_bool_var("") for _ in counts]
            model.add_exactly_one(held)  # (2), (5)
            model.add(sum(x[j, g] for j in mine) == cp_model.LinearExpr.weighted_sum(held, counts))  # (2)
            literals = [*(x[j, g] for j in mine), *held]
            weights = [*ticks[mine, g].tolist(), *fused[g, counts].tolist()]
            model.add(cp_model.LinearExpr.weighted_sum(literals, weights) <= top)  # (3)
            if finite[g] and instance.memory.sum() > instance.capacity[g]:
                limit = math.floor(instance.capacity[g] / byte)
                model.add(
                    cp_model.LinearExpr.weighted_sum([x[j, g] for j in mine], need[mine].tolist()) <= limit
                )  # (4)
        model.minimize(top)
        return CpProgram(model, list(x.values()), to_bound=lambda bound: math.ceil(bound - 1e-6) * unit, name=self.name)

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Each table on its chosen device."""
        chosen = np.argwhere(instance.eligible)[np.asarray(x) > 0.5]
        placement = np.full(instance.n_tasks, -1, np.int64)
        placement[chosen[:, 0]] = chosen[:, 1]
        return Solution.assign(placement)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """x of a plan."""
        assert solution.placement is not None
        pairs = np.argwhere(instance.eligible)
        chosen: NDArray[np.bool_] = solution.placement[pairs[:, 0]] == pairs[:, 1]
        return chosen.astype(np.float64)
