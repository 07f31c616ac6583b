"""Frames, ways and starts of a cyclic schedule: the earliest starts in a given order, and the shortest cycle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.streams import Streams, Way

__all__ = ["Frame", "earliest", "frames_of", "plan_of", "shortest_cycle"]

Floats = NDArray[np.float64]


class Frame(NamedTuple):
    """Frame ``number`` of a model: its ways in order (none: dropped) and their starts."""

    model: int
    number: int
    ways: tuple[Way, ...]
    start: tuple[float, ...]


def frames_of(instance: Instance, streams: Streams, solution: Solution) -> list[Frame] | None:
    """The frames that a plan tells; None when it tells none."""
    told = solution.details.get("frames")
    if not isinstance(told, Mapping):
        return None
    found = []
    for j, model in enumerate(streams.models):
        known = {way[:4]: way for way in model.ways}
        number = {instance.columns.task_name[v]: v for v in range(model.begin, model.end)}
        for i, frame in enumerate(told.get(model.name, ())):
            keys = [
                (number[s["first"]], number[s["last"]], instance.device_index[s["device"]], s.get("backend", ""))
                for s in frame or ()
            ]
            found.append(Frame(j, i, tuple(known[key] for key in keys), tuple(float(s["start"]) for s in frame or ())))
    return found


def plan_of(instance: Instance, streams: Streams, frames: Sequence[Frame], rate: float | None = None) -> Solution:
    """The plan of some frames; ``rate`` is told where the question asks for it."""
    told: dict[str, list[Any]] = {model.name: [] for model in streams.models}
    names, devices = instance.columns.task_name, instance.device_names
    for frame in sorted(frames, key=lambda f: (f.model, f.number)):
        rows = [
            {
                "first": names[way.first],
                "last": names[way.last],
                "device": devices[way.device],
                **({"backend": way.backend} if way.backend else {}),
                "start": start,
            }
            for way, start in zip(frame.ways, frame.start, strict=True)
        ]
        told[streams.models[frame.model].name].append(rows or None)
    return Solution(details={"frames": told, **({} if rate is None else {"rate": rate})})


class _Rows(NamedTuple):
    """start[head] >= start[tail] + seconds + turns * cycle; ``tail`` -1 says time 0."""

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    seconds: Floats
    turns: Floats


def earliest(streams: Streams, frames: Sequence[Frame], cycle: float, rate: float = 1.0) -> list[Frame] | None:
    """The frames in the order of their starts on each device, modulo ``cycle``, each segment as early as that allows.

    None where the order repeats only in a longer cycle, or the starts given are no numbers.
    """
    rows, n = _rows(streams, frames, cycle, rate, dates=False)
    length = rows.seconds + rows.turns * cycle
    start, late = _longest(rows, n, length)
    return None if late is not None else _with(frames, start)


def shortest_cycle(
    streams: Streams, frames: Sequence[Frame], cycle: float, cycles: int
) -> tuple[list[Frame], float] | None:
    """The frames in the order they have in a cycle of this length, in the shortest cycle that keeps all deadlines; its length.

    A way around that needs more than a cycle gives the length that it needs; repeat until there is none (Newton's method on the
    greatest ratio of a cycle).
    """
    rows, n = _rows(streams, frames, cycle, streams.hyperperiod * cycles / cycle, dates=True)
    shortest = 0.0
    for _ in range(60):
        start, late = _longest(rows, n, rows.seconds + rows.turns * shortest)
        if late is not None:
            seconds, turns = math.fsum(rows.seconds[late].tolist()), math.fsum(rows.turns[late].tolist())
            if not turns < -1e-12:
                return None
            if -seconds / turns > shortest:
                shortest = -seconds / turns
                continue
        return (_with(frames, start), shortest) if shortest > 0 else None
    return None


def _with(frames: Sequence[Frame], start: Floats) -> list[Frame]:
    found, at = [], 0
    for frame in frames:
        found.append(frame._replace(start=tuple(start[at : at + len(frame.ways)].tolist())))
        at += len(frame.ways)
    return found


def _rows(streams: Streams, frames: Sequence[Frame], cycle: float, rate: float, *, dates: bool) -> tuple[_Rows, int]:
    """Releases, transfers and orders on devices; with ``dates``, releases that move with the cycle, and deadlines."""
    rows: list[tuple[int, int, float, float]] = []
    queue: dict[int, list[tuple[float, int, int, float]]] = {}
    whole = cycle * rate  # the cycle in seconds of the file
    n = 0
    for frame in frames:
        model = streams.models[frame.model]
        release = model.phase + frame.number * model.period
        segment: dict[int, int] = {}
        for k, (way, start) in enumerate(zip(frame.ways, frame.start, strict=True)):
            node = n + k
            rows.append((-1, node, 0.0, release / whole) if dates else (-1, node, release / rate, 0.0))
            if dates and model.implicit:
                rows.append((node, -1, way.seconds, -(release + model.deadline) / whole))
            elif dates:
                rows.append((node, -1, way.seconds - model.deadline, -release / whole))
            segment |= dict.fromkeys(range(way.first, way.last + 1), node)
            if way.seconds > 0:
                turn = math.floor(start / cycle + 1e-9)
                queue.setdefault(way.device, []).append((start - turn * cycle, turn, node, way.seconds))
        for u, v, sent in model.edges if frame.ways else ():
            if segment[u] != segment[v]:
                source, target = frame.ways[segment[u] - n], frame.ways[segment[v] - n]
                rows.append((segment[u], segment[v], source.seconds + streams.transfer(source, target, sent), 0.0))
        n += len(frame.ways)
    for _, line in sorted(queue.items()):
        line.sort()
        for k, (_, turn, node, seconds) in enumerate(line):
            _, turn_of, follower, _ = line[(k + 1) % len(line)]
            rows.append((node, follower, seconds, float(turn_of - turn - (k + 1 == len(line)))))
    columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.zeros(0)] * 4
    return _Rows(columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2], columns[3]), n


def _longest(rows: _Rows, n: int, length: Floats) -> tuple[Floats, NDArray[np.int64] | None]:
    """(n,) least starts, or the rows of a way around that is longer than 0 (Bellman and Ford)."""
    tail, head = np.where(rows.tail < 0, n, rows.tail), np.where(rows.head < 0, n, rows.head)
    start = np.zeros(n + 1)
    by = np.full(n + 1, -1, np.int64)
    noise = 1e-13 * float(np.abs(length).max(initial=0.0))
    moved = np.zeros(n + 1, bool)
    for _ in range(n + 2):
        reach = start[tail] + length
        better = start.copy()
        np.maximum.at(better, head, reach)
        moved = better > start + noise
        if not moved.any():
            return start[:n], None
        taken = np.flatnonzero(moved[head] & (reach == better[head]))
        by[head[taken]] = taken
        start = np.where(moved, better, start)
    at = int(np.flatnonzero(moved)[0])
    for _ in range(n + 1):
        at = int(tail[by[at]])
    around = [int(by[at])]
    while tail[around[-1]] != at:
        around.append(int(by[tail[around[-1]]]))
    return start[:n], np.array(around, np.int64)
