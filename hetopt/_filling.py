"""From records to columns: one pass over devices and jobs that collects every fact and refuses what cannot be right.

Jobs may come from a generator that decodes a file piece by piece, so memory stays close to that of the arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt._columns import (
    CHUNK,
    EXACT,
    JOB_FACTS,
    TASK_FACTS,
    Columns,
    codes,
    defaults,
    first_task,
    in_range,
    refuse_number,
)
from hetopt.errors import InputError, nearest
from hetopt.records import Device, Job, Mode, Task

__all__ = ["MAX_CELLS", "columns_of", "device_lookup"]

Floats = NDArray[np.float64]
Lookup = Mapping[str, NDArray[np.int64]]

MAX_CELLS = 1 << 28
"""Times an instance may have, tasks times devices (2 GiB); more is refused before memory is taken."""

_DEVICE_NUMBERS = (
    "memory",
    "reserved",
    "available_from",
    "idle_power",
    "power",
    "price",
    "slots",
    "max_tasks",
    "due",
    "weight",
)

# Most records of a large file say nothing but name and time: one comparison of tuples tells.
_JOB_SAYS, _JOB_SILENT = attrgetter(*JOB_FACTS), (1, 0, None, None, None, None, 1)
_TASK_KEYS = (*TASK_FACTS, "group", "pin", "forbid", "modes", "cost", "energy")
_TASK_SAYS = attrgetter(*_TASK_KEYS)
_TASK_SILENT: tuple[Any, ...] = (*TASK_FACTS.values(), None, None, None, [], None, None)


def device_lookup(devices: Sequence[Device]) -> dict[str, NDArray[np.int64]]:
    """Device numbers that a name or a type stands for; a device's name wins over an equal type.

    Raises
    ------
    InputError
        There is no device, two share a name, one is called ``"host"`` or ``"*"``, or a number is negative or not finite.
    """
    if not devices:
        raise InputError("$.devices is empty; expected at least one device")
    lookup: dict[str, Any] = {}
    for k, device in enumerate(devices):
        lookup.setdefault(device.type or device.name, []).append(k)
    names: dict[str, int] = {}
    for k, device in enumerate(devices):
        for key in _DEVICE_NUMBERS:
            value = getattr(device, key)
            if value is not None and not in_range(value):
                refuse_number(f"$.devices[{k}].{key}", value, "")
        if device.name in names:
            raise InputError(
                f"$.devices[{k}].name repeats {device.name!r} of $.devices[{names[device.name]}]; names are unique"
            )
        if device.name in ("host", "*"):
            raise InputError(
                f"$.devices[{k}].name is {device.name!r}, which links use for something else; choose another"
            )
        names[device.name] = k
    lookup.update({name: [k] for name, k in names.items()})
    return {key: np.array(where, np.int64) for key, where in lookup.items()}


def columns_of(jobs: Iterable[Job], devices: Sequence[Device], lookup: Lookup) -> Columns:
    """Columns from records, in one pass; ``jobs`` may be a generator that decodes a file piece by piece.

    Raises
    ------
    InputError
        Whatever :meth:`Instance.build` lists; the message starts with the JSON path.
    """
    fill = _Filler(devices, lookup)
    for j, job in enumerate(jobs):
        fill.job(j, job)
    return fill.columns()


class _Filler:
    """Collects rows and sparse facts job by job."""

    def __init__(self, devices: Sequence[Device], lookup: Lookup) -> None:
        self.d, self.lookup = len(devices), lookup
        self.job_names: dict[str, int] = {}
        self.task_names: list[str] = []
        self.job_of: list[int] = []
        self.own: list[bool] = []
        self.job_facts: dict[str, dict[int, float]] = {key: {} for key in JOB_FACTS}
        self.task_facts: dict[str, dict[int, Any]] = {key: {} for key in TASK_FACTS}
        self.sparse: dict[str, dict[int, Any]] = {key: {} for key in ("group", "pin", "forbid", "modes")}
        self.tables: dict[str, dict[int, Floats]] = {"cost": {}, "energy": {}}
        self.time = _Rows(self.d)
        self.edge_list: list[tuple[int, int]] = []
        self.edge_data: list[float] = []

    def job(self, j: int, job: Job) -> None:
        path = f"$.jobs[{j}]"
        if self.job_names.setdefault(job.name, j) != j:
            raise InputError(
                f"{path}.name repeats {job.name!r} of $.jobs[{self.job_names[job.name]}]; job names are unique"
            )
        if _JOB_SAYS(job) != _JOB_SILENT:
            for key, default in JOB_FACTS.items():
                value = getattr(job, key)
                if value is not None and value != default:
                    self.job_facts[key][j] = value
        self.own.append(job.tasks is None)
        if job.tasks is None:
            if job.edges:
                raise InputError(f"{path}.edges are given, but the job has no tasks; expected `tasks` beside `edges`")
            self.task(j, job, path)
            return
        if not job.tasks:
            raise InputError(
                f"{path}.tasks is empty; expected at least one task, or no `tasks` for a job that is one itself"
            )
        if job.time is not None or _TASK_SAYS(job) != _TASK_SILENT:
            silent = {"time": None, **dict(zip(_TASK_KEYS, _TASK_SILENT, strict=True))}
            key = next(key for key, value in silent.items() if getattr(job, key) != value)
            raise InputError(f"{path}.{key} is given beside `tasks`; expected it inside each task")
        start = len(self.task_names)
        local: dict[str, int] = {}
        for k, task in enumerate(job.tasks):
            if local.setdefault(task.name, k) != k:
                raise InputError(
                    f"{path}.tasks[{k}].name repeats {task.name!r} of tasks[{local[task.name]}]; names are unique in a job"
                )
            self.task(j, task, f"{path}.tasks[{k}]")
        seen: set[tuple[int, int]] = set()
        for k, edge in enumerate(job.edges):
            for key, end in (("from", edge.source), ("to", edge.target)):
                if end not in local:
                    raise InputError(
                        f"{path}.edges[{k}].{key} is {end!r}, which is no task of the job; {nearest(end, local, what='tasks')}"
                    )
            pair = (start + local[edge.source], start + local[edge.target])
            if pair in seen:
                raise InputError(
                    f"{path}.edges[{k}] repeats the edge {edge.source!r} -> {edge.target!r}; write it once"
                )
            seen.add(pair)
            self.edge_list.append(pair)
            self.edge_data.append(np.nan if edge.data is None else edge.data)

    def task(self, j: int, task: Job | Task, path: str) -> None:
        k = len(self.task_names)
        if (k + 1) * self.d > MAX_CELLS:
            raise InputError(f"{path}: more than {MAX_CELLS} times (tasks times {self.d} devices); split the instance")
        self.task_names.append(task.name)
        self.job_of.append(j)
        if _TASK_SAYS(task) != _TASK_SILENT:
            self.facts(k, task, path)
        if task.time is not None:
            self.time.append(self.row(task.time, f"{path}.time"), f"{path}.time")
        elif task.modes:
            self.time.append(self.fastest_mode(task, path), f"{path}.modes")
        else:
            raise InputError(
                f"{path} has no `time`; expected a list of {self.d} numbers or a map by device name or type"
            )

    def facts(self, k: int, task: Job | Task, path: str) -> None:
        """What a task says beyond name and time."""
        for key, default in TASK_FACTS.items():
            value = getattr(task, key)
            if value != default:
                self.task_facts[key][k] = value
        for key, entries in self.sparse.items():
            value = getattr(task, key)
            if value:
                entries[k] = tuple(value) if key == "modes" else value
        for number, mode in enumerate(task.modes):
            self.check_mode(mode, f"{path}.modes[{number}]")
        for key, rows in self.tables.items():
            value = getattr(task, key)
            if value is not None:
                rows[k] = self.numbers(value, f"{path}.{key}")

    def check_mode(self, mode: Mode, path: str) -> None:
        """InputError where a mode's own numbers could not be a task's."""
        for key in ("time", "energy", "cost"):
            table = getattr(mode, key)
            if table is not None:
                self.numbers(table, f"{path}.{key}")
        for key in ("memory", "output", "score"):
            value = getattr(mode, key)
            if value is not None and not in_range(abs(value)):
                refuse_number(f"{path}.{key}", abs(value), "")

    def fastest_mode(self, task: Job | Task, path: str) -> Floats:
        """(d,) least time over the modes, for questions that know no modes."""
        rows = [
            self.numbers(mode.time, f"{path}.modes[{k}].time")
            for k, mode in enumerate(task.modes)
            if mode.time is not None
        ]
        if not rows:
            raise InputError(f"{path} has neither `time` nor a mode with `time`; expected one of them")
        return np.min(rows, axis=0)  # type: ignore[no-any-return]

    def row(self, table: Any, path: str) -> list[Any] | Floats:
        """The numbers of a list in device order, as they are, or (d,) those of a map; see :class:`_Rows`."""
        if isinstance(table, list):
            if len(table) != self.d:
                raise InputError(f"{path} has {len(table)} entries, expected {self.d}, one a device")
            return table
        row = np.full(self.d, np.inf)
        # Types first, names second, so that a device's own entry overrides its type's.
        for key in sorted(table, key=lambda name: len(self.lookup.get(name, ())), reverse=True):
            if key not in self.lookup:
                hint = nearest(key, self.lookup, what="devices and types")
                raise InputError(f"{path} has the key {key!r}, which is no device and no type; {hint}")
            value = table[key]
            if value is not None and not in_range(value):
                refuse_number(f"{path}.{key}", value)
            row[self.lookup[key]] = np.inf if value is None else value
        return row

    def numbers(self, table: Any, path: str) -> Floats:
        """(d,) numbers of a list or a map; ``inf`` where absent or null."""
        rows = _Rows(self.d)
        rows.append(self.row(table, path), path)
        return rows.matrix()[0]  # type: ignore[no-any-return]

    def columns(self) -> Columns:
        n, j = len(self.task_names), len(self.own)
        if not n:
            raise InputError("$.jobs is empty; expected at least one job")
        facts = defaults(j, n)
        for group, size in ((self.job_facts, j), (self.task_facts, n)):
            for key, entries in group.items():
                _scatter(facts[key], entries, size)
        group_of, group_name = codes(self.sparse["group"], n)
        tables: dict[str, Any] = {}
        for key, rows in self.tables.items():
            if rows:
                tables[key] = np.zeros((n, self.d))
                for k, row in rows.items():
                    tables[key][k] = row
        edges = np.array(self.edge_list, np.int64).reshape(-1, 2)
        order = np.lexsort((edges[:, 1], edges[:, 0]))
        return Columns(
            job_name=tuple(self.job_names),
            task_name=tuple(self.task_names),
            job_of=np.array(self.job_of, np.int64),
            own_task=np.array(self.own, bool),
            time=self.time.matrix(),
            allowed=self.allowed(n),
            pin=self.sparse["pin"],
            forbid=self.sparse["forbid"],
            modes=self.sparse["modes"],
            **tables,
            **(
                facts
                | {
                    "group": group_of,
                    "group_name": group_name,
                    "edges": edges[order],
                    "edge_data": np.array(self.edge_data, np.float64)[order],
                }
            ),
        )

    def allowed(self, n: int) -> NDArray[np.bool_] | None:
        pin, forbid = self.sparse["pin"], self.sparse["forbid"]
        if not pin and not forbid:
            return None
        allowed = np.ones((n, self.d), bool)
        for key, entries, value in (("pin", pin, True), ("forbid", forbid, False)):
            for k, names in entries.items():
                if value:
                    allowed[k] = False
                for name in [names] if isinstance(names, str) else names:
                    if name not in self.lookup:
                        hint = nearest(name, self.lookup, what="devices and types")
                        j = self.job_of[k]
                        inside = "" if self.own[j] else f".tasks[{k - first_task(self.job_of, j)}]"
                        raise InputError(f"$.jobs[{j}]{inside}.{key} is {name!r}, expected a device or a type; {hint}")
                    allowed[k, self.lookup[name]] = value
        return allowed


class _Rows:
    """A matrix that grows by chunks, so that a million rows cost little more than their numbers.

    A row is a list of numbers and None, checked when its chunk is full, or an array (``inf`` for None) already checked.
    """

    def __init__(self, width: int) -> None:
        self.chunks: list[Floats] = []
        self.rows: list[list[Any] | Floats] = []
        self.paths: list[str] = []
        self.most = min(CHUNK, 1 + (1 << 20) // width)

    def append(self, row: list[Any] | Floats, path: str) -> None:
        self.rows.append(row)
        self.paths.append(path)
        if len(self.rows) >= self.most:
            self.close()

    def close(self) -> None:
        chunk = np.array(self.rows, np.float64)
        for k, i in np.argwhere(~((chunk >= 0) & (chunk < EXACT))).tolist():
            row = self.rows[k]
            if isinstance(row, list):
                if row[i] is None:
                    chunk[k, i] = np.inf
                elif not in_range(row[i]):
                    refuse_number(f"{self.paths[k]}[{i}]", row[i])
        self.chunks.append(chunk)
        self.rows, self.paths = [], []

    def matrix(self) -> Floats:
        if self.rows or not self.chunks:
            self.close()
        return self.chunks[0] if len(self.chunks) == 1 else np.concatenate(self.chunks)


def _scatter(array: NDArray[Any], entries: Mapping[int, Any], size: int) -> None:
    if entries:
        array[np.fromiter(entries.keys(), np.int64, len(entries))] = np.array(list(entries.values()), array.dtype)
