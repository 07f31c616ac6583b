"""The stage evaluator: each rule by hand, convexity by listing paths, and broken plans that must be caught."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.verify.stages import check_stages


def pipeline(**changes):
    """Five tasks: 0 feeds 1 and 2, which feed 3, which feeds 4; two accelerators and a CPU."""
    case = {
        "time": np.array([[2, 2, 20], [3, 3, 30], [4, 4, 40], [5, np.inf, 50], [6, 6, 60]]),
        "size": np.array([10, 20, 30, 40, 50]),
        "edges": np.array([(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]),
        "weight": np.array([1, 2, 3, 4, 0]),
        "memory": np.array([100, 90, np.inf]),
        "rate_in": np.array([1, 1, 0]),
        "rate_out": np.array([1, 2, 0]),
        "placement": [1, 1, 0, 0, 0],
    }
    return case | changes


def complaints(**changes) -> list[str]:
    return list(check_stages(**pipeline(**changes)).violations)


def test_loads_by_hand():
    # the order is broken (1 feeds 0: task 0 feeds 2) only if 0 feeds 1 too: it does not, so device 1 comes first
    report = check_stages(**pipeline(memory=[120, 90, np.inf]))
    assert report.violations == () and report.order == (1, 0)
    assert report.compute == [15, 5, 0]
    # device 0 receives the outputs of 0 and 1; device 1 sends both at twice the price
    assert report.arrive == [3, 0, 0] and report.leave == [0, 6, 0]
    assert report.load == [18, 11, 0] and report.value == 18
    assert report.memory == [120, 30, 0]
    assert all(isinstance(x, int) for x in report.load)


def test_an_output_travels_once_to_each_device():
    report = check_stages(**pipeline(placement=[1, 0, 0, 0, 2], memory=[np.inf] * 3))
    # task 0 feeds two tasks on device 0: one departure, one arrival; the CPU pays nothing for task 3's output
    assert report.arrive == [1, 0, 0] and report.leave == [4, 2, 0]
    assert report.load == [3 + 4 + 5 + 1 + 4, 2 + 2, 60]


def test_memory_is_missed_by_a_stated_amount():
    assert complaints() == ["device 0 holds 120 of memory, 20 more than its 100"]
    assert complaints(memory=[120, 30, np.inf]) == []
    assert complaints(memory=[120, 29, np.inf]) == ["device 1 holds 30 of memory, 1 more than its 29"]


def test_memory_is_decided_exactly():
    # 0.1 + 0.2 + 0.3 is 2^-54 above 0.6 in exact numbers although its float sum may say otherwise
    time, none = np.ones((3, 1)), np.zeros((0, 2))
    size = np.array([0.1, 0.2, 0.3])
    for limit, wrong in ((0.6, True), (0.6000000000000001, False), (0.5999999999999999, True)):
        report = check_stages(time, size, none, np.zeros(3), [limit], [0.0], [0.0], [0, 0, 0])
        assert bool(report.violations) is wrong


def test_a_device_that_cannot_run_a_task_is_named():
    report = check_stages(**pipeline(placement=[0, 0, 0, 1, 1], memory=[np.inf] * 3, devices=["big", "small", "host"]))
    assert report.violations == ("task 3 cannot run on device small",)
    assert report.value == np.inf


def test_unplaced_tasks_are_named():
    assert "task c is on no device" in complaints(placement=[1, 1, -1, 0, 0], tasks=list("abcde"))
    assert "task 4 is on no device" in complaints(placement=[1, 1, 0, 0, 3])
    assert complaints(placement=[1, 1, 0])[0] == "the plan places 3 tasks; there are 5"


def test_a_split_group_is_named():
    found = complaints(group=[7, -1, 7, -1, -1], memory=[np.inf] * 3)
    assert found == ["group 7 is split: task 0 on device 1 and task 2 on device 0"]
    assert complaints(group=[7, 7, -1, 9, 9], memory=[np.inf] * 3) == []


def test_stages_without_an_order_name_the_circle():
    found = complaints(placement=[0, 2, 0, 0, 2], memory=[np.inf] * 3)
    assert found == [
        "the stages have no order: task 0 on device 0 feeds task 1 on device 2, task 1 on device 2 feeds task 3 on device 0"
    ]
    assert complaints(placement=[0, 2, 0, 0, 2], memory=[np.inf] * 3, contiguity="none") == []


def test_contiguity_per_device_is_weaker_than_an_order():
    # 0 -> 1 and 2 -> 3 with {0, 3} and {1, 2}: the devices feed each other, but no path comes back
    case = {
        "time": np.ones((4, 2)),
        "size": np.zeros(4),
        "edges": np.array([(0, 1), (2, 3)]),
        "weight": np.zeros(4),
        "memory": [np.inf] * 2,
        "rate_in": [1, 1],
        "rate_out": [1, 1],
        "placement": [0, 1, 1, 0],
    }
    assert len(check_stages(**case).violations) == 1
    assert check_stages(**case, contiguity="device").violations == ()
    back = check_stages(**case | {"edges": np.array([(0, 1), (1, 3)])}, contiguity="device")
    assert back.violations == (
        "device 0 is entered again: task 0 on it leads to task 3 on it through task 1 on device 1",
    )


def test_backward_tasks_are_free_unless_they_are_orphans():
    # forward 0 -> 1 on devices 0, 1; backward 2 (with 1) -> 3 (alone) -> 4 (with 0)
    case = {
        "time": np.ones((5, 3)),
        "size": np.zeros(5),
        "edges": np.array([(0, 1), (1, 2), (2, 3), (3, 4)]),
        "weight": np.ones(5),
        "memory": [np.inf] * 3,
        "rate_in": [1] * 3,
        "rate_out": [1] * 3,
        "backward": [False, False, True, True, True],
        "group": [0, 1, 1, -1, 0],
    }
    for contiguity in ("ideals", "device"):
        assert check_stages(placement=[0, 1, 1, 1, 0], contiguity=contiguity, **case).violations == ()
    # reversed, 3 stands between 0 and 1 in the order 0, 3, 1: device 2 for it is fine, as is either neighbour's
    assert check_stages(placement=[0, 1, 1, 2, 0], mirror_orphans=True, **case).order == (0, 2, 1)
    loop = case | {"edges": np.array([(0, 1), (3, 2), (4, 3)])}
    assert check_stages(placement=[0, 1, 1, 2, 0], **loop).violations == ()
    assert "no order" in check_stages(placement=[0, 1, 1, 2, 0], mirror_orphans=True, **loop).violations[0]


def test_passes_are_added_up_apart():
    case = {
        "time": np.array([[5, 5], [1, 1], [5, 5], [1, 1]]),
        "size": np.zeros(4),
        "edges": np.array([(0, 1), (1, 2), (2, 3)]),
        "weight": np.array([1, 0, 2, 0]),
        "memory": [np.inf] * 2,
        "rate_in": [1, 1],
        "rate_out": [3, 3],
        "placement": [0, 1, 1, 0],
        "backward": [False, False, True, True],
    }
    report = check_stages(**case)
    assert report.load == [5 + 1 + 3 + 2, 1 + 5 + 1 + 6] and report.backward_load == [1 + 2, 5 + 6]
    assert report.value == 13
    assert check_stages(variant="max", **case).value == max(8, 2) + max(3, 11)


def test_a_claimed_value_must_match():
    assert complaints(memory=[np.inf] * 3, claimed=18.0) == []
    assert complaints(memory=[np.inf] * 3, claimed=17.0) == ["the plan is said to have the value 17.0; it has 18"]
    assert complaints(memory=[np.inf] * 3, claimed=18.0 + 1e-6)
    assert complaints(memory=[np.inf] * 3, claimed=float("nan"))


def test_large_integers_stay_exact():
    big = 2**53
    report = check_stages(
        np.array([[big], [1.0], [1.0]]), np.zeros(3), np.zeros((0, 2)), np.zeros(3), [np.inf], [0], [0], [0, 0, 0]
    )
    assert report.value == big + 2


def test_many_violations_are_counted_not_written_out():
    n = 50
    report = check_stages(
        np.full((n, 1), np.inf), np.zeros(n), np.zeros((0, 2)), np.zeros(n), [1], [0], [0], np.zeros(n, int)
    )
    assert len(report.violations) == 11
    assert report.violations[-1] == "40 more tasks are on a device that cannot run them"


def test_unknown_words_are_refused():
    with pytest.raises(ValueError, match="expected 'ideals', 'device' or 'none'"):
        check_stages(**pipeline(), contiguity="stage")
    with pytest.raises(ValueError, match="expected 'sum' or 'max'"):
        check_stages(**pipeline(), variant="min")


def test_a_cycle_of_tasks_is_not_passed_over():
    found = complaints(edges=np.array([(0, 1), (1, 0)]), contiguity="device", memory=[np.inf] * 3)
    assert found == ["2 forward tasks lie on or after a cycle; no device holds a convex part"]


@st.composite
def placed_graphs(draw: st.DrawFn):
    n, d = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    edges = [(a, b) for a, b in itertools.combinations(range(n), 2) if draw(st.booleans())]
    return edges, [draw(st.integers(0, d - 1)) for _ in range(n)], d


def leaves_and_returns(edges: list[tuple[int, int]], on: list[int]) -> set[int]:
    """Devices that some path leaves and enters again, by walking all paths."""
    found: set[int] = set()

    def walk(v: int, start: int, left: bool) -> None:
        left = left or on[v] != on[start]
        if left and on[v] == on[start]:
            found.add(on[v])
        for a, b in edges:
            if a == v:
                walk(b, start, left)

    for v in range(len(on)):
        walk(v, v, False)
    return found


def one_second_each(edges, on, d):
    """Arguments of a plan in which only the edges matter: tasks of a second without bytes, devices without limits."""
    n = len(on)
    zero = np.zeros(n)
    return np.ones((n, d)), zero, np.array(edges).reshape(-1, 2), zero, [np.inf] * d, [0] * d, [0] * d, on


@given(placed_graphs())
def test_convexity_equals_walking_all_paths(graph):
    edges, on, d = graph
    report = check_stages(*one_second_each(edges, on, d), contiguity="device")
    named = {int(v.split()[1]) for v in report.violations}
    assert named == leaves_and_returns(edges, on)


@given(placed_graphs())
def test_an_order_exists_when_some_permutation_of_devices_fits(graph):
    edges, on, d = graph
    report = check_stages(*one_second_each(edges, on, d))
    fits = [p for p in itertools.permutations(range(d)) if all(p.index(on[a]) <= p.index(on[b]) for a, b in edges)]
    assert bool(report.violations) is not bool(fits)
    if fits:
        assert tuple(k for k in report.order) in {tuple(k for k in p if k in on) for p in fits}


def mutations(placement: np.ndarray, devices: int, rng: np.random.Generator):
    """Plans with one task moved to another device."""
    for v in rng.permutation(len(placement)):
        broken = placement.copy()
        broken[v] = (broken[v] + int(rng.integers(1, devices))) % devices
        yield int(v), broken


def test_a_moved_task_breaks_a_rule_or_the_claimed_value():
    """A plan whose devices are all at the claimed value: no task can move unnoticed."""
    n, d = 12, 3
    case = {
        "time": np.tile(np.array([2.0, 2.0, 2.0]), (n, 1)),
        "size": np.ones(n),
        "edges": np.array([(v, v + 1) for v in range(n - 1)]),
        "weight": np.ones(n),
        "memory": [4.0] * d,
        "rate_in": [1.0] * d,
        "rate_out": [1.0] * d,
    }
    plan = np.repeat(np.arange(d), n // d)
    assert check_stages(placement=plan, claimed=10.0, **case).violations == ()
    for _, broken in mutations(plan, d, np.random.default_rng(0)):
        assert check_stages(placement=broken, claimed=10.0, **case).violations
    # without a memory limit and a claimed value, what is left is contiguity: a task from within a stage breaks both kinds
    for contiguity in ("ideals", "device"):
        for v, broken in mutations(plan, d, np.random.default_rng(1)):
            report = check_stages(placement=broken, contiguity=contiguity, **case | {"memory": [np.inf] * d})
            if v % 4 in (1, 2):
                assert report.violations


def test_fifty_thousand_tasks():
    n, d = 50_000, 16
    rng = np.random.default_rng(0)
    consumer = np.repeat(np.arange(1, n), 2)
    edges = np.column_stack([np.maximum(0, consumer - rng.integers(1, 9, len(consumer))), consumer])
    plan = np.minimum(np.arange(n) * d // n, d - 1)
    case = {
        "time": rng.integers(0, 100, (n, d)) * 1.0,
        "size": np.ones(n),
        "edges": edges,
        "weight": rng.integers(0, 9, n) * 1.0,
        "memory": np.full(d, n / d),
        "rate_in": np.ones(d),
        "rate_out": np.ones(d),
    }
    report = check_stages(placement=plan, **case)
    assert report.violations == () and report.order == tuple(range(d))
    assert sum(report.compute) == int(case["time"][np.arange(n), plan].sum())
    assert check_stages(placement=plan, contiguity="device", **case).violations == ()
    plan[n // 2] = 0
    assert any("task 25000" in v for v in check_stages(placement=plan, contiguity="device", **case).violations)
