"""R||Cmax: jobs on unrelated machines, the last one done as early as possible.

Sets and data
    j in J      jobs (tasks; those that share a ``group`` are one job)
    i in M      devices
    p_ij        seconds of job j on device i, absent where it cannot run (not given, forbidden, or pinned elsewhere)
    r_i         first second device i is free (``available_from``)
    b_j, B_i    bytes job j needs, bytes device i has
    q_j, Q_i    tasks in job j, most tasks on device i (``max_tasks``)

Variables
    x_ij in {0, 1}  job j runs on device i
    u_i in [0, 1]   device i has a job; only where r_i > 0
    T >= 0          makespan

Minimise T subject to

    sum_i x_ij = 1                              for each job j                              (1)  assign
    r_i u_i + sum_j p_ij x_ij <= T              for each device i                           (2)  load
    x_ij <= u_i                                 for each job j, device i with r_i > 0       (2') used
    sum_j b_j x_ij <= B_i                       for each device i with limited memory       (3)  memory
    sum_j q_j x_ij <= Q_i                       for each device i with a limit              (4)  tasks

A device without jobs does not count. LP: x_ij >= 0 instead of binary; its dual certificate is replayed without a solver.

Sources: (1), (2) J. K. Lenstra, D. B. Shmoys, E. Tardos, Approximation algorithms for scheduling unrelated parallel
machines, Mathematical Programming 46 (1990); no factor below 3/2 is possible in polynomial time unless P = NP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import Jobs, job_names, jobs_of, shortfalls, time_unit
from formulations.assignment._few_machines import FPTAS
from formulations.assignment._makespan_methods import LST, Climb, Greedy, Ladder
from hetopt.control import Control
from hetopt.formulation import (
    ConstraintModel,
    Evaluation,
    LinearFormulation,
    Problem,
    Question,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.assignment import device_details, loads, placement_violations

__all__ = ["CPSAT", "FPTAS", "LP", "LST", "MILP", "PROBLEM", "Greedy", "Makespan"]


class MILP(LinearFormulation):
    """The model above as a MILP."""

    name = "milp"
    title = "MILP (1)-(4)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Model (1)-(4); columns ``x[job,device]``, ``used[device]`` and ``makespan``, in units that suit tolerances."""
        jobs = jobs_of(instance)
        n, d = jobs.time.shape
        names = job_names(instance, jobs)
        model = LinearModel("makespan")
        can = np.isfinite(jobs.time)
        x = model.binary("x", (n, d), upper=can, labels=(names, instance.device_names))
        # No plan needs longer than all jobs at their slowest; a finite bound lets the LP's dual be replayed.
        longest = np.where(can, jobs.time, 0.0).max(axis=1)
        unit = time_unit(max(longest.max(), jobs.ready.max()))
        time, ready = jobs.time / unit, jobs.ready / unit
        t = model.continuous("makespan", upper=float(jobs.ready.max() + longest.sum()) / unit)
        j, i = np.nonzero(can)
        pairs = x[j, i]
        model.rows("assign", n, [(j, pairs, 1.0)], lower=1, upper=1, labels=(names,))  # (1)
        busy = np.flatnonzero(ready > 0)
        u = model.continuous("used", busy.size, upper=1.0, labels=([instance.device_names[k] for k in busy],))
        load: list[tuple[Any, Any, Any]] = [(i, pairs, time[j, i]), (busy, u, ready[busy]), (np.arange(d), t, -1.0)]
        model.rows("load", d, load, upper=0, labels=(instance.device_names,))  # (2)
        late = np.flatnonzero(ready[i] > 0)
        row, of = np.arange(late.size), u[np.searchsorted(busy, i[late])]
        model.rows("used", late.size, [(row, pairs[late], 1.0), (row, of, -1.0)], upper=0)  # (2')
        for block, need, limit in (
            ("memory", jobs.memory, jobs.capacity),
            ("tasks", jobs.count, jobs.most),
        ):  # (3), (4)
            limited = np.flatnonzero(np.isfinite(limit) & (need.sum() > limit))
            if limited.size:
                row = np.full(d, -1)
                row[limited] = np.arange(limited.size)
                inside = row[i] >= 0
                model.rows(
                    block,
                    limited.size,
                    [(row[i[inside]], pairs[inside], need[j[inside]])],
                    upper=limit[limited],
                    labels=([instance.device_names[k] for k in limited],),
                )
        model.minimize(t, unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each job on the device with the largest x."""
        return jobs_of(instance).solution(np.argmax(x[model.columns("x")], axis=1))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x, u and T of a plan."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        placement = jobs_of(instance).placement(solution)
        point = np.zeros(model.n_columns)
        x = model.columns("x")
        point[x[np.arange(len(placement)), placement]] = 1.0
        busy = np.flatnonzero(instance.available_from > 0)
        point[model.columns("used")] = np.isin(busy, placement)
        t = model.columns("makespan")
        point[t] = finish(instance, solution.placement).max() / model.cost[t]
        return point


class LP(LinearFormulation):
    """The LP relaxation of the MILP."""

    name = "lp"
    title = "LP relaxation of (1)-(4), bound replayed without a solver"
    kind = "relaxation"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The MILP without integrality."""
        return MILP().build(instance, question).relax()


class CPSAT(ConstraintModel):
    """The model natively in CP-SAT, with times in integer units.

    Decimal times are cut down to a multiple of a resolution, so that the model's optimum never exceeds the true one and its
    bound stays a bound; the plan is always evaluated in the original numbers.
    """

    name = "cpsat"
    title = "CP-SAT (1)-(4), decimals rounded down for the bound"
    kind = "exact"

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Booleans x_ij for the pairs that can run, one integer T."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        jobs = jobs_of(instance)
        n, d = jobs.time.shape
        unit = _unit(jobs)
        can = np.isfinite(jobs.time)
        ticks = np.floor(np.where(can, jobs.time, 0.0) / unit).astype(np.int64)
        ready = np.floor(jobs.ready / unit).astype(np.int64)
        horizon = int(ready.max() + np.where(can, ticks, 0).max(axis=1).sum())
        model = cp_model.CpModel()
        makespan = model.new_int_var(0, horizon, "makespan")
        pairs = np.argwhere(can)
        x = [model.new_bool_var("") for _ in range(len(pairs))]
        by_job: list[list[int]] = [[] for _ in range(n)]
        by_device: list[list[int]] = [[] for _ in range(d)]
        for k, (j, i) in enumerate(pairs.tolist()):
            by_job[j].append(k)
            by_device[i].append(k)
        for chosen in by_job:
            model.add_exactly_one(x[k] for k in chosen)  # (1)
        memory = _integer_memory(jobs)
        for i in range(d):
            mine = [x[k] for k in by_device[i]]
            of = pairs[by_device[i], 0] if mine else np.empty(0, np.int64)
            weighted = cp_model.LinearExpr.weighted_sum(mine, ticks[of, i].tolist())
            if ready[i] and mine:
                used = model.new_bool_var("")
                model.add(weighted + int(ready[i]) * used <= makespan)  # (2)
                for y in mine:
                    model.add_implication(y, used)  # (2')
            else:
                model.add(weighted <= makespan)  # (2)
            if np.isfinite(jobs.capacity[i]) and jobs.memory.sum() > jobs.capacity[i]:
                need, limit = memory[0][of].tolist(), int(memory[1][i])
                model.add(cp_model.LinearExpr.weighted_sum(mine, need) <= limit)  # (3)
            if np.isfinite(jobs.most[i]) and jobs.count.sum() > jobs.most[i]:
                model.add(cp_model.LinearExpr.weighted_sum(mine, jobs.count[of].tolist()) <= int(jobs.most[i]))  # (4)
        model.minimize(makespan)
        return CpProgram(model, x, to_bound=lambda bound: math.ceil(bound - 1e-6) * unit)

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Each job on its chosen device."""
        jobs = jobs_of(instance)
        pairs = np.argwhere(np.isfinite(jobs.time))[np.asarray(x) > 0.5]
        placement = np.full(len(jobs.count), -1, np.int64)
        placement[pairs[:, 0]] = pairs[:, 1]
        return jobs.solution(placement)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """x of a plan."""
        jobs = jobs_of(instance)
        pairs = np.argwhere(np.isfinite(jobs.time))
        chosen: NDArray[np.bool_] = jobs.placement(solution)[pairs[:, 0]] == pairs[:, 1]
        return chosen.astype(np.float64)


class Makespan(Problem):
    """R||Cmax with eligibility, groups, pins, memory, task limits and availability."""

    name = "assignment.makespan"
    objectives = ("makespan",)
    title = "last job done as early as possible on unrelated machines (R||Cmax)"
    uses = frozenset({"time", "memory", "group", "pin", "forbid", "available_from", "max_tasks"})
    methods = (MILP(), CPSAT(), LP(), Climb(), LST(), FPTAS(), Ladder(), Greedy())

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Latest finish of a device that has a job: available_from plus the load."""
        violations = placement_violations(instance, solution.placement)
        if solution.placement is None or solution.placement.shape != (instance.n_tasks,):
            return Evaluation(math.inf, violations)
        details = {"devices": device_details(instance, solution.placement, loads(instance, solution.placement))}
        return Evaluation(float(finish(instance, solution.placement).max()), violations, details)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integer times and availabilities every value is an integer: round up."""
        whole = instance.integral and bool((instance.available_from == np.floor(instance.available_from)).all())
        return float(math.ceil(bound - slack)) if whole else bound

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A group that no device can take, a job larger than every device it can run on, more bytes than there are."""
        return shortfalls(instance, jobs_of(instance))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays machine weights, refuted deadlines and knapsack prices over all pairs, and linear duals."""
        from hetopt.verify import makespan_certificates

        if certificate.get("kind") not in makespan_certificates.KINDS:
            return super().replay(instance, question, certificate)
        jobs = jobs_of(instance)
        proved = float(makespan_certificates.replay(jobs.time, certificate, jobs.ready))
        return self.round_bound(instance, question, proved, slack=0.0)

    def sample(self, seed: int) -> Instance:
        """Up to six jobs on up to three devices; some with memory, groups, pins and availability."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 7)), int(rng.integers(1, 4))
        times = rng.integers(0, 20, (n, d)).astype(float)
        if seed % 3 == 2:
            times = np.round(times * 1.37, 2)
        times[(rng.random((n, d)) < 0.15) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        devices = [
            Device(
                name=f"d{i}",
                memory=int(rng.integers(8, 25)) if rng.random() < 0.5 else None,
                available_from=int(rng.integers(0, 9)) if rng.random() < 0.3 else 0,
                max_tasks=int(rng.integers(1, 6)) if rng.random() < 0.2 else None,
            )
            for i in range(d)
        ]
        jobs = [
            Job(
                name=f"j{j}",
                time=[None if np.isinf(t) else t for t in times[j].tolist()],
                memory=int(rng.integers(0, 8)),
                group="g" if rng.random() < 0.2 else None,
            )
            for j in range(n)
        ]
        return Instance.build(devices, jobs, question={"objective": self.name})

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """List rules, then search and bounds in turns (the ladder alone where memory or task limits bind), then CP-SAT."""
        small = instance.n_tasks * instance.n_devices <= 1000
        limited = jobs_of(instance).constrained
        steps: Sequence[Step] = (
            Step("greedy", "list rules cost nothing", share=0.2 if limited else 0.05),
            Step("ladder", "bounds that need no search, with stored proofs", share=0.3 if limited else 0.0),
            Step("climb", "search and bounds in turns, with stored proofs", share=0.4 if small else 1.0),
            Step("cpsat", "exact, starts from the best plan so far"),
        )
        if not limited:
            steps = [step for step in steps if step.method != "ladder"]
        if instance.n_tasks * instance.n_devices > 1_000_000:
            steps = [step for step in steps if step.method != "cpsat"]
        return [step for step in steps if self.method(step.method).fits(instance, question) is None]


def finish(instance: Instance, placement: NDArray[np.int64]) -> NDArray[np.float64]:
    """(d,) second at which each device is done with its jobs; 0 for a device without jobs."""
    used = np.isin(np.arange(instance.n_devices), placement)
    return np.where(used, instance.available_from + loads(instance, placement), 0.0)


_BITS = 31  # CP-SAT's presolve multiplies numbers of this size without overflow; with larger ones it has erred


def _unit(jobs: Jobs) -> float:
    """Seconds per integer unit: 1 for integer times, else a power of two; all sums stay below 2^31."""
    total = float(np.where(np.isfinite(jobs.time), jobs.time, 0).max(axis=1).sum() + jobs.ready.max())
    whole = jobs.time[np.isfinite(jobs.time)]
    if (whole == np.floor(whole)).all() and (jobs.ready == np.floor(jobs.ready)).all() and total < 2.0**_BITS:
        return 1.0
    return 2.0 ** (math.frexp(total)[1] - _BITS)


def _integer_memory(jobs: Jobs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Integer needs, rounded down, and capacities, rounded up: every true plan stays feasible; the verifier judges plans."""
    capacity = np.where(np.isfinite(jobs.capacity), jobs.capacity, 0.0)
    largest = max(float(jobs.memory.sum()), float(capacity.max()), 1.0)
    whole = (jobs.memory == np.floor(jobs.memory)).all() and (capacity == np.floor(capacity)).all()
    unit = 1.0 if whole and largest < 2.0**_BITS else 2.0 ** (math.frexp(largest)[1] - _BITS)
    return np.floor(jobs.memory / unit).astype(np.int64), np.ceil(capacity / unit).astype(np.int64)


PROBLEM = Makespan()
