"""An instance as kernels with copies, a timing as a plan, and the list schedules that begin every search."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.dag_graph import graph_of
from hetopt.algorithms.dag_kernels import rank_up
from hetopt.algorithms.kernel_stages import Kernels, Timed, timed
from hetopt.formulation import Question
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.kernels import TOLERANCE, facts_of

__all__ = ["deadlines_kept", "ends_of", "horizon", "kernels", "listed", "plan_of", "ranks", "ways_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def kernels(instance: Instance, question: Question | None) -> Kernels:
    """The instance's kernels and devices; ways that split a kernel in units of the grain of the question, or of the file's own.

    Raises
    ------
    InputError
        A table cannot be read, or a device has no link with the host.
    """
    return _kernels(instance, int((instance.question if question is None else question).get("grain", 1)))


@lru_cache(maxsize=4)
def _kernels(instance: Instance, grain: int) -> Kernels:
    facts, n, d = facts_of(instance), instance.n_tasks, instance.n_devices
    first, ways = [0], []
    for v in range(n):
        able = np.flatnonzero(instance.eligible[v]).tolist()
        ways += [(p, -1, 1.0) for p in able]
        if facts.split[v]:
            ways += [(p, q, a / grain) for p in able for q in able if p < q for a in range(1, grain)]
        first.append(len(ways))
    g = graph_of(
        instance.time, instance.edges, instance.edge_data, np.zeros((d, d)), np.zeros((d, d)),
        release=instance.columns.release[instance.job_of], free=instance.available_from,
    )  # fmt: skip
    number = 2 * np.arange(d)
    engine = np.stack([number, np.where(facts.engines == 1, number, number + 1)], axis=1)
    some = np.minimum(facts.queues, 2 * n).astype(np.int64)
    return Kernels(
        np.array(first, np.int64), np.array([w[0] for w in ways], np.int64), np.array([w[1] for w in ways], np.int64),
        np.array([w[2] for w in ways]), g.time, g.pred_start, g.pred, g.pred_data, g.succ_start, g.succ, g.succ_data,
        facts.given, facts.wanted, facts.down, facts.up, np.array(instance.is_host), engine,
        np.minimum(facts.slots, 2 * n), some, g.release, g.free,
    )  # fmt: skip


def plan_of(instance: Instance, data: Kernels, grain: int, found: Timed) -> Solution:
    """The plan of a timing."""
    rows: list[list[Any]] = []
    for v, label in enumerate(instance.labels):
        w = int(found.way[v])
        share = float(data.share[w])
        for k, p in enumerate((int(data.one[w]), int(data.two[w]))):
            if p < 0:
                continue
            units = round((share if k == 0 else 1 - share) * grain)
            seconds, start = found.seconds[2 * v + k].tolist(), found.start[2 * v + k].tolist()
            moments = [s if t > 0 or k == 1 else None for k, (s, t) in enumerate(zip(start, seconds, strict=True))]
            rows.append([label, instance.device_names[p], units, *moments])
    return Solution(details={"parts": rows})


def ways_of(instance: Instance, data: Kernels, grain: int, solution: Solution) -> Ints | None:
    """(n,) way of each kernel in a plan; None where it names none."""
    found: list[dict[int, int]] = [{} for _ in range(instance.n_tasks)]
    for label, name, units, *_ in solution.details.get("parts", []):
        found[instance.task_index[label]][instance.device_index[name]] = units
    ways = np.full(instance.n_tasks, -1, np.int64)
    for v, mine in enumerate(found):
        devices = sorted(mine)
        for w in range(data.first[v], data.first[v + 1]):
            there = [int(data.one[w])] + ([int(data.two[w])] if data.two[w] >= 0 else [])
            if there == devices and round(data.share[w] * grain) == mine[devices[0]]:
                ways[v] = w
    return None if (ways < 0).any() else ways


def ranks(data: Kernels) -> Floats:
    """(n,) mean way to the end, a copy back and one forth between two kernels that mean devices run."""
    n = len(data.given)
    order = np.argsort(_depth(data), kind="stable")
    able = np.isfinite(data.time)
    mean = np.where(able, data.time, 0.0).sum(axis=1) / able.sum(axis=1)
    late, each = (float(row) for row in (data.down + data.up).mean(axis=0))
    assert len(order) == n
    way: Floats = rank_up(order, mean, data.succ_start, data.succ, data.succ_data, late / 2, each / 2)
    return way


def _depth(data: Kernels) -> Ints:
    """(n,) edges on the longest way to a kernel."""
    n = len(data.given)
    depth = np.zeros(n, np.int64)
    waiting = np.diff(data.pred_start)
    ready = np.flatnonzero(waiting == 0).tolist()
    for u in ready:
        for v in data.succ[data.succ_start[u] : data.succ_start[u + 1]].tolist():
            depth[v] = max(depth[v], depth[u] + 1)
            waiting[v] -= 1
            if waiting[v] == 0:
                ready.append(v)
    return depth


def listed(data: Kernels) -> Timed:
    """By falling rank, each kernel given the whole device on which all kernels so far end first; then timed."""
    rank, n = ranks(data), len(data.given)
    keys = np.repeat(-rank, 6).reshape(-1, 3)
    order = np.lexsort((_depth(data), -rank))
    fastest = np.array(
        [
            min(range(data.first[v], data.first[v + 1]), key=lambda w: _length(data, v, w))
            for v in range(n)
        ],
        np.int64,
    )  # fmt: skip
    best = timed(data, fastest, keys, True)
    way = fastest.copy()
    for v in order.tolist():
        whole = [w for w in range(data.first[v], data.first[v + 1]) if data.two[w] < 0]
        tried = []
        for w in whole:
            way[v] = w
            found = timed(data, way, keys, True)
            own = found.start[2 * v, 2] + found.seconds[2 * v, 2]
            tried.append((found.end, own, w))
            best = min(best, found, key=lambda one: one.end)
        way[v] = min(tried)[2]
    return min(best, timed(data, way, keys, True), key=lambda one: one.end)


def _length(data: Kernels, v: int, w: int) -> float:
    return float(data.time[v, data.one[w]]) if data.two[w] < 0 else math.inf


def ends_of(data: Kernels) -> tuple[Floats, Floats]:
    """(n,) all bytes that a kernel reads of others, and the most that one asks of it."""
    n = len(data.given)
    sent = np.bincount(np.repeat(np.arange(n), np.diff(data.pred_start)), weights=data.pred_data, minlength=n)
    most = np.zeros(n)
    np.maximum.at(most, np.repeat(np.arange(n), np.diff(data.succ_start)), data.succ_data)
    return sent.astype(np.float64), most


def horizon(data: Kernels) -> float:
    """A moment by which some best plan has ended: one stage after the other, each as long as it may be."""
    sent, most = ends_of(data)
    able = np.isfinite(data.time)
    write = data.down[None, :, 0] + np.outer(data.given + sent, data.down[:, 1])
    back = data.up[None, :, 0] + np.outer(data.wanted + most, data.up[:, 1])
    longest = np.where(able, write + np.where(able, data.time, 0.0) + back, 0.0).sum(axis=1)
    return 1.001 * (float(max(data.release.max(initial=0.0), data.free.max())) + math.fsum(longest.tolist()))


def deadlines_kept(instance: Instance, found: Timed) -> bool:
    """Whether every job of a timing ends by its deadline."""
    last = np.zeros(instance.n_jobs)
    ends = (found.start + found.seconds).max(axis=1).reshape(-1, 2).max(axis=1)
    np.maximum.at(last, instance.job_of, ends)
    return bool((last <= instance.columns.deadline * (1 + TOLERANCE)).all())
