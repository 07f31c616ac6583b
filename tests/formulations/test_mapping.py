"""partition.mapping and partition.mapping_throughput: each constraint by hand, brute force, the heuristics' own parts."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hetopt
from formulations.partition import mapping_throughput
from hetopt import Instance
from hetopt.algorithms.dag_graph import graph_of
from hetopt.algorithms.dag_modules import balanced_parts, modules
from hetopt.algorithms.dag_period import period_search
from hetopt.io import generators
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

PERIOD = problem("partition.mapping_throughput")


def fork(times, data=(4, 4), bandwidth=2, memory=(None, None), each=0, **facts) -> Instance:
    """Task a feeds b and c; devices p and q."""
    tasks = [Task(name=v, time=row, memory=each, **facts) for v, row in zip("abc", times, strict=True)]
    edges = [Edge(source="a", target=v, data=sent) for v, sent in zip("bc", data, strict=True)]
    devices = [Device(name=v, memory=m) for v, m in zip("pq", memory, strict=True)]
    links = [Link(source="*", target="*", bandwidth=bandwidth, latency=100)]
    return Instance.build(devices, [Job(name="j", tasks=tasks, edges=edges)], links)


def period(instance: Instance, placement) -> hetopt.formulation.Evaluation:
    return PERIOD.evaluate(instance, PERIOD.question(instance), hetopt.Solution.assign(placement))


class TestPeriod:
    def test_load_of_a_device(self):
        assert period(fork([[3, 1], [4, 1], [5, 1]]), [0, 0, 0]).value == 12

    def test_what_goes_to_two_tasks_on_one_device_travels_once(self):
        instance = fork([[1, 1], [1, 1], [1, 1]], data=(8, 6))
        assert period(instance, [0, 1, 1]).value == 8 / 2
        assert period(instance, [0, 1, 0]).value == 8 / 2
        assert period(instance, [0, 0, 1]).value == 6 / 2

    def test_the_optimum_weighs_devices_and_links(self):
        cheap, dear = fork([[6, 9], [6, 7], [6, 7]], data=(2, 2)), fork([[6, 9], [6, 7], [6, 7]], data=(60, 60))
        assert hetopt.solve(cheap, objective="mapping-throughput").objective == 12
        assert hetopt.solve(dear, objective="mapping-throughput").objective == 18

    def test_memory_and_groups(self):
        tight = fork([[1, 9], [1, 9], [1, 9]], memory=(5, 9), data=(0, 0), each=2)
        assert hetopt.solve(tight, objective="mapping-throughput").objective == 9
        together = fork([[1, 1], [1, 1], [1, 1]], data=(0, 0), group="g")
        assert hetopt.solve(together, objective="mapping-throughput").objective == 3

    def test_damages_are_told(self):
        instance = fork([[1, None], [1, 1], [1, 1]])
        assert "cannot run on 'q'" in period(instance, [1, 0, 0]).violations[0]
        assert "not placed" in period(instance, [0, -1, 0]).violations[0]


@pytest.mark.parametrize("objective", ["mapping-throughput", "mapping"])
def test_bound_optimum_heuristics(objective):
    one = problem("partition.mapping_throughput" if objective != "mapping" else "partition.mapping")
    for seed in range(100, 130 if os.environ.get("HETOPT_LONG_TESTS") else 108):
        instance = one.sample(seed).with_question({"objective": objective})
        question = one.question(instance)
        judged = (one.evaluate(instance, question, plan) for plan in one.every_plan(instance, question))
        optimum = min((e.value for e in judged if not e.violations), default=None)
        if optimum is None:
            continue
        assert hetopt.bound(instance, method="lp").bound <= optimum * (1 + 1e-9)
        for method in ("search",) if objective != "mapping" else ("modules", "partition"):
            if one.method(method).fits(instance, question) is None:
                found = hetopt.solve(instance, method=method, time_limit=1)
                assert found.objective is None or found.objective >= optimum * (1 - 1e-9)


def test_the_search_ends_when_nothing_comes_of_it(monkeypatch):
    """Two tasks on two devices: the first attempt finds all there is, and five more find nothing."""
    attempts = []

    def counted(graph, begin, *, seed, **more):
        attempts.append(seed)
        return period_search(graph, begin, seed=seed, **more)

    monkeypatch.setattr(mapping_throughput, "period_search", counted)
    instance = Instance.from_times([[3, 4], [4, 3]], question={"objective": "mapping-throughput"})
    result = hetopt.solve(instance, method="search", time_limit=600)
    assert (result.reason, result.objective) == ("finished", 3)
    assert len(set(attempts)) == 1 + mapping_throughput.DRY


def test_the_combined_bound_is_at_least_both_of_its_parts():
    instance = generators.get("task-graph").make(shape="wired", tasks=20, devices=3, unrelated=True, seed=4)
    bound = hetopt.bound(instance, objective="mapping", method="lp")
    assert bound.bound_proof == "replayed"
    least = instance.time.min(axis=1)
    longest = np.zeros(20)
    for u, v in instance.edges:  # sorted, and each edge leads upwards
        longest[v] = max(longest[v], longest[u] + least[u])
    path = float((longest + least).max())
    load = hetopt.bound(Instance.from_times(instance.time), method="lp").bound
    assert bound.bound >= max(path, load) * (1 - 1e-6)


def test_modules_come_after_what_they_read():
    rng = np.random.default_rng(3)
    pairs = [(u, v) for u in range(60) for v in range(u + 1, min(60, u + 9)) if rng.random() < 0.25]
    graph = graph_of(np.ones((60, 2)), pairs, np.ones(len(pairs)), np.zeros((2, 2)), 1.0 - np.eye(2))
    pieces = modules(graph, most=7, seed=1)
    assert sorted(np.concatenate(pieces).tolist()) == list(range(60))
    assert max(map(len, pieces)) <= 7
    place = {v: (k, i) for k, piece in enumerate(pieces) for i, v in enumerate(piece.tolist())}
    assert all(place[u] < place[v] for u, v in pairs)


def test_parts_cut_less_when_more_load_is_allowed():
    times = np.ones((40, 2))
    edges = np.array([(k, k + 1) for k in range(39)])
    even = np.full(2, 0.5)
    tight, loose = (
        balanced_parts(times, np.zeros(40), np.full(2, np.inf), edges, np.ones(39), limit, even)
        for limit in (20.0, 40.0)
    )
    cuts = [int((part[:-1] != part[1:]).sum()) for part in (tight, loose)]
    assert np.bincount(tight).max() == 20
    assert cuts[1] == 0 < cuts[0]
