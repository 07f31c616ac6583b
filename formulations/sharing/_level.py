"""Questions that the least level decides: gains (n, m) of a job's time, and shares that make ``min_i sum_j a_ij x_ij`` large.

Max-min fairness and the makespan of a batch are such questions; water filling and finish times build on the same sums.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import SharingProblem, cluster_of, dense, isolated, tidy
from formulations.sharing._prices import checked, most
from formulations.sharing._stated import Stated, limits
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance

__all__ = ["Barrier", "LevelProblem", "most_even"]

Floats = NDArray[np.float64]


class LevelProblem(SharingProblem):
    """A question whose value is a function of the least level."""

    @abstractmethod
    def gains(self, instance: Instance, question: Question) -> Floats:
        """(n, m) level that all its time on a type gives a job, 0 where it cannot run."""

    @abstractmethod
    def of_level(self, level: float) -> float:
        """The value when the least level is this; a better level is a better value."""

    def measure(self, instance: Instance, question: Question, rate: Floats, shares: Floats) -> float:
        """Value of the worst job's level."""
        return self.of_level(float((self.gains(instance, question) * shares).sum(axis=1).min()))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays prices: for every plan, sum_i u_i times the least level is at most what they leave."""
        if certificate.get("kind") != "prices":
            return super().replay(instance, question, certificate)
        u, p = checked(cluster_of(instance), certificate["jobs"], certificate["types"])
        return self.of_level(
            most(cluster_of(instance), self.gains(instance, question), u, p) / float(u.sum()) * (1 + 1e-12)
        )

    def optimum(self, instance: Instance, question: Question) -> Floats | None:
        """By scipy, from the definition."""
        return most_even(instance, self.gains(instance, question))

    def stated(self, instance: Instance, question: Question) -> Stated:
        """The greatest least level, in units of the even division's."""
        import cvxpy as cp

        cluster, gain = cluster_of(instance), self.gains(instance, question)
        unit = float((gain * isolated(cluster)).sum(axis=1).min())
        x = cp.Variable(gain.shape, nonneg=True)
        level = cp.min(cp.sum(cp.multiply(gain / unit, x), axis=1))
        return Stated(
            cp.Maximize(level), limits(cluster, x), lambda: np.asarray(x.value), lambda t: self.of_level(t * unit)
        )


class Barrier(Method):
    """The program by an interior point method of its own."""

    name = "barrier"
    title = "interior point method on each job's own block, O(n m^2) an iteration; proof by prices, replayed"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan, one proof."""
        from hetopt.algorithms.share_barrier import share

        problem: LevelProblem = question.problem  # type: ignore[assignment]
        cluster, gain = cluster_of(instance), problem.gains(instance, question)
        one, zero = np.ones(len(gain)), np.zeros(len(gain))
        start = 0.1 * float(gain.max(axis=1).min()) * min(1.0, float(cluster.workers.sum() / cluster.scale.sum()))
        found = share(
            gain, cluster.scale, cluster.workers, lambda t: (-t * one, -one, zero), -start, stop=control.should_stop
        )
        if found is None:
            return Outcome("limit", "time" if control.should_stop() else "other")
        control.report_plan(tidy(instance, found.x))
        question.prove(
            instance, control, {"kind": "prices", "jobs": found.jobs.tolist(), "types": found.types.tolist()}
        )
        return Outcome(statistics={"iterations": found.iterations})


def most_even(instance: Instance, gain: Floats) -> Floats | None:
    """(n, m) shares x that maximise min_i sum_j gain_ij x_ij, by a dense program; for tests and tiny instances."""
    from scipy.optimize import linprog

    cluster = cluster_of(instance)
    n, m = gain.shape
    limits, most = dense(cluster, 1)
    level = np.zeros((n, n * m + 1))
    for i in range(n):
        level[i, i * m : (i + 1) * m] = -gain[i]
    level[:, -1] = 1.0
    cost = np.zeros(n * m + 1)
    cost[-1] = -1.0
    bounds = [(0, 1 if good else 0) for good in (cluster.rate > 0).ravel().tolist()] + [(0, None)]
    found = linprog(
        cost, np.vstack([limits, level]), np.concatenate([most, np.zeros(n)]), bounds=bounds, method="highs-ds"
    )
    return np.asarray(found.x[:-1]).reshape(n, m) if found.status == 0 else None
