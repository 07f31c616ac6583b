"""A load cut over workers: worked by hand, brute force, links as proof, broken plans."""

from __future__ import annotations

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.algorithms.divisible import Star, best_order, exchange, loads, without_latency
from hetopt.io.generators import star
from hetopt.records import Device, Job, Link
from hetopt.registry import problem


def asked(load, times, sends, latencies=(0, 0), startup=None) -> Instance:
    """Units of one byte."""
    names = ["a", "b"][: len(times)]
    links = [
        Link(source="host", target=n, bandwidth=None if not g else 1 / g, latency=late)
        for n, g, late in zip(names, sends, latencies, strict=False)
    ]
    return Instance.build(
        [Device(name=n) for n in names],
        [Job(name="load", steps=load, output=1, time=times)],
        links,
        tables={"startup": startup or {}},
        question={"objective": "divisible"},
    )


@pytest.mark.parametrize(
    ("given", "order", "units", "end"),
    [
        ((6, [1, 2], [0, 0]), None, {"a": 4, "b": 2}, 4),
        # a first: 2 a = T = a + 4 b, so a = 8 and b = 2; b first: 4 b = T = 2 b + 2 a, so a = b = 5 and T = 20
        ((10, [1, 2], [1, 2]), ["a", "b"], {"a": 8, "b": 2}, 16),
        ((4, [1, 1], [0, 0], (0, 9)), ["a"], {"a": 4}, 4),
        ((4, [1, 1], [0, 0], (0, 0), {"b": 2}), None, {"a": 3, "b": 1}, 3),
        ((4, [1, None], [1, 1]), ["a"], {"a": 4}, 8),
    ],
    ids=["speeds", "port", "late", "startup", "alone"],
)
@pytest.mark.parametrize("method", ["orders", "milp"])
def test_by_hand(given, order, units, end, method):
    instance = asked(*given)
    result = hetopt.solve(instance, method=method)
    assert result.status == "optimal"
    assert result.objective == pytest.approx(end)
    assert result.solution.details["units"] == pytest.approx(units)
    assert order is None or result.solution.details["order"] == order
    hetopt.verify(instance, result)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("method", ["orders", "milp"])
def test_the_host_is_sent_nothing(linked, method):
    """It works on its part while the port serves the other: a = T and 1 + 2 b = T for ten units."""
    facts = asked(10, [1, 1], [1, 1], (5, 1))
    links = facts.links if linked else facts.links[1:]
    instance = Instance.build(
        [Device(name="a", host=True), Device(name="b")], facts.jobs(), links, question=facts.question
    )
    result = hetopt.solve(instance, method=method)
    assert result.status == "optimal"
    assert result.objective == pytest.approx(7)
    assert result.solution.details["units"] == pytest.approx({"a": 7, "b": 3})
    hetopt.verify(instance, result)


@pytest.mark.parametrize("seed", range(800, 830))
def test_against_all_orders(seed):
    one = problem("splitting.divisible")
    instance = one.sample(seed)
    question = one.question(instance)
    judged = [one.judge(instance, question, plan) for plan in one.every_plan(instance, question)]
    least = min(each.value for each in judged if not each.violations)
    for method in ("orders", "milp", "lp", "links", "exchange"):
        result = hetopt.solve(instance, method=method)
        if method in ("orders", "milp"):
            assert result.status == "optimal"
            assert result.objective == pytest.approx(least)
        assert result.objective is None or result.objective >= least * (1 - 1e-9)
        assert result.bound <= least * (1 + 1e-9)


def test_without_latencies_the_order_of_the_links_is_best():
    rng = np.random.default_rng(1)
    for _ in range(30):
        n = int(rng.integers(1, 6))
        zero = np.zeros(n)
        data = Star(zero, rng.integers(0, 5, n).astype(float), zero, rng.integers(1, 9, n).astype(float))
        end, _ = best_order(data, 10.0, lambda: False)
        assert without_latency(data, 10.0) == pytest.approx(end)
        assert exchange(data, 10.0, lambda: False)[0] == pytest.approx(end)


def test_a_worker_with_less_than_nothing():
    assert loads(Star(*np.array([[0.0, 50.0], [1, 1], [0, 0], [1, 1]])), [0, 1], 4.0) is None


def test_many_workers():
    instance = star.make(workers=30)
    result = hetopt.solve(instance, method="exchange")
    assert result.bound <= result.objective <= 3 * result.bound
    hetopt.verify(instance, result)


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"order": ["a", "b"], "units": {"a": 6, "b": 2}}, ""),
        ({"order": ["a", "b"], "units": {"a": 6, "b": 1}}, "7 units are given out, there are 8: -1"),
        ({"order": ["a"], "units": {"a": 8, "b": 1}}, "'b' has units and no place"),
        ({"order": ["a", "a"], "units": {"a": 4}}, "names a device twice"),
        ({"order": ["a", "c"], "units": {"a": 8, "c": 0}}, "'c', which is no device"),
        ({"order": ["a", "b"], "units": {"a": 9, "b": -1}}, "'b' has -1 units"),
        ({}, "no details.order"),
    ],
    ids=str,
)
def test_broken_plans(details, told):
    instance = asked(8, [1, 2], [1, 1])
    one = problem("splitting.divisible")
    found = " ".join(one.judge(instance, one.question(instance), Solution(details=details)).violations)
    assert told in found
    assert told or not found


def test_what_cannot_be_read():
    with pytest.raises(InputError, match="no device or type"):
        hetopt.solve(asked(1, [1, 1], [1, 1], startup={"c": 1}))
    with pytest.raises(InputError, match="expected a number"):
        hetopt.solve(asked(1, [1, 1], [1, 1], startup={"a": -1}))
    with pytest.raises(InputError, match="link"):
        hetopt.solve(asked(1, [1, 1], [1]))
