"""Models that run again and again: what a file says of their frames, segments, devices and transfers.

A model is a job with a ``period``; its tasks, in file order, are cut into segments. ``tables.segments`` maps a model to rows
``{"first": task, "last": task, "time": {device: seconds}, "backend": word}``: times of runs of tasks as measured, which are no
sums; a task alone takes its own ``time``, without a backend. ``tables.conversions`` has rows ``{"from": backend, "to": backend,
"seconds": s, "bandwidth": bytes a second}`` of what it takes to hand data from a segment to one of another backend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.verify.schedule import links_between

__all__ = ["TOLERANCE", "Model", "Streams", "Way", "streams_of"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-9
MOST_FRAMES = 2000  # frames before periods meet again, beyond which a cyclic schedule is no table for people
_ROW = ("first", "last", "time", "backend")
_CONVERSION = ("from", "to", "seconds", "bandwidth")


class Way(NamedTuple):
    """A segment on a device: tasks ``first`` to ``last`` (numbers of the instance), its backend (``""`` for none), seconds."""

    first: int
    last: int
    device: int
    backend: str
    seconds: float


class Model(NamedTuple):
    """A job that comes again: first task and the one beyond its last, dates, ways sorted, edges (u, v, bytes), frames a cycle."""

    name: str
    begin: int
    end: int
    phase: float
    period: float
    deadline: float
    implicit: bool
    weight: float
    ways: tuple[Way, ...]
    edges: tuple[tuple[int, int, float], ...]
    frames: int


class Streams(NamedTuple):
    """All models, the least time after which everything repeats, and what transfers take (:meth:`transfer`)."""

    models: tuple[Model, ...]
    hyperperiod: float
    latency: Floats
    slowness: Floats
    conversion: Mapping[tuple[str, str], tuple[float, float]]

    def transfer(self, source: Way, target: Way, sent: float) -> float:
        """Seconds until ``sent`` bytes of one segment are there for another one; ``inf`` where no link leads."""
        p, q = source.device, target.device
        seconds = 0.0 if p == q else float(self.latency[p, q]) + sent * float(self.slowness[p, q])
        fixed, a_byte = self.conversion.get((source.backend, target.backend), (0.0, 0.0))
        return seconds + fixed + sent * a_byte


@lru_cache(maxsize=4)
def streams_of(instance: Instance) -> Streams:
    """The models of an instance; ``deadline`` counts from each release, and is the period where there is none.

    Raises
    ------
    InputError
        A job has no period; periods never meet; a table names what is not there; a run of tasks against the edges' direction.
    """
    c, names = instance.columns, instance.columns.job_name
    for j in np.flatnonzero(~np.isfinite(c.period))[:1].tolist():
        raise InputError(f"$.jobs[{j}] ({names[j]!r}) has no period, expected the seconds between its frames")
    table = instance.tables.get("segments", {})
    if not isinstance(table, Mapping):
        raise InputError("$.tables.segments must map models (jobs) to lists of rows")
    for key in table:
        if key not in names:
            raise InputError(f"$.tables.segments names {key!r}; {nearest(key, list(names), what='the jobs')}")
    hyperperiod, counts = _hyperperiod(instance)
    begin = np.searchsorted(instance.job_of, np.arange(instance.n_jobs)).tolist()
    end = [*begin[1:], instance.n_tasks]
    edges: list[list[tuple[int, int, float]]] = [[] for _ in names]
    for (u, v), sent in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True):
        edges[int(instance.job_of[u])].append((u, v, sent))
    models = []
    for j, name in enumerate(names):
        period, deadline = float(c.period[j]), float(c.deadline[j])
        ways = _ways(instance, begin[j], end[j], edges[j], table.get(name, []), f"$.tables.segments.{name}")
        implicit = math.isinf(deadline)
        models.append(
            Model(name, begin[j], end[j], float(c.release[j]), period, period if implicit else deadline, implicit,
                  float(c.weight[j]), ways, tuple(edges[j]), counts[j])
        )  # fmt: skip
    latency, slowness = links_between(instance)
    for model in models if len(instance.edges) else ():
        used = sorted({way.device for way in model.ways}) if model.edges else []
        for p, q in ((p, q) for p in used for q in used if math.isinf(latency[p, q])):
            instance.need_link(instance.device_names[p], instance.device_names[q])
    return Streams(tuple(models), hyperperiod, latency, slowness, _conversions(instance))


def _hyperperiod(instance: Instance) -> tuple[float, list[int]]:
    """Least time that is a multiple of all periods (to a billionth), and how often each fits."""
    periods = instance.columns.period.tolist()
    ratios = [Fraction(period / periods[0]).limit_denominator(10_000) for period in periods]
    names = instance.columns.job_name
    for j, ratio in enumerate(ratios):
        if ratio == 0 or abs(float(ratio) * periods[0] - periods[j]) > TOLERANCE * periods[j]:
            raise InputError(
                f"the periods of {names[0]!r} ({periods[0]:.9g}) and {names[j]!r} ({periods[j]:.9g}) have no common multiple "
                "of reasonable size; round them"
            )
    whole = math.lcm(*(ratio.numerator for ratio in ratios))
    unit = Fraction(whole, math.gcd(*(ratio.denominator for ratio in ratios)))
    counts = [int(unit / ratio) for ratio in ratios]
    if sum(counts) > MOST_FRAMES:
        raise InputError(
            f"the periods meet again after {sum(counts)} frames only, more than {MOST_FRAMES}; "
            "round them to multiples of one another"
        )
    return counts[0] * periods[0], counts


def _ways(
    instance: Instance, begin: int, end: int, edges: Sequence[tuple[int, int, float]], rows: Any, path: str
) -> tuple[Way, ...]:
    number = {instance.columns.task_name[v]: v for v in range(begin, end)}
    cut = instance.columns.cut
    found: dict[tuple[int, int, int, str], float] = {}
    for v in range(begin, end):
        if cut[v] or v == end - 1:
            found |= {(v, v, p, ""): float(instance.time[v, p]) for p in np.flatnonzero(instance.eligible[v]).tolist()}
    if not isinstance(rows, list):
        raise InputError(f"{path} is {type(rows).__name__}, expected a list of rows")
    backwards = next(((u, v) for u, v, _ in edges if u > v), None)
    for k, row in enumerate(rows):
        at = f"{path}[{k}]"
        if not isinstance(row, Mapping):
            raise InputError(f"{at} is {row!r}, expected an object")
        for key in row:
            if key not in _ROW:
                raise InputError(f"{at} has {key!r}; {nearest(str(key), _ROW, what='the keys')}")
        a, b = (_known(number, row.get(key), f"{at}.{key}", "task of the model") for key in ("first", "last"))
        backend = row.get("backend", "")
        if a > b or not isinstance(backend, str):
            raise InputError(f"{at} is {dict(row)!r}, expected first before last, and a word as backend")
        if backwards is not None and a < b:
            one, other = (instance.labels[w] for w in backwards)
            raise InputError(
                f"{at} is a run of tasks, and the edge {one!r} -> {other!r} leads backwards in the file; sort its tasks"
            )
        if not (cut[b] or b == end - 1):
            raise InputError(f"{at} ends behind {row['last']!r}, where the file allows no cut")
        for p, seconds in _times(instance, row.get("time"), f"{at}.time"):
            pinned = instance.columns.allowed is not None and not instance.columns.allowed[a : b + 1, p].all()
            if not pinned:
                found[a, b, p, backend] = min(seconds, found.get((a, b, p, backend), math.inf))
    return tuple(Way(*key, seconds) for key, seconds in sorted(found.items()))


def _times(instance: Instance, table: Any, path: str) -> list[tuple[int, float]]:
    if not isinstance(table, Mapping) or not table:
        raise InputError(f"{path} is {table!r}, expected seconds by device name or type")
    known = {*instance.device_names, *(v.type for v in instance.devices if v.type)}
    for key, seconds in table.items():
        if key not in known:
            raise InputError(f"{path} names {key!r}; {nearest(key, sorted(known), what='the devices')}")
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1e30
        ):
            raise InputError(f"{path}.{key} is {seconds!r}, expected seconds >= 0")
    rows = ((p, table.get(v.name, table.get(v.type))) for p, v in enumerate(instance.devices))
    return [(p, float(seconds)) for p, seconds in rows if seconds is not None]


def _conversions(instance: Instance) -> dict[tuple[str, str], tuple[float, float]]:
    rows = instance.tables.get("conversions", [])
    if not isinstance(rows, list):
        raise InputError(f"$.tables.conversions is {type(rows).__name__}, expected a list of rows")
    found = {}
    for k, row in enumerate(rows):
        at = f"$.tables.conversions[{k}]"
        if not isinstance(row, Mapping) or not all(isinstance(row.get(key), str) for key in ("from", "to")):
            raise InputError(f'{at} is {row!r}, expected {{"from": backend, "to": backend, "seconds": ...}}')
        for key in row:
            if key not in _CONVERSION:
                raise InputError(f"{at} has {key!r}; {nearest(str(key), _CONVERSION, what='the keys')}")
        numbers = []
        for key, low in (("seconds", 0.0), ("bandwidth", 1e-9)):
            value = row.get(key, 0 if key == "seconds" else 1e300)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= 1e300:
                raise InputError(f"{at}.{key} is {value!r}, expected a number >= {low:g}")
            numbers.append(float(value))
        found[row["from"], row["to"]] = (min(numbers[0], 1e30), 0.0 if numbers[1] == 1e300 else 1.0 / numbers[1])
    return found


def _known(index: Mapping[str, int], name: Any, path: str, what: str) -> int:
    if not isinstance(name, str) or name not in index:
        raise InputError(f"{path} is {name!r}, no {what}; {nearest(str(name), list(index), what='those there are')}")
    return index[name]
