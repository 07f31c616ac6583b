"""Jobs and machines with weights and due dates, by the published distribution.

Whole numbers throughout. The longest time R is drawn from U{10..45}, the longest first occupation from U{round(R/3)..R};
times U{1..R}, due dates of jobs and machines U{0..30}, weights U{1..10}, occupations from 0 to the longest, at least one
of them 0. Source: Hitzges and Sagnol, ICMLA 2025, arXiv 2512.19527.
"""

from __future__ import annotations

import numpy as np

from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "tardiness"
TITLE = "Jobs and machines with weights and due dates, machines busy at first (Hitzges and Sagnol)."
OPTIONS: tuple[Option, ...] = (
    Option("--jobs", int, 8, "Number of jobs."),
    Option("--machines", int, 4, "Number of machines."),
    Option("--seed", int, 0, "Seed."),
)
MAX_CELLS = 1 << 26
LATEST, HEAVIEST = 30, 10


def make(*, jobs: int = 8, machines: int = 4, seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range.
    """
    whole("--jobs", jobs, 1, MAX_CELLS)
    whole("--machines", machines, 1, MAX_CELLS)
    whole("--jobs times --machines", jobs * machines, 1, MAX_CELLS)
    whole("--seed", seed, 0, 2**32)
    random = np.random.default_rng([seed, jobs, machines, 2])
    longest = int(random.integers(LATEST // 3, LATEST * 3 // 2 + 1))
    busy = random.integers(0, int(random.integers(round(longest / 3), longest + 1)) + 1, machines)
    if busy.all():
        busy[random.integers(machines)] = 0
    times = random.integers(1, longest + 1, (jobs, machines)).tolist()
    due, machine_due = (random.integers(0, LATEST + 1, size).tolist() for size in (jobs, machines))
    weight, machine_weight = (random.integers(1, HEAVIEST + 1, size).tolist() for size in (jobs, machines))
    return Instance.build(
        [
            Device(name=f"m{i}", available_from=int(busy[i]), due=machine_due[i], weight=machine_weight[i])
            for i in range(machines)
        ],
        [Job(name=f"j{j}", time=times[j], due=due[j], weight=weight[j]) for j in range(jobs)],
        question={"objective": "tardiness"},
        name=f"tardiness-{jobs}x{machines}-{seed}",
        source=f"generated with seed {seed} by the distribution of Hitzges and Sagnol, ICMLA 2025, arXiv 2512.19527",
    )
