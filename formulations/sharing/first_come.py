r"""First in, first out: earlier jobs run where they are fastest, later ones on what is left.

Data as in :mod:`formulations.sharing.max_min`; f_i = max_j T_ij. v_i = n for the job that was released first, n - 1
for the next, and so on; jobs that arrived together have the mean of theirs.

    maximise    sum_i v_i / f_i  sum_j T_ij x_ij                                  (first-in-first-out)
    subject to  sum_j x_ij <= 1                         for each job i                  (1)  turns
                sum_i s_i x_ij <= C_j                   for each type j                 (2)  workers

A linear program. An earlier job weighs more, but does not go before a later one at any price: with more than two jobs a late
one on an idle type may outweigh the loss of an early one that is slowed down a little.

Source: Narayanan et al., OSDI 2020 (first in, first out as a linear objective).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._baselines import Even, Proportional
from formulations.sharing._cluster import SharingProblem, cluster_of, dense, isolated, polytope, spread, tidy
from formulations.sharing._stated import Convex, Stated, limits
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Job
from hetopt.solution import Solution

__all__ = ["LP", "PROBLEM", "FirstCome"]

Floats = NDArray[np.float64]


def worth(instance: Instance) -> Floats:
    """(n,) what a step a second of each job counts for."""
    release = instance.columns.release[instance.job_of]
    ordered = np.sort(release)
    rank = (np.searchsorted(ordered, release, "left") + 1 + np.searchsorted(ordered, release, "right")) / 2
    return np.asarray((len(release) - rank + 1) / cluster_of(instance).rate.max(axis=1))


class LP(LinearFormulation):
    """(1), (2)."""

    name = "lp"
    title = "LP (1), (2), exact"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Each pair stands in two rows."""
        return 2 * int(instance.eligible.sum())

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``share[job@type]``."""
        cluster = cluster_of(instance)
        model = LinearModel("first-come")
        x = polytope(model, instance)  # (1), (2)
        model.maximize(x, (worth(instance)[:, None] * cluster.rate)[cluster.job, cluster.kind])
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The shares."""
        return tidy(instance, spread(instance, x[model.columns("share")]))


class FirstCome(SharingProblem):
    """The question."""

    name = "sharing.first_come"
    objectives = ("first-in-first-out",)
    title = "time shares of a cluster, earlier jobs where they are fastest"
    sense = "max"
    uses = frozenset({"time", "scale", "slots", "release"})
    methods = (LP(), Convex(), Even(), Proportional())

    def measure(self, instance: Instance, question: Question, rate: Floats, shares: Floats) -> float:
        """Rates in units of the fastest, weighed by arrival."""
        return float(worth(instance) @ rate)

    def stated(self, instance: Instance, question: Question) -> Stated:
        """(1), (2)."""
        import cvxpy as cp

        cluster = cluster_of(instance)
        x = cp.Variable(cluster.rate.shape, nonneg=True)
        gain = worth(instance)[:, None] * cluster.rate
        unit = float((gain * isolated(cluster)).sum())
        value = cp.sum(cp.multiply(gain / unit, x))
        return Stated(cp.Maximize(value), limits(cluster, x), lambda: np.asarray(x.value), lambda v: v * unit)

    def optimum(self, instance: Instance, question: Question) -> Floats | None:
        """By scipy, from the definition."""
        from scipy.optimize import linprog

        rate = cluster_of(instance).rate
        limits, most = dense(cluster_of(instance))
        bounds = [(0, 1 if good else 0) for good in (rate > 0).ravel().tolist()]
        found = linprog(-(worth(instance)[:, None] * rate).ravel(), limits, most, bounds=bounds, method="highs-ds")
        return np.asarray(found.x).reshape(rate.shape) if found.status == 0 else None

    def sample(self, seed: int) -> Instance:
        """As the family's, with arrivals."""
        import msgspec

        made, rng = super().sample(seed), np.random.default_rng([seed, 1])
        jobs: list[Job] = [msgspec.structs.replace(job, release=int(rng.integers(0, 5))) for job in made.jobs()]
        return Instance.build(made.devices, jobs, question={"objective": "first-in-first-out"})


PROBLEM = FirstCome()
