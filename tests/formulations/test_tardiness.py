"""assignment.tardiness: cases worked out by hand, broken plans, the time-indexed bound, generated instances."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import hetopt
from formulations.assignment.tardiness import LP
from hetopt.io import generators
from hetopt.records import Device, Job


def two_machines() -> hetopt.Instance:
    """Machine b is busy until 9, due at 4, and never worth using."""
    return hetopt.Instance.build(
        [Device(name="a", due=3, weight=10), Device(name="b", available_from=9, due=4, weight=2)],
        [Job(name="long", time=[3, 3], due=3, weight=4), Job(name="short", time=[2, 3], due=2, weight=1)],
        question={"objective": "tardiness"},
    )


def test_unused_machine_counts_by_hand():
    """Both on a: L = (5, 9), so Cmax = 9 although the jobs are done at 5; overdue 10 * 2 + 2 * 5 = 30.

    long, short: tardiness 0 + 1 * 3 = 3; short, long: 0 + 4 * 2 = 8. So 9 + 30 + 3 = 42. With short on b alone:
    Cmax 12, overdue 0 + 2 * 8 = 16, tardiness 0 + 1 * 10 = 10: 38. With long on b: 12 + 16 + 4 * 9 = 64.
    """
    result = hetopt.solve(two_machines())
    assert (result.status, result.objective) == ("optimal", 38.0)
    both = hetopt.Solution(placement=np.zeros(2, np.int64), start=np.array([0.0, 3.0]))
    report = hetopt.verify(two_machines(), both)
    assert report.objective == 42.0


@pytest.mark.parametrize(
    ("placement", "start", "told"),
    [
        ([0, 0], [0, 2], "at the same time"),
        ([0, 1], [0, 8], "before its device is available"),
        ([0, 7], [0, 9], "short"),
    ],
)
def test_a_broken_plan_is_caught(placement, start, told):
    broken = hetopt.Solution(placement=np.array(placement), start=np.array(start, float))
    with pytest.raises(hetopt.VerificationError, match=told):
        hetopt.verify(two_machines(), broken)


def test_a_later_start_is_charged():
    """Waiting is allowed and costs what it costs: long at 1 instead of 0 is a unit later, and so is its machine."""
    late = hetopt.Solution(placement=np.array([0, 1]), start=np.array([1.0, 9.0]))
    assert hetopt.verify(two_machines(), late).objective == 38.0 + 4 + 10


@pytest.mark.parametrize("seed", range(5))
def test_time_indexed_bound(seed):
    """The bound is replayed, not beyond the optimum, and close to it; CP-SAT agrees on the optimum."""
    instance = generators.get("tardiness").make(jobs=6, machines=3, seed=seed)
    exact = hetopt.solve(instance)
    bound = hetopt.solve(instance, method="lp")
    assert exact.status == "optimal"
    assert bound.bound_proof == "replayed"
    assert 0.85 * exact.objective <= bound.bound <= exact.objective
    assert hetopt.solve(instance, method="cpsat").objective == exact.objective


@pytest.mark.parametrize("slots", [3, 8, 40])
def test_any_horizon_bounds(slots, monkeypatch):
    """A horizon before the end of every good plan loosens the bound and never breaks it."""
    instance = generators.get("tardiness").make(jobs=7, machines=2, seed=4)
    best = hetopt.solve(instance).objective
    monkeypatch.setattr("formulations.assignment._tardiness_lp._slots", lambda _: (1.0, slots))
    assert hetopt.solve(instance, method="lp").bound <= best


def test_coarse_slots_bound(monkeypatch):
    """Slots of four seconds round times down, so the bound stays one."""
    instance = generators.get("tardiness").make(jobs=7, machines=2, seed=4)
    best = hetopt.solve(instance).objective
    monkeypatch.setattr("formulations.assignment._tardiness_lp._slots", lambda _: (4.0, 40))
    bound = hetopt.solve(instance, method="lp").bound
    assert 0.5 * best <= bound <= best


@pytest.mark.parametrize("seed", range(3))
def test_columns_beat_the_time_indexed_bound(seed):
    """A replayed bound and a plan, closer together than the LP and annealing are; verify accepts both."""
    instance = generators.get("tardiness").make(jobs=15, machines=3, seed=seed)
    result = hetopt.solve(instance, method="columns")
    assert result.bound_proof == "replayed"
    assert hetopt.verify(instance, result).objective == result.objective
    assert hetopt.solve(instance, method="lp").bound <= result.bound
    assert result.objective <= hetopt.solve(instance, method="annealing").objective
    assert result.bound >= 0.985 * result.objective


def test_forged_prices_cannot_lift_the_bound():
    instance = generators.get("tardiness").make(jobs=14, machines=3, seed=1)
    result = hetopt.solve(instance, method="columns")
    certificate = {
        **result.certificate,
        "intervals": [{**one, "price": [2 * p for p in one["price"]]} for one in result.certificate["intervals"]],
    }
    with pytest.raises(hetopt.VerificationError):
        hetopt.verify(instance, dataclasses.replace(result, certificate=certificate, bound=result.bound + 5))


def test_columns_with_decimals():
    """Slots shorter than a second round times down: the bound stays one, and close."""
    whole = generators.get("tardiness").make(jobs=9, machines=3, seed=2)
    devices = [
        Device(name=d.name, available_from=d.available_from * 0.1, due=d.due * 0.1, weight=d.weight)
        for d in whole.devices
    ]
    due, weight = (0.1 * whole.columns.due).tolist(), whole.columns.weight.tolist()
    jobs = [
        Job(name=f"j{k}", time=(0.1 * whole.time[k]).tolist(), due=due[k], weight=weight[k])
        for k in range(whole.n_tasks)
    ]
    instance = hetopt.Instance.build(devices, jobs, question={"objective": "tardiness"})
    best = hetopt.solve(instance).objective
    result = hetopt.solve(instance, method="columns")
    assert 0.9 * best <= result.bound <= best * (1 + 1e-9)


def test_a_forged_dual_cannot_lift_the_bound():
    """A certificate whose duals are doubled proves no more than they do, and is refused for the bound it claims."""
    instance = generators.get("tardiness").make(jobs=6, machines=3, seed=1)
    result = hetopt.solve(instance, method="lp")
    certificate = dict(result.certificate)
    certificate["values"] = [2 * v for v in certificate["values"]]
    with pytest.raises(hetopt.VerificationError):
        hetopt.verify(instance, dataclasses.replace(result, certificate=certificate, bound=result.bound + 5))


@pytest.mark.parametrize("power", [-30, 40])
def test_units_do_not_matter(power):
    """The MILP and the columns on nanoseconds and on 10^12 seconds: the optimum is that of seconds."""
    unit = 2.0**power
    instance = hetopt.Instance.build(
        [
            Device(name="a", due=3 * unit, weight=10),
            Device(name="b", available_from=9 * unit, due=4 * unit, weight=2),
        ],
        [
            Job(name="long", time=[3 * unit, 3 * unit], due=3 * unit, weight=4),
            Job(name="short", time=[2 * unit, 3 * unit], due=2 * unit, weight=1),
        ],
        question={"objective": "tardiness"},
    )
    result = hetopt.solve(instance, method="milp")
    assert (result.status, result.objective) == ("optimal", 38 * unit)
    assert 0.9 * 38 * unit <= hetopt.solve(instance, method="columns").bound <= 38 * unit


def test_release_dates_are_refused():
    instance = hetopt.Instance.build([Device(name="a")], [Job(name="j", time=[1], release=2)])
    with pytest.raises(hetopt.InputError, match="release dates"):
        hetopt.solve(instance, objective="tardiness")


def test_rows_of_the_relaxation():
    """Two slots on one machine, one job of one slot: 3 starts, flow in the two slots, one row each for the rest."""
    instance = hetopt.Instance.build(
        [Device(name="a", due=1)], [Job(name="j", time=[1], due=0, weight=3)], question={"objective": "tardiness"}
    )
    model = LP().build(instance)
    assert [block.size for block in model.row_blocks] == [1, 2, 1, 1, 1, 1]
    assert model.cost[model.columns("start")].tolist() == [3.0, 6.0, 9.0]
    assert hetopt.solve(instance, method="lp").bound == 1 + 3


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_weights_that_lie_far_apart_are_no_false_proof(seed):
    """HiGHS does not see a weight of 1 beside 2e9 and calls plans optimal that cost three times the least."""
    rng = np.random.default_rng(seed)
    jobs = [
        Job(
            name=f"j{k}",
            time=rng.integers(1, 10, 2).tolist(),
            weight=(1, 2, 2e9, 2e9)[rng.integers(4)],
            due=int(rng.integers(2, 13)),
        )
        for k in range(5)
    ]
    instance = hetopt.Instance.build([Device(name="a"), Device(name="b")], jobs, question={"objective": "tardiness"})
    least = hetopt.solve(instance, method="subsets").objective
    result = hetopt.solve(instance, method="milp", time_limit=20)
    assert not [message for message in result.messages if "contradicts" in message]
    assert 0 <= result.bound <= least
