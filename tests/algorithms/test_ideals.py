"""All order ideals and their covers, against subsets listed one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.algorithms import ideals as module
from hetopt.algorithms.ideals import TooManyIdeals, enumerate_ideals


def csr(before: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ptr = np.concatenate([[0], np.cumsum([len(b) for b in before])]).astype(np.int64)
    return ptr, np.array([u for b in before for u in b], dtype=np.int64)


def plain(before: list[list[int]]) -> set[frozenset[int]]:
    """Every down-closed subset, by trying all subsets."""
    n = len(before)
    subsets = (frozenset(s) for k in range(n + 1) for s in itertools.combinations(range(n), k))
    return {s for s in subsets if all(u in s for v in s for u in before[v])}


@st.composite
def orders(draw: st.DrawFn) -> list[list[int]]:
    n = draw(st.integers(0, 8))
    return [[u for u in range(v) if draw(st.booleans())] for v in range(n)]


@given(orders())
def test_ideals_and_covers_are_all_and_only_the_down_sets(before):
    found = enumerate_ideals(*csr(before))
    sets = [frozenset(found.members(i).tolist()) for i in range(len(found.last))]
    assert len(set(sets)) == len(sets)
    assert set(sets) == plain(before)
    assert sets[0] == frozenset() and sets[-1] == frozenset(range(len(before)))
    number = {s: i for i, s in enumerate(sets)}
    for i, s in enumerate(sets):
        covers = slice(found.cover_ptr[i], found.cover_ptr[i + 1])
        pairs = list(zip(found.cover_class[covers].tolist(), found.cover[covers].tolist(), strict=True))
        assert sorted(pairs) == sorted(
            (v, number[s | {v}]) for v in range(len(before)) if v not in s and s | {v} in number
        )
        if i:
            assert sets[found.parent[i]] == s - {int(found.last[i])} and found.last[i] == max(s)


@given(orders())
def test_kernels_equal_their_plain_twins(before):
    compiled = enumerate_ideals(*csr(before))
    kernels = {name: getattr(module, name) for name in ("_find", "_extend", "_flatten", "_totals")}
    weight = np.arange(2.0 * len(before)).reshape(-1, 2)
    sums = compiled.total(weight)
    try:
        for name, kernel in kernels.items():
            setattr(module, name, kernel.py_func)
        plain_run = enumerate_ideals(*csr(before))
        plain_sums = plain_run.total(weight)
    finally:
        for name, kernel in kernels.items():
            setattr(module, name, kernel)
    for a, b in zip(compiled, plain_run, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(sums, plain_sums)


def test_totals_are_sums_over_members():
    found = enumerate_ideals(*csr([[], [0], [0], [1, 2]]))
    weight = np.array([[1.0], [2.0], [4.0], [8.0]])
    for i in range(len(found.last)):
        assert found.total(weight)[i, 0] == weight[found.members(i), 0].sum()


def test_a_chain_of_200_has_201_ideals_over_four_words():
    found = enumerate_ideals(*csr([[]] + [[v] for v in range(199)]))
    assert found.words.shape == (201, 4)
    assert found.members(130).tolist() == list(range(130))


def test_isolated_classes_are_refused_before_memory_is_taken():
    # 2^60 subsets: only a count made ahead can refuse them
    with pytest.raises(TooManyIdeals, match="the first 10 of 60 classes have 1024 ideals"):
        enumerate_ideals(*csr([[]] * 60), limit=1000)


def test_a_limit_below_the_number_of_classes_is_refused_at_once():
    with pytest.raises(TooManyIdeals, match="at least 6 ideals"):
        enumerate_ideals(*csr([[]] * 5), limit=5)


def test_classes_out_of_order_are_refused():
    with pytest.raises(ValueError, match="topological order"):
        enumerate_ideals(*csr([[1], []]))


def test_stopping_returns_nothing():
    assert enumerate_ideals(*csr([[], []]), should_stop=lambda: True) is None


@pytest.mark.parametrize(("classes", "covers", "expected"), [(3, 12, 8), (4, 32, 16)])
def test_boolean_lattice(classes, covers, expected):
    found = enumerate_ideals(*csr([[]] * classes))
    assert (len(found.last), len(found.cover)) == (expected, covers)
