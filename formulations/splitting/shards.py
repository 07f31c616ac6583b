r"""Shards of a data set on devices, each device's seconds a curve, the slowest device as fast as possible.

Asked in each round of federated or data-parallel training: how many shards does each phone, edge box or GPU train on, so that the
round ends early? Times grow in jumps (caches, throttling), so they are measured tables and not lines.

Sets and data
    i in D       devices;  N shards (``steps`` of the one job)
    c_i(n)       seconds of n shards on device i, not falling in n: ``tables.shards`` = {device, type or "*": {"seconds":
                 [c_i(0), c_i(1), ...]}}, a list's end being the most the device can take; without a list n times its ``time``
    l_i, u_i     fewest and most shards (``least``, ``most`` in the same entry)
    e_i, B_i     energy of a shard, and what the battery has (``energy``, ``battery``)

Variables
    x_in in {0, 1}  device i takes n shards, l_i <= n <= u_i, e_i n <= B_i;      T  time of the slowest device

Minimise T subject to

    sum_n x_in = 1                  for each device             (1)  choose
    sum_in n x_in = N                                           (2)  all
    sum_n c_i(n) x_in <= T          for each device             (3)  slowest

Methods ``olar`` (each next shard where it ends first) and ``threshold`` (bisection over all seconds) are exact,
:mod:`hetopt.algorithms.shards`. The bound of both is the value itself, replayed: below it fewer than N shards fit.

Sources: C. Wang, Y. Yang, P. Zhou, Towards efficient scheduling of federated mobile devices under computational and statistical
heterogeneity, IEEE TPDS 2021 (the question, ``threshold``); L. Lima Pilla, Optimal task assignment to heterogeneous federated
learning devices, IPDPS 2021 (``olar``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.splitting._curves import cells, curves, out_of_reach, round_of
from hetopt.control import Control
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
    Method,
    Outcome,
    Problem,
    Question,
    Relaxed,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.split import check_shards, shards_bound

__all__ = ["MILP", "OLAR", "PROBLEM", "Equal", "Shards", "Threshold"]


def given_out(instance: Instance, shards: NDArray[np.int64]) -> Solution:
    """Plan of (d,) shards."""
    return Solution(details={"shards": dict(zip(instance.device_names, shards.tolist(), strict=True))})


class MILP(LinearFormulation):
    """(1)-(3)."""

    name = "milp"
    title = "MILP (1)-(3)"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Three entries a column."""
        return 3 * len(cells(curves(instance))[0])

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``take[device=n]`` and ``slowest``."""
        data = curves(instance)
        i, n = cells(data)
        names = instance.device_names
        seconds = data.seconds[i, n]
        unit = time_unit(float(seconds.max(initial=0.0)))
        model = LinearModel("shards")
        x = model.binary(
            "take", len(i), labels=([f"{names[a]}={b}" for a, b in zip(i.tolist(), n.tolist(), strict=True)],)
        )
        top = model.continuous("slowest", upper=float(seconds.max(initial=0.0)) / unit)
        d = len(names)
        model.rows("choose", d, [(i, x, 1.0)], lower=1, upper=1, labels=(names,))  # (1)
        model.rows("all", 1, [(0, x, n)], lower=data.total, upper=data.total)  # (2)
        terms: list[tuple[Any, Any, Any]] = [(i, x, seconds / unit), (np.arange(d), top, -1.0)]
        model.rows("slowest_of", d, terms, upper=0, labels=(names,))  # (3)
        model.minimize(top, unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The number chosen for each device."""
        return chosen(instance, x[model.columns("take")])

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Ones and zeros, and the slowest; None for a plan outside the limits."""
        shards = _numbers(instance, solution)
        if shards is None:
            return None
        data = curves(instance)
        i, n = cells(data)
        point = np.full(model.n_columns, np.nan)
        point[model.columns("take")] = n == shards[i]
        return point


def chosen(instance: Instance, x: NDArray[np.float64]) -> Solution:
    """Plan of the cells with x = 1."""
    i, n = cells(curves(instance))
    on = x > 0.5
    if not np.array_equal(i[on], np.arange(instance.n_devices)):
        raise ValueError("not one number of shards a device")
    return given_out(instance, n[on])


def _numbers(instance: Instance, solution: Solution) -> NDArray[np.int64] | None:
    given = solution.details.get("shards")
    if not isinstance(given, Mapping) or set(given) - set(instance.device_names):
        return None
    return np.array([given.get(name, 0) for name in instance.device_names], np.int64)


class OLAR(Method):
    """The greedy that is optimal."""

    name = "olar"
    title = "each next shard where it ends first (OLAR); exact, replayed"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Its plan is optimal, so its value is the bound."""
        from hetopt.algorithms.shards import olar

        data = curves(instance)
        shards = olar(data.seconds, data.least, data.most)
        _answer(instance, control, shards, float(data.seconds[np.arange(len(shards)), shards].max()))
        return Outcome()


class Threshold(Method):
    """Bisection over the seconds."""

    name = "threshold"
    title = "bisection over all seconds (Fed-LBAP), what is too much taken back; exact, replayed"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One bisection."""
        from hetopt.algorithms.shards import threshold

        data = curves(instance)
        _answer(instance, control, *threshold(data.seconds, data.least, data.most))
        return Outcome()


class Equal(Method):
    """As federated averaging has it."""

    name = "equal"
    title = "as equal numbers as the limits allow (federated averaging); no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Each next shard to the device that has the fewest: OLAR of equal devices."""
        from hetopt.algorithms.shards import olar

        data = curves(instance)
        alike = np.broadcast_to(np.arange(data.total + 1.0), data.seconds.shape)
        control.report_plan(given_out(instance, olar(alike, data.least, data.most)))
        return Outcome()


def _answer(instance: Instance, control: Control, shards: NDArray[np.int64], value: float) -> None:
    control.report_plan(given_out(instance, shards))
    control.report_bound(shards_bound(instance, value), "replayed", {"kind": "threshold", "seconds": value})


class Shards(Problem):
    """The question."""

    name = "splitting.shards"
    objectives = ("shards",)
    title = "shards on devices with measured times, limits and batteries, the slowest device as fast as possible"
    uses = frozenset({"time", "steps", "tables.shards"})
    methods = (OLAR(), Threshold(), MILP(), Relaxed(MILP(), "(1)-(3)"), Equal())

    def fits(self, instance: Instance) -> str | None:
        """One job with a number of steps."""
        return round_of(instance)[1]

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds of the slowest device, every limit checked."""
        curves(instance)
        report = check_shards(instance, solution.details)
        rows = zip(instance.device_names, report.shards, report.seconds, strict=True) if report.shards else ()
        devices = {name: {"shards": n, "load": seconds} for name, n, seconds in rows}
        return Evaluation(max(report.seconds, default=math.inf), report.violations, {"devices": devices})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """Limits and batteries that do not meet the number of shards."""
        return out_of_reach(instance, curves(instance))

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The threshold search is exact."""
        return (Step("threshold", "exact in moments, with its proof"),)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays thresholds and linear duals."""
        if certificate.get("kind") != "threshold":
            return super().replay(instance, question, certificate)
        return shards_bound(instance, float(certificate["seconds"]))

    def sample(self, seed: int) -> Instance:
        """Up to seven shards on up to three devices, with plateaus, limits, batteries, a device that only has a time."""
        return sample(seed, self.objectives[0])

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All ways to give out the shards."""
        total = curves(instance).total
        for shards in product(range(total + 1), repeat=instance.n_devices):
            if sum(shards) == total:
                yield given_out(instance, np.array(shards, np.int64))


def sample(seed: int, objective: str, classes: Sequence[str] = ()) -> Instance:
    """A tiny instance of shards."""
    rng = np.random.default_rng(seed)
    d, total = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    table: dict[str, dict[str, Any]] = {}
    for i in range(d):
        row: dict[str, Any] = {}
        if rng.random() < 0.8:
            length = int(rng.integers(max(1, total // 2), total + 3))
            jumps = rng.integers(0, 6, length + 1) * (1.0 if seed % 2 else 0.1)
            row["seconds"] = [0.0, *np.cumsum(jumps)[1:].tolist()]
        if rng.random() < 0.3:
            row["least"] = int(rng.integers(0, 2))
        if rng.random() < 0.3:
            row["most"] = int(rng.integers(1, total + 1))
        if rng.random() < 0.3:
            row |= {"energy": 0.5, "battery": float(rng.integers(1, total + 1))}
        if classes:
            row["classes"] = [name for name in classes if rng.random() < 0.5]
        table[f"d{i}"] = row
    times: list[float | None] = [float(t) for t in rng.integers(1, 5, d)]
    if rng.random() < 0.2 and d > 1:
        times[0] = None
    job = Job(name="round", steps=total, time=times)  # type: ignore[arg-type]
    return Instance.build(
        [Device(name=f"d{i}") for i in range(d)], [job], tables={"shards": table}, question={"objective": objective}
    )


PROBLEM = Shards()
