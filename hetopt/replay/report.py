"""What a replay tells: runs, transfers, frames with their latencies, busy seconds, memory over time, complaints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hetopt.instance import Instance
from hetopt.replay.events import Work

__all__ = ["TOLERANCE", "Frame", "Replay", "Run", "Transfer", "told"]

TOLERANCE = 1e-9


class Frame(NamedTuple):
    """One release of a job; ``deadline`` and ``latency`` in seconds after it, ``inf`` for none and for a dropped frame."""

    job: int
    number: int
    release: float
    deadline: float
    latency: float


class Run(NamedTuple):
    """A piece of work as it ran."""

    name: str
    frame: Frame
    device: int
    start: float
    end: float


class Transfer(NamedTuple):
    """Data on their way from one run to another; numbers of the runs, bytes."""

    source: int
    target: int
    start: float
    end: float
    data: float


@dataclass(frozen=True)
class Replay:
    """What happened.

    Attributes
    ----------
    runs, transfers, frames
        In order of start, of begin, and of release.
    seconds
        Length of the time looked at: a cyclic plan's cycle, else until the last end.
    busy, peak
        Busy seconds (of the frames counted) and the most bytes held at a time, by device.
    objective
        The question's value, as far as it is known here; None for a policy.
    complaints
        A sentence for everything that did not go as planned.
    """

    runs: tuple[Run, ...]
    transfers: tuple[Transfer, ...]
    frames: tuple[Frame, ...]
    seconds: float
    busy: tuple[float, ...]
    peak: tuple[float, ...]
    objective: float | None = None
    complaints: tuple[str, ...] = ()

    @property
    def latencies(self) -> list[float]:
        """Of all frames that were not dropped, sorted."""
        return sorted(f.latency for f in self.frames if math.isfinite(f.latency))

    @property
    def drops(self) -> int:
        """Frames dropped."""
        return sum(math.isinf(f.latency) for f in self.frames)

    @property
    def misses(self) -> int:
        """Frames that ended beyond their deadline."""
        return sum(
            math.isfinite(f.latency) and f.latency > f.deadline + TOLERANCE * max(f.deadline, f.release)
            for f in self.frames
        )

    def to_json(self, instance: Instance) -> dict[str, Any]:
        """Numbers for people and programs."""
        found = self.latencies
        rows = zip(instance.device_names, self.busy, self.peak, strict=True)
        return {
            "frames": len(self.frames),
            "mean_latency": math.fsum(found) / len(found) if found else None,
            "p90_latency": found[math.ceil(0.9 * len(found) - 1e-9) - 1] if found else None,
            "worst_latency": found[-1] if found else None,
            "misses": self.misses,
            "drops": self.drops,
            "objective": self.objective,
            "devices": {
                name: {"utilisation": busy / self.seconds if self.seconds else 0.0, "busy": busy, "peak_memory": peak}
                for name, busy, peak in rows
            },
            "complaints": list(self.complaints),
        }


def told(
    instance: Instance,
    works: Sequence[Work],
    frames: Sequence[Frame],
    counted: Iterable[int],
    seconds: float,
    weights: Sequence[tuple[int, int]],
    objective: float | None,
) -> Replay:
    """What happened, of works that have run."""
    order = sorted((k for k, w in enumerate(works) if not math.isnan(w.start)), key=lambda k: (works[k].start, k))
    number = {k: r for r, k in enumerate(order)}
    runs = tuple(
        Run(works[k].name, frames[works[k].frame], works[k].device, works[k].start, works[k].end) for k in order
    )
    transfers = sorted(
        Transfer(number[u], number[k], works[u].end, works[u].end + lasts, sent)
        for k in order
        for u, lasts, sent in works[k].inputs
        if works[u].device != works[k].device
    )
    late = [
        f"{works[k].name} starts on {instance.device_names[works[k].device]!r} at {works[k].start:.9g}, planned for "
        f"{works[k].planned:.9g}: {works[k].why}"
        for k in order
        if works[k].start > works[k].planned + TOLERANCE * max(seconds, abs(works[k].planned))
    ]
    stuck = [f"{w.name} never starts" for w in works if math.isnan(w.start) and not math.isnan(w.planned)]
    early = [
        f"{w.name} is planned for {w.planned:.9g}, before its release at {w.release:.9g}"
        for w in works
        if w.planned < w.release - TOLERANCE * max(seconds, abs(w.release))
    ]
    inside = set(counted)
    busy = [0.0] * instance.n_devices
    for k in order:
        if works[k].frame in inside:
            busy[works[k].device] += works[k].seconds
    held, peak = _memory(instance, works, order, weights)
    room = [
        f"device {instance.device_names[p]!r} holds {held[p]:.12g} bytes of weights and has room for {instance.capacity[p]:.12g}"
        for p in range(instance.n_devices)
        if held[p] > instance.capacity[p]
    ]
    return Replay(
        runs, tuple(transfers), tuple(frames[k] for k in sorted(inside)), seconds, tuple(busy), tuple(peak), objective,
        (*early[:5], *late[:5], *stuck[:5], *room),
    )  # fmt: skip


def _memory(
    instance: Instance, works: Sequence[Work], order: Sequence[int], weights: Sequence[tuple[int, int]]
) -> tuple[list[float], list[float]]:
    """Bytes of weights, and the most of weights and results held at a time, of each device.

    A result is held where it was made until its last reader there ends and its last transfer is over, and where it is read from
    the beginning of the transfer until that reader ends.
    """
    held = [0.0] * instance.n_devices
    for v, p in weights:
        held[p] += float(instance.memory[v])
    changes: list[list[tuple[float, float]]] = [[] for _ in held]
    kept: dict[int, tuple[float, float]] = {}
    for k in order:
        for u, seconds, sent in works[k].inputs:
            here = works[u].device == works[k].device
            until, size = kept.get(u, (works[u].end, 0.0))
            kept[u] = max(until, works[k].end if here else works[u].end + seconds), max(size, sent)
            if not here:
                changes[works[k].device] += [(works[u].end, sent), (works[k].end, -sent)]
    for u, (until, size) in kept.items():
        changes[works[u].device] += [(works[u].start, size), (until, -size)]
    peak = list(held)
    for p, row in enumerate(changes):
        now = held[p]
        for _, size in sorted(row):
            now += size
            peak[p] = max(peak[p], now)
    return held, peak
