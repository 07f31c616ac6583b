"""The makespan search: plans never get worse, bounds stay below the optimum, the same seed gives the same answer."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hetopt.algorithms.makespan_bounds import lp_relaxation, reduced_costs
from hetopt.algorithms.makespan_exchange import Schedule, candidates, exchange
from hetopt.algorithms.makespan_group import place_anew
from hetopt.algorithms.makespan_search import climb, list_schedule, makespan
from hetopt.algorithms.makespan_settle import settle
from hetopt.io.generate_unrelated import unrelated
from hetopt.verify.makespan_certificates import replay


def optimum(time: np.ndarray, ready: np.ndarray) -> float:
    """Smallest makespan over all plans; machines without a job do not count."""
    n, m = time.shape
    plans = (np.array(plan) for plan in itertools.product(range(m), repeat=n))
    return min(makespan(time, plan, ready) for plan in plans if np.isfinite(time[np.arange(n), plan]).all())


@pytest.mark.parametrize("seed", range(12))
def test_climb_stands_between_its_bound_and_the_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 7)), int(random.integers(1, 4))
    time = random.integers(1, 30, (n, m)).astype(float) if seed % 2 else random.uniform(1, 30, (n, m)).round(2)
    time[(random.random((n, m)) < 0.2) & (np.arange(m) != random.integers(0, m, (n, 1)))] = np.inf
    ready = random.integers(0, 10, m).astype(float)
    found, best = climb(time, ready=ready, rotations=1), optimum(time, ready)
    assert found.value == pytest.approx(best, rel=1e-12)
    assert found.bound <= best
    assert replay(time, found.certificate, ready) == found.bound


def test_climb_keeps_exact_costs_where_a_machine_can_run_nothing() -> None:
    time = np.array([[math.inf, 0.01], [math.inf, 0.01]])
    assert climb(time, rotations=1).value == pytest.approx(0.02)


@pytest.mark.parametrize("kind", ["jobcorr", "u_i_hilo"])
def test_the_same_seed_gives_the_same_answer_and_each_report_is_better(kind: str) -> None:
    time = unrelated(kind, 20, 5, 3)
    values: list[float] = []

    def report(plan=None, value=None, bound=None, certificate=None) -> None:
        if value is not None:
            values.append(value)

    first, second = (climb(time, seed=5, rotations=1, report=told) for told in (report, None))
    assert (first.plan == second.plan).all()
    assert first.bound == second.bound
    assert sorted(set(values), reverse=True) == values
    assert values[-1] == makespan(time, first.plan) <= makespan(time, list_schedule(time, np.zeros(5)))


def test_exchanges_reach_a_balance_that_the_list_rule_misses() -> None:
    time = unrelated("u10_100", 40, 4, 1)
    plan, ready = list_schedule(time, np.zeros(4)), np.zeros(4)
    relaxation = lp_relaxation(time)
    reduced = reduced_costs(time, relaxation.weights) * 4
    choice = candidates(time, reduced, 3, plan)
    assert (choice.start[1:] - choice.start[:-1]).min() >= 2
    schedule = Schedule(hot=3.0, cold=0.03, pull=0.1, group=3, half=256, checks=200, steps=3000)
    value, better = exchange(time, ready, plan, choice, float(relaxation.bound), schedule, 1, lambda: False)
    assert value == makespan(time, better) < makespan(time, plan)
    again = exchange(time, ready, plan, choice, float(relaxation.bound), schedule, 1, lambda: False)
    assert (again[1] == better).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_group_placed_anew_with_all_pairs_is_optimal(seed: int) -> None:
    random = np.random.default_rng(seed)
    time = random.uniform(1, 30, (6, 3)).round(2)
    time[(random.random((6, 3)) < 0.2) & (np.arange(3) != 0)] = np.inf
    ready, plan = random.uniform(0, 5, 3), np.zeros(6, dtype=np.int64)
    anew = place_anew(time, ready, plan, np.arange(3), np.isfinite(time), nodes=10_000)
    best = min(
        (ready + np.bincount(other, time[np.arange(6), list(other)], 3)).max()
        for other in itertools.product(range(3), repeat=6)
        if np.isfinite(time[np.arange(6), list(other)]).all()
    )
    placed = plan if anew is None else anew
    assert (ready + np.bincount(placed, time[np.arange(6), placed], 3)).max() == pytest.approx(best, rel=1e-5)


def test_a_group_leaves_the_other_machines_alone_and_never_gets_worse() -> None:
    time = unrelated("u_i_hihi", 60, 6, 2)
    plan, group = list_schedule(time, np.zeros(6)), np.array([1, 2, 5])
    anew = place_anew(time, np.zeros(6), plan, group, np.ones((60, 6), dtype=bool), nodes=200)
    assert anew is not None
    outside = ~np.isin(plan, group)
    assert (anew[outside] == plan[outside]).all()
    assert np.isin(anew[~outside], group).all()
    load = lambda of: np.bincount(of, time[np.arange(60), of], 6)[group].max()  # noqa: E731
    assert load(anew) < load(plan)
    # Without other pairs than the plan's own there is nothing to gain.
    assert place_anew(time, np.zeros(6), plan, group, np.zeros((60, 6), dtype=bool), nodes=200) is None


@pytest.mark.parametrize("seed", range(4))
def test_whole_times_placed_anew_end_at_the_best_whole_makespan(seed: int) -> None:
    random = np.random.default_rng(seed)
    time, everyone = random.integers(1, 30, (6, 3)).astype(float), np.arange(3)
    plan, free = np.zeros(6, dtype=np.int64), np.zeros(3)
    best = optimum(time, free)
    for least in (0.0, best):
        anew = place_anew(time, free, plan, everyone, np.ones((6, 3), dtype=bool), nodes=10_000, least=least)
        assert anew is not None
        assert makespan(time, anew) == best
        assert place_anew(time, free, anew, everyone, np.ones((6, 3), dtype=bool), nodes=10_000, least=least) is None
    large = place_anew(1e5 * time, free, plan, everyone, np.ones((6, 3), dtype=bool), nodes=10_000, least=0.0)
    assert large is not None
    assert makespan(time, large) == best


def test_settling_many_jobs_comes_close_to_the_bound() -> None:
    time = unrelated("u1_100", 6000, 12, 1)
    relaxation = lp_relaxation(time)
    plan = settle(time, np.zeros(12), relaxation, float(relaxation.bound))
    assert relaxation.bound <= makespan(time, plan) <= 1.01 * relaxation.bound
