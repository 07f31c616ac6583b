"""Random task graphs for the question when a workflow or a network is done: layers, trees, parallel chains, random wiring.

Devices have speeds between 1 and ``spread`` (times drawn for each pair with ``unrelated``), links of each ordered pair their own
bandwidth, scaled so that a mean transfer takes ``ccr`` times as long as a mean task. Times are whole milliseconds. With ``room``
tasks have weights, and the question is asked with memory over time.

``layered``: tasks in about sqrt(n) layers, each reading from one to five of the two layers before. ``tree``: an in-tree of the
given degree, leaves first. ``chains``: parallel chains between a source and a sink. ``wired``: each of four stages a random
graph in which every task reads from tasks before it with equal chance, as in randomly wired networks (S. Xie et al., ICCV 2019).
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Link

__all__ = ["NAME", "OPTIONS", "SHAPES", "TITLE", "edges_of", "make"]

NAME = "task-graph"
TITLE = "A random task graph (layers, tree, chains, random wiring) on devices with links."
SHAPES = ("layered", "tree", "chains", "wired")
QUESTIONS = ("schedule-latency", "mapping", "mapping-throughput")
OPTIONS: tuple[Option, ...] = (
    Option("--shape", SHAPES, "layered", "Shape of the graph."),
    Option("--tasks", int, 40, "Number of tasks."),
    Option("--devices", int, 4, "Number of devices."),
    Option("--degree", int, 3, "Inputs of a task in a tree, number of chains, mean inputs elsewhere."),
    Option("--spread", float, 4.0, "Speed of the fastest device over that of the slowest."),
    Option("--ccr", float, 1.0, "Mean seconds of a transfer over mean seconds of a task; 0 for none."),
    Option("--unrelated", bool, False, "Draw a speed for each pair of task and device."),
    Option("--room", float, 0.0, "Memory of each device, as a share of all weights and results; 0 for no limit."),
    Option("--question", QUESTIONS, "schedule-latency", "Objective asked for."),
    Option("--seed", int, 0, "Seed."),
)


def edges_of(shape: str, n: int, degree: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Sorted edges of a graph of ``n`` tasks; each leads to a larger number."""
    if shape == "tree":
        return sorted((n - 1 - k, n - 1 - (k - 1) // degree) for k in range(1, n))
    if shape == "chains":
        inner = [list(range(1 + c, n - 1, degree)) for c in range(degree)] if n > 2 else []
        ways = [[0, *chain, n - 1] for chain in inner if chain] or [list(range(n))]
        return sorted({edge for way in ways for edge in itertools.pairwise(way)})
    if shape == "wired":
        stage = np.minimum(np.arange(n) * 4 // max(1, n), 3)
        edges = []
        for v in range(1, n):
            same = np.flatnonzero(stage[:v] == stage[v])
            feeds = same[random.random(len(same)) < degree / max(degree, len(same))]
            edges += [(int(u), v) for u in feeds] or [(v - 1, v)]
        return edges
    layer = np.sort(random.integers(0, max(2, round(n**0.5)), n))
    edges = []
    for v in range(n):
        before = np.flatnonzero((layer < layer[v]) & (layer >= layer[v] - 2))
        if before.size:
            count = min(len(before), int(random.integers(1, 2 * degree)))
            edges += [(int(u), v) for u in np.sort(random.choice(before, count, replace=False))]
    return edges


def make(
    *,
    shape: str = "layered",
    tasks: int = 40,
    devices: int = 4,
    degree: int = 3,
    spread: float = 4.0,
    ccr: float = 1.0,
    unrelated: bool = False,
    room: float = 0.0,
    question: str = "schedule-latency",
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
    n, d = whole("--tasks", tasks, 1, 100_000), whole("--devices", devices, 1, 200)
    whole("--degree", degree, 1, 100)
    whole("--seed", seed, 0, 2**32)
    if not 1 <= spread <= 1000:
        raise InputError(f"--spread is {spread}, expected a number from 1 to 1000")
    if not 0 <= ccr <= 1000:
        raise InputError(f"--ccr is {ccr}, expected a number from 0 to 1000")
    if not 0 <= room <= 1000:
        raise InputError(f"--room is {room}, expected a number from 0 to 1000")
    if room and question != "schedule-latency":
        raise InputError(f"--room asks for memory over time, a question of schedule-latency, not of {question}")
    random = np.random.default_rng([seed, n, d, SHAPES.index(shape)])
    edges = edges_of(shape, n, degree, random)
    work = random.uniform(1, 20, n)
    speed = random.uniform(1, spread, (n, d) if unrelated else (1, d))
    times = np.maximum(np.round(1000 * work[:, None] / speed), 1) / 1000
    output = random.integers(1, 21, n) * 1_000_000
    names = [f"d{i}" for i in range(d)]
    links = _links(names, float(times.mean()), float(output.mean()), ccr, random)
    weights = random.integers(1, 6, n) * 1_000_000 if room else None
    size = None if weights is None else int(np.ceil(room * (output.sum() + weights.sum()) / 1_000_000)) * 1_000_000
    return Instance.from_graph(
        times,
        edges,
        output=output,
        memory=weights,
        devices=[Device(name=name, memory=size) for name in names],
        links=links,
        question={"objective": question} | ({"memory": "over-time"} if room else {}),
        name=f"{shape}-{n}x{d}-{seed}",
        source=f"generated with seed {seed}: a random task graph of shape {shape}, communication ratio {ccr:g}",
    )


def _links(names: list[str], seconds: float, sent: float, ccr: float, random: np.random.Generator) -> list[Link]:
    """A link for each ordered pair, bandwidths within a factor of three around the one that gives the ratio."""
    if not ccr:
        return [Link(source="*", target="*", bandwidth=None)]
    factor: NDArray[np.float64] = random.uniform(0.5, 1.5, (len(names), len(names)))
    bandwidth = np.maximum(np.round(factor * sent / (ccr * seconds)), 1)
    return [
        Link(source=a, target=b, bandwidth=int(bandwidth[i, k]))
        for i, a in enumerate(names)
        for k, b in enumerate(names)
        if i != k
    ]
