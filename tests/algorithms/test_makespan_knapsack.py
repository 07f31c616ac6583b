"""The knapsack rungs: never above the optimum, proved by their certificates, at least as strong as cardinality."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hetopt.algorithms.makespan_bounds import cardinality_bound, lp_relaxation, refutes
from hetopt.algorithms.makespan_knapsack import (
    KnapsackDual,
    _knapsack_by_cells,
    _knapsack_by_rows,
    configuration_bound,
    knapsack_bound,
    raise_prices,
)
from hetopt.io.generate_unrelated import unrelated
from hetopt.verify.makespan_certificates import on_grid, replay


def optimum(time: np.ndarray, ready: np.ndarray) -> float:
    """Smallest makespan over all plans; machines without a job do not count."""
    n, m = time.shape
    best = math.inf
    for plan in itertools.product(range(m), repeat=n):
        load = np.bincount(plan, time[np.arange(n), plan], m)
        best = min(best, float((load + ready)[list(set(plan))].max()))
    return best


@pytest.mark.parametrize("bound", [knapsack_bound, configuration_bound])
@pytest.mark.parametrize("block", range(3))
def test_the_bound_is_below_the_optimum_and_often_equal(bound, block: int) -> None:
    met = 0
    for seed in range(40 * block, 40 * block + 40):
        random = np.random.default_rng(seed)
        n, m = int(random.integers(2, 7)), int(random.integers(1, 4))
        time = random.integers(0, int(random.choice([3, 20, 200])), (n, m), endpoint=True).astype(float)
        if seed % 2:
            time *= random.uniform(0.5, 1.5, (n, m))
        if seed % 3 == 0:
            blocked = random.random((n, m)) < 0.3
            blocked[np.arange(n), random.integers(0, m, n)] = False
            time[blocked] = np.inf
        ready = random.integers(0, 30, m).astype(float) if seed % 4 == 0 else np.zeros(m)
        best = optimum(time, ready)
        grid = on_grid(time, ready, 0 if seed % 2 == 0 else 5)
        weights = lp_relaxation(time, ready, upper=best).weights
        start, upper = int(grid.time.min(axis=1).max()), math.ceil(best * 2.0**grid.shift)
        found = bound(grid, start, upper, weights)
        value = grid.value(start)
        if found.certificate is not None:
            value = replay(time, found.certificate, ready)
            assert value == found.bound
        assert value <= best * (1 + 1e-15), seed
        met += seed % 2 == 0 and value == best
    assert met >= 14


def test_sizes_that_do_not_combine_are_refuted() -> None:
    """Sizes 4, 4, 2, 2, 2 on two equal machines: 14 fills both to 7 and three jobs fit by count, but all sums are even."""
    time = np.repeat(np.array([[4.0], [4], [2], [2], [2]]), 2, axis=1)
    assert lp_relaxation(time).bound == 7
    assert cardinality_bound(time, lower=7, upper=9).bound is None
    grid, weights = on_grid(time), np.full(2, 0.5)
    assert knapsack_bound(grid, 7, 9, weights).bound == 8
    assert configuration_bound(grid, 7, 9, weights).bound == 8


def test_rungs_get_stronger_upwards() -> None:
    """Golden bounds on generated instances of seed 1, each replayed; the configuration program is the strongest."""
    for kind, n, m, cut, lagrangian, configuration in [
        ("u1_100", 50, 10, 46, 52, 52),
        ("u100_200", 50, 10, 552, 567, 567),
        ("jobcorr", 50, 10, 304, 307, 307),
        ("u100_200", 100, 10, 1099, 1099, 1100),
    ]:
        time = unrelated(kind, n, m, 1)
        relaxation = lp_relaxation(time)
        cuts = cardinality_bound(time, lower=relaxation.bound, upper=1.5 * relaxation.bound, weights=relaxation.weights)
        assert cuts.deadline == cut
        upper = int(1.5 * cut)
        assert knapsack_bound(cuts.grid, cut, upper, relaxation.weights).deadline >= lagrangian
        best = configuration_bound(cuts.grid, cut, upper, relaxation.weights)
        assert best.deadline == configuration
        assert best.certificate is not None
        assert replay(time, best.certificate) == configuration


def test_dropping_pairs_does_not_change_what_is_proved() -> None:
    """The kept pairs are those that the certificate's own integers keep, so a float refutation replays."""
    time = unrelated("u1_100", 60, 6, 4)
    relaxation = lp_relaxation(time)
    cuts = cardinality_bound(time, lower=relaxation.bound, upper=300, weights=relaxation.weights)
    dual = KnapsackDual(cuts.grid, cuts.deadline, cuts.weights, cuts.count_weights)
    assert dual.kept.sum() < time.size
    _, certificate = raise_prices(dual)
    assert certificate is not None
    assert refutes(cuts.grid, certificate)
    damaged = certificate | {"prices": certificate["prices"] // 2}
    damaged["prices"][:30] *= 3
    assert not refutes(cuts.grid, damaged)


def test_both_knapsack_programs_agree_with_enumeration() -> None:
    random = np.random.default_rng(7)
    for _ in range(40):
        k, room = int(random.integers(1, 8)), int(random.integers(0, 30))
        size = random.integers(0, room + 1, k)
        price = random.random(k)
        subsets = np.array(list(itertools.product([0, 1], repeat=k))).reshape(-1, k)
        best = float((subsets @ price)[subsets @ size <= room].max())
        for program in (_knapsack_by_rows, _knapsack_by_cells, _knapsack_by_cells.py_func):
            value, spare = np.ones(room + 5), np.ones(room + 5)
            choice, take = np.ones((k + 1, room + 5), dtype=bool), np.ones(k, dtype=bool)
            assert program(size, price, room, value, spare, choice, take) == pytest.approx(best)
            assert size[take].sum() <= room
            assert price[take].sum() == pytest.approx(best)


def test_a_stopped_search_claims_nothing() -> None:
    time = unrelated("u1_100", 50, 10, 1)
    weights = lp_relaxation(time).weights
    for bound in (knapsack_bound, configuration_bound):
        stopped = bound(on_grid(time), 46, 80, weights, should_stop=lambda: True)
        assert stopped.bound is None
        assert stopped.deadline == 46


def test_a_deadline_too_fine_for_knapsacks_is_left_alone() -> None:
    grid, deadline = on_grid(np.ones((3, 2)), None, 34), 22 << 31
    dual = KnapsackDual(grid, deadline, np.array([0.5, 0.5]), np.zeros(2))
    assert not dual.affordable
    assert knapsack_bound(grid, deadline, deadline + 5, np.array([0.5, 0.5])).bound is None
