"""A small discrete-event engine: pieces of work on devices, in a planned order or by a policy's keys.

It knows no instance and makes no claims.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Work", "execute"]


@dataclass
class Work:
    """One piece of work: tasks of a frame of a job that run on a device without a break.

    Attributes
    ----------
    inputs
        (number of the producer among all works, seconds of the transfer, bytes).
    planned
        Second before which it must not start; ``nan`` where a policy decides.
    key
        What a policy sorts by, smallest first.
    """

    name: str
    frame: int
    device: int
    seconds: float
    release: float
    inputs: list[tuple[int, float, float]] = field(default_factory=list)
    planned: float = math.nan
    key: tuple[float, ...] = ()
    start: float = math.nan
    why: str = ""

    @property
    def end(self) -> float:
        """Second at which it is done."""
        return self.start + self.seconds


def execute(
    works: Sequence[Work], devices: int, free: Sequence[float], late: Callable[[Work, float], bool] | None = None
) -> None:
    """Set the start of every work, event by event.

    Parameters
    ----------
    free
        First second of each device.
    late
        Asked when a work could start: True drops its whole frame, whose works then keep no start.

    Notes
    -----
    A device without plan takes the ready work of smallest key; one with a plan waits for the next work of its plan. Planned work
    of no length takes no device's time.
    """
    waiting = [len(work.inputs) for work in works]
    after: list[list[tuple[int, float]]] = [[] for _ in works]
    for k, work in enumerate(works):
        for u, seconds, _ in work.inputs:
            after[u].append((k, seconds))
    ready_at = [work.release for work in works]
    ready: list[list[tuple[tuple[float, ...], int]]] = [[] for _ in range(devices)]
    order: list[list[int]] = [[] for _ in range(devices)]
    for k in sorted(range(len(works)), key=lambda k: (works[k].planned, k)):
        if works[k].seconds > 0 and not math.isnan(works[k].planned):
            order[works[k].device].append(k)
    turn, idle_from, running = [0] * devices, list(free), [-1] * devices
    arrived = [False] * len(works)
    dropped: set[int] = set()
    events: list[tuple[float, int, int]] = [(t, 1, -1 - p) for p, t in enumerate(free)]
    events += [(work.release, 1, k) for k, work in enumerate(works) if not work.inputs]
    events += [(work.planned, 2, k) for k, work in enumerate(works) if not math.isnan(work.planned)]
    heapq.heapify(events)

    def begin(p: int, k: int, now: float) -> None:
        work = works[k]
        work.start = now
        if work.seconds > 0:
            running[p], idle_from[p] = k, work.end
            heapq.heappush(events, (work.end, 0, -1 - p))
        for v, seconds in after[k]:
            ready_at[v] = max(ready_at[v], work.end + seconds)
            waiting[v] -= 1
            if waiting[v] == 0:
                heapq.heappush(events, (ready_at[v], 1, v))

    while events:
        now = events[0][0]
        touched = set()
        while events and events[0][0] <= now:
            _, kind, k = heapq.heappop(events)
            touched.add(-1 - k if k < 0 else works[k].device)
            if k >= 0 and kind == 1 and not arrived[k]:
                arrived[k] = True
                if math.isnan(works[k].planned):
                    heapq.heappush(ready[works[k].device], (works[k].key, k))
            if (
                k >= 0
                and arrived[k]
                and works[k].seconds == 0
                and works[k].planned <= now
                and math.isnan(works[k].start)
            ):
                begin(works[k].device, k, now)
        for p in sorted(touched):
            if idle_from[p] > now:
                continue
            if turn[p] < len(order[p]):
                k = order[p][turn[p]]
                if arrived[k] and works[k].planned <= now:
                    turn[p] += 1
                    before = running[p]
                    works[k].why = (
                        f"{works[before].name} runs until {idle_from[p]:.9g}"
                        if before >= 0 and idle_from[p] == now
                        else (f"what it reads is there at {ready_at[k]:.9g}")
                    )
                    begin(p, k, now)
                continue
            while ready[p] and idle_from[p] <= now:
                _, k = heapq.heappop(ready[p])
                if works[k].frame in dropped:
                    continue
                if late is not None and late(works[k], now):
                    dropped.add(works[k].frame)
                    continue
                begin(p, k, now)
