"""Graph, barrier bounds, label search and segments of inference latency, against full enumeration and by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hetopt.algorithms.ideals import enumerate_ideals
from hetopt.algorithms.latency_barrier import barriers
from hetopt.algorithms.latency_graph import NEVER, LatencyTasks, awkward_groups, build, choices, linear_extension
from hetopt.algorithms.latency_labels import search_labels
from hetopt.algorithms.latency_lattice import cuts, lattice_of, tails
from hetopt.algorithms.latency_segments import best_segments
from hetopt.verify.latency import check_latency


def tasks(acc, host, edges, *, output=None, size=None, group=None, count=1, room=math.inf):
    n = len(acc)
    out = np.zeros(n) if output is None else np.array(output, float)
    return LatencyTasks(
        np.array(acc, float),
        np.array(host, float).reshape(n, 1),
        np.zeros(n) if size is None else np.array(size, float),
        out,
        2 * out,
        np.array(edges, np.int64).reshape(-1, 2),
        np.full(n, -1) if group is None else np.array(group),
        count,
        room,
    )


def value_of(case: LatencyTasks, placement: list[int]) -> float:
    """Latency of a placement on accelerators 0, 1, ... and the host -1; ``inf`` when it is none."""
    k = case.count
    report = check_latency(
        np.column_stack([*[case.acc] * k, case.host]),
        case.size,
        case.edges,
        case.arrive,
        [case.room] * k + [math.inf],
        [False] * k + [True],
        [1.0] * k + [0.0],
        [2.0] * k + [0.0],
        [k if p < 0 else p for p in placement],
        group=case.group,
    )
    return math.inf if report.violations else report.value


def by_enumeration(case: LatencyTasks) -> float:
    plans = itertools.product(range(-1, case.count), repeat=len(case.acc))
    first = lambda plan: [p for p in dict.fromkeys(plan) if p >= 0]  # noqa: E731
    return min(value_of(case, list(p)) for p in plans if first(p) == sorted(first(p)) == list(range(len(first(p)))))


def by_labels(case: LatencyTasks) -> tuple[float, float, float]:
    """Optimum, value of its plan, and barrier bound; ``inf`` without a plan."""
    best, plan, bound = math.inf, math.inf, math.inf
    awkward = awkward_groups(case)
    for places in choices(case, awkward):
        graph = build(case, awkward, places)
        if graph is None:
            continue
        lattice = lattice_of(graph, enumerate_ideals(graph.pred_ptr, graph.pred))
        known = barriers(graph, lattice)
        if known.reached[-1, -1] < NEVER:
            bound = min(bound, max(known.reached[-1, -1], graph.floor[0]) * graph.unit)
        answer = search_labels(graph, lattice, known, cuts(graph), NEVER)
        assert answer.finished
        quick = search_labels(graph, lattice, known, cuts(graph), NEVER, beam=1)
        assert quick.value is None or quick.value >= answer.value
        assert not quick.finished or quick.value == answer.value
        if answer.value is not None and answer.value * graph.unit < best:
            best = answer.value * graph.unit
            plan = value_of(case, np.append(answer.place, -1)[graph.member].tolist())
            again = search_labels(graph, lattice, barriers(graph, lattice, answer.value), cuts(graph), answer.value)
            assert again.finished
            assert again.value is None
            above = answer.value + answer.value // 9 + 1
            again = search_labels(graph, lattice, barriers(graph, lattice, above), cuts(graph), above)
            assert again.value == answer.value
    return best, plan, bound


def random_case(rng: np.random.Generator) -> LatencyTasks:
    n, count = int(rng.integers(1, 7)), int(rng.integers(1, 3))
    acc = rng.integers(0, 8, n).astype(float)
    host = acc * int(rng.integers(2, 6)) + rng.integers(0, 2, n)
    acc[rng.random(n) < 0.1] = np.inf
    host[(rng.random(n) < 0.15) & np.isfinite(acc)] = np.inf
    edges = [(u, v) for u in range(n) for v in range(u + 1, n) if rng.random() < rng.choice([0.2, 0.5])]
    group = np.where(rng.random(n) < 0.25, 0, -1)
    size = rng.integers(0, 5, n)
    room = float(rng.integers(3, 15)) if rng.random() < 0.6 else math.inf
    output = rng.integers(0, 5, n)
    return tasks(acc, host, edges, output=output, size=size, group=group, count=count, room=room)


@pytest.mark.parametrize("block", range(4))
def test_label_search_equals_full_enumeration(block):
    rng = np.random.default_rng(block)
    for _ in range(25):
        case = random_case(rng)
        best = by_enumeration(case)
        found, plan, bound = by_labels(case)
        assert found == plan == best
        assert bound <= best


def test_segments_are_a_plan_no_better_than_its_value():
    rng = np.random.default_rng(7)
    for _ in range(60):
        case = random_case(rng)
        case = case._replace(group=np.full(len(case.acc), -1))
        graph = build(case, [], ())
        for order in (linear_extension(graph, None), linear_extension(graph, rng)):
            found = best_segments(graph, order)
            if found is not None:
                value = value_of(case, np.append(found[1], -1)[graph.member].tolist())
                assert value <= found[0] * graph.unit


def test_a_node_and_its_successor_may_share_an_accelerator():
    """0 -> 1 -> 2 on one accelerator: 1 + 1 + 1 and nothing to move; the tail of 0 does not count 1 and 2 again."""
    assert by_labels(tasks([1, 1, 1], [9, 9, 9], [(0, 1), (1, 2)], output=[1, 1, 1])) == (3, 3, 3)


def test_memory_splits_a_chain():
    """Two tasks of one byte, an accelerator with one: the first on it (1 + 2 to send), the second on the host (9)."""
    best, plan, bound = by_labels(tasks([1, 1], [9, 9], [(0, 1)], output=[1, 1], size=[1, 1], room=1))
    assert (best, plan) == (11, 11)  # 9 on the host, then 1 to receive and 1
    assert bound == 11


def test_a_group_at_both_ends_is_awkward_and_is_tried_in_both_places():
    """0 and 2 share a device around 1; together on the accelerator they take 1 with them."""
    case = tasks([1, 1, 1], [5, 5, 5], [(0, 1), (1, 2)], group=[3, -1, 3])
    assert awkward_groups(case) == [[0, 2]]
    assert list(choices(case, [[0, 2]])) == [(0,), (-1,)]
    assert build(case, [[0, 2]], (-1,)).n == 1
    assert by_labels(case)[0] == 3
    assert by_labels(case._replace(size=np.ones(3), room=2.0))[0] == 11


def test_a_source_that_only_a_host_runs_becomes_a_release_time():
    case = tasks([np.inf, 2], [7, 20], [(0, 1)], output=[3, 0])
    graph = build(case, [], ())
    assert graph.n == 1
    assert graph.release[0] * graph.unit == 7
    assert by_labels(case)[0] == 7 + 3 + 2


def test_an_early_output_waits_for_what_its_late_reader_waits_for():
    """0 -> 1 -> 2 -> 3 and 0 -> 3: once 0 and 1 are in, the output of 0 is of no use before that of 1 is there."""
    graph = build(tasks([1] * 4, [2] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], output=[1, 1, 1, 0]), [], ())
    lattice = lattice_of(graph, enumerate_ideals(graph.pred_ptr, graph.pred))
    ideal = next(i for i, word in enumerate(lattice.words[:, 0]) if word == 0b11)
    first, last = lattice.front_ptr[ideal : ideal + 2]
    assert lattice.front[first:last].tolist() == [0, 1]
    assert lattice.wait[lattice.wait_ptr[first] : lattice.wait_ptr[first + 1]].tolist() == [0b11]


def test_only_the_smallest_sets_of_what_readers_wait_for_are_kept():
    """0 -> 2, (0, 1) -> 3: the output of 0 has a reader that waits for it alone; that of 1 waits for both."""
    graph = build(tasks([1] * 4, [2] * 4, [(0, 2), (0, 3), (1, 3)], output=[1, 1, 0, 0], size=[1] * 4, room=9), [], ())
    lattice = lattice_of(graph, enumerate_ideals(graph.pred_ptr, graph.pred))
    ideal = int(np.argmax(np.diff(lattice.front_ptr)))
    first = lattice.front_ptr[ideal]
    masks = [lattice.wait[slice(*lattice.wait_ptr[p : p + 2])].tolist() for p in (first, first + 1)]
    readers = [np.diff(graph.succ_ptr)[v] for v in lattice.front[first : first + 2]]
    assert [masks[readers.index(2)], masks[readers.index(1)]] == [[1 << readers.index(2)], [0b11]]


def test_cuts_and_tails():
    """0 -> (1, 2) -> 3: 0 and 3 are cuts; the longest tail goes through 2."""
    graph = build(tasks([1, 1, 5, 1], [9, 9, 9, 9], [(0, 1), (0, 2), (1, 3), (2, 3)]), [], ())
    assert cuts(graph).sum() == 2
    assert tails(graph)[0] * graph.unit == 7


def test_a_stopped_search_says_so():
    rng = np.random.default_rng(3)
    n = 14
    edges = [(u, v) for u in range(n) for v in range(u + 1, n) if rng.random() < 0.15]
    graph = build(tasks(rng.integers(1, 9, n), rng.integers(9, 40, n), edges, output=np.ones(n)), [], ())
    lattice = lattice_of(graph, enumerate_ideals(graph.pred_ptr, graph.pred))
    assert barriers(graph, lattice, should_stop=lambda: True) is None
    known = barriers(graph, lattice)
    answer = search_labels(graph, lattice, known, cuts(graph), NEVER, number_limit=1)
    assert not answer.finished
