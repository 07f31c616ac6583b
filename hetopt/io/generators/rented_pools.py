"""A sequence of layers on pools of equal units, some quick and dear, some slow and cheap: for cost, period and energy.

All numbers are drawn from a seed: a layer's work is log-normal; pools get quicker by up to eight times, and dearer and hungrier
by a little more than that; each pool suits each layer more or less. The question is ``provision`` (cost of all samples under a
floor) or ``pareto`` (throughput against energy).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "rented-pools"
TITLE = "A sequence of layers on pools of equal units, for cost under a floor or throughput against energy."
QUESTIONS = ("provision", "pareto")
OPTIONS: tuple[Option, ...] = (
    Option("--question", QUESTIONS, "provision", "What is asked."),
    Option("--layers", int, 12, "Number of layers."),
    Option("--pools", int, 3, "Number of pools."),
    Option("--units", int, 16, "Units of each pool."),
    Option("--seed", int, 0, "Seed."),
)
MAX_CELLS = 1 << 20


def make(*, question: str = "provision", layers: int = 12, pools: int = 3, units: int = 16, seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range, or another question.
    """
    chosen("--question", question, QUESTIONS)
    whole("--layers", layers, 1, MAX_CELLS)
    whole("--pools", pools, 1, 64)
    whole("--units", units, 1, 4096)
    whole("--seed", seed, 0, 2**32)
    random = np.random.default_rng([seed, layers, pools, units])
    speed = np.linspace(1, 8, pools) if pools > 1 else np.ones(1)
    suits = random.uniform(0.6, 1.6, (layers, pools))
    work = random.lognormal(0.0, 0.6, layers)
    times = np.round(work[:, None] * suits / speed, 6)
    tasks = [
        Task(name=f"l{k}", time=times[k].tolist(), output=int(random.integers(1, 64)) * 10_000) for k in range(layers)
    ]
    devices = [
        Device(
            name=f"pool{k}",
            slots=units,
            price=round(0.4 * float(speed[k]) ** 1.1, 3),
            power=round(40 * float(speed[k]) ** 1.1),
            idle_power=round(8 * float(speed[k])),
        )
        for k in range(pools)
    ]
    asked: dict[str, Any] = {"objective": "provision"}
    tables: dict[str, Any] = {}
    if question == "provision":
        tables["provision"] = {
            "batch": 256,
            "samples": 100_000_000,
            "data_time": np.round(work[:, None] * random.uniform(0.05, 0.5, (layers, pools)), 6).tolist(),
            "compute_share": np.round(random.uniform(0.8, 1.0, (layers, pools)), 4).tolist(),
            "data_share": np.round(random.uniform(0.7, 1.0, (layers, pools)), 4).tolist(),
        }
        asked["throughput"] = round(256 / float(times.min(axis=1).sum()), 3)
    else:
        asked["objective"] = "pareto-period"
        tables["speedup"] = {device.name: [round(k**0.9, 4) for k in range(1, units + 1)] for device in devices}
    return Instance.build(
        devices,
        [Job(name="model", tasks=tasks, edges=[Edge(source=f"l{k}", target=f"l{k + 1}") for k in range(layers - 1)])],
        [Link(source="*", target="*", bandwidth=2e7, latency=0.001)],
        tables=tables,
        question=asked,
        name=f"rented-pools-{question}-{layers}x{pools}",
        source=f"generated with seed {seed}",
    )
