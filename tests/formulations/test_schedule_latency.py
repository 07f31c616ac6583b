"""schedule.latency: a published example, each constraint by hand, brute force, bounds under optima."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance
from hetopt.algorithms.dag_list import RULES
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

LATENCY = problem("schedule.latency")


def topcuoglu() -> Instance:
    """Ten tasks on three processors, the example of Topcuoglu, Hariri and Wu (2002): figure 2 and table 1."""
    times = [[14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10], [13, 16, 9], [7, 15, 11], [5, 11, 14],
             [18, 12, 20], [21, 7, 16]]  # fmt: skip
    sent = {(1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23, (4, 8): 27,
            (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13}  # fmt: skip
    tasks = [Task(name=f"n{k + 1}", time=row) for k, row in enumerate(times)]
    edges = [Edge(source=f"n{u}", target=f"n{v}", data=data) for (u, v), data in sent.items()]
    devices = [Device(name=f"P{i}") for i in (1, 2, 3)]
    links = [Link(source="*", target="*", bandwidth=1)]
    return Instance.build(
        devices, [Job(name="job", tasks=tasks, edges=edges)], links, question={"objective": "dag-makespan"}
    )


def two(times, *, data=0, links=(), devices=(), release=0, **facts) -> Instance:
    """Tasks a, b, ... one after the other on devices p, q, ..."""
    names = "abcdef"[: len(times)]
    tasks = [Task(name=v, time=row, output=data, **facts) for v, row in zip(names, times, strict=True)]
    edges = [Edge(source=u, target=v) for u, v in itertools.pairwise(names)]
    crew = devices or [Device(name=v) for v in "pqr"[: len(times[0])]]
    return Instance.build(crew, [Job(name="j", tasks=tasks, edges=edges, release=release)], links)


def value(instance: Instance, **options) -> float:
    result = hetopt.solve(instance, objective="schedule-latency", **options)
    assert result.status == "optimal", result.messages
    return result.objective


class TestPublished:
    def test_list_schedules_of_the_example(self):
        known = {"heft": 80.0, "cpop": 86.0}  # as printed in the paper
        for method, expected in known.items():
            assert hetopt.solve(topcuoglu(), method=method).objective == expected

    def test_the_optimum_of_the_example_is_proved(self):
        result = hetopt.solve(topcuoglu())
        assert (result.status, result.objective, result.bound) == ("optimal", 73.0, 73.0)


class TestConstraints:
    def test_a_transfer_takes_latency_and_bytes_over_bandwidth(self):
        fast = [Link(source="*", target="*", bandwidth=4, latency=1)]
        assert value(two([[1, 50], [50, 1]], data=8, links=fast)) == 1 + (1 + 2) + 1

    def test_links_are_directed(self):
        links = [Link(source="p", target="q", bandwidth=None, latency=30), Link(source="q", target="p", bandwidth=None)]
        assert value(two([[1, 50], [50, 1]], links=links)) == 1 + 30 + 1
        assert value(two([[50, 1], [1, 50]], links=links)) == 1 + 1

    def test_without_a_link_of_the_two_the_way_leads_through_the_host(self):
        links = [Link(source="p", target="host", bandwidth=2), Link(source="host", target="q", bandwidth=4, latency=1)]
        links += [Link(source="q", target="host", bandwidth=1), Link(source="host", target="p", bandwidth=1)]
        assert value(two([[1, 50], [50, 1]], data=4, links=links)) == 1 + 2 + (1 + 1) + 1

    def test_no_way_at_all_is_an_error_that_names_the_pair(self):
        with pytest.raises(InputError, match="no entry matches 'p' -> 'q'"):
            hetopt.solve(two([[1, 50], [50, 1]]), objective="schedule-latency")

    def test_one_task_at_a_time_on_a_device(self):
        jobs = [Job(name=v, time=[3, 4]) for v in "abc"]
        assert value(Instance.build([Device(name="p"), Device(name="q")], jobs)) == 6

    def test_releases_and_devices_that_are_free_later(self):
        assert value(two([[2]], release=5)) == 7
        assert value(two([[2]], devices=[Device(name="p", available_from=4)], release=1)) == 6

    def test_memory_is_the_sum_on_a_device(self):
        devices = [Device(name="p", memory=5), Device(name="q", memory=5)]
        links = [Link(source="*", target="*", bandwidth=None, latency=7)]
        assert value(two([[1, 1], [1, 1]], links=links, devices=devices, memory=2)) == 2
        assert value(two([[1, 1], [1, 1]], links=links, devices=devices, memory=3)) == 1 + 7 + 1

    def test_too_little_memory_is_told_by_how_much(self):
        result = hetopt.solve(
            two([[1], [1]], devices=[Device(name="p", memory=5)], memory=3), objective="schedule-latency"
        )
        assert result.status == "infeasible"
        assert "1 bytes short" in result.infeasible[0]

    def test_a_group_shares_a_device(self):
        links = [Link(source="*", target="*", bandwidth=None)]
        assert value(two([[1, 5], [5, 1]], links=links)) == 2
        assert value(two([[1, 5], [5, 1]], links=links, group="g")) == 6

    def test_a_task_of_no_length_takes_no_device_time(self):
        tasks = [Task(name="long", time=[10]), Task(name="early", time=[2]), Task(name="mark", time=[0])]
        edges = [Edge(source="early", target="mark")]
        instance = Instance.build([Device(name="p")], [Job(name="j", tasks=tasks, edges=edges)])
        plan = hetopt.Solution(placement=np.zeros(3, int), start=np.array([0.0, 10.0, 12.0]))
        assert not LATENCY.evaluate(instance, LATENCY.question(instance), plan).violations


class TestChecker:
    """Each damage to a valid plan is told."""

    @pytest.mark.parametrize(
        ("start", "said"),
        [
            ([0, 5], "before the result of 'a' from 'p' is there at 6"),
            ([-1, 6], "before its release at 0"),
            ([0, np.nan], "has no start time"),
        ],
        ids=["transfer", "release", "nowhere"],
    )
    def test_moments(self, start, said):
        instance = two([[3, 9], [9, 3]], data=6, links=[Link(source="*", target="*", bandwidth=2)])
        plan = hetopt.Solution(placement=np.array([0, 1]), start=np.array(start, float))
        found = LATENCY.evaluate(instance, LATENCY.question(instance), plan).violations
        assert any(said in sentence for sentence in found), found

    def test_overlap_memory_and_a_task_left_out(self):
        jobs = [Job(name=v, time=[3], memory=4) for v in "ab"]
        instance = Instance.build([Device(name="p", memory=8)], jobs)
        question = LATENCY.question(instance)

        def said(placement, start):
            plan = hetopt.Solution(placement=np.array(placement), start=np.array(start, float))
            return " ".join(LATENCY.evaluate(instance, question, plan).violations)

        assert not said([0, 0], [0, 3])
        assert "at the same time" in said([0, 0], [0, 2])
        assert "not placed" in said([0, -1], [0, 3])
        tight = Instance.build([Device(name="p", memory=7)], jobs)
        plan = hetopt.Solution(placement=np.zeros(2, int), start=np.array([0.0, 3.0]))
        assert "1 too many" in LATENCY.evaluate(tight, question, plan).violations[0]


def test_two_hundred_random_instances():
    """Bound <= optimum <= every plan; CP-SAT finds the optimum of brute force."""
    for seed in range(200):
        instance = LATENCY.sample(1000 + seed)
        question = LATENCY.question(instance)
        judged = (LATENCY.evaluate(instance, question, plan) for plan in LATENCY.every_plan(instance, question))
        optimum = min((e.value for e in judged if not e.violations), default=None)
        if optimum is None:
            continue
        bounds = [hetopt.bound(instance, method=method).bound for method in ("paths", *(("lp",) if seed < 40 else ()))]
        assert max(bounds) <= optimum * (1 + 1e-9), seed
        for rule in RULES:
            found = hetopt.solve(instance, method=rule)
            assert found.objective is None or found.objective >= optimum * (1 - 1e-9), (seed, rule)
        if seed < 40:
            exact = hetopt.solve(instance, method="cpsat")
            assert (exact.status, exact.objective) == ("optimal", pytest.approx(optimum, rel=1e-9)), seed
