"""schedule.kernels: copies, engines, queues and splits by hand, the checker, methods against brute force."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.io import generators
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

KERNELS = problem("schedule.kernels")
LINKS = [Link(source="host", target="*", bandwidth=2), Link(source="*", target="host", bandwidth=1)]


def value(instance: Instance, **options) -> float:
    result = hetopt.solve(instance, objective="kernel-makespan", **options)
    assert result.status == "optimal", result.messages
    assert result.verified
    return result.objective


def graph(*times, edges=(), engines=None, kernels=None, output=4, devices=None, **facts) -> Instance:
    """Kernels a, b, ... on devices p, q; p copies 2 bytes a second in and 1 out."""
    names = "abcdef"[: len(times)]
    tasks = [Task(name=v, time=row, output=output) for v, row in zip(names, times, strict=True)]
    arcs = [Edge(source=u, target=v) for u, v in edges]
    crew = devices or [Device(name=v) for v in "pq"[: len(times[0])]]
    tables = {"engines": {"*": engines} if engines else {}, "kernels": kernels or {}}
    return Instance.build(crew, [Job(name="j", tasks=tasks, edges=arcs, **facts)], LINKS, tables=tables)


class TestCopies:
    def test_what_comes_from_the_host_and_goes_there(self):
        assert value(graph([3], kernels={"a": {"in": 4, "out": 5}})) == 4 / 2 + 3 + 5

    def test_between_devices_a_read_and_a_write_on_the_same_nothing(self):
        assert value(graph([1, 90], [90, 1], edges=["ab"])) == 1 + 4 / 1 + 4 / 2 + 1
        assert value(graph([1, 90], [2, 1], edges=["ab"])) == 1 + 2

    def test_a_result_is_read_once_for_all_who_are_elsewhere(self):
        instance = graph([1, None], [None, 1], [None, 1], edges=["ab", "ac"])
        assert value(instance) == 1 + 4 + 2 + 2 + 1  # and written by each of them

    def test_a_device_in_host_memory_copies_nothing(self):
        crew = [Device(name="p", host=True), Device(name="q")]
        assert value(graph([1, 90], [90, 1], edges=["ab"], devices=crew)) == 1 + 2 + 1
        assert value(graph([3, 90], kernels={"a": {"in": 8, "out": 8}}, devices=crew)) == 3


TWO = {"a": {"in": 4, "out": 2}, "b": {"in": 4, "out": 2}}


class TestAtOnce:
    def test_copies_hide_behind_computing(self):
        assert value(graph([2], [2], kernels=TWO)) == 2 + 2 + 2 + 2

    def test_with_one_queue_nothing_overlaps(self):
        assert value(graph([2], [2], kernels=TWO, engines={"queues": 1})) == 2 * (2 + 2 + 2)

    def test_one_engine_for_both_directions(self):
        """Writes and reads take 8 seconds together, and nothing is read before the first kernel has ended."""
        assert value(graph([0], [0], kernels=TWO, engines={"copy": 2})) == 2 + 2 + 2
        assert value(graph([0], [0], kernels=TWO, engines={"copy": 1})) == 8

    def test_slots_compute_at_once(self):
        assert value(graph([5], [5])) == 10
        assert value(graph([5], [5], devices=[Device(name="p", slots=2)])) == 5

    def test_releases_and_devices_that_are_free_later(self):
        assert value(graph([2], release=5)) == 7
        assert value(graph([2], devices=[Device(name="p", available_from=4)], release=1)) == 6


class TestSplits:
    def test_a_kernel_over_two_devices(self):
        assert value(graph([6, 12]), options={"grain": 3}) == 4
        assert value(graph([6, 12]), options={"grain": 1}) == 6
        assert value(graph([6, 12], kernels={"a": {"whole": True}}), options={"grain": 3}) == 6

    def test_each_part_copies_its_share(self):
        crew = [Device(name="p", host=True), Device(name="q")]
        instance = graph([8, 8], kernels={"a": {"in": 8, "out": 4}}, devices=crew)
        # halves: 4 seconds on the host, and 8 / 2 / 2 + 4 + 4 / 2 on q; a quarter on q: 6 and 1 + 2 + 1
        assert value(instance, options={"grain": 2}) == 8
        assert value(instance, options={"grain": 4}) == 6

    def test_split_kernels_talk_through_the_host(self):
        """b is split as a is, and still a's parts are read (2 s each) and b's written (1 s each, all of a's result)."""
        instance = graph([20, 20], [20, 20], edges=["ab"])
        assert value(instance, options={"grain": 2}) == 10 + 2 + 1 + 10


class TestInput:
    @pytest.mark.parametrize(
        ("tables", "said"),
        [
            ({"engines": []}, "must map names to objects with copy, queues"),
            ({"engines": {"x": {}}}, "names 'x'"),
            ({"engines": {"p": {"copy": 3}}}, "copy is 3, expected a whole number from 1 to 2"),
            ({"engines": {"p": {"queue": 3}}}, "has 'queue'; did you mean 'queues'"),
            ({"kernels": {"x": {}}}, "names 'x'"),
            ({"kernels": {"a": {"in": -1}}}, "in is -1, expected bytes"),
            ({"kernels": {"a": {"whole": 1}}}, "whole is 1, expected true or false"),
        ],
        ids=["list", "device", "copy", "key", "kernel", "bytes", "whole"],
    )
    def test_tables(self, tables, said):
        instance = Instance.build([Device(name="p")], [Job(name="a", time=[1])], LINKS, tables=tables)
        with pytest.raises(InputError, match=said):
            hetopt.solve(instance, objective="kernel-makespan")

    def test_a_missing_link_and_a_grain_out_of_range(self):
        with pytest.raises(InputError, match="no entry matches 'host' -> 'p'"):
            hetopt.solve(Instance.build([Device(name="p")], [Job(name="a", time=[1])]), objective="kernel-makespan")
        with pytest.raises(InputError, match="grain is 0"):
            hetopt.solve(graph([1]), objective="kernel-makespan", options={"grain": 0})

    def test_a_deadline_that_cannot_be_met(self):
        instance = graph([3], kernels={"a": {"in": 4, "out": 5}}, deadline=9)
        result = hetopt.solve(instance, objective="kernel-makespan")
        assert (result.status, result.exit_code) == ("infeasible", 3)
        assert result.infeasible == ("job 'j' cannot end before 10, and its deadline is 9: 1 seconds short",)
        assert value(graph([3], kernels={"a": {"in": 4, "out": 5}}, deadline=10)) == 10

    def test_a_deadline_that_two_kernels_cannot_meet_together(self):
        result = hetopt.solve(graph([3], [3], deadline=5), objective="kernel-makespan")
        assert (result.status, result.exit_code) == ("infeasible", 3)
        assert (
            "with 1 seconds more job 'j' and all others would end in time; less is too little" in result.infeasible[0]
        )

    def test_a_deadline_at_the_very_end_in_decimals(self):
        """0.1 and 0.2 add up to more than 0.3 in binary."""
        instance = graph([0.1], [0.2], deadline=0.3)
        for method in ("list", "annealing", "cpsat"):
            result = hetopt.solve(instance, objective="kernel-makespan", method=method)
            assert result.objective == pytest.approx(0.3), method


class TestChecker:
    """a on p, b on q reads it: computed by 3, read by 7, written by 9, computed by 11."""

    GOOD = (["a", "p", 1, None, 0, 3], ["b", "q", 1, 7, 9, None])

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({}, None),
            ({(0, 5): 2}, "is read, before it is computed"),
            ({(1, 3): 6}, "starts to write, before 'a' is there, at 6, before 7"),
            ({(1, 4): 8}, "computes, before its write ends"),
            ({(0, 4): -1}, "before its release"),
            ({(0, 5): None}, "lacks the start"),
            ({(1, 3): None}, "lacks the start"),
            ({(0, 2): 2}, "has 2 units"),
            ({(0, 1): "r"}, "names no device"),
            ({(0, 0): "x"}, "names no kernel"),
            ({(0, 4): "now"}, "has the start 'now'"),
            ({(1, 0): "a"}, "has 2 of its 1 units|two parts"),
        ],
        ids=[
            "valid",
            "read",
            "write",
            "compute",
            "release",
            "no-read",
            "no-write",
            "units",
            "device",
            "kernel",
            "text",
            "twice",
        ],
    )
    def test_moments(self, change, said):
        import re

        instance = graph([3, 9], [9, 2], edges=["ab"])
        rows = [list(row) for row in self.GOOD]
        for (k, at), new in change.items():
            rows[k][at] = new
        found = KERNELS.evaluate(instance, KERNELS.question(instance), Solution(details={"parts": rows}))
        if said is None:
            assert (found.value, found.violations) == (11, ())
        else:
            assert any(re.search(said, sentence) for sentence in found.violations), found.violations

    @pytest.mark.parametrize(
        ("engines", "slots", "rows", "said"),
        [
            ({}, 1, [["a", "p", 1, 0, 2, 4], ["b", "p", 1, 2, 4, 6]], None),
            ({}, 1, [["a", "p", 1, 0, 2, 4], ["b", "p", 1, 1, 4, 6]], "more than 1 writes at once"),
            ({}, 1, [["a", "p", 1, 0, 2, 6], ["b", "p", 1, 2, 4, 7]], "more than 1 reads at once"),
            ({}, 1, [["a", "p", 1, 0, 3, 5], ["b", "p", 1, 2, 4, 7]], "more than 1 kernels that compute at once"),
            ({}, 2, [["a", "p", 1, 0, 3, 5], ["b", "p", 1, 2, 4, 7]], None),
            ({"copy": 1}, 1, [["a", "p", 1, 0, 2, 4], ["b", "p", 1, 3, 5, 7]], "more than 1 copies at once"),
            ({"queues": 1}, 1, [["a", "p", 1, 0, 2, 4], ["b", "p", 1, 2, 4, 6]], "more than 1 kernels in flight"),
        ],
        ids=["valid", "writes", "reads", "computes", "slots", "one-engine", "one-queue"],
    )
    def test_resources(self, engines, slots, rows, said):
        instance = graph(
            [2], [2], kernels=TWO, engines=engines, devices=[Device(name="p", slots=slots)]
        )  # fmt: skip
        found = KERNELS.evaluate(instance, KERNELS.question(instance), Solution(details={"parts": rows}))
        assert (not found.violations) if said is None else any(said in s for s in found.violations), found.violations

    def test_a_split_kernel_that_may_not_be(self):
        instance = graph([2, 2], kernels={"a": {"whole": True}})
        rows = [["a", "p", 1, None, 0, None], ["a", "q", 1, None, 0, None]]
        found = KERNELS.evaluate(instance, KERNELS.question(instance, {"grain": 2}), Solution(details={"parts": rows}))
        assert "may on one device: it cannot be split" in found.violations[0]


def test_random_instances():
    """Bounds <= optimum <= every plan; CP-SAT finds the optimum of brute force."""
    long = os.environ.get("HETOPT_LONG_TESTS")
    for seed in range(200 if long else 10):
        instance = KERNELS.sample(1000 + seed)
        question = KERNELS.question(instance)
        judged = (KERNELS.evaluate(instance, question, plan) for plan in KERNELS.every_plan(instance, question))
        optimum = min((e.value for e in judged if not e.violations), default=None)
        exact = hetopt.solve(instance, method="cpsat")
        assert exact.status == ("infeasible" if optimum is None else "optimal"), seed
        if optimum is None:
            continue
        assert exact.objective == pytest.approx(optimum, rel=1e-9), seed
        for method in ("paths", "lp"):
            assert hetopt.bound(instance, method=method).bound <= optimum * (1 + 1e-9), (seed, method)
        for method in ("list", "annealing"):
            found = hetopt.solve(instance, method=method, time_limit=0.2)
            assert found.objective is None or found.objective >= optimum * (1 - 1e-9), (seed, method)


def test_the_kernel_is_its_own_plain_twin():
    from formulations.schedule._kernels import kernels, ranks
    from hetopt.algorithms import kernel_stages

    if not hasattr(kernel_stages._timed, "py_func"):
        pytest.skip("no compiled code")
    instance = generators.get("kernel-graph").make(kernels=5, seed=3, grain=2)
    data = kernels(instance, KERNELS.question(instance))
    way, key = np.array(data.first[:-1]), np.repeat(-ranks(data), 6).reshape(-1, 3)

    def run():
        found = kernel_stages.timed(data, way, key, True)
        return kernel_stages.anneal(data, found, ranks(data), seed=1, steps=40)

    names = ("_crosses", "_seconds", "_timed", "uniform", "_anneal")
    compiled = run()
    kept = {name: getattr(kernel_stages, name) for name in names}
    try:
        for name, kernel in kept.items():
            setattr(kernel_stages, name, kernel.py_func)
        plain = run()
    finally:
        for name, kernel in kept.items():
            setattr(kernel_stages, name, kernel)
    assert compiled.end == plain.end
    assert np.array_equal(compiled.way, plain.way)
    assert np.array_equal(compiled.start, plain.start)
