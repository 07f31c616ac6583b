"""Discrete-event replay: run a plan, or a dispatching policy, and tell what happens when.

Devices run one piece of work at a time, transfers take their links' time and do not get in each other's way, frames have
deadlines and may be dropped, memory is followed over time. A plan's work starts no sooner than planned and keeps the planned
order of each device; whatever then starts later than planned or ends beyond a deadline is told, and the objective is added up
from what happened. Durations and links are read from the instance; nothing is shared with models, and with verifiers the
reading of tables only, so that this is a second opinion on plans. It knows no solver.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.records import Link
from hetopt.replay.events import Work, execute
from hetopt.replay.report import TOLERANCE, Frame, Replay, Run, Transfer, told
from hetopt.replay.trace import chrome_trace
from hetopt.result import Result
from hetopt.solution import Solution
from hetopt.verify.online import speeds_of
from hetopt.verify.streams import Streams, Way, streams_of

__all__ = ["POLICIES", "Frame", "Replay", "Run", "Transfer", "chrome_trace", "follow", "replay", "replayed"]

POLICIES = ("edf", "fifo", "rate-monotonic")
MAKESPAN = ("schedule.latency", "partition.mapping")
CYCLIC = ("schedule.periodic", "schedule.periodic_drops", "schedule.periodic_rate")


def replayed(instance: Instance, result: Result) -> Replay:
    """Run a result's plan; complains where its objective comes out another one than claimed.

    Raises
    ------
    InputError
        The result is of another instance or holds no plan, or :func:`replay` cannot run it.
    """
    if result.instance_digest != instance.digest:
        raise InputError(f"the result is of another instance ({result.instance_name!r}); give the file that was solved")
    if result.solution is None:
        raise InputError("the result holds no plan, so there is nothing to replay")
    found = replay(instance, result.solution, result.problem, result.question)
    if result.objective is None or found.objective is None:
        return found
    if abs(found.objective - result.objective) > TOLERANCE * max(abs(result.objective), abs(found.objective)):
        text = f"the replay comes to the value {found.objective:.9g}, the result claims {result.objective:.9g}"
        return dataclasses.replace(found, complaints=(*found.complaints, text))
    return found


def replay(instance: Instance, solution: Solution, problem: str, question: Mapping[str, Any]) -> Replay:
    """Run a plan of the schedule family; ``problem`` and ``question`` as in its result.

    Raises
    ------
    InputError
        The plan is of another kind, or cannot be read.
    """
    if problem in CYCLIC:
        return _cyclic(instance, solution, problem, question)
    if problem not in (*MAKESPAN, "schedule.online"):
        known = ", ".join((*MAKESPAN, "schedule.online", *CYCLIC))
        rounds = "" if solution.shares is None else "; hetopt.rounds.simulate keeps shares of a cluster in rounds"
        raise InputError(f"a plan of {problem} has no start times to replay; these have: {known}{rounds}")
    return _once(instance, solution, problem, question)


def _once(instance: Instance, solution: Solution, problem: str, question: Mapping[str, Any]) -> Replay:
    """Every task once, at its planned start."""
    place, start = solution.placement, solution.start
    n = instance.n_tasks
    if place is None or start is None or place.shape != (n,) or start.shape != (n,) or (place < 0).any():
        raise InputError("the plan has not a device and a start for each task, so it cannot be replayed")
    speeds = speeds_of(instance) if problem == "schedule.online" else ()
    named = solution.details.get("speeds", {}) if speeds else {}
    c = instance.columns
    works, joules = [], 0.0
    for v in range(n):
        p = int(place[v])
        seconds = float(instance.time[v, p])
        if speeds:
            speed = next((s for s in speeds[p] if s.name == named.get(instance.labels[v], s.name)), speeds[p][0])
            seconds /= speed.speed
            joules += seconds * speed.power
        if not (math.isfinite(seconds) and math.isfinite(start[v])):
            raise InputError(f"task {instance.labels[v]!r} cannot run where and when the plan says")
        release = float(c.release[instance.job_of[v]])
        works.append(Work(instance.labels[v], int(instance.job_of[v]), p, seconds, release, planned=float(start[v])))
    for (u, v), sent in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True):
        works[v].inputs.append((u, _transfer(instance, works[u].device, works[v].device, sent), sent))
    execute(works, instance.n_devices, instance.available_from.tolist())
    ends = [0.0] * instance.n_jobs
    for work in works:
        ends[work.frame] = max(ends[work.frame], work.end)
    frames = [
        Frame(j, 0, float(c.release[j]), float(c.deadline[j] - c.release[j]), ends[j] - float(c.release[j]))
        for j in range(instance.n_jobs)
    ]
    if problem == "schedule.online":
        late = math.fsum(float(c.weight[f.job]) * f.latency for f in frames)
        objective = (late + float(question.get("energy_price") or 0.0) * joules) / math.fsum(c.weight.tolist())
    else:
        objective = max(ends, default=0.0)
    weights = [(v, works[v].device) for v in range(n)]
    return told(instance, works, frames, range(len(frames)), max(ends, default=0.0), weights, objective)


def _cyclic(instance: Instance, solution: Solution, problem: str, question: Mapping[str, Any]) -> Replay:
    """As many cycles as it takes to be in full swing, and two more; the last one counts."""
    streams = streams_of(instance)
    cycles, rate = int(question.get("cycles", 1)), float(solution.details.get("rate", 1.0))
    if not 0 < rate < math.inf:
        raise InputError(f"the plan's rate is {rate!r}, expected a number above 0")
    cycle = streams.hyperperiod * cycles / rate
    rows = _rows(instance, streams, solution)
    last = max((start for _, _, _, row in rows for _, start in row), default=0.0)
    turns = 2 + min(20, math.ceil(last / cycle))
    works: list[Work] = []
    frames: list[Frame] = []
    for turn in range(turns):
        for j, i, _, row in rows:
            model = streams.models[j]
            release = (model.phase + (i + turn * model.frames * cycles) * model.period) / rate
            deadline = model.deadline / (rate if model.implicit else 1.0)
            name = f"{model.name}#{i + turn * model.frames * cycles}"
            works += _segments(instance, streams, j, row, len(frames), name, release, turn * cycle, len(works))
            frames.append(Frame(j, i, release, deadline, math.inf))
    execute(works, instance.n_devices, [0.0] * instance.n_devices)
    weights = sorted(
        {(v, way.device) for _, _, _, row in rows for way, _ in row for v in range(way.first, way.last + 1)}
    )
    frames = _timed(works, frames)
    counted = range(len(frames) - len(rows), len(frames))
    objective = _objective(streams, [frames[k] for k in counted], problem, question, rate)
    found = told(instance, works, frames, counted, cycle, weights, objective)
    over = [
        f
        for f in found.frames
        if math.isfinite(f.latency) and f.latency > f.deadline * (1 + TOLERANCE) + TOLERANCE * abs(f.release)
    ]
    complaints = [
        f"frame {f.number} of {streams.models[f.job].name!r} misses its deadline by {f.latency - f.deadline:.9g}"
        for f in over
    ]
    return dataclasses.replace(found, complaints=(*found.complaints, *complaints))


def follow(
    instance: Instance,
    ways: Sequence[Sequence[Way]],
    policy: str,
    *,
    rate: float = 1.0,
    turns: int = 4,
    may_drop: bool = False,
) -> tuple[Replay, list[list[tuple[Way, float]]]]:
    """Run a policy on fixed ways of each model; what happened, and the ways and starts of each frame (empty: dropped).

    Parameters
    ----------
    policy
        Who goes first when a device is free: ``edf`` the frame due first, ``fifo`` the one released first, ``rate-monotonic``
        the model of the shortest period.
    turns
        Hyperperiods that are run; all frames are counted.
    may_drop
        Whether a frame is dropped when it cannot end in time any more, even if it ran alone from now on.
    """
    streams = streams_of(instance)
    works: list[Work] = []
    frames: list[Frame] = []
    for turn in range(turns):
        for j, model in enumerate(streams.models):
            for i in range(model.frames):
                number = i + turn * model.frames
                release = (model.phase + number * model.period) / rate
                deadline = model.deadline / (rate if model.implicit else 1.0)
                row = [(way, math.nan) for way in ways[j]]
                more = _segments(
                    instance, streams, j, row, len(frames), f"{model.name}#{number}", release, 0.0, len(works)
                )
                first = {"edf": release + deadline, "fifo": release, "rate-monotonic": model.period}[policy]
                for work in more:
                    work.key = (first, release, float(j))
                works += more
                frames.append(Frame(j, number, release, deadline, math.inf))
    rest = [0.0] * len(works)
    for k in range(len(works) - 1, -1, -1):
        rest[k] += works[k].seconds
        for u, seconds, _ in works[k].inputs:
            rest[u] = max(rest[u], rest[k] + seconds)
    place = {id(work): k for k, work in enumerate(works)}

    def late(work: Work, now: float) -> bool:
        frame = frames[work.frame]
        return now + rest[place[id(work)]] > (frame.release + frame.deadline) * (1 + TOLERANCE)

    execute(works, instance.n_devices, [0.0] * instance.n_devices, late if may_drop else None)
    timed = _timed(works, frames)
    starts: list[list[tuple[Way, float]]] = [[] for _ in frames]
    at = 0
    for k, frame in enumerate(timed):
        row = list(zip(ways[frame.job], (work.start for work in works[at : at + len(ways[frame.job])]), strict=True))
        starts[k] = [] if math.isinf(frame.latency) else row
        at += len(row)
    weights = sorted({(v, way.device) for row in ways for way in row for v in range(way.first, way.last + 1)})
    seconds = streams.hyperperiod * turns / rate
    return told(instance, works, timed, range(len(timed)), seconds, weights, None), starts


def _rows(
    instance: Instance, streams: Streams, solution: Solution
) -> list[tuple[int, int, str, list[tuple[Way, float]]]]:
    """(model, frame, name, [(way, start)]) of a cyclic plan, read by name."""
    told, rows = solution.details.get("frames"), []
    if not isinstance(told, Mapping):
        raise InputError("the plan has no details.frames, so it cannot be replayed")
    for j, model in enumerate(streams.models):
        number = {instance.columns.task_name[v]: v for v in range(model.begin, model.end)}
        known = {way[:4]: way for way in model.ways}
        for i, frame in enumerate(told.get(model.name, ())):
            row = []
            for piece in frame or ():
                try:
                    key = (number[piece["first"]], number[piece["last"]], instance.device_index[piece["device"]])
                    row.append((known[(*key, piece.get("backend", ""))], float(piece["start"])))
                except (KeyError, TypeError, ValueError):
                    raise InputError(f"frame {i} of {model.name!r} holds {piece!r:.120}, which is no segment") from None
            rows.append((j, i, model.name, row))
    return rows


def _segments(
    instance: Instance, streams: Streams, j: int, row: Sequence[tuple[Way, float]], frame: int, name: str, release: float,
    shift: float, base: int,
) -> list[Work]:  # fmt: skip
    """Works of one frame; what a segment reads from another comes when the slowest of its transfers is there."""
    works: list[Work] = []
    holder: dict[int, int] = {}
    for k, (way, start) in enumerate(row):
        first, last = (instance.columns.task_name[v] for v in (way.first, way.last))
        label = f"{name}:{first}" if first == last else f"{name}:{first}..{last}"
        works.append(Work(label, frame, way.device, way.seconds, release, planned=start + shift))
        holder |= dict.fromkeys(range(way.first, way.last + 1), k)
    slowest: dict[tuple[int, int], tuple[float, float]] = {}
    for u, v, sent in streams.models[j].edges if row else ():
        a, b = holder[u], holder[v]
        if a != b:
            one, other = row[a][0], row[b][0]
            seconds = _transfer(instance, one.device, other.device, sent)
            fixed, a_byte = streams.conversion.get((one.backend, other.backend), (0.0, 0.0))
            before = slowest.get((a, b), (0.0, 0.0))
            slowest[a, b] = max(before[0], seconds + fixed + sent * a_byte), before[1] + sent
    for (a, b), (seconds, sent) in sorted(slowest.items()):
        works[b].inputs.append((base + a, seconds, sent))
    return works


def _transfer(instance: Instance, p: int, q: int, sent: float) -> float:
    """Seconds of bytes from device p to device q: by their link, else through host memory."""
    if p == q:
        return 0.0
    a, b = instance.device_names[p], instance.device_names[q]
    direct = instance.link(a, b)
    ways: list[Link | None] = [direct] if direct is not None else []
    if direct is None:
        ways += [] if instance.is_host[p] else [instance.link(a, "host")]
        ways += [] if instance.is_host[q] else [instance.link("host", b)]
    seconds = 0.0
    for way in ways:
        if way is None:
            raise InputError(f"no way leads from {a!r} to {b!r}, and the plan sends data there")
        seconds += way.latency + (sent / way.bandwidth if way.bandwidth else 0.0)
    return seconds


def _timed(works: Sequence[Work], frames: Sequence[Frame]) -> list[Frame]:
    """Frames with their latencies; a frame of which some work never ran is dropped."""
    last = [-math.inf] * len(frames)
    for work in works:
        last[work.frame] = math.inf if math.isnan(work.start) else max(last[work.frame], work.end)
    return [
        frame._replace(latency=end - frame.release if math.isfinite(end) else math.inf)
        for frame, end in zip(frames, last, strict=True)
    ]


def _objective(
    streams: Streams, frames: Sequence[Frame], problem: str, question: Mapping[str, Any], rate: float
) -> float:
    """Value of the frames of one cycle."""
    if problem == "schedule.periodic_rate":
        return rate
    if problem == "schedule.periodic_drops":
        return math.fsum(streams.models[f.job].weight for f in frames if math.isinf(f.latency))
    lost = float(question.get("drop_cost") or 0.0)
    seconds = [f.latency if math.isfinite(f.latency) else lost * f.deadline for f in frames]
    if question.get("measure") == "p90":
        return sorted(seconds)[math.ceil(0.9 * len(seconds) - 1e-9) - 1]
    weight = [model.weight for model in streams.models]
    mean = [[s for f, s in zip(frames, seconds, strict=True) if f.job == j] for j in range(len(weight))]
    return math.fsum(w * math.fsum(row) / len(row) for w, row in zip(weight, mean, strict=True)) / math.fsum(weight)
