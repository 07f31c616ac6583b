"""Jobs that take equally long on each of the few machines that may run them; with two machines each, graph balancing.

Machines of a job are drawn without order; times are U{1..longest}, or, ``--sizes two``, ``longest`` for every third job on
average and 1 for the others, as in the instances that show the gaps of relaxations.
"""

from __future__ import annotations

import numpy as np

from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "restricted"
TITLE = "Jobs of one length on a few eligible machines each: restricted assignment and graph balancing."
SIZES = ("uniform", "two")
OPTIONS: tuple[Option, ...] = (
    Option("--jobs", int, 40, "Number of jobs."),
    Option("--machines", int, 8, "Number of machines."),
    Option("--degree", int, 2, "Machines that may run a job; 2 is graph balancing."),
    Option("--sizes", SIZES, "uniform", "Lengths: uniform, or only 1 and the longest."),
    Option("--longest", int, 100, "Longest job."),
    Option("--seed", int, 0, "Seed."),
)
MAX_CELLS = 1 << 26


def make(
    *,
    jobs: int = 40,
    machines: int = 8,
    degree: int = 2,
    sizes: str = "uniform",
    longest: int = 100,
    seed: int = 0,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range.
    """
    whole("--jobs", jobs, 1, MAX_CELLS)
    whole("--machines", machines, 1, MAX_CELLS)
    whole("--jobs times --machines", jobs * machines, 1, MAX_CELLS)
    whole("--degree", degree, 1, machines)
    chosen("--sizes", sizes, SIZES)
    whole("--longest", longest, 1, 1 << 30)
    whole("--seed", seed, 0, 2**32)
    random = np.random.default_rng([seed, jobs, machines, degree])
    mine = random.random((jobs, machines)).argsort(axis=1)[:, :degree]
    length = random.integers(1, longest + 1, jobs)
    if sizes == "two":
        length = np.where(random.random(jobs) < 1 / 3, longest, 1)
    times: list[list[int | float | None]] = [[None] * machines for _ in range(jobs)]
    for row, able, time in zip(times, mine.tolist(), length.tolist(), strict=True):
        for i in able:
            row[i] = time
    return Instance.build(
        [Device(name=f"m{i}") for i in range(machines)],
        [Job(name=f"j{k}", time=row) for k, row in enumerate(times)],
        question={"objective": "graph-balancing" if degree == 2 else "restricted-makespan"},
        name=f"restricted-{jobs}x{machines}-{seed}",
        source=f"generated with seed {seed}: each job on {degree} machines drawn at random, lengths {sizes} up to {longest}",
    )
