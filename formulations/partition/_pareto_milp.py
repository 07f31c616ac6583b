"""The table of stages and the linear model of :mod:`.pareto`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from formulations.partition._pools import layers_of, plan_of, slots_of, stages_of
from hetopt.errors import InputError
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.pools import TOLERANCE, speedups

if TYPE_CHECKING:
    from hetopt.algorithms.pareto_labels import StageTable

__all__ = ["MILP", "limits_of", "stage_table"]

MOST_COLUMNS = 20_000


def limits_of(question: Mapping[str, Any]) -> tuple[float, float]:
    """Most seconds and most joules, with the tolerance that verify allows; ``inf`` where there is no limit."""
    limits = []
    for key, unit in (("period", "seconds"), ("energy", "joules")):
        value = question[key]
        if value is not None and not 0 <= value < 2.0**1000:
            raise InputError(f"$.question.{key} is {value!r}, expected {unit}, a number >= 0")
        limits.append(math.inf if value is None else value * (1 + float(TOLERANCE)))
    return limits[0], limits[1]


@lru_cache(maxsize=4)
def stage_table(instance: Instance) -> StageTable:
    """(0), times and powers of every stage."""
    from hetopt.algorithms.pareto_labels import StageTable

    layers, slots = layers_of(instance), slots_of(instance)
    t, n, most = instance.n_devices, instance.n_tasks, int(slots.max())
    faster = np.full((t, most), np.nan)
    for pool, row in enumerate(speedups(instance)):
        faster[pool, : len(row)] = row
    sums = layers.sums(np.where(instance.eligible, instance.time, 0.0))
    held = layers.sums(np.repeat(instance.memory[:, None], t, axis=1))
    usable = layers.able & (held <= instance.capacity[:, None, None] * (1 + 1e-15))
    work = sums[:, None] / faster[:, :, None, None]
    work = np.where(usable[:, None] & np.isfinite(faster)[:, :, None, None], work, np.inf)
    data = np.zeros(n + 1)
    sizes = {u: size for (u, _), size in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True)}
    data[1:n] = [sizes[k] for k in layers.sequence[:-1].tolist()]
    receive = np.zeros((t, t, n + 1))
    for a, source in enumerate(instance.device_names):
        for b, target in enumerate(instance.device_names):
            link = instance.link(source, target)
            if link is None:
                receive[a, b] = np.where(data > 0, np.inf, 0.0)
            else:
                receive[a, b] = link.latency + (0.0 if link.bandwidth is None else data / link.bandwidth)
    idle = np.array([device.idle_power or 0 for device in instance.devices], np.float64)
    active = np.array([device.power or 0 for device in instance.devices], np.float64) - idle
    return StageTable(work, receive, active, idle, slots)


class MILP(LinearFormulation):
    """(1)-(6)."""

    name = "milp"
    title = "MILP (1)-(6), one trade at a time"
    kind = "exact"

    def __init__(self, objective: str) -> None:
        self.objective = objective

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough stages."""
        size = self.size(instance, question)
        return f"it would have about {size} columns, more than {MOST_COLUMNS}" if size > MOST_COLUMNS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Columns z and q."""
        return int(np.isfinite(stage_table(instance).work).sum()) * instance.n_devices * 2

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``stage[pool:begin-end:units:before]``, ``share`` (of the period) and ``period``."""
        asked = {key: instance.question.get(key) for key in ("period", "energy")} if question is None else question
        table, n, t = stage_table(instance), instance.n_tasks, instance.n_devices
        most_period, most_energy = limits_of(asked)
        pool, units, begin, end = np.nonzero(np.isfinite(table.work))
        copies = np.where(begin > 0, t, 1)  # a stage behind each pool, but for the first one
        row = np.repeat(np.arange(len(pool)), copies)
        before = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)
        pool, units, begin, end = (values[row] for values in (pool, units, begin, end))
        work = table.work[pool, units, begin, end]
        busy = work + np.where(begin > 0, table.receive[before, pool, begin], 0.0)
        keep = np.isfinite(busy) & (busy <= most_period)
        pool, units, begin, end, before = (values[keep] for values in (pool, units + 1, begin, end, before))
        work, busy = work[keep], busy[keep]
        scale = float(busy.max(initial=0.0)) or 1.0  # periods in units of the largest
        names = instance.device_names
        labels = [
            f"{names[p]}:{i}-{j}:{k}:{names[u] if i else '-'}"
            for p, i, j, k, u in zip(pool, begin, end, units, before, strict=True)
        ]
        model = LinearModel(f"pareto-{self.objective}")
        z = model.binary("stage", len(pool), labels=(labels,))
        q = model.continuous("share", len(pool), upper=1, labels=(labels,))
        period = model.continuous("period", upper=1)
        every, first = np.arange(len(pool)), np.flatnonzero(begin == 0)
        model.rows("start", 1, [(np.zeros(len(first), np.int64), z[first], 1.0)], lower=1, upper=1)  # (1)
        stops, starts = np.flatnonzero(end < n), np.flatnonzero(begin > 0)
        on: list[tuple[Any, Any, Any]] = [
            ((end[stops] - 1) * t + pool[stops], z[stops], 1.0),
            ((begin[starts] - 1) * t + before[starts], z[starts], -1.0),
        ]
        model.rows("on", (n - 1) * t, on, lower=0, upper=0)  # (2)
        model.rows("units", t, [(pool, z, units.astype(np.float64))], upper=slots_of(instance), labels=(names,))  # (3)
        model.rows("slowest", len(pool), [(every, z, busy / scale), (every, period, -1.0)], upper=0)  # (4)
        model.rows("idle", len(pool), [(every, q, 1.0), (every, period, -1.0), (every, z, -1.0)], lower=-1)  # (5)
        active, idle = units * table.active[pool] * work, units * table.idle[pool] * scale
        if np.isfinite(most_energy):  # (6)
            size = max(most_energy, float(active.max(initial=0.0))) or float(idle.max(initial=0.0)) or 1.0
            zero = np.zeros(len(pool), np.int64)
            model.rows("energy", 1, [(zero, z, active / size), (zero, q, idle / size)], upper=most_energy / size)
        if self.objective == "period":
            model.minimize(period, scale)
        else:
            model.minimize(np.concatenate([z, q]), np.concatenate([active, idle]))
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Stages chosen."""
        labels = model.column_blocks[0].labels
        assert labels is not None
        stages = []
        for k in np.flatnonzero(x[model.columns("stage")] > 0.5).tolist():
            name, reach, units, _ = str(labels[0][k]).rsplit(":", 3)
            begin, _, end = reach.partition("-")
            stages.append((instance.device_index[name], int(begin), int(end), int(units)))
        return plan_of(instance, sorted(stages, key=lambda stage: stage[1]))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Stages of a plan; period and shares are left open."""
        stages, labels = stages_of(instance, solution), model.column_blocks[0].labels
        if stages is None or labels is None:
            return None
        names, before, told = instance.device_names, "-", []
        for pool, begin, end, units in stages:
            told.append(f"{names[pool]}:{begin}-{end}:{units}:{before}")
            before = names[pool]
        known = {str(label): k for k, label in enumerate(labels[0])}
        if not set(told) <= set(known):
            return None
        point = np.full(model.n_columns, np.nan)
        columns = model.columns("stage")
        point[columns] = 0.0
        point[columns[[known[name] for name in told]]] = 1.0
        return point
