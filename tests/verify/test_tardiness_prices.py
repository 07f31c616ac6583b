"""Price bounds on makespan plus tardiness: by hand, against the exact program, against the kernel, and forged."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

from hetopt.algorithms.tardiness import Shop, best_tardiness
from hetopt.algorithms.tardiness_pricing import Pricer
from hetopt.verify.tardiness_prices import replay_prices, slots_of


def shop_of(seed: int, jobs: int = 6, machines: int = 3, *, decimals: bool = False) -> Shop:
    rng = np.random.default_rng(seed)
    scale = 0.37 if decimals else 1.0
    time = rng.integers(0, 12, (jobs, machines)) * scale
    time[(rng.random(time.shape) < 0.2) & (np.arange(machines) != rng.integers(0, machines, (jobs, 1)))] = np.inf
    due = np.where(rng.random(jobs) < 0.2, np.inf, rng.integers(0, 15, jobs) * scale)
    machine_due = np.where(rng.random(machines) < 0.3, np.inf, rng.integers(0, 15, machines) * scale)
    weight, machine_weight = rng.integers(0, 6, jobs) * scale, rng.integers(0, 4, machines) * scale
    return Shop(time, due, weight, rng.integers(0, 9, machines) * scale, machine_due, machine_weight)


def random_certificate(shop: Shop, seed: int, unit: float, horizon: int) -> dict[str, object]:
    """Prices, cuts and memories that nobody thought about."""
    rng = np.random.default_rng(seed)
    n, m = shop.time.shape
    slots = slots_of(*shop, unit=unit, horizon=horizon)
    cuts = np.unique(int(slots.ready.max()) + rng.integers(0, 10, int(rng.integers(0, 3)))).tolist()
    firsts, lasts = [0, *(c + 1 for c in cuts)], [*cuts, None]
    ends = rng.dirichlet(np.ones(m)) * slots.slot * rng.random()
    return {
        "kind": "machine-prices",
        "unit": unit,
        "tick": slots.tick,
        "horizon": horizon,
        "intervals": [
            {
                "first": first,
                "last": last,
                "price": [int(p) for p in rng.random(n) * 40 / slots.tick],
                "end_price": [int(v) for v in ends],
            }
            for first, last in zip(firsts, lasts, strict=True)
        ],
        "memory": [[sorted(rng.choice(n, 2, replace=False).tolist()) for _ in range(n)] if i else [] for i in range(m)],
    }


def hand_certificate(price: float, end_price: float) -> tuple[Shop, dict[str, object]]:
    """One machine, one job of 3 seconds, due at 1, weight 2: Cmax 3 + tardiness 2 * 2 = 7."""
    shop = Shop(*(np.array(fact, float) for fact in ([[3]], [1], [2], [0], [np.inf], [0])))
    tick = slots_of(*shop, unit=1.0, horizon=8).tick
    one = {"first": 0, "last": None, "price": [int(price / tick)], "end_price": [int(end_price / tick)]}
    certificate = {
        "kind": "machine-prices",
        "unit": 1.0,
        "tick": tick,
        "horizon": 8,
        "intervals": [one],
        "memory": [[]],
    }
    return shop, certificate


@pytest.mark.parametrize(("price", "end_price", "bound"), [(7, 1, 7), (5, 1, 5), (0, 0, 0), (9, 1, 7), (9, 0, 4)])
def test_by_hand(price, end_price, bound):
    """u + min(0, 4 + 3 v - u) + (1 - v) 0, and the job at most once, however large u is."""
    shop, certificate = hand_certificate(price, end_price)
    assert replay_prices(certificate, *shop) == pytest.approx(bound, abs=1e-9)


@pytest.mark.parametrize("decimals", [False, True], ids=["whole", "decimals"])
@pytest.mark.parametrize("seed", range(12))
def test_never_above_the_optimum(seed, decimals):
    """Whatever the prices, cuts, memories, slots and horizon."""
    shop = shop_of(seed, decimals=decimals)
    best = best_tardiness(shop).value
    for k, (unit, horizon) in enumerate([(1.0, 40), (0.25, 40), (2.0, 4), (0.5, 90)]):
        certificate = random_certificate(shop, 100 * seed + k, unit, horizon)
        assert replay_prices(certificate, *shop) <= best * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_kernel_and_replay_agree(seed):
    """To the last tick, with memories and with a limit on the end."""
    shop = shop_of(seed, jobs=7, machines=2, decimals=seed % 2 == 1)
    slots = slots_of(*shop, unit=0.5, horizon=60)
    rng = np.random.default_rng(seed)
    certificate = random_certificate(shop, seed, 0.5, 60)
    price = np.array(certificate["intervals"][0]["price"], float)
    # A last slot at which every machine is free, so that each has a sequence.
    last = int(slots.ready.max()) + int(rng.integers(0, 20))
    for latest in (None, last):
        pricers = [Pricer(slots, i) for i in range(2)]
        for pricer in pricers:
            for _ in range(4):
                pricer.remember(tuple(int(k) for k in rng.choice(7, 4)))
        ends = [int(slots.slot * share) for share in (0.25, 0.5)]
        least = [p.price(price, float(v), latest, 5).least for p, v in zip(pricers, ends, strict=True)]
        first = {"first": 0, "last": latest, "price": price.astype(int).tolist(), "end_price": ends}
        rest = {"first": last + 1, "last": None, "price": [0] * 7, "end_price": [0, 0]}
        certificate |= {"intervals": [first], "memory": [p.memory for p in pricers]}
        floor = int(slots.slot - sum(ends)) * slots.floor // slots.slot
        expected = (int(price.sum()) + floor + int(sum(least))) * slots.tick
        if latest is None:
            assert replay_prices(certificate, *shop) == expected
        else:
            certificate["intervals"] = [first, rest]
            assert replay_prices(certificate, *shop) == min(expected, replay_prices_of_rest(certificate, shop))


def replay_prices_of_rest(certificate: dict[str, object], shop: Shop) -> float:
    """The last interval's bound: the first one's prices are made to prove as much as any."""
    slots = slots_of(*shop, unit=0.5, horizon=60)
    least = (certificate["intervals"][1]["first"] * slots.slot) * slots.tick  # makespan alone, no prices
    overdue = sum(slots.end[i, slots.ready[i]] for i in range(2)) * slots.tick
    return least + overdue


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda c: c["intervals"][0].update(price=[-1]), "negative"),
        (lambda c: c["intervals"][0].update(end_price=[10**15]), "ends that cost more"),
        (lambda c: c["intervals"][0].update(price=[10**17]), "too large"),
        (lambda c: c["intervals"][0].update(last=5), "leaves out"),
        (lambda c: c["intervals"][0].update(first=1), "leaves out"),
        (lambda c: c["intervals"].append({**c["intervals"][0], "first": 2}), "leaves out"),
        (lambda c: c.update(intervals=[]), "leaves out"),
        (lambda c: c.update(tick=1.0), "does not fit"),
        (lambda c: c.update(memory=[[[4]]]), "memory"),
        (lambda c: c.update(memory=[[[0, 0]]]), "memory"),
        (lambda c: c.update(unit=0.3), "power of two"),
        (lambda c: c.update(horizon=0), "horizon"),
        (lambda c: c.pop("unit"), "damaged"),
        (lambda c: c["intervals"][0].update(price=[1, 2]), "does not fit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_forged_certificates_are_refused(change, told):
    shop, certificate = hand_certificate(7, 1)
    forged = copy.deepcopy(certificate)
    change(forged)
    with pytest.raises(ValueError, match=told):
        replay_prices(forged, *shop)


def test_costs_are_rounded_down():
    """Slots shorter than times, ticks smaller than costs, and nothing above the exact cost."""
    shop = shop_of(3, decimals=True)
    slots = slots_of(*shop, unit=0.25, horizon=50)
    clock = 0.25 * np.arange(101)
    exact = shop.weight[:, None] * np.maximum(0.0, clock - shop.due[:, None])
    assert (slots.late * slots.tick <= exact).all()
    assert (slots.late * slots.tick >= exact - 2 * slots.tick - 1e-12 * exact).all()
    assert (slots.length * 0.25 <= np.where(np.isfinite(shop.time), shop.time, 0)).all()
    assert math.frexp(slots.tick)[0] == 0.5
