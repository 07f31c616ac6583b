r"""Least power: jobs on shared accelerators for good, each with the throughput it needs, at the fewest watts.

Sets and data (tables: :mod:`hetopt.verify.accelerator_facts`)
    types a = 1..m with C_a accelerators (``slots``), I_a watts of one that is not in use (``idle_power``)
    jobs j with a floor F_j of steps a second (``tables.floor``), on at most D_j accelerators (``scale``)
    c in K_a  configurations: sets of jobs, alone, in pairs or more, that may be on one accelerator of type a together, with
              r_jac steps a second of each and P_ac watts

Variables
    x_ac in {0, 1, ...}  accelerators of type a that run c;     y_ja >= 0  moves of job j to type a

Minimise sum_a I_a C_a + sum_ac (P_ac - I_a) x_ac + mu sum_ja y_ja subject to

    sum_{a, c with j} r_jac x_ac >= F_j                         for each job j            (1)  floor
    sum_{a, c with j} x_ac <= D_j                               for each job j            (2)  most
    sum_c x_ac <= C_a                                           for each type a           (3)  accelerators
    sum_{c with j} x_ac - y_ja <= B_ja                          for each job j that runs  (4)  moves

where B_ja accelerators of type a have job j now (``tables.current``); a job that runs nowhere is not moved, and a move between
accelerators of a type is none. With ``caution`` k, a rate that is an estimate with relative error e counts (1 - k e) of itself
(``tables.estimated``): floors are then kept unless an estimate is off by more than k of its errors.

A job with D_j = 1 is on exactly one accelerator, in a configuration that serves it (r_jac >= F_j); jobs of equal rates, kind,
floor and place are alike, and ``milp`` counts their class, N_k, instead of them: (1) and (2) become

    sum_{a, c} n_kc x_ac = N_k                                  for each class k          (5)  class

with n_kc members of the class in c, exactly. Proof for the columns that are never written down: with any prices u_k of (5),

    value >= sum_a I_a C_a + sum_k N_k u_k - sum_a C_a max(0, max_c (sum_k n_kc u_k - P_ac + I_a - moves_c))        (6)

is looked up over all configurations, block by block.

Source: A. Raeisi and others, GOGH: correlation-guided orchestration of GPUs in heterogeneous clusters, arXiv 2510.15652 (the
question; this statement, classes and (6) are ours).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._configurations import Classes, classes_of, gathered, plan_of
from formulations.sharing._energy_methods import ALL, Greedy, Prices, explained
from formulations.sharing._energy_program import Program, bound_of, idle_watts, program
from formulations.sharing._rounding import next_value
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
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
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.accelerators import check_accelerators

__all__ = ["MILP", "PROBLEM", "Energy"]


def _asked(instance: Instance, question: Question | None) -> tuple[Classes, float]:
    """Classes under the question's caution, and watts of a move."""
    question = question if question is not None else PROBLEM.question(instance)
    return classes_of(instance, question["caution"]), float(question["move"])


class MILP(LinearFormulation):
    """(1)-(5), every configuration a column."""

    name = "milp"
    title = "MILP (1)-(5) over all configurations, alike jobs counted together"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Not too many pairs."""
        many = _asked(instance, question)[0].n_pairs
        return None if many <= ALL else f"{many} pairs of jobs on a type, more than {ALL}; `prices` writes down few"

    def size(self, instance: Instance, question: Question) -> int:
        """Pairs stand in (5) twice and in (3)."""
        classes, _ = _asked(instance, question)
        return 3 * classes.n_pairs + 2 * classes.first.size * instance.n_devices

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``accelerators[type: jobs]`` and ``moves[job,type]``."""
        classes, move = _asked(instance, question)
        return program(instance, classes, gathered(classes.blocks(move)), move)

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Members of a class are dealt to its configurations in file order."""
        assert isinstance(model, Program)
        count = np.rint(x[model.columns("accelerators")]).astype(np.int64)
        return plan_of(instance, model.classes, model.columns_of, count)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """How often a plan has each configuration."""
        assert isinstance(model, Program)
        of = {job: c for c, jobs in enumerate(model.classes.jobs) for job in jobs}
        known = zip(model.columns_of.device.tolist(), model.columns_of.members(), strict=True)
        number = {(i, *members): c for c, (i, members) in enumerate(known)}
        point = np.full(model.n_columns, np.nan)
        point[model.columns("accelerators")] = 0.0
        for device, jobs in solution.details.get("accelerators", ()):
            key = (instance.device_index[device], *sorted(of.get(instance.task_index[job], -1) for job in jobs))
            if key not in number:
                return None
            point[model.columns("accelerators")[number[key]]] += 1.0
        return point

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any program; where there is no plan, what would make one is looked for."""
        outcome = super().run(instance, question, control, options)
        return explained(instance, *_asked(instance, question), outcome)


class Fractions(Relaxed):
    """The relaxation; where it has no point there is no plan, and why is told."""

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any relaxation."""
        outcome = super().run(instance, question, control, options)
        return explained(instance, *_asked(instance, question), outcome)


class Energy(Problem):
    """The question."""

    name = "sharing.energy"
    objectives = ("least-power", "energy")
    title = "jobs on shared accelerators for good, each with the steps a second it needs, at the fewest watts"
    unit = "watts"
    uses = frozenset(
        {"time", "scale", "slots", "power", "idle_power",
         *(f"tables.{name}" for name in ("floor", "kind", "together", "groups", "watts", "estimated", "current"))}
    )  # fmt: skip
    options = (
        Option("caution", float, 0.0, "standard errors by which estimated rates are lowered"),
        Option("move", float, 0.0, "watts that a job's move to another type counts as"),
    )
    methods = (MILP(), Fractions(MILP(), "(1)-(5)"), Prices(), Greedy())

    def fits(self, instance: Instance) -> str | None:
        """Floors, and power of some device."""
        if "floor" not in instance.tables:
            return "it has no `tables.floor` (steps a second that each job needs)"
        if all(device.power is None for device in instance.devices):
            return "no device says its `power`"
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Watts, every floor and every accelerator checked."""
        seen = check_accelerators(instance, solution, question["caution"], question["move"])
        details = {"accelerators": seen.used, "steps a second": seen.rate, "moves": seen.moved}
        return Evaluation(seen.watts, seen.violations, details)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """Jobs whose floor is above all that they can get."""
        for name in ("caution", "move"):
            if not 0 <= question[name] <= 1e12:
                raise InputError(f"$.question.{name} is {question[name]!r}, expected a number, 0 or more")
        facts = classes_of(instance, question["caution"]).facts
        m = facts.rate.shape[1]
        kinds = int(facts.pairs.kind.max(initial=-1)) + 2
        beside = np.zeros((kinds, m))  # the last row is of jobs without a kind
        np.maximum.at(beside, (facts.pairs.first, facts.pairs.type), facts.pairs.rate)
        np.maximum.at(beside, (facts.pairs.second, facts.pairs.type), facts.pairs.other)
        for group in facts.groups.values():
            np.maximum.at(beside[:, group.device], np.array(group.kinds), np.array(group.rate))
        best = np.where(facts.rate > 0, np.maximum(facts.rate, beside[facts.pairs.kind]), 0.0)
        order = np.argsort(-best, axis=1, kind="stable")
        room = np.cumsum(facts.workers[order], axis=1)
        taken = np.diff(np.minimum(room, facts.most[:, None]), prepend=0, axis=1)
        most = (np.take_along_axis(best, order, axis=1) * taken).sum(axis=1)
        low = np.flatnonzero(most < facts.floor * (1 - 1e-9))
        return tuple(
            f"floor: job {instance.labels[k]!r} needs {facts.floor[k]:.6g} steps a second and makes {most[k]:.6g} at most, on "
            f"{facts.most[k]} accelerator{'s'[: int(facts.most[k]) != 1]}: {facts.floor[k] - most[k]:.6g} short"
            for k in low[:20].tolist()
        )

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The rule, the relaxation, the program; prices where it is too large."""
        exact = Step("milp", "exact, over classes of alike jobs")
        if self.method("milp").fits(instance, question) is None:
            return (Step("greedy", "a plan in moments", 0.1), Step("lp", "a bound whose proof is stored", 0.2), exact)
        if self.method("prices").fits(instance, question) is None:
            return (Step("greedy", "a plan in moments", 0.1), Step("prices", "too many pairs to write them all down"))
        return (Step("greedy", "pairs are too many for the program, and jobs may have several accelerators"),)

    def bounds(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The relaxation, or prices where it is too large."""
        steps = (Step("lp", "over all configurations"), Step("prices", "by columns that pay"))
        return [step for step in steps if self.method(step.method).fits(instance, question) is None][:1]

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """(6), or the duals of the relaxation."""
        if certificate.get("kind") != "configuration-prices":
            return super().replay(instance, question, certificate)
        classes, move = _asked(instance, question)
        prices = np.asarray(certificate["classes"], np.float64)
        if prices.shape != classes.first.shape or not np.isfinite(prices).all() or classes.many.any():
            raise ValueError(f"expected a finite price for each of {len(classes.first)} classes")
        return self.round_bound(instance, question, bound_of(classes, prices, move), slack=0.0)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """Whole watts add up to multiples of what divides all of them."""
        classes, move = _asked(instance, question)
        facts = classes.facts
        able = facts.rate > 0
        parts = [
            (facts.watts - facts.idle)[able],
            facts.pair_watts - facts.idle[facts.pairs.type],
            np.array([group.watts - facts.idle[group.device] for group in facts.groups.values()]),
            np.array([move] if move and facts.current.any() else []),
        ]
        return next_value(bound, np.concatenate(parts), idle_watts(classes), slack)

    def sample(self, seed: int) -> Instance:
        """Up to four jobs on two types, some alike, pairs and a group of three."""
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 5))
        slots = (2, 2) if n < 4 else (1, 2)
        devices = [
            Device(name="a", slots=slots[0], power=int(rng.integers(5, 20)), idle_power=int(rng.integers(0, 3))),
            Device(name="b", slots=slots[1], power=int(rng.integers(5, 30))),
        ]
        kinds = {f"k{k}": [int(rng.integers(1, 4)), int(rng.integers(1, 4))] for k in range(2)}
        of = {f"j{k}": f"k{int(rng.integers(0, 2))}" for k in range(n)}
        jobs = [
            Job(name=name, time=list(kinds[kind]), scale=2 if rng.random() < 0.2 else 1) for name, kind in of.items()
        ]
        floor = {name: float(rng.choice([0.1, 0.2, 0.34, 0.5])) for name in of if rng.random() < 0.9}
        together = [
            [name, a, b, float(kinds[a][i] * rng.uniform(1, 2.5)), float(kinds[b][i] * rng.uniform(1, 2.5))]
            for i, name in enumerate("ab")
            for a, b in (("k0", "k0"), ("k0", "k1"), ("k1", "k1"))
            if rng.random() < 0.8
        ]
        tables: dict[str, Any] = {"kind": of, "floor": floor or {"j0": 0.1}, "together": together}
        tables["watts"] = [["a", ["k0"], 4], ["b", ["k0", "k1"], int(rng.integers(8, 30))]]
        tables["watts"] += [["a", ["j1"], 3]] * int(rng.random() < 0.5)
        question: dict[str, Any] = {"objective": "least-power"}
        if seed % 2:
            tables["groups"] = [["b", ["k0", "k1", "k0"], [4, 5, 4]]]
        if seed % 3 == 1:
            tables["estimated"] = [["a", ["k0", "k1"], [0.2, 0.1], "knn"], ["b", ["k1"], [0.3], "knn"]]
            question["caution"] = 1.0
        if seed % 3 == 2:
            tables["current"] = {"j0": {"a": 1}, "j1": {"b": 1}}
            question["move"] = 3.0
        return Instance.build(devices, jobs, tables=tables, question=question)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Every filling of every accelerator with up to three jobs."""
        labels = [name for name in instance.labels if name in instance.tables["floor"]]
        sets = [list(part) for size in (1, 2, 3) for part in itertools.combinations(labels, size)]
        fillings = [
            [
                [[device.name, jobs] for jobs in chosen]
                for count in range(device.slots + 1)
                for chosen in itertools.combinations_with_replacement(sets, count)
            ]
            for device in instance.devices
        ]
        for rows in itertools.product(*fillings):
            yield Solution(details={"accelerators": [row for part in rows for row in part]})


PROBLEM = Energy()
