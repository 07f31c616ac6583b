"""A replayed certificate never claims more than the optimum, whatever numbers it holds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.verify.makespan_certificates import exact_sum, job_counts, on_grid, replay

INF = math.inf


def optimum(time: np.ndarray, ready: np.ndarray | None = None) -> Fraction:
    """Smallest makespan over all plans, in exact arithmetic; machines without a job do not count."""
    n, m = time.shape
    free = [Fraction(0)] * m if ready is None else [Fraction(float(r)) for r in ready]
    exact = [[None if math.isinf(t) else Fraction(float(t)) for t in row] for row in time]
    best = None
    for plan in itertools.product(range(m), repeat=n):
        loads: dict[int, Fraction] = {}
        for row, i in zip(exact, plan, strict=True):
            if row[i] is None:
                break
            loads[i] = loads.get(i, free[i]) + row[i]
        else:
            value = max(loads.values())
            best = value if best is None or value < best else best
    assert best is not None
    return best


@st.composite
def instances(draw: st.DrawFn, decimals: bool = False) -> tuple[np.ndarray, np.ndarray]:
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    number = st.floats(0, 9, allow_subnormal=True) if decimals else st.integers(0, 9).map(float)
    cell = st.one_of(number, number, number, st.just(INF))
    rows = draw(st.lists(st.lists(cell, min_size=m, max_size=m), min_size=n, max_size=n))
    time = np.array(rows)
    for row in time:
        if np.isinf(row).all():
            row[draw(st.integers(0, m - 1))] = draw(number)
    return time, np.array(draw(st.lists(number, min_size=m, max_size=m)))


weights = st.integers(0, 12)


@given(instances(), st.data())
def test_any_machine_weights_give_a_bound(instance: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    time, ready = instance
    vector = data.draw(st.lists(weights, min_size=len(ready), max_size=len(ready)))
    bound = replay(time, {"kind": "machine-weights", "shift": 0, "weights": vector}, ready)
    assert isinstance(bound, int)
    assert bound <= optimum(time, ready)


@given(instances(decimals=True), st.data())
def test_decimals_are_rounded_to_the_safe_side(instance: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    time, ready = instance
    vector = data.draw(st.lists(weights, min_size=len(ready), max_size=len(ready)))
    shift = data.draw(st.integers(-3, 30))
    bound = replay(time, {"kind": "machine-weights", "shift": shift, "weights": vector}, ready)
    assert Fraction(bound) <= optimum(time, ready)


@pytest.mark.parametrize("decimals", [False, True])
@given(data=st.data())
def test_a_deadline_that_can_be_met_is_never_refuted(decimals: bool, data: st.DataObject) -> None:
    time, ready = data.draw(instances(decimals))
    shift = data.draw(st.integers(0, 4)) if decimals else 0
    n, m = time.shape
    optimal = optimum(time, ready)
    certificate: dict[str, Any] = {
        "kind": data.draw(st.sampled_from(["deadline-weights", "knapsack"])),
        "shift": shift,
        "deadline": data.draw(st.integers(0, 60)),
        "weights": data.draw(st.lists(weights, min_size=m, max_size=m)),
        "count_weights": data.draw(st.lists(weights, min_size=m, max_size=m)),
        "prices": data.draw(st.lists(weights, min_size=n, max_size=n)),
    }
    try:
        bound = replay(time, certificate, ready)
    except ValueError as error:
        assert "do not refute" in str(error)
    else:
        assert Fraction(bound) <= optimal
        assert certificate["deadline"] < optimal * 2**shift


def test_machine_weights_by_hand() -> None:
    """Jobs (4, 6), (3, 9), (8, 2) with weights 2, 1: 6 + 6 + 2 = 14 over 3 machines' weight, so 5 after rounding up."""
    time = np.array([[4, 6], [3, 9], [8, 2]])
    certificate = {"kind": "machine-weights", "shift": 0, "weights": [2, 1]}
    assert replay(time, certificate) == 5
    # Machine 0 is free from 10 on: alone, machine 1 needs 14 weighted units by 14, but with both it is 10 + 4 / 3.
    assert replay(time, certificate, [10, 0]) == 12
    assert replay(time, {"kind": "machine-weights", "shift": 0, "weights": [0, 0]}, [10, 0]) == 9  # job 1 alone
    # Halves: the bound 14 / 3 is rounded up on the grid of the decimals only.
    assert replay(time + 0.5 * (time == 4), certificate | {"shift": 1}) == 5.0


def test_an_unused_machine_does_not_delay_the_makespan() -> None:
    assert replay(np.array([[1.0, 5.0]]), {"kind": "machine-weights", "shift": 0, "weights": [1, 1]}, [0.0, 50.0]) == 1


def test_cardinality_refutes_what_weights_alone_cannot() -> None:
    """Three jobs of 2 on two machines: each holds one job by 3, so 4; the plain bound is 3."""
    time = np.full((3, 2), 2)
    assert replay(time, {"kind": "machine-weights", "shift": 0, "weights": [1, 1]}) == 3
    assert job_counts(on_grid(time), 3).tolist() == [1, 1]
    refuted = {"kind": "deadline-weights", "shift": 0, "deadline": 3, "weights": [0, 0], "count_weights": [1, 1]}
    assert replay(time, refuted) == 4
    with pytest.raises(ValueError, match="do not refute the deadline 4"):
        replay(time, refuted | {"deadline": 4})
    with pytest.raises(ValueError, match="do not refute the deadline 3"):
        replay(time, refuted | {"count_weights": [0, 0], "weights": [1, 1]})


def test_knapsacks_refute_what_cardinality_cannot() -> None:
    """Sizes 4, 4, 3, 3 on two machines, deadline 6: by count two fit each, by size only the 3s do."""
    time = np.repeat([[4], [4], [3], [3]], 2, axis=1)
    refuted = {"kind": "knapsack", "shift": 0, "deadline": 6, "prices": [1, 1, 0, 0]}
    with pytest.raises(ValueError, match="do not refute"):
        replay(time, refuted)
    assert replay(time, refuted | {"prices": [2, 2, 1, 1]}) == 7
    with pytest.raises(ValueError, match="do not refute the deadline 7"):
        replay(time, refuted | {"prices": [2, 2, 1, 1], "deadline": 7})


def test_pairs_are_fixed_by_the_weights_of_the_same_certificate_only() -> None:
    """Deadline 6: with weights (1, 1) the room is 12 and the demand 11, so a pair more than 1 above its job's least goes."""
    time = np.array([[3, 5], [3, 5], [5, 5]])
    prices = {"kind": "knapsack", "shift": 0, "deadline": 6, "prices": [2, 2, 2]}
    weights = {"weights": [1, 1], "count_weights": [0, 0]}
    assert optimum(time) == 6
    with pytest.raises(ValueError, match="do not refute"):
        replay(time, prices | weights)
    harder = np.array([[3, 5], [4, 5], [5, 5]])
    assert optimum(harder) == 7
    assert replay(harder, prices | weights) == 7


def test_a_job_without_a_machine_in_time_refutes_the_deadline() -> None:
    time = np.array([[5, INF], [1, 1]])
    none = {"kind": "deadline-weights", "shift": 0, "deadline": 4, "weights": [0, 0], "count_weights": [0, 0]}
    assert replay(time, none) == 5


def test_sums_do_not_wrap() -> None:
    values = np.full(5, (1 << 62) - 1)
    assert exact_sum(values) == 5 * ((1 << 62) - 1)
    big = {"kind": "machine-weights", "shift": 0, "weights": [1 << 40]}
    assert replay(np.full((4096, 1), 1 << 20), big) == 4096 << 20


def test_huge_and_tiny_numbers_stay_safe() -> None:
    one = {"kind": "machine-weights", "weights": [1]}
    assert replay(np.array([[1e300]]), one | {"shift": 0}) == 1 << 40  # clipped
    assert replay(np.array([[1e300]]), one | {"shift": -970}) <= 1e300
    assert replay(np.full((4, 1), 1e308), one | {"shift": -1000}) <= Fraction(4 * 10**308)
    assert replay(np.array([[5e-324]]), one | {"shift": 1000}) == 0.0
    assert replay(np.array([[1024.0 + 1]]), one | {"shift": -10}) == 1024
    assert replay(np.array([[3.0]]), one | {"shift": 5}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "guess"}, "unknown kind"),
        ({"weights": [1]}, "'weights' must be 2 integers"),
        ({"weights": [1, -1]}, "'weights' must be 2 integers"),
        ({"weights": [0.5, 1.0]}, "'weights' must be 2 integers"),
        ({"weights": [True, True]}, "'weights' must be 2 integers"),
        ({"weights": [[1], [2, 3]]}, "'weights' must be"),
        ({"weights": [1 << 61, 1]}, "weights are too large"),
        ({"prices": [1 << 61, 1 << 61, 1]}, "prices are too large"),
        ({"deadline": -1}, "deadline must be an integer"),
        ({"deadline": 6.0}, "deadline must be an integer"),
        ({"deadline": None}, "deadline must be an integer"),
        ({"shift": 0.5}, "shift must be an integer"),
        ({"shift": None}, "shift must be an integer"),
        ({"shift": 3000}, "shift must be an integer"),
    ],
)
def test_a_malformed_certificate_is_refused_with_a_sentence(change: dict[str, Any], message: str) -> None:
    good = {
        "kind": "knapsack",
        "shift": 0,
        "deadline": 6,
        "prices": [2, 2, 2],
        "weights": [1, 1],
        "count_weights": [0, 0],
    }
    time = np.array([[3, 5], [4, 5], [5, 5]])
    assert replay(time, good) == 7
    with pytest.raises(ValueError, match=message):
        replay(time, good | change)


def test_a_missing_part_is_named() -> None:
    with pytest.raises(ValueError, match="no 'prices'"):
        replay(np.ones((2, 2)), {"kind": "knapsack", "shift": 0, "deadline": 0})
    with pytest.raises(ValueError, match="too fine a grid"):
        prices = {"kind": "knapsack", "shift": 0, "deadline": 1 << 39, "prices": [1] * 5}
        replay(np.full((5, 2), (1 << 38) + 1), prices)


@pytest.mark.parametrize(
    ("time", "ready", "message"),
    [
        ([[1.0, -1.0]], None, "negative or not a number"),
        ([[math.nan, 1.0]], None, "negative or not a number"),
        ([[1.0, 2.0], [INF, INF]], None, "job 1 can run on no machine"),
        ([1.0, 2.0], None, "matrix of jobs by machines"),
        ([[1.0, 2.0]], [0.0], "ready must be 2"),
        ([[1.0, 2.0]], [0.0, INF], "ready must be 2"),
    ],
)
def test_an_array_that_is_no_instance_is_refused(time: Any, ready: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay(time, {"kind": "machine-weights", "shift": 0, "weights": [1, 1]}, ready)


def test_no_jobs_need_no_time() -> None:
    assert replay(np.zeros((0, 2)), {"kind": "machine-weights", "shift": 0, "weights": [1, 1]}) == 0
