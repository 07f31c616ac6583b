"""Restricted assignment: each job takes equally long on every device that may run it, the last one done as early as possible.

Sets and data
    j in J      jobs (tasks; those that share a ``group`` are one job), of p_j seconds
    i in M      devices, all free from the start
    M_j         devices that may run job j; with at most two for every job the question is graph balancing: jobs are edges
                of p_j seconds between devices, each to be oriented
    t in K      types: jobs of equal p_j and M_j are interchangeable; n_t of them

Variables
    y_it in Z+      jobs of type t on device i in M_t
    T >= 0          makespan

Minimise T subject to

    sum_i y_it = n_t                                for each type t                                 (1)  assign
    sum_t p_t y_it <= T                             for each device i                               (2)  load

``lp``: y real, dual replayed without a solver. ``configuration``: the configuration program

    sum_{C : p(C) <= T} z_iC <= 1                   for each device i                               (3)
    sum_{i, C contains j} z_iC >= 1,  z >= 0        for each job j                                  (4)

by column generation. T is refuted when some prices u_j of the jobs are together more than the devices can hold, by the
knapsacks of capacity T over the jobs each may run; the prices are stored and all knapsacks replayed in integers. Its gap is
at most 11/6 (Jansen and Rohwedder), and for graph balancing at most 7/4 (Ebenlendr and others); no polynomial algorithm below
3/2 exists unless P = NP.

Sources: J. K. Lenstra, D. B. Shmoys, E. Tardos, Mathematical Programming 46 (1990), for (1), (2) and the rounding;
O. Svensson, Santa Claus schedules jobs on unrelated machines, SIAM Journal on Computing 41 (2012), for (3), (4);
K. Jansen, L. Rohwedder, On the configuration-LP of the restricted assignment problem, SODA 2017; T. Ebenlendr, M. Krcal,
J. Sgall, Graph balancing, Algorithmica 68 (2014).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import Jobs, job_names, jobs_of, time_unit
from formulations.assignment._few_machines import FPTAS
from formulations.assignment._makespan_methods import LST, Climb, Greedy
from hetopt.control import Control
from hetopt.formulation import (
    ConstraintModel,
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
from hetopt.verify.assignment import device_details, loads, placement_violations

__all__ = ["CPSAT", "FPTAS", "LST", "MILP", "PROBLEM", "Climb", "Configuration", "Greedy", "Restricted"]

_BITS = 31  # CP-SAT's presolve multiplies numbers of this size without overflow
_GRID_BITS = 13  # of a deadline for decimal times: knapsacks are exact over capacities
_CELLS = 10_000_000_000  # effort of the configuration program, some ten seconds


@dataclass(frozen=True, eq=False)
class Types:
    """Interchangeable jobs: ``k`` types, ``n`` jobs, ``d`` devices.

    Attributes
    ----------
    time
        (k,) seconds.
    can
        (k, d) devices that may run them.
    count
        (k,) jobs of the type.
    of
        (n,) type of each job.
    """

    time: NDArray[np.float64]
    can: NDArray[np.bool_]
    count: NDArray[np.int64]
    of: NDArray[np.int64]

    def placement(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) device of each job, from how many (k, d) of each type a device takes; jobs of a type in order.

        Raises
        ------
        ValueError
            The numbers do not add up to the jobs.
        """
        if (number < 0).any() or (number.sum(axis=1) != self.count).any():
            raise ValueError("the numbers of jobs do not add up")
        k, d = number.shape
        device = np.repeat(np.tile(np.arange(d), k), number.ravel())
        placement = np.empty(len(self.of), np.int64)
        placement[np.argsort(self.of, kind="stable")] = device
        return placement

    def number(self, placement: NDArray[np.int64]) -> NDArray[np.float64]:
        """(k, d) how many jobs of each type a placement (n,) puts on each device."""
        number = np.zeros(self.can.shape)
        np.add.at(number, (self.of, placement), 1.0)
        return number


def types_of(jobs: Jobs) -> Types:
    """Types of jobs whose finite times are equal, in order of their first job."""
    can = np.isfinite(jobs.time)
    time = np.where(can, jobs.time, 0.0).max(axis=1)
    _, first, of = np.unique(np.column_stack([time, can]), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.argsort(order)[np.ravel(of)]
    return Types(time[first[order]], can[first[order]], np.bincount(rank, minlength=len(first)), rank)


class MILP(LinearFormulation):
    """(1), (2) over types of jobs."""

    name = "milp"
    title = "MILP (1), (2), interchangeable jobs counted together"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``jobs[type,device]`` and ``makespan``, in units that suit tolerances; a type goes by its first job."""
        jobs = jobs_of(instance)
        types = types_of(jobs)
        k, d = types.can.shape
        names = job_names(instance, jobs)
        labels = [names[int(j)] for j in np.unique(types.of, return_index=True)[1]]
        unit = time_unit(float(types.time.max()))
        model = LinearModel("restricted")
        y = model.integer(
            "jobs", (k, d), upper=np.where(types.can, types.count[:, None], 0), labels=(labels, instance.device_names)
        )
        top = model.continuous("makespan", upper=float(types.time @ types.count) / unit)
        t, i = np.nonzero(types.can)
        model.rows("assign", k, [(t, y[t, i], 1.0)], lower=types.count, upper=types.count, labels=(labels,))  # (1)
        terms: list[tuple[Any, Any, Any]] = [(i, y[t, i], types.time[t] / unit), (np.arange(d), top, -1.0)]
        model.rows("load", d, terms, upper=0, labels=(instance.device_names,))  # (2)
        model.minimize(top, unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The jobs of each type dealt out in order."""
        jobs = jobs_of(instance)
        number = np.rint(x[model.columns("jobs")]).astype(np.int64)
        return jobs.solution(types_of(jobs).placement(number))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Numbers and T of a plan."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        jobs = jobs_of(instance)
        point = np.zeros(model.n_columns)
        point[model.columns("jobs")] = types_of(jobs).number(jobs.placement(solution))
        top = model.columns("makespan")
        point[top] = loads(instance, solution.placement).max() / model.cost[top]
        return point


class CPSAT(ConstraintModel):
    """(1), (2) in CP-SAT; decimals are rounded down, so that its bound stays one."""

    name = "cpsat"
    title = "CP-SAT (1), (2), interchangeable jobs counted together"
    kind = "exact"

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """An integer for each type and device that may run it, one makespan."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        types = types_of(jobs_of(instance))
        total = float(types.time @ types.count)
        whole = bool((types.time == np.floor(types.time)).all()) and total < 2.0**_BITS
        unit = 1.0 if whole else 2.0 ** (math.frexp(total)[1] - _BITS)
        ticks = np.floor(types.time / unit).astype(np.int64)
        model = cp_model.CpModel()
        top = model.new_int_var(int(ticks.max()), int(ticks @ types.count), "makespan")
        y = {
            (t, i): model.new_int_var(0, int(types.count[t]), "")
            for t, i in zip(*(axis.tolist() for axis in np.nonzero(types.can)), strict=True)
        }
        for t, count in enumerate(types.count.tolist()):
            model.add(sum(y[t, i] for i in np.flatnonzero(types.can[t]).tolist()) == count)  # (1)
        for i in range(instance.n_devices):
            mine = np.flatnonzero(types.can[:, i]).tolist()
            model.add(cp_model.LinearExpr.weighted_sum([y[t, i] for t in mine], ticks[mine].tolist()) <= top)  # (2)
        model.minimize(top)
        return CpProgram(model, list(y.values()), to_bound=lambda bound: math.ceil(bound - 1e-6) * unit, name=self.name)

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """The jobs of each type dealt out in order."""
        jobs = jobs_of(instance)
        types = types_of(jobs)
        number = np.zeros(types.can.shape, np.int64)
        number[types.can] = np.rint(x).astype(np.int64)
        return jobs.solution(types.placement(number))

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Numbers of a plan."""
        jobs = jobs_of(instance)
        types = types_of(jobs)
        return types.number(jobs.placement(solution))[types.can]


class Configuration(Method):
    """(3), (4) by column generation."""

    name = "configuration"
    title = "configuration program (3), (4) by column generation; its prices replayed over all knapsacks"
    kind = "relaxation"

    def size(self, instance: Instance, question: Question) -> int:
        """Cells of the knapsacks of one pricing, roughly."""
        return instance.n_tasks * instance.n_devices << _GRID_BITS

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Deadlines upwards from the LP's bound until one is not refuted."""
        from hetopt.algorithms.lists import mct
        from hetopt.algorithms.makespan_bounds import lp_relaxation
        from hetopt.algorithms.makespan_knapsack import configuration_bound
        from hetopt.algorithms.times import makespan
        from hetopt.solvers.quiet import quiet
        from hetopt.verify.makespan_certificates import on_grid

        time = jobs_of(instance).time
        upper = control.value if control.value is not None else makespan(time, mct(time))
        bits = math.frexp(upper)[1]
        shift = 0 if instance.integral and bits <= 2 * _GRID_BITS else _GRID_BITS - bits

        def report(bound: Any, certificate: Mapping[str, Any] | None) -> None:
            if bound is not None and certificate is not None:
                rounded = question.problem.round_bound(instance, question, float(bound), slack=0.0)
                control.report_bound(rounded, "replayed", dict(certificate))

        with quiet():
            relaxed = lp_relaxation(time, should_stop=control.should_stop)
            report(relaxed.bound, relaxed.certificate)
            if not control.should_stop() and upper > 0:
                found = configuration_bound(
                    on_grid(time, shift=shift),
                    math.floor(math.ldexp(float(relaxed.bound), shift)),
                    math.ceil(math.ldexp(upper, shift)),
                    relaxed.weights,
                    cells=_CELLS,
                    should_stop=control.should_stop,
                )
                report(found.bound, found.certificate)
        return Outcome("limit", "time") if control.should_stop() and not control.closed else Outcome()


class Restricted(Problem):
    """Restricted assignment and graph balancing."""

    name = "assignment.restricted"
    objectives = ("restricted-makespan", "graph-balancing")
    title = "last job done as early as possible, each job equally long on the devices that may run it (P|M_j|Cmax)"
    uses = frozenset({"time", "group", "pin", "forbid"})
    methods = (MILP(), CPSAT(), Relaxed(MILP(), "(1), (2)"), Configuration(), LST(), FPTAS(), Climb(), Greedy())

    def fits(self, instance: Instance) -> str | None:
        """Each job's times are equal; devices have no memory limits, task limits or first seconds that matter."""
        jobs = jobs_of(instance)
        can = np.isfinite(jobs.time)
        longest, shortest = np.where(can, jobs.time, -np.inf).max(axis=1), jobs.time.min(axis=1)
        odd = np.flatnonzero(can.any(axis=1) & (longest != shortest))
        if odd.size:
            j = int(odd[0])
            return (
                f"{job_names(instance, jobs)[j]!r} takes {shortest[j]:.9g} to {longest[j]:.9g} seconds, not the same on all "
                "its devices; ask for makespan"
            )
        if jobs.ready.any():
            return "a device is not free from the start; ask for makespan"
        return "a device limits memory or tasks; ask for makespan" if jobs.constrained else None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Largest load of a device."""
        violations = placement_violations(instance, solution.placement, limits=False)
        if solution.placement is None or solution.placement.shape != (instance.n_tasks,):
            return Evaluation(math.inf, violations)
        load = loads(instance, solution.placement)
        details = {"devices": device_details(instance, solution.placement, load)}
        return Evaluation(float(load.max()), violations, details)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integer times every value is an integer: round up."""
        return float(math.ceil(bound - slack)) if instance.integral else bound

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A group that no device can take."""
        jobs = jobs_of(instance)
        nowhere = np.flatnonzero(~np.isfinite(jobs.time).any(axis=1))
        return tuple(
            f"no device can run all tasks of {job_names(instance, jobs)[j]!r}, which must share one"
            for j in nowhere[:1].tolist()
        )

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays weights, refuted deadlines and knapsack prices over all pairs, and linear duals."""
        from hetopt.verify import makespan_certificates

        if certificate.get("kind") not in makespan_certificates.KINDS:
            return super().replay(instance, question, certificate)
        proved = float(makespan_certificates.replay(jobs_of(instance).time, certificate))
        return self.round_bound(instance, question, proved, slack=0.0)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """List rules, search and bounds in turns, the configuration program, then CP-SAT."""
        small = instance.n_tasks * instance.n_devices <= 1000
        return (
            Step("greedy", "list rules cost nothing", share=0.05),
            Step("climb", "search and bounds in turns, with stored proofs", share=0.2 if small else 0.5),
            Step("configuration", "the strongest bound known for this question", share=0.4),
            Step("cpsat", "exact, starts from the best plan so far"),
        )

    def sample(self, seed: int) -> Instance:
        """Up to six jobs on up to three devices; some in a group, some decimal, some with two devices each."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 7)), int(rng.integers(1, 4))
        length = rng.integers(0, 12, n) * (1.0 if seed % 3 else 1.37)
        can = rng.random((n, d)) < (0.5 if seed % 2 else 0.8)
        can[np.arange(n), rng.integers(0, d, n)] = True
        jobs = [
            Job(
                name=f"j{j}",
                time=[round(float(length[j]), 2) if ok else None for ok in can[j].tolist()],
                group="g" if rng.random() < 0.15 else None,
            )
            for j in range(n)
        ]
        return Instance.build([Device(name=f"d{i}") for i in range(d)], jobs, question={"objective": self.name})


PROBLEM = Restricted()
