"""Pairs of jobs that share a worker: their rates as an instance states them, and what a plan says of them, checked.

``tables.kind`` names each job's kind (a job that it leaves out never shares), ``tables.together`` has a row
``[type, kind, other kind, seconds a step, other's seconds a step]`` for each pair of kinds that makes progress on one worker; a
row holds both ways round. A plan says in ``details.together`` for what part of the time two jobs are together on a type:
``[job, other job, type, share]``; its ``shares`` are what each job has alone. Only jobs of the same scale share workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance

__all__ = ["PairRates", "Together", "pair_rates", "together_of", "together_violations"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class PairRates(NamedTuple):
    """Steps a second of two kinds on one worker, a row for each pair of kinds and type, ``first <= second``.

    Attributes
    ----------
    kind
        (n,) number of each job's kind, -1 without one.
    first, second, type
        (r,) kinds and device of each row, in this order sorted.
    rate, other
        (r,) steps a second of the job of the first and of the second kind.
    """

    kind: Numbers
    first: Numbers
    second: Numbers
    type: Numbers
    rate: Floats
    other: Floats

    def of(self, a: Numbers, b: Numbers, device: Numbers) -> tuple[Floats, Floats]:
        """(q,) rates of jobs a beside jobs b on devices, and the other way round; 0 where there is no row."""
        if not len(self.first):
            return np.zeros(len(a)), np.zeros(len(a))
        one, two = self.kind[a], self.kind[b]
        turned = one > two
        low, high = np.minimum(one, two), np.maximum(one, two)
        kinds, types = int(self.second.max()) + 1, int(self.type.max()) + 1
        key = (self.first * kinds + self.second) * types + self.type
        wanted = (low * kinds + high) * types + device
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        found = (key[at] == wanted) & (low >= 0) & (high < kinds) & (device < types)
        mine, others = np.where(found, self.rate[at], 0.0), np.where(found, self.other[at], 0.0)
        return np.where(turned, others, mine), np.where(turned, mine, others)


class Together(NamedTuple):
    """What a plan says of pairs: jobs, others, devices, shares of time, each (q,)."""

    job: Numbers
    other: Numbers
    device: Numbers
    share: Floats

    def time(self, n: int) -> Floats:
        """(n,) share of each job's time that it spends together with another."""
        return np.asarray(np.bincount(self.job, self.share, n) + np.bincount(self.other, self.share, n), np.float64)

    def used(self, scale: Floats, devices: int) -> Floats:
        """(devices,) workers that pairs take; two jobs of a pair take the same ones."""
        return np.asarray(np.bincount(self.device, self.share * scale[self.job], devices), np.float64)

    def steps(self, rates: PairRates, n: int) -> Floats:
        """(n,) steps a second that each job makes together with others."""
        mine, others = rates.of(self.job, self.other, self.device)
        both = np.bincount(self.job, self.share * mine, n) + np.bincount(self.other, self.share * others, n)
        return np.asarray(both, np.float64)


@lru_cache(maxsize=4)
def pair_rates(instance: Instance) -> PairRates:
    """The two tables as arrays.

    Raises
    ------
    InputError
        A table is missing or no such table, a row names no kind or device, repeats another, or has a time that is none.
    """
    kinds, rows = instance.tables.get("kind"), instance.tables.get("together")
    if not isinstance(kinds, Mapping):
        raise InputError(
            f"$.tables.kind is {type(kinds).__name__}, expected a kind by job; jobs of a kind are paired alike"
        )
    if not isinstance(rows, list):
        raise InputError(
            f"$.tables.together is {type(rows).__name__}, expected rows [type, kind, kind, seconds, seconds]"
        )
    for name, kind in kinds.items():
        if name not in instance.task_index:
            raise InputError(f"$.tables.kind names {name!r}, which is no job of the instance")
        if not isinstance(kind, str):
            raise InputError(f"$.tables.kind.{name} is {kind!r}, expected a word")
    number = {kind: k for k, kind in enumerate(sorted(set(kinds.values())))}
    of = np.array([number[kinds[name]] if name in kinds else -1 for name in instance.labels], np.int64)
    read = [(*_row(instance, number, row, f"$.tables.together[{r}]"), r) for r, row in enumerate(rows)]
    table = np.array(read, np.float64).reshape(-1, 6)
    table = table[(table[:, 0] >= 0) & (table[:, 1] >= 0)]  # kinds of which there is no job say nothing
    turned = table[:, 0] > table[:, 1]
    table[turned] = table[turned][:, [1, 0, 2, 4, 3, 5]]
    table = table[np.lexsort((table[:, 5], table[:, 2], table[:, 1], table[:, 0]))]
    again = np.flatnonzero((table[1:, :3] == table[:-1, :3]).all(axis=1))
    if len(again):
        raise InputError(f"$.tables.together[{table[again[0] + 1, 5]:.0f}] repeats an earlier row's kinds and type")
    first, second, device = table[:, :3].T.astype(np.int64)
    return PairRates(of, first, second, device, 1.0 / table[:, 3], 1.0 / table[:, 4])


def _row(instance: Instance, number: Mapping[str, int], row: Any, path: str) -> tuple[float, ...]:
    if not isinstance(row, list) or len(row) != 5 or not all(isinstance(word, str) for word in row[:3]):
        raise InputError(
            f"{path} is {row!r:.80}, expected [type, kind, other kind, seconds a step, other's seconds a step]"
        )
    if row[0] not in instance.device_index:
        raise InputError(
            f"{path}[0] is {row[0]!r}, which is no device; {nearest(row[0], instance.device_names, what='devices')}"
        )
    for k in (3, 4):
        if isinstance(row[k], bool) or not isinstance(row[k], (int, float)) or not 1e-12 <= row[k] <= 1e12:
            raise InputError(f"{path}[{k}] is {row[k]!r}, expected seconds a step, from 1e-12 to 1e12")
    return number.get(row[1], -1), number.get(row[2], -1), instance.device_index[row[0]], row[3], row[4]


def together_of(instance: Instance, details: Mapping[str, Any]) -> Together:
    """What a plan's details say of pairs, none where they are silent.

    Raises
    ------
    ValueError, LookupError, TypeError
        They cannot be read.
    """
    rows = details.get("together", [])
    if not isinstance(rows, list):
        raise ValueError(f"details.together is {type(rows).__name__}, expected rows [job, other job, type, share]")
    jobs, others, devices, shares = zip(*rows, strict=True) if rows else ((), (), (), ())
    index = instance.task_index
    numbers = np.array([float(share) for share in shares], np.float64)
    if any(isinstance(share, (bool, str)) for share in shares) or not np.isfinite(numbers).all():
        raise ValueError("details.together has a share that is no finite number")
    return Together(
        np.array([index[name] for name in jobs], np.int64),
        np.array([index[name] for name in others], np.int64),
        np.array([instance.device_index[name] for name in devices], np.int64),
        numbers,
    )


def together_violations(instance: Instance, together: Together, most: int = 20) -> tuple[str, ...]:
    """A sentence for each pair that cannot be: a job with itself, of another scale, without a rate, a share below 0."""
    labels, names = instance.labels, instance.device_names
    scale = instance.columns.scale[instance.job_of]
    rates = pair_rates(instance)
    mine, others = rates.of(together.job, together.other, together.device)
    able = instance.eligible[together.job, together.device] & instance.eligible[together.other, together.device]

    def told(wrong: NDArray[np.bool_], words: str) -> list[str]:
        return [
            f"jobs {labels[together.job[q]]!r} and {labels[together.other[q]]!r} on {names[together.device[q]]!r}: {words}"
            for q in np.flatnonzero(wrong)[:most].tolist()
        ]

    return (
        *told(together.job == together.other, "a job cannot be together with itself"),
        *told(together.share < 0, "a share is below 0"),
        *told(scale[together.job] != scale[together.other], "their scales differ"),
        *told((together.share > 0) & ~((mine > 0) & (others > 0)), "the instance has no rates for them together"),
        *told((together.share > 0) & ~able, "one of them cannot run there"),
    )
