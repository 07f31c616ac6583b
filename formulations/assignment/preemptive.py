"""R|pmtn|Cmax: jobs that may be interrupted and go on elsewhere, the last one done as early as possible.

Sets and data
    j in J      jobs (independent tasks)
    i in M      devices
    p_ij        seconds of the whole job j on device i, absent where it cannot run

Variables
    x_ij >= 0   share of job j done on device i
    C >= 0      makespan

Minimise C subject to

    sum_i x_ij = 1                  for each job j                                      (1)  done
    sum_j p_ij x_ij <= C            for each device i                                   (2)  busy
    sum_i p_ij x_ij <= C            for each job j                                      (3)  alone

A job never runs on two devices at once, and moving it costs nothing. (1)-(3) are necessary, and sufficient: an open shop with
the times p_ij x_ij has a preemptive schedule as long as its longest device or job (Gonzalez and Sahni 1976), found by peeling
off matchings. A plan lists its pieces: ``details.pieces`` holds (task, device, start, stop).

For weights u, v >= 0 every schedule has C >= sum_j min_i (u_i + v_j) p_ij / (sum u + sum v); that proof is replayed.

Sources: E. Lawler, J. Labetoulle, On preemptive scheduling of unrelated parallel processors by linear programming, JACM 25
(1978); T. Gonzalez, S. Sahni, Open shop scheduling to minimize finish time, JACM 23 (1976). The optimum is at least a quarter
of the makespan without preemption (J. Correa, M. Skutella, J. Verschae 2012).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hetopt.control import Control
from hetopt.formulation import Evaluation, LinearFormulation, Method, Outcome, Problem, Question, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.pieces import check_pieces

__all__ = ["LP", "PROBLEM", "OpenShop", "Preemptive"]


class OpenShop(Method):
    """The linear program by column generation, then matchings of the open shop."""

    name = "open-shop"
    title = "Lawler-Labetoulle linear program and open-shop schedule; exact, bound replayed"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Shares, schedule, and the weights that prove it."""
        from hetopt.algorithms.preemptive import lawler_labetoulle

        answer = lawler_labetoulle(instance.time)
        certificate = {
            "kind": "weights",
            "machines": answer.machine_weights.tolist(),
            "jobs": answer.job_weights.tolist(),
        }
        control.report_bound(_replay(instance, certificate), "replayed", certificate)
        done = answer.schedule
        rows = zip(done.job.tolist(), done.machine.tolist(), done.start.tolist(), done.stop.tolist(), strict=True)
        pieces = [[instance.labels[j], instance.device_names[i], a, b] for j, i, a, b in rows]
        control.report_plan(Solution(details={"pieces": pieces}))
        return Outcome(statistics={"pieces": len(pieces), "preemptions": done.preemptions})


class LP(LinearFormulation):
    """(1)-(3) as it stands; its optimum is the optimum."""

    name = "lp"
    title = "linear program (1)-(3); its value is the optimum, replayed without a solver"
    kind = "relaxation"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Model (1)-(3); columns ``x[task,device]`` and ``makespan``."""
        n, d = instance.time.shape
        can = instance.eligible
        model = LinearModel("preemptive")
        x = model.continuous("x", (n, d), upper=can, labels=(instance.labels, instance.device_names))
        slowest = float(np.where(can, instance.time, 0.0).max(axis=1).sum())
        c = model.continuous("makespan", upper=slowest)
        j, i = np.nonzero(can)
        time = instance.time[j, i]
        model.rows("done", n, [(j, x[j, i], 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        model.rows(
            "busy", d, [(i, x[j, i], time), (np.arange(d), c, -1.0)], upper=0, labels=(instance.device_names,)
        )  # (2)
        model.rows("alone", n, [(j, x[j, i], time), (np.arange(n), c, -1.0)], upper=0, labels=(instance.labels,))  # (3)
        model.minimize(c)
        return model


class Preemptive(Problem):
    """Preemptive makespan of independent jobs."""

    name = "assignment.preemptive"
    objectives = ("preemptive-makespan",)
    title = "last job done as early as possible when jobs may be interrupted and moved (R|pmtn|Cmax)"
    uses = frozenset({"time", "pin", "forbid"})
    methods = (OpenShop(), LP())

    def fits(self, instance: Instance) -> str | None:
        """Jobs are independent."""
        return "tasks depend on each other by edges" if len(instance.edges) else None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Latest stop of a piece; every job done, no device and no job in two places at once."""
        pieces = solution.details.get("pieces")
        if pieces is None:
            return Evaluation(math.inf, ("the plan has no details.pieces: a list of [task, device, start, stop]",))
        value, violations, busy = check_pieces(instance, pieces)
        devices = {name: {"load": load} for name, load in zip(instance.device_names, busy, strict=True)}
        return Evaluation(value, violations, {"devices": devices, "pieces": len(pieces)})

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays weights of devices and jobs, and linear duals."""
        if certificate.get("kind") == "weights":
            return _replay(instance, certificate)
        return super().replay(instance, question, certificate)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Preemptive plans cannot be listed; jobs one after the other are valid, the program's own plan is the best."""
        from hetopt.control import Control

        start, pieces = 0.0, []
        for k, label in enumerate(instance.labels):
            i = int(np.argmin(instance.time[k]))
            pieces.append([label, instance.device_names[i], start, start + instance.time[k, i]])
            start += float(instance.time[k, i])
        yield Solution(details={"pieces": pieces})
        control = Control(judge=lambda plan: self.evaluate(instance, question, plan).value)
        self.method("open-shop").run(instance, question, control, RunOptions())
        yield control.plan


def _replay(instance: Instance, certificate: Mapping[str, Any]) -> float:
    from hetopt.algorithms.preemptive import preemptive_bound

    return preemptive_bound(instance.time, certificate["machines"], certificate["jobs"])


PROBLEM = Preemptive()
