"""The search for serving plans against brute force, and its pieces against small cases worked out by hand."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from hetopt.algorithms.serving import solve_serving
from hetopt.algorithms.serving_baselines import baselines, even_split, petals_like, separate_pipelines, swarm_like
from hetopt.algorithms.serving_blocks import BlockTable, leaf_kinds, plain_kinds
from hetopt.algorithms.serving_climb import climb
from hetopt.algorithms.serving_construct import Candidate
from hetopt.algorithms.serving_exact import solve_small
from hetopt.algorithms.serving_flow import plan_value
from hetopt.algorithms.serving_network import ServingNetwork, equal_nodes, strong_components
from hetopt.algorithms.serving_paths import find_paths, keeps
from hetopt.algorithms.serving_pricing import Items, cheapest_patterns
from hetopt.algorithms.serving_view import gateways, look, transport
from hetopt.io.generate_serving import serving
from hetopt.verify.serving import max_flow
from hetopt.verify.serving_bound import check_bound


def best_plan(network: ServingNetwork) -> float:
    """Optimum by trying all intervals on all nodes."""
    choices = [
        [(0, 0)]
        + [(s, int(k)) for k in np.flatnonzero(t[: network.layers + 1]) for s in range(network.layers - int(k) + 1)]
        for t in network.throughput
    ]
    return max(
        plan_value(network, np.array([s for s, _ in plan]), np.array([k for _, k in plan]))
        for plan in itertools.product(*choices)
    )


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("seed", range(12))
def test_tiny_networks_are_solved(seed: int, partial: bool) -> None:
    rng = np.random.default_rng(seed)
    network = serving(
        int(rng.integers(2, 5)),
        int(rng.integers(2, 5)),
        seed,
        types=2,
        clusters=1 + seed % 2,
        spare=1.5,
        partial=partial,
    )
    optimum = best_plan(network)
    answer = solve_serving(network)
    assert answer.value == pytest.approx(optimum, rel=1e-9)
    assert answer.value == max_flow(network, answer.start, answer.hold).value
    assert optimum * (1 - 1e-12) <= answer.bound <= optimum * (1 + 1e-6)
    assert check_bound(network, answer.certificate) >= optimum


def test_joining_inside_an_interval_gains_by_hand() -> None:
    """Three layers; a keeps two, b keeps two, neither three: only b's second layer is left for what comes from a."""
    throughput = np.array([[0, 0, 6.0], [0, 0, 5.0]])
    link = np.array([[0, 4.0], [0, 0]])
    whole = ServingNetwork(3, throughput, link, np.full(2, 9.0), np.full(2, 9.0))
    joining = ServingNetwork(3, throughput, link, np.full(2, 9.0), np.full(2, 9.0), partial=True)
    assert solve_serving(whole).value == 0.0
    answer = solve_serving(joining)
    assert answer.value == 4.0
    assert answer.start.tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_never_worse_than_the_rules_and_the_same_again(seed: int) -> None:
    network = serving(
        9, 16, seed, types=3, clusters=1 + seed % 3, slow=0.1, density=1.0 if seed < 2 else 0.5, spare=2.0
    )

    def ticks() -> object:
        left = iter(range(60))
        return lambda: next(left, None) is None

    first, second = (solve_serving(network, should_stop=ticks()) for _ in range(2))  # type: ignore[arg-type]
    rules = max(max_flow(network, *plan).value for plan in baselines(network).values())
    assert rules <= first.value <= first.bound
    assert (first.start.tolist(), first.hold.tolist(), first.bound) == (
        second.start.tolist(),
        second.hold.tolist(),
        second.bound,
    )


def test_reports_rise_and_a_stop_at_once_leaves_an_answer() -> None:
    network = serving(8, 12, 2, types=2, clusters=2, slow=0.1)
    values, bounds = [], []
    answer = solve_serving(
        network,
        should_stop=lambda: True,
        report=lambda start, hold: values.append(max_flow(network, start, hold).value),
        report_bound=lambda bound, proof, certificate: bounds.append(bound),
    )
    assert values == sorted(values)
    assert bounds == sorted(bounds, reverse=True)
    assert (values[-1], bounds[-1]) == (answer.value, answer.bound)
    assert answer.value >= max(max_flow(network, *plan).value for plan in baselines(network).values())


def test_a_plan_at_hand_is_not_lost() -> None:
    network = serving(5, 6, 2, types=2, clusters=2, slow=0.1)
    good = solve_serving(network)
    again = solve_serving(network, plan=(good.start, good.hold), should_stop=lambda: True)
    assert again.value >= good.value


# Rules ----------------------------------------------------------------------------------------------------------------


def four_nodes() -> ServingNetwork:
    """Four layers; a and b keep up to two (rates 8, 4), c and d up to four (6, 3, 2, 1.5); all linked with 100."""
    throughput = np.array([[0, 8, 4, 0, 0]] * 2 + [[0, 6, 3, 2, 1.5]] * 2, dtype=float)
    return ServingNetwork(4, throughput, 100.0 * (1 - np.eye(4)), np.full(4, 100.0), np.full(4, 100.0))


def test_rules_by_hand() -> None:
    network = four_nodes()
    # Two stages of two layers; a and c serve the first, b and d the second: 4 + 3.
    assert max_flow(network, *even_split(network)).value == 7.0
    # Fastest first: a and d on the first stage (4 + 3), b and c on the second.
    assert max_flow(network, *swarm_like(network)).value == 7.0
    # a and b form one chain of rate 4; c and d are two pipelines of one node each, of rate 1.5.
    assert max_flow(network, *separate_pipelines(network)).value == 7.0
    # a takes layers 0-1, b layers 2-3, c and d all four.
    plan = petals_like(network)
    assert (plan.start.tolist(), plan.hold.tolist()) == ([0, 2, 0, 0], [2, 2, 4, 4])
    assert max_flow(network, *plan).value == 7.0


def test_climbing_moves_a_boundary_and_a_node() -> None:
    """One node that keeps 3 of 4 layers at rate 2 and one at 6 become two with two layers each: 3."""
    throughput = np.array([[0, 6, 3, 2, 0]] * 3, dtype=float)
    network = ServingNetwork(4, throughput, 100.0 * (1 - np.eye(3)), np.full(3, 100.0), np.full(3, 100.0))
    start, hold = np.array([0, 3, 0]), np.array([3, 1, 0])
    better = climb(network, Candidate(plan_value(network, start, hold), start, hold))
    # two layers each is 3; the third node beside one of them does not help; 1 + 1 + 2 layers is 3 too.
    assert better.value == 3.0


# Pieces ---------------------------------------------------------------------------------------------------------------


def test_the_cheapest_block_is_two_lanes() -> None:
    """Two layers at rate 10: a node of price 1 keeps one layer at 5 or two at 5; one of price 3 keeps two at 10.

    Two cheap nodes side by side cost 2.
    """
    keep, rate = np.array([2, 2]), np.array([5, 10])
    table = BlockTable(keep, rate, np.array([1.0, 3.0]), np.zeros(2, dtype=np.int64), plain_kinds(), 2, 10)
    cost, block = next((c, b) for c, b in table.blocks() if b.layers == 2)
    assert cost == 2.0
    assert [(p.item, p.start, p.keep, p.rate) for p in block.pieces] == [(0, 0, 2, 5), (0, 0, 2, 5)]


def test_blocks_of_leaves_must_meet_hubs() -> None:
    """Leaves (kind 2) cannot follow each other inside a block: two layers by two leaves in series are no block."""
    keep, rate = np.array([1]), np.array([10])
    table = BlockTable(keep, rate, np.array([1.0]), np.array([2]), leaf_kinds(), 2, 10)
    assert {b.layers for _, b in table.blocks()} == {1}


@pytest.mark.parametrize("seed", range(10))
def test_cheapest_patterns_against_all_multisets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(3), 2)
    items = Items(group, np.tile([1, 2], 3), rng.integers(2, 10, 6), rng.integers(1, 4, 3), 12)
    price = rng.integers(1, 30, 6)
    best = 200
    for counts in itertools.product(range(4), repeat=6):
        used = np.bincount(group, weights=counts, minlength=3)
        if (used <= items.copies).all() and np.dot(counts, items.rate) >= items.target:
            best = min(best, int(np.dot(counts, price)))
    least, found = cheapest_patterns(items, price, np.zeros(6, dtype=np.int64), limit=200)
    assert least == best
    for cost, pattern in found:
        assert cost == price[list(pattern.item)].sum()
        assert sum(pattern.flow) == items.target
        assert all(f <= items.rate[j] for j, f in zip(pattern.item, pattern.flow, strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_transport_is_a_largest_flow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, q = rng.integers(1, 4, 2)
    ending, starting, capacity = rng.integers(1, 9, p), rng.integers(1, 9, q), rng.integers(0, 5, (p, q))
    graph = nx.DiGraph()
    for i in range(p):
        graph.add_edge("s", ("a", i), capacity=int(ending[i]))
        for j in range(q):
            graph.add_edge(("a", i), ("b", j), capacity=int(capacity[i, j]))
    for j in range(q):
        graph.add_edge(("b", j), "t", capacity=int(starting[j]))
    value = transport(ending.astype(float), starting.astype(float), capacity.astype(float))
    assert value == nx.maximum_flow_value(graph, "s", "t")


def test_clusters_and_gateways_are_seen() -> None:
    network = serving(10, 16, 1, types=2, clusters=2, slow=0.15, spare=2.0)
    rate = float(network.throughput.max()) / 6
    view = look(network, rate, strict=True)
    assert (view.cluster == strong_components(network, network.throughput.max())).all()
    found = gateways(network, view)
    assert found
    for gateway in found:
        exits, entries = list(gateway.exits), list(gateway.entries)
        assert len(set(view.cluster[exits])) == len(set(view.cluster[entries])) == 1
        link = network.link[np.ix_(exits, entries)]
        give, take = np.array(gateway.exit_flow), np.array(gateway.entry_flow)
        assert give.sum() == pytest.approx(rate)
        assert take.sum() == pytest.approx(rate)
        assert (give <= network.throughput[exits, gateway.exit_keep] * (1 + 1e-12)).all()
        assert (take <= network.throughput[entries, gateway.entry_keep] * (1 + 1e-12)).all()
        assert transport(give, take, link) >= rate * (1 - 1e-9)


def test_paths_along_the_only_links_by_hand() -> None:
    """Links 0 -> 2 -> 1 only; at rate 5 the nodes keep 2, 1 and 3 layers of 6."""
    throughput = np.array([[0, 9, 5, 4], [0, 5, 1, 0], [0, 9, 8, 5]], dtype=float)
    link = np.array([[0, 0, 7], [0, 0, 0], [0, 6, 0]], dtype=float)
    network = ServingNetwork(6, throughput, link, np.array([9.0, 0, 0]), np.array([0, 9.0, 0]))
    assert keeps(network, 5.0).tolist() == [2, 1, 3]
    found = find_paths(network, 5.0)
    assert found is not None
    assert (found[0].tolist(), found[1].tolist()) == ([0, 5, 2], [2, 1, 3])
    assert find_paths(network, 5.5) is None


def test_nodes_are_equal_when_nothing_tells_them_apart() -> None:
    network = four_nodes()
    assert equal_nodes(network).tolist() == [0, 0, 1, 1]
    link = np.array(network.link)
    link[0, 2] = 1.0  # below what either end can carry
    other = ServingNetwork(4, network.throughput, link, network.source, network.sink)
    assert equal_nodes(other).tolist() == [0, 1, 2, 3]


def test_a_bound_next_to_nothing_is_no_overflow():
    """Two nodes without a way between them: the bound of what they serve may be as small as a number can be."""
    alone = np.zeros((2, 2))
    network = ServingNetwork(2, np.array([[0.0, 9.0]] * 2), alone, np.ones(2), np.ones(2), ("a", "b"))
    assert solve_small(network, 5e-324).bound <= 5e-324
