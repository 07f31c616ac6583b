"""R||sum w_j C_j and R|r_j|sum w_j C_j: jobs on unrelated machines, done early on average.

Sets and data
    j in J      jobs (independent tasks)
    i in M      devices, one job at a time
    p_ij        seconds of job j on device i, absent where it cannot run
    w_j, r_j    weight and release of job j; a_i first second device i is free

A plan gives each job a device and a start S_j >= max(r_j, a_i); C_j = S_j + p_ij. Minimise sum_j w_j C_j.

Without release dates a device runs its jobs by Smith's rule, least p_ij / w_j first, so the devices alone decide. With k < j
meaning that k comes before j on device i by that rule:

    sum_i x_ij = 1                                          for each job j                  (1)  assign
    C_j >= a_i + p_ij + sum_{k < j} p_ik x_ik  if x_ij = 1  for each job j, device i        (2)  smith

With release dates, ``cpsat`` has an optional interval [S_j, C_j) for each pair, no two overlapping on a device     (3).

Interval-indexed relaxation ``lp``, over 0 = t_0 < t_1 < ... < t_L, where t_L is so late that every plan without needless
waiting ends before it (all releases and availabilities passed, then all jobs one after the other at their slowest):
    y_ijl >= 0  job j completes on device i in (t_{l-1}, t_l]
    sum_il y_ijl = 1                                        for each job                    (4)  once
    sum_j sum_{k <= l} p_ij y_ijk <= max(0, t_l - a_i)      for each device, interval       (5)  work
    minimise sum w_j max(t_{l-1}, max(r_j, a_i) + p_ij) y_ijl
A job completes no earlier than that, so its optimum is a bound; its dual is replayed without a solver.

``skutella``: a convex program in the shares whose optimum is a bound, replayed from the shares alone, and a plan within 3/2 of
it (no release dates). ``horn``: exact for equal weights and no release dates, a matching of jobs with positions from the end.

Sources: W. Smith, Naval Research Logistics Quarterly 3 (1956); W. Horn, Operations Research 21 (1973); L. Hall, A. Schulz,
D. Shmoys, J. Wein, Mathematics of Operations Research 22 (1997) for (4), (5); M. Skutella, JACM 48 (2001).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from hetopt.control import Control
from hetopt.formulation import (
    ConstraintModel,
    Evaluation,
    LinearFormulation,
    Method,
    Outcome,
    Problem,
    Question,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.sequence import check_sequence, gantt_details

__all__ = ["CPSAT", "LP", "PROBLEM", "Annealing", "Horn", "Skutella", "WeightedCompletion", "smith"]

_BITS = 31  # CP-SAT's presolve multiplies numbers of this size without overflow


def smith(instance: Instance, placement: NDArray[np.int64]) -> Solution:
    """Plan that runs each device's jobs by Smith's rule, without release dates; by list scheduling with them.

    With release dates the job with the least p / w among the released ones goes next, and nothing waits needlessly.
    """
    weight, release = _weights(instance), _releases(instance)
    start = np.zeros(instance.n_tasks)
    for i in range(instance.n_devices):
        mine = np.flatnonzero(placement == i)
        if not mine.size:
            continue
        time = instance.time[mine, i]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(time == 0, 0.0, time / weight[mine])
        order = np.lexsort((mine, ratio))
        clock = float(instance.available_from[i])
        if not release[mine].any():
            start[mine[order]] = clock + np.concatenate([[0.0], np.cumsum(time[order])[:-1]])
            continue
        left = order.tolist()
        while left:
            ready = [k for k in left if release[mine[k]] <= clock]
            if not ready:
                clock = min(float(release[mine[k]]) for k in left)
                continue
            start[mine[ready[0]]] = clock
            clock += float(time[ready[0]])
            left.remove(ready[0])
    return Solution(placement=np.asarray(placement, np.int64), start=start)


class Horn(Method):
    """Matching of jobs with positions counted from the end of each device."""

    name = "horn"
    title = "matching of jobs with positions from the end; exact for equal weights, no release dates"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Equal weights, no release dates."""
        weight = _weights(instance)
        if (weight != weight[0]).any():
            return "weights differ"
        return "jobs have release dates" if _releases(instance).any() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One matching; its value is the optimum by the algorithm's proof."""
        from hetopt.algorithms.completion import horn

        answer = horn(instance.time, ready=instance.available_from)
        plan = smith(instance, answer.plan)
        control.report_plan(plan)
        judged = question.problem.judge(instance, question, plan)
        if not judged.violations:
            control.report_bound(judged.value, "algorithm")
        return Outcome()


class Skutella(Method):
    """Convex program in the shares, rounded by conditional expectations."""

    name = "skutella"
    title = "Skutella's convex program and rounding, at most 3/2 times its bound, which is replayed"
    kind = "approximation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """No release dates."""
        return "jobs have release dates" if _releases(instance).any() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Shares, bound, plan."""
        from hetopt.algorithms.completion_relaxation import skutella

        answer = skutella(
            instance.time, _weights(instance), ready=instance.available_from, should_stop=control.should_stop
        )
        job, device = np.nonzero(answer.x)
        certificate = {
            "kind": "shares",
            "job": job.tolist(),
            "device": device.tolist(),
            "share": answer.x[job, device].tolist(),
            "mixture": answer.mixture,
        }
        control.report_bound(_replay_shares(instance, certificate), "replayed", certificate)
        control.report_plan(smith(instance, answer.plan))
        return Outcome()


class Annealing(Method):
    """Simulated annealing over placements, from the incumbent."""

    name = "annealing"
    title = "simulated annealing over placements, no release dates; no guarantee"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """No release dates."""
        return "jobs have release dates" if _releases(instance).any() else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Twenty million proposals; again from other random numbers, ever slower, while a time limit leaves time."""
        from hetopt.algorithms.completion_search import anneal_completion

        start = control.plan.placement if control.plan is not None else None
        for attempt in range(100):
            anneal_completion(
                np.where(instance.eligible, instance.time, np.inf),
                _weights(instance),
                ready=instance.available_from,
                start=start,
                seed=control.seed + 7919 * attempt,
                proposals=20_000_000 << min(attempt // 2, 6),
                should_stop=control.should_stop,
                report=lambda found: control.report_plan(smith(instance, found.plan)),  # type: ignore[arg-type,return-value]
            )
            if control.should_stop():
                return Outcome("limit", "time")
            if math.isinf(control.remaining):
                break
        return Outcome()


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
        earliest = np.maximum(_releases(instance)[:, None], instance.available_from) + instance.time
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
        cost = _weights(instance)[j] * np.maximum(grid[l], earliest[j, i])
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
        release = np.floor(_releases(instance) / unit).astype(np.int64)
        weight = np.floor(_weights(instance) / weight_unit).astype(np.int64)
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
                ratio = np.where(instance.time[mine, i] == 0, 0.0, instance.time[mine, i] / _weights(instance)[mine])
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
        if not _releases(instance).any():
            return smith(instance, placement)
        # Ends come from CP-SAT in integer units; ties are jobs of no length, which go after what ends when they run.
        ends = np.asarray(x, np.float64)[len(pairs) :]
        own = instance.time[np.arange(instance.n_tasks), placement] / _units(instance)[0]
        rank = np.empty(instance.n_tasks)
        rank[np.lexsort((own == 0, ends))] = np.arange(instance.n_tasks)
        return _in_order(instance, placement, rank)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Literals of a plan; completions are left to the solver, for rounding may have moved them."""
        if solution.placement is None:
            return None
        pairs = np.argwhere(instance.eligible)
        literals = np.asarray(solution.placement[pairs[:, 0]] == pairs[:, 1], np.float64)
        return np.concatenate([literals, np.full(instance.n_tasks, np.nan)])


class WeightedCompletion(Problem):
    """Weighted sum of completion times, with or without release dates."""

    name = "assignment.weighted_completion"
    objectives = ("weighted-completion",)
    title = "jobs done early on average, by weight (R||sum w_j C_j, R|r_j|sum w_j C_j)"
    unit = ""
    uses = frozenset({"time", "weight", "release", "pin", "forbid", "available_from"})
    methods = (CPSAT(), Horn(), LP(), Skutella(), Annealing())

    def fits(self, instance: Instance) -> str | None:
        """Independent jobs without groups."""
        if len(instance.edges):
            return "tasks depend on each other by edges"
        if (instance.group >= 0).any():
            return "it knows no groups"
        return None if instance.columns.own_task.all() else "jobs consist of several tasks"

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Sum of w_j C_j of the plan's own start times."""
        done, violations = check_sequence(instance, solution.placement, solution.start)
        if not np.isfinite(done).all():
            return Evaluation(math.inf, violations)
        assert solution.placement is not None
        value = math.fsum((_weights(instance) * done).tolist())
        return Evaluation(value, violations, {"devices": gantt_details(instance, solution.placement, done)})

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integers throughout every value is an integer: round up."""
        facts = (_weights(instance), _releases(instance), instance.available_from)
        whole = instance.integral and all((fact == np.floor(fact)).all() for fact in facts)
        return float(math.ceil(bound - slack)) if whole else bound

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """A matching where that is exact; else relaxations and plans, then CP-SAT."""
        if self.method("horn").fits(instance, question) is None:
            return (Step("horn", "weights are equal and there are no release dates: a matching is exact"),)
        if _releases(instance).any():
            return (Step("lp", "a bound with release dates", share=0.3), Step("cpsat", "exact"))
        return (
            Step("skutella", "plan and bound within 3/2 at once", share=0.3),
            Step("annealing", "good plans quickly, from the rounded one", share=0.3),
            Step("cpsat", "exact, starts from the annealed plan"),
        )

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays shares of the convex program, and linear duals."""
        if certificate.get("kind") == "shares":
            return self.round_bound(instance, question, _replay_shares(instance, certificate), slack=0.0)
        return super().replay(instance, question, certificate)

    def sample(self, seed: int) -> Instance:
        """Up to five jobs on up to three devices; equal or different weights, some release dates."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        times = rng.integers(0, 12, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.2) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        dated, equal = seed % 3 == 2, seed % 4 == 1
        jobs = [
            Job(
                name=f"j{j}",
                time=[None if np.isinf(t) else t for t in times[j].tolist()],
                weight=1 if equal else int(rng.integers(0, 6)),
                release=int(rng.integers(0, 10)) if dated else 0,
            )
            for j in range(n)
        ]
        devices = [
            Device(name=f"d{i}", available_from=int(rng.integers(0, 4)) * int(rng.random() < 0.3)) for i in range(d)
        ]
        return Instance.build(devices, jobs, question={"objective": self.name})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All placements in all orders, each started as early as possible."""
        for plain in super().every_plan(instance, question):
            assert plain.placement is not None
            if not _releases(instance).any():
                yield smith(instance, plain.placement)
                continue
            for order in permutations(range(instance.n_tasks)):
                yield _in_order(instance, plain.placement, np.argsort(order).astype(float))


def _weights(instance: Instance) -> NDArray[np.float64]:
    return np.asarray(instance.columns.weight[instance.job_of])


def _releases(instance: Instance) -> NDArray[np.float64]:
    return np.asarray(instance.columns.release[instance.job_of])


def _in_order(instance: Instance, placement: NDArray[np.int64], rank: NDArray[np.float64]) -> Solution:
    """Plan that runs each device's jobs by increasing rank, each as early as possible."""
    start = np.zeros(instance.n_tasks)
    clock = instance.available_from.copy()
    release = _releases(instance)
    for k in np.argsort(rank, kind="stable").tolist():
        i = int(placement[k])
        start[k] = max(clock[i], release[k])
        clock[i] = start[k] + instance.time[k, i]
    return Solution(placement=np.asarray(placement, np.int64), start=start)


def _grid(instance: Instance, ratio: float) -> NDArray[np.float64]:
    """0 = t_0 < ... < t_L: geometric from the shortest job on, up to where every plan without needless waiting has ended."""
    slowest = np.where(instance.eligible, instance.time, 0.0).max(axis=1)
    end = float(max(_releases(instance).max(initial=0.0), instance.available_from.max()) + math.fsum(slowest.tolist()))
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
    span = float(slowest + max(instance.available_from.max(), _releases(instance).max()))
    facts = (instance.time[instance.eligible], instance.available_from, _releases(instance))
    whole = all((fact == np.floor(fact)).all() for fact in facts) and span < 2.0**_BITS
    unit = 1.0 if whole else 2.0 ** (math.frexp(span)[1] - _BITS)
    weight = _weights(instance)
    total = max(float(weight.sum()), 1e-300)
    light = bool((weight == np.floor(weight)).all()) and total < 2.0**20
    return unit, 1.0 if light else 2.0 ** (math.frexp(total)[1] - 20)


def _replay_shares(instance: Instance, certificate: Mapping[str, Any]) -> float:
    from hetopt.algorithms.completion_relaxation import completion_bound

    x = np.zeros(instance.time.shape)
    x[np.asarray(certificate["job"], np.int64), np.asarray(certificate["device"], np.int64)] = certificate["share"]
    if _releases(instance).any():
        raise ValueError("shares prove nothing for jobs with release dates")
    return completion_bound(
        instance.time, x, float(certificate["mixture"]), _weights(instance), ready=instance.available_from
    )


PROBLEM = WeightedCompletion()
