"""Arithmetic, bytes and caches of modules, worked by hand on small shapes."""

from __future__ import annotations

import pytest

from hetopt.costs.precision import SCHEMES, weight_bytes
from hetopt.costs.roofline import Walls
from hetopt.costs.transformer import Attention, Lookup, Module, Product, Work

GPT2 = Module(
    "layer", 768,
    (Product(768, 2304, 2304), Product(768, 768, 768, residual=True), Product(768, 3072, 3072),
     Product(3072, 768, 768, residual=True)),
    Attention(12, 64, 64, 128, 1536), 4 * 768,
)  # fmt: skip


def test_a_layer_of_gpt2_has_its_published_weights():
    assert GPT2.parameters == GPT2.active == 12 * 768**2 + 13 * 768


def test_arithmetic_of_the_phases():
    """Products take 2 x 12 x 768^2 operations a token; attention 4 x 768 a token and token seen."""
    products = 24 * 768**2
    assert Work("decode", 3, 100).flops(GPT2) == 3 * (products + 4 * 768 * 100)
    assert Work("prefill", 2, 100).flops(GPT2) == 2 * (100 * products + 4 * 768 * 5050)
    assert Work("train", 2, 100).flops(GPT2) == 3 * Work("prefill", 2, 100).flops(GPT2)
    assert Work("train", 2, 100, recompute=True).flops(GPT2) == 4 * Work("prefill", 2, 100).flops(GPT2)


def test_windows_end_what_is_seen_and_kept():
    attention = Attention(1, 1, 1, 2, 8, window=10)
    assert [attention.pairs(n) for n in (1, 10, 12)] == [1, 55, 75]
    assert Attention(1, 1, 1, 2, 0, causal=False).pairs(12) == 144
    layer = Module("layer", 4, attention=attention)
    short, long = Work("decode", 2, 10, 3), Work("decode", 2, 11, 3)
    assert (short.cache(layer), short.memory(layer)) == (16, 0)
    assert (long.cache(layer), long.memory(layer)) == (0, 2 * 3 * 10 * 8 * 2)
    assert Work("decode", 2, 11, 3, kv="fp8").memory(layer) == 2 * 3 * 10 * 8


def test_caches_are_counted_a_token():
    assert Work("decode").cache(GPT2) == 2 * 768 * 2
    assert Work("train").cache(GPT2) == 0


def test_a_batch_reads_the_experts_it_may_choose():
    """Of 8 experts with 2 a token, one token reads 2, two tokens 8 (1 - (3/4)^2) = 3.5."""
    layer = Module("layer", 10, (Product(10, 20, copies=8, used=2),))
    assert (layer.parameters, layer.active) == (1600, 400)
    [(flops, moved)] = Work("decode", 1).operations(layer)
    assert (flops, moved) == (2 * 10 * 20 * 2, 400 * 2 + 30 * 2 * 2)
    [(_, moved)] = Work("decode", 2).operations(layer)
    assert moved == pytest.approx(3.5 * 200 * 2 + 2 * 30 * 2 * 2)


def test_training_keeps_34_bytes_a_token_and_width():
    """Korthikanti et al.: 34 s b h bytes a layer when attention scores are recomputed; 16 bytes a parameter."""
    kept = Work("train", 3, 128, in_flight=2).memory(GPT2) - 16 * GPT2.held
    assert kept == 2 * 34 * 3 * 128 * 768
    assert Work("train", 3, 128, recompute=True).memory(GPT2) - 16 * GPT2.held == 2 * 3 * 128 * 768


def test_what_is_handed_on():
    assert Work("decode", 4, 100).output(GPT2) == 4 * 768 * 2
    assert Work("prefill", 4, 100).output(GPT2) == 400 * 768 * 2
    assert Work("train", 4, 100).output(GPT2) == 2 * 400 * 768 * 2  # a gradient comes back
    assert Work("decode", 4, 100, precision="fp32").output(GPT2) == 4 * 768 * 4


def test_a_head_works_on_the_last_token_and_keeps_its_results():
    head = Module("head", 1000, (Product(10, 1000),), end=True, last=True, shares=True)
    assert head.parameters == 0
    assert Work("prefill", 2, 50).flops(head) == 2 * 2 * 10 * 1000
    assert Work("prefill", 2, 50).memory(head) == 20_000 + 2 * 1000 * 4
    assert Work("train", 2, 50).flops(head) == 3 * 100 * 2 * 10 * 1000


def test_a_lookup_moves_what_it_finds():
    table = Module("embed", 10, tables=(Lookup(1000, 10),), end=True)
    assert table.parameters == 10_000
    assert list(Work("decode", 3).operations(table)) == [(0.0, 2 * 3 * 10 * 2)]


def test_pictures_are_for_prompts():
    tower = Module(
        "tower", 10, (Product(10, 10),), Attention(1, 5, 5, 10, 0, causal=False), blocks=3, stem=7, tokens=4, once=True
    )
    assert tower.parameters == 307
    assert list(Work("decode").operations(tower)) == []
    assert Work("prefill", 1, 99).flops(tower) == 3 * (4 * 200 + 2 * 10 * 16)


def test_seconds_are_the_walls_operation_by_operation():
    """Four products and attention; arithmetic wall 1e12, memory wall 1e9, 1 ms each: each is bound by memory."""
    moved = sum(m for _, m in Work("decode", 1, 10).operations(GPT2))
    assert Work("decode", 1, 10).seconds(GPT2, Walls(1e12, 1e9, 1e-3)) == pytest.approx(5e-3 + moved / 1e9)


def test_schemes_keep_blocks_with_their_scales():
    assert weight_bytes(4096, 10, "bf16") == 8212
    assert weight_bytes(4096, 10, "fp32") == 4 * 4106
    assert weight_bytes(256, 1, "bf16", "q6_k") == 212
    assert weight_bytes(257, 0, "bf16", "q6_k") == 211  # rounded up
    assert weight_bytes(256, 0, "bf16", "fp8", end=True) == 512
    assert weight_bytes(256, 0, "bf16", "q8_0", end=True) == 272
    bits = {name: 8 * scheme.size / scheme.held for name, scheme in SCHEMES.items()}
    assert bits["q4_k"] == bits["q4_0"] == 4.5
    assert bits["q8_0"] == 8.5
    assert bits["int4"] == pytest.approx(4.15625)
    assert bits["iq4_xs"] == bits["mxfp4"] == 4.25


def test_quantised_weights_are_read_small():
    dense, small = Work("decode"), Work("decode", scheme="q4_k")
    layer = Module("layer", 1024, (Product(1024, 1024), Product(1024, 8, plain=True)))
    assert small.weights(layer) == 1024**2 * 144 // 256 + 1024 * 8 * 2
    (_, one), (_, router) = small.operations(layer)
    assert one == 1024**2 * 144 / 256 + 2048 * 2
    assert router == list(dense.operations(layer))[1][1]
