"""A decoder-only transformer in training, layer by layer, with tensor degrees and recomputation, for pipelines of equal devices.

Bytes are those of mixed-precision training: 16 a parameter at rest (half-precision weight and gradient, single-precision copy and
two moments), and for each micro-batch in flight s b h (10 + 24 / t + 5 a s / (h t)) a layer, or 2 s b h when the layer's
activations are computed again in the backward pass. Times are arithmetic over a device's rate plus the exchange of two results
forward and two backward within the t devices of a tensor degree, over their fast link; gradients of w bytes are resynchronised.

Source of the activation bytes: V. Korthikanti et al., Reducing activation recomputation in large transformer models, MLSys 2023.
"""

from __future__ import annotations

from itertools import pairwise

from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Link, Mode, Task

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "decoder-training"
TITLE = "A decoder-only transformer in training with tensor degrees and recomputation, on equal devices."
OPTIONS: tuple[Option, ...] = (
    Option("--layers", int, 24, "Number of layers."),
    Option("--width", int, 4096, "Width h; a head has 128."),
    Option("--tokens", int, 2048, "Tokens in a sequence; a micro-batch is one sequence."),
    Option("--words", int, 50304, "Words in the vocabulary."),
    Option("--devices", int, 16, "Number of devices."),
    Option("--memory", float, 40e9, "Bytes of a device."),
    Option("--rate", float, 1.4e14, "Multiplications and additions a second that a device reaches."),
    Option("--fast-link", float, 2.4e11, "Bytes a second among the devices of a tensor degree."),
    Option("--link", float, 2.5e10, "Bytes a second between stages and between copies."),
    Option("--batch", int, 64, "Micro-batches in a batch."),
)
DEGREES = (1, 2, 4, 8)
HEAD = 128
AT_REST, RESULT = 16, 2  # bytes a parameter, bytes a number


def make(
    *,
    layers: int = 24,
    width: int = 4096,
    tokens: int = 2048,
    words: int = 50304,
    devices: int = 16,
    memory: float = 40e9,
    rate: float = 1.4e14,
    fast_link: float = 2.4e11,
    link: float = 2.5e10,
    batch: int = 64,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range.
    """
    for flag, value, most in (("--layers", layers, 10_000), ("--width", width, 2**20), ("--tokens", tokens, 2**24),
                              ("--words", words, 2**24), ("--devices", devices, 10_000), ("--batch", batch, 2**20)):  # fmt: skip
        whole(flag, value, 1, most)
    h, s = width, tokens
    heads = max(1, h // HEAD)
    kinds = [
        ("embed", words * h, 2 * s * h, 2 * s * h, 2 * s * h, 2 * s * h),
        *(
            (
                f"layer{k}",
                12 * h * h,
                24 * s * h * h + 4 * s * s * h,
                10 * s * h,
                24 * s * h + 5 * heads * s * s,
                2 * s * h,
            )
            for k in range(layers)
        ),
        ("head", words * h, 2 * s * h * words, 0, 4 * s * words + 2 * s * h, 2 * s * h),
    ]
    names = [kind[0] for kind in kinds]
    tasks, table = [], {}
    for at, (name, parameters, flops, whole_bytes, shared_bytes, again_bytes) in enumerate(kinds):
        modes, rows = [], {}
        for t in DEGREES:
            exchange = 4 * 2 * (t - 1) / t * s * h * RESULT / fast_link
            for again in (False, True):
                key = f"{t} {'recompute' if again else 'keep'}"
                seconds = (4 if again else 3) * flops / t / rate + exchange * (1.5 if again else 1)
                modes.append(
                    Mode(name=key, devices=t, time={"gpu": round(seconds, 9)}, memory=parameters // t * AT_REST)
                )
                rows[key] = {
                    "activation": again_bytes if again else whole_bytes + shared_bytes // t,
                    "parameters": parameters // t * RESULT,
                    "receive": {names[at - 1]: 0} if at else {},
                    "send": {names[at + 1]: 0} if at + 1 < len(names) else {},
                }
        tasks.append(Task(name=name, modes=modes))
        table[name] = rows
    edges = [Edge(source=a, target=b, data=s * h * RESULT) for a, b in pairwise(names)]
    return Instance.build(
        [Device(name=f"gpu{k}", type="gpu", memory=memory) for k in range(devices)],
        [Job(name="decoder", tasks=tasks, edges=edges)],
        [Link(source="*", target="*", bandwidth=link)],
        tables={"hybrid": {"batch": batch, "modes": table}},
        question={"objective": "hybrid"},
        name=f"decoder-training-{layers}x{width}",
        description=f"A decoder of {layers} layers of width {h}, {s} tokens a micro-batch, {batch} micro-batches a batch.",
        source="generated; bytes of activations after Korthikanti et al., MLSys 2023",
    )
