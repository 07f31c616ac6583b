"""CP-SAT constraints of memory over time, (19)-(24) of :mod:`formulations.schedule.latency`, and schedules of their points.

With times rounded down to a unit, moments are those of a real schedule rounded down: a task's end is a variable of its own, up
to one unit behind its start and its length, so that every real schedule stays a point. Bytes are divided by what divides them
all; where they are still too many, results and weights are rounded down and room up. So the optimum is a bound all the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.schedule._graphs import graph
from formulations.schedule._residence import results
from hetopt.algorithms.dag_graph import Schedule, TaskGraph
from hetopt.instance import Instance

__all__ = ["add_residence", "left_shifted", "whole_bytes"]

_PRODUCT = 54  # bits of bytes times moments
_BYTES = 30


class _Bytes(NamedTuple):
    """Whole numbers of ``unit`` bytes: (n,) weights, (n,) results, (e,) copies by edge, (d,) room."""

    weights: list[int]
    results: list[int]
    copies: list[int]
    room: list[int]
    unit: float

    @property
    def total(self) -> int:
        """All weights and results together."""
        return sum(self.weights) + sum(self.results)


def add_residence(
    model: Any, instance: Instance, x: list[dict[int, Any]], starts: list[Any], length: NDArray[np.int64], last: int,
    unit: float, *, exact: bool, more: Any = 0,
) -> list[Any]:  # fmt: skip
    """Add (19)-(24); the ends that are variables of their own, none when ``exact``.

    Parameters
    ----------
    length
        (n, d) whole units; ``last`` the latest moment, ``unit`` the seconds of one.
    exact
        Whether nothing was rounded, so that an end is its start and its length.
    more
        What each device has besides its room, in the bytes of :func:`whole_bytes`.
    """
    from ortools.sat.python import cp_model

    g, n = graph(instance), instance.n_tasks
    amount = whole_bytes(instance, last)
    limited = [p for p in range(instance.n_devices) if math.isfinite(instance.capacity[p])]
    ends: list[Any] = []
    own: list[Any] = []
    for v in range(n):
        runs = cp_model.LinearExpr.weighted_sum(list(x[v].values()), length[v, list(x[v])].tolist())
        end = model.new_int_var(0, last, "")
        if exact:
            model.add(end == starts[v] + runs)
        else:
            model.add_linear_constraint(end - starts[v] - runs, 0, 1)  # (19)
            own.append(end)
        ends.append(end)
    held: dict[int, list[Any]] = {p: [] for p in limited}
    sizes: dict[int, list[int]] = {p: [] for p in limited}
    for u in range(n):
        reads = [(int(g.succ[k]), k) for k in range(g.succ_start[u], g.succ_start[u + 1])]
        if amount.results[u] > 0:
            until, size = model.new_int_var(0, last, ""), model.new_int_var(0, last, "")
            model.add(until == starts[u] + size)
            model.add(until >= ends[u])  # (20)
            for v, k in reads:
                _readers_and_transfers(model, g, x, (u, v, k), until, ends, unit)
            for p in limited:
                if p in x[u]:
                    held[p].append(model.new_optional_interval_var(starts[u], size, until, x[u][p], ""))
                    sizes[p].append(amount.results[u])
        for q in limited:
            _copies(model, x, u, q, [(v, amount.copies[k]) for v, k in reads], ends, last, held[q], sizes[q])
    for p in limited:
        mine = [v for v in range(n) if p in x[v]]
        room = model.new_int_var(0, amount.room[p] + (0 if isinstance(more, int) else amount.total), "")
        weights = cp_model.LinearExpr.weighted_sum([x[v][p] for v in mine], [amount.weights[v] for v in mine])
        model.add(room == amount.room[p] + more - weights)
        model.add_cumulative(held[p], sizes[p], room)  # (24)
    return own


def _readers_and_transfers(
    model: Any,
    g: TaskGraph,
    x: list[dict[int, Any]],
    edge: tuple[int, int, int],
    until: Any,
    ends: list[Any],
    unit: float,
) -> None:
    """(21): a result stays until its readers there have ended and its transfers have arrived."""
    from ortools.sat.python import cp_model

    u, v, k = edge
    sent = float(g.succ_data[k])
    for p, here in x[u].items():
        if p in x[v]:
            model.add(until >= ends[v]).only_enforce_if([here, x[v][p]])
        wait = [int((g.latency[p, q] + sent * g.slowness[p, q]) / unit) if q != p else 0 for q in x[v]]
        if any(wait):
            late = cp_model.LinearExpr.weighted_sum(list(x[v].values()), wait)
            model.add(until >= ends[u] + late).only_enforce_if(here)


def _copies(
    model: Any, x: list[dict[int, Any]], u: int, q: int, reads: list[tuple[int, int]], ends: list[Any], last: int,
    held: list[Any], sizes: list[int],
) -> None:  # fmt: skip
    """(22), (23): copies of the result of u on q, one layer for each size that readers there may ask for."""
    there = [(v, size) for v, size in reads if q in x[v] and size > 0]
    if not there or (len(x[u]) == 1 and q in x[u]):
        return
    until, lasts = model.new_int_var(0, last, ""), model.new_int_var(0, last, "")
    model.add(until == ends[u] + lasts)
    for v, _ in there:
        model.add(until >= ends[v]).only_enforce_if(x[v][q])  # (22)
    below = 0
    for step in sorted({size for _, size in there}):
        copied = model.new_bool_var("")
        for v, size in there:
            if size >= step:
                home = [x[u][q]] if q in x[u] else []
                model.add_bool_or([~x[v][q], *home, copied])  # (23)
        held.append(model.new_optional_interval_var(ends[u], lasts, until, copied, ""))
        sizes.append(step - below)
        below = step


def whole_bytes(instance: Instance, last: int) -> _Bytes:
    """Weights, results and copies as whole numbers that CP-SAT takes; more room than all together need is no more room."""
    weights, made, copied = instance.memory, results(instance), graph(instance).succ_data
    total = float(weights.sum() + made.sum())
    room = np.minimum(instance.capacity, total)
    most = min(_BYTES, _PRODUCT - max(1, last).bit_length())
    values = np.unique(np.concatenate([weights, made, copied]))
    common = math.gcd(*map(int, values.tolist())) if bool((values == np.floor(values)).all()) else 0
    exact = common > 0 and total / common < 2.0**most
    unit = float(common) if exact else float(2.0 ** (math.frexp(total)[1] - most))
    rounded = np.floor(room / unit) if exact else np.ceil(room / unit)
    sides = (np.floor(weights / unit), np.floor(made / unit), np.floor(copied / unit), rounded)
    own, own_results, copies, rooms = (side.astype(np.int64).tolist() for side in sides)
    return _Bytes(own, own_results, copies, rooms, unit)


def left_shifted(
    instance: Instance, machine: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], unit: float
) -> Schedule | None:
    """The least starts, in the original numbers, that keep which results and copies of a rounded point lie one after the other.

    None where no starts do, which rounding may bring about. What keeps the order keeps the room: blocks that overlap two by two
    all overlap at one moment, and they did so in the point.
    """
    g, n = graph(instance), instance.n_tasks
    length = g.time[np.arange(n), machine]
    rows: list[tuple[int, int, float]] = []  # s_j >= s_i + w
    # Of each block: device, moments of the point, task and offset of its beginning, tasks and offsets of what it waits for.
    blocks: dict[int, list[tuple[int, int, int, float, list[tuple[int, float]]]]] = {}
    for u in range(n):
        p = int(machine[u])
        stays: list[tuple[int, float]] = [(u, float(length[u]))]
        gone = int(end[u])
        copies: dict[int, list[int]] = {}
        for k in range(g.succ_start[u], g.succ_start[u + 1]):
            v = int(g.succ[k])
            q = int(machine[v])
            sent = 0.0
            if p == q:
                stays.append((v, float(length[v])))
                gone = max(gone, int(end[v]))
            else:
                sent = float(g.latency[p, q] + g.succ_data[k] * g.slowness[p, q])
                stays.append((u, float(length[u] + sent)))
                gone = max(gone, int(end[u]) + int(sent / unit))
                copies.setdefault(q, []).append(v)
            rows.append((u, v, float(length[u] + sent)))
        blocks.setdefault(p, []).append((int(start[u]), gone, u, 0.0, stays))
        for q, readers in copies.items():
            block = (
                int(end[u]),
                max(int(end[v]) for v in readers),
                u,
                float(length[u]),
                [(v, float(length[v])) for v in readers],
            )
            blocks.setdefault(q, []).append(block)
    for p in np.flatnonzero(np.isfinite(instance.capacity)).tolist():
        for _, gone, _, _, stays in blocks.get(p, []):
            for begin, _, j, offset, _ in blocks[p]:
                if gone <= begin:
                    rows += [(i, j, lasts - offset) for i, lasts in stays]
    order = np.lexsort((end, start, machine))
    order = order[length[order] > 0]
    rows += [
        (i, j, float(length[i]))
        for i, j in zip(order[:-1].tolist(), order[1:].tolist(), strict=True)
        if machine[i] == machine[j]
    ]
    first = _least(np.maximum(g.release, g.free[machine]), rows)
    return None if first is None else Schedule(machine, first, first + length, float((first + length).max(initial=0.0)))


def _least(floor: NDArray[np.float64], rows: list[tuple[int, int, float]]) -> NDArray[np.float64] | None:
    """Least s >= floor with s_j >= s_i + w for each row, by rounds over all rows; None when they go round in a circle."""
    s = floor.astype(np.float64)
    if not rows:
        return s
    i, j = np.array([row[:2] for row in rows]).T
    w = np.array([row[2] for row in rows])
    for _ in range(len(s) + 1):
        late = s.copy()
        np.maximum.at(late, j, s[i] + w)
        if (late <= s + 1e-12 * np.abs(late)).all():
            return s
        s = late
    return None
