"""From tasks to classes: each step by hand, and the loads of whole parts against the task-level evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from stage_cases import device_arrays, random_case

from hetopt.algorithms.contraction import contract, equal_nets
from hetopt.verify.stages import check_stages


def chain(n: int, **changes):
    """A chain of n tasks of one second on two accelerators and a CPU, each with an output of one second."""
    case = {
        "time": np.tile([1.0, 10.0], (n, 1)),
        "size": np.ones(n),
        "edges": np.array([(v, v + 1) for v in range(n - 1)]).reshape(-1, 2),
        "weight": np.ones(n),
        "group": np.full(n, -1),
        "backward": np.zeros(n, bool),
        "count": [2, 1],
        "memory": [np.inf, np.inf],
        "rate_in": [1.0, 0.0],
        "rate_out": [1.0, 0.0],
    }
    return case | changes


def preds(graph) -> list[list[int]]:
    return [graph.pred[graph.pred_ptr[v] : graph.pred_ptr[v + 1]].tolist() for v in range(graph.n)]


def nets(graph) -> list[tuple[list[int], int, float]]:
    ends = zip(graph.net_ptr[:-1], graph.net_ptr[1:], strict=True)
    pins = [graph.net_pin[a:b].tolist() for a, b in ends]
    return sorted(zip(pins, graph.net_source.tolist(), graph.net_weight.tolist(), strict=True))


def test_a_chain_stays_a_chain():
    graph = contract(**chain(4))
    assert preds(graph) == [[], [0], [1], [2]]
    assert nets(graph) == [([0, 1], 0, 1.0), ([1, 2], 1, 1.0), ([2, 3], 2, 1.0)]
    assert graph.backward_time is None and graph.member.tolist() == [0, 1, 2, 3]


def test_groups_become_one_class_with_added_times_and_sizes():
    graph = contract(**chain(4, group=np.array([7, 7, -1, -1])))
    assert graph.n == 3
    assert graph.time[0].tolist() == [2.0, 20.0] and graph.size[0] == 2.0
    assert nets(graph) == [([0, 1], 0, 1.0), ([1, 2], 1, 1.0)]


def test_a_group_around_another_task_fuses_the_cycle():
    graph = contract(**chain(4, group=np.array([7, -1, 7, -1])))
    assert graph.n == 2 and graph.member.tolist() == [0, 0, 0, 1]


def test_no_cycle_is_fused_without_contiguity():
    graph = contract(**chain(4, group=np.array([7, -1, 7, -1])), contiguous=False)
    assert graph.n == 3 and len(graph.pred) == 0
    assert graph.member.tolist() == [0, 1, 0, 2]


def test_an_output_to_several_consumers_is_one_net():
    graph = contract(**chain(3, edges=np.array([(0, 1), (0, 2), (1, 2), (0, 2)])))
    assert nets(graph) == [([0, 1, 2], 0, 1.0), ([1, 2], 1, 1.0)]


def training() -> dict:
    """Forward 0 -> 1, backward 3 -> 2 and 2 -> 4; (0, 2) and (1, 3) share devices, 4 is an orphan."""
    return chain(
        5,
        edges=np.array([(0, 1), (1, 3), (3, 2), (2, 4)]),
        group=np.array([0, 1, 0, 1, 2]),
        backward=np.array([False, False, True, True, True]),
    )


def test_orphans_get_the_reversed_precedence_of_their_backward_edges():
    graph = contract(**training())
    orphan, first, last = graph.member[4], graph.member[0], graph.member[1]
    assert preds(graph)[first] == [orphan] and preds(graph)[last] == [first] and preds(graph)[orphan] == []
    loose = contract(**training(), mirror_orphans=False)
    assert preds(loose)[loose.member[4]] == []
    assert all(loose.member[4] not in before for before in preds(loose))


def test_passes_are_kept_apart():
    graph = contract(**training())
    first = graph.member[0]
    assert graph.time[first].tolist() == [2.0, 20.0] and graph.backward_time[first].tolist() == [1.0, 10.0]
    pair = sorted([int(graph.member[0]), int(graph.member[1])])
    between = [
        (source, graph.net_backward[h])
        for h, (pins, source) in enumerate(
            (graph.net_pin[graph.net_ptr[h] : graph.net_ptr[h + 1]].tolist(), graph.net_source[h])
            for h in range(len(graph.net_weight))
        )
        if pins == pair
    ]
    assert sorted(bool(b) for _, b in between) == [False, True]


def zero(n: int, *tasks: int) -> np.ndarray:
    time = np.tile([1.0, 10.0], (n, 1))
    time[list(tasks)] = 0.0
    return time


def test_a_zero_time_source_joins_its_only_consumer():
    graph = contract(**chain(3, time=zero(3, 0)))
    assert graph.member.tolist() == [0, 0, 1]
    assert contract(**chain(3, time=zero(3, 0)), merge_zero_time=False).n == 3


def test_a_zero_time_task_stays_where_its_size_can_decide():
    graph = contract(**chain(3, time=zero(3, 0), memory=[2.5, np.inf]))
    assert graph.n == 3
    assert contract(**chain(3, time=zero(3, 0), memory=[3.0, np.inf])).n == 2
    assert contract(**chain(3, time=zero(3, 0), memory=[2.5, np.inf], size=np.array([0.0, 1.0, 2.0]))).n == 2


def test_a_zero_time_task_with_a_heavier_output_joins_its_consumer():
    case = chain(4, time=zero(4, 1), weight=np.array([1.0, 5.0, 1.0, 1.0]))
    assert contract(**case).member.tolist() == [0, 1, 1, 2]
    case["weight"] = np.array([5.0, 1.0, 1.0, 1.0])
    assert contract(**case).member.tolist() == [0, 0, 1, 2]


def test_a_zero_time_task_between_two_producers_and_a_cheap_output_stays():
    case = chain(4, time=zero(4, 2), edges=np.array([(0, 2), (1, 2), (2, 3)]))
    assert contract(**case).n == 4
    case["weight"] = np.array([1.0, 1.0, 2.0, 1.0])
    assert contract(**case).n == 3


def test_a_zero_time_task_that_cannot_follow_its_neighbour_stays():
    time = zero(3, 0)
    time[0, 0] = np.inf
    assert contract(**chain(3, time=time)).n == 3


def test_direction_of_rates_keeps_outputs_apart():
    # the sender pays 3, the receiver 1: moving a zero-time source would turn a cheap arrival into a dear departure
    case = chain(3, time=zero(3, 0), edges=np.array([(0, 1), (0, 2)]), rate_in=[1.0, 0.0], rate_out=[3.0, 0.0])
    assert contract(**case).n == 3


@pytest.mark.parametrize("contiguous", [True, False])
def test_load_of_parts_equals_the_load_of_their_tasks(contiguous):
    """Projection loses nothing: any part of classes costs what its tasks cost, in either pass."""
    checked = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        case = random_case(rng, 9, directed=bool(seed % 2), training=bool(seed % 3))
        case["count"] = np.ones(len(case["count"]), np.int64)
        graph = contract(**case, contiguous=contiguous)
        place = rng.integers(0, len(case["count"]), graph.n)
        report = check_stages(placement=place[graph.member], contiguity="none", **device_arrays(case))
        assert not [v for v in report.violations if "group" in v]
        for t in range(len(case["count"])):
            assert graph.load(place == t, t) == report.load[t]
            forward, backward = graph.pass_loads(place == t, t)
            if np.isfinite(report.load[t]):
                assert (forward + backward, backward) == (report.load[t], report.backward_load[t])
            assert graph.size[place == t].sum() == report.memory[t]
            checked += 1
    assert checked > 200


def test_precedence_is_acyclic_and_numbered():
    for seed in range(60):
        graph = contract(**random_case(np.random.default_rng(seed), 12, training=bool(seed % 2)))
        for v, before in enumerate(preds(graph)):
            assert before == sorted(set(before)) and all(u < v for u in before)


def test_twenty_thousand_operators():
    rng = np.random.default_rng(3)
    n = 20_000
    edges = np.array([(max(0, v - int(k)), v) for v in range(1, n) for k in rng.integers(1, 6, 2)])
    time = np.where(rng.random((n, 1)) < 0.5, 0.0, rng.integers(1, 9, (n, 1))) * np.array([[1.0, 10.0]])
    case = chain(n, time=time, edges=edges[edges[:, 0] != edges[:, 1]], weight=rng.integers(0, 4, n) * 1.0)
    case["count"] = [1, 1]
    graph = contract(**case)
    assert graph.n < n
    place = (np.arange(graph.n) >= graph.n // 2).astype(np.int64)
    report = check_stages(placement=place[graph.member], **device_arrays(case))
    assert report.violations == ()
    assert [graph.load(place == t, t) for t in (0, 1)] == report.load


def test_equal_nets_compares_pins_and_kind():
    ptr, pin = np.array([0, 2, 4, 7, 9]), np.array([0, 1, 0, 1, 0, 1, 2, 0, 1])
    assert equal_nets(ptr, pin, np.zeros(4, np.int64)).tolist() == [0, 0, 2, 0]
    assert equal_nets(ptr, pin, np.array([0, 0, 0, 1])).tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": np.ones(4)}, "one row a task"),
        ({"size": np.ones(3)}, r"size has shape \(3,\); expected \(4,\)"),
        ({"weight": -np.ones(4)}, "weight holds a negative number or NaN"),
        ({"time": np.full((4, 2), np.nan)}, "time holds a negative number or NaN"),
        ({"size": np.full(4, np.inf)}, "size holds an infinite number"),
        ({"edges": np.array([(0, 4)])}, "edges names task 4; there are 4 tasks"),
        ({"edges": np.array([(0, 1, 2)])}, "expected pairs"),
        ({"count": [1.5, 1]}, "count holds a fraction"),
        ({"count": [1]}, "one number a device type"),
    ],
)
def test_bad_arrays_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        contract(**chain(4, **change))


def test_no_tasks_give_no_classes():
    graph = contract(**chain(0))
    assert graph.n == 0 and len(graph.net_weight) == 0
