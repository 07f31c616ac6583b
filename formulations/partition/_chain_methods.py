"""What the four questions of a chain share: the base of their problems, their methods, and how plans and bounds are told."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import jobs_of, shortfalls
from formulations.partition._chain import OPTIONS, Chain, Ticks, chain_of, rules_of, why_impossible
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.chain import ChainReport, ChainRules, check_chain, layer_sequence

if TYPE_CHECKING:
    from hetopt.algorithms.chain_program import Stage

__all__ = [
    "DP",
    "ChainProblem",
    "Count",
    "Latest",
    "Orders",
    "Tie",
    "fewest_stages",
    "halted",
    "prove",
    "shortest",
    "stopper",
]

MOST_STEPS = 2e9  # of one dynamic program, some seconds
MOST_CELLS = 1e8  # of its table
QUICK_STEPS = 2e7  # of one that is run without looking for plans first
REPLAYED_STEPS = 1e6  # what a certificate may ask of a replay


class DP(Method):
    """The dynamic program of a problem."""

    name = "dp"
    title = "dynamic program over devices used and boundary reached; ties broken as asked"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough states."""
        chain = chain_of(instance, rules_of(instance, question))
        if chain.codes * len(chain.cut) > MOST_CELLS:
            return "there are too many different devices to list which are used; order=fixed needs no list"
        cells = len(chain.states.skip) * len(chain.cut)
        if chain.steps > MOST_STEPS or cells > MOST_CELLS:
            return (
                f"its program has {chain.steps:.3g} steps, more than {MOST_STEPS:.3g}, or a table of {cells:.3g} cells"
            )
        return None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Solve, prove."""
        rules = rules_of(instance, question)
        chain = chain_of(instance, rules)
        problem = question.problem
        assert isinstance(problem, ChainProblem)
        found = problem.program(instance, question, chain, rules, control)
        statistics = {"states": len(chain.states.skip), "arcs": len(chain.states.tail)}
        if halted(control):
            return Outcome("limit", "time", statistics=statistics)
        if not found:
            return Outcome("infeasible", statistics=statistics, infeasible=(why_impossible(instance, rules),))
        return Outcome(statistics=statistics)


class Orders(Method):
    """A free order tried as some fixed ones."""

    name = "orders"
    title = "best of some fixed orders of the devices; no guarantee"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Where the order is free, and stages are not shared."""
        if question["order"] == "fixed":
            return "the order is fixed; use dp, which also proves it"
        return "it knows no stages that devices share" if question.get("replicas", 1) > 1 else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """By speed, memory, as in the file, each also reversed, and twelve at random."""
        rules = rules_of(instance, question)
        speed = np.where(instance.eligible, instance.time, 2 * instance.time[instance.eligible].max()).sum(axis=0)
        d, rng = instance.n_devices, np.random.default_rng(control.seed)
        orders = [np.arange(d), np.argsort(speed, kind="stable"), np.argsort(instance.capacity, kind="stable")]
        orders += [order[::-1] for order in orders] + [rng.permutation(d) for _ in range(12)]
        problem = question.problem
        assert isinstance(problem, ChainProblem)
        for order in orders:
            fixed = replace(rules, order=tuple(order.tolist()))
            trial = Control(
                sense=control.sense, cancelled=control.cancelled, judge=control.judge, time_limit=control.remaining
            )
            if math.isinf(control.remaining):
                trial.time_limit = None
            if control.closed:
                break
            if not halted(control):
                problem.program(instance, question, chain_of(instance, fixed), fixed, trial)
            if trial.plan is not None:
                control.report_plan(trial.plan)
        return Outcome("limit", "time") if halted(control) else Outcome()


class Count(Method):
    """A bound that a count shows."""

    name = "count"
    kind = "relaxation"

    def __init__(self, title: str) -> None:
        self.title = title  # type: ignore[misc]

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Count, replayed at once."""
        problem = question.problem
        assert isinstance(problem, ChainProblem)
        certificate = problem.count(instance, question)
        question.prove(instance, control, certificate)
        return Outcome()


class ChainProblem(Problem):
    """What the four questions share."""

    uses = frozenset({"time", "memory", "group", "pin", "forbid", "edges", "tables.order"})
    options: ClassVar[tuple[Option, ...]] = OPTIONS

    def fits(self, instance: Instance) -> str | None:
        """The tasks must form one sequence."""
        if layer_sequence(instance) is None:
            return "the tasks do not form one sequence: each but the last needs one edge, to the next"
        return None

    def program(
        self, instance: Instance, question: Question, chain: Chain, rules: ChainRules, control: Control
    ) -> bool:
        """Run the dynamic program, report plans and bounds; False when no plan exists (or none was found in time)."""
        raise TypeError(f"{self.name} has no dynamic program of its own")

    def value(self, report: ChainReport, instance: Instance) -> float:
        """Objective of a plan."""
        raise TypeError(f"{self.name} has no value of its own")

    def count(self, instance: Instance, question: Question) -> dict[str, Any]:
        """Certificate of the ``count`` bound."""
        raise TypeError(f"{self.name} has no count of its own")

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Value of the stages, every constraint checked in exact numbers."""
        report = check_chain(instance, solution.placement, solution.details, rules_of(instance, question))
        worst = math.inf if self.sense == "min" else -math.inf
        if not report.stages:
            return Evaluation(worst, report.violations)
        names = instance.device_names
        stages = [
            {
                "devices": [names[k] for k in members],
                "layers": report.layers[s],
                "load": report.load[s],
                "memory": report.memory[s],
                "tokens": report.room[s],
            }
            for s, members in enumerate(report.stages)
        ]
        details: dict[str, Any] = {"stages": stages, "transfers": list(report.transfer), "latency": report.latency}
        details["devices"] = {
            names[k]: {
                "load": report.load[s],
                "memory": report.memory[s],
                "layers": report.layers[s],
                **({"tokens": report.room[s]} if report.room[s] is not None else {}),
            }
            for s, members in enumerate(report.stages)
            for k in members
        }
        details["bottleneck"] = report.bottleneck
        if any(room is not None for room in report.room):
            binding = min((room, s) for s, room in enumerate(report.room) if room is not None)
            details |= {"tokens": binding[0], "binding_stage": binding[1]}
        return Evaluation(self.value(report, instance), report.violations, details)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A layer that fits no device, more bytes than there are, more devices to fill than stages to be had."""
        jobs = jobs_of(instance)
        found = shortfalls(instance, replace(jobs, most=np.full(instance.n_devices, np.inf)))
        if found or question["empty"]:
            return found
        most, d = int(chain_of(instance, ChainRules()).cut.sum()) - 1, instance.n_devices
        if d > most:
            return (f"min-nodes: {d} devices must hold a layer each, and the sequence can be cut into {most} stages at most: "
                    f"{d - most} too few",)  # fmt: skip
        return ()

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The dynamic program, after some orders and a bound where it takes long; the MILP where it would take too long."""
        exact = self.method("dp").fits(instance, question) is None
        if exact and chain_of(instance, rules_of(instance, question)).steps <= QUICK_STEPS:
            return (Step("dp", "exact, and its states are few enough"),)
        why = "many states" if exact else "too many different devices to list which are used"
        steps = (
            Step("count", "a bound at once"),
            Step("orders", f"plans at once: {why}", share=0.3),
            Step("dp", "exact") if exact else Step("milp", "exact"),
        )
        return [step for step in steps if any(m.name == step.method for m in self.methods)
                and self.method(step.method).fits(instance, question) is None]  # fmt: skip

    def sample(self, seed: int) -> Instance:
        """Up to five layers on up to three devices; cuts, groups, memory, links, a fixed order every other time."""
        rng = np.random.default_rng([seed, 7])
        n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        kinds = int(rng.integers(1, d + 1))
        devices = [
            Device(
                name=f"d{k}",
                type=f"type{k % kinds}",
                memory=int(8 + 9 * (k % kinds) + 30 // d),
                price=int(1 + 3 * (k % kinds)),
            )
            for k in range(d)
        ]
        tasks = []
        for k in range(n):
            seconds: dict[str, float | int | None] = {f"type{t}": int(rng.integers(0, 12)) for t in range(kinds)}
            if kinds > 1 and rng.random() < 0.15:
                seconds[f"type{int(rng.integers(kinds))}"] = None
            if seed % 3 == 2:
                seconds = {name: None if t is None else round(t * 1.37, 2) for name, t in seconds.items()}
            tasks.append(
                Task(
                    name=f"l{k}",
                    time=seconds,
                    memory=int(rng.integers(0, 9)) if seed % 4 else round(float(rng.random()) * 9, 1),
                    output=int(rng.integers(0, 6)),
                    kv_bytes_per_token=int(rng.integers(0 if k else 1, 4)) / (1 if seed % 4 else 10),
                    cut=bool(rng.random() < 0.8),
                    group="g" if rng.random() < 0.1 else None,
                )
            )
        edges = [Edge(source=f"l{k}", target=f"l{k + 1}") for k in range(n - 1)]
        links = (
            [] if rng.random() < 0.2 else [Link(source="*", target="*", bandwidth=2, latency=int(rng.integers(0, 3)))]
        )
        if links and rng.random() < 0.5:
            links.append(Link(source="type0", target="*", bandwidth=1))
        question: dict[str, Any] = {"objective": self.name, "order": "free" if seed % 2 else "fixed", **self.asks(seed)}
        tables = {} if seed % 2 else {"order": [f"d{k}" for k in rng.permutation(d)]}
        if not seed % 2 and rng.random() < 0.5:
            question["period"] = 25.0
        job = Job(name="model", tasks=tasks, edges=edges)
        return Instance.build(devices, [job], links, tables=tables, question=question)

    def asks(self, seed: int) -> dict[str, Any]:
        """Options of a sample."""
        return {"tokens": 1} if seed % 3 == 1 else {}


class Latest:
    """Plans of a dynamic program on their way into the control: judging one takes time, so not every one is."""

    def __init__(self, chain: Chain, control: Control) -> None:
        self.chain, self.control, self.told = chain, control, 0.0
        self.stages: list[Stage] | None = None

    def __call__(self, stages: list[Stage]) -> None:
        self.stages = stages
        if time.monotonic() - self.told > 0.5:
            self.flush()

    def flush(self) -> None:
        """Tell the last one now."""
        if self.stages is not None:
            self.control.report_plan(self.chain.solution(self.stages))
            self.stages, self.told = None, time.monotonic()


class Tie:
    """The last of some plans of equal value takes the place of the one found first."""

    def __init__(self, chain: Chain, control: Control) -> None:
        self.chain, self.control = chain, control
        self.stages: list[Stage] | None = None

    def __call__(self, stages: list[Stage]) -> None:
        self.stages = stages

    def settle(self) -> None:
        """Take the incumbent's place, unless the incumbent is better."""
        control = self.control
        if self.stages is None or control.judge is None or control.value is None:
            return
        plan = self.chain.solution(self.stages)
        if not control.better(control.value, control.judge(plan)):
            control.plan, control.plan_from = plan, control.method
            control.value = control.judge(plan)


def fewest_stages(chain: Chain, low: NDArray[np.int64], ticks: Ticks, best: int, control: Control) -> None:
    """Among plans of at most ``best`` ticks, one of fewest stages takes the incumbent's place."""
    from hetopt.algorithms.chain_program import FAR, ceiling_windows, cheapest

    low = ceiling_windows(ticks.prefix, chain.owner, chain.copies, low, best)
    spent = np.zeros((len(chain.copies), len(chain.cut)), np.int64)
    free = np.where(ticks.transfer <= best, 0, FAR)
    answer = cheapest(chain.states, low, spent, np.ones_like(chain.copies), free, chain.cut, stopper(control))
    if answer is not None and answer[1]:
        tie = Tie(chain, control)
        tie(answer[1])
        tie.settle()


def shortest(
    chain: Chain,
    low: NDArray[np.int64],
    spent: NDArray[np.int64],
    fee: NDArray[np.int64],
    transfer: NDArray[np.int64],
    control: Control,
) -> int | None:
    """Least ticks of a sum, its plan told; None when there is no plan, or it was told to stop."""
    from hetopt.algorithms.chain_program import FAR, cheapest

    answer = cheapest(chain.states, low, np.ascontiguousarray(spent), fee, transfer, chain.cut, stopper(control))
    if answer is None or answer[0] >= FAR:
        return None
    control.report_plan(chain.solution(answer[1]))
    return int(answer[0])


def prove(instance: Instance, question: Question, chain: Chain, control: Control, bound: float) -> None:
    """Store the bound as a certificate where its replay takes seconds at most, and time is left for it."""
    if chain.order != rules_of(instance, question).order:
        return  # one order of many was tried: its bound is none of the question's
    blind = chain.way == (None,) and not chain.data.any() and question["empty"]
    if len(chain.states.tail) * (1 if blind else len(chain.cut)) > REPLAYED_STEPS or control.remaining < 5:
        return
    try:
        question.prove(instance, control, {"kind": "refuted", "value": bound})
    except ValueError:
        return  # the walk is longer than it looked: the algorithm's own proof stands


def halted(control: Control) -> bool:
    """Whether time is up or the run was interrupted."""
    return control.cancelled.is_set() or control.remaining <= 0


def stopper(control: Control) -> Callable[[], bool]:
    """What a dynamic program asks: a gap that is met does not stop it, for its proof and the ties are still to come."""
    return lambda: halted(control)
