"""Operators of a decoder's layers with four ways to shard each over a mesh, and the seconds to lay tensors out anew between them.

Ways: split the batch, the columns or the rows of the weights, or repeat everything on every device. Seconds are flops and bytes
divided by the mesh, collectives by the ring's formula; flops, rates and links are made up here, in microseconds. The
residual edges around attention and feed-forward part close circles.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Mode, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "operator-sharding"
TITLE = "Operators of decoder layers with ways to shard each over a mesh and resharding costs."
OPTIONS: tuple[Option, ...] = (
    Option("--layers", int, 12, "Layers."),
    Option("--mesh", int, 4, "Devices of the mesh."),
    Option("--memory", float, 0.5, "Memory a device, as a share of what repeating everything needs."),
    Option("--seed", int, 1, "Seed of the noise on the times."),
)

WAYS = ("batch", "column", "row", "repeat")
# name, flops and weight bytes in units of an attention projection, output bytes
OPERATORS = (("norm1", 0.0, 0.0, 1), ("qkv", 3.0, 3.0, 3), ("attention", 1.0, 0.0, 1), ("out", 1.0, 1.0, 1),
             ("add1", 0.0, 0.0, 1), ("norm2", 0.0, 0.0, 1), ("up", 4.0, 4.0, 4), ("down", 4.0, 4.0, 1),
             ("add2", 0.0, 0.0, 1))  # fmt: skip


def make(*, layers: int = 12, mesh: int = 4, memory: float = 0.5, seed: int = 1) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    whole("--layers", layers, 1, 1000)
    whole("--mesh", mesh, 2, 1024)
    if not 0 < memory <= 1:
        raise InputError(f"--memory is {memory!r}, expected a share above 0, up to 1")
    rng = np.random.default_rng(seed)
    ring = (mesh - 1) / mesh
    tasks, edges, whole_bytes = [], [], 0
    table: list[dict[str, Any]] = []
    outputs: dict[str, int] = {}
    for layer in range(layers):
        names = {name: f"layer{layer}.{name}" for name, *_ in OPERATORS}
        for name, flops, weights, out in OPERATORS:
            modes = []
            for way in WAYS:
                work = (flops * 400 + 20) * (1 if way == "repeat" else 1 / mesh)
                gradients = weights * 60 * ring if way == "batch" else 0.0
                reduce = out * 80 * ring if way == "row" and flops else 0.0
                seconds = round((work + gradients + reduce) * float(0.95 + 0.1 * rng.random()), 2)
                bytes_ = int((weights * 4_000_000 + 200_000) / (1 if way in ("batch", "repeat") else mesh))
                modes.append(Mode(name=way, time=[seconds], memory=bytes_))
            whole_bytes += bytes_
            outputs[names[name]] = out
            tasks.append(Task(name=names[name], time=modes[0].time, modes=modes))
        order = [names[name] for name, *_ in OPERATORS]
        pairs: list[tuple[str, str]] = list(pairwise(order))
        into = f"layer{layer - 1}.add2" if layer else None
        pairs += [(into, order[0]), (into, order[4])] if into is not None else []
        pairs.append((order[4], order[8]))
        for a, b in pairs:
            edges.append(Edge(source=a, target=b))
            size = 40.0 * outputs[a]
            matrix = [
                [0.0 if given == wanted else round(size * _moves(given, wanted, mesh), 2) for wanted in WAYS]
                for given in WAYS
            ]
            table.append({"from": a, "to": b, "seconds": matrix})
    job = Job(name="model", tasks=tasks, edges=edges)
    device = Device(name="mesh", memory=int(whole_bytes * memory))
    labels = dict(zip([task.name for task in tasks], Instance.build([device], [job]).labels, strict=True))
    for row in table:
        row |= {key: labels[row[key]] for key in ("from", "to")}
    return Instance.build(
        [device],
        [job],
        tables={"resharding": table},
        question={"objective": "operator-sharding"},
        name=f"operator-sharding-{layers}x{mesh}",
        description=f"{len(tasks)} operators of {layers} decoder layers on a mesh of {mesh}, microseconds, made-up rates.",
        source="made up, see hetopt generate operator-sharding --help",
    )


def _moves(given: str, wanted: str, mesh: int) -> float:
    """Share of a tensor that travels: none from what is everywhere, all but its own part to gather, less to exchange."""
    if given in ("repeat", "row"):
        return 0.0
    return (mesh - 1) / mesh if wanted in ("repeat", "column") else (mesh - 1) / mesh**2
