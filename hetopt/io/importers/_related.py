"""Devices for graphs that come without any: speeds and links drawn so that transfers stand in a given ratio to work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._text import MAX_CELLS
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["OPTIONS", "on_related_devices"]

OPTIONS: tuple[Option, ...] = (
    Option("--devices", int, 4, "Number of devices; their speeds are drawn from 1 to 4."),
    Option("--ccr", float, 1.0, "Mean seconds of a transfer over mean seconds of a task; 0 for none."),
    Option("--seed", int, 0, "Seed of speeds and bandwidths."),
)


def on_related_devices(
    names: Sequence[str],
    seconds: Sequence[float],
    edges: Sequence[tuple[str, str, float]],
    *,
    devices: int,
    ccr: float,
    seed: int,
    name: str,
    source: str,
) -> Instance:
    """One job of tasks with ``seconds`` at speed 1 and edges (source, target, bytes), asking when it is done.

    Speeds are uniform from 1 to 4, sorted; bandwidths symmetric, uniform within 0.5 to 1.5 of a mean that makes the ratio of
    mean transfer to mean task ``ccr``. Times keep 12 digits.

    Raises
    ------
    InputError
        A number out of its range, or more than 8.4 million times.
    """
    d = whole("--devices", devices, 1, 1000)
    whole("--seed", seed, 0, 2**32)
    if not 0 <= ccr <= 1e6:
        raise InputError(f"--ccr is {ccr}, expected a number from 0 to a million")
    if len(names) * d > MAX_CELLS:
        raise InputError(f"{len(names)} tasks on {d} devices are more than {MAX_CELLS} times; ask for fewer devices")
    random = np.random.default_rng(seed)
    speed = np.sort(random.uniform(1, 4, d))
    work = np.asarray(seconds, np.float64)
    times = work[:, None] / speed
    sent = np.array([data for _, _, data in edges])
    crew = [f"d{i}" for i in range(d)]
    links = [Link(source="*", target="*", bandwidth=None)]
    mean = float(work.mean() / speed.mean()) if len(work) else 0.0
    if ccr and d > 1 and len(sent) and sent.mean() > 0 and mean > 0:
        drawn = random.uniform(0.5, 1.5, (d, d))
        drawn = (drawn + drawn.T) / 2
        factor = sent.mean() / (ccr * mean) / drawn[np.triu_indices(d, 1)].mean()
        links = [
            Link(source=crew[a], target=crew[b], bandwidth=_digits(drawn[a, b] * factor), both=True)
            for a in range(d)
            for b in range(a + 1, d)
        ]
    tasks = [Task(name=label, time=[_digits(t) for t in row]) for label, row in zip(names, times.tolist(), strict=True)]
    arcs = [Edge(source=u, target=v, data=data) for u, v, data in edges]
    return Instance.build(
        [Device(name=label) for label in crew],
        [Job(name=name or "job", tasks=tasks, edges=arcs)],
        links,
        question={"objective": "schedule-latency"},
        name=name,
        description=f"devices drawn with seed {seed}, communication ratio {ccr:g}",
        source=source,
    )


def _digits(value: float) -> float:
    return float(f"{value:.12g}")
