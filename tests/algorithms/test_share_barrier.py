"""The interior point method for time shares, against another solver's linear programs and a height that bends."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from hetopt.algorithms.share_barrier import share


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gains over six orders of size, some 0, scales and workers."""
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 30)), int(random.integers(1, 6))
    a = 10.0 ** random.uniform(-1, 1, (n, m)) * 10.0 ** random.uniform(-2, 2, (n, 1))
    a[(random.random((n, m)) < 0.3) & (np.arange(m) != random.integers(0, m, (n, 1)))] = 0.0
    return a, random.choice([1.0, 2.0, 8.0], n), random.integers(1, 1 + n, m).astype(float)


def most(a: np.ndarray, scale: np.ndarray, workers: np.ndarray, weight: np.ndarray) -> float:
    """max t with a x >= weight t, by scipy."""
    n, m = a.shape
    rows, right = np.zeros((2 * n + m, n * m + 1)), np.concatenate([np.zeros(n), np.ones(n), workers])
    for i in range(n):
        rows[i, i * m : (i + 1) * m], rows[i, -1] = -a[i] / a[i].max(), weight[i] / a[i].max()
        rows[n + i, i * m : (i + 1) * m] = 1.0
        rows[2 * n + np.arange(m), i * m + np.arange(m)] = scale[i]
    found = linprog(np.r_[np.zeros(n * m), -1.0], rows, right, method="highs-ds")
    return float(-found.fun)


@pytest.mark.parametrize("seed", range(40))
def test_a_straight_height(seed: int) -> None:
    """Value, multipliers and point are those of the linear program: the dual's value is the primal's."""
    a, scale, workers = drawn(seed)
    weight = np.random.default_rng([seed, 1]).choice([1.0, 3.0], len(a))
    zero = np.zeros(len(a))
    found = share(a, scale, workers, lambda t: (-t * weight, -weight, zero), -1e-3)
    assert found is not None
    assert -found.t == pytest.approx(most(a, scale, workers, weight), rel=1e-7)
    assert (found.x >= 0).all()
    assert (found.x.sum(axis=1) <= 1 + 1e-8).all()
    assert (scale @ found.x <= workers * (1 + 1e-8)).all()
    offers = found.jobs[:, None] * a - scale[:, None] * found.types
    dual = (np.maximum(offers.max(axis=1), 0).sum() + found.types @ workers) / (found.jobs @ weight)
    assert dual == pytest.approx(-found.t, rel=1e-7)


@pytest.mark.parametrize("seed", range(10))
def test_a_bent_height(seed: int) -> None:
    """a x >= b / (t - c): at the t found the straight program with these heights reaches level 1, no more."""
    a, scale, workers = drawn(seed)
    random = np.random.default_rng([seed, 2])
    b, c = a.max(axis=1) * random.uniform(0.1, 2, len(a)), random.uniform(0, 3, len(a))

    def heights(t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return b / (t - c), -b / (t - c) ** 2, 2 * b / (t - c) ** 3

    found = share(a, scale, workers, heights, 100.0, float(c.max()))
    assert found is not None
    assert found.t > c.max()
    assert most(a, scale, workers, heights(found.t)[0]) == pytest.approx(1, rel=1e-6)


def test_it_stops_when_asked() -> None:
    a, scale, workers = drawn(0)
    zero = np.zeros(len(a))
    assert share(a, scale, workers, lambda t: (zero - t, zero - 1, zero), -1.0, stop=lambda: True) is None
