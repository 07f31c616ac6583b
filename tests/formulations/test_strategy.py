"""Model parallelism times data parallelism by table: a case worked out by hand, broken tables and plans."""

from __future__ import annotations

import copy
import math

import pytest

import hetopt
from hetopt import Instance, Solution
from hetopt.errors import InputError
from hetopt.records import Device, Job
from hetopt.registry import problem

STRATEGY = problem("partition.strategy")
TABLE = {
    "model": {"1": 1, "2": 1.5, "4": 2},
    "efficiency": {"1": 1, "2": 1, "4": 0.75, "8": 0.5},
    "epochs": {"1": 10, "2": 10, "4": 12, "8": 20},
}


def instance(devices: int, table=TABLE) -> Instance:
    return Instance.build(
        [Device(name=f"g{k}", type="gpu") for k in range(devices)],
        [Job(name="step", time={"gpu": 1})],
        tables={"strategy": copy.deepcopy(table)},
        question={"objective": "strategy"},
    )


@pytest.mark.parametrize(
    ("devices", "value", "model", "data", "alone"),
    [(1, 1, 1, 1, 1), (2, 2, 1, 2, 2), (4, 3, 2, 2, 2.5), (8, 4, 4, 2, 2.5), (16, 5, 4, 4, 2.5)],
)
def test_by_hand(devices, value, model, data, alone):
    """4 devices: 1.5 * 2 = 3 beats 4 * 0.75 * 10 / 12 = 2.5; 16: 2 * 2.5 = 5."""
    for method in ("table", "milp"):
        result = hetopt.solve(instance(devices), method=method)
        assert result.status == "optimal"
        assert math.isclose(result.objective, value)
        assert result.solution.details == {"model": model, "data": data}
        assert result.evaluation["data_alone"] == alone
        hetopt.verify(instance(devices), result)
    assert hetopt.solve(instance(devices)).bound_proof == "replayed"


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"model": 4, "data": 2}, "4 x 2 devices are 8, and there are 4: 4 too many"),
        ({"model": 3, "data": 1}, "model parallelism is 3, expected one of [1, 2, 4]"),
        ({"model": 1, "data": True}, "data parallelism is True"),
        ({"model": 1, "data": 1, "more": 1}, "unknown key 'more'"),
    ],
)
def test_a_broken_plan_is_told(details, told):
    one = instance(4)
    assert told in " ".join(STRATEGY.judge(one, STRATEGY.question(one), Solution(details=details)).violations)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.pop("epochs"), "is not an object with model, efficiency, epochs"),
        (lambda t: t["model"].pop("1"), "from '1' on"),
        (lambda t: t["model"].update(x=3), "has the key 'x'"),
        (lambda t: t["epochs"].update({"2": 0}), "expected a number above 0"),
    ],
)
def test_a_broken_table_is_told(change, told):
    one = instance(4)
    change(one.tables["strategy"])
    with pytest.raises(InputError) as caught:
        hetopt.solve(one)
    assert told in str(caught.value)
