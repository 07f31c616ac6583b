"""Generators of decoders in training and of rented pools: facts by hand, sizes refused, questions that can be asked."""

from __future__ import annotations

import pytest

import hetopt
from hetopt.errors import InputError
from hetopt.io import generators
from hetopt.io.instances import decode, encode
from hetopt.verify.hybrid import hybrid_facts


def make(kind: str, **options: object) -> hetopt.Instance:
    return generators.get(kind).make(**options)  # type: ignore[no-any-return]


def test_a_decoder_layer_by_hand() -> None:
    """h = 128, s = 8, one head: 12 h h parameters, 24 s h h + 4 s s h of arithmetic, three times that in a step."""
    instance = make("decoder-training", layers=1, width=128, tokens=8, words=100, rate=1e6, fast_link=1e6)
    facts = hybrid_facts(decode(encode(instance)))
    modes = {mode.name: mode for mode in facts.modes[1]}
    flops = 24 * 8 * 128**2 + 4 * 8 * 8 * 128
    assert modes["1 keep"].seconds == pytest.approx(3 * flops / 1e6)
    assert modes["1 recompute"].seconds == pytest.approx(4 * flops / 1e6)
    assert modes["2 keep"].seconds == pytest.approx(3 * flops / 2 / 1e6 + 4 * 2 * 0.5 * 8 * 128 * 2 / 1e6)
    assert modes["2 keep"].memory == 12 * 128**2 // 2 * 16
    assert modes["1 keep"].activation == 34 * 8 * 128 + 5 * 8 * 8
    assert modes["4 keep"].activation == 10 * 8 * 128 + (24 * 8 * 128 + 5 * 8 * 8) // 4
    assert modes["4 recompute"].activation == 2 * 8 * 128
    assert facts.data.tolist() == [8 * 128 * 2] * 2


def test_a_decoder_is_solved() -> None:
    instance = make("decoder-training", layers=6, width=1024, devices=4, memory=2e9)
    result = hetopt.solve(instance)
    assert result.status == "optimal"
    hetopt.verify(instance, result)


@pytest.mark.parametrize("question", ["provision", "pareto"])
def test_rented_pools_are_solved(question: str) -> None:
    instance = make("rented-pools", question=question, layers=6, pools=2, units=3, seed=4)
    assert instance.digest == make("rented-pools", question=question, layers=6, pools=2, units=3, seed=4).digest
    assert instance.digest != make("rented-pools", question=question, layers=6, pools=2, units=3, seed=5).digest
    result = hetopt.solve(instance)
    assert result.status == "optimal"
    hetopt.verify(instance, result)


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("decoder-training", {"layers": 0}, "--layers is 0"),
        ("decoder-training", {"devices": 10**6}, "--devices is 1000000"),
        ("rented-pools", {"question": "rent"}, "--question is 'rent'"),
        ("rented-pools", {"units": 0}, "--units is 0"),
        ("rented-pools", {"pools": 65}, "--pools is 65"),
    ],
)
def test_sizes_out_of_range_are_refused(kind: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError) as caught:
        make(kind, **options)
    assert told in str(caught.value)
