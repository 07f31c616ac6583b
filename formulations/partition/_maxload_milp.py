"""Max-load partition as a MILP, and its relaxation; the docstring of ``maxload`` has the mathematics and the numbers.

Both work on the stage graph. Without a chain of ideals a class is placed on a device (x). With one it is placed at a position
of the chain, in the form y_vj = 1 when v is at position j or before, so that x_vj = y_vj - y_v,j-1 and precedence is a
comparison of two binaries; a position then has a device type. That form knows no symmetry between equal devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.partition._pipeline import (
    Pipeline,
    chain_order,
    device_of_position,
    forward_edges,
    pipeline_of,
    precedence,
)
from formulations.partition._stage_rules import asked, plain_rules
from hetopt.algorithms.stagegraph import StageGraph
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["LP", "MILP"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Terms = list[tuple[Any, Any, Any]]


class MILP(LinearFormulation):
    """(1)-(8) as a MILP."""

    name = "milp"
    title = "MILP (1)-(8)"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """The plain rules only."""
        return plain_rules(instance, question)

    def size(self, instance: Instance, question: Question) -> int:
        """Nonzeros, before anything is contracted."""
        return 8 * instance.n_devices * (instance.n_tasks + len(instance.edges))

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The model for the question's kind of contiguity; columns ``x``/``y``, ``in``, ``out``, ``load``."""
        rules = asked(instance, question)
        pipeline = pipeline_of(instance, rules["contiguous"])
        if rules["contiguous"] == "ideals":
            return _chain_model(pipeline, rules["passes"])
        return _placement_model(instance, pipeline, rules["passes"], rules["contiguous"] == "device")

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Device, or position with its type, of each class."""
        if _kind_of(model) == "ideals":
            pipeline = pipeline_of(instance, "ideals")
            position = (np.diff(np.round(x[model.columns("y")]), axis=1) > 0.5).argmax(axis=1)
            kind = x[model.columns("type")].argmax(axis=1)
            return pipeline.solution(device_of_position(pipeline.graph, kind)[position])
        return pipeline_of(instance, _kind_of(model)).solution(x[model.columns("x")].argmax(axis=1))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x or y of a plan; the solver fills in the rest."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        point = np.full(model.n_columns, np.nan)
        if _kind_of(model) == "ideals":
            pipeline = pipeline_of(instance, "ideals")
            order = chain_order(pipeline.graph, pipeline.classes(solution))
            if order is None:
                return None
            position = np.argsort(order)[pipeline.classes(solution)]
            point[model.columns("y")] = np.arange(len(order) + 1) > position[:, None]
            kinds = np.repeat(np.arange(pipeline.graph.types), pipeline.graph.count)[order]
            point[model.columns("type")] = kinds[:, None] == np.arange(pipeline.graph.types)
            return point
        classes = pipeline_of(instance, _kind_of(model)).classes(solution)
        point[model.columns("x")] = classes[:, None] == np.arange(instance.n_devices)
        return point


class LP(LinearFormulation):
    """LP relaxation of (1)-(5): valid for every kind of contiguity."""

    name = "lp"
    title = "LP relaxation of (1)-(5), bound replayed without a solver"
    kind = "relaxation"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """The plain rules only."""
        return plain_rules(instance, question)

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The placement model without contiguity and integrality."""
        rules = asked(instance, question)
        return _placement_model(instance, pipeline_of(instance, "none"), rules["passes"], convex=False).relax()


def _placement_model(instance: Instance, pipeline: Pipeline, variant: str, convex: bool) -> LinearModel:
    graph, unit = _in_units(pipeline.graph)
    n, d, h = graph.n, len(pipeline.device), len(graph.net_weight)
    kind = pipeline.kind[pipeline.device]
    names = [instance.device_names[i] for i in pipeline.device]
    can = np.isfinite(graph.time[:, kind])
    model = LinearModel("maxload")
    x = model.binary("x", (n, d), upper=can, labels=(range(n), names))
    into = model.continuous("in", (h, d), upper=1.0, labels=(range(h), names))
    out = model.continuous("out", (h, d), upper=1.0, labels=(range(h), names))
    v, i = np.nonzero(can)
    model.rows("assign", n, [(v, x[v, i], 1.0)], lower=1, upper=1)  # (1)
    net, consumer = _consumers(graph)
    row = np.arange(len(net) * d).reshape(len(net), d)
    here, there = x[graph.net_source[net]], x[consumer]
    model.rows("receive", (len(net), d), [(row, into[net], 1.0), (row, there, -1.0), (row, here, 1.0)], lower=0)  # (2)
    model.rows("send", (len(net), d), [(row, out[net], 1.0), (row, here, -1.0), (row, there, 1.0)], lower=0)  # (3)
    tops = []
    for part in _passes(graph, variant):
        top = model.continuous(part.name, upper=_ceiling(graph))
        tops.append(top)
        k, j = np.meshgrid(part.nets, np.arange(d), indexing="ij")
        terms: Terms = [
            (i, x[v, i], part.time[v, kind[i]]),
            (j, into[k, j], graph.net_weight[k] * graph.rate_in[kind[j]]),
            (j, out[k, j], graph.net_weight[k] * graph.rate_out[kind[j]]),
            (np.arange(d), top, -1.0),
        ]
        model.rows(f"{part.name}_of", d, terms, upper=0, labels=(names,))  # (4)
    limited = np.flatnonzero(np.isfinite(graph.memory[kind]) & (graph.size.sum() > graph.memory[kind]))
    if limited.size:
        line, cell = np.meshgrid(np.arange(limited.size), np.arange(n), indexing="ij")
        model.rows(
            "memory",
            limited.size,
            [(line, x[cell, limited[line]], graph.size[cell])],
            upper=graph.memory[kind[limited]],
            labels=([names[k] for k in limited],),
        )  # (5)
    if convex:
        tasks, (u, w) = instance.n_tasks, forward_edges(instance)
        z = model.binary("z", (tasks, d), labels=(instance.labels, names))
        mine = x[graph.member]
        row = np.arange(tasks * d).reshape(tasks, d)
        model.rows("holds", (tasks, d), [(row, z, 1.0), (row, mine, -1.0)], lower=0)
        row = np.arange(len(u) * d).reshape(len(u), d)
        model.rows("ancestor", (len(u), d), [(row, z[u], 1.0), (row, z[w], -1.0)], lower=0)
        terms = [(row, z[w], 1.0), (row, mine[w], -1.0), (row, mine[u], 1.0)]
        model.rows("convex", (len(u), d), terms, upper=1)  # (8)
    model.minimize(np.array(tops), unit)
    return model


def _chain_model(pipeline: Pipeline, variant: str) -> LinearModel:
    graph, unit = _in_units(pipeline.graph)
    n, d, h, types = graph.n, len(pipeline.device), len(graph.net_weight), graph.types
    model = LinearModel("maxload-chain")
    ends = np.zeros((n, d + 1))
    lower, upper = ends.copy(), ends + 1.0
    lower[:, d], upper[:, 0] = 1.0, 0.0
    y = model.integer("y", (n, d + 1), lower=lower, upper=upper)
    q = model.binary("type", (d, types))
    into = model.continuous("in", (h, d), upper=1.0)
    out = model.continuous("out", (h, d), upper=1.0)

    def at(row: Any, classes: Any, position: Any, value: Any) -> Terms:
        """Terms of value * x_vj = value * (y_vj - y_v,j-1)."""
        return [
            (row, y[classes, np.asarray(position) + 1], value),
            (row, y[classes, position], -np.asarray(value, np.float64)),
        ]

    v, j = np.meshgrid(np.arange(n), np.arange(d), indexing="ij")
    model.rows("monotone", (n, d), at(v * d + j, v, j, 1.0), lower=0)
    u, w = precedence(graph)
    inner = np.arange(1, d)
    row = np.arange(len(u) * len(inner)).reshape(len(u), len(inner))
    model.rows("order", (len(u), len(inner)), [(row, y[u][:, inner], 1.0), (row, y[w][:, inner], -1.0)], lower=0)  # (6)
    p, t = np.meshgrid(np.arange(d), np.arange(types), indexing="ij")
    model.rows("one_type", d, [(p, q[p, t], 1.0)], lower=1, upper=1)
    model.rows("devices", types, [(t, q[p, t], 1.0)], lower=graph.count, upper=graph.count)
    net, consumer = _consumers(graph)
    k, j = np.meshgrid(np.arange(len(net)), np.arange(d), indexing="ij")
    row, source, target = k * d + j, graph.net_source[net][k], consumer[k]
    model.rows(
        "receive",
        (len(net), d),
        [(row, into[net[k], j], 1.0), *at(row, source, j, 1.0), *at(row, target, j, -1.0)],
        lower=0,
    )
    model.rows(
        "send",
        (len(net), d),
        [(row, out[net[k], j], 1.0), *at(row, source, j, -1.0), *at(row, target, j, 1.0)],
        lower=0,
    )
    big, tops = _ceiling(graph), []
    for part in _passes(graph, variant):
        top = model.continuous(part.name, upper=big)
        tops.append(top)
        seconds = np.where(np.isfinite(part.time), part.time, 0.0)
        vl, jl, tl = np.meshgrid(np.arange(n), np.arange(d), np.arange(types), indexing="ij")
        kn, jn, tn = np.meshgrid(part.nets, np.arange(d), np.arange(types), indexing="ij")
        terms = [
            *at(jl * types + tl, vl, jl, seconds[vl, tl]),
            (jn * types + tn, into[kn, jn], graph.net_weight[kn] * graph.rate_in[tn]),
            (jn * types + tn, out[kn, jn], graph.net_weight[kn] * graph.rate_out[tn]),
            (np.arange(d * types).reshape(d, types), q, big),
            (np.arange(d * types), top, -1.0),
        ]
        model.rows(f"{part.name}_of", (d, types), terms, upper=big)  # (4), (7)
    for kind in range(types):
        never = np.flatnonzero(~np.isfinite(graph.time[:, kind]))
        if never.size:
            v, j = np.meshgrid(never, np.arange(d), indexing="ij")
            row = np.arange(never.size * d).reshape(never.size, d)
            model.rows(f"cannot_{kind}", (never.size, d), [*at(row, v, j, 1.0), (row, q[j, kind], 1.0)], upper=1)
        total = float(graph.size.sum())
        if total > graph.memory[kind]:
            v, j = np.meshgrid(np.arange(n), np.arange(d), indexing="ij")
            terms = [*at(j, v, j, graph.size[v]), (np.arange(d), q[:, kind], total - graph.memory[kind])]
            model.rows(f"memory_{kind}", d, terms, upper=total)  # (5), (7)
    model.minimize(np.array(tops), unit)
    return model


@dataclass(frozen=True)
class _Pass:
    """What one load row adds up: times (n, t) and the nets it pays for."""

    name: str
    time: Floats
    nets: Ints


def _passes(graph: StageGraph, variant: str) -> list[_Pass]:
    nets = np.arange(len(graph.net_weight))
    if variant == "sum":
        return [_Pass("load", graph.time, nets)]
    if graph.backward_time is None or graph.net_backward is None:
        return [_Pass("forward", graph.time, nets)]
    with np.errstate(invalid="ignore"):
        forward = np.where(np.isfinite(graph.time), graph.time - graph.backward_time, np.inf)
    return [
        _Pass("forward", forward, nets[~graph.net_backward]),
        _Pass("backward", graph.backward_time, nets[graph.net_backward]),
    ]


def _consumers(graph: StageGraph) -> tuple[Ints, Ints]:
    """(net, consumer) pairs: the pins other than the source."""
    net = np.repeat(np.arange(len(graph.net_weight)), np.diff(graph.net_ptr))
    kept = graph.net_pin != graph.net_source[net]
    return net[kept], graph.net_pin[kept]


def _kind_of(model: LinearModel) -> str:
    """Which contiguity a model states, told by its column blocks."""
    names = {block.name for block in model.column_blocks}
    return "ideals" if "y" in names else "device" if "z" in names else "none"


def _ceiling(graph: StageGraph) -> float:
    """No device can be loaded more."""
    finite = np.where(np.isfinite(graph.time), graph.time, 0.0)
    rate = float((graph.rate_in + graph.rate_out).max(initial=0.0))
    return float(finite.max(axis=1, initial=0.0).sum() + rate * graph.net_weight.sum())


def _in_units(graph: StageGraph) -> tuple[StageGraph, float]:
    """The graph with loads in units that suit a solver's tolerances, and the seconds of one unit (a power of two)."""
    unit = time_unit(_ceiling(graph))
    if unit == 1.0:
        return graph, unit
    backward = None if graph.backward_time is None else graph.backward_time / unit
    arrive, leave = graph.rate_in / unit, graph.rate_out / unit
    return replace(graph, time=graph.time / unit, backward_time=backward, rate_in=arrive, rate_out=leave), unit
