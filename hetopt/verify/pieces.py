"""Check a preemptive plan given as pieces: every job done, no device and no job in two places at once.

A piece says that a task runs on a device from start to stop; running for its whole time there would do all of it. Shares
nothing with any method.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetopt.instance import Instance

__all__ = ["check_pieces"]

TOLERANCE = 1e-9  # of the makespan, for sums of decimals that were rounded once each


def check_pieces(instance: Instance, pieces: Any) -> tuple[float, tuple[str, ...], list[float]]:
    """Makespan of a preemptive plan, what is wrong with it, and the busy time of each device.

    Parameters
    ----------
    instance
        Independent tasks.
    pieces
        List of ``[task, device, start, stop]`` with names and seconds.

    Returns
    -------
    tuple
        Latest stop (``inf`` when it cannot be told), one sentence for each violation, and (d,) busy seconds.
    """
    wrong: list[str] = []
    rows: list[tuple[int, int, float, float]] = []
    busy = [0.0] * instance.n_devices
    if not isinstance(pieces, (list, tuple)):
        return math.inf, ("details.pieces is no list of [task, device, start, stop]",), busy
    for number, piece in enumerate(pieces):
        try:
            task, device, start, stop = piece
            row = (instance.task_index[task], instance.device_index[device], float(start), float(stop))
        except (TypeError, ValueError, KeyError):
            wrong.append(
                f"details.pieces[{number}] is {piece!r}, expected [task, device, start, stop] with known names"
            )
            continue
        if not (0 <= row[2] <= row[3] < math.inf):
            wrong.append(f"details.pieces[{number}] runs from {start!r} to {stop!r}; expected 0 <= start <= stop")
        elif not instance.eligible[row[0], row[1]]:
            wrong.append(f"task {task!r} cannot run on {device!r}")
        else:
            rows.append(row)
    if wrong or not rows:
        return math.inf, tuple(wrong or ["the plan has no pieces"]), busy
    makespan = max(row[3] for row in rows)
    slack = TOLERANCE * makespan
    wrong += _overlaps(rows, 1, slack, "device", instance.device_names)
    wrong += _overlaps(rows, 0, slack, "task", instance.labels)
    done: list[list[float]] = [[] for _ in range(instance.n_tasks)]
    spent: list[list[float]] = [[] for _ in range(instance.n_devices)]
    instant = np.zeros(instance.n_tasks, bool)
    for task, device, start, stop in rows:
        time = float(instance.time[task, device])
        instant[task] |= time == 0
        done[task].append((stop - start) / time if time else 0.0)
        spent[device].append(stop - start)
    for task, parts in enumerate(done):
        share = math.fsum(parts)
        # A share is off by the rounding of pieces' ends, relative to the task's own time. That is far below the slack for
        # all of them together: were each excused on its own, many empty pieces would stand for work.
        shortest = float(instance.time[task][instance.eligible[task]].min())
        allowed = 1e-9 + (2 * slack / shortest if shortest else 0.0)
        if not instant[task] and share < 1 - allowed:
            wrong.append(f"task {instance.labels[task]!r} is done to {share:.9g} of its time only")
    return makespan, tuple(wrong), [math.fsum(parts) for parts in spent]


def _overlaps(rows: list[tuple[int, int, float, float]], key: int, slack: float, what: str, names: Any) -> list[str]:
    """Pieces of the same device or task that run at the same time, together beyond the rounding allowed."""
    found: list[str] = []
    last: dict[int, float] = {}
    shared: dict[int, float] = {}
    for row in sorted((row for row in rows if row[3] > row[2]), key=lambda row: (row[2], row[3])):
        who = int(row[key])
        end = last.get(who, 0.0)
        shared[who] = shared.get(who, 0.0) + max(0.0, min(end, row[3]) - row[2])
        if row[2] < end and shared[who] > slack and len(found) < 20:
            found.append(f"{what} {names[who]!r} runs two pieces at {row[2]:.9g}, one of which ends at {end:.9g}")
        last[who] = max(end, row[3])
    return found
