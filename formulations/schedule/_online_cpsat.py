"""CP-SAT model of a stream of jobs: an optional interval for each task and way; the whole stream, or what is known at a moment.

Times are in :mod:`formulations.schedule._units`, weights and prices rounded down where they are not whole, so that the objective
has 52 bits; the model's optimum is a bound.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.schedule._online import decoded, plan_of, stream, ways_of
from formulations.schedule._units import Units, units_of
from hetopt.algorithms.dag_bounds import heads, tails
from hetopt.algorithms.online_dispatch import Stream
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, Question
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["CPSAT", "Part", "part_model", "whole_stream"]

MOST = 400_000  # conditional terms beyond which the model does not get anywhere
_BITS = 52  # of the objective's largest value

Floats = NDArray[np.float64]


class Part(NamedTuple):
    """What a model decides: ``tasks`` (t,), from when each may start on each device (t, m), and the joules left to each job."""

    tasks: NDArray[np.int64]
    early: Floats
    left: Floats


class Model(NamedTuple):
    """A program and what its numbers mean: literal of each way of each task, starts, units of time, weight of a unit."""

    model: Any
    ways: list[dict[int, Any]]
    starts: list[Any]
    units: Units
    weight: float


class CPSAT(ConstraintModel):
    """(1)-(7)."""

    name = "cpsat"
    title = "CP-SAT (1)-(7) of the whole stream, as if all arrivals were known: the yardstick of online plans"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough terms."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} terms, more than {MOST:,}" if size > MOST else None

    def size(self, instance: Instance, question: Question) -> int:
        """Terms of edges, a row for each device of the source."""
        k = len(stream(instance, question).device)
        return k * instance.n_tasks + instance.n_devices * k * len(instance.edges)

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals of ways, then starts."""
        from hetopt.solvers.cpsat import CpProgram

        data = stream(instance, question)
        built = part_model(data, whole_stream(data))
        points = [literal for literals in built.ways for literal in literals.values()]
        arrived = built.weight * sum(
            weight * release
            for weight, release in zip(_weights(data, built.weight), instance.columns.release.tolist(), strict=True)
        )
        total = math.fsum(data.weight.tolist())
        scale, numbers = built.units.seconds * built.weight, 2 * (instance.n_tasks + 1)
        slack = built.units.slack(numbers) * sum(_weights(data, built.weight))
        program = CpProgram(
            built.model,
            [*points, *built.starts],
            to_bound=lambda bound: ((math.ceil(bound - 1e-6) - slack) * scale - arrived) / total,
            name=self.name,
        )
        pairs = [(v, q) for v, literals in enumerate(built.ways) for q in literals]
        object.__setattr__(program, "pairs", np.array(pairs, np.int64).reshape(-1, 2))
        object.__setattr__(program, "units", built.units)
        return program

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Ways of the literals, order by starts, each task as early as possible."""
        data, pairs = stream(instance, question), program.pairs
        chosen = pairs[np.asarray(x)[: len(pairs)] > 0.5]
        way = np.zeros(instance.n_tasks, np.int64)
        way[chosen[:, 0]] = chosen[:, 1]
        start = decoded(data, way, np.asarray(x, np.float64)[len(pairs) :])
        return plan_of(instance, data, way, start)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Literals of a plan and, where nothing is rounded, its starts."""
        data, pairs = stream(instance, question), program.pairs
        way = ways_of(instance, data, solution)
        if way is None or solution.start is None:
            return None
        literals = np.asarray(way[pairs[:, 0]] == pairs[:, 1], np.float64)
        start = program.units.exact(solution.start)
        return np.concatenate([literals, np.full(instance.n_tasks, np.nan) if start is None else start])


def whole_stream(data: Stream) -> Part:
    """All tasks, from their heads on."""
    return Part(np.arange(len(data.job)), heads(data.graph), np.full(len(data.weight), data.most))


def part_model(data: Stream, part: Part) -> Model:
    """The model of a part; edges from tasks outside of it are in ``part.early``."""
    from ortools.sat.python import cp_model

    g, tasks = data.graph, part.tasks.tolist()
    place = {v: k for k, v in enumerate(tasks)}
    behind = tails(g)
    units = _units(data, part, behind)
    unit, down = units.seconds, units.down
    last = math.floor(_horizon(data, part) / unit) + 1
    scale = _weight_unit(data, part, unit, last)
    weights, exact = _weights(data, scale), 1.0 if scale == 1.0 else 1.0 - 1e-12
    model = cp_model.CpModel()
    jobs = sorted({int(data.job[v]) for v in tasks})
    done = {j: model.new_int_var(0, last, "") for j in jobs}
    ways: list[dict[int, Any]] = []
    starts: list[Any] = []
    ends: list[Any] = []
    there: list[dict[int, Any]] = []  # the literal of each device
    spans: list[list[Any]] = [[] for _ in g.free]
    joules: dict[int, list[tuple[Any, float]]] = {j: [] for j in jobs}
    costs: list[tuple[Any, int]] = []
    for k, v in enumerate(tasks):
        j = int(data.job[v])
        may = [
            q for q in np.flatnonzero(np.isfinite(data.time[v])).tolist() if np.isfinite(part.early[k, data.device[q]])
        ]
        soon = {q: down(part.early[k, data.device[q]]) for q in may}
        length = {q: down(data.time[v, q]) for q in may}
        rest = {q: down(behind[v, data.device[q]]) for q in may}
        start = model.new_int_var(min(soon.values()), last, "")
        literals = {q: model.new_bool_var("") for q in may}
        model.add_exactly_one(literals.values())  # (1)
        end = start + cp_model.LinearExpr.weighted_sum(list(literals.values()), list(length.values()))
        for q, literal in literals.items():
            if soon[q] > min(soon.values()):
                model.add(start >= soon[q]).only_enforce_if(literal)  # (2)
            model.add(done[j] >= start + length[q] + rest[q]).only_enforce_if(literal)  # (3)
            if length[q] > 0:
                span = model.new_optional_fixed_size_interval_var(start, length[q], literal, "")
                spans[data.device[q]].append(span)
            if data.energy[v, q] > 0:
                joules[j].append((literal, float(data.energy[v, q])))
                costs.append((literal, math.floor(data.price / unit * data.energy[v, q] / scale * exact)))
        model.add(done[j] >= end + min(rest.values()))  # (3)
        ways.append(literals)
        starts.append(start)
        ends.append(end)
        there.append(_devices(model, data, literals))
    for mine in spans:
        model.add_no_overlap(mine)  # (4)
    for k, u in enumerate(tasks):
        for e in range(g.succ_start[u], g.succ_start[u + 1]):
            v, sent = place.get(int(g.succ[e])), float(g.succ_data[e])
            if v is None:
                continue
            model.add(starts[v] >= ends[k])
            for p, literal in there[k].items():
                wait = [down(g.latency[p, q] + sent * g.slowness[p, q]) if q != p else 0 for q in there[v]]
                if any(wait):
                    late = cp_model.LinearExpr.weighted_sum(list(there[v].values()), wait)
                    model.add(starts[v] >= ends[k] + late).only_enforce_if(literal)  # (5)
    _limit_energy(model, joules, part.left)
    terms = [*((done[j], weights[j]) for j in jobs), *costs]
    model.minimize(cp_model.LinearExpr.weighted_sum([t for t, _ in terms], [c for _, c in terms]))  # (7)
    return Model(model, ways, starts, units, scale)


def _devices(model: Any, data: Stream, literals: dict[int, Any]) -> dict[int, Any]:
    """A literal for each device: of its one way, or of any of them."""
    by_device: dict[int, list[Any]] = {}
    for q, literal in literals.items():
        by_device.setdefault(int(data.device[q]), []).append(literal)
    found = {}
    for p, some in by_device.items():
        found[p] = some[0] if len(some) == 1 else model.new_bool_var("")
        if len(some) > 1:
            model.add(sum(some) == found[p])
    return found


def _limit_energy(model: Any, joules: dict[int, list[tuple[Any, float]]], left: Floats) -> None:
    """(6), joules rounded down to 2^-30 of the most that a job can take, the limit up."""
    from ortools.sat.python import cp_model

    for j, pairs in joules.items():
        total = math.fsum(energy for _, energy in pairs)
        if not total > left[j] >= 0:
            continue
        fine = all(energy == int(energy) for _, energy in pairs) and total < 2.0**30
        scale = 1.0 if fine else float(2.0 ** (math.frexp(total)[1] - 30))
        need = [math.floor(energy / scale) for _, energy in pairs]
        room = math.floor(left[j] + 1e-9) if fine else math.ceil(left[j] / scale)
        model.add(cp_model.LinearExpr.weighted_sum([literal for literal, _ in pairs], need) <= room)  # (6)


def _units(data: Stream, part: Part, behind: Floats) -> Units:
    """Units of what the part's model is made of."""
    g = data.graph
    linked = np.isfinite(g.latency)
    arcs = [k for v in part.tasks.tolist() for k in range(g.pred_start[v], g.pred_start[v + 1])]
    sent = np.unique(g.pred_data[arcs]) if arcs else np.zeros(0)
    transfers = g.latency[linked][None, :] + sent[:, None] * g.slowness[linked][None, :]
    return units_of([data.time[part.tasks], part.early, behind[part.tasks], transfers], _horizon(data, part))


def _horizon(data: Stream, part: Part) -> float:
    """A moment by which some best plan of the part has ended: one task after the other at its slowest, transfers waited for."""
    g = data.graph
    finite = np.isfinite(data.time[part.tasks])
    slowest = np.where(finite, data.time[part.tasks], 0.0).max(axis=1)
    first = float(np.where(np.isfinite(part.early), part.early, 0.0).max(initial=0.0))
    linked = np.isfinite(g.latency)
    longest = float(g.latency[linked].max(initial=0.0)), float(g.slowness[linked].max(initial=0.0))
    inputs = [k for v in part.tasks.tolist() for k in range(g.pred_start[v], g.pred_start[v + 1])]
    moved = math.fsum(longest[0] + float(g.pred_data[k]) * longest[1] for k in inputs)
    return 1.001 * (first + math.fsum(slowest.tolist()) + moved)


def _weight_unit(data: Stream, part: Part, unit: float, last: int) -> float:
    """Weight of an integer: 1 where weights and prices are whole and sums stay small, else a power of two."""
    usable = np.isfinite(data.energy[part.tasks])
    costs = data.price / unit * np.where(usable, data.energy[part.tasks], 0.0)
    largest = float(data.weight.sum()) * last + float(costs.max(axis=1).sum())
    fine = all(bool((values == np.floor(values)).all()) for values in (data.weight, costs))
    return 1.0 if fine and largest < 2.0**_BITS else float(2.0 ** (math.frexp(largest)[1] - _BITS))


def _weights(data: Stream, unit: float) -> list[int]:
    return [math.floor(w / unit) for w in data.weight.tolist()]
