"""Ways to shard operators: worked by hand, brute force, trees, messages as proofs, broken plans and tables."""

from __future__ import annotations

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.io.generators import operator_sharding
from hetopt.records import Device, Edge, Job, Mode, Task
from hetopt.registry import problem

AGREE = [[0, 5], [5, 0]]


def asked(memory=None, table=None, circle=False) -> Instance:
    """Three operators: a prefers p by 3, b and c prefer q by 2 each; each has 10 bytes in p and 4 in q."""
    seconds = {"a": (0, 3), "b": (2, 0), "c": (2, 0)}
    tasks = [
        Task(name=n, time=[1], modes=[Mode(name="p", time=[s[0]], memory=10), Mode(name="q", time=[s[1]], memory=4)])
        for n, s in seconds.items()
    ]
    pairs = [("a", "b"), ("b", "c")] + [("a", "c")] * circle
    rows = [{"from": a, "to": b, "seconds": AGREE} for a, b in pairs] if table is None else table
    job = Job(name="net", tasks=tasks, edges=[Edge(source=a, target=b) for a, b in pairs])
    return Instance.build(
        [Device(name="mesh", memory=memory)],
        [job],
        tables={"resharding": rows},
        question={"objective": "operator-sharding"},
    )


@pytest.mark.parametrize(
    ("memory", "table", "circle", "plan", "value"),
    [
        (None, None, False, "qqq", 3),
        (None, [], False, "pqq", 0),
        (None, None, True, "qqq", 3),
        (12, None, False, "qqq", 3),
        (18, [], False, "pqq", 0),
        (17, [], False, "qqq", 3),
        (None, [{"from": "a", "to": "b", "seconds": [[0, 1], [5, 0]]}], False, "pqq", 1),
    ],
    ids=["agree", "free", "circle", "memory", "room", "tight", "one-way"],
)
def test_by_hand(memory, table, circle, plan, value):
    instance = asked(memory, table, circle)
    for method in ("auto", "milp"):
        result = hetopt.solve(instance, method=method)
        assert (result.status, result.objective) == ("optimal", value)
        assert "".join(result.solution.details["modes"].values()) == plan
        hetopt.verify(instance, result)


def test_memory_that_nothing_fits():
    result = hetopt.solve(asked(11))
    assert result.exit_code == 3
    assert result.infeasible == ("memory: the thriftiest modes need 12, the device has 11: 1 short",)


@pytest.mark.parametrize("seed", range(700, 740))
def test_against_all_choices(seed):
    one = problem("selection.sharding")
    instance = one.sample(seed)
    question = one.question(instance)
    judged = [one.judge(instance, question, plan) for plan in one.every_plan(instance, question)]
    values = [each.value for each in judged if not each.violations]
    for method in ("milp", "lp", "tree", "messages"):
        if one.method(method).fits(instance, question) is not None:
            continue
        result = hetopt.solve(instance, method=method)
        if not values:
            assert result.solution is None
            continue
        if method in ("milp", "tree"):
            assert (result.status, result.objective) == ("optimal", min(values))
        assert result.objective is None or result.objective >= min(values)
        assert result.bound is None or result.bound <= min(values) + 1e-9


def test_layers_of_a_decoder():
    instance = operator_sharding.make(layers=3)
    result = hetopt.solve(instance)
    assert result.status == "optimal"
    quick = hetopt.solve(instance, method="messages")
    assert result.objective * 0.97 <= quick.bound <= result.objective <= quick.objective <= result.objective * 1.03
    hetopt.verify(instance, quick)


@pytest.mark.parametrize(
    ("modes", "told"),
    [
        ({"a": "q", "b": "q", "c": "q"}, ""),
        ({"a": "p", "b": "q", "c": "q"}, "memory adds up to 18, the device has 14: 4 too much"),
        ({"a": "q", "b": "q"}, "task 'c' has no mode None; it has p, q"),
        ({"a": "q", "b": "q", "c": "q", "d": "q"}, "'d', which is no task"),
        (None, "no details.modes"),
    ],
    ids=str,
)
def test_broken_plans(modes, told):
    instance = asked(14)
    one = problem("selection.sharding")
    found = " ".join(one.judge(instance, one.question(instance), Solution(details={"modes": modes})).violations)
    assert told in found
    assert told or not found


@pytest.mark.parametrize(
    ("price", "messages"),
    [(-1.0, 2), (1.0, 1), (np.inf, 2), (0.0, "short"), (0.0, "nan")],
    ids=str,
)
def test_messages_that_prove_nothing(price, messages):
    told = {"short": [[[0.0], [0.0, 0.0]]] * 2, "nan": [[[np.nan, 0.0], [0.0, 0.0]]] * 2}
    given = told.get(messages) or [[[0.0, 0.0], [0.0, 0.0]]] * messages
    instance = asked(14)
    one = problem("selection.sharding")
    with pytest.raises(ValueError, match=r"price|message"):
        one.replay(instance, one.question(instance), {"kind": "messages", "price": price, "messages": given})


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ([{"from": "a", "to": "c", "seconds": AGREE}], "between which there is no edge"),
        ([{"from": "a", "to": "b", "seconds": AGREE}] * 2, "as an entry before it"),
        ([{"from": "a", "to": "b", "seconds": [[0, 1]]}], "must be 2 x 2 numbers"),
        ([{"from": "a", "to": "b", "seconds": [[0, -1], [0, 0]]}], "0 or more"),
        ([{"from": "a", "to": "b"}], "expected"),
        ({}, "must be a list"),
    ],
    ids=["edge", "twice", "shape", "negative", "keys", "list"],
)
def test_tables_that_cannot_be_read(table, told):
    with pytest.raises(InputError, match=told):
        hetopt.solve(asked(table=table))
