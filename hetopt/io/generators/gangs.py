"""Gangs of bundles for nodes with GPUs, CPUs and memory: some nodes have no GPU, some gangs need several at once.

All numbers are drawn from a seed. A node has 4 or 8 GPUs or none, 16 to 64 CPUs and 4 GiB for each CPU; racks hold four nodes. A
gang has one to six bundles that are alike. With the question ``gang-nodes`` half of the nodes are not there yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Job, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "gangs"
TITLE = "Gangs of bundles for nodes with GPUs, CPUs and memory."
QUESTIONS = ("gang-weight", "gang-nodes")
OPTIONS: tuple[Option, ...] = (
    Option("--question", QUESTIONS, "gang-weight", "What is asked."),
    Option("--gangs", int, 20, "Number of gangs."),
    Option("--nodes", int, 8, "Number of nodes."),
    Option("--seed", int, 0, "Seed."),
)
MAX_CELLS = 1 << 20


def make(*, question: str = "gang-weight", gangs: int = 20, nodes: int = 8, seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range, or another question.
    """
    chosen("--question", question, QUESTIONS)
    whole("--gangs", gangs, 1, MAX_CELLS)
    whole("--nodes", nodes, 1, MAX_CELLS)
    whole("--gangs times --nodes", gangs * nodes, 1, MAX_CELLS)
    whole("--seed", seed, 0, 2**32)
    random = np.random.default_rng([seed, gangs, nodes, 7])
    capacity, domain = {}, {}
    for v in range(nodes):
        cpus = int(random.choice([16, 32, 64]))
        capacity[f"n{v}"] = {"gpu": int(random.choice([0, 4, 8])) if v else 8, "cpu": cpus, "gib": 4 * cpus}
        domain[f"n{v}"] = f"rack{v // 4}"
    jobs: list[Job] = []
    demand: dict[str, dict[str, int]] = {}
    for g in range(gangs):
        bundle = {"gpu": int(random.choice([0, 1, 2, 4], p=[0.3, 0.4, 0.2, 0.1])), "cpu": int(random.integers(1, 9))}
        bundle["gib"] = bundle["cpu"] * int(random.choice([1, 4, 6]))
        count = int(random.integers(1, 7))
        jobs.append(
            Job(
                name=f"g{g}",
                weight=int(random.integers(1, 10)),
                tasks=[Task(name=f"b{k}", time=[1] * nodes) for k in range(count)],
            )
        )
        demand |= {f"g{g}/b{k}" if gangs > 1 else f"b{k}": bundle for k in range(count)}
    tables: dict[str, Any] = {"capacity": capacity, "demand": demand, "domain": domain}
    if question == "gang-nodes":
        tables["new"] = [f"n{v}" for v in range(nodes // 2, nodes)]
    return Instance.build(
        [Device(name=f"n{v}") for v in range(nodes)],
        jobs,
        tables=tables,
        question={"objective": question},
        name=f"gangs-{gangs}x{nodes}-{seed}",
        source=f"generated with seed {seed}",
    )
