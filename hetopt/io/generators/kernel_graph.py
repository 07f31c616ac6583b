"""A random graph of data-parallel kernels on a processor in host memory and accelerators behind buses.

The shape is one of :mod:`hetopt.io.generators.task_graph`. Kernels take 1 to 20 ms on the processor and a fraction of it on an
accelerator; results of some megabytes pass the host. Copies of a mean result take ``ccr`` times as long as a mean kernel there.
"""

from __future__ import annotations

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.generators.task_graph import SHAPES, edges_of
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "kernel-graph"
TITLE = "A random graph of data-parallel kernels on a processor and accelerators with copy engines and queues."
OPTIONS: tuple[Option, ...] = (
    Option("--shape", SHAPES, "layered", "Shape of the graph."),
    Option("--kernels", int, 12, "Number of kernels."),
    Option("--accelerators", int, 1, "Number of accelerators."),
    Option("--copy", int, 2, "Copy engines of an accelerator: 1 for both directions, or 2."),
    Option("--queues", int, 3, "Command queues of a device."),
    Option("--grain", int, 1, "Units in which kernels may be split over two devices."),
    Option("--speed", float, 4.0, "Mean speed of an accelerator over that of the processor."),
    Option("--ccr", float, 0.5, "Seconds of a mean copy over those of a mean kernel on an accelerator."),
    Option("--seed", int, 0, "Seed."),
)


def make(
    *,
    shape: str = "layered",
    kernels: int = 12,
    accelerators: int = 1,
    copy: int = 2,
    queues: int = 3,
    grain: int = 1,
    speed: float = 4.0,
    ccr: float = 0.5,
    seed: int = 0,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range.
    """
    chosen("--shape", shape, SHAPES)
    n, m = whole("--kernels", kernels, 1, 10_000), whole("--accelerators", accelerators, 0, 32)
    whole("--copy", copy, 1, 2)
    whole("--queues", queues, 1, 1000)
    whole("--grain", grain, 1, 100)
    whole("--seed", seed, 0, 2**32)
    for flag, value, low in (("--speed", speed, 0.01), ("--ccr", ccr, 0.0)):
        if not low <= value <= 1000:
            raise InputError(f"{flag} is {value}, expected a number from {low:g} to 1000")
    random = np.random.default_rng([seed, n, m, SHAPES.index(shape)])
    edges = edges_of(shape, n, 2, random)
    slow = np.round(random.uniform(1, 20, n), 2)
    fast = np.maximum(np.round(slow[:, None] / (speed * random.uniform(0.4, 1.6, (n, m))), 2), 0.01)
    size = random.integers(1, 17, n)
    names = ["cpu", *(f"gpu{i}" for i in range(m))]
    devices = [Device(name=name, type=name[:3], host=name == "cpu") for name in names]
    seconds = float(fast.mean()) if m else 1.0
    bandwidth = None if not ccr else float(np.round(2**20 * size.mean() / (ccr * seconds), -3)) * 1000
    tasks = [
        Task(name=f"k{v}", time=[t / 1000 for t in (slow[v], *fast[v])], output=int(size[v]) * 2**20) for v in range(n)
    ]
    sources, sinks = {u for u, _ in edges}, {v for _, v in edges}
    bytes_of = {f"k{v}": int(size[v]) * 2**20 for v in range(n)}
    table = {name: {"in": bytes_of[name]} for v, name in enumerate(bytes_of) if v not in sinks}
    for v, name in enumerate(bytes_of):
        if v not in sources:
            table.setdefault(name, {})["out"] = bytes_of[name]
    links = [Link(source="host", target="gpu", bandwidth=bandwidth, latency=1e-5, both=True)] if m else []
    engines = {"gpu": {"copy": copy, "queues": queues}} if m else {}
    return Instance.build(
        devices,
        [Job(name="graph", tasks=tasks, edges=[Edge(source=f"k{u}", target=f"k{v}") for u, v in edges])],
        links,
        tables={"engines": engines, "kernels": table},
        question={"objective": "kernel-makespan", "grain": grain},
        name=f"kernels-{shape}-{n}x{m + 1}-{seed}",
        source=f"generated with seed {seed}: {n} kernels of shape {shape} on a processor and {m} accelerators",
    )
