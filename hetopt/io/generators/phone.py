"""Three networks with periods on a phone's CPU, GPU and NPU: eye tracking, segmentation and speech; numbers of our own.

A network is a sequence of blocks, each with work drawn around a typical value, and its period is its deadline. A run of blocks
takes, on a device, a start and the work of its blocks, less a share that grows with its length (operators fuse, results stay in
caches) and a spread of measurement: times of runs are no sums. The CPU computes in single precision, the GPU in half precision,
the NPU in 8-bit integers and not every block; data handed over are converted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "phone"
TITLE = "Three networks with periods on a phone's CPU, GPU and NPU, runs of blocks as measured."
QUESTIONS = ("periodic-latency", "periodic-drops", "periodic-rate")
OPTIONS: tuple[Option, ...] = (
    Option("--pace", int, 100, "Per cent of the usual frame rates."),
    Option("--question", QUESTIONS, "periodic-latency", "Objective asked for."),
    Option("--seed", int, 0, "Seed."),
)


class _Network(NamedTuple):
    """Blocks, period in units of 25 ms, milliseconds of a block on the CPU, kilobytes handed over, blocks the NPU lacks."""

    name: str
    blocks: int
    period: int
    work: float
    kilobytes: int
    lacks: tuple[int, ...]


NETWORKS = (
    _Network("eyes", 4, 1, 10.0, 120, ()),
    _Network("segment", 5, 2, 30.0, 600, (4,)),
    _Network("speech", 4, 4, 35.0, 40, (1, 3)),
)
# backend, device, times faster than the CPU, microseconds to start a run
BACKENDS = (("", "cpu", 1.0, 20), ("fp16", "gpu", 2.2, 180), ("int8", "npu", 6.0, 320))
CONVERSIONS = (("", "fp16", 60), ("", "int8", 110), ("fp16", "int8", 80))


def make(*, pace: int = 100, question: str = "periodic-latency", seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A pace out of its range, or an unknown question.
    """
    whole("--pace", pace, 1, 10_000)
    whole("--seed", seed, 0, 2**32)
    chosen("--question", question, QUESTIONS)
    random = np.random.default_rng([seed, 3])
    jobs, segments = [], {}
    for network in NETWORKS:
        work = network.work * 1000 * random.uniform(0.6, 1.4, network.blocks)
        suits = random.uniform(0.6, 1.4, (network.blocks, len(BACKENDS)))
        suits[:, 0] = 1.0
        sent = (1000 * np.round(network.kilobytes * random.uniform(0.5, 1.5, network.blocks))).astype(int).tolist()
        names = [f"b{k}" for k in range(network.blocks)]
        rows: list[dict[str, Any]] = []
        own = []
        for a in range(network.blocks):
            for b in range(a, network.blocks):
                for k, (backend, device, faster, start) in enumerate(BACKENDS):
                    fused = 1.0 - 0.06 * (b - a) if b > a else 1.0
                    micro = start + fused * float((work[a : b + 1] / (faster * suits[a : b + 1, k])).sum())
                    micro *= random.uniform(0.97, 1.03)
                    seconds = round(micro / 1e6, 6)
                    if device == "npu" and any(a <= lacking <= b for lacking in network.lacks):
                        continue
                    if a == b and not backend:
                        own.append(seconds)
                    else:
                        word = {"backend": backend} if backend else {}
                        rows.append({"first": names[a], "last": names[b], **word, "time": {device: seconds}})
        tasks = [
            Task(name=name, time={"cpu": seconds}, output=size)
            for name, seconds, size in zip(names, own, sent, strict=True)
        ]
        edges = [Edge(source=names[k], target=names[k + 1]) for k in range(network.blocks - 1)]
        period = network.period * round(25_000 * 100 / pace) / 1e6
        jobs.append(Job(name=network.name, tasks=tasks, edges=edges, period=period))
        segments[network.name] = rows
    both = [(a, b, us) for a, b, us in CONVERSIONS] + [(b, a, us) for a, b, us in CONVERSIONS]
    return Instance.build(
        [Device(name="cpu"), Device(name="gpu"), Device(name="npu")],
        jobs,
        [Link(source="*", target="*", bandwidth=8_000_000_000, latency=30e-6)],
        tables={
            "segments": segments,
            "conversions": [{"from": a, "to": b, "seconds": us / 1e6, "bandwidth": 4e9} for a, b, us in both],
        },
        question={"objective": question},
        name="phone",
        description="Eye tracking, segmentation and speech on a phone's CPU, GPU and NPU.",
        source=f"generated with seed {seed}: numbers of our own, made to look like measured runs of blocks",
    )
