"""What is to be placed where: devices, links, jobs of tasks, as frozen columns with cached views.

An :class:`Instance` is built from records (:mod:`hetopt.records`) or straight from arrays, validated once, and never changes.
It keeps one array per fact, one entry a task in file order (job by job), because a million jobs must fit; records are handed
out on request (:meth:`Instance.task`). It holds facts only: which objective is asked for is :attr:`Instance.question`, which
a caller may override, and which :attr:`Instance.digest` leaves out. It reads no files and knows no problem.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hetopt._columns import EXACT, LARGEST, Columns, refuse_number
from hetopt._filling import columns_of, device_lookup
from hetopt.errors import InputError, nearest
from hetopt.records import Device, Edge, Job, Link, Mode, Task

__all__ = ["Device", "Edge", "Instance", "Job", "Link", "Mode", "Task"]

HOST = "host"

# How specifically a link names its two ends (2 by name, 1 by type, 0 any), best first: the sum counts, then the source.
_SPECIFIC = ((2, 2), (2, 1), (1, 2), (2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))


@dataclass(frozen=True, eq=False)
class Instance:
    """Devices, links and tasks; ``n`` tasks in ``j`` jobs, ``d`` devices, ``e`` edges. All arrays are read-only.

    Attributes
    ----------
    devices, links
        The records, in file order.
    columns
        One array per fact of tasks and jobs; the properties below read them.
    tables
        Named arrays that single questions define (for example ``"setup"``), as plain nested lists.
    question
        Default question: ``{"objective": ..., option: value, ...}``; may be empty.
    name, description, source
        Free text.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    columns: Columns
    tables: Mapping[str, Any] = field(default_factory=dict)
    question: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    description: str = ""
    source: str = ""

    # Construction ----------------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        devices: Iterable[Device],
        jobs: Iterable[Job],
        links: Iterable[Link] = (),
        *,
        tables: Mapping[str, Any] | None = None,
        question: Mapping[str, Any] | None = None,
        name: str = "",
        description: str = "",
        source: str = "",
    ) -> Instance:
        """Build an instance from records.

        Raises
        ------
        InputError
            No device or no task; a duplicate name; a time list of the wrong length, or a map with an unknown device; a
            number that is negative, not finite, or an integer beyond 2^53; an edge to nowhere, twice, or in a cycle; a task
            that can run nowhere; a pin, forbid or link that names no device. The message starts with the JSON path.
        """
        devices = tuple(devices)
        lookup = device_lookup(devices)
        links = tuple(links)
        _check_links(links, lookup)
        return cls(
            devices=devices,
            links=links,
            columns=columns_of(jobs, devices, lookup),
            tables=_checked_tables(tables),
            question=dict(question or {}),
            name=name,
            description=description,
            source=source,
        )

    @classmethod
    def from_times(
        cls,
        times: ArrayLike,
        *,
        jobs: Sequence[str] | None = None,
        devices: Sequence[str] | Sequence[Device] | None = None,
        memory: ArrayLike | None = None,
        capacity: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        release: ArrayLike | None = None,
        due: ArrayLike | None = None,
        question: Mapping[str, Any] | None = None,
        name: str = "",
        **more: Any,
    ) -> Instance:
        """Independent jobs from a matrix of times.

        Parameters
        ----------
        times
            (n, d) seconds of job on device; ``inf`` or ``nan`` where it cannot run.
        jobs, devices
            Names (or Device records); ``j0, j1, ...`` and ``d0, d1, ...`` by default.
        memory, capacity
            (n,) bytes a job needs, (d,) bytes a device has (``inf`` for unlimited).
        weight, release, due
            (n,) per job.
        question
            For example ``{"objective": "makespan"}``, which is also the default.
        more
            ``description``, ``source``, ``tables``, ``links``.

        Examples
        --------
        >>> Instance.from_times([[3, 1], [2, 4]]).time.tolist()
        [[3.0, 1.0], [2.0, 4.0]]
        """
        matrix = _matrix(times)
        n, d = matrix.shape
        devs = _devices(devices, d, capacity)
        names = _names(jobs, n, "j")
        columns = Columns.independent(names, matrix, devs, memory=memory, weight=weight, release=release, due=due)
        return cls._from_columns(devs, columns, question or {"objective": "makespan"}, name, more)

    @classmethod
    def from_graph(
        cls,
        times: ArrayLike,
        edges: ArrayLike,
        *,
        output: ArrayLike | None = None,
        memory: ArrayLike | None = None,
        capacity: ArrayLike | None = None,
        tasks: Sequence[str] | None = None,
        devices: Sequence[str] | Sequence[Device] | None = None,
        group: Sequence[str | None] | None = None,
        backward: ArrayLike | None = None,
        question: Mapping[str, Any] | None = None,
        name: str = "",
        **more: Any,
    ) -> Instance:
        """One job whose tasks form a graph.

        Parameters
        ----------
        times
            (n, d) seconds; ``inf`` or ``nan`` where a task cannot run.
        edges
            (e, 2) pairs of task numbers, source then target.
        output, memory
            (n,) bytes a task hands to its successors, and needs on its device.
        group
            (n,) names of colocation groups, None for none.
        backward
            (n,) True for tasks of the backward pass.
        capacity, tasks, devices, question, more
            As in :meth:`from_times`; ``links`` is needed where tasks on different devices must talk.
        """
        matrix = _matrix(times)
        n, d = matrix.shape
        devs = _devices(devices, d, capacity)
        columns = Columns.graph(
            _names(tasks, n, "t"), matrix, devs, edges, output=output, memory=memory, group=group, backward=backward
        )
        return cls._from_columns(devs, columns, question or {}, name, more)

    @classmethod
    def _from_columns(
        cls, devices: tuple[Device, ...], columns: Columns, question: Mapping[str, Any], name: str, more: dict[str, Any]
    ) -> Instance:
        links = tuple(more.pop("links", ()))
        lookup = device_lookup(devices)
        _check_links(links, lookup)
        for key in more:
            if key not in ("description", "source", "tables"):
                known = ("links", "description", "source", "tables")
                raise InputError(f"unknown argument {key!r}; {nearest(key, known, what='the optional arguments')}")
        more["tables"] = _checked_tables(more.get("tables"))
        return cls(devices, links, columns, question=dict(question), name=name, **more)

    # Sizes and names -------------------------------------------------------------------------------------------------

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.columns.task_name)

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.devices)

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.columns.job_name)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """(n,) unique name of each task: the job's own name, ``task`` in a single graph, else ``job/task``."""
        return self.columns.labels

    @cached_property
    def task_index(self) -> dict[str, int]:
        """Task number by label."""
        return {label: k for k, label in enumerate(self.labels)}

    @cached_property
    def device_names(self) -> tuple[str, ...]:
        """(d,) names of the devices."""
        return tuple(device.name for device in self.devices)

    @cached_property
    def device_index(self) -> dict[str, int]:
        """Device number by name."""
        return {name: k for k, name in enumerate(self.device_names)}

    @cached_property
    def device_type(self) -> NDArray[np.int64]:
        """(d,) number of each device's type, types counted in order of first appearance."""
        seen: dict[str, int] = {}
        return _fixed([seen.setdefault(device.type or device.name, len(seen)) for device in self.devices], np.int64)

    # Facts of tasks --------------------------------------------------------------------------------------------------

    @cached_property
    def time(self) -> NDArray[np.float64]:
        """(n, d) seconds of task on device; ``inf`` where it cannot run, is forbidden or is pinned elsewhere."""
        if self.columns.allowed is None:
            return self.columns.time
        return _fixed(np.where(self.columns.allowed, self.columns.time, np.inf))

    @cached_property
    def eligible(self) -> NDArray[np.bool_]:
        """(n, d) whether a task may run on a device."""
        return _fixed(np.isfinite(self.time), bool)

    @property
    def memory(self) -> NDArray[np.float64]:
        """(n,) bytes a task needs on a device that has a memory limit."""
        return self.columns.memory

    @property
    def output(self) -> NDArray[np.float64]:
        """(n,) bytes a task hands to its successors."""
        return self.columns.output

    @property
    def group(self) -> NDArray[np.int64]:
        """(n,) number of the colocation group, -1 for none."""
        return self.columns.group

    @property
    def backward(self) -> NDArray[np.bool_]:
        """(n,) whether a task belongs to the backward pass."""
        return self.columns.backward

    @property
    def job_of(self) -> NDArray[np.int64]:
        """(n,) number of the task's job."""
        return self.columns.job_of

    @property
    def edges(self) -> NDArray[np.int64]:
        """(e, 2) task numbers, source and target, sorted."""
        return self.columns.edges

    @property
    def edge_data(self) -> NDArray[np.float64]:
        """(e,) bytes on each edge: its own ``data``, else its source's output."""
        own = self.columns.edge_data
        return np.where(np.isnan(own), self.output[self.edges[:, 0]], own) if len(own) else own

    @cached_property
    def successors(self) -> sparse.csr_array:
        """(n, n) CSR of the edges; row = source, the stored value is 1."""
        e = self.edges
        return sparse.csr_array((np.ones(len(e)), (e[:, 0], e[:, 1])), shape=(self.n_tasks, self.n_tasks))

    @cached_property
    def integral(self) -> bool:
        """Whether every finite time is an integer, so that loads are exact in integers."""
        finite = self.time[np.isfinite(self.time)]
        return bool((finite == np.floor(finite)).all())

    # Facts of devices ------------------------------------------------------------------------------------------------

    @cached_property
    def capacity(self) -> NDArray[np.float64]:
        """(d,) usable bytes of each device, memory less reserved; ``inf`` when unlimited."""
        return _fixed([np.inf if v.memory is None else max(0.0, v.memory - v.reserved) for v in self.devices])

    @cached_property
    def available_from(self) -> NDArray[np.float64]:
        """(d,) first second each device is free."""
        return _fixed([v.available_from for v in self.devices])

    @cached_property
    def is_host(self) -> NDArray[np.bool_]:
        """(d,) whether a device works in host memory, so that it pays for no transfer."""
        return _fixed([v.host for v in self.devices], bool)

    def link(self, source: str, target: str) -> Link | None:
        """The most specific link from one device to another; either end may be ``"host"``. None when there is none."""
        one, other = self._patterns(source), self._patterns(target)
        return next((self._written[key] for a, b in _SPECIFIC if (key := (one[a], other[b])) in self._written), None)

    @cached_property
    def _written(self) -> dict[tuple[str | None, str | None], Link]:
        """Links by their two ends, each direction once."""
        found: dict[tuple[str | None, str | None], Link] = {(v.target, v.source): v for v in self.links if v.both}
        return found | {(v.source, v.target): v for v in self.links}

    def _patterns(self, end: str) -> tuple[str, str | None, str]:
        """What a link may call a device: any, its type, its name."""
        number = self.device_index.get(end)
        return "*", None if number is None else self.devices[number].type, end

    def need_link(self, source: str, target: str) -> Link:
        """As :meth:`link`, but a missing link is an InputError that names the pair."""
        found = self.link(source, target)
        if found is None:
            raise InputError(
                f"$.links: no entry matches {source!r} -> {target!r}, and tasks on this pair must talk; "
                f'add {{"from": {source!r}, "to": {target!r}, "bandwidth": ...}} or a "*" entry'
            )
        return found

    # Records, digest -------------------------------------------------------------------------------------------------

    def task(self, index: int) -> Task:
        """Record of task number ``index``."""
        return self.columns.task(index)

    def jobs(self) -> Iterable[Job]:
        """Records of all jobs, made one by one; equal to what the instance was built from, times as lists."""
        return self.columns.jobs()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the facts (devices, links, jobs, tables), independent of name, description and question."""
        records = _floats(msgspec.to_builtins({"devices": self.devices, "links": self.links}))
        header = msgspec.json.encode({**records, "tables": dict(self.tables)}, order="sorted")
        total = hashlib.sha256(b"hetopt-instance/1\n" + header)
        for part in self.columns.fingerprint():
            total.update(part)
        return "sha256:" + total.hexdigest()

    def with_question(self, question: Mapping[str, Any]) -> Instance:
        """The same facts under another question."""
        return replace(self, question=dict(question))

    def __repr__(self) -> str:
        return f"Instance({self.name!r}, jobs={self.n_jobs}, tasks={self.n_tasks}, devices={self.n_devices})"


def _floats(value: Any) -> Any:
    """Plain data with every number as a float, so that 40 and 40.0 are the same fact."""
    if isinstance(value, dict):
        return {key: _floats(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_floats(entry) for entry in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check_links(links: tuple[Link, ...], lookup: Mapping[str, NDArray[np.int64]]) -> None:
    seen: set[tuple[str, str]] = set()
    for k, link in enumerate(links):
        if link.bandwidth is not None and not 1 / LARGEST <= link.bandwidth <= LARGEST:
            raise InputError(
                f"$.links[{k}].bandwidth is {link.bandwidth:g}, expected {1 / LARGEST:g} to {LARGEST:g}, or null for no limit"
            )
        if not 0 <= link.latency <= LARGEST:
            raise InputError(f"$.links[{k}].latency is {link.latency:g}, expected from 0 to {LARGEST:g}")
        for key, end in (("from", link.source), ("to", link.target)):
            if end not in lookup and end not in ("*", HOST):
                hint = nearest(end, [*lookup, "*", HOST], what="devices and types")
                raise InputError(f"$.links[{k}].{key} is {end!r}, expected a device, a type, '*' or 'host'; {hint}")
        for pair in {
            (link.source, link.target),
            (link.target, link.source) if link.both else (link.source, link.target),
        }:
            if pair in seen:
                raise InputError(f"$.links[{k}] repeats the link {pair[0]!r} -> {pair[1]!r}; write each direction once")
            seen.add(pair)


def _checked_tables(tables: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tables; InputError where one holds a number that no sum or float can take, whoever reads it."""
    left = [(f"$.tables.{name}", value) for name, value in (tables or {}).items()]
    while left:
        path, value = left.pop()
        if isinstance(value, Mapping):
            left += [(f"{path}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{k}]", v) for k, v in enumerate(value) if isinstance(v, (list, dict)) or not _plain(v)]
        elif not _plain(value):
            refuse_number(path, abs(value), "")
    return dict(tables or {})


def _plain(value: Any) -> bool:
    """Whether a value is no number, or one of ordinary size."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    return abs(value) <= (EXACT if isinstance(value, int) else LARGEST)


def _matrix(times: ArrayLike) -> NDArray[np.float64]:
    try:
        given = np.asarray(times)
    except ValueError as error:
        text = "times has rows of different lengths, expected a number for each device, inf where a job cannot run"
        raise InputError(text) from error
    if given.dtype.kind in "iu" and given.size and int(given.max()) > EXACT:
        raise InputError(
            f"times holds the integer {given.max()}, beyond 2^53; expected smaller numbers: use a larger unit"
        )
    matrix = np.array(given, dtype=np.float64)
    if matrix.ndim != 2:
        raise InputError(f"times has shape {matrix.shape}, expected two axes: tasks and devices")
    matrix[np.isnan(matrix)] = np.inf
    return matrix


def _names(given: Sequence[str] | None, n: int, prefix: str) -> tuple[str, ...]:
    if given is None:
        return tuple(f"{prefix}{k}" for k in range(n))
    if len(given) != n:
        raise InputError(f"{len(given)} names are given for {n} rows of times")
    return tuple(str(name) for name in given)


def _devices(given: Sequence[str] | Sequence[Device] | None, d: int, capacity: ArrayLike | None) -> tuple[Device, ...]:
    named = list(given) if given is not None else [f"d{k}" for k in range(d)]
    if len(named) != d:
        raise InputError(f"{len(named)} devices are given for {d} columns of times")
    devices = [v if isinstance(v, Device) else Device(name=str(v)) for v in named]
    if capacity is not None:
        limits = np.broadcast_to(np.asarray(capacity, np.float64), (d,))
        if np.isnan(limits).any() or (limits < 0).any():
            raise InputError("capacity must be numbers >= 0, inf for unlimited")
        devices = [
            msgspec.structs.replace(v, memory=None if np.isinf(limit) else float(limit))
            for v, limit in zip(devices, limits, strict=True)
        ]
    device_lookup(devices)
    return tuple(devices)


def _fixed(values: Any, dtype: Any = np.float64) -> NDArray[Any]:
    array = np.asarray(values, dtype)
    array.flags.writeable = False
    return array
