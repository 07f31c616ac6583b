r"""One way to shard each operator over a mesh of devices, with the cost of resharding between operators, within memory.

Asked inside each stage of a parallel program: an operator may split its batch, its rows or its columns, or be repeated;
each way has seconds (compute and collectives) and bytes a device, and where neighbours disagree tensors are laid out anew.

Sets and data
    t = 1..n     operators (tasks) with modes m: c_tm seconds and b_tm bytes on the first device, which stands for the mesh
    E            pairs (t, u) of ``tables.resharding`` = [{"from": t, "to": u, "seconds": [[R_tumk, ...], ...]}, ...], a row for
                 each mode of t and a column for each mode of u; edges without an entry cost nothing
    B            bytes of the device

Variables
    x_tm in {0, 1}  operator t runs in mode m;      z_tumk >= 0  t in m and u in k

Minimise sum_tm c_tm x_tm + sum_E R_tumk z_tumk subject to

    sum_m x_tm = 1                                              for each operator           (1)  choose
    sum_k z_tumk = x_tm,    sum_m z_tumk = x_uk                 for each pair and mode      (2)  from, (3) to
    sum_tm b_tm x_tm <= B                                                                   (4)  memory

``tree`` is exact where the pairs form a forest and memory cannot bind. ``messages`` prices memory and sweeps over the
operators (:mod:`hetopt.algorithms.pairwise_choice`); its bound, that of the LP at best, is replayed from price and messages.

Source: L. Zheng and others, Alpa: automating inter- and intra-operator parallelism for distributed deep learning, OSDI 2022 (the
question and (1)-(4)).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.selection.multichoice import menu
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
    Method,
    Outcome,
    Problem,
    Question,
    Relaxed,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Edge, Job, Mode, Task
from hetopt.solution import Solution
from hetopt.verify.resharding import check_resharding, messages_bound

__all__ = ["MILP", "PROBLEM", "Messages", "OperatorSharding", "Tree"]

_MEMORY, _TIME = 0, 1


@lru_cache(maxsize=4)
def resharding(instance: Instance) -> tuple[NDArray[np.int64], tuple[NDArray[np.float64], ...]]:
    """(e, 2) tasks and the matrix of each pair.

    Raises
    ------
    InputError
        ``tables.resharding`` names no task or edge, a pair twice, or holds a matrix of another shape.
    """
    table = instance.tables.get("resharding", [])
    if not isinstance(table, list):
        raise InputError('$.tables.resharding must be a list of {"from": task, "to": task, "seconds": matrix}')
    counts = np.diff(menu(instance).start)
    joined = {(int(a), int(b)) for a, b in instance.edges}
    ends, matrices = [], []
    for k, row in enumerate(table):
        path = f"$.tables.resharding[{k}]"
        if not isinstance(row, Mapping) or set(row) != {"from", "to", "seconds"}:
            raise InputError(f'{path} is {row!r}, expected {{"from": task, "to": task, "seconds": matrix}}')
        pair = tuple(instance.task_index.get(str(row[key]), -1) for key in ("from", "to"))
        if pair not in joined:
            raise InputError(f"{path} is of {row['from']!r} and {row['to']!r}, between which there is no edge")
        if pair in ends:
            raise InputError(f"{path} is of {row['from']!r} and {row['to']!r}, as an entry before it")
        shape = tuple(int(counts[t]) for t in pair)
        try:
            matrix = np.array(row["seconds"], np.float64)
        except (TypeError, ValueError):
            matrix = np.zeros(0)
        if matrix.shape != shape or not np.isfinite(matrix).all() or (matrix < 0).any():
            raise InputError(
                f"{path}.seconds must be {shape[0]} x {shape[1]} numbers, 0 or more, a row for each mode of 'from'"
            )
        ends.append(pair)
        matrices.append(matrix)
    return np.array(ends, np.int64).reshape(-1, 2), tuple(matrices)


def _plan(instance: Instance, chosen: NDArray[np.int64]) -> Solution:
    """A plan of the mode (n,) of each task."""
    all_modes = menu(instance)
    names = [all_modes.names[s + m] for s, m in zip(all_modes.start.tolist(), chosen.tolist(), strict=False)]
    return Solution(details={"modes": dict(zip(instance.labels, names, strict=True))})


class MILP(LinearFormulation):
    """(1)-(4)."""

    name = "milp"
    title = "MILP (1)-(4)"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Entries of (2) and (3)."""
        return 2 * sum(matrix.size for matrix in resharding(instance)[1]) + 2 * len(menu(instance).names)

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``mode[task=mode]`` and ``pair[number]``."""
        all_modes, (ends, matrices) = menu(instance), resharding(instance)
        start, c = all_modes.start, len(all_modes.names)
        of = np.repeat(np.arange(instance.n_tasks), np.diff(start))
        labels = [f"{instance.labels[t]}={name}" for t, name in zip(of.tolist(), all_modes.names, strict=True)]
        model = LinearModel("operator-sharding")
        x = model.binary("mode", c, upper=all_modes.open, labels=(labels,))
        cost = np.concatenate([matrix.ravel() for matrix in matrices]) if matrices else np.zeros(0)
        z = model.continuous("pair", len(cost), upper=1)
        model.rows("choose", instance.n_tasks, [(of, x, 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        for side, name in enumerate(("from", "to")):  # (2), (3)
            counts = np.array([matrix.shape[side] for matrix in matrices], np.int64)
            first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            own = [first[e] + np.indices(matrix.shape)[side].ravel() for e, matrix in enumerate(matrices)]
            row = np.concatenate(own) if own else np.zeros(0, np.int64)
            mode = [start[ends[e, side]] + np.arange(counts[e]) for e in range(len(matrices))]
            column = np.concatenate(mode) if mode else np.zeros(0, np.int64)
            terms = [(row, z, 1.0), (np.arange(first[-1]), x[column], -1.0)]
            model.rows(name, int(first[-1]), terms, lower=0, upper=0)
        heavy = all_modes.amount[_MEMORY]
        unit = time_unit(float(heavy.max(initial=0.0)))
        model.rows("memory", 1, [(0, x, heavy / unit)], upper=float(instance.capacity[0]) / unit)  # (4)
        seconds = np.where(all_modes.open, all_modes.amount[_TIME], 0.0)
        model.minimize(np.concatenate([x, z]), np.concatenate([seconds, cost]))
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The mode chosen for each task."""
        chosen, start = np.flatnonzero(x[model.columns("mode")] > 0.5), menu(instance).start
        if len(chosen) != instance.n_tasks:
            raise ValueError("not one mode a task")
        return _plan(instance, chosen - start[:-1])

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Ones and zeros of the modes."""
        given, all_modes = solution.details.get("modes"), menu(instance)
        if not isinstance(given, Mapping):
            return None
        of = np.repeat(np.arange(instance.n_tasks), np.diff(all_modes.start)).tolist()
        point = np.full(model.n_columns, np.nan)
        point[model.columns("mode")] = [
            given.get(instance.labels[t]) == name for t, name in zip(of, all_modes.names, strict=True)
        ]
        return point


def _padded(instance: Instance) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(n, k) seconds and bytes of the modes, (e, k, k) seconds of the pairs, ``inf`` (bytes 0) beyond."""
    all_modes, (_, matrices) = menu(instance), resharding(instance)
    counts = np.diff(all_modes.start)
    there = np.arange(counts.max()) < counts[:, None]
    seconds, memory = np.full(there.shape, np.inf), np.zeros(there.shape)
    seconds[there] = np.where(all_modes.open, all_modes.amount[_TIME], np.inf)
    memory[there] = all_modes.amount[_MEMORY]
    ends = resharding(instance)[0]
    pair = np.full((len(matrices), counts.max(), counts.max()), np.inf)
    for e, matrix in enumerate(matrices):
        pair[e, : matrix.shape[0], : matrix.shape[1]] = matrix
        pair[e, np.isinf(seconds[ends[e, 0]])] = np.inf
        pair[e][:, np.isinf(seconds[ends[e, 1]])] = np.inf
    return seconds, memory, pair


def _report(instance: Instance, question: Question, control: Control, pairs: Any, price: float) -> float:
    counts, (ends, _) = np.diff(menu(instance).start), resharding(instance)
    told = [[pairs.message[e, side, : counts[ends[e, side]]].tolist() for side in (0, 1)] for e in range(len(ends))]
    return question.prove(instance, control, {"kind": "messages", "price": price, "messages": told})


class Tree(Method):
    """Dynamic program on a forest."""

    name = "tree"
    title = "dynamic program on a forest of operators; exact, replayed"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """A forest, and memory that cannot bind."""
        _, memory, _ = _padded(instance)
        if float(memory.max(axis=1).sum()) > float(instance.capacity[0]):
            return "memory may bind"
        parent = list(range(instance.n_tasks))
        for a, b in resharding(instance)[0].tolist():
            while parent[a] != a:
                a = parent[a]
            while parent[b] != b:
                b = parent[b]
            if a == b:
                return "the pairs close a circle"
            parent[a] = b
        return None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass up and one down."""
        from hetopt.algorithms.pairwise_choice import Pairs

        seconds, _, pair = _padded(instance)
        pairs = Pairs(seconds, resharding(instance)[0], pair)
        control.report_plan(_plan(instance, pairs.tree()))
        _report(instance, question, control, pairs, 0.0)
        return Outcome()


class Messages(Method):
    """Sweeps of messages under a price of memory."""

    name = "messages"
    title = "message sweeps under a price of memory, plans by local search; bound replayed from price and messages"
    kind = "search"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Sweeps at each price; the price rises while plans exceed the memory, else falls, by halves."""
        from hetopt.algorithms.pairwise_choice import Pairs, descend

        seconds, memory, pair = _padded(instance)
        capacity = float(instance.capacity[0])
        n = len(seconds)
        order, rows = np.arange(n), np.arange(n)
        pairs = Pairs(seconds, resharding(instance)[0], pair)
        binds = float(memory.max(axis=1).sum()) > capacity
        price, low, high = 0.0, 0.0, np.inf
        scale = float(np.where(np.isfinite(seconds), seconds, 0.0).max(axis=1).sum() + pair[np.isfinite(pair)].sum())
        for _ in range(24 if binds else 4):
            pairs.node = seconds + price * memory
            chosen, before = rows, -np.inf
            for _ in range(6):
                if control.should_stop():
                    return Outcome()
                pairs.sweep(order)
                chosen = pairs.sweep(order[::-1])
                plan = descend(pairs, seconds, memory, capacity, chosen)
                if plan is not None:
                    control.report_plan(_plan(instance, plan))
                bound = _report(instance, question, control, pairs, price)
                if bound <= before + 1e-7 * abs(bound):
                    break
                before = bound
            if not binds:
                continue
            over = float(memory[rows, chosen].sum()) > capacity
            if not over and price == 0:
                break
            low, high = (price, high) if over else (low, price)
            start = max(scale, 1e-300) / max(float(memory.sum()), 1e-300) / 64
            price = (low + high) / 2 if np.isfinite(high) else max(4 * price, start)
        return Outcome()


class OperatorSharding(Problem):
    """The question."""

    name = "selection.sharding"
    objectives = ("operator-sharding",)
    title = "one way to shard each operator, least seconds with resharding between operators, within memory"
    uses = frozenset({"modes", "memory", "time", "edges", "tables.resharding"})
    methods = (Tree(), MILP(), Relaxed(MILP(), "(1)-(4)"), Messages())

    def fits(self, instance: Instance) -> str | None:
        """Modes for every task, with different names."""
        for k in range(instance.n_tasks):
            names = [mode.name for mode in instance.task(k).modes]
            if not names:
                return f"task {instance.labels[k]!r} has no modes to choose from"
            if len(set(names)) != len(names):
                return f"task {instance.labels[k]!r} has two modes of one name"
            for mode in instance.task(k).modes:
                if mode.time is None:
                    return f"mode {mode.name!r} of task {instance.labels[k]!r} has no time"
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds of operators and resharding, memory checked."""
        resharding(instance)
        report = check_resharding(instance, solution.details)
        told = {"work": report.work, "resharding": report.resharding, "memory": report.memory}
        return Evaluation(report.work + report.resharding, report.violations, told)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """An operator that cannot run; more bytes than there are whatever is chosen."""
        resharding(instance)
        seconds, memory, _ = _padded(instance)
        able = np.isfinite(seconds)
        for t in np.flatnonzero(~able.any(axis=1)).tolist():
            return (f"no mode of task {instance.labels[t]!r} can run on {instance.device_names[0]!r}",)
        least, most = float(np.where(able, memory, np.inf).min(axis=1).sum()), float(instance.capacity[0])
        if least > most * (1 + 1e-12):
            return (
                f"memory: the thriftiest modes need {least:.9g}, the device has {most:.9g}: {least - most:.9g} short",
            )
        return ()

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The tree where it is exact, else messages, then the program."""
        if self.method("tree").fits(instance, question) is None:
            return (Step("tree", "the pairs form a forest and memory cannot bind: exact in one pass"),)
        return (Step("messages", "a plan and a bound in moments", 0.3), Step("milp", "exact"))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays messages and linear duals."""
        if certificate.get("kind") != "messages":
            return super().replay(instance, question, certificate)
        resharding(instance)
        return messages_bound(instance, float(certificate["price"]), certificate["messages"])

    def sample(self, seed: int) -> Instance:
        """Up to five operators of up to three modes, some in circles, some with little memory."""
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 6))
        tasks, table = [], []
        for k in range(n):
            modes = [
                Mode(
                    name=f"m{m}",
                    time=[int(rng.integers(0, 9)) if m == 0 or rng.random() < 0.9 else None],
                    memory=int(rng.integers(1, 9)),
                )
                for m in range(int(rng.integers(1, 4)))
            ]
            tasks.append(Task(name=f"t{k}", time=[1], modes=modes))
        edges = [(a, b) for a, b in itertools.combinations(range(n), 2) if rng.random() < (0.7 if seed % 2 else 0.4)]
        for a, b in edges:
            cost = rng.integers(0, 9, (len(tasks[a].modes), len(tasks[b].modes)))
            table.append({"from": f"t{a}", "to": f"t{b}", "seconds": cost.tolist()})
        job = Job(name="net", tasks=tasks, edges=[Edge(source=f"t{a}", target=f"t{b}") for a, b in edges])
        memory = [int(rng.integers(3 * n, 6 * n + 1)), None][seed % 3 == 0]
        device = Device(name="mesh", memory=memory)
        labels = Instance.build([device], [job]).labels
        for row in table:
            row |= {key: labels[int(row[key][1:])] for key in ("from", "to")}
        return Instance.build([device], [job], tables={"resharding": table}, question={"objective": self.objectives[0]})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All choices."""
        counts = np.diff(menu(instance).start).tolist()
        for chosen in itertools.product(*map(range, counts)):
            yield _plan(instance, np.array(chosen, np.int64))


PROBLEM = OperatorSharding()
