r"""Gangs of bundles on nodes: all bundles of a job or none, every resource of every node counted by itself.

Sets and data
    g jobs (gangs) of weight w_g; c classes of alike bundles (tasks), c of gang g(c), k_c bundles of it; v nodes, r resources
    a_vr   amount of resource r at node v (``tables.capacity``, less ``tables.reserve``, which stays free)
    q_cr   amount that a bundle takes (``tables.demand``, by task; a job without tasks is a bundle itself)
    N_c    nodes where the bundle may be: its ``time`` says on which types, ``pin`` and ``forbid`` too
    D      domains of nodes (``tables.domain``; racks, say), counted with ``together``: a gang within one domain
    F      nodes that are not there yet (``tables.new``)

Variables
    z_g in {0, 1}  the gang is placed;   y_cv in {0..k_c}  bundles of the class at the node
    d_gD in {0, 1}  the gang's domain;   f_v in {0, 1}  the new node is taken

    maximise    sum_g w_g z_g                                                           (gang-weight)
    or minimise sum_(v in F) f_v  with z_g = 1 for all g                                (gang-nodes)
    subject to  sum_(v in N_c) y_cv = k_c z_g(c)            for each class              (1)  all or nothing
                sum_c q_cr y_cv <= a_vr (f_v, if v in F)    for each node and resource  (2)  room
                y_cv <= k_c d_(g(c), D(v)),  sum_D d_gD = z_g        with ``together``  (3)  one domain

Vector bin packing: sums over nodes say nothing, as a bundle cannot be split and a type cannot stand for another. Bundles that
are alike (same gang, demand and nodes) are counted, not named. ``best-fit`` takes gangs by weight, and their bundles, largest
first, to the node that has least of what they do not need and most of what they do.

Source: standard formulation (vector bin packing); the rule for nodes is best fit by the dot product, R. Panigrahy, K. Talwar,
L. Uyeda, U. Wieder, Heuristics for vector bin packing, 2011.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.errors import InputError, nearest
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
    Method,
    Option,
    Outcome,
    Problem,
    Question,
    Relaxed,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job, Task
from hetopt.solution import Solution
from hetopt.verify.gangs import amounts, gang_violations

__all__ = ["MILP", "PROBLEMS", "BestFit", "Bound", "Nodes", "Weight"]


PATIENCE = 10.0  # seconds for the question about gangs without a place


class Gangs(NamedTuple):
    """Arrays of an instance: ``room`` (v, r), bundles' ``need`` (n, r), classes: ``of`` (n,), ``first`` (c,), ``size`` (c,)."""

    room: NDArray[np.float64]
    need: NDArray[np.float64]
    gang: NDArray[np.int64]
    of: NDArray[np.int64]
    first: NDArray[np.int64]
    size: NDArray[np.int64]
    new: NDArray[np.bool_]
    domain: NDArray[np.int64]


@lru_cache(maxsize=4)
def gangs_of(instance: Instance) -> Gangs:
    """Arrays of an instance; InputError where a table is damaged."""
    room, need, _ = amounts(instance)
    gang = np.asarray(instance.job_of, np.int64)
    rows = np.column_stack([gang, need, instance.eligible])
    _, first, of, count = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    new = np.zeros(instance.n_devices, bool)
    for name in _names(instance, "new"):
        new[instance.device_index[name]] = True
    table = instance.tables.get("domain", {})
    if not isinstance(table, Mapping):
        raise InputError(f"$.tables.domain is {type(table).__name__}, expected a domain's name by node")
    for name in table:
        _known(instance, name, "domain")
    words = [str(table.get(name, f"\0{name}")) for name in instance.device_names]  # a node without one is its own
    domain = np.unique(words, return_inverse=True)[1]
    return Gangs(room, need, gang, of.ravel(), first, count, new, domain.ravel())


def _names(instance: Instance, key: str) -> list[str]:
    given = instance.tables.get(key, [])
    if not isinstance(given, list):
        raise InputError(f"$.tables.{key} is {type(given).__name__}, expected a list of nodes")
    for name in given:
        _known(instance, name, key)
    return given


def _known(instance: Instance, name: Any, key: str) -> None:
    if name not in instance.device_index:
        raise InputError(
            f"$.tables.{key} names {name!r}; {nearest(str(name), instance.device_names, what='the nodes')}"
        )


class MILP(LinearFormulation):
    """(1)-(3)."""

    name = "milp"
    title = "MILP (1)-(3), alike bundles counted together"
    kind = "exact"

    def __init__(self, all_placed: bool) -> None:
        self.all_placed = all_placed

    def size(self, instance: Instance, question: Question) -> int:
        """Classes times nodes times resources."""
        gangs = gangs_of(instance)
        return len(gangs.first) * gangs.room.size

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``bundles[class@node]``, ``placed[gang]``, ``domain[gang,domain]`` and ``new[node]``."""
        s = gangs_of(instance)
        names, jobs = instance.device_names, instance.columns.job_name
        c, v = np.nonzero(instance.eligible[s.first])
        model = LinearModel("gangs")
        labels = [f"{instance.labels[s.first[a]]}@{names[b]}" for a, b in zip(c.tolist(), v.tolist(), strict=True)]
        y = model.integer("bundles", len(c), lower=0, upper=s.size[c], labels=(labels,))
        z = model.binary("placed", len(jobs), labels=(jobs,))
        k, n_resources = len(s.first), s.room.shape[1]
        model.rows("whole", k, [(c, y, 1.0), (np.arange(k), z[s.gang[s.first]], -s.size)], lower=0, upper=0)  # (1)
        pair, r = np.nonzero(s.need[s.first][c])
        taken: list[Any] = [(v[pair] * n_resources + r, y[pair], s.need[s.first[c[pair]], r])]
        room = np.array(s.room)
        if self.all_placed:
            fresh = np.flatnonzero(s.new)
            f = model.binary("new", len(fresh), labels=([names[a] for a in fresh.tolist()],))
            cell = fresh[:, None] * n_resources + np.arange(n_resources)
            taken.append((cell, f[:, None], -room[fresh]))
            room[fresh] = 0.0
            model.rows("all", len(jobs), [(np.arange(len(jobs)), z, 1.0)], lower=1, labels=(jobs,))
            rows = np.arange(len(c))[s.new[v]]  # a bundle that needs nothing takes the node as well
            which = np.searchsorted(fresh, v[rows])
            at = np.arange(len(rows))
            model.rows("open", len(rows), [(at, y[rows], 1.0), (at, f[which], -s.size[c[rows]])], upper=0)
            model.minimize(f)
        else:
            model.maximize(z, instance.columns.weight)
        model.rows("room", room.size, taken, upper=room.ravel())  # (2)
        if question is not None and question["together"]:
            n_domains = int(s.domain.max()) + 1
            d = model.binary("domain", (len(jobs), n_domains))
            mine = d[s.gang[s.first[c]], s.domain[v]]
            at = np.arange(len(c))
            model.rows("inside", len(c), [(at, y, 1.0), (at, mine, -s.size[c])], upper=0)  # (3)
            one = np.arange(len(jobs))
            model.rows("one-domain", len(jobs), [(one[:, None], d, 1.0), (one, z, -1.0)], lower=0, upper=0)
        return model

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any MILP; where not all gangs can be placed, how many must be left out."""
        return _explained(instance, question, super().run(instance, question, control, options))

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Bundles of a class are dealt to its nodes in file order."""
        s = gangs_of(instance)
        c, v = np.nonzero(instance.eligible[s.first])
        y = np.rint(x[model.columns("bundles")]).astype(np.int64)
        placement = np.full(instance.n_tasks, -1)
        for k in range(len(s.first)):
            nodes = np.repeat(v[c == k], y[c == k])
            placement[np.flatnonzero(s.of == k)[: len(nodes)]] = nodes
        return _plan(instance, placement)


class Bound(Relaxed):
    """The LP relaxation; where it shows that not all gangs can be placed, how many must be left out."""

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any relaxation."""
        return _explained(instance, question, super().run(instance, question, control, options))


def _explained(instance: Instance, question: Question, outcome: Outcome) -> Outcome:
    """An outcome; where there is no plan, with the fewest gangs that must be left out, new nodes in use."""
    from hetopt import solvers

    if outcome.reason != "infeasible":
        return outcome
    model = MILP(all_placed=False).build(instance, question)
    placed = model.columns("placed")
    model.maximize(placed, np.ones(len(placed)))
    answer = solvers.get("highs").solve(model, solvers.Options(time_limit=PATIENCE))
    if answer.x is None:
        return outcome
    out = [name for name, there in zip(instance.columns.job_name, answer.x[placed] > 0.5, strict=True) if not there]
    least = "at least" if answer.reason == "optimal" else "(or fewer, this was not proved in time)"
    told = ", ".join(map(repr, out[:10])) + (", ..." if len(out) > 10 else "")
    found = f"gangs: {len(out)} of {len(placed)} must be left out {least}, for example {told}"
    return replace(outcome, infeasible=(found, *outcome.infeasible))


def _plan(instance: Instance, placement: NDArray[np.int64]) -> Solution:
    """A plan that says which gangs it places."""
    gang = np.asarray(instance.job_of)
    there = sorted(set(gang[placement >= 0].tolist()))
    return Solution(placement=placement, details={"gangs": [instance.columns.job_name[g] for g in there]})


class BestFit(Method):
    """Best fit by the dot product, gang by gang."""

    name = "best-fit"
    title = "gangs by weight, largest bundles first, to the node whose room is most like the bundle's need"
    kind = "heuristic"

    def __init__(self, all_placed: bool) -> None:
        self.all_placed = all_placed

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass; nodes that are there come before new ones."""
        s = gangs_of(instance)
        free = np.array(s.room)
        unit = np.maximum(s.room.max(axis=0), 1e-300)
        weight, need = instance.columns.weight, s.need / unit
        size = need.sum(axis=1)
        placement = np.full(instance.n_tasks, -1)
        order = sorted(range(len(weight)), key=lambda g: (-weight[g], size[s.gang == g].sum(), g))
        for g in order:
            mine = sorted(np.flatnonzero(s.gang == g).tolist(), key=lambda k: (-size[k], k))
            domains = sorted(set(s.domain.tolist())) if question["together"] else [None]
            for domain in domains:
                left, chosen = np.array(free), []
                for k in mine:
                    fits = instance.eligible[k] & (left >= s.need[k]).all(axis=1)
                    if domain is not None:
                        fits &= s.domain == domain
                    if not fits.any():
                        break
                    waste = (left / unit) @ (need[k] == 0) - (left / unit) @ need[k]
                    best = np.lexsort((waste, s.new, ~fits))[0]
                    left[best] -= s.need[k]
                    chosen.append(best)
                if len(chosen) == len(mine):
                    placement[mine], free = chosen, left
                    break
            if control.should_stop():
                break
        if not self.all_placed or (placement >= 0).all():
            control.report_plan(_plan(instance, placement))
        return Outcome()


class Weight(Problem):
    """Placed gangs by weight."""

    name = "sharing.gang"
    objectives: ClassVar[tuple[str, ...]] = ("gang-weight", "gang")
    title = "gangs of bundles on nodes with several resources, all of a gang or none, greatest weight placed"
    sense: ClassVar[Literal["min", "max"]] = "max"
    unit = ""
    uses: ClassVar[frozenset[str]] = frozenset(
        {"time", "weight", "tables.capacity", "tables.demand", "tables.reserve", "tables.domain"}
    )
    options = (Option("together", bool, False, "a gang stays within one domain of tables.domain"),)
    methods = (MILP(all_placed=False), Relaxed(MILP(all_placed=False), "(1)-(3)"), BestFit(all_placed=False))
    all_placed: ClassVar[bool] = False

    def fits(self, instance: Instance) -> str | None:
        """Capacities and demands by table."""
        if "capacity" not in instance.tables or "demand" not in instance.tables:
            return "it needs tables.capacity (amounts by node and resource) and tables.demand (by bundle and resource)"
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Weight of placed gangs, or new nodes in use."""
        s = gangs_of(instance)
        domain = s.domain if question["together"] else None
        placed, used, wrong = gang_violations(instance, solution, domain, self.all_placed)
        details = {"nodes": used, "left out": [n for g, n in enumerate(instance.columns.job_name) if g not in placed]}
        if self.all_placed:
            if solution.placement is None or not placed:
                return Evaluation(0.0, wrong, details)
            there = np.unique(solution.placement[solution.placement >= 0])
            return Evaluation(float(s.new[there].sum()), wrong, details)
        return Evaluation(math.fsum(float(instance.columns.weight[g]) for g in placed), wrong, details)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """Whole weights add up to whole numbers."""
        weight = instance.columns.weight
        if self.all_placed:
            return math.ceil(bound - slack - 1e-9)
        return math.floor(bound + slack + 1e-9) if (weight == np.floor(weight)).all() else bound

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The rule, then the relaxation, then the program."""
        return (
            Step("best-fit", "a plan in moments", 0.1),
            Step("lp", "a bound whose proof is stored", 0.2),
            Step("milp", "exact"),
        )

    def sample(self, seed: int) -> Instance:
        """Up to five bundles in three gangs, two or three nodes of two resources."""
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(1, 4)), int(rng.integers(2, 4))
        devices = [Device(name=f"n{v}", type="x" if v else "y") for v in range(m)]
        capacity = {f"n{v}": {"cpu": int(rng.integers(2, 9)), "gpu": int(rng.integers(0, 3))} for v in range(m)}
        jobs, demand = [], {}
        for g in range(n):
            tasks = []
            for k in range(int(rng.integers(1, 3))):
                time: dict[str, int | float | None] = {"x": 1} if rng.random() < 0.15 else {"x": 1, "y": 1}
                tasks.append(Task(name=f"b{k}", time=time))
                demand[f"g{g}/b{k}" if n > 1 else f"b{k}"] = {
                    "cpu": int(rng.integers(1, 4)),
                    "gpu": int(rng.integers(0, 2)),
                }
            jobs.append(Job(name=f"g{g}", weight=int(rng.integers(1, 5)), tasks=tasks))
        tables: dict[str, Any] = {"capacity": capacity, "demand": demand, "domain": {"n0": "r", f"n{m - 1}": "r"}}
        if seed % 3 == 2:
            tables["reserve"] = {"n0": {"cpu": 1}}
        if self.all_placed:
            tables["new"] = [f"n{m - 1}"]
        return Instance.build(devices, jobs, tables=tables, question={"objective": self.objectives[0]})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All placements, left-out bundles too."""
        choices = [[-1, *np.flatnonzero(row).tolist()] for row in instance.eligible]
        for placement in itertools.product(*choices):
            yield _plan(instance, np.array(placement, np.int64))


class Nodes(Weight):
    """All gangs, fewest new nodes."""

    name = "sharing.gang_nodes"
    objectives = ("gang-nodes",)
    title = "gangs of bundles on nodes with several resources, all gangs on as few new nodes as possible"
    sense = "min"
    unit = "nodes"
    uses = frozenset({"time", "tables.capacity", "tables.demand", "tables.reserve", "tables.domain", "tables.new"})
    methods = (MILP(all_placed=True), Bound(MILP(all_placed=True), "(1)-(3)"), BestFit(all_placed=True))
    all_placed = True

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A bundle that fits no node alone; a resource of which there is less than all bundles take."""
        s = gangs_of(instance)
        _, _, resources = amounts(instance)
        found = []
        for k in s.first.tolist():
            if not (instance.eligible[k] & (s.room * (1 + 1e-9) >= s.need[k]).all(axis=1)).any():
                short = np.where(instance.eligible[k], np.maximum(s.need[k] - s.room, 0).max(axis=1), np.inf).min()
                found.append(
                    f"room: bundle {instance.labels[k]!r} fits no node it may be on, even an empty one: {short:g} short at best"
                )
        total, most = s.need.sum(axis=0), s.room.sum(axis=0)
        found += [
            f"room: all bundles take {total[r]:g} of {resources[r]!r}, all nodes have {most[r]:g}: {total[r] - most[r]:g} short"
            for r in np.flatnonzero(total > most * (1 + 1e-9)).tolist()
        ]
        return tuple(found[:20])


PROBLEMS = (Weight(), Nodes())
