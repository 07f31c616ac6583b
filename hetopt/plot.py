"""Pictures of instances and plans, with matplotlib (extra ``[plot]``): where people would rather look than read.

A plan with start times becomes a Gantt chart, with the memory that each device holds below it where the question counts that over
time. A sequence of tasks in stages becomes a bar a stage over the tasks that it holds,
once as high as its seconds and once as high as its memory, against what its device has. Another placement becomes bars of load
with the value and the bound, and, for a graph of tasks, a strip over the tasks in topological order that shows which device
holds what. An instance alone becomes its matrix of times.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.replay import replayed
from hetopt.result import Result
from hetopt.verify.residence import occupied, residents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["figure", "save"]

FORMATS = ("png", "svg", "pdf")
MOST_LABELS = 40
# Told apart by people with colour vision deficiencies (Okabe and Ito, 2008).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


def save(instance: Instance, result: Result | None, path: str | Path) -> None:
    """Draw and write a picture (.png, .svg or .pdf), whole or not at all.

    Raises
    ------
    InputError
        matplotlib is missing, or the name has another ending.
    """
    from hetopt.io.atomic import atomically

    ending = Path(path).suffix.lower().lstrip(".")
    if ending not in FORMATS:
        raise InputError(f"{str(path)!r} ends in {ending!r}; expected .png, .svg or .pdf")
    drawn = figure(instance, result)
    with atomically(path) as stream:
        drawn.savefig(stream, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)


def figure(instance: Instance, result: Result | None = None) -> Figure:
    """Matplotlib figure of a plan, or of an instance's times when there is no plan."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError('pictures need matplotlib; install it with: pip install "hetopt[plot]"') from error
    plan = result.solution if result is not None else None
    if plan is not None and plan.start is not None and plan.placement is not None:
        height = 1.2 + 0.35 * min(instance.n_devices, 40)
        if result is not None and result.question.get("memory") == "over-time" and (plan.placement >= 0).all():
            drawn = Figure(figsize=(9, height + 2.5), layout="constrained")
            above, below = drawn.subplots(2, 1, sharex=True, height_ratios=[height, 2.5])
            _gantt(above, instance, plan.placement, plan.start)
            above.set_xlabel("")
            _memories_over_time(below, instance, plan.placement, plan.start)
        else:
            drawn = Figure(figsize=(9, height), layout="constrained")
            _gantt(drawn.subplots(), instance, plan.placement, plan.start)
    elif plan is not None and "frames" in plan.details and result is not None:
        drawn = Figure(figsize=(9, 1.6 + 0.5 * min(instance.n_devices, 40)), layout="constrained")
        _cycles(drawn.subplots(), instance, result)
    elif (
        plan is not None and plan.placement is not None and result is not None and (stages := _stages(instance, result))
    ):
        drawn = Figure(figsize=(9, 5.5), layout="constrained")
        above, below = drawn.subplots(2, 1, sharex=True)
        _stage_times(above, instance, result, stages)
        _stage_memories(below, instance, result, stages)
    elif plan is not None and plan.placement is not None and result is not None:
        graph = len(instance.edges) > 0
        height = 1.4 + 0.3 * min(instance.n_devices, 40)
        drawn = Figure(figsize=(9, height * (2 if graph else 1)), layout="constrained")
        axes = drawn.subplots(2 if graph else 1, 1, squeeze=False)
        _loads(axes[0, 0], instance, result)
        if graph:
            _strip(axes[1, 0], instance, plan.placement)
    elif plan is not None and plan.shares is not None:
        drawn = Figure(figsize=(9, 4), layout="constrained")
        _shares(drawn.subplots(), instance, plan.shares)
    else:
        drawn = Figure(figsize=(8, 5), layout="constrained")
        _matrix(drawn.subplots(), instance)
    title = instance.name or (result.problem if result is not None else "instance")
    if result is not None and result.objective is not None:
        gap = "" if result.gap is None else f", gap {100 * round(result.gap, 9):.3g} %"
        title += f": {result.status}, {result.objective:.7g}{gap}"
    drawn.suptitle(title, fontsize=11)
    return drawn


def _stages(instance: Instance, result: Result) -> list[tuple[int, int, int]]:
    """(first, beyond the last, device) of each stage of a sequence, tasks numbered along it; empty without such stages."""
    assert result.solution is not None and result.solution.placement is not None
    n, place = instance.n_tasks, result.solution.placement
    along = np.column_stack([np.arange(n - 1), np.arange(1, n)])
    if (
        n < 2
        or result.solution.details
        or (place < 0).any()
        or not np.array_equal(np.unique(instance.edges, axis=0), along)
    ):
        return []
    starts = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), n]
    found = [(a, b, int(place[a])) for a, b in pairwise(starts)]
    return found if len({device for _, _, device in found}) == len(found) <= MOST_LABELS else []


def _stage_times(axes: Axes, instance: Instance, result: Result, stages: list[tuple[int, int, int]]) -> None:
    """A bar a stage, as wide as its tasks and as high as its seconds, with value and bound where these are what decides."""
    heights = [float(instance.time[a:b, device].sum()) for a, b, device in stages]
    top = max(heights)
    for (a, b, device), height in zip(stages, heights, strict=True):
        axes.bar(a, height, b - a, align="edge", color=_colour(instance, device), edgecolor="white")
        axes.text(
            (a + b) / 2, 0.03 * top, instance.device_names[device], rotation=90, fontsize=8, ha="center", va="bottom",
            bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    if result.objective is not None and np.isclose(result.objective, top, rtol=1e-6):
        axes.axhline(result.objective, color="black", linewidth=1, label=f"value {result.objective:.6g}")
        if result.bound is not None:
            axes.axhline(result.bound, color="#D55E00", linewidth=1, linestyle="--", label=f"bound {result.bound:.6g}")
        axes.legend(fontsize=8, loc="upper right", ncols=2)
    axes.set_ylim(0, 1.2 * top or 1.0)
    axes.set_ylabel("time of the stage")


def _stage_memories(axes: Axes, instance: Instance, result: Result, stages: list[tuple[int, int, int]]) -> None:
    """What each stage holds, weights and cache, in a frame as high as its device's usable memory."""
    tokens = float(result.question.get("tokens", 0) or result.evaluation.get("tokens", 0) or 0)
    cache = instance.columns.kv_bytes_per_token * tokens
    sizes = [(float(instance.memory[a:b].sum()), float(cache[a:b].sum())) for a, b, _ in stages]
    room = [float(instance.capacity[device]) for _, _, device in stages]
    most = max([weights + kept for weights, kept in sizes] + [r for r in room if np.isfinite(r)])
    unit, name = (1e9, "GB") if most >= 1e9 else (1.0, "bytes")
    for (a, b, device), (weights, kept), usable in zip(stages, sizes, room, strict=True):
        colour = _colour(instance, device)
        axes.bar(a, weights / unit, b - a, align="edge", color=colour, edgecolor="white")
        axes.bar(a, kept / unit, b - a, weights / unit, align="edge", color=colour, alpha=0.45, edgecolor="white")
        if np.isfinite(usable):
            axes.plot([a, a, b, b], [0, usable / unit, usable / unit, 0], color="black", linewidth=0.8)
    axes.set_ylabel(f"memory, {name}{' (pale: cache)' if tokens else ''}")
    axes.set_xlabel("tasks along the sequence; frame: usable memory of the stage's device")
    axes.set_xlim(0, instance.n_tasks)
    axes.set_ylim(0, 1.08 * most / unit or 1.0)


def _colour(instance: Instance, device: int) -> str:
    """One colour a type of device."""
    kinds = list(dict.fromkeys(v.type or v.name for v in instance.devices))
    one = instance.devices[device]
    return COLOURS[kinds.index(one.type or one.name) % len(COLOURS)]


def _loads(axes: Axes, instance: Instance, result: Result) -> None:
    """Bars of the verifier's numbers for each device, with value and bound as lines."""
    devices = result.evaluation.get("devices")
    rows: Mapping[str, Any] = devices if isinstance(devices, Mapping) else {}
    names = list(rows) or list(instance.device_names)
    parts = [key for key in ("compute", "in", "out") if any(key in rows[name] for name in rows)] or ["load"]
    left = np.zeros(len(names))
    for number, part in enumerate(parts):
        width = np.array([float(rows.get(name, {}).get(part) or 0.0) for name in names])
        axes.barh(
            names,
            width,
            left=left,
            color=COLOURS[number],
            label=part.replace("in", "transfer in").replace("out", "transfer out"),
        )
        left += width
    if result.objective is not None:
        axes.axvline(result.objective, color="black", linewidth=1, label=f"value {result.objective:.6g}")
    if result.bound is not None:
        axes.axvline(result.bound, color="#D55E00", linewidth=1, linestyle="--", label=f"bound {result.bound:.6g}")
    axes.invert_yaxis()
    axes.set_xlabel("load")
    axes.legend(fontsize=8, loc="lower right")
    _quiet_labels(axes, names)


def _strip(axes: Axes, instance: Instance, placement: NDArray[np.int64]) -> None:
    """Tasks in topological order along x, the device that holds each along y."""
    order = topological_order(instance)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    axes.scatter(
        rank,
        placement,
        s=max(3.0, min(40.0, 3000.0 / len(rank))),
        marker="s",
        c=[COLOURS[p % len(COLOURS)] for p in placement],
    )
    axes.set_yticks(range(instance.n_devices), instance.device_names)
    axes.set_ylim(instance.n_devices - 0.5, -0.5)
    axes.set_xlabel("tasks in topological order")
    _quiet_labels(axes, list(instance.device_names))


def _gantt(axes: Axes, instance: Instance, placement: NDArray[np.int64], start: NDArray[np.float64]) -> None:
    """A bar a task, on its device's line, coloured by job."""
    for k in np.flatnonzero((placement >= 0) & np.isfinite(start)).tolist():
        time = instance.time[k, placement[k]]
        axes.barh(
            placement[k],
            time,
            left=start[k],
            color=COLOURS[int(instance.job_of[k]) % len(COLOURS)],
            edgecolor="white",
            linewidth=0.5,
        )
        if instance.n_tasks <= MOST_LABELS:
            axes.text(start[k] + time / 2, placement[k], instance.labels[k], ha="center", va="center", fontsize=7)
    axes.set_yticks(range(instance.n_devices), instance.device_names)
    axes.set_ylim(instance.n_devices - 0.5, -0.5)
    axes.set_xlabel("time")
    _quiet_labels(axes, list(instance.device_names))


def _cycles(axes: Axes, instance: Instance, result: Result) -> None:
    """Two cycles of a plan that repeats, as the replay runs it: a bar a segment, coloured by model, a tick at each release."""
    found = replayed(instance, result)
    end = max(run.end for run in found.runs)
    begin = max(0.0, end - 3 * found.seconds) // found.seconds * found.seconds
    seen = set()
    for run in found.runs:
        if run.end > begin and run.start < begin + 2 * found.seconds:
            name = instance.columns.job_name[run.frame.job]
            axes.barh(
                run.device, run.end - run.start, left=run.start - begin, edgecolor="white", linewidth=0.8,
                color=COLOURS[run.frame.job % len(COLOURS)], label=None if name in seen else name,
            )  # fmt: skip
            seen.add(name)
            axes.plot(
                run.frame.release - begin, instance.n_devices - 0.4, marker="|", color=COLOURS[run.frame.job % len(COLOURS)],
                clip_on=False,
            )  # fmt: skip
    axes.axvline(found.seconds, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 2 * found.seconds)
    axes.set_yticks(range(instance.n_devices), instance.device_names)
    axes.set_ylim(instance.n_devices - 0.4, -0.6)
    axes.set_xlabel("seconds; two cycles, ticks below are releases")
    axes.legend(fontsize=8, loc="upper right", ncols=4)
    _quiet_labels(axes, list(instance.device_names))


def _memories_over_time(
    axes: Axes, instance: Instance, placement: NDArray[np.int64], start: NDArray[np.float64]
) -> None:
    """What each device holds from moment to moment, in hundredths of what it has, or in bytes where no device has a limit."""
    done = start + instance.time[np.arange(instance.n_tasks), placement]
    found = residents(instance, placement, start, done)
    weights = np.bincount(placement, weights=instance.memory, minlength=instance.n_devices)
    limited = np.flatnonzero(np.isfinite(instance.capacity) & (instance.capacity > 0))
    for i in (limited if limited.size else np.arange(instance.n_devices)).tolist()[:MOST_LABELS]:
        moments, level = occupied(found, i, float(weights[i]))
        whole = 0.01 * float(instance.capacity[i]) if limited.size else 1.0
        last = max(float(moments[-1]), float(done.max(initial=0.0)))
        seen = np.diff(moments, append=np.inf) > 1e-8 * last  # sums of decimals part what is one moment
        moments, level = moments[seen], level[seen]
        axes.step(
            [*moments.tolist(), last],
            [*(level / whole).tolist(), float(level[-1]) / whole],
            where="post",
            color=COLOURS[i % len(COLOURS)],
            label=instance.device_names[i],
        )
    if limited.size:
        axes.axhline(100, color="black", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time")
    axes.set_ylabel("memory, % of the device's" if limited.size else "memory, bytes")
    axes.legend(fontsize=8, loc="upper right", ncols=4)


def _shares(axes: Axes, instance: Instance, shares: NDArray[np.float64]) -> None:
    """A column a job, its shares on the devices one on the other; many jobs are put in the order of their main devices."""
    n, d = shares.shape
    few = n <= MOST_LABELS
    order = np.arange(n) if few else np.lexsort((-shares.sum(axis=1), shares.argmax(axis=1)))
    below = np.zeros(n)
    for i in range(d):
        above = below + shares[order, i]
        edges = np.arange(n + 1) - 0.5
        name = instance.device_names[i] if d <= MOST_LABELS else None
        axes.stairs(above, edges, baseline=below, fill=True, color=COLOURS[i % len(COLOURS)], label=name)
        below = above
    axes.set_xlim(-0.5, n - 0.5)
    axes.set_ylim(0, 1.15 * max(float(below.max(initial=0.0)), 1e-300))  # room for the legend
    axes.set_ylabel("share")
    if few:
        axes.set_xticks(range(n), instance.labels, rotation=45, ha="right")
    else:
        axes.set_xlabel(f"{n} tasks, by their main devices")
    if d <= MOST_LABELS:
        axes.legend(fontsize=8, loc="upper right", ncols=8)


def _matrix(axes: Axes, instance: Instance) -> None:
    """The matrix of times; blank where a task cannot run."""
    image = axes.imshow(np.where(instance.eligible, instance.time, np.nan), aspect="auto", cmap="viridis")
    axes.figure.colorbar(image, ax=axes, label="time")
    axes.set_xlabel("device")
    axes.set_ylabel("task")
    if instance.n_tasks <= MOST_LABELS:
        axes.set_yticks(range(instance.n_tasks), instance.labels)
    if instance.n_devices <= MOST_LABELS:
        axes.set_xticks(range(instance.n_devices), instance.device_names, rotation=45, ha="right")


def _quiet_labels(axes: Axes, names: list[str]) -> None:
    if len(names) > MOST_LABELS:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(names)} devices")


def topological_order(instance: Instance) -> NDArray[np.int64]:
    """(n,) task numbers, predecessors first, by longest path from a source; ties in file order."""
    n, edges = instance.n_tasks, instance.edges
    depth = np.zeros(n, np.int64)
    if len(edges):
        # Longest paths by relaxation in waves: as many waves as the graph is deep.
        waiting = np.bincount(edges[:, 1], minlength=n)
        wave = np.flatnonzero(waiting == 0)
        graph = instance.successors
        while wave.size:
            rows = graph[wave]
            after = rows.indices
            np.maximum.at(depth, after, np.repeat(depth[wave] + 1, np.diff(rows.indptr)))
            np.subtract.at(waiting, after, 1)
            wave = np.unique(after[waiting[after] == 0])
    return np.argsort(depth, kind="stable")
