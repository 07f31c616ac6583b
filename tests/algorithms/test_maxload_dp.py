"""The contiguous max-load program against brute force, a plain program over sets, and the task-level evaluator."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from stage_cases import brute_force, device_arrays, random_case

from hetopt.algorithms import maxload_layers
from hetopt.algorithms.contraction import contract
from hetopt.algorithms.ideals import enumerate_ideals
from hetopt.algorithms.maxload_chain import chain_of, choose_stops, linear_extension
from hetopt.algorithms.maxload_dp import solve_contiguous
from hetopt.algorithms.maxload_layers import Problem, stage_loads
from hetopt.algorithms.stagecosts import NEVER
from hetopt.verify.stages import check_stages


def check_plan(case, graph, answer, variant="sum"):
    report = check_stages(
        placement=answer.device[graph.member],
        claimed=answer.value,
        variant=variant,
        mirror_orphans=True,
        tolerance=0.0,
        **device_arrays(case),
    )
    assert report.violations == ()
    kinds = np.repeat(np.arange(graph.types), graph.count)
    np.testing.assert_array_equal(kinds[answer.device], answer.kind)
    assert sorted(answer.stages) == np.unique(answer.device).tolist()


# 400 instances: half with rates that differ by direction, half with a backward pass; a quarter have no plan at all
@pytest.mark.parametrize("block", range(8))
@pytest.mark.parametrize("variant", ["sum", "max"])
def test_optimum_is_the_brute_force_optimum(block, variant):
    for seed in range(50 * block, 50 * block + 50):
        case = random_case(np.random.default_rng(seed), 6, directed=bool(seed % 2), training=bool(seed // 2 % 2))
        best = brute_force(case, variant=variant)
        graph = contract(**case, merge_zero_time=bool(seed // 4 % 2))
        answer = solve_contiguous(graph, variant=variant)
        # whole numbers: no rounding anywhere
        assert (answer.value, answer.bound, answer.optimal) == (best, best, True)
        if math.isinf(best):
            assert answer.device is None and answer.stats["reason"]
        else:
            check_plan(case, graph, answer, variant)


def plain_program(graph, variant: str) -> float:
    """The dynamic program as one would write it first: all pairs of nested ideals, all device counts, Pareto for max."""
    found = enumerate_ideals(graph.pred_ptr, graph.pred)
    sets = sorted((frozenset(found.members(i).tolist()) for i in range(len(found.last))), key=len)
    counts = [range(c + 1) for c in graph.count.tolist()]
    best = {(tuple([0] * len(counts)), sets[0]): {(0.0, 0.0)}}
    for used in sorted(itertools.product(*counts), key=sum):
        for t in range(len(counts)):
            if used[t] == 0:
                continue
            before = tuple(u - (k == t) for k, u in enumerate(used))
            for low in sets:
                pairs = best.get((before, low), set())
                for high in sets if pairs else []:
                    if not low <= high:
                        continue
                    part = np.zeros(graph.n, bool)
                    part[list(high - low)] = True
                    if graph.size[part].sum() > graph.memory[t]:
                        continue
                    loads = (graph.load(part, t), 0.0) if variant == "sum" else graph.pass_loads(part, t)
                    if math.isinf(loads[0]):
                        continue
                    merged = best.setdefault((used, high), set())
                    merged |= {(max(a, loads[0]), max(b, loads[1])) for a, b in pairs}
                    worse = {p for p in merged for q in merged if p != q and q[0] <= p[0] and q[1] <= p[1]}
                    merged -= worse
    ends = [pair for (_, high), pairs in best.items() if len(high) == graph.n for pair in pairs]
    return min((a + b for a, b in ends), default=math.inf)


@pytest.mark.parametrize("variant", ["sum", "max"])
def test_optimum_is_that_of_the_plain_program_on_wider_graphs(variant):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n = 8
        case = random_case(rng, 3, training=False) | {
            "time": rng.integers(0, 9, (n, 2)) * 1.0,
            "size": rng.integers(1, 4, n) * 1.0,
            "edges": np.array([(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.35]).reshape(
                -1, 2
            ),
            "weight": rng.integers(0, 4, n) * 1.0,
            "group": np.where(
                np.arange(n) >= n - 2, np.arange(n) - n + 2, np.where(np.arange(n) < 2, np.arange(n), -1)
            ),
            "backward": np.arange(n) >= n - 2,
            "count": np.array([2, 1]),
            "memory": np.array([rng.integers(6, 14), np.inf]),
            "rate_in": np.array([1.0, 0.0]),
            "rate_out": np.array([1.0, 0.0]),
        }
        graph = contract(**case)
        answer = solve_contiguous(graph, variant=variant)
        assert (answer.value, answer.bound) == (plain_program(graph, variant),) * 2


@pytest.mark.parametrize("variant", ["sum", "max"])
def test_kernels_equal_their_plain_twins(variant, monkeypatch):
    for seed in range(8):
        case = random_case(np.random.default_rng(seed), 7, directed=bool(seed % 2), training=True)
        graph = contract(**case)
        compiled = solve_contiguous(graph, variant=variant)
        with monkeypatch.context() as patch:
            for name in ("expand_lattice", "expand_chain"):
                patch.setattr(maxload_layers, name, getattr(maxload_layers, name).py_func)
            plain = solve_contiguous(graph, variant=variant)
        assert str(plain) == str(compiled)


def ladder(width: int, length: int, rng: np.random.Generator):
    """Parallel chains that join at each end: (length + 1)^width ideals and two more."""
    n = width * length + 2
    inner = np.arange(1, n - 1).reshape(width, length)
    edges = [(0, row[0]) for row in inner] + [(row[-1], n - 1) for row in inner]
    edges += [(a, b) for row in inner for a, b in itertools.pairwise(row)]
    return {
        "time": rng.integers(1, 30, (n, 1)) * np.array([[1.0, 12.0]]),
        "size": rng.integers(1, 9, n) * 1.0,
        "edges": np.array(edges),
        "weight": rng.integers(0, 6, n) * 1.0,
        "group": np.full(n, -1),
        "backward": np.zeros(n, bool),
        "count": np.array([4, 1]),
        "memory": np.array([100.0, np.inf]),
        "rate_in": np.array([1.0, 0.0]),
        "rate_out": np.array([1.0, 0.0]),
    }


def test_stopping_at_any_moment_leaves_a_plan_and_a_bound_around_the_optimum():
    case = ladder(3, 8, np.random.default_rng(0))
    graph = contract(**case)
    best = solve_contiguous(graph)
    assert best.optimal and best.stats["ideals"] == 9**3 + 2
    check_plan(case, graph, best)
    calls = itertools.count()
    solve_contiguous(graph, should_stop=lambda: next(calls) < 0)
    total = next(calls)
    stopped_open = 0
    for after in range(0, total, max(1, total // 40)):
        clock = itertools.count()
        answer = solve_contiguous(graph, should_stop=lambda: next(clock) >= after)  # noqa: B023
        assert answer.bound <= best.value <= answer.value
        if answer.device is not None:
            check_plan(case, graph, answer)
        if not answer.optimal:
            stopped_open += 1
            assert "stopped" in answer.stats["reason"]
    assert stopped_open > 10


def test_too_many_ideals_give_a_plan_a_bound_and_the_reason():
    case = ladder(3, 8, np.random.default_rng(1))
    graph = contract(**case)
    best = solve_contiguous(graph)
    answer = solve_contiguous(graph, ideal_limit=300)
    assert answer.bound <= best.value <= answer.value < math.inf
    assert not answer.optimal and "the limit is 300 ideals" in answer.stats["reason"]
    check_plan(case, graph, answer)
    assert "not proved" in solve_contiguous(graph, table_limit=5000).stats["reason"]


def test_plans_are_reported_as_they_get_better():
    graph = contract(**ladder(3, 6, np.random.default_rng(2)))
    seen: list[float] = []
    answer = solve_contiguous(graph, report=lambda value, device: seen.append(value))
    assert seen == sorted(seen, reverse=True) and seen[-1] == answer.value


def test_the_same_seed_gives_the_same_plan_and_any_seed_the_same_value():
    graph = contract(**ladder(2, 9, np.random.default_rng(3)))
    first, second, other = (solve_contiguous(graph, seed=s) for s in (4, 4, 5))
    assert str(first) == str(second)
    assert other.value == first.value


def one_device_type(**changes):
    case = {
        "time": np.array([[2.0], [3.0], [4.0]]),
        "size": np.array([4.0, 4.0, 4.0]),
        "edges": np.array([(0, 1), (1, 2)]),
        "weight": np.array([1.0, 2.0, 0.0]),
        "group": np.full(3, -1),
        "backward": np.zeros(3, bool),
        "count": [2],
        "memory": [np.inf],
        "rate_in": [1.0],
        "rate_out": [1.0],
    }
    return case | changes


def test_three_tasks_by_hand():
    # {0, 1 | 2}: 5 + 2 out = 7 and 4 + 2 in = 6; {0 | 1, 2}: 3 and 8; all on one device: 9
    answer = solve_contiguous(contract(**one_device_type()))
    assert answer.value == 7.0 and answer.device.tolist() == [0, 0, 1] and answer.stages == (0, 1)
    # three devices: {0}: 2 + 1, {1}: 3 + 1 + 2, {2}: 4 + 2
    assert solve_contiguous(contract(**one_device_type(count=[3]))).value == 6.0
    # devices may stay empty: splitting costs more than it gains
    dear = solve_contiguous(contract(**one_device_type(count=[5], rate_in=[9.0], rate_out=[9.0])))
    assert dear.value == 9.0 and dear.stages == (0,)


def test_memory_of_many_devices_adds_up_beyond_64_bits():
    n = 24
    case = one_device_type(
        time=np.ones((n, 1)), size=np.ones(n), weight=np.zeros(n), group=np.full(n, -1), backward=np.zeros(n, bool)
    )
    case |= {"edges": np.column_stack([np.arange(n - 1), np.arange(1, n)]), "count": [12], "memory": [23.0]}
    assert solve_contiguous(contract(**case)).value == 2.0


def test_passes_by_hand():
    # one group a pass each; together 6 + 6, apart max(5, 1) + max(1, 5)
    case = one_device_type(
        time=np.array([[5.0], [1.0], [5.0], [1.0]]),
        size=np.zeros(4),
        edges=np.array([(0, 1)]),
        weight=np.zeros(4),
        group=np.array([0, 1, 1, 0]),
        backward=np.array([False, False, True, True]),
    )
    graph = contract(**case)
    assert solve_contiguous(graph, variant="sum").value == 6.0
    assert solve_contiguous(graph, variant="max").value == 10.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time": np.array([[2.0], [np.inf], [4.0]])}, r"class 1 \(task 1\) runs on no type of device"),
        ({"count": [0]}, "runs on no type of device"),
        ({"memory": [3.0]}, "needs 4 of memory; a device has at most 3"),
        ({"memory": [5.0]}, "all classes need 12 of memory; the devices have 10 together"),
        ({"memory": [8.0], "size": np.array([6.0, 4.0, 6.0])}, "every chain of ideals was ruled out"),
    ],
)
def test_infeasible_instances_say_why(change, reason):
    case = one_device_type(**change)
    answer = solve_contiguous(contract(**case))
    assert answer.device is None and answer.optimal and math.isinf(answer.value) and math.isinf(answer.bound)
    assert re.search(reason, answer.stats["reason"])


def test_memory_that_only_rounding_decides_is_judged_by_the_true_sizes():
    # 2^-70 is lost beside 1 in 60 bits: tasks 0 and 1 fit one device in rounded sizes and miss by 2^-70 in truth
    case = one_device_type(
        time=np.ones((3, 1)), size=np.array([2.0**-70, 1.0, 1.0]), weight=np.array([5.0, 0.0, 0.0]), memory=[1.0]
    )
    answer = solve_contiguous(contract(**case | {"count": [3]}))
    assert answer.value == 6.0 and len(answer.stages) == 3
    assert answer.bound <= 6.0 and not answer.optimal and "rounding of sizes" in answer.stats["reason"]
    answer = solve_contiguous(contract(**case))
    assert answer.device is None and not answer.optimal and answer.bound < math.inf
    # a byte more and all is plain
    answer = solve_contiguous(contract(**case | {"memory": [2.0]}))
    assert answer.value == 2.0 and answer.optimal


def test_an_empty_graph_costs_nothing():
    case = one_device_type(time=np.zeros((0, 1)), size=[], weight=[], group=[], backward=[], edges=np.zeros((0, 2)))
    answer = solve_contiguous(contract(**case))
    assert (answer.value, answer.bound, answer.optimal, answer.stages) == (0.0, 0.0, True, ())


def test_an_unknown_variant_is_refused():
    with pytest.raises(ValueError, match="expected 'sum' or 'max'"):
        solve_contiguous(contract(**one_device_type()), variant="mean")


@pytest.mark.parametrize("passes", [1, 2])
def test_chain_tables_hold_the_loads_of_their_stages(passes):
    """Sums over pairs of pins against loads counted part by part."""
    for seed in range(25):
        rng = np.random.default_rng(seed)
        case = random_case(rng, 9, directed=True, training=True)
        case["count"] = np.ones(len(case["count"]), np.int64)
        graph = contract(**case)
        problem = Problem(graph, passes == 2, sizes_up=False)
        order = linear_extension(graph, seed % 3, seed)
        stops = np.unique(np.concatenate([[0, graph.n], rng.integers(0, graph.n + 1, 4)]))
        chain = chain_of(problem.costs, problem.size, problem.room, order, stops, passes)
        for t, a, b in itertools.product(range(graph.types), range(len(stops)), range(len(stops))):
            if a > b:
                continue
            stage = np.sort(order[stops[a] : stops[b]])
            loads = stage_loads(problem.costs, stage, t)
            if max(loads) >= NEVER or problem.size[stage].sum() > problem.room[t]:
                assert chain.loads[t, 0, a, b] == NEVER
            else:
                assert tuple(chain.loads[t, :, a, b].tolist()) == loads[:passes]


@pytest.mark.parametrize("style", [0, 1, 2])
def test_linear_extensions_are_topological(style):
    for seed in range(10):
        graph = contract(**random_case(np.random.default_rng(seed), 12))
        order = linear_extension(graph, style, seed)
        place = np.argsort(order)
        assert sorted(order.tolist()) == list(range(graph.n))
        for v in range(graph.n):
            assert all(place[u] < place[v] for u in graph.pred[graph.pred_ptr[v] : graph.pred_ptr[v + 1]])


def test_stops_of_a_long_chain_lie_where_little_crosses():
    n = 600
    case = {
        "time": np.ones((n, 1)),
        "size": np.zeros(n),
        "edges": np.array([(v, v + 1) for v in range(n - 1)]),
        # every tenth output is light
        "weight": np.where(np.arange(n) % 10 == 9, 1.0, 50.0),
        "group": np.full(n, -1),
        "backward": np.zeros(n, bool),
        "count": [3],
        "memory": [np.inf],
        "rate_in": [1.0],
        "rate_out": [1.0],
    }
    graph = contract(**case)
    problem = Problem(graph, False, sizes_up=False)
    stops = choose_stops(problem.costs, np.arange(n), problem.worths[0], 40, np.zeros(0, np.int64))
    assert stops[0] == 0 and stops[-1] == n and len(stops) <= 42
    assert (stops[1:-1] % 10 == 0).all()
    near = choose_stops(problem.costs, np.arange(n), problem.worths[0], 40, np.array([205]))
    assert set(range(185, 226)) <= set(near.tolist())
    # 200 tasks a device, cut at the light outputs: 200 + 1 in + 1 out
    assert solve_contiguous(graph).value == 202.0
