"""Seconds and utilisation by batch size of CPUs and GPUs that train together.

Made up: a batch of b takes a start and b times a pace, less for small batches by how far the device is from busy; utilisation is
b / (b + h), h the batch that keeps the device half busy. A GPU's pace is 10 to 40 times a CPU's, its h far larger.
"""

from __future__ import annotations

import numpy as np

from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "batch-profiles"
TITLE = "Seconds and utilisation by batch size of CPUs and GPUs that train together."
OPTIONS: tuple[Option, ...] = (
    Option("--cpus", int, 2, "CPUs."),
    Option("--gpus", int, 4, "GPUs."),
    Option("--sizes", int, 12, "Batch sizes, powers of two."),
    Option("--seed", int, 1, "Seed."),
)


def make(*, cpus: int = 2, gpus: int = 4, sizes: int = 12, seed: int = 1) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    whole("--cpus", cpus, 0, 10_000)
    whole("--gpus", gpus, 0 if cpus else 1, 10_000)
    whole("--sizes", sizes, 1, 24)
    rng = np.random.default_rng(seed)
    table = {}
    for k in range(cpus + gpus):
        gpu = k >= cpus
        pace = 2e-3 * float(1 + rng.random()) / (float(10 + 30 * rng.random()) if gpu else 1.0)
        half, start = (float(64 + 192 * rng.random()), 2e-3) if gpu else (float(1 + 3 * rng.random()), 1e-4)
        name = f"gpu{k - cpus}" if gpu else f"cpu{k}"
        batches = [2**s for s in range(sizes)]
        table[name] = [[b, float(f"{start + pace * (b + half):.6g}"), round(b / (b + half), 4)] for b in batches]
    names = list(table)
    return Instance.build(
        [Device(name=name) for name in names],
        [Job(name="epoch", steps=1_000_000, time=[1] * len(names))],
        tables={"batches": table},
        question={"objective": "batch", "balance": 4.0},
        name=f"batch-profiles-{cpus}x{gpus}",
        description=f"batch sizes up to {2 ** (sizes - 1)} on {cpus} CPUs and {gpus} GPUs with made-up profiles.",
        source="made up, see hetopt generate batch-profiles --help",
    )
