"""Replay of max-load certificates: hand-worked proofs, never above the brute-force optimum, mutations refused."""

from __future__ import annotations

import math
from dataclasses import replace as change

import numpy as np
import pytest
from stage_samples import best_value, random_graph, stage_graph

from hetopt.verify import maxload_certificates
from hetopt.verify.maxload_certificates import replay

# Four classes of 3 seconds in a chain, nets of weight 1, two accelerators that pay 1 a unit each way.
CHAIN = stage_graph([[3.0]] * 4, [(v, [v, v + 1], 1.0) for v in range(3)], [2], [1.0], [1.0])


def prices(limit: float, **extra: object) -> dict[str, object]:
    return {"kind": "maxload-prices", "limit": limit, "prices": [1, 1, 1, 1], **extra}


def test_balance_by_hand() -> None:
    # 12 seconds on two devices: 6 is reached without communication, so anything below 6 is refuted, 6 is not.
    assert replay(CHAIN, prices(5.999)) == 5.999
    with pytest.raises(ValueError, match="does not prove"):
        replay(CHAIN, prices(6.0))


def test_a_sweep_sees_communication() -> None:
    # One class costs 3 + 1 or 3 + 2, two neighbours 7 at least: below 7 a device collects one class, 2 < 4.
    certificate = prices(6.999, order=[0, 1, 2, 3], buckets=1000, slopes=[0.0])
    assert replay(CHAIN, certificate) == 6.999
    assert best_value(CHAIN) == 7.0
    with pytest.raises(ValueError, match="does not prove"):
        replay(CHAIN, {**certificate, "limit": 7.0})
    # Any order and any slope are valid, and coarse buckets only weaken.
    for order in ([3, 2, 1, 0], [2, 0, 3, 1]):
        for slope in (0.0, 0.2, 5.0):
            assert replay(CHAIN, {**certificate, "order": order, "slopes": [slope]}) == 6.999


def test_cut_by_hand() -> None:
    # A hub of 2 seconds and two leaves of 1: cutting any net costs 10, so the hub's device holds all: 4 seconds.
    hub = stage_graph([[2.0], [1.0], [1.0]], [(0, [0, 1], 10.0), (0, [0, 2], 10.0)], [3], [1.0], [1.0])
    assert replay(hub, {"kind": "maxload-cut", "limit": 4.0, "class": 0}) == 4.0
    with pytest.raises(ValueError, match="does not prove"):
        replay(hub, {"kind": "maxload-cut", "limit": math.nextafter(4.0, 5.0), "class": 0})
    # A second type on which the hub runs in 1 second, free of communication, breaks the proof.
    host = stage_graph(
        [[2.0, 1.0], [1.0, 9.0], [1.0, 9.0]], [(0, [0, 1], 10.0), (0, [0, 2], 10.0)], [3, 1], [1.0, 0.0], [1.0, 0.0]
    )
    with pytest.raises(ValueError, match="device of type 1"):
        replay(host, {"kind": "maxload-cut", "limit": 4.0, "class": 0})


def test_bytes_have_a_price() -> None:
    # One fast device with room for two of four classes, one slow device: the fast one cannot take more than two.
    graph = stage_graph([[1.0, 5.0]] * 4, [], [1, 1], [0.0, 0.0], [0.0, 0.0], [1.0] * 4, [2.0, math.inf])
    assert best_value(graph) == 10.0
    # Prices 5 and 5 a byte on the fast device: it collects 2 * 5 for its bytes, the slow one 9.9, together less than 20.
    certificate = prices(9.9, prices=[5, 5, 5, 5], byte_prices=[5.0, 0.0])
    assert replay(graph, certificate) == 9.9
    with pytest.raises(ValueError, match="does not prove"):
        replay(graph, {**certificate, "byte_prices": [0.0, 0.0]})
    with pytest.raises(ValueError, match="no memory limit"):
        replay(graph, {**certificate, "byte_prices": [5.0, 1.0]})


@pytest.mark.parametrize("seed", range(120))
def test_no_certificate_proves_too_much(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 5)
    best = best_value(graph)
    order = rng.permutation(graph.n).tolist()
    for trial in range(12):
        certificate: dict[str, object] = {"kind": "maxload-prices", "prices": rng.integers(0, 20, graph.n).tolist()}
        if trial % 3:
            certificate |= {
                "order": order,
                "buckets": int(rng.integers(1, 200)),
                "slopes": rng.random(len(graph.count)) * 4,
            }
        if trial % 4 == 3:
            certificate["byte_prices"] = np.where(np.isfinite(graph.memory), rng.integers(0, 3), 0.0).tolist()
        for scale in (0.5, 0.8, 1.0):
            limit = best * scale if math.isfinite(best) and best > 0 else 1.0
            try:
                proved = replay(graph, certificate | {"limit": limit})
            except ValueError:
                continue
            assert proved < best
    for v in range(graph.n):
        limit = best * 1.0001 if math.isfinite(best) and best > 0 else 1.0
        try:
            proved = replay(graph, {"kind": "maxload-cut", "limit": limit, "class": v})
        except ValueError:
            continue
        assert proved <= best


@pytest.mark.parametrize("seed", range(40))
def test_sweep_bounds_the_best_profit_and_exact_buckets_meet_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 6, memory=False)
    limit = float(rng.integers(1, 25))
    profit = rng.integers(-3, 20, graph.n).tolist()
    t = int(rng.integers(len(graph.count)))
    sets = [np.array([m >> v & 1 for v in range(graph.n)], dtype=bool) for m in range(2**graph.n)]
    best = max(int(np.array(profit) @ p) for p in sets if graph.load(p, t) <= limit)
    bits = maxload_certificates._LOAD_BITS - math.frexp(limit)[1]
    time = maxload_certificates._floor(graph.time[:, t], bits)
    into = maxload_certificates._floor(graph.rate_in[t] * graph.net_weight, bits)
    out = maxload_certificates._floor(graph.rate_out[t] * graph.net_weight, bits)
    sweep = maxload_certificates._Sweep(graph, time, into, out, math.floor(math.ldexp(limit, bits)))
    order = rng.permutation(graph.n).tolist()
    for buckets in (1, 7, 60):
        for slope in (0, 1 << 16):
            assert sweep.most(order, profit, slope, buckets) >= best
    assert sweep.most(order, profit, 0, 1 << 16) == best


def test_a_false_flow_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = {"kind": "maxload-cut", "limit": 4.0, "class": 1}
    replay(CHAIN, certificate)
    honest = maxload_certificates.maximum_flow

    def doubled(*arguments: object) -> object:
        found = honest(*arguments)
        found.flow.data *= 2
        return found

    def leaking(*arguments: object) -> object:
        found = honest(*arguments)
        last = found.flow.shape[0] - 1
        found.flow[last, 1] = found.flow[1, last] = 0
        return found

    for oracle, sentence in ((doubled, "exceeds"), (leaking, "not conserved")):
        monkeypatch.setattr(maxload_certificates, "maximum_flow", oracle)
        with pytest.raises(ValueError, match=sentence):
            replay(CHAIN, certificate)


MUTATIONS = {
    "kind": ({"kind": "maxload-faith"}, "kind"),
    "limit is text": ({"limit": "6"}, "limit"),
    "limit is nan": ({"limit": math.nan}, "limit"),
    "limit is zero": ({"limit": 0.0}, "limit"),
    "limit raised": ({"limit": 7.0}, "does not prove"),
    "prices missing": ({"prices": None}, "prices"),
    "prices short": ({"prices": [1, 1, 1]}, "prices"),
    "price is a fraction": ({"prices": [1, 1, 1, 1.5]}, "integer"),
    "price is negative": ({"prices": [1, 1, 1, -1]}, "negative"),
    "price dropped": ({"prices": [1, 1, 0, 0]}, "does not prove"),
    "prices overflow": ({"prices": [1 << 50] * 4}, "too large"),
    "slope overflows": ({"slopes": [1e13]}, "too large"),
    "slope is negative": ({"slopes": [-1.0]}, "slopes"),
    "slopes too many": ({"slopes": [0.0, 0.0]}, "slopes"),
    "slopes are a number": ({"slopes": 1.0}, "slopes"),
    "byte price without memory": ({"byte_prices": [1.0]}, "no memory limit"),
    "order repeats": ({"order": [0, 1, 2, 2]}, "permutation"),
    "order short": ({"order": [0, 1, 2]}, "order"),
    "buckets zero": ({"buckets": 0}, "buckets"),
    "buckets huge": ({"buckets": 1 << 40}, "buckets"),
    "buckets missing": ({"buckets": None}, "buckets"),
    "buckets too coarse": ({"buckets": 1}, "does not prove"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutated_certificates_are_refused(name: str) -> None:
    certificate = prices(6.999, order=[0, 1, 2, 3], buckets=1000, slopes=[0.0])
    replay(CHAIN, certificate)
    mutation, sentence = MUTATIONS[name]
    with pytest.raises(ValueError, match=sentence):
        replay(CHAIN, {**certificate, **mutation})


@pytest.mark.parametrize("pivot", [None, -1, 4, "0", True])
def test_a_cut_names_a_class(pivot: object) -> None:
    with pytest.raises(ValueError, match="class"):
        replay(CHAIN, {"kind": "maxload-cut", "limit": 1.0, "class": pivot})


def test_a_replay_does_not_take_on_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = prices(6.999, order=[0, 1, 2, 3], buckets=1000, slopes=[0.0])
    for name, sentence in (("_MOST_STATES", "states"), ("_MOST_ENTRIES", "memory")):
        with monkeypatch.context() as patch:
            patch.setattr(maxload_certificates, name, 1)
            with pytest.raises(ValueError, match=sentence):
                replay(CHAIN, certificate)


def test_damaged_graphs_are_refused() -> None:
    broken = change(CHAIN, time=np.array([[3.0], [np.nan], [3.0], [3.0]]))
    with pytest.raises(ValueError, match="not a number"):
        replay(broken, prices(5.0))
    with pytest.raises(ValueError, match="not a number"):
        replay(broken, {"kind": "maxload-cut", "limit": 3.0, "class": 0})
