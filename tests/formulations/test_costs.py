"""Makespan within a budget and least cost by a deadline: cases by hand, brute force, the proven factor, broken plans."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetopt
from formulations.assignment.budget import PROBLEM as BUDGET
from formulations.assignment.generalized import PROBLEM as GENERALIZED
from hetopt import Instance, Solution
from hetopt.algorithms.budget_makespan import makespan_within_budget, refuted_deadline
from hetopt.algorithms.goal_search import Goals, missed, reach, tighten
from hetopt.algorithms.times import makespan
from hetopt.records import Device, Job


def shop(time, cost, **question) -> Instance:
    """Jobs with times and costs (None: cannot run)."""
    devices = [Device(name=f"d{i}") for i in range(len(time[0]))]
    jobs = [Job(name=f"j{j}", time=t, cost=c) for j, (t, c) in enumerate(zip(time, cost, strict=True))]
    return Instance.build(devices, jobs, question=question)


# Fast and dear, or slow and cheap: all jobs on d0 take 6 and cost 9, on d1 12 and 3.
TIME, COST = [[2, 4]] * 3, [[3, 1]] * 3


@pytest.mark.parametrize("method", ["milp", "cpsat"])
@pytest.mark.parametrize(("budget", "makespan"), [(9, 4), (7, 4), (6, 8), (5, 8), (4, 12), (3, 12)])
def test_a_tighter_budget_takes_longer(method, budget, makespan):
    """Two fast, one slow: 4 seconds for 7; one fast: 8 for 5; none: 12 for 3."""
    result = hetopt.solve(shop(TIME, COST, objective="budget-makespan", budget=budget), method=method)
    assert (result.status, result.objective) == ("optimal", makespan)


@pytest.mark.parametrize(("deadline", "cost"), [(3, None), (4, 7), (7, 7), (8, 5), (12, 3)])
def test_a_later_deadline_is_cheaper(deadline, cost):
    result = hetopt.solve(shop(TIME, COST, objective="least-cost", deadline=deadline), method="milp")
    assert result.objective == cost
    assert result.status == ("infeasible" if cost is None else "optimal")


def test_without_a_limit_costs_or_times_do_not_matter():
    assert hetopt.solve(shop(TIME, COST, objective="budget-makespan")).objective == 4
    assert hetopt.solve(shop(TIME, COST, objective="least-cost")).objective == 3


def test_a_budget_that_buys_nothing_is_told():
    result = hetopt.solve(shop(TIME, COST, objective="budget-makespan", budget=2.5))
    assert result.status == "infeasible"
    assert result.infeasible == ("the jobs cost 3 on their cheapest devices, and the budget is 2.5: 0.5 short",)
    late = hetopt.solve(shop([[5, 6]], [[1, 1]], objective="least-cost", deadline=4))
    assert late.infeasible == ("'j0' ends at 5 at the earliest, 1 seconds after the deadline 4",)
    full = hetopt.solve(shop([[5, 6]] * 3, [[1, 1]] * 3, objective="least-cost", deadline=7))
    told = "the jobs take 15 seconds where they are quickest, and the devices have 14 until the deadline 7: 1 short"
    assert full.infeasible == (told,)


def test_broken_plans_are_caught():
    instance = shop(TIME, COST, objective="budget-makespan", budget=6)
    told = BUDGET.evaluate(instance, BUDGET.question(instance), Solution.assign([0, 0, 1]))
    assert told.violations == ("the plan costs 7, and the budget is 6: 1 too much",)
    assert told.details["cost"] == 7
    instance = shop(TIME, COST, objective="least-cost", deadline=7)
    told = GENERALIZED.evaluate(instance, GENERALIZED.question(instance), Solution.assign([0, 1, 1]))
    assert told.violations == ("device 'd1' is done at 8, 1 seconds after the deadline 7",)
    assert told.value == 5


def test_decimal_sums_may_exceed_their_limit_by_noise_only():
    instance = shop(
        [[1.0]] * 3, [[0.1]] * 3, objective="budget-makespan", budget=0.3
    )  # 0.1 + 0.1 + 0.1 > 0.3 in floats
    assert hetopt.solve(instance).status == "optimal"
    over = shop([[1.0]] * 3, [[0.1]] * 3, objective="budget-makespan", budget=0.2999)
    assert hetopt.solve(over).status == "infeasible"


def test_a_missing_cost_is_no_zero():
    assert "has a time on 'd1' and no cost" in BUDGET.fits(shop([[1, 2]], [[3, None]]))
    assert GENERALIZED.fits(shop([[1, None]], [[3, None]])) is None


def test_memory_groups_and_availability_count():
    devices = [Device(name="d0", memory=4), Device(name="d1", available_from=5)]
    jobs = [Job(name=f"j{j}", time=[1, 1], cost=[1, 9], memory=3) for j in range(2)]
    instance = Instance.build(devices, jobs, question={"objective": "least-cost", "deadline": 6})
    result = hetopt.solve(instance)
    assert (result.objective, result.status) == (10, "optimal")  # d0 holds one
    early = hetopt.solve(instance.with_question({"objective": "least-cost", "deadline": 5}))
    assert early.status == "infeasible"
    together = [Job(name=f"j{j}", time=[1, 1], cost=[1, 9], group="g") for j in range(2)]
    grouped = Instance.build([Device(name="d0"), Device(name="d1")], together, question={"objective": "least-cost"})
    assert hetopt.solve(grouped.with_question({"objective": "least-cost", "deadline": 2})).objective == 2
    assert hetopt.solve(grouped.with_question({"objective": "budget-makespan", "budget": 2})).objective == 2


@st.composite
def cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    scale = draw(st.sampled_from([1.0, 1.0, 0.37]))
    time, cost = rng.integers(0, 20, (n, m)) * scale, rng.integers(0, 10, (n, m)) * scale
    time[rng.random((n, m)) < 0.2] = math.inf
    time[np.isinf(time).all(axis=1), 0] = 1.0
    ready = rng.integers(0, 6, m) * 1.0 if draw(st.booleans()) else np.zeros(m)
    least = np.where(np.isfinite(time), cost, np.inf).min(axis=1).sum()
    return time, cost, ready, float(least + draw(st.sampled_from([0.0, 0.3, 2.0])) * draw(st.integers(0, 9)))


def brute_force(time, cost, ready, budget) -> float:
    n, m = time.shape
    best = math.inf
    for plan in itertools.product(range(m), repeat=n):
        chosen = np.array(plan)
        rows = np.arange(n)
        if np.isfinite(time[rows, chosen]).all() and cost[rows, chosen].sum() <= budget * (1 + 1e-12):
            best = min(best, makespan(time, chosen, ready))
    return best


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_rounded_plan_keeps_the_budget_and_twice_the_bound(case):
    time, cost, ready, budget = case
    limit = budget * (1 + 1e-9)
    answer = makespan_within_budget(time, cost, limit, ready=ready)
    best = brute_force(time, cost, ready, budget)
    assert cost[np.arange(len(time)), answer.plan].sum() <= limit * (1 + 1e-12)
    assert answer.lower_bound <= best * (1 + 1e-9)
    assert answer.complete
    assert (
        best <= makespan(time, answer.plan, ready) * (1 + 1e-9) <= 2 * 1.001 * answer.lower_bound * (1 + 1e-9) + 1e-12
    )
    if answer.certificate["kind"] == "cost-weights":
        weights = np.array(answer.certificate["weights"])
        proved = refuted_deadline(time, cost, limit, answer.certificate["deadline"], weights, ready=ready)
        assert proved == answer.lower_bound
        with pytest.raises(ValueError, match="within the budget"):
            refuted_deadline(time, cost, limit, best * 1.01 + 1, weights, ready=ready)


def test_a_budget_below_the_cheapest_plan_is_an_error():
    with pytest.raises(ValueError, match="costs 2, more than the budget 1"):
        makespan_within_budget([[1.0]], [[2.0]], 1.0)


# The search -----------------------------------------------------------------------------------------------------------


def goals(time, **changed) -> Goals:
    time = np.array(time, float)
    n, m = time.shape
    endless = np.full(m, math.inf)
    base = Goals(
        time, np.zeros((m, n + 1)), np.zeros(n), np.ones(n), np.zeros((n, m)), endless, endless, endless, math.inf
    )
    return base._replace(**{key: np.array(value, float) if np.ndim(value) else value for key, value in changed.items()})


def test_what_is_missed():
    """Loads 6 and 2 against 4 and 4: half a room; bytes 3 against 2: half; cost 5 against 4: a quarter."""
    one = goals([[2, 2]] * 4, room=[4, 4], cost=[[1, 2]] * 4, budget=4.0, memory=[1] * 4, capacity=[2, 2])
    assert missed(one, np.array([0, 0, 0, 1])) == pytest.approx(0.5 + 0.5 + 0.25)
    late = goals([[1, 1]], extra=[[0, 0], [0, 9]], room=[5, 5])
    assert missed(late, np.array([0])) == 0  # a machine that holds nothing is never late
    assert missed(late, np.array([1])) == pytest.approx(1.0)


def test_goals_are_reached_and_the_same_seed_gives_the_same_plan():
    rng = np.random.default_rng(0)
    one = goals(rng.integers(1, 30, (30, 4)), room=[60] * 4)
    start = np.zeros(30, np.int64)
    plans = [reach(one, start, seed=3) for _ in range(2)]
    assert missed(one, plans[0]) == 0
    assert (plans[0] == plans[1]).all()
    assert reach(goals([[2, 2]] * 3, room=[3, 3]), np.zeros(3, np.int64), proposals=2000) is None
    impossible = goals([[2, 2]] * 3, room=[3, 3])
    assert reach(impossible, start[:3], proposals=10**12, should_stop=lambda: True) is None


def test_a_value_is_lowered_to_the_optimum():
    time = np.array([[2, 4], [3, 2], [4, 4], [1, 3], [5, 2]], float)
    best = brute_force(time, np.zeros((5, 2)), np.zeros(2), 0.0)
    seen: list[float] = []
    plan = tighten(
        lambda value: goals(time, room=[value, value]),
        lambda plan: makespan(time, plan),
        np.zeros(5, np.int64),
        0.0,
        step=1.0,
        report=lambda plan: seen.append(makespan(time, plan)),
    )
    assert makespan(time, plan) == best
    assert seen == sorted(seen, reverse=True)


def test_the_kernel_is_its_plain_twin():
    from hetopt.algorithms import goal_search

    one = goals(np.random.default_rng(1).integers(1, 9, (8, 3)), room=[7, 7, 7], memory=[1] * 8, capacity=[3, 3, 3])
    plans = []
    for kernel in (goal_search._anneal, getattr(goal_search._anneal, "py_func", goal_search._anneal)):
        plan, state = np.zeros(8, np.int64), np.array([12345], np.uint64)
        kernel(*one, *goal_search._units(one), plan, 0.1, 0.01, 500, state)
        plans.append((plan.tolist(), int(state[0])))
    assert plans[0] == plans[1]
