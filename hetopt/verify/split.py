"""Check how shards are given out, and replay bounds on their value, sharing nothing with any model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetopt.instance import Instance

__all__ = ["ShardsReport", "check_shards", "shards_bound"]


@dataclass(frozen=True)
class ShardsReport:
    """Shards and seconds of each device in order, classes that some device with shards holds, complaints."""

    shards: tuple[int, ...]
    seconds: tuple[float, ...]
    covered: frozenset[str]
    violations: tuple[str, ...]


def check_shards(instance: Instance, details: Mapping[str, Any]) -> ShardsReport:
    """Evaluate ``{"shards": {device: number}}`` of the instance's one job."""
    given, wrong = details.get("shards"), []
    if not isinstance(given, Mapping):
        return ShardsReport((), (), frozenset(), ('the plan has no details.shards, {"device": number, ...}',))
    names = instance.device_names
    wrong += [f"the plan gives shards to {name!r}, which is no device" for name in given if name not in names]
    numbers, seconds = [], []
    covered: set[str] = set()
    for i, name in enumerate(names):
        n = given.get(name, 0)
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            wrong.append(f"device {name!r} is given {n!r} shards, expected a whole number, 0 or more")
            n = 0
        row = _row(instance, i)
        least, most = int(row.get("least", 0)), _most(instance, i)
        if n < least:
            wrong.append(f"device {name!r} takes {n} shards, at least {least} are asked for: {least - n} too few")
        if n > most:
            wrong.append(f"device {name!r} takes {n} shards, at most {most} are possible: {n - most} too many")
        energy, battery = n * float(row.get("energy", 0)), row.get("battery")
        if battery is not None and energy > float(battery) * (1 + 1e-12):
            wrong.append(
                f"device {name!r} needs {energy:.9g} of its battery's {battery:.9g}: {energy - battery:.9g} too much"
            )
        numbers.append(n)
        seconds.append(_seconds(instance, i, n) if n <= most else math.inf)
        covered |= set(row.get("classes", ())) if n else set()
    total = int(instance.columns.steps[0])
    if sum(numbers) != total:
        wrong.append(f"{sum(numbers)} shards are given out, there are {total}: {sum(numbers) - total:+d}")
    return ShardsReport(tuple(numbers), tuple(seconds), frozenset(covered), tuple(wrong))


def shards_bound(instance: Instance, value: float) -> float:
    """``value`` when no plan is quicker: some device's fewest shards take as long, or too few shards fit below it.

    Raises
    ------
    ValueError
        A quicker plan is not ruled out.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value!r} seconds prove nothing")
    fit = 0
    for i in range(instance.n_devices):
        least, most = int(_row(instance, i).get("least", 0)), _charged(instance, i)
        if least > most:
            raise ValueError("a device cannot take its fewest shards, which is no matter of seconds")
        if _seconds(instance, i, least) >= value:
            return value
        low, high = least, most
        while low < high:  # seconds do not fall
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _seconds(instance, i, middle) < value else (low, middle - 1)
        fit += low
    if fit >= int(instance.columns.steps[0]):
        raise ValueError(f"in less than {value:.9g} seconds {fit} shards fit, which proves nothing")
    return value


def _row(instance: Instance, i: int) -> Mapping[str, Any]:
    table, device = instance.tables.get("shards", {}), instance.devices[i]
    for key in (device.name, device.type, "*"):
        if key is not None and key in table:
            found: Mapping[str, Any] = table[key]
            return found
    return {}


def _most(instance: Instance, i: int) -> int:
    row, total = _row(instance, i), int(instance.columns.steps[0])
    listed = row.get("seconds")
    able = len(listed) - 1 if listed is not None else total if math.isfinite(instance.time[0, i]) else 0
    return min(int(row.get("most", total)), able)


def _charged(instance: Instance, i: int) -> int:
    """Most shards that the limits and the battery allow."""
    row, most = _row(instance, i), _most(instance, i)
    energy, battery = float(row.get("energy", 0)), row.get("battery")
    if battery is None or energy * most <= float(battery) * (1 + 1e-12):
        return most
    most = min(most, int(float(battery) / energy) + 1)
    while energy * most > float(battery) * (1 + 1e-12):
        most -= 1
    return most


def _seconds(instance: Instance, i: int, n: int) -> float:
    listed = _row(instance, i).get("seconds")
    if listed is not None:
        return float(listed[n])
    return n * float(instance.time[0, i]) if n else 0.0
