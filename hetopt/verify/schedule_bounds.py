"""Replay of lower bounds on the makespan of task graphs, without a solver and without compiled code.

Heads and tails are computed here a second time, from the instance (the argument is in :mod:`hetopt.algorithms.dag_bounds`,
whose code this file does not use). Everything is a sum of numbers >= 0: with whole numbers it is exact, else the result is
lowered by more than all roundings together can have added.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.verify.schedule import links_between

__all__ = ["heads_and_tails", "replay_schedule_bound", "whole_numbers"]

Floats = NDArray[np.float64]

_WIDEST = 64
_NEAR = 1e-9  # relative: which tasks count as of the head and tail that a certificate names


def replay_schedule_bound(instance: Instance, certificate: Mapping[str, Any]) -> float:
    """Makespan that no plan can beat, as a certificate of kind ``path`` or ``head-load-tail`` claims.

    Raises
    ------
    ValueError
        The certificate is of another kind, or holds numbers that prove nothing.
    """
    kind = certificate.get("kind")
    time = _times(instance)
    if kind == "path":
        head, tail = heads_and_tails(instance, time)
        bound = float((head + time + tail).min(axis=1).max(initial=0.0))
        exact = whole_numbers(instance)
    elif kind == "head-load-tail":
        prices = np.asarray(certificate.get("prices"), dtype=np.float64)
        a, b = float(certificate["head"]), float(certificate["tail"])
        if prices.shape != (instance.n_devices,) or not np.isfinite(prices).all() or (prices < 0).any():
            raise ValueError(f"expected {instance.n_devices} finite prices >= 0")
        if not (math.isfinite(a) and math.isfinite(b)) or not prices.sum() > 0:
            raise ValueError("the certificate's numbers are not finite, or all prices are zero")
        head, tail = (table.min(axis=1) for table in heads_and_tails(instance, time))
        inside = (head >= a * (1 - _NEAR)) & (tail >= b * (1 - _NEAR))
        if not inside.any():
            raise ValueError("no task has the head and the tail that the certificate names")
        priced = np.where(np.isfinite(time), np.where(np.isfinite(time), time, 0.0) * prices, np.inf).min(axis=1)
        work = math.fsum(priced[inside].tolist()) / math.fsum(prices.tolist())
        bound = float(head[inside].min()) + work + float(tail[inside].min())
        exact = False
    else:
        raise ValueError(f"the certificate's kind is {kind!r}, expected 'path' or 'head-load-tail'")
    if not math.isfinite(bound):
        raise ValueError("some task has no device that it can be reached on: the bound is infinite and proves nothing")
    return bound if exact else bound * (1.0 - (_WIDEST + 16) * (instance.n_tasks + 1) * 2.0**-53)


def whole_numbers(instance: Instance) -> bool:
    """Whether all times, transfers, releases and availabilities are whole numbers, so that some best plan has only such."""
    facts = [instance.columns.release, instance.available_from]
    if not instance.integral:
        return False
    if len(instance.edges):
        latency, slowness = links_between(instance)
        linked = np.isfinite(latency)
        facts.append(latency[linked])
        for sent in np.unique(instance.edge_data).tolist():
            if not _whole(sent * slowness[linked]):
                return False
    total = float(np.where(instance.eligible, instance.time, 0.0).max(axis=1).sum())
    return all(_whole(fact) for fact in facts) and total < 2.0**52


def heads_and_tails(instance: Instance, time: Floats) -> tuple[Floats, Floats]:
    """(n, d) earliest start of each task on each device, and least time from its end to the end of all."""
    latency, slowness = links_between(instance)
    release = instance.columns.release[instance.job_of]
    n = instance.n_tasks
    floor = np.maximum(release[:, None], instance.available_from[None, :])
    before: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    after: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    for (u, v), sent in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True):
        before[v].append((u, sent))
        after[u].append((v, sent))
    order = _producers_first(before, after)
    head = _earliest(order, before, time, latency, slowness, floor)
    tail = _earliest(order[::-1], after, time, latency.T, slowness.T, np.zeros_like(floor))
    return head, tail


def _times(instance: Instance) -> Floats:
    """(n, d) seconds; ``inf`` also where another task of the same group cannot run."""
    time = np.array(instance.time)
    for g in range(len(instance.columns.group_name)):
        members = np.flatnonzero(instance.group == g)
        time[np.ix_(members, ~instance.eligible[members].all(axis=0))] = np.inf
    return time


def _earliest(
    order: list[int],
    before: list[list[tuple[int, float]]],
    time: Floats,
    latency: Floats,
    slowness: Floats,
    floor: Floats,
) -> Floats:
    d = time.shape[1]
    head = np.where(np.isfinite(time), floor, np.inf)
    own = np.eye(d, dtype=bool)
    for v in order:
        if not before[v]:
            continue
        producers = [u for u, _ in before[v]]
        sent = np.array([data for _, data in before[v]])
        ways = (head[producers] + time[producers])[:, :, None] + latency[None] + sent[:, None, None] * slowness[None]
        remote = np.where(own[None], np.inf, ways).min(axis=1)  # (producers, d)
        for q in np.flatnonzero(np.isfinite(time[v])).tolist():
            head[v, q] = _joined(remote[:, q], head[producers, q], time[producers, q], float(floor[v, q]))
    return head


def _joined(remote: Floats, begin: Floats, length: Floats, floor: float) -> float:
    """Least start over how many of the producers, those of latest remote arrival first, are on the task's own device."""
    order = np.argsort(-remote, kind="stable").tolist()
    best = max(floor, float(remote[order[0]]))
    local: list[tuple[float, float]] = []
    for k, j in enumerate(order[:_WIDEST], start=1):
        if math.isinf(length[j]):
            break
        insort(local, (float(begin[j]), float(length[j])))
        end = 0.0
        for moment, seconds in local:
            end = max(end, moment) + seconds
        end = max(end, floor)
        more = k < len(order) and k < _WIDEST
        best = min(best, max(end, float(remote[order[k]])) if more else end)
        if end >= best:
            break
    return best


def _producers_first(before: list[list[tuple[int, float]]], after: list[list[tuple[int, float]]]) -> list[int]:
    waiting = [len(pairs) for pairs in before]
    order = [v for v, count in enumerate(waiting) if count == 0]
    for v in order:
        for w, _ in after[v]:
            waiting[w] -= 1
            if waiting[w] == 0:
                order.append(w)
    return order


def _whole(values: Floats) -> bool:
    return bool((values == np.floor(values)).all())
