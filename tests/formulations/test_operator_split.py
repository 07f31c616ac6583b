"""schedule.split: shares, fallbacks, copies and scenarios by hand, the checker, methods against brute force."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hetopt
from hetopt import InputError, Instance, Solution
from hetopt.io import generators
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.registry import problem

SPLIT = problem("schedule.split")


def value(instance: Instance, method: str = "milp", **options) -> float:
    result = hetopt.solve(instance, objective="operator-split", method=method, options=options)
    assert result.status == "optimal", result.messages
    return result.objective


def net(*times, edges=(), latency=0, output=8, deadline=None, **tables) -> Instance:
    """Operators a, b, ... on devices p, q, r; 2 bytes a second between them."""
    names = "abcdef"[: len(times)]
    tasks = [Task(name=v, time=row, output=output) for v, row in zip(names, times, strict=True)]
    arcs = [Edge(source=u, target=v) for u, v in edges]
    devices = [Device(name=v) for v in "pqr"[: len(times[0])]]
    links = [Link(source="*", target="*", bandwidth=2, latency=latency)]
    return Instance.build(devices, [Job(name="j", tasks=tasks, edges=arcs, deadline=deadline)], links, tables=tables)


class TestShares:
    def test_an_operator_over_two_processors(self):
        assert value(net([6, 12]), grain=3) == 4
        assert value(net([6, 12]), grain=2) == 6
        assert value(net([6, 12], whole=["a"]), grain=3) == 6

    def test_launches_and_merges(self):
        assert value(net([8, 8], launch={"*": 1}), grain=2) == 1 + 4
        assert value(net([8, 8], launch={"*": 1}, merge={"*": 2}), grain=2) == 1 + 2 + 4
        assert value(net([8, 8], launch={"*": 1}, merge={"*": 5}), grain=2) == 1 + 8

    def test_what_a_processor_does_not_support_falls_back(self):
        instance = net([None, 9], [1, 9], edges=["ab"], output=4)
        assert value(instance, grain=1) == 9 + 4 / 2 + 1
        assert (
            hetopt.solve(instance, objective="operator-split", method="fallback", options={"grain": 1}).objective == 12
        )

    def test_a_share_fetches_what_lies_elsewhere(self):
        """Halves of a on p and q; b whole on p fetches the half of 8 bytes from q, after a latency."""
        instance = net([20, 20], [2, 90], edges=["ab"], latency=1)
        assert value(instance, grain=2) == 10 + (1 + 4 / 2 + 2)

    def test_operators_run_one_after_the_other(self):
        assert value(net([3, 90], [90, 4]), grain=1) == 3 + 4


class TestScenarios:
    TABLES = ({"name": "alone", "probability": 3}, {"name": "busy", "slowdown": {"p": 4.0}})

    def test_the_worst_and_the_expected(self):
        instance = net([4, 10], scenarios=list(self.TABLES))
        assert value(instance, grain=1, robust="worst") == 10  # on p it would take 16 when that is busy
        assert value(instance, grain=1, robust="expected") == 0.75 * 4 + 0.25 * 16
        assert value(instance, "program", grain=1, robust="expected") == 7

    def test_a_deadline_that_no_plan_keeps_in_both_scenarios(self):
        """Alone on p it is in time when q is busy, on q when p is; 12 seconds in the other case."""
        busy = [{"name": name, "probability": 0.5, "slowdown": {name: 3}} for name in "pq"]
        for robust in ("worst", "expected"):
            instance = net([4, 4], deadline=6, scenarios=busy, whole=["a"])
            result = hetopt.solve(instance, objective="operator-split", options={"robust": robust})
            assert result.exit_code == 3
            assert "deadline: with 6 seconds more there is a plan for every scenario" in result.infeasible[0]
            assert "less is too little" in result.infeasible[0]

    def test_a_deadline_holds_in_every_scenario(self):
        instance = net([4, 10], scenarios=list(self.TABLES), deadline=12)
        assert value(instance, grain=1, robust="expected") == 10
        short = net([4, 10], scenarios=list(self.TABLES), deadline=9)
        result = hetopt.solve(short, objective="operator-split", options={"grain": 1})
        assert (result.status, result.exit_code) == ("infeasible", 3)
        assert result.infeasible[0].startswith(
            "under 'busy' no plan ends before 10, and the deadline is 9: 1 seconds short"
        )

    def test_weights_prove_a_plan_between_two_scenarios(self):
        """Alone each of the two scenarios would take one processor; the worst of both is best on the third."""
        rows = [{"name": "one", "slowdown": {"q": 9.0}}, {"name": "two", "slowdown": {"p": 9.0}}]
        instance = net([4, 4, 6], scenarios=rows)
        result = hetopt.solve(instance, objective="operator-split", method="prices", options={"grain": 1})
        assert (result.objective, result.bound_proof) == (6, "replayed")
        assert result.bound > 4.9


class TestInput:
    @pytest.mark.parametrize(
        ("tables", "said"),
        [
            ({"whole": {"a": 1}}, "whole is dict, expected a list"),
            ({"whole": ["x"]}, r"whole\[0\] is 'x'"),
            ({"launch": {"x": 1}}, "launch names 'x'"),
            ({"merge": {"p": -1}}, "merge.p is -1, expected a number from 0"),
            ({"scenarios": []}, "expected a list of scenarios"),
            ({"scenarios": [{}]}, "expected a name"),
            ({"scenarios": [{"name": "a", "chance": 1}]}, "has 'chance'"),
            ({"scenarios": [{"name": "a", "slowdown": {"p": 0}}]}, "slowdown.p is 0, expected a number from 1e-06"),
            ({"scenarios": [{"name": "a"}, {"name": "a"}]}, "the same name"),
            ({"scenarios": [{"name": "a", "probability": 0}]}, "all probabilities are 0"),
        ],
        ids=["object", "operator", "device", "negative", "none", "unnamed", "key", "factor", "twice", "zero"],
    )
    def test_tables(self, tables, said):
        with pytest.raises(InputError, match=said):
            hetopt.solve(net([1, 2], **tables), objective="operator-split")

    def test_a_missing_link_and_two_jobs(self):
        tasks = [Task(name="a", time=[1, None]), Task(name="b", time=[None, 1])]
        job = Job(name="j", tasks=tasks, edges=[Edge(source="a", target="b")])
        with pytest.raises(InputError, match="no entry matches 'p' -> 'q'"):
            hetopt.solve(Instance.build([Device(name="p"), Device(name="q")], [job]), objective="operator-split")
        with pytest.raises(InputError, match="it needs one job"):
            hetopt.solve(Instance.from_times([[1], [2]]), objective="operator-split")


class TestChecker:
    @pytest.mark.parametrize(
        ("shares", "said"),
        [
            ([[0.5, 0.5], [1, 0]], None),
            ([[0.5, 0.25], [1, 0]], "add up to 3/4"),
            ([[0.6, 0.4], [1, 0]], "no multiples of 1/4"),
            ([[1.5, -0.5], [1, 0]], "no multiples of 1/4"),
            ([[1, 0], [0, 1]], "cannot run on 'q'"),
            ([[1, 0], [np.nan, 1]], "no share for each operator"),
        ],
        ids=["valid", "short", "fraction", "negative", "unsupported", "nan"],
    )
    def test_shares(self, shares, said):
        instance = net([8, 8], [3, None], edges=["ab"])
        found = SPLIT.evaluate(instance, SPLIT.question(instance), Solution(shares=np.array(shares)))
        if said is None:
            assert (found.value, found.violations) == (4 + 4 / 2 + 3, ())
        else:
            assert any(said in sentence for sentence in found.violations), found.violations

    def test_an_operator_that_stays_whole_and_a_deadline(self):
        halves = Solution(shares=np.array([[0.5, 0.5]]))
        whole = net([8, 8], whole=["a"])
        assert "must stay whole" in SPLIT.evaluate(whole, SPLIT.question(whole), halves).violations[0]
        late = net([8, 8], deadline=3)
        assert "1 after the deadline" in SPLIT.evaluate(late, SPLIT.question(late), halves).violations[0]

    @pytest.mark.parametrize(
        "certificate",
        [
            {"weights": [1.0, 1.0], "inputs": [-1]},
            {"weights": [-1.0], "inputs": [-1]},
            {"weights": [1.0], "inputs": [0]},
        ],
        ids=["many", "negative", "no-edge"],
    )
    def test_certificates_that_prove_nothing(self, certificate):
        instance = net([1, 2])
        with pytest.raises(ValueError, match="expected"):
            SPLIT.replay(instance, SPLIT.question(instance), {"kind": "weights", **certificate})


def test_random_instances():
    """Bounds <= optimum <= every plan; the MILP and the program find the optimum of brute force."""
    long = os.environ.get("HETOPT_LONG_TESTS")
    exact = 0
    for seed in range(200 if long else 8):
        instance = SPLIT.sample(1000 + seed)
        for robust in ("worst", "expected"):
            question = SPLIT.question(instance, {"robust": robust})
            asked = {"options": {"robust": robust}}
            judged = (SPLIT.evaluate(instance, question, plan) for plan in SPLIT.every_plan(instance, question))
            optimum = min((e.value for e in judged if not e.violations), default=None)
            methods = [m for m in ("milp", "program") if SPLIT.method(m).fits(instance, question) is None]
            for method in methods:
                found = hetopt.solve(instance, method=method, **asked)
                assert found.status == ("infeasible" if optimum is None else "optimal"), (seed, method)
                assert optimum is None or found.objective == pytest.approx(optimum, rel=1e-9, abs=1e-9), (seed, method)
                exact += method == "program"
            if optimum is None:
                continue
            for method in ("prices", "lp"):
                assert hetopt.bound(instance, method=method, **asked).bound <= optimum * (1 + 1e-9), (seed, method)
            for method in ("prices", "fallback"):
                found = hetopt.solve(instance, method=method, **asked)
                assert found.objective is None or found.objective >= optimum * (1 - 1e-9), (seed, method)
    assert exact > 3


def test_a_network_is_closed_within_a_few_per_cent():
    instance = generators.get("phone-split").make(operators=12, seed=2)
    result = hetopt.solve(instance, method="prices")
    assert result.bound >= 0.9 * result.objective
    alone = hetopt.solve(instance, method="fallback")
    assert result.objective < alone.objective
