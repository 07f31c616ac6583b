"""Rounding shares into plans: guarantees against the shares themselves, brute force over roundings, tight families."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hetopt.algorithms import forest as forest_module
from hetopt.algorithms.forest import split_forest
from hetopt.algorithms.rounding import lenstra_shmoys_tardos, shchepin_vakhania, shmoys_tardos
from hetopt.algorithms.times import machine_loads, makespan

INF = math.inf


@st.composite
def fractional(draw, zero=True):
    """Times, some ineligible, and shares that are no vertex of anything."""
    n, m = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    largest = draw(st.sampled_from([1, 3, 40]))
    time = rng.integers(0 if zero and draw(st.booleans()) else 1, largest + 1, (n, m)).astype(float)
    if draw(st.booleans()):
        time = np.where(time > 0, rng.gamma(1.0, time + 1.0), 0.0)
    time[rng.random((n, m)) < 0.2] = INF
    time[np.isinf(time).all(axis=1), 0] = 1.0
    share = rng.random((n, m)) * (rng.random((n, m)) < draw(st.sampled_from([0.4, 0.8, 1.0])))
    share[time == INF] = 0.0
    empty = share.sum(axis=1) == 0
    share[empty] = time[empty] < INF
    return time, share / share.sum(axis=1, keepdims=True)


def by_share(time, share):
    return (np.where(share > 0, time, 0.0) * share).sum(axis=0)


def makespan_vertex(time):
    """Vertex of: min T, each job whole, loads at most T."""
    n, m = time.shape
    machine = np.tile(np.arange(m), n)
    jobs = coo_array((np.ones(n * m), (np.repeat(np.arange(n), m), np.arange(n * m))), shape=(n, n * m + 1))
    loads = np.zeros((m, n * m + 1))
    loads[machine, np.arange(n * m)] = time.ravel()
    loads[:, -1] = -1.0
    answer = linprog(np.r_[np.zeros(n * m), 1.0], loads, np.zeros(m), jobs.toarray(), np.ones(n), (0, None), "highs-ds")
    return answer.x[:-1].reshape(n, m), answer.fun


class TestForest:
    @given(case=fractional(), ready=st.booleans())
    def test_no_cycle_no_load_raised_no_job_lost(self, case, ready):
        time, share = case
        m = time.shape[1]
        start = np.arange(m, dtype=float) if ready else np.zeros(m)
        result = split_forest(time, share, start)
        assert (result.share >= 0).all()
        assert result.share.sum(axis=1) == pytest.approx(np.ones(len(result.split)), abs=1e-12)
        assert (share[result.split][result.share > 0] > 0).all()
        whole = np.flatnonzero(result.plan >= 0)
        assert sorted([*whole, *result.split]) == list(range(len(time)))
        assert (share[whole, result.plan[whole]] > 0).all()
        assert (result.load <= start + by_share(time, share) * (1 + 1e-12) + 1e-12).all()
        assert result.load == pytest.approx(result.whole_load + by_share(time[result.split], result.share))
        k = len(result.split)
        job, machine = np.nonzero(result.share)
        assert (np.bincount(job, minlength=k) >= 2).all()
        graph = coo_array((np.ones(len(job)), (job, k + machine)), shape=(k + m, k + m))
        assert len(job) == k + m - connected_components(graph, directed=False)[0]
        assert k <= m - 1

    @given(case=fractional())
    def test_joints_are_rooted_trees_from_the_leaves_inwards(self, case):
        result = split_forest(*case)
        below: set[int] = set()
        for row, parent, children in result.joints():
            assert sorted([parent, *children]) == np.flatnonzero(result.share[row]).tolist()
            assert not below & {parent, *children}  # a machine is left for good once its job above has been met
            below.update(children)
        assert sorted(joint.row for joint in result.joints()) == list(range(len(result.split)))

    def test_a_cycle_by_hand(self):
        # Two jobs, half each on two machines. Shift d of job 0 from B to A and y of job 1 from A to B so that A keeps its
        # load of 5: 2 d = 8 y. B changes by -3 d + 6 y = -1.5 d, the right direction. Job 0 is whole on A at d = 1/2;
        # job 1 then has 1/2 - 1/8 of A, and B's load is 4.5 - 0.75.
        result = split_forest([[2.0, 3.0], [8.0, 6.0]], np.full((2, 2), 0.5))
        assert result.plan.tolist() == [0, -1]
        assert result.share.tolist() == [[0.375, 0.625]]
        assert result.whole_load.tolist() == [2.0, 0.0]
        assert result.load.tolist() == [5.0, 3.75]

    def test_a_job_goes_where_it_takes_no_time(self):
        result = split_forest([[0.0, 5.0], [2.0, 2.0]], np.full((2, 2), 0.5))
        assert result.plan.tolist() == [0, -1]
        assert result.load.tolist() == [1.0, 1.0]

    def test_many_kernel_calls_and_plain_python_agree(self, monkeypatch):
        rng = np.random.default_rng(5)
        time = rng.integers(1, 50, (60, 8)).astype(float)
        share = rng.dirichlet(np.ones(8), 60)
        once = split_forest(time, share)
        for kernel in ("_cancel", "_path", "_shift", "_prune"):
            monkeypatch.setattr(forest_module, kernel, getattr(forest_module, kernel).py_func)
        monkeypatch.setattr(forest_module, "_EDGES_PER_CALL", 7)
        again = split_forest(time, share)
        assert once.plan.tolist() == again.plan.tolist()
        assert once.share == pytest.approx(again.share, abs=1e-12)
        assert (once.load <= by_share(time, share) * (1 + 1e-12)).all()

    def test_a_long_cycle_with_wild_ratios(self):
        # Around the cycle each machine passes on a millionth: shares are tiny next to each other, loads must still hold.
        m = 12
        time, share = np.full((m, m), INF), np.zeros((m, m))
        for j in range(m):
            time[j, j], time[j, (j + 1) % m] = 1.0, 1e6
            share[j, j], share[j, (j + 1) % m] = 0.3, 0.7
        result = split_forest(time, share)
        assert (result.load <= by_share(time, share) * (1 + 1e-12)).all()
        assert len(result.split) < m

    @pytest.mark.parametrize(
        ("share", "message"),
        [
            ([[0.5, 0.4]], "sum to 0.9"),
            ([[1.5, -0.5]], "from 0 on"),
            ([[0.5, math.nan]], "from 0 on"),
            ([[1.0]], "shape"),
            ([[0.0, 1.0]], "machine 1, which cannot run it"),
        ],
    )
    def test_bad_shares_are_named(self, share, message):
        with pytest.raises(ValueError, match=message):
            split_forest([[1.0, INF]], share)


class TestMakespanRounding:
    @given(case=fractional(), ready=st.booleans())
    def test_lenstra_shmoys_tardos(self, case, ready):
        time, share = case
        m = time.shape[1]
        start = np.arange(m, dtype=float)[::-1] if ready else np.zeros(m)
        plan = lenstra_shmoys_tardos(time, share, ready=start)
        assert (share[np.arange(len(plan)), plan] > 0).all()
        split = split_forest(time, share).split
        assert len(set(plan[split])) == len(split)  # a matching
        extra = np.zeros(m)
        extra[plan[split]] = time[split, plan[split]]
        assert (machine_loads(time, plan, start) <= start + by_share(time, share) + extra + 1e-9).all()

    @given(case=fractional(), ready=st.booleans())
    def test_shchepin_vakhania_is_the_best_rounding_of_the_forest(self, case, ready):
        time, share = case
        m = time.shape[1]
        start = np.arange(m, dtype=float)[::-1] if ready else np.zeros(m)
        plan = shchepin_vakhania(time, share, ready=start)
        value = makespan(time, plan, start)
        result = split_forest(time, share, start)
        best = INF
        for choice in itertools.product(*(np.flatnonzero(row).tolist() for row in result.share)):
            trial = result.plan.copy()
            trial[result.split] = choice
            best = min(best, makespan(time, trial, start))
        assert value == pytest.approx(best, rel=1e-12)
        assert value <= makespan(time, lenstra_shmoys_tardos(time, share, ready=start), start) * (1 + 1e-12)
        used = share.max(axis=0) > 0
        longest = time[share > 0].max()
        assert value <= (start + by_share(time, share))[used].max() + (1 - 1 / m) * longest + 1e-9

    @given(case=fractional(zero=False))
    def test_two_minus_one_over_m_from_a_vertex(self, case):
        time = np.where(case[0] == INF, 60.0, case[0])
        n, m = time.shape
        share, value = makespan_vertex(time)
        target = max(value, time[share > 1e-12].max())
        best = min(makespan(time, np.array(plan)) for plan in itertools.product(range(m), repeat=n)) if n < 7 else INF
        sharp = makespan(time, shchepin_vakhania(time, share, target))
        assert sharp <= (2 - 1 / m) * target + 1e-9
        assert value - 1e-9 <= best
        assert sharp >= best or best == INF
        assert makespan(time, lenstra_shmoys_tardos(time, share, target)) <= 2 * target + 1e-9

    @pytest.mark.parametrize("m", [2, 3, 5, 8])
    def test_the_ratio_two_minus_one_over_m_is_attained(self, m):
        # One job of time m in equal shares everywhere, and m - 1 unit jobs whole on each machine: every load is m by
        # share, and whoever gets the long job ends at 2 m - 1.
        time = np.ones((1 + m * (m - 1), m))
        time[0] = m
        share = np.zeros_like(time)
        share[0] = 1 / m
        share[np.arange(1, len(time)), np.arange(m * (m - 1)) % m] = 1.0
        for function in (shchepin_vakhania, lenstra_shmoys_tardos):
            assert makespan(time, function(time, share, m)) == 2 * m - 1 == pytest.approx((2 - 1 / m) * m)

    def test_the_best_rounding_need_not_be_a_matching(self):
        # Both jobs have nearly all of A and slivers of B and C, which are slow. A matching sends one away: 150.
        time = np.array([[50.0, 150.0, INF], [50.0, INF, 150.0]])
        share = np.array([[0.99, 0.01, 0.0], [0.99, 0.0, 0.01]])
        assert shchepin_vakhania(time, share).tolist() == [0, 0]
        assert makespan(time, lenstra_shmoys_tardos(time, share)) == 150.0

    def test_an_unused_machine_that_is_ready_late_does_not_count(self):
        time = np.array([[2.0, 2.0, 9.0]])
        share = np.array([[0.5, 0.5, 0.0]])
        ready = [0.0, 1.0, 1000.0]
        assert shchepin_vakhania(time, share, ready=ready).tolist() == [0]
        assert lenstra_shmoys_tardos(time, share, 3.0, ready=ready).tolist() == [0]

    @pytest.mark.parametrize(
        "function",
        [
            lenstra_shmoys_tardos,
            shchepin_vakhania,
            lambda time, share, target, **options: shmoys_tardos(time, time, share, target, **options),
        ],
    )
    def test_shares_that_miss_the_target_are_refused(self, function):
        time = np.array([[4.0, 4.0], [1.0, 1.0]])
        with pytest.raises(ValueError, match="load a machine"):
            function(time, [[1.0, 0.0], [1.0, 0.0]], 4.0)
        with pytest.raises(ValueError, match="job 0 has a share of machine 0"):
            function(time, [[0.5, 0.5], [1.0, 0.0]], 3.0)
        with pytest.raises(ValueError, match="job 0 has a share of machine 1"):
            function(time, [[0.25, 0.75], [1.0, 0.0]], 4.0, ready=[0.0, 0.5])

    def test_no_jobs(self):
        assert shchepin_vakhania(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0,)
        assert lenstra_shmoys_tardos(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0,)


class TestShmoysTardos:
    @given(case=fractional(), seed=st.integers(0, 1000))
    def test_cost_and_loads(self, case, seed):
        time, share = case
        n, m = time.shape
        cost = np.random.default_rng(seed).integers(-20, 50, (n, m)).astype(float)
        cost[share == 0] = math.nan
        plan = shmoys_tardos(time, cost, share)
        assert (share[np.arange(n), plan] > 0).all()
        assert cost[np.arange(n), plan].sum() <= (cost * share)[share > 0].sum() + 1e-9
        split = share.max(axis=1) < 1
        longest = np.where(share > 0, time, 0.0)[split].max(axis=0, initial=0.0)
        assert (machine_loads(time, plan) <= by_share(time, share) + longest + 1e-9).all()

    def test_the_cheap_machine_takes_the_slot(self):
        # Halves of two jobs: one slot per machine, and the cheaper of the two matchings costs 2 (the shares cost 6).
        plan = shmoys_tardos([[3.0, 3.0], [2.0, 2.0]], [[1.0, 5.0], [5.0, 1.0]], np.full((2, 2), 0.5))
        assert plan.tolist() == [0, 1]

    def test_a_slot_holds_one_job_only(self):
        # Machine B is free of charge, but has half of each job, one slot: one of the two must pay.
        plan = shmoys_tardos([[4.0, 4.0], [4.0, 4.0]], [[3.0, 0.0], [2.0, 0.0]], np.full((2, 2), 0.5))
        assert plan.tolist() == [1, 0]

    def test_load_grows_by_nearly_a_job_and_no_more(self):
        # m units of load by share, a whole long job on top: 2 m - 1 as in the family above, whatever the costs.
        m = 4
        time = np.ones((1 + m * (m - 1), m))
        time[0] = m
        share = np.zeros_like(time)
        share[0] = 1 / m
        share[np.arange(1, len(time)), np.arange(m * (m - 1)) % m] = 1.0
        cost = np.zeros_like(time)
        cost[0, 2] = -5.0
        plan = shmoys_tardos(time, cost, share, float(m))
        assert plan[0] == 2
        assert makespan(time, plan) == 2 * m - 1

    def test_bad_costs_are_named(self):
        with pytest.raises(ValueError, match=r"cost\[0, 1\] is nan"):
            shmoys_tardos([[1.0, 1.0]], [[1.0, math.nan]], [[0.5, 0.5]])
        with pytest.raises(ValueError, match="costs have shape"):
            shmoys_tardos([[1.0, 1.0]], [[1.0]], [[0.5, 0.5]])
