"""Sum of completion times: Smith's rule by permutations, Horn's matching against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.algorithms.completion import completion_times, horn, weighted_completion

INF = math.inf


@st.composite
def instances(draw, jobs=6, eligible=0.75):
    n, m = draw(st.integers(1, jobs)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time = rng.integers(draw(st.integers(0, 1)), draw(st.sampled_from([1, 5, 300])), (n, m), endpoint=True).astype(
        float
    )
    if draw(st.booleans()):
        time = np.where(time > 0, rng.gamma(0.5, time + 1.0), 0.0)
    time[rng.random((n, m)) > eligible] = INF
    time[np.isinf(time).all(axis=1), 0] = 1.0
    return time, rng.integers(0, 8, m).astype(float) if draw(st.booleans()) else np.zeros(m)


@given(case=instances(jobs=5), seed=st.integers(0, 99))
def test_smith_order_is_the_best_of_all_orders(case, seed):
    time, ready = case
    time = np.where(time == INF, 9.0, time)
    n, m = time.shape
    rng = np.random.default_rng(seed)
    plan, weight = rng.integers(0, m, n), rng.integers(0, 5, n)
    done = completion_times(time, plan, weight, ready=ready)
    best = 0.0
    for i in range(m):
        jobs = np.flatnonzero(plan == i)
        costs = [weight[list(o)] @ (ready[i] + np.cumsum(time[list(o), i])) for o in itertools.permutations(jobs)]
        best += min(costs) if len(jobs) else 0.0
    assert weight @ done == pytest.approx(best)
    assert weighted_completion(time, plan, weight, ready=ready) == pytest.approx(best)


def test_smith_by_hand():
    # Machine 0 from 2 on: job 2 (ratio 1/3) ends at 3, job 0 (4/2) at 7, job 3 of weight 0 last at 8; machine 1: job 1.
    time = np.array([[4.0, 9.0], [9.0, 5.0], [1.0, 9.0], [1.0, 9.0]])
    assert completion_times(time, [0, 1, 0, 0], [2, 1, 3, 0], ready=[2, 0]).tolist() == [7, 5, 3, 8]
    assert weighted_completion(time, [0, 1, 0, 0], [2, 1, 3, 0], ready=[2, 0]) == 2 * 7 + 5 + 3 * 3


@given(case=instances())
def test_horn_is_optimal(case):
    time, ready = case
    n, m = time.shape
    best = min(
        weighted_completion(time, plan, ready=ready)
        for plan in itertools.product(range(m), repeat=n)
        if (time[range(n), plan] < INF).all()
    )
    result = horn(time, ready=ready)
    assert result.value == pytest.approx(best)
    assert weighted_completion(time, result.plan, ready=ready) == result.value


def test_horn_offers_as_many_positions_as_a_fast_machine_needs():
    # Machine 0 is 100 times as fast: all jobs go there, although each machine starts with three positions on offer.
    time = np.arange(1.0, 21.0)[:, None] * np.r_[1.0, np.full(9, 100.0)]
    result = horn(time)
    assert result.plan.tolist() == [0] * 20
    assert result.value == sum(k * (21 - k) for k in range(1, 21))


def test_horn_where_many_jobs_have_one_machine():
    time = np.full((30, 4), INF)
    time[:, 1] = 1.0
    time[:5, 0] = 2.0
    # Twenty-five jobs have machine 1 only; a job moved to machine 0 saves 26 or more and costs 2, 4, ...
    result = horn(time)
    assert np.bincount(result.plan, minlength=4).tolist() == [5, 25, 0, 0]
    assert result.value == 25 * 26 / 2 + 2 * 15


@pytest.mark.parametrize(("n", "m"), [(12, 3), (40, 7)])
def test_horn_equals_the_matching_over_all_positions(n, m):
    from scipy.optimize import linear_sum_assignment

    time = np.random.default_rng(n).integers(1, 60, (n, m)) * np.arange(1.0, m + 1)
    full = np.concatenate([time * k for k in range(1, n + 1)], axis=1)
    assert horn(time).value == full[linear_sum_assignment(full)].sum()


def test_edges():
    assert horn(np.zeros((0, 2))).value == 0.0
    with pytest.raises(ValueError, match="job 1 cannot run"):
        horn([[1.0], [INF]])
    with pytest.raises(ValueError, match="name a machine"):
        completion_times([[1.0]], [1])
    with pytest.raises(ValueError, match="weight"):
        weighted_completion([[1.0]], [0], [-1.0])
