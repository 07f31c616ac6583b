"""Tiny instances of models that run again and again, and all their cyclic orders, for contract tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np

from formulations.schedule._periodic import Frame
from hetopt.formulation import Question
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.verify.streams import Way, streams_of

__all__ = ["every_order", "placed", "sample_of"]

Placed = tuple[int, int, tuple[Way, ...], list[float]]


def every_order(instance: Instance, question: Question, drops: bool) -> Iterator[list[Placed]]:
    """(model, frame, ways, place of each segment in units of a cycle): all ways, orders and turns of a tiny instance."""
    streams, cycles = streams_of(instance), question["cycles"]
    numbers = [(j, i) for j, model in enumerate(streams.models) for i in range(model.frames * cycles)]
    paths = []
    for model in streams.models:
        found: list[tuple[Way, ...]] = [()]
        done = []
        while found:
            path = found.pop()
            at = path[-1].last + 1 if path else model.begin
            if at == model.end:
                done.append(path)
            else:
                found += [(*path, way) for way in model.ways if way.first == at]
        paths.append(sorted(done))
    fixed = question["mapping"] == "fixed"
    if fixed:
        kept = list(product((False, True), repeat=len(numbers))) if drops else [(False,) * len(numbers)]
        choices = ([() if lost else per[j] for (j, _), lost in zip(numbers, gone, strict=True)]
                   for per in product(*paths) for gone in kept)  # fmt: skip
    else:
        choices = (list(row) for row in product(*(paths[j] + ([()] if drops else []) for j, _ in numbers)))
    for ways in choices:
        nodes = [(f, k) for f, path in enumerate(ways) for k in range(len(path))]
        device = [ways[f][k].device for f, k in nodes]
        lines = [
            [n for n, p in enumerate(device) if p == q and ways[nodes[n][0]][nodes[n][1]].seconds > 0]
            for q in range(instance.n_devices)
        ]
        for orders in product(*(permutations(line) for line in lines)):
            place = {n: (r + 0.5) / (len(line) + 1) for line in orders for r, n in enumerate(line)}
            busy = sorted(place)
            for turns in product((0, 1), repeat=len(busy)):
                begun = {n: place[n] + turn for n, turn in zip(busy, turns, strict=True)}
                rows: list[list[float]] = [[] for _ in numbers]
                for n, (f, _) in enumerate(nodes):
                    rows[f].append(begun.get(n, 0.0))
                yield [(j, i, path, row) for (j, i), path, row in zip(numbers, ways, rows, strict=True)]


def placed(frame: Placed, cycle: float) -> Frame:
    j, i, ways, place = frame
    return Frame(j, i, ways, tuple(share * cycle for share in place))


def sample_of(seed: int, objective: str, *, drops: bool) -> Instance:
    """A tiny instance of whole numbers; every second without tables, so that names, orders and units can be changed."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 3))
    tables: dict[str, Any] = {}
    devices = [Device(name=f"d{p}", memory=int(rng.integers(4, 9)) if seed % 4 == 3 else None) for p in range(d)]
    links = [Link(source="*", target="*", bandwidth=2, latency=int(rng.integers(0, 2)))]
    jobs, base = [], int(rng.integers(4, 8))
    shapes = [(1, 1), (2, 1)] if seed % 2 else [(1, 2), (1, 1)]  # (tasks, frames)
    for g, (n, frames) in enumerate(shapes[: 1 if seed % 5 == 4 else 2]):
        period = base * 2 // frames
        longest = max(1, period // n if not drops else period)
        tasks = []
        for v in range(n):
            row = [int(t) for t in rng.integers(0 if seed % 3 else 1, longest + 1, d)]
            if g == 0 and objective == "periodic-rate":
                row = [max(1, t) for t in row]  # where nothing takes time there is no greatest rate
            times: list[int | float | None] = [t if p == 0 or rng.random() < 0.8 else None for p, t in enumerate(row)]
            tasks.append(
                Task(name=f"t{v}", time=times, output=2 * int(rng.integers(0, 3)), memory=int(rng.integers(0, 4)))
            )
        edges = [Edge(source=f"t{v}", target=f"t{v + 1}") for v in range(n - 1) if rng.random() < 0.8]
        deadline = int(rng.integers(max(1, period // 2), period + 1)) if rng.random() < 0.6 else None
        jobs.append(
            Job(name=f"g{g}", tasks=tasks, edges=edges, period=period, deadline=deadline, weight=int(rng.integers(1, 3)),
                release=int(rng.integers(0, 3)))
        )  # fmt: skip
        if n == 2 and seed % 4 == 1:
            rows = [{"first": "t0", "last": "t1", "backend": "fused", "time": {"d0": int(rng.integers(1, period))}}]
            rows += [{"first": "t1", "last": "t1", "backend": "fast", "time": {f"d{d - 1}": 1}}]
            tables = {"segments": {f"g{g}": rows}, "conversions": [{"from": "", "to": "fast", "seconds": 1}]}
    question: dict[str, Any] = {"objective": objective}
    if drops and objective == "periodic-latency":
        question["drop_cost"] = float(rng.integers(1, 4))
    return Instance.build(devices, jobs, links, tables=tables, question=question)
