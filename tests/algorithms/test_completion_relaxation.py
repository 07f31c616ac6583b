"""Skutella's convex program: formulas against their definitions, bound in fractions, ratio 3/2 against brute force."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetopt.algorithms import completion_program
from hetopt.algorithms.completion import weighted_completion
from hetopt.algorithms.completion_program import CompletionProgram
from hetopt.algorithms.completion_relaxation import (
    completion_bound,
    convex_relaxation,
    derandomise,
    expected_completion,
    round_at_random,
    skutella,
)

INF = math.inf


@st.composite
def instances(draw, jobs=5):
    n, m = draw(st.integers(1, jobs)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time = rng.integers(draw(st.integers(0, 1)), draw(st.sampled_from([1, 5, 300])), (n, m), endpoint=True).astype(
        float
    )
    if draw(st.booleans()):
        time = np.where(time > 0, rng.gamma(0.5, time + 1.0), 0.0)
    time[rng.random((n, m)) < 0.25] = INF
    time[np.isinf(time).all(axis=1), 0] = 1.0
    weight = rng.integers(0, 7, n).astype(float)
    ready = rng.integers(0, 8, m).astype(float) if draw(st.booleans()) else np.zeros(m)
    share = np.where(time < INF, rng.random((n, m)) + 1e-3, 0.0)
    return time, weight, ready, share / share.sum(axis=1, keepdims=True)


def plans(time):
    n, m = time.shape
    return (np.array(plan) for plan in itertools.product(range(m), repeat=n) if (time[range(n), plan] < INF).all())


def exact_bound(time, weight, ready, x, mixture):
    """The bound's formula in fractions, with M from its definition."""
    n, m = time.shape
    p = [[Fraction(t) if t < INF else None for t in row] for row in time.tolist()]
    w, r = [Fraction(v) for v in weight], [Fraction(v) for v in ready]
    a, shares = Fraction(mixture), [[Fraction(v) for v in row] for row in x.tolist()]
    total, square = Fraction(0), Fraction(0)
    for j in range(n):
        costs = []
        for i in range(m):
            if p[j][i] is None:
                continue
            pull = sum(min(w[j] * p[k][i], w[k] * p[j][i]) * shares[k][i] for k in range(n) if p[k][i] is not None)
            square += shares[j][i] * pull
            costs.append(a * w[j] * (p[j][i] + r[i]) + (1 - a) * (w[j] * (r[i] + p[j][i] / 2) + pull))
        total += min(costs)
    return total - (1 - a) * square / 2


class TestFormulas:
    @given(case=instances())
    def test_on_plans_h_is_the_value_and_g_no_more(self, case):
        time, weight, ready, _ = case
        program = CompletionProgram.of(time, weight, ready)
        for plan in itertools.islice(plans(time), 20):
            x = np.zeros_like(time)
            x[np.arange(len(plan)), plan] = 1.0
            value = weighted_completion(time, plan, weight, ready=ready)
            g, h = program.parts(x)
            assert h == pytest.approx(value)
            assert g <= value * (1 + 1e-12)
            assert expected_completion(time, x, weight, ready=ready) == pytest.approx(value)

    @given(case=instances())
    def test_the_expectation_is_the_mean_over_all_draws(self, case):
        time, weight, ready, share = case
        mean = 0.0
        for plan in plans(time):
            chance = share[np.arange(len(plan)), plan].prod()
            mean += chance * weighted_completion(time, plan, weight, ready=ready)
        assert expected_completion(time, share, weight, ready=ready) == pytest.approx(mean)
        g, h = CompletionProgram.of(time, weight, ready).parts(share)
        assert mean <= h + g / 2 + 1e-9
        plan = derandomise(time, share, weight, ready=ready)
        assert weighted_completion(time, plan, weight, ready=ready) <= mean * (1 + 1e-12)

    @given(case=instances(), mixture=st.sampled_from([0.0, 0.25, 0.9, 1.0]), scale=st.sampled_from([0.3, 1.0]))
    def test_the_bound_is_safe_and_its_formula(self, case, mixture, scale):
        time, weight, ready, share = case
        exact = exact_bound(time, weight, ready, share * scale, mixture)
        bound = completion_bound(time, share * scale, mixture, weight, ready=ready)
        best = min(weighted_completion(time, plan, weight, ready=ready) for plan in plans(time))
        assert bound <= best * (1 + 1e-15)
        if time[time < INF].max() % 1 == 0 and (time[time < INF] % 1 == 0).all():
            assert bound <= max(0, math.ceil(exact))
        else:
            assert Fraction(bound) <= max(Fraction(0), exact)
        assert bound >= float(exact) - 1e-9 * (1 + abs(float(exact)))

    def test_descent_kernels_agree_with_plain_python(self, monkeypatch):
        rng = np.random.default_rng(1)
        time, weight = rng.integers(1, 40, (30, 4)).astype(float), rng.integers(1, 9, 30)
        compiled = skutella(time, weight)
        for kernel in ("_prefix", "_add", "_plant", "_replace", "_descend", "_fix"):
            monkeypatch.setattr(completion_program, kernel, getattr(completion_program, kernel).py_func)
        monkeypatch.setattr(completion_program, "_PAIRS_PER_CALL", 20)
        plain = skutella(time, weight)
        assert plain.lower_bound == compiled.lower_bound
        assert plain.plan.tolist() == compiled.plan.tolist()


class TestSkutella:
    @settings(max_examples=60)
    @given(case=instances())
    def test_ratio_and_bound(self, case):
        time, weight, ready, _ = case
        best = min(weighted_completion(time, plan, weight, ready=ready) for plan in plans(time))
        point = convex_relaxation(time, weight, ready=ready)
        assert point.value - point.lower_bound <= 1e-5 * point.value
        assert (
            completion_bound(time, point.x, point.mixture, weight, ready=ready)
            == point.lower_bound
            <= best * (1 + 1e-15)
        )
        result = skutella(time, weight, ready=ready)
        value = weighted_completion(time, result.plan, weight, ready=ready)
        assert best * (1 - 1e-12) <= value <= 1.5 * (1 + 1e-5) * result.lower_bound + 1e-9

    @settings(max_examples=8)
    @given(case=instances())
    def test_a_conic_solver_finds_the_same_optimum(self, case):
        time, weight, ready, _ = case
        ours = convex_relaxation(time, weight, ready=ready)
        conic = convex_relaxation(time, weight, ready=ready, solver="CLARABEL")
        assert conic.value == pytest.approx(ours.value, rel=1e-4, abs=1e-6)
        assert conic.lower_bound <= ours.value * (1 + 1e-9) or conic.lower_bound == math.ceil(ours.value)

    @pytest.mark.parametrize("m", [2, 5, 12])
    def test_random_rounding_meets_its_ratio(self, m):
        # m unit jobs on m machines, a share of 1/m each: G = H = m is the optimum, but drawn at random the jobs meet, each
        # waiting for half of the others with probability 1/m: m + (m - 1) / 2, nearly 3/2 times as much.
        time, share = np.ones((m, m)), np.full((m, m), 1 / m)
        assert CompletionProgram.of(time, None, None).parts(share) == pytest.approx((m, m))
        assert expected_completion(time, share) == pytest.approx(m + (m - 1) / 2)
        assert completion_bound(time, share, 0.0) == m
        assert weighted_completion(time, derandomise(time, share)) == m

    def test_g_matters_where_jobs_have_machines_to_themselves(self):
        # One job, m machines: H alone would split it into shares and claim 1/2 + 1/(2 m).
        point = convex_relaxation(np.ones((1, 8)))
        assert (point.lower_bound, point.value) == (1.0, pytest.approx(1.0))
        assert completion_bound(np.ones((1, 8)), np.full((1, 8), 1 / 8), 0.0) == 1.0  # an integer all the same

    def test_a_mixture_is_found_between_the_two(self):
        # Two jobs, three machines: the optimum 72/11 = 6.5454... is proven by half of each, not by G (6) or H (3.7) alone.
        time = np.array([[4.5, 6.5, 8.5], [1.5, 8.5, 5.5]])
        point = convex_relaxation(time, gap=1e-8)
        assert point.mixture == pytest.approx(0.5, abs=1e-3)
        assert point.value == pytest.approx(72 / 11, rel=1e-7)
        assert point.lower_bound == pytest.approx(72 / 11, rel=1e-7)
        assert max(completion_bound(time, point.x, 0.0), completion_bound(time, point.x, 1.0)) < 6.1

    def test_random_draws_follow_the_shares_and_the_seed(self):
        share = np.tile([0.0, 0.25, 0.75], (4000, 1))
        plan = round_at_random(share, seed=3)
        assert plan.tolist() == round_at_random(share, seed=3).tolist()
        assert np.bincount(plan, minlength=3) / 4000 == pytest.approx([0.0, 0.25, 0.75], abs=0.03)

    def test_stopping_at_once_leaves_a_plan_and_a_bound(self):
        time = np.random.default_rng(0).integers(1, 40, (30, 4)).astype(float)
        result = skutella(time, should_stop=lambda: True)
        assert time.min(axis=1).sum() <= result.lower_bound < skutella(time).lower_bound
        assert weighted_completion(time, result.plan) >= skutella(time).lower_bound

    def test_edges(self):
        assert skutella(np.zeros((0, 2))).lower_bound == 0
        assert skutella(np.zeros((3, 2)), [0, 0, 0]).lower_bound == 0
        with pytest.raises(ValueError, match="mixture"):
            completion_bound([[1.0]], [[1.0]], 1.5)
        with pytest.raises(ValueError, match="cannot run"):
            completion_bound([[1.0, INF]], [[0.5, 0.5]], 0.5)
        with pytest.raises(ValueError, match="from 0 on"):
            completion_bound([[1.0]], [[-1.0]], 0.5)

    def test_published_values_lie_between_bound_and_plan(self, data_dir):
        files = sorted((data_dir / "weighted-completion").glob("*_60_*.json.gz"))
        ratios = []
        for file in files:
            data = json.loads(gzip.decompress(file.read_bytes()))
            time = np.array(data["processing_time_by_machine"], dtype=float).T
            result = skutella(time, data["weights"])
            value = weighted_completion(time, result.plan, data["weights"])
            if "published" in data:
                assert result.lower_bound <= data["published"]["objective"]
                ratios.append(value / data["published"]["objective"])
        assert len(ratios) >= 10
        assert 1 <= np.mean(ratios) < 1.01
