"""Bytes of weights by precision and by quantisation scheme; what a scheme leaves in half precision.

Schemes of blocks store a few weights with their scales: ``q4_k`` keeps 256 weights in 144 bytes. Sizes are exact for the
schemes as published; a file that mixes schemes (``Q4_K_M``) is larger or smaller by some per cent. Nothing is said about
accuracy, and arithmetic is done in half precision whatever the weights are stored in (kernels for 8 bits are faster on many
prompts at once).

Sources: block sizes of GGUF, AutoGPTQ and AWQ (groups of 128, scale of 16 bits, zero of 4), bitsandbytes (NF4, blocks of 64,
scale of 32 bits; 8 bits, a scale of 32 bits a row of 1024 or more), DeepSeek's FP8 (a scale of 32 bits for 128 x 128), OCP
microscaling.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KV_BYTES", "PRECISIONS", "SCHEMES", "Scheme", "weight_bytes"]


class Scheme(NamedTuple):
    """``held`` weights of a matrix take ``size`` bytes; ``ends``: embedding and head are quantised as well."""

    size: int
    held: int
    ends: bool = False


PRECISIONS = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a weight or an activation that is not quantised."""

KV_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of an element of the KV cache."""

SCHEMES = {
    "fp8": Scheme(128 * 128 + 4, 128 * 128),
    "int8": Scheme(1024 + 4, 1024),
    "int4": Scheme(133, 256),
    "nf4": Scheme(32 + 4, 64),
    "mxfp4": Scheme(17, 32),
    "q8_0": Scheme(34, 32, ends=True),
    "q6_k": Scheme(210, 256, ends=True),
    "q5_k": Scheme(176, 256, ends=True),
    "q4_k": Scheme(144, 256, ends=True),
    "q4_0": Scheme(18, 32, ends=True),
    "iq4_xs": Scheme(136, 256, ends=True),
    "q3_k": Scheme(110, 256, ends=True),
    "q2_k": Scheme(84, 256, ends=True),
}
"""Schemes by name; ``int4`` is GPTQ or AWQ."""


def weight_bytes(matrices: int, others: int, precision: str, scheme: str | None = None, *, end: bool = False) -> int:
    """Bytes of some weights, rounded up.

    Parameters
    ----------
    matrices
        Weights in matrices, which a scheme quantises.
    others
        Biases, norms, routers: never quantised.
    precision
        Of what is not quantised; a key of :data:`PRECISIONS`.
    scheme
        A key of :data:`SCHEMES`, or None.
    end
        Whether the matrices are an embedding or a head.

    Examples
    --------
    >>> weight_bytes(256, 0, "fp16", "q4_k")
    144
    >>> weight_bytes(256, 0, "fp16", "int4", end=True)
    512
    """
    plain = PRECISIONS[precision]
    way = SCHEMES[scheme] if scheme is not None else None
    if way is None or (end and not way.ends):
        return (matrices + others) * plain
    return -(-matrices * way.size // way.held) + others * plain
