"""Workers behind links of a host that holds a load which can be cut anywhere: speeds, links, latencies, start-ups, made up."""

from __future__ import annotations

import numpy as np

from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Job, Link

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "star"
TITLE = "A divisible load on a host and workers behind links of unlike speed."
OPTIONS: tuple[Option, ...] = (
    Option("--workers", int, 6, "Workers."),
    Option("--units", int, 1000, "Units of load."),
    Option("--seed", int, 1, "Seed."),
)


def make(*, workers: int = 6, units: int = 1000, seed: int = 1) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    whole("--workers", workers, 1, 10_000)
    whole("--units", units, 1, 10**12)
    rng = np.random.default_rng(seed)
    names = [f"worker{k}" for k in range(workers)]
    times = [round(0.01 + 0.09 * float(rng.random()), 5) for _ in names]
    links = [
        Link(
            source="host",
            target=name,
            bandwidth=float(int(1e8 * (1 + 9 * rng.random()))),
            latency=round(0.5 * float(rng.random()), 4),
        )
        for name in names
    ]
    startup = {name: round(2 * float(rng.random()), 4) for name in names}
    return Instance.build(
        [Device(name=name) for name in names],
        [Job(name="load", steps=units, output=1_000_000, time=times)],  # type: ignore[arg-type]
        links,
        tables={"startup": startup},
        question={"objective": "divisible"},
        name=f"star-{workers}",
        description=f"{units} units of a megabyte on {workers} workers with made-up links and speeds.",
        source="made up, see hetopt generate star --help",
    )
