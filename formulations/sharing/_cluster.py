"""What the questions about a cluster's time shares have in common: its numbers as arrays, its polytope, plans made exact.

A device of the file stands for a type: ``slots`` workers of it. A job's ``time`` is seconds a step on one type, ``scale`` the
workers it takes while it runs, ``steps`` what it has left to do, ``weight`` its priority, ``release`` when it arrived,
``deadline`` seconds from now in which it must be done.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.formulation import Evaluation, Option, Problem, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.shares import rates, share_violations, throughputs

__all__ = [
    "AGNOSTIC",
    "Cluster",
    "ClusterProblem",
    "SharingProblem",
    "alone",
    "cluster_of",
    "dense",
    "isolated",
    "mixed",
    "polytope",
    "proportional",
    "seen",
    "spread",
    "tidy",
]

Floats = NDArray[np.float64]


class Cluster(NamedTuple):
    """n jobs on m types, and their pairs that may be, as arrays.

    Attributes
    ----------
    rate
        (n, m) steps a second, T.
    scale, weight, steps
        (n,) s, w, n.
    workers
        (m,) C.
    job, kind
        (p,) the pairs with a rate.
    """

    rate: Floats
    scale: Floats
    weight: Floats
    steps: Floats
    workers: Floats
    job: NDArray[np.int64]
    kind: NDArray[np.int64]


@lru_cache(maxsize=4)
def cluster_of(instance: Instance) -> Cluster:
    """Arrays of an instance, jobs in file order."""
    rate, c = rates(instance), instance.columns
    job, kind = np.nonzero(rate)
    workers = np.array([device.slots for device in instance.devices], np.float64)
    of = instance.job_of
    return Cluster(rate, c.scale[of], c.weight[of], c.steps[of], workers, job, kind)


def polytope(model: LinearModel, instance: Instance, room: Any = None, most: float = 1.0) -> NDArray[np.int64]:
    """Add the shares and their limits to a model; returns the columns (p,) of the pairs, none above ``most``.

    With ``room``, a column, everything is multiplied by it: ``sum_j x <= room``, ``sum_i s x <= C room``.
    """
    cluster = cluster_of(instance)
    n, m = cluster.rate.shape
    names = instance.device_names
    labels = [
        f"{instance.labels[k]}@{names[i]}" for k, i in zip(cluster.job.tolist(), cluster.kind.tolist(), strict=True)
    ]
    x = model.continuous("share", len(labels), lower=0, upper=most, labels=(labels,))
    own: list[Any] = [(cluster.job, x, 1.0)]
    used: list[Any] = [(cluster.kind, x, cluster.scale[cluster.job])]
    if room is not None:
        own.append((np.arange(n), np.broadcast_to(room, (n,)), -1.0))
        used.append((np.arange(m), np.broadcast_to(room, (m,)), -cluster.workers))
    model.rows("turns", n, own, upper=1.0 if room is None else 0.0, labels=(instance.labels,))
    model.rows("workers", m, used, upper=cluster.workers if room is None else 0.0, labels=(names,))
    return x


def tidy(instance: Instance, shares: Floats) -> Solution:
    """A plan of shares (n, m) that a solver's tolerances may have pushed over the limits, scaled back inside."""
    cluster = cluster_of(instance)
    inside = np.where(cluster.rate > 0, np.maximum(shares, 0.0), 0.0)
    inside /= np.maximum(inside.sum(axis=1), 1.0)[:, None]
    used = cluster.scale @ inside
    inside *= np.minimum(1.0, cluster.workers / np.maximum(used, 1e-300))[None, :]
    return Solution(shares=inside)


def dense(cluster: Cluster, width: int = 0) -> tuple[Floats, Floats]:
    """Rows A y <= b of turns and workers for y = (x by job and type, then ``width`` more columns); for small second programs."""
    n, m = cluster.rate.shape
    a = np.zeros((n + m, n * m + width))
    for i in range(n):
        a[i, i * m : (i + 1) * m] = 1.0
        a[n + np.arange(m), i * m + np.arange(m)] = cluster.scale[i]
    return a, np.concatenate([np.ones(n), cluster.workers])


def spread(instance: Instance, values: Floats) -> Floats:
    """(n, m) matrix of values (p,) of the pairs."""
    cluster = cluster_of(instance)
    out = np.zeros(cluster.rate.shape)
    out[cluster.job, cluster.kind] = values
    return out


def proportional(cluster: Cluster) -> Floats:
    """(n,) steps a second of each job alone on the average worker, p."""
    return np.asarray(cluster.rate @ (cluster.workers / cluster.workers.sum()))


def alone(cluster: Cluster) -> Floats:
    """(n,) b, the most steps a second that each job can have in an empty cluster."""
    order = np.argsort(-cluster.rate, axis=1, kind="stable")
    rate = np.take_along_axis(cluster.rate, order, axis=1)
    room = np.minimum(1.0, cluster.workers / cluster.scale[:, None])
    part = np.where(rate > 0, np.take_along_axis(room, order, axis=1), 0.0)
    before = np.cumsum(part, axis=1) - part
    return np.asarray((rate * np.clip(1.0 - before, 0.0, part)).sum(axis=1))


def isolated(cluster: Cluster) -> Floats:
    """(n, m) shares of the cluster divided evenly: C_j / (n s_i), scaled down where a job would get more than all its time."""
    share = cluster.workers[None, :] / len(cluster.rate) / cluster.scale[:, None]
    return np.asarray(np.where(cluster.rate > 0, share / np.maximum(share.sum(axis=1), 1.0)[:, None], 0.0))


def mixed(cluster: Cluster) -> Floats:
    """(n, m) shares of the same time for all, each type's part as large as its part of the workers, as far as there is room."""
    time = min(1.0, float(cluster.workers.sum() / cluster.scale.sum()))
    return np.where(cluster.rate > 0, time * cluster.workers / cluster.workers.sum(), 0.0)


def seen(cluster: Cluster, question: Question | None) -> Cluster:
    """The cluster as a question sees it: with ``agnostic`` every type as fast as a job's fastest."""
    if question is None or not question["agnostic"]:
        return cluster
    return cluster._replace(rate=np.where(cluster.rate > 0, cluster.rate.max(axis=1)[:, None], 0.0))


AGNOSTIC = Option(
    "agnostic", bool, False, "as if every type were as fast as a job's fastest: shares of time, not of steps"
)


class ClusterProblem(Problem):
    """A question about the jobs of a cluster: what it reads, which instances it fits, what its samples look like."""

    unit = ""
    uses: ClassVar[frozenset[str]] = frozenset({"time", "scale", "slots", "weight"})
    needs_steps: ClassVar[bool] = False

    def fits(self, instance: Instance) -> str | None:
        """Independent jobs; with steps left where the question asks for them."""
        if not instance.columns.own_task.all():
            return "its jobs are single tasks, and a job of this instance has a graph"
        if (instance.time[instance.eligible] <= 0).any():
            return "a job takes no time for a step; its rate would be infinite"
        if (instance.columns.scale <= 0).any():
            return "a job has the scale 0; it would take no workers"
        steps = instance.columns.steps
        if self.needs_steps and not (np.isfinite(steps) & (steps > 0)).all():
            return "each job needs `steps` above 0, what it has left to do"
        return None

    def sample(self, seed: int) -> Instance:
        """Up to four jobs on two or three types."""
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(1, 5)), int(rng.integers(2, 4))
        devices = [Device(name=f"k{i}", slots=int(rng.integers(1, 4)), price=int(rng.integers(1, 9))) for i in range(m)]
        jobs = []
        for k in range(n):
            time: list[int | float | None] = [int(t) for t in rng.integers(1, 20, m)]
            if m > 2 and rng.random() < 0.3:
                time[int(rng.integers(m))] = None
            jobs.append(
                Job(
                    name=f"j{k}",
                    time=time,
                    scale=int(rng.choice([1, 1, 2])),
                    weight=int(rng.integers(1, 4)),
                    steps=int(rng.integers(1, 50)),
                    deadline=int(rng.integers(200, 2000)) if rng.random() < 0.3 else None,
                )
            )
        return Instance.build(devices, jobs, question={"objective": self.objectives[0]})


class SharingProblem(ClusterProblem):
    """A question whose plan is shares, and whose value is a measure of what they give the jobs."""

    @abstractmethod
    def measure(self, instance: Instance, question: Question, rate: Floats, shares: Floats) -> float:
        """The objective of shares that give the jobs these steps a second (n,)."""

    def extra(self, instance: Instance, question: Question, rate: Floats) -> tuple[str, ...]:
        """Violations of the question's own limits."""
        return ()

    @abstractmethod
    def optimum(self, instance: Instance, question: Question) -> Floats | None:
        """(n, m) optimal shares of a tiny instance by another program than the methods' own, for tests; None without one."""

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Shares cannot be listed: the optimum of a program of its own, the even division, and half of it."""
        best = self.optimum(instance, question)
        if best is not None:
            yield tidy(instance, best)
            yield tidy(instance, best / 2)
        even = isolated(cluster_of(instance))
        yield tidy(instance, even)

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Steps a second of every job, every limit checked."""
        worst = -np.inf if self.sense == "max" else np.inf
        wrong = share_violations(instance, solution.shares)
        if solution.shares is None or solution.shares.shape != (instance.n_tasks, instance.n_devices):
            return Evaluation(worst, wrong)
        rate = throughputs(instance, solution.shares)
        used = instance.columns.scale[instance.job_of] @ solution.shares
        devices = {
            name: {"used": float(u), "workers": v.slots}
            for name, u, v in zip(instance.device_names, used, instance.devices, strict=True)
        }
        value = self.measure(instance, question, rate, solution.shares)
        return Evaluation(float(value), (*wrong, *self.extra(instance, question, rate)), {"devices": devices})
