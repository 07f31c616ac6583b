"""The search through small regrets: the optimum of random menus under any prices, earlier choices, limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hetopt.algorithms.choice_core import search


@pytest.mark.parametrize("seed", range(60))
def test_the_optimum_whatever_the_prices(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, int(rng.integers(1, 7)))
    start = np.concatenate([[0], np.cumsum(sizes)])
    n, resources = int(start[-1]), int(rng.integers(0, 3))
    score, amount = rng.integers(0, 9, n).astype(float), rng.integers(0, 9, (resources, n)).astype(float)
    budget = rng.integers(0, 5 * len(sizes), resources).astype(float)
    hits, most = rng.integers(0, 2, (int(rng.integers(0, 2)), n)), len(sizes) - 1

    def judged(chosen):
        fits = (amount[:, chosen].sum(axis=1) <= budget).all() and (hits[:, chosen].sum(axis=1) <= most).all()
        return float(score[chosen].sum()) if fits else None

    every = itertools.product(*(range(a, b) for a, b in itertools.pairwise(start.tolist())))
    values = [v for chosen in every if (v := judged(np.array(chosen))) is not None]
    prices = rng.random(resources) * float(rng.integers(0, 3))
    bound = search(score, amount, start, budget, prices, math.inf, hits, most, judged, lambda: False)
    assert bound == pytest.approx(min(values, default=math.inf), abs=1e-9)
    assert bound <= min(values, default=math.inf)


def test_too_many_sets_prove_nothing():
    """Thirty tasks take two units of either resource, 31 and 29 are there: no choice, but no bound sees it."""
    start = np.arange(0, 62, 2)
    amount = np.tile([[2.0, 0.0], [0.0, 2.0]], 30)
    rest = np.array([31.0, 29.0]), np.zeros(2), math.inf, np.zeros((0, 60), np.int64), 30
    told = []
    assert search(np.zeros(60), amount, start, *rest, told.append, lambda: False, 1000) is None
    assert told == []
    assert search(np.zeros(60), amount, start, *rest, told.append, lambda: True) is None
