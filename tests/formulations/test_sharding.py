"""Embedding tables: a case by hand for each cost and limit, the greedy sharders, brute force, data that cannot be read."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hetopt
from formulations.assignment.sharding import PROBLEM
from hetopt import InputError, Instance, Solution
from hetopt.records import Device, Job, Link

EXACT = [m.name for m in PROBLEM.methods if m.kind == "exact"]
GREEDY = ("by-size", "by-dimension", "by-lookup", "by-size-lookup", "round-robin", "random")


def tables(seconds, devices, links=(), fusion=None, **facts) -> Instance:
    """Tables as long on every device; other facts as one list each."""
    jobs = [
        Job(name=f"t{j}", time=[time] * len(devices), **{key: values[j] for key, values in facts.items()})
        for j, time in enumerate(seconds)
    ]
    given = {"fusion": fusion} if fusion else {}
    return Instance.build(devices, jobs, links, tables=given, question={"objective": "sharding"})


def pair(**facts) -> list[Device]:
    return [Device(name=name, **facts) for name in ("a", "b")]


@pytest.mark.parametrize("method", EXACT)
def test_kernels_alone_are_balanced(method):
    result = hetopt.solve(tables([5, 4, 3, 2], pair()), method=method)
    assert (result.objective, result.status) == (7, "optimal")


@pytest.mark.parametrize("method", EXACT)
def test_memory_decides(method):
    """The two large tables cannot share a device, so 5 + 2 and 4 + 3 give way to 5 + 3 and 4 + 2."""
    result = hetopt.solve(tables([5, 4, 3, 2], pair(memory=10), memory=[8, 1, 1, 8]), method=method)
    assert (result.objective, result.status) == (8, "optimal")


@pytest.mark.parametrize("method", EXACT)
def test_task_limits_decide(method):
    result = hetopt.solve(tables([9, 1, 1, 1], pair(max_tasks=2)), method=method)
    assert result.objective == 10


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize(("training", "value"), [(False, 1 + 4.5), (True, 1 + 4.5 + 9)])
def test_exchange_sends_half_the_batch_there_and_gradients_back(method, training, value):
    """One table with 8 bytes: 4 travel from a at 1 byte/s plus 0.5 s; gradients come back at 0.5 bytes/s plus 1 s."""
    links = [
        Link(source="a", target="b", bandwidth=1.0, latency=0.5),
        Link(source="b", target="a", bandwidth=0.5, latency=1.0),
    ]
    instance = tables([1], pair(), links, output=[8]).with_question({"objective": "sharding", "training": training})
    pinned = Solution.assign([0])
    assert PROBLEM.evaluate(instance, PROBLEM.question(instance), pinned).value == value
    other = PROBLEM.evaluate(instance, PROBLEM.question(instance), Solution.assign([1])).value
    assert hetopt.solve(instance, method=method).objective == min(value, other)


@pytest.mark.parametrize("method", EXACT)
def test_fused_kernels_draw_tables_together(method):
    """Three tables of 4: apart 8; three together save 6 and take 6."""
    result = hetopt.solve(tables([4, 4, 4], pair(), fusion={"*": [[1, 0], [2, 0], [3, -6]]}), method=method)
    assert (result.objective, result.status) == (6, "optimal")


def test_the_most_specific_curve_counts_and_is_linear_between_its_points():
    devices = [Device(name="a", type="big"), Device(name="b", type="big"), Device(name="c")]
    instance = tables([0] * 4, devices, fusion={"*": [[1, 1]], "big": [[1, 2], [3, 6]], "a": [[2, 10]]})
    question = PROBLEM.question(instance)

    def value(placement):
        return PROBLEM.evaluate(instance, question, Solution.assign(placement)).value

    assert value([0, 0, 0, 0]) == 10  # constant outside the points
    assert value([1, 1, 2, 2]) == 4  # half way from 2 to 6
    assert value([2, 2, 2, 2]) == 1
    assert value([1, 1, 1, 1]) == 6


def test_the_relaxation_counts_what_memory_leaves():
    """Fused kernels would save 6 with four tables, but only two fit: the bound knows."""
    curve = {"*": [[1, 0], [2, 0], [4, -6]]}
    free = hetopt.bound(tables([4] * 4, pair(), fusion=curve, memory=[1] * 4), method="lp")
    tight = hetopt.bound(tables([4] * 4, pair(memory=2), fusion=curve, memory=[1] * 4), method="lp")
    assert free.bound < 8
    assert tight.bound == pytest.approx(8, rel=1e-9)
    assert tight.bound_proof == "replayed"


def test_cases_tell_what_an_empty_device_saves():
    """Holding any table costs 2: both devices 2 + 4, or one with both and 2 + 8. Shares spread the 2 and say less."""
    instance = tables([4, 4], pair(), fusion={"*": [[1, 2]]})
    by_shares, by_cases = (hetopt.bound(instance, method=name) for name in ("lp", "cases"))
    assert by_shares.bound < 6
    assert by_cases.bound == pytest.approx(6, rel=1e-9)
    assert by_cases.bound_proof == "replayed"
    question = PROBLEM.question(instance)
    certificate = dict(by_cases.certificate)
    with pytest.raises(ValueError, match="duals of 3 cases"):
        PROBLEM.replay(instance, question, {**certificate, "duals": certificate["duals"][:2]})
    weaker = {**certificate, "duals": [{"rows": [], "values": []}, *certificate["duals"][1:]]}
    assert PROBLEM.replay(instance, question, weaker) == 0  # without its duals a case proves nothing but T >= 0
    crowded = tables([4, 4], pair(memory=1), memory=[1, 1], fusion={"*": [[1, 2]]})
    assert hetopt.bound(crowded, method="cases").bound == pytest.approx(6, rel=1e-9)  # no device can be empty


@pytest.mark.parametrize(
    ("method", "placement"),
    [
        ("by-size", [0, 1, 1, 1]),  # 9 | 5 3 1
        ("by-dimension", [1, 1, 0, 1]),  # 8 | 4 2 1: the third is the widest
        ("by-lookup", [1, 0, 1, 0]),  # 6 | 5, then 3, then 1
        ("round-robin", [0, 1, 0, 1]),
    ],
)
def test_each_sharder_balances_its_own_measure(method, placement):
    links = [Link(source="*", target="*", bandwidth=1.0)]
    facts = {"memory": [9, 5, 3, 1], "output": [2, 4, 8, 1], "activation": [3, 6, 1, 5]}
    result = hetopt.solve(tables([1, 1, 1, 1], pair(memory=18), links, **facts), method=method)
    expected = {"by-lookup": [1, 0, 0, 1]}.get(method, placement)
    assert result.solution.placement.tolist() == expected
    assert result.bound is None


def test_rows_weigh_in_by_size_lookup():
    """Equal lookups; 10^6 rows weigh 6, 10^3 rows 3 and 10 rows 1: the first against the two others."""
    facts = {"memory": [4 * 10**6, 4 * 10**3, 40], "output": [400] * 3, "activation": [7] * 3}
    links = [Link(source="*", target="*", bandwidth=1.0)]
    instance = tables([1, 1, 1], pair(), links, **facts).with_question({"objective": "sharding", "batch": 100})
    assert hetopt.solve(instance, method="by-size-lookup").solution.placement.tolist() == [0, 1, 1]


def test_a_sharder_goes_where_room_is_left_or_gives_up():
    devices = [Device(name="a", memory=4), Device(name="b", memory=9)]
    assert hetopt.solve(tables([1, 1], devices, memory=[5, 4]), method="by-size").solution.placement.tolist() == [1, 0]
    stuck = hetopt.solve(tables([1] * 3, pair(memory=5), memory=[3, 3, 4]), method="by-size")
    assert stuck.solution is None
    assert any("no device has room" in text for text in stuck.messages)
    with pytest.raises(InputError, match="no table says what by-lookup balances"):
        hetopt.solve(tables([1], pair()), method="by-lookup")


@pytest.mark.parametrize("seed", range(3))
def test_annealing_is_no_worse_than_any_sharder_and_close_to_the_optimum(seed):
    rng = np.random.default_rng(seed)
    n = 10
    sizes = rng.integers(1, 20, n)
    instance = tables(
        rng.integers(5, 60, n).tolist(),
        [Device(name=f"g{g}", memory=math.ceil(sizes.sum() / 3 * 1.2)) for g in range(3)],
        [Link(source="*", target="*", bandwidth=2.0)],
        {"*": [[1, 0], [4, -9], [12, -15]]},
        memory=sizes.tolist(),
        output=rng.integers(1, 30, n).tolist(),
        activation=rng.integers(1, 30, n).tolist(),
    )
    annealed = hetopt.solve(instance, method="annealing").objective
    plain = [hetopt.solve(instance, method=name).objective for name in GREEDY]
    assert annealed <= min(value for value in plain if value is not None)
    exact = hetopt.solve(instance, method="cpsat", gap=0.001)
    assert exact.bound * (1 - 1e-9) <= annealed <= 1.02 * exact.objective


@pytest.mark.parametrize(
    ("fusion", "told"),
    [
        ([1], "is no map"),
        ({"x": [[1, 1]]}, "names no device and no type"),
        ({"*": [[1, 2, 3]]}, "expected pairs"),
        ({"*": [[1, "x"]]}, "is no list of pairs"),
        ({"*": [[2, 1], [2, 3]]}, "rising numbers"),
    ],
)
def test_a_fusion_table_that_cannot_be_read_is_a_sentence(fusion, told):
    assert told in PROBLEM.fits(tables([1], pair(), fusion=fusion))


def test_a_missing_link_is_no_free_link():
    with pytest.raises(InputError, match="no entry matches 'a' -> 'b'"):
        hetopt.solve(tables([1], pair(), output=[3]))


def test_broken_plans_are_caught():
    instance = tables([5, 4], pair(memory=5), memory=[3, 3])
    question = PROBLEM.question(instance)
    assert "3 needs" not in str(PROBLEM.evaluate(instance, question, Solution.assign([0, 1])).violations)
    over = PROBLEM.evaluate(instance, question, Solution.assign([0, 0]))
    assert "needs 6 bytes of memory and has 5: 1 too many" in over.violations[0]
    assert "not placed" in PROBLEM.evaluate(instance, question, Solution.assign([0, -1])).violations[0]
