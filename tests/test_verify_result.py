"""``verify`` against every claim a result can make: each is broken in turn, and each break must be caught."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from fakes import Scripted, Toy, plan, toy_instance

import hetopt
from hetopt import InputError, Instance, Result, Solution, VerificationError
from hetopt import registry as registered
from hetopt.formulation import LinearFormulation
from hetopt.io.results import decode_result, encode_result
from hetopt.linear import LinearModel
from hetopt.records import Device, Job

# Loads of the best plan: gpu 2 + 2 = 4, cpu 4. The LP gives 10/3 or a little less, and values are integers: the bound is 4.
INSTANCE = Instance.build(
    [Device(name="gpu", memory=10), Device(name="cpu")],
    [
        Job(name="a", time=[2, 6], memory=5),
        Job(name="b", time=[2, 9], memory=5),
        Job(name="c", time=[3, 4], memory=5),
    ],
    question={"objective": "makespan"},
)
BEST = Solution.assign([0, 0, 1])


@pytest.fixture(scope="module")
def result() -> Result:
    """A proved answer whose bound is replayed from LP duals."""
    solved = hetopt.solve(INSTANCE, method="cpsat")
    bounded = hetopt.bound(INSTANCE, method="lp")
    assert bounded.bound_proof == "replayed"
    return replace(solved, bound=bounded.bound, bound_proof="replayed", certificate=bounded.certificate)


def violations(instance: Instance, claimed) -> tuple[str, ...]:
    with pytest.raises(VerificationError) as caught:
        hetopt.verify(instance, claimed)
    return caught.value.violations


def reread(result: Result, **changes) -> Result:
    """The result as a file with some keys changed would give it; ``None`` removes a key."""
    record = {**json.loads(encode_result(result, INSTANCE)), **changes}
    record.pop("status")
    return decode_result(json.dumps(record).encode(), INSTANCE)


class TestAccepted:
    def test_a_proved_answer(self, result):
        report = hetopt.verify(INSTANCE, result)
        assert (report.objective, report.bound, report.bound_proof) == (4.0, 4.0, "replayed")
        assert report.statement == "assignment.makespan: valid plan of value 4, bound 4 (replayed from the certificate)"
        assert report.details["devices"]["gpu"] == {"load": 4.0, "memory": 10.0, "tasks": 2}

    def test_after_a_trip_through_a_file(self, result):
        assert hetopt.verify(INSTANCE, reread(result)) == hetopt.verify(INSTANCE, result)

    def test_under_another_name_and_question(self, result):
        renamed = replace(INSTANCE, name="other", description="text", question={})
        assert hetopt.verify(renamed, result).objective == 4.0

    def test_says_that_the_file_asks_something_else(self, result):
        other = INSTANCE.with_question({"objective": "bottleneck"})
        statement = hetopt.verify(other, result).statement
        assert statement.startswith(
            "assignment.makespan: not the file's own question (assignment.bottleneck); valid plan"
        )

    def test_says_that_no_instance_is_named(self, result):
        statement = hetopt.verify(INSTANCE, replace(result, instance_digest="")).statement
        assert "the result does not say which instance it belongs to; valid plan" in statement

    def test_a_bare_plan(self):
        report = hetopt.verify(INSTANCE, BEST)
        assert (report.objective, report.bound, report.bound_proof) == (4.0, None, "none")
        assert report.statement == "valid plan of value 4, no bound"

    @pytest.mark.parametrize("proof", ["solver", "algorithm", "none"])
    def test_a_bound_without_certificate_is_labelled(self, result, proof):
        report = hetopt.verify(INSTANCE, replace(result, certificate=None, bound_proof=proof, solver="cpsat 9"))
        words = {
            "solver": "the word of cpsat 9, not checked here",
            "algorithm": "the word of an algorithm of ours (cpsat), not run again here",
            "none": "without proof",
        }
        assert report.bound_proof == proof
        assert report.statement == f"assignment.makespan: valid plan of value 4, bound 4 ({words[proof]})"

    def test_a_heuristic_proves_no_bound(self, result):
        claimed = replace(result, certificate=None, bound_proof="algorithm", method="cpsat, bound by greedy")
        assert violations(INSTANCE, claimed) == (
            "the bound is called the word of greedy, a heuristic, which proves none",
        )
        unknown = replace(claimed, method="wizard")
        assert violations(INSTANCE, unknown) == (
            "the bound is called the word of wizard, which is no method of assignment.makespan",
        )

    def test_a_bound_alone(self, result):
        bound = hetopt.bound(INSTANCE, method="lp")
        statement = hetopt.verify(INSTANCE, bound).statement
        assert statement == "assignment.makespan: no plan, bound 4 (replayed from the certificate)"

    def test_a_weaker_bound_than_is_proved(self, result):
        assert hetopt.verify(INSTANCE, replace(result, bound=3.5)).bound == 3.5


class TestPlan:
    @pytest.mark.parametrize("task", [0, 1, 2])
    def test_any_one_task_moved_is_caught(self, result, task):
        placement = np.array(BEST.placement)
        placement[task] = 1 - placement[task]
        moved = replace(result, solution=Solution.assign(placement))
        found = violations(INSTANCE, moved)
        if task == 2:
            assert found[0] == "device 'gpu' needs 15 bytes of memory and has 10: 5 too many"
        assert any("claims the value 4.0, but its plan has" in sentence for sentence in found)

    @pytest.mark.parametrize("task", [0, 1, 2])
    def test_any_one_task_missing_from_the_file_is_caught(self, result, task):
        names = {label: INSTANCE.device_names[i] for label, i in zip("abc", BEST.placement.tolist(), strict=True)}
        del names["abc"[task]]
        found = violations(INSTANCE, reread(result, solution={"placement": names}))
        assert found[0] == f"task {'abc'[task]!r} is not placed on any device"

    @pytest.mark.parametrize("solution", [{}, {"start": {"a": 0.0}}, {"placement": {}}], ids=str)
    def test_a_plan_that_says_nothing_is_caught(self, result, solution):
        assert violations(INSTANCE, reread(result, solution=solution))

    def test_a_bare_plan_that_is_invalid(self):
        assert violations(INSTANCE, Solution.assign([0, 0, 0])) == (
            "device 'gpu' needs 15 bytes of memory and has 10: 5 too many",
        )


class TestValue:
    @pytest.mark.parametrize("claimed", [3.0, 5.0, 4 - 1e-9, 4 + 1e-9, 0.0, -4.0, 1e300])
    def test_another_value_is_caught(self, result, claimed):
        if abs(claimed - 4) < 1e-6:  # not an integer: judged like decimals
            return
        assert any(
            "claims the value" in sentence for sentence in violations(INSTANCE, replace(result, objective=claimed))
        )

    def test_integers_must_match_exactly(self):
        big = Instance.from_times([[10**12]])
        claim = hetopt.solve(big, method="cpsat")
        assert claim.objective == 1e12
        off = replace(claim, objective=1e12 + 1, bound=None, bound_proof="none", certificate=None)
        assert "claims the value 1000000000001.0" in violations(big, off)[0]

    def test_decimals_within_the_tolerance(self):
        small = Instance.from_times([[0.1], [0.2]])
        claim = hetopt.solve(small, method="cpsat")
        assert hetopt.verify(small, replace(claim, objective=0.3 * (1 + 1e-9))).objective == pytest.approx(0.3)
        assert violations(small, replace(claim, objective=0.3 * (1 + 1e-4)))

    def test_a_value_without_a_plan(self, result):
        assert violations(INSTANCE, replace(result, solution=None)) == (
            "the result claims the value 4.0 without a plan",
        )

    def test_a_plan_without_a_value(self, result):
        assert violations(INSTANCE, replace(result, objective=None)) == ("the result has a plan but claims no value",)


class TestBound:
    def test_more_than_is_proved_is_caught(self, result):
        (sentence,) = violations(INSTANCE, replace(result, bound=4.0001))
        assert sentence == "the certificate proves the bound 4.0, not 4.0001 as claimed"

    @pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
    def test_in_any_unit_of_time(self, scale):
        """Half as much again as is proved is a false claim, be the times picoseconds or centuries."""
        times = np.array([[2.5, 3.1], [1.7, 2.2], [0.9, 1.3]]) * scale
        instance = Instance.from_times(times)
        bounded = hetopt.bound(instance, method="lp")
        assert bounded.bound_proof == "replayed"
        assert hetopt.verify(instance, bounded).bound == bounded.bound
        (sentence,) = violations(instance, replace(bounded, bound=bounded.bound * 1.5))
        assert sentence.startswith("the certificate proves the bound")

    def test_a_bound_that_the_plan_beats_is_caught(self, result):
        claim = replace(result, certificate=None, bound=5.0, bound_proof="solver")
        (sentence,) = violations(INSTANCE, claim)
        assert "is better than the claimed bound 5.0, which is therefore wrong" in sentence

    def test_a_replayed_bound_needs_its_certificate(self, result):
        assert violations(INSTANCE, replace(result, certificate=None)) == (
            "the result claims a replayed bound but stores no certificate",
        )

    def test_a_proof_without_a_bound(self, result):
        claim = replace(result, bound=None, certificate=None, bound_proof="algorithm")
        assert violations(INSTANCE, claim) == ("the result claims a bound proof (algorithm) without a bound",)

    def test_the_other_sense_is_caught(self, result):
        """With the sense turned round, a bound of 0 would pass for a proof that the plan is best."""
        claim = replace(result, sense="max", bound=4.0, bound_proof="solver", certificate=None)
        (sentence,) = violations(INSTANCE, claim)
        assert sentence == "the result claims the sense 'max', but assignment.makespan has 'min'"


class TestCertificate:
    def test_each_dual_counts(self, result):
        values = result.certificate["values"]
        assert len(values) >= 2
        for k, value in enumerate(values):
            for wrong in (0.0, -value, value / 2, value * 2, 1e30):
                damaged = {**result.certificate, "values": [*values[:k], wrong, *values[k + 1 :]]}
                try:
                    report = hetopt.verify(INSTANCE, replace(result, certificate=damaged))
                except VerificationError as error:
                    assert "the certificate" in str(error) or "does not replay" in str(error)
                else:  # other duals may prove the same bound
                    assert (report.bound, report.bound_proof) == (4.0, "replayed")
        zeros = {**result.certificate, "values": [0.0] * len(values)}
        assert violations(INSTANCE, replace(result, certificate=zeros))

    @pytest.mark.parametrize(
        "damage",
        [
            {"kind": "trust-me"},
            {"kind": None},
            {"method": "milq"},
            {"method": "cpsat"},
            {"method": None},
            {"rows": [99]},
            {"rows": None},
            {"values": []},
            {"values": ["x"]},
            {"values": {"a": 1}},
        ],
        ids=str,
    )
    def test_damage_is_a_sentence(self, result, damage):
        (sentence,) = violations(INSTANCE, replace(result, certificate={**result.certificate, **damage}))
        assert sentence.startswith("the bound's certificate does not replay: ")

    def test_another_instances_certificate(self, result):
        quick = Instance.from_times([[1, 1], [1, 1], [1, 1]])
        solved = hetopt.solve(quick, method="cpsat")
        claim = replace(solved, bound=4.0, bound_proof="replayed", certificate=result.certificate)
        assert violations(quick, claim)

    def test_a_restrictions_duals_bound_nothing(self, monkeypatch):
        """A heuristic's linear model is smaller than the question; a file must not pass its bound for the question's."""

        class Fixed(LinearFormulation):
            name, title, kind = "fixed", "everything on device 0", "heuristic"

            def build(self, instance, question=None):
                model = LinearModel("fixed")
                x = model.continuous("x", upper=99.0)
                model.rows("all", 1, [(0, x, 1.0)], lower=10.0)
                model.minimize(x)
                return model

            def decode(self, instance, model, x):
                return plan(0)

        toy = Toy(Fixed(), Scripted("fake", lambda *_: None))
        monkeypatch.setitem(registered._extra, toy.name, toy)
        instance = toy_instance()
        solved = hetopt.solve(instance, method="fixed")
        assert (solved.objective, solved.bound, solved.status) == (10.0, None, "feasible")
        forged = replace(
            solved,
            bound=10.0,
            bound_proof="replayed",
            certificate={"kind": "lp-dual", "method": "fixed", "rows": [0], "values": [1.0]},
        )
        assert "whose model bounds nothing" in violations(instance, forged)[0]

    def test_duals_of_a_model_that_does_not_fit_bound_nothing(self, result, monkeypatch):
        """A method that refuses this question may state another one."""
        lp = type(registered.problem("assignment.makespan").method("lp"))
        monkeypatch.setattr(lp, "fits", lambda *_: "it knows no memory")
        (sentence,) = violations(INSTANCE, result)
        assert "names the method 'lp', which does not fit: it knows no memory" in sentence

    @pytest.mark.parametrize("error", [KeyError("price"), TypeError("list"), IndexError("7"), ZeroDivisionError("0")])
    def test_a_replay_that_stumbles_is_a_violation(self, monkeypatch, error):
        class Stumbling(Toy):
            def replay(self, instance, question, certificate):
                raise error

        self.refused(monkeypatch, Stumbling(), "does not replay")

    @pytest.mark.parametrize("proved", [math.nan, -math.inf])
    def test_a_replay_that_proves_nothing_is_a_violation(self, monkeypatch, proved):
        class Void(Toy):
            def replay(self, instance, question, certificate):
                return proved

        self.refused(monkeypatch, Void(), "the certificate proves the bound")

    @staticmethod
    def refused(monkeypatch, toy, told):
        monkeypatch.setitem(registered._extra, toy.name, toy)
        claim = Result(
            problem=toy.name, question={}, sense="min", reason="finished", solution=plan(1), objective=1.0, bound=1.0,
            bound_proof="replayed", certificate={"kind": "mine"},
        )  # fmt: skip
        assert told in violations(toy_instance(), claim)[0]


class TestBelonging:
    def test_another_instance(self, result):
        other = Instance.from_times([[2, 6], [2, 9], [3, 5]], jobs=["a", "b", "c"], devices=["gpu", "cpu"])
        (sentence,) = violations(other, result)
        assert "belongs to an instance with digest" in sentence

    def test_another_problem(self, result):
        with pytest.raises(InputError, match=r"there is no problem 'assignment.makespam'; did you mean"):
            hetopt.verify(INSTANCE, replace(result, problem="assignment.makespam"))

    def test_an_option_that_does_not_exist(self, result):
        with pytest.raises(InputError, match="unknown key 'speed'"):
            hetopt.verify(INSTANCE, replace(result, question={"objective": "makespan", "speed": 2}))

    def test_status_cannot_be_claimed(self, result):
        """A file that calls itself optimal must have everything that optimal is derived from, and each part is checked."""
        weak = replace(result, bound=3.0)
        assert weak.status == "feasible"
        record = {**json.loads(encode_result(weak, INSTANCE)), "status": "optimal"}
        with pytest.raises(InputError, match=r"\$.status is 'optimal'"):
            decode_result(json.dumps(record).encode(), INSTANCE)
        wide = reread(weak, tolerance=1.0)
        assert wide.status == "feasible"

    def test_all_violations_are_listed(self, result):
        moved = replace(result, solution=Solution.assign([0, 0, 0]), bound=9.0)
        assert len(violations(INSTANCE, moved)) == 3


class TestInfeasible:
    instance = Instance.build(
        [Device(name="gpu", memory=3)], [Job(name="a", time=[1], memory=2), Job(name="b", time=[1], memory=2)]
    ).with_question({"objective": "makespan"})

    def test_shown_again(self):
        solved = hetopt.solve(self.instance)
        assert solved.status == "infeasible"
        report = hetopt.verify(self.instance, solved)
        assert report.statement.startswith("there is no plan, shown again: all tasks need 4 bytes")

    def test_a_solvers_word_is_labelled(self):
        claim = Result("assignment.makespan", {}, "min", "infeasible", solver="cpsat 9.9")
        report = hetopt.verify(INSTANCE, claim)
        assert report.statement == "no plan; that there is none is the word of cpsat 9.9, not checked here"


class TestAgain:
    def test_a_solvers_word_is_confirmed(self, result):
        claimed = replace(result, certificate=None, bound_proof="solver", method="cpsat")
        assert hetopt.prove_again(INSTANCE, claimed).bound == claimed.bound

    def test_a_wrong_word_is_refuted_by_a_plan(self, tmp_path):
        harder = replace(hetopt.solve(INSTANCE, method="greedy"), bound=4.0, bound_proof="solver", method="cpsat")
        worse = replace(harder, objective=9.0, bound=9.0)
        second = hetopt.prove_again(INSTANCE, worse)
        assert second.objective == 4.0 < worse.bound

    def test_without_a_bound_there_is_nothing_to_prove(self, result):
        bare = replace(result, bound=None, bound_proof="none", certificate=None)
        with pytest.raises(hetopt.InputError, match="nothing to prove again"):
            hetopt.prove_again(INSTANCE, bare)
