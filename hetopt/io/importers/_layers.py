"""A decoder as the headers of its weight files show it: tensors grouped into layers, and the chain of layers that comes of it.

Headers name tensors, they do not state a graph. What is assumed is the usual decoder: an embedding, layers one after the
other, a head; generating one token for each of ``batch`` sequences of ``context`` tokens. Each layer reads its weights and its
KV cache (half precision) once and computes two operations a weight and sequence, and ``4 hidden context`` for attention; of
experts it computes with those that a token uses, and reads ``min(1, batch used / experts)`` of them. A head that shares the
embedding's matrix holds a copy, for it may be on another device. Arithmetic is in half precision, whatever weights are stored in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._devices import CATALOGUE, DEVICES, crew
from hetopt.io.kinds import Option, whole
from hetopt.records import Edge, Job, Task

__all__ = ["COMMON", "MAX_BYTES", "Decoder", "Layers", "Serving", "Weight", "chain_instance", "layers_of"]

MAX_LAYERS = 1 << 13
MAX_BYTES = 2**53
HALF = 2  # bytes of an activation and of an element of the KV cache

COMMON: tuple[Option, ...] = (
    DEVICES,
    CATALOGUE,
    Option("--context", int, 4096, "Tokens of each sequence, which the KV cache holds."),
    Option("--batch", int, 1, "Sequences at a time."),
    Option("--stack", str, "", "Which stack of layers, as model.layers, where there are several."),
)

_LAYER = re.compile(r"(?P<stack>(?:[^.]+\.)*?(?:blk|blocks?|h|layers?))\.(?P<number>[0-9]{1,6})\.")
_FRONT = re.compile(r"emb|wte|wpe|token_types", re.IGNORECASE)
_EXPERT = re.compile(r"(?:^|[._])(?:exps|experts)(?:[._]|$)")


class Weight(NamedTuple):
    """A tensor: name, shape (slowest dimension first) and bytes as stored."""

    name: str
    shape: tuple[int, ...]
    bytes: int


class Layers(NamedTuple):
    """Tensors before, in and after the layers of one stack; how many belong to other stacks."""

    stack: str
    front: list[Weight]
    layers: list[list[Weight]]
    back: list[Weight]
    left: int


class Serving(NamedTuple):
    """``--devices``, ``--catalogue``, ``--context``, ``--batch``."""

    devices: str
    catalogue: str | None
    context: int
    batch: int


@dataclass(frozen=True)
class Decoder:
    """What the headers say of a decoder.

    Attributes
    ----------
    layers
        The tensors.
    hidden
        Numbers handed from layer to layer for each sequence.
    kv
        Bytes of KV cache a token of each layer.
    experts, used
        Experts of a layer and how many of them a token uses; 1 and 1 where there are none.
    tied
        Whether the head shares the embedding's matrix.
    """

    layers: Layers
    hidden: int
    kv: Sequence[int]
    experts: int
    used: int
    tied: bool


def layers_of(weights: Sequence[Weight], stack: str) -> Layers:
    """Group tensors by the layer that their names give: ``blk.7.``, ``model.layers.7.``, ``h.7.``, ``encoder.layer.7.``.

    Raises
    ------
    InputError
        No tensor belongs to a layer, there are several stacks and none is chosen, the one chosen is not there, layers are not
        numbered from 0 on, or there are too many.
    """
    found: dict[str, dict[int, list[Weight]]] = {}
    ends: list[Weight] = []
    for weight in weights:
        match = _LAYER.match(weight.name)
        if match is None:
            ends.append(weight)
        else:
            found.setdefault(match["stack"], {}).setdefault(int(match["number"]), []).append(weight)
    names = sorted(found)
    if not names:
        raise InputError(
            "no tensor belongs to a layer; expected names such as blk.0.attn_q.weight or model.layers.0.input_layernorm.weight"
        )
    if stack and stack not in found:
        raise InputError(f"--stack is {stack!r}; the stacks of layers are: {', '.join(names)[:300]}")
    if not stack and len(names) > 1:
        raise InputError(f"there are {len(names)} stacks of layers ({', '.join(names)[:300]}); say which with --stack")
    stack = stack or names[0]
    layers = found[stack]
    count = len(layers)
    if count > MAX_LAYERS:
        raise InputError(f"there are {count} layers, more than {MAX_LAYERS}")
    missing = next((k for k in range(count) if k not in layers), None)
    if missing is not None:
        raise InputError(
            f"layer {missing} of {stack} has no tensors, although layer {max(layers)} has; is a file missing?"
        )
    front = [weight for weight in ends if _FRONT.search(weight.name)]
    back = [weight for weight in ends if not _FRONT.search(weight.name)]
    left = sum(len(group) for name in names if name != stack for group in found[name].values())
    return Layers(stack, front, [layers[k] for k in range(count)], back, left)


def chain_instance(decoder: Decoder, serving: Serving, *, name: str, source: str) -> Instance:
    """Instance of one job, a chain, asking for the least busy stages with room for the KV cache.

    Raises
    ------
    InputError
        An option is out of range, or a layer has more than 2^53 bytes.
    """
    context, batch = whole("--context", serving.context, 0, 10**9), whole("--batch", serving.batch, 1, 10**6)
    members = crew(serving.devices, "fp16", serving.catalogue, one_node=False)
    handed = batch * decoder.hidden * HALF
    tasks: list[Task] = []

    def add(label: str, memory: int, flops: float, moved: float, kv: int = 0) -> None:
        if max(memory, handed, kv) > MAX_BYTES:
            raise InputError(f"{label} needs more than 2^53 bytes, expected less")
        times = members.times(flops, moved + 2.0 * handed)
        tasks.append(Task(name=label, time=times, memory=memory, output=handed, kv_bytes_per_token=kv))

    layers = decoder.layers
    if layers.front:
        add("embedding", _bytes(layers.front), 0.0, 0.0)
    for k, weights in enumerate(layers.layers):
        routed = [weight for weight in weights if decoder.experts > 1 and _EXPERT.search(weight.name)]
        names = {weight.name for weight in routed}
        dense = [weight for weight in weights if weight.name not in names]
        share = decoder.used / decoder.experts
        flops = 2.0 * batch * (_elements(dense) + _elements(routed) * share + 2 * decoder.hidden * context)
        moved = _bytes(dense) + _bytes(routed) * min(1.0, batch * share) + batch * context * decoder.kv[k]
        add(f"layer{k}", _bytes(weights), flops, moved, decoder.kv[k])
    head = [*layers.back, *(layers.front if decoder.tied else ())]
    if head:
        add("head", _bytes(head), 2.0 * batch * _elements(head), float(_bytes(head)))
    weights = [*layers.front, *(weight for group in layers.layers for weight in group), *layers.back]
    return Instance.build(
        members.devices(host_limit=True),
        [
            Job(
                name=name or "model",
                tasks=tasks,
                edges=[Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)],
            )
        ],
        members.links(),
        question={"objective": "chain-bottleneck", "order": "free", "tokens": batch * context},
        name=name,
        description=f"{len(layers.layers)} layers of {layers.stack}, {_elements(weights)} elements in {_bytes(weights)} bytes"
        + (", head shares the embedding" if decoder.tied else "")
        + (f", {layers.left} tensors of other stacks left out" if layers.left else "")
        + f"; a token for each of {batch} sequences of {context} tokens",
        source=f"imported from {source}; roofline: {members.source()}",
    )


def experts_in(weights: Sequence[Weight]) -> int:
    """Experts of a layer as its names number them; 1 for none."""
    numbers = {int(m[1]) for weight in weights if (m := re.search(r"\.experts\.([0-9]{1,6})\.", weight.name))}
    return max(1, len(numbers))


def _bytes(weights: Sequence[Weight]) -> int:
    return sum(weight.bytes for weight in weights)


def _elements(weights: Sequence[Weight]) -> int:
    return sum(math.prod(weight.shape) for weight in weights)
