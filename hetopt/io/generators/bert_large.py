"""BERT-large (24 layers, width 1024, 16 heads), an operation a task.

Source of the architecture: Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional transformers for
language understanding", NAACL 2019.
"""

from __future__ import annotations

from hetopt.instance import Instance
from hetopt.io.generators._model import Model, common_options
from hetopt.io.kinds import Option, whole

__all__ = ["NAME", "OPTIONS", "TITLE", "make", "model"]

NAME = "bert-large"
TITLE = "BERT-large, an operation a task, on mixed GPUs and a CPU; inference or training."
FLEET = "l4:2,t4:3,epyc-9654:1"
OPTIONS: tuple[Option, ...] = (
    Option("--batch", int, 8, "Sequences in a (micro-)batch."),
    Option("--tokens", int, 384, "Tokens in a sequence, at most 512."),
    Option("--training", bool, False, "Add the backward pass."),
    *common_options(FLEET),
)

LAYERS, WIDTH, HEADS, WORDS, POSITIONS = 24, 1024, 16, 30522, 512


def model(batch: int, tokens: int) -> Model:
    """The graph; 335,141,888 parameters as published (with the pooler)."""
    net = Model()
    n, h = batch * tokens, WIDTH
    norm = 2 * h

    def product(name: str, inputs: list[int], inside: int, outside: int, more: int = 0) -> int:
        """A matrix product with bias; ``more`` weights for a normalisation behind it."""
        weights = inside * outside + outside + more
        return net.add(name, inputs, result=n * outside, flops=2 * n * inside * outside, weights=weights)

    at = net.add(
        "embed", [], result=n * h, flops=4 * n * h, weights=(WORDS + POSITIONS + 2) * h + norm, touched=3 * n * h
    )
    for layer in range(LAYERS):
        name = f"layer{layer}"
        query, key, value = (product(f"{name}.{part}", [at], h, h) for part in ("query", "key", "value"))
        scores = net.add(f"{name}.scores", [query, key], result=n * HEADS * tokens, flops=2 * n * tokens * h)
        context = net.add(f"{name}.context", [scores, value], result=n * h, flops=2 * n * tokens * h)
        mixed = product(f"{name}.project", [context, at], h, h, norm)
        wide = product(f"{name}.widen", [mixed], h, 4 * h)
        at = product(f"{name}.narrow", [wide, mixed], 4 * h, h, norm)
    net.add("pool", [at], result=batch * h, flops=2 * batch * h * h, weights=h * h + h)
    return net


def make(
    *, batch: int = 8, tokens: int = 384, training: bool = False, fleet: str = FLEET, noise: float = 0.0, seed: int = 0
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    whole("--batch", batch, 1, 65536)
    whole("--tokens", tokens, 1, POSITIONS)
    return model(batch, tokens).instance(
        fleet,
        name="bert-large-training" if training else "bert-large",
        description=f"BERT-large, half precision, {batch} sequences of {tokens} tokens, "
        f"{'training' if training else 'inference'}.",
        training=training,
        noise=noise,
        seed=seed,
    )
