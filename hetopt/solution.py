"""What a plan is, in the instance's terms: placement, start times, shares. No solver object, no value, no verdict.

A :class:`Solution` never validates itself; :mod:`hetopt.verify` does, from the instance.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance

__all__ = ["Solution"]

_KEYS = ("placement", "start", "shares", "details")


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan for an instance with ``n`` tasks and ``d`` devices; what a question does not decide is None.

    The arrays are copied and read-only, so that a method may go on changing its own.

    Attributes
    ----------
    placement
        (n,) device number of each task, -1 where it is not placed.
    start
        (n,) seconds at which each task starts, ``nan`` where it does not.
    shares
        (n, d) share of each task (or job) on each device, or rate, as the question says.
    details
        What a single question adds (stage order, replicas, modes, preemptions), as plain JSON data.
    """

    placement: NDArray[np.int64] | None = None
    start: NDArray[np.float64] | None = None
    shares: NDArray[np.float64] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, dtype in (("placement", np.int64), ("start", np.float64), ("shares", np.float64)):
            if getattr(self, name) is None:
                continue
            given = np.asarray(getattr(self, name))
            if dtype is np.int64 and not _integers(given):
                raise InputError("the placement holds numbers that are not integers; expected device numbers")
            array = np.array(given, dtype)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def assign(cls, placement: ArrayLike, **details: Any) -> Solution:
        """A plan that places task k on device ``placement[k]``."""
        return cls(placement=placement, details=details)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Solution):
            return NotImplemented
        pairs = ((self.placement, other.placement), (self.start, other.start), (self.shares, other.shares))
        same = all(_equal(a, b) for a, b in pairs)
        return same and dict(self.details) == dict(other.details)

    __hash__ = None  # type: ignore[assignment]

    def to_json(self, instance: Instance) -> dict[str, Any]:
        """Plain data with names instead of numbers: ``{"placement": {task: device}, "start": {task: seconds}, ...}``."""
        out: dict[str, Any] = {}
        labels, devices = instance.labels, instance.device_names
        if self.placement is not None:
            out["placement"] = {
                label: devices[k] if k >= 0 else None for label, k in zip(labels, self.placement.tolist(), strict=True)
            }
        if self.start is not None:
            out["start"] = {label: t for label, t in zip(labels, self.start.tolist(), strict=True) if t == t}
        if self.shares is not None:
            out["shares"] = {
                label: {devices[i]: row[i] for i in np.flatnonzero(row).tolist()}
                for label, row in zip(labels, self.shares.tolist(), strict=True)
            }
        if self.details:
            out["details"] = dict(self.details)
        return out

    @classmethod
    def from_json(cls, instance: Instance, data: Mapping[str, Any], *, path: str = "$.solution") -> Solution:
        """Inverse of :meth:`to_json`; tasks that are not named stay unplaced, for the verifier to complain about.

        Raises
        ------
        InputError
            An unknown key, task or device, or a number that is none; the message starts with the JSON path.
        """
        if not isinstance(data, Mapping):
            raise InputError(f"{path} is {type(data).__name__}, expected an object")
        for key in data:
            if key not in _KEYS:
                raise InputError(f"{path} has the unknown key {key!r}; {nearest(key, _KEYS, what='the keys')}")
        n, d = instance.n_tasks, instance.n_devices
        placement = start = shares = None
        if data.get("placement") is not None:
            placement = np.full(n, -1, np.int64)
            for label, name in _entries(data["placement"], f"{path}.placement"):
                at = f"{path}.placement.{label}"
                placement[_known(instance.task_index, label, at, "task")] = (
                    -1 if name is None else _known(instance.device_index, name, at, "device")
                )
        if data.get("start") is not None:
            start = np.full(n, np.nan)
            for label, seconds in _entries(data["start"], f"{path}.start"):
                at = f"{path}.start.{label}"
                start[_known(instance.task_index, label, at, "task")] = _real(seconds, at)
        if data.get("shares") is not None:
            shares = np.zeros((n, d))
            for label, row in _entries(data["shares"], f"{path}.shares"):
                k = _known(instance.task_index, label, f"{path}.shares.{label}", "task")
                for name, share in _entries(row, f"{path}.shares.{label}"):
                    at = f"{path}.shares.{label}.{name}"
                    shares[k, _known(instance.device_index, name, at, "device")] = _real(share, at)
        details = data.get("details") or {}
        return cls(placement, start, shares, dict(_entries(details, f"{path}.details")))


def _integers(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "i" or bool(((abs(values) < 2**53) & (values == np.floor(values))).all())


def _equal(a: NDArray[Any] | None, b: NDArray[Any] | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _entries(data: Any, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise InputError(f"{path} is {type(data).__name__}, expected an object")
    return data.items()


def _known(index: Mapping[str, int], name: Any, path: str, what: str) -> int:
    if not isinstance(name, str) or name not in index:
        raise InputError(
            f"{path}: {name!r} is no {what} of the instance; {nearest(str(name), list(index)[:10000], what=f'{what}s')}"
        )
    return index[name]


def _real(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise InputError(f"{path} is {value!r}, expected a finite number")
    return float(value)
