"""A sequence of kernels on pools of equal units: throughput against energy, any one trade and the whole front (DyPe).

A pool is a device with ``slots``: so many equal units. A stage is a run of layers on some units of one pool, which work on each
item together; stages follow each other in a pipeline. ``pareto-period`` asks for the least seconds between two items with at
most ``energy`` joules an item, ``pareto-energy`` for the least energy with at most ``period`` seconds: each has one plan with one
bound, and by their limits they reach every point of the front. The front itself, within the limits asked for, is
:func:`front` from Python and ``run.model.labels.front`` in a result: pairs of seconds and joules.

Sets and data
    l in 1..n, t in T     layers in the order of the edges, pools
    p_lt, m_l, M_t        seconds of a layer on one unit, its bytes on each unit, usable bytes of a unit
    K_t, s_t(k)           units (``slots``), by how much k of them are faster than one (``tables.speedup[pool][k - 1]``, else k)
    w_t, v_t              watts of a unit at work and idle (``power``, ``idle_power``)
    Q_jut                 seconds to receive what passes boundary j from pool u to pool t: latency + data / bandwidth of their
                          link; without a link nothing can be passed on, and nothing needs to be where there are no data
    S = (u, i, j, t, k)   stage: layers i+1..j on k units of t behind a stage on u (none for i = 0); F_S = sum p_lt / s_t(k)

Stages are those with a cut allowed at both ends, all layers able to run on t, sum m_l <= M_t, and k <= K_t.                (0)

Variables
    z_S in {0, 1}     stage S is in the plan
    P                 period, seconds between two items
    q_S >= 0          P when S is in the plan

Constraints
    sum z_S over stages with i = 0 = 1                                                                     (1)  start
    sum z_S that end at j on t = sum z_S that begin at j behind t         for each pool, 0 < j < n         (2)  on
    sum_S k z_S <= K_t                                                    for each pool                    (3)  units
    (F_S + Q_iut) z_S <= P                                                                                 (4)  slowest
    q_S >= P - U (1 - z_S),  U no less than P                                                              (5)  idle

Minimise    P  subject to  A <= energy,        or     A  subject to  P <= period,
    where   A = sum_S k ((w_t - v_t) F_S z_S + v_t q_S)                                                    (6)  energy

A unit draws w_t while it works on an item and v_t for the rest of the period, receiving included; units that no stage takes draw
nothing here.

``labels``: exact, the whole front by undominated (period, energy) pairs of each state (:mod:`hetopt.algorithms.pareto_labels`).
``milp``: (1)-(6), one scalarisation at a time. ``count``: the slowest layer at its fastest, or the least energy of every layer at
work; replayed without a solver.

Source: Z. Bai, D. Wu, P. Dangi, D. Wijerathne, V. P. K. Miriyala, T. Mitra, DyPe: data-aware dynamic execution of irregular
workloads on heterogeneous systems, arXiv 2502.06304 (2025).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from formulations.partition._pareto_milp import MILP, limits_of, stage_table
from formulations.partition._pools import every_pool_plan, plan_of, unfit_pools
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.pools import ParetoReport, check_pareto, speedups

if TYPE_CHECKING:
    from hetopt.algorithms.pareto_labels import ParetoPoint

__all__ = ["MILP", "PROBLEMS", "Count", "Energy", "FrontPoint", "Labels", "Period", "front"]

MOST_STEPS = 30_000_000
MARGIN = 1e-12  # what sums in floating point may be off


@dataclass(frozen=True, eq=False)
class FrontPoint:
    """One trade: seconds between two items, joules an item, a plan that has them."""

    period: float
    energy: float
    solution: Solution


def front(instance: Instance, *, period: float | None = None, energy: float | None = None) -> list[FrontPoint]:
    """The Pareto front of seconds between items against joules an item, by seconds; within limits when they are given.

    Every plan is evaluated and checked from the instance; the front is exact up to rounding (1e-12).

    Raises
    ------
    ValueError
        The question cannot be asked of the instance, or its front has too many states.
    """
    problem = Period()
    question = problem.question(instance, {"objective": "pareto-period", "period": period, "energy": energy})
    why_not = problem.fits(instance) or Labels().fits(instance, question)
    if why_not:
        raise ValueError(f"the front cannot be listed: {why_not}")
    out = []
    for point in _points(instance, question, lambda: False) or []:
        solution = plan_of(instance, point.stages)
        report = _report(instance, question, solution)
        if not report.violations:
            out.append(FrontPoint(report.period, report.energy, solution))
    return out


class Labels(Method):
    """The whole front."""

    name = "labels"
    title = "undominated (period, energy) pairs of each state; lists the whole front"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough states."""
        steps = stage_table(instance).steps
        return f"its program has up to {steps:.3g} steps, more than {MOST_STEPS:.3g}" if steps > MOST_STEPS else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """List the front; the plan asked for is at one of its ends."""
        problem = question.problem
        assert isinstance(problem, _Trade)

        def stop() -> bool:
            return control.cancelled.is_set() or control.remaining <= 0

        for point in _points(instance, question, stop, most=1) or []:  # a few plans at once
            control.report_plan(plan_of(instance, point.stages))
        points = _points(instance, question, stop)
        if points is None:
            return Outcome("limit", "time")
        if not points:
            free = _points(instance, question, stop, limited=False)
            if free is None:
                return Outcome("limit", "time")
            return Outcome("infeasible", infeasible=(_why_none(question, free),))
        chosen = points[problem.end]
        control.report_plan(plan_of(instance, chosen.stages))
        control.report_bound(problem.of(chosen) * (1 - MARGIN), "algorithm")
        return Outcome(statistics={"front": [[point.period, point.energy] for point in points]})


class Count(Method):
    """A bound that a count shows."""

    name = "count"
    title = "the slowest layer at its fastest, or every layer at its least energy; replayed without a solver"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass."""
        question.prove(instance, control, {"kind": "count"})
        return Outcome()


class _Trade(Problem):
    """What the two questions share."""

    options = (
        Option("period", float, None, "most seconds between two items, none for any"),
        Option("energy", float, None, "most joules an item, none for any"),
    )
    uses = frozenset({"time", "memory", "edges", "slots", "tables.speedup"})
    end: ClassVar[int]

    @abstractmethod
    def of(self, point: ParetoPoint | ParetoReport) -> float:
        """The value of a point or plan."""

    def fits(self, instance: Instance) -> str | None:
        """A sequence; power and idle power of every pool."""
        for device in instance.devices:
            for key in ("power", "idle_power"):
                if getattr(device, key) is None:
                    return f"device {device.name!r} has no {key}"
            if (device.idle_power or 0) > (device.power or 0):
                return f"device {device.name!r} draws more when idle than at work"
        return unfit_pools(instance)

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds or joules; every broken constraint."""
        report = _report(instance, question, solution)
        details = {"stage_seconds": list(report.seconds), "period": report.period, "energy": report.energy}
        return Evaluation(self.of(report), report.violations, details)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """A bound at once, then the first exact method that fits."""
        exact = [m for m in self.methods if m.kind == "exact" and m.fits(instance, question) is None]
        return [Step("count", "a bound at once"), *(Step(m.name, f"exact ({m.title})") for m in exact[:1])]

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays the counts, and linear duals."""
        if certificate.get("kind") != "count":
            return super().replay(instance, question, certificate)
        faster, values = speedups(instance), []
        for k, row in enumerate(instance.time.tolist()):
            ways = [
                (Fraction(row[t]) / Fraction(s), Fraction(device.power or 0) * units)
                for t, device in enumerate(instance.devices)
                for units, s in enumerate(faster[t], 1)
                if instance.eligible[k, t]
            ]
            values.append((min(f for f, _ in ways), min(f * w for f, w in ways)))
        slowest, joules = max(f for f, _ in values), sum((e for _, e in values), Fraction(0))
        exact = slowest if self.end == 0 else joules
        near = float(exact)
        return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)

    def sample(self, seed: int) -> Instance:
        """Up to four layers on up to three pools; limits that bind, links that are missing, memory, cuts."""
        rng = np.random.default_rng([seed, 23])
        n, t = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        devices = []
        for k in range(t):
            idle, slots = int(rng.integers(0, 4)), int(rng.integers(1, 4 if n < 4 else 3))
            memory = int(rng.integers(8, 24)) if rng.random() < 0.4 else None
            devices.append(
                Device(name=f"p{k}", slots=slots, power=idle + int(rng.integers(0, 9)), idle_power=idle, memory=memory)
            )
        tasks = []
        for k in range(n):
            times: list[float | int | None] = [int(rng.integers(0, 20)) for _ in range(t)]
            if t > 1 and rng.random() < 0.2:
                times[int(rng.integers(t))] = None
            tasks.append(
                Task(
                    name=f"l{k}", time=times, output=int(rng.integers(0, 6)), memory=int(rng.integers(0, 6)),
                    cut=bool(rng.random() < 0.85),
                )
            )  # fmt: skip
        links = [Link(source="*", target="*", bandwidth=2, latency=int(rng.integers(0, 2)))]
        if t > 1 and rng.random() < 0.4:
            links = [Link(source="p0", target="*", bandwidth=1, both=bool(rng.random() < 0.5))]
        question: dict[str, Any] = {"objective": self.name}
        if seed % 3 == 1:
            question["energy"] = float(rng.integers(40, 200))
        if seed % 3 == 2:
            question["period"] = float(rng.integers(10, 40))
        speedup = {"p0": [1, 1.5, 1.75][: devices[0].slots]}
        edges = [Edge(source=f"l{k}", target=f"l{k + 1}") for k in range(n - 1)]
        return Instance.build(
            devices, [Job(name="model", tasks=tasks, edges=edges)], links,
            tables={"speedup": speedup if seed % 2 else {}}, question=question,
        )  # fmt: skip

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All cuts, pools and units."""
        return every_pool_plan(instance)


class Period(_Trade):
    """Least seconds between two items."""

    name = "partition.pareto"
    objectives = ("pareto-period",)
    title = "a sequence of layers on pools of units, items as often as possible within joules an item; with the Pareto front"
    methods = (Labels(), MILP("period"), Count())
    end = 0

    def of(self, point: ParetoPoint | ParetoReport) -> float:
        """Seconds."""
        return point.period


class Energy(_Trade):
    """Least joules an item."""

    name = "partition.pareto_energy"
    objectives = ("pareto-energy",)
    title = "a sequence of layers on pools of units, as few joules an item as possible within a period; with the Pareto front"
    unit = "joules"
    methods = (Labels(), MILP("energy"), Count())
    end = -1

    def of(self, point: ParetoPoint | ParetoReport) -> float:
        """Joules."""
        return point.energy


def _report(instance: Instance, question: Question, solution: Solution) -> ParetoReport:
    return check_pareto(
        instance, solution.placement, solution.details, period=question["period"], energy=question["energy"]
    )


def _points(
    instance: Instance, question: Question, should_stop: Any, *, limited: bool = True, most: int | None = None
) -> list[ParetoPoint] | None:
    """The front within the question's limits; ``most``: with no more units of a pool than that."""
    from hetopt.algorithms.pareto_labels import pareto_front

    limits = limits_of(question) if limited else (math.inf, math.inf)
    table = stage_table(instance)
    if most is not None:
        table = replace(table, units=np.minimum(table.units, most))
    return pareto_front(table, *limits, should_stop)


def _why_none(question: Question, free: list[ParetoPoint]) -> str:
    """By how much the limits miss the front."""
    if not free:
        return "no cut of the layers has pools that can run, hold and pass them on with the units there are"
    period, energy = question["period"], question["energy"]
    if period is not None and free[0].period > period:
        return (
            f"period: at most {period:.9g} s are allowed, and the quickest plan takes {free[0].period:.9g}: "
            f"{free[0].period - period:.9g} s too many"
        )
    if energy is not None and free[-1].energy > energy:
        return (
            f"energy: at most {energy:.9g} J are allowed, and the thriftiest plan takes {free[-1].energy:.9g}: "
            f"{free[-1].energy - energy:.9g} J too many"
        )
    least = min(point.energy for point in free if point.period <= period * (1 + 1e-9))
    return (
        f"energy: within {period:.9g} s no plan takes less than {least:.9g} J, and at most {energy:.9g} are allowed: "
        f"{least - energy:.9g} J too many"
    )


PROBLEMS = (Period(), Energy())
