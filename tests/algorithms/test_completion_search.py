"""Annealing for weighted completion against brute force, Smith's rule and its plain twin."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hetopt.algorithms import completion_search as kernels
from hetopt.algorithms.completion import weighted_completion
from hetopt.algorithms.completion_search import anneal_completion


def case(seed: int, n: int, m: int):
    rng = np.random.default_rng(seed)
    time = rng.integers(0, 12, (n, m)).astype(float)
    time[(rng.random((n, m)) < 0.2) & (np.arange(m) != rng.integers(0, m, (n, 1)))] = np.inf
    return time, rng.integers(0, 6, n).astype(float), rng.integers(0, 9, m).astype(float)


@pytest.mark.parametrize("seed", range(40))
def test_optimum_of_tiny_cases(seed):
    """All placements under Smith's rule; the plan is worth what it says."""
    time, weight, ready = case(seed, seed % 5 + 1, seed % 3 + 1)
    best = min(
        weighted_completion(time, plan, weight, ready=ready)
        for plan in itertools.product(*(np.flatnonzero(np.isfinite(row)) for row in time))
    )
    found = anneal_completion(time, weight, ready=ready, seed=seed, proposals=3000)
    assert found.value == weighted_completion(time, found.plan, weight, ready=ready) == best


def test_table_is_what_smith_says():
    """What a job adds is the difference of the value with and without it, also after moves."""
    time, weight, ready = case(3, 9, 3)
    time = np.where(np.isfinite(time), time, 7.0)
    seconds = np.ascontiguousarray(time.T)
    plan = np.random.default_rng(1).integers(0, 3, 9)
    added = kernels._costs(seconds, weight, ready, plan)
    for j, machine in ((0, 2), (4, 1), (4, 0), (7, 2)):
        kernels._move(seconds, weight, added, plan, j, machine)
    for j in range(9):
        rest = np.arange(9) != j
        without = weighted_completion(time[rest], plan[rest], weight[rest], ready=ready)
        for i in range(3):
            there = np.where(rest, plan, i)
            assert added[i, j] == weighted_completion(time, there, weight, ready=ready) - without


def test_compiled_and_plain_kernels_agree():
    time, weight, ready = case(5, 12, 3)
    able = np.ascontiguousarray(np.isfinite(time).T)
    seconds = np.where(able, time.T, 0.0)
    ends = []
    for run in (kernels._anneal, kernels._anneal.py_func):
        plan = np.argmin(time, axis=1)
        kept, state = plan.copy(), np.array([11], np.uint64)
        with np.errstate(over="ignore"):
            gained = run(seconds, able, weight, ready, plan, kept, state, 20.0, 1.0, 3000)
        value = weighted_completion(time, np.argmin(time, axis=1), weight, ready=ready)
        assert weighted_completion(time, kept, weight, ready=ready) == value - gained
        ends.append((gained, plan.tolist(), kept.tolist(), int(state[0])))
    assert ends[0] == ends[1]


def test_a_start_is_never_lost_and_a_wrong_one_refused():
    time, weight, ready = case(8, 9, 3)
    best = anneal_completion(time, weight, ready=ready, proposals=50_000)
    again = anneal_completion(time, weight, ready=ready, start=best.plan, proposals=1)
    assert again.value <= best.value
    barred = np.where(np.arange(3) == 0, np.inf, time)
    with pytest.raises(ValueError, match="machine that can run it"):
        anneal_completion(barred, weight, start=np.zeros(9, np.int64))


def test_stops_and_reports():
    time, weight, ready = case(9, 30, 4)
    told = []
    found = anneal_completion(time, weight, ready=ready, should_stop=lambda: len(told) >= 2, report=told.append)
    assert 2 <= len(told) <= 3
    assert [plan.value for plan in told] == sorted((plan.value for plan in told), reverse=True)
    assert told[-1].value == found.value
