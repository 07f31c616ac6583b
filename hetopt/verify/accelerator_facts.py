"""Jobs that stay together on accelerators: rates, floors and watts as an instance states them.

A device is a type with ``slots`` accelerators, each of ``power`` watts while something runs on it and ``idle_power`` else (0
where it is not said). A job's ``time`` is seconds a step alone, ``scale`` the most accelerators it may have. Tables:

* ``floor``: steps a second by job; a job that is not named does not run.
* ``kind``, ``together``: rates of two jobs on one accelerator, as in :mod:`hetopt.verify.pairs`.
* ``groups``: rows ``[type, kinds, seconds a step of each]`` for three or more on one accelerator.
* ``watts``: rows ``[type, kinds, watts]`` where it is not the type's ``power``; a single name may be a job's.
* ``estimated``: rows ``[type, kinds, relative errors, method]``; a single name may be a job's. An error of null is any; other
  rates are sure.
* ``current``: ``{job: {type: accelerators}}``, where jobs run now.

Jobs of a kind beside each other have the lesser of the two rates that a table gives them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.verify.pairs import PairRates, pair_rates
from hetopt.verify.shares import rates

__all__ = ["Facts", "Group", "facts_of"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Group(NamedTuple):
    """Three or more kinds, sorted, on one accelerator: steps a second of each, and watts."""

    device: int
    kinds: tuple[int, ...]
    rate: tuple[float, ...]
    watts: float


class Facts(NamedTuple):
    """n jobs on m types; all rates are lowered by the caution asked for.

    Attributes
    ----------
    rate, watts
        (n, m) steps a second alone, 0 where it cannot run, and watts of an accelerator with this job alone.
    floor, most
        (n,) steps a second needed, 0 where the job does not run; accelerators it may have.
    workers, idle
        (m,) accelerators, and watts of one that is not in use.
    pairs, pair_watts
        Rates of two kinds, and (r,) watts of each row.
    groups
        By device and kinds.
    current
        (n, m) accelerators a job has now.
    """

    rate: Floats
    watts: Floats
    floor: Floats
    most: Numbers
    workers: Numbers
    idle: Floats
    pairs: PairRates
    pair_watts: Floats
    groups: Mapping[tuple[int, tuple[int, ...]], Group]
    current: Numbers

    def company(self, device: int, jobs: tuple[int, ...]) -> tuple[tuple[float, ...], float]:
        """Steps a second of each of the jobs, and watts, when they are all that is on an accelerator; 0 where it cannot be."""
        if len(jobs) == 1:
            return (float(self.rate[jobs[0], device]),), float(self.watts[jobs[0], device])
        none = (0.0,) * len(jobs)
        kinds = tuple(int(self.pairs.kind[k]) for k in jobs)
        if min(kinds) < 0 or any(self.rate[k, device] <= 0 for k in jobs):
            return none, 0.0
        if len(jobs) == 2:
            low, high = min(kinds), max(kinds)
            hit = (self.pairs.first == low) & (self.pairs.second == high) & (self.pairs.type == device)
            if not hit.any():
                return none, 0.0
            row = int(np.flatnonzero(hit)[0])
            both = (float(self.pairs.rate[row]), float(self.pairs.other[row]))
            return (both if kinds[0] == low else both[::-1]), float(self.pair_watts[row])
        group = self.groups.get((device, tuple(sorted(kinds))))
        if group is None:
            return none, 0.0
        of = dict(zip(group.kinds, group.rate, strict=True))
        return tuple(of[k] for k in kinds), group.watts


@lru_cache(maxsize=4)
def facts_of(instance: Instance, caution: float) -> Facts:
    """The instance's numbers as arrays, rates lowered to ``rate (1 - caution error)`` where they are estimated.

    Raises
    ------
    InputError
        A table is no such table, or names no job, kind or type; a number is out of its range.
    """
    n = instance.n_tasks
    pairs = _pairs(instance)
    number = _kinds(instance)
    busy = np.array([device.power or 0.0 for device in instance.devices], np.float64)
    idle = np.array([device.idle_power or 0.0 for device in instance.devices], np.float64)
    rate, watts = np.array(rates(instance)), np.tile(busy, (n, 1))
    pair_rate, pair_other, pair_watts = np.array(pairs.rate), np.array(pairs.other), busy[pairs.type]
    groups = {(one.device, one.kinds): one for one in _groups(instance, number, busy)}
    for row in _rows(instance, "watts", number):
        if not _number(row.value, 0.0):
            raise InputError(f"{row.path}[2] is {row.value!r:.60}, expected watts, 0 or more")
        if row.jobs is not None:
            watts[row.jobs, row.device] = row.value
        elif len(row.kinds) == 2:
            pair_watts[_same(pairs, row)] = row.value
        elif (row.device, row.kinds) in groups:
            groups[row.device, row.kinds] = groups[row.device, row.kinds]._replace(watts=float(row.value))
    for row in _rows(instance, "estimated", number):
        less = [max(0.0, 1.0 - caution * error) if caution > 0 else 1.0 for error in _errors(row)]
        if row.jobs is not None:
            rate[row.jobs, row.device] *= less[0]
        elif len(row.kinds) == 2:
            here = _same(pairs, row)
            turned = number[row.names[0]] > number[row.names[1]]
            pair_rate[here] *= less[1 if turned else 0]
            pair_other[here] *= less[0 if turned else 1]
        elif (row.device, row.kinds) in groups:
            group = groups[row.device, row.kinds]
            groups[row.device, row.kinds] = group._replace(rate=tuple(r * min(less) for r in group.rate))
    alike = pairs.first == pairs.second
    least = np.minimum(pair_rate, pair_other)
    pairs = pairs._replace(rate=np.where(alike, least, pair_rate), other=np.where(alike, least, pair_other))
    floor = np.zeros(n)
    for name, need in _by_job(instance, "floor"):
        if not _number(need, 1e-12):
            raise InputError(f"$.tables.floor.{name} is {need!r}, expected steps a second, above 0")
        floor[instance.task_index[name]] = need
    scale = instance.columns.scale[instance.job_of]
    most = np.clip(np.floor(scale), 0, 1 << 30).astype(np.int64)
    workers = np.array([device.slots for device in instance.devices], np.int64)
    return Facts(
        rate, watts, floor, most, workers, idle, pairs, pair_watts, groups, _current(instance),
    )  # fmt: skip


def _kinds(instance: Instance) -> dict[str, int]:
    table = instance.tables.get("kind", {})
    if not isinstance(table, Mapping) or not all(isinstance(word, str) for word in table.values()):
        raise InputError("$.tables.kind is no such table, expected a kind by job")
    for name in table:
        if name not in instance.task_index:
            raise InputError(f"$.tables.kind names {name!r}, which is no job of the instance")
    return {kind: k for k, kind in enumerate(sorted(set(table.values())))}


def _pairs(instance: Instance) -> PairRates:
    if "together" in instance.tables:
        return pair_rates(instance)
    number, table = _kinds(instance), instance.tables.get("kind", {})
    kind = np.array([number[table[name]] if name in table else -1 for name in instance.labels], np.int64)
    none = np.zeros(0, np.int64)
    return PairRates(kind, none, none, none, np.zeros(0), np.zeros(0))


class _Row(NamedTuple):
    """A row [type, names, value, ...] of a table: jobs of a single name, sorted kinds of several."""

    device: int
    names: list[str]
    jobs: list[int] | None
    kinds: tuple[int, ...]
    value: Any
    path: str


def _same(pairs: PairRates, row: _Row) -> NDArray[np.bool_]:
    """(r,) which pair a row is about; none where nothing is known of it."""
    here: NDArray[np.bool_] = (
        (pairs.first == row.kinds[0]) & (pairs.second == row.kinds[1]) & (pairs.type == row.device)
    )
    return here


def _groups(instance: Instance, number: Mapping[str, int], busy: Floats) -> Iterator[Group]:
    seen = set()
    for row in _rows(instance, "groups", number):
        right = isinstance(row.value, list) and len(row.value) == len(row.names) > 2
        if not right or not all(_number(seconds, 1e-12) for seconds in row.value):
            told = f"{[row.names, row.value]!r:.80}"
            raise InputError(f"{row.path} is {told}, expected three kinds or more and seconds a step of each")
        if (row.device, row.kinds) in seen:
            raise InputError(f"{row.path} repeats an earlier row's kinds and type")
        seen.add((row.device, row.kinds))
        least: dict[int, float] = {}
        for name, seconds in zip(row.names, row.value, strict=True):
            least[number[name]] = min(1.0 / seconds, least.get(number[name], math.inf))
        yield Group(row.device, row.kinds, tuple(least[k] for k in row.kinds), float(busy[row.device]))


def _rows(instance: Instance, key: str, number: Mapping[str, int]) -> Iterator[_Row]:
    table = instance.tables.get(key, [])
    if not isinstance(table, list):
        raise InputError(f"$.tables.{key} is {type(table).__name__}, expected rows [type, kinds, ...]")
    for r, row in enumerate(table):
        path = f"$.tables.{key}[{r}]"
        if not isinstance(row, list) or len(row) < 3 or not isinstance(row[1], list) or not row[1]:
            raise InputError(f"{path} is {row!r:.80}, expected [type, [kind, ...], ...]")
        if not isinstance(row[0], str) or row[0] not in instance.device_index:
            near = nearest(str(row[0]), instance.device_names, what="devices")
            raise InputError(f"{path}[0] is {row[0]!r:.60}, which is no device; {near}")
        names, single = row[1], len(row[1]) == 1
        if not all(isinstance(name, str) for name in names):
            raise InputError(f"{path}[1] is {names!r:.60}, expected names of kinds, or one job's name")
        if not all(name in number for name in names) and not (single and names[0] in instance.task_index):
            continue  # a kind of which there is no job says nothing
        jobs: list[int] | None = None
        if single:
            of = instance.tables.get("kind", {})
            own = instance.task_index.get(names[0])
            jobs = [instance.task_index[job] for job in of if of[job] == names[0]] if own is None else [own]
        kinds = () if single else tuple(sorted(number[name] for name in names))
        yield _Row(instance.device_index[row[0]], names, jobs, kinds, row[2], path)


def _errors(row: _Row) -> list[float]:
    right = isinstance(row.value, list) and len(row.value) == len(row.names)
    if not right or not all(error is None or _number(error, 0.0) for error in row.value):
        raise InputError(f"{row.path}[2] is {row.value!r:.60}, expected {len(row.names)} relative errors, 0 or more")
    return [math.inf if error is None else float(error) for error in row.value]


def _number(value: Any, least: float) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and least <= value <= 1e12


def _by_job(instance: Instance, key: str) -> Iterator[tuple[str, Any]]:
    table = instance.tables.get(key, {})
    if not isinstance(table, Mapping):
        raise InputError(f"$.tables.{key} is {type(table).__name__}, expected values by job")
    for name, value in table.items():
        if name not in instance.task_index:
            near = nearest(str(name), list(instance.task_index)[:10000], what="jobs")
            raise InputError(f"$.tables.{key} names {name!r}, which is no job; {near}")
        yield name, value


def _current(instance: Instance) -> Numbers:
    has = np.zeros((instance.n_tasks, instance.n_devices), np.int64)
    for name, row in _by_job(instance, "current"):
        if not isinstance(row, Mapping):
            raise InputError(f"$.tables.current.{name} is {type(row).__name__}, expected accelerators by type")
        for device, count in row.items():
            if (
                device not in instance.device_index
                or isinstance(count, bool)
                or not isinstance(count, int)
                or count < 0
            ):
                raise InputError(
                    f"$.tables.current.{name} has {device!r}: {count!r}, expected a type and its accelerators"
                )
            has[instance.task_index[name], instance.device_index[device]] = count
    return has
