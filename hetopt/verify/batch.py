"""Check batch sizes of devices that train together, sharing nothing with any model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetopt.instance import Instance

__all__ = ["BatchReport", "check_batches"]


@dataclass(frozen=True)
class BatchReport:
    """Batch, batches a second, samples a second and utilisation of each device; complaints."""

    batch: tuple[int, ...]
    rate: tuple[float, ...]
    speed: tuple[float, ...]
    utilisation: tuple[float, ...]
    violations: tuple[str, ...]


def check_batches(
    instance: Instance, details: Mapping[str, Any], balance: float, staleness: float, utilisation: float
) -> BatchReport:
    """Evaluate ``{"batch": {device: size}}``.

    Parameters
    ----------
    balance, staleness, utilisation
        Largest ratio of two devices' batches a second, most batches of all others while a device works on one, least mean
        utilisation; ``inf``, ``inf`` and 0 where not asked for.
    """
    given, wrong = details.get("batch"), []
    if not isinstance(given, Mapping):
        return BatchReport((), (), (), (), ('the plan has no details.batch, {"device": size, ...}',))
    wrong += [
        f"the plan gives a batch to {name!r}, which is no device" for name in given if name not in instance.device_names
    ]
    table = instance.tables["batches"]
    rows = []
    for device in instance.devices:
        mine: list[Any] = next(
            (table[key] for key in (device.name, device.type, "*") if key is not None and key in table), []
        )
        row = next((row for row in mine if row[0] == given.get(device.name)), None)
        if row is None:
            sizes = ", ".join(str(row[0]) for row in mine)
            wrong.append(f"device {device.name!r} has no batch {given.get(device.name)!r}; it has {sizes or 'none'}")
        else:
            rows.append((device.name, int(row[0]), 1.0 / float(row[1]), float(row[0]) / float(row[1]), float(row[2])))
    if wrong or not rows:
        return BatchReport((), (), (), (), tuple(wrong))
    rates = [row[2] for row in rows]
    slow, quick = min(rows, key=lambda row: row[2]), max(rows, key=lambda row: row[2])
    if quick[2] > balance * slow[2] * (1 + 1e-12):
        wrong.append(
            f"{quick[0]!r} makes {quick[2] / slow[2]:.9g} batches for each of {slow[0]!r}, at most {balance:.9g} are allowed"
        )
    total = math.fsum(rates)
    for name, _, rate, _, _ in rows:
        others = (total - rate) / rate
        if others > staleness * (1 + 1e-9) + 1e-9:
            wrong.append(
                f"while {name!r} works on a batch the others make {others:.9g}, at most {staleness:.9g} are allowed"
            )
    mean = math.fsum(row[4] for row in rows) / len(rows)
    if mean < utilisation * (1 - 1e-9):
        wrong.append(f"the mean utilisation is {mean:.9g}, at least {utilisation:.9g} is asked for")
    columns = list(zip(*rows, strict=True))
    return BatchReport(columns[1], columns[2], columns[3], columns[4], tuple(wrong))
