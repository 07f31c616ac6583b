"""The linear model of :mod:`.hybrid`, for small graphs: a second, independent way to the optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.partition._hybrid import degrees, seconds_of
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.hybrid import HybridFacts, hybrid_facts

__all__ = ["MILP"]

MOST_COLUMNS = 20_000


class MILP(LinearFormulation):
    """(1)-(8)."""

    name = "milp"
    title = "MILP (1)-(8), for small graphs"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough columns."""
        size = self.size(instance, question)
        return f"it would have about {size} columns, more than {MOST_COLUMNS}" if size > MOST_COLUMNS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Columns x, c and y."""
        facts = hybrid_facts(instance)
        stages, options = min(facts.devices, len(facts.modes)), len(degrees(facts, question))
        modes = sum(len(modes) * (1 + len(modes[0].receive) + len(modes[0].send)) for modes in facts.modes)
        return stages * options * (modes + min(facts.devices, facts.batch))

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``open``, ``x``, ``cross``, ``flight`` and ``period``."""
        facts = hybrid_facts(instance)
        options = degrees(facts, _asked(instance) if question is None else question)
        model = LinearModel("hybrid")
        n, stages, o = len(facts.modes), min(facts.devices, len(facts.modes)), len(options)
        copies = min(facts.devices, facts.batch)
        rows = _rows(facts, options)
        at_task, at_option, at_mode = rows.T
        names = [
            f"{instance.labels[v]}:{facts.modes[v][m].name}:{options[k][0]}x{options[k][1]}"
            for v, k, m in rows.tolist()
        ]
        stage = np.arange(stages)
        u = model.binary("open", (stages, o), labels=(range(stages), [f"{t}x{d}" for t, d in options]))
        x = model.binary("x", (stages, len(rows)), labels=(range(stages), names))
        number = [[seconds_of(facts, v, mode) for mode in modes] for v, modes in enumerate(facts.modes)]
        data = np.array([d for _, d in options], np.float64)
        width = np.array([t * d for t, d in options], np.float64)
        ends = [(r, e) for r, (v, _, m) in enumerate(rows.tolist()) for e in sorted(number[v][m][2])]
        at_row, at_edge = np.array(ends, np.int64).reshape(-1, 2).T
        c = model.continuous(
            "cross", (stages, len(ends)), upper=1, labels=(range(stages), [f"{names[r]}:{e}" for r, e in ends])
        )
        y = model.binary("flight", (stages, o, copies))
        t = model.continuous("period")
        model.rows("place", n, [(at_task[None, :], x, 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        cell = stage[:, None] * o + np.arange(o)
        pair = (stage[:, None] * n + at_task) * o + at_option
        task_cell = (stage[:, None, None] * n + np.arange(n)[:, None]) * o + np.arange(o)
        model.rows("open", stages * n * o, [(pair, x, 1.0), (task_cell, u[:, None, :], -1.0)], upper=0)  # (2)
        model.rows("single", stages, [(stage[:, None], u, 1.0)], upper=1)
        used = stage[:, None] * o + at_option
        model.rows("used", stages * o, [(used, x, 1.0), (cell, u, -1.0)], lower=0)
        _after(model, facts, x, at_task)  # (3)
        model.rows("devices", 1, [(np.zeros((stages, o), np.int64), u, width)], upper=facts.devices)  # (4)
        model.rows("batch", 1, [(np.zeros((stages, o), np.int64), u, data)], upper=facts.batch)
        edge = facts.edges[at_edge] if len(ends) else np.zeros((0, 2), np.int64)
        other = edge.sum(axis=1) - at_task[at_row]
        link = stage[:, None] * len(ends) + np.arange(len(ends))
        which, there = _of_tasks(at_task, other)
        crossing = [
            (link, c, 1.0),
            (link, x[:, at_row], -1.0),
            (stage[:, None] * len(ends) + which, x[:, there], 1.0),
        ]
        model.rows("cross", stages * len(ends), crossing, lower=0)  # (5)
        share = 1 / data[at_option]
        work = np.array([float(number[v][m][0] + (options[k][1] - 1) * number[v][m][1]) for v, k, m in rows.tolist()])
        toll = np.array([float(number[at_task[r]][at_mode[r]][2][e]) for r, e in ends])
        busy: list[tuple[Any, Any, Any]] = [
            (stage[:, None], x, work * share),
            (stage[:, None], c, toll * share[at_row]),
            (stage, t, -1.0),
        ]
        model.rows("slowest", stages, busy, upper=0)  # (6)
        _flight(model, facts, options, u, x, y, rows)  # (7), (8)
        model.minimize(t)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Stages that are open, in their order, on the devices in theirs."""
        facts, options = hybrid_facts(instance), _options_of(model)
        table, names = _rows(facts, options), list(instance.device_names)
        chosen = np.argwhere(x[model.columns("x")] > 0.5)
        opened = x[model.columns("open")]
        placement, modes, told, first = np.full(instance.n_tasks, -1), {}, [], 0
        for j in np.flatnonzero(opened.max(axis=1) > 0.5).tolist():
            tensor, data = options[int(np.argmax(opened[j]))]
            told.append({"devices": names[first : first + tensor * data], "tensor": tensor, "data": data})
            for r in chosen[chosen[:, 0] == j, 1].tolist():
                v, _, m = table[r].tolist()
                placement[v] = first
                modes[instance.labels[v]] = facts.modes[v][m].name
            first += tensor * data
        ordered = {label: modes[label] for label in instance.labels if label in modes}
        return Solution(placement, details={"stages": told, "modes": ordered})

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Open stages with their tasks and modes; crossings, flights and the period are left open."""
        if solution.placement is None or set(solution.details) != {"stages", "modes"}:
            return None
        facts, options = hybrid_facts(instance), _options_of(model)
        table, stages = _rows(facts, options), solution.details["stages"]
        degree = [(stage["tensor"], stage["data"]) for stage in stages]
        opened, x = model.columns("open"), model.columns("x")
        if not set(degree) <= set(options) or len(stages) > len(opened):
            return None
        first = {instance.device_index[stage["devices"][0]]: j for j, stage in enumerate(stages)}
        where = [first[device] for device in solution.placement.tolist()]
        point = np.full(model.n_columns, np.nan)
        point[opened], point[x] = 0.0, 0.0
        for j, pair in enumerate(degree):
            point[opened[j, options.index(pair)]] = 1.0
        for r, (v, k, m) in enumerate(table.tolist()):
            mine = facts.modes[v][m].name == solution.details["modes"][instance.labels[v]]
            if mine and options[k] == degree[where[v]]:
                point[x[where[v], r]] = 1.0
        return point


def _asked(instance: Instance) -> dict[str, int]:
    """Options as the instance's own question has them."""
    return {key: int(instance.question.get(key, 0)) for key in ("tensor", "data")}


def _rows(facts: HybridFacts, options: list[tuple[int, int]]) -> NDArray[np.int64]:
    """(r, 3) task, degrees (by number) and mode (by number) of each way to run a task, by task."""
    found = [
        (v, k, m)
        for v, modes in enumerate(facts.modes)
        for k, (tensor, _) in enumerate(options)
        for m, mode in enumerate(modes)
        if mode.tensor == tensor
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def _options_of(model: LinearModel) -> list[tuple[int, int]]:
    """Tensor and data degrees by which a model was built."""
    labels = model.column_blocks[0].labels
    assert labels is not None
    pairs = [str(label).split("x") for label in labels[1]]
    return [(int(tensor), int(data)) for tensor, data in pairs]


def _of_tasks(at_task: NDArray[np.int64], tasks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs (place in ``tasks``, row of that task); ``at_task`` ascends."""
    begin, end = np.searchsorted(at_task, tasks), np.searchsorted(at_task, tasks, side="right")
    size = end - begin
    which = np.repeat(np.arange(len(tasks)), size)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(size) - size, size) + begin[which]


def _after(model: LinearModel, facts: HybridFacts, x: NDArray[np.int64], at_task: NDArray[np.int64]) -> None:
    """(3): up to each stage, a task is there only when its predecessor is."""
    stages, e = len(x), len(facts.edges)
    late, early = np.tril_indices(stages)
    terms = []
    for end, sign in ((1, 1.0), (0, -1.0)):
        which, there = _of_tasks(at_task, facts.edges[:, end])
        terms.append((late[:, None] * e + which, x[early[:, None], there], sign))
    model.rows("after", stages * e, terms, upper=0)


def _flight(
    model: LinearModel,
    facts: HybridFacts,
    options: list[tuple[int, int]],
    u: NDArray[np.int64],
    x: NDArray[np.int64],
    y: NDArray[np.int64],
    table: NDArray[np.int64],
) -> None:
    """(7), (8)."""
    stages, o, copies = y.shape
    data = np.array([d for _, d in options], np.float64)
    cell = np.arange(stages * o).reshape(stages, o)
    model.rows("flights", stages * o, [(cell[:, :, None], y, 1.0), (cell, u, -1.0)], lower=0, upper=0)
    row = np.arange(y.size).reshape(y.shape)
    early, late = np.triu_indices(stages)
    terms: list[tuple[Any, Any, Any]] = [
        (row[early][:, :, :, None], u[late][:, None, None, :], data),
        (row, y, float(copies)),
    ]
    flight = np.arange(1, copies + 1)
    room = np.broadcast_to(data[:, None] * flight + copies, y.shape).ravel()
    model.rows("flight", y.size, terms, upper=room)
    if not np.isfinite(facts.capacity):
        return
    scale = 2.0 ** -np.frexp(max(facts.capacity, 1.0))[1]
    sizes = [(facts.modes[v][m].activation, facts.modes[v][m].memory) for v, _, m in table.tolist()]
    active, rest = np.array(sizes, np.float64).reshape(-1, 2).T * scale
    need = active[:, None] * flight + rest[:, None]
    most = np.zeros((len(facts.modes), copies))
    np.maximum.at(most, table[:, 0], need)
    big = np.maximum(0.0, most.sum(axis=0) - facts.capacity * scale)
    stage = np.arange(stages)[:, None, None]
    at = (stage * o + table[:, 1][:, None]) * copies + np.arange(copies)
    terms = [(at, x[:, :, None], need), (row, y, big)]
    model.rows("memory", y.size, terms, upper=np.broadcast_to(facts.capacity * scale + big, y.shape).ravel())
