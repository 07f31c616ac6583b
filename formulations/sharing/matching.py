r"""Jobs one after the other on the workers of a cluster, done early on average: the matching of jobs with places in line.

Data as in :mod:`formulations.sharing.max_min`, s_i = 1; p_ij = n_i / T_ij seconds of job i on type j, absent where it cannot run;
e_i seconds that it has waited (``now`` less ``release``, 0 at least). A job runs on one worker to its end. It is k-th from the
end of its worker's line when k - 1 jobs follow it, and then adds its time to k completions, its own and theirs:

    y_ijk in {0, 1}     job i on a worker of type j, k-th from the end

    minimise    (1 / n) (sum_i e_i + sum_ijk k p_ij y_ijk)                              (mean-completion, allox)
    subject to  sum_jk y_ijk  = 1                       for each job i                  (1)  job
                sum_i  y_ijk <= C_j                     for each type j, place k        (2)  workers

a matching (no place is skipped at an optimum, for the jobs before it would rather be there; so k <= ceil(n / C_j) is enough). A
plan is a type and a start for each job: never more than C_j jobs run on a type, and a job's completion is its start and its time
after now. Proof: with any prices q_jk >= 0 of (2), no plan is below

    (1 / n) (sum_i e_i + sum_i min_jk (k p_ij + q_jk) - sum_jk C_j q_jk),

where places beyond those priced cost nothing but their k. ``matching`` is a Hungarian method on workers' places; prices are
shortest distances from free places. ``cvxpy`` states (1), (2), whose corners are integer.

Source: T. Le, X. Sun, M. Chowdhury, Z. Liu, AlloX, EuroSys 2020; W. Horn, Operations Research 21, 1973. The prices' form is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import ClusterProblem, cluster_of
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Option, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["PROBLEM", "Convex", "Matched", "Matching", "Shortest"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
TOLERANCE = 1e-9
MOST = 1 << 26  # jobs times places of the matrix that is matched


def times(instance: Instance) -> Floats:
    """(n, m) p, ``inf`` where a job cannot run."""
    cluster = cluster_of(instance)
    with np.errstate(divide="ignore"):
        return np.where(cluster.rate > 0, cluster.steps[:, None] / cluster.rate, np.inf)


def waited(instance: Instance, question: Question) -> Floats:
    """(n,) e."""
    return np.maximum(0.0, float(question["now"]) - instance.columns.release[instance.job_of])


def places(instance: Instance) -> Numbers:
    """(m,) places in line on each type that are enough."""
    n, workers = instance.n_tasks, cluster_of(instance).workers
    return np.ceil(n / workers).astype(np.int64)


def lines(instance: Instance, kind: Numbers, place: Numbers) -> Solution:
    """The plan of jobs on types and places from the end: on each worker the last place first, without a pause.

    The jobs of a type's k-th places, longest line first, go to its workers in turn, so every worker's places are 1 to its length.
    """
    time, n = times(instance), instance.n_tasks
    start = np.zeros(n)
    for j, count in enumerate(cluster_of(instance).workers.astype(int).tolist()):
        mine = np.flatnonzero(kind == j)
        if not len(mine):
            continue
        clock = np.zeros(min(count, len(mine)))
        for k in range(int(place[mine].max()), 0, -1):
            turn = mine[place[mine] == k]
            worker = np.arange(len(turn))
            start[turn] = clock[worker]
            clock[worker] += time[turn, j]
    return Solution(placement=kind, start=start)


def assigned(instance: Instance) -> tuple[Numbers, Numbers, list[list[float]]] | None:
    """Types (n,), places from the end (n,), and the prices of places by type, of a least-cost matching."""
    from scipy.optimize import linear_sum_assignment

    time, workers = times(instance), cluster_of(instance).workers.astype(int)
    each = np.minimum(workers, instance.n_tasks)
    kind = np.concatenate([np.full(c * k, j) for j, (c, k) in enumerate(zip(each, places(instance), strict=True))])
    place = np.concatenate([np.repeat(np.arange(k), c) + 1 for c, k in zip(each, places(instance), strict=True)])
    unit = float(2.0 ** np.frexp(time[np.isfinite(time)].max())[1])
    cost = time[:, kind] / unit * place
    far = 4.0 * float(place.max()) * len(cost)  # above every finite plan
    rows, columns = linear_sum_assignment(np.where(np.isfinite(cost), cost, far))
    if not np.isfinite(cost[rows, columns]).all():
        return None
    # Price of a place: what the others would pay for it, the shortest distance from a place that is free; one beyond the last is.
    group = np.repeat(np.arange(len(each)), places(instance) + 1)
    first = np.concatenate([[0], np.cumsum(places(instance) + 1)])
    step = np.arange(first[-1]) - first[group] + 1
    cost = time[:, group] / unit * step
    mine = first[kind[columns]] + place[columns] - 1
    full = np.bincount(mine, minlength=len(group)) >= workers[group]
    price, own = np.where(full, np.inf, 0.0), cost[np.arange(len(cost)), mine]
    for _ in range(len(group) + 1):
        offer = np.maximum(0.0, (cost + price).min(axis=1) - own)
        new = price.copy()
        np.minimum.at(new, mine, offer)
        if np.array_equal(new, price):
            break
        price = new
    prices = np.split(np.where(price < np.inf, price, 0.0) * unit, first[1:-1])
    return kind[columns], place[columns], [one[:-1].tolist() for one in prices]


class Matching(Method):
    """(1), (2) by a Hungarian method."""

    name = "matching"
    title = "least-cost matching of jobs with places in line, exact; proof by prices of places, replayed"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """A matrix that memory holds."""
        size = self.size(instance, question)
        return None if size <= MOST else f"{size} pairs of jobs and places; expected {MOST} at most"

    def size(self, instance: Instance, question: Question) -> int:
        """Jobs times places."""
        each = np.minimum(cluster_of(instance).workers, instance.n_tasks)
        return int(instance.n_tasks * (each * places(instance)).sum())

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One matching."""
        found = None if control.should_stop() else assigned(instance)
        if found is None:
            return Outcome("limit", "time" if control.should_stop() else "other")
        kind, place, prices = found
        control.report_plan(lines(instance, kind, place))
        question.prove(instance, control, {"kind": "place-prices", "prices": prices})
        return Outcome()


class Convex(Method):
    """(1), (2) in cvxpy's words."""

    name = "cvxpy"
    title = "(1), (2) stated in cvxpy, corners are integer; for reading and as a second opinion"
    kind = "exact"
    engine = "convex"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Small enough to be stated."""
        size = int(instance.n_tasks * places(instance).sum())
        return None if size <= 200_000 else f"{size} variables; `matching` needs none"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """State, solve, report; the bound is the solver's word."""
        import cvxpy as cp

        from hetopt.solvers.base import Options
        from hetopt.solvers.cvxpy import solve_problem

        if control.should_stop():
            return Outcome("limit", "time")
        time, workers = times(instance), cluster_of(instance).workers
        n, most = time.shape[0], places(instance)
        able, unit = np.isfinite(time), float(time[np.isfinite(time)].min())
        y = [cp.Variable((n, int(k)), nonneg=True) for k in most]
        cost = sum(
            cp.sum(cp.multiply(np.where(able[:, [j]], time[:, [j]], 0.0) / unit * np.arange(1, k + 1), y[j]))
            for j, k in enumerate(most.tolist())
        )
        rules = [sum(cp.sum(part, axis=1) for part in y) == 1]  # (1)
        rules += [cp.sum(part, axis=0) <= workers[j] for j, part in enumerate(y)]  # (2)
        rules += [y[j][~able[:, j]] == 0 for j in range(len(y)) if not able[:, j].all()]
        answer = solve_problem(cp.Problem(cp.Minimize(cost), rules), Options(native={"solver": "HIGHS"}), control)
        if answer.x is None:
            return Outcome("limit", answer.limit or "other", solver=f"cvxpy {answer.version}")
        whole = np.concatenate([part.value for part in y], axis=1)
        at = whole.argmax(axis=1)
        kind, place = np.repeat(np.arange(len(most)), most)[at], np.concatenate([np.arange(k) + 1 for k in most])[at]
        control.report_plan(lines(instance, kind, place))
        if answer.bound is not None:
            total = float(waited(instance, question).sum()) + unit * (answer.bound - 5e-7 * abs(answer.bound))
            control.report_bound(total / n, "solver")
        return Outcome(solver=f"cvxpy {answer.version}")


class Shortest(Method):
    """Shortest first, each where it ends first."""

    name = "shortest"
    title = "jobs by their least time, each on the worker where it ends first; baseline"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan."""
        import heapq

        time = times(instance)
        free = [[0.0] * int(c) for c in np.minimum(cluster_of(instance).workers, instance.n_tasks)]
        kind, start = np.zeros(len(time), np.int64), np.zeros(len(time))
        for done, i in enumerate(sorted(range(len(time)), key=lambda i: (time[i].min(), instance.labels[i]))):
            if done % 1000 == 0 and control.should_stop():
                return Outcome("limit", "time")
            j = min(range(len(free)), key=lambda j: free[j][0] + time[i, j])
            kind[i], start[i] = j, heapq.heapreplace(free[j], free[j][0] + float(time[i, j]))
        control.report_plan(Solution(placement=kind, start=start))
        return Outcome()


class Matched(ClusterProblem):
    """The question."""

    name = "sharing.matching"
    objectives = ("mean-completion", "allox")
    title = "jobs of one worker each in lines on a cluster's workers, done early on average"
    unit = "seconds"
    uses: ClassVar[frozenset[str]] = frozenset({"time", "scale", "slots", "steps", "release"})
    needs_steps = True
    options = (Option("now", float, 0.0, "seconds; what a job has waited counts from its release"),)
    methods = (Matching(), Convex(), Shortest())

    def fits(self, instance: Instance) -> str | None:
        """As the family; a job takes one worker."""
        own = super().fits(instance)
        if own is None and (instance.columns.scale != 1).any():
            return "each job takes one worker, and a job of this instance has another `scale` than 1"
        return own

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Completions from types and starts; at no time more jobs on a type than it has workers."""
        n, kind, start = instance.n_tasks, solution.placement, solution.start
        if kind is None or start is None or kind.shape != (n,) or start.shape != (n,):
            return Evaluation(np.inf, ("the plan has no type and start for each job",))
        labels, names = instance.labels, instance.device_names
        wrong = [
            f"job {labels[k]!r} has no type" for k in np.flatnonzero((kind < 0) | (kind >= len(names)))[:20].tolist()
        ]
        wrong += [
            f"job {labels[k]!r} starts at {start[k]!r}, expected seconds from now, 0 or more"
            for k in np.flatnonzero(~((start >= 0) & (start < np.inf)))[:20].tolist()
        ]
        if wrong:
            return Evaluation(np.inf, tuple(wrong))
        time = times(instance)[np.arange(n), kind]
        wrong = [
            f"job {labels[k]!r} cannot run on {names[kind[k]]!r}" for k in np.flatnonzero(np.isinf(time))[:20].tolist()
        ]
        if wrong:
            return Evaluation(np.inf, tuple(wrong))
        end = start + time
        for j, device in enumerate(instance.devices):
            mine = np.flatnonzero(kind == j)
            # A job that ends within rounding of another's start makes room for it.
            moments = np.concatenate([start[mine], end[mine] * (1 - TOLERANCE)])
            change = np.concatenate([np.ones(len(mine)), -np.ones(len(mine))])
            order = np.lexsort((change, moments))
            running = np.cumsum(change[order])
            if len(mine) and running.max() > device.slots:
                at = float(moments[order][int(running.argmax())])
                wrong.append(
                    f"{running.max():.0f} jobs run on {device.name!r} at {at:.9g} s, and it has {device.slots} workers"
                )
        value = math.fsum((end + waited(instance, question)).tolist()) / n
        return Evaluation(value, tuple(wrong), {"last": float(end.max())})

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The matching, or a plan where it is too large."""
        name = "matching" if self.method("matching").fits(instance, question) is None else "shortest"
        return (Step(name, "exact, one matching" if name == "matching" else "the matching is too large"),)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """What prices of places prove, rounded down."""
        if certificate.get("kind") != "place-prices":
            return super().replay(instance, question, certificate)
        workers, time, n = cluster_of(instance).workers, times(instance), instance.n_tasks
        prices = [np.asarray(one, np.float64) for one in certificate["prices"]]
        if len(prices) != len(workers) or any(one.ndim != 1 for one in prices):
            raise ValueError(f"expected prices of places of {len(workers)} types")
        if not all(np.isfinite(one).all() and (one >= 0).all() for one in prices):
            raise ValueError("expected finite prices, none below 0")
        least = np.full(n, np.inf)
        for j, one in enumerate(prices):
            for k, price in enumerate([*one.tolist(), 0.0]):
                least = np.minimum(least, (k + 1) * time[:, j] + price)
        paid = [float(c) * price for c, one in zip(workers, prices, strict=True) for price in one.tolist()]
        earned = math.fsum(least.tolist()) * (1 - 1e-12) - math.fsum(paid) * (1 + 1e-12)
        return (math.fsum(waited(instance, question).tolist()) * (1 - 1e-12) + earned) / n

    def sample(self, seed: int) -> Instance:
        """Up to five jobs of one worker on two or three types of one or two."""
        rng = np.random.default_rng([seed, 3])
        made = super().sample(seed)
        devices = [msgspec.structs.replace(v, slots=int(rng.integers(1, 3))) for v in made.devices]
        jobs = [msgspec.structs.replace(job, scale=1, deadline=None) for job in made.jobs()]
        return Instance.build(devices, jobs, question={"objective": "mean-completion"})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Every type for each job, the shortest last place first: on equal workers that is best for given types."""
        time = times(instance)
        for kinds in product(*[np.flatnonzero(np.isfinite(row)).tolist() for row in time]):
            kind, place = np.array(kinds, np.int64), np.zeros(len(kinds), np.int64)
            for j, device in enumerate(instance.devices):
                mine = np.flatnonzero(kind == j)
                mine = mine[np.argsort(-time[mine, j], kind="stable")]
                place[mine] = np.arange(len(mine)) // device.slots + 1
            yield lines(instance, kind, place)


PROBLEM = Matched()
