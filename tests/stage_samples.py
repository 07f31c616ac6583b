"""Small random stage graphs and the least largest load by trying every plan, for tests of the non-contiguous kernels."""

from __future__ import annotations

import itertools
import math

import numpy as np

from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["best_value", "random_graph", "stage_graph"]


def stage_graph(
    time: list[list[float]],
    nets: list[tuple[int, list[int], float]],
    count: list[int],
    rate_in: list[float],
    rate_out: list[float],
    size: list[float] | None = None,
    memory: list[float] | None = None,
) -> StageGraph:
    """Stage graph without precedence; a net is (source, pins, weight)."""
    n, pins = len(time), [sorted(p) for _, p, _ in nets]
    return StageGraph(
        time=np.array(time, dtype=float).reshape(n, len(count)),
        size=np.zeros(n) if size is None else np.array(size, dtype=float),
        pred_ptr=np.zeros(n + 1, dtype=np.int64),
        pred=np.zeros(0, dtype=np.int64),
        net_ptr=np.concatenate([[0], np.cumsum([len(p) for p in pins])]).astype(np.int64),
        net_pin=np.array([v for p in pins for v in p], dtype=np.int64),
        net_source=np.array([s for s, _, _ in nets], dtype=np.int64),
        net_weight=np.array([w for _, _, w in nets], dtype=float),
        count=np.array(count, dtype=np.int64),
        memory=np.full(len(count), np.inf) if memory is None else np.array(memory, dtype=float),
        rate_in=np.array(rate_in, dtype=float),
        rate_out=np.array(rate_out, dtype=float),
        member=np.arange(n),
    )


def random_graph(rng: np.random.Generator, classes: int = 6, *, devices: int = 3, memory: bool = True) -> StageGraph:
    """Up to ``classes`` classes and three types, rates that may differ by direction, classes that cannot run everywhere."""
    n, types = int(rng.integers(1, classes + 1)), int(rng.integers(1, 4))
    count = [1] * types
    for _ in range(int(rng.integers(0, max(1, devices - types + 1)))):
        count[int(rng.integers(types))] += 1
    time = rng.integers(0, 10, (n, types)).astype(float)
    time[rng.random((n, types)) < 0.1] = np.inf
    time[np.isinf(time).all(axis=1)] = 5.0
    if rng.random() < 0.5:
        time = time * 0.37
    nets = []
    for u in range(n - 1):
        consumers = [v for v in range(u + 1, n) if rng.random() < 0.5]
        if consumers:
            nets.append((u, [u, *consumers], float(rng.integers(1, 6))))
    rate_in = rng.integers(0, 3, types).astype(float) * 0.5
    rate_out = rng.integers(0, 3, types).astype(float) * 0.5 if rng.random() < 0.5 else rate_in
    size = rng.integers(0, 5, n).astype(float)
    limit = np.where(rng.random(types) < 0.5, np.inf, np.maximum(rng.integers(2, 12, types), size.max()))
    return stage_graph(
        time.tolist(),
        nets,
        count,
        rate_in.tolist(),
        rate_out.tolist(),
        size.tolist(),
        limit.tolist() if memory else None,
    )


def best_value(graph: StageGraph, respect_memory: bool = True) -> float:
    """Least largest load over all plans; ``inf`` when memory allows none."""
    kind = np.repeat(np.arange(len(graph.count)), graph.count)
    load = {
        (t, part): graph.load(np.array(part, dtype=bool), t)
        for t in set(kind.tolist())
        for part in itertools.product((False, True), repeat=graph.n)
    }
    best = math.inf
    for plan in itertools.product(range(len(kind)), repeat=graph.n):
        parts = [tuple(d == e for d in plan) for e in range(len(kind))]
        if respect_memory and any(graph.size @ np.array(p) > graph.memory[t] for p, t in zip(parts, kind, strict=True)):
            continue
        best = min(best, max(load[int(t), p] for p, t in zip(parts, kind, strict=True)))
    return best
