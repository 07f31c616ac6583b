r"""Throughput for money: steps a second for each unit of price, with deadlines kept.

Data as in :mod:`formulations.sharing.max_min`; c_j price of a worker of type j an hour, d_i seconds until job i must have done
its n_i steps (``deadline``; none for most). f_i = max_j T_ij.

    maximise    sum_ij T_ij x_ij / c_j                                                  (cost)
    or          sum_ij T_ij x_ij  /  sum_ij c_j s_i x_ij                                (cost-ratio)
    subject to  sum_j T_ij x_ij >= n_i / d_i            for each job i with a deadline  (1)  deadline
                sum_j x_ij <= 1                         for each job i                  (2)  turns
                sum_i s_i x_ij <= C_j                   for each type j                 (3)  workers

The first is the published program. The second is the true ratio, linear after y = k x with k > 0 scaled so that the price of y
is 1 (Charnes and Cooper): sum_ij c_j s_i y_ij = 1, and 1 becomes k in (1)-(3); x = y / k. With ``normalized`` steps count in
units of f_i, so that a job with many small steps weighs no more than others.

Sources: Narayanan et al., OSDI 2020; A. Charnes, W. Cooper, Programming with linear fractional functionals, 1962.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._baselines import Even, Proportional
from formulations.sharing._cluster import (
    Cluster,
    SharingProblem,
    alone,
    cluster_of,
    dense,
    isolated,
    polytope,
    spread,
    tidy,
)
from formulations.sharing._stated import Convex, Stated, limits
from hetopt.control import Control
from hetopt.formulation import LinearFormulation, Option, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["LP", "PROBLEMS", "Cost", "Ratio"]

TOLERANCE = 1e-9
PATIENCE = 10.0  # seconds for the question about missed deadlines


def prices(instance: Instance) -> NDArray[np.float64]:
    """(m,) price of a worker of each type."""
    return np.array([np.nan if v.price is None else float(v.price) for v in instance.devices])


def needs(instance: Instance) -> NDArray[np.float64]:
    """(n,) steps a second that a deadline asks for, 0 without one."""
    cluster, due = cluster_of(instance), instance.columns.deadline[instance.job_of]
    return np.where(np.isfinite(due), cluster.steps / due, 0.0)


def worth(cluster: Cluster, normalized: bool) -> NDArray[np.float64]:
    """(n, m) what all its time on a type counts for."""
    return cluster.rate / cluster.rate.max(axis=1)[:, None] if normalized else cluster.rate


class LP(LinearFormulation):
    """(1)-(3) for the published objective, or after the change of variables for the ratio."""

    name = "lp"
    kind = "exact"

    def __init__(self, ratio: bool) -> None:
        self.ratio = ratio
        self.title = "LP after Charnes and Cooper, exact" if ratio else "LP (1)-(3), exact"  # type: ignore[misc]

    def size(self, instance: Instance, question: Question) -> int:
        """Each pair stands in four rows."""
        return 4 * int(instance.eligible.sum())

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``share[job@type]``, and ``scale`` for the ratio."""
        cluster, price = cluster_of(instance), prices(instance)
        i, j = cluster.job, cluster.kind
        gain = worth(cluster, bool(question is not None and question["normalized"]))[i, j]
        need = needs(instance)
        model = LinearModel("sharing-cost")
        room: Any = None
        most = 1.0
        if self.ratio:
            # The cheapest plan that is any use costs no less than the smallest price of a job at its own deadline's rate.
            most = 1.0 / _least_spent(instance)
            room = model.continuous("scale", 1, lower=0, upper=most)
        x = polytope(model, instance, room=room, most=most)  # (2), (3)
        bound_by = np.flatnonzero(need > 0)
        place = np.full(len(need), -1)
        place[bound_by] = np.arange(len(bound_by))
        mine = place[i] >= 0
        rows: list[Any] = [(place[i][mine], x[mine], cluster.rate[i, j][mine] / need[i[mine]])]
        if self.ratio:
            rows.append((np.arange(len(bound_by)), np.broadcast_to(room, (len(bound_by),)), -1.0))
            model.rows("price", 1, [(0, x, price[j] * cluster.scale[i])], lower=1, upper=1)
        names = [instance.labels[k] for k in bound_by.tolist()]
        model.rows("deadline", len(bound_by), rows, lower=0.0 if self.ratio else 1.0, labels=(names,))  # (1)
        model.maximize(x, gain if self.ratio else gain / price[j])
        return model

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any linear program; where the deadlines cannot be kept together, by how much they would have to be later."""
        outcome = super().run(instance, question, control, options)
        if outcome.reason != "infeasible":
            return outcome
        return replace(outcome, infeasible=(*_too_early(instance), *outcome.infeasible))

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The shares."""
        scale = max(float(x[model.columns("scale")[0]]), 1e-300) if self.ratio else 1.0
        return tidy(instance, spread(instance, x[model.columns("share")]) / scale)


def _too_early(instance: Instance) -> tuple[str, ...]:
    """How many times as late all deadlines would have to be: the greatest part of its rate that each job can have at once."""
    from hetopt import solvers

    cluster, need = cluster_of(instance), needs(instance)
    model = LinearModel("part")
    x = polytope(model, instance)
    part = model.continuous("part", upper=1.0)  # the last column
    due = np.flatnonzero(need > 0)
    place = np.full(len(need), -1)
    place[due] = np.arange(len(due))
    mine = place[cluster.job] >= 0
    i, j = cluster.job[mine], cluster.kind[mine]
    every = np.arange(len(due))
    terms: list[Any] = [
        (place[i], x[mine], cluster.rate[i, j] / need[i]),
        (every, np.broadcast_to(part, due.shape), -1.0),
    ]
    model.rows("deadline", len(due), terms, lower=0.0)
    model.maximize(part)
    answer = solvers.get("highs").solve(model, solvers.Options(time_limit=PATIENCE))
    if answer.reason != "optimal" or answer.x is None or not 0 < (most := float(answer.x[-1])) < 1:
        return ()
    rate = (cluster.rate * spread(instance, answer.x[model.columns("share")])).sum(axis=1)
    k = int(due[(rate[due] / need[due]).argmin()])
    later = float(instance.columns.deadline[instance.job_of[k]]) * (1 / most - 1)
    return (
        f"deadline: together they are kept only when each is {1 / most:.6g} times as late, for job {instance.labels[k]!r} "
        f"that is {later:.6g} s later",
    )


def _least_spent(instance: Instance) -> float:
    """A positive number below which the price of a plan may be scaled up without changing its ratio.

    A plan whose shares all leave room can be scaled up until a job has no time left or a type no workers, so some optimal plan
    fills one of them: it spends at least the cheapest way to do so.
    """
    cluster, price = cluster_of(instance), prices(instance)
    own = np.where(cluster.rate > 0, price[None, :] * cluster.scale[:, None], np.inf).min()
    return float(min(own, (price * cluster.workers).min())) * (1 - 1e-9)


class Cost(SharingProblem):
    """The published objective."""

    name = "sharing.cost"
    objectives = ("sharing-cost",)
    title = "time shares of a cluster, most steps for their price on each type, deadlines kept"
    sense = "max"
    uses = frozenset({"time", "scale", "slots", "steps", "price", "deadline"})
    options = (Option("normalized", bool, False, "count steps in units of each job's fastest rate"),)
    methods = (LP(ratio=False), Convex(), Even(), Proportional())

    def fits(self, instance: Instance) -> str | None:
        """Prices of all types, and steps where there is a deadline."""
        own = super().fits(instance)
        if own is not None:
            return own
        if not (prices(instance) > 0).all():
            return "each device needs a price above 0"
        due = instance.columns.deadline
        if (np.isfinite(due) & ~(np.nan_to_num(instance.columns.steps) > 0)).any():
            return "a job with a deadline needs `steps` above 0"
        return "a deadline is 0; no rate would meet it" if (due <= 0).any() else None

    def measure(
        self, instance: Instance, question: Question, rate: NDArray[np.float64], shares: NDArray[np.float64]
    ) -> float:
        """Steps a second for their price."""
        gain = worth(cluster_of(instance), question["normalized"])
        return float((gain * shares / prices(instance)[None, :]).sum())

    def extra(self, instance: Instance, question: Question, rate: NDArray[np.float64]) -> tuple[str, ...]:
        """Deadlines that are missed."""
        need = needs(instance)
        late = np.flatnonzero(rate < need * (1 - TOLERANCE))[:20]
        return tuple(
            f"job {instance.labels[k]!r} gets {rate[k]:.9g} steps a second and needs {need[k]:.9g} for its deadline"
            for k in late.tolist()
        )

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A deadline that a job with the cluster to itself would miss."""
        cluster, need = cluster_of(instance), needs(instance)
        fastest = alone(cluster)
        late = np.flatnonzero(fastest * (1 + TOLERANCE) < need)[:20]
        due = instance.columns.deadline[instance.job_of]
        return tuple(
            f"deadline: job {instance.labels[k]!r} has {cluster.steps[k]:g} steps left and takes "
            f"{cluster.steps[k] / fastest[k]:.6g} s at best: {cluster.steps[k] / fastest[k] - due[k]:.6g} s too late"
            for k in late.tolist()
        )

    def stated(self, instance: Instance, question: Question) -> Stated:
        """(1)-(3)."""
        import cvxpy as cp

        cluster, need = cluster_of(instance), needs(instance)
        x = cp.Variable(cluster.rate.shape, nonneg=True)
        gain = worth(cluster, question["normalized"]) / prices(instance)[None, :]
        unit = float((gain * isolated(cluster)).sum())
        value = cp.sum(cp.multiply(gain / unit, x))
        rules = [*limits(cluster, x), *_kept(cluster, need, x)]
        return Stated(cp.Maximize(value), rules, lambda: np.asarray(x.value), lambda v: v * unit, "HIGHS")

    def optimum(self, instance: Instance, question: Question) -> NDArray[np.float64] | None:
        """By scipy, from the definition."""
        return _dense_optimum(instance, worth(cluster_of(instance), question["normalized"]) / prices(instance)[None, :])


def _kept(cluster: Cluster, need: NDArray[np.float64], x: Any, room: Any = 1) -> list[Any]:
    """(1) in cvxpy's words, in units of what a deadline asks for."""
    import cvxpy as cp

    due = np.flatnonzero(need > 0)
    pace = cluster.rate[due] / need[due][:, None]
    return [cp.sum(cp.multiply(pace, x[due]), axis=1) >= room] if len(due) else []


def _dense_optimum(instance: Instance, gain: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """(n, m) shares of greatest gain."""
    from scipy.optimize import linprog

    cluster, need = cluster_of(instance), needs(instance)
    n, m = gain.shape
    limits, most = dense(cluster)
    rows = np.zeros((n, n * m))
    for i in range(n):
        rows[i, i * m : (i + 1) * m] = -cluster.rate[i]
    bounds = [(0, 1 if good else 0) for good in (cluster.rate > 0).ravel().tolist()]
    found = linprog(
        -gain.ravel(), np.vstack([limits, rows]), np.concatenate([most, -need]), bounds=bounds, method="highs-ds"
    )
    return np.asarray(found.x).reshape(n, m) if found.status == 0 else None


class Ratio(Cost):
    """The true ratio."""

    name = "sharing.cost_ratio"
    objectives = ("sharing-cost-ratio",)
    title = "time shares of a cluster, most steps for all the money spent, deadlines kept"
    methods = (LP(ratio=True), Convex(), Even(), Proportional())

    def measure(
        self, instance: Instance, question: Question, rate: NDArray[np.float64], shares: NDArray[np.float64]
    ) -> float:
        """Steps a second over the price of the shares."""
        cluster = cluster_of(instance)
        gain = float((worth(cluster, question["normalized"]) * shares).sum())
        spent = float((prices(instance)[None, :] * cluster.scale[:, None] * shares).sum())
        return gain / spent if spent > 0 else 0.0

    def stated(self, instance: Instance, question: Question) -> Stated:
        """(1)-(3) for y = k x of price 1."""
        import cvxpy as cp

        cluster, need = cluster_of(instance), needs(instance)
        spent = prices(instance)[None, :] * cluster.scale[:, None]
        most = 1.0 / _least_spent(instance)
        y, k = cp.Variable(cluster.rate.shape, nonneg=True), cp.Variable(nonneg=True)
        gain = worth(cluster, question["normalized"])
        unit = float((gain * isolated(cluster)).sum() / (spent * isolated(cluster)).sum())
        value = cp.sum(cp.multiply(gain / unit, y))
        rules = [*limits(cluster, y, k), *_kept(cluster, need, y, k), cp.sum(cp.multiply(spent, y)) == 1, k <= most]

        def shares() -> NDArray[np.float64]:
            return np.asarray(y.value) / max(float(k.value), 1e-300)

        return Stated(cp.Maximize(value), rules, shares, lambda v: v * unit, "HIGHS")

    def optimum(self, instance: Instance, question: Question) -> NDArray[np.float64] | None:
        """Dinkelbach's iteration on the definition."""
        cluster = cluster_of(instance)
        gain, spent = worth(cluster, question["normalized"]), prices(instance)[None, :] * cluster.scale[:, None]
        ratio, best = 0.0, None
        for _ in range(60):
            found = _dense_optimum(instance, gain - ratio * spent)
            if found is None or (spent * found).sum() <= 1e-12:
                return best
            best = found
            new = float((gain * found).sum() / (spent * found).sum())
            if abs(new - ratio) <= 1e-14 * new:
                return best
            ratio = new
        return best


PROBLEMS = (Cost(), Ratio())
