"""Layers on rented units: cases worked out by hand, brute force, broken plans and tables."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import numpy as np
import pytest

import hetopt
from hetopt import Instance, Solution
from hetopt.algorithms.provision_program import cheapest_provision, least_rate
from hetopt.errors import InputError
from hetopt.records import Device, Edge, Job, Task
from hetopt.registry import problem

PROVISION = problem("partition.provision")


def rent(compute, pools, *, data=None, shares=(1, 1), batch=1, samples=3600, cut=True, **question) -> Instance:
    """Layers with seconds by pool; pools as (units, price); by default all is divided, and nothing is read."""
    n, t = len(compute), len(pools)
    tasks = [Task(name=f"l{k}", time=list(row), cut=cut) for k, row in enumerate(compute)]
    table = {
        "batch": batch,
        "samples": samples,
        "data_time": [[0] * t] * n if data is None else data,
        "compute_share": [[shares[0]] * t] * n,
        "data_share": [[shares[1]] * t] * n,
    }
    return Instance.build(
        [Device(name=f"p{k}", slots=units, price=price) for k, (units, price) in enumerate(pools)],
        [Job(name="model", tasks=tasks, edges=[Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)])],
        tables={"provision": table},
        question={"objective": "provision", **question},
    )


def solve(instance):
    """The proved result of the scan, equal to that of the MILP."""
    result = hetopt.solve(instance)
    assert result.status == "optimal", (result.messages, result.infeasible)
    assert result.method.startswith("scan")
    hetopt.verify(instance, result)
    other = hetopt.solve(instance, method="milp")
    assert other.status == "optimal"
    assert math.isclose(other.objective, result.objective, rel_tol=1e-6)
    return result


def stages(result) -> list[tuple[int, int]]:
    return list(zip(result.solution.details["layers"], result.solution.details["units"], strict=True))


class TestValue:
    def test_hours_times_price(self):
        """3,600 samples of 5 s at 2 an hour: 5 hours, 10."""
        result = solve(rent([[5]], [(3, 2)]))
        assert math.isclose(result.objective, 10)

    def test_perfect_sharing_costs_nothing_more_and_meets_a_floor(self):
        """5 s on one unit; half a sample a second needs 3 units, 5/3 s, 3 * 2 an hour: 10 again."""
        result = solve(rent([[5]], [(3, 2)], throughput=0.5))
        assert stages(result) == [(1, 3)]
        assert math.isclose(result.objective, 10)
        assert math.isclose(result.evaluation["throughput"], 0.6)

    def test_what_is_not_divided_costs_more(self):
        """Half is divided: 3 units take 6 (1/2 + 1/6) = 4 s, 4 * 3 * 1 = 12 against 6."""
        assert math.isclose(solve(rent([[6]], [(3, 1)], shares=(0.5, 1))).objective, 6)
        assert math.isclose(solve(rent([[6]], [(3, 1)], shares=(0.5, 1), throughput=0.25)).objective, 12)

    def test_computation_and_data_overlap(self):
        """max(4, 7) = 7 s."""
        assert math.isclose(solve(rent([[4]], [(1, 1)], data=[[7]])).objective, 7)

    def test_a_batch_is_many_samples(self):
        assert math.isclose(solve(rent([[8]], [(1, 1)], batch=4)).objective, 2)

    def test_the_cheapest_pool_for_each_layer(self):
        """Apart, 4 s each at 1 + 1: 8. On p0 alone 4 + 40, on p1 alone 40 + 4 at 1: 44."""
        result = solve(rent([[4, 40], [40, 4]], [(1, 1), (1, 1)]))
        assert math.isclose(result.objective, 8)
        assert stages(result) == [(1, 1), (1, 1)]

    def test_units_are_shared_unless_said_otherwise(self):
        """p0, p1, p0: with one unit of p0 that split cannot run; by the published rule it takes one unit each time."""
        times = [[1, 9], [9, 1], [1, 9]]
        result = solve(rent(times, [(1, 1), (1, 1)], shared=False))
        assert math.isclose(result.objective, 3)
        other = solve(rent(times, [(1, 1), (1, 1)]))
        assert math.isclose(other.objective, 11)  # all on one pool: 1 + 9 + 1 at 1 an hour
        assert math.isclose(solve(rent(times, [(2, 1), (1, 1)])).objective, 3)

    def test_a_cut_that_is_not_allowed(self):
        assert math.isclose(solve(rent([[4, 40], [40, 4]], [(1, 1), (1, 1)], cut=False)).objective, 44)


class TestInfeasible:
    def test_by_how_much_the_floor_is_missed(self):
        result = hetopt.solve(rent([[5]], [(2, 1)], throughput=1))
        assert result.status == "infeasible"
        assert "the quickest plan gives 0.4: 0.6 short" in result.infeasible[0]

    def test_pools_that_cannot_run_the_layers(self):
        result = hetopt.solve(rent([[1, None], [None, 1], [1, None]], [(1, 1), (1, 1)]))
        assert result.status == "infeasible"
        assert "units there are" in result.infeasible[0]


class TestBroken:
    INSTANCE = rent([[4, 8], [8, 4]], [(2, 1), (1, 1)], throughput=0.2)

    @pytest.mark.parametrize(
        ("placement", "details", "told"),
        [
            ([0, 1], {"layers": [1, 1], "units": [1, 1]}, ""),
            ([0, 1], {"layers": [1, 1], "units": [1, 2]}, "has 1 units, and the plan takes 2: 1 too many"),
            ([0, 1], {"layers": [1, 1], "units": [1]}, "units for 1"),
            ([0, 1], {"layers": [1], "units": [1]}, "stages of 1 layers in all"),
            ([0, 1], {"layers": [2], "units": [1]}, "stage 1 is on 2 pools"),
            ([0, 0], {"layers": [1, 1], "units": [1, 1]}, "consecutive layers on one pool are one stage"),
            ([0, 1], {"layers": [1, 1], "units": [1, True]}, "expected a list of whole numbers"),
            ([0, 1], {"layers": [1, 1]}, "expected 'layers' and 'units'"),
            ([0, 0], {"layers": [2], "units": [2]}, "0.0333333333 fewer than the floor of 0.2"),
        ],
    )
    def test_each_break_is_told(self, placement, details, told):
        plan = Solution(np.array(placement), details=details)
        found = " ".join(PROVISION.judge(self.INSTANCE, PROVISION.question(self.INSTANCE), plan).violations)
        assert (told in found) if told else not found

    def test_a_forbidden_cut(self):
        instance = rent([[4, 8], [8, 4]], [(2, 1), (1, 1)], cut=False)
        plan = Solution(np.array([0, 1]), details={"layers": [1, 1], "units": [1, 1]})
        assert "no cut is allowed" in PROVISION.judge(instance, PROVISION.question(instance), plan).violations[0]

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (lambda t: t.pop("batch"), "is not an object with batch, samples"),
            (lambda t: t.update(samples=0), "provision.samples is 0"),
            (lambda t: t.update(data_time=[[1]]), "has shape (1, 1), expected 2 tasks x 2 devices"),
            (lambda t: t.update(data_share="x"), "no table of numbers"),
            (lambda t: t.update(compute_share=[[2, 0], [0, 0]]), "shares from 0 to 1"),
        ],
    )
    def test_a_broken_table_is_told(self, change, told):
        instance = rent([[4, 8], [8, 4]], [(2, 1), (1, 1)])
        table = copy.deepcopy(instance.tables["provision"])
        change(table)
        broken = Instance.build(
            instance.devices, instance.jobs(), tables={"provision": table}, question=instance.question
        )
        with pytest.raises(InputError) as caught:
            hetopt.solve(broken)
        assert told in str(caught.value)

    def test_what_does_not_fit_is_told(self):
        instance = rent([[4]], [(1, 1)])
        assert "no price" in PROVISION.fits(
            Instance.build([Device(name="p0")], instance.jobs(), tables=instance.tables)
        )
        with pytest.raises(InputError, match="throughput"):
            hetopt.solve(instance, options={"throughput": -1.0})


@pytest.mark.parametrize("seed", range(30, 60))
def test_brute_force(seed):
    instance = PROVISION.sample(seed)
    question = PROVISION.question(instance)
    judged = [PROVISION.evaluate(instance, question, plan) for plan in PROVISION.every_plan(instance, question)]
    costs = [evaluation.value for evaluation in judged if not evaluation.violations]
    result = hetopt.solve(instance)
    assert result.status == ("optimal" if costs else "infeasible")
    assert not costs or math.isclose(result.objective, min(costs), rel_tol=1e-9)
    count = hetopt.bound(instance, method="count")
    assert count.bound_proof == "replayed"
    assert not costs or count.bound <= min(costs) * (1 + 1e-12)


def test_ranges_that_are_dropped_hold_nothing_better():
    """The scan against every candidate period by itself."""
    from formulations.partition.provision import _table

    for seed in range(12):
        instance = PROVISION.sample(seed)
        table = _table(instance, seed % 2 == 0)
        found = [(float(p), least_rate(table, float(p))) for p in table.candidates]
        costs = [p * plan.rate for p, plan in found if plan is not None]
        bound, best = cheapest_provision(table, math.inf, lambda: False, lambda *_: None)
        assert best is None if not costs else math.isclose(best, min(costs), rel_tol=1e-12)
        assert bound <= (best or 0)
        rates = [math.inf if plan is None else plan.rate for _, plan in found]
        assert all(a >= b for a, b in pairwise(rates))


def test_told_to_stop_it_still_bounds():
    from formulations.partition.provision import _table

    asked = iter([False, False, True])
    bound, best = cheapest_provision(_table(PROVISION.sample(8), True), math.inf, lambda: next(asked), lambda *_: None)
    assert best is not None
    assert bound <= best
