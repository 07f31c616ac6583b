"""Columns of tasks and jobs behind :class:`~hetopt.instance.Instance`: filled once, checked once, read-only afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from hetopt.errors import InputError, nearest
from hetopt.records import Device, Job, Mode, Task

__all__ = ["MAX_CELLS", "Columns", "columns_of", "device_lookup"]

MAX_CELLS = 1 << 28
"""Times an instance may have, tasks times devices (2 GiB); more is refused before memory is taken."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Lookup = Mapping[str, Ints]

_CHUNK = 4096
_EXACT = 2.0**53  # integers beyond it are not all representable, so sums would no longer be exact
_JOB_FACTS = {
    "weight": 1.0,
    "release": 0.0,
    "due": np.inf,
    "deadline": np.inf,
    "period": np.nan,
    "steps": np.nan,
    "scale": 1.0,
}
_TASK_FACTS = {
    "memory": 0.0,
    "output": 0.0,
    "kv_bytes_per_token": 0.0,
    "activation": 0.0,
    "backward": False,
    "cut": True,
}


@dataclass(frozen=True, eq=False)
class Columns:
    """One array per fact. ``n`` tasks, ``d`` devices, ``j`` jobs, ``e`` edges; Instance's properties give the meaning.

    ``own_task`` (j,) marks jobs that are their own single task; ``edge_data`` is nan where the source's output travels;
    ``allowed`` (n, d) is None when there is no pin and no forbid; ``due`` and ``deadline`` are inf, ``period`` and
    ``steps`` nan when absent; ``pin``, ``forbid`` and ``modes`` are sparse, by task number.
    """

    job_name: tuple[str, ...]
    task_name: tuple[str, ...]
    job_of: Ints
    own_task: NDArray[np.bool_]
    time: Floats
    weight: Floats
    release: Floats
    due: Floats
    deadline: Floats
    period: Floats
    steps: Floats
    scale: Floats
    memory: Floats
    output: Floats
    kv_bytes_per_token: Floats
    activation: Floats
    backward: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    group: Ints
    group_name: tuple[str, ...]
    edges: Ints
    edge_data: Floats
    allowed: NDArray[np.bool_] | None = None
    cost: Floats | None = None
    energy: Floats | None = None
    pin: Mapping[int, str | list[str]] = field(default_factory=dict)
    forbid: Mapping[int, str | list[str]] = field(default_factory=dict)
    modes: Mapping[int, tuple[Mode, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        _check(self)

    @classmethod
    def independent(
        cls,
        names: tuple[str, ...],
        time: Floats,
        devices: Sequence[Device],
        *,
        memory: ArrayLike | None,
        weight: ArrayLike | None,
        release: ArrayLike | None,
        due: ArrayLike | None,
    ) -> Columns:
        """Columns of jobs that are their own single task, straight from arrays."""
        n = len(names)
        facts = _defaults(n, n)
        given = {"memory": memory, "weight": weight, "release": release, "due": due}
        facts.update({key: _vector(key, value, n) for key, value in given.items() if value is not None})
        return cls(
            job_name=names,
            task_name=names,
            job_of=np.arange(n, dtype=np.int64),
            own_task=np.ones(n, bool),
            time=time,
            **facts,
        )

    @classmethod
    def graph(
        cls,
        names: tuple[str, ...],
        time: Floats,
        devices: Sequence[Device],
        edges: ArrayLike,
        *,
        output: ArrayLike | None,
        memory: ArrayLike | None,
        group: Sequence[str | None] | None,
        backward: ArrayLike | None,
    ) -> Columns:
        """Columns of one job whose tasks form a graph, straight from arrays."""
        n = len(names)
        facts = _defaults(1, n)
        given = {"memory": memory, "output": output}
        facts.update({key: _vector(key, value, n) for key, value in given.items() if value is not None})
        if backward is not None:
            facts["backward"] = np.array(np.broadcast_to(np.asarray(backward, bool), (n,)))
        if group is not None:
            if len(group) != n:
                raise InputError(f"group has {len(group)} entries, expected {n}")
            facts["group"], facts["group_name"] = _codes(dict(enumerate(group)), n)
        pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
        if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
            raise InputError(f"edges name task {int(pairs.max())}, expected numbers from 0 to {n - 1}")
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        return cls(
            job_name=("job",),
            task_name=names,
            job_of=np.zeros(n, np.int64),
            own_task=np.zeros(1, bool),
            time=time,
            **(facts | {"edges": pairs, "edge_data": np.full(len(pairs), np.nan)}),
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """(n,) unique label of each task: ``task`` in a single graph, the job's name for a job of its own, else ``job/task``."""
        if self.own_task.all() or len(self.job_name) == 1:
            return self.task_name
        own, job = self.own_task, self.job_name
        return tuple(
            name if own[k] else f"{job[k]}/{name}" for name, k in zip(self.task_name, self.job_of.tolist(), strict=True)
        )

    def path(self, index: int) -> str:
        """JSON path of task ``index``."""
        j = int(self.job_of[index])
        first = int(np.searchsorted(self.job_of, j))
        return f"$.jobs[{j}]" if self.own_task[j] else f"$.jobs[{j}].tasks[{index - first}]"

    def task(self, index: int) -> Task:
        """Record of task ``index``; times, costs and energies as lists in device order."""
        return next(self._records(Task, index, index + 1))

    def jobs(self) -> Iterator[Job]:
        """Records of the jobs, made one by one."""
        count = len(self.job_name)
        first = np.searchsorted(self.job_of, np.arange(count + 1))
        edge_first = np.searchsorted(self.edges[:, 0], first)
        shared = {key: _present(getattr(self, key), default) for key, default in _JOB_FACTS.items()}
        own = self._records(Job, 0, len(self.task_name), {key: facts for key, facts in shared.items() if facts})
        if self.own_task.all():
            yield from own
            return
        for j, (name, lone) in enumerate(zip(self.job_name, self.own_task.tolist(), strict=True)):
            record = next(own)
            if lone:
                yield record
                continue
            start, stop = int(first[j]), int(first[j + 1])
            for _ in range(start + 1, stop):
                next(own)

    def fingerprint(self) -> Iterator[bytes]:
        """Bytes that determine every fact, for a digest."""
        for part in fields(self):
            value = getattr(self, part.name)
            yield part.name.encode() + b"\0"
            if isinstance(value, np.ndarray):
                yield repr((value.dtype.str, value.shape)).encode()
                yield value.tobytes()
            elif isinstance(value, tuple):
                yield "\0".join(value).encode()
            elif value is not None:
                yield msgspec.json.encode(sorted(value.items()))


def device_lookup(devices: Sequence[Device]) -> dict[str, Ints]:
    """Device numbers that a name or a type stands for; a device's name wins over an equal type.

    Raises
    ------
    InputError
        There is no device, two share a name, or one is called ``"host"`` or ``"*"``.
    """
    if not devices:
        raise InputError("$.devices is empty; expected at least one device")
    lookup: dict[str, Any] = {}
    for k, device in enumerate(devices):
        lookup.setdefault(device.type or device.name, []).append(k)
    names: dict[str, int] = {}
    for k, device in enumerate(devices):
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
        self.job_facts: dict[str, dict[int, float]] = {key: {} for key in _JOB_FACTS}
        self.task_facts: dict[str, dict[int, Any]] = {key: {} for key in _TASK_FACTS}
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
        for key, default in _JOB_FACTS.items():
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
        for key in ("time", "group", "pin", "forbid", "cost", "energy"):
            if getattr(job, key) is not None:
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
        self.task_names.append(task.name)
        self.job_of.append(j)
        for key, default in _TASK_FACTS.items():
            value = getattr(task, key)
            if value != default:
                self.task_facts[key][k] = value
        for key, entries in self.sparse.items():
            value = getattr(task, key)
            if value:
                entries[k] = tuple(value) if key == "modes" else value
        for key, rows in self.tables.items():
            value = getattr(task, key)
            if value is not None:
                rows[k] = self.row(value, f"{path}.{key}")
        if task.time is None:
            if not task.modes:
                raise InputError(
                    f"{path} has no `time`; expected a list of {self.d} numbers or a map by device name or type"
                )
            self.time.append(self.fastest_mode(task, path))
        else:
            self.time.append(self.row(task.time, f"{path}.time"))

    def fastest_mode(self, task: Job | Task, path: str) -> Floats:
        """(d,) least time over the modes, for questions that know no modes."""
        rows = [
            self.row(mode.time, f"{path}.modes[{k}].time") for k, mode in enumerate(task.modes) if mode.time is not None
        ]
        if not rows:
            raise InputError(f"{path} has neither `time` nor a mode with `time`; expected one of them")
        return np.min(rows, axis=0)  # type: ignore[no-any-return]

    def row(self, table: Any, path: str) -> Floats:
        """(d,) numbers of a list in device order or of a map by device name or type; ``inf`` where absent or null."""
        if isinstance(table, list):
            if len(table) != self.d:
                raise InputError(f"{path} has {len(table)} entries, expected {self.d}, one a device")
            row = np.array(table, np.float64)
        else:
            row = np.full(self.d, np.nan)
            # Types first, names second, so that a device's own entry overrides its type's.
            for key in sorted(table, key=lambda name: len(self.lookup.get(name, ())), reverse=True):
                if key not in self.lookup:
                    hint = nearest(key, self.lookup, what="devices and types")
                    raise InputError(f"{path} has the key {key!r}, which is no device and no type; {hint}")
                value = table[key]
                row[self.lookup[key]] = np.nan if value is None else value
        row[np.isnan(row)] = np.inf
        finite = row[row < np.inf]
        if finite.size and finite.max() >= _EXACT:
            entries = table if isinstance(table, list) else list(table.values())
            for value in entries:
                if isinstance(value, int) and value > _EXACT:
                    raise InputError(
                        f"{path} holds the integer {value}, beyond 2^53; expected smaller numbers: use a larger unit"
                    )
        if finite.size and finite.min() < 0:
            raise InputError(f"{path} holds {finite.min():g}, expected numbers >= 0")
        return row

    def columns(self) -> Columns:
        n, j = len(self.task_names), len(self.own)
        if not n:
            raise InputError("$.jobs is empty; expected at least one job")
        facts = _defaults(j, n)
        for group, size in ((self.job_facts, j), (self.task_facts, n)):
            for key, entries in group.items():
                _scatter(facts[key], entries, size)
        group_of, group_name = _codes(self.sparse["group"], n)
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
                        raise InputError(
                            f"{key} of task {self.task_names[k]!r} is {name!r}, expected a device or a type; {hint}"
                        )
                    allowed[k, self.lookup[name]] = value
        return allowed


class _Rows:
    """A matrix that grows by chunks, so that a million rows cost little more than their numbers."""

    def __init__(self, width: int) -> None:
        self.width, self.full = width, []  # type: int, list[Floats]
        self.chunk = np.empty((_CHUNK, width))
        self.used = 0

    def append(self, row: Floats) -> None:
        if self.used == len(self.chunk):
            self.full.append(self.chunk)
            self.chunk = np.empty((min(len(self.chunk) * 2, 1 << 16), self.width))
            self.used = 0
        self.chunk[self.used] = row
        self.used += 1

    def matrix(self) -> Floats:
        return np.concatenate([*self.full, self.chunk[: self.used]])


def _defaults(j: int, n: int) -> dict[str, Any]:
    facts: dict[str, Any] = {key: np.full(j, value) for key, value in _JOB_FACTS.items()}
    facts |= {key: np.full(n, value) for key, value in _TASK_FACTS.items()}
    return facts | {
        "group": np.full(n, -1, np.int64),
        "group_name": (),
        "edges": np.empty((0, 2), np.int64),
        "edge_data": np.empty(0),
    }


def _scatter(array: NDArray[Any], entries: Mapping[int, Any], size: int) -> None:
    if entries:
        array[np.fromiter(entries.keys(), np.int64, len(entries))] = np.array(list(entries.values()), array.dtype)


def _codes(names: Mapping[int, str | None], n: int) -> tuple[Ints, tuple[str, ...]]:
    code: dict[str, int] = {}
    group = np.full(n, -1, np.int64)
    for k, name in names.items():
        if name is not None:
            group[k] = code.setdefault(str(name), len(code))
    return group, tuple(code)


def _vector(key: str, value: ArrayLike, n: int) -> Floats:
    try:
        vector = np.array(np.broadcast_to(np.asarray(value, np.float64), (n,)))
    except ValueError:
        raise InputError(f"{key} has shape {np.shape(value)}, expected ({n},)") from None
    if np.isnan(vector).any() or (vector < 0).any():
        raise InputError(f"{key} holds a number that is negative or not a number; expected numbers >= 0")
    return vector


def _check(columns: Columns) -> None:
    time = columns.time
    if not time.size:
        raise InputError("times is empty; expected at least one task and one device")
    if (time < 0).any():
        k, i = np.argwhere(time < 0)[0].tolist()
        raise InputError(f"{columns.path(k)}.time[{i}] is {time[k, i]:g}; expected a number >= 0")
    if len(set(columns.labels)) != len(columns.labels):
        seen: set[str] = set()
        label = next(label for label in columns.labels if label in seen or seen.add(label))  # type: ignore[func-returns-value]
        raise InputError(f"two tasks are called {label!r}; names are unique, and 'job/task' must not name another job")
    can_run = np.isfinite(time) if columns.allowed is None else np.isfinite(time) & columns.allowed
    nowhere = np.flatnonzero(~can_run.any(axis=1))
    if nowhere.size:
        label = columns.labels[int(nowhere[0])]
        why = (
            "no time is given for any device"
            if not np.isfinite(time[nowhere[0]]).any()
            else "pin and forbid leave no device"
        )
        raise InputError(f"task {label!r} can run nowhere: {why}; give it a time on at least one device")
    edges = columns.edges
    if len(edges):
        n = len(columns.task_name)
        if (edges[1:] == edges[:-1]).all(axis=1).any():
            raise InputError("edges hold a pair twice; expected each edge once")
        graph = sparse.csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
        count, component = csgraph.connected_components(graph, directed=True, connection="strong")
        loops = edges[edges[:, 0] == edges[:, 1], 0]
        if count < n or loops.size:
            inside = loops[:1] if loops.size else np.flatnonzero(component == np.argmax(np.bincount(component)))
            names = ", ".join(repr(columns.labels[int(k)]) for k in inside[:6])
            raise InputError(
                f"edges form a cycle through {names}{', ...' if len(inside) > 6 else ''}; expected a graph without cycles"
            )


def _listed(row: Floats) -> list[int | float | None]:
    """A row as JSON numbers: integers where the whole row is integral, None where the task cannot run."""
    finite = np.isfinite(row)
    known = row[finite]
    whole = bool((known == np.floor(known)).all()) and (not known.size or known.max() < _EXACT)
    values: list[Any] = (known.astype(np.int64) if whole else known).tolist()
    if len(values) == len(row):
        return values
    rest = iter(values)
    return [next(rest) if ok else None for ok in finite.tolist()]


def _number(value: float) -> int | float:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT else value


def _numbers(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: _number(value) if isinstance(value, float) else value for key, value in facts.items()}
