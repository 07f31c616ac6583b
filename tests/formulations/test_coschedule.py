"""Co-scheduling: every rule by hand, all methods against brute force, odd sets, the verifier against broken plans."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import hetopt
from formulations.sharing._coschedule_methods import price_bound
from formulations.sharing._queue import queue_of
from hetopt import InputError, Instance, Solution
from hetopt.records import Device, Job
from hetopt.registry import problem
from hetopt.verify.corun import check_sets

QUEUE = problem("sharing.coschedule")
MANY = 200 if os.environ.get("HETOPT_LONG_TESTS") else 20


def queue(alone: dict[str, float], corun: list[Any], *, nodes: int = 9, **question: Any) -> Instance:
    """Jobs of kinds of their own, 100 W alone."""
    kind = question.pop("kind", {})
    devices = [Device(name="node", power=100, slots=nodes)]
    jobs = [Job(name=name, time=[seconds]) for name, seconds in alone.items()]
    tables = {"corun": corun, "kind": kind}
    return Instance.build(devices, jobs, tables=tables, question={"objective": "coschedule", **question})


def solved(instance: Instance, **more: Any) -> hetopt.Result:
    result = hetopt.solve(instance, **more)
    hetopt.verify(instance, result)
    return result


class TestByHand:
    def test_the_best_configuration_of_a_pair(self) -> None:
        """Apart 30 seconds, together 25 with the even split and 22 with the other one."""
        corun = [[["a", "b"], "even", 100, 25], [["a", "b"], "2:1", 100, 22]]
        result = solved(queue({"a": 10, "b": 20}, corun))
        assert (result.status, result.objective) == ("optimal", 22)
        assert result.solution is not None
        assert result.solution.details["sets"] == [[["a", "b"], "2:1", 100.0]]

    def test_a_pair_that_gains_nothing_stays_apart(self) -> None:
        assert solved(queue({"a": 10, "b": 20}, [[["a", "b"], "even", 100, 31]])).objective == 30

    def test_a_cap_rules_out_what_takes_more(self) -> None:
        corun = [
            [["a", "b"], "even", 90, 25],
            [["a", "b"], "even", 60, 29],
            [["a"], "half", 60, 17],
            [["b"], "half", 60, 30],
        ]
        instance = queue({"a": 10, "b": 20}, corun)
        assert solved(instance).objective == 25
        assert solved(instance, options={"cap": 60.0}).objective == 29
        result = hetopt.solve(instance, options={"cap": 50.0})
        assert (result.status, result.exit_code) == ("infeasible", 3)
        assert "10 W too many" in result.infeasible[0]

    def test_the_greedy_pair_is_not_always_the_best(self) -> None:
        """The middle pair saves 11, the outer two 10 each."""
        corun = [[[a, b], "even", 100, 20 - s] for a, b, s in (("a", "b", 10), ("b", "c", 11), ("c", "d", 10))]
        instance = queue(dict.fromkeys("abcd", 10), corun)
        assert solved(instance, method="greedy").objective == 29
        for method in ("milp", "matching"):
            assert solved(instance, method=method).objective == 20

    def test_three_at_once(self) -> None:
        corun = [[["a", "b", "c"], "thirds", 100, 12], [["a", "b"], "even", 100, 14]]
        instance = queue(dict.fromkeys("abc", 10), corun)
        assert solved(instance).objective == 24
        assert solved(instance, options={"group": 3}).objective == 12

    def test_power_of_all_sets_together(self) -> None:
        """Two pairs at 100 W are the fastest; of 170 W one must slow down, the one that loses less."""
        corun = [
            [["a", "b"], "even", 100, 10], [["a", "b"], "even", 70, 14],
            [["c", "d"], "even", 100, 10], [["c", "d"], "even", 70, 13],
        ]  # fmt: skip
        instance = queue(dict.fromkeys("abcd", 9), corun)
        assert solved(instance).objective == 20
        assert solved(instance, options={"site": 170.0}).objective == 23
        assert solved(instance, options={"site": 140.0}).objective == 27
        result = hetopt.solve(instance, options={"site": 130.0})
        assert result.exit_code == 3
        assert "10 W too few" in result.infeasible[0]

    def test_too_few_nodes(self) -> None:
        corun = [[["a", "b"], "even", 100, 30]]
        instance = queue(dict.fromkeys("abc", 10), corun, nodes=2, site=1000.0)
        assert solved(instance).objective == 40
        short = queue(dict.fromkeys("abcd", 10), corun, nodes=2, site=1000.0)
        result = hetopt.solve(short)
        assert result.exit_code == 3
        assert "3 nodes at least, there are 2" in result.infeasible[0]

    def test_a_job_that_cannot_be_alone_needs_a_mate(self) -> None:
        """Under a cap of 80 W nobody may be alone: a takes b, and c is stranded."""
        instance = queue(
            dict.fromkeys("abc", 10), [[["a", "b"], "even", 80, 15], [["b", "c"], "even", 80, 15]], cap=80.0
        )
        for method in ("auto", "milp", "matching"):
            result = hetopt.solve(instance, method=method)
            assert result.exit_code == 3
            assert "sets of 100 W are enough for all jobs, fewer are not" in result.infeasible[0], method


class TestOddSets:
    def test_a_triangle(self) -> None:
        """Three jobs, each pair saves 5.5 of 21: the relaxation thinks 23.25, no plan is below 26, the odd set proves it."""
        corun = [[[a, b], "even", 100, 15.5] for a, b in ("ab", "bc", "ac")]
        instance = queue(dict.fromkeys("abc", 10.5), corun)
        assert hetopt.solve(instance, method="lp").bound == pytest.approx(23.25)
        result = solved(instance, method="odd-sets")
        assert result.bound == pytest.approx(26)
        assert result.bound_proof == "replayed"

    def test_whole_seconds_round_a_bound_up(self) -> None:
        """10 and 15 seconds add up to multiples of 5: the relaxation's 22.5 is 25."""
        corun = [[[a, b], "even", 100, 15] for a, b in ("ab", "bc", "ac")]
        assert hetopt.solve(queue(dict.fromkeys("abc", 10), corun), method="lp").bound == 25

    def test_three_of_a_kind(self) -> None:
        kind = dict.fromkeys("abc", "k")
        instance = queue(dict.fromkeys("abc", 10), [[["k", "k"], "even", 100, 15]], kind=kind)
        assert solved(instance, method="odd-sets").bound == pytest.approx(25)

    @pytest.mark.parametrize("seed", range(10))
    def test_pairs_of_single_jobs_leave_no_gap(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        names = [f"j{k}" for k in range(11 + 10 * seed)]
        corun = [
            [[a, b], "even", 100, int(random.integers(10, 20))]
            for k, a in enumerate(names)
            for b in names[:k]
            if random.random() < 3.0 / len(names)
        ]
        instance = queue(dict.fromkeys(names, 10), corun)
        assert hetopt.solve(instance, method="odd-sets").bound == pytest.approx(
            hetopt.solve(instance, method="matching").objective, rel=1e-9
        )

    def test_any_prices_are_a_bound(self) -> None:
        random = np.random.default_rng(4)
        for seed in range(12):
            instance = QUEUE.sample(seed)
            question = QUEUE.question(instance)
            result = hetopt.solve(instance)
            arrays = queue_of(instance, question)
            for _ in range(20 * (result.objective is not None)):
                members = np.flatnonzero(random.random(len(arrays.size)) < 0.6).tolist()
                limits = random.uniform(0, 0.2, 2) * (arrays.site is not None)
                certificate = {
                    "kinds": random.normal(8, 6, len(arrays.size)).tolist(),
                    "sets": [[members, float(random.uniform(0, 9))]],
                    "power": float(limits[0]),
                    "nodes": float(limits[1]),
                }
                assert result.objective is not None
                assert price_bound(arrays, certificate) <= result.objective * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(100, 100 + MANY))
def test_all_methods_against_brute_force(seed: int) -> None:
    instance = QUEUE.sample(seed)
    question = QUEUE.question(instance)
    values = [
        seen.value
        for plan in QUEUE.every_plan(instance, question)
        if not (seen := QUEUE.evaluate(instance, question, plan)).violations
    ]
    best = min(values, default=None)
    for method in ("milp", "matching", "lp", "odd-sets", "greedy", "alone"):
        if QUEUE.method(method).fits(instance, question) is not None:
            continue
        result = solved(instance, method=method)
        if method in ("milp", "matching"):
            assert result.status == ("infeasible" if best is None else "optimal")
            assert result.objective == best
        elif best is not None:
            assert result.bound is None or result.bound <= best * (1 + 1e-9)
            assert result.objective is None or result.objective >= best
            assert method in ("greedy", "alone") or result.bound_proof == "replayed"


class TestVerifier:
    """A valid plan, broken in every way there is."""

    instance = queue({"a": 10, "b": 20, "c": 5}, [[["a", "b"], "even", 90, 25], [["a", "b", "c"], "even", 90, 26]])

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            ([[["a", "b"], "even", 90]], "'c' is in 0 sets"),
            ([[["a", "b"], "odd", 90], [["c"], "whole", 100]], "no row for"),
            ([[["a", "b"], "even", 100], [["c"], "whole", 100]], "no row for"),
            ([[["a", "b"], "even", 90], [["c"], "whole", 100], [["a"], "whole", 100]], "'a' is in 2 sets"),
            ([[["a", "b", "c"], "even", 90]], "are 3 jobs"),
            ([[["a"], "whole", 100], [["b"], "whole", 100], [["c"], "whole", 100]], "a set may take 95 W"),
        ],
        ids=["missing", "configuration", "watts", "twice", "many", "cap"],
    )
    def test_a_broken_rule(self, rows: list[Any], words: str) -> None:
        told = check_sets(self.instance, Solution(details={"sets": rows}), cap=95.0, site=None, group=2)
        assert any(words in text for text in told.violations)

    def test_limits_of_all_sets(self) -> None:
        plan = Solution(details={"sets": [[["a", "b"], "even", 90], [["c"], "whole", 100]]})
        assert check_sets(self.instance, plan, cap=None, site=190.0, group=2) == (30, 190, ())
        told = check_sets(self.instance, plan, cap=None, site=180.0, group=2)
        assert "10 W too many" in told.violations[0]


@pytest.mark.parametrize(
    ("corun", "more", "words"),
    [
        ([[["a"], "even", 90]], {}, r"\$\.tables\.corun\[0\] is"),
        ([[["a", "b"], "even", -1, 5]], {}, "expected watts"),
        ([[["a", "b"], "even", 90, 0]], {}, "expected seconds, above 0"),
        ([[["a", "b"], "even", 90, 5], [["b", "a"], "even", 90, 6]], {}, "repeats an earlier row"),
        ([], {"kind": {"x": "k"}}, "names 'x'"),
        ([], {"kind": {"a": "k", "b": "k"}}, "of one kind and take different times"),
        ([], {"group": 0}, r"\$\.question\.group is 0"),
        ([], {"cap": -1.0}, r"\$\.question\.cap is -1"),
    ],
    ids=["short", "watts", "seconds", "repeated", "no-job", "kinds", "group", "cap"],
)
def test_bad_input_is_one_sentence(corun: list[Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        hetopt.solve(queue({"a": 10, "b": 20}, corun, **more))
