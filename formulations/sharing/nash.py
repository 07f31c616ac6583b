r"""Nash welfare: shares whose levels have the greatest product, so that nobody's per cent more costs the others more per cents.

Data as in :mod:`formulations.sharing.max_min`; a_ij = s_i T_ij / p_i, L_i = sum_j a_ij x_ij, W = sum_i w_i.

    maximise    (prod_i L_i^w_i)^(1/W)                                                  (nash-welfare)
    subject to  sum_j x_ij <= 1                         for each job i                  (1)  turns
                sum_i s_i x_ij <= C_j                   for each type j                 (2)  workers

``barrier`` (:func:`hetopt.algorithms.share_barrier.fair`) solves the concave sum of logarithms. Proof: for every u > 0
w log L <= u L + w log(w / u) - w, and with the prices p of (2), scaled by the best factor,

    sum_i w_i log L_i <= sum_i w_i log(w_i / u_i) + W log(M / W),      M = sum_i max_j (u_i a_ij - s_i p_j)^+ + sum_j p_j C_j.

``strategy-proof`` asks for the same shares, scaled down so that no job gains by asking for what it does not need: job i keeps the
part

    d_i = (prod_{k != i} L_k(X)^w_k / prod_{k != i} L_k(X without i)^w_k)^(1 / w_i) <= 1                    (3)  part

of its fair shares, at least 1 / e of them where w = 1. Its plan brings the fair shares and those without each job (``details``),
every one with its prices; the value is that of the fair shares before (3). The plan is right only if each is proved within 1e-8
of its optimum.

Sources: R. Cole, V. Gkatzelis, G. Goel, Mechanism design for fair division, EC 2013 (the mechanism); Narayanan et al., OSDI 2020
(as a cluster's policy, with w = 1). The proof's form is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._baselines import Even, Proportional
from formulations.sharing._cluster import Cluster, ClusterProblem, SharingProblem, cluster_of, isolated, proportional
from formulations.sharing._prices import checked, most
from formulations.sharing._stated import Convex, Stated, limits
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.shares import share_violations

__all__ = ["PROBLEMS", "Barrier", "Nash", "StrategyProof", "Without"]

Floats = NDArray[np.float64]
CLOSE = 1e-8  # of an optimum that a strategy-proof plan's parts must be within
MOST = 200  # jobs of a strategy-proof plan, which holds as many plans


class Fair(NamedTuple):
    """Shares (n, m) and the prices u (n,), p (m,) that prove them."""

    shares: Floats
    jobs: Floats
    types: Floats


def gains(cluster: Cluster) -> Floats:
    """(n, m) a."""
    return np.asarray(cluster.rate * (cluster.scale / proportional(cluster))[:, None])


def welfare(cluster: Cluster, shares: Floats) -> float:
    """sum_i w_i log L_i, of jobs with a weight."""
    level, on = (gains(cluster) * shares).sum(axis=1), cluster.weight > 0
    if (level[on] <= 0).any():
        return -np.inf
    return math.fsum((cluster.weight[on] * np.log(level[on])).tolist())


def proved(cluster: Cluster, u: Floats, p: Floats) -> float:
    """What prices prove no welfare to be above."""
    on = cluster.weight > 0
    if (u[on] <= 0).any():
        raise ValueError("expected a price above 0 for each job with a weight")
    weight, whole = cluster.weight[on], float(cluster.weight.sum())
    logs = math.fsum((weight * np.log(weight / u[on])).tolist())
    return logs + whole * math.log(most(cluster, gains(cluster), np.where(on, u, 0.0), p) / whole)


def solved(cluster: Cluster, stop: Callable[[], bool]) -> Fair | None:
    """Fair shares of a cluster's jobs, if any."""
    from hetopt.algorithms.share_barrier import fair

    on = cluster.weight > 0
    if not len(on):
        return Fair(np.zeros(cluster.rate.shape), np.zeros(0), np.zeros(len(cluster.workers)))
    found = fair(gains(cluster)[on], cluster.scale[on], cluster.workers, cluster.weight[on], gap=1e-12, stop=stop)
    if found is None:
        return None
    shares, jobs = np.zeros(cluster.rate.shape), np.zeros(len(on))
    shares[on], jobs[on] = found.x, found.jobs
    return Fair(inside(cluster, shares), jobs, found.types)


def inside(cluster: Cluster, shares: Floats) -> Floats:
    """Shares scaled back within their limits, dust left out."""
    x = np.where((cluster.rate > 0) & (shares > 1e-10), shares, 0.0)
    x /= np.maximum(x.sum(axis=1), 1.0)[:, None]
    return np.asarray(x * np.minimum(1.0, cluster.workers / np.maximum(cluster.scale @ x, 1e-300)))


class Barrier(Method):
    """The sum of logarithms by an interior point method of its own."""

    name = "barrier"
    title = "interior point method on each job's own block; proof by prices, replayed"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan, one proof."""
        found = solved(cluster_of(instance), control.should_stop)
        if found is None:
            return Outcome("limit", "time" if control.should_stop() else "other")
        control.report_plan(Solution(shares=found.shares))
        question.prove(
            instance, control, {"kind": "prices", "jobs": found.jobs.tolist(), "types": found.types.tolist()}
        )
        return Outcome()


class Nash(SharingProblem):
    """The question."""

    name = "sharing.nash"
    objectives = ("nash-welfare", "proportional-fairness")
    title = "time shares of a cluster, the product of all levels as large as possible"
    sense = "max"
    methods: ClassVar[tuple[Method, ...]] = (Barrier(), Convex(), Even(), Proportional())

    def fits(self, instance: Instance) -> str | None:
        """As the family, and some weight above 0."""
        own = super().fits(instance)
        if own is None and not (instance.columns.weight > 0).any():
            return "no job has a weight above 0; nothing would count"
        return own

    def measure(self, instance: Instance, question: Question, rate: Floats, shares: Floats) -> float:
        """Geometric mean of levels."""
        cluster = cluster_of(instance)
        return math.exp(welfare(cluster, shares) / float(cluster.weight.sum()))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """What prices prove."""
        if certificate.get("kind") != "prices":
            return super().replay(instance, question, certificate)
        cluster = cluster_of(instance)
        u, p = checked(cluster, certificate["jobs"], certificate["types"])
        return math.exp(proved(cluster, u, p) / float(cluster.weight.sum())) * (1 + 1e-12)

    def stated(self, instance: Instance, question: Question) -> Stated:
        """Logarithms of levels, in units of the even division's."""
        import cvxpy as cp

        cluster = cluster_of(instance)
        weight, gain = cluster.weight / cluster.weight.sum(), gains(cluster)
        unit = (gain * isolated(cluster)).sum(axis=1)
        x = cp.Variable(gain.shape, nonneg=True)
        level = cp.sum(cp.multiply(gain / unit[:, None], x), axis=1)
        total = 1 + cp.sum(cp.multiply(weight, cp.log(level)))  # 1: a bound's tolerance is relative
        base = float(weight @ np.log(unit)) - 1
        return Stated(cp.Maximize(total), limits(cluster, x), lambda: np.asarray(x.value), lambda v: math.exp(v + base))

    def optimum(self, instance: Instance, question: Question) -> Floats | None:
        """By scipy's sequential quadratic programs."""
        return _small(cluster_of(instance))


def _small(cluster: Cluster) -> Floats | None:
    """(n, m) fair shares of a tiny cluster by another solver."""
    from scipy.optimize import LinearConstraint, minimize

    from formulations.sharing._cluster import dense

    gain, weight = gains(cluster), cluster.weight / cluster.weight.sum()
    rows, right = dense(cluster)

    def loss(x: Floats) -> tuple[float, Floats]:
        level = (gain * x.reshape(gain.shape)).sum(axis=1)
        return -float(weight @ np.log(level)), (-(weight / level)[:, None] * gain).ravel()

    start = (isolated(cluster) * 0.99).ravel()
    found = minimize(
        loss, start, jac=True, method="SLSQP", bounds=[(1e-12, 1)] * len(start),
        constraints=[LinearConstraint(rows, -np.inf, right)], options={"ftol": 1e-14, "maxiter": 1000},
    )  # fmt: skip
    return np.asarray(found.x).reshape(gain.shape) if np.isfinite(found.fun) else None


class Without(Method):
    """A fair plan with all jobs, and one without each."""

    name = "barrier"
    title = "fair shares with all jobs and without each, n + 1 concave programs; each with its proof"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Not too many jobs: the plan grows with their square."""
        return (
            None if instance.n_tasks <= MOST else f"{instance.n_tasks} jobs; a plan holds as many plans, {MOST} at most"
        )

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """n + 1 programs."""
        cluster = cluster_of(instance)
        rest = [alone(cluster, i) for i in range(len(cluster.rate))]
        found = [solved(one, control.should_stop) for one in (cluster, *rest)]
        if any(one is None for one in found):
            return Outcome("limit", "time" if control.should_stop() else "other")
        whole, *others = [one for one in found if one is not None]
        told = {"fair": _told(instance, whole), "without": [_told(instance, one, i) for i, one in enumerate(others)]}
        parts = [part(cluster, whole.shares, one.shares, i) for i, one in enumerate(others)]
        control.report_plan(Solution(shares=whole.shares * np.array(parts)[:, None], details=told))
        question.prove(
            instance, control, {"kind": "prices", "jobs": whole.jobs.tolist(), "types": whole.types.tolist()}
        )
        return Outcome()


def alone(cluster: Cluster, i: int) -> Cluster:
    """The cluster without job i."""
    keep = np.arange(len(cluster.rate)) != i
    rate = cluster.rate[keep]
    return Cluster(
        rate, cluster.scale[keep], cluster.weight[keep], cluster.steps[keep], cluster.workers, *np.nonzero(rate)
    )


def part(cluster: Cluster, shares: Floats, others: Floats, i: int) -> float:
    """d_i of (3), never above 1."""
    if not len(others):
        return 1.0
    rest = alone(cluster, i)
    lost = welfare(rest, np.delete(shares, i, axis=0)) - welfare(rest, others)
    return math.exp(min(0.0, lost / float(cluster.weight[i])))


def _told(instance: Instance, one: Fair, without: int | None = None) -> dict[str, Any]:
    """Plain data: shares by job and type, prices by job and by type."""
    labels = [label for k, label in enumerate(instance.labels) if k != without]
    names = instance.device_names
    return {
        "shares": {
            label: {names[j]: row[j] for j in np.flatnonzero(row).tolist()}
            for label, row in zip(labels, one.shares.tolist(), strict=False)
        },
        "jobs": dict(zip(labels, one.jobs.tolist(), strict=False)),
        "types": dict(zip(names, one.types.tolist(), strict=False)),
    }


def _read(instance: Instance, data: Mapping[str, Any], without: int | None = None) -> Fair:
    """The inverse of :func:`_told`."""
    labels = [label for k, label in enumerate(instance.labels) if k != without]
    at = {label: k for k, label in enumerate(labels)}
    shares = np.zeros((len(labels), instance.n_devices))
    for label, row in data["shares"].items():
        for name, share in row.items():
            shares[at[label], instance.device_index[name]] = float(share)
    u, p = [data["jobs"][label] for label in labels], [data["types"][name] for name in instance.device_names]
    return Fair(shares, np.array(u, np.float64), np.array(p, np.float64))


class StrategyProof(ClusterProblem):
    """Fair shares that no job gains by misreporting."""

    name = "sharing.strategy_proof"
    objectives = ("strategy-proof",)
    title = "time shares of a cluster, fair, and scaled down so that no job gains by a false report"
    sense = "max"
    methods: ClassVar[tuple[Method, ...]] = (Without(),)

    def fits(self, instance: Instance) -> str | None:
        """As the family, and every weight above 0."""
        own = super().fits(instance)
        return own or (
            "a job has the weight 0; it would keep nothing" if (instance.columns.weight <= 0).any() else None
        )

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Limits; each of the n + 1 plans near its optimum; the shares are the fair ones times (3)."""
        wrong = share_violations(instance, solution.shares)
        shape = (instance.n_tasks, instance.n_devices)
        if solution.shares is None or solution.shares.shape != shape or wrong:
            return Evaluation(-np.inf, wrong or ("the plan has no shares",))
        cluster, labels, found = cluster_of(instance), instance.labels, []
        whole = _read(instance, solution.details["fair"])
        rest = [_read(instance, one, i) for i, one in enumerate(solution.details["without"])]
        if len(rest) != len(labels):
            return Evaluation(
                -np.inf, (f"the plan has shares without {len(rest)} jobs, expected each of {len(labels)}",)
            )
        for who, seen, one in [("with all jobs", cluster, whole), *((f"without job {labels[i]!r}", alone(cluster, i), rest[i])
                               for i in range(len(labels)) if len(labels) > 1)]:  # fmt: skip
            found += [f"the fair shares {who}: {sentence}" for sentence in _apart(seen, one)]
        kept = [part(cluster, whole.shares, one.shares, i) for i, one in enumerate(rest)] if not found else []
        for i, much in enumerate(kept):
            if np.abs(solution.shares[i] - whole.shares[i] * much).max() > 1e-9:
                found.append(f"job {labels[i]!r} does not have {much:.9g} of its fair shares")
        value = math.exp(welfare(cluster, whole.shares) / float(cluster.weight.sum()))
        return Evaluation(value, tuple(found[:20]), {"kept": dict(zip(labels, kept, strict=False))})

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The one method."""
        return (Step("barrier", "exact, n + 1 programs"),)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """As for Nash welfare."""
        return PROBLEMS[0].replay(instance, question, certificate)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """The one right plan, each part by another solver, with the method's prices."""
        cluster = cluster_of(instance)
        clusters = [cluster, *(alone(cluster, i) for i in range(len(cluster.rate)) if len(cluster.rate) > 1)]
        fair = []
        for one in clusters:
            shares, priced = _small(one), solved(one, lambda: False)
            if shares is None or priced is None:
                return
            fair.append(priced._replace(shares=inside(one, shares)))
        rest = fair[1:] or [Fair(np.zeros((0, instance.n_devices)), np.zeros(0), np.zeros(instance.n_devices))]
        told = {"fair": _told(instance, fair[0]), "without": [_told(instance, one, i) for i, one in enumerate(rest)]}
        parts = [part(cluster, fair[0].shares, one.shares, i) for i, one in enumerate(rest)]
        yield Solution(shares=fair[0].shares * np.array(parts)[:, None], details=told)


def _apart(cluster: Cluster, one: Fair) -> list[str]:
    """Why shares are not proved to be fair."""
    x = one.shares
    if not np.isfinite(x).all() or (x < 0).any() or ((x > 0) & (cluster.rate <= 0)).any():
        return ["a share is no number, below 0, or where its job cannot run"]
    if (x.sum(axis=1) > 1 + 1e-9).any() or (cluster.scale @ x > cluster.workers * (1 + 1e-9)).any():
        return ["they are more time than a job has, or more workers than there are"]
    u, p = checked(cluster, one.jobs, one.types)
    short = (proved(cluster, u, p) - welfare(cluster, x)) / float(cluster.weight.sum())
    return [] if short <= CLOSE else [f"their prices leave room for {short:.3g} more of the mean logarithm"]


PROBLEMS = (Nash(), StrategyProof())
