r"""Max-min fairness: the job that is worst off, in units of its fair share, gets as much as it can.

Sets and data
    i = 1..n jobs, j = 1..m types of C_j workers;  T_ij steps a second, s_i workers that job i takes, w_i its priority
    p_i = sum_j T_ij C_j / sum_j C_j              steps a second of a proportional share
    a_ij = s_i T_ij / (w_i p_i)                   (with ``agnostic``: T_ij = 1 wherever the job can run)

Variables
    x_ij in [0, 1]  share of time of job i on type j;     t  level of the worst job

Maximise t subject to

    sum_j a_ij x_ij >= t                for each job i                                  (1)  level
    sum_j x_ij <= 1                     for each job i                                  (2)  turns
    sum_i s_i x_ij <= C_j               for each type j                                 (3)  workers

A linear program, solved by an interior point method (the simplex method is many times slower on these); its duals are the
stored proof. ``classes`` solves it for jobs that are alike (same rates, scale and weight) at once: by convexity the average
over alike jobs of any optimum is an optimum, so their shares may be taken equal. A value holds for the question asked: with
``agnostic`` levels are counted in time, not steps.

Source: D. Narayanan, K. Santhanam, F. Kazhamiaka, A. Phanishayee, M. Zaharia, Heterogeneity-aware cluster scheduling policies
for deep learning workloads, OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import (
    Cluster,
    SharingProblem,
    cluster_of,
    dense,
    isolated,
    polytope,
    proportional,
    spread,
    tidy,
)
from hetopt.control import Control
from hetopt.formulation import LinearFormulation, Method, Option, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["LP", "PROBLEM", "Classes", "Convex", "Even", "MaxMin", "levels", "most_even"]


def levels(cluster: Cluster, agnostic: bool) -> NDArray[np.float64]:
    """(n, m) level that all its time on a type gives a job, a."""
    if agnostic:
        cluster = cluster._replace(rate=np.where(cluster.rate > 0, 1.0, 0.0))
    return np.asarray(cluster.rate * (cluster.scale / (cluster.weight * proportional(cluster)))[:, None])


def _agnostic(question: Question | None) -> bool:
    return bool(question is not None and question["agnostic"])


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
        a = levels(cluster, _agnostic(question))
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
        a = levels(cluster, _agnostic(question))[first]
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


class Convex(Method):
    """(1)-(3) in cvxpy's words."""

    name = "cvxpy"
    title = "(1)-(3) stated in cvxpy, for reading and as a second opinion"
    kind = "exact"
    engine = "convex"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """State, solve, report; the bound is the solver's word."""
        import cvxpy as cp

        from hetopt.solvers.cvxpy import solve_problem

        cluster = cluster_of(instance)
        if control.should_stop():
            return Outcome("limit", "time")
        a = levels(cluster, _agnostic(question))
        x = cp.Variable(cluster.rate.shape, nonneg=True)
        level = cp.min(cp.sum(cp.multiply(a, x), axis=1))  # (1)
        limits = [cp.sum(x, axis=1) <= 1, cluster.scale @ x <= cluster.workers]  # (2), (3)
        answer = solve_problem(cp.Problem(cp.Maximize(level), limits), None, control)
        if x.value is not None:
            control.report_plan(tidy(instance, np.asarray(x.value)))
        if answer.reason == "optimal" and answer.bound is not None:
            control.report_bound(answer.bound + 5e-7 * abs(answer.bound), "solver")
        return Outcome(solver=f"cvxpy {answer.version}")


class Even(Method):
    """The cluster divided evenly."""

    name = "isolated"
    title = "every job the same part of every type; baseline"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan."""
        control.report_plan(tidy(instance, isolated(cluster_of(instance))))
        return Outcome()


class MaxMin(SharingProblem):
    """The question."""

    name = "sharing.max_min"
    objectives = ("max-min-fairness", "las")
    title = "time shares of a cluster, the worst-off job as well off as possible"
    sense = "max"
    options = (Option("agnostic", bool, False, "count time, not steps: a share of any type is worth the same"),)
    methods = (LP(), Classes(), Convex(), Even())

    def measure(
        self, instance: Instance, question: Question, rate: NDArray[np.float64], shares: NDArray[np.float64]
    ) -> float:
        """Level of the worst job."""
        cluster = cluster_of(instance)
        if _agnostic(question):
            return float((levels(cluster, True) * shares).sum(axis=1).min())
        return float((rate * cluster.scale / (cluster.weight * proportional(cluster))).min())

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Classes where jobs are alike, else the program itself."""
        if self.method("classes").fits(instance, question) is None:
            return (Step("classes", "many jobs are alike"),)
        return (Step("lp", "a linear program"),)

    def optimum(self, instance: Instance, question: Question) -> NDArray[np.float64] | None:
        """By scipy, from the definition."""
        return most_even(instance, levels(cluster_of(instance), _agnostic(question)))


def most_even(instance: Instance, gain: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """(n, m) shares x that maximise min_i sum_j gain_ij x_ij, by a dense program."""
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


PROBLEM = MaxMin()
