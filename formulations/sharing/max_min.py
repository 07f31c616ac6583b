r"""Max-min fairness: the job that is worst off, in units of its fair share, gets as much as it can.

Sets and data
    i = 1..n jobs, j = 1..m types of C_j workers;  T_ij steps a second, s_i workers that job i takes, w_i its priority
    p_i = sum_j T_ij C_j / sum_j C_j              steps a second of a proportional share
    a_ij = s_i T_ij / (w_i p_i)                   (with ``agnostic``: T_ij the same wherever the job can run)

Variables
    x_ij in [0, 1]  share of time of job i on type j;     t  level of the worst job

Maximise t subject to

    sum_j a_ij x_ij >= t                for each job i                                  (1)  level
    sum_j x_ij <= 1                     for each job i                                  (2)  turns
    sum_i s_i x_ij <= C_j               for each type j                                 (3)  workers

A linear program, solved by interior point methods (the simplex method is many times slower on these): ``barrier`` is this
project's own (:mod:`hetopt.algorithms.share_barrier`), ``lp`` hands it to a solver. For any prices u, p >= 0 of (1) and (3),

    t sum_i u_i <= sum_i max_j (u_i a_ij - s_i p_j)^+ + sum_j p_j C_j,

the stored proof of the first; that of the second are all duals. ``classes`` solves it for jobs that are alike (same rates, scale
and weight) at once: by convexity the average over alike jobs of any optimum is an optimum, so their shares may be taken equal. A
value holds for the question asked: with ``agnostic`` levels are counted in time, not steps.

Source: D. Narayanan, K. Santhanam, F. Kazhamiaka, A. Phanishayee, M. Zaharia, Heterogeneity-aware cluster scheduling policies
for deep learning workloads, OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._baselines import Even, Proportional
from formulations.sharing._cluster import AGNOSTIC, Cluster, cluster_of, polytope, proportional, seen, spread, tidy
from formulations.sharing._level import Barrier, LevelProblem
from formulations.sharing._stated import Convex
from hetopt.control import Control
from hetopt.formulation import LinearFormulation, Method, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["LP", "PROBLEM", "Classes", "MaxMin", "levels"]


def levels(cluster: Cluster, question: Question | None) -> NDArray[np.float64]:
    """(n, m) level that all its time on a type gives a job, a."""
    cluster = seen(cluster, question)
    return np.asarray(cluster.rate * (cluster.scale / (cluster.weight * proportional(cluster)))[:, None])


class LP(LinearFormulation):
    """(1)-(3)."""

    name = "lp"
    title = "LP (1)-(3) by an interior point method, proof by its duals"
    kind = "exact"
    default_native: ClassVar[Mapping[str, Any]] = {"solver": "ipm"}

    def size(self, instance: Instance, question: Question) -> int:
        """Each share stands in three rows."""
        return 3 * int(instance.eligible.sum())

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``share[job@type]`` and ``level``."""
        cluster = cluster_of(instance)
        a = levels(cluster, question)
        model = LinearModel("max-min")
        x = polytope(model, instance)  # (2), (3)
        most = float(a.max(axis=1).min())
        t = model.continuous("level", 1, lower=0, upper=most * (1 + 1e-9))
        n = len(a)
        rows: list[Any] = [
            (cluster.job, x, a[cluster.job, cluster.kind]),
            (np.arange(n), np.broadcast_to(t, (n,)), -1.0),
        ]
        model.rows("level", n, rows, lower=0, labels=(instance.labels,))  # (1)
        model.maximize(t)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The shares."""
        return tidy(instance, spread(instance, x[model.columns("share")]))


class Classes(Method):
    """(1)-(3) for classes of alike jobs."""

    name = "classes"
    title = "LP (1)-(3) over classes of alike jobs, exact by symmetry; proof by duals for all jobs"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """There are alike jobs."""
        cluster = cluster_of(instance)
        count = len(np.unique(_alike(cluster), axis=0))
        return (
            None
            if 2 * count <= len(cluster.rate)
            else f"{len(cluster.rate)} jobs are of {count} kinds; too few are alike"
        )

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One small linear program; shares and duals are handed to every member."""
        from hetopt import solvers
        from hetopt.verify.bounds import lp_dual_certificate, replay_lp_dual

        cluster = cluster_of(instance)
        rows, of, count = np.unique(_alike(cluster), axis=0, return_inverse=True, return_counts=True)
        of = of.ravel()
        first = np.array([np.flatnonzero(of == c)[0] for c in range(len(rows))])
        a = levels(cluster, question)[first]
        c, j = np.nonzero(cluster.rate[first])
        model = LinearModel("max-min-classes")
        x = model.continuous("share", len(c), lower=0, upper=1)
        t = model.continuous("level", 1, lower=0)
        k = len(rows)
        model.rows("level", k, [(c, x, a[c, j]), (np.arange(k), np.broadcast_to(t, (k,)), -1.0)], lower=0)
        model.rows("turns", k, [(c, x, 1.0)], upper=1)
        model.rows("workers", len(cluster.workers), [(j, x, (cluster.scale[first] * count)[c])], upper=cluster.workers)
        model.maximize(t)
        answer = solvers.get("highs").solve(model, solvers.Options(time_limit=None), control)
        if answer.x is None or answer.row_dual is None:
            return Outcome("limit", "other")
        share = np.zeros((k, len(cluster.workers)))
        share[c, j] = answer.x[model.columns("share")]
        control.report_plan(tidy(instance, share[of]))
        # A class's dual is shared by its members: rows (1) and (2) of the full program, (3) as it is.
        full = LP().build(instance, question)
        dual = np.zeros(full.n_rows)
        dual[full.rows_of("level")] = (answer.row_dual[model.rows_of("level")] / count)[of]
        dual[full.rows_of("turns")] = (answer.row_dual[model.rows_of("turns")] / count)[of]
        dual[full.rows_of("workers")] = answer.row_dual[model.rows_of("workers")]
        certificate = lp_dual_certificate("lp", dual)
        control.report_bound(replay_lp_dual(full, certificate), "replayed", certificate)
        return Outcome(solver=f"{answer.solver} {answer.version}", statistics={"classes": k})


def _alike(cluster: Cluster) -> NDArray[np.float64]:
    return np.column_stack([cluster.rate, cluster.scale, cluster.weight])


class MaxMin(LevelProblem):
    """The question."""

    name = "sharing.max_min"
    objectives = ("max-min-fairness", "las")
    title = "time shares of a cluster, the worst-off job as well off as possible"
    sense = "max"
    unit = "of a proportional share"
    options = (AGNOSTIC,)
    methods = (LP(), Classes(), Barrier(), Convex(), Even(), Proportional())

    def gains(self, instance: Instance, question: Question) -> NDArray[np.float64]:
        """a."""
        return levels(cluster_of(instance), question)

    def of_level(self, level: float) -> float:
        """The level itself."""
        return level

    def fits(self, instance: Instance) -> str | None:
        """As the family, and every weight above 0."""
        own = super().fits(instance)
        if own is None and (instance.columns.weight <= 0).any():
            return "a job has the weight 0; its level would never count"
        return own

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Classes where jobs are alike, else the program job by job; a second solver where the first does not end."""
        if self.method("classes").fits(instance, question) is None:
            return (Step("classes", "many jobs are alike"),)
        return (Step("barrier", "exact, job by job"), Step("lp", "a linear program"))


PROBLEM = MaxMin()
