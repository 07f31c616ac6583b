"""schedule.periodic, its drops and its rate: worked by hand, brute force, bounds, broken plans, bad input."""

from __future__ import annotations

import copy
import math
import os
from itertools import pairwise

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.io.generators import phone
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem
from hetopt.replay import replay
from hetopt.verify.periodic_bounds import alone, cheapest, quantile
from hetopt.verify.streams import streams_of

NAMES = ("schedule.periodic", "schedule.periodic_drops", "schedule.periodic_rate")
COUNT = 200 if os.environ.get("HETOPT_LONG_TESTS") else 12


def model(name: str, times, period, *, output=0, **facts) -> Job:
    """Tasks a, b, ... one after the other."""
    names = "abcdef"[: len(times)]
    tasks = [Task(name=v, time=row, output=output, memory=1) for v, row in zip(names, times, strict=True)]
    edges = [Edge(source=u, target=v) for u, v in pairwise(names)]
    return Job(name=name, tasks=tasks, edges=edges, period=period, **facts)


def asked(
    *jobs: Job, objective="periodic-latency", devices="p", memory=None, tables=None, latency=0, **question
) -> Instance:
    return Instance.build(
        [Device(name=v, memory=memory) for v in devices],
        jobs,
        [Link(source="*", target="*", bandwidth=None, latency=latency)],
        tables=tables or {},
        question={"objective": objective, **question},
    )


def value(instance: Instance, **options) -> float:
    result = hetopt.solve(instance, **options)
    assert result.status == "optimal", (result.messages, result.infeasible)
    hetopt.verify(instance, result)
    assert not replay(instance, result.solution, result.problem, result.question).complaints
    return result.objective


class TestByHand:
    def test_one_model_alone_takes_its_time(self):
        assert value(asked(model("m", [[3]], 10))) == pytest.approx(3)

    def test_frames_of_two_models_wait_for_each_other(self):
        # periods 4 and 8: x at 0 and 4 takes 2; y takes 3: behind x it starts at 2 and ends at 5, and x waits until 5
        two = (model("x", [[2]], 4), model("y", [[3]], 8))
        # y first: y 3, x 0-> starts 3, ends 5 (deadline 4) too late; y at 2: L_y = 5, L_x = (2 + 3) / 2
        assert value(asked(*two)) == pytest.approx((2.5 + 5) / 2)

    def test_a_run_may_cross_the_end_of_the_cycle(self):
        # released at 3 of 4, 2 long: it ends at 5, that is at 1 of the next cycle; the other one is released at 1
        two = (model("late", [[2]], 4, release=3), model("soon", [[2]], 4, release=1))
        assert value(asked(*two)) == pytest.approx(2)

    def test_weights_say_who_goes_first(self):
        light, heavy = model("light", [[2]], 9), model("heavy", [[4]], 9, weight=5)
        assert value(asked(light, heavy)) == pytest.approx((6 + 5 * 4) / 6)

    def test_a_cut_pays_when_the_transfer_is_short(self):
        halves = model("m", [[1, 9], [9, 1]], 30)
        assert value(asked(halves, devices="pq", latency=2)) == pytest.approx(1 + 2 + 1)
        assert value(asked(halves, devices="pq", latency=20)) == pytest.approx(10)

    def test_measured_runs_are_no_sums(self):
        rows = {"m": [{"first": "a", "last": "b", "time": {"p": 3}}]}
        assert value(asked(model("m", [[2], [2]], 9), tables={"segments": rows})) == pytest.approx(3)
        rows["m"][0]["time"]["p"] = 5
        assert value(asked(model("m", [[2], [2]], 9), tables={"segments": rows})) == pytest.approx(4)

    def test_backends_and_what_converting_takes(self):
        rows = {"m": [{"first": "b", "last": "b", "backend": "int8", "time": {"p": 1}}]}
        change = [{"from": "", "to": "int8", "seconds": 2, "bandwidth": 4}]
        here = asked(model("m", [[3], [6]], 20, output=8), tables={"segments": rows, "conversions": change})
        assert value(here) == pytest.approx(3 + (2 + 8 / 4) + 1)

    def test_no_cut_where_the_file_allows_none(self):
        tasks = [Task(name="a", time=[1, 9], cut=False), Task(name="b", time=[9, 1])]
        one = Job(name="m", tasks=tasks, edges=[Edge(source="a", target="b")], period=40)
        assert hetopt.solve(asked(one, devices="pq")).status == "infeasible"
        rows = {"m": [{"first": "a", "last": "b", "time": {"q": 8}}]}
        assert value(asked(one, devices="pq", tables={"segments": rows})) == pytest.approx(8)

    def test_weights_that_stay_loaded_must_fit(self):
        jobs = [model(name, [[2, 5]], 20) for name in "xyz"]
        assert value(asked(*jobs, devices="pq", memory=3)) == pytest.approx((2 + 4 + 5) / 3)
        assert value(asked(*jobs, devices="pq", memory=2)) == pytest.approx((2 + 4 + 5) / 3)

    def test_memory_turns_a_plan(self):
        jobs = [model(name, [[1, 5]], 20) for name in "xy"]
        assert value(asked(*jobs, devices="pq", memory=2)) == pytest.approx((1 + 2) / 2)
        assert value(asked(*jobs, devices="pq", memory=1)) == pytest.approx((1 + 5) / 2)

    def test_ways_may_differ_from_frame_to_frame_when_asked(self):
        # y runs on p from 0 to 5; the frame of x at 0 is done on q at 3, the one at 4 is done on p at 6
        two = (model("x", [[1, 3]], 4), model("y", [[5, 99]], 8))
        fixed, free = (value(asked(*two, devices="pq", mapping=how)) for how in ("fixed", "free"))
        assert (fixed, free) == (pytest.approx(4), pytest.approx((2.5 + 5) / 2))

    def test_nine_in_ten(self):
        assert quantile([float(k) for k in range(10)]) == 8
        assert quantile([5.0]) == 5
        two = (model("x", [[2]], 4), model("y", [[3]], 8))
        assert value(asked(*two, measure="p90")) == pytest.approx(5)

    def test_a_dropped_frame_costs_deadlines(self):
        two = (model("x", [[3]], 4), model("y", [[3]], 4))
        assert value(asked(*two, drop_cost=2)) == pytest.approx((3 + 2 * 4) / 2)

    def test_fewest_dropped_by_weight(self):
        two = (model("x", [[3]], 4), model("y", [[3]], 4, weight=2))
        assert value(asked(*two, objective="periodic-drops")) == 1
        assert value(asked(model("x", [[1]], 4), objective="periodic-drops")) == 0

    def test_the_greatest_rate_of_one_device_is_its_work(self):
        two = (model("x", [[1]], 4), model("y", [[2]], 8))
        # the cycle of 8 holds 1 + 1 + 2 seconds of work
        assert value(asked(*two, objective="periodic-rate")) == pytest.approx(2)

    def test_a_deadline_of_its_own_does_not_shrink_with_the_period(self):
        # two devices one after the other: each may be busy all the time, as long as 4 seconds are allowed
        halves = model("m", [[2, 9], [9, 2]], 8, deadline=4)
        assert value(asked(halves, devices="pq", objective="periodic-rate")) == pytest.approx(4)
        strict = model("m", [[2, 9], [9, 2]], 8)
        assert value(asked(strict, devices="pq", objective="periodic-rate")) == pytest.approx(2)

    def test_clashes_in_every_cycle_are_proved(self):
        # two frames of x and one of y, a second each on p, fill its cycle of 3; on q both take longer
        two = (model("x", [[1, 2]], 4, release=2), model("y", [[1, 7]], 8, deadline=7))
        assert value(asked(*two, devices="pq", objective="periodic-rate"), method="cpsat") == pytest.approx(8 / 3)

    def test_two_hyperperiods_may_be_better_than_one(self):
        jobs = [model("m", [[2, 3]], 3, deadline=6)]
        one = value(asked(*jobs, devices="pq", objective="periodic-rate", mapping="free"))
        two = value(asked(*jobs, devices="pq", objective="periodic-rate", mapping="free", cycles=2))
        assert (one, two) == (pytest.approx(1.5), pytest.approx(2))


def test_a_long_cycle_is_told():
    """Periods 33, 66 and 100 repeat after 3300 with 100 + 50 + 33 frames; 99 in place of 100 after 198 with 11."""

    def told(last: int) -> tuple[str, ...]:
        jobs = (model("f", [[1]], 33), model("g", [[1]], 66), model("h", [[1]], last))
        return hetopt.solve(asked(*jobs), method="bounds").messages

    assert [text.split(";")[0] for text in told(100)] == ["the schedule repeats after 3300 s with 183 frames"]
    assert told(99) == ()


class TestGreatestRate:
    def test_a_period_that_is_a_deadline_bounds_the_rate(self):
        strict = model("m", [[2, 9], [9, 2]], 8)
        found = hetopt.bound(asked(strict, devices="pq", objective="periodic-rate"))
        assert found.bound == pytest.approx(2)
        assert found.bound_proof == "replayed"

    def test_models_that_take_no_time_have_none(self):
        with pytest.raises(InputError, match="no rate is the greatest"):
            hetopt.solve(asked(model("m", [[8, 0]], 9), devices="pq", objective="periodic-rate"))
        two = (model("m", [[8, 0]], 9), model("n", [[3, 9]], 9))
        assert value(asked(*two, devices="pq", objective="periodic-rate")) == pytest.approx(3)


class TestInfeasible:
    def test_a_model_that_alone_is_too_slow(self):
        result = hetopt.solve(asked(model("m", [[5]], 4)))
        assert result.exit_code == 3
        assert "'m' takes at least 5 s" in result.infeasible[0]
        assert "1 s too short" in result.infeasible[0]

    def test_periods_too_short_for_the_devices(self):
        result = hetopt.solve(asked(model("x", [[3]], 4), model("y", [[2]], 4)))
        assert result.exit_code == 3
        assert "1.25 times the time there is" in result.infeasible[0]
        assert "the period of 'y' would have to be at least 8 s" in " ".join(result.infeasible)

    def test_a_conflict_of_dates_is_proved_by_the_program(self):
        jobs = (model("x", [[2]], 8, deadline=3), model("y", [[2]], 8, deadline=3))
        assert hetopt.solve(asked(*jobs)).exit_code == 3

    def test_a_deadline_that_no_rate_mends(self):
        result = hetopt.solve(asked(model("m", [[5]], 9, deadline=4), objective="periodic-rate"))
        assert (result.exit_code, "however rarely" in result.infeasible[0]) == (3, True)

    def test_three_of_six_seconds_on_two_processors_need_twelve(self):
        """Loads of 18 in 20 are no reason; two of three models share a processor."""
        jobs = [model(name, [[6, 6]], 10) for name in "xyz"]
        result = hetopt.solve(asked(*jobs, devices="pq"), time_limit=60)
        assert result.exit_code == 3
        assert "periods: with all of them 1.2 times as long there is a plan" in result.infeasible[0]

    @pytest.mark.parametrize("objective", ["periodic-latency", "periodic-rate"])
    def test_weights_that_fit_nowhere_together(self, objective):
        """Three tasks of a byte each on two devices of one."""
        jobs = [model(name, [[1, 1]], 10) for name in "xyz"]
        result = hetopt.solve(asked(*jobs, devices="pq", memory=1, objective=objective), time_limit=60)
        assert result.exit_code == 3
        assert "memory: the weights alone need 1 bytes more on each device" in result.infeasible[0]

    def test_a_rate_out_of_reach(self):
        result = hetopt.solve(asked(model("m", [[5]], 10), objective="periodic-rate", least_rate=4))
        assert "the devices bear 2 at most: 2 too much" in result.infeasible[0]


class TestInput:
    @pytest.mark.parametrize(
        ("tables", "said"),
        [
            ({"segments": {"x": []}}, r"segments names 'x'"),
            ({"segments": {"m": [{"first": "a", "last": "z", "time": {"p": 1}}]}}, r"m\[0\]\.last is 'z'"),
            ({"segments": {"m": [{"first": "b", "last": "a", "time": {"p": 1}}]}}, "first before last"),
            ({"segments": {"m": [{"first": "a", "last": "b", "time": {"gpu": 1}}]}}, "names 'gpu'"),
            ({"segments": {"m": [{"first": "a", "last": "b", "time": {"p": -1}}]}}, "seconds >= 0"),
            ({"segments": {"m": [{"first": "a", "last": "b", "times": {}}]}}, "has 'times'"),
            ({"segments": {"m": 3}}, "expected a list"),
            ({"conversions": [{"from": "a"}]}, "conversions"),
            ({"conversions": [{"from": "a", "to": "b", "seconds": "x"}]}, "expected a number"),
        ],
        ids=str,
    )
    def test_tables(self, tables, said):
        with pytest.raises(InputError, match=said):
            hetopt.solve(asked(model("m", [[1], [1]], 9), tables=tables))

    def test_periods(self):
        with pytest.raises(InputError, match="no common multiple"):
            hetopt.solve(asked(model("x", [[1]], 9), model("y", [[1]], 9 * math.pi)))
        with pytest.raises(InputError, match="meet again after"):
            hetopt.solve(asked(model("x", [[1]], 997), model("y", [[1]], 1009)))
        one = Instance.build([Device(name="p")], [Job(name="m", time=[1])])
        assert "has no period" in problem("schedule.periodic").fits(one)

    @pytest.mark.parametrize("option", [{"cycles": 0}, {"drop_cost": 0.5}, {"measure": "p99"}], ids=str)
    def test_options(self, option):
        with pytest.raises(InputError):
            hetopt.solve(asked(model("m", [[1]], 9), **option))

    def test_a_missing_link_names_the_pair(self):
        halves = model("m", [[1, 9], [9, 1]], 30)
        with pytest.raises(InputError, match="no entry matches 'p' -> 'q'"):
            hetopt.solve(
                Instance.build(
                    [Device(name="p"), Device(name="q")], [halves], question={"objective": "periodic-latency"}
                )
            )


class TestChecker:
    """Each damage to a valid plan is told, by the verifier and by the replay."""

    @staticmethod
    def instance() -> Instance:
        return asked(model("x", [[1, 3], [2, 1]], 8), model("y", [[3, 9]], 4), devices="pq", latency=1, memory=3)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda f: f["y"][0][0].update(start=0.5), "at the same time|before"),
            (lambda f: f["x"][0][-1].update(start=0.25), "before the result|at the same time"),
            (lambda f: f["y"][1][0].update(start=3.5), "before its release"),
            (lambda f: f["y"][1][0].update(start=6), "too late"),
            (lambda f: f["x"][0].pop(), "each once"),
            (lambda f: f["y"].pop(), "has not 2 frames"),
            (lambda f: f["y"].__setitem__(0, None), "allows no drops"),
            (lambda f: f["y"][0][0].update(device="q"), "different ways|too late"),
            (lambda f: f["y"][0][0].update(device="z"), "has no time on 'z'"),
            (lambda f: f["x"][0][0].update(backend="int8"), "with backend 'int8'"),
            (lambda f: f.update(z=[]), "no job"),
        ],
        ids=["overlap", "waits", "release", "deadline", "task", "frame", "drop", "fixed", "device", "backend", "model"],
    )
    def test_damage(self, change, said):
        one, instance = problem("schedule.periodic"), self.instance()
        result = hetopt.solve(instance)
        assert not one.judge(instance, one.question(instance), result.solution).violations
        frames = copy.deepcopy(result.solution.details["frames"])
        change(frames)
        found = " ".join(one.judge(instance, one.question(instance), Solution(details={"frames": frames})).violations)
        assert any(word in found for word in said.split("|")), found

    def test_memory_is_counted(self):
        instance = asked(model("x", [[1], [1]], 9), memory=1)
        plan = {
            "x": [
                [
                    {"first": "a", "last": "a", "device": "p", "start": 0},
                    {"first": "b", "last": "b", "device": "p", "start": 1},
                ]
            ]
        }
        one = problem("schedule.periodic")
        found = one.judge(instance, one.question(instance), Solution(details={"frames": plan})).violations
        assert found == ("device 'p' needs 2 bytes of memory and has 1: 1 too many",)


@pytest.mark.parametrize("name", NAMES)
def test_random_instances_against_all_plans(name):
    """Bounds <= optimum <= heuristics; the program finds what trying all orders finds; the replay agrees."""
    one = problem(name)
    sign = 1 if one.sense == "min" else -1
    for seed in range(500, 500 + COUNT):
        instance = one.sample(seed)
        question = one.question(instance)
        judged = (one.judge(instance, question, plan) for plan in one.every_plan(instance, question))
        values = [sign * e.value for e in judged if not e.violations]
        result = hetopt.solve(instance, method="cpsat")
        if not values:
            assert result.solution is None, seed
            continue
        assert result.status == "optimal", (seed, result.messages)
        assert sign * result.objective == pytest.approx(min(values), rel=1e-6), seed
        assert not replay(instance, result.solution, result.problem, result.question).complaints, seed
        bound = hetopt.bound(instance)
        assert bound.bound is None or sign * bound.bound <= min(values) + 1e-9 * abs(min(values)), seed
        for method in [m.name for m in one.methods if m.kind == "heuristic"]:
            found = hetopt.solve(instance, method=method, time_limit=0.05)
            assert found.objective is None or sign * found.objective >= min(values) - 1e-9 * abs(min(values)), (
                seed,
                method,
            )


class TestPhone:
    """The phone: bound > proved optimum > policies > fixed mapping, and every plan replayed without a miss."""

    def test_rates_in_their_order(self):
        instance = phone.make(seed=6, question="periodic-rate")
        bound = hetopt.bound(instance).bound
        rates = {}
        for method in ("edf", "fifo", "one-device-edf", "best-device-edf"):
            result = hetopt.solve(instance, method=method)
            rates[method] = result.objective
            seen = replay(instance, result.solution, result.problem, result.question)
            assert not seen.complaints
            assert seen.misses == 0
        assert bound > max(rates.values())
        assert rates["one-device-edf"] < 1 < rates["fifo"]

    def test_prices_and_ways_alone(self):
        streams = streams_of(phone.make(seed=6))
        for one in streams.models:
            least = alone(streams, one).latency
            assert 0 < least <= one.deadline
            assert cheapest(one, [1.0] * 3) <= cheapest(one, [2.0] * 3)
            assert math.isinf(cheapest(one, [1.0] * 3, [False] * len(one.ways)))
        assert [one.frames for one in streams.models] == [4, 2, 1]
        assert streams.hyperperiod == pytest.approx(0.1)
        assert np.isfinite(streams.latency).all()
