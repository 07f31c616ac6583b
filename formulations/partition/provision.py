"""A sequence of layers on pools of rented units: which pool for each stage and how many units, at least cost (HeterPS).

A pool is a device with ``slots``: so many equal units at ``price`` an hour each. Consecutive layers on one pool form a stage,
whose units share the samples; by Amdahl's law only a share of the work is divided. Computation and data transfer of a stage
overlap. A job that passes all samples through the pipeline costs its time times the price of all units.

Sets and data
    l in 1..n, t in T       layers in the order of the edges, pools
    O_lt, D_lt              seconds of computation (``time``) and of data transfer (``data_time``) for a batch of B samples
    a_lt, b_lt              shares of O and D that units divide (``compute_share``, ``data_share``)
    c_t, K_t                price an hour of a unit (``price``), units (``slots``)
    S, F                    samples of the whole job (all epochs), least samples a second (question ``throughput``)
    E_S                     S = (i, j, t, k), layers i+1..j on k units of t:  seconds a sample
                            max( sum O_lt (1 - a_lt + a_lt / k),  sum D_lt (1 - b_lt + b_lt / k) ) / B                 (0)

``batch``, ``samples``, ``data_time``, ``compute_share`` and ``data_share`` stand in ``tables.provision``, the last three a row
for each task and a number for each device.

Variables
    z_S in {0, 1}     stage S is in the plan
    P                 period: seconds a sample of the slowest stage
    q_S >= 0          P when S is in the plan

Minimise  (S / 3600) sum_S c_t k q_S  subject to

    sum z_S over stages from boundary 0 = 1                                                                (1)  start
    sum z_S that end at boundary j = sum z_S that begin there             for 0 < j < n                    (2)  on
    sum z_S of pool t that begin or end at boundary j <= 1                for each pool, 0 < j < n         (3)  merged
    sum_S k z_S <= K_t                                                    for each pool                    (4)  units
    E_S z_S <= P <= 1 / F                                                                                  (5)  floor
    q_S >= P - U (1 - z_S),  U no less than P                                                              (6)  paid

``shared`` = false is the published rule, in which every stage may take up to K_t units by itself; by default stages on one pool
share what there is, since a plan that takes more units than exist cannot run.

``scan``: exact; for each candidate period the fewest units of each stage make a shortest path, and ranges of candidates are
dropped by (least period) times (least rate), see :mod:`hetopt.algorithms.provision_program`. ``milp``: (1)-(6). ``count``: every
sample costs at least sum_l min_t c_t O_lt / B, and likewise for D, whatever the units; replayed without a solver.

Source: J. Liu et al., HeterPS: distributed deep learning with reinforcement learning based scheduling in heterogeneous
environments, Future Generation Computer Systems 148 (2023), arXiv 2111.10635.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from formulations.partition._pools import every_pool_plan, layers_of, plan_of, slots_of, stages_of, unfit_pools
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
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Edge, Job, Task
from hetopt.solution import Solution
from hetopt.verify.pools import HOUR, TOLERANCE, check_provision, provision_facts

if TYPE_CHECKING:
    from hetopt.algorithms.provision_program import PoolTable, Provision

__all__ = ["MILP", "PROBLEM", "Count", "Provisioning", "Scan"]

MOST_CELLS = 5_000_000  # of the table of stages
MOST_COLUMNS = 20_000


class Scan(Method):
    """Exact."""

    name = "scan"
    title = "shortest paths over candidate periods, ranges of them dropped by bounds"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """A table of stages that fits the memory."""
        cells = instance.n_devices * int(slots_of(instance).max()) * (instance.n_tasks + 1) ** 2
        return f"its table would have {cells} entries, more than {MOST_CELLS}" if cells > MOST_CELLS else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Scan, prove."""
        from hetopt.algorithms.provision_program import cheapest_provision, quickest

        table, unit = _table(instance, question["shared"]), provision_facts(instance).samples / HOUR
        limit = _limit(question)

        def report(found: Provision, _: float) -> None:
            control.report_plan(plan_of(instance, found.stages))

        bound, best = cheapest_provision(
            table,
            math.inf if limit is None else limit,
            lambda: control.cancelled.is_set() or control.remaining <= 0,
            report,
        )
        statistics = {"candidates": len(table.candidates)}
        control.report_bound(bound * unit * (1 - 1e-15), "algorithm")
        if control.cancelled.is_set() or control.remaining <= 0:
            return Outcome("limit", "time", statistics=statistics)
        if best is None:
            return Outcome("infeasible", statistics=statistics, infeasible=(_too_slow(question, quickest(table)),))
        return Outcome(statistics=statistics)


class MILP(LinearFormulation):
    """(1)-(6)."""

    name = "milp"
    title = "MILP (1)-(6)"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough stages."""
        size = self.size(instance, question)
        return f"it would have about {size} columns, more than {MOST_COLUMNS}" if size > MOST_COLUMNS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Columns z and q."""
        return int(layers_of(instance).able.sum(axis=(1, 2)) @ slots_of(instance)) * 2

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``stage[pool:begin-end:units]``, ``paid`` (in units of U) and ``period``."""
        asked = _asked(instance) if question is None else question
        table, n = _table(instance, asked["shared"]), instance.n_tasks
        pool, units, begin, end = np.nonzero(np.isfinite(table.seconds))
        seconds = table.seconds[pool, units, begin, end]
        units = units + 1
        names = instance.device_names
        labels = [f"{names[t]}:{i}-{j}:{k}" for t, i, j, k in zip(pool, begin, end, units, strict=True)]
        limit = _limit(asked)
        most = float(seconds.max(initial=0.0))
        most = most if limit is None else min(most, limit)
        scale = most or 1.0  # periods in units of the largest
        model = LinearModel("provision")
        z = model.binary("stage", len(pool), upper=(seconds <= most).astype(np.float64), labels=(labels,))
        q = model.continuous("paid", len(pool), upper=1, labels=(labels,))
        p = model.continuous("period", upper=1)
        first, inner = np.flatnonzero(begin == 0), n - 1
        model.rows("start", 1, [(np.zeros(len(first), np.int64), z[first], 1.0)], lower=1, upper=1)  # (1)
        starts, stops = np.flatnonzero(begin > 0), np.flatnonzero(end < n)
        model.rows(
            "on", inner, [(end[stops] - 1, z[stops], 1.0), (begin[starts] - 1, z[starts], -1.0)], lower=0, upper=0
        )  # (2)
        t = instance.n_devices
        sides = [
            ((values[rows] - 1) * t + pool[rows], z[rows], 1.0) for values, rows in ((end, stops), (begin, starts))
        ]
        model.rows("merged", inner * t, sides, upper=1)  # (3)
        if asked["shared"]:
            model.rows(
                "units", t, [(pool, z, units.astype(np.float64))], upper=slots_of(instance), labels=(names,)
            )  # (4)
        every = np.arange(len(pool))
        usable = np.minimum(seconds / scale, 1.0)
        model.rows("slowest", len(pool), [(every, z, usable), (every, p, -1.0)], upper=0)  # (5)
        model.rows("paid", len(pool), [(every, q, 1.0), (every, p, -1.0), (every, z, -1.0)], lower=-1)  # (6)
        model.minimize(q, table.price[pool] * units * scale * (provision_facts(instance).samples / HOUR))
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Stages chosen."""
        return plan_of(instance, chosen_stages(instance, model, x))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Stages of a plan; what is paid is left open."""
        return stage_point(instance, model, solution)


class Count(Method):
    """A bound that a count shows."""

    name = "count"
    title = "every layer on its cheapest pool, one unit, nothing lost; replayed without a solver"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass."""
        question.prove(instance, control, {"kind": "count"})
        return Outcome()


class Provisioning(Problem):
    """Least cost under a floor of throughput."""

    name = "partition.provision"
    objectives = ("provision",)
    title = "a sequence of layers on pools of rented units, all samples at least cost and no slower than asked"
    unit = "currency"
    options = (
        Option("throughput", float, 0.0, "least samples a second, 0 for any"),
        Option(
            "shared", bool, True, "whether stages on one pool share its units (slots), or each may take all of them"
        ),
    )
    uses = frozenset({"time", "edges", "slots", "tables.provision"})
    methods = (Scan(), MILP(), Count())

    def fits(self, instance: Instance) -> str | None:
        """A sequence, a table, prices."""
        if "provision" not in instance.tables:
            return "the file has no tables.provision with batch, samples, data_time, compute_share and data_share"
        unpriced = [device.name for device in instance.devices if device.price is None]
        return f"device {unpriced[0]!r} has no price" if unpriced else unfit_pools(instance)

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Cost of all samples; every broken constraint."""
        _limit(question)
        report = check_provision(
            instance, solution.placement, solution.details, floor=question["throughput"], shared=question["shared"]
        )
        details = {
            "stage_seconds": list(report.seconds),
            "throughput": 1 / report.period if report.period else None,
            "price_per_hour": report.rate,
        }
        return Evaluation(report.cost, report.violations, details)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """A bound at once, then the first exact method that fits."""
        exact = [m for m in self.methods if m.kind == "exact" and m.fits(instance, question) is None]
        return [Step("count", "a bound at once"), *(Step(m.name, f"exact ({m.title})") for m in exact[:1])]

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays the counts, and linear duals."""
        if certificate.get("kind") != "count":
            return super().replay(instance, question, certificate)
        facts = provision_facts(instance)
        prices = [Fraction(device.price or 0) for device in instance.devices]
        best = Fraction(0)
        for table in (instance.time, facts.data_time):
            total = Fraction(0)
            for k, row in enumerate(table.tolist()):
                total += min(
                    c * Fraction(s) for c, s, able in zip(prices, row, instance.eligible[k], strict=True) if able
                )
            best = max(best, total)
        value = best / Fraction(facts.batch) * Fraction(facts.samples) / HOUR
        near = float(value)
        return near if Fraction(near) <= value else math.nextafter(near, -math.inf)

    def sample(self, seed: int) -> Instance:
        """Up to four layers on up to three pools of up to three units; floors that bind, units that are shared or not."""
        rng = np.random.default_rng([seed, 17])
        n, t = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        devices = [
            Device(name=f"p{k}", slots=int(rng.integers(1, 4 if n < 4 else 3)), price=int(rng.integers(1, 9)))
            for k in range(t)
        ]
        tasks = []
        for k in range(n):
            times: list[float | int | None] = [int(rng.integers(1, 20)) for _ in range(t)]
            if t > 1 and rng.random() < 0.2:
                times[int(rng.integers(t))] = None
            tasks.append(Task(name=f"l{k}", time=times, cut=bool(rng.random() < 0.85)))
        shares = (rng.integers(0, 5, (2, n, t)) / 4).tolist()
        table = {
            "batch": 2,
            "samples": 3600,
            "data_time": rng.integers(0, 15, (n, t)).tolist(),
            "compute_share": shares[0],
            "data_share": shares[1],
        }
        edges = [Edge(source=f"l{k}", target=f"l{k + 1}") for k in range(n - 1)]
        question: dict[str, Any] = {"objective": self.name}
        if seed % 3:
            question["throughput"] = round(1 / float(rng.integers(3, 25)), 4)
        if seed % 4 == 3:
            question["shared"] = False
        return Instance.build(
            devices, [Job(name="model", tasks=tasks, edges=edges)], tables={"provision": table}, question=question
        )

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All cuts, pools and units."""
        return every_pool_plan(instance)


def chosen_stages(instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> list[tuple[int, int, int, int]]:
    """Stages of a point, read from the labels ``pool:begin-end:units``, in the order of the layers."""
    labels = model.column_blocks[0].labels
    assert labels is not None
    stages = []
    for k in np.flatnonzero(x[model.columns("stage")] > 0.5).tolist():
        name, reach, units = str(labels[0][k]).rsplit(":", 2)
        begin, _, end = reach.partition("-")
        stages.append((instance.device_index[name], int(begin), int(end), int(units)))
    return sorted(stages, key=lambda stage: stage[1])


def stage_point(instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
    """Point whose columns ``stage`` state a plan, the rest ``nan``; None when a stage is none of the model's."""
    stages, labels = stages_of(instance, solution), model.column_blocks[0].labels
    if stages is None or labels is None:
        return None
    known = {str(label): k for k, label in enumerate(labels[0])}
    names = [f"{instance.device_names[t]}:{i}-{j}:{k}" for t, i, j, k in stages]
    if not set(names) <= set(known):
        return None
    point = np.full(model.n_columns, np.nan)
    columns = model.columns("stage")
    point[columns] = 0.0
    point[columns[[known[name] for name in names]]] = 1.0
    return point


def _asked(instance: Instance) -> Mapping[str, Any]:
    """Options as the instance's own question has them, defaults filled in."""
    return {option.name: instance.question.get(option.name, option.default) for option in Provisioning.options}


def _limit(question: Mapping[str, Any]) -> float | None:
    """Most seconds a sample, with the tolerance that verify allows; None without a floor."""
    floor = question["throughput"]
    if not 0 <= floor < 2.0**53:
        raise InputError(f"$.question.throughput is {floor!r}, expected samples a second, a number >= 0")
    return (1 + float(TOLERANCE)) / floor if floor else None


def _table(instance: Instance, shared: bool) -> PoolTable:
    """(0) for every stage."""
    from hetopt.algorithms.provision_program import PoolTable

    facts, layers, slots = provision_facts(instance), layers_of(instance), slots_of(instance)
    compute_time = np.where(instance.eligible, instance.time, 0.0)
    sums = [
        layers.sums(values)
        for time, share in ((compute_time, facts.compute_share), (facts.data_time, facts.data_share))
        for values in (time * (1 - share), time * share)
    ]
    k = np.arange(1, int(slots.max()) + 1)[:, None, None]
    compute, data = (whole[:, None] + part[:, None] / k for whole, part in ((sums[0], sums[1]), (sums[2], sums[3])))
    seconds = np.maximum(compute, data) / facts.batch
    usable = layers.able[:, None] & (k <= slots[:, None, None, None])
    price = np.array([device.price or 0 for device in instance.devices], np.float64)
    return PoolTable(np.where(usable, seconds, np.inf), price, slots, shared)


def _too_slow(question: Question, period: float | None) -> str:
    if period is None:
        return "no cut of the layers has pools that can run them with the units there are"
    floor = question["throughput"]
    return (
        f"throughput: {floor:.9g} samples a second are asked for, and the quickest plan gives {1 / period:.9g}: "
        f"{floor - 1 / period:.9g} short"
    )


PROBLEM = Provisioning()
