"""Max-load partition as a MILP and as a CP-SAT model; the docstring of ``maxload`` has the mathematics and the numbers.

Both work on the stage graph. Without a chain of ideals a class is placed on a device (x). With one it is placed at a position
of the chain, in the form y_vj = 1 when v is at position j or before, so that x_vj = y_vj - y_v,j-1 and precedence is a
comparison of two binaries; a position then has a device type. That form knows no symmetry between equal devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.partition._pipeline import Pipeline, pipeline_of
from formulations.partition._stage_rules import rules_asked
from hetopt.algorithms.stagegraph import StageGraph
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, LinearFormulation, Option, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution

__all__ = ["CPSAT", "LP", "MILP", "OPTIONS", "asked", "chain_order", "forward_edges", "plain_rules"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Terms = list[tuple[Any, Any, Any]]

OPTIONS = (
    Option(
        "transfers",
        ("host", "direct"),
        "host",
        "outputs pass through host memory, once out and once in a device; or go from device to device over their links",
    ),
    Option(
        "in_flight",
        ("none", "1f1b"),
        "none",
        "the k-th stage from the end holds its tasks' `activation` k times, as one-forward-one-backward training does",
    ),
    Option("overlap", bool, False, "transfers run beside compute: a load is the larger of the two"),
    Option(
        "contiguous",
        ("ideals", "device", "none"),
        "ideals",
        "stages as a chain of ideals, convex per device, or any sets of tasks",
        aliases={"true": "ideals", "false": "none"},
    ),
    Option("passes", ("sum", "max"), "sum", "forward and backward load together, or the largest of each added up"),
    Option(
        "replicas", int, 1, "largest number of equal devices that share a stage, each taking its turn of the inputs"
    ),
    Option("batch", int, 1, "inputs between two sums of the gradients of a shared stage, in training"),
)


def plain_rules(instance: Instance, question: Question) -> str | None:
    """Why a method of the plain rules cannot answer: rules it does not know; None when there are none."""
    rules = rules_asked(instance, question)
    return f"it does not know {', '.join(rules)}" if rules else None


def asked(instance: Instance, question: Question | None) -> Mapping[str, Any]:
    """The options in force: the question's, else the instance's own."""
    own = instance.question
    return question or {option.name: option.check(own.get(option.name, option.default)) for option in OPTIONS}


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


def _edges(graph: StageGraph) -> tuple[Ints, Ints]:
    """(u, v) precedence pairs."""
    return graph.pred, np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))


def forward_edges(instance: Instance) -> tuple[Ints, Ints]:
    """(u, v) edges between forward tasks."""
    u, v = instance.edges.T
    forward = ~instance.backward[u] & ~instance.backward[v]
    return u[forward], v[forward]


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
            return pipeline.solution(_device_of_position(pipeline.graph, kind)[position])
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
    u, w = _edges(graph)
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


class CPSAT(ConstraintModel):
    """(1)-(8) in CP-SAT, with loads in integers that round down, so that its bound is a bound."""

    name = "cpsat"
    title = "CP-SAT (1)-(8), loads rounded down for the bound"
    kind = "exact"
    # Of the 60 bits of the integer costs, keep 30. CP-SAT 9.15's presolve multiplies coefficients, overflows beyond, and then
    # calls wrong plans optimal: with 40 bits it did, on a graph of four tasks.
    shift = 30

    def fits(self, instance: Instance, question: Question) -> str | None:
        """The plain rules only."""
        return plain_rules(instance, question)

    def size(self, instance: Instance, question: Question) -> int:
        """Literals in constraints, before anything is contracted."""
        return 8 * instance.n_devices * (instance.n_tasks + len(instance.edges))

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Placement x, or chain y with types, and one integer load a pass."""
        from ortools.sat.python import cp_model

        from hetopt.algorithms.stagecosts import integer_costs, integer_sizes
        from hetopt.solvers.cpsat import CpProgram

        ideals = question["contiguous"] == "ideals"
        pipeline = pipeline_of(instance, question["contiguous"])
        graph = pipeline.graph
        apart = question["passes"] == "max" and graph.backward_time is not None
        costs, unit = integer_costs(graph, apart)
        unit *= 2.0**self.shift
        time, arrive, leave = (array >> self.shift for array in (costs.time, costs.arrive, costs.leave))
        sizes, room, _ = integer_sizes(graph, False)
        n, d, kind = graph.n, len(pipeline.device), pipeline.kind[pipeline.device]
        h = len(costs.net_source)
        model = cp_model.CpModel()
        place = [[model.new_bool_var("") for _ in range(d)] for _ in range(n)]
        into = [[model.new_bool_var("") for _ in range(d)] for _ in range(h)]
        out = [[model.new_bool_var("") for _ in range(d)] for _ in range(h)]
        types = [[model.new_bool_var("") for _ in range(graph.types)] for _ in range(d)] if ideals else []
        for v in range(n):
            model.add_exactly_one(place[v])  # (1)
        for net in range(h):
            source = int(costs.net_source[net])
            pins = costs.net_pin[costs.net_ptr[net] : costs.net_ptr[net + 1]].tolist()
            for v in (v for v in pins if v != source):
                for i in range(d):
                    model.add_bool_or([into[net][i], place[source][i], ~place[v][i]])  # (2)
                    model.add_bool_or([out[net][i], ~place[source][i], place[v][i]])  # (3)
        if ideals:
            _chain(model, graph, place, types)
        elif question["contiguous"] == "device":
            _convex(model, instance, graph, place)
        finite = np.where(np.isfinite(graph.time).T[:, None, :], time, 0)
        ceiling = int(finite.sum(axis=1).max(axis=0, initial=0).sum() + (arrive + leave).max(axis=0, initial=0).sum())
        if control.value is not None:
            ceiling = min(ceiling, math.floor(control.value / unit) + 1)
        loads = []
        for part in range(2 if apart else 1):
            load = model.new_int_var(0, ceiling, "")
            loads.append(load)
            nets = np.flatnonzero(costs.net_pass == part).tolist() if apart else range(h)
            for i in range(d):
                for t in range(graph.types) if ideals else [int(kind[i])]:
                    terms = [place[v][i] for v in range(n)] + [into[k][i] for k in nets] + [out[k][i] for k in nets]
                    seconds = np.where(np.isfinite(graph.time[:, t]), time[t, part], 0).tolist()
                    weights = seconds + arrive[t, list(nets)].tolist() + leave[t, list(nets)].tolist()
                    row = model.add(cp_model.LinearExpr.weighted_sum(terms, weights) <= load)  # (4)
                    if ideals:
                        row.only_enforce_if(types[i][t])  # (7)
        for i in range(d):
            for t in range(graph.types) if ideals else [int(kind[i])]:
                for v in np.flatnonzero(~np.isfinite(graph.time[:, t])).tolist():
                    model.add_bool_or([~place[v][i], ~types[i][t]] if ideals else [~place[v][i]])
                if np.isfinite(graph.memory[t]) and graph.size.sum() > graph.memory[t]:
                    column = [place[v][i] for v in range(n)]
                    row = model.add(cp_model.LinearExpr.weighted_sum(column, sizes[:n].tolist()) <= int(room[t]))  # (5)
                    if ideals:
                        row.only_enforce_if(types[i][t])
        model.minimize(sum(loads))
        points = [x for line in place for x in line] + [q for line in types for q in line]
        return CpProgram(model, points, to_bound=lambda bound: math.ceil(bound - 1e-6) * unit, name="maxload")

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Device, or position with its type, of each class."""
        pipeline = pipeline_of(instance, question["contiguous"])
        n, d = pipeline.graph.n, len(pipeline.device)
        where = np.asarray(x)[: n * d].reshape(n, d).argmax(axis=1)
        if question["contiguous"] == "ideals":
            kind = np.asarray(x)[n * d :].reshape(d, pipeline.graph.types).argmax(axis=1)
            where = _device_of_position(pipeline.graph, kind)[where]
        return pipeline.solution(where)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Placement, or positions and their types, of a plan."""
        if solution.placement is None or (solution.placement < 0).any():
            return None
        pipeline = pipeline_of(instance, question["contiguous"])
        classes, d = pipeline.classes(solution), len(pipeline.device)
        if question["contiguous"] != "ideals":
            return np.asarray(classes[:, None] == np.arange(d), np.float64).ravel()
        order = chain_order(pipeline.graph, classes)
        if order is None:
            return None
        position = np.argsort(order)[classes]
        kinds = np.repeat(np.arange(pipeline.graph.types), pipeline.graph.count)[order]
        parts = (position[:, None] == np.arange(d), kinds[:, None] == np.arange(pipeline.graph.types))
        point: NDArray[np.float64] = np.concatenate([part.ravel() for part in parts]).astype(np.float64)
        return point


def _chain(model: Any, graph: StageGraph, place: list[list[Any]], types: list[list[Any]]) -> None:
    """(6) by prefixes, and a type for each position."""
    d = len(types)
    for line in types:
        model.add_exactly_one(line)
    for t, count in enumerate(graph.count.tolist()):
        model.add(sum(types[j][t] for j in range(d)) == count)
    before = [[model.new_bool_var("") for _ in range(d - 1)] for _ in range(graph.n)]
    for line, chosen in zip(before, place, strict=True):
        for j in range(d - 1):
            model.add(line[j] == (line[j - 1] if j else 0) + chosen[j])
    for u, v in zip(*(side.tolist() for side in _edges(graph)), strict=True):
        for j in range(d - 1):
            model.add_implication(before[v][j], before[u][j])


def _convex(model: Any, instance: Instance, graph: StageGraph, place: list[list[Any]]) -> None:
    """(8)."""
    d = len(place[0])
    mine = [place[v] for v in graph.member.tolist()]
    above = [[model.new_bool_var("") for _ in range(d)] for _ in mine]
    for line, chosen in zip(above, mine, strict=True):
        for a, x in zip(line, chosen, strict=True):
            model.add_implication(x, a)
    for u, v in zip(*(side.tolist() for side in forward_edges(instance)), strict=True):
        for i in range(d):
            model.add_implication(above[v][i], above[u][i])
            model.add_bool_or([~above[v][i], mine[v][i], ~mine[u][i]])


def chain_order(graph: StageGraph, classes: Ints) -> Ints | None:
    """(d,) devices, numbered type by type, in an order that makes a plan a chain of ideals; None when there is none.

    Empty devices come last.
    """
    d = int(graph.count.sum())
    u, v = _edges(graph)
    pairs = np.unique(np.stack([classes[u], classes[v]], axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    waiting = np.bincount(pairs[:, 1], minlength=d)
    used = np.unique(classes).tolist()
    order: list[int] = []
    ready = [i for i in used if not waiting[i]]
    while ready:
        i = ready.pop(0)
        order.append(i)
        for j in pairs[pairs[:, 0] == i, 1].tolist():
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
    if len(order) < len(used):
        return None
    return np.array(order + [i for i in range(d) if i not in set(used)], np.int64)


def _device_of_position(graph: StageGraph, kind: Ints) -> Ints:
    """(d,) device, numbered type by type, of each position: the next free one of the position's type."""
    start = np.concatenate([[0], np.cumsum(graph.count)[:-1]])
    rank = np.zeros(len(kind), np.int64)
    for t in range(graph.types):
        rank[kind == t] = np.arange(np.count_nonzero(kind == t))
    return np.asarray(start[kind] + rank, np.int64)
