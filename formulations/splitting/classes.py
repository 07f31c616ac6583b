r"""Shards on devices that hold different classes: least total cost, and a penalty for each class that nobody trains on.

Asked where data are unevenly spread over devices: a quick device that has seen two classes is worth less than a slow one that has
seen the others. Opening a device costs the jump of its curve at the first shard.

Sets and data
    i in D       devices;  N shards;  c_i(n) seconds (or any cost), limits, batteries: :mod:`formulations.splitting.shards`
    k in K       classes: all names in ``classes`` of the entries of ``tables.shards``;  K_i those that device i holds
    beta         cost of a class that no device with shards holds (option ``penalty``)

Variables
    x_in in {0, 1}  device i takes n shards;      z_k in [0, 1]  class k is covered

Minimise sum_in c_i(n) x_in + beta sum_k (1 - z_k) subject to

    sum_n x_in = 1                                  for each device     (1)  choose
    sum_in n x_in = N                                                   (2)  all
    z_k <= sum_{i: k in K_i} sum_{n >= 1} x_in      for each class      (3)  cover

``cover`` is exact for few classes: a dynamic program over devices, shards given out and sets of classes. ``greedy`` gives
shards where they cost least on average. The LP's duals are prices of a shard and of the classes, replayed.

Source: C. Wang, Y. Yang, P. Zhou, Towards efficient scheduling of federated mobile devices under computational and statistical
heterogeneity, IEEE TPDS 2021, for the question (average cost, greedily); its denominator is not published, (1)-(3) are ours: a
fixed-charge transport with coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.splitting import shards as equal
from formulations.splitting._curves import Curves, cells, curves, out_of_reach, round_of
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
    Method,
    Option,
    Outcome,
    Problem,
    Question,
    Relaxed,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.split import check_shards

__all__ = ["MILP", "PROBLEM", "Classes", "Cover", "Greedy"]

MOST_STATES = 20_000_000
_ROUNDING = 2.0**-40


def _held(data: Curves) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """Names of all classes, and (d, K) which device holds which."""
    names = tuple(sorted(frozenset().union(*data.classes)))
    return names, np.array([[name in mine for name in names] for mine in data.classes], bool).reshape(
        len(data.classes), len(names)
    )


def _cost(data: Curves) -> NDArray[np.float64]:
    at = np.arange(data.total + 1)
    return np.where((at >= data.least[:, None]) & (at <= data.most[:, None]), data.seconds, np.inf)


class MILP(LinearFormulation):
    """(1)-(3)."""

    name = "milp"
    title = "MILP (1)-(3)"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Two entries a column, and those of the classes."""
        data = curves(instance)
        return (2 + max(map(len, data.classes), default=0)) * len(cells(data)[0])

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``take[device=n]`` and ``covered[class]``."""
        question = question if question is not None else PROBLEM.question(instance)
        data = curves(instance)
        i, n = cells(data)
        names, held = _held(data)
        devices = instance.device_names
        labels = [f"{devices[a]}={b}" for a, b in zip(i.tolist(), n.tolist(), strict=True)]
        model = LinearModel("classes")
        x = model.binary("take", len(i), labels=(labels,))
        z = model.continuous("covered", len(names), upper=1, labels=(names,))
        model.rows("choose", len(devices), [(i, x, 1.0)], lower=1, upper=1, labels=(devices,))  # (1)
        model.rows("all", 1, [(0, x, n)], lower=data.total, upper=data.total)  # (2)
        cell, k = np.nonzero(held[i] & (n >= 1)[:, None])
        terms = [(np.arange(len(names)), z, 1.0), (k, x[cell], -1.0)]
        model.rows("cover", len(names), terms, upper=0, labels=(names,))  # (3)
        costs = np.concatenate([data.seconds[i, n], np.full(len(names), -question["penalty"])])
        model.minimize(np.concatenate([x, z]), costs, offset=question["penalty"] * len(names))
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The number chosen for each device."""
        return equal.chosen(instance, x[model.columns("take")])

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Ones and zeros of the numbers."""
        given = solution.details.get("shards")
        if not isinstance(given, Mapping):
            return None
        i, n = cells(curves(instance))
        taken = np.array([given.get(name, 0) for name in instance.device_names])
        point = np.full(model.n_columns, np.nan)
        point[model.columns("take")] = n == taken[i]
        return point


class Cover(Method):
    """The dynamic program."""

    name = "cover"
    title = "dynamic program over devices, shards and sets of classes; exact"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough states."""
        states = self.size(instance, question)
        return f"{states:,} states are more than {MOST_STATES:,}" if states > MOST_STATES else None

    def size(self, instance: Instance, question: Question) -> int:
        """Devices times shards times sets of classes."""
        data = curves(instance)
        return int((instance.n_devices + 1) * (data.total + 1) * 2 ** len(_held(data)[0]))

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass."""
        from hetopt.algorithms.shards_cover import best_cover

        data = curves(instance)
        names, held = _held(data)
        bits = held @ (1 << np.arange(len(names), dtype=np.int64))
        found = best_cover(_cost(data), bits, len(names), question["penalty"], control.should_stop)
        if found is None:
            return Outcome("limit", "time")
        shards, value = found
        control.report_plan(equal.given_out(instance, shards))
        control.report_bound(value - _ROUNDING * abs(value), "algorithm")
        return Outcome()


class Greedy(Method):
    """Least average cost first."""

    name = "greedy"
    title = "shards where they cost least on average, new classes counted; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass; no plan when the limits leave none this way."""
        from hetopt.algorithms.shards_cover import greedy_cover

        data = curves(instance)
        names, held = _held(data)
        bits = held @ (1 << np.arange(len(names), dtype=np.int64))
        shards = greedy_cover(_cost(data), data.least, data.most, bits, len(names), question["penalty"])
        if shards is not None:
            control.report_plan(equal.given_out(instance, shards))
        return Outcome()


class Classes(Problem):
    """The question."""

    name = "splitting.classes"
    objectives = ("shards-classes",)
    title = "shards on devices that hold different classes, least total cost with a penalty for classes left out"
    unit = ""
    uses = frozenset({"time", "steps", "tables.shards"})
    options = (Option("penalty", float, 1.0, "cost of a class that no device with shards holds"),)
    methods = (Cover(), MILP(), Relaxed(MILP(), "(1)-(3)"), Greedy())

    def fits(self, instance: Instance) -> str | None:
        """One job with a number of steps."""
        return round_of(instance)[1]

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Cost of all devices, penalties added, every limit checked."""
        names, _ = _held(curves(instance))
        report = check_shards(instance, solution.details)
        missing = [name for name in names if name not in report.covered]
        value = math.fsum(report.seconds) + question["penalty"] * len(missing) if report.shards else math.inf
        rows = zip(instance.device_names, report.shards, report.seconds, strict=True) if report.shards else ()
        devices = {name: {"shards": n, "load": cost} for name, n, cost in rows}
        return Evaluation(value, report.violations, {"devices": devices, "left_out": missing})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """Limits and batteries that do not meet the number of shards."""
        if not 0 <= question["penalty"] < math.inf:
            raise InputError(f"$.question.penalty is {question['penalty']!r}, expected a number, 0 or more")
        return out_of_reach(instance, curves(instance))

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The greedy's plan, the LP's bound, then what is exact."""
        quick = self.method("cover").fits(instance, question) is None
        steps = [Step("greedy", "a plan at once", 0.1), Step("lp", "a bound with its proof", 0.2)]
        return [*steps, Step("cover", "exact for few classes") if quick else Step("milp", "exact")]

    def sample(self, seed: int) -> Instance:
        """As of shards, with up to three classes."""
        made = equal.sample(seed, self.objectives[0], "abc"[: 1 + seed % 3])  # type: ignore[arg-type]
        return made.with_question({**made.question, "penalty": float(seed % 5)})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All ways to give out the shards."""
        return equal.PROBLEM.every_plan(instance, question)


PROBLEM = Classes()
