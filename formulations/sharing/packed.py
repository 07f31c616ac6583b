r"""Space sharing: two jobs may run on the same workers at once, each slower than alone, both together often faster than in turns.

Data as in :mod:`formulations.sharing.max_min`; K = pairs {i, k} of jobs of one scale with measured rates on a type: r_ikj steps a
second of job i beside job k on type j (``tables.kind`` and ``tables.together``: :mod:`hetopt.verify.pairs`). n_i steps left.

    x_ij in [0, 1]  share of time of job i alone on type j;     z_ikj = z_kij  share of time of jobs i and k together on type j
    g_i = sum_j T_ij x_ij + sum_{k, j} r_ikj z_ikj              steps a second of job i

Maximise t subject to

    f_i g_i >= t                                                            for each job i      (1)  level
    sum_j x_ij + sum_{k, j} z_ikj <= 1                                      for each job i      (2)  turns
    sum_i s_i x_ij + sum_{i < k} s_i z_ikj <= C_j                           for each type j     (3)  workers

with f_i = s_i / (w_i p_i) for max-min fairness (packed-max-min-fairness: the value is t), and f_i = 1 / n_i for a batch done as
early as possible (packed-makespan: the value is 1 / t).

Pairs grow with the square of the jobs, but jobs of equal rates, scale, factor f and kind are alike, and by convexity may be given
equal shares: ``classes`` solves (1)-(3) for totals of classes, with N_c members,

    (f_c / N_c) (sum_j T_cj X_cj + sum_{d != c, j} r_cdj Z_cdj + 2 sum_j r_ccj Z_ccj) >= t      for each class      (4)
    sum_j X_cj + sum_{d != c, j} Z_cdj + 2 sum_j Z_ccj <= N_c                                   for each class      (5)
    sum_c s_c X_cj + sum_{c <= d} s_c Z_cdj <= C_j                                              for each type       (6)

(Z_ccj only where N_c > 1), and hands every member its part. Where classes are many, columns Z that pay at the current prices are
added until none does. Proof: with prices u of (1), v of (2), p of (3), raised until u_i f_i T_ij <= v_i + s_i p_j and
u_i f_i r_ikj + u_k f_k r_kij <= v_i + v_k + s_i p_j, t <= (sum_i v_i + sum_j p_j C_j) / sum_i u_i; the replay raises them.

Source: Narayanan et al., OSDI 2020 (policies with space sharing). Exact aggregation, columns and the proof are ours.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import ClusterProblem, cluster_of, isolated, proportional
from formulations.sharing._packing import Classes, Pairs, classes_of, expanded, joined
from formulations.sharing._prices import checked
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.pairs import pair_rates, together_of, together_violations
from hetopt.verify.shares import share_violations, throughputs

__all__ = ["PROBLEMS", "Convex", "Even", "PackedMakespan", "PackedMaxMin", "Program"]

Floats = NDArray[np.float64]
ALL = 20_000  # columns of pairs up to which all of them go into the program at once
GAIN = 1e-10  # worth of a column, in parts of the bound, below which it is not added
SMALL = 300  # classes up to which the simplex method is the faster one


class Point(NamedTuple):
    """Of a program over some columns: time alone (k, m) and of pairs (q,), prices (k,), (k,), (m,) of a job's or a worker's."""

    alone: Floats
    time: Floats
    level: Floats
    turns: Floats
    workers: Floats
    solver: str


def solved(classes: Classes, pairs: Pairs, control: Control) -> Point | None:
    """(4)-(6) over the columns of single jobs and of these pairs; None when the solver did not end."""
    from hetopt import solvers

    k, m = classes.gain.shape
    c, j = np.nonzero(classes.gain)
    a, b, device = pairs.first, pairs.second, pairs.device
    unit = float(classes.gain.max(axis=1).min())
    model = LinearModel("packed")
    x = model.continuous("alone", len(c), lower=0)
    z = model.continuous("together", len(a), lower=0)
    t = model.continuous("level", 1, lower=0)
    per = 1.0 / (classes.members * unit)
    level = [(c, x, classes.gain[c, j] * per[c]), (a, z, pairs.gain * per[a]), (b, z, pairs.other * per[b])]
    model.rows("level", k, [*level, (np.arange(k), np.broadcast_to(t, (k,)), -1.0)], lower=0)  # (4)
    model.rows("turns", k, [(c, x, 1.0), (a, z, 1.0), (b, z, 1.0)], upper=classes.members)  # (5)
    model.rows("workers", m, [(j, x, classes.scale[c]), (device, z, classes.scale[a])], upper=classes.workers)  # (6)
    model.maximize(t)
    native = {} if k <= SMALL else {"solver": "ipm"}
    answer = solvers.get("highs").solve(model, solvers.Options(native=native), control)
    if answer.reason != "optimal" or answer.x is None or answer.row_dual is None:
        return None
    alone = np.zeros((k, m))
    alone[c, j] = answer.x[model.columns("alone")]
    dual = np.abs(answer.row_dual)
    return Point(
        alone, answer.x[model.columns("together")], dual[model.rows_of("level")] / (classes.members * unit),
        dual[model.rows_of("turns")], dual[model.rows_of("workers")], f"{answer.solver} {answer.version}",
    )  # fmt: skip


def worth(classes: Classes, point: Point) -> tuple[Pairs, Floats]:
    """Columns that pay at the point's prices, the best of each class on each type, and by how much."""
    k, m = classes.gain.shape
    found, gains = [], []
    for pairs in classes.pairs():
        c, d, device = pairs.first, pairs.second, pairs.device
        offer = point.level[c] * pairs.gain + point.level[d] * pairs.other
        offer -= classes.scale[c] * point.workers[device] + point.turns[c] + point.turns[d]
        best = np.zeros(k * m)
        np.maximum.at(best, c * m + device, offer)
        np.maximum.at(best, d * m + device, offer)
        keep = (offer > 0) & ((offer >= best[c * m + device]) | (offer >= best[d * m + device]))
        found.append(Pairs(*(column[keep] for column in pairs)))
        gains.append(offer[keep])
    return joined(iter(found)), np.concatenate([np.zeros(0), *gains])


class Program(Method):
    """(4)-(6): by classes, or with a class for each job, which is (1)-(3)."""

    kind = "exact"

    def __init__(self, alike: bool) -> None:
        self.alike = alike
        self.name = "classes" if alike else "jobs"  # type: ignore[misc]
        self.title = (  # type: ignore[misc]
            "LP (4)-(6) over classes of alike jobs, exact by symmetry, columns as they pay; proof by prices, replayed"
            if alike
            else "LP (1)-(3) over single jobs, columns as they pay; proof by prices, replayed"
        )

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Programs with more and more columns, until none pays."""
        problem: Packed = question.problem  # type: ignore[assignment]
        factor = problem.factor(instance)
        apart = () if self.alike else (np.arange(len(factor), dtype=np.float64),)
        classes = classes_of(instance, factor, *apart)
        pairs, rounds, solver = joined(iter(())), 0, None
        if classes.n_pairs <= ALL:
            pairs = joined(classes.pairs())
        whole = classes.n_pairs <= ALL
        while not control.should_stop():
            point = solved(classes, pairs, control)
            if point is None:
                break
            rounds, solver = rounds + 1, point.solver
            more, gain = (joined(iter(())), np.zeros(0)) if whole else worth(classes, point)
            paid = float(classes.members @ point.turns + classes.workers @ point.workers)
            last = not (gain > GAIN * paid / len(factor)).any()
            if last or control.remaining < np.inf:
                control.report_plan(expanded(instance, classes, point.alone, pairs, point.time))
            if last:
                certificate = {
                    "kind": "pair-prices",
                    "jobs": point.level[classes.of].tolist(),
                    "turns": point.turns[classes.of].tolist(),
                    "types": point.workers.tolist(),
                }
                question.prove(instance, control, certificate)
                told = {"classes": len(classes.members), "pairs": len(pairs.first), "rounds": rounds}
                return Outcome(solver=solver, statistics=told)
            pairs = joined(iter((pairs, more)))
        return Outcome("limit", "time" if control.should_stop() else "other", solver=solver)


class Convex(Method):
    """(1)-(3) in cvxpy's words."""

    name = "cvxpy"
    title = "(1)-(3) over single jobs stated in cvxpy, for reading and as a second opinion"
    kind = "exact"
    engine = "convex"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Not too many pairs of jobs."""
        many = _single(instance, question).n_pairs
        return None if many <= ALL else f"{many} shares of pairs; `classes` needs fewer"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """State, solve, report; the bound is the solver's word."""
        import cvxpy as cp
        from scipy import sparse

        from hetopt.solvers.cvxpy import solve_problem

        if control.should_stop():
            return Outcome("limit", "time")
        problem: Packed = question.problem  # type: ignore[assignment]
        jobs = _single(instance, question)
        pairs, (n, m) = joined(jobs.pairs()), jobs.gain.shape
        i, k, each = pairs.first, pairs.second, np.arange(len(pairs.first))
        shape = (n, max(len(each), 1))
        gain = sparse.csr_array((np.r_[pairs.gain, pairs.other], (np.r_[i, k], np.r_[each, each])), shape)
        both = sparse.csr_array((np.ones(2 * len(each)), (np.r_[i, k], np.r_[each, each])), shape)
        used = sparse.csr_array((jobs.scale[i], (pairs.device, each)), (m, shape[1]))
        x, z = cp.Variable((n, m), nonneg=True), cp.Variable(shape[1], nonneg=True)
        # A level that the even division has, so that values are near 1 or above: a solver's tolerance is absolute below.
        unit = float((jobs.gain[jobs.of] * isolated(cluster_of(instance))).sum(axis=1).min())
        level = cp.min((cp.sum(cp.multiply(jobs.gain, x), axis=1) + gain @ z) / unit)  # (1)
        limits = [cp.sum(x, axis=1) + both @ z <= 1, jobs.scale @ x + used @ z <= jobs.workers]  # (2), (3)
        answer = solve_problem(cp.Problem(cp.Maximize(level), limits), None, control)
        if x.value is not None:
            control.report_plan(expanded(instance, jobs, np.asarray(x.value), pairs, np.asarray(z.value)[: len(each)]))
        if answer.reason == "optimal" and answer.bound is not None:
            control.report_bound(problem.value(answer.bound * unit * (1 + 5e-7)), "solver")
        return Outcome(solver=f"cvxpy {answer.version}")


def _single(instance: Instance, question: Question) -> Classes:
    """Every job a class of its own."""
    factor = question.problem.factor(instance)  # type: ignore[attr-defined]
    return classes_of(instance, factor, np.arange(len(factor), dtype=np.float64))


class Even(Method):
    """The cluster divided evenly, nobody sharing."""

    name = "isolated"
    title = "every job the same part of every type, none together with another; baseline"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan."""
        control.report_plan(Solution(shares=isolated(cluster_of(instance))))
        return Outcome()


class Unpaired(Method):
    """The best plan without pairs."""

    name = "unpaired"
    title = "(4)-(6) without columns of pairs: the best plan in which nobody shares workers; baseline"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One program."""
        classes = classes_of(instance, question.problem.factor(instance))  # type: ignore[attr-defined]
        point = None if control.should_stop() else solved(classes, joined(iter(())), control)
        if point is None:
            return Outcome("limit", "time" if control.should_stop() else "other")
        control.report_plan(expanded(instance, classes, point.alone, joined(iter(())), point.time))
        return Outcome(solver=point.solver)


class Packed(ClusterProblem):
    """A question whose value is decided by the least level, f g."""

    methods = (Program(alike=True), Program(alike=False), Convex(), Unpaired(), Even())

    @abstractmethod
    def factor(self, instance: Instance) -> Floats:
        """(n,) f."""

    @abstractmethod
    def value(self, level: float) -> float:
        """The objective when the least level is this."""

    def fits(self, instance: Instance) -> str | None:
        """As the family, with the two tables."""
        own = super().fits(instance)
        if own is None and not {"kind", "together"} <= set(instance.tables):
            return "it has no rates of pairs; expected `tables.kind` and `tables.together`"
        return own

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Steps a second of every job, alone and together, every limit checked."""
        worst = -np.inf if self.sense == "max" else np.inf
        together = together_of(instance, solution.details)
        wrong = share_violations(instance, solution.shares, together=together)
        if solution.shares is None or solution.shares.shape != (instance.n_tasks, instance.n_devices):
            return Evaluation(worst, wrong)
        wrong += together_violations(instance, together)
        rate = throughputs(instance, solution.shares) + together.steps(pair_rates(instance), instance.n_tasks)
        scale = instance.columns.scale[instance.job_of]
        used = scale @ solution.shares + together.used(scale, instance.n_devices)
        devices = {
            name: {"used": float(u), "workers": v.slots}
            for name, u, v in zip(instance.device_names, used, instance.devices, strict=True)
        }
        value = self.value(float((self.factor(instance) * rate).min()))
        return Evaluation(value, wrong, {"devices": devices, "time together": float(together.share.sum())})

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Classes are never more than jobs."""
        return (Step("classes", "exact, over classes of alike jobs"),)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """What the prices prove, raised where a column would gain by them."""
        if certificate.get("kind") != "pair-prices":
            return super().replay(instance, question, certificate)
        u, p = checked(cluster_of(instance), certificate["jobs"], certificate["types"])
        v, _ = checked(cluster_of(instance), certificate["turns"], certificate["types"], some=False)
        classes = classes_of(instance, self.factor(instance), u, v)
        first = np.zeros(len(classes.members), np.int64)
        first[classes.of] = np.arange(len(u))
        level = float(classes.members @ u[first])
        return self.value(classes.most(u[first], v[first], p) / level * (1 + 1e-12))

    def sample(self, seed: int) -> Instance:
        """Up to four jobs of two kinds, one now and then of none, some alike."""
        made, rng = super().sample(seed), np.random.default_rng([seed, 7])
        jobs = list(made.jobs())
        if len(jobs) > 1 and seed % 2:
            jobs[1] = msgspec.structs.replace(jobs[0], name=jobs[1].name)
        kind = {job.name: "ab"[int(rng.integers(2))] for job in jobs if rng.random() < 0.9}
        if len(jobs) > 1 and seed % 2:
            kind |= dict.fromkeys((jobs[0].name, jobs[1].name), "a")
        rows = [
            [name, one, two, *(int(t) for t in rng.integers(2, 25, 2))]
            for name in made.device_names
            for one, two in (("a", "a"), ("b", "a"), ("b", "b"))
            if rng.random() < 0.8
        ]
        rows = [[*row[:4], row[3]] if row[1] == row[2] else row for row in rows]
        question = {"objective": self.objectives[0]}
        return Instance.build(made.devices, jobs, tables={"kind": kind, "together": rows}, question=question)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """The optimum by a dense program over single jobs, half of it, and the even division."""
        from scipy.optimize import linprog

        jobs = _single(instance, question)
        pairs, (n, m) = joined(jobs.pairs()), jobs.gain.shape
        q, i, k = len(pairs.first), pairs.first, pairs.second
        width = n * m + q + 1
        rows, right = np.zeros((2 * n + m, width)), np.concatenate([np.zeros(n), np.ones(n), jobs.workers])
        for one in range(n):
            rows[one, one * m : (one + 1) * m] = -jobs.gain[one]
            rows[n + one, one * m : (one + 1) * m] = 1.0
            rows[2 * n + np.arange(m), one * m + np.arange(m)] = jobs.scale[one]
        for column in range(q):
            at = n * m + column
            rows[i[column], at], rows[k[column], at] = -pairs.gain[column], -pairs.other[column]
            rows[n + i[column], at] = rows[n + k[column], at] = 1.0
            rows[2 * n + pairs.device[column], at] = jobs.scale[i[column]]
        rows[:n, -1] = 1.0
        bounds = [(0, 1 if good else 0) for good in (jobs.gain > 0).ravel().tolist()] + [(0, None)] * (q + 1)
        found = linprog(np.r_[np.zeros(width - 1), -1.0], rows, right, bounds=bounds, method="highs-ds")
        for part in (1.0, 0.5):
            alone = found.x[: n * m].reshape(n, m) * part
            yield expanded(instance, jobs, alone, pairs, found.x[n * m : -1] * part)
        yield Solution(shares=isolated(cluster_of(instance)))


class PackedMaxMin(Packed):
    """The worst-off job as well off as possible."""

    name = "sharing.packed_max_min"
    objectives = ("packed-max-min-fairness",)
    title = "time shares of a cluster whose workers two jobs may share, the worst-off job as well off as possible"
    sense = "max"
    unit = "of a proportional share"
    uses = frozenset({"time", "scale", "slots", "weight", "tables.kind", "tables.together"})

    def factor(self, instance: Instance) -> Floats:
        """s / (w p)."""
        cluster = cluster_of(instance)
        return np.asarray(cluster.scale / (cluster.weight * proportional(cluster)))

    def value(self, level: float) -> float:
        """The level itself."""
        return level

    def fits(self, instance: Instance) -> str | None:
        """As the family, and every weight above 0."""
        own = super().fits(instance)
        if own is None and (instance.columns.weight <= 0).any():
            return "a job has the weight 0; its level would never count"
        return own


class PackedMakespan(Packed):
    """All jobs done as early as possible."""

    name = "sharing.packed_makespan"
    objectives = ("packed-makespan",)
    title = "time shares of a cluster whose workers two jobs may share, all jobs done as early as possible"
    unit = "seconds"
    uses = frozenset({"time", "scale", "slots", "steps", "tables.kind", "tables.together"})
    needs_steps = True

    def factor(self, instance: Instance) -> Floats:
        """1 / n."""
        return 1.0 / cluster_of(instance).steps

    def value(self, level: float) -> float:
        """Seconds until the last job is done."""
        return 1.0 / level if level > 0 else float("inf")


PROBLEMS = (PackedMaxMin(), PackedMakespan())
