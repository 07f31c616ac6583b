"""Horowitz and Sahni's dynamic program: ratio 1 + epsilon against brute force and against its own bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.algorithms.fptas import horowitz_sahni
from hetopt.algorithms.times import makespan

INF = math.inf


@st.composite
def instances(draw, jobs=6):
    n, m = draw(st.integers(1, jobs)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time = rng.integers(draw(st.integers(0, 1)), draw(st.sampled_from([2, 6, 300])), (n, m), endpoint=True).astype(
        float
    )
    if draw(st.booleans()):
        time = np.where(time > 0, rng.gamma(0.5, time + 1.0), 0.0)
    time[rng.random((n, m)) < 0.2] = INF
    time[np.isinf(time).all(axis=1), 0] = 1.0
    return time, rng.integers(0, 8, m).astype(float) if draw(st.booleans()) else np.zeros(m)


@given(case=instances(), epsilon=st.sampled_from([0.0, 0.03, 0.3, 2.0]))
def test_ratio_and_bound(case, epsilon):
    time, ready = case
    n, m = time.shape
    best = min(makespan(time, np.array(plan), ready) for plan in itertools.product(range(m), repeat=n))
    result = horowitz_sahni(time, epsilon, ready=ready)
    value = makespan(time, result.plan, ready)
    assert result.complete
    assert result.lower_bound <= best <= value * (1 + 1e-12)
    assert value <= (1 + epsilon) * best * (1 + 1e-12)
    # What trimming may have lost is measured by epsilon times a lower bound, so the gap shown is no larger either.
    assert value - result.lower_bound <= epsilon * best * (1 + 1e-9) + 1e-9
    if epsilon == 0:
        assert value == pytest.approx(best, rel=1e-12)
        assert result.lower_bound == pytest.approx(best, rel=1e-12)


def test_a_perfect_partition_that_lists_miss():
    # 3, 3, 2, 2, 2 on two equal machines: 6 and 6; longest first gives 3 + 2 + 2 = 7.
    time = np.repeat([[3.0], [3.0], [2.0], [2.0], [2.0]], 2, axis=1)
    result = horowitz_sahni(time, 0.0)
    assert makespan(time, result.plan) == result.lower_bound == 6
    assert result.plan[0] == result.plan[1]


@pytest.mark.parametrize("epsilon", [0.2, 0.05, 0.01])
def test_forty_jobs_within_epsilon_of_the_exact_answer(epsilon):
    time = np.random.default_rng(3).integers(1, 60, (40, 3)).astype(float)
    exact = horowitz_sahni(time, 0.0)
    assert exact.lower_bound == makespan(time, exact.plan)
    rough = horowitz_sahni(time, epsilon)
    assert exact.lower_bound <= makespan(time, rough.plan) <= (1 + epsilon) * exact.lower_bound
    assert rough.lower_bound <= exact.lower_bound


def test_trimming_keeps_few_states_where_all_loads_differ():
    time = np.random.default_rng(1).random((60, 3))
    result = horowitz_sahni(time, 0.1)
    assert makespan(time, result.plan) - result.lower_bound <= 0.1 * makespan(time, result.plan)
    assert result.states < 100_000
    with pytest.raises(MemoryError, match="larger epsilon"):
        horowitz_sahni(time, 0.0, max_states=1000)


def test_an_unused_machine_does_not_count():
    result = horowitz_sahni([[2.0, 5.0]], 0.0, ready=[1.0, 4.0])
    assert (result.plan.tolist(), result.lower_bound) == ([0], 3)


def test_stopping_leaves_a_list_plan_and_a_bound():
    time = np.random.default_rng(1).random((10, 2))
    result = horowitz_sahni(time, 0.01, should_stop=lambda: True)
    assert not result.complete
    assert result.lower_bound <= horowitz_sahni(time, 0.0).lower_bound
    assert makespan(time, result.plan) <= 2 * time.min(axis=1).sum()


def test_edges():
    assert horowitz_sahni(np.zeros((0, 2)), 0.1).lower_bound == 0
    assert horowitz_sahni(np.zeros((3, 2)), 0.1).lower_bound == 0
    with pytest.raises(ValueError, match="epsilon"):
        horowitz_sahni([[1.0]], -0.1)
    with pytest.raises(ValueError, match="epsilon"):
        horowitz_sahni([[1.0]], math.nan)
