"""List schedules and bounds of task graphs: compiled and plain kernels agree, orders are topological, replays agree."""

from __future__ import annotations

import numpy as np
import pytest

from hetopt import Instance
from hetopt.algorithms import dag_anneal, dag_bounds, dag_kernels
from hetopt.algorithms.dag_graph import graph_of
from hetopt.algorithms.dag_list import RULES, list_schedule, upward_rank
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.verify.schedule_bounds import heads_and_tails


def drawn(seed: int, n: int = 14, m: int = 3):
    """Times, edges, bytes and slowness of a random graph."""
    rng = np.random.default_rng(seed)
    times = rng.integers(1, 30, (n, m)).astype(float)
    times[(rng.random((n, m)) < 0.2) & (np.arange(m) != rng.integers(0, m, (n, 1)))] = np.inf
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n) if rng.random() < 0.2]
    return times, pairs, rng.integers(0, 20, len(pairs)).astype(float), rng.integers(1, 4, (m, m)) * (1.0 - np.eye(m))


def graph(seed: int, **sizes):
    times, pairs, data, slowness = drawn(seed, **sizes)
    return graph_of(times, pairs, data, np.zeros_like(slowness), slowness, release=np.arange(len(times)) % 3)


@pytest.mark.parametrize("seed", range(4))
def test_plain_and_compiled_kernels_agree(seed, monkeypatch):
    one = graph(seed)
    compiled = [list_schedule(one, rule) for rule in RULES]
    rank, head = upward_rank(one), dag_bounds.heads(one)
    walk = dag_anneal.anneal(one, compiled[0], steps=40, seed=seed)
    for module in (dag_kernels, dag_bounds, dag_anneal):
        for name, kernel in list(vars(module).items()):
            if hasattr(kernel, "py_func"):
                monkeypatch.setattr(module, name, kernel.py_func)
    import hetopt.algorithms.dag_list as rules

    for name in ("place", "waves", "rank_up", "rank_down", "optimistic_costs", "by_priority"):
        monkeypatch.setattr(rules, name, getattr(dag_kernels, name))
    for rule, before in zip(RULES, compiled, strict=True):
        after = list_schedule(one, rule)
        assert np.array_equal(before.machine, after.machine), rule
        assert np.array_equal(before.start, after.start), rule
    assert np.array_equal(rank, upward_rank(one))
    assert np.array_equal(head, dag_bounds.heads(one))
    assert np.array_equal(walk.start, dag_anneal.anneal(one, compiled[0], steps=40, seed=seed).start)


@pytest.mark.parametrize("seed", range(4))
def test_the_replay_finds_the_same_heads_and_tails(seed):
    times, pairs, data, slowness = drawn(seed, n=30, m=4)
    one = graph_of(times, pairs, data, np.zeros_like(slowness), slowness)
    m = len(slowness)
    links = [
        Link(source=f"d{a}", target=f"d{b}", bandwidth=1 / slowness[a, b]) for a in range(m) for b in range(m) if a != b
    ]
    tasks = [Task(name=f"t{v}", time=[None if np.isinf(t) else t for t in row]) for v, row in enumerate(times.tolist())]
    edges = [Edge(source=f"t{u}", target=f"t{v}", data=sent) for (u, v), sent in zip(pairs, data.tolist(), strict=True)]
    devices = [Device(name=f"d{i}") for i in range(m)]
    shared = Instance.build(devices, [Job(name="j", tasks=tasks, edges=edges)], links)
    head, tail = heads_and_tails(shared, shared.time)
    assert np.allclose(head, dag_bounds.heads(one), rtol=1e-12)
    assert np.allclose(tail, dag_bounds.tails(one), rtol=1e-12)


def test_priorities_never_break_the_order():
    one = graph(5, n=40)
    order = dag_kernels.by_priority(
        np.random.default_rng(0).random(40), one.pred_start, one.succ_start, one.succ
    ).tolist()
    place = {v: k for k, v in enumerate(order)}
    assert sorted(order) == list(range(40))
    assert all(place[u] < place[v] for u, v in drawn(5, n=40)[1])


def test_a_gap_is_used():
    # a long wait for a remote result leaves device 0 idle, and a short task that comes later in the order fits into it
    times = [[2.0, np.inf], [np.inf, 2.0], [2.0, np.inf], [3.0, np.inf]]
    one = graph_of(times, [(0, 1), (1, 2)], [4.0, 4.0], np.zeros((2, 2)), 1.0 - np.eye(2))
    found = list_schedule(one, "heft")
    assert found.start.tolist() == [0, 6, 12, 2]
    assert list_schedule(one, "mct").makespan == 17  # behind the last task only
