"""The deadline relaxation: bound replayed and refuted by hand, ratios 2 and 2 - 1/m against brute force."""

from __future__ import annotations

import csv
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetopt.algorithms.deadline_lp import deadline_relaxation, lst
from hetopt.algorithms.generalized_assignment import cheapest_by_deadline, cost_bound
from hetopt.algorithms.rounding import lenstra_shmoys_tardos, shchepin_vakhania
from hetopt.algorithms.times import machine_loads, makespan
from hetopt.verify.makespan_certificates import replay

INF = math.inf


@st.composite
def instances(draw, jobs=6):
    n, m = draw(st.integers(1, jobs)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    largest = draw(st.sampled_from([1, 3, 40]))
    time = rng.integers(draw(st.integers(0, 1)), largest + 1, (n, m)).astype(float)
    if draw(st.booleans()):
        time = np.where(time > 0, rng.gamma(1.0, time + 1.0), 0.0)
    time[rng.random((n, m)) < 0.2] = INF
    time[np.isinf(time).all(axis=1), 0] = 1.0
    ready = rng.integers(0, 8, m).astype(float) if draw(st.booleans()) else None
    return time, ready


def plans(time):
    n, m = time.shape
    return (np.array(plan) for plan in itertools.product(range(m), repeat=n) if (time[range(n), plan] < INF).all())


def refuted(time, ready, weights, deadline):
    """The certificate's inequality in exact arithmetic, for one deadline."""
    room = [Fraction(deadline) - Fraction(r) for r in ready]
    need = Fraction(0)
    for row in time.tolist():
        allowed = [Fraction(t) * int(w) for t, w, c in zip(row, weights, room, strict=True) if t < INF and t <= c]
        if not allowed:
            return True
        need += min(allowed)
    return need > sum(int(w) * max(c, 0) for w, c in zip(weights, room, strict=True))


class TestDeadline:
    @settings(max_examples=60)
    @given(case=instances())
    def test_bound_and_ratios(self, case):
        time, ready = case
        m = time.shape[1]
        start = np.zeros(m) if ready is None else ready
        best = min(makespan(time, plan, start) for plan in plans(time))
        point = deadline_relaxation(time, ready=ready)
        assert point.complete
        assert point.lower_bound <= best * (1 + 1e-15)
        assert replay(time, point.certificate, start) == point.lower_bound
        if isinstance(point.lower_bound, int):
            assert point.lower_bound == math.ceil(point.deadline * (1 - 1e-9))
        else:
            assert point.deadline * (1 - 1e-5) <= point.lower_bound <= point.deadline * (1 + 1e-9)
        used = point.x > 0
        loads = start + (np.where(used, time, 0) * point.x).sum(axis=0)
        assert (loads[used.any(axis=0)] <= point.deadline * (1 + 1e-9)).all()
        assert ((time + start)[used] <= point.deadline * (1 + 1e-9)).all()
        value = makespan(time, lenstra_shmoys_tardos(time, point.x, ready=start), start)
        assert best <= value <= 2 * point.deadline * (1 + 1e-9)
        value = makespan(time, shchepin_vakhania(time, point.x, ready=start), start)
        assert best <= value <= (2 - 1 / m) * point.deadline * (1 + 1e-9)

    @settings(max_examples=40)
    @given(case=instances())
    def test_the_certificate_refutes_in_fractions_what_it_claims(self, case):
        time, ready = case
        start = np.zeros(time.shape[1]) if ready is None else ready
        point = deadline_relaxation(time, ready=ready)
        weights = np.asarray(point.certificate.get("weights"))
        if point.lower_bound > 0:
            below = point.lower_bound - 1 if isinstance(point.lower_bound, int) else point.lower_bound * (1 - 1e-7)
            assert below < 0 or refuted(time, start, weights, below)

    def test_pruning_is_what_makes_the_bound(self):
        # One job of time m on m machines: by shares it takes one unit everywhere, so the plain relaxation says 1.
        m = 7
        result = lst(np.full((1, m), float(m)))
        assert (result.lower_bound, result.deadline) == (m, m)
        assert makespan(np.full((1, m), float(m)), result.plan) == m

    def test_the_answer_lies_strictly_between_two_times(self):
        # Two machines, jobs of 3, 3 and 2 units: loads of 4 by shares, no time of 4 anywhere; the best plan takes 5.
        time = np.array([[3.0, 3.0], [3.0, 3.0], [2.0, 2.0]])
        result = lst(time)
        assert (result.lower_bound, result.deadline) == (4, pytest.approx(4.0))
        assert makespan(time, result.plan) in (5.0, 6.0)

    def test_a_program_of_earlier_pairs_may_settle_later(self):
        # Found by brute force: the pairs before 704 need a load of 766, with the pair of 704 itself less is enough.
        time = np.array([[980.0, 380, 685], [950, 650, 840], [688, 704, 389], [875, 135, 579]])
        point = deadline_relaxation(time)
        assert point.lower_bound == math.ceil(point.deadline)
        assert point.lower_bound <= min(makespan(time, plan) for plan in plans(time)) == 785.0

    def test_a_machine_that_is_ready_too_late_is_no_part_of_it(self):
        result = lst([[2.0, 1.0], [2.0, 1.0]], ready=[0.0, 90.0])
        assert result.plan.tolist() == [0, 0]
        assert result.lower_bound == 4

    def test_the_sharper_rounding_may_be_passed_in(self):
        time = np.random.default_rng(0).integers(1, 30, (20, 6)).astype(float)
        result = lst(time, rounding=shchepin_vakhania)
        assert makespan(time, result.plan) <= makespan(time, lst(time).plan)
        assert makespan(time, result.plan) <= (2 - 1 / 6) * result.deadline

    def test_stopping_at_once_leaves_a_plan_and_a_bound(self):
        time = np.random.default_rng(0).integers(1, 30, (20, 6)).astype(float)
        result = lst(time, should_stop=lambda: True)
        assert not result.complete
        assert result.lower_bound == time.min(axis=1).max() == replay(time, result.certificate)
        assert result.deadline >= makespan(time, result.plan)

    def test_a_job_without_a_machine_is_named(self):
        with pytest.raises(ValueError, match="job 1 cannot run"):
            lst([[1.0, 2.0], [INF, INF]])

    def test_no_jobs_and_no_time(self):
        result = lst(np.zeros((0, 3)))
        assert (result.plan.size, result.lower_bound, result.complete) == (0, 0, True)
        assert replay(np.zeros((0, 3)), result.certificate) == 0
        result = lst(np.zeros((2, 3)))
        assert (result.lower_bound, result.deadline, result.complete) == (0, 0.0, True)

    def test_units_do_not_matter(self):
        time = np.random.default_rng(4).integers(1, 100, (12, 4)).astype(float)
        value = deadline_relaxation(time).deadline
        for factor in (2.0**-30, 2.0**30):
            point = deadline_relaxation(time * factor)
            assert point.deadline == pytest.approx(value * factor, rel=1e-9)
            assert point.lower_bound == pytest.approx(point.deadline, rel=1e-5)

    def test_braun_matrices_have_the_known_relaxation(self, data_dir):
        with open(data_dir / "hcsp" / "best_known_512x16.csv") as file:
            for row in csv.DictReader(file):
                words = (data_dir / "hcsp" / "512x16" / row["inst"]).read_text().split()
                time = np.array(words[3:], dtype=float).reshape(int(words[0]), int(words[1]))
                result = lst(time, rounding=shchepin_vakhania)
                assert result.lower_bound == pytest.approx(float(row["lp_lb"]), rel=2e-6)
                assert float(row["MS_best"]) <= makespan(time, result.plan) * (1 + 1e-6)


class TestCost:
    @settings(max_examples=60)
    @given(case=instances(jobs=5), seed=st.integers(0, 1000), factor=st.floats(0.5, 1.5))
    def test_cost_of_the_optimum_in_twice_the_deadline(self, case, seed, factor):
        time, ready = case
        n, m = time.shape
        start = np.zeros(m) if ready is None else ready
        cost = np.random.default_rng(seed).integers(-9, 30, (n, m)).astype(float)
        deadline = min(makespan(time, plan, start) for plan in plans(time)) * factor
        rows = np.arange(n)
        costs = [cost[rows, plan].sum() for plan in plans(time) if makespan(time, plan, start) <= deadline]
        try:
            result = cheapest_by_deadline(time, cost, deadline, ready=ready)
        except ValueError:
            assert not costs
            return
        best = min(costs, default=INF)
        spent = cost[rows, result.plan].sum()
        assert result.lower_bound <= best
        assert spent <= best
        assert spent <= (cost * result.x).sum() + 1e-6
        assert result.lower_bound == pytest.approx((cost * result.x).sum(), abs=1e-5)
        assert (machine_loads(time, result.plan, start)[result.plan] <= 2 * deadline * (1 + 1e-6)).all()

    def test_by_hand(self):
        # A is free of charge and has room for one of two equal jobs: the other pays 7 on B. The price of A's time is 7/3.
        time, cost = np.full((2, 2), 3.0), np.array([[0.0, 7.0], [0.0, 7.0]])
        result = cheapest_by_deadline(time, cost, 3.0)
        assert sorted(result.plan) == [0, 1]
        assert result.lower_bound == pytest.approx(7.0)
        assert cost_bound(time, cost, 3.0, [7 / 3, 0.0]) == pytest.approx(7.0)
        assert cost_bound(time, cost, 3.0, [0.0, 0.0]) == pytest.approx(0.0, abs=1e-300)
        assert cost_bound(time, cost, 2.0, [0.0, 0.0]) == INF

    @given(case=instances(), seed=st.integers(0, 1000))
    def test_the_bound_never_exceeds_its_exact_value(self, case, seed):
        time, ready = case
        n, m = time.shape
        rng = np.random.default_rng(seed)
        cost, weights, deadline = rng.normal(size=(n, m)), rng.random(m), float(rng.gamma(2.0, 5.0))
        room = [Fraction(deadline) - Fraction(r) for r in (np.zeros(m) if ready is None else ready)]
        exact = -sum(Fraction(w) * max(c, Fraction(0)) for w, c in zip(weights, room, strict=True))
        for row, own in zip(time.tolist(), cost, strict=True):
            options = [
                Fraction(k) + Fraction(w) * Fraction(t)
                for t, k, w, c in zip(row, own, weights, room, strict=True)
                if t < INF and t <= c
            ]
            exact += min(options) if options else Fraction(10**9)
        bound = cost_bound(time, cost, deadline, weights, ready=ready)
        if exact > 10**8:
            assert bound == INF
        else:
            assert Fraction(bound) <= exact
            assert bound == pytest.approx(float(exact), rel=1e-12, abs=1e-12)

    @pytest.mark.parametrize(
        ("time", "deadline", "message"),
        [
            ([[5.0, 6.0]], 4.0, "job 0 cannot end"),
            ([[3.0, 3.0]] * 3, 4.0, "not even in shares"),
            ([[3.0, 3.0]], INF, "deadline must be"),
        ],
    )
    def test_impossible_deadlines_are_refused(self, time, deadline, message):
        with pytest.raises(ValueError, match=message):
            cheapest_by_deadline(time, np.zeros_like(time), deadline)

    def test_bad_costs_and_weights_are_named(self):
        with pytest.raises(ValueError, match=r"cost\[0, 1\] is inf"):
            cost_bound([[1.0, 1.0]], [[1.0, INF]], 2.0, [0.0, 0.0])
        with pytest.raises(ValueError, match="weights must be 2"):
            cost_bound([[1.0, 1.0]], [[1.0, 1.0]], 2.0, [0.0, -1.0])
