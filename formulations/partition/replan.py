r"""Moving to another split of a running pipeline, or keeping the one there is: what is gained against the time it costs.

A sequence of layers runs on devices, each holding some of them (``tables.current``: device -> list of tasks, which may overlap).
A new split makes a faster pipeline, but while layers are loaded it stands still. Over a horizon of H seconds the split with the
most results is wanted.

    sets, data
    k = 1..n          layers, i devices, as in :mod:`formulations.partition.chain`;  h_i layers that device i holds
    r_k               seconds to load layer k (``reload``), or its bytes over the link from ``host`` to the device
    D_i(q, p)         seconds that device i loads before it can run layers q + 1..p: those it does not hold
                      (``loads = "missing"``), or, if it lacks any, all of them (``"all"``)

    variables         a plan of the chain: contiguous stages on different devices

    minimise          T H / (H - D)                                                                     (replan)
    subject to        T >= seconds of each device's stage and of each transfer                          (1)  busy
                      D >= D_i(q, p)           for each device i with the stage q + 1..p                 (2)  loading
                      D < H                                                                             (3)  horizon

The value is seconds between two results, counted over the whole horizon; plans with D >= H have none. Devices load side by side.
A plan with D = 0 keeps what there is.

Method ``thresholds``, exact: for a limit d on D, stages are those with D_i(q, p) <= d, which bounds q from below for each p, so
the least T(d) is a chain's dynamic program. T falls as d grows, in steps: of an interval of limits whose ends have equal T only
the smaller one matters, and with T* the least of all, no limit d with T* H / (H - d) above the best value does.

Source: the question is that of operators of shared pipelines, whose servers reloaded layers more often than it paid. The method
is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from formulations.partition._chain import OPTIONS, Chain, Ticks, chain_of, rules_of
from formulations.partition._chain_methods import ChainProblem, halted, stopper
from hetopt.control import Control
from hetopt.errors import InputError, nearest
from hetopt.formulation import Evaluation, Method, Option, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.chain import ChainReport, check_chain, layer_sequence

__all__ = ["PROBLEM", "Replan", "Thresholds"]

Floats = NDArray[np.float64]


def held(instance: Instance) -> NDArray[np.bool_]:
    """(n, d) which device holds which task now.

    Raises
    ------
    InputError
        ``tables.current`` is missing, no object of lists, or names an unknown device or task.
    """
    table = instance.tables.get("current")
    if not isinstance(table, Mapping):
        raise InputError('$.tables.current is missing or no object; expected {"device": ["task", ...], ...}')
    out = np.zeros((instance.n_tasks, instance.n_devices), bool)
    for name, tasks in table.items():
        if name not in instance.device_index:
            raise InputError(f"$.tables.current: {nearest(str(name), instance.device_names, what='devices')}")
        if not isinstance(tasks, list):
            raise InputError(f"$.tables.current.{name} is {type(tasks).__name__}, expected a list of tasks")
        for task in tasks:
            if not isinstance(task, str) or task not in instance.task_index:
                raise InputError(f"$.tables.current.{name} names {task!r}, which is no task of the instance")
            out[instance.task_index[task], instance.device_index[name]] = True
    return out


def loading(instance: Instance, question: Mapping[str, Any]) -> Floats:
    """(n, d) seconds to load a task onto a device that does not hold it."""
    if question["reload"] is not None:
        return np.full((instance.n_tasks, instance.n_devices), float(question["reload"]))
    out = np.zeros((instance.n_tasks, instance.n_devices))
    for i, name in enumerate(instance.device_names):
        link = instance.need_link("host", name)
        out[:, i] = link.latency + (instance.memory / link.bandwidth if link.bandwidth else 0.0)
    return out


class Thresholds(Method):
    """Dynamic programs under limits on the time to load."""

    name = "thresholds"
    title = "a chain's dynamic program for each limit on loading that can matter; exact"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Halve intervals of limits until each is settled."""
        search = _Search(instance, question, control)
        if search.steps[-1] is None and not halted(control):
            return Outcome(
                "infeasible", infeasible=("no plan loads its layers within the horizon, or none exists at all",)
            )
        search.halve(0, len(search.limits) - 1)
        if halted(control):
            return Outcome("limit", "time")
        if control.value is not None:
            control.report_bound(search.bound(), "algorithm")
        return Outcome(statistics={"programs": search.programs, "limits": len(search.limits)})


class _Search:
    """Least T for limits on D; None where no plan keeps the limit."""

    def __init__(self, instance: Instance, question: Question, control: Control) -> None:
        self.instance, self.question, self.control = instance, question, control
        self.horizon = float(question["horizon"])
        rules = rules_of(instance, question)
        # Devices that hold different layers are no equals: a price of its own keeps each apart.
        apart = tuple(msgspec.structs.replace(v, price=float(i)) for i, v in enumerate(instance.devices))
        self.chain: Chain = chain_of(replace(instance, devices=apart), rules)
        self.low = self.chain.windows(rules)
        self.ticks = Ticks.of(self.chain, rules.period)
        sequence = self.chain.sequence
        owner = [self.chain.members[k][0] for k in self.chain.owner.tolist()]
        self.cost = loading(instance, question)[sequence][:, owner].T
        self.mine = held(instance)[sequence][:, owner].T
        limits = {0.0}
        for cost, mine in zip(self.cost, self.mine, strict=True):
            limits.update(_sums(cost, mine, self.question["loads"] == "all"))
        self.limits = sorted(x for x in limits if x < self.horizon)
        self.steps: list[float | None] = [None] * len(self.limits)
        self.floor: list[float] = [0.0] * len(self.limits)
        self.programs = 0
        self.solve(len(self.limits) - 1)
        if len(self.limits) > 1 and self.steps[-1] is not None:
            self.solve(0)

    def solve(self, at: int) -> None:
        """T for one limit."""
        from hetopt.algorithms.chain_program import least_bottleneck

        rows = [
            _window(cost, mine, self.limits[at], self.question["loads"] == "all")
            for cost, mine in zip(self.cost, self.mine, strict=True)
        ]
        limits = self.ticks.limits(self.chain, np.maximum(self.low, np.array(rows)))
        kept: list[Any] = []
        refuted, best = least_bottleneck(self.chain.states, limits, stopper(self.control), lambda s: kept.append(s))
        self.programs += 1
        self.floor[at] = self.ticks.seconds(refuted + 1)
        if best is not None:
            plan = self.chain.solution(kept[-1])
            self.control.report_plan(plan)
            self.steps[at] = self.ticks.seconds(best)

    def halve(self, a: int, b: int) -> None:
        """Settle the limits between two that are settled."""
        if b - a < 2 or halted(self.control):
            return
        first, last = self.steps[a], self.steps[b]
        if first is not None and last is not None and first <= last:
            return
        value = self.control.value
        if value is not None and self.floor[b] * self.horizon / (self.horizon - self.limits[a + 1]) >= value:
            return
        middle = (a + b) // 2
        self.solve(middle)
        self.halve(a, middle)
        self.halve(middle, b)

    def bound(self) -> float:
        """No plan is below this: each interval of limits by the least T of its larger end and the least D of its smaller one."""
        settled = [k for k in range(len(self.limits)) if self.floor[k] > 0 or self.steps[k] is not None]
        value = self.control.value
        assert value is not None
        lowest, before = value, -1
        for k in settled:
            if self.steps[k] is not None or k == len(self.limits) - 1:
                lowest = min(lowest, self.floor[k] * self.horizon / (self.horizon - self.limits[k]) * (1 - 1e-15))
                if k - before > 1:
                    same = before >= 0 and self.steps[before] is not None and self.steps[before] == self.steps[k]
                    start = self.limits[before if same else before + 1]
                    lowest = min(lowest, self.floor[k] * self.horizon / (self.horizon - start) * (1 - 1e-15))
            before = k
        return lowest


def _sums(cost: Floats, mine: NDArray[np.bool_], whole: bool) -> set[float]:
    """All times that a stage can take to load."""
    out: set[float] = set()
    for q in range(len(cost)):
        lacks = np.logical_or.accumulate(~mine[q:]) if whole else ~mine[q:]
        sums = np.where(lacks, np.cumsum(cost[q:]), 0.0) if whole else np.cumsum(np.where(lacks, cost[q:], 0.0))
        out.update(sums.tolist())
    return out


def _window(cost: Floats, mine: NDArray[np.bool_], limit: float, whole: bool) -> NDArray[np.int64]:
    """(n + 1,) least start of a stage for each end, so that it loads within the limit."""
    n = len(cost)
    low = np.zeros(n + 1, np.int64)
    for p in range(1, n + 1):
        q = int(low[p - 1])
        while q < p and _load(cost, mine, q, p, whole) > limit:
            q += 1
        low[p] = q
    return low


def _load(cost: Floats, mine: NDArray[np.bool_], q: int, p: int, whole: bool) -> float:
    """Seconds to load before layers q..p - 1 can run, summed as :func:`_sums` does."""
    if whole:
        return 0.0 if mine[q:p].all() else float(np.cumsum(cost[q:p])[-1])
    return float(np.cumsum(np.where(mine[q:p], 0.0, cost[q:p]))[-1])


class Replan(ChainProblem):
    """The question."""

    name = "partition.replan"
    objectives = ("replan",)
    title = "keep or move a running pipeline: seconds a result over a horizon, with the time to load layers"
    uses = frozenset({*ChainProblem.uses, "tables.current"})
    options = (
        *(o for o in OPTIONS if o.name in ("order", "empty", "period", "tokens", "block")),
        Option("horizon", float, 3600.0, "seconds over which a move must pay"),
        Option("reload", float, None, "seconds to load a layer; by its bytes and the link from the host when left out"),
        Option(
            "loads",
            ("missing", "all"),
            "missing",
            "what a device loads: what it lacks, or its whole stage if it lacks any",
        ),
    )
    methods = (Thresholds(),)

    def fits(self, instance: Instance) -> str | None:
        """A sequence, and what devices hold now."""
        why = super().fits(instance)
        if why is not None or "current" not in instance.tables:
            return why or 'it needs tables.current, {"device": ["task", ...]}: what each device holds now'
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds a result over the horizon; the chain's constraints, and a move that ends within it."""
        report = check_chain(instance, solution.placement, solution.details, rules_of(instance, question))
        if not report.stages or solution.placement is None:
            return Evaluation(math.inf, report.violations)
        has, cost = held(instance), loading(instance, question)
        horizon, wrong = float(question["horizon"]), list(report.violations)
        sequence = layer_sequence(instance)
        assert sequence is not None
        down, moved = 0.0, 0
        for i in range(instance.n_devices):
            stage = sequence[solution.placement[sequence] == i]
            lacks = stage[~has[stage, i]]
            moved += len(lacks)
            loads = stage if question["loads"] == "all" and len(lacks) else lacks
            down = max(down, math.fsum(cost[loads, i].tolist()))
        if down >= horizon:
            wrong.append(f"loading takes {down:.9g} s, not less than the horizon of {horizon:.9g} s")
        value = report.bottleneck * horizon / (horizon - down) if down < horizon else math.inf
        stages = [
            {"devices": [instance.device_names[k] for k in members], "layers": report.layers[s], "load": report.load[s]}
            for s, members in enumerate(report.stages)
        ]
        details = {"stages": stages, "bottleneck": report.bottleneck, "downtime": down, "layers_loaded": moved}
        return Evaluation(value, tuple(wrong), {**details, "decision": "move" if moved else "keep"})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """The chain's, and a horizon that is one."""
        if not 0 < question["horizon"] < math.inf:
            raise InputError(f"$.question.horizon is {question['horizon']!r}, expected seconds above 0")
        if question["reload"] is not None and not 0 <= question["reload"] < math.inf:
            raise InputError(f"$.question.reload is {question['reload']!r}, expected seconds, 0 or more")
        held(instance)
        return super().precheck(instance, question)

    def value(self, report: ChainReport, instance: Instance) -> float:
        """Unused: a plan's value needs the horizon."""
        raise TypeError("a plan's value needs the horizon; evaluate() knows it")

    def plan(self, instance: Instance, question: Question) -> Any:
        """The one method."""
        from hetopt.formulation import Step

        return (Step("thresholds", "exact"),)

    def bounds(self, instance: Instance, question: Question) -> Any:
        """None of its own."""
        return ()

    def sample(self, seed: int) -> Instance:
        """A chain's sample with what devices hold drawn at random."""
        from hetopt.registry import problem

        rng = np.random.default_rng(seed + 77)
        base = problem("partition.chain").sample(seed)
        sequence = layer_sequence(base)
        assert sequence is not None
        n, labels = base.n_tasks, base.labels
        current: dict[str, list[str]] = {}
        for name in base.device_names:
            a, b = sorted(rng.integers(0, n + 1, 2).tolist())
            current[name] = [labels[k] for k in sequence[a:b].tolist()]
        question = {
            "objective": "replan",
            "horizon": float(rng.integers(5, 60)),
            "reload": float(rng.integers(0, 6)),
            "loads": ["missing", "all"][seed % 2],
            "order": base.question.get("order", "fixed"),
        }
        return replace(base, tables={**base.tables, "current": current}, question=question)


PROBLEM = Replan()
