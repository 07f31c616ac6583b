"""Check a plan that cuts one load over workers served by one port, sharing nothing with any model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetopt.instance import Instance

__all__ = ["DivisibleReport", "check_divisible"]


@dataclass(frozen=True)
class DivisibleReport:
    """When each worker has its load, when it ends, by name, and complaints."""

    received: Mapping[str, float]
    end: Mapping[str, float]
    violations: tuple[str, ...]


def check_divisible(instance: Instance, details: Mapping[str, Any]) -> DivisibleReport:
    """Evaluate ``{"order": [device, ...], "units": {device: amount}}``: the port serves the order without a break."""
    order, units, wrong = details.get("order"), details.get("units"), []
    if not isinstance(order, list) or not isinstance(units, Mapping):
        return DivisibleReport({}, {}, ("the plan has no details.order and details.units",))
    wrong += [f"{name!r} has units and no place in the order" for name in units if name not in order and units[name]]
    if len(set(order)) < len(order):
        wrong.append("the order names a device twice")
    total = float(instance.columns.steps[0])
    received, end, port, amounts = {}, {}, 0.0, []
    for name in order:
        amount = units.get(name)
        if name not in instance.device_index:
            wrong.append(f"the order names {name!r}, which is no device")
            continue
        i = instance.device_index[name]
        seconds = float(instance.time[0, i])
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount < math.inf:
            wrong.append(f"{name!r} has {amount!r} units, expected a number, 0 or more")
            continue
        if not math.isfinite(seconds):
            wrong.append(f"{name!r} cannot run the job")
            continue
        device = instance.devices[i]
        if not device.host:  # what works in host memory is sent nothing
            link = instance.need_link("host", name)
            port += link.latency + (amount * float(instance.output[0]) / link.bandwidth if link.bandwidth else 0.0)
        table = instance.tables.get("startup", {})
        start = next((table[key] for key in (name, device.type, "*") if key is not None and key in table), 0.0)
        received[name], end[name] = port, port + float(start) + amount * seconds
        amounts.append(float(amount))
    given = math.fsum(amounts)
    if abs(given - total) > 1e-9 * total:
        wrong.append(f"{given:.12g} units are given out, there are {total:.12g}: {given - total:+.9g}")
    return DivisibleReport(received, end, tuple(wrong))
