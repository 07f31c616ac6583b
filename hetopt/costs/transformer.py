"""A transformer as modules in sequence: parameters, bytes, KV cache, arithmetic and traffic of each, for a phase of its use.

A module is what other tools place (an embedding, a layer, a norm, a head). Its work is a few operations, each under the
roofline by itself; norms and activation functions are fused into them. With n rows (tokens that go through at once), c cached
tokens:

    product        2 n x inside x outside x used experts       flops
    attention      2 x heads x (key + value) x pairs           flops; pairs of a query and a cached token, within the window
    weights read   all; of E experts with k used a row, the share 1 - (1 - k / E)^n (rows choose at random, an assumption)
    cache read     c x cached elements, in the decode phase

Phases: ``decode`` (a token a sequence, after ``context`` others), ``prefill`` (all ``context`` tokens of each sequence, the
head for the last), ``train`` (forward and backward, three times the forward arithmetic, four with full recomputation; the
optimiser's step, once in many micro-batches, is left out). Training keeps 16 bytes a parameter (half-precision weight and
gradient, single-precision copy, two moments) and, for each micro-batch in flight, what the backward pass reads again: inputs
of products and norms, the queries, keys, values and hidden units, two masks of a byte (34 bytes a token and width in GPT-2's
shape); attention scores are recomputed.

Sources: roofline as in :mod:`hetopt.costs.roofline`; V. Korthikanti et al., Reducing activation recomputation in large
transformer models, MLSys 2023, for activations; S. Rajbhandari et al., ZeRO, SC 2020, for 16 bytes a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hetopt.costs.precision import KV_BYTES, PRECISIONS, weight_bytes
from hetopt.costs.roofline import Walls

__all__ = ["PHASES", "Attention", "Lookup", "Model", "Module", "Product", "Work"]

PHASES = ("decode", "prefill", "train")
TRAINING_BYTES = 16  # a parameter


class Product(NamedTuple):
    """A matrix product; of ``copies`` (experts), ``used`` work on each row.

    ``vectors`` are biases, ``plain`` says that no scheme quantises it (a router), ``residual`` that its result is added to the
    stream between layers, so that the backward pass does not read it.
    """

    inside: int
    outside: int
    vectors: int = 0
    copies: int = 1
    used: int = 1
    plain: bool = False
    residual: bool = False

    @property
    def matrix(self) -> int:
        """Weights in matrices."""
        return self.inside * self.outside * self.copies


class Attention(NamedTuple):
    """Scores and values over earlier tokens (all tokens when not ``causal``), at most ``window`` of them.

    ``key`` and ``value`` are multiply-adds a head and cached token in the decode phase, ``prompt`` both together when many
    tokens go through at once; ``cached`` are the elements that the KV cache keeps of a token.
    """

    heads: int
    key: int
    value: int
    prompt: int
    cached: int
    window: int | None = None
    causal: bool = True

    def reach(self, context: int) -> int:
        """Cached tokens that one query sees."""
        return context if self.window is None else min(context, self.window)

    def pairs(self, tokens: int) -> int:
        """Pairs of query and token in a prompt of ``tokens``."""
        if not self.causal:
            return tokens * tokens
        near = self.reach(tokens)
        return near * (near + 1) // 2 + (tokens - near) * near


class Lookup(NamedTuple):
    """A table of which each row reads one entry."""

    rows: int
    width: int


@dataclass(frozen=True)
class Module:
    """One task.

    Attributes
    ----------
    name
        Qualified name, as the published checkpoint has it.
    width
        Elements of its result a token.
    products, attention, vectors, tables
        Its operations; ``vectors`` are norms and other weights outside matrices.
    blocks
        How often products, attention and norms are repeated inside (a vision tower is one module).
    stem
        Weights that are not repeated.
    end
        Embedding or head: a scheme may leave it alone.
    last
        Whether only the last token of a sequence goes through, but in training.
    tokens
        Tokens of a sequence where their number is fixed (patches of an image).
    once
        Whether it works on prompts only.
    shares
        Whether its matrix is the embedding's (tied): no parameters of its own, but bytes where it is placed.
    glued
        Whether no stage ends behind it.
    """

    name: str
    width: int
    products: tuple[Product, ...] = ()
    attention: Attention | None = None
    vectors: int = 0
    tables: tuple[Lookup, ...] = ()
    blocks: int = 1
    stem: int = 0
    end: bool = False
    last: bool = False
    tokens: int | None = None
    once: bool = False
    shares: bool = False
    glued: bool = False

    @property
    def matrices(self) -> int:
        """Weights in matrices that a scheme quantises."""
        own = sum(p.matrix for p in self.products if not p.plain) * self.blocks
        return own + sum(t.rows * t.width for t in self.tables)

    @property
    def held(self) -> int:
        """All weights it holds."""
        other = sum(p.vectors * p.copies + p.plain * p.matrix for p in self.products) + self.vectors
        return self.matrices + other * self.blocks + self.stem

    @property
    def parameters(self) -> int:
        """Weights of its own."""
        return self.held - (self.matrices if self.shares else 0)

    @property
    def active(self) -> int:
        """Weights that work on one token."""
        idle = sum((p.inside * p.outside + p.vectors) * (p.copies - p.used) for p in self.products)
        return self.parameters - idle * self.blocks


@dataclass(frozen=True)
class Model:
    """Modules in sequence.

    Attributes
    ----------
    family
        What it is called.
    modules
        In the order in which they run.
    longest
        Largest number of tokens of a sequence that it is made for; None when there is no limit.
    tokens
        Tokens of every sequence, where that is fixed.
    """

    family: str
    modules: tuple[Module, ...]
    longest: int | None = None
    tokens: int | None = None

    @property
    def parameters(self) -> int:
        """All weights, tied ones once."""
        return sum(module.parameters for module in self.modules)

    @property
    def active(self) -> int:
        """Weights that work on one token (all but idle experts)."""
        return sum(module.active for module in self.modules)

    @property
    def caches(self) -> bool:
        """Whether it keeps a KV cache."""
        return any(m.attention is not None and m.attention.cached for m in self.modules)


@dataclass(frozen=True)
class Work:
    """How a model is used.

    Attributes
    ----------
    phase
        One of :data:`PHASES`.
    batch, context
        Sequences that go through a stage at once, and tokens of each.
    in_flight
        Micro-batches whose caches (activations, in training) are held at once.
    precision, scheme, kv
        Of what is not quantised, how weights are quantised (None for not at all), and of the KV cache.
    recompute
        Whether the backward pass runs each layer's forward pass again.
    """

    phase: str = "decode"
    batch: int = 1
    context: int = 4096
    in_flight: int = 1
    precision: str = "bf16"
    scheme: str | None = None
    kv: str = "bf16"
    recompute: bool = False

    @property
    def training(self) -> bool:
        """Whether weights are learnt."""
        return self.phase == "train"

    @property
    def cached_tokens(self) -> int:
        """Tokens of KV cache that are held at once."""
        return self.batch * self.context * self.in_flight

    def rows(self, module: Module) -> int:
        """Tokens that go through a module at once."""
        if module.last and not self.training:
            return self.batch
        if self.phase == "decode" and module.tokens is None:
            return self.batch
        return self.batch * (module.tokens or self.context)

    # Bytes ----------------------------------------------------------------------------------------------------------

    def weights(self, module: Module) -> int:
        """Bytes of a module's weights; in training with gradients and the optimiser's state."""
        if self.training:
            return TRAINING_BYTES * module.held
        return weight_bytes(module.matrices, module.held - module.matrices, self.precision, self.scheme, end=module.end)

    def matrix_bytes(self, module: Module) -> int:
        """Bytes of a module's matrices alone, in inference."""
        return weight_bytes(module.matrices, 0, self.precision, self.scheme, end=module.end)

    def memory(self, module: Module) -> int:
        """Bytes that stay on the module's device: weights, caches with a window, activations of training, results of a head."""
        size = self.weights(module)
        if self.training:
            size += self._kept(module) * self.in_flight
        if module.last:
            size += self.rows(module) * module.width * (4 + 2 * self.training)  # logits in single precision
        attention = module.attention
        if attention is not None and self.bounded(attention):
            tokens = self.batch * self.in_flight * attention.reach(self.context)
            size += tokens * attention.cached * KV_BYTES[self.kv] * module.blocks
        return size

    def cache(self, module: Module) -> int:
        """Bytes of KV cache a token; 0 where the cache has a window that the context exceeds (it counts as memory then)."""
        attention = module.attention
        if attention is None or self.training or self.bounded(attention):
            return 0
        return attention.cached * KV_BYTES[self.kv] * module.blocks

    def bounded(self, attention: Attention) -> bool:
        """Whether a window ends the growth of a cache."""
        return not self.training and attention.window is not None and self.context > attention.window

    def workspace(self, module: Module) -> int:
        """Bytes of intermediate results while the module works; large prompts go through in pieces of 8,192 tokens."""
        rows = min(self.rows(module), 8192)
        widest = max((p.inside + p.outside * p.used for p in module.products if not module.last), default=0)
        return rows * widest * PRECISIONS[self.precision]

    def output(self, module: Module) -> int:
        """Bytes handed on; in training the gradient that comes back counts as well."""
        return self.rows(module) * module.width * PRECISIONS[self.precision] * (1 + self.training)

    def _kept(self, module: Module) -> int:
        """Bytes that the backward pass reads again, a micro-batch."""
        rows, size = self.rows(module), PRECISIONS[self.precision]
        if self.recompute or not module.products or module.last:
            return rows * module.width * size
        read = sum((p.inside + (0 if p.residual else p.outside)) * p.used for p in module.products)
        return rows * (size * (read + 2 * module.width) + 2 * module.width) * module.blocks

    # Time -----------------------------------------------------------------------------------------------------------

    def operations(self, module: Module) -> Iterator[tuple[float, float]]:
        """Arithmetic operations and bytes moved of each operation of one block, once through."""
        if module.once and self.phase == "decode":
            return
        rows, size = self.rows(module), PRECISIONS[self.precision]
        passes = (4 if self.recompute else 3) if self.training else 1
        for table in module.tables:
            yield 0.0, passes * 2.0 * rows * table.width * size
        for p in module.products:
            scheme = None if p.plain or self.training else self.scheme
            stored = weight_bytes(p.matrix, p.vectors * p.copies, self.precision, scheme, end=module.end)
            touched = 1 - (1 - p.used / p.copies) ** rows
            moved = stored * touched + rows * (p.inside + p.outside) * p.used * size
            yield passes * 2.0 * rows * p.inside * p.outside * p.used, passes * moved
        if module.attention is not None:
            flops, moved = self._attention(module, module.attention)
            yield passes * flops, passes * moved

    def _attention(self, module: Module, attention: Attention) -> tuple[float, float]:
        if self.phase == "decode":
            seen = float(self.batch * attention.reach(self.context))
            flops = 2 * attention.heads * (attention.key + attention.value) * seen
            return flops, seen * attention.cached * KV_BYTES[self.kv]
        tokens = module.tokens or self.context
        flops = 2.0 * attention.heads * attention.prompt * self.batch * attention.pairs(tokens)
        moved = self.batch * tokens * attention.heads * attention.prompt * 2 * PRECISIONS[self.precision]
        return flops, float(moved)

    def seconds(self, module: Module, walls: Walls) -> float:
        """Seconds of a module on a device."""
        slow = 2.0 if self.precision == "fp32" else 1.0  # single precision on matrix units: half the rate at best
        return module.blocks * sum(walls.seconds(slow * flops, moved) for flops, moved in self.operations(module))

    def flops(self, module: Module) -> float:
        """Arithmetic operations of a module."""
        return module.blocks * sum(flops for flops, _ in self.operations(module))
