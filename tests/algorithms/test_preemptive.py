"""Preemptive schedules: pieces checked one by one, McNaughton's formula, bounds in fractions, few preemptions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetopt.algorithms import open_shop as open_shop_module
from hetopt.algorithms.deadline_lp import deadline_relaxation
from hetopt.algorithms.open_shop import open_shop
from hetopt.algorithms.preemptive import lawler_labetoulle, preemptive_bound

INF = math.inf


def check_pieces(schedule, durations, tolerance=0.0):
    """Every machine and every job does one thing at a time, for as long as asked, and all ends by the makespan."""
    got = np.zeros_like(durations)
    np.add.at(got, (schedule.job, schedule.machine), schedule.stop - schedule.start)
    assert np.abs(got - durations).max(initial=0.0) <= tolerance
    assert (schedule.start >= 0).all()
    assert schedule.stop.max(initial=0.0) <= schedule.makespan
    for owner, other in ((schedule.machine, schedule.job), (schedule.job, schedule.machine)):
        for k in np.unique(owner):
            mine = np.flatnonzero(owner == k)
            mine = mine[np.lexsort((schedule.stop[mine], schedule.start[mine]))]
            stop, start = schedule.stop[mine][:-1], schedule.start[mine][1:]
            assert (stop <= start).all()
            goes_on = (stop == start) & (other[mine][:-1] == other[mine][1:])
            assert not (goes_on & (schedule.stop[mine][1:] > start)).any()  # else the two would be one piece


@st.composite
def matrices(draw):
    n, m = draw(st.integers(1, 9)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    duration = rng.integers(0, draw(st.sampled_from([1, 4, 100])), (n, m), endpoint=True).astype(float)
    duration *= rng.random((n, m)) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    return duration


class TestOpenShop:
    @given(duration=matrices())
    def test_as_long_as_the_longest_row_or_column(self, duration):
        schedule = open_shop(duration)
        assert schedule.makespan == max(duration.sum(axis=0).max(), duration.sum(axis=1).max())
        check_pieces(schedule, duration)
        several = (duration > 0).sum(axis=1) > 1
        rows = several.sum() + (duration[~several].sum(axis=0) > 0).sum()
        entries = (duration[several] > 0).sum() + (duration[~several].sum(axis=0) > 0).sum()
        assert schedule.preemptions <= duration.shape[1] * (entries + rows + duration.shape[1])

    @given(duration=matrices(), seed=st.integers(0, 99))
    def test_decimals_end_within_a_hair_of_it(self, duration, seed):
        duration = duration * np.random.default_rng(seed).random(duration.shape)
        schedule = open_shop(duration)
        longest = max(duration.sum(axis=0).max(), duration.sum(axis=1).max())
        assert longest <= schedule.makespan <= longest * (1 + 1e-12)
        check_pieces(schedule, duration, longest * 2.0**-46)

    @given(duration=matrices())
    def test_slots_are_the_pieces_by_time(self, duration):
        m = duration.shape[1]
        schedule = open_shop(duration)
        start, length, running = schedule.slots(m)
        got = np.zeros_like(duration)
        for d, jobs in zip(length, running, strict=True):
            at_work = jobs[jobs >= 0]
            assert len(set(at_work)) == len(at_work)
            got[at_work, np.flatnonzero(jobs >= 0)] += d
        assert (got == duration).all()
        assert start.tolist() == sorted(start)
        assert (start[1:] == (start + length)[:-1]).all()

    def test_by_hand(self):
        # Rows and columns of 4 each, all tight: two matchings of 1 and 3 units, one change in the middle for both.
        schedule = open_shop([[1, 3], [3, 1]])
        assert schedule.makespan == 4
        assert schedule.preemptions == 2
        assert sorted(zip(schedule.job, schedule.stop - schedule.start, strict=True)) == [
            (0, 1),
            (0, 3),
            (1, 1),
            (1, 3),
        ]

    def test_a_long_job_is_spread_over_the_whole_length(self):
        # Job 0 needs all 6 units; a schedule that leaves it waiting for the others cannot end at 6.
        duration = np.array([[3.0, 3.0], [3.0, 0.0], [0.0, 2.0]])
        schedule = open_shop(duration)
        assert schedule.makespan == 6
        check_pieces(schedule, duration)

    def test_jobs_on_one_machine_are_not_cut_without_need(self):
        schedule = open_shop(np.diag([3.0, 2.0]).repeat(4, axis=0))
        assert (schedule.preemptions, schedule.makespan) == (0, 12.0)

    def test_many_kernel_calls_and_plain_python_agree(self, monkeypatch):
        duration = np.random.default_rng(2).integers(0, 9, (12, 6)).astype(float)
        once = open_shop(duration)
        for kernel in ("_run", "_cover_row", "_cover_column"):
            monkeypatch.setattr(open_shop_module, kernel, getattr(open_shop_module, kernel).py_func)
        monkeypatch.setattr(open_shop_module, "_STEPS_PER_CALL", 1)
        again = open_shop(duration)
        assert once.makespan == again.makespan
        check_pieces(again, duration)

    def test_nothing_to_do(self):
        for duration in (np.zeros((0, 2)), np.zeros((3, 2))):
            schedule = open_shop(duration)
            assert (len(schedule.job), schedule.makespan, schedule.preemptions) == (0, 0.0, 0)

    @pytest.mark.parametrize("duration", [[[-1.0]], [[INF]], [[math.nan]], [1.0]])
    def test_bad_durations_are_refused(self, duration):
        with pytest.raises(ValueError, match="durations must be"):
            open_shop(duration)


@st.composite
def instances(draw):
    n, m = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time = rng.integers(draw(st.integers(0, 1)), draw(st.sampled_from([1, 4, 100])), (n, m), endpoint=True).astype(
        float
    )
    if draw(st.booleans()):
        time *= rng.random((n, m)) + 0.1
    if draw(st.booleans()):
        time[0] *= n
    time[rng.random((n, m)) < 0.2] = INF
    time[np.isinf(time).all(axis=1), 0] = 1.0
    return time


class TestPreemptive:
    @settings(max_examples=80)
    @given(time=instances())
    def test_schedule_bound_and_preemptions(self, time):
        n, m = time.shape
        result = lawler_labetoulle(time)
        schedule = result.schedule
        parts = np.where(result.x > 0, time, 0.0) * result.x
        assert result.x.sum(axis=1) == pytest.approx(np.ones(n), abs=1e-12)
        check_pieces(schedule, parts, schedule.makespan * 2.0**-46)
        assert set(schedule.job) == set(range(n))
        assert result.lower_bound == pytest.approx(schedule.makespan, rel=1e-8)
        assert result.lower_bound <= schedule.makespan
        split = (result.x > 0).sum(axis=1)
        assert (split > 1).sum() <= 2 * m
        assert split[split > 1].sum() <= 4 * m
        assert schedule.preemptions <= 4 * m * m - 5 * m + 2  # Lawler and Labetoulle's figure
        # It bounds the deadline relaxation from below, and with it every plan without preemption.
        assert result.lower_bound <= deadline_relaxation(time).deadline * (1 + 1e-9)

    @given(time=instances(), seed=st.integers(0, 99))
    def test_any_weights_prove_no_more_than_their_exact_value(self, time, seed):
        n, m = time.shape
        rng = np.random.default_rng(seed)
        u, v = rng.random(m), rng.random(n) * (rng.random(n) < 0.5)
        exact = sum(
            min((Fraction(u[i]) + Fraction(v[j])) * Fraction(time[j, i]) for i in range(m) if time[j, i] < INF)
            for j in range(n)
        ) / (sum(map(Fraction, u)) + sum(map(Fraction, v)))
        bound = preemptive_bound(time, u, v)
        assert Fraction(bound) <= exact
        assert bound == pytest.approx(float(exact), rel=1e-12)
        assert bound <= lawler_labetoulle(time).schedule.makespan * (1 + 1e-12)

    @pytest.mark.parametrize(
        ("lengths", "m"), [([3, 3, 3], 2), ([9, 1, 1, 1], 3), ([5, 4, 3, 3], 4), ([7, 7, 6, 5, 4], 3)]
    )
    def test_equal_machines_give_mcnaughtons_value(self, lengths, m):
        # McNaughton (1959): the larger of the longest job and the average load.
        result = lawler_labetoulle(np.repeat(np.array(lengths, dtype=float)[:, None], m, axis=1))
        expected = max(max(lengths), sum(lengths) / m)
        assert result.schedule.makespan == pytest.approx(expected, rel=1e-9)
        assert result.lower_bound == pytest.approx(expected, rel=1e-9)

    def test_two_machines_by_hand(self):
        # One job, 2 units on A and 3 on B: it cannot run on both at once, so 2. Two such jobs: each machine busy until C,
        # C / 2 + C / 3 = 2 jobs: C = 12 / 5, by swapping once.
        assert lawler_labetoulle([[2.0, 3.0]]).schedule.makespan == 2
        result = lawler_labetoulle([[2.0, 3.0]] * 2)
        assert result.schedule.makespan == pytest.approx(12 / 5)
        assert result.schedule.preemptions <= 2
        assert preemptive_bound([[2.0, 3.0]] * 2, [3.0, 2.0], [0.0, 0.0]) == pytest.approx(12 / 5)

    def test_a_job_that_takes_no_time_is_a_piece_without_length(self):
        result = lawler_labetoulle([[4.0, 0.0], [2.0, 9.0]])
        assert list(zip(result.schedule.job, result.schedule.machine, result.schedule.stop, strict=True)) == [
            (1, 0, 2.0),
            (0, 1, 0.0),
        ]
        assert result.lower_bound == pytest.approx(2.0)

    def test_a_larger_one(self):
        time = np.random.default_rng(5).integers(1, 100, (150, 12)).astype(float)
        result = lawler_labetoulle(time)
        assert result.lower_bound == pytest.approx(result.schedule.makespan, rel=1e-9)
        assert result.schedule.preemptions <= 3 * 12

    def test_edges(self):
        result = lawler_labetoulle(np.zeros((0, 2)))
        assert (result.schedule.makespan, result.lower_bound) == (0.0, 0.0)
        with pytest.raises(ValueError, match="job 1 cannot run"):
            lawler_labetoulle([[1.0], [INF]])
        with pytest.raises(ValueError, match="shapes"):
            preemptive_bound([[1.0]], [1.0, 1.0], [0.0])
        with pytest.raises(ValueError, match="finite numbers"):
            preemptive_bound([[1.0]], [-1.0], [0.0])
