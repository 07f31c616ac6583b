"""Check a cyclic schedule of models that run again and again, and give each frame's latency. Shares nothing with any model.

A device runs one segment at a time, also across the end of the cycle; no segment starts before its frame is released, nor before
what it reads is there; every frame that is not dropped ends within its deadline; the weights of all tasks that ever run on a
device fit its memory. A segment of no length takes no device's time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.verify.periodic_bounds import quantile
from hetopt.verify.streams import TOLERANCE, Model, Streams, Way, streams_of

__all__ = ["Report", "check_cyclic", "cyclic_value"]

Floats = NDArray[np.float64]


class Report(NamedTuple):
    """Latency (``inf``: dropped) and model of each frame, busy seconds and bytes of weights of each device, complaints."""

    latency: Floats
    model: NDArray[np.int64]
    busy: Floats
    weights: Floats
    violations: tuple[str, ...]


def check_cyclic(
    instance: Instance,
    details: Mapping[str, Any],
    *,
    cycles: int = 1,
    rate: float = 1.0,
    may_drop: bool = False,
    same: bool = True,
) -> Report:
    """Recompute ``{"frames": {model: [[{"first", "last", "device", "backend", "start"}, ...] or None, ...]}}``.

    Parameters
    ----------
    cycles
        Hyperperiods after which the plan repeats.
    rate
        How many times faster than in the file frames come.
    may_drop, same
        Whether frames may be dropped; whether all frames of a model run the same segments on the same devices.
    """
    streams = streams_of(instance)
    told = details.get("frames")
    wrong = [f"the plan's details hold {key!r}, expected 'frames'" for key in details if key not in ("frames", "rate")]
    nothing = np.zeros(instance.n_devices)
    if not isinstance(told, Mapping):
        return Report(
            np.full(1, np.inf), np.zeros(1, np.int64), nothing, nothing,
            (*wrong, 'the plan has no details.frames, {"model": [frame, ...]}'),
        )  # fmt: skip
    wrong += [
        f"the plan has frames of {name!r}, which is no job" for name in told if name not in instance.columns.job_name
    ]
    cycle = streams.hyperperiod * cycles / rate
    runs: list[list[tuple[float, float, str]]] = [[] for _ in range(instance.n_devices)]
    there = np.zeros((instance.n_tasks, instance.n_devices), bool)
    latencies, owner = [], []
    for j, model in enumerate(streams.models):
        given = told.get(model.name)
        count = model.frames * cycles
        if not isinstance(given, list) or len(given) != count:
            wrong.append(f"the plan has not {count} frames of model {model.name!r}")
            given = [None] * count
            latencies += [math.inf] * count
            owner += [j] * count
            continue
        choice: set[tuple[Way, ...]] = set()
        for i, frame in enumerate(given):
            owner.append(j)
            label = f"frame {i} of {model.name!r}"
            if frame is None:
                latencies.append(math.inf)
                if not may_drop:
                    wrong.append(f"{label} is dropped, and the question allows no drops")
                continue
            pieces, complaint = _pieces(instance, model, frame, label)
            if complaint:
                wrong.append(complaint)
                latencies.append(math.inf)
                continue
            choice.add(tuple(way for way, _ in pieces))
            release = (model.phase + i * model.period) / rate
            wrong += _waits(instance, streams, model, pieces, release, label)
            for way, start in pieces:
                there[way.first : way.last + 1, way.device] = True
                if way.seconds > 0:
                    what = f"{instance.columns.task_name[way.first]!r} of {label}"
                    runs[way.device].append((start % cycle, way.seconds, what))
            done = max(start + way.seconds for way, start in pieces)
            latencies.append(done - release)
            deadline = model.deadline / (rate if model.implicit else 1.0)
            if done - release > deadline + TOLERANCE * max(deadline, abs(done)):
                wrong.append(
                    f"{label} ends {done - release:.9g} after its release, its deadline is {deadline:.9g}: "
                    f"{done - release - deadline:.9g} too late"
                )
        if same and len(choice) > 1:
            wrong.append(f"frames of {model.name!r} run in different ways, and the question asks for one")
    wrong += [text for p, row in enumerate(runs) for text in _overlaps(row, cycle, instance.device_names[p])]
    weights = np.asarray(instance.memory @ there, np.float64)
    wrong += [
        f"device {instance.device_names[p]!r} needs {weights[p]:.12g} bytes of memory and has {instance.capacity[p]:.12g}: "
        f"{weights[p] - instance.capacity[p]:.12g} too many"
        for p in np.flatnonzero(weights > instance.capacity).tolist()
    ]
    busy = np.array([math.fsum(seconds for _, seconds, _ in row) for row in runs])
    return Report(np.array(latencies), np.array(owner, np.int64), busy, weights, tuple(wrong))


def _pieces(instance: Instance, model: Model, frame: Any, label: str) -> tuple[list[tuple[Way, float]], str]:
    """Ways and starts of a frame in order; a complaint when they are not the model's tasks one after the other."""
    if not isinstance(frame, list) or not frame:
        return [], f"{label} is {frame!r:.80}, expected a list of segments"
    known = {way[:4]: way for way in model.ways}
    number = {instance.columns.task_name[v]: v for v in range(model.begin, model.end)}
    pieces, at = [], model.begin
    for piece in frame:
        if not isinstance(piece, Mapping):
            return [], f"{label} holds {piece!r:.80}, expected a segment"
        start = piece.get("start")
        if isinstance(start, bool) or not isinstance(start, (int, float)) or not math.isfinite(start):
            return [], f"a segment of {label} starts at {start!r}, expected seconds"
        words = [piece.get(key) for key in ("first", "last", "device")]
        backend = piece.get("backend", "")
        if not all(isinstance(word, str) for word in (*words, backend)):
            return [], f"a segment of {label} is {dict(piece)!r:.120}, expected names of first, last and device"
        a, b, p = (
            index.get(str(word), -1) for index, word in zip((number, number, instance.device_index), words, strict=True)
        )
        if a != at:
            return [], f"a segment of {label} begins with {words[0]!r}, expected {instance.columns.task_name[at]!r}"
        way = known.get((a, b, p, backend))
        if way is None:
            with_backend = f" with backend {backend!r}" if backend else ""
            return [], f"{label}: {words[0]!r} to {words[1]!r} has no time on {words[2]!r}{with_backend}"
        pieces.append((way, float(start)))
        at = b + 1
        if at == model.end:
            break
    if at != model.end or len(pieces) != len(frame):
        return [], f"the segments of {label} are not its tasks from the first to the last, each once"
    return pieces, ""


def _waits(
    instance: Instance, streams: Streams, model: Model, pieces: list[tuple[Way, float]], release: float, label: str
) -> list[str]:
    """Segments that start before their release, or before what they read is there."""
    wrong = []
    for _, start in pieces:
        if start < release - TOLERANCE * max(abs(start), abs(release)):
            wrong.append(f"a segment of {label} starts at {start:.9g}, before its release at {release:.9g}")
    segment = {v: k for k, (way, _) in enumerate(pieces) for v in range(way.first, way.last + 1)}
    for u, v, sent in model.edges:
        if segment[u] == segment[v]:
            continue
        (source, begun), (target, start) = pieces[segment[u]], pieces[segment[v]]
        there = begun + source.seconds + streams.transfer(source, target, sent)
        if start < there - TOLERANCE * max(abs(start), abs(there)):
            task = instance.columns.task_name
            wrong.append(
                f"{label}: {task[v]!r} starts at {start:.9g}, before the result of {task[u]!r} is there at {there:.9g}"
            )
    return wrong


def _overlaps(runs: list[tuple[float, float, str]], cycle: float, device: str) -> list[str]:
    """Runs (begin within the cycle, seconds, what) that lie on each other when the cycle is repeated for ever."""
    slack = TOLERANCE * cycle
    runs = sorted((begin if begin < cycle - slack else 0.0, seconds, what) for begin, seconds, what in runs)
    wrong = []
    for k, (begin, seconds, what) in enumerate(runs):
        after, _, other = runs[(k + 1) % len(runs)]
        following = after if k + 1 < len(runs) else after + cycle
        if begin + seconds > following + slack:
            wrong.append(
                f"{what} and {other} run on {device!r} at the same time, at {following % cycle:.9g} of each cycle of {cycle:.9g}"
            )
    return wrong[:20]


def cyclic_value(
    streams: Streams, latency: Sequence[float], model: Sequence[int], measure: str, drop_cost: float | None
) -> float:
    """``mean`` (weighted over models) or ``p90`` latency in seconds, or weighted ``drops``, of the frames of a cycle.

    Parameters
    ----------
    latency, model
        (frames,) seconds, ``inf`` for a dropped frame, and the number of its model.
    drop_cost
        Deadlines that a dropped frame counts for.
    """
    models = streams.models
    if measure == "drops":
        return math.fsum(models[j].weight for s, j in zip(latency, model, strict=True) if math.isinf(s))
    lost = math.inf if drop_cost is None else drop_cost
    seconds = [s if math.isfinite(s) else lost * models[j].deadline for s, j in zip(latency, model, strict=True)]
    if measure == "p90":
        return quantile(seconds)
    count = [0] * len(models)
    for j in model:
        count[j] += 1
    total = math.fsum(models[j].weight * s / count[j] for s, j in zip(seconds, model, strict=True))
    return total / math.fsum(one.weight for one in models)
