"""Frontier sweeps: every set is a path with its load; the pricing bound is a bound, and exact when buckets are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from stage_samples import random_graph, stage_graph

from hetopt.algorithms import frontier_pricing
from hetopt.algorithms.frontier_order import FrontierTooWide, frontier, node_orders, restrict, thinnest_frontier
from hetopt.algorithms.frontier_pricing import _sweep, best_set, most_profit
from hetopt.algorithms.stagegraph import StageGraph


def walk(sweep, part):  # type: ignore[no-untyped-def]
    """Loads of the set and of its complement along the sweep, or None when the path is cut off."""
    state, load, other = 0, 0.0, 0.0
    for v in sweep.order.tolist():
        x = int(part[v])
        load += sweep.load[state, x]
        other += sweep.other[state, x]
        state = sweep.target[state, x]
        if state < 0:
            return None
    return load, other


def parts(n: int) -> list[np.ndarray]:
    return [np.array(p, dtype=bool) for p in itertools.product((False, True), repeat=n)]


def best_profit(graph: StageGraph, t: int, profit: np.ndarray, limit: float) -> float:
    return max(profit[p].sum() for p in parts(graph.n) if graph.load(p, t) <= limit)


def test_a_chain_of_two_by_hand() -> None:
    # 0 -> 1 with weight 4; the device pays 1 a unit in and 0.5 a unit out.
    graph = stage_graph([[3.0], [5.0]], [(0, [0, 1], 4.0)], [2], [1.0], [0.5])
    sweep = frontier(graph, np.array([0, 1]), 0)
    assert walk(sweep, [True, True])[0] == 8
    assert walk(sweep, [True, False])[0] == 3 + 2
    assert walk(sweep, [False, True])[0] == 5 + 4
    assert walk(sweep, [False, False])[0] == 0
    # Within 8.5 seconds class 1 alone (9) is out.
    assert walk(frontier(graph, np.array([0, 1]), 0, limit=8.5), [False, True]) is None
    assert most_profit(sweep, np.array([1.0, 10.0]), 8.5, 1000) == 11
    assert most_profit(sweep, np.array([1.0, 10.0]), 7.5, 1000) == 1


@pytest.mark.parametrize("seed", range(60))
def test_every_path_is_a_set_with_its_load(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 7)
    order = rng.permutation(graph.n)
    t, u = int(rng.integers(len(graph.count))), int(rng.integers(len(graph.count)))
    sweep = frontier(graph, order, t, u)
    for part in parts(graph.n):
        load = graph.load(part, t), graph.load(~part, u)
        if np.isinf(load).any():
            assert walk(sweep, part) is None
        else:
            assert walk(sweep, part) == pytest.approx(load)


@pytest.mark.parametrize("seed", range(30))
def test_two_devices_inside_a_larger_plan(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    graph = random_graph(rng, 7)
    named = np.flatnonzero(rng.random(graph.n) < 0.7)
    t, u = int(rng.integers(len(graph.count))), int(rng.integers(len(graph.count)))
    sweep = frontier(graph, rng.permutation(named), t, u)
    for chosen in itertools.product((False, True), repeat=len(named)):
        inside, outside = np.zeros((2, graph.n), dtype=bool)
        inside[named] = chosen
        outside[named] = ~np.array(chosen, dtype=bool)
        load = graph.load(inside, t), graph.load(outside, u)
        if np.isinf(load).any():
            assert walk(sweep, inside) is None
        else:
            assert walk(sweep, inside) == pytest.approx(load)


@pytest.mark.parametrize("seed", range(60))
def test_a_limit_loses_no_set_within_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 7)
    loads = [graph.load(p, 0) for p in parts(graph.n)]
    limit = float(rng.choice([l for l in loads if np.isfinite(l)]))
    sweep = frontier(graph, rng.permutation(graph.n), 0, limit=limit)
    for part, load in zip(parts(graph.n), loads, strict=True):
        if load <= limit:
            assert walk(sweep, part) is not None


def test_restrict_keeps_only_complete_paths() -> None:
    graph = stage_graph([[1.0]] * 3, [(0, [0, 1, 2], 1.0)], [1], [1.0], [1.0])
    sweep = frontier(graph, np.arange(3), 0)
    keep = np.ones((sweep.states, 2), dtype=bool)
    keep[0, 1] = False  # class 0 stays outside
    left = restrict(sweep, keep)
    for part in parts(3):
        assert (walk(left, part) is not None) == (not part[0])
    assert left.states < sweep.states


@pytest.mark.parametrize("seed", range(80))
def test_pricing_is_a_bound_and_tight_with_exact_buckets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 7, memory=False)
    t = int(rng.integers(len(graph.count)))
    sweep = thinnest_frontier(graph, t)
    profit = np.round(rng.normal(2, 3, graph.n), 2)
    limit = float(rng.integers(1, 30))
    best = best_profit(graph, t, profit, limit)
    for buckets in (1, 3, 17):
        for slope in (0.0, 0.3, 2.0):
            assert most_profit(sweep, profit, limit, buckets, slope) >= best - 1e-9
            found = best_set(sweep, profit, limit, buckets, slope)
            if np.isfinite(found.profit):
                assert found.load == pytest.approx(graph.load(found.members, t))
                assert found.load <= limit * (1 + 1e-8)
                assert found.profit == pytest.approx(profit[found.members].sum())
                assert found.profit <= best + 1e-9
    # All loads are multiples of 0.01, or of 0.5: one bucket each.
    exact = int(limit * 200)
    assert most_profit(sweep, profit, limit, exact) == pytest.approx(best)
    assert best_set(sweep, profit, limit, exact).profit == pytest.approx(best)


def test_the_slope_tightens_coarse_buckets() -> None:
    rng = np.random.default_rng(5)
    n = 30
    time = rng.uniform(1, 2, (n, 1))
    graph = stage_graph(time.tolist(), [(v, [v, v + 1], 0.3) for v in range(n - 1)], [3], [1.0], [1.0])
    sweep = thinnest_frontier(graph, 0)
    plain, sloped = (most_profit(sweep, time[:, 0], 15.0, 40, s) for s in (0.0, 1.0))
    assert sloped < plain
    assert sloped >= best_set(sweep, time[:, 0], 15.0, 5000, 1.0).profit


@pytest.mark.parametrize("optimistic", [False, True])
def test_compiled_and_plain_kernel_agree(optimistic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    for budget in (10_000_000, 7):  # a small budget makes the sweep stop and go on in the middle of layers
        graph = random_graph(rng, 7)
        sweep, profit = thinnest_frontier(graph, 0), rng.random(graph.n)
        outcomes = []
        for kernel in (_sweep, _sweep.py_func):
            monkeypatch.setattr(frontier_pricing, "_sweep", kernel)
            monkeypatch.setattr(frontier_pricing, "_CHUNK", budget)
            if optimistic:
                outcomes.append((most_profit(sweep, profit, 12.0, 20, 0.2),))
            else:
                outcomes.append(best_set(sweep, profit, 12.0, 20, 0.2))
        for compiled, plain in zip(*outcomes, strict=True):
            np.testing.assert_array_equal(compiled, plain)


def test_orders_are_permutations_and_greedy_ones_are_thin() -> None:
    # Two interleaved chains: the topological order keeps both open, a greedy one follows one after the other.
    n = 40
    graph = stage_graph([[1.0]] * n, [(v, [v, v + 2], 1.0) for v in range(n - 2)], [2], [1.0], [1.0])
    orders = node_orders(graph)
    for order in orders:
        assert sorted(order.tolist()) == list(range(n))
    assert thinnest_frontier(graph, 0).states < frontier(graph, orders[0], 0).states


def test_too_wide_is_an_error() -> None:
    n = 12
    graph = stage_graph([[1.0]] * n, [(u, [u, v], 1.0) for u in range(n) for v in range(u + 1, n)], [2], [1.0], [1.0])
    with pytest.raises(FrontierTooWide):
        thinnest_frontier(graph, 0, max_states=100)
