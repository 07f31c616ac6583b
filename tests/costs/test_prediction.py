"""Piecewise-linear fits and critical paths: worked by hand, exact where the data are, refused where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from hetopt import InputError
from hetopt.costs.prediction import Operation, critical_path, piecewise_linear


def test_a_curve_with_one_bend_is_found_again():
    x = np.array([0.0, 1e6, 4e6, 8e6, 16e6, 64e6])
    y = 1e-5 + 1e-10 * x + 3e-10 * np.maximum(x - 8e6, 0)
    fit = piecewise_linear(x, y, knots=[4e6, 8e6])
    assert fit.error == pytest.approx(0, abs=1e-9)
    assert fit(x) == pytest.approx(y)
    assert fit(32e6) == pytest.approx(1e-5 + 32e-4 + 72e-4)


def test_one_outlier_does_not_move_the_line():
    x = np.arange(1.0, 8.0)
    y = 1 + 2 * x
    y[3] = 90
    fit = piecewise_linear(x, y)
    assert (fit.base, fit.slope) == (pytest.approx(1), pytest.approx(2))
    assert fit.error == pytest.approx((1 - 9 / 90) / 7)


def test_no_other_line_has_a_smaller_error():
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, 10, 12), rng.uniform(1, 5, 12)
    fit = piecewise_linear(x, y)
    for a in np.linspace(0, 5, 41):
        for b in np.linspace(0, 1, 41):
            assert np.abs((a + b * x) / y - 1).mean() >= fit.error - 1e-9


@pytest.mark.parametrize(
    ("size", "seconds", "knots"),
    [([], [], ()), ([1], [0], ()), ([1, 2], [1], ()), ([-1], [1], ()), ([1], [1], (0,))],
    ids=str,
)
def test_measurements_that_cannot_be_fitted(size, seconds, knots):
    with pytest.raises(InputError, match="expected"):
        piecewise_linear(size, seconds, knots)


def test_ranks_wait_for_the_slowest_at_a_collective():
    ranks = [
        [Operation("forward", 2), Operation("reduce", 1, collective="r"), Operation("update", 1)],
        [Operation("forward", 5), Operation("reduce", 2, collective="r"), Operation("update", 3)],
    ]
    assert critical_path(ranks) == (10, [(1, "forward"), (1, "reduce"), (1, "update")])


def test_streams_run_beside_each_other():
    rank = [
        Operation("a", 2),
        Operation("copy", 9, stream="copy", after=("a",)),
        Operation("b", 3),
        Operation("c", 1, after=("copy",)),
    ]
    assert critical_path([rank]) == (12, [(0, "a"), (0, "copy"), (0, "c")])
    assert critical_path([rank[:1] + rank[2:3]])[0] == 5
    assert critical_path([]) == (0, [])


def test_the_path_crosses_ranks():
    ranks = [
        [Operation("a", 1), Operation("x", 0, collective="x"), Operation("tail", 7)],
        [Operation("a", 4), Operation("x", 0, collective="x")],
    ]
    seconds, path = critical_path(ranks)
    assert (seconds, path[0], path[-1]) == (11, (1, "a"), (0, "tail"))


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ([[Operation("a", 1), Operation("a", 1)]], "two operations 'a'"),
        ([[Operation("a", 1, after=("b",))]], "waits for 'b'"),
        ([[Operation("a", -1)]], "takes -1 seconds"),
        (
            [
                [Operation("x", 1, collective="x"), Operation("y", 1, collective="y")],
                [Operation("y", 1, collective="y"), Operation("x", 1, collective="x")],
            ],
            "wait for each other: 'x' of rank 0",
        ),
    ],
    ids=["twice", "missing", "negative", "circle"],
)
def test_ranks_that_never_end(ranks, told):
    with pytest.raises(InputError, match=told):
        critical_path(ranks)
