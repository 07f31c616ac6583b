"""Balance and minimum-cut bounds against a linear program and against every part that holds a class."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog
from stage_cases import brute_force, random_case

from hetopt.algorithms import maxload_bounds as module
from hetopt.algorithms.contraction import contract
from hetopt.algorithms.maxload_bounds import balance, min_cut
from hetopt.algorithms.stagecosts import NEVER, integer_costs, integer_sizes


def fractional(time: np.ndarray, count: np.ndarray) -> float:
    """Least T with each class split fractionally over types and no type busy for more than its devices times T."""
    n, t = time.shape
    allowed = [(v, k) for v in range(n) for k in range(t) if np.isfinite(time[v, k])]
    equal = np.zeros((n, len(allowed) + 1))
    busy = np.zeros((t, len(allowed) + 1))
    busy[:, -1] = -count
    for x, (v, k) in enumerate(allowed):
        equal[v, x] = 1
        busy[k, x] = time[v, k]
    goal = np.zeros(len(allowed) + 1)
    goal[-1] = 1
    found = linprog(goal, A_ub=busy, b_ub=np.zeros(t), A_eq=equal, b_eq=np.ones(n), method="highs")
    return found.fun if found.status == 0 else math.inf


@pytest.mark.parametrize("types", [1, 2, 3, 4])
def test_balance_is_the_fractional_optimum_from_below(types):
    rng = np.random.default_rng(types)
    for _ in range(25):
        time = rng.integers(0, 20, (8, types)) * rng.random((8, types))
        time[rng.random((8, types)) < 0.2] = np.inf
        count = rng.integers(1, 4, types)
        value, prices = balance(time, count)
        exact = fractional(time, count)
        assert value <= exact * (1 + 1e-12) or math.isinf(exact)
        if math.isinf(exact):
            assert math.isinf(value)
        else:
            assert value == pytest.approx(exact, rel=1e-6, abs=1e-9)
            assert (prices >= 0).all()


def test_balance_of_a_constant_speed_up_is_work_over_devices():
    # 12 seconds of work on 2 accelerators and a CPU five times as slow: 12 / (2 + 1 / 5)
    time = np.array([[4.0, 20.0], [8.0, 40.0]])
    assert balance(time, np.array([2, 1]))[0] == pytest.approx(12 / 2.2, rel=1e-12)


def test_balance_ignores_types_without_devices_and_reports_classes_without_a_device():
    time = np.array([[1.0, 5.0], [np.inf, 5.0]])
    assert balance(time, np.array([0, 2]))[0] == pytest.approx(5.0)
    assert math.isinf(balance(time, np.array([2, 0]))[0])
    assert balance(np.zeros((0, 2)), np.array([1, 1]))[0] == 0.0


def least_load(graph, v: int, t: int) -> float:
    others = [w for w in range(graph.n) if w != v]
    best = math.inf
    for k in range(len(others) + 1):
        for rest in itertools.combinations(others, k):
            part = np.zeros(graph.n, bool)
            part[[v, *rest]] = True
            best = min(best, graph.load(part, t))
    return best


@pytest.mark.parametrize("directed", [False, True])
def test_min_cut_is_the_least_load_of_the_worst_class(directed):
    for seed in range(60):
        case = random_case(np.random.default_rng(seed), 6, directed=directed, training=bool(seed % 2))
        case["count"] = np.ones(len(case["count"]), np.int64)
        graph = contract(**case, merge_zero_time=False)
        expected = max(min(least_load(graph, v, t) for t in range(graph.types)) for v in range(graph.n))
        costs, unit = integer_costs(graph)
        bound, _ = min_cut(costs)
        assert (math.inf if bound >= NEVER else bound * unit) == expected


def test_bounds_stay_below_the_optimum_of_any_placement():
    finite = 0
    for seed in range(150):
        case = random_case(np.random.default_rng(1000 + seed), 5, directed=bool(seed % 2), training=bool(seed % 3 == 0))
        best = brute_force(case, contiguity="none")
        graph = contract(**case, contiguous=False)
        used = case["count"] > 0
        if not used.any() or math.isinf(best):
            continue
        finite += 1
        assert balance(graph.time, graph.count)[0] <= best
        costs, unit = integer_costs(graph)
        keep = np.flatnonzero(used)
        costs = costs._replace(time=costs.time[keep], arrive=costs.arrive[keep], leave=costs.leave[keep])
        assert min_cut(costs)[0] * unit <= best
    assert finite > 60


def test_a_stopped_cut_is_still_a_bound():
    case = random_case(np.random.default_rng(5), 7)
    case["count"] = np.ones(len(case["count"]), np.int64)
    costs, _ = integer_costs(contract(**case))
    whole = min_cut(costs)[0]
    for effort in (0, 1, 5, 20, 100):
        assert min_cut(costs, start=1, effort=effort)[0] <= max(whole, 1)
    assert min_cut(costs, start=7, should_stop=lambda: True) == (7, 0)


def test_flow_kernel_equals_its_plain_twin(monkeypatch):
    for seed in range(5):
        case = random_case(np.random.default_rng(seed), 8, directed=True)
        case["count"] = np.ones(len(case["count"]), np.int64)
        costs, _ = integer_costs(contract(**case))
        compiled = min_cut(costs)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_augment", module._augment.py_func)
            assert min_cut(costs) == compiled


def test_integer_costs_never_exceed_the_true_ones():
    """Against exact fractions, with rates and times that have no short binary form."""
    rng = np.random.default_rng(2)
    case = random_case(rng, 9, training=True)
    case |= {"time": rng.random((9, 2)) / 3, "weight": rng.random(9), "count": np.array([2, 1])}
    case |= {"rate_in": np.array([1 / 3, 0.0]), "rate_out": np.array([0.7, 0.0]), "memory": np.full(2, np.inf)}
    case |= {"size": np.ones(9), "edges": np.array([(a, b) for a in range(9) for b in range(a + 1, 9)])}
    case |= {"group": np.full(9, -1), "backward": np.arange(9) > 5}
    graph = contract(**case, contiguous=False)
    for passes in (False, True):
        costs, unit = integer_costs(graph, passes)
        step = Fraction(unit)
        for t in range(2):
            for v in range(graph.n):
                whole, back = Fraction(graph.time[v, t]), Fraction(graph.backward_time[v, t])
                for p, true in enumerate([whole - back, back] if passes else [whole, Fraction(0)]):
                    assert 0 <= true - int(costs.time[t, p, v]) * step <= true / 2**52 + step
        if passes:
            for h in range(len(graph.net_weight)):
                for t in range(2):
                    for name, rate in (("arrive", graph.rate_in), ("leave", graph.rate_out)):
                        true = Fraction(graph.net_weight[h]) * Fraction(rate[t])
                        assert 0 <= true - int(getattr(costs, name)[t, h]) * step <= true / 2**52 + step


def test_integer_sizes_round_the_way_they_are_asked_to():
    case = random_case(np.random.default_rng(1), 6)
    case |= {"size": np.array([0.1, 0.2, 1e-20, 1.0, 7.0, 1 / 3]), "count": np.array([1]), "memory": np.array([5.0])}
    case |= {"time": np.ones((6, 1)), "weight": np.ones(6), "group": np.full(6, -1), "backward": np.zeros(6, bool)}
    case |= {"rate_in": np.ones(1), "rate_out": np.ones(1), "edges": np.zeros((0, 2), int)}
    graph = contract(**case)
    down, room, exact = integer_sizes(graph, up=False)
    up, _, _ = integer_sizes(graph, up=True)
    assert not exact and (up - down).max() == 1 and (up >= down).all()
    assert room[0] < NEVER
    case |= {"size": np.arange(6.0), "memory": np.array([15.0])}
    assert integer_sizes(contract(**case), up=False)[2]
