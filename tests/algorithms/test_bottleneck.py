"""Bottleneck assignment: brute force, Hall's condition as the proof, hand-worked cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.algorithms.bottleneck import bottleneck_assignment, bottleneck_bound

INF = math.inf


@st.composite
def instances(draw):
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    entry = st.one_of(st.integers(-3, 8), st.just(INF))
    cost = np.array(draw(st.lists(st.lists(entry, min_size=m, max_size=m), min_size=n, max_size=n)), dtype=float)
    capacity = draw(st.one_of(st.none(), st.lists(st.integers(0, 3), min_size=m, max_size=m)))
    return cost, capacity


@given(case=instances(), witness=st.sets(st.integers(0, 4), min_size=1))
def test_optimal_and_proven(case, witness):
    cost, capacity = case
    n, m = cost.shape
    room = np.ones(m) if capacity is None else np.array(capacity)
    best = INF
    for plan in itertools.product(range(m), repeat=n):
        if (np.bincount(plan, minlength=m) <= room).all():
            best = min(best, cost[range(n), plan].max())
    jobs = [j for j in witness if j < n]
    assert bottleneck_bound(cost, jobs, capacity) <= best
    if best == INF:
        with pytest.raises(ValueError, match="can use only"):
            bottleneck_assignment(cost, capacity)
        return
    result = bottleneck_assignment(cost, capacity)
    assert result.value == best == cost[range(n), result.plan].max()
    assert (np.bincount(result.plan, minlength=m) <= room).all()
    assert bottleneck_bound(cost, result.witness, capacity) == best


def test_by_hand():
    # Below 4, the first two jobs both have column 0 only.
    cost = np.array([[1.0, 4.0, 9.0], [2.0, 5.0, 9.0], [3.0, 2.0, 3.0]])
    result = bottleneck_assignment(cost)
    assert (result.plan.tolist(), result.value, result.witness.tolist()) == ([1, 0, 2], 4.0, [0, 1])
    # Two places in column 0 suffice for them.
    assert bottleneck_assignment(cost, [2, 1, 1]).value == 2.0


def test_infeasible_names_the_jobs_that_compete():
    with pytest.raises(ValueError, match=r"jobs 0, 2 \(2 in all\) can use only 1 places"):
        bottleneck_assignment([[1.0, INF], [1.0, 1.0], [1.0, INF]], [1, 5])


def test_a_large_one_against_its_own_proof():
    cost = np.random.default_rng(0).random((300, 200))
    result = bottleneck_assignment(cost, np.full(200, 2))
    assert np.bincount(result.plan).max() <= 2
    assert (
        result.value
        == cost[np.arange(300), result.plan].max()
        == bottleneck_bound(cost, result.witness, np.full(200, 2))
    )


def test_no_jobs():
    result = bottleneck_assignment(np.zeros((0, 3)))
    assert (result.plan.size, result.value) == (0, -INF)
    assert bottleneck_bound(np.zeros((0, 3)), []) == -INF


@pytest.mark.parametrize(
    ("cost", "capacity", "message"),
    [
        ([[math.nan]], None, "numbers"),
        ([1.0], None, "matrix"),
        ([[1.0]], [-1], "integers"),
        ([[1.0]], [0.5], "integers"),
    ],
)
def test_bad_input_is_named(cost, capacity, message):
    with pytest.raises(ValueError, match=message):
        bottleneck_assignment(cost, capacity)


def test_a_witness_of_strangers_is_refused():
    for witness in ([3], [0, 0], [-1]):
        with pytest.raises(ValueError, match="distinct jobs"):
            bottleneck_bound([[1.0], [2.0]], witness)
