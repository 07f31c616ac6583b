"""The reasons behind an answer, before and without solving."""

from __future__ import annotations

import json

import pytest
from fakes import Scripted, Toy, toy_instance

import hetopt
from hetopt import InputError, Instance
from hetopt import registry as registered
from hetopt.formulation import Step

TIGHT = Instance.from_times([[1, 1]] * 3, memory=[4] * 3, capacity=[5, 6])


@pytest.fixture
def toy(monkeypatch):
    def register(one):
        monkeypatch.setitem(registered._extra, one.name, one)

    return register


def refuses(control, options):
    raise AssertionError("explaining must not run a method")


class TestWhyThisMethod:
    def test_the_climb_and_the_rest(self, toy):
        toy(
            Toy(
                Scripted("exact", refuses),
                Scripted("huge", refuses, why_not="2e9 states"),
                Scripted("greedy", refuses, "heuristic"),
                steps=[Step("greedy", "a plan at once"), Step("exact", "small enough")],
            )
        )
        told = hetopt.explain(toy_instance())
        assert told.problem == "toy.sum"
        assert told.steps == (("greedy", "a plan at once"), ("exact", "small enough"))
        assert told.others == (("huge", "the fake huge", "2e9 states"),)
        assert told.lines() == [
            "question: toy.sum (objective=toy)",
            "--method auto would run:",
            "  greedy: a plan at once",
            "  exact: small enough",
            "it would not run:",
            "  huge (the fake huge): 2e9 states",
        ]

    def test_what_could_be_asked_for(self, toy):
        toy(Toy(Scripted("a", refuses), Scripted("b", refuses)))
        assert hetopt.explain(toy_instance()).lines()[-1] == "  b (the fake b): fits; ask for it with --method"

    def test_no_method_fits(self, toy):
        toy(Toy(Scripted("huge", refuses, why_not="2e9 states")))
        told = hetopt.explain(toy_instance())
        assert told.steps == ()
        assert "no method fits" in "\n".join(told.lines())

    def test_every_method_of_a_problem_is_named_once(self):
        told = hetopt.explain(Instance.from_times([[3, 1], [2, 4]]))
        names = [name for name, _ in told.steps] + [name for name, _, _ in told.others]
        assert sorted(names) == sorted(m.name for m in registered.problem("assignment.makespan").methods)

    def test_the_default_climb(self, toy):
        bare = Toy(Scripted("greedy", refuses, "heuristic"), Scripted("relaxed", refuses, "relaxation"))
        toy(bare)
        assert [name for name, _ in hetopt.explain(toy_instance()).steps] == ["greedy", "relaxed"]
        toy(Toy(*bare.methods, Scripted("exact", refuses)))
        assert hetopt.explain(toy_instance()).steps == (("exact", "the first exact method that fits (the fake exact)"),)

    def test_objective_and_options_as_for_solving(self):
        instance = Instance.from_graph([[1, 1], [1, 1]], [[0, 1]], links=(), output=[0, 0])
        with pytest.raises(InputError, match="choose one with --objective"):
            hetopt.explain(instance)
        assert hetopt.explain(instance, objective="makespan").problem == "assignment.makespan"
        with pytest.raises(InputError, match="unknown key 'speed'"):
            hetopt.explain(instance, objective="makespan", options={"speed": 3})


class TestWhyNoPlan:
    def test_the_constraint_and_the_shortfall(self):
        told = hetopt.explain(TIGHT)
        assert told.infeasible == ("all tasks need 12 bytes, and all devices have 11: 1 bytes short",)
        assert told.steps == ()
        assert told.lines()[:3] == [
            "question: assignment.makespan (objective=makespan)", "there is no plan:", f"  {told.infeasible[0]}",
        ]  # fmt: skip

    def test_the_same_sentence_as_solving(self):
        assert hetopt.solve(TIGHT).infeasible == hetopt.explain(TIGHT).infeasible


@pytest.mark.parametrize("instance", [TIGHT, Instance.from_times([[3, 1], [2, 4]])], ids=["infeasible", "feasible"])
def test_json_says_the_same(instance):
    told = hetopt.explain(instance)
    record = json.loads(json.dumps(told.to_json()))
    assert record["problem"] == told.problem
    assert tuple(record["infeasible"]) == told.infeasible
    assert [(step["method"], step["why"]) for step in record["steps"]] == list(told.steps)
    assert [(one["method"], one["title"], one["why_not"]) for one in record["others"]] == list(told.others)
