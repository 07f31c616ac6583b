"""The combinatorial 2-approximation: ratio against its own bound and brute force, bound by replay."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.algorithms import unsplittable_flow
from hetopt.algorithms.deadline_lp import deadline_relaxation
from hetopt.algorithms.times import makespan
from hetopt.algorithms.unsplittable_flow import gairing_monien_woclaw
from hetopt.verify.makespan_certificates import replay

INF = math.inf


@st.composite
def instances(draw, jobs=6):
    n, m = draw(st.integers(1, jobs)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time = rng.integers(draw(st.integers(0, 1)), draw(st.sampled_from([2, 4, 50])), (n, m), endpoint=True).astype(float)
    if draw(st.booleans()):
        time = np.where(time > 0, rng.gamma(0.5, time + 1.0), 0.0)
    time[rng.random((n, m)) < 0.2] = INF
    time[np.isinf(time).all(axis=1), 0] = 1.0
    ready = rng.integers(0, 8, m).astype(float) if draw(st.booleans()) else np.zeros(m)
    return time, ready


def optimum(time, ready):
    n, m = time.shape
    return min(makespan(time, np.array(plan), ready) for plan in itertools.product(range(m), repeat=n))


@given(case=instances())
def test_ratio_and_bound(case):
    time, ready = case
    result = gairing_monien_woclaw(time, ready=ready)
    value, best = makespan(time, result.plan, ready), optimum(time, ready)
    assert result.complete
    assert replay(time, result.certificate, ready) == result.lower_bound <= best * (1 + 1e-15)
    assert best <= value <= 2 * result.deadline * (1 + 1e-9)
    assert result.deadline <= result.lower_bound * (1 if isinstance(result.lower_bound, int) else 1 + 2e-6)
    assert result.lower_bound <= math.ceil(deadline_relaxation(time, ready=ready).deadline * (1 + 1e-6))


@pytest.mark.parametrize("m", [2, 4, 9])
def test_one_job_as_long_as_all_others_together(m):
    # Load m everywhere by shares; every plan of whole jobs that spreads the unit jobs evenly ends at 2 m - 1.
    time = np.ones((1 + m * (m - 1), m))
    time[0] = m
    result = gairing_monien_woclaw(time)
    assert result.lower_bound == m
    assert makespan(time, result.plan) <= 2 * m


def test_prices_must_rise_along_a_chain():
    # By T = 14: thirty jobs start on A, their fastest machine, beyond 28. They may go to C, which is free, at 1.5 times the
    # time, or to B at 1.25 times, but fifteen jobs there make B no low machine; these may go to D at 1.2 times. So A's
    # price rises to 1.5 = 1.25 * 1.2, where C is linked directly and D by way of B, at a price of 1.2.
    time = np.array([[1.0, 1.25, 1.5, INF]] * 30 + [[INF, 1.0, INF, 1.2]] * 15)
    outcome, plan, price = unsplittable_flow._at_deadline(time, time, np.zeros(4), 14.0, None)
    assert outcome == unsplittable_flow._WITHIN
    assert makespan(time, plan) <= 28
    assert price == pytest.approx([1.5, 1.2, 1.0, 1.0])
    result = gairing_monien_woclaw(time)
    assert makespan(time, result.plan) <= 2 * result.lower_bound


def test_a_closed_group_of_machines_refutes():
    # Six unit jobs may use A and B only; C does not help them. By T = 2 they need 6 of 4 units.
    time = np.array([[1.0, 1.0, INF]] * 6 + [[INF, INF, 1.0]])
    outcome, _, price = unsplittable_flow._at_deadline(time, time, np.zeros(3), 1.0, None)
    assert outcome == unsplittable_flow._REFUTED
    assert price[2] == 0
    assert price[0] == price[1] > 0
    assert gairing_monien_woclaw(time).lower_bound <= 3


def test_large_enough_to_move_and_the_plain_kernels_agree(monkeypatch):
    rng = np.random.default_rng(2)
    time = (rng.integers(1, 21, (80, 8)) + rng.integers(1, 101, 8)).astype(float)
    calls = []
    push = unsplittable_flow._push
    compiled = gairing_monien_woclaw(time)
    for kernel in ("_links", "_links_from", "_raise_prices"):
        monkeypatch.setattr(unsplittable_flow, kernel, getattr(unsplittable_flow, kernel).py_func)
    monkeypatch.setattr(unsplittable_flow, "_push", lambda *a: calls.append(1) or push.py_func(*a))
    monkeypatch.setattr(unsplittable_flow, "_WORK_PER_CALL", 2000)
    plain = gairing_monien_woclaw(time)
    assert plain.plan.tolist() == compiled.plan.tolist()
    assert plain.lower_bound == compiled.lower_bound
    assert len(calls) > 20
    assert makespan(time, plain.plan) <= 2 * plain.lower_bound


def test_stopping_at_once_leaves_a_plan_and_a_bound():
    time = np.random.default_rng(0).integers(1, 30, (20, 6)).astype(float)
    result = gairing_monien_woclaw(time, should_stop=lambda: True)
    assert not result.complete
    assert result.lower_bound == time.min(axis=1).max() == replay(time, result.certificate)
    assert makespan(time, result.plan) <= 2 * result.deadline


def test_no_jobs_no_time_and_no_machine():
    assert gairing_monien_woclaw(np.zeros((0, 2))).lower_bound == 0
    result = gairing_monien_woclaw(np.zeros((3, 2)))
    assert (result.complete, result.lower_bound, result.deadline) == (True, 0, 0.0)
    with pytest.raises(ValueError, match="job 0 cannot run"):
        gairing_monien_woclaw([[INF, INF]])
