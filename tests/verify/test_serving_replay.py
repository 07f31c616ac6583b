"""Plans are evaluated exactly, faults are named, and certificates that prove nothing are refused."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetopt.algorithms.serving_bound import area_bound, configuration_bound
from hetopt.algorithms.serving_flow import plan_value
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.io.generate_serving import serving
from hetopt.verify.serving import check_plan, max_flow
from hetopt.verify.serving_bound import check_bound


def three_nodes(*, partial: bool = False) -> ServingNetwork:
    """Four layers; node 0 keeps up to 2 at 10 and 6, node 1 up to 3 at 9, 5, 4, node 2 up to 2 at 8 and 3. A slow link 0 -> 2."""
    throughput = np.array([[0, 10, 6, 0], [0, 9, 5, 4], [0, 8, 3, 0]], dtype=float)
    link = np.array([[0, 100, 2], [100, 0, 100], [100, 100, 0]], dtype=float)
    return ServingNetwork(4, throughput, link, np.full(3, np.inf), np.full(3, np.inf), ("a", "b", "c"), partial)


def plan(*intervals: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    start, hold = np.array(intervals).T
    return start, hold


def test_flow_of_parallel_nodes_adds_up() -> None:
    network = three_nodes()
    flow = max_flow(network, *plan((0, 2), (2, 2), (2, 2)))
    # a passes 6; b takes 5 of it, c could take 3 but the link from a carries 2: all 6 arrive.
    assert flow.value == 6.0
    assert flow.full_nodes == (0,)
    assert flow.node.tolist() == pytest.approx([6.0, flow.node[1], 6.0 - flow.node[1]])
    assert flow.link[0, 2] <= 2.0


def test_a_slow_link_limits_the_flow_and_is_named() -> None:
    flow = max_flow(three_nodes(), *plan((0, 2), (0, 0), (2, 2)))
    assert flow.value == 2.0
    assert flow.full_links == ((0, 2),)
    assert flow.full_nodes == ()


def test_intervals_that_do_not_meet_carry_nothing() -> None:
    assert max_flow(three_nodes(), *plan((0, 2), (1, 3), (0, 0))).value == 0.0


def test_joining_inside_an_interval_is_an_option() -> None:
    assert max_flow(three_nodes(partial=True), *plan((0, 2), (1, 3), (0, 0))).value == 4.0
    # but not behind it: b ends where a request from a would have to begin
    assert max_flow(three_nodes(partial=True), *plan((0, 2), (0, 2), (2, 2))).value == 3.0


def test_links_to_the_outside_count() -> None:
    network = three_nodes()
    network = ServingNetwork(4, network.throughput, network.link, np.array([1.5, 0, 9]), np.array([9, 2.5, 0.25]))
    flow = max_flow(network, *plan((0, 2), (2, 2), (2, 2)))
    assert flow.value == 1.5
    assert flow.full_links == ((-1, 0),)


def test_the_value_is_exact() -> None:
    throughput = np.array([[0, 0.1], [0, 0.2], [0, 0.3]])
    link = np.zeros((3, 3))
    network = ServingNetwork(1, throughput, link, np.full(3, 1.0), np.full(3, 1.0))
    flow = max_flow(network, *plan((0, 1), (0, 1), (0, 1)))
    assert flow.exact == Fraction(0.1) + Fraction(0.2) + Fraction(0.3)
    assert flow.value == float(flow.exact)


@pytest.mark.parametrize(
    ("intervals", "sentence"),
    [
        (((0, 3), (0, 0), (0, 0)), "node a cannot keep 3 layers"),
        (((0, 0), (2, 3), (0, 0)), "node b keeps layers 2 to 4; the model has layers 0 to 3"),
        (((0, 0), (0, 0), (-1, 1)), "node c keeps layers -1 to -1"),
        (((0, -1), (0, 0), (0, 0)), "node a cannot keep -1 layers"),
    ],
)
def test_faults_of_a_plan_are_named(intervals: tuple[tuple[int, int], ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_plan(three_nodes(), *plan(*intervals))


def test_a_plan_must_be_counted_in_integers() -> None:
    with pytest.raises(ValueError, match="layers are counted in integers"):
        check_plan(three_nodes(), np.zeros(3), np.zeros(3))  # type: ignore[arg-type]


@given(seed=st.integers(0, 10_000), partial=st.booleans())
def test_fast_and_exact_flow_agree(seed: int, partial: bool) -> None:
    rng = np.random.default_rng(seed)
    network = serving(int(rng.integers(2, 8)), int(rng.integers(2, 7)), seed, clusters=2, density=0.7, partial=partial)
    hold = np.array([rng.choice(np.flatnonzero(t[: network.layers + 1])) for t in network.throughput])
    hold *= rng.random(network.n) < 0.9
    start = np.array([rng.integers(0, network.layers - k + 1) for k in hold])
    flow = max_flow(network, start, hold)
    assert plan_value(network, start, hold) == pytest.approx(flow.value, rel=1e-9, abs=1e-9)
    # The flow is a flow, and the cut is as small.
    rate = network.throughput[np.arange(network.n), hold]
    assert (flow.node <= rate * (1 + 1e-12)).all()
    assert (flow.link <= network.link * (1 + 1e-12)).all()
    ends = {-1: network.source, network.n: network.sink}
    cut = sum(rate[i] for i in flow.full_nodes)
    cut += sum(
        ends[i][j] if i == -1 else ends[j][i] if j == network.n else network.link[i, j] for i, j in flow.full_links
    )
    assert cut == pytest.approx(flow.value, rel=1e-9, abs=1e-9)


@settings(max_examples=25)
@given(seed=st.integers(0, 100_000))
def test_no_prices_exclude_a_rate_that_a_plan_reaches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = serving(int(rng.integers(2, 5)), int(rng.integers(1, 5)), seed, density=0.8, partial=bool(seed % 2))
    best = 0.0
    for _ in range(60):
        hold = np.array([rng.choice(np.flatnonzero(t[: network.layers + 1])) for t in network.throughput])
        start = np.array([rng.integers(0, network.layers - k + 1) for k in hold])
        best = max(best, max_flow(network, start, hold).value)
    if best == 0.0:
        return
    for _ in range(10):
        potential = 0 if network.partial else int(rng.integers(0, 500))
        certificate = {
            "kind": "layer-prices",
            "rate": best,
            "group": list(range(network.n)),
            "price": rng.integers(0, rng.integers(2, 2000), network.throughput[:, : network.layers + 1].shape).tolist(),
            "entry": rng.integers(-potential, potential + 1, network.n).tolist(),
            "exit": rng.integers(-potential, potential + 1, network.n).tolist(),
            "source": int(rng.integers(-500, 500)),
            "sink": int(rng.integers(-500, 500)),
            "several": 0,
        }
        with pytest.raises(ValueError, match="proves nothing"):
            check_bound(network, certificate)
    for certificate in (area_bound(network), configuration_bound(network)):
        assert check_bound(network, certificate) > best
        with pytest.raises(ValueError, match="proves nothing"):
            check_bound(network, {**certificate, "rate": best})


def sample() -> ServingNetwork:
    return serving(8, 12, 3, types=2, clusters=2, slow=0.05, density=0.6, spare=2.0)


def test_certificates_replay() -> None:
    network = sample()
    area = area_bound(network)
    tight = configuration_bound(network)
    assert check_bound(network, area) == area["rate"]
    assert check_bound(network, tight) == tight["rate"] < area["rate"]


def test_a_certificate_of_another_network_is_refused() -> None:
    network = sample()
    certificate = configuration_bound(network)
    faster = ServingNetwork(
        network.layers, network.throughput * 1.05, network.link * 1.05, network.source * 2, network.sink * 2
    )
    with pytest.raises(ValueError, match="proves nothing"):
        check_bound(faster, certificate)


def test_cheaper_prices_are_refused() -> None:
    network = sample()
    certificate = configuration_bound(network)
    broken = copy.deepcopy(certificate)
    column = np.array(broken["price"]).sum(axis=0).argmax()
    group = int(np.array(broken["price"])[:, column].argmax())
    broken["price"][group][column] = 0
    with pytest.raises(ValueError, match="proves nothing"):
        check_bound(network, broken)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "solver"}, "cannot be replayed"),
        ({"rate": 0.0}, "a positive number was expected"),
        ({"group": [0]}, "groups 1 nodes"),
        ({"group": [0] * 8}, "nodes of different rates"),
        ({"price": [[0.5]]}, "integers"),
        ({"several": 5}, "excludes no clusters"),
        ({"several": -5}, "negative price"),
    ],
)
def test_malformed_certificates_are_refused(change: dict[str, object], sentence: str) -> None:
    network = sample()
    with pytest.raises(ValueError, match=sentence):
        check_bound(network, {**area_bound(network), **change})


def two_clusters() -> ServingNetwork:
    """Two pairs of nodes that keep up to two of eight layers; links between the pairs carry 6 of the nodes' 10.

    The model only fits as a chain of all four, and a chain crosses a slow link: 6 is the optimum.
    """
    throughput = np.array([[0, 12.0, 10.0]] * 4)
    link = np.where(np.kron(np.eye(2), np.ones((2, 2))) > 0, 100.0, 6.0) * (1 - np.eye(4))
    return ServingNetwork(8, throughput, link, np.full(4, 100.0), np.full(4, 100.0))


def test_clusters_that_cannot_serve_alone_are_an_argument() -> None:
    network = two_clusters()
    assert max_flow(network, *plan((0, 2), (2, 2), (4, 2), (6, 2))).value == 6.0
    certificate = configuration_bound(network)
    assert check_bound(network, certificate) == pytest.approx(6.0, rel=1e-4)
    assert len(certificate["clusters"]) == 2
    without = {k: v for k, v in certificate.items() if k != "clusters"}
    with pytest.raises(ValueError, match="excludes no clusters"):
        check_bound(network, without)
    with pytest.raises(ValueError, match="leaves a cluster out"):
        check_bound(network, {**certificate, "clusters": certificate["clusters"][:1]})
    with pytest.raises(ValueError, match="speaks of rate"):
        check_bound(network, {**certificate, "clusters": [{**c, "rate": 7.0} for c in certificate["clusters"]]})


def test_potentials_are_refused_when_requests_join_inside() -> None:
    network = sample()
    groups = max(area_bound(network)["group"]) + 1
    joining = ServingNetwork(
        network.layers, network.throughput, network.link, network.source, network.sink, partial=True
    )
    with pytest.raises(ValueError, match="join a node inside"):
        check_bound(joining, {**area_bound(network), "entry": [1] * groups})
