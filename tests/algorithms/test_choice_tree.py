"""Branch and bound of choices: the optimum of random menus under any prices and values known before, limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hetopt.algorithms.choice_tree import search


@pytest.mark.parametrize("seed", range(60))
def test_the_optimum_whatever_the_prices(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, int(rng.integers(1, 7)))
    start = np.concatenate([[0], np.cumsum(sizes)])
    n, resources = int(start[-1]), int(rng.integers(0, 3))
    score, amount = rng.integers(0, 9, n).astype(float), rng.integers(0, 9, (resources, n)).astype(float)
    budget = rng.integers(0, 5 * len(sizes), resources).astype(float)
    score[rng.random(n) < 0.1] = math.inf

    def judged(chosen):
        fits = (amount[:, chosen].sum(axis=1) <= budget).all() and np.isfinite(score[chosen]).all()
        return float(score[chosen].sum()) if fits else None

    every = itertools.product(*(range(a, b) for a, b in itertools.pairwise(start.tolist())))
    values = [v for chosen in every if (v := judged(np.array(chosen))) is not None]
    optimum = min(values, default=math.inf)
    prices = rng.random(resources) * float(rng.integers(0, 3))
    if all(np.isfinite(score[a:b]).any() for a, b in itertools.pairwise(start.tolist())):
        for value in (math.inf, *values[:1]):
            bound = search(score, amount, start, budget, prices, value, judged, lambda: False)
            assert bound == pytest.approx(optimum, abs=1e-9)
            assert bound <= optimum


def test_a_choice_that_does_not_fit_after_all_is_passed_over():
    """The judge refuses the best; the next one is found, and the bound is its score."""
    score, start = np.array([1.0, 2.0, 5.0, 1.0, 3.0]), np.array([0, 3, 5])
    refused = lambda chosen: None if score[chosen].sum() < 4 else float(score[chosen].sum())  # noqa: E731
    bound = search(score, np.zeros((0, 5)), start, np.zeros(0), np.zeros(0), math.inf, refused, lambda: False)
    assert bound == pytest.approx(4.0)


def test_prices_show_that_nothing_fits():
    """Sixty tasks, amounts of which no mix of modes fits both budgets, although either alone can be kept."""
    rng = np.random.default_rng(0)
    start = np.arange(0, 244, 4)
    amount = rng.random((2, 240))
    amount[1] = 1.2 - amount[0] + 0.1 * rng.random(240)
    rest = np.array([28.0, 28.0]), np.zeros(2), math.inf
    assert search(rng.random(240), amount, start, *rest, lambda chosen: 0.0, lambda: False, 1000) == math.inf


def test_too_many_nodes_prove_nothing():
    """The same with 31 and 29: no choice, but no prices see it."""
    start = np.arange(0, 62, 2)
    amount = np.tile([[2.0, 0.0], [0.0, 2.0]], 30)
    rest = np.array([31.0, 29.0]), np.zeros(2), math.inf
    told = []
    assert search(np.zeros(60), amount, start, *rest, told.append, lambda: False, 1000) is None
    assert told == []
    assert search(np.zeros(60), amount, start, *rest, told.append, lambda: True) is None
