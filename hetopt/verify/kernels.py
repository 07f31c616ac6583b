"""Check a plan of kernels with their copies, and give its last end; replay the bound by paths. Shares nothing with any model.

A kernel runs whole on one device or in two parts on two devices. Each part writes what it needs from host memory to its device,
computes, and reads its result back, in this order; a device that works in host memory does neither. What is copied follows from
who runs where: see :mod:`formulations.schedule.kernels`, whose numbers (2) to (5) stand beside the code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance

__all__ = ["Facts", "Report", "check_kernels", "facts_of", "replay_paths"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-9


class Facts(NamedTuple):
    """What the tables and links say: (n,) bytes to and from the host and whether a kernel may be split, and the devices.

    ``down`` and ``up`` (d, 2) are seconds and seconds a byte from and to the host; ``engines`` (d,) 0, 1 or 2 copy engines;
    ``queues`` (d,) kernels in flight, ``inf`` for any; ``slots`` (d,) kernels that compute at once.
    """

    given: Floats
    wanted: Floats
    split: NDArray[np.bool_]
    down: Floats
    up: Floats
    engines: NDArray[np.int64]
    queues: Floats
    slots: NDArray[np.int64]


class Report(NamedTuple):
    """(jobs,) last end of each job, busy seconds of each device's parts (d, 3), a sentence for each broken constraint."""

    end: Floats
    busy: Floats
    violations: tuple[str, ...]


def facts_of(instance: Instance) -> Facts:
    """Read ``tables.engines``, ``tables.kernels`` and the links to and from the host.

    Raises
    ------
    InputError
        A table names something unknown or holds something else than expected, or a device has no link with the host.
    """
    n, d = instance.n_tasks, instance.n_devices
    rows = _rows(instance, "engines", ("copy", "queues"), {"*", *instance.device_names, *_types(instance)})
    engines, queues = np.zeros(d, np.int64), np.full(d, np.inf)
    down, up = np.zeros((d, 2)), np.zeros((d, 2))
    for i, device in enumerate(instance.devices):
        row = next((rows[key] for key in (device.name, device.type or "", "*") if key in rows), {})
        path = f"$.tables.engines of {device.name!r}"
        engines[i] = 0 if device.host else _whole(row.get("copy", 2), 1, 2, f"{path}, copy")
        if row.get("queues") is not None:
            queues[i] = _whole(row["queues"], 1, 2**31, f"{path}, queues")
        for table, ends in ((down, ("host", device.name)), (up, (device.name, "host"))):
            if not device.host:
                link = instance.need_link(*ends)
                table[i] = link.latency, 1.0 / link.bandwidth if link.bandwidth else 0.0
    rows = _rows(instance, "kernels", ("in", "out", "whole"), set(instance.labels))
    given, wanted, split = np.zeros(n), np.zeros(n), np.ones(n, bool)
    for label, row in rows.items():
        k, path = instance.task_index[label], f"$.tables.kernels of {label!r}"
        for key, column in (("in", given), ("out", wanted)):
            value = row.get(key, 0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e140:
                raise InputError(f"{path}, {key} is {value!r}, expected bytes, 0 or more")
            column[k] = value
        if not isinstance(row.get("whole", False), bool):
            raise InputError(f"{path}, whole is {row['whole']!r}, expected true or false")
        split[k] = not row.get("whole", False)
    slots = np.array([device.slots for device in instance.devices], np.int64)
    return Facts(given, wanted, split, down, up, engines, queues, slots)


def _types(instance: Instance) -> list[str]:
    return [device.type for device in instance.devices if device.type]


def _rows(instance: Instance, name: str, keys: tuple[str, ...], known: set[str]) -> Mapping[str, Mapping[str, Any]]:
    table = instance.tables.get(name, {})
    if not isinstance(table, Mapping) or not all(isinstance(row, Mapping) for row in table.values()):
        raise InputError(f"$.tables.{name} must map names to objects with {', '.join(keys)}")
    for entry, row in table.items():
        if entry not in known:
            raise InputError(
                f"$.tables.{name} names {entry!r}; {nearest(entry, sorted(known)[:1000], what='what it may name')}"
            )
        for key in row:
            if key not in keys:
                raise InputError(f"$.tables.{name}.{entry} has {key!r}; {nearest(key, keys, what='the keys')}")
    return table


def _whole(value: Any, low: int, high: int, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{path} is {value!r}, expected a whole number from {low} to {high}")
    return value


class _Part(NamedTuple):
    """A part of a plan: device, share, seconds of its write, computation and read, and their starts."""

    device: int
    share: float
    seconds: tuple[float, float, float]
    start: tuple[float, float, float]


def check_kernels(instance: Instance, details: Mapping[str, Any], grain: int) -> Report:
    """Recompute a plan ``{"parts": [[kernel, device, units, write, compute, read], ...]}``: units of ``grain``, starts."""
    facts, jobs = facts_of(instance), instance.n_jobs
    nothing = Report(np.full(jobs, np.inf), np.zeros((instance.n_devices, 3)), ())
    wrong = [f"the plan's details hold {key!r}, expected 'parts'" for key in details if key != "parts"]
    rows = details.get("parts")
    if not isinstance(rows, list):
        return nothing._replace(violations=(*wrong, "the plan has no list of parts"))
    placed: list[dict[int, tuple[int, list[float | None]]]] = [{} for _ in range(instance.n_tasks)]
    for row in rows:
        said = _read(instance, row, grain)
        if isinstance(said, str):
            return nothing._replace(violations=(*wrong, said))
        k, i, units, starts = said
        if i in placed[k]:
            wrong.append(f"kernel {instance.labels[k]!r} has two parts on {instance.device_names[i]!r}")
        if not instance.eligible[k, i]:
            wrong.append(f"kernel {instance.labels[k]!r} cannot run on {instance.device_names[i]!r}")
        placed[k][i] = (units, starts)
    for k, mine in enumerate(placed):  # (1)
        total = sum(units for units, _ in mine.values())
        if total != grain:
            wrong.append(f"kernel {instance.labels[k]!r} has {total} of its {grain} units placed")
        if len(mine) > (2 if facts.split[k] else 1):
            most = "two devices" if facts.split[k] else "one device: it cannot be split"
            wrong.append(f"kernel {instance.labels[k]!r} runs on {len(mine)} devices, and may on {most}")
    if wrong:
        return nothing._replace(violations=tuple(wrong))
    parts = _with_seconds(instance, facts, placed, grain, wrong)
    if wrong:
        return nothing._replace(violations=tuple(wrong))
    _check_moments(instance, parts, wrong)
    _check_resources(instance, facts, parts, wrong)
    end, busy = np.zeros(jobs), np.zeros((instance.n_devices, 3))
    for k, mine_parts in enumerate(parts):
        for part in mine_parts:
            j = int(instance.job_of[k])
            end[j] = max(end[j], part.start[2] + part.seconds[2])
            busy[part.device] += part.seconds
    deadline = instance.columns.deadline
    wrong += [
        f"job {instance.columns.job_name[j]!r} ends at {end[j]:.9g}, {end[j] - deadline[j]:.9g} after its deadline"
        for j in np.flatnonzero(end > deadline * (1 + TOLERANCE))[:20].tolist()
    ]
    return Report(end, busy, tuple(wrong))


def _read(instance: Instance, row: Any, grain: int) -> str | tuple[int, int, int, list[float | None]]:
    """Kernel, device, units and starts of one part; a sentence where it is none."""
    if not isinstance(row, list) or len(row) != 6:
        return f"the part {row!r:.80} is no list of kernel, device, units and three starts"
    label, name, units, *starts = row
    if not isinstance(label, str) or label not in instance.task_index:
        return f"the part {row!r:.80} names no kernel of the instance"
    if not isinstance(name, str) or name not in instance.device_index:
        return f"the part {row!r:.80} names no device of the instance"
    if isinstance(units, bool) or not isinstance(units, int) or not 1 <= units <= grain:
        return f"the part {row!r:.80} has {units!r:.20} units, expected a whole number from 1 to {grain}"
    for start in starts:
        if start is not None and (
            isinstance(start, bool) or not isinstance(start, (int, float)) or not math.isfinite(start)
        ):
            return f"the part {row!r:.80} has the start {start!r:.20}, expected seconds or null"
    return instance.task_index[label], instance.device_index[name], units, starts


def _with_seconds(instance: Instance, facts: Facts, placed: Any, grain: int, wrong: list[str]) -> list[list[_Part]]:
    """(2) and (3): what each part copies and how long it takes; a start is needed where there is something to do."""
    read: list[list[tuple[int, float]]] = [[] for _ in placed]
    sent: list[list[tuple[int, float]]] = [[] for _ in placed]
    for (u, v), data in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True):
        read[v].append((u, data))
        sent[u].append((v, data))
    found: list[list[_Part]] = []
    for k, mine in enumerate(placed):
        found.append([])
        for i, (units, (write, compute, back)) in sorted(mine.items()):
            share, whole = units / grain, len(mine) == 1
            away = [data for u, data in read[k] if not (whole and list(placed[u]) == [i])]
            asked = [data for w, data in sent[k] if not (whole and list(placed[w]) == [i])]
            takes = bool(away) or facts.given[k] > 0
            gives = bool(asked) or facts.wanted[k] > 0
            seconds = [0.0, share * float(instance.time[k, i]), 0.0]
            if takes and not instance.devices[i].host:
                seconds[0] = facts.down[i, 0] + share * (facts.given[k] + math.fsum(away)) * facts.down[i, 1]
            if gives and not instance.devices[i].host:
                seconds[2] = facts.up[i, 0] + share * (facts.wanted[k] + max(asked, default=0.0)) * facts.up[i, 1]
            if compute is None or (write is None and seconds[0] > 0) or (back is None and seconds[2] > 0):
                wrong.append(
                    f"a part of {instance.labels[k]!r} on {instance.device_names[i]!r} lacks the start of something it does"
                )
                continue
            begin = compute if write is None else write
            last = compute + seconds[1] if back is None else back
            found[k].append(_Part(i, share, (seconds[0], seconds[1], seconds[2]), (begin, compute, last)))
    return found


def _check_moments(instance: Instance, parts: list[list[_Part]], wrong: list[str]) -> None:
    """(4): the order inside a part, releases, and what a kernel waits for."""

    def early(moment: float, limit: float, k: int, i: int, what: str) -> None:
        if moment < limit - TOLERANCE * abs(limit) and len(wrong) < 20:
            name = instance.device_names[i]
            wrong.append(f"{instance.labels[k]!r} on {name!r} {what} at {moment:.9g}, before {limit:.9g}")

    for k, mine in enumerate(parts):
        for part in mine:
            release = float(instance.columns.release[instance.job_of[k]])
            free = max(release, float(instance.available_from[part.device]))
            early(part.start[0], free, k, part.device, "starts, before its release or its device is free,")
            early(part.start[1], part.start[0] + part.seconds[0], k, part.device, "computes, before its write ends,")
            early(part.start[2], part.start[1] + part.seconds[1], k, part.device, "is read, before it is computed,")
    for u, v in instance.edges.tolist():
        alike = len(parts[u]) == len(parts[v]) == 1 and parts[u][0].device == parts[v][0].device
        for part in parts[v]:
            for other in parts[u]:
                stage = 1 if alike else 2
                limit = other.start[stage] + other.seconds[stage]
                verb = "computes" if alike else "starts to write"
                early(
                    part.start[1 if alike else 0],
                    limit,
                    v,
                    part.device,
                    f"{verb}, before {instance.labels[u]!r} is there,",
                )


def _check_resources(instance: Instance, facts: Facts, parts: list[list[_Part]], wrong: list[str]) -> None:
    """(5): copy engines, kernels that compute at once, kernels in flight."""
    for i, name in enumerate(instance.device_names):
        spans: list[list[tuple[float, float, int]]] = [[], [], [], []]
        for k, mine in enumerate(parts):
            for part in mine:
                if part.device != i:
                    continue
                for stage in range(3):
                    if part.seconds[stage] > 0:
                        spans[stage].append((part.start[stage], part.start[stage] + part.seconds[stage], k))
                first = part.start[0] if part.seconds[0] > 0 else part.start[1]
                last = part.start[2] + part.seconds[2] if part.seconds[2] > 0 else part.start[1] + part.seconds[1]
                if last > first:
                    spans[3].append((first, last, k))
        one = facts.engines[i] == 1
        rules = [
            (spans[0] + spans[2] if one else spans[0], 1.0, "copies at once" if one else "writes at once"),
            ([] if one else spans[2], 1.0, "reads at once"),
            (spans[1], float(facts.slots[i]), "kernels that compute at once"),
            (spans[3], float(facts.queues[i]), "kernels in flight"),
        ]
        for some, most, what in rules:
            _at_once(instance, some, most, f"{name!r} has more than {most:g} {what}", wrong)


def _at_once(
    instance: Instance, spans: list[tuple[float, float, int]], most: float, said: str, wrong: list[str]
) -> None:
    events = [(start, 1, k) for start, _, k in spans]
    events += [(end - TOLERANCE * abs(end), 0, k) for _, end, k in spans]
    count = 0
    for moment, begins, k in sorted(events):
        count += 1 if begins else -1
        if begins and count > most and len(wrong) < 20:
            wrong.append(f"{said} at {moment:.9g}, when {instance.labels[k]!r} begins")


def replay_paths(instance: Instance, grain: int) -> Floats:
    """(jobs,) moment before which no plan ends a job: the longest way over the ways to run each kernel, copies included.

    Where two kernels differ in devices or one of them is split, the result is read and written at least once, alone.
    """
    facts, n = facts_of(instance), instance.n_tasks
    into: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    asked, waiting, after = np.zeros(n), np.zeros(n, np.int64), [[] for _ in range(n)]  # type: ignore[var-annotated]
    for (u, v), data in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True):
        into[v].append((u, data))
        after[u].append(v)
        asked[u] = max(asked[u], data)
        waiting[v] += 1
    order = np.flatnonzero(waiting == 0).tolist()
    for v in order:
        for w in after[v]:
            waiting[w] -= 1
            if waiting[w] == 0:
                order.append(w)
    ends: list[Floats] = [np.zeros(0)] * n  # of each way: its devices first, then "split"
    hosts: list[Floats] = [np.zeros(0)] * n
    last = np.zeros(instance.n_jobs)
    for v in order:
        ends[v], hosts[v], done = _ways(
            instance, facts, v, into[v], ends, hosts, float(asked[v]), bool(after[v]), grain
        )
        j = int(instance.job_of[v])
        last[j] = max(last[j], done)
    return last * (1 - (n + 20) * 2.0**-48)


def _ways(
    instance: Instance, facts: Facts, v: int, into: list[tuple[int, float]], ends: list[Floats], hosts: list[Floats],
    asked: float, feeds: bool, grain: int,
) -> tuple[Floats, Floats, float]:  # fmt: skip
    """Least end of computing (d,) on each device, least moment (d + 1,) its result may be on the host but for the bytes that
    a consumer asks for, and the least end of all it does; the last way is the best split one."""
    d, names = instance.n_devices, range(instance.n_devices)
    release = float(instance.columns.release[instance.job_of[v]])
    end, host = np.full(d, np.inf), np.full(d + 1, np.inf)
    final = np.inf
    there = [float(_there(instance, facts, u, data, hosts).min()) for u, data in into]
    for i in names:
        if not instance.eligible[v, i]:
            continue
        begin = max(release, float(instance.available_from[i]))
        late, each = facts.down[i]
        ready = begin + (late + each * facts.given[v] if facts.given[v] > 0 else 0.0)
        for (u, data), moved in zip(into, there, strict=True):
            copied = moved + late + each * (facts.given[v] + data)
            ready = max(ready, min(ends[u][i], max(copied, begin)))
        end[i] = ready + float(instance.time[v, i])
        host[i] = end[i] + facts.up[i, 0] + facts.up[i, 1] * facts.wanted[v]
        final = min(final, host[i] if facts.wanted[v] > 0 else end[i])
    if grain > 1 and facts.split[v]:
        start = max([release, *there])
        takes, gives = bool(into) or facts.given[v] > 0, feeds or facts.wanted[v] > 0
        bytes_in, bytes_out = facts.given[v] + math.fsum(data for _, data in into), facts.wanted[v] + asked
        able = [i for i in names if instance.eligible[v, i]]
        for i in able:
            for k in able:
                for units in range(1, grain) if i < k else ():
                    moments = []
                    for p, share in ((i, units / grain), (k, 1 - units / grain)):
                        copies = (facts.down[p, 0] + share * bytes_in * facts.down[p, 1]) if takes else 0.0
                        back = (facts.up[p, 0] + share * bytes_out * facts.up[p, 1]) if gives else 0.0
                        first = max(start, float(instance.available_from[p]))
                        moments.append(first + copies + share * float(instance.time[v, p]) + back)
                    host[d] = min(host[d], max(moments))
        final = min(final, float(host[d]))
    return end, host, float(final)


def _there(instance: Instance, facts: Facts, u: int, data: float, hosts: list[Floats]) -> Floats:
    """(d + 1,) least moment at which ``data`` bytes of u are on the host, by the way it ran."""
    return np.asarray(hosts[u] + np.append(facts.up[:, 1] * data, 0.0))
