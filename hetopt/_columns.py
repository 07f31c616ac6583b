"""Columns of tasks and jobs behind :class:`~hetopt.instance.Instance`: checked once, read-only afterwards.

:mod:`hetopt._filling` makes them from records; this file checks them and makes records of them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from hetopt.errors import InputError
from hetopt.records import Device, Edge, Job, Mode, Task

__all__ = [
    "CHUNK", "EXACT", "JOB_FACTS", "TASK_FACTS", "Columns", "codes", "defaults", "first_task", "in_range", "refuse_number",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 4096
EXACT = 2.0**53  # integers beyond it are not all representable, so sums would no longer be exact
LARGEST = 1e140  # a product of two sums of such numbers is still finite
JOB_FACTS = {
    "weight": 1.0,
    "release": 0.0,
    "due": np.inf,
    "deadline": np.inf,
    "period": np.nan,
    "steps": np.nan,
    "scale": 1.0,
}
TASK_FACTS = {
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
                if value.dtype.kind == "f" and value.flags.writeable:
                    value += 0.0  # no -0.0, which would be another digest for the same facts
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
        facts = defaults(n, n)
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
        facts = defaults(1, n)
        given = {"memory": memory, "output": output}
        facts.update({key: _vector(key, value, n) for key, value in given.items() if value is not None})
        if backward is not None:
            facts["backward"] = np.array(np.broadcast_to(np.asarray(backward, bool), (n,)))
        if group is not None:
            if len(group) != n:
                raise InputError(f"group has {len(group)} entries, expected {n}")
            facts["group"], facts["group_name"] = codes(dict(enumerate(group)), n)
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
        return f"$.jobs[{j}]" if self.own_task[j] else f"$.jobs[{j}].tasks[{index - first_task(self.job_of, j)}]"

    def task(self, index: int) -> Task:
        """Record of task ``index``; times, costs and energies as lists in device order."""
        return Task(name=self.task_name[index], **next(self._facts(index, index + 1)))

    def jobs(self) -> Iterator[Job]:
        """Records of the jobs, made one by one."""
        own_facts = [(key, _given(getattr(self, key), default, 0)) for key, default in JOB_FACTS.items()]
        own_facts = [(key, values) for key, values in own_facts if values]
        facts = self._facts(0, len(self.task_name))
        task = 0
        edge = 0
        for j, name in enumerate(self.job_name):
            own = {key: values[j] for key, values in own_facts if j in values}
            if self.own_task[j]:
                yield Job(name=name, **next(facts), **own)
                task += 1
                continue
            start, task = task, int(np.searchsorted(self.job_of, j, side="right"))
            tasks = [Task(name=self.task_name[k], **next(facts)) for k in range(start, task)]
            first, edge = edge, int(np.searchsorted(self.edges[:, 0], task))
            edges = [
                Edge(source=self.task_name[a], target=self.task_name[b], data=None if np.isnan(w) else _number(w))
                for (a, b), w in zip(self.edges[first:edge].tolist(), self.edge_data[first:edge].tolist(), strict=True)
            ]
            yield Job(name=name, tasks=tasks, edges=edges, **own)

    def _facts(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """What tasks ``start`` to ``stop`` say beyond their names, defaults left out; linear, a chunk at a time."""
        sparse: list[tuple[str, Mapping[int, Any]]]
        sparse = [(key, _given(getattr(self, key)[start:stop], default, start)) for key, default in TASK_FACTS.items()]
        groups = _given(self.group[start:stop], -1, start)
        sparse.append(("group", {k: self.group_name[code] for k, code in groups.items()}))
        sparse += [("pin", self.pin), ("forbid", self.forbid), ("modes", {k: list(v) for k, v in self.modes.items()})]
        sparse = [(key, values) for key, values in sparse if values]
        tables = [(key, getattr(self, key)) for key in ("time", "cost", "energy") if getattr(self, key) is not None]
        for low in range(start, stop, CHUNK):
            high = min(low + CHUNK, stop)
            rows = [(key, _listed(table[low:high])) for key, table in tables]
            for k in range(low, high):
                facts = {key: lists[k - low] for key, lists in rows}
                for key, values in sparse:
                    if k in values:
                        facts[key] = values[k]
                yield facts

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


def defaults(j: int, n: int) -> dict[str, Any]:
    """Columns of ``j`` jobs and ``n`` tasks of which nothing is said."""
    facts: dict[str, Any] = {key: np.full(j, value) for key, value in JOB_FACTS.items()}
    facts |= {key: np.full(n, value) for key, value in TASK_FACTS.items()}
    return facts | {
        "group": np.full(n, -1, np.int64),
        "group_name": (),
        "edges": np.empty((0, 2), np.int64),
        "edge_data": np.empty(0),
    }


def codes(names: Mapping[int, str | None], n: int) -> tuple[Ints, tuple[str, ...]]:
    """(n,) number of each task's name, counted in order of first appearance and -1 for none, and the names."""
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
    for table in ("time", "cost", "energy"):
        values = getattr(columns, table)
        if values is None:
            continue
        odd = (values < 0) | ((values > LARGEST) & (values < np.inf))
        if odd.any():
            k, i = np.argwhere(odd)[0].tolist()
            refuse_number(f"{columns.path(k)}.{table}[{i}]", float(values[k, i]))
    _check_facts(columns)
    if len(set(columns.labels)) != len(columns.labels):
        seen: set[str] = set()
        label = next(label for label in columns.labels if label in seen or seen.add(label))  # type: ignore[func-returns-value]
        raise InputError(f"two tasks are called {label!r}; names are unique, and 'job/task' must not name another job")
    can_run = np.isfinite(time) if columns.allowed is None else np.isfinite(time) & columns.allowed
    nowhere = np.flatnonzero(~can_run.any(axis=1))
    if nowhere.size:
        k = int(nowhere[0])
        why = "no time is given for any device" if not np.isfinite(time[k]).any() else "pin and forbid leave no device"
        raise InputError(
            f"{columns.path(k)} (task {columns.labels[k]!r}) can run nowhere: {why}; give it a time on at least one device"
        )
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


def _check_facts(columns: Columns) -> None:
    """Facts of jobs and tasks are finite and not negative, where they are given."""
    for facts, of_job in ((JOB_FACTS, True), (TASK_FACTS, False)):
        for key, default in facts.items():
            values = getattr(columns, key)
            if values.dtype.kind != "f":
                continue
            fine = (values >= 0) & (values <= LARGEST) | (values == default)
            wrong = np.flatnonzero(~(fine | np.isnan(values)) if np.isnan(default) else ~fine)
            if wrong.size:
                k = int(wrong[0])
                refuse_number(f"{f'$.jobs[{k}]' if of_job else columns.path(k)}.{key}", float(values[k]), "")
    odd = np.flatnonzero((columns.edge_data < 0) | (columns.edge_data > LARGEST))
    if odd.size:
        ends = " -> ".join(repr(columns.labels[k]) for k in columns.edges[odd[0]].tolist())
        refuse_number(f"the data of edge {ends}", float(columns.edge_data[odd[0]]), "")


def in_range(value: int | float) -> bool:
    """Whether a time is not negative, exact as a float when an integer, and small enough for sums to stay finite."""
    return 0 <= value <= (EXACT if isinstance(value, int) else LARGEST)


def refuse_number(path: str, value: int | float, also: str = ", or null where the task cannot run") -> NoReturn:
    """Raise the InputError that says what is wrong with a number at a path of the file."""
    if isinstance(value, int) and value > EXACT:
        raise InputError(f"{path} is an integer beyond 2^53; expected smaller numbers: use a larger unit")
    if LARGEST < value < np.inf:
        raise InputError(
            f"{path} is {value:g}, so large that sums may overflow; expected at most {LARGEST:g}: use a larger unit"
        )
    raise InputError(f"{path} is {value}, expected a finite number >= 0{also}")


def first_task(job_of: Sequence[int] | Ints, job: int) -> int:
    """Number of the first task of a job."""
    return int(np.searchsorted(job_of, job))


def _listed(rows: Floats) -> list[list[int | float | None]]:
    """Rows as JSON numbers: integers where the whole row is integral, None where the task cannot run."""
    finite = np.isfinite(rows)
    known = np.where(finite, rows, 0.0)
    whole = (known == np.floor(known)).all(axis=1) & (known.max(axis=1) < EXACT)
    lists: list[Any] = known.tolist()
    for k, integers in zip(np.flatnonzero(whole).tolist(), known[whole].astype(np.int64).tolist(), strict=True):
        lists[k] = integers
    for k, i in np.argwhere(~finite).tolist():
        lists[k][i] = None
    return lists


def _given(values: NDArray[Any], default: Any, first: int) -> dict[int, Any]:
    """Numbers that differ from the default and are known, by index counted from ``first``."""
    where = values != default
    if values.dtype.kind == "f":
        where &= np.isfinite(values)
    index = np.flatnonzero(where)
    return dict(zip((index + first).tolist(), map(_number, values[index].tolist()), strict=True))


def _number(value: float) -> int | float:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value
