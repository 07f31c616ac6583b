"""Column generation for makespan plus tardiness: sequences by hand, against brute force, and against the exact program."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from formulations.assignment.tardiness import shop_of
from hetopt.algorithms.tardiness import Shop, anneal_tardiness, best_tardiness, dispatch, tardiness_value
from hetopt.algorithms.tardiness_columns import price_tardiness
from hetopt.algorithms.tardiness_pricing import Pricer
from hetopt.io import generators
from hetopt.verify.tardiness_prices import replay_prices, slots_of


def drawn(seed: int, jobs: int, machines: int) -> Shop:
    return shop_of(generators.get("tardiness").make(jobs=jobs, machines=machines, seed=seed))


def test_memories_by_hand():
    """1 2 1 is forbidden once 2 remembers 1; 1 3 1 is not, and neither is 1 2."""
    pricer = Pricer(slots_of(*drawn(0, 5, 2), unit=1.0, horizon=60), 0)
    assert pricer.memory == []
    assert pricer.remember((1, 2, 1))
    assert pricer.memory == [[], [], [1], [], []]
    assert not pricer.remember((1, 2, 1))
    assert not pricer.allows((1, 2, 1))
    assert pricer.allows((1, 2)) and pricer.allows((1, 3, 1))
    assert pricer.allows((1, 2, 3, 1))  # 3 forgets


@pytest.mark.parametrize("seed", range(5))
def test_full_memories_find_the_best_sequence(seed):
    """All sequences of up to five jobs, with prices that make repeating worthwhile."""
    shop = drawn(seed, 5, 1)
    slots = slots_of(*shop, unit=1.0, horizon=400)
    rng = np.random.default_rng(seed)
    price = np.floor(rng.random(5) * 300 / slots.tick)
    pricer = Pricer(slots, 0)
    for sequence in permutations(range(5)):
        pricer.remember((*sequence, *sequence))
    best = math.inf
    for size in range(6):
        for jobs in permutations(range(5), size):
            one = pricer.sequence(jobs)
            best = min(best, one.cost + 3.0 * one.end - price[list(jobs)].sum())
    found = pricer.price(price, 3.0, None, 5)
    assert found.least == best
    assert any(s.cost + 3.0 * s.end - price[list(s.jobs)].sum() == best for s in found.sequences)


@pytest.mark.parametrize("seed", range(6))
def test_meets_the_exact_program(seed):
    """From the dispatching rule's plan: the optimum is found, and the bound proves it or is close."""
    shop = drawn(seed, 9, 3)
    optimum = best_tardiness(shop).value
    plans, bounds = [dispatch(shop)], [0.0]
    price_tardiness(
        shop,
        slots_of(*shop, unit=1.0, horizon=200),
        plans[:1],
        report_plan=plans.append,
        report_bound=lambda certificate: bounds.append(replay_prices(certificate, *shop)),
    )
    assert min(plan.value for plan in plans) == optimum
    assert bounds == sorted(bounds)
    assert 0.97 * optimum <= bounds[-1] <= optimum
    assert all(plan.value == tardiness_value(shop, plan.machine, plan.position) for plan in plans)


def test_the_same_run_gives_the_same_bound():
    shop, certificates = drawn(3, 12, 3), []
    for _ in range(2):
        price_tardiness(
            shop, slots_of(*shop, unit=1.0, horizon=200), [dispatch(shop)], report_bound=certificates.append
        )
    half = len(certificates) // 2
    assert certificates[:half] == certificates[half:]


def test_stops_when_told():
    shop, told = drawn(0, 20, 4), []
    price_tardiness(
        shop,
        slots_of(*shop, unit=1.0, horizon=100),
        [dispatch(shop)],
        should_stop=lambda: True,
        report_bound=told.append,
    )
    assert len(told) <= 1


def test_annealing_from_a_plan():
    """Never worse than the plan it starts from."""
    shop = drawn(1, 20, 4)
    known = anneal_tardiness(shop, seed=1, proposals=200_000)
    again = anneal_tardiness(shop, start=known, seed=2, proposals=200_000)
    assert again.value <= known.value
