r"""Shortest job first: the job that can be done first is done as early as it can be, then the next, each on what is left.

Data as in :mod:`formulations.sharing.max_min`; n_i steps left of job i.

    minimise    min_i  n_i / sum_j T_ij x_ij                                            (shortest-job-first)
    subject to  sum_j x_ij <= 1                         for each job i                  (1)  turns
                sum_i s_i x_ij <= C_j                   for each type j                 (2)  workers

The published aim says nothing of any job but one, so it has a closed form: b_i, the most steps a second that job i can have in an
empty cluster, takes its types fastest first, min(1, C_j / s_i) of its time on each, until its time is spent; the optimum is
min_i n_i / b_i, which the replay sums up again. ``greedy`` gives every job in turn, shortest n_i / b_i first, ties by name, the
most that is left in the same way, so that nothing stands idle for the aim's sake.

Source: Narayanan et al., OSDI 2020 (the aim). The filling of what is left is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._baselines import Even, Proportional
from formulations.sharing._cluster import SharingProblem, alone, cluster_of, dense
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["PROBLEM", "Greedy", "ShortestFirst"]

Floats = NDArray[np.float64]
ROUNDING = 1e-12


def taken(rate: Floats, most: Floats) -> Floats:
    """(m,) shares of one job, fastest types first, at most ``most`` (m,) of each and its whole time; rate (m,)."""
    order = np.argsort(-rate, kind="stable")
    part = np.where(rate > 0, np.minimum(most, 1.0), 0.0)[order]
    before = np.concatenate([[0.0], np.cumsum(part)[:-1]])
    share = np.zeros(len(rate))
    share[order] = np.clip(1.0 - before, 0.0, part)
    return share


class Greedy(Method):
    """Every job in turn as much as is left, the shortest first."""

    name = "greedy"
    title = "each job in turn, shortest first, fastest types first; exact, the bound in closed form"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass."""
        cluster = cluster_of(instance)
        length = cluster.steps / alone(cluster)
        left, shares = cluster.workers.copy(), np.zeros(cluster.rate.shape)
        for done, i in enumerate(sorted(range(len(length)), key=lambda i: (length[i], instance.labels[i]))):
            if not left.any() or (done % 1000 == 0 and control.should_stop()):
                break
            shares[i] = taken(cluster.rate[i], left / cluster.scale[i])
            left = np.maximum(0.0, left - cluster.scale[i] * shares[i])
        if shares.any():
            control.report_plan(Solution(shares=shares))
        question.prove(instance, control, {"kind": "alone"})
        return Outcome("limit", "time") if control.should_stop() and not control.closed else Outcome()


class ShortestFirst(SharingProblem):
    """The question."""

    name = "sharing.shortest"
    objectives = ("shortest-job-first", "sjf")
    title = "time shares of a cluster, the shortest job done as early as possible, then the next"
    unit = "seconds"
    uses = frozenset({"time", "scale", "slots", "steps"})
    needs_steps = True
    methods = (Greedy(), Even(), Proportional())

    def measure(self, instance: Instance, question: Question, rate: Floats, shares: Floats) -> float:
        """Seconds until the first job is done."""
        with np.errstate(divide="ignore"):
            return float((cluster_of(instance).steps / rate).min())

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """The least time of any job in an empty cluster, summed up from the instance alone."""
        if certificate.get("kind") != "alone":
            return super().replay(instance, question, certificate)
        cluster = cluster_of(instance)
        return float((cluster.steps / alone(cluster)).min()) * (1 - ROUNDING)

    def optimum(self, instance: Instance, question: Question) -> Floats | None:
        """A linear program for each job alone, by scipy."""
        from scipy.optimize import linprog

        cluster = cluster_of(instance)
        rows, right = dense(cluster)
        best, shares = np.inf, None
        for i in range(len(cluster.rate)):
            gain = np.zeros(cluster.rate.shape)
            gain[i] = cluster.rate[i]
            found = linprog(-gain.ravel(), rows, right, method="highs-ds")
            if -found.fun > 0 and cluster.steps[i] / -found.fun < best:
                best, shares = cluster.steps[i] / -found.fun, np.asarray(found.x).reshape(gain.shape)
        return shares


PROBLEM = ShortestFirst()
