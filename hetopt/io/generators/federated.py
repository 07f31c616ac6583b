"""Phones and boards that train on shards of a data set: measured-like curves that bend up, batteries, classes.

Made up: a device's seconds a shard are drawn between 1 and 20 times the quickest's, and grow by up to a half when it runs warm; a
third of the devices have a battery that may bind; each holds a few of the classes.
"""

from __future__ import annotations

import numpy as np

from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "federated"
TITLE = "Shards of a data set on phones with bending curves, batteries and classes."
OPTIONS: tuple[Option, ...] = (
    Option("--devices", int, 20, "Devices."),
    Option("--shards", int, 200, "Shards in a round."),
    Option("--classes", int, 10, "Classes in the data."),
    Option("--question", ("shards", "shards-classes"), "shards", "What is asked."),
    Option("--seed", int, 1, "Seed."),
)


def make(
    *, devices: int = 20, shards: int = 200, classes: int = 10, question: str = "shards", seed: int = 1
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    whole("--devices", devices, 1, 10_000)
    whole("--shards", shards, 1, 1_000_000)
    whole("--classes", classes, 1, 1000)
    chosen("--question", question, ("shards", "shards-classes"))
    rng = np.random.default_rng(seed)
    table = {}
    longest = min(shards, max(1, 4 * shards // devices))
    slopes = [round(0.5 * (1 + 19 * float(rng.random())), 3) for _ in range(devices)]
    for i, slope in enumerate(slopes):
        warm = float(rng.random()) / 2
        n = np.arange(longest + 1.0)
        seconds = np.round(np.where(n > 0, 0.2, 0.0) + slope * n * (1 + warm * np.maximum(n / longest - 0.5, 0.0)), 4)
        row: dict[str, object] = {"seconds": seconds.tolist()}
        if rng.random() < 1 / 3:
            row |= {"energy": round(2 * slope, 3), "battery": round(2 * slope * float(rng.integers(1, longest + 1)), 3)}
        held = rng.permutation(classes)[: int(rng.integers(1, max(2, classes // 2 + 1)))]
        row["classes"] = [f"class{k}" for k in sorted(held.tolist())]
        table[f"phone{i}"] = row
    asked = {"objective": question} | ({"penalty": 40.0} if question != "shards" else {})
    return Instance.build(
        [Device(name=f"phone{i}") for i in range(devices)],
        [Job(name="round", steps=shards, time=slopes)],  # type: ignore[arg-type]
        tables={"shards": table},
        question=asked,
        name=f"federated-{devices}x{shards}",
        description=f"{shards} shards on {devices} devices of made-up speeds, batteries and classes.",
        source="made up, see hetopt generate federated --help",
    )
