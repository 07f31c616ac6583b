"""A mixture-of-experts decoder with the dimensions of Qwen3-30B-A3B on cards too small for it, the rest in host memory.

A sequence of parts: embedding; of each layer the dense part (attention, router, KV cache) and the experts; head. A layer's two
parts are not cut apart. One token a sequence reads all dense weights, the cache, and the experts that are routed to. Source of
the architecture: Qwen team, "Qwen3 technical report", 2025; 30,532,122,624 parameters.
"""

from __future__ import annotations

from itertools import pairwise

from hetopt.costs.roofline import fleet, seconds
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "moe-offload"
TITLE = "A mixture-of-experts decoder like Qwen3-30B-A3B, parts of layers on small cards or the host."
FLEET = "rtx4090:1,rtx3090:1,cpu:1"
OPTIONS: tuple[Option, ...] = (
    Option("--fleet", str, FLEET, "Processors and how many of each, with a cpu."),
    Option("--batch", int, 1, "Sequences that decode together."),
    Option("--context", int, 8192, "Tokens in the KV cache of each sequence."),
)

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, EXPERTS, ROUTED, FEED, WORDS = 48, 2048, 32, 4, 128, 128, 8, 768, 151936
BYTES = 2
_HOP = 1e-5  # seconds of a transfer's start


def parts(batch: int, context: int) -> list[tuple[str, int, int, int, bool]]:
    """(name, parameters, parameters read for a token of each sequence, bytes of cache, may be cut behind)."""
    kv = KV_HEADS * HEAD
    dense = WIDTH * (HEADS * HEAD + 2 * kv) + HEADS * HEAD * WIDTH + 2 * HEAD + WIDTH * EXPERTS + 2 * WIDTH
    expert = 3 * WIDTH * FEED
    cache = batch * context * 2 * kv * BYTES
    busy = min(EXPERTS, batch * ROUTED)
    out = [("embed", WORDS * WIDTH, batch * WIDTH, 0, True)]
    for k in range(LAYERS):
        out.append((f"layer{k}.dense", dense, dense, cache, False))
        out.append((f"layer{k}.experts", EXPERTS * expert, busy * expert, 0, True))
    return [*out, ("head", WORDS * WIDTH + WIDTH, WORDS * WIDTH + WIDTH, 0, True)]


def make(*, fleet: str = FLEET, batch: int = 1, context: int = 8192) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`. ``memory`` counts half-precision weights and the cache."""
    whole("--batch", batch, 1, 4096)
    whole("--context", context, 1, 1 << 20)
    return _instance(fleet, batch, context)


def _instance(processors: str, batch: int, context: int) -> Instance:
    crew = fleet(processors)
    if not any(p.kind == "cpu" for p, _ in crew) or all(p.kind == "cpu" for p, _ in crew):
        raise InputError(f"--fleet {processors!r} needs a cpu to offload to and a card, as in {FLEET!r}")
    devices = [
        Device(
            name=f"{p.name}-{k}" if p.kind != "cpu" else p.name,
            type=p.name,
            memory=p.memory if p.kind != "cpu" else None,
            reserved=round(0.1 * p.memory) if p.memory is not None and p.kind != "cpu" else 0,
            host=p.kind == "cpu",
        )
        for p, count in crew
        for k in range(count)
    ]
    tasks = []
    for name, held, read, cache, cut in parts(batch, context):
        moved = read * BYTES + cache
        flops = 2.0 * read * (batch if name != "embed" else 0)
        if name.endswith("experts"):
            flops = 2.0 * batch * ROUTED * 3 * WIDTH * FEED
        tasks.append(
            Task(
                name=name,
                time={p.name: round(seconds(p, flops, moved, "fp16"), 9) for p, _ in crew},
                memory=held * BYTES + cache,
                output=batch * WIDTH * BYTES,
                cut=cut,
            )
        )
    edges = [Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)]
    slowest = min(p.link for p, _ in crew if p.link is not None)
    return Instance.build(
        devices,
        [Job(name="model", tasks=tasks, edges=edges)],
        [Link(source="*", target="*", bandwidth=slowest, latency=_HOP)],
        question={"objective": "offload"},
        name="moe-offload",
        description=f"Mixture of experts of 30.5 billion parameters, half precision, one decode step of {batch} sequences with "
        f"{context} tokens each, on cards that hold a part of it.",
        source="roofline of public architecture dimensions on data sheets: "
        + "; ".join(f"{p.name}: {p.source} ({p.confidence})" for p, _ in crew),
    )
