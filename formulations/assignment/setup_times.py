"""R|s_ijk|Cmax: jobs on unrelated machines with setup times between consecutive jobs, the last one done as early as possible.

Sets and data
    j, k in J   jobs (independent tasks); 0 stands for the idle machine before its first and after its last job
    i in M      devices
    p_ij        seconds of job j on device i, absent where it cannot run
    s_ijk >= 0  seconds between j and k when k follows j on i: ``tables.setup[i][j][k]``; nothing before the first job

Variables
    x_ij  in {0, 1}     job j runs on device i
    y_ijk in {0, 1}     k follows j on i (0: first, last)
    C_j >= 0            completion of job j
    T >= 0              makespan

Minimise T subject to

    sum_i x_ij = 1                                                  for each job                        (1)  assign
    sum_{j != k} y_ijk = x_ik,  sum_{k != j} y_ijk = x_ij           for each job, device (0 included)   (2)  before, after
    sum_k y_i0k <= 1                                                for each device                     (3)  first
    C_k >= C_j + s_ijk + p_ik - B (1 - y_ijk)                       for each pair of jobs, device       (4)  order
    sum_j p_ij x_ij + sum_jk s_ijk y_ijk <= T                       for each device                     (5)  load

``lp``: each job but a device's first waits for its least setup. With m_ik = min_j s_ijk and M_i = max_k m_ik,
    sum_j (p_ij + m_ij) x_ij - M_i <= T,  (1),  0 <= x <= 1                                             (6)
bounds every plan; its dual is replayed without a solver.

``subsets``: exact for at most 14 jobs, the quickest path through each set of jobs on each device, then the best partition.

Sources: E. Vallada, R. Ruiz, European Journal of Operational Research 211 (2011), for (1)-(5) and the published sets;
M. Held, R. Karp, Journal of SIAM 10 (1962), for the paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from formulations.assignment._setup_data import orders_of, plan_of, setup_of, whole_numbers
from formulations.assignment._setup_models import CPSAT, LP, MILP
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.sequence import TOLERANCE, check_sequence, gantt_details

__all__ = ["CPSAT", "LP", "MILP", "PROBLEM", "Annealing", "SetupTimes", "Subsets"]


class Subsets(Method):
    """Dynamic programs over sets of jobs."""

    name = "subsets"
    title = "dynamic programs over sets of jobs; exact, at most 14 jobs"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """At most 14 jobs, all devices free from the start."""
        from hetopt.algorithms.setup_times import MOST_JOBS

        return f"there are more than {MOST_JOBS} jobs" if instance.n_tasks > MOST_JOBS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Pairs of nested sets."""
        return int(min(3.0**instance.n_tasks * instance.n_devices, 2.0**62))

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Paths, partition; the value is the optimum by the algorithm's proof."""
        from hetopt.algorithms.setup_times import best_sequences

        best = best_sequences(instance.time, setup_of(instance))
        if best is None:
            return Outcome("infeasible", infeasible=("the dynamic program found no device for every job",))
        control.report_plan(plan_of(instance, best.machine, best.position))
        if control.value is not None:
            control.report_bound(min(control.value, best.makespan), "algorithm")
        return Outcome()


class Annealing(Method):
    """Simulated annealing over sequences."""

    name = "annealing"
    title = "simulated annealing over sequences; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Sixty rounds of falling temperature; again from other random numbers while a time limit leaves time."""
        from hetopt.algorithms.setup_times import anneal_sequences

        def better(plan: Any) -> None:
            control.report_plan(plan_of(instance, plan.machine, plan.position))

        attempt = 0
        while True:
            anneal_sequences(
                instance.time,
                setup_of(instance),
                seed=control.seed + 7919 * attempt,
                should_stop=control.should_stop,
                report=better,
            )
            attempt += 1
            if control.should_stop():
                return Outcome("limit", "time")
            if math.isinf(control.remaining) or attempt == 100 or instance.n_tasks * instance.n_devices < 2:
                return Outcome()


class SetupTimes(Problem):
    """Makespan with setup times that depend on device and sequence."""

    name = "assignment.setup_times"
    objectives = ("setup-makespan",)
    title = "last job done as early as possible with setup times between jobs (R|s_ijk|Cmax)"
    uses = frozenset({"time", "pin", "forbid", "tables.setup"})
    methods = (Subsets(), CPSAT(), MILP(), LP(), Annealing())

    def fits(self, instance: Instance) -> str | None:
        """A table of setups, independent jobs, no groups, everything there from the start."""
        if "setup" not in instance.tables:
            return "the file has no tables.setup, a list of devices x jobs x jobs in seconds"
        if len(instance.edges):
            return "tasks depend on each other by edges"
        if (instance.group >= 0).any():
            return "it knows no groups"
        if (instance.columns.release > 0).any():
            return "jobs have release dates"
        return "devices are not all free at 0 (available_from)" if instance.available_from.any() else None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Latest completion; setups between consecutive jobs of a device are kept."""
        done, violations = check_sequence(instance, solution.placement, solution.start)
        if violations or not np.isfinite(done).all():
            return Evaluation(math.inf, violations)
        assert solution.placement is not None and solution.start is not None
        setup, wrong = setup_of(instance), list(violations)
        keep = 1.0 if whole_numbers(instance) else 1.0 - TOLERANCE
        for i, order in enumerate(orders_of(instance, solution)):
            for j, k in pairwise(order):
                least = done[j] + setup[i, j, k]
                if solution.start[k] < least * keep:
                    names = instance.labels[j], instance.labels[k], instance.device_names[i]
                    wrong.append(
                        f"task {names[1]!r} starts on {names[2]!r} at {solution.start[k]:.9g}, but {names[0]!r} and the setup "
                        f"end at {least:.9g}"
                    )
        details = {"devices": gantt_details(instance, solution.placement, done)}
        return Evaluation(float(done.max()), tuple(wrong), details)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integer times and setups every value is an integer: round up."""
        return float(math.ceil(bound - slack)) if whole_numbers(instance) else bound

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Sets of jobs while they are few; else a bound, annealing, and CP-SAT for the proof."""
        if self.method("subsets").fits(instance, question) is None:
            return (Step("subsets", "few jobs: dynamic programs over sets are exact at once"),)
        return (
            Step("lp", "a bound at once", share=0.1),
            Step("annealing", "good plans quickly", share=0.5),
            Step("cpsat", "exact, starts from the annealed plan"),
        )

    def sample(self, seed: int) -> Instance:
        """Up to five jobs on up to three devices."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        times = rng.integers(0, 12, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.15) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        setup = rng.integers(0, 9, (d, n, n)).tolist()
        return Instance.from_times(times, tables={"setup": setup}, question={"objective": self.name})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All placements in all orders."""
        for plain in super().every_plan(instance, question):
            assert plain.placement is not None
            for order in permutations(range(instance.n_tasks)):
                yield plan_of(instance, plain.placement, np.argsort(order))


PROBLEM = SetupTimes()
