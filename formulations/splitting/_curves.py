"""What the questions of shards read from an instance: seconds of each number of shards on each device, limits, classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance

__all__ = ["MOST_CELLS", "Curves", "cells", "curves", "entry", "number", "out_of_reach", "round_of"]

MOST_CELLS = 20_000_000
_KEYS = ("seconds", "least", "most", "energy", "battery", "classes")


class Curves(NamedTuple):
    """``d`` devices and ``total`` shards: (d, total + 1) seconds, (d,) fewest and most shards, classes of each device."""

    seconds: NDArray[np.float64]
    least: NDArray[np.int64]
    most: NDArray[np.int64]
    classes: tuple[frozenset[str], ...]
    total: int


def entry(table: Mapping[str, Any], name: str, kind: str | None) -> Any:
    """The most specific entry of a table: of a device, its type, or ``*``; None when there is none."""
    return next((table[key] for key in (name, kind, "*") if key is not None and key in table), None)


def number(value: Any, path: str, low: float = 0.0) -> float:
    """A finite number, at least ``low``; InputError that names the path."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= 1e140:
        raise InputError(f"{path} is {value!r}, expected a number, {low:g} or more")
    return float(value)


def round_of(instance: Instance) -> tuple[int | None, str | None]:
    """Number of units of work in the instance's one job (``steps``), or why it has none."""
    if instance.n_tasks != 1 or instance.n_jobs != 1:
        return None, f"it needs one job that is split, and the instance has {instance.n_tasks} tasks"
    steps = float(instance.columns.steps[0])
    if not steps >= 1 or steps != int(steps):
        return None, "its job has no `steps`, the number of units that are split (a whole number, 1 or more)"
    if int(steps + 1) * instance.n_devices > MOST_CELLS:
        return (
            None,
            f"{steps:.0f} units on {instance.n_devices} devices are more than {MOST_CELLS:,} numbers of seconds",
        )
    return int(steps), None


@lru_cache(maxsize=4)
def curves(instance: Instance) -> Curves:
    """The instance's curves; without an entry in ``tables.shards`` a device takes its ``time`` for each shard.

    Raises
    ------
    InputError
        An entry of ``tables.shards`` has an unknown key, seconds that fall, a limit that is no whole number.
    """
    total, why = round_of(instance)
    if total is None:
        raise InputError(str(why))
    table = instance.tables.get("shards", {})
    if not isinstance(table, Mapping) or not all(isinstance(row, Mapping) for row in table.values()):
        raise InputError('$.tables.shards must map devices, types or "*" to objects')
    known = {"*", *instance.device_names, *(v.type for v in instance.devices if v.type)}
    for name, row in table.items():
        if name not in known:
            raise InputError(f"$.tables.shards names {name!r}, which is no device or type of the instance")
        for key in row:
            if key not in _KEYS:
                raise InputError(f"$.tables.shards.{name} has {key!r}; {nearest(key, _KEYS, what='the keys')}")
    d = instance.n_devices
    seconds = np.full((d, total + 1), np.inf)
    least, most = np.zeros(d, np.int64), np.zeros(d, np.int64)
    classes = []
    for i, device in enumerate(instance.devices):
        row = entry(table, device.name, device.type) or {}
        path = f"$.tables.shards of {device.name!r}"
        own = _seconds(row.get("seconds"), float(instance.time[0, i]), total, f"{path}, seconds")
        limits = [_whole(row.get(key, default), f"{path}, {key}") for key, default in (("least", 0), ("most", total))]
        energy = number(row.get("energy", 0), f"{path}, energy")
        battery = row.get("battery")
        most[i] = min(limits[1], len(own) - 1)
        if battery is not None:
            power = number(battery, f"{path}, battery")
            fits = energy * np.arange(most[i] + 1.0) <= power * (1 + 1e-12)
            most[i] = int(fits.sum()) - 1
        least[i] = limits[0]
        seconds[i, : len(own)] = own
        given = row.get("classes", [])
        if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            raise InputError(f"{path}, classes is {given!r}, expected a list of names")
        classes.append(frozenset(given))
    return Curves(seconds, least, most, tuple(classes), total)


def _seconds(given: Any, slope: float, total: int, path: str) -> NDArray[np.float64]:
    """Seconds of 0, 1, ... shards, no more than ``total``."""
    if given is None:
        return np.arange(total + 1.0) * slope if np.isfinite(slope) else np.zeros(1)
    if not isinstance(given, list) or not given:
        raise InputError(f"{path} is {given!r}, expected a list of seconds of 0, 1, 2, ... shards")
    values = np.array([number(value, f"{path}[{n}]") for n, value in enumerate(given[: total + 1])])
    falls = np.flatnonzero(np.diff(values) < 0)
    if falls.size:
        n = int(falls[0])
        raise InputError(
            f"{path} fall from {values[n]:.9g} at {n} to {values[n + 1]:.9g} at {n + 1} shards, expected more or as many"
        )
    return values


def _whole(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise InputError(f"{path} is {value!r}, expected a whole number, 0 or more")
    return value


def cells(data: Curves) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(device, number of shards) of all pairs within the limits."""
    at = np.arange(data.total + 1)
    i, n = np.nonzero((at >= data.least[:, None]) & (at <= data.most[:, None]))
    return i.astype(np.int64), n.astype(np.int64)


def out_of_reach(instance: Instance, data: Curves) -> tuple[str, ...]:
    """Why the shards cannot be given out, and by how much; empty when they can."""
    for i in np.flatnonzero(data.least > data.most).tolist():
        name, short = instance.device_names[i], data.least[i] - data.most[i]
        return (f"device {name!r} must take {data.least[i]} shards and can take {data.most[i]}: {short} too few",)
    low, high = int(data.least.sum()), int(data.most.sum())
    if low > data.total:
        return (f"the devices must take {low} shards, and there are {data.total}: {low - data.total} too many",)
    if high < data.total:
        return (
            f"the devices can take {high} shards within limits and batteries, and there are {data.total}: "
            f"{data.total - high} too few",
        )
    return ()
