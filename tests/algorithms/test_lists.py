"""List heuristics: hand-worked tables, the rule written down plainly as a twin, guarantees against brute force."""

from __future__ import annotations

import csv
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.algorithms import lists
from hetopt.algorithms.lists import RULES, max_min, max_regret, mct, met, min_min, olb, sufferage
from hetopt.algorithms.times import check_times, is_integral, machine_loads, makespan

BY_COMPLETION = ("mct", "min-min", "max-min", "sufferage", "max-regret")
INF = math.inf


def twin(rule, time, ready=None, memory=None, capacity=None):
    """The rule as its sentence says it: at each step look at every job and machine left."""
    n, m = time.shape
    load = np.zeros(m) if ready is None else np.array(ready, dtype=float)
    need = np.zeros(n) if memory is None else np.asarray(memory, dtype=float)
    free = np.full(m, INF) if capacity is None else np.array(capacity, dtype=float)
    plan = np.full(n, -1)

    def options(j):
        return [(load[i] + time[j, i], time[j, i], i) for i in range(m) if time[j, i] < INF and need[j] <= free[i]]

    def regret(j):
        times = sorted(time[j, i] for i in range(m) if time[j, i] < INF and need[j] <= free[i])
        return times[1] - times[0] if len(times) > 1 else INF

    waiting = list(range(n))
    if rule == "max-regret":
        waiting.sort(key=lambda j: -regret(j))
    while waiting:
        choices = {j: sorted(options(j)) for j in waiting}
        placeable = [j for j in waiting if choices[j]]
        if not placeable:
            break
        if rule == "min-min":
            j = min(placeable, key=lambda j: (choices[j][0][:2], j))
        elif rule == "max-min":
            j = min(placeable, key=lambda j: (-choices[j][0][0], j))
        elif rule == "sufferage":
            j = min(placeable, key=lambda j: (choices[j][0][0] - (choices[j][1][0] if choices[j][1:] else INF), j))
        else:
            j = placeable[0]
        if rule == "met":
            i = min(choices[j], key=lambda o: o[1:])[2]
        elif rule == "olb":
            i = min(choices[j], key=lambda o: (load[o[2]], o[1], o[2]))[2]
        else:
            i = choices[j][0][2]
        plan[j] = i
        load[i] += time[j, i]
        free[i] -= need[j]
        waiting.remove(j)
    return plan


@st.composite
def instances(draw, jobs=9, limited=True):
    n, m = draw(st.integers(1, jobs)), draw(st.integers(1, 4))
    entry = st.one_of(st.integers(0, 6), st.integers(1, 1000), st.just(INF)) if limited else st.integers(1, 20)
    time = np.array(draw(st.lists(st.lists(entry, min_size=m, max_size=m), min_size=n, max_size=n)), dtype=float)
    if not limited:
        return time, {}
    options = {}
    if draw(st.booleans()):
        options["ready"] = draw(st.lists(st.integers(0, 9), min_size=m, max_size=m))
    if draw(st.booleans()):
        options["memory"] = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
        options["capacity"] = draw(st.lists(st.integers(0, 9), min_size=m, max_size=m))
    return time, options


def optimum(time):
    n, m = time.shape
    return min(makespan(time, np.array(plan)) for plan in itertools.product(range(m), repeat=n))


class TestByHand:
    # Loads while the rules run are worked out in the comments; machines A = 0, B = 1.
    TIME = np.array([[4.0, 6.0], [3.0, 9.0], [5.0, 4.0]])

    def test_mct(self):
        # job 0: A 4 < B 6; job 1: A 7 < B 9; job 2: A 12 > B 4.
        assert mct(self.TIME).tolist() == [0, 0, 1]

    def test_met_ignores_loads(self):
        assert met(np.array([[1.0, 2.0]] * 5)).tolist() == [0] * 5

    def test_olb_ignores_times(self):
        # A and B are both free: the shorter time breaks the tie; then B is free first, however slow it is.
        assert olb(np.array([[1.0, 90.0], [1.0, 90.0]])).tolist() == [0, 1]

    def test_min_min(self):
        # earliest completions 4, 3, 4: job 1 to A (3). Then job 0: min(7, 6) = B 6, job 2: min(8, 4) = B 4: job 2 to B (4).
        # job 0: A 7, B 10.
        assert min_min(self.TIME).tolist() == [0, 0, 1]

    def test_max_min(self):
        # earliest completions 4, 3, 4: job 0 (lower number) to A (4). Job 1: min(7, 9) = 7, job 2: 4: job 1 to A (7).
        assert max_min(self.TIME).tolist() == [0, 0, 1]

    def test_sufferage(self):
        # sufferages 2, 6, 1: job 1 to A (3). Then job 0: A 7, B 6 -> 1; job 2: A 8, B 4 -> 4: job 2 to B (4). Job 0: A 7.
        assert sufferage(self.TIME).tolist() == [0, 0, 1]

    def test_max_regret(self):
        # regrets 2, 6, 1: job 1 to A (3), job 0: A 7, B 6 -> B (6), job 2: A 8, B 10 -> A.
        assert max_regret(self.TIME).tolist() == [1, 0, 0]

    def test_ready_times_count(self):
        assert mct(np.array([[4.0, 6.0]]), ready=[3.0, 0.0]).tolist() == [1]

    def test_order(self):
        time = np.array([[1.0, 9.0], [2.0, 2.5]])
        assert mct(time).tolist() == [0, 1]
        assert mct(time, order=[1, 0]).tolist() == [0, 0]
        assert mct(time, order=[1]).tolist() == [-1, 0]

    @pytest.mark.parametrize("rule", RULES)
    def test_a_job_that_fits_nowhere_gets_no_machine(self, rule):
        time = np.array([[1.0, 1.0], [2.0, INF], [3.0, 3.0]])
        plan = RULES[rule](time, memory=[3, 1, 9], capacity=[2, 4])
        assert plan.tolist() == [1, 0, -1]
        with pytest.raises(ValueError, match="job 2 has no machine"):
            machine_loads(time, plan)

    @pytest.mark.parametrize("rule", RULES)
    def test_no_jobs(self, rule):
        plan = RULES[rule](np.zeros((0, 3)))
        assert plan.shape == (0,)
        assert makespan(np.zeros((0, 3)), plan) == 0.0


@pytest.mark.parametrize("rule", RULES)
@given(case=instances())
def test_every_rule_is_its_twin(rule, case):
    time, options = case
    plan = RULES[rule](time, **options)
    assert plan.tolist() == twin(rule, time, **options).tolist()
    if "memory" in options:
        held = np.zeros(time.shape[1])
        for j in np.flatnonzero(plan >= 0):
            held[plan[j]] += options["memory"][j]
        assert (held <= np.array(options["capacity"])).all()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_its_twin_on_decimals_and_many_chunks(rule, monkeypatch):
    monkeypatch.setattr(lists, "_PAIRS_PER_CALL", 50)  # several kernel calls, and rows split between them
    rng = np.random.default_rng(7)
    time = rng.gamma(2.0, size=(60, 5))
    time[rng.random(time.shape) < 0.2] = INF
    memory, capacity = rng.integers(1, 9, 60), np.full(5, 60)
    assert RULES[rule](time).tolist() == twin(rule, time).tolist()
    limited = {"memory": memory, "capacity": capacity, "ready": np.arange(5.0)}
    assert RULES[rule](time, **limited).tolist() == twin(rule, time, **limited).tolist()


@given(case=instances(jobs=6, limited=False))
def test_completion_rules_stay_within_the_sum_of_shortest_times(case):
    time, _ = case
    best = optimum(time)
    for rule in (*BY_COMPLETION, "met"):
        value = makespan(time, RULES[rule](time))
        assert best <= value <= time.min(axis=1).sum() <= time.shape[1] * best


@pytest.mark.parametrize("m", [2, 3, 6])
def test_mct_meets_its_ratio_of_m(m):
    # Job k takes 1 on machine k and just under k + 1 on the next one, where it completes a little earlier than behind job
    # k - 1: the loads climb to m on the last machine, while every job alone on its own machine takes 1.
    tiny = 2.0**-20
    time = np.full((m, m), INF)
    for k in range(m):
        time[k, k] = 1.0
        if k + 1 < m:
            time[k, k + 1] = k + 1 - (k + 1) * tiny
    plan = mct(time)
    assert makespan(time, np.arange(m)) == 1.0
    assert m * (1 - tiny) <= makespan(time, plan) <= m


def test_stopping_early_still_places_every_job():
    time = np.random.default_rng(1).integers(1, 50, (400, 4)).astype(float)
    for rule in (min_min, max_min, sufferage):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lists, "_PAIRS_PER_CALL", 4000)
            plan = rule(time, should_stop=lambda: True)
        assert plan.min() >= 0
        assert makespan(time, plan) <= time.min(axis=1).sum()
        assert plan.tolist() != rule(time).tolist()


def test_the_compiled_kernels_are_the_plain_ones():
    time = np.random.default_rng(3).integers(1, 30, (25, 4)).astype(float)
    kernels = ("_place_in_sequence", "_min_min", "_place_by_completion", "_choices")
    compiled = {rule: RULES[rule](time).tolist() for rule in RULES}
    with pytest.MonkeyPatch.context() as patch:
        for kernel in kernels:
            patch.setattr(lists, kernel, getattr(lists, kernel).py_func)
        assert {rule: RULES[rule](time).tolist() for rule in RULES} == compiled


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time": [[1.0, -1.0]]}, r"time\[0, 1\] is -1.0"),
        ({"time": [[1.0, math.nan]]}, r"time\[0, 1\] is nan"),
        ({"time": [1.0]}, "matrix"),
        ({"time": [[1.0]], "ready": [1, 2]}, "ready"),
        ({"time": [[1.0]], "ready": [INF]}, "finite"),
        ({"time": [[1.0]], "memory": [1]}, "both or neither"),
        ({"time": [[1.0]], "memory": [1, 2], "capacity": [3]}, "shapes"),
        ({"time": [[1.0]], "memory": [-1], "capacity": [3]}, "from 0 on"),
        ({"time": [[1.0], [1.0]], "order": [2]}, "from 0 to 1"),
        ({"time": [[1.0], [1.0]], "order": [1, 1]}, "job 1 twice"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        mct(**arguments)


def test_runnable_and_integral():
    with pytest.raises(ValueError, match="job 1 cannot run"):
        check_times([[1.0], [INF]], runnable=True)
    assert is_integral(np.array([[1.0, INF]]), np.array([2.0]))
    assert not is_integral(np.array([0.5]))
    assert not is_integral(np.array([2.0**53]))


def test_an_unused_machine_does_not_count():
    assert makespan(np.array([[2.0, 5.0]]), np.array([0]), np.array([1.0, 99.0])) == 3.0


def test_braun_matrices_give_the_published_min_min_and_sufferage(data_dir):
    with open(data_dir / "hcsp" / "best_known_512x16.csv") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        words = (data_dir / "hcsp" / "512x16" / row["inst"]).read_text().split()
        time = np.array(words[3:], dtype=float).reshape(int(words[0]), int(words[1]))
        for column, rule in (("minmin", min_min), ("maxmin", max_min), ("sufferage", sufferage), ("mct", mct)):
            assert makespan(time, rule(time)) == pytest.approx(float(row[column]), abs=0.06)
