"""Shards on devices: worked by hand, OLAR = threshold = MILP, brute force, classes, proofs and broken plans."""

from __future__ import annotations

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.algorithms.shards import olar, threshold
from hetopt.io.generators import federated
from hetopt.records import Device, Job
from hetopt.registry import problem


def asked(shards, table, times=None, objective="shards", **question) -> Instance:
    names = list(table)
    return Instance.build(
        [Device(name=name) for name in names],
        [Job(name="round", steps=shards, time=times or [1] * len(names))],
        tables={"shards": table},
        question={"objective": objective, **question},
    )


TWO = {"a": {"seconds": [0, 1, 2, 7]}, "b": {"seconds": [0, 3, 4, 5, 6]}}


@pytest.mark.parametrize(
    ("shards", "table", "plan", "value"),
    [
        (3, TWO, {"a": 2, "b": 1}, 3),
        (6, TWO, {"a": 2, "b": 4}, 6),
        (3, {"a": {**TWO["a"], "most": 1}, "b": TWO["b"]}, {"a": 1, "b": 2}, 4),
        (3, {"a": TWO["a"], "b": {**TWO["b"], "least": 3}}, {"a": 0, "b": 3}, 5),
        (3, {"a": {**TWO["a"], "energy": 2, "battery": 3.9}, "b": TWO["b"]}, {"a": 1, "b": 2}, 4),
        (4, {"a": {}, "b": {"seconds": [0, 10]}}, {"a": 4, "b": 0}, 4),
    ],
    ids=["jumps", "full", "most", "least", "battery", "line"],
)
@pytest.mark.parametrize("method", ["olar", "threshold", "milp"])
def test_by_hand(shards, table, plan, value, method):
    instance = asked(shards, table)
    result = hetopt.solve(instance, method=method)
    assert (result.status, result.objective) == ("optimal", value)
    assert result.solution.details["shards"] == plan
    assert hetopt.verify(instance, result).bound == value or method == "milp"


def test_the_three_agree():
    """More of the same, with larger tables, in benchmarks/shards.py."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        d, total = int(rng.integers(1, 8)), int(rng.integers(0, 30))
        seconds = np.cumsum(rng.integers(0, 4, (d, total + 1)), axis=1).astype(float)
        most = rng.integers(0, total + 1, d)
        least = np.minimum(rng.integers(0, 3, d), most)
        if least.sum() > total or most.sum() < total:
            with pytest.raises(ValueError, match="no way"):
                olar(seconds, least, most)
            with pytest.raises(ValueError, match="no way"):
                threshold(seconds, least, most)
            continue
        one, (two, value) = olar(seconds, least, most), threshold(seconds, least, most)
        for plan in (one, two):
            assert plan.sum() == total
            assert ((plan >= least) & (plan <= most)).all()
            assert seconds[np.arange(d), plan].max() == value


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            {"a": {"most": 2}, "b": {"seconds": [0, 1]}},
            "can take 3 shards within limits and batteries, and there are 5: 2",
        ),
        ({"a": {"least": 4}, "b": {"least": 3}}, "must take 7 shards, and there are 5: 2 too many"),
        ({"a": {"least": 3, "energy": 1, "battery": 1}, "b": {}}, "'a' must take 3 shards and can take 1: 2 too few"),
    ],
    ids=["room", "least", "battery"],
)
def test_what_cannot_be_given_out(table, told):
    result = hetopt.solve(asked(5, table))
    assert (result.status, result.exit_code) == ("infeasible", 3)
    assert told in result.infeasible[0]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"seconds": [0, 2, 1]}, "fall from 2 at 1 to 1 at 2"),
        ({"seconds": "x"}, "expected a list of seconds"),
        ({"secs": [0]}, "'secs'"),
        ({"least": -1}, "least is -1"),
        ({"battery": "full"}, "battery is 'full'"),
        ({"classes": "cat"}, "classes is 'cat'"),
    ],
    ids=str,
)
def test_tables_that_cannot_be_read(row, told):
    with pytest.raises(InputError, match=told):
        hetopt.solve(asked(2, {"a": row}))


def test_a_job_without_steps():
    instance = Instance.build([Device(name="a")], [Job(name="round", time=[1])])
    with pytest.raises(InputError, match="steps"):
        hetopt.solve(instance, objective="shards")


class TestBrokenPlans:
    def told(self, shards) -> str:
        instance = asked(3, {"a": {**TWO["a"], "energy": 1, "battery": 2}, "b": {**TWO["b"], "least": 1}})
        one = problem("splitting.shards")
        plan = Solution(details={"shards": shards})
        return " ".join(one.judge(instance, one.question(instance), plan).violations)

    @pytest.mark.parametrize(
        ("shards", "told"),
        [
            ({"a": 1, "b": 2}, ""),
            ({"a": 2, "b": 2}, "4 shards are given out, there are 3: +1"),
            ({"a": 3, "b": 0}, "'b' takes 0 shards, at least 1"),
            ({"a": 3, "b": 0}, "of its battery's 2: 1 too much"),
            ({"a": 1.5, "b": 1}, "given 1.5 shards"),
            ({"c": 3}, "'c', which is no device"),
            (None, "no details.shards"),
        ],
        ids=str,
    )
    def test_told(self, shards, told):
        assert told in self.told(shards)
        assert told or not self.told(shards)

    @pytest.mark.parametrize("seconds", [6.5, float("nan"), float("inf")], ids=str)
    def test_a_threshold_that_proves_nothing(self, seconds):
        instance = asked(6, TWO)
        one = problem("splitting.shards")
        assert one.replay(instance, one.question(instance), {"kind": "threshold", "seconds": 6.0}) == 6.0
        with pytest.raises(ValueError, match="prove"):
            one.replay(instance, one.question(instance), {"kind": "threshold", "seconds": seconds})


class TestClasses:
    @pytest.mark.parametrize("most", [1e9, 1e12])
    def test_costs_that_lie_far_apart_are_no_false_proof(self, most):
        """Five shards on d cost 1, and nothing else is open to them below 25; the solver loses sight of that beside 1e12."""
        table = {
            "a": {"classes": []},
            "b": {"seconds": [0.2], "energy": 0.3, "classes": []},
            "c": {"classes": []},
            "d": {"seconds": [0, 0, 0.2, 0.3, 1, 1, 2], "most": 6, "classes": ["c"]},
        }
        instance = asked(5, table, [most, 1e-6, 5, 5], "shards-classes", penalty=0)
        assert hetopt.solve(instance).objective == pytest.approx(1.2)
        result = hetopt.solve(instance, method="milp")
        assert result.bound <= 1.2
        assert result.objective == pytest.approx(1.2) or result.status == "feasible"

    table = {  # noqa: RUF012
        "a": {"seconds": [0, 2, 3, 4], "classes": ["x"]},
        "b": {"seconds": [0, 5, 6, 7], "classes": ["x", "y"]},
    }

    @pytest.mark.parametrize(("penalty", "plan"), [(1, (3, 0)), (2.9, (3, 0)), (3.1, (0, 3))], ids=str)
    @pytest.mark.parametrize("method", ["cover", "milp", "auto"])
    def test_by_hand(self, penalty, plan, method):
        instance = asked(3, self.table, objective="shards-classes", penalty=penalty)
        result = hetopt.solve(instance, method=method)
        assert result.status == "optimal"
        assert tuple(result.solution.details["shards"].values()) == plan
        assert result.objective == pytest.approx(4 + penalty if plan[0] else 7)
        hetopt.verify(instance, result)

    @pytest.mark.parametrize("seed", range(500, 530))
    def test_against_all_plans(self, seed):
        one = problem("splitting.classes")
        instance = one.sample(seed)
        question = one.question(instance)
        judged = [one.judge(instance, question, plan) for plan in one.every_plan(instance, question)]
        values = [each.value for each in judged if not each.violations]
        for method in ("cover", "milp", "lp", "greedy"):
            result = hetopt.solve(instance, method=method)
            if not values:
                assert result.solution is None
                continue
            if method in ("cover", "milp"):
                assert result.objective == pytest.approx(min(values))
            assert result.objective is None or result.objective >= min(values) - 1e-9
            assert result.bound is None or result.bound <= min(values) + 1e-9

    def test_a_penalty_below_zero(self):
        with pytest.raises(InputError, match="penalty"):
            hetopt.solve(asked(3, self.table, objective="shards-classes", penalty=-1))


@pytest.mark.parametrize("question", ["shards", "shards-classes"])
def test_a_generated_round(question):
    instance = federated.make(devices=12, shards=60, classes=4, question=question)
    result = hetopt.solve(instance)
    assert result.status == "optimal"
    hetopt.verify(instance, result)
