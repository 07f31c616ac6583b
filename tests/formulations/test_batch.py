"""Batch sizes: worked by hand, brute force, the curve, the adaptive rule, broken plans and tables."""

from __future__ import annotations

import numpy as np
import pytest

import hetopt
from formulations.splitting.batch import curve
from hetopt import InputError, Instance, Solution
from hetopt.algorithms.batch import adaptive
from hetopt.records import Device, Job
from hetopt.registry import problem

# 1/t: cpu 10, 8, 5 batches a second; gpu 5, 4, 2; samples a second: cpu 10, 16, 20; gpu 80, 128, 256
TABLE = {
    "cpu": [[1, 0.1, 0.5], [2, 0.125, 0.75], [4, 0.2, 1.0]],
    "gpu": [[16, 0.2, 0.25], [32, 0.25, 0.5], [128, 0.5, 1.0]],
}


def asked(objective="batch", table=None, **question) -> Instance:
    return Instance.build(
        [Device(name="cpu"), Device(name="gpu")],
        [Job(name="epoch", steps=5520, time=[1, 1])],
        tables={"batches": table or TABLE},
        question={"objective": objective, **question},
    )


@pytest.mark.parametrize(
    ("question", "plan", "value"),
    [
        ({}, (4, 128), 276),
        ({"balance": 2.5}, (4, 128), 276),
        ({"balance": 2}, (4, 32), 148),
        ({"balance": 1}, (4, 16), 100),
        ({"staleness": 2}, (4, 32), 148),
        ({"balance": 4, "utilisation": 0.9}, (4, 128), 276),
        ({"balance": 1.25, "utilisation": 0.75}, (4, 32), 148),
    ],
    ids=["free", "just", "balance", "equal", "staleness", "utilised", "both"],
)
def test_by_hand(question, plan, value):
    for method in ("auto", "milp"):
        result = hetopt.solve(asked(**question), method=method)
        assert result.status == "optimal"
        assert tuple(result.solution.details["batch"].values()) == plan
        assert result.objective == pytest.approx(value)
        hetopt.verify(asked(**question), result)
    one = problem("splitting.batch")
    instance = asked(**question)
    seen = one.evaluate(instance, one.question(instance), result.solution)
    assert seen.details["epoch_seconds"] == pytest.approx(5520 / value)


def test_most_utilisation():
    result = hetopt.solve(asked("batch-utilisation", balance=1.25))
    assert (result.status, result.objective) == ("optimal", pytest.approx(0.75))


def test_the_curve_rises_with_the_balance():
    points = curve(asked(), [1, 1.25, 2, 2.5, 5])
    values = [result.objective for _, result in points]
    assert values == pytest.approx([100, 148, 148, 276, 276])
    assert all(result.status == "optimal" for _, result in points)


def test_the_adaptive_rule_brings_rates_together():
    rate, start = np.array([10.0, 8.0, 5.0, 5.0, 4.0, 2.0]), np.array([0, 3, 6])
    assert adaptive(rate, start, 0).tolist() == [2, 5]
    chosen = adaptive(rate, start, 200)
    assert rate[chosen].max() / rate[chosen].min() <= 2.0


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (
            {"balance": 1.0, "table": {"cpu": [[1, 1, 1]], "gpu": [[1, 2, 1]]}},
            "makes 2 batches for each of 'gpu' at least",
        ),
        ({"balance": 1.1, "table": {"cpu": [[1, 1, 1], [2, 4, 1]], "gpu": [[1, 2, 1]]}}, "within a factor of 1.1"),
        (
            {"staleness": 1, "table": {"cpu": [[1, 1, 1], [2, 4, 1]], "gpu": [[1, 0.5, 1], [2, 1.6, 1]]}},
            "the others make 1.6 at least, a staleness of 1 is asked for: 0.6 too much",
        ),
        (
            {"balance": 2, "staleness": 1, "table": {"cpu": [[1, 1, 1]], "gpu": [[1, 0.625, 1]]}},
            "make 1.6 at least (within a balance of 2), a staleness of 1 is asked for",
        ),
        (
            {"balance": 2, "utilisation": 0.7, "table": {"cpu": [[1, 1, 0.2], [2, 4, 1]], "gpu": [[1, 1, 1]]}},
            "within balance and staleness it is 0.6 at most: 0.1 short",
        ),
        ({"utilisation": 0.9, "table": {"cpu": [[1, 1, 0.5]], "gpu": [[1, 2, 1]]}}, "the most is 0.75: 0.15 short"),
    ],
    ids=["glance", "windows", "staleness", "both", "all", "utilisation"],
)
def test_what_cannot_be_met(question, told):
    result = hetopt.solve(asked(**question))
    assert result.exit_code == 3
    assert told in " ".join(result.infeasible)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ([[1, 0, 1]], "expected a number"),
        ([[1, 1]], r"\[0\] is \[1, 1\], expected \[batch, seconds, utilisation\]"),
        ([[0, 1, 1]], "the batch 0"),
        ([[1, 1, 2]], "utilisation 2"),
        ([[1, 1, 1], [1, 2, 1]], "twice"),
    ],
    ids=str,
)
def test_tables_that_cannot_be_read(row, told):
    with pytest.raises(InputError, match=told):
        hetopt.solve(asked(table={"cpu": row, "gpu": [[1, 1, 1]]}))


def test_a_balance_below_one():
    with pytest.raises(InputError, match="balance"):
        hetopt.solve(asked(balance=0.5))


@pytest.mark.parametrize("seed", range(600, 620))
@pytest.mark.parametrize("name", ["splitting.batch", "splitting.batch_utilisation"])
def test_against_all_choices(name, seed):
    one = problem(name)
    instance = one.sample(seed)
    question = one.question(instance)
    judged = [one.judge(instance, question, plan) for plan in one.every_plan(instance, question)]
    values = [each.value for each in judged if not each.violations]
    for method in ("auto", "milp", "lp", "adaptive"):
        result = hetopt.solve(instance, method=method)
        if not values:
            assert result.solution is None
            continue
        if method in ("auto", "milp"):
            assert result.objective == pytest.approx(max(values))
        assert result.objective is None or result.objective <= max(values) + 1e-9
        assert result.bound is None or result.bound >= max(values) - 1e-9


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({"cpu": 4, "gpu": 32}, ""),
        ({"cpu": 1, "gpu": 128}, "'cpu' makes 5 batches for each of 'gpu', at most 2"),
        ({"cpu": 1, "gpu": 128}, "while 'gpu' works on a batch the others make 5, at most 3"),
        ({"cpu": 1, "gpu": 16}, "the mean utilisation is 0.375, at least 0.5"),
        ({"cpu": 3, "gpu": 16}, "'cpu' has no batch 3; it has 1, 2, 4"),
        ({"cpu": 4, "gpu": 32, "tpu": 1}, "'tpu', which is no device"),
        (None, "no details.batch"),
    ],
    ids=str,
)
def test_broken_plans(batch, told):
    instance = asked(balance=2, staleness=3, utilisation=0.5)
    one = problem("splitting.batch")
    plan = Solution(details={"batch": batch})
    found = " ".join(one.judge(instance, one.question(instance), plan).violations)
    assert told in found
    assert told or not found
