r"""One variant a layer under several budgets: the multiple-choice knapsack with several resources.

Asked when a model is compressed for a device: each layer has alternatives (a smaller feed-forward part, no attention, another
precision), each with a loss of quality and with its time and memory; which to take so that the model fits and is fast enough?

Sets and data
    t = 1..L tasks (layers), m modes of each;  s_tm score (loss of quality, less is better)
    a_rtm amount of resource r (memory, time, energy, cost) on the first device;  B_r its budget
    E earlier choices, from each of which the new one must differ in at least ``differ`` tasks

Variables
    x_tm in {0, 1}  task t runs in mode m

Minimise sum_tm s_tm x_tm subject to

    sum_m x_tm = 1                              for each task t                         (1)  choose
    sum_tm a_rtm x_tm <= B_r                    for each resource r with a budget       (2)  budget
    sum_{t, m chosen in e} x_tm <= L - differ   for each earlier choice e               (3)  differ

The memory's budget is the device's; ``time``, ``energy`` and ``cost`` are options. Method ``prices`` is the Lagrangian relaxation
of (2), :mod:`hetopt.algorithms.choice`, whose bound is replayed from the prices alone; ``branch`` is a tree of such relaxations
(:mod:`hetopt.algorithms.choice_tree`). :func:`hetopt.diverse` asks for several choices one after the other.

Source: A. Bercovich et al., Puzzle: distillation-based NAS for inference-optimized LLMs, ICML 2025 (the question and (3)).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from hetopt.control import Control
from hetopt.errors import InputError
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
from hetopt.records import Device, Job, Mode, Task
from hetopt.solution import Solution
from hetopt.verify.choice import check_choice

__all__ = ["MILP", "PROBLEM", "Branch", "MultiChoice", "Prices"]

RESOURCES = ("memory", "time", "energy", "cost")
PATIENCE = 10.0  # seconds for each question about a missing choice
_ROUNDING = 2.0**-40


class Menu(NamedTuple):
    """All modes, task by task: (c,) names and scores, (4, c) amounts of :data:`RESOURCES`, (L + 1,) first of each task.

    Amounts that a mode does not state are nan, memory 0; ``open`` are modes that run on the first device.
    """

    names: tuple[str, ...]
    score: NDArray[np.float64]
    amount: NDArray[np.float64]
    start: NDArray[np.int64]
    open: NDArray[np.bool_]


@lru_cache(maxsize=4)
def menu(instance: Instance) -> Menu:
    """The modes of an instance as arrays; one that has no time on the first device is closed."""
    names: list[str] = []
    score: list[float] = []
    rows: list[list[float]] = []
    allowed: list[bool] = []
    start = [0]
    for k in range(instance.n_tasks):
        task = instance.task(k)
        for mode in task.modes:
            own = [_first(instance, table) for table in (mode.time, mode.energy, mode.cost)]
            names.append(mode.name)
            score.append(float(mode.score or 0))
            rows.append([float(task.memory_of(mode)), *(math.nan if v is None else v for v in own)])
            allowed.append(mode.time is None or own[0] is not None)
        start.append(len(names))
    amount = np.array(rows, np.float64).reshape(-1, len(RESOURCES)).T
    return Menu(tuple(names), np.array(score), amount, np.array(start, np.int64), np.array(allowed, bool))


def _first(instance: Instance, table: Any) -> float | None:
    if table is None:
        return None
    if isinstance(table, list):
        return None if table[0] is None else float(table[0])
    device = instance.devices[0]
    value = table.get(device.name, table.get(device.type) if device.type else None)
    return None if value is None else float(value)


def budgets(instance: Instance, question: Mapping[str, Any]) -> dict[str, float]:
    """Budget of each resource that has one; InputError where a mode that can be chosen does not state how much it takes."""
    given = {"memory": float(instance.capacity[0]), **{name: question[name] for name in RESOURCES[1:]}}
    found = {name: float(most) for name, most in given.items() if most is not None and math.isfinite(most)}
    modes = menu(instance)
    for name in found:
        silent = np.flatnonzero(np.isnan(modes.amount[RESOURCES.index(name)]) & modes.open)
        if silent.size:
            k = int(np.searchsorted(modes.start, silent[0], "right")) - 1
            raise InputError(
                f"mode {modes.names[silent[0]]!r} of task {instance.labels[k]!r} has no {name} on {instance.device_names[0]!r}, "
                f"and there is a budget of {name}; expected a number for each mode, 0 where it takes none"
            )
    return found


def earlier(instance: Instance) -> list[list[str]]:
    """Earlier choices, of ``tables.earlier``, a mode name a task."""
    table = instance.tables.get("earlier", [])
    right = isinstance(table, list) and all(isinstance(row, list) and len(row) == instance.n_tasks for row in table)
    if not right:
        raise InputError(f"$.tables.earlier must be lists of {instance.n_tasks} mode names, one a task")
    for e, row in enumerate(table):
        for k, name in enumerate(row):
            if name not in [mode.name for mode in instance.task(k).modes]:
                raise InputError(
                    f"$.tables.earlier[{e}][{k}] is {name!r}, which is no mode of task {instance.labels[k]!r}"
                )
    return [[str(name) for name in row] for row in table]


def _reduced(instance: Instance, question: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(r, c) amounts and (r,) budgets of the resources that have one."""
    most = budgets(instance, question)
    rows = [RESOURCES.index(name) for name in most]
    return np.nan_to_num(menu(instance).amount[rows]), np.array(list(most.values()))


class MILP(LinearFormulation):
    """(1)-(3)."""

    name = "milp"
    title = "MILP (1)-(3)"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Each mode stands in (1), (2) and (3)."""
        return len(menu(instance).names) * (1 + len(budgets(instance, question)) + len(earlier(instance)))

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``mode[task=mode]``."""
        return program(instance, question if question is not None else PROBLEM.question(instance))

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any MILP; where there is no choice, what is missing."""
        return explained(instance, question, super().run(instance, question, control, options))

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The mode chosen for each task."""
        return _plan(instance, np.flatnonzero(x[model.columns("mode")] > 0.5))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Ones and zeros."""
        chosen = solution.details.get("modes")
        if not isinstance(chosen, Mapping):
            return None
        of = np.repeat(np.arange(instance.n_tasks), np.diff(menu(instance).start))
        return np.array(
            [chosen.get(instance.labels[t]) == name for t, name in zip(of.tolist(), menu(instance).names, strict=True)],
            np.float64,
        )


def program(instance: Instance, question: Question, free: str | None = None) -> LinearModel:
    """(1)-(3); with a budget that is ``free``, least use of it, in a unit of its own, while the other limits are kept."""
    all_modes = menu(instance)
    of = np.repeat(np.arange(instance.n_tasks), np.diff(all_modes.start))
    labels = [f"{instance.labels[t]}={name}" for t, name in zip(of.tolist(), all_modes.names, strict=True)]
    amount, most = _reduced(instance, question)
    names = list(budgets(instance, question))
    kept = np.array([name != free for name in names], bool)
    # A mode that breaks a budget by itself is closed, so that it sets no row's scale.
    fits = all_modes.open & ~(amount[kept] > most[kept, None] * (1 + 1e-12)).any(axis=0)
    amount = np.where(fits, amount, 0.0)
    model = LinearModel("multichoice")
    x = model.binary("mode", len(labels), upper=fits, labels=(labels,))
    model.rows("choose", instance.n_tasks, [(of, x, 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
    unit = np.array([time_unit(float(row.max(initial=0.0))) for row in amount])
    r = np.broadcast_to(np.arange(len(most))[:, None], amount.shape)
    terms = [(r, np.broadcast_to(x[None, :], amount.shape), amount / unit[:, None])]
    model.rows("budget", len(most), terms, upper=np.where(kept, most, np.inf) / unit, labels=(names,))  # (2)
    before = earlier(instance)
    if before and question["differ"]:
        hit = np.array([[all_modes.names[c] == row[of[c]] for c in range(len(labels))] for row in before])
        e, c = np.nonzero(hit)
        model.rows("differ", len(before), [(e, x[c], 1.0)], upper=instance.n_tasks - question["differ"])  # (3)
    least = all_modes.score if free is None else amount[names.index(free)] / unit[names.index(free)]
    model.minimize(x, least)
    return model


def explained(instance: Instance, question: Question, outcome: Outcome) -> Outcome:
    """An outcome; where there is no choice, with the least that each budget would have to be while the others are kept."""
    from hetopt import solvers

    if outcome.reason != "infeasible":
        return outcome
    found = []
    for name, most in budgets(instance, question).items():
        model = program(instance, question, name)
        answer = solvers.get("highs").solve(model, solvers.Options(time_limit=PATIENCE))
        if answer.x is None:
            continue
        amount = menu(instance).amount[RESOURCES.index(name)]
        chosen = answer.x[model.columns("mode")] > 0.5
        need = math.fsum(amount[chosen].tolist())
        if need > most:
            least = "at least" if answer.reason == "optimal" else "(or less, this was not proved in time)"
            found.append(
                f"{name}: the other limits kept, the modes need {need:.9g} {least}, the budget is {most:.9g}: "
                f"{need - most:.9g} short"
            )
    return replace(outcome, infeasible=(*found, *outcome.infeasible))


def _plan(instance: Instance, chosen: NDArray[np.int64]) -> Solution:
    """A plan of mode numbers (L,), one a task in order."""
    names = menu(instance).names
    if len(chosen) != instance.n_tasks:
        raise ValueError("not one mode a task")
    return Solution(
        details={"modes": {label: names[c] for label, c in zip(instance.labels, chosen.tolist(), strict=True)}}
    )


class Prices(Method):
    """The Lagrangian relaxation and local search."""

    name = "prices"
    title = "Lagrangian prices of the budgets, exchanges of one and two modes; bound replayed from the prices"
    kind = "search"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Climb and exchange; choices that are too much like an earlier one are passed over."""
        from hetopt.algorithms.choice import price

        amount, most = _reduced(instance, question)
        all_modes, problem = menu(instance), question.problem
        score = np.where(all_modes.open, all_modes.score, 1e300)

        def choice(chosen: NDArray[np.int64]) -> float | None:
            plan = _plan(instance, chosen)
            seen = problem.judge(instance, question, plan)
            if seen.violations:
                return None
            control.report_plan(plan)
            return seen.value

        def proves(prices: NDArray[np.float64]) -> float:
            named = dict(zip(budgets(instance, question), prices.tolist(), strict=True))
            return question.prove(instance, control, {"kind": "prices", "prices": named})

        price(score, amount, all_modes.start, most, control.should_stop, choice, proves)
        return Outcome()


class Branch(Method):
    """Branch and bound with the budgets' prices."""

    name = "branch"
    title = "branch and bound, each node bounded by prices of the budgets"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Prices first where there are none yet; then the tree, (3) as budgets of modes chosen before."""
        from hetopt.algorithms.choice_tree import search

        if (control.certificate or {}).get("kind") != "prices":
            Prices().run(instance, question, control, options)
        amount, most = _reduced(instance, question)
        all_modes, problem = menu(instance), question.problem
        score = np.where(all_modes.open, all_modes.score, math.inf)
        given = (control.certificate or {}).get("prices", {})
        prices = np.array([float(given.get(name, 0.0)) for name in budgets(instance, question)])
        rows = earlier(instance) if question["differ"] else []
        labels = np.repeat(np.arange(instance.n_tasks), np.diff(all_modes.start)).tolist()
        hits = [[float(name == row[t]) for t, name in zip(labels, all_modes.names, strict=True)] for row in rows]

        def choice(chosen: NDArray[np.int64]) -> float | None:
            plan = _plan(instance, chosen)
            seen = problem.judge(instance, question, plan)
            if seen.violations:
                return None
            control.report_plan(plan)
            return seen.value

        bound = search(
            score,
            np.vstack([amount, np.array(hits).reshape(len(hits), len(labels))]),
            all_modes.start,
            np.concatenate([most, np.full(len(hits), float(instance.n_tasks - question["differ"]))]),
            np.concatenate([prices, np.zeros(len(hits))]),
            math.inf if control.value is None else control.value,
            choice,
            control.should_stop,
        )
        if bound is None:
            return Outcome(notes=("branch: stopped before the tree was gone through",))
        if not math.isfinite(bound):
            none = Outcome("infeasible", infeasible=("no choice of modes keeps all limits together",))
            return explained(instance, question, none)
        control.report_bound(bound, "algorithm")
        return Outcome()


class MultiChoice(Problem):
    """The question."""

    name = "selection.multichoice"
    objectives = ("multichoice",)
    title = "one mode a task, least total score within budgets of memory, time, energy and cost"
    unit = ""
    uses = frozenset({"modes", "memory", "time", "energy", "cost", "tables.earlier", "edges"})
    options = (
        Option("time", float, None, "budget of the tasks' times together, in seconds"),
        Option("energy", float, None, "budget of energy"),
        Option("cost", float, None, "budget of cost"),
        Option("differ", int, 0, "tasks in which a choice must differ from each of tables.earlier"),
    )
    methods = (MILP(), Branch(), Relaxed(MILP(), "(1)-(3)"), Prices())

    def fits(self, instance: Instance) -> str | None:
        """Modes for every task, with different names."""
        for k in range(instance.n_tasks):
            names = [mode.name for mode in instance.task(k).modes]
            if not names:
                return f"task {instance.labels[k]!r} has no modes to choose from"
            if len(set(names)) != len(names):
                return f"task {instance.labels[k]!r} has two modes of one name"
            if any(
                mode.score is None or mode.score < 0 or not math.isfinite(mode.score) for mode in instance.task(k).modes
            ):
                return f"a score of task {instance.labels[k]!r} is missing, below 0 or no finite number"
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Total score, every budget checked."""
        most = budgets(instance, question)
        report = check_choice(instance, solution.details, most, earlier(instance), question["differ"])
        return Evaluation(report.score, report.violations, {"used": dict(report.used), "budgets": most})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A budget below what the thriftiest modes need."""
        for name in (*RESOURCES[1:], "differ"):
            if question[name] is not None and not 0 <= question[name] < math.inf:
                raise InputError(f"$.question.{name} is {question[name]!r}, expected a number, 0 or more")
        if question["differ"] and "earlier" not in instance.tables:
            raise InputError(
                f"$.question.differ is {question['differ']}, and the file has no earlier choices to differ from (tables.earlier)"
            )
        all_modes = menu(instance)
        found = [
            f"no mode of task {instance.labels[k]!r} can run on {instance.device_names[0]!r}"
            for k in range(instance.n_tasks)
            if not all_modes.open[all_modes.start[k] : all_modes.start[k + 1]].any()
        ]
        if found:
            return tuple(found)
        for name, most in budgets(instance, question).items():
            amounts = np.where(all_modes.open, all_modes.amount[RESOURCES.index(name)], np.inf)
            least = math.fsum(np.minimum.reduceat(amounts, all_modes.start[:-1]).tolist())
            if least > most * (1 + 1e-12):
                found.append(
                    f"{name}: the thriftiest modes need {least:.9g}, the budget is {most:.9g}: {least - most:.9g} short"
                )
        return tuple(found)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Prices, the tree, then the program where the tree grows too large."""
        return (
            Step("prices", "a choice and a bound in moments", 0.3),
            Step("branch", "exact, ten thousands of nodes a second", 0.6),
            Step("milp", "exact"),
        )

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays prices and linear duals."""
        if certificate.get("kind") != "prices":
            return super().replay(instance, question, certificate)
        most, given = budgets(instance, question), certificate["prices"]
        if not isinstance(given, Mapping) or set(given) != set(most):
            raise ValueError(f"expected prices of {', '.join(most) or 'nothing'}")
        prices = np.array([float(given[name]) for name in most])
        if not np.isfinite(prices).all() or (prices < 0).any():
            raise ValueError("expected finite prices, none below 0")
        all_modes, (amount, budget) = menu(instance), _reduced(instance, question)
        cost = np.where(all_modes.open, all_modes.score + prices @ amount, np.inf)
        least = np.minimum.reduceat(cost, all_modes.start[:-1])
        spent = (prices * budget).tolist()
        size = float(np.abs(least).sum() + sum(spent))
        bound = math.fsum([*least.tolist(), *(-v for v in spent)]) - _ROUNDING * size
        if not math.isfinite(bound):
            raise ValueError("the prices prove nothing")
        return bound

    def sample(self, seed: int) -> Instance:
        """Up to five tasks of up to four modes."""
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 6))
        tasks = []
        for k in range(n):
            modes = [
                Mode(
                    name=f"m{c}",
                    time=[int(rng.integers(1, 9)) if rng.random() < 0.95 or c == 0 else None],
                    memory=int(rng.integers(1, 9)),
                    energy=[int(rng.integers(1, 9))],
                    score=int(rng.integers(0, 20)),
                )
                for c in range(int(rng.integers(1, 5)))
            ]
            tasks.append(Task(name=f"t{k}", time=[1], modes=modes))
        question: dict[str, Any] = {"objective": "multichoice", "time": float(rng.integers(3 * n, 6 * n))}
        if seed % 3 == 0:
            question["energy"] = float(rng.integers(3 * n, 7 * n))
        tables = {}
        if seed % 4 == 1:
            tables, question["differ"] = {"earlier": [["m0"] * n]}, 1
        devices = [Device(name="gpu", memory=int(rng.integers(3 * n, 7 * n)))]
        return Instance.build(devices, [Job(name="net", tasks=tasks)], tables=tables, question=question)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All choices."""
        start = menu(instance).start
        for chosen in itertools.product(*(range(a, b) for a, b in itertools.pairwise(start.tolist()))):
            yield _plan(instance, np.array(chosen, np.int64))


PROBLEM = MultiChoice()
