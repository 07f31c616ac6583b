"""Bounds by prices, and search and proof in turns: never beyond the brute-force optimum, proved on published workloads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from stage_samples import best_value, random_graph, stage_graph

from hetopt.algorithms.frontier_order import FrontierTooWide
from hetopt.algorithms.maxload_anneal import device_loads, fits
from hetopt.algorithms.maxload_columns import Refuter, balance_certificate, certificate_of
from hetopt.algorithms.maxload_cuts import cut_certificate
from hetopt.algorithms.maxload_noncontiguous import solve_noncontiguous
from hetopt.verify.maxload_certificates import replay

# Four classes of 3 seconds in a chain, nets of weight 1, two accelerators that pay 1 a unit each way.
CHAIN = stage_graph([[3.0]] * 4, [(v, [v, v + 1], 1.0) for v in range(3)], [2], [1.0], [1.0])


def test_a_chain_is_solved_and_proved() -> None:
    answer = solve_noncontiguous(CHAIN)
    assert answer.value == 7.0
    assert answer.optimal
    assert replay(CHAIN, answer.certificate) == answer.bound == pytest.approx(7.0)


def test_communication_is_seen_where_balance_is_blind() -> None:
    # Balance says 6; the prices refute everything below 7.
    assert replay(CHAIN, balance_certificate(CHAIN)) == pytest.approx(6.0)
    refuter = Refuter(CHAIN, 7.0)
    found = refuter.refute(6.999)
    assert replay(CHAIN, found.certificate) == 6.999
    assert refuter.refute(7.0).exhausted


def test_the_dearest_class_bounds_by_a_cut() -> None:
    # A hub of 2 seconds and two leaves of 1 behind nets of 10 keep together: 4 seconds on one of three devices.
    hub = stage_graph([[2.0], [1.0], [1.0]], [(0, [0, 1], 10.0), (0, [0, 2], 10.0)], [3], [1.0], [1.0])
    assert replay(hub, cut_certificate(hub)) == pytest.approx(4.0, rel=1e-5)
    assert cut_certificate(hub, above=4.1) is None
    answer = solve_noncontiguous(hub, max_states=0)  # without prices the cut has to do
    assert answer.value == 4.0
    assert answer.certificate["kind"] == "maxload-cut"


@pytest.mark.parametrize("seed", range(200))
def test_bound_optimum_value(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed), 5)
    best = best_value(graph)
    answer = solve_noncontiguous(graph, seed=seed, patience=10)
    if answer.device is None:
        assert answer.value == math.inf
        assert answer.bound <= best
    else:
        assert fits(graph, answer.device)
        assert answer.value == pytest.approx(device_loads(graph, answer.device).max())
        assert answer.bound <= best <= answer.value * (1 + 1e-12)
        assert answer.optimal == (answer.bound >= answer.value * (1 - 1e-7))
    if answer.certificate is not None:
        assert replay(graph, answer.certificate) >= answer.bound


@pytest.mark.parametrize("seed", range(60))
def test_without_memory_limits_most_small_graphs_are_closed(seed: int) -> None:
    graph = random_graph(np.random.default_rng(500 + seed), 5, memory=False)
    best = best_value(graph)
    answer = solve_noncontiguous(graph, seed=seed, patience=10)
    assert answer.value == pytest.approx(best)
    # The linear program may stay below; not by more than the largest class.
    assert answer.bound >= best / 2 or best == 0


@pytest.mark.parametrize("seed", range(40))
def test_nothing_reachable_is_refuted(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed), 5)
    best = best_value(graph)
    if not 0 < best < math.inf:
        pytest.skip("no plan, or nothing to do")
    refuter = Refuter(graph, 2 * best)
    below = refuter.refute(0.9 * best)
    if below.certificate is not None:
        assert replay(graph, below.certificate) == 0.9 * best
    for limit in (best, 1.3 * best):
        found = refuter.refute(limit)
        assert found.certificate is None
        assert found.exhausted


def test_refutation_stops_when_told() -> None:
    rng = np.random.default_rng(0)
    n = 40
    graph = stage_graph(
        rng.uniform(1, 2, (n, 1)).tolist(), [(v, [v, v + 1], 0.1) for v in range(n - 1)], [5], [1.0], [1.0]
    )
    refuter = Refuter(graph, 20.0)
    found = refuter.refute(12.05, most_rounds=1)
    assert found.rounds <= 1 and not found.exhausted
    assert refuter.refute(12.05, lambda: True).rounds == 0


def test_prices_become_integers_that_add_up() -> None:
    refuter = Refuter(CHAIN, 7.0)
    certificate = certificate_of(5.0, refuter.center, refuter.order, 100)
    assert sum(certificate["prices"]) == pytest.approx(2.0**40, abs=4)
    assert replay(CHAIN, certificate) == 5.0


def test_a_graph_too_wide_for_prices_still_has_a_bound() -> None:
    n = 14
    graph = stage_graph([[1.0]] * n, [(u, [u, v], 0.01) for u in range(n) for v in range(u + 1, n)], [2], [1.0], [1.0])
    with pytest.raises(FrontierTooWide):
        Refuter(graph, 100.0, max_states=50)
    answer = solve_noncontiguous(graph, max_states=50, patience=8)
    assert replay(graph, answer.certificate) == answer.bound == pytest.approx(7.0)
    assert answer.value == pytest.approx(7.0 + 49 * 0.01)


def test_what_fits_nowhere_is_infeasible() -> None:
    graph = stage_graph([[1.0], [math.inf]], [], [2], [1.0], [1.0])
    answer = solve_noncontiguous(graph)
    assert answer.device is None and answer.bound == math.inf
    large = stage_graph([[1.0], [1.0]], [], [2], [1.0], [1.0], [1.0, 5.0], [4.0])
    assert solve_noncontiguous(large).bound == math.inf


def test_tight_memory_finds_a_plan() -> None:
    # 3 + 3 + 2 + 2 + 2 bytes on two devices of 6.
    graph = stage_graph([[1.0]] * 5, [], [2], [1.0], [1.0], [3.0, 3.0, 2.0, 2.0, 2.0], [6.0])
    answer = solve_noncontiguous(graph, patience=5)
    assert answer.value == 3.0
    assert sorted(np.bincount(answer.device, graph.size).tolist()) == [6.0, 6.0]


@pytest.mark.parametrize(
    "start, sentence",
    [([0, 0, 0], "each of the 4"), ([0, 0, 0, 2], "one of the 2"), ([0, 0, 0, -1], "one of the 2")],
)
def test_a_start_that_is_no_plan_is_refused(start: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        solve_noncontiguous(CHAIN, start=np.array(start))


def test_a_start_beyond_memory_is_refused() -> None:
    graph = stage_graph([[1.0]] * 2, [], [2], [1.0], [1.0], [3.0, 3.0], [4.0])
    with pytest.raises(ValueError, match="memory"):
        solve_noncontiguous(graph, start=np.array([0, 0]))


def test_the_same_seed_gives_the_same_answer() -> None:
    graph = random_graph(np.random.default_rng(77), 12, devices=4)
    answers = [solve_noncontiguous(graph, seed=5, patience=20) for _ in range(2)]
    assert answers[0].device.tolist() == answers[1].device.tolist()
    assert answers[0].certificate == answers[1].certificate


def test_time_and_stop_are_heeded() -> None:
    reports: list[float] = []
    answer = solve_noncontiguous(CHAIN, should_stop=lambda: True, report=lambda value, device: reports.append(value))
    assert answer.device is not None and answer.bound <= 7.0
    assert reports[-1] == answer.value
    assert solve_noncontiguous(CHAIN, time_limit=0.0).bound <= 7.0


# Optima without contiguity of published workloads, in milliseconds, first proved by an exact solver on the contracted problem;
# benchmarks/noncontiguous.py has all sixteen.
PROVED = {
    "LayerGraphs/bert24_inference": 17.7147,
    "LayerGraphs/bert24_training": 39.7895,
    "OperatorGraphs/bert_l-3_inference": 21.9084,
}


@pytest.mark.parametrize("name", PROVED)
def test_published_workloads_are_proved(name: str, data_dir) -> None:  # type: ignore[no-untyped-def]
    from formulations.partition._pipeline import pipeline_of
    from hetopt.io import importers

    instance = importers.get("dnn-partitioning").load(
        data_dir / "dnn-partitioning" / "throughput-inputs" / f"{name}.json"
    )
    graph = pipeline_of(instance, "none").graph
    answer = solve_noncontiguous(graph)
    assert answer.optimal
    assert answer.value * 1e3 == pytest.approx(PROVED[name], abs=2e-4) or answer.value == pytest.approx(
        PROVED[name], abs=2e-4
    )
    assert replay(graph, answer.certificate) == pytest.approx(answer.value, rel=2e-7)
