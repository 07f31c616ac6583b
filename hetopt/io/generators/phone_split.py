"""A network's operators on a phone's CPU, GPU and NPU, alone and under contention, for the question how to split each of them.

A chain of convolution blocks with a residual connection now and then. The GPU is three to eight times as fast as the CPU, the NPU
more on convolutions; some operators have no support there. Times are whole microseconds; launches and merges cost tens of them.
"""

from __future__ import annotations

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "phone-split"
TITLE = "A network's operators on a phone's CPU, GPU and NPU under contention scenarios."
ROBUST = ("worst", "expected")
OPTIONS: tuple[Option, ...] = (
    Option("--operators", int, 24, "Number of operators."),
    Option("--unsupported", float, 0.2, "Share of operators that the NPU does not support (half of it on the GPU)."),
    Option("--residual", float, 0.2, "Share of operators that also read the one two before."),
    Option("--scenarios", int, 3, "Scenarios of contention, the first of which is none."),
    Option("--grain", int, 4, "Units in which an operator may be split."),
    Option("--robust", ROBUST, "worst", "Which time over the scenarios counts."),
    Option("--seed", int, 0, "Seed."),
)
_BUSY = (("cpu", 2.0), ("gpu", 2.5), ("npu", 1.8))


def make(
    *,
    operators: int = 24,
    unsupported: float = 0.2,
    residual: float = 0.2,
    scenarios: int = 3,
    grain: int = 4,
    robust: str = "worst",
    seed: int = 0,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range.
    """
    n, count = whole("--operators", operators, 1, 10_000), whole("--scenarios", scenarios, 1, 4)
    whole("--grain", grain, 1, 100)
    whole("--seed", seed, 0, 2**32)
    chosen("--robust", robust, ROBUST)
    for flag, value in (("--unsupported", unsupported), ("--residual", residual)):
        if not 0 <= value <= 1:
            raise InputError(f"{flag} is {value}, expected a number from 0 to 1")
    random = np.random.default_rng([seed, n])
    cpu = random.integers(300, 6000, n)
    speed = np.stack([np.ones(n), random.uniform(1.5, 4, n), random.uniform(2, 6, n)], axis=1)
    times = np.maximum(np.round(cpu[:, None] / speed), 1) / 1e6
    draw = random.random(n)
    times[draw < unsupported, 2] = np.inf
    times[draw < unsupported / 2, 1] = np.inf
    size = random.integers(1, 33, n) * 32768
    skips = random.random(n) < residual
    tasks = [
        Task(name=f"op{v}", time=[None if np.isinf(t) else float(t) for t in times[v]], output=int(size[v]))
        for v in range(n)
    ]
    edges = [Edge(source=f"op{v - 1}", target=f"op{v}") for v in range(1, n)]
    edges += [Edge(source=f"op{v - 2}", target=f"op{v}") for v in range(2, n) if skips[v]]
    rows = [{"name": "alone", "probability": 0.5, "slowdown": {}}]
    rows += [
        {"name": f"{name} busy", "probability": 0.5 / max(1, count - 1), "slowdown": {name: factor}}
        for name, factor in _BUSY[: count - 1]
    ]
    return Instance.build(
        [Device(name=name) for name in ("cpu", "gpu", "npu")],
        [Job(name="network", tasks=tasks, edges=edges)],
        [Link(source="*", target="*", bandwidth=8e9, latency=2e-5)],
        tables={
            "launch": {"cpu": 5e-6, "gpu": 4e-5, "npu": 6e-5},
            "merge": {"*": 3e-5},
            "whole": [f"op{v}" for v in range(n) if draw[v] < unsupported],
            "scenarios": rows,
        },
        question={"objective": "operator-split", "grain": grain, "robust": robust},
        name=f"phone-split-{n}x3-{seed}",
        source=f"generated with seed {seed}: {n} operators, {count} scenarios",
    )
