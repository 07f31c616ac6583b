"""The families have the ranges and the structure that their papers give them, and stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

from hetopt.io.generate_unrelated import KINDS, unrelated


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("u1_100", 1, 100),
        ("u10_100", 10, 100),
        ("u100_120", 100, 120),
        ("u100_200", 100, 200),
        ("u1000_1100", 1000, 1100),
    ],
)
def test_a_uniform_class_fills_its_range_with_integers(kind: str, low: int, high: int) -> None:
    times = unrelated(kind, 400, 20, 1)
    assert times.shape == (400, 20)
    assert times.min() == low
    assert times.max() == high
    assert np.array_equal(times, np.floor(times))


@pytest.mark.parametrize(("kind", "axis"), [("jobcorr", 1), ("maccorr", 0)])
def test_a_correlated_class_spreads_by_twenty_around_its_own_term(kind: str, axis: int) -> None:
    times = unrelated(kind, 300, 200, 2)
    assert (np.ptp(times, axis=axis) == 19).mean() > 0.99
    assert times.min() >= 2
    assert times.max() <= 120
    assert np.ptp(times.mean(axis=axis)) > 80


def test_consistency_means_the_same_order_of_machines_for_each_task() -> None:
    consistent = unrelated("u_c_hihi", 60, 9, 3)
    assert (np.diff(consistent, axis=1) >= 0).all()
    half = unrelated("u_s_lolo", 60, 9, 3)
    assert (np.diff(half[:, ::2], axis=1) >= 0).all()
    assert not (np.diff(half[:, 1::2], axis=1) >= 0).all()
    assert half.max() <= 1000
    inconsistent = unrelated("u_i_lohi", 60, 9, 3)
    assert inconsistent.max() <= 100 * 1000
    assert inconsistent.min() >= 1
    assert (inconsistent[:, ::2].argmin(axis=1) != 0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_and_only_they_decide_the_instance(kind: str) -> None:
    assert np.array_equal(unrelated(kind, 30, 4, 7), unrelated(kind, 30, 4, 7))
    assert not np.array_equal(unrelated(kind, 30, 4, 7), unrelated(kind, 30, 4, 8))


def test_an_instance_stays_what_it_was() -> None:
    """Golden values, so that published results stay reproducible."""
    assert unrelated("u1_100", 3, 4, 1).astype(int).tolist() == [[81, 39, 36, 91], [22, 73, 96, 36], [97, 23, 13, 5]]


def test_what_cannot_be_generated_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        unrelated("u1_99", 3, 3, 1)
    with pytest.raises(ValueError, match="at least 1"):
        unrelated("u1_100", 0, 3, 1)
