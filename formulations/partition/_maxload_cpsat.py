"""Max-load partition as a CP-SAT model, placements or a chain of positions; ``maxload``'s docstring has the numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.partition._pipeline import chain_order, device_of_position, forward_edges, pipeline_of, precedence
from formulations.partition._stage_rules import plain_rules
from hetopt.algorithms.stagegraph import StageGraph
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, Question
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["CPSAT"]

MOST_LITERALS = 3_000_000  # half a gigabyte while it is built, some seconds


class CPSAT(ConstraintModel):
    """(1)-(8) in CP-SAT, with loads in integers that round down, so that its bound is a bound."""

    name = "cpsat"
    title = "CP-SAT (1)-(8), loads rounded down for the bound"
    kind = "exact"
    # Of the 60 bits of the integer costs, keep 30. CP-SAT 9.15's presolve multiplies coefficients, overflows beyond, and then
    # calls wrong plans optimal: with 40 bits it did, on a graph of four tasks.
    shift = 30

    def fits(self, instance: Instance, question: Question) -> str | None:
        """The plain rules only, and a model that memory can hold."""
        size = self.size(instance, question)
        too_large = (
            f"it would have up to {size:,} literals, more than {MOST_LITERALS:,}" if size > MOST_LITERALS else None
        )
        return plain_rules(instance, question) or too_large

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
            where = device_of_position(pipeline.graph, kind)[where]
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
    for u, v in zip(*(side.tolist() for side in precedence(graph)), strict=True):
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
