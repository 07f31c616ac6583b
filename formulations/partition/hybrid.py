"""Pipeline stages that choose tensor degree, data degree and recomputation, each micro-batch as fast as possible (Piper).

Training in a pipeline of equal devices, one forward and one backward pass in turns (1F1B). A plan cuts the graph into stages in
a line; each stage takes t devices to share every tensor (tensor degree) and d copies of these to share the micro-batches (data
degree), and each task of it runs in one of its modes for t devices: with or without recomputation of activations, say.

Sets and data
    v in V, e in E    tasks and edges; b_e bytes pass over edge e and again backwards
    m in M_v          modes (``Task.modes``); t_m devices (``Mode.devices``), p_m seconds a micro-batch, forward and backward
    B_m, A_m          bytes on each device at rest (``Mode.memory``) and for each micro-batch in flight (``activation``)
    w_m               bytes of parameters on each device, kept equal among copies (``parameters``)
    g_me              bytes that the devices of v exchange when e comes from or leads to another stage (``receive``, ``send``)
    N, K              micro-batches in a batch (``tables.hybrid.batch``), devices
    M, R              usable bytes of each device, bytes a second of their link
    (t, d) in O       degrees: d divides N, t d <= K, within ``tensor`` and ``data`` when these are given

``activation``, ``parameters``, ``receive`` and ``send`` stand in ``tables.hybrid.modes[task][mode]``.

Variables, for stages j = 1..J in their order, J = min(K, |V|)
    u_jo in {0, 1}      stage j has the degrees o; none of them when it is left out
    x_vjom in {0, 1}    task v is in stage j of degrees o in mode m (t_m = t_o)
    c_vejom >= 0        x_vjom, when the other end of edge e is not in stage j
    y_joi in {0, 1}     stage j has degrees o and i micro-batches in flight
    T                   seconds of the slowest stage

Minimise T subject to

    sum_jom x_vjom = 1                                                       for each task              (1)  place
    sum_m x_vjom <= u_jo,  sum_o u_jo <= 1,  sum_vm x_vjom >= u_jo           for each stage, degrees    (2)  open, single, used
    sum_{i <= j} sum_om x_vjom <= sum_{i <= j} sum_om x_ujom                 for each edge uv, stage    (3)  after
    sum_jo t_o d_o u_jo <= K,  sum_jo d_o u_jo <= N                                                     (4)  devices, batch
    c_vejom >= x_vjom - sum_om x_ujom                                        for each end, stage        (5)  cross
    (1/d_o) sum_vm [(p_m + 4 w_m (d_o - 1) / (N R)) x_vjom + (2/R) sum_e (b_e + g_me) c_vejom] <= T      (6)  slowest
    sum_i y_joi = u_jo,  d_o i >= sum_{k >= j, o} d_o u_ko - N (1 - y_joi)   for each stage, degrees    (7)  flight
    sum_vm (A_m i + B_m) x_vjom <= M + (big) (1 - y_joi)                     for each stage, o, i       (8)  memory

Every edge that crosses is paid for, at both ends, as published, not every output once. The value is seconds a micro-batch; a
batch takes N times as long while the pipeline is full (``evaluation`` shows both). Copies take their shares in turns, which is
why a stage of degree d takes 1/d of the time; the number in flight is the sum of this and the later stages' data degrees over
its own, rounded up.

``dp``: exact, over sets closed under successors (see :mod:`hetopt.algorithms.hybrid_program`), where there are not too many;
memory is an exact knapsack over modes. ``orders`` is the same program along two orders of the tasks: plans only. ``count``: the
device-seconds of all tasks over K devices, and the slowest single task, replayed without a solver. ``milp``: (1)-(8).

Source: J. Tarnawski, D. Narayanan, A. Phanishayee, Piper: multidimensional planner for DNN parallelization, NeurIPS 2021. The
published program picks modes by a greedy rule when memory binds; here they are picked exactly, so values can be better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from formulations.partition._hybrid import Whole, degrees, seconds_of, successors_first, whole_of
from formulations.partition._hybrid_milp import MILP
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Mode, Task
from hetopt.solution import Solution
from hetopt.verify.hybrid import check_hybrid, hybrid_facts, why_unlike

__all__ = ["DP", "MILP", "PROBLEM", "Count", "Hybrid", "Orders"]

MOST_SETS = 300_000
MOST_CELLS = 5e7


class DP(Method):
    """Exact."""

    name = "dp"
    title = "dynamic program over sets closed under successors, memory by exact knapsacks"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough sets."""
        from hetopt.algorithms.ideals import TooManyIdeals

        whole = whole_of(instance, question)
        try:
            sets = len(whole.lattice(MOST_SETS).cover_ptr) - 1
        except TooManyIdeals as error:
            return f"the graph has too many cuts: {error}"
        if sets * (whole.table.copies + 1) > MOST_CELLS:
            return f"{sets} sets with up to {whole.table.copies} copies are more than {MOST_CELLS:.0g} states"
        return None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Along orders of the tasks first, for a value to prune by; then over all sets."""
        from hetopt.algorithms.hybrid_program import least_period

        whole = whole_of(instance, question)
        if not all(whole.table.choices):
            return Outcome("infeasible", infeasible=(_no_mode(whole, question),))
        told = _Teller(whole, control)
        known = _along_orders(whole, told, control)
        lattice = whole.lattice(MOST_SETS)
        stop = _stopper(control)
        refuted, known = least_period(whole.table, lattice, told, stop, known=known)
        statistics = {"sets": len(lattice.cover_ptr) - 1}
        if known is not None or stop():
            control.report_bound(_rounded_down(max(refuted, 0) * whole.tick), "algorithm")
        if stop():
            return Outcome("limit", "time", statistics=statistics)
        if known is None and refuted >= whole.table.horizon:
            return Outcome("infeasible", statistics=statistics, infeasible=(_why_impossible(whole, control),))
        if known is None or known - refuted > 1:
            return Outcome(
                statistics=statistics, notes=("the modes of a stage are too many different ones to decide exactly",)
            )
        if control.rejected:
            upward = whole_of(instance, question, up=True)
            least_period(upward.table, lattice, _Teller(upward, control), stop)
            notes = ("a stage fits the memory by rounding only; plans were made again with memory rounded up",)
            return Outcome(statistics=statistics, notes=notes)
        return Outcome(statistics=statistics)


class Orders(Method):
    """Plans along two orders of the tasks."""

    name = "orders"
    title = "the program along two orders of the tasks; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Depth first, breadth first."""
        whole = whole_of(instance, question)
        if all(whole.table.choices):
            _along_orders(whole, _Teller(whole, control), control)
        return Outcome("limit", "time") if _stopper(control)() else Outcome()


class Count(Method):
    """A bound that a count shows."""

    name = "count"
    title = "device-seconds of all tasks over all devices, and the slowest task; replayed without a solver"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass."""
        question.prove(instance, control, {"kind": "count"})
        return Outcome()


class Hybrid(Problem):
    """Least seconds a micro-batch."""

    name = "partition.hybrid"
    objectives = ("hybrid",)
    title = "pipeline stages with tensor degree, data degree and recomputation, each micro-batch as fast as possible"
    options = (
        Option("tensor", int, 0, "largest tensor degree of a stage, 0 for any"),
        Option("data", int, 0, "largest data degree of a stage, 0 for any"),
    )
    uses = frozenset({"time", "memory", "edges", "modes", "tables.hybrid"})
    methods = (DP(), MILP(), Count(), Orders())

    def fits(self, instance: Instance) -> str | None:
        """Equal devices, a table of what modes need, no groups."""
        if "hybrid" not in instance.tables:
            return "the file has no tables.hybrid with the micro-batches of a batch and the bytes of each mode"
        if (instance.group >= 0).any():
            return "it knows no groups"
        return why_unlike(instance)

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds of the slowest stage; every broken constraint."""
        facts = hybrid_facts(instance)
        report = check_hybrid(instance, facts, solution.placement, solution.details)
        wrong = list(report.violations)
        if not wrong:
            for at, stage in enumerate(solution.details["stages"]):
                wrong += [
                    f"stage {at + 1} of the plan has {key} degree {stage[key]}, at most {question[key]} is asked for"
                    for key in ("tensor", "data")
                    if question[key] and stage[key] > question[key]
                ]
        details = {
            "stage_seconds": list(report.seconds),
            "stage_memory": list(report.memory),
            "in_flight": list(report.in_flight),
            "batch_seconds": report.period * facts.batch,
        }
        return Evaluation(report.period, tuple(wrong), details)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A task that fits no device, more bytes than all devices have."""
        facts, allowed = hybrid_facts(instance), {t for t, _ in degrees(hybrid_facts(instance), question)}
        found, total = [], Fraction(0)
        for label, modes in zip(instance.labels, facts.modes, strict=True):
            usable = [mode for mode in modes if mode.tensor in allowed]
            if not usable:
                continue
            need = [Fraction(mode.memory) + Fraction(mode.activation) for mode in usable]
            total += min(size * mode.tensor for size, mode in zip(need, usable, strict=True))
            if min(need) > facts.capacity:
                short = float(min(need) - Fraction(facts.capacity))
                found.append(
                    f"memory: task {label!r} needs {float(min(need)):.12g} bytes on a device in its smallest mode, and a device "
                    f"has {facts.capacity:.12g}: {short:.12g} short"
                )
        if math.isfinite(facts.capacity) and total > Fraction(facts.capacity) * facts.devices:
            short = float(total - Fraction(facts.capacity) * facts.devices)
            found.append(
                f"memory: all tasks need {float(total):.12g} bytes in their smallest modes, and {facts.devices} devices have "
                f"{facts.capacity * facts.devices:.12g}: {short:.12g} short"
            )
        return tuple(found)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The program; where the graph has too many cuts, a bound, plans along orders, and the MILP if it is small."""
        if self.method("dp").fits(instance, question) is None:
            return (Step("dp", "exact, and the graph has few enough cuts"),)
        steps = [
            Step("count", "a bound at once"),
            Step("orders", "the graph has too many cuts for the exact program", share=0.5),
        ]
        if self.method("milp").fits(instance, question) is None:
            steps.append(Step("milp", "exact, and small enough to try"))
        return steps

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays the counts, and linear duals."""
        if certificate.get("kind") != "count":
            return super().replay(instance, question, certificate)
        facts = hybrid_facts(instance)
        allowed = degrees(facts, question)
        work, slowest = Fraction(0), Fraction(0)
        for v, modes in enumerate(facts.modes):
            numbers = [(mode.tensor, *seconds_of(facts, v, mode)[:2]) for mode in modes]
            alone = [(p + (d - 1) * w) / d for t, p, w in numbers for tensor, d in allowed if tensor == t]
            if alone:  # a task without any has no plan at all
                work += min(t * p for t, p, _ in numbers)
                slowest = max(slowest, min(alone))
        return _rounded_down(max(work / facts.devices, slowest))

    def sample(self, seed: int) -> Instance:
        """Up to three tasks on up to four devices; modes for one and two devices, memory that binds, decimals now and then."""
        rng = np.random.default_rng([seed, 11])
        n, k = int(rng.integers(1, 4)), int(rng.integers(1, 5))
        unit = 0.25 if seed % 3 == 1 else 1
        pairs = [(u, v) for u in range(n) for v in range(u + 1, n) if rng.random() < 0.7]
        edges = [Edge(source=f"t{u}", target=f"t{v}", data=int(rng.integers(0, 9))) for u, v in pairs]
        tasks, table = [], {}
        for v in range(n):
            modes, rows = [], {}
            for t in (1, 2) if v and rng.random() < 0.6 else (1,):
                seconds, size = int(rng.integers(0, 30)), int(rng.integers(0, 12))
                for again in range(1 + int(rng.random() < 0.6)):  # recomputation: slower, fewer bytes in flight
                    name = f"{t} {'recompute' if again else 'plain'}"
                    modes.append(
                        Mode(
                            name=name,
                            devices=t,
                            time=[(seconds + again * 5) * unit / t] * k,
                            memory=(size + again) * unit,
                        )
                    )
                    rows[name] = {
                        "activation": int(rng.integers(0, 3)) if again else int(rng.integers(0, 9)),
                        "parameters": int(rng.integers(0, 9)),
                        "receive": {f"t{a}": int(rng.integers(0, 4)) for a, b in pairs if b == v},
                        "send": {f"t{b}": int(rng.integers(0, 4)) for a, b in pairs if a == v},
                    }
            tasks.append(Task(name=f"t{v}", modes=modes))
            table[f"t{v}"] = rows
        devices = [Device(name=f"d{i}", type="gpu", memory=int(rng.integers(12, 60))) for i in range(1)]
        devices = [Device(name=f"d{i}", type="gpu", memory=devices[0].memory) for i in range(k)]
        return Instance.build(
            devices,
            [Job(name="model", tasks=tasks, edges=edges)],
            [Link(source="*", target="*", bandwidth=int(rng.integers(1, 4)))],
            tables={"hybrid": {"batch": int(rng.integers(1, 7)), "modes": table}},
            question={"objective": self.name, **({"tensor": 1} if seed % 5 == 4 else {})},
        )

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All lines of stages with all degrees, all modes."""
        facts = hybrid_facts(instance)
        n, names = instance.n_tasks, list(instance.device_names)
        options = degrees(facts, question)
        for stages in range(1, min(n, facts.devices) + 1):
            for where in itertools.product(range(stages), repeat=n):
                if len(set(where)) < stages or any(where[u] > where[v] for u, v in facts.edges.tolist()):
                    continue
                for chosen in itertools.product(options, repeat=stages):
                    first = [0, *itertools.accumulate(t * d for t, d in chosen)]
                    usable = [
                        [mode.name for mode in facts.modes[v] if mode.tensor == chosen[where[v]][0]] for v in range(n)
                    ]
                    if first[-1] > facts.devices or not all(usable):
                        continue
                    told = [
                        {"devices": names[a : a + t * d], "tensor": t, "data": d}
                        for a, (t, d) in zip(first, chosen, strict=False)
                    ]
                    for modes in itertools.product(*usable):
                        details = {"stages": told, "modes": dict(zip(instance.labels, modes, strict=True))}
                        yield Solution(np.array([first[at] for at in where], np.int64), details=details)


class _Teller:
    """Makes plans of stages and offers them."""

    def __init__(self, whole: Whole, control: Control) -> None:
        self.whole, self.control = whole, control

    def __call__(self, stages: list[Any]) -> int | None:
        made = self.whole.plan(stages)
        if made is None:
            return None
        self.control.report_plan(made[0])
        return made[1]


def _along_orders(whole: Whole, told: _Teller, control: Control) -> int | None:
    """Ticks of the best plan along two orders of the tasks; None when there is none."""
    from hetopt.algorithms.hybrid_program import least_period, path_lattice

    known = None
    for deep in (True, False):
        path = path_lattice(successors_first(whole.facts, deep=deep))
        if not _stopper(control)():
            _, known = least_period(whole.table, path, told, _stopper(control), known=known, roughly=True)
    return known


def _stopper(control: Control) -> Any:
    return lambda: control.cancelled.is_set() or control.remaining <= 0


def _rounded_down(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def _no_mode(whole: Whole, question: Question) -> str:
    v = next(v for v, row in enumerate(whole.table.choices) if not row)
    tensors = sorted({mode.tensor for mode in whole.facts.modes[v]})
    most = min(whole.facts.devices, question["tensor"] or whole.facts.devices)
    return (
        f"task {whole.instance.labels[v]!r} has modes for {tensors} devices, and a stage may have a tensor degree of {most} at "
        f"most: {tensors[0] - most} short"
    )


def _why_impossible(whole: Whole, control: Control) -> str:
    """By how much memory is missed."""
    from hetopt.algorithms.hybrid_program import stages_within

    table, lattice, stop = whole.table, whole.lattice(MOST_SETS), _stopper(control)
    facts = whole.facts
    enough = max(1, *(sum(max(a.activation * table.copies + a.memory for a in row) for row in table.choices), 1))
    short, wide = table.capacity, max(enough, table.capacity + 1)
    if stages_within(table, lattice, table.horizon, wide, stop) is None:
        return f"no line of stages uses {facts.devices} devices or fewer with tensor degrees that all tasks of a stage have"
    while wide - short > max(1, wide // 1000) and not stop():
        middle = (wide + short) // 2
        if stages_within(table, lattice, table.horizon, middle, stop) is None:
            short = middle
        else:
            wide = middle
    scale = facts.capacity / table.capacity if table.capacity else 1.0
    return (
        f"memory: no stages fit devices of {facts.capacity:.12g} bytes with the micro-batches in flight; with {wide * scale:.6g} "
        f"bytes each there is a plan: {(wide - table.capacity) * scale:.6g} short"
    )


PROBLEM = Hybrid()
