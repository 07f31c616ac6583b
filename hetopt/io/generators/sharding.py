"""Embedding tables of a recommendation model for GPUs: sizes and lookups drawn, seconds by bandwidth from data sheets.

Rows are log-uniform from 10^3 to 2 10^7, dimensions 16 to 128, pooling factors log-uniform from 1 to 100, in single precision;
a table above 80 % of the smallest memory is drawn again, as in DreamShard's task generator (D. Zha and others, NeurIPS 2022),
whose 13 tables a GPU are the default. A table's lookups and their gradients read or write its gathered rows three times and
its pooled vectors twice, in two kernels. Kernels that are fused save nine tenths of a start for each table up to eight, and
half of one beyond: an assumption, not a measurement.
"""

from __future__ import annotations

import math

import numpy as np

from hetopt.costs.roofline import fleet as read_fleet
from hetopt.costs.roofline import seconds
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Job, Link

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "sharding"
TITLE = "Embedding tables of a recommendation model, to be placed whole on GPUs."
FLEET = "a100-sxm-40:4"
OPTIONS: tuple[Option, ...] = (
    Option("--fleet", str, FLEET, "GPUs and how many of each, as name:count,name:count."),
    Option("--tables", int, 0, "Number of tables; 0 for 13 a GPU."),
    Option("--batch", int, 16384, "Samples in a batch, over all GPUs."),
    Option("--seed", int, 0, "Seed."),
)
WIDTH = 4  # bytes of a number
RESERVED = 0.1  # of a memory, for what is not a table
DIMENSIONS = (16, 32, 64, 96, 128)
TABLES_EACH = 13


def make(*, fleet: str = FLEET, tables: int = 0, batch: int = 16384, seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        An unknown GPU or one without memory or link of its own, a number out of its range, or tables that do not fit.
    """
    crew = [processor for processor, count in read_fleet(fleet) for _ in range(count)]
    n = whole("--tables", tables, 0, 1 << 20) or TABLES_EACH * len(crew)
    whole("--batch", batch, 1, 1 << 30)
    whole("--seed", seed, 0, 2**32)
    odd = next((p.name for p in crew if p.memory is None or p.link is None), None)
    if odd is not None:
        raise InputError(
            f"--fleet names {odd!r}, whose memory or link the catalogue does not give; expected GPUs with both"
        )
    room = [math.floor((1 - RESERVED) * (p.memory or 0)) for p in crew]
    random = np.random.default_rng([seed, n, len(crew), 4])
    jobs: list[Job] = []
    while len(jobs) < n:
        rows, pooling = int(10 ** random.uniform(3, 7.3)), int(10 ** random.uniform(0, 2))
        dimension = DIMENSIONS[int(random.integers(len(DIMENSIONS)))]
        size, pooled = rows * dimension * WIDTH, batch * dimension * WIDTH
        if size > 0.8 * min(room):
            continue
        gathered = pooled * pooling
        time: list[int | float | None] = [
            round(seconds(p, 0, 3 * gathered + 2 * pooled, "fp16") + p.overhead, 9) for p in crew
        ]
        name = f"table{len(jobs)}"
        jobs.append(Job(name=name, time=time, memory=size, output=pooled, activation=gathered))
    need = sum(int(job.memory) for job in jobs)
    if need > 0.9 * sum(room):
        raise InputError(f"--tables {n} need {need} bytes and the fleet has {sum(room)}; use fewer tables or more GPUs")
    kinds = {p.name: p for p in crew}
    number: dict[str, int] = {}
    devices = []
    for p in crew:
        number[p.name] = number.get(p.name, -1) + 1
        devices.append(
            Device(
                name=f"{p.name}-{number[p.name]}",
                type=p.name,
                memory=p.memory,
                reserved=math.ceil(RESERVED * (p.memory or 0)),
            )
        )
    return Instance.build(
        devices,
        jobs,
        [Link(source=p.name, target="*", bandwidth=p.link or 1.0, latency=1e-5) for p in kinds.values()],
        tables={"fusion": {p.name: _saved(p.overhead, n) for p in kinds.values()}},
        question={"objective": "sharding", "batch": batch},
        name=f"sharding-{n}x{len(crew)}-{seed}",
        description=f"{n} embedding tables in single precision, batches of {batch} samples over {len(crew)} GPUs; links as wide "
        "as each GPU's way to its host, 10 microseconds of latency.",
        source=f"generated with seed {seed}; seconds by memory bandwidth from data sheets: "
        + "; ".join(f"{p.name}: {p.source} ({p.confidence})" for p in kinds.values()),
    )


def _saved(overhead: float, n: int) -> list[list[float]]:
    """Seconds that fusing k tables' two kernels saves, as points."""
    eight = -2 * 0.9 * overhead * 7
    points = [[1.0, 0.0], [8.0, round(eight, 12)]]
    return points if n <= 8 else [*points, [float(n), round(eight - 2 * 0.5 * overhead * (n - 8), 12)]]
