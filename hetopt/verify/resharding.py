"""Check one way to shard each operator with the cost of resharding between them, and replay bounds from messages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetopt.instance import Instance

__all__ = ["ReshardingReport", "check_resharding", "messages_bound"]

_ROUNDING = 2.0**-40


@dataclass(frozen=True)
class ReshardingReport:
    """Seconds of the operators, of resharding, bytes, complaints."""

    work: float
    resharding: float
    memory: float
    violations: tuple[str, ...]


def check_resharding(instance: Instance, details: Mapping[str, Any]) -> ReshardingReport:
    """Evaluate ``{"modes": {task: mode}}`` with ``tables.resharding``."""
    chosen, wrong = details.get("modes"), []
    if not isinstance(chosen, Mapping):
        return ReshardingReport(math.inf, 0.0, 0.0, ('the plan has no details.modes, {"task": "mode", ...}',))
    wrong += [
        f"the plan chooses a mode for {name!r}, which is no task" for name in chosen if name not in instance.task_index
    ]
    number: dict[str, int] = {}
    work, memory = [], []
    for k, label in enumerate(instance.labels):
        modes = instance.task(k).modes
        names = [mode.name for mode in modes]
        if chosen.get(label) not in names:
            wrong.append(f"task {label!r} has no mode {chosen.get(label)!r}; it has {', '.join(names) or 'none'}")
            continue
        number[label] = names.index(chosen[label])
        seconds = _seconds(instance, modes[number[label]])
        if seconds is None:
            wrong.append(f"mode {chosen[label]!r} of task {label!r} cannot run on {instance.device_names[0]!r}")
        work.append(seconds or 0.0)
        memory.append(float(instance.task(k).memory_of(modes[number[label]])))
    moved = [
        float(entry["seconds"][number[entry["from"]]][number[entry["to"]]])
        for entry in instance.tables.get("resharding", [])
        if entry["from"] in number and entry["to"] in number
    ]
    used, most = math.fsum(memory), float(instance.capacity[0])
    if used > most * (1 + 1e-12):
        wrong.append(f"memory adds up to {used:.12g}, the device has {most:.12g}: {used - most:.9g} too much")
    return ReshardingReport(math.fsum(work), math.fsum(moved), used, tuple(wrong))


def messages_bound(instance: Instance, price: float, messages: Sequence[Sequence[Sequence[float]]]) -> float:
    """Bound that a price of memory and messages prove: each task and each pair by itself at its least.

    For f_e and g_e of the entries e = (a, b) of ``tables.resharding`` and any price >= 0, no plan takes less than

        sum_t min_m (time + price memory + sum of its messages)
            + sum_e min_mn (seconds_mn - f_em - g_en) - price capacity,

    modes that cannot run left out.

    Raises
    ------
    ValueError
        Messages of another shape, numbers that are not finite, a price below 0 or of memory without a limit.
    """
    entries = instance.tables.get("resharding", [])
    if len(messages) != len(entries) or not 0 <= price < math.inf:
        raise ValueError(f"expected a price and {len(entries)} pairs of messages")
    most = float(instance.capacity[0])
    if price > 0 and not math.isfinite(most):
        raise ValueError("memory without a limit has a price")
    own: list[list[float]] = []
    size = 0.0
    for k in range(instance.n_tasks):
        rows = []
        for mode in instance.task(k).modes:
            seconds = _seconds(instance, mode)
            rows.append(math.inf if seconds is None else seconds + price * float(instance.task(k).memory_of(mode)))
        own.append(rows)
    parts = []
    for entry, pair in zip(entries, messages, strict=True):
        a, b = instance.task_index[entry["from"]], instance.task_index[entry["to"]]
        f, g = ([float(v) for v in side] for side in pair)
        if len(f) != len(own[a]) or len(g) != len(own[b]) or not all(map(math.isfinite, f + g)):
            raise ValueError("a message has another length than its task has modes, or is not finite")
        for m, v in enumerate(f):
            own[a][m] += v
        for n, v in enumerate(g):
            own[b][n] += v
        able = [
            float(c) - f[m] - g[n]
            for m, row in enumerate(entry["seconds"])
            for n, c in enumerate(row)
            if own[a][m] < math.inf and own[b][n] < math.inf
        ]
        parts.append(min(able, default=math.inf))
        size += max(map(abs, f)) + max(map(abs, g))
    least = [min(rows) for rows in own]
    spent = price * most if price > 0 else 0.0
    size += math.fsum(map(abs, least)) + math.fsum(map(abs, parts)) + spent
    bound = math.fsum([*least, *parts, -spent]) - _ROUNDING * size
    if not math.isfinite(bound):
        raise ValueError("the messages prove nothing")
    return bound


def _seconds(instance: Instance, mode: Any) -> float | None:
    """A mode's seconds on the first device: 0 without a table, None where it cannot run."""
    if mode.time is None:
        return 0.0
    device = instance.devices[0]
    if isinstance(mode.time, list):
        value = mode.time[0]
    else:
        value = mode.time.get(device.name, mode.time.get(device.type) if device.type else None)
    return None if value is None else float(value)
