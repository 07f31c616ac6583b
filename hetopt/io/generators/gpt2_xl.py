"""GPT-2 XL (48 layers, width 1600, 25 heads) reading a prompt.

Source of the architecture: Radford et al., "Language models are unsupervised multitask learners", 2019.
"""

from __future__ import annotations

from hetopt.instance import Instance
from hetopt.io.generators._model import Model, common_options
from hetopt.io.kinds import Option, whole

__all__ = ["NAME", "OPTIONS", "TITLE", "make", "model"]

NAME = "gpt2-xl"
TITLE = "GPT-2 XL reading a prompt (prefill), on mixed GPUs and a CPU."
FLEET = "rtx4090:1,l4:2,t4:2,epyc-9654:1"
OPTIONS: tuple[Option, ...] = (
    Option("--batch", int, 4, "Prompts in a batch."),
    Option("--tokens", int, 1024, "Tokens in a prompt, at most 1024."),
    *common_options(FLEET),
)

LAYERS, WIDTH, WORDS, POSITIONS = 48, 1600, 50257, 1024


def model(batch: int, tokens: int) -> Model:
    """The graph; 1,557,611,200 parameters as published, plus a copy of the word table for the head.

    The head shares its table with the embedding; pipelines keep a copy at each end, and so does this graph: a group of the
    two would force the whole model onto one device.
    """
    net = Model()
    n, h = batch * tokens, WIDTH
    norm = 2 * h

    def product(name: str, inputs: list[int], inside: int, outside: int, more: int = 0) -> int:
        weights = inside * outside + outside + more
        return net.add(name, inputs, result=n * outside, flops=2 * n * inside * outside, weights=weights)

    at = net.add("embed", [], result=n * h, flops=2 * n * h, weights=(WORDS + POSITIONS) * h, touched=2 * n * h)
    for layer in range(LAYERS):
        name = f"layer{layer}"
        qkv = product(f"{name}.qkv", [at], h, 3 * h, norm)
        context = net.add(f"{name}.attention", [qkv], result=n * h, flops=4 * n * tokens * h)
        mixed = product(f"{name}.project", [context, at], h, h)
        wide = product(f"{name}.widen", [mixed], h, 4 * h, norm)
        at = product(f"{name}.narrow", [wide, mixed], 4 * h, h)
    # only the last token's scores are wanted
    net.add("head", [at], result=batch * WORDS, flops=2 * batch * h * WORDS, weights=WORDS * h + norm)
    return net


def make(*, batch: int = 4, tokens: int = 1024, fleet: str = FLEET, noise: float = 0.0, seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    whole("--batch", batch, 1, 65536)
    whole("--tokens", tokens, 1, POSITIONS)
    return model(batch, tokens).instance(
        fleet,
        name="gpt2-xl",
        description=f"GPT-2 XL, half precision, prefill of {batch} prompts of {tokens} tokens.",
        noise=noise,
        seed=seed,
    )
