"""Offloading as a MILP over a path of states; the docstring of ``offload`` has the mathematics and the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.partition._offload import asked, line_of, states_of, swaps
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.chain import layer_sequence
from hetopt.verify.offload import accelerators

__all__ = ["MILP"]

MOST_ARCS = 2_000_000

Terms = list[tuple[Any, Any, Any]]


class MILP(LinearFormulation):
    """(1)-(7)."""

    name = "milp"
    title = "MILP (1)-(7): a path of states under memory limits"
    kind = "exact"

    def __init__(self, objective: str) -> None:
        self.objective = objective

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough arcs."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} arcs, more than {MOST_ARCS:,}" if size > MOST_ARCS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Arcs at most."""
        hosts = int(instance.is_host.sum())
        states = (instance.n_devices - hosts) * (1 + hosts)
        return instance.n_tasks * states * (states + 1) // 2

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``state[task, state]``, ``next[arc]``, ``room``, and ``largest`` for the memory objective."""
        options = asked(instance, question)
        line = line_of(instance, swaps(options))
        (n, s), d = line.seconds.shape, instance.n_devices
        names, sequence = instance.device_names, layer_sequence(instance)
        assert sequence is not None
        tasks = [instance.labels[k] for k in sequence.tolist()]
        labels = [f"{names[g]}:{names[i]}" for g, i in states_of(instance)]
        finite, on_host = np.isfinite(line.seconds), instance.is_host[line.lies]
        model = LinearModel("offload" if self.objective == "seconds" else "offload-memory")
        u = model.binary("state", (n, s), upper=finite, labels=(tasks, labels))
        t, a, b = _arcs(line)
        z = model.continuous("next", len(t), lower=0, upper=1)
        each = np.arange((n - 1) * s)
        model.rows("start", 1, [(0, u[0], 1.0)], lower=1, upper=1)  # (1)
        model.rows("leave", (n - 1, s), [(t * s + a, z, 1.0), (each, u[:-1].ravel(), -1.0)], lower=0, upper=0)  # (2)
        model.rows("enter", (n - 1, s), [(t * s + b, z, 1.0), (each, u[1:].ravel(), -1.0)], lower=0, upper=0)  # (3)
        unit = time_unit(float(line.memory.max(initial=0.0)))
        heavy = line.memory / unit
        held: Terms = [(np.broadcast_to(line.lies, (n, s)), u, np.broadcast_to(heavy[:, None], (n, s)))]
        if swaps(options):
            room = model.continuous("room", 1, lower=0, upper=float(heavy.max(initial=0.0)))
            held.append((np.array([accelerators(instance)[0]]), room, 1.0))
            task = np.broadcast_to(np.arange(n)[:, None], (n, int(on_host.sum())))
            copied = (task, u[:, on_host], -np.broadcast_to(heavy[:, None], task.shape))
            kept = (np.arange(n), np.broadcast_to(room, (n,)), 1.0)
            model.rows("room", n, [kept, copied], lower=0, labels=(tasks,))  # (5)
        model.rows("memory", d, held, upper=instance.capacity / unit, labels=(names,))  # (4)
        hosted = options["hosted"]
        if hosted is not None:
            model.rows("hosted", 1, [(0, u[:, on_host].ravel(), 1.0)], lower=hosted, upper=hosted)  # (6)
        first, other = _grouped(instance.group[sequence])
        pair = np.arange(len(other))[:, None] * d + line.lies
        model.rows("group", (len(other), d), [(pair, u[other], 1.0), (pair, u[first], -1.0)], lower=0, upper=0)  # (7)
        if self.objective == "memory":
            model.minimize(_fullest(model, instance, held, 2.0 * float(heavy.sum())), unit)
            return model
        move = line.latency[line.runs[a], line.runs[b]] + line.output[t] * line.slowness[line.runs[a], line.runs[b]]
        seconds = np.where(finite, line.seconds, 0.0)
        model.minimize(np.concatenate([u.ravel(), z]), np.concatenate([seconds.ravel(), move]))
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each task where its state lies."""
        sequence = layer_sequence(instance)
        assert sequence is not None
        lies = np.array([i for _, i in states_of(instance)], np.int64)
        state = x[model.columns("state")].reshape(instance.n_tasks, -1).argmax(axis=1)
        placement = np.empty(instance.n_tasks, np.int64)
        placement[sequence] = lies[state]
        return Solution.assign(placement)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """States of a plan; the accelerator reached is the last one used, at first the first one that will be."""
        sequence = layer_sequence(instance)
        if sequence is None or solution.placement is None:
            return None
        states = states_of(instance)
        number = {state: k for k, state in enumerate(states)}
        where, cut = solution.placement[sequence].tolist(), instance.columns.cut[sequence].tolist()
        ahead, n = [0] * len(where), len(where)  # the next accelerator used, from each task on
        last = states[0][0]
        for t in range(n - 1, -1, -1):
            last = last if instance.is_host[where[t]] else where[t]
            ahead[t] = last
        reached = ahead[0]
        x = np.full(model.n_columns, np.nan)
        block = np.zeros((instance.n_tasks, len(states)))
        for t, i in enumerate(where):
            if not instance.is_host[i]:
                reached = i
            elif t and cut[t - 1] and _later(states, reached, ahead[t]):
                reached = ahead[t]
            block[t, number[reached, i]] = 1.0
        x[model.columns("state")] = block.reshape(x[model.columns("state")].shape)
        return x


def _grouped(group: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of places in the sequence that share a device: the first of each group with each other one of it."""
    inside = np.flatnonzero(group >= 0)
    _, first, number = np.unique(group[inside], return_index=True, return_inverse=True)
    head = inside[first][number]
    return head[head != inside], inside[head != inside]


def _arcs(line: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(task, state, next state) of every arc in A with a link where one is needed."""
    n = len(line.seconds)
    a, b = np.divmod(np.arange(len(line.reached) ** 2), len(line.reached))
    linked = np.isfinite(line.latency[line.runs[a], line.runs[b]])
    stays, grows = line.reached[a] == line.reached[b], line.reached[a] < line.reached[b]
    found = []
    for cut in (False, True):
        pairs = np.flatnonzero(linked & (stays | (grows & cut)))
        tasks = np.flatnonzero(line.cut[: n - 1] == cut)
        found.append((np.repeat(tasks, len(pairs)), np.tile(a[pairs], len(tasks)), np.tile(b[pairs], len(tasks))))
    t, a, b = (np.concatenate(parts) for parts in zip(*found, strict=True))
    open_ends = np.isfinite(line.seconds[t, a]) & np.isfinite(line.seconds[t + 1, b])
    return t[open_ends], a[open_ends], b[open_ends]


def _later(states: list[tuple[int, int]], a: int, b: int) -> bool:
    """Whether accelerator ``b`` comes after ``a``."""
    order = [g for g, i in states if g == i]
    return order.index(b) > order.index(a)


def _fullest(model: LinearModel, instance: Instance, held: Terms, most: float) -> NDArray[np.int64]:
    """The column that is no less than the bytes ``held`` on any accelerator."""
    gpus = np.flatnonzero(~instance.is_host)
    largest = model.continuous("largest", 1, lower=0, upper=most)
    place = np.full(instance.n_devices, -1)
    place[gpus] = np.arange(len(gpus))
    mine = [(place[r[keep]], c[keep], v[keep]) for r, c, v in map(_flat, held) for keep in (place[r] >= 0,)]
    all_of = (np.arange(len(gpus)), np.broadcast_to(largest, (len(gpus),)), -1.0)
    labels = [instance.device_names[g] for g in gpus.tolist()]
    model.rows("largest", len(gpus), [*mine, all_of], upper=0, labels=(labels,))
    return largest


def _flat(term: tuple[Any, Any, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    row, column, value = np.broadcast_arrays(*term)
    return row.ravel(), column.ravel(), value.ravel().astype(np.float64)
