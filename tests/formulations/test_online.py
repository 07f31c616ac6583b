"""schedule.online: each constraint by hand, methods against brute force, and that online methods do not know the future."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.algorithms.online_dispatch import RULES
from hetopt.io import generators
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

ONLINE = problem("schedule.online")
METHODS = (*RULES, "rolling")
SPEEDS = {"speeds": {"p": [{"name": "slow", "speed": 0.5, "power": 1}, {"name": "fast", "speed": 1, "power": 4}]}}


def value(instance: Instance, **options) -> float:
    result = hetopt.solve(instance, objective="online-latency", **options)
    assert result.status == "optimal", result.messages
    return result.objective


def alone(*times, tables=None, links=(), edges=(), release=0, **facts) -> Instance:
    """A job of tasks a, b, ... on devices p, q, ..."""
    tasks = [Task(name=name, time=row, output=8) for name, row in zip("abc", times, strict=False)]
    arcs = [Edge(source=u, target=v) for u, v in edges]
    devices = [Device(name=name) for name in "pqr"[: len(times[0])]]
    job = Job(name="j", tasks=tasks, edges=arcs, release=release, **facts)
    return Instance.build(devices, [job], links, tables=tables)


class TestConstraints:
    def test_latency_counts_from_the_release(self):
        assert value(alone([3], release=5)) == 3

    def test_a_short_job_goes_first_and_a_heavy_one_before_it(self):
        jobs = [Job(name="long", time=[4]), Job(name="short", time=[1])]
        assert value(Instance.build([Device(name="p")], jobs)) == (1 + 5) / 2
        heavy = [Job(name="long", time=[4], weight=9), Job(name="short", time=[1])]
        assert value(Instance.build([Device(name="p")], heavy)) == (9 * 4 + 5) / 10

    def test_knowing_what_comes_is_worth_waiting(self):
        jobs = [Job(name="long", time=[9]), Job(name="short", time=[1], release=1)]
        instance = Instance.build([Device(name="p")], jobs)
        assert value(instance) == (1 + 11) / 2
        for method in METHODS:
            assert hetopt.solve(instance, objective="online-latency", method=method).objective == (9 + 9) / 2

    def test_a_transfer_takes_latency_and_bytes_over_bandwidth(self):
        links = [Link(source="*", target="*", bandwidth=4, latency=1)]
        assert value(alone([1, 90], [90, 1], links=links, edges=["ab"])) == 1 + (1 + 2) + 1

    def test_a_slower_speed_where_energy_is_dear(self):
        instance = alone([2], tables=SPEEDS)
        assert value(instance) == 2
        assert value(instance, options={"energy_price": 1.0}) == 4 + 4
        assert value(instance, options={"energy_price": 0.25}) == 2 + 0.25 * 8

    def test_a_limit_of_energy(self):
        instance = alone([2], [2], edges=["ab"], tables=SPEEDS)
        assert value(instance, options={"job_energy": 16.0}) == 4
        assert value(instance, options={"job_energy": 12.0}) == 6
        result = hetopt.solve(instance, objective="online-latency", options={"job_energy": 7.0})
        assert (result.status, result.exit_code) == ("infeasible", 3)
        assert result.infeasible == ("job 'j' takes at least 8 J and may take 7: 1 too many",)
        for method in METHODS:
            found = hetopt.solve(instance, objective="online-latency", method=method, options={"job_energy": 12.0})
            assert found.evaluation["energy"] == 12

    def test_inputs_are_sent_when_the_device_is_decided(self):
        """a on p ends at 1, b on q at 6; c reads both: online it is decided at 6 only, and a's result sent then."""
        links = [Link(source="p", target="r", bandwidth=None, latency=9), Link(source="*", target="*", bandwidth=None)]
        instance = alone([1, 90, 90], [90, 6, 90], [90, 90, 1], links=links, edges=["ac", "bc"])
        assert value(instance) == 1 + 9 + 1
        assert hetopt.solve(instance, objective="online-latency", method="eft").objective == 6 + 9 + 1


class TestInput:
    @pytest.mark.parametrize(
        ("table", "said"),
        [
            ([], "must map devices"),
            ({"x": []}, "names 'x', which is no device or type"),
            ({"p": []}, "expected a list of"),
            ({"p": [{"name": "a"}]}, "speed is None, expected a number from 1e-09"),
            ({"p": [{"name": "a", "speed": 1, "watts": 1}]}, r"\[0\] has 'watts'"),
            ({"p": [{"name": "a", "speed": 1}] * 2}, "two speeds the same name"),
        ],
        ids=["list", "device", "empty", "none", "key", "twice"],
    )
    def test_tables_of_speeds(self, table, said):
        with pytest.raises(InputError, match=said):
            hetopt.solve(alone([1], tables={"speeds": table}), objective="online-latency")

    def test_options_and_instances_that_do_not_fit(self):
        with pytest.raises(InputError, match="energy_price is -1"):
            hetopt.solve(alone([1]), objective="online-latency", options={"energy_price": -1})
        with pytest.raises(InputError, match="all jobs have weight 0"):
            hetopt.solve(alone([1], weight=0), objective="online-latency")


class TestChecker:
    @pytest.mark.parametrize(
        ("speeds", "start", "said"),
        [
            ({"a": "fast", "b": "slow"}, [0, 2], None),
            ({"a": "slow", "b": "slow"}, [0, 2], "before the result of 'a' from 'p'|at the same time"),
            ({"a": "fast"}, [0, 2], "at the speed '', expected one of 'slow', 'fast'"),
            ({"a": "fast", "b": "no"}, [0, 2], "at the speed 'no'"),
            ({"a": "fast", "b": "slow", "c": "slow"}, [0, 2], "'c', which is no task"),
            ([], [0, 2], "expected a name for each task"),
            ({"a": "fast", "b": "slow"}, [-1, 2], "before its release"),
        ],
        ids=["valid", "early", "none", "unknown", "no-task", "list", "release"],
    )
    def test_speeds_and_moments(self, speeds, start, said):
        import re

        instance = alone([2], [2], edges=["ab"], tables=SPEEDS)
        plan = Solution(np.zeros(2, int), np.array(start, float), details={"speeds": speeds})
        found = ONLINE.evaluate(instance, ONLINE.question(instance), plan)
        if said is None:
            assert (found.value, found.violations, found.details["energy"]) == (6, (), 8 + 4)
        else:
            assert any(re.search(said, sentence) for sentence in found.violations), found.violations

    def test_energy_over_the_limit(self):
        instance = alone([2], tables=SPEEDS)
        plan = Solution(np.zeros(1, int), np.zeros(1), details={"speeds": {"a": "fast"}})
        question = ONLINE.question(instance, {"job_energy": 5})
        assert "takes 8 J and may take 5: 3 too many" in ONLINE.evaluate(instance, question, plan).violations[0]

    def test_certificates_that_prove_nothing(self):
        instance = alone([1, 2])
        question = ONLINE.question(instance)
        for certificate in ({"kind": "one-machine", "prices": [1.0]}, {"kind": "one-machine", "prices": [0, 0]}):
            with pytest.raises(ValueError, match="price"):
                ONLINE.replay(instance, question, certificate)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("speeds", [False, True], ids=["one", "three"])
def test_what_comes_later_changes_nothing_before(method, speeds):
    """Without the jobs after a moment, everything that starts before it is the same: nothing was known of them."""
    instance = generators.get("job-stream").make(jobs=5, tasks=3, seed=7, load=2.0, speeds=speeds)
    jobs = list(instance.jobs())
    full = hetopt.solve(instance, method=method).solution.to_json(instance)
    for kept in (2, 4):
        moment = jobs[kept].release
        short = Instance.build(
            instance.devices, jobs[:kept], instance.links, tables=instance.tables, question=instance.question
        )
        part = hetopt.solve(short, method=method).solution.to_json(short)
        begun = [label for label, start in part["start"].items() if start < moment]
        assert begun
        for label in begun:
            assert part["start"][label] == full["start"][label], label
            assert part["placement"][label] == full["placement"][label], label


def test_random_instances():
    """Bounds <= optimum <= every plan; CP-SAT finds the optimum of brute force."""
    for seed in range(200 if os.environ.get("HETOPT_LONG_TESTS") else 12):
        instance = ONLINE.sample(1000 + seed)
        question = ONLINE.question(instance)
        judged = (ONLINE.evaluate(instance, question, plan) for plan in ONLINE.every_plan(instance, question))
        optimum = min((e.value for e in judged if not e.violations), default=None)
        exact = hetopt.solve(instance, method="cpsat")
        assert exact.status == ("infeasible" if optimum is None else "optimal"), seed
        if optimum is None:
            continue
        assert exact.objective == pytest.approx(optimum, rel=1e-9), seed
        assert hetopt.bound(instance).bound <= optimum * (1 + 1e-9), seed
        for method in METHODS:
            found = hetopt.solve(instance, method=method)
            assert found.status == "feasible", (seed, method, found.messages)
            assert found.objective >= optimum * (1 - 1e-9), (seed, method)


def test_the_kernel_is_its_own_plain_twin():
    from hetopt.algorithms import online_dispatch

    if not hasattr(online_dispatch._run, "py_func"):
        pytest.skip("no compiled code")
    from formulations.schedule._online import stream

    instance = generators.get("job-stream").make(jobs=4, tasks=4, seed=3, speeds=True)
    data = stream(instance, ONLINE.question(instance))
    compiled = [online_dispatch.dispatch(data, rule) for rule in RULES]
    kernels = {name: getattr(online_dispatch, name) for name in ("_before", "_push", "_pop", "_run")}
    try:
        for name, kernel in kernels.items():
            setattr(online_dispatch, name, kernel.py_func)
        plain = [online_dispatch.dispatch(data, rule) for rule in RULES]
    finally:
        for name, kernel in kernels.items():
            setattr(online_dispatch, name, kernel)
    for one, other in zip(compiled, plain, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
