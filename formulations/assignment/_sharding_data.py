"""What the sharding question reads from an instance: seconds of each table on each device, what fusing and exchange add."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.formulation import Question
from hetopt.instance import Instance

__all__ = ["Tables", "fusion_violation", "tables_of"]


@dataclass(frozen=True, eq=False)
class Tables:
    """``n`` tables on ``d`` devices.

    Attributes
    ----------
    load
        (n, d) seconds p_jg + e_g o_j; ``inf`` where a table cannot be.
    per_byte
        (d,) e_g, seconds of exchange per byte of output.
    fused
        (d, n + 1) seconds f_g(k) that holding k tables adds, latencies included; 0 for k = 0.
    countable
        (d, n + 1) whether device g can hold k tables.
    whole
        Whether every value is an integer.
    """

    load: NDArray[np.float64]
    per_byte: NDArray[np.float64]
    fused: NDArray[np.float64]
    countable: NDArray[np.bool_]
    whole: bool


def tables_of(instance: Instance, question: Question | None) -> Tables:
    """The question's data; without a question the instance's own is asked.

    Raises
    ------
    InputError
        ``tables.fusion`` is malformed, or a link is missing between devices that must talk.
    """
    training = instance.question.get("training", True) if question is None else question["training"]
    per_byte, latency = _exchange(instance, bool(training))
    load = instance.time + np.where(instance.output[:, None] > 0, instance.output[:, None] * per_byte, 0.0)
    fused = _fusion(instance)
    fused[:, 1:] += latency[:, None]
    whole = instance.integral and all(bool((part == np.floor(part)).all()) for part in (per_byte, fused))
    return Tables(load, per_byte, fused, _countable(instance), whole)


def fusion_violation(instance: Instance) -> str | None:
    """Why ``tables.fusion`` cannot be read, or None."""
    try:
        _fusion(instance)
    except InputError as error:
        return str(error)
    return None


def _exchange(instance: Instance, training: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d,) seconds per byte of output, and (d,) seconds of latency, of each device's part in the all-to-all exchange."""
    names = instance.device_names
    d = len(names)
    per_byte, latency = np.zeros(d), np.zeros(d)
    if not instance.output.any():
        return per_byte, latency
    for g, here in enumerate(names):
        for h, there in enumerate(names):
            if g != h:
                for source, target in ((here, there), (there, here))[: 2 if training else 1]:
                    link = instance.need_link(source, target)
                    per_byte[g] += 0.0 if link.bandwidth is None else 1.0 / (link.bandwidth * d)
                    latency[g] += link.latency
    return per_byte, latency


def _fusion(instance: Instance) -> NDArray[np.float64]:
    """(d, n + 1) seconds that holding k tables adds on each device, from the most specific entry of ``tables.fusion``."""
    n, d = instance.n_tasks, instance.n_devices
    fused = np.zeros((d, n + 1))
    given = instance.tables.get("fusion")
    if given is None:
        return fused
    if not isinstance(given, Mapping):
        raise InputError(
            '$.tables.fusion is no map; expected {"device, type or *": [[tables, seconds], ...]}, one list a kind'
        )
    known = {"*", *instance.device_names, *(device.type for device in instance.devices if device.type)}
    curves = {}
    for name, points in given.items():
        if name not in known:
            raise InputError(f"$.tables.fusion.{name} names no device and no type; expected one, or '*'")
        curves[name] = _curve(points, f"$.tables.fusion.{name}")
    for g, device in enumerate(instance.devices):
        curve = next((curves[name] for name in (device.name, device.type, "*") if name in curves), None)
        if curve is not None:
            fused[g, 1:] = np.interp(np.arange(1, n + 1), *curve)
    return fused


def _curve(points: Any, path: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Counts, rising, and seconds of a list of points."""
    try:
        curve = np.array(points, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} is no list of pairs [tables, seconds]: {error}") from None
    if curve.ndim != 2 or curve.shape[1] != 2 or not len(curve):
        raise InputError(f"{path} has shape {curve.shape}, expected pairs [tables, seconds]")
    if not np.isfinite(curve).all() or (np.diff(curve[:, 0]) <= 0).any() or curve[0, 0] < 0:
        raise InputError(f"{path} must hold finite numbers, with rising numbers of tables from 0 on")
    return curve[:, 0], curve[:, 1]


def _countable(instance: Instance) -> NDArray[np.bool_]:
    """(d, n + 1) numbers of tables that each device can hold: by its limit, and by the smallest tables it may hold."""
    n = instance.n_tasks
    countable = np.zeros((instance.n_devices, n + 1), bool)
    for g, device in enumerate(instance.devices):
        sizes = np.sort(instance.memory[instance.eligible[:, g]])
        room = instance.capacity[g] * (1 + 1e-12)  # sums here may round a little further than the verifier's
        most = int(np.searchsorted(np.cumsum(sizes), room, side="right")) if math.isfinite(room) else len(sizes)
        countable[g, : min(most, n if device.max_tasks is None else device.max_tasks) + 1] = True
    return countable
