r"""Makespan of a batch by time shares: all jobs done as early as possible, in one linear program.

Data as in :mod:`formulations.sharing.max_min`; n_i steps left of job i. With z_ij = C x_ij, seconds of job i on type j,

    minimise    C                                                                       (makespan)
    subject to  sum_j T_ij z_ij >= n_i              for each job i                      (1)  done
                sum_j z_ij <= C                     for each job i                      (2)  turns
                sum_i s_i z_ij <= C_j C             for each type j                     (3)  workers

With ``agnostic`` T_ij is the job's fastest rate wherever it can run. ``barrier`` maximises 1 / C, the least part of its work that
a job does in a second, as max-min fairness does with T_ij / n_i for a_ij, with the same proof. Published code bisects on C with a
feasibility program a step and stops some per cent above the optimum; (1)-(3) is exact. The shares x = z / C are kept up until
time C (a round-based scheduler follows them on average).

Source: as for max-min fairness; the program without bisection is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._baselines import Even, Proportional
from formulations.sharing._cluster import AGNOSTIC, Cluster, cluster_of, polytope, seen, spread, tidy
from formulations.sharing._level import Barrier, LevelProblem
from formulations.sharing._stated import Convex
from hetopt.formulation import LinearFormulation, Question, Step
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["LP", "PROBLEM", "Makespan"]


class LP(LinearFormulation):
    """(1)-(3)."""

    name = "lp"
    title = "LP (1)-(3), exact"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Each pair stands in three rows."""
        return 3 * int(instance.eligible.sum())

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``makespan`` and ``share[job@type]`` (seconds, in units of the longest job alone)."""
        cluster = seen(cluster_of(instance), question)
        unit, most = _scales(cluster)
        model = LinearModel("sharing-makespan")
        c = model.continuous("makespan", 1, lower=0, upper=most)
        z = polytope(model, instance, room=c, most=most)  # (2), (3)
        n = len(cluster.rate)
        need = cluster.steps / unit
        rows = [(cluster.job, z, cluster.rate[cluster.job, cluster.kind] / need[cluster.job])]
        model.rows("done", n, rows, lower=1, labels=(instance.labels,))  # (1)
        model.minimize(c, unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Shares, z / C."""
        room = float(x[model.columns("makespan")[0]])
        return tidy(instance, spread(instance, x[model.columns("share")]) / max(room, 1e-300))


def _scales(cluster: Cluster) -> tuple[float, float]:
    """Seconds per unit of the model (the longest job alone on its fastest type), and a makespan that some plan has."""
    alone = cluster.steps / cluster.rate.max(axis=1)
    unit = float(2.0 ** np.frexp(alone.max())[1])
    # One after the other on its fastest type, each type's workers at least once.
    tight = np.maximum(cluster.scale / cluster.workers[cluster.rate.argmax(axis=1)], 1.0)
    return unit, float((alone * tight).sum() / unit) * (1 + 1e-9)


class Makespan(LevelProblem):
    """The question."""

    name = "sharing.makespan"
    objectives = ("sharing-makespan",)
    title = "time shares of a cluster, all jobs done as early as possible"
    unit = "seconds"
    uses = frozenset({"time", "scale", "slots", "steps"})
    needs_steps = True
    options = (AGNOSTIC,)
    methods = (Barrier(), LP(), Convex(), Even(), Proportional())

    def gains(self, instance: Instance, question: Question) -> NDArray[np.float64]:
        """Parts of its work that a job does in a second: T / n."""
        cluster = seen(cluster_of(instance), question)
        return cluster.rate / cluster.steps[:, None]

    def of_level(self, level: float) -> float:
        """Seconds until the last job is done."""
        return 1.0 / level if level > 0 else float("inf")

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The program job by job; a second solver where the first does not end."""
        return (Step("barrier", "exact, job by job"), Step("lp", "a linear program"))


PROBLEM = Makespan()
