"""Restricted assignment: cases worked out by hand, the configuration program's strength, graph balancing, the trimmed program."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import hetopt
from formulations._jobs import jobs_of
from formulations.assignment.restricted import PROBLEM, types_of
from hetopt import Instance, Solution
from hetopt.records import Device, Job
from hetopt.verify import makespan_certificates


def shared(lengths, sets, devices: int, **more) -> Instance:
    """Jobs of some lengths, each with the devices that may run it."""
    times = np.full((len(lengths), devices), np.inf)
    for j, (length, mine) in enumerate(zip(lengths, sets, strict=True)):
        times[j, list(mine)] = length
    return Instance.from_times(times, question={"objective": "restricted-makespan"}, **more)


def balanced(lengths, sets, devices: int) -> float:
    """Optimum by trying everything."""
    best = math.inf
    for plan in itertools.product(*sets):
        best = min(best, np.bincount(plan, weights=lengths, minlength=devices).max())
    return float(best)


def random_case(seed: int, decimal: bool = False) -> tuple[list[float], list[list[int]], int]:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 8)), int(rng.integers(2, 5))
    lengths = rng.integers(1, 30, n) * (0.37 if decimal else 1.0)
    return lengths.tolist(), [sorted(rng.permutation(d)[:2].tolist()) for _ in range(n)], d


@pytest.mark.parametrize("method", [m.name for m in PROBLEM.methods if m.kind == "exact"])
def test_a_triangle_of_equal_edges_is_oriented_around(method):
    result = hetopt.solve(shared([5, 5, 5], [(0, 1), (1, 2), (2, 0)], 3), method=method)
    assert (result.status, result.objective, result.bound) == ("optimal", 5, 5)
    assert sorted(result.solution.placement) == [0, 1, 2]


@pytest.mark.parametrize("method", [m.name for m in PROBLEM.methods if m.kind == "exact"])
def test_a_job_stays_where_it_may_run(method):
    """Device 0 alone may run the two of 4; the two of 3 share devices 1 and 2."""
    result = hetopt.solve(shared([4, 4, 3, 3], [(0,), (0,), (1, 2), (1, 2)], 3), method=method)
    assert result.objective == 8
    assert result.status == "optimal"


def test_the_configuration_program_sees_what_shares_do_not():
    """Three jobs of 2 on two devices: shares say 3, no two whole jobs fit below 4."""
    instance = shared([2, 2, 2], [(0, 1)] * 3, 2)
    by_shares, by_configurations = (hetopt.bound(instance, method=name) for name in ("lp", "configuration"))
    assert by_shares.bound == 3
    assert by_configurations.bound == 4
    assert by_configurations.bound_proof == "replayed"
    assert hetopt.verify(instance, by_configurations).bound_proof == "replayed"


def test_a_damaged_price_proves_nothing():
    instance = shared([2, 2, 2], [(0, 1)] * 3, 2)
    result = hetopt.bound(instance, method="configuration")
    certificate = dict(result.certificate)
    certificate["deadline"] = int(certificate["deadline"]) + 1
    with pytest.raises(ValueError, match="do not refute"):
        makespan_certificates.replay(instance.time, certificate)


@pytest.mark.parametrize("seed", range(12))
def test_graph_balancing(seed):
    lengths, sets, devices = random_case(seed, decimal=seed % 3 == 2)
    instance, optimum = shared(lengths, sets, devices), balanced(lengths, sets, devices)
    bounds = {name: hetopt.bound(instance, method=name).bound for name in ("lp", "configuration")}
    assert bounds["lp"] <= bounds["configuration"] * (1 + 1e-9)
    assert bounds["configuration"] <= optimum * (1 + 1e-12)
    assert optimum <= 1.75 * bounds["configuration"] * (1 + 1e-3)  # the program's gap on graphs; grid of 13 bits
    rounded = hetopt.solve(instance, method="lst")
    assert rounded.objective <= (2 - 1 / devices) * rounded.bound * (1 + 1e-6)
    assert hetopt.solve(instance, method="milp").objective == pytest.approx(optimum, rel=1e-12)


@pytest.mark.parametrize("gap", [0.3, 0.05, 0.0])
def test_the_trimmed_program_keeps_its_accuracy(gap):
    rng = np.random.default_rng(3)
    can = rng.random((14, 3)) < 0.7
    can[np.arange(14), rng.integers(0, 3, 14)] = True
    instance = shared(rng.integers(1, 40, 14).tolist(), [np.flatnonzero(row) for row in can], 3)
    result = hetopt.solve(instance, method="fptas", gap=gap)
    best = hetopt.solve(instance, method="cpsat").objective
    assert result.bound <= best <= result.objective <= (1 + gap) * best
    assert result.bound_proof == "algorithm"


def test_interchangeable_jobs_are_counted_together():
    jobs = jobs_of(shared([3, 2, 3, 3], [(0, 1), (0, 1), (1, 0), (1,)], 2))
    types = types_of(jobs)
    assert types.time.tolist() == [3, 2, 3]
    assert types.count.tolist() == [2, 1, 1]
    assert types.of.tolist() == [0, 1, 0, 2]
    placement = np.array([1, 0, 0, 1])
    again = types.placement(types.number(placement).astype(np.int64))
    assert types.number(again).tolist() == types.number(placement).tolist()
    with pytest.raises(ValueError, match="do not add up"):
        types.placement(np.zeros((3, 2), np.int64))


def test_the_question_is_refused_where_it_does_not_fit():
    assert "not the same on all its devices; ask for makespan" in PROBLEM.fits(Instance.from_times([[1, 2]]))
    late = Instance.build([Device(name="d0", available_from=1)], [Job(name="j", time=[1])])
    assert "not free from the start" in PROBLEM.fits(late)
    small = Instance.build([Device(name="d0", memory=1)], [Job(name="j", time=[1], memory=2)])
    assert "limits memory" in PROBLEM.fits(small)


def test_a_group_is_one_job_and_moving_a_job_is_caught():
    jobs = [Job(name=n, time=[2, 2], group="g") for n in "ab"] + [Job(name="c", time=[None, 3])]
    instance = Instance.build([Device(name="d0"), Device(name="d1")], jobs, question={"objective": "graph-balancing"})
    result = hetopt.solve(instance)
    assert (result.objective, result.status) == (4, "optimal")
    question = PROBLEM.question(instance)
    apart = PROBLEM.evaluate(instance, question, Solution.assign([0, 1, 1]))
    assert any("different devices" in text for text in apart.violations)
    wrong = PROBLEM.evaluate(instance, question, Solution.assign([0, 0, 0]))
    assert any("cannot run on 'd0'" in text for text in wrong.violations)
    nowhere = [Job(name="a", time=[1, None], group="g"), Job(name="b", time=[None, 1], group="g")]
    told = hetopt.solve(Instance.build(instance.devices, nowhere, question={"objective": "restricted-makespan"}))
    assert told.status == "infeasible"
    assert "must share one" in told.infeasible[0]
