"""Bottleneck assignment: each job on one device, the slowest single job as fast as possible.

Sets and data
    j in J      jobs (tasks; those that share a ``group`` count as one job whose times add up)
    i in M      devices; device i takes at most c_i jobs (``slots``, 1 unless the file says otherwise)
    p_ij        seconds of job j on device i, absent where it cannot run

Variables
    x_ij in {0, 1}  job j runs on device i
    T >= 0          time of the slowest job

Minimise T subject to

    sum_i x_ij = 1                  for each job j                                      (1)  assign
    sum_j x_ij <= c_i               for each device i                                   (2)  slots
    sum_i p_ij x_ij <= T            for each job j                                      (3)  slowest

Jobs on one device run side by side, so their times do not add up; where they do, the question is a makespan.

Method ``threshold``: bisection over the times, a maximum matching at each; the jobs of a Hall violator just below the optimum
prove it (the machines they could use have fewer slots than they are), and that proof is replayed.

Sources: R. Garfinkel, An improved algorithm for the bottleneck assignment problem, Operations Research 19 (1971); J. Hopcroft,
R. Karp, SIAM Journal on Computing 2 (1973); P. Hall, On representatives of subsets (1935).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import Jobs, job_names, jobs_of
from hetopt.control import Control
from hetopt.formulation import Evaluation, LinearFormulation, Method, Outcome, Problem, Question, Relaxed, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.assignment import device_details, placement_violations

__all__ = ["MILP", "PROBLEM", "Bottleneck", "Threshold"]


class Threshold(Method):
    """Bisection and matchings, with Hall's condition as the proof."""

    name = "threshold"
    title = "bisection over the times with maximum matchings; proof by Hall's condition, replayed"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One bisection."""
        from hetopt.algorithms.bottleneck import bottleneck_assignment

        jobs = jobs_of(instance)
        answer = bottleneck_assignment(jobs.time, _slots(instance))
        certificate = {"kind": "hall", "jobs": answer.witness.tolist()}
        control.report_bound(_replay(instance, certificate), "replayed", certificate)
        control.report_plan(jobs.solution(answer.plan))
        return Outcome()


class MILP(LinearFormulation):
    """(1)-(3) as a MILP."""

    name = "milp"
    title = "MILP (1)-(3)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Model (1)-(3); columns ``x[job,device]`` and ``slowest``."""
        jobs = jobs_of(instance)
        n, d = jobs.time.shape
        names = job_names(instance, jobs)
        model = LinearModel("bottleneck")
        can = np.isfinite(jobs.time)
        x = model.binary("x", (n, d), upper=can, labels=(names, instance.device_names))
        top = model.continuous("slowest", upper=float(np.where(can, jobs.time, 0.0).max()))
        j, i = np.nonzero(can)
        model.rows("assign", n, [(j, x[j, i], 1.0)], lower=1, upper=1, labels=(names,))  # (1)
        model.rows("slots", d, [(i, x[j, i], 1.0)], upper=_slots(instance), labels=(instance.device_names,))  # (2)
        model.rows(
            "slowest_of", n, [(j, x[j, i], jobs.time[j, i]), (np.arange(n), top, -1.0)], upper=0, labels=(names,)
        )  # (3)
        model.minimize(top)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each job on the device with the largest x."""
        return jobs_of(instance).solution(np.argmax(x[model.columns("x")], axis=1))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x and T of a plan."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        jobs = jobs_of(instance)
        placement = jobs.placement(solution)
        point = np.zeros(model.n_columns)
        point[model.columns("x")[np.arange(len(placement)), placement]] = 1.0
        point[model.columns("slowest")] = jobs.time[np.arange(len(placement)), placement].max()
        return point


class Bottleneck(Problem):
    """Bottleneck assignment with slots, eligibility and groups."""

    name = "assignment.bottleneck"
    objectives = ("bottleneck",)
    title = "each job on one device with few slots, the slowest job as fast as possible"
    uses = frozenset({"time", "group", "pin", "forbid", "slots"})
    methods = (Threshold(), MILP(), Relaxed(MILP(), "(1)-(3)"))

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Largest time of a job where it is placed."""
        violations = list(placement_violations(instance, solution.placement, limits=False))
        placement = solution.placement
        if placement is None or placement.shape != (instance.n_tasks,):
            return Evaluation(math.inf, tuple(violations))
        jobs = jobs_of(instance)
        used = jobs.placement(solution)
        held = np.bincount(used[used >= 0], minlength=instance.n_devices)
        for i in np.flatnonzero(held > _slots(instance)).tolist():
            name, slots = instance.device_names[i], instance.devices[i].slots
            violations.append(f"device {name!r} holds {held[i]} jobs and has {slots} slots: {held[i] - slots} too many")
        valid = (used >= 0) & (used < instance.n_devices)
        times = np.where(valid, jobs.time[np.arange(len(used)), np.where(valid, used, 0)], np.inf)
        slowest = np.zeros(instance.n_devices)
        np.maximum.at(slowest, used[valid], times[valid])
        return Evaluation(
            float(times.max()), tuple(violations), {"devices": device_details(instance, placement, slowest)}
        )

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """Jobs that compete for too few slots (Hall's condition at its simplest, and by a matching)."""
        jobs = jobs_of(instance)
        return _too_few(instance, jobs)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays Hall violators and linear duals."""
        if certificate.get("kind") == "hall":
            return _replay(instance, certificate)
        return super().replay(instance, question, certificate)

    def sample(self, seed: int) -> Instance:
        """Up to five jobs on up to four devices with one or two slots."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        times = rng.integers(0, 15, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.2) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        devices = [Device(name=f"d{i}", slots=int(rng.integers(1, 4))) for i in range(d)]
        jobs = [
            Job(
                name=f"j{j}",
                time=[None if np.isinf(t) else t for t in times[j].tolist()],
                group="g" if rng.random() < 0.2 else None,
            )
            for j in range(n)
        ]
        return Instance.build(devices, jobs, question={"objective": self.name})


def _slots(instance: Instance) -> NDArray[np.int64]:
    return np.array([device.slots for device in instance.devices], np.int64)


def _replay(instance: Instance, certificate: Mapping[str, Any]) -> float:
    from hetopt.algorithms.bottleneck import bottleneck_bound

    proved = bottleneck_bound(jobs_of(instance).time, np.asarray(certificate["jobs"], np.int64), _slots(instance))
    if not math.isfinite(proved):
        raise ValueError("the jobs listed by the certificate prove nothing")
    return proved


def _too_few(instance: Instance, jobs: Jobs) -> tuple[str, ...]:
    from hetopt.algorithms.bottleneck import bottleneck_assignment

    can = np.isfinite(jobs.time)
    if not can.any(axis=1).all():
        j = int(np.flatnonzero(~can.any(axis=1))[0])
        return (f"no device can run all tasks of {job_names(instance, jobs)[j]!r}, which must share one",)
    n, slots = len(jobs.count), int(_slots(instance).sum())
    if n > slots:
        return (f"there are {n} jobs and {slots} slots: {n - slots} slots short",)
    try:
        bottleneck_assignment(np.where(can, 0.0, np.inf), _slots(instance))
    except ValueError as error:
        return (str(error),)
    return ()


PROBLEM = Bottleneck()
