"""CP-SAT model of kernels with copies: three intervals for each part, engines, slots and queues.

Times are in :mod:`formulations.schedule._units`; a copy's length follows from the literals of ways.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.schedule._kernels import ends_of, horizon, kernels, plan_of, ways_of
from formulations.schedule._units import Units, units_of
from hetopt.algorithms.kernel_stages import Kernels, timed
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.kernels import check_kernels

__all__ = ["CPSAT"]

MOST = 200_000
PATIENCE = 10.0  # seconds for the question about missed deadlines


class CPSAT(ConstraintModel):
    """(1)-(6)."""

    name = "cpsat"
    title = "CP-SAT (1)-(6): three intervals for each part of a kernel"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough terms."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} terms, more than {MOST:,}" if size > MOST else None

    def size(self, instance: Instance, question: Question) -> int:
        """Ways, and a row for each edge and device."""
        data = kernels(instance, question)
        return 6 * len(data.one) + 8 * instance.n_devices * len(instance.edges)

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals of ways, then starts of the three stages of each part."""
        data = kernels(instance, question)
        value = control.value if control.plan is not None else None
        built = _Built(data, instance.columns.deadline[instance.job_of], value)
        return self._handed(instance, data, built)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any constraint model; where no plan keeps the deadlines, by how much they are missed least."""
        from hetopt import solvers

        outcome = super().run(instance, question, control, options)
        if outcome.reason != "infeasible" or not np.isfinite(instance.columns.deadline).any():
            return outcome
        data = kernels(instance, question)
        built = _Built(data, instance.columns.deadline[instance.job_of], None, late=True)
        program = self._handed(instance, data, built)
        answer = solvers.get("cpsat").solve(program, solvers.Options(time_limit=PATIENCE, seed=control.seed), control)
        try:
            plan = None if answer.x is None else self.decode(instance, question, program, answer.x)
        except ValueError:
            plan = None
        if plan is None:
            return outcome
        over = check_kernels(instance, plan.details, int(question["grain"])).end - instance.columns.deadline
        j = int(np.argmax(over))
        least = "less is too little" if answer.reason == "optimal" else "whether less would do was not proved in time"
        told = (
            f"deadline: with {over[j]:.9g} seconds more job {instance.columns.job_name[j]!r} and all others would end in time; "
            f"{least} (counted in {built.units.seconds:.3g} seconds)"
        )
        return replace(outcome, infeasible=(told, *outcome.infeasible))

    def _handed(self, instance: Instance, data: Kernels, built: _Built) -> Any:
        """A built model with the variables of its point."""
        from hetopt.solvers.cpsat import CpProgram

        points = [x for row in built.ways for x in row.values()]
        starts = [s for (_, _), part in sorted(built.parts.items()) for s in part.start]
        unit = built.units.seconds
        slack = built.units.slack(6 * instance.n_tasks + 6)
        program = CpProgram(
            built.model, [*points, *starts],
            to_bound=lambda bound: max(0.0, (math.ceil(bound - 1e-6) - slack) * unit), name=self.name,
        )  # fmt: skip
        object.__setattr__(program, "parts", sorted(built.parts))
        return program

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """The ways of the literals, stages by their starts, each as early as possible."""
        data = kernels(instance, question)
        values = np.asarray(x, np.float64)
        total = len(data.one)
        way = np.full(instance.n_tasks, -1, np.int64)
        for v in range(instance.n_tasks):
            chosen = np.flatnonzero(values[data.first[v] : data.first[v + 1]] > 0.5)
            way[v] = data.first[v] + int(chosen[0])
        moment = dict(zip(program.parts, values[total:].reshape(-1, 3), strict=True))
        key = np.zeros((2 * instance.n_tasks, 3))
        for v, w in enumerate(way.tolist()):
            for k, p in enumerate((int(data.one[w]), int(data.two[w]))):
                if p >= 0:
                    key[2 * v + k] = moment[v, p]
        found = min((timed(data, way, key, greedy) for greedy in (False, True)), key=lambda one: one.end)
        if math.isinf(found.end):
            raise ValueError("the stages cannot be timed in the order of the model")
        return plan_of(instance, data, int(question["grain"]), found)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Literals of a plan; starts are left open."""
        data = kernels(instance, question)
        way = ways_of(instance, data, int(question["grain"]), solution)
        if way is None:
            return None
        point = np.full(len(program.variables), np.nan)
        point[: len(data.one)] = 0.0
        point[way] = 1.0
        return point


class _Part:
    """Presence, starts and lengths of the three stages of a part."""

    def __init__(self, model: Any, there: Any, last: int, low: int, longest: list[int]) -> None:
        self.there = there
        self.start = [model.new_int_var(min(low, last), last, "") for _ in range(3)]
        self.length = [model.new_int_var(0, min(longest[k], last), "") for k in range(3)]
        self.has = [model.new_bool_var("") for _ in range(3)]
        self.ends = [model.new_int_var(0, last, "") for _ in range(3)]
        for k in range(3):
            model.add(self.ends[k] == self.start[k] + self.length[k])
            model.add_implication(self.has[k], there)
            model.add(self.length[k] == 0).only_enforce_if(self.has[k].negated())
            if k < 2:
                model.add(self.start[k + 1] >= self.ends[k])  # (4)


class _Built:
    """The model, literal of each way of each kernel, parts by kernel and device; with ``late``, the least lateness is sought."""

    def __init__(
        self, data: Kernels, deadline: NDArray[np.float64], value: float | None, *, late: bool = False
    ) -> None:
        from ortools.sat.python import cp_model

        self.data, self.model = data, cp_model.CpModel()
        n, m = data.time.shape
        self.units, span = _units(data)
        limit = span if value is None else min(span, value * (1 + 1e-9))
        self.last = math.floor(limit / self.units.seconds) + 1
        self.makespan = self.model.new_int_var(0, self.last, "makespan")
        self.late = self.model.new_int_var(0, self.last if late else 0, "late")
        self.ways: list[dict[int, Any]] = []
        self.whole: list[dict[int, Any]] = []
        self.parts: dict[tuple[int, int], _Part] = {}
        self.on_host = [self.model.new_int_var(0, self.last, "") for _ in range(n)]
        for v in range(n):
            self._kernel(v, deadline[v])
        for v in range(n):
            self._copies(v)
            self._waits(v)
        self._resources(m)
        self.model.minimize(self.late if late else self.makespan)

    def _kernel(self, v: int, deadline: float) -> None:
        from ortools.sat.python import cp_model

        data, model, down = self.data, self.model, self.units.down
        ways = {w: model.new_bool_var("") for w in range(data.first[v], data.first[v + 1])}
        model.add_exactly_one(ways.values())  # (1)
        self.ways.append(ways)
        self.whole.append({int(data.one[w]): x for w, x in ways.items() if data.two[w] < 0})
        sent = data.pred_data[data.pred_start[v] : data.pred_start[v + 1]].sum()
        most = data.succ_data[data.succ_start[v] : data.succ_start[v + 1]].max(initial=0.0)
        for p in self.whole[v]:
            mine = {w: x for w, x in ways.items() if p in (data.one[w], data.two[w])}
            there = model.new_bool_var("")
            model.add(sum(mine.values()) == there)
            write = data.down[p, 0] + data.down[p, 1] * (data.given[v] + sent)
            back = data.up[p, 0] + data.up[p, 1] * (data.wanted[v] + most)
            longest = [down(s) + len(data.pred) + 2 for s in (write, data.time[v, p], back)]
            part = _Part(model, there, self.last, down(max(data.release[v], data.free[p])), longest)
            lengths = [down(_share(data, w, p) * data.time[v, p]) for w in mine]
            model.add(part.length[1] == cp_model.LinearExpr.weighted_sum(list(mine.values()), lengths))  # (3)
            model.add(part.length[1] >= 1).only_enforce_if(part.has[1])
            model.add(self.makespan >= part.ends[2]).only_enforce_if(there)  # (6)
            if math.isfinite(deadline):
                rounded = self.units.error is None
                latest = math.floor(deadline / self.units.seconds + (1.0 if rounded else 1e-6))
                model.add(part.ends[2] <= latest + self.late).only_enforce_if(there)
            model.add(self.on_host[v] >= part.ends[2]).only_enforce_if(there)
            self.parts[v, p] = part

    def _copies(self, v: int) -> None:
        """(2): lengths of the write and the read of each part, at least what the ways ask for."""
        data, down = self.data, self.units.down
        into = [
            (int(data.pred[j]), float(data.pred_data[j])) for j in range(data.pred_start[v], data.pred_start[v + 1])
        ]
        sent = [
            (int(data.succ[j]), float(data.succ_data[j])) for j in range(data.succ_start[v], data.succ_start[v + 1])
        ]
        for p, whole in self.whole[v].items():
            if data.host[p]:
                continue
            part, (late, each), (back, slow) = self.parts[v, p], data.down[p], data.up[p]
            here = {u: self.whole[u].get(p, 0) for u, _ in (*into, *sent)}
            given, wanted = float(data.given[v]), float(data.wanted[v])
            amount = down(late + each * given) + sum(down(each * b) * (1 - here[u]) for u, b in into)
            if given > 0 and down(late + each * given) > 0:
                self._at_least(part, 0, amount, [whole])
            for u, b in into:
                if down(late + each * given) + down(each * b) > 0:
                    self._at_least(part, 0, amount, [whole, *_not(here[u])])
            if wanted > 0:
                self._at_least(part, 2, down(back + slow * wanted), [whole])
            for u, b in sent:
                self._at_least(part, 2, down(back + slow * (wanted + b)), [whole, *_not(here[u])])
            for w, x in self.ways[v].items():
                if data.two[w] < 0 or p not in (data.one[w], data.two[w]):
                    continue
                share = _share(data, w, p)
                if into or given > 0:
                    self._at_least(part, 0, down(late + share * each * (given + math.fsum(b for _, b in into))), [x])
                if sent or wanted > 0:
                    most = max((b for _, b in sent), default=0.0)
                    self._at_least(part, 2, down(back + share * slow * (wanted + most)), [x])

    def _at_least(self, part: _Part, stage: int, amount: Any, when: list[Any]) -> None:
        if isinstance(amount, int) and amount <= 0:
            return
        self.model.add(part.length[stage] >= amount).only_enforce_if(when)
        self.model.add_bool_or([part.has[stage], *(x.negated() for x in when)])

    def _waits(self, v: int) -> None:
        """(4): on the same device for the computation, else for all of it to be on the host."""
        data, model = self.data, self.model
        for j in range(data.pred_start[v], data.pred_start[v + 1]):
            u = int(data.pred[j])
            for p, whole in self.whole[v].items():
                part, there = self.parts[v, p], self.parts[v, p].there
                other = self.whole[u].get(p)
                if other is not None:
                    model.add(part.start[1] >= self.parts[u, p].ends[1]).only_enforce_if([whole, other])
                model.add(part.start[0] >= self.on_host[u]).only_enforce_if(
                    [there, *_not(0 if other is None else other)]
                )
                if len(self.ways[v]) > len(self.whole[v]):
                    model.add(part.start[0] >= self.on_host[u]).only_enforce_if([there, whole.negated()])

    def _resources(self, m: int) -> None:
        """(5): engines, slots, queues; and the sums that follow."""
        data, model = self.data, self.model
        engines: dict[int, list[Any]] = {}
        loads: dict[int, list[Any]] = {}
        for p in range(m):
            mine = [part for (_, q), part in sorted(self.parts.items()) if q == p]
            for stage, e in ((0, int(data.engine[p, 0])), (2, int(data.engine[p, 1]))):
                spans = [_span(model, part, stage) for part in mine]
                engines.setdefault(e, []).extend(spans if not data.host[p] else [])
                loads.setdefault(e, []).extend([part.length[stage] for part in mine])
            work = [_span(model, part, 1) for part in mine]
            if data.slots[p] == 1:
                model.add_no_overlap(work)
            else:
                model.add_cumulative(work, [1] * len(work), int(data.slots[p]))
            model.add(int(data.slots[p]) * self.makespan >= sum(part.length[1] for part in mine))
            if data.queues[p] < 2 * len(data.given):
                holds = []
                for part in mine:
                    size = model.new_int_var(0, self.last, "")
                    holds.append(model.new_optional_interval_var(part.start[0], size, part.ends[2], part.there, ""))
                model.add_cumulative(holds, [1] * len(holds), int(data.queues[p]))
        for e, spans in engines.items():
            model.add_no_overlap(spans)
            model.add(self.makespan >= sum(loads[e]))


def _span(model: Any, part: _Part, stage: int) -> Any:
    """Interval of a stage that takes time."""
    return model.new_optional_interval_var(part.start[stage], part.length[stage], part.ends[stage], part.has[stage], "")


def _share(data: Kernels, w: int, p: int) -> float:
    """Share of a kernel on a device under a way."""
    return float(data.share[w] if data.one[w] == p else 1.0 - data.share[w])


def _not(literal: Any) -> list[Any]:
    """The condition that a literal is false; none where it always is."""
    return [] if isinstance(literal, int) else [literal.negated()]


def _units(data: Kernels) -> tuple[Units, float]:
    """Units of times, copies and shares of them; and the horizon."""
    span, sent, most = horizon(data), *ends_of(data)
    shares = np.unique(np.concatenate([data.share, 1.0 - data.share]))
    moved = np.unique(np.concatenate([data.given, data.wanted, data.pred_data, data.given + sent, data.wanted + most]))
    facts = [np.multiply.outer(shares, data.time[np.isfinite(data.time)]), data.release, data.free]
    for table in (data.down, data.up):
        facts += [table[:, 0], np.multiply.outer(shares, np.multiply.outer(moved, table[:, 1]))]
    return units_of(facts, span), span
