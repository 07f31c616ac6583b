"""Tardiness kernels against brute force and plain twins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hetopt.algorithms import tardiness as kernels
from hetopt.algorithms.tardiness import Shop, anneal_tardiness, best_tardiness, dispatch, tardiness_value


def shop(seed: int, n: int, m: int, *, decimals: bool = False) -> Shop:
    """Small times and dates, some jobs barred from some machines, some without a due date."""
    rng = np.random.default_rng(seed)
    time, due = rng.integers(0, 12, (n, m)).astype(float), rng.integers(0, 15, n).astype(float)
    time[(rng.random((n, m)) < 0.2) & (np.arange(m) != rng.integers(0, m, (n, 1)))] = np.inf
    due[rng.random(n) < 0.2] = np.inf
    if decimals:
        time, due = time * rng.random((n, m)), due / 3
    machine_due = np.where(rng.random(m) < 0.3, np.inf, rng.integers(0, 12, m))
    weight, machine_weight = (rng.integers(0, 6, size).astype(float) for size in (n, m))
    return Shop(time, due, weight, rng.integers(0, 9, m).astype(float), machine_due, machine_weight)


@pytest.mark.parametrize("seed", range(60))
def test_exact_equals_brute_force(seed):
    """All placements in all orders; the heuristics' plans are worth what they say, and no better."""
    case = shop(seed, seed % 5 + 1, seed % 3 + 1, decimals=seed % 4 == 3)
    n = len(case.due)
    best = min(
        tardiness_value(case, np.array(machine), np.argsort(order))
        for machine in itertools.product(*(np.flatnonzero(np.isfinite(row)) for row in case.time))
        for order in itertools.permutations(range(n))
    )
    exact = best_tardiness(case)
    assert exact.value == pytest.approx(best, rel=1e-12, abs=1e-12)
    for found in (exact, dispatch(case), anneal_tardiness(case, seed=seed, proposals=2000)):
        assert found.value == tardiness_value(case, found.machine, found.position)
        assert found.value >= best * (1 - 1e-12)
        for i in range(case.time.shape[1]):
            assert sorted(found.position[found.machine == i]) == list(range((found.machine == i).sum()))


def test_value_by_hand():
    """Jobs of 3 and 2 on a machine free from 1: ends 4 and 6; machine 1 idle until 9, due at 4.

    9 + 2 max(0, 4 - 3) + 5 max(0, 6 - 7) + 10 max(0, 6 - 5) + 1 (9 - 4) = 9 + 2 + 0 + 10 + 5.
    """
    case = Shop(*map(np.array, ([[3.0, 1.0], [2.0, 1.0]], [3.0, 7.0], [2.0, 5.0], [1.0, 9.0], [5.0, 4.0], [10.0, 1.0])))
    assert tardiness_value(case, np.zeros(2, np.int64), np.array([0, 1])) == 26


def test_dispatching_rule_by_hand():
    """Machine 0 is free first and takes job 1, its shortest. Then machine 1, free at 2, takes job 0 (2 + 3 < 2 + 4).

    Then machine 0, free at 2, leaves job 2 (done at 12) to machine 1 (5 + 6 = 11), and goes off duty.
    """
    time = np.array([[4.0, 3.0], [2.0, 9.0], [10.0, 6.0]])
    case = Shop(time, np.full(3, np.inf), np.ones(3), np.array([0.0, 2.0]), np.full(2, np.inf), np.array([1.0, 2.0]))
    assert dispatch(case).machine.tolist() == [1, 0, 1]


def test_a_job_that_can_run_nowhere_has_no_plan():
    case = Shop(np.array([[np.inf]]), np.ones(1), np.ones(1), np.zeros(1), np.ones(1), np.ones(1))
    assert best_tardiness(case) is None
    assert dispatch(case) is None
    assert anneal_tardiness(case) is None


def test_too_many_jobs_are_refused():
    with pytest.raises(ValueError, match="at most 12"):
        best_tardiness(shop(0, 13, 2))


def test_annealing_finds_the_optimum_of_small_cases_and_repeats():
    for seed in range(5):
        case = shop(seed, 8, 3)
        found = anneal_tardiness(case, seed=3, proposals=100_000)
        assert found.value == best_tardiness(case).value
        assert anneal_tardiness(case, seed=3, proposals=100_000).machine.tolist() == found.machine.tolist()


def test_compiled_and_plain_kernels_agree():
    """The same moves, accepted alike, from the same random numbers; the same sets and partitions."""
    case = shop(7, 9, 3)
    time = np.ascontiguousarray(case.time.T)
    ends = []
    for run in (kernels._anneal, kernels._anneal.py_func):
        start = dispatch(case)
        order, count = np.zeros((3, 9), np.int64), np.zeros(3, np.int64)
        for j in np.argsort(start.position, kind="stable"):
            order[start.machine[j], count[start.machine[j]]] = j
            count[start.machine[j]] += 1
        kept, kept_count, state = order.copy(), count.copy(), np.array([11], np.uint64)
        with np.errstate(over="ignore"):
            value = run(time, *case[1:], order, count, kept, kept_count, state, 20.0, 1.0, 3000)
        ends.append((value, kept.tolist(), kept_count.tolist(), int(state[0])))
    assert ends[0] == ends[1]
    tables = []
    for run in (kernels._sets, kernels._sets.py_func):
        cost, last, load = np.zeros(512), np.zeros(512, np.int64), np.zeros(512)
        run(time[0], case.due, case.weight, 2.0, cost, last, load)
        tables.append((cost.tolist(), last.tolist(), load.tolist()))
    assert tables[0] == tables[1]
