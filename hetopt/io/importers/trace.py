"""Import traces of measured runs: how long each module or operator took, on each kind of device that was traced.

A trace is a Chrome trace in JSON (plain or gzipped), as the PyTorch profiler (Kineto) writes it: ``traceEvents`` with complete
events (``ph`` is ``X``) whose ``ts`` and ``dur`` are microseconds. Of one category only events count, by default the first of
``gpu_user_annotation``, ``user_annotation``, ``kernel``, ``cpu_op`` that is there, else all. Events of one track (process and
thread; a stream is a thread) that nest count their own time, without that of the events inside them, so that no microsecond
counts twice; tracks that overlap each count in full. Times of a name are added up and divided by the number of steps.

The source is a trace, measured on the device that ``--devices`` names, or a folder with a trace for each kind: ``t4.json``,
``cpu.json``. A name that a kind's trace lacks cannot run on that kind. A trace states no data: the tasks are independent jobs
under the makespan, or with ``--boundary BYTES`` a chain in the order of first start that hands on so much.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import strict
from hetopt.io.instances import load_bytes
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Link

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "trace"
TITLE = "Measured times of modules or operators from Chrome (Kineto) traces."
SOURCE_HELP = "trace (.json or .json.gz), or a folder with one for each kind of device."
OPTIONS: tuple[Option, ...] = (
    Option(
        "--devices",
        str,
        "",
        "Devices as name:count,name; names are those of the folder's traces. One of each by default.",
    ),
    Option("--category", str, "", "Category of the events that count, as kernel or user_annotation."),
    Option("--only", str, "*", "Pattern of the names that count, as 'layers.*'."),
    Option("--steps", int, None, "Steps in the trace; by default the ProfilerStep events in it, or 1."),
    Option("--boundary", int, None, "Bytes that a task hands to the next; makes a chain."),
    Option("--bandwidth", float, None, "Bytes per second between devices, for a chain."),
)

MAX_BYTES = 512 << 20
MAX_EVENTS = 1 << 21
MAX_TASKS = 1 << 16
MAX_KINDS = 64
MAX_DEVICES = 4096
CATEGORIES = ("gpu_user_annotation", "user_annotation", "kernel", "cpu_op")
_STEP = re.compile(r"ProfilerStep#\d+")


class _Event(msgspec.Struct):
    """The keys that matter; the rest of an event is skipped."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float | str | None = None
    dur: float | str | None = None
    pid: int | float | str | None = None
    tid: int | float | str | None = None


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]


class _Measured(NamedTuple):
    """Seconds by name for one step, and when each was first seen."""

    seconds: dict[str, float]
    first: dict[str, float]


_trace = msgspec.json.Decoder(_Trace)
_events = msgspec.json.Decoder(list[_Event])


def load(
    source: str | Path,
    *,
    devices: str = "",
    category: str = "",
    only: str = "*",
    steps: int | None = None,
    boundary: int | None = None,
    bandwidth: float | None = None,
) -> Instance:
    """Instance of measured times.

    Raises
    ------
    InputError
        The source cannot be read, is no such trace, holds a time that is no finite number >= 0, events of a track overlap without
        nesting, no event counts, a device has no trace, or an option is out of range.
    """
    path = Path(source)
    if steps is not None:
        whole("--steps", steps, 1, 10**9)
    try:
        counts = _counts(devices)
        files = _files(path, counts)
        found = {kind: _measured(file, category, only, steps) for kind, file in files.items()}
        return _instance(found, counts or dict.fromkeys(files, 1), path, boundary, bandwidth)
    except InputError as error:
        if str(error).startswith(("cannot read", "--")):
            raise
        raise InputError(f"{source}: {error}") from error


def _counts(text: str) -> dict[str, int]:
    """Devices asked for, by kind."""
    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = part.partition(":")
        count = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 0 if number else 1
        if not name or not 1 <= count <= MAX_DEVICES or name in counts:
            raise InputError(f"--devices holds {part[:60]!r}, expected each kind once, as name or name:count")
        counts[name] = count
    return counts


def _files(path: Path, counts: Mapping[str, int]) -> dict[str, Path]:
    """Traces by kind of device."""
    if not path.is_dir():
        if len(counts) > 1:
            raise InputError(
                "--devices names several kinds, but there is one trace; name a folder with a trace for each"
            )
        return {next(iter(counts), "device"): path}
    files = {
        file.name.removesuffix(".gz").removesuffix(".json"): file
        for file in sorted(path.iterdir())
        if file.name.endswith((".json", ".json.gz"))
    }
    if not files or len(files) > MAX_KINDS:
        raise InputError(f"the folder holds {len(files)} traces (.json, .json.gz), expected 1 to {MAX_KINDS}")
    missing = next((kind for kind in counts if kind not in files), None)
    if missing is not None:
        raise InputError(
            f"--devices names {missing!r}, but the folder has no {missing}.json; there are: {', '.join(files)[:200]}"
        )
    return {kind: files[kind] for kind in counts or files}


def _measured(file: Path, category: str, only: str, steps: int | None) -> _Measured:
    events = _complete(file)
    marks = {event.name for event in events if _STEP.fullmatch(event.name)}
    events = [event for event in events if not _STEP.fullmatch(event.name)]
    present = {event.cat for event in events}
    wanted = category or next((word for word in CATEGORIES if word in present), "")
    chosen = [
        event for event in events if (event.cat == wanted or not wanted) and fnmatch.fnmatchcase(event.name, only)
    ]
    if not chosen:
        words = ", ".join(sorted(present))[:200] or "none"
        raise InputError(
            f"{file.name}: no event of category {wanted!r} is called {only[:60]!r}; the categories are: {words}"
        )
    divisor = steps or max(1, len(marks))
    tracks: dict[tuple[Any, Any], list[_Event]] = {}
    for event in chosen:
        tracks.setdefault((event.pid, event.tid), []).append(event)
    seconds: dict[str, list[float]] = {}
    first: dict[str, float] = {}
    for track in tracks.values():
        for event, own in _own_times(track, file.name):
            seconds.setdefault(event.name, []).append(own)
            first[event.name] = min(first.get(event.name, math.inf), _number(event.ts))
    if len(seconds) > MAX_TASKS:
        raise InputError(f"{file.name}: {len(seconds)} names, more than {MAX_TASKS}; choose some with --only")
    return _Measured({name: math.fsum(times) / divisor / 1e6 for name, times in seconds.items()}, first)


def _complete(file: Path) -> list[_Event]:
    """Complete events of a trace, times checked."""
    raw = load_bytes(file, limit=MAX_BYTES)
    if raw.count(b"{") > 3 * MAX_EVENTS:  # before memory is taken for them
        raise InputError(f"{file.name}: more than {MAX_EVENTS} events; trace fewer steps")
    if raw.lstrip()[:1] == b"[":
        events = strict.decode(_events, raw)
    else:
        events = strict.decode(_trace, raw).traceEvents
    if len(events) > MAX_EVENTS:
        raise InputError(f"{file.name}: {len(events)} events, more than {MAX_EVENTS}; trace fewer steps")
    found = []
    for k, event in enumerate(events):
        if event.ph != "X":
            continue
        for key in ("ts", "dur"):
            value = _number(getattr(event, key))
            if not (0 <= value < 1e18 if key == "dur" else abs(value) < 1e18):
                raise InputError(f"{file.name}: {key} of event {k} is {getattr(event, key)!r}, expected microseconds")
        if event.name:
            found.append(event)
    return found


def _number(value: float | str | None) -> float:
    """A time as traces write it, also as text; nan for none."""
    try:
        return float(value) if value is not None else math.nan
    except ValueError:
        return math.nan


def _own_times(track: Sequence[_Event], file: str) -> list[tuple[_Event, float]]:
    """Each event of a track with its microseconds less those of the events directly inside it."""
    order = sorted(track, key=lambda event: (_number(event.ts), -_number(event.dur)))
    own = [_number(event.dur) for event in order]
    open_: list[tuple[int, float]] = []
    for k, event in enumerate(order):
        start, end = _number(event.ts), _number(event.ts) + _number(event.dur)
        slack = 1e-3 + 2.0**-50 * abs(end)  # time stamps are rounded
        while open_ and open_[-1][1] <= start + slack:
            open_.pop()
        if open_:
            outer, close = open_[-1]
            if end > close + slack:
                raise InputError(
                    f"{file}: {event.name[:60]!r} begins inside {order[outer].name[:60]!r} and ends after it"
                )
            own[outer] -= _number(event.dur)
        open_.append((k, end))
    return [(event, max(0.0, time)) for event, time in zip(order, own, strict=True)]


def _instance(
    found: Mapping[str, _Measured], counts: Mapping[str, int], path: Path, boundary: int | None, bandwidth: float | None
) -> Instance:
    """Jobs or a chain, in the order of first start in the first trace that has a name."""
    names: dict[str, None] = {}
    for measured in found.values():
        names |= dict.fromkeys(sorted(measured.seconds, key=lambda name: (measured.first[name], name)))
    labels = [name[:200] for name in names]
    if len(set(labels)) < len(labels):
        raise InputError("two names are equal in their first 200 characters; expected shorter names")
    kinds = [kind for kind in found for _ in range(counts[kind])]
    devices = [Device(name=f"{kind}-{k}", type=kind) for kind in found for k in range(counts[kind])]
    times = np.array([[found[kind].seconds.get(name, np.inf) for kind in kinds] for name in names])
    about: dict[str, Any] = {
        "name": path.name.removesuffix(".gz").removesuffix(".json")[:200],
        "source": f"measured: imported from the traces of {', '.join(found)} in {path.name}",
    }
    if boundary is None:
        return Instance.from_times(times, jobs=labels, devices=devices, question={"objective": "makespan"}, **about)
    size = whole("--boundary", boundary, 0, 1 << 50)
    if bandwidth is None or not 0 < bandwidth < math.inf:
        raise InputError(
            f"--bandwidth is {bandwidth}, expected bytes per second: a chain hands data from device to device"
        )
    edges = [(k, k + 1) for k in range(len(labels) - 1)]
    return Instance.from_graph(
        times, edges, output=[size] * len(labels), tasks=labels, devices=devices,
        links=[Link(source="*", target="*", bandwidth=bandwidth)],
        question={"objective": "chain-bottleneck", "order": "free"}, **about,
    )  # fmt: skip
