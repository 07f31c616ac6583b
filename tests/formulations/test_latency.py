"""partition.latency on published workloads that are quick to prove, and small cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

import hetopt
from hetopt.io import importers
from hetopt.registry import problem_for

# Optima for one subgraph an accelerator, Tarnawski et al. (NeurIPS 2020) latency workloads, by label search.
OPTIMA = {
    "LayerGraphs/bert24_inference": 100.2185,
    "LayerGraphs/gnmt_inference": 225.647890625,
    "LayerGraphs/resnet50_inference": 1156.88128125,
    "OperatorGraphs/resnet50_inference": 651.1207589922,
}


@pytest.mark.parametrize("name", OPTIMA)
def test_published_optimum_is_found_proved_and_verified(name, data_dir):
    instance = importers.get("dnn-partitioning").load(data_dir / "dnn-partitioning" / "latency-inputs" / f"{name}.json")
    assert problem_for(instance).name == "partition.latency"
    result = hetopt.solve(instance)
    assert result.status == "optimal"
    assert result.objective == pytest.approx(OPTIMA[name], rel=1e-9)
    assert hetopt.verify(instance, result).objective == result.objective


def one_accelerator(**question):
    """a -> b -> c on an accelerator of 1, unable, 1 seconds and a host of 9, 2, 9; outputs of 1."""
    return hetopt.Instance.from_graph(
        [[1.0, 9.0], [np.inf, 2.0], [1.0, 9.0]],
        [[0, 1], [1, 2]],
        tasks=["a", "b", "c"],
        devices=[hetopt.Device(name="acc", type="acc"), hetopt.Device(name="cpu", type="cpu", host=True)],
        output=[1, 1, 1],
        links=[hetopt.Link(source="acc", target="host", bandwidth=1, both=True)],
        question={"objective": "inference-latency", **question},
    )


def test_a_second_subgraph_lets_an_accelerator_come_back():
    """One subgraph: a on it, 1 + 1, b 2, c on the host 9. Two: c on it too, 1 + 1."""
    assert hetopt.solve(one_accelerator()).objective == 2 + 2 + 9
    result = hetopt.solve(one_accelerator(subgraphs=2))
    assert (result.status, result.objective) == ("optimal", 2 + 2 + 2)
    assert result.solution.details == {"subgraphs": {"a": 1, "c": 2}}


def test_the_number_of_subgraphs_is_checked():
    with pytest.raises(hetopt.InputError, match=r"subgraphs is 0, expected a number from 1"):
        hetopt.solve(one_accelerator(subgraphs=0))


def test_a_host_with_a_memory_limit_is_refused():
    graph = hetopt.Instance.from_graph(
        [[1.0]], np.empty((0, 2), int), devices=[hetopt.Device(name="cpu", host=True, memory=4)], memory=[1]
    )
    with pytest.raises(hetopt.InputError, match="hosts have none"):
        hetopt.solve(graph, objective="inference-latency")


def two_in_a_row(memory):
    """Four tasks of 1 second and one byte in a row on two accelerators and a host of 9; the outputs of b weigh nothing."""
    return hetopt.Instance.from_graph(
        [[1.0, 1.0, 9.0]] * 4,
        [[0, 1], [1, 2], [2, 3]],
        tasks=list("abcd"),
        devices=[hetopt.Device(name=f"acc{k}", type="acc", memory=memory) for k in range(2)]
        + [hetopt.Device(name="cpu", type="cpu", host=True)],
        output=[5, 0, 5, 5],
        memory=[1, 1, 1, 1],
        links=[hetopt.Link(source="acc", target="host", bandwidth=1, both=True)],
        question={"objective": "inference-latency", "subgraphs": 2},
    )


@pytest.mark.parametrize(("memory", "best"), [(4, 4), (2, 4)])
def test_packed_subgraphs_are_proved_where_packing_costs_nothing(memory, best):
    """All on one accelerator, or a, b on one and c, d on the other: nothing is moved, 4 seconds."""
    result = hetopt.solve(two_in_a_row(memory), method="packed")
    assert (result.status, result.objective) == ("optimal", best)


def test_the_relaxation_of_packed_is_a_bound_where_memory_is_shared():
    """Room for one byte each: two tasks must be on the host; the relaxation would give each task a place."""
    instance = two_in_a_row(1)
    result = hetopt.solve(instance, method="packed")
    exact = hetopt.solve(instance, method="cpsat")
    assert exact.status == "optimal"
    assert result.bound < exact.objective
    assert result.objective is None or result.objective >= exact.objective


def test_sources_that_run_beside_each_other_do_not_raise_the_bound():
    """t0 and t1 run at once on two accelerators, then t2 and t3: 13 + 24 = 37, and no target above it may be told as a bound."""
    from hetopt.registry import problem

    instance = problem("partition.latency").sample(46)
    for method in ("packed", "cpsat"):
        result = hetopt.solve(instance, options={"subgraphs": 2}, method=method)
        assert not [text for text in result.messages if "contradicts" in text]
        assert result.objective == 37
        assert result.bound is not None
        assert result.bound <= 37
