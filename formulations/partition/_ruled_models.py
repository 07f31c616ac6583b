"""Max-load with overlap, latencies and direct links as a MILP over placements; ``maxload``'s docstring has the numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.partition._pipeline import Pipeline, forward_edges, pipeline_of
from formulations.partition._stage_rules import asked, outputs, transfer_costs
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["RuledMILP"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RuledMILP(LinearFormulation):
    """(1)-(5), (8)-(12): every kind of contiguity, one device a stage."""

    name = "rules"
    title = "MILP (1)-(5), (8)-(12) with overlap, latency and direct links"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """One device a stage, memory that does not depend on the stage's place."""
        if question["replicas"] > 1 or question["in_flight"] != "none":
            return "it knows one device a stage and no inputs in flight; use stages"
        return None

    def size(self, instance: Instance, question: Question) -> int:
        """Nonzeros, before anything is contracted."""
        d = instance.n_devices
        direct = d if question["transfers"] == "direct" or question["contiguous"] == "ideals" else 1
        return 8 * d * (instance.n_tasks + direct * len(instance.edges))

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x``, ``in``, ``out`` or ``pair``, the loads, and ``z`` or ``before`` for contiguity."""
        rules = asked(instance, question)
        pipeline = _pipeline(instance, rules["contiguous"], rules["transfers"])
        sends = _sends(instance, pipeline, rules["transfers"] == "direct")
        return _Builder(instance, pipeline, sends, rules).model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Device of each class."""
        return _of_model(instance, model).solution(x[model.columns("x")].argmax(axis=1))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x of a plan; the solver fills in the rest."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        point = np.full(model.n_columns, np.nan)
        classes = _of_model(instance, model).classes(solution)
        point[model.columns("x")] = classes[:, None] == np.arange(instance.n_devices)
        return point


def _pipeline(instance: Instance, contiguous: str, transfers: str) -> Pipeline:
    return pipeline_of(instance, contiguous, transfers, merged=False)


def _of_model(instance: Instance, model: LinearModel) -> Pipeline:
    names = {block.name for block in model.column_blocks}
    contiguous = "ideals" if "before" in names else "device" if "z" in names else "none"
    return _pipeline(instance, contiguous, "direct" if "pair" in names else "host")


class _Sends(NamedTuple):
    """Outputs that may travel: consumers (net, class), source class, pass, seconds (h, d) or, direct, (h, d, d) from, to."""

    net: Ints
    consumer: Ints
    source: Ints
    backward: NDArray[np.bool_]
    arrive: Floats
    leave: Floats
    direct: Floats | None


def _sends(instance: Instance, pipeline: Pipeline, direct: bool) -> _Sends:
    tasks = np.unique(instance.edges[:, 0]) if len(instance.edges) else np.zeros(0, np.int64)
    tasks = tasks[instance.output[tasks] > 0]
    ptr, pin, source, owner = outputs(instance, pipeline.graph, tasks)
    net = np.repeat(np.arange(len(source)), np.diff(ptr))
    kept = pin != source[net]
    order = pipeline.device
    arrive = leave = np.zeros((len(source), instance.n_devices))
    pair = None
    if not direct:
        arrive, leave, _ = transfer_costs(instance)
        arrive, leave = arrive[owner][:, order], leave[owner][:, order]
    elif len(source):
        weight = np.asarray(instance.output, np.float64)[tasks[owner]]
        names = [instance.device_names[i] for i in order]
        pair = np.zeros((len(source), len(names), len(names)))
        for i, a in enumerate(names):
            for j, b in enumerate(names):
                if i != j:
                    link = instance.need_link(a, b)
                    pair[:, i, j] = link.latency + (0.0 if link.bandwidth is None else weight / link.bandwidth)
    backward = instance.backward[tasks[owner]]
    return _Sends(net[kept], pin[kept], source, backward, arrive, leave, pair)


class _Builder:
    """The model's blocks, one method each."""

    def __init__(self, instance: Instance, pipeline: Pipeline, sends: _Sends, rules: Any) -> None:
        self.instance, self.pipeline, self.sends, self.rules = instance, pipeline, sends, rules
        self.graph = pipeline.graph
        self.kind = pipeline.kind[pipeline.device]
        self.time = self.graph.time[:, self.kind]
        self.n, self.d, self.h = self.graph.n, len(self.kind), len(sends.source)
        finite = np.where(np.isfinite(self.time), self.time, 0.0)
        moved = sends.arrive.max(axis=1, initial=0).sum() + sends.leave.max(axis=1, initial=0).sum()
        if sends.direct is not None:
            moved = 2 * sends.direct.sum()
        self.ceiling = float(finite.max(axis=1, initial=0.0).sum() + moved)
        self.unit = time_unit(self.ceiling)
        self.model = LinearModel("maxload-rules")
        self._placement()
        pays = self._pairs() if sends.direct is not None else self._hosts()
        self._loads(pays)
        if rules["contiguous"] == "ideals":
            self._order()
        elif rules["contiguous"] == "device":
            self._convex()

    def _placement(self) -> None:
        names = [self.instance.device_names[i] for i in self.pipeline.device]
        can = np.isfinite(self.time)
        self.x = self.model.binary("x", (self.n, self.d), upper=can, labels=(range(self.n), names))
        v, i = np.nonzero(can)
        self.model.rows("assign", self.n, [(v, self.x[v, i], 1.0)], lower=1, upper=1)  # (1)
        memory = self.graph.memory[self.kind]
        limited = np.flatnonzero(np.isfinite(memory) & (self.graph.size.sum() > memory))
        if limited.size:
            line, cell = np.meshgrid(np.arange(limited.size), np.arange(self.n), indexing="ij")
            terms = [(line, self.x[cell, limited[line]], self.graph.size[cell])]
            self.model.rows("memory", limited.size, terms, upper=memory[limited])  # (5)

    def _hosts(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Columns that say that a device receives or sends an output: (net, device, column, seconds)."""
        model, x, s = self.model, self.x, self.sends
        into = model.continuous("in", (self.h, self.d), upper=1.0)
        out = model.continuous("out", (self.h, self.d), upper=1.0)
        row = np.arange(len(s.net) * self.d).reshape(len(s.net), self.d)
        here, there = x[s.source[s.net]], x[s.consumer]
        model.rows(
            "receive", row.shape, [(row, into[s.net], 1.0), (row, there, -1.0), (row, here, 1.0)], lower=0
        )  # (2)
        model.rows("send", row.shape, [(row, out[s.net], 1.0), (row, here, -1.0), (row, there, 1.0)], lower=0)  # (3)
        k, i = (part.ravel() for part in np.meshgrid(np.arange(self.h), np.arange(self.d), indexing="ij"))
        return (
            np.concatenate([k, k]), np.concatenate([i, i]), np.concatenate([into[k, i], out[k, i]]),
            np.concatenate([s.arrive[k, i], s.leave[k, i]]),
        )  # fmt: skip

    def _pairs(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Columns that say that one device sends an output to another, each paid at both ends."""
        model, x, s = self.model, self.x, self.sends
        assert s.direct is not None
        pair = model.continuous("pair", (self.h, self.d, self.d), upper=1.0)
        k, i, j = (part.ravel() for part in np.meshgrid(*(np.arange(m) for m in pair.shape), indexing="ij"))
        row = np.arange(len(k))
        model.rows("from", len(k), [(row, pair[k, i, j], -1.0), (row, x[s.source[k], i], 1.0)], lower=0)  # (9)
        need = np.arange(len(s.net) * self.d).reshape(len(s.net), self.d)
        to = np.broadcast_to(np.arange(self.d), need.shape)
        terms: list[tuple[Any, Any, Any]] = [(need, x[s.source[s.net]], 1.0), (need, x[s.consumer], -1.0)]
        terms += [(need, pair[s.net[:, None], a, to], (to != a).astype(np.float64)) for a in range(self.d)]
        model.rows("reach", need.shape, terms, lower=0)  # (10)
        other = i != j
        k, i, j = k[other], i[other], j[other]
        host = self.instance.is_host[self.pipeline.device]
        spent, column = s.direct[k, i, j], pair[k, i, j]
        return (
            np.concatenate([k, k]), np.concatenate([i, j]), np.concatenate([column, column]),
            np.concatenate([np.where(host[i], 0.0, spent), np.where(host[j], 0.0, spent)]),
        )  # fmt: skip

    def _loads(self, pays: tuple[Ints, Ints, Ints, Floats]) -> None:
        net, device, column, spent = pays
        parts = [("load", self.time, np.ones(self.h, np.bool_))]
        if self.rules["passes"] == "max":
            back = (
                np.zeros((self.n, self.graph.types)) if self.graph.backward_time is None else self.graph.backward_time
            )
            backward = back[:, self.kind]
            with np.errstate(invalid="ignore"):
                forward = np.where(np.isfinite(self.time), self.time - backward, np.inf)
            parts = [("forward", forward, ~self.sends.backward), ("backward", backward, self.sends.backward)]
        v, i = np.nonzero(np.isfinite(self.time))
        tops = []
        for name, seconds, mine in parts:
            top = self.model.continuous(name, upper=self.ceiling / self.unit)
            tops.append(top)
            chosen = mine[net] & (spent > 0)
            compute = [(i, self.x[v, i], seconds[v, i] / self.unit)]
            moved = [(device[chosen], column[chosen], spent[chosen] / self.unit)]
            ends: list[Any] = [(np.arange(self.d), top, -1.0)]
            if self.rules["overlap"]:
                self.model.rows(f"{name}_compute", self.d, [*compute, *ends], upper=0)  # (11)
                self.model.rows(f"{name}_transfers", self.d, [*moved, *ends], upper=0)
            else:
                self.model.rows(f"{name}_of", self.d, [*compute, *moved, *ends], upper=0)  # (4)
        self.model.minimize(np.array(tops), self.unit)

    def _order(self) -> None:
        """An order of the devices in which no edge leads back."""
        d = self.d
        before = self.model.binary("before", (d, d), upper=1.0 - np.eye(d))
        u, w = self.graph.pred, np.repeat(np.arange(self.n), np.diff(self.graph.pred_ptr))
        e, i, j = (part.ravel() for part in np.meshgrid(np.arange(len(u)), np.arange(d), np.arange(d), indexing="ij"))
        e, i, j = (part[i != j] for part in (e, i, j))
        row = np.arange(len(e))
        terms = [(row, before[i, j], 1.0), (row, self.x[u[e], i], -1.0), (row, self.x[w[e], j], -1.0)]
        self.model.rows("leads", len(e), terms, lower=-1)  # (12)
        i, j = np.triu_indices(d, 1)
        row = np.arange(len(i))
        self.model.rows("one_way", len(i), [(row, before[i, j], 1.0), (row, before[j, i], 1.0)], upper=1)
        i, j, k = (part.ravel() for part in np.meshgrid(*(np.arange(d),) * 3, indexing="ij"))
        apart = (i != j) & (j != k) & (i != k)
        i, j, k = i[apart], j[apart], k[apart]
        row = np.arange(len(i))
        terms = [(row, before[i, j], 1.0), (row, before[j, k], 1.0), (row, before[i, k], -1.0)]
        self.model.rows("transitive", len(i), terms, upper=1)

    def _convex(self) -> None:
        tasks, (u, w), d = self.instance.n_tasks, forward_edges(self.instance), self.d
        z = self.model.binary("z", (tasks, d))
        mine = self.x[self.graph.member]
        row = np.arange(tasks * d).reshape(tasks, d)
        self.model.rows("holds", (tasks, d), [(row, z, 1.0), (row, mine, -1.0)], lower=0)
        row = np.arange(len(u) * d).reshape(len(u), d)
        self.model.rows("ancestor", (len(u), d), [(row, z[u], 1.0), (row, z[w], -1.0)], lower=0)
        terms = [(row, z[w], 1.0), (row, mine[w], -1.0), (row, mine[u], 1.0)]
        self.model.rows("convex", (len(u), d), terms, upper=1)  # (8)
