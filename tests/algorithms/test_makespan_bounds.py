"""The rungs below the knapsacks: never above the optimum, proved by their certificates, as strong as their programs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from hetopt.algorithms.makespan_bounds import (
    cardinality_bound,
    certified_grid,
    lp_relaxation,
    reduced_costs,
    whole_weights,
)
from hetopt.algorithms.makespan_lp import cheapest_pairs, machine_prices
from hetopt.io.generate_unrelated import unrelated
from hetopt.verify.makespan_certificates import replay


def optimum(time: np.ndarray, ready: np.ndarray) -> float:
    """Smallest makespan by looking at every plan at once; machines without a job do not count."""
    n, m = time.shape
    plans = np.array(list(itertools.product(range(m), repeat=n)))
    value = np.zeros(len(plans))
    for i in range(m):
        here = plans == i
        load = np.where(here, np.where(here.any(axis=1)[:, None], time[:, i], 0.0), 0.0).sum(axis=1)
        value = np.maximum(value, np.where(here.any(axis=1), load + ready[i], 0.0))
    return float(value.min())


def small_instance(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """1 to 6 jobs, 1 to 4 machines: whole or decimal, wide or narrow, zeros, ties, ineligible pairs, late machines."""
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 7)), int(random.integers(1, 5))
    high = int(random.choice([2, 12, 1000]))
    time = random.integers(0 if seed % 3 == 0 else 1, high, (n, m), endpoint=True).astype(float)
    if seed % 2:
        time *= random.uniform(0.5, 1.5, (n, m))
    if seed % 5 == 0:
        blocked = random.random((n, m)) < 0.3
        blocked[np.arange(n), random.integers(0, m, n)] = False
        time[blocked] = np.inf
    ready = random.integers(0, high * 2, m).astype(float) if seed % 4 == 0 else np.zeros(m)
    return time, ready


@pytest.mark.parametrize("block", range(8))
def test_both_rungs_stay_below_the_optimum(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        time, ready = small_instance(seed)
        best = optimum(time, ready)
        relaxation = lp_relaxation(time, ready, upper=best)
        assert relaxation.bound <= best * (1 + 1e-15), seed
        assert relaxation.bound == replay(time, relaxation.certificate, ready)
        cuts = cardinality_bound(time, ready, lower=relaxation.bound, upper=best, weights=relaxation.weights)
        if cuts.bound is not None and cuts.certificate is not None:
            assert relaxation.bound - 1e-6 <= cuts.bound <= best * (1 + 1e-15), seed
            assert cuts.bound == replay(time, cuts.certificate, ready)


@pytest.mark.parametrize("kind", ["u1_100", "jobcorr", "maccorr", "u_i_hilo"])
def test_the_bound_is_the_value_of_the_whole_linear_program(kind: str) -> None:
    time = unrelated(kind, 30, 6, 3)
    n, m = time.shape
    whole = np.kron(np.eye(n), np.ones(m))
    loads = np.hstack([(time[:, :, None] * np.eye(m)).reshape(n * m, m).T, -np.ones((m, 1))])
    answer = linprog(
        np.r_[np.zeros(n * m), 1.0],
        A_ub=loads,
        b_ub=np.zeros(m),
        A_eq=np.hstack([whole, np.zeros((n, 1))]),
        b_eq=np.ones(n),
    )
    relaxation = lp_relaxation(time)
    assert relaxation.value == pytest.approx(answer.fun, rel=1e-7)
    expected = math.ceil(answer.fun - 1e-7) if np.array_equal(time, np.floor(time)) else answer.fun
    assert relaxation.bound == pytest.approx(expected, rel=1e-6)
    share = np.zeros((n, m))
    np.add.at(share, (relaxation.job, relaxation.machine), relaxation.share)
    assert share.sum(axis=1) == pytest.approx(np.ones(n))
    assert (share * time).sum(axis=0).max() == pytest.approx(answer.fun, rel=1e-7)
    assert ((share > 1e-9) & (share < 1 - 1e-9)).any(axis=1).sum() <= m - 1
    assert reduced_costs(time, relaxation.weights)[share > 1e-9] == pytest.approx(0.0, abs=1e-6 * answer.fun)


def test_a_plan_spends_its_distance_from_the_dual_value_on_reduced_costs() -> None:
    time = unrelated("u10_100", 40, 5, 2)
    relaxation = lp_relaxation(time)
    plan = np.random.default_rng(0).integers(0, 5, 40)
    load = np.bincount(plan, time[np.arange(40), plan], 5)
    spent = reduced_costs(time, relaxation.weights)[np.arange(40), plan].sum()
    assert relaxation.weights @ load == pytest.approx(relaxation.value + spent)


def test_cardinality_lifts_the_bound_where_jobs_do_not_divide_evenly() -> None:
    """Seven jobs of 10 to 12 on three machines: one of them takes three, so 30 at least; a fractional plan needs 70 / 3."""
    time = np.array(
        [[10.0, 11, 12], [11, 10, 12], [12, 11, 10], [10, 10, 11], [12, 12, 10], [11, 11, 11], [10, 12, 10]]
    )
    relaxation = lp_relaxation(time)
    assert relaxation.bound == 24
    cuts = cardinality_bound(time, lower=relaxation.bound, upper=40, weights=relaxation.weights)
    assert cuts.bound == 30
    assert cuts.deadline == 30
    decimals = cardinality_bound(time + 0.25, lower=24.0, upper=40.0)
    assert decimals.bound == pytest.approx(30.75, rel=1e-5)
    assert decimals.bound <= 30.75


def test_golden_lifts_on_generated_classes() -> None:
    """Bounds of seed 1, computed independently with the full programs in floating point."""
    for kind, n, m, linear, cut in [
        ("u100_200", 200, 20, 1044, 1047),
        ("maccorr", 200, 20, 185, 192),
        ("u1000_1100", 200, 20, 10046, 10049),
    ]:
        time = unrelated(kind, n, m, 1)
        relaxation = lp_relaxation(time)
        assert relaxation.bound == linear
        assert cardinality_bound(time, lower=linear, upper=1.3 * linear, weights=relaxation.weights).bound == cut


def test_a_late_machine_is_priced_out() -> None:
    """Machine 1 is free only at 100; without it the jobs take 12."""
    time = np.array([[3.0, 1], [4, 1], [5, 1]])
    assert lp_relaxation(time, np.array([0.0, 100.0]), upper=12).bound == 12
    assert lp_relaxation(time, np.array([0.0, 2.0]), upper=12).bound == optimum(time, np.array([0.0, 2.0]))


def test_a_stopped_search_still_gives_a_proof() -> None:
    time = unrelated("maccorr", 100, 10, 1)
    relaxation = lp_relaxation(time, should_stop=lambda: True)
    assert 0 < relaxation.bound <= lp_relaxation(time).bound
    assert relaxation.share.sum() == 100
    cuts = cardinality_bound(time, lower=relaxation.bound, upper=2000, should_stop=lambda: True)
    assert cuts.bound is None or cuts.bound == replay(time, cuts.certificate or {})


def test_dual_ascent_is_a_bound_and_close() -> None:
    for kind, distance in [("u1_100", 0.003), ("jobcorr", 0.003), ("maccorr", 0.01)]:
        time = unrelated(kind, 400, 20, 5)
        weights, value = machine_prices(time, np.zeros(20))
        assert weights.sum() == pytest.approx(1.0)
        assert (1 - distance) * lp_relaxation(time).value <= value <= lp_relaxation(time).value * (1 + 1e-12)


def test_the_first_pairs_cover_jobs_and_machines_despite_ties() -> None:
    mask = cheapest_pairs(np.ones((60, 6)), np.full(6, 1 / 6), 2, 1.0)
    assert (mask.sum(axis=1) >= 2).all()
    assert (mask.sum(axis=0) >= 10).all()
    blocked = np.ones((4, 3))
    blocked[:, 2] = np.inf
    assert not cheapest_pairs(blocked, np.ones(3), 3, 3.0)[:, 2].any()


def test_grids_keep_integers_and_refine_decimals() -> None:
    assert certified_grid(np.array([[7.0, 3.0]]), None, 7.0).shift == 0
    fine = certified_grid(np.array([[0.7, 0.3]]), None, 0.7)
    assert 0.7 - fine.value(int(fine.time[0, 0])) < 1e-9
    coarse = certified_grid(np.array([[2.0**60, 2.0**60]]), None, math.inf)
    assert coarse.shift < 0
    assert Fraction(coarse.value(int(coarse.time[0, 0]))) == 2**60


def test_duals_become_integers_that_fit() -> None:
    weights, counts = whole_weights(np.array([0.5, 1e-7, 0.0]), np.array([3.0, 0.0, 0.0]), 1 << 20)
    assert int(weights.max()) * (1 << 20) + int(counts.max()) < 1 << 61
    assert weights[0] / counts[0] == pytest.approx(1 / 6)
    assert weights[2] == 0
    assert weights[1] > 0
    assert not whole_weights(np.zeros(2), None, 5)[0].any()
