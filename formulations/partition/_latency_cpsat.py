"""Inference latency as a CP-SAT model; the docstring of ``latency`` has the mathematics and the numbers.

Seconds become multiples of a power of two, rounded down, such that all of them together stay below 2^31: CP-SAT's presolve
multiplies coefficients. Rounding down makes its bound a bound. Equal accelerators are told apart by the start of their first
subgraph, earliest first; a plan given as a hint is renumbered in that order, or it would contradict the model.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import jobs_of
from formulations.partition._latency_plans import alike, evaluate, numbers_of, with_numbers
from formulations.partition._pipeline import rates
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, Question
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["CPSAT"]

MOST_LITERALS = 3_000_000  # a gigabyte while it is built, some seconds
_BITS = 31


class CPSAT(ConstraintModel):
    """(1)-(9) in CP-SAT."""

    name = "cpsat"
    title = "CP-SAT (1)-(9), any number of subgraphs, seconds rounded down for the bound"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """A model that memory can hold."""
        size = self.size(instance, question)
        return f"it would have up to {size:,} literals, more than {MOST_LITERALS:,}" if size > MOST_LITERALS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Literals in constraints."""
        slots = int(np.count_nonzero(~instance.is_host)) * int(question["subgraphs"])
        return 8 * max(slots, 1) * (instance.n_tasks + len(instance.edges))

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Places y, subgraphs x, transfers in and out, starts and ends; see the module ``latency``."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        jobs, n, most = jobs_of(instance), instance.n_tasks, int(question["subgraphs"])
        member, edges = jobs.member.tolist(), instance.edges.tolist()
        into, out = rates(instance)
        arrive, send = instance.output[:, None] * into, instance.output[:, None] * out
        finite = np.where(instance.eligible, instance.time, 0.0)
        whole = float(finite.max(axis=1, initial=0.0).sum())
        # every task may be brought to, and from, each subgraph
        copies = most * instance.n_devices
        whole += copies * float(arrive.max(axis=1, initial=0.0).sum() + send.max(axis=1, initial=0.0).sum())
        bits = _BITS - math.frexp(whole)[1] if whole > 0 else 0
        seconds, come, go = (np.floor(np.ldexp(a, bits)).astype(np.int64) for a in (finite, arrive, send))
        unit = math.ldexp(1.0, -bits)
        horizon = math.floor(math.ldexp(whole, bits))
        if control.value is not None:
            horizon = min(horizon, math.floor(control.value / unit) + 1)
        model = cp_model.CpModel()

        def literals(k: int) -> list[Any]:
            return [model.new_bool_var("") for _ in range(k)]

        def moments(k: int, last: int) -> list[Any]:
            return [model.new_int_var(0, last, "") for _ in range(k)]

        place = [literals(instance.n_devices) for _ in range(len(jobs.count))]
        for j, line in enumerate(place):
            model.add_exactly_one(line)  # (1)
            for d in np.flatnonzero(~np.isfinite(jobs.time[j])).tolist():
                model.add(line[d] == 0)
        ready, position = moments(n, horizon), moments(n, 2 * n)
        points = [y for line in place for y in line]
        for d in np.flatnonzero(instance.is_host).tolist():
            for v in range(n):
                here = place[member[v]][d]
                model.add(ready[v] >= int(seconds[v, d])).only_enforce_if(here)
            for u, v in edges:
                here = place[member[v]][d]
                model.add(ready[v] >= ready[u] + int(seconds[v, d])).only_enforce_if(here)  # (3)
                model.add(position[v] >= position[u] + 1).only_enforce_if(here)  # (9)
        sizes, room = _sizes(instance)
        first_start: dict[int, Any] = {}
        for d in np.flatnonzero(~instance.is_host).tolist():
            before = None
            parts: list[list[Any]] = []
            for _ in range(most):
                x, read, sent = literals(n), literals(n), literals(n)
                parts.append(x)
                points += x
                start, end, rank = *moments(2, horizon), model.new_int_var(0, 2 * n, "")
                for u, v in edges:
                    model.add_bool_or([read[u], x[u], ~x[v]])  # (4)
                    model.add_bool_or([sent[u], ~x[u], x[v]])  # (5)
                costs = [*seconds[:, d].tolist(), *come[:, d].tolist(), *go[:, d].tolist()]
                model.add(end >= start + cp_model.LinearExpr.weighted_sum([*x, *read, *sent], costs))  # (6)
                for v in range(n):
                    model.add(start >= ready[v]).only_enforce_if(read[v])  # (6)
                    model.add(rank >= position[v] + 1).only_enforce_if(read[v])  # (9)
                    model.add(ready[v] >= end).only_enforce_if(x[v])  # (7)
                    model.add(position[v] == rank).only_enforce_if(x[v])  # (9)
                if before is not None:
                    model.add(start >= before[0])  # (7)
                    model.add(rank >= before[1] + 1)  # (9)
                else:
                    first_start[d] = start
                before = (end, rank)
            for v in range(n):
                model.add(sum(x[v] for x in parts) == place[member[v]][d])  # (2)
            if instance.memory.sum() > instance.capacity[d]:
                column = [place[member[v]][d] for v in range(n)]
                model.add(cp_model.LinearExpr.weighted_sum(column, sizes) <= room[d])  # (8)
        for kind in alike(instance):
            for a, b in itertools.pairwise(kind):
                model.add(first_start[a] <= first_start[b])
        last = model.new_int_var(0, horizon, "")
        model.add_max_equality(last, ready or [last])
        model.minimize(last)
        return CpProgram(model, points, to_bound=lambda bound: math.ceil(bound - 1e-6) * unit, name="latency")

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Device of each job, and subgraph of each task on an accelerator."""
        jobs, n, most = jobs_of(instance), instance.n_tasks, int(question["subgraphs"])
        cells = len(jobs.count) * instance.n_devices
        values = np.asarray(x)
        placement = values[:cells].reshape(-1, instance.n_devices).argmax(axis=1)[jobs.member]
        parts = values[cells:].reshape(-1, most, n)
        accelerators = np.flatnonzero(~instance.is_host).tolist()
        number = np.ones(n, np.int64)
        for k, d in enumerate(accelerators):
            mine = placement == d
            number[mine] = 1 + parts[k][:, mine].argmax(axis=0)
        return with_numbers(instance, question, placement, number)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Places and subgraphs of a plan, renumbered so that equal accelerators begin in the order of their numbers."""
        report = evaluate(instance, question, solution)
        if report.violations or solution.placement is None:
            return None
        begin = np.full(instance.n_devices, math.inf)
        number = numbers_of(instance, question, solution)
        used: dict[int, list[int]] = {}
        for d, k, start, _, _ in report.runs:
            begin[d] = min(begin[d], start)
            used.setdefault(d, []).append(k)
        turn = np.arange(instance.n_devices)
        for kind in alike(instance):
            turn[sorted(kind, key=lambda d: (begin[d], d))] = kind
        jobs, n, most = jobs_of(instance), instance.n_tasks, int(question["subgraphs"])
        placement = turn[solution.placement]
        first = jobs.placement(Solution.assign(placement))
        accelerators = np.flatnonzero(~instance.is_host).tolist()
        parts = np.zeros((len(accelerators), most, n))
        for v in range(n):
            d = int(solution.placement[v])
            if not instance.is_host[d]:
                parts[accelerators.index(int(turn[d])), sorted(used[d]).index(int(number[v])), v] = 1.0
        where = first[:, None] == np.arange(instance.n_devices)
        return np.concatenate([where.ravel().astype(np.float64), parts.ravel()])


def _sizes(instance: Instance) -> tuple[list[int], list[int]]:
    """Bytes of tasks and devices in integers below 2^40 that round down: what does not fit in them does not fit."""
    sizes = [Fraction(s) for s in instance.memory.tolist()]
    total = sum(sizes, Fraction(0))
    unit = Fraction(1)
    if total >= 2**40 or any(s.denominator != 1 for s in sizes):
        unit = Fraction(2) ** (math.frexp(float(total))[1] - 40)
    limits = [total if math.isinf(c) else Fraction(c) for c in instance.capacity.tolist()]
    return [math.floor(s / unit) for s in sizes], [math.floor(c / unit) for c in limits]
