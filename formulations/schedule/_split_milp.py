"""The MILP of operators split over processors; :mod:`formulations.schedule.split` states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from hetopt.control import Control
from hetopt.formulation import LinearFormulation, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.operators import check_operators, facts_of
from hetopt.verify.schedule import links_between

__all__ = ["MILP"]

MOST = 1_000_000
PATIENCE = 10.0  # seconds for the question about a missed deadline


class MILP(LinearFormulation):
    """(1)-(7)."""

    name = "milp"
    title = "MILP (1)-(7): units, launches and seconds in each scenario"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough entries."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} nonzeros, more than {MOST:,}" if size > MOST else None

    def size(self, instance: Instance, question: Question) -> int:
        """Entries of (4)."""
        d, scenarios = instance.n_devices, len(facts_of(instance).names)
        return scenarios * d * (4 * instance.n_tasks + 2 * d * len(instance.edges))

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``units``, ``some`` [operator,device], ``split[operator]``, ``seconds[operator,scenario]``, ``value``."""
        return self.program(instance, instance.question if question is None else question)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any MILP; where no plan keeps the deadline in every scenario, by how much it is missed least."""
        from hetopt import solvers

        outcome = super().run(instance, question, control, options)
        deadline = float(instance.columns.deadline.min())
        if outcome.reason != "infeasible" or not np.isfinite(deadline):
            return outcome
        model = self.program(instance, {**question.to_json(), "robust": "worst"}, kept=False)
        answer = solvers.get("highs").solve(model, solvers.Options(time_limit=PATIENCE))
        if answer.x is None:
            return outcome
        plan = self.decode(instance, model, answer.x)
        totals = check_operators(instance, plan.shares, int(question["grain"])).seconds.sum(axis=0)
        late, name = float(totals.max()) - deadline, facts_of(instance).names[int(totals.argmax())]
        least = "less is too little" if answer.reason == "optimal" else "whether less would do was not proved in time"
        told = (
            f"deadline: with {late:.9g} seconds more there is a plan for every scenario ({name!r} ends last); {least}"
        )
        return replace(outcome, infeasible=(told, *outcome.infeasible)) if late > 0 else outcome

    def program(self, instance: Instance, asked: Mapping[str, Any], kept: bool = True) -> LinearModel:
        """(1)-(6), and (7) where deadlines are ``kept``."""
        facts, g = facts_of(instance), int(asked.get("grain", 4))
        (n, d), scenarios = instance.time.shape, len(facts.names)
        able = instance.eligible
        labels = (instance.labels, instance.device_names)
        time = np.where(able, instance.time, 0.0)
        latency, slowness = links_between(instance)
        latency = np.where(np.isfinite(latency), latency, 0.0)
        most = np.zeros((n, d))  # M_vi of (4)
        np.add.at(most, instance.edges[:, 1], latency.sum(axis=0) + instance.edge_data[:, None] * slowness.max(axis=0))
        own = facts.slowdown.max(axis=0) * time + facts.launch + facts.merge + most
        late = float(np.where(able, own, 0.0).max(axis=1).sum())
        unit = time_unit(late)
        model = LinearModel("operator-split")
        units = model.integer("units", (n, d), upper=np.where(able, g, 0), labels=labels)  # (2)
        some = model.binary("some", (n, d), upper=able, labels=labels)
        split = model.binary("split", n, upper=~facts.whole, labels=labels[:1])  # (3)
        seconds = model.continuous("seconds", (n, scenarios), upper=late / unit, labels=(instance.labels, facts.names))
        value = model.continuous("value", upper=late / unit)
        row, v = np.arange(n * d), np.repeat(np.arange(n), d)
        model.rows("all", n, [(v, units.ravel(), 1.0)], lower=g, upper=g, labels=labels[:1])  # (1)
        model.rows(
            "where", (n, d), [(row, units.ravel(), 1.0), (row, some.ravel(), -float(g))], upper=0, labels=labels
        )  # (1)
        model.rows(
            "at_least", (n, d), [(row, units.ravel(), -1.0), (row, some.ravel(), 1.0)], upper=0, labels=labels
        )  # (1)
        apart = [(v, some.ravel(), 1.0), (np.arange(n), split, -float(d - 1))]
        model.rows("apart", n, apart, upper=1, labels=labels[:1])  # (3)
        self._seconds(model, instance, units, some, split, seconds, most, latency, slowness, unit, g)
        each = np.broadcast_to(np.arange(scenarios), (n, scenarios))
        if asked.get("robust", "worst") == "worst":
            terms = [(np.arange(scenarios), np.broadcast_to(value, scenarios), 1.0), (each, seconds, -1.0)]
            model.rows("worst", scenarios, terms, lower=0, labels=(facts.names,))  # (5)
        else:
            chance = np.broadcast_to(facts.probability, (n, scenarios))
            model.rows("expected", 1, [(0, value, 1.0), (0, seconds.ravel(), -chance.ravel())], lower=0)  # (6)
        deadline = float(instance.columns.deadline.min())
        if np.isfinite(deadline) and kept:
            model.rows(
                "deadline", scenarios, [(each, seconds, 1.0)], upper=deadline / unit, labels=(facts.names,)
            )  # (7)
        model.minimize(value, unit)
        return model

    @staticmethod
    def _seconds(
        model: LinearModel, instance: Instance, units: Any, some: Any, split: Any, seconds: Any, most: Any, latency: Any,
        slowness: Any, unit: float, g: int,
    ) -> None:  # fmt: skip
        """(4)."""
        facts = facts_of(instance)
        scenarios, d = facts.slowdown.shape
        v, i = np.nonzero(instance.eligible)
        k = np.arange(len(v))
        rows, many = [], len(v)
        for w in range(scenarios):
            row = w * many + k
            fixed = (facts.launch[i] + facts.merge[i] + most[v, i]) / unit
            rows += [
                (row, seconds[v, w], 1.0),
                (row, some[v, i], -fixed),
                (row, split[v], -facts.merge[i] / unit),
                (row, units[v, i], -facts.slowdown[w, i] * instance.time[v, i] / unit / g),
            ]
        place = np.full(instance.eligible.shape, -1, np.int64)
        place[v, i] = k
        if len(instance.edges):
            source, target = instance.edges.T
            e, p, q = (index.ravel() for index in np.indices((len(source), d, d)))
            keep = (p != q) & (place[target[e], q] >= 0) & (place[source[e], p] >= 0)
            e, p, q = e[keep], p[keep], q[keep]
            sent = instance.edge_data[e] * slowness[p, q] / unit / g
            for w in range(scenarios):
                row = w * many + place[target[e], q]
                rows += [(row, some[source[e], p], -latency[p, q] / unit), (row, units[source[e], p], -sent)]
        low = -np.tile((facts.merge[i] + most[v, i]) / unit, scenarios)
        model.rows("takes", many * scenarios, rows, lower=low)  # (4)

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Whole units over their sum."""
        units = np.maximum(np.round(x[model.columns("units")]), 0.0)
        total = units.sum(axis=1, keepdims=True)
        if (total <= 0).any():
            raise ValueError("an operator has no units")
        return Solution(shares=units / total)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Units, launches and splits of a plan, and its seconds."""
        if solution.shares is None:
            return None
        upper = model.upper[model.columns("units")]
        grain = round(float(upper.max()))
        report = check_operators(instance, solution.shares, grain)
        if not np.isfinite(report.seconds).all():
            return None
        point = np.full(model.n_columns, np.nan)
        units = np.round(solution.shares * grain)
        point[model.columns("units")] = units
        point[model.columns("some")] = units > 0
        point[model.columns("split")] = (units > 0).sum(axis=1) > 1
        return point
