r"""Water filling: the worst-off job as well off as possible, then the next, and so on; for jobs or for their owners.

Data as in :mod:`formulations.sharing.max_min`; a_ij = s_i T_ij / p_i (``agnostic`` as there). Jobs may belong to entities
(``tables.entity`` by job) of weights W_e (``tables.entities``, 1 where silent). L_i = sum_j a_ij x_ij is the level of job i. In
round r the jobs A that are not frozen have weights w^r_i:

    no entities              w_i
    within = "fairness"      W_e w_i / (sum of w over e's jobs in A)
    within = "first-in-first-out"   W_e for e's first job in A by release and name, 0 for the others

Round r, with l_i what job i has from the rounds before (0 at first):

    maximise    c
    subject to  L_i >= l_i + w^r_i c            for each job in A                       (1)  rise
                L_i >= l_i                      for each frozen job                     (2)  keep
                sum_j x_ij <= 1                 for each job i                          (3)  turns
                sum_i s_i x_ij <= C_j           for each type j                         (4)  workers

then l_i += w^r_i c, and the jobs that cannot rise any more are frozen. The value is the first round's c; the plan is right only
if all rounds are, and brings the proof of each: with prices u of (1), (2) and p of (4),

    sum_i u_i L_i <= B(u, p) = sum_i max_j (u_i a_ij - s_i p_j)^+ + sum_j p_j C_j,

so c <= (B - sum_i u_i l_i) / (sum_A u_i w^r_i), and no job with u_i > 0 gets more than l_i + w^r_i c plus what is missing in that
inequality, over u_i. A job is frozen when this excess is within 1e-6 of its level: the verifier does the same sums. So the duals
of one linear program a round name the jobs to freeze, and no integer program is asked.

Source: Narayanan et al., OSDI 2020 (water filling with an integer program a round). Freezing by prices and its proof are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from formulations.sharing._cluster import AGNOSTIC, ClusterProblem, cluster_of, proportional, seen, spread, tidy
from formulations.sharing._prices import checked, most
from formulations.sharing._stated import limits
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, Method, Option, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.solvers.base import Options
from hetopt.verify.shares import share_violations

__all__ = ["PROBLEM", "LPs", "WaterFilling"]

Floats = NDArray[np.float64]
FROZEN, CHECKED = 1e-7, 1e-6  # excess over a level at which a job is frozen, and that the verifier lets pass


class Round(NamedTuple):
    """Shares (n, m), rise c, prices u (n,) and p (m,) of a round's program."""

    shares: Floats
    rise: float
    jobs: Floats
    types: Floats


Solver = Callable[[Instance, Floats, Floats, Floats], Round | None]


def gains(instance: Instance, question: Question) -> Floats:
    """(n, m) a."""
    cluster = seen(cluster_of(instance), question)
    return np.asarray(cluster.rate * (cluster.scale / proportional(cluster))[:, None])


def weights(instance: Instance, question: Question, active: NDArray[np.bool_]) -> Floats:
    """(n,) w^r of the active jobs, 0 for the others."""
    weight = cluster_of(instance).weight
    of = instance.tables.get("entity")
    if of is None:
        return np.where(active, weight, 0.0)
    entity, own = _entities(instance)
    out = np.zeros(len(weight))
    for e in range(len(own)):
        mine = np.flatnonzero(active & (entity == e))
        if not len(mine):
            continue
        if question["within"] == "fairness":
            out[mine] = own[e] * weight[mine] / weight[mine].sum()
        else:
            release = instance.columns.release[instance.job_of]
            out[min(mine.tolist(), key=lambda k: (release[k], instance.labels[k]))] = own[e]
    return out


def _entities(instance: Instance) -> tuple[NDArray[np.int64], Floats]:
    """(n,) number of each job's entity, and the entities' weights."""
    of, own = instance.tables["entity"], instance.tables.get("entities", {})
    if not isinstance(of, Mapping) or not isinstance(own, Mapping):
        raise InputError("$.tables.entity and $.tables.entities must be an entity by job and a weight by entity")
    missing = [name for name in instance.labels if not isinstance(of.get(name), str)]
    if missing:
        raise InputError(f"$.tables.entity has no entity for the job {missing[0]!r}; expected one for each job")
    names = sorted({of[name] for name in instance.labels})
    for name in names:
        weight = own.get(name, 1)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < np.inf:
            raise InputError(f"$.tables.entities.{name} is {weight!r}, expected a weight above 0")
    at = {name: e for e, name in enumerate(names)}
    return np.array([at[of[name]] for name in instance.labels]), np.array([float(own.get(name, 1)) for name in names])


def excess(
    instance: Instance, gain: Floats, level: Floats, weight: Floats, rise: float, u: Floats, p: Floats
) -> Floats:
    """(n,) how far above its new level the prices let each job be; ``inf`` where its price is 0."""
    missing = most(cluster_of(instance), gain, u, p) - float(u @ level) - rise * float(u @ weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(u > 0, np.maximum(missing, 0.0) / u, np.inf)


def fill(instance: Instance, question: Question, solve: Solver, stop: Callable[[], bool]) -> Solution | None:
    """The plan by one program a round, with the proof of each; None when stopped or a program fails."""
    n, labels, names = instance.n_tasks, instance.labels, instance.device_names
    active, level = np.ones(n, bool), np.zeros(n)
    rounds: list[dict[str, Any]] = []
    shares = np.zeros((n, instance.n_devices))
    gain = gains(instance, question)
    whole = (cluster_of(instance).workers >= cluster_of(instance).scale[:, None]) & (gain >= gain.max(axis=1)[:, None])
    top = np.where(whole.any(axis=1), gain.max(axis=1), np.inf)  # a job's level when it has its best type all the time

    def rises(level: Floats, weight: Floats) -> tuple[Round, float] | None:
        found = None if stop() else solve(instance, gain, level * (1 - 1e-10), weight)
        if found is None:
            return None
        # What is certain of the rise: the shares, scaled back inside the limits, have it.
        shares = np.asarray(tidy(instance, found.shares).shares)
        reached, on = (gain * shares).sum(axis=1), weight > 0
        rise = max(0.0, float(((reached - level)[on] / weight[on]).min()))
        return found._replace(shares=shares), rise if (reached >= level * (1 - 1e-8)).all() else 0.0

    def told(rise: float, frozen: NDArray[np.int64], u: Floats, p: Floats) -> None:
        rounds.append(
            {
                "rise": rise,
                "frozen": [labels[k] for k in frozen.tolist()],
                "jobs": {labels[k]: float(u[k]) for k in np.flatnonzero(u).tolist()},
                "types": dict(zip(names, p.tolist(), strict=True)),
            }
        )

    while active.any():
        weight = weights(instance, question, active)
        answer = rises(level, weight)
        if answer is None:
            return None
        found, rise = answer
        on = weight > 0
        full = np.where(on, (top - level) / np.where(on, weight, 1.0), np.inf)
        if "entity" not in instance.tables and on.sum() > 1 and rise >= full.min() * (1 - 1e-9):
            for k in _at_their_top(level, weight, full, top, rises):
                step = max(0.0, float((top[k] - level[k]) / weight[k]))
                level = np.where(active, level + weight * step, level)
                active[k], weight = False, np.where(np.arange(n) == k, 0.0, weight)
                told(step, np.array([k]), np.eye(1, n, k)[0], np.zeros(instance.n_devices))
            continue
        u = np.where(found.jobs > 1e-9 * found.jobs.max(), found.jobs, 0.0)
        over = excess(instance, gain, level, weight, rise, u, found.types)
        target = level + weight * rise
        frozen = on & (over <= FROZEN * np.maximum(target, 1e-300))
        if not frozen.any():
            frozen = on & (over == over[on].min())
        level = np.where(active, target, level)
        active &= ~frozen
        shares = found.shares
        told(rise, np.flatnonzero(frozen), u, found.types)
    return Solution(shares=shares, details={"rounds": rounds})


def _at_their_top(
    level: Floats,
    weight: Floats,
    full: Floats,
    top: Floats,
    rises: Callable[[Floats, Floats], tuple[Round, float] | None],
) -> list[int]:
    """Jobs, in order, that reach their best type's level before anything else stops a job; the last job is never among them.

    By doubling and halving: all others still rise as far as the last of them when these have their levels. The proof of each is
    its own best type: no job gets more.
    """
    order = np.argsort(full, kind="stable")
    reach = int(min(np.isfinite(full).sum(), (weight > 0).sum() - 1))

    def holds(count: int) -> bool:
        mine = order[:count]
        at, of = np.array(level), np.array(weight)
        at[mine], of[mine] = top[mine], 0.0
        answer = rises(at, of)
        return answer is not None and answer[1] >= full[order[count - 1]] * (1 - 1e-9)

    low, high = 1, 2
    while high <= reach and holds(high):
        low, high = high, 2 * high
    high = min(high, reach + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return [int(k) for k in order[:low]]


def by_cone(control: Control) -> Solver:
    """Round programs by an interior point method, whose prices are above 0 for all jobs that cannot rise."""

    def solve(instance: Instance, gain: Floats, level: Floats, weight: Floats) -> Round | None:
        from hetopt.solvers.cone import solve_cone

        cluster = cluster_of(instance)
        i, j = cluster.job, cluster.kind
        n, m, p = len(level), len(cluster.workers), len(i)
        each, pairs = np.arange(n), np.arange(p)
        # Shares in units of the most there can be, workers in those that can be used: jobs far larger than the cluster, or a type
        # far larger than all jobs, leave coefficients near one.
        used = np.minimum(cluster.workers, cluster.scale.sum())
        part = np.minimum(1.0, used[j] / cluster.scale[i])
        best = np.zeros(n)
        np.maximum.at(best, i, gain[i, j] * part)
        unit = np.maximum(level, best)  # rows near one
        rows, columns = np.concatenate([i, each]), np.concatenate([pairs, np.full(n, p)])
        values = np.concatenate([-gain[i, j] * part / unit[i], weight / unit])
        levels = sparse.csr_array((values, (rows, columns)), (n, p + 1))
        turns = sparse.csr_array((part, (i, pairs)), (n, p + 1))
        workers = sparse.csr_array((cluster.scale[i] * part / used[j], (j, pairs)), (m, p + 1))
        positive = sparse.csr_array((-np.ones(p), (pairs, pairs)), (p, p + 1))
        cost = np.zeros(p + 1)
        cost[-1] = -1.0
        right = np.concatenate([-level / unit, np.ones(n + m), np.zeros(p)])
        answer = solve_cone(
            cost, sparse.vstack([levels, turns, workers, positive]), right, nonnegative=2 * n + m + p, cones=[], control=control,
            tolerance=1e-11,
        )  # fmt: skip
        if answer.x is None or answer.dual is None:
            return None
        dual = np.maximum(answer.dual, 0.0)
        scarce = cluster.workers < cluster.scale.sum()  # else (3) implies (4), and the price is 0
        prices = np.where(scarce, dual[2 * n : 2 * n + m] / used, 0.0)
        return Round(spread(instance, answer.x[:p] * part), float(answer.x[p]), dual[:n] / unit, prices)

    return solve


def by_cvxpy(control: Control) -> Solver:
    """Round programs (1)-(4) in cvxpy's words, for reading and as a second opinion."""

    def solve(instance: Instance, gain: Floats, level: Floats, weight: Floats) -> Round | None:
        import cvxpy as cp

        from hetopt.solvers.cvxpy import solve_problem

        cluster, unit = cluster_of(instance), np.maximum(level, gain.max(axis=1))  # rows near one
        x, c = cp.Variable(gain.shape, nonneg=True), cp.Variable()
        rise = cp.sum(cp.multiply(gain / unit[:, None], x), axis=1) >= level / unit + cp.multiply(
            weight / unit, c
        )  # (1), (2)
        turns, workers = limits(cluster, x)  # (3), (4)
        whole = cp.Problem(cp.Maximize(c), [rise, turns, workers])
        native = {"solver": "CLARABEL", **dict.fromkeys(("tol_feas", "tol_gap_abs", "tol_gap_rel"), 1e-11)}
        if solve_problem(whole, Options(native=native), control).x is None:
            return None
        prices = np.maximum(rise.dual_value, 0.0) / unit, np.maximum(workers.dual_value, 0.0)
        return Round(np.asarray(x.value), float(c.value), *prices)

    return solve


def by_simplex(instance: Instance, gain: Floats, level: Floats, weight: Floats) -> Round | None:
    """A round's program by another solver, dense; for tiny instances."""
    from scipy.optimize import linprog

    cluster = cluster_of(instance)
    n, m = gain.shape
    rows = np.zeros((2 * n + m, n * m + 1))
    for i in range(n):
        rows[i, i * m : (i + 1) * m] = -gain[i]
        rows[n + i, i * m : (i + 1) * m] = 1.0
        rows[2 * n + np.arange(m), i * m + np.arange(m)] = cluster.scale[i]
    rows[:n, -1] = weight
    right = np.concatenate([-level, np.ones(n), cluster.workers])
    bounds = [(0, 1 if good else 0) for good in (cluster.rate > 0).ravel().tolist()] + [(0, None)]
    found = linprog(np.r_[np.zeros(n * m), -1.0], rows, right, bounds=bounds, method="highs-ds")
    if found.status != 0:
        return None
    dual = np.maximum(-found.ineqlin.marginals, 0.0)
    return Round(found.x[:-1].reshape(n, m), float(found.x[-1]), dual[:n], dual[2 * n :])


class LPs(Method):
    """A linear program a round."""

    kind = "exact"
    engine = "convex"

    def __init__(self, name: str, title: str, solver: Callable[[Control], Solver]) -> None:
        self.name, self.title, self.solver = name, title, solver  # type: ignore[misc]

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """All rounds, then the first round's prices as the bound."""
        plan = fill(instance, question, self.solver(control), control.should_stop)
        if plan is None:
            if control.should_stop():
                return Outcome("limit", "time")
            return Outcome(
                "limit", "other", notes=("a round's program ended without shares: its numbers lie too far apart",)
            )
        control.report_plan(plan)
        first = plan.details["rounds"][0]
        certificate = {
            "kind": "prices",
            "jobs": [first["jobs"].get(label, 0.0) for label in instance.labels],
            "types": [first["types"][name] for name in instance.device_names],
        }
        question.prove(instance, control, certificate)
        return Outcome(solver="clarabel", statistics={"rounds": len(plan.details["rounds"])})


class WaterFilling(ClusterProblem):
    """The question."""

    name = "sharing.water_filling"
    objectives = ("water-filling",)
    title = "time shares of a cluster, every job as well off as the worse-off ones allow, for jobs or their owners"
    sense = "max"
    unit = "of a proportional share"
    uses: ClassVar[frozenset[str]] = frozenset(
        {"time", "scale", "slots", "weight", "release", "tables.entity", "tables.entities"}
    )
    options = (
        Option("within", ("fairness", "first-in-first-out"), "fairness", "how an entity's jobs share what it has"),
        AGNOSTIC,
    )
    methods = (
        LPs(
            "lps",
            "a linear program a round by an interior point method; its prices freeze jobs and prove levels",
            by_cone,
        ),
        LPs("cvxpy", "each round's program stated in cvxpy, for reading and as a second opinion", by_cvxpy),
    )

    def fits(self, instance: Instance) -> str | None:
        """As the family, and every weight above 0."""
        own = super().fits(instance)
        if own is None and (instance.columns.weight <= 0).any():
            return "a job has the weight 0; its level would never count"
        return own

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Shares within limits, every round's proof, and the levels that it asks for."""
        wrong = share_violations(instance, solution.shares)
        shape = (instance.n_tasks, instance.n_devices)
        if solution.shares is None or solution.shares.shape != shape or wrong:
            return Evaluation(-np.inf, wrong or ("the plan has no shares",))
        reached = (gains(instance, question) * solution.shares).sum(axis=1)
        weight = weights(instance, question, np.ones(instance.n_tasks, bool))
        value = float((reached[weight > 0] / weight[weight > 0]).min())
        level, found = self._levels(instance, question, solution.details.get("rounds"))
        low = np.flatnonzero(reached < level * (1 - CHECKED))[:20].tolist() if not found else []
        found += [f"job {instance.labels[k]!r} is at the level {reached[k]:.9g}, below its {level[k]:.9g}" for k in low]
        return Evaluation(value, tuple(found), {"levels": dict(zip(instance.labels, reached.tolist(), strict=True))})

    def _levels(self, instance: Instance, question: Question, rounds: Any) -> tuple[Floats, list[str]]:
        """(n,) levels that the rounds reach, each proved to be as high as it can; sentences where one is not."""
        n = instance.n_tasks
        active, level, gain = np.ones(n, bool), np.zeros(n), gains(instance, question)
        if not isinstance(rounds, list):
            return level, ["the plan's details.rounds is no list of rounds with their proofs"]
        for r, one in enumerate(rounds):
            rise, frozen, jobs, types = (one[key] for key in ("rise", "frozen", "jobs", "types"))
            if isinstance(rise, bool) or not 0 <= float(rise) < np.inf:
                return level, [f"round {r} rises by {rise!r}, expected a number, 0 or more"]
            u = np.zeros(n)
            for name, price in jobs.items():
                u[instance.task_index[name]] = price
            u, p = checked(cluster_of(instance), u, [types[name] for name in instance.device_names])
            weight = weights(instance, question, active)
            over = excess(instance, gain, level, weight, float(rise), u, p)
            level = level + weight * float(rise)
            who = [instance.task_index[name] for name in frozen]
            for k in who:
                if not active[k] or weight[k] <= 0 or over[k] > CHECKED * max(level[k], 1e-300):
                    name = instance.labels[k]
                    return level, [f"round {r} stops job {name!r}, and its prices let it rise by {over[k]:.3g} more"]
            active[who] = False
            if not who:
                return level, [f"round {r} stops no job"]
        if active.any():
            return level, [f"no round stops job {instance.labels[int(active.argmax())]!r}"]
        return level, []

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The one method."""
        return (Step("lps", "exact, a linear program a round"),)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays the first round's prices."""
        if certificate.get("kind") != "prices":
            return super().replay(instance, question, certificate)
        cluster = cluster_of(instance)
        u, p = checked(cluster, certificate["jobs"], certificate["types"])
        weight = weights(instance, question, np.ones(instance.n_tasks, bool))
        asked = float(u @ weight) * (1 - 1e-12)
        if asked <= 0:
            raise ValueError("the prices are of no job that rises")
        return most(cluster, gains(instance, question), u, p) / asked

    def sample(self, seed: int) -> Instance:
        """As the family's, every other one with entities."""
        made = super().sample(seed)
        tables: dict[str, Any] = {}
        if seed % 2:
            tables = {"entity": {name: "ab"[k % 2] for k, name in enumerate(made.labels)}, "entities": {"a": 2}}
        return Instance.build(made.devices, list(made.jobs()), tables=tables, question={"objective": "water-filling"})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """The one right plan, by another solver: levels are unique."""
        plan = fill(instance, question, by_simplex, lambda: False)
        if plan is not None:
            yield plan


PROBLEM = WaterFilling()
