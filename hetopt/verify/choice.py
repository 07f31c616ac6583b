"""Check a choice of one mode a task under budgets, and add up its score, sharing nothing with any model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetopt.instance import Instance

__all__ = ["ChoiceReport", "check_choice"]


@dataclass(frozen=True)
class ChoiceReport:
    """Sum of the scores, what each resource adds up to, number of the mode of each task (by task number), complaints."""

    score: float
    used: Mapping[str, float]
    modes: tuple[int, ...]
    violations: tuple[str, ...]


def check_choice(
    instance: Instance,
    details: Mapping[str, Any],
    budgets: Mapping[str, float],
    earlier: list[list[str]],
    differ: int,
) -> ChoiceReport:
    """Evaluate ``{"modes": {task: mode}}``.

    Parameters
    ----------
    budgets
        Most of each resource: ``memory``, ``time``, ``energy``, ``cost``; on the instance's first device.
    earlier, differ
        Choices, a mode name a task in file order, from each of which this one must differ in so many tasks.
    """
    chosen, wrong = details.get("modes"), []
    if not isinstance(chosen, Mapping):
        return ChoiceReport(math.inf, {}, (), ('the plan has no details.modes, {"task": "mode", ...}',))
    labels = instance.labels
    wrong += [
        f"the plan chooses a mode for {name!r}, which is no task" for name in chosen if name not in instance.task_index
    ][:20]
    picked: list[int] = []
    scores: list[float] = []
    amounts: dict[str, list[float]] = {name: [] for name in ("memory", "time", "energy", "cost")}
    for k, label in enumerate(labels):
        modes = instance.task(k).modes
        names = [mode.name for mode in modes]
        if label not in chosen or chosen[label] not in names:
            wrong.append(f"task {label!r} has no mode {chosen.get(label)!r}; it has {', '.join(names) or 'none'}")
            continue
        number = names.index(chosen[label])
        mode = modes[number]
        picked.append(number)
        scores.append(float(mode.score or 0))
        amounts["memory"].append(float(instance.task(k).memory_of(mode)))
        for resource in ("time", "energy", "cost"):
            value = _on_first(instance, getattr(mode, resource))
            if value is None and resource == "time" and mode.time is not None:
                wrong.append(f"mode {mode.name!r} of task {label!r} cannot run on {instance.device_names[0]!r}")
            amounts[resource].append(value or 0.0)
    used = {name: math.fsum(values) for name, values in amounts.items()}
    for name, most in budgets.items():
        if used[name] > most * (1 + 1e-12):
            wrong.append(
                f"{name} adds up to {used[name]:.12g}, the budget is {most:.12g}: {used[name] - most:.9g} too much"
            )
    for number, other in enumerate(earlier):
        same = sum(chosen.get(label) == name for label, name in zip(labels, other, strict=True))
        if same > len(labels) - differ:
            wrong.append(
                f"the choice differs from earlier choice {number} in {len(labels) - same} tasks, at least {differ} are asked for"
            )
    return ChoiceReport(math.fsum(scores) if not wrong or scores else math.inf, used, tuple(picked), tuple(wrong))


def _on_first(instance: Instance, table: Any) -> float | None:
    """A table's number for the first device: by position, by name or by type."""
    if table is None:
        return None
    device = instance.devices[0]
    if isinstance(table, list):
        return None if table[0] is None else float(table[0])
    value = table.get(device.name, table.get(device.type) if device.type else None)
    return None if value is None else float(value)
