"""A decoder with the dimensions of Llama 3 70B (80 layers, width 8192, grouped heads) writing one token a sequence.

A decode step reads every weight and the whole KV cache for little arithmetic, so bandwidth and memory decide. Source of the
architecture: Grattafiori et al., "The Llama 3 herd of models", 2024.
"""

from __future__ import annotations

from hetopt.instance import Instance
from hetopt.io.generators._model import Model, common_options
from hetopt.io.kinds import Option, whole

__all__ = ["NAME", "OPTIONS", "TITLE", "make", "model"]

NAME = "llama3-70b"
TITLE = "A decoder like Llama 3 70B, one decode step, on mixed GPUs with memory that binds."
FLEET = "h100-sxm:1,a100-sxm-80:1,l40s:2,l4:2"
OPTIONS: tuple[Option, ...] = (
    Option("--batch", int, 32, "Sequences that decode together."),
    Option("--context", int, 4096, "Tokens in the KV cache of each sequence."),
    *common_options(FLEET),
)

LAYERS, WIDTH, FEED, HEADS, KV_HEADS, HEAD, WORDS = 80, 8192, 28672, 64, 8, 128, 128256


def model(batch: int, context: int) -> Model:
    """The graph; 70,553,706,496 parameters as published, 4,096 bytes of KV cache a token and layer in half precision."""
    net = Model()
    h, kv = WIDTH, KV_HEADS * HEAD

    def product(name: str, inputs: list[int], inside: int, outside: int, more: int = 0) -> int:
        """A matrix product without bias; ``more`` weights for a normalisation before it."""
        flops = 2 * batch * inside * outside
        return net.add(name, inputs, result=batch * outside, flops=flops, weights=inside * outside + more)

    at = net.add("embed", [], result=batch * h, weights=WORDS * h, touched=batch * h)
    for layer in range(LAYERS):
        name = f"layer{layer}"
        qkv = product(f"{name}.qkv", [at], h, h + 2 * kv, h)
        attention = net.add(
            f"{name}.attention",
            [qkv],
            result=batch * h,
            flops=4 * batch * context * h,
            state=batch * context * 2 * kv * 2,
        )
        mixed = product(f"{name}.project", [attention, at], h, h)
        wide = product(f"{name}.widen", [mixed], h, 2 * FEED, h)
        at = product(f"{name}.narrow", [wide, mixed], FEED, h)
    product("head", [at], h, WORDS, h)
    return net


def make(*, batch: int = 32, context: int = 4096, fleet: str = FLEET, noise: float = 0.0, seed: int = 0) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`. ``memory`` of an attention task includes its KV cache."""
    whole("--batch", batch, 1, 65536)
    whole("--context", context, 1, 1 << 20)
    return model(batch, context).instance(
        fleet,
        name="llama70b-mixed" if fleet == FLEET else "llama70b",
        description=f"Decoder of 70 billion parameters, half precision, one decode step of {batch} sequences with {context} "
        "tokens of KV cache each; memory counts weights and cache.",
        noise=noise,
        seed=seed,
    )
