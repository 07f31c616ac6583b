"""Least power: every rule by hand, all methods against brute force, the verifier against broken plans, no plan at all."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import hetopt
from formulations.sharing._configurations import classes_of
from formulations.sharing._energy_program import bound_of
from hetopt import InputError, Instance, Solution
from hetopt.records import Device, Job
from hetopt.registry import problem
from hetopt.verify.accelerators import check_accelerators

ENERGY = problem("sharing.energy")
MANY = 200 if os.environ.get("HETOPT_LONG_TESTS") else 12


def cluster(jobs: dict[str, list[float | None]], floor: dict[str, float], **tables: Any) -> Instance:
    """Type ``small`` of 2 accelerators (100 W, idle 10 W) and ``big`` of 1 (250 W); jobs of kinds of their own name."""
    scale = tables.pop("scale", {})
    devices = [
        Device(name="small", slots=2, power=100, idle_power=10),
        Device(name="big", slots=1, power=250),
    ]
    records = [Job(name=name, time=list(time), scale=scale.get(name, 1)) for name, time in jobs.items()]
    question = {"objective": "least-power", **tables.pop("question", {})}
    kinds = {"kind": {name: name for name in jobs}, "together": []}
    return Instance.build(devices, records, tables={**kinds, "floor": floor, **tables}, question=question)


def solved(instance: Instance, **more: Any) -> hetopt.Result:
    result = hetopt.solve(instance, **more)
    hetopt.verify(instance, result)
    return result


class TestByHand:
    def test_the_small_type_when_it_is_fast_enough(self) -> None:
        """1 step in 2 s on the small type serves a floor of 0.5: 100 W and an idle one of 10 W."""
        result = solved(cluster({"a": [2, 1]}, {"a": 0.5}))
        assert (result.status, result.objective) == ("optimal", 110)
        assert result.solution is not None
        assert result.solution.details["accelerators"] == [["small", ["a"]]]

    def test_the_big_type_when_it_is_not(self) -> None:
        assert solved(cluster({"a": [2, 1]}, {"a": 0.6})).objective == 250 + 2 * 10

    def test_two_on_one_accelerator_save_the_other(self) -> None:
        """Together both still make 0.4 steps a second on a small one: 100 + 10 W instead of 200."""
        jobs: dict[str, list[float | None]] = {"a": [2, 1], "b": [2, 1]}
        pair = [["small", "a", "b", 2.5, 2.5]]
        assert solved(cluster(jobs, {"a": 0.4, "b": 0.4}, together=pair)).objective == 110
        assert solved(cluster(jobs, {"a": 0.4, "b": 0.41}, together=pair)).objective == 200

    def test_three_on_one_accelerator(self) -> None:
        jobs: dict[str, list[float | None]] = {name: [2, 1] for name in "abc"}
        floor = dict.fromkeys("abc", 0.2)
        assert solved(cluster(jobs, floor)).objective == 450
        groups = [["small", ["a", "b", "c"], [4, 5, 5]]]
        assert solved(cluster(jobs, floor, groups=groups)).objective == 110
        watts = [["small", ["c", "a", "b"], 130]]
        assert solved(cluster(jobs, floor, groups=groups, watts=watts)).objective == 140

    def test_a_job_may_need_two_accelerators(self) -> None:
        jobs: dict[str, list[float | None]] = {"a": [2, None]}
        assert solved(cluster(jobs, {"a": 0.9}, scale={"a": 2})).objective == 200
        result = solved(cluster(jobs, {"a": 0.9}))
        assert result.status == "infeasible"
        assert "0.4 short" in result.infeasible[0]

    def test_watts_of_a_job_alone(self) -> None:
        assert solved(cluster({"a": [2, 1]}, {"a": 0.5}, watts=[["small", ["a"], 60]])).objective == 70

    def test_a_job_without_a_floor_does_not_run(self) -> None:
        instance = cluster({"a": [2, 1], "b": [2, 1]}, {"a": 0.5})
        assert solved(instance).objective == 110
        plan = Solution(details={"accelerators": [["small", ["a"]], ["small", ["b"]]]})
        assert any("'b' has no floor" in text for text in check_accelerators(instance, plan, 0, 0).violations)

    def test_caution_takes_the_sure_type(self) -> None:
        """0.5 estimated within 10 % is 0.45 for sure: not enough for 0.5, enough for 0.44."""
        unsure = {"estimated": [["small", ["a"], [0.1], "knn"]], "question": {"caution": 1.0}}
        assert solved(cluster({"a": [2, 1]}, {"a": 0.5}, **unsure)).objective == 270
        assert solved(cluster({"a": [2, 1]}, {"a": 0.44}, **unsure)).objective == 110

    def test_each_of_a_pair_has_its_own_error(self) -> None:
        jobs: dict[str, list[float | None]] = {"a": [2, 1], "b": [2, 1]}
        tables = {
            "together": [["small", "a", "b", 2.5, 2.5]],
            "estimated": [["small", ["b", "a"], [0.0, 0.5], "knn"]],
            "question": {"caution": 1.0},
        }
        assert solved(cluster(jobs, {"a": 0.4, "b": 0.4}, **tables)).objective == 200
        assert solved(cluster(jobs, {"a": 0.2, "b": 0.4}, **tables)).objective == 110

    @pytest.mark.parametrize(("move", "value", "moves"), [(0.0, 110, 1), (100.0, 210, 1), (170.0, 270, 0)])
    def test_a_move_must_be_worth_it(self, move: float, value: float, moves: int) -> None:
        """Job a runs on the big one: 270 W to stay, 110 W and a move to go."""
        tables = {"current": {"a": {"big": 1}}, "question": {"move": move}}
        instance = cluster({"a": [2, 1]}, {"a": 0.5}, **tables)
        result = solved(instance)
        assert (result.objective, result.evaluation["moves"]) == (value, moves)

    def test_a_new_job_is_not_moved(self) -> None:
        tables = {"current": {"b": {"small": 1}}, "question": {"move": 50.0}}
        assert solved(cluster({"a": [2, 1], "b": [2, 1]}, {"a": 0.5, "b": 0.5}, **tables)).objective == 200

    def test_too_few_accelerators_say_how_many_and_who(self) -> None:
        instance = cluster({name: [2, 1] for name in "abcd"}, dict.fromkeys("abcd", 0.5))
        result = hetopt.solve(instance)
        assert (result.status, result.exit_code) == ("infeasible", 3)
        assert "1 too few" in result.infeasible[0]
        assert "at least 1 of 4 jobs" in result.infeasible[1]


@pytest.mark.parametrize("seed", range(100, 100 + MANY))
def test_all_methods_against_brute_force(seed: int) -> None:
    instance = ENERGY.sample(seed)
    question = ENERGY.question(instance)
    values = [
        seen.value
        for plan in ENERGY.every_plan(instance, question)
        if not (seen := ENERGY.evaluate(instance, question, plan)).violations
    ]
    best = min(values, default=None)
    exact = solved(instance, method="milp")
    assert exact.status == ("infeasible" if best is None else "optimal")
    if best is None:
        return
    assert exact.objective == pytest.approx(best, rel=1e-9)
    for method in ("lp", "prices", "greedy"):
        if ENERGY.method(method).fits(instance, question) is None:
            result = solved(instance, method=method)
            assert result.bound is None or result.bound <= best * (1 + 1e-9)
            assert result.objective is None or result.objective >= best * (1 - 1e-9)
            assert method == "greedy" or result.bound_proof == "replayed"


def test_any_prices_are_a_bound() -> None:
    random = np.random.default_rng(4)
    for seed in range(12):
        instance = ENERGY.sample(seed)
        question = ENERGY.question(instance)
        result = hetopt.solve(instance)
        classes = classes_of(instance, question["caution"])
        if result.objective is None or classes.many.any():
            continue
        for _ in range(20):
            prices = random.normal(5, 20, len(classes.first))
            assert bound_of(classes, prices, question["move"]) <= result.objective * (1 + 1e-9)


def test_columns_that_pay_reach_the_relaxation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting from jobs alone, prices end where the program over all configurations does."""
    from formulations.sharing import _energy_methods

    instance = hetopt.read("instances/sharing/colocation-40x3.json")
    whole = hetopt.solve(instance, method="lp")
    monkeypatch.setattr(_energy_methods, "FEW", 0)
    few = hetopt.solve(instance, method="prices", time_limit=20)
    assert whole.bound is not None
    assert few.bound == pytest.approx(whole.bound, rel=1e-6)
    assert few.run["model"]["prices"]["rounds"] > 1


class TestVerifier:
    """A valid plan, broken in every way there is."""

    instance = cluster({"a": [2, 1], "b": [2, 1]}, {"a": 0.4, "b": 0.4}, together=[["small", "a", "b", 2.5, 2.5]])

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            ([["small", ["a"]]], "'b' needs 0.4 steps a second and makes 0"),
            ([["big", ["a", "b"]]], "no rate above 0"),
            ([["small", ["a", "b"]], ["big", ["a"]]], "'a' is on 2 accelerators and may have 1"),
            ([["small", ["a", "a"]], ["small", ["b"]]], "twice on one"),
            ([["small", ["a"]], ["small", ["b"]], ["small", ["a"]]], "has 2 accelerators and the plan uses 3"),
        ],
        ids=["missing", "not-measured", "too-many", "twice", "no-room"],
    )
    def test_a_broken_rule(self, rows: list[Any], words: str) -> None:
        seen = check_accelerators(self.instance, Solution(details={"accelerators": rows}), 0.0, 0.0)
        assert any(words in text for text in seen.violations)

    def test_a_valid_plan(self) -> None:
        seen = check_accelerators(self.instance, Solution(details={"accelerators": [["small", ["b", "a"]]]}), 0.0, 0.0)
        assert (seen.watts, seen.violations, seen.used) == (110, (), {"small": 1, "big": 0})


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"floor": {"a": 0}}, r"\$\.tables\.floor\.a is 0"),
        ({"floor": {"x": 1}}, "names 'x', which is no job"),
        ({"watts": [["small", ["a"], -1]]}, r"watts\[0\]\[2\] is -1"),
        ({"watts": [["tiny", ["a"], 1]]}, "'tiny', which is no device"),
        ({"groups": [["small", ["a", "a"], [1, 1]]]}, "expected three kinds or more"),
        ({"estimated": [["small", ["a"], 0.1, "knn"]]}, "expected 1 relative errors"),
        ({"current": {"a": {"tiny": 1}}}, "expected a type and its accelerators"),
        ({"question": {"caution": -1.0}}, r"\$\.question\.caution is -1"),
    ],
    ids=["zero-floor", "no-job", "watts", "no-type", "group", "errors", "current", "caution"],
)
def test_bad_input_is_one_sentence(tables: dict[str, Any], words: str) -> None:
    floor = tables.pop("floor", {"a": 0.4})
    with pytest.raises(InputError, match=words):
        hetopt.solve(cluster({"a": [2, 1]}, floor, **tables))
