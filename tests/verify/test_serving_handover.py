"""The hand-over bound against brute force, by hand, and certificates that prove less than they say."""

from __future__ import annotations

import itertools
import os
from fractions import Fraction

import numpy as np
import pytest

from hetopt.algorithms.serving_bound import configuration_bound
from hetopt.algorithms.serving_flow import plan_value
from hetopt.algorithms.serving_handover import hand_over_bound
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.io.generate_serving import serving
from hetopt.verify.serving_bound import check_bound
from hetopt.verify.serving_handover import KIND, clusters_alone, crossing

CASES = 200 if os.environ.get("HETOPT_LONG_TESTS") == "1" else 20


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


def random_network(seed: int) -> ServingNetwork:
    """Four nodes of one or two layers, three layers or four; slow links from 0 to 3, rates from 4 to 20."""
    rng = np.random.default_rng(seed)
    n, layers = (4, 4) if seed % 10 == 9 else (4, 3)
    rates = np.zeros((n, 3))
    rates[:, 1:] = rng.integers(4, 21, (n, 2)) * (rng.random((n, 2)) < [1.0, 0.7])
    link = rng.integers(0, 4, (n, n)).astype(float)
    np.fill_diagonal(link, 0.0)
    source, sink = (rng.integers(0, 2, n) * 20.0 for _ in range(2))
    return ServingNetwork(layers, rates, link, source, sink)


@pytest.mark.parametrize("seed", range(CASES))
def test_no_plan_is_above_the_bound(seed: int) -> None:
    network = random_network(seed)
    rng = np.random.default_rng([seed, 1])
    optimum = best_plan(network)
    for _ in range(2):  # any parting will do
        cluster = np.unique(rng.integers(0, 1 + int(rng.integers(1, network.n)), network.n), return_inverse=True)[1]
        fast = network.link + 30.0 * (cluster[:, None] == cluster[None, :]) * (1 - np.eye(network.n))
        joined = ServingNetwork(network.layers, network.throughput, fast, network.source, network.sink)
        best = optimum if (fast == network.link).all() else best_plan(joined)
        alone = clusters_alone(joined, cluster)
        parts = [configuration_bound(joined.restricted(np.flatnonzero(cluster == c)), links=False) for c in alone]
        limit = float(crossing(joined, cluster)) + sum(float(part["rate"]) for part in parts)
        assert best <= limit * (1 + 1e-9)
        if limit > 0:
            claim = {"kind": KIND, "rate": limit * (1 + 1e-9), "cluster": cluster.tolist(), "alone": parts}
            assert check_bound(joined, claim) == claim["rate"]


def two_sites() -> ServingNetwork:
    """Two nodes at either of two sites, three layers each and never more, seven layers: any plan needs both sites.

    Links between sites carry 2, 3, 4 and 5 one way, and half of that the other.
    """
    link = np.zeros((4, 4))
    link[np.ix_([0, 1], [2, 3])] = [[2.0, 3.0], [4.0, 5.0]]
    link[np.ix_([2, 3], [0, 1])] = [[1.0, 2.0], [1.5, 2.5]]
    link[0, 1] = link[1, 0] = link[2, 3] = link[3, 2] = 50.0
    throughput = np.tile([0.0, 60.0, 30.0, 20.0], (4, 1))
    return ServingNetwork(7, throughput, link, np.full(4, 60.0), np.full(4, 60.0))


def test_two_sites_by_hand() -> None:
    network = two_sites()
    sites = np.array([0, 0, 1, 1])
    # three nodes hold seven layers: one to spare, one crossing, three pairs at most
    assert clusters_alone(network, sites) == []
    assert crossing(network, sites) == Fraction(5 + 4 + 3)
    claim = {"kind": KIND, "rate": 12.0001, "cluster": sites.tolist(), "alone": []}
    assert check_bound(network, claim) == 12.0001
    assert hand_over_bound(network, below=np.inf)["rate"] == pytest.approx(12.0)
    # with twelve layers there is none to spare; the sites hold six each
    full = ServingNetwork(12, network.throughput, network.link, network.source, network.sink)
    assert crossing(full, sites) == Fraction(5)


def test_three_sites_are_crossed_twice() -> None:
    n = 6
    link = np.full((n, n), 1.0) - np.eye(n)
    throughput = np.tile([0.0, 9.0, 9.0], (n, 1))
    network = ServingNetwork(10, throughput, link, np.full(n, 9.0), np.full(n, 9.0))
    # each site holds four layers of ten; five nodes hold them, so one is to spare: (2 + 2) pairs for two crossings
    assert crossing(network, np.array([0, 0, 1, 1, 2, 2])) == Fraction(4, 2)


def test_a_site_that_may_serve_alone_needs_a_certificate() -> None:
    network = serving(6, 8, 1, types=2, clusters=2, slow=0.05, spare=3.0)
    found = hand_over_bound(network, below=np.inf)
    assert found is not None and found["alone"]
    assert check_bound(network, found) == found["rate"]
    with pytest.raises(ValueError, match="may serve alone"):
        check_bound(network, {**found, "alone": found["alone"][1:]})
    cheaper = [{**part, "rate": part["rate"] * 0.5} for part in found["alone"]]
    with pytest.raises(ValueError, match=r"do not exclude|hand-overs allow"):
        check_bound(network, {**found, "alone": cheaper})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rate": 12.0}, "hand-overs allow a rate of 12"),
        ({"rate": -1.0}, "positive"),
        ({"rate": float("inf")}, "positive"),
        ({"cluster": [0, 0, 1]}, "clusters of 3 nodes"),
        ({"cluster": [0, 0, 1, -1]}, "clusters of 4 nodes"),
        ({"cluster": [0, 0, 0, 0]}, "may serve alone"),
        ({"alone": [{}]}, "may serve alone"),
    ],
    ids=["low", "negative", "infinite", "short", "below-zero", "one-cluster", "too-many"],
)
def test_certificates_that_prove_less_are_refused(change: dict[str, object], sentence: str) -> None:
    claim = {"kind": KIND, "rate": 12.0001, "cluster": [0, 0, 1, 1], "alone": []}
    with pytest.raises(ValueError, match=sentence):
        check_bound(two_sites(), {**claim, **change})


def test_joining_inside_an_interval_is_refused() -> None:
    network = two_sites()
    joining = ServingNetwork(7, network.throughput, network.link, network.source, network.sink, partial=True)
    claim = {"kind": KIND, "rate": 12.0001, "cluster": [0, 0, 1, 1], "alone": []}
    with pytest.raises(ValueError, match="inside its interval"):
        check_bound(joining, claim)
    assert hand_over_bound(joining, below=np.inf) is None
