"""A block library for choosing one variant a layer: attention or none, and a feed-forward part of eight sizes.

80 layers of width 8192 with 16 variants each (2 of attention, 8 of the feed-forward part, as published searches have them). Times
and bytes are those of the roofline; the losses are made up: a layer's importance is drawn once, its loss grows with what is
taken away, faster than in proportion, and taking both parts costs more than their sum. Source of the variants: Bercovich et al.,
"Puzzle: distillation-based NAS for inference-optimized LLMs", ICML 2025.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hetopt.costs.roofline import PROCESSORS, seconds
from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Mode, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "block-library"
TITLE = "Variants of each layer of a 70-billion-parameter decoder with their losses, to choose one each under budgets."
OPTIONS: tuple[Option, ...] = (
    Option("--layers", int, 80, "Layers."),
    Option("--device", str, "h100-sxm", "Processor."),
    Option("--batch", int, 256, "Sequences that decode together."),
    Option("--context", int, 1200, "Tokens in the KV cache of each sequence."),
    Option("--memory", float, 0.6, "Memory, as a share of what the parent needs."),
    Option("--speed", float, 0.75, "Budget of time, as a share of the parent's."),
    Option("--seed", int, 1, "Seed of the losses."),
)

WIDTH, FEED, HEADS, KV_HEADS, HEAD = 8192, 28672, 64, 8, 128
SIZES = (100, 75, 62, 50, 25, 20, 10, 0)


def make(
    *,
    layers: int = 80,
    device: str = "h100-sxm",
    batch: int = 256,
    context: int = 1200,
    memory: float = 0.6,
    speed: float = 0.75,
    seed: int = 1,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    for name, value, most in (("--layers", layers, 10_000), ("--batch", batch, 65536), ("--context", context, 1 << 20)):
        whole(name, value, 1, most)
    if device not in PROCESSORS:
        raise InputError(f"--device is {device!r}; {nearest(device, PROCESSORS, what='the processors')}")
    for name, share in (("--memory", memory), ("--speed", speed)):
        if not 0 < share <= 1:
            raise InputError(f"{name} is {share!r}, expected a share above 0, up to 1")
    rng = np.random.default_rng(seed)
    where = PROCESSORS[device]
    attention = WIDTH * (HEADS + 2 * KV_HEADS) * HEAD + HEADS * HEAD * WIDTH
    cache = 2 * KV_HEADS * HEAD
    tasks = []
    total_bytes, total_seconds = 0.0, 0.0
    for k in range(layers):
        of_attention, of_feed = rng.gamma(2.0, 0.02), rng.gamma(2.0, 0.05)
        modes = []
        for keeps in (True, False):
            for size in SIZES:
                feed = 3 * WIDTH * FEED * size // 100
                weights = (attention if keeps else 0) + feed
                state = batch * context * cache if keeps else 0
                flops = 2.0 * batch * weights + (4.0 * batch * context * WIDTH if keeps else 0.0)
                lost = (1 - size / 100) ** 1.5
                score = (
                    (0.0 if keeps else of_attention) + of_feed * lost + (0.0 if keeps else 0.5 * of_attention * lost)
                )
                time = seconds(where, flops, float(weights + state), "fp16")
                modes.append(
                    Mode(
                        name=f"{'attention' if keeps else 'none'}-{size}",
                        time=[round(time, 9)],
                        memory=weights + state,
                        score=round(score, 6),
                    )
                )
        total_bytes += modes[0].memory or 0
        total_seconds += float(modes[0].time[0])  # type: ignore[index,arg-type]
        tasks.append(Task(name=f"layer{k}", time=modes[0].time, modes=modes))
    return Instance.build(
        [Device(name=device, memory=int(total_bytes * memory))],
        [Job(name="model", tasks=tasks, edges=[Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)])],
        question={"objective": "multichoice", "time": round(total_seconds * speed, 9)},
        name=f"block-library-{layers}",
        description=f"{layers} layers with 16 variants each, 8-bit weights and cache, {batch} sequences of {context} tokens; "
        "the losses are made up.",
        source=f"roofline of public architecture dimensions on {where.name}: {where.source} ({where.confidence})",
    )
