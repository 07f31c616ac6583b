"""Small random task graphs on accelerators and CPUs, with whole numbers throughout: for tests and for trying things out."""

from __future__ import annotations

import math

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.generators._model import backward_edges
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Link

__all__ = ["NAME", "OPTIONS", "SHAPES", "TITLE", "edges_of", "make"]

NAME = "random-graph"
TITLE = "A random task graph (layers, series-parallel, chain) on accelerators and CPUs."
SHAPES = ("layered", "series-parallel", "chain")
QUESTIONS = ("throughput", "inference-latency")
OPTIONS: tuple[Option, ...] = (
    Option("--shape", SHAPES, "layered", "Shape of the graph."),
    Option("--tasks", int, 20, "Number of (forward) tasks."),
    Option("--accelerators", int, 3, "Number of accelerators."),
    Option("--cpus", int, 1, "Number of CPUs, which pay for no transfer and have no memory limit."),
    Option("--memory", float, 1.5, "Memory of all accelerators over that of all tasks; 0 for no limit."),
    Option("--unsupported", float, 0.0, "Chance that a task cannot run on an accelerator (with at least one CPU)."),
    Option("--training", bool, False, "Add the backward pass, each backward task beside its forward task."),
    Option("--question", QUESTIONS, "throughput", "A pipeline's rate, or one input as soon as possible."),
    Option("--seed", int, 0, "Seed."),
)


def edges_of(shape: str, n: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Edges of a connected graph of ``n`` tasks, numbered so that each edge leads upwards.

    ``chain``: one after the other. ``layered``: layers of one to four tasks, each fed by one or two of the layer before.
    ``series-parallel``: from one edge, each further task is put into an edge drawn at random, or beside it.
    """
    if shape == "chain" or n < 3:
        return [(k, k + 1) for k in range(n - 1)]
    if shape == "layered":
        edges: list[tuple[int, int]] = []
        before, first = [0], 1
        while first < n:
            layer = list(range(first, min(n, first + int(random.integers(1, 5)))))
            for k in layer:
                fed = random.permutation(before)[: int(random.integers(1, 3))]
                edges += [(int(v), k) for v in sorted(fed)]
            before, first = layer, layer[-1] + 1
        return edges
    edges = [(0, 1)]
    for k in range(2, n):
        source, target = edges[where := int(random.integers(0, len(edges)))]
        if random.integers(0, 2):
            edges.pop(where)
        edges += [(source, k), (k, target)]
    # an order in which producers come first: by longest path from the source, ties by number
    depth, before = [0] * n, [-1] * n
    while depth != before:
        before = list(depth)
        for a, b in edges:
            depth[b] = max(depth[b], depth[a] + 1)
    rank = {k: position for position, k in enumerate(sorted(range(n), key=lambda k: (depth[k], k)))}
    return sorted((rank[a], rank[b]) for a, b in edges)


def make(
    *,
    shape: str = "layered",
    tasks: int = 20,
    accelerators: int = 3,
    cpus: int = 1,
    memory: float = 1.5,
    unsupported: float = 0.0,
    training: bool = False,
    question: str = "throughput",
    seed: int = 0,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        An unknown shape, or a number out of its range.
    """
    chosen("--shape", shape, SHAPES)
    chosen("--question", question, QUESTIONS)
    n = whole("--tasks", tasks, 1, 2000)
    whole("--accelerators", accelerators, 0, 1000)
    whole("--cpus", cpus, 0 if accelerators else 1, 1000)
    whole("--seed", seed, 0, 2**32)
    if not (memory == 0 or 0 < memory < 1e6):
        raise InputError(f"--memory is {memory}, expected 0 or a number up to a million")
    if not 0 <= unsupported <= (1 if cpus else 0):
        raise InputError(f"--unsupported is {unsupported}, expected a number from 0 to 1, and 0 without a CPU")
    random = np.random.default_rng([seed, n, accelerators, cpus, SHAPES.index(shape)])
    edges = edges_of(shape, n, random)
    passes = 2 if training else 1
    fast = random.integers(1, 21, n * passes)
    slow = fast * random.integers(3, 13, n * passes)
    output = random.integers(0, 11, n * passes)
    need = random.integers(1, 11, n)
    cannot = np.tile(random.random(n) < unsupported, passes)
    limit = max(math.ceil(memory * int(need.sum()) / max(1, accelerators)), int(need.max())) if memory else None
    times = np.concatenate(
        [
            np.repeat(np.where(cannot, np.inf, fast)[:, None], accelerators, axis=1),
            np.repeat(slow[:, None].astype(np.float64), cpus, axis=1),
        ],
        axis=1,
    )
    names = [f"t{k}" for k in range(n)]
    return Instance.from_graph(
        times,
        edges + (backward_edges(edges, n) if training else []),
        output=output,
        memory=np.concatenate([need, np.zeros(n * (passes - 1), np.int64)]),
        tasks=names + ([f"{name}.grad" for name in names] if training else []),
        devices=[Device(name=f"acc{i}", type="acc", memory=limit) for i in range(accelerators)]
        + [Device(name=f"cpu{i}", type="cpu", host=True) for i in range(cpus)],
        group=names * 2 if training else None,
        backward=[False] * n + [True] * n * (passes - 1),
        links=[Link(source="acc", target="host", bandwidth=1, both=True)] if accelerators else [],
        question={"objective": question},
        name=f"{shape}-{n}{'-training' if training else ''}-{seed}",
        source=f"generated with seed {seed}: a random {shape} graph with whole numbers, without units",
    )
