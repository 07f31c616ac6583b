r"""Finish-time fairness: no job should finish much later than it would in its own part of the cluster.

Data as in :mod:`formulations.sharing.max_min`; n_i steps left; e_i seconds since job i arrived (``now`` less ``release``); I_i
steps a second in an even division of the cluster; b_i seconds that what it has done would have taken there (``tables.isolated``,
by job; e_i where it is silent). D_i = b_i + n_i / I_i is how long job i would take by itself.

    minimise    rho                                                                     (finish-time-fairness)
    subject to  e_i + n_i / (sum_j T_ij x_ij) <= rho D_i    for each job i              (1)  finish
                sum_j x_ij <= 1                             for each job i              (2)  turns
                sum_i s_i x_ij <= C_j                       for each type j             (3)  workers

With ``agnostic`` T_ij is the job's fastest rate wherever it can run.

With r_i = (sum_j T_ij x_ij) / I_i and q_i >= 1 / r_i this is a second-order cone program: (2, q_i - r_i) has a norm of at most
q_i + r_i, and e_i / D_i + n_i / (I_i D_i) q_i <= rho. ``cone`` hands it to a conic solver as sparse arrays, ``cvxpy`` states it
in one line. ``barrier`` (:mod:`hetopt.algorithms.share_barrier`) needs no q: (1) asks each r_i to reach a height that is convex
in rho, and its Newton steps fall into one small block a job.

Proof. For any u, p >= 0, every x within (2), (3) has  sum_i u_i r_i <= sum_i max_j (u_i T_ij / I_i - s_i p_j)^+ + sum_j p_j C_j,
while (1) asks for r_i >= (n_i / (I_i D_i)) / (rho - e_i / D_i). A rho for which the second would exceed the first is too small;
the largest such rho is the bound, replayed from u and p alone.

Source: Narayanan et al., OSDI 2020 (the convex program); K. Mahajan et al., Themis, NSDI 2020 (the measure). The proof is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from formulations.sharing._baselines import Even, Proportional
from formulations.sharing._cluster import AGNOSTIC, SharingProblem, cluster_of, isolated, seen, spread, tidy
from formulations.sharing._level import most_even
from formulations.sharing._prices import checked, most
from formulations.sharing._stated import Convex, Stated, limits
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Method, Option, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance

__all__ = ["PROBLEM", "Barrier", "Cone", "FinishTime"]

Floats = NDArray[np.float64]


class Terms(NamedTuple):
    """Constants of (1): rate in units of the even division's (n, m), e / D (n,), n / (I D) (n,)."""

    gain: Floats
    late: Floats
    work: Floats


def terms(instance: Instance, question: Question) -> Terms:
    """Constants of (1) for an instance."""
    cluster = seen(cluster_of(instance), question)
    even = (cluster.rate * isolated(cluster)).sum(axis=1)
    elapsed = np.maximum(0.0, question["now"] - instance.columns.release[instance.job_of])
    done = elapsed.copy()
    for name, seconds in _isolated_table(instance).items():
        done[instance.task_index[name]] = seconds
    whole = done + cluster.steps / even
    return Terms(cluster.rate / even[:, None], elapsed / whole, cluster.steps / (even * whole))


def _isolated_table(instance: Instance) -> Mapping[str, float]:
    table = instance.tables.get("isolated", {})
    if not isinstance(table, Mapping):
        raise InputError(f"$.tables.isolated is {type(table).__name__}, expected seconds by job")
    for name, seconds in table.items():
        if name not in instance.task_index:
            raise InputError(f"$.tables.isolated names {name!r}, which is no job of the instance")
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
            raise InputError(f"$.tables.isolated.{name} is {seconds!r}, expected seconds, 0 or more")
    return table


class Cone(Method):
    """(1)-(3) as a second-order cone program in sparse arrays."""

    name = "cone"
    title = "second-order cone program (1)-(3) in sparse arrays; proof by prices, replayed"
    kind = "exact"
    engine = "convex"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One conic program."""
        from hetopt.solvers.cone import solve_cone

        cluster, t = cluster_of(instance), terms(instance, question)
        n, m, p = len(t.late), len(cluster.workers), len(cluster.job)
        i, each = cluster.job, np.arange(n)
        gain = t.gain[cluster.job, cluster.kind]
        # columns: x (p), q (n), rho
        y = p + n + 1
        place = np.tile(each, 2), np.concatenate([p + each, np.full(n, p + n)])
        finish = sparse.csr_array((np.concatenate([t.work, -np.ones(n)]), place), (n, y))
        turns = sparse.csr_array((np.ones(p), (i, np.arange(p))), (n, y))
        workers = sparse.csr_array((cluster.scale[i], (cluster.kind, np.arange(p))), (m, y))
        positive = sparse.csr_array((-np.ones(p), (np.arange(p), np.arange(p))), (p, y))
        # (q + r, 2, q - r) in the cone, three rows a job: b - A y
        rows = np.concatenate([3 * i, 3 * i + 2, 3 * each, 3 * each + 2])
        columns = np.concatenate([np.arange(p), np.arange(p), p + each, p + each])
        values = np.concatenate([-gain, gain, -np.ones(n), -np.ones(n)])
        cones = sparse.csr_array((values, (rows, columns)), (3 * n, y))
        right = np.concatenate([-t.late, np.ones(n), cluster.workers, np.zeros(p), np.tile([0.0, 2.0, 0.0], n)])
        cost = np.zeros(y)
        cost[-1] = 1.0
        if control.should_stop():
            return Outcome("limit", "time")
        answer = solve_cone(
            cost, sparse.vstack([finish, turns, workers, positive, cones]), right, nonnegative=2 * n + m + p, cones=[3] * n,
            control=control,
        )  # fmt: skip
        if answer.x is None:
            return Outcome("limit", answer.limit or "other", solver=answer.solver)
        control.report_plan(tidy(instance, spread(instance, answer.x[:p])))
        if answer.dual is not None:
            dual = answer.dual[2 * n + m + p :].reshape(n, 3)
            certificate = {
                "kind": "prices",
                "jobs": np.maximum(dual[:, 0] - dual[:, 2], 0.0).tolist(),
                "types": np.maximum(answer.dual[2 * n : 2 * n + m], 0.0).tolist(),
            }
            control.report_bound(replay(instance, question, certificate), "replayed", certificate)
        return Outcome(solver=answer.solver)


class Barrier(Method):
    """(1)-(3) by an interior point method of its own."""

    name = "barrier"
    title = "interior point method on each job's own block, O(n m^2) an iteration; proof by prices, replayed"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Heights r_i >= (n_i / (I_i D_i)) / (rho - e_i / D_i), from a rho that half the even shares are enough for."""
        from hetopt.algorithms.share_barrier import share

        cluster, t = cluster_of(instance), terms(instance, question)

        def heights(rho: float) -> tuple[Floats, Floats, Floats]:
            left = rho - t.late
            return t.work / left, -t.work / left**2, 2 * t.work / left**3

        even = (t.gain * isolated(cluster)).sum(axis=1)
        start, above = float((t.late + 2 * t.work / even).max()), float(t.late.max())
        found = share(t.gain, cluster.scale, cluster.workers, heights, start, above, stop=control.should_stop)
        if found is None:
            return Outcome("limit", "time" if control.should_stop() else "other")
        control.report_plan(tidy(instance, found.x))
        certificate = {"kind": "prices", "jobs": found.jobs.tolist(), "types": found.types.tolist()}
        control.report_bound(replay(instance, question, certificate), "replayed", certificate)
        return Outcome(statistics={"iterations": found.iterations})


def replay(instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
    """The largest rho that the prices refute, rounded down."""
    cluster, t = cluster_of(instance), terms(instance, question)
    u, p = checked(cluster, certificate["jobs"], certificate["types"])
    top = most(cluster, t.gain, u, p)
    low = float(t.late[u > 0].max())
    high = max(low * 2, 1.0)

    def asked(rho: float) -> float:
        with np.errstate(divide="ignore"):
            return float((u[u > 0] * t.work[u > 0] / (rho - t.late[u > 0])).sum()) * (1 - 1e-12)

    while asked(high) > top:
        high *= 2
        if not math.isfinite(high):
            raise ValueError("the prices refute everything, so they are damaged")
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if asked(middle) > top else (low, middle)
    return low


class FinishTime(SharingProblem):
    """The question."""

    name = "sharing.finish_time"
    objectives = ("finish-time-fairness",)
    title = "time shares of a cluster, finish times fair against an even division"
    unit = "of the time in a part of its own"
    uses = frozenset({"time", "scale", "slots", "steps", "release", "tables.isolated"})
    needs_steps = True
    options = (Option("now", float, 0.0, "seconds; what a job has waited and run counts from its release"), AGNOSTIC)
    methods = (Barrier(), Cone(), Convex(), Even(), Proportional())

    def measure(self, instance: Instance, question: Question, rate: Floats, shares: Floats) -> float:
        """The worst ratio of finish times."""
        t = terms(instance, question)
        with np.errstate(divide="ignore"):
            return float((t.late + t.work / (t.gain * shares).sum(axis=1)).max())

    def stated(self, instance: Instance, question: Question) -> Stated:
        """(1)-(3)."""
        import cvxpy as cp

        cluster, t = cluster_of(instance), terms(instance, question)
        x = cp.Variable(cluster.rate.shape, nonneg=True)
        rho = cp.max(t.late + cp.multiply(t.work, cp.inv_pos(cp.sum(cp.multiply(t.gain, x), axis=1))))  # (1)
        return Stated(cp.Minimize(rho), limits(cluster, x), lambda: np.asarray(x.value), float)  # (2), (3)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The program job by job; a conic solver where that does not end."""
        return (Step("barrier", "exact, job by job"), Step("cone", "a conic solver"))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays prices."""
        if certificate.get("kind") != "prices":
            return super().replay(instance, question, certificate)
        return replay(instance, question, certificate)

    def optimum(self, instance: Instance, question: Question) -> Floats | None:
        """Bisection on rho: at each one the most even shares of what it asks for, by another program."""
        t = terms(instance, question)
        low, high, best = float(t.late.max()), 64.0, None
        for _ in range(60):
            rho = (low + high) / 2
            needed = t.work / np.maximum(rho - t.late, 1e-300)
            shares = most_even(instance, t.gain / needed[:, None])
            if shares is not None and ((t.gain * shares).sum(axis=1) >= needed * (1 - 1e-13)).all():
                high, best = rho, shares
            else:
                low = rho
        return best


PROBLEM = FinishTime()
