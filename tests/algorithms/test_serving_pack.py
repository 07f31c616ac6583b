"""Disjoint chains by construction, and what CP-SAT's silence means."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hetopt.algorithms import serving_pack
from hetopt.algorithms.serving_flow import plan_value
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.algorithms.serving_pack import pack
from hetopt.algorithms.serving_sat import solve_model
from hetopt.io.generate_serving import serving
from hetopt.verify.serving import max_flow


def line(order: list[int], rates: list[float], capacity: float) -> ServingNetwork:
    """Nodes of two layers each, linked in this order only."""
    n = len(order)
    link, source, sink = np.zeros((n, n)), np.zeros(n), np.zeros(n)
    for a, b in itertools.pairwise(order):
        link[a, b] = capacity
    source[order[0]] = sink[order[-1]] = 100.0
    throughput = np.zeros((n, 3))
    throughput[:, 1] = rates
    throughput[:, 2] = np.array(rates) / 2
    return ServingNetwork(2 * n - 1, throughput, link, source, sink)


def test_the_only_path_is_found_by_hand() -> None:
    # five layers on three nodes: two of them keep two layers, and 4 is the most that both can pass at once
    network = line([2, 0, 1], [8.0, 8.0, 10.0], 20.0)
    start, hold = pack(network)
    assert plan_value(network, start, hold) == 4.0
    assert start[2] == 0 and start[2] + hold[2] == start[0] and start[0] + hold[0] == start[1] and hold.sum() == 5


def test_a_slow_link_is_taken_where_there_is_no_other() -> None:
    network = line([2, 0, 1], [8.0, 8.0, 10.0], 1.5)
    start, hold = pack(network)
    assert plan_value(network, start, hold) == 1.5


def test_nothing_is_found_where_the_links_end() -> None:
    network = line([2, 0, 1], [8.0, 8.0, 10.0], 20.0)
    cut = ServingNetwork(5, network.throughput, network.link * 0, network.source, network.sink)
    assert not pack(cut)[1].any()
    short = ServingNetwork(7, network.throughput, network.link, network.source, network.sink)
    assert not pack(short)[1].any()


def test_several_chains_serve_side_by_side() -> None:
    # two separate pairs of equal nodes
    link = np.zeros((4, 4))
    link[0, 1] = link[2, 3] = 9.0
    ends = np.array([[9.0, 0, 9, 0], [0, 9, 0, 9]])
    network = ServingNetwork(2, np.tile([0.0, 5.0], (4, 1)), link, ends[0], ends[1])
    start, hold = pack(network)
    assert plan_value(network, start, hold) == 10.0
    assert start.tolist() == [0, 1, 0, 1] and hold.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(6))
def test_chains_are_plans_of_distinct_nodes_and_the_same_again(seed: int) -> None:
    network = serving(14, 24, seed, types=3, clusters=1 + seed % 3, density=0.35, spare=2.5)
    seen: list[float] = []
    start, hold = pack(network, report=lambda s, h: seen.append(plan_value(network, s, h)))
    value = max_flow(network, start, hold).value  # raises unless every interval is one that its node can keep
    assert value > 0
    assert seen and max(seen) <= value * (1 + 1e-9)
    again = pack(network)
    assert (again[0] == start).all() and (again[1] == hold).all()


def test_the_search_equals_its_plain_twin() -> None:
    network = serving(12, 20, 3, types=3, density=0.4, spare=2.0)
    for rate in np.unique(network.throughput[network.throughput > 0])[::7]:
        keep = serving_pack.keeps(network, float(rate))
        answers = []
        for search in (serving_pack._search, serving_pack._search.py_func):
            nodes, kept = np.zeros(12, np.int64), np.zeros(12, np.int64)
            number = search(
                20, keep, network.link >= rate, network.source >= rate, network.sink >= rate, np.ones(12), keep > 0, 500,
                nodes, kept,
            )  # fmt: skip
            answers.append((number, nodes[:number].tolist(), kept[:number].tolist()))
            if number:
                assert sum(kept[:number]) == 20 and len(set(nodes[:number].tolist())) == number
        assert answers[0] == answers[1]


def test_a_run_without_a_bound_proves_nothing() -> None:
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    model = cp_model.CpModel()
    x = [model.new_int_var(1, 9, "") for _ in range(300)]
    rng = np.random.default_rng(0)
    for _ in range(600):
        chosen = rng.choice(300, 5, replace=False)
        model.add(sum(int(w) * x[k] for w, k in zip(rng.integers(1, 9, 5), chosen, strict=True)) <= 60)
    model.maximize(sum(x))
    answer = solve_model(model, seed=0, effort=1e-9)
    assert answer.status != "unknown" or answer.bound == float("inf")
    assert answer.bound >= 300
