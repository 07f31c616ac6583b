"""Stages of a plan of a sequence of modules as people ask about them: what each holds, how long it takes, and what holds it back.

The numbers follow from the instance and the placement; whether the plan is valid is for :mod:`hetopt.verify` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hetopt.costs.transformer import Work
from hetopt.instance import Instance
from hetopt.result import Result

__all__ = ["Stage", "binding", "rates", "stages_of"]

_SHORT = {
    "embed_tokens": "embed",
    "embeddings": "embed",
    "lm_head": "head",
    "multi_modal_projector": "projector",
    "vision_tower": "vision",
}


@dataclass(frozen=True)
class Stage:
    """One stage of a plan.

    Attributes
    ----------
    device
        Its name.
    modules, layers
        What it holds, as ``embed_tokens, 0-5``, and how many layers are among it.
    seconds, send
        Seconds busy, and to hand on to the next stage (0 for the last).
    weights, cache, usable
        Bytes of weights (with what has a fixed size), of KV cache, and that there are.
    tokens
        Tokens of cache for which there is room; None where the stage keeps none.
    full
        Whether no further layer would fit.
    """

    device: str
    modules: str
    layers: int
    seconds: float
    send: float
    weights: float
    cache: float
    usable: float
    tokens: int | None
    full: bool


def stages_of(instance: Instance, result: Result) -> tuple[Stage, ...]:
    """Stages of a plan of a sequence of modules, in order.

    Parameters
    ----------
    instance
        Its tasks are in the order of the sequence.
    result
        With a plan.
    """
    assert result.solution is not None and result.solution.placement is not None
    place = result.solution.placement
    starts = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), len(place)]
    tokens = int(result.question.get("tokens", 0) or result.evaluation.get("tokens", 0) or 0)
    cache_each = instance.columns.kv_bytes_per_token
    layers = np.array([_is_layer(label) for label in instance.labels])
    found = []
    for start, stop in pairwise(starts):
        device = int(place[start])
        each = float(cache_each[start:stop].sum())
        weights, usable = float(instance.memory[start:stop].sum()), float(instance.capacity[device])
        cache, send = each * tokens, 0.0
        if stop < len(place):
            link = instance.need_link(instance.device_names[device], instance.device_names[int(place[stop])])
            send = link.latency + (instance.output[stop - 1] / link.bandwidth if link.bandwidth is not None else 0.0)
        near = [k for k in (start - 1, stop) if 0 <= k < len(place) and layers[k]]
        needs = [float(instance.memory[k] + cache_each[k] * tokens) for k in near]
        found.append(
            Stage(
                device=instance.device_names[device],
                modules=_span(instance.labels[start:stop]),
                layers=int(layers[start:stop].sum()),
                seconds=float(instance.time[start:stop, device].sum()),
                send=float(send),
                weights=weights,
                cache=cache,
                usable=usable,
                tokens=int((usable - weights) // each) if each else None,
                full=bool(needs) and min(needs) > usable - weights - cache,
            )
        )
    return tuple(found)


def _is_layer(label: str) -> bool:
    return label.rpartition(".")[2].isdigit() and ".mtp." not in label


def _span(labels: Sequence[str]) -> str:
    """Short names of the ends, and the numbers of the layers between them."""
    numbers = [label.rpartition(".")[2] for label in labels if _is_layer(label)]
    shown: list[str] = []
    for label in labels:
        if not _is_layer(label):
            shown.append("mtp" if ".mtp." in label else _SHORT.get(label.rpartition(".")[2], label.rpartition(".")[2]))
        elif label.endswith("." + numbers[0]) and numbers:
            shown.append(numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
            numbers = [numbers[-1] + "."]  # said once
    return ", ".join(shown)


def rates(work: Work, stages: Sequence[Stage]) -> Iterator[tuple[str, float]]:
    """What the stages' times amount to."""
    busiest = max(max(stage.seconds, stage.send) for stage in stages)
    through = sum(stage.seconds + stage.send for stage in stages)
    if not busiest:
        return
    rows = work.batch if work.phase == "decode" else work.batch * work.context
    yield "tokens a second, pipeline full", rows / busiest
    if work.phase == "decode":
        yield "seconds a token of one sequence, alone", through
    else:
        yield "seconds a micro-batch, alone", through


def binding(want: str, instance: Instance, stages: Sequence[Stage]) -> Iterator[str]:
    """What holds the plan back."""
    busiest = max(stages, key=lambda stage: stage.seconds)
    slowest = max(stages, key=lambda stage: stage.send)
    if want == "throughput" and slowest.send > busiest.seconds:
        yield f"the transfer from {slowest.device} is busiest: {slowest.send * 1e3:.4g} ms a micro-batch"
    elif want in ("throughput", "latency"):
        yield f"{busiest.device} is busiest: {busiest.seconds * 1e3:.4g} ms for {busiest.layers} layers"
    rooms = [stage for stage in stages if stage.tokens is not None]
    if want == "tokens" and rooms:
        least = min(rooms, key=lambda stage: stage.tokens or 0)
        yield f"{least.device} has the least room: {least.tokens} tokens beside {least.weights / 1e9:.4g} GB of weights"
    full = [stage.device for stage in stages if stage.full]
    if full:
        yield f"memory of {', '.join(full)}: no further layer fits"
    idle = [name for name in instance.device_names if name not in {stage.device for stage in stages}]
    if idle:
        yield f"left empty: {', '.join(idle)}"
