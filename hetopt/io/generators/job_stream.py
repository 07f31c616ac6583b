"""A stream of jobs on a system on a chip: a few applications, each a random graph of tasks, that come one after the other.

Two kinds of cores run everything, accelerators some tasks, much faster. The time between arrivals is exponential, with a mean at
which the jobs would keep the devices busy for ``load`` of the time, each task taking its mean. Times are whole microseconds; with
``speeds`` each core has three speeds, power growing with the cube of the speed above a part that does not change.
"""

from __future__ import annotations

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.generators.task_graph import edges_of
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "job-stream"
TITLE = "A stream of jobs (task graphs with releases) on cores and accelerators of a chip."
OPTIONS: tuple[Option, ...] = (
    Option("--jobs", int, 8, "Number of jobs."),
    Option("--tasks", int, 6, "Tasks of an application."),
    Option("--applications", int, 2, "Different applications; each job is one of them."),
    Option("--cores", int, 2, "Cores of each of the two kinds, at least one."),
    Option("--accelerators", int, 1, "Accelerators, each of its own kind."),
    Option("--load", float, 0.8, "Share of the time in which the devices would be busy, each task taking its mean."),
    Option("--speeds", bool, False, "Three speeds for each core, and a price of energy."),
    Option("--seed", int, 0, "Seed."),
)


def make(
    *,
    jobs: int = 8,
    tasks: int = 6,
    applications: int = 2,
    cores: int = 2,
    accelerators: int = 1,
    load: float = 0.8,
    speeds: bool = False,
    seed: int = 0,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range.
    """
    count, n = whole("--jobs", jobs, 1, 100_000), whole("--tasks", tasks, 1, 1000)
    kinds = whole("--applications", applications, 1, 100)
    pairs, extra = whole("--cores", cores, 1, 64), whole("--accelerators", accelerators, 0, 64)
    whole("--seed", seed, 0, 2**32)
    if not 0.01 <= load <= 100:
        raise InputError(f"--load is {load}, expected a number from 0.01 to 100")
    if count * n * (2 * pairs + extra) > 1 << 23:
        raise InputError(f"{count} jobs of {n} tasks on {2 * pairs + extra} devices are more than {1 << 23} times")
    random = np.random.default_rng([seed, count, n, kinds])
    devices = [Device(name=f"big{i}", type="big", power=2.5, idle_power=0.5) for i in range(pairs)]
    devices += [Device(name=f"little{i}", type="little", power=0.6, idle_power=0.1) for i in range(pairs)]
    devices += [Device(name=f"acc{i}", type=f"acc{i}", power=1.2, idle_power=0.2) for i in range(extra)]
    graphs = [_application(n, extra, random) for _ in range(kinds)]
    mean = float(np.mean([[np.mean(list(t.time.values())) for t in ts] for ts, _ in graphs]))  # type: ignore[union-attr]
    between = mean * n / (len(devices) * load)
    arrivals = np.round(np.cumsum(random.exponential(between, count)), 6)
    stream = []
    for j, moment in enumerate((arrivals - arrivals[0]).tolist()):
        kind = int(random.integers(kinds))
        stream.append(Job(name=f"job{j}-app{kind}", release=moment, tasks=graphs[kind][0], edges=graphs[kind][1]))
    return Instance.build(
        devices,
        stream,
        [Link(source="*", target="*", bandwidth=4.096e9, latency=2e-6)],
        tables={"speeds": {"big": _speeds(2.0), "little": _speeds(0.5)}} if speeds else {},
        question={"objective": "online-latency", **({"energy_price": 0.2} if speeds else {})},
        name=f"job-stream-{count}x{len(devices)}-{seed}",
        source=f"generated with seed {seed}: {count} jobs of {kinds} applications, load {load:g}",
    )


def _application(n: int, accelerators: int, random: np.random.Generator) -> tuple[list[Task], list[Edge]]:
    """Tasks of 20 to 400 us on a big core, two to four times that on a little one, a third of them faster elsewhere."""
    edges = edges_of("layered", n, 2, random)
    tasks: list[Task] = []
    for k in range(n):
        big = int(random.integers(20, 400))
        row: dict[str, float] = {"big": big / 1e6, "little": round(big * random.uniform(2, 4)) / 1e6}
        if accelerators and random.random() < 1 / 3:
            row[f"acc{int(random.integers(accelerators))}"] = max(1, round(big / random.uniform(4, 10))) / 1e6
        tasks.append(Task(name=f"t{k}", time=row, output=int(random.integers(1, 65)) * 4096))  # type: ignore[arg-type]
    return tasks, [Edge(source=f"t{u}", target=f"t{v}") for u, v in edges]


def _speeds(power: float) -> list[dict[str, float | str]]:
    return [
        {"name": f"{round(100 * s)}%", "speed": s, "power": round(power * (0.2 + 0.8 * s**3), 6)}
        for s in (0.5, 0.75, 1.0)
    ]
