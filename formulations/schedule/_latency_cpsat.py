"""CP-SAT models of a task graph's makespan: an optional interval for each task and device, and identical devices as a pool.

Times are whole numbers or are rounded down to a unit of 2^-29 of the horizon, so the model's optimum is a bound; the order
found is decoded in the original numbers.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import in_mebibytes
from formulations.schedule._graphs import graph, horizon, plan_of, schedule_of
from formulations.schedule._residence import binds, in_room
from formulations.schedule._residence_cpsat import add_residence, left_shifted, whole_bytes
from hetopt.algorithms.dag_bounds import heads, tails
from hetopt.algorithms.dag_graph import Schedule, TaskGraph
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.assignment import device_sums
from hetopt.verify.residence import memory_over_time, peaks
from hetopt.verify.schedule_bounds import whole_numbers

__all__ = ["CPSAT", "Pool", "interval_model"]

_BITS = 29
_BYTES = 2.0**31
PATIENCE = 10.0  # seconds for the question about missing memory
MOST = 3_000_000  # conditional rows beyond which building alone takes minutes


class CPSAT(ConstraintModel):
    """(1)-(3), (14)-(17), and (19)-(24) for memory over time."""

    name = "cpsat"
    title = "CP-SAT (1)-(3), (14)-(17), memory over time (19)-(24): an optional interval for each task and device"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough rows."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} terms, more than {MOST:,}" if size > MOST else None

    def size(self, instance: Instance, question: Question) -> int:
        """Terms: those of edges, a row for each device of the source."""
        return instance.n_devices * (instance.n_tasks + instance.n_devices * len(instance.edges))

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals x[task, device] and starts."""
        return self._program(instance, question, control.value if control.plan is not None else None)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any constraint model; where no plan keeps the memory, how much more would do."""
        outcome = super().run(instance, question, control, options)
        if outcome.reason != "infeasible":
            return outcome
        return replace(outcome, infeasible=(*self._missing(instance, question, control), *outcome.infeasible))

    def _missing(self, instance: Instance, question: Question, control: Control) -> tuple[str, ...]:
        """The fewest bytes that each device with a limit would need besides."""
        from hetopt import solvers

        program = self._program(instance, question, None, more=True)
        answer = solvers.get("cpsat").solve(program, solvers.Options(time_limit=PATIENCE, seed=control.seed), control)
        if answer.x is None or answer.bound is None:
            return ()
        machine, moments = self._point(instance, program, answer.x)
        held = device_sums(instance.memory, machine, instance.n_devices)
        if binds(instance, question):
            found = _exact(instance, machine, moments)
            if found is None:
                return ()
            held = peaks(instance, machine, found.start, found.end)
        need, least = float((held - instance.capacity).max()), math.floor(answer.bound)
        proof = (
            "fewer are proved too few" if need <= least else f"{max(0, least):.12g} at least are proved to be needed"
        )
        return (
            f"memory: with {need:.12g} bytes more{in_mebibytes(need)} on each device that has a limit there is a plan; {proof}",
        )

    def _program(self, instance: Instance, question: Question, value: float | None, more: bool = False) -> Any:
        """The model for plans no worse than ``value``; with ``more``, of the fewest bytes that each device needs besides."""
        from hetopt.solvers.cpsat import CpProgram

        g, unit = graph(instance), _unit(instance)
        last = math.floor((horizon(instance) if value is None else value * (1 + 1e-12)) / unit) + 1
        head, tail = heads(g), tails(g)
        able = np.isfinite(head + g.time + tail)
        able &= _down(instance, head + np.where(able, g.time, 0.0) + tail) <= last
        able[~able.any(axis=1)] = np.isfinite(g.time[~able.any(axis=1)])
        length = np.floor(np.where(able, g.time, 0.0) / unit).astype(np.int64)
        early, behind = (_down(instance, np.where(able, side, 0.0)).astype(np.int64) for side in (head, tail))
        model, x, starts, _ = interval_model(g, able, length, early, behind, last, unit)
        n = instance.n_tasks
        over_time = binds(instance, question)
        size, most = _byte(instance)[0], instance.memory.sum()
        if over_time:
            counts = whole_bytes(instance, last)
            size, most = counts.unit, counts.total * counts.unit
        extra = model.new_int_var(0, math.ceil(most / size), "") if more else 0
        self._places(instance, model, x, math.inf if over_time and more else extra)
        ends: list[Any] = []
        if over_time:
            exact = whole_numbers(instance) and unit == 1
            ends = add_residence(model, instance, x, starts, length, last, unit, exact=exact, more=extra)
        if more:
            model.minimize(extra)
        points = [literal for literals in x for literal in literals.values()]
        pairs = np.array([(v, i) for v in range(n) for i in x[v]], np.int64).reshape(-1, 2)
        program = CpProgram(
            model, [*points, *starts, *ends],
            to_bound=lambda bound: math.ceil(bound - 1e-6) * (size if more else unit), name=self.name,
        )  # fmt: skip
        object.__setattr__(program, "pairs", pairs)
        return program

    @staticmethod
    def _places(instance: Instance, model: Any, x: list[dict[int, Any]], more: Any) -> None:
        """(2), (3), each device with ``more`` bytes in units; without (3) when these are infinite."""
        from ortools.sat.python import cp_model

        first: dict[int, int] = {}
        for v, group in enumerate(instance.group.tolist()):
            if group < 0:
                continue
            u = first.setdefault(group, v)
            for i in sorted({*x[u], *x[v]}) if u != v else ():
                model.add(x[u].get(i, 0) == x[v].get(i, 0))
        memory, capacity = instance.memory, instance.capacity
        if not (memory > 0).any() or (isinstance(more, float) and math.isinf(more)):
            return
        scale, small = _byte(instance)
        need = np.floor(memory / scale).astype(np.int64)
        for i in np.flatnonzero(np.isfinite(capacity)).tolist():
            mine = [v for v in range(len(x)) if i in x[v]]
            room = math.floor(capacity[i]) if small else math.ceil(capacity[i] / scale)
            total = cp_model.LinearExpr.weighted_sum([x[v][i] for v in mine], need[mine].tolist())
            model.add(total <= min(room, int(_BYTES)) + more)

    @staticmethod
    def _point(instance: Instance, program: Any, x: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(n,) devices, and the moments of a point."""
        pairs = program.pairs
        chosen = pairs[np.asarray(x)[: len(pairs)] > 0.5]
        machine = np.zeros(instance.n_tasks, np.int64)
        machine[chosen[:, 0]] = chosen[:, 1]
        return machine, np.asarray(x, np.int64)[len(pairs) :]

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Devices of the literals, order by starts, each task as early as possible."""
        machine, moments = self._point(instance, program, x)
        if binds(instance, question):
            found = _in_room(instance, machine, moments)
        else:
            found = schedule_of(instance, machine, moments.astype(np.float64))
        if found is None:
            raise ValueError("the tasks do not fit on the devices that the model gave them")
        return plan_of(found)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Literals of a plan and, where nothing is rounded, its starts."""
        if solution.placement is None or solution.start is None:
            return None
        pairs, start = program.pairs, solution.start / _unit(instance)
        literals = np.asarray(solution.placement[pairs[:, 0]] == pairs[:, 1], np.float64)
        exact = bool((start == np.floor(start)).all()) and whole_numbers(instance)
        ends = np.full(len(program.variables) - len(pairs) - instance.n_tasks, np.nan)
        return np.concatenate([literals, start if exact else np.full(instance.n_tasks, np.nan), ends])


def interval_model(
    g: TaskGraph,
    able: NDArray[np.bool_],
    length: NDArray[np.int64],
    early: NDArray[np.int64],
    behind: NDArray[np.int64],
    last: int,
    unit: float,
) -> tuple[Any, list[dict[int, Any]], list[Any], Any]:
    """The model (1), (14)-(17) in whole units: model, literal by device for each task, starts, makespan (to be minimised).

    Parameters
    ----------
    able, length, early, behind
        (n, d) whether a task may go there, how long it runs, its head and its tail.
    last
        Latest moment; ``unit`` is the seconds of one.
    """
    from ortools.sat.python import cp_model

    n, d = able.shape
    model = cp_model.CpModel()
    makespan = model.new_int_var(0, last, "makespan")
    x: list[dict[int, Any]] = []
    starts: list[Any] = []
    ends: list[Any] = []
    intervals: list[list[Any]] = [[] for _ in range(d)]
    for v in range(n):
        where = np.flatnonzero(able[v]).tolist()
        soon, rest = int(early[v, where].min()), int(behind[v, where].min())
        start = model.new_int_var(min(soon, last), last, "")
        literals = {i: model.new_bool_var("") for i in where}
        model.add_exactly_one(literals.values())  # (1)
        end = start + cp_model.LinearExpr.weighted_sum(list(literals.values()), length[v, where].tolist())
        model.add(makespan >= end + rest)  # (14)
        for i, literal in literals.items():
            if early[v, i] > soon:
                model.add(start >= int(early[v, i])).only_enforce_if(literal)
            if behind[v, i] > rest:
                model.add(makespan >= start + int(length[v, i] + behind[v, i])).only_enforce_if(literal)
            if length[v, i] > 0:
                span = model.new_optional_fixed_size_interval_var(start, int(length[v, i]), literal, "")
                intervals[i].append(span)
        x.append(literals)
        starts.append(start)
        ends.append(end)
    for i in range(d):
        model.add_no_overlap(intervals[i])  # (15)
        mine = [v for v in range(n) if i in x[v]]
        load = cp_model.LinearExpr.weighted_sum([x[v][i] for v in mine], length[mine, i].tolist())
        model.add(makespan >= load)  # (16)
    for u in range(n):
        for k in range(g.succ_start[u], g.succ_start[u + 1]):
            v, sent = int(g.succ[k]), float(g.succ_data[k])
            model.add(starts[v] >= ends[u])
            for p, literal in x[u].items():
                wait = [int((g.latency[p, q] + sent * g.slowness[p, q]) / unit) if q != p else 0 for q in x[v]]
                if any(wait):
                    late = cp_model.LinearExpr.weighted_sum(list(x[v].values()), wait)
                    model.add(starts[v] >= ends[u] + late).only_enforce_if(literal)  # (17)
    model.minimize(makespan)
    return model, x, starts, makespan


class Pool(ConstraintModel):
    """(18)."""

    name = "pool"
    title = "CP-SAT (18): identical devices without transfers as one pool"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Devices must be alike."""
        g = graph(instance)
        alike = bool((g.time == g.time[:, :1]).all() and (g.free == g.free[0]).all())
        if not alike or not np.isfinite(g.time).all():
            return "the devices differ"
        if len(instance.edges) and (g.latency.any() or (g.slowness.any() and instance.edge_data.any())):
            return "transfers between devices take time"
        if (instance.group >= 0).any() or (instance.memory.sum() > g.room).any() or binds(instance, question):
            return "groups or memory tell the devices apart"
        return None

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Starts alone."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        g, unit = graph(instance), _unit(instance)
        value = control.value if control.plan is not None else None
        last = math.floor((horizon(instance) if value is None else value * (1 + 1e-12)) / unit) + 1
        head, tail = heads(g)[:, 0], tails(g)[:, 0]
        length = np.floor(g.time[:, 0] / unit).astype(np.int64).tolist()
        early = np.minimum(_down(instance, head), last).astype(np.int64).tolist()
        behind = _down(instance, tail).astype(np.int64).tolist()
        model = cp_model.CpModel()
        makespan = model.new_int_var(0, last, "makespan")
        starts = [model.new_int_var(early[v], last, "") for v in range(len(length))]
        spans = [
            model.new_fixed_size_interval_var(starts[v], length[v], "") for v in range(len(length)) if length[v] > 0
        ]
        model.add_cumulative(spans, [1] * len(spans), instance.n_devices)  # (18)
        for v, start in enumerate(starts):
            model.add(makespan >= start + length[v] + behind[v])
        for u, v in instance.edges.tolist():
            model.add(starts[v] >= starts[u] + length[u])
        model.minimize(makespan)
        return CpProgram(model, starts, to_bound=lambda bound: math.ceil(bound - 1e-6) * unit, name=self.name)

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """By starts, each task on the device that is free first."""
        g, start = graph(instance), np.asarray(x, np.float64)
        place = np.empty(len(start), np.int64)
        place[g.topological] = np.arange(len(start))
        free = [(0.0, i) for i in range(instance.n_devices)]
        machine = np.zeros(len(start), np.int64)
        unit = _unit(instance)
        for v in np.lexsort((place, start)).tolist():
            if g.time[v, 0] > 0:
                _, machine[v] = heapq.heappop(free)
                heapq.heappush(free, (float(start[v] + math.floor(g.time[v, 0] / unit)), int(machine[v])))
        found = schedule_of(instance, machine, start)
        if found is None:
            raise ValueError("the tasks do not fit on the devices")
        return plan_of(found)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Starts of a plan, where nothing is rounded."""
        start = None if solution.start is None else solution.start / _unit(instance)
        exact = start is not None and bool((start == np.floor(start)).all()) and whole_numbers(instance)
        return start if exact else None


def _exact(instance: Instance, machine: NDArray[np.int64], moments: NDArray[np.int64]) -> Schedule | None:
    """The schedule of a point's starts, and of its ends where they were rounded."""
    n = instance.n_tasks
    start = moments[:n]
    if len(moments) > n:
        return left_shifted(instance, machine, start, moments[n:], _unit(instance))
    end = start + graph(instance).time[np.arange(n), machine]
    return Schedule(machine, start.astype(np.float64), end, float(end.max(initial=0.0)))


def _in_room(instance: Instance, machine: NDArray[np.int64], moments: NDArray[np.int64]) -> Schedule | None:
    """The schedule of a point; else one in the order of its starts, where room is kept."""
    found = _exact(instance, machine, moments)
    if found is not None and not memory_over_time(instance, machine, found.start, found.end):
        return found
    start = moments[: instance.n_tasks].astype(np.float64)
    tried = in_room(instance, [Schedule(machine, start, start, math.inf)])
    return tried.schedule if tried is not None and tried.left == 0 else None


def _byte(instance: Instance) -> tuple[float, bool]:
    """Bytes of a unit of (3), and whether it is one byte and all weights are whole."""
    memory = instance.memory
    total = float(memory.sum())
    small = bool((memory == np.floor(memory)).all()) and total < _BYTES
    return 1.0 if small else float(2.0 ** (math.frexp(total)[1] - 30)), small


def _down(instance: Instance, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds in integer units, rounded down further than sums of decimals can have been rounded up."""
    return np.floor(seconds / _unit(instance) * (1.0 if whole_numbers(instance) else 1.0 - 1e-9))


def _unit(instance: Instance) -> float:
    """Seconds per integer: 1 for whole numbers that stay small, else a power of two."""
    span = horizon(instance)
    if whole_numbers(instance) and span < 2.0**_BITS:
        return 1.0
    return float(2.0 ** (math.frexp(span)[1] - _BITS)) if span > 0 else 1.0
