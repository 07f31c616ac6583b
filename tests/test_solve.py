"""What the engine makes of methods that err, lie, die or dawdle."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from fakes import Scripted, Toy, plan, toy_instance

import hetopt
from hetopt import InputError, Instance, Solution, clock
from hetopt import registry as registered
from hetopt.control import Control
from hetopt.formulation import Evaluation, Option, Outcome, Step
from hetopt.solvers import SolverError, SolverMissing


@pytest.fixture
def run(monkeypatch):
    """``run(action, ...)`` solves the toy with one scripted method; ``run(toy, ...)`` with a whole problem."""

    def go(what, *, kind="exact", sense="min", verb=hetopt.solve, instance=None, **given):
        toy = what if isinstance(what, Toy) else Toy(Scripted("fake", what, kind), sense=sense)
        monkeypatch.setitem(registered._extra, toy.name, toy)
        return verb(instance or toy_instance(), **given)

    return go


def report(*plans, bound=None, proof="solver", outcome=None):
    def action(control, options):
        if bound is not None:
            control.report_bound(bound, proof)
        for one in plans:
            control.report_plan(one)
        return outcome

    return action


def fails(error, *plans):
    def action(control, options):
        for one in plans:
            control.report_plan(one)
        raise error

    return action


class TestStatusIsDerived:
    def test_value_and_bound_meet(self, run):
        result = run(report(plan(1), bound=1.0))
        assert (result.status, result.exit_code, result.gap) == ("optimal", 0, 0.0)
        assert (result.objective, result.bound, result.bound_proof, result.verified) == (1.0, 1.0, "solver", True)
        assert (result.method, result.reason) == ("fake", "finished")

    def test_finished_without_a_bound_is_not_optimal(self, run):
        result = run(report(plan(1)))
        assert (result.status, result.exit_code, result.gap, result.bound) == ("feasible", 2, None, None)

    def test_a_bound_without_a_plan_is_no_answer(self, run):
        result = run(report(bound=1.0))
        assert (result.status, result.exit_code, result.objective, result.bound) == ("unknown", 4, None, 1.0)

    def test_nothing_at_all(self, run):
        result = run(report())
        assert (result.status, result.exit_code, result.objective, result.bound) == ("unknown", 4, None, None)
        assert result.bound_proof == "none"

    @pytest.mark.parametrize(("bound", "status"), [(2 - 1e-6, "optimal"), (2 - 1e-5, "feasible")])
    def test_within_the_stated_tolerance(self, run, bound, status):
        result = run(report(plan(2), bound=bound))
        assert result.tolerance == 1e-6
        assert result.status == status

    def test_maximising(self, run):
        result = run(report(plan(1), plan(2), plan(1), bound=2.0), sense="max")
        assert (result.status, result.objective, result.sense) == ("optimal", 2.0, "max")
        assert run(report(plan(1), bound=2.0), sense="max").gap == 1.0

    def test_the_best_plan_counts_not_the_last(self, run):
        assert run(report(plan(2), plan(1), plan(0))).objective == 1.0


class TestPlansAreJudged:
    def test_an_invalid_plan_is_rejected_with_a_sentence(self, run):
        result = run(report(plan(3), bound=1.0))
        assert (result.status, result.solution, result.objective) == ("unknown", None, None)
        assert result.messages == ("a plan was rejected by the verifier: fake: task 0 is on device 3",)

    def test_a_valid_plan_after_an_invalid_one_counts(self, run):
        result = run(report(plan(3), plan(2)))
        assert (result.objective, result.verified) == (2.0, True)
        assert len(result.messages) == 1

    @pytest.mark.parametrize("nonsense", [None, "plan", [0], {"placement": [0]}, np.array([0]), 7], ids=str)
    def test_what_is_no_plan_is_rejected(self, run, nonsense):
        result = run(report(nonsense, plan(1)))
        assert result.objective == 1.0
        assert "not a Solution" in result.messages[0]

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_value_that_is_no_number_is_rejected(self, run, value):
        class Odd(Toy):
            def evaluate(self, instance, question, solution):
                one = super().evaluate(instance, question, solution)
                return Evaluation(value) if one.value == 10 else one

        result = run(Odd(Scripted("fake", report(plan(0), plan(2)))))
        assert (result.objective, result.status) == (2.0, "feasible")
        assert "the plan's value is" in result.messages[0]

    @pytest.mark.parametrize("error", [IndexError("7"), KeyError("order"), TypeError("int"), ValueError("shape")])
    def test_a_plan_that_the_evaluator_stumbles_over_is_rejected(self, run, error):
        class Stumbling(Toy):
            def evaluate(self, instance, question, solution):
                if solution.details:
                    raise error
                return super().evaluate(instance, question, solution)

        result = run(Stumbling(Scripted("fake", report(Solution.assign([1], order=[7]), plan(2)))))
        assert (result.objective, result.verified) == (2.0, True)
        assert f"the plan cannot be read as one of toy.sum: {type(error).__name__}" in result.messages[0]

    def test_a_plan_changed_after_it_was_reported_is_still_the_plan(self, run):
        def action(control, options):
            placement = np.array([1])
            control.report_plan(Solution(placement=placement))
            placement[0] = 3

        result = run(action)
        assert (result.objective, result.verified, result.solution.placement.tolist()) == (1.0, True, [1])

    def test_many_rejections_are_told_three_times(self, run):
        assert len(run(report(*[plan(3)] * 50)).messages) == 3


class TestBoundsAreChecked:
    @pytest.mark.parametrize("proof", ["solver", "algorithm", "replayed"])
    def test_a_bound_that_a_plan_beats_is_discarded(self, run, proof):
        result = run(report(plan(1), bound=1.5, proof=proof))
        assert (result.status, result.bound, result.bound_proof) == ("feasible", None, "none")
        assert result.exit_code == 2
        (sentence,) = result.messages
        assert sentence == (
            f"the bound 1.5 ({proof}, fake) contradicts a verified plan of value 1; the bound is discarded"
        )

    def test_the_same_when_maximising(self, run):
        result = run(report(plan(2), bound=1.0), sense="max")
        assert (result.bound, result.status) == (None, "feasible")

    def test_a_solvers_rounding_is_forgiven(self, run):
        result = run(report(plan(1), bound=1.0 + 1e-9))
        assert (result.status, result.bound, result.messages) == ("optimal", 1.0, ())

    @pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf])
    def test_a_bound_that_is_no_number_is_ignored(self, run, nonsense):
        assert run(report(plan(1), bound=nonsense)).bound is None

    def test_a_wrong_bound_does_not_spoil_the_next_step(self, run):
        toy = Toy(
            Scripted("liar", report(plan(2), bound=5.0)),
            Scripted("honest", report(plan(1), bound=1.0)),
            steps=[Step("liar", "first"), Step("honest", "second")],
        )
        result = run(toy)
        assert (result.status, result.objective, result.bound) == ("optimal", 1.0, 1.0)
        assert result.method == "honest"
        assert "the bound is discarded" in result.messages[0]

    def test_an_exact_method_whose_rounding_leaves_a_gap_says_so(self):
        """1e-8 beside 1e13 seconds: ticks that hold both are coarser than the optimum of 2.3e-8."""
        times = [[1e-8, 1e13], [1.3e-8, 1e13]]
        instance = Instance.from_graph(times, [(0, 1)], question={"objective": "chain-bottleneck"})
        result = hetopt.solve(instance, method="dp")
        assert (result.status, result.reason) == ("feasible", "finished")
        assert "too many orders of magnitude" in result.messages[-1]
        near = Instance.from_graph(np.array(times) * [1, 1e-20], [(0, 1)], question={"objective": "chain-bottleneck"})
        assert hetopt.solve(near, method="dp").messages == ()


class TestControl:
    def test_the_stronger_proof_wins_up_to_rounding_noise(self):
        control = Control()
        assert control.report_bound(3.0 + 1e-10, "solver")
        assert control.report_bound(3.0, "replayed", {"kind": "x"})
        assert not control.report_bound(3.0 + 1e-10, "solver")
        assert (control.bound, control.bound_proof, control.certificate) == (3.0, "replayed", {"kind": "x"})
        assert control.report_bound(3.1, "solver")
        assert (control.bound_proof, control.certificate) == ("solver", None)
        assert not control.report_bound(3.0, "replayed")

    def test_the_same_when_maximising(self):
        control = Control(sense="max")
        assert control.report_bound(3.0 - 1e-10, "solver")
        assert control.report_bound(3.0, "algorithm")
        assert not control.report_bound(3.5, "replayed")
        assert control.report_bound(2.5, "solver")

    def test_better_bounds_of_the_same_word_count_however_small_the_step(self):
        control = Control()
        assert control.report_bound(1.0, "solver")
        assert control.report_bound(1.0 + 1e-15, "solver")
        assert not control.report_bound(1.0, "solver")

    def test_closed_within_the_gap(self):
        control = Control(relative_gap=0.1, judge=lambda plan: plan)
        control.report_plan(100.0)
        assert not control.should_stop()
        control.report_bound(89.0, "solver")
        assert not control.closed
        control.report_bound(90.0, "solver")
        assert control.closed
        assert control.should_stop()

    def test_time(self):
        assert Control().remaining == math.inf
        control = Control(time_limit=0.0)
        assert control.should_stop()
        control = Control(time_limit=100.0)
        control.deadline = clock.now() + 1.0
        assert control.remaining <= 1.0
        assert not control.should_stop()


class TestFailures:
    """Whatever a method dies of, what was found before stays."""

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (SolverError("highs 1.0 crashed"), "fake: highs 1.0 crashed"),
            (SolverMissing("cplex needs the package cplex"), "fake: cplex needs the package cplex"),
            (MemoryError(), "fake ran out of memory"),
            (RuntimeError("a bug"), "fake failed with RuntimeError: a bug"),
            (ZeroDivisionError("division by zero"), "fake failed with ZeroDivisionError: division by zero"),
            (RecursionError("too deep"), "fake failed with RecursionError: too deep"),
        ],
        ids=lambda value: type(value).__name__,
    )
    @pytest.mark.parametrize("found", [True, False], ids=["after a plan", "before any plan"])
    def test_failure(self, run, error, told, found, monkeypatch):
        monkeypatch.delenv("HETOPT_DEBUG", raising=False)
        result = run(fails(error, *[plan(2)] * found))
        assert (result.reason, result.exit_code) == ("error", 5)
        assert result.status == ("feasible" if found else "error")
        assert (result.objective, result.verified) == ((2.0, True) if found else (None, False))
        assert result.messages == (told,)

    def test_a_rejected_plan_is_told_even_so(self, run):
        result = run(fails(SolverError("died"), plan(3)))
        assert len(result.messages) == 2

    def test_with_debugging_on_a_fault_is_shown_in_full(self, run, monkeypatch):
        monkeypatch.setenv("HETOPT_DEBUG", "1")
        with pytest.raises(RuntimeError, match="a bug"):
            run(fails(RuntimeError("a bug")))

    def test_bad_input_found_late_is_the_callers(self, run):
        with pytest.raises(InputError, match="no such option"):
            run(fails(InputError("no such option"), plan(1)))

    def test_the_next_step_is_tried(self, run):
        toy = Toy(
            Scripted("broken", fails(SolverError("died"), plan(2))),
            Scripted("sound", report(plan(1), bound=1.0)),
            steps=[Step("broken", "first"), Step("sound", "second")],
        )
        result = run(toy)
        assert (result.status, result.exit_code, result.messages) == ("optimal", 0, ("broken: died",))

    def test_ctrl_c(self, run):
        result = run(fails(KeyboardInterrupt(), plan(2)))
        assert (result.reason, result.exit_code, result.status, result.objective) == (
            "interrupted",
            130,
            "feasible",
            2.0,
        )
        assert run(fails(KeyboardInterrupt())).status == "unknown"

    def test_ctrl_c_ends_the_climb(self, run):
        toy = Toy(
            Scripted("a", fails(KeyboardInterrupt())),
            Scripted("b", report(plan(1))),
            steps=[Step("a", ""), Step("b", "")],
        )
        assert run(toy).objective is None

    def test_cancelled_from_outside(self, run):
        control = Control()

        def action(control, options):
            control.report_plan(plan(2))
            assert control.should_stop()
            return Outcome("interrupted")

        result = run(action, control=control, on_event=lambda event: control.cancel())
        assert (result.reason, result.exit_code, result.objective) == ("interrupted", 130, 2.0)


class TestInfeasible:
    def test_as_proved_by_a_method(self, run):
        result = run(report(outcome=Outcome("infeasible", infeasible=("the model has no solution",))))
        assert (result.status, result.exit_code, result.infeasible) == ("infeasible", 3, ("the model has no solution",))

    def test_a_verified_plan_refutes_it(self, run):
        result = run(report(plan(1), outcome=Outcome("infeasible", infeasible=("no solution",))))
        assert (result.status, result.exit_code, result.infeasible) == ("feasible", 5, ())
        assert result.messages == ("fake said that no plan exists, but a verified plan does; its word is discarded",)

    def test_a_heuristic_proves_nothing(self, run):
        result = run(report(outcome=Outcome("infeasible", infeasible=("no solution",))), kind="heuristic")
        assert (result.status, result.exit_code, result.infeasible) == ("unknown", 4, ())

    def test_proved_in_the_last_moment_it_is_still_proved(self, run):
        def action(control, options):
            while not control.should_stop():
                time.sleep(0.001)
            return Outcome("infeasible", infeasible=("no solution",))

        assert run(action, time_limit=0.01).status == "infeasible"

    def test_seen_at_a_glance_no_method_runs(self, run):
        class Hopeless(Toy):
            def precheck(self, instance, question):
                return ("7 bytes short",)

        result = run(Hopeless(Scripted("fake", fails(AssertionError("must not run")))))
        assert (result.status, result.exit_code, result.infeasible) == ("infeasible", 3, ("7 bytes short",))


class TestLimits:
    def test_time_limit(self, run):
        def action(control, options):
            control.report_plan(plan(2))
            while not control.should_stop():
                time.sleep(0.001)
            return Outcome("limit", "time")

        result = run(action, time_limit=0.02)
        assert (result.reason, result.limit, result.exit_code, result.objective) == ("limit", "time", 2, 2.0)

    def test_no_time_at_all(self, run):
        result = run(lambda control, options: Outcome("limit", "time"), time_limit=0)
        assert (result.status, result.limit, result.exit_code) == ("unknown", "time", 4)

    def test_a_step_gets_its_share_and_the_last_all_that_is_left(self, run):
        left = {}

        def note(name):
            def action(control, options):
                left[name] = control.remaining

            return action

        toy = Toy(
            Scripted("a", note("a")),
            Scripted("b", note("b")),
            steps=[Step("a", "", share=0.25), Step("b", "", share=0.1)],
        )
        run(toy, time_limit=100)
        assert 24 < left["a"] <= 25
        assert 99 < left["b"] <= 100
        run(toy)
        assert left == {"a": math.inf, "b": math.inf}

    def test_a_gap_asked_for_ends_the_climb(self, run):
        toy = Toy(
            Scripted("a", report(plan(2), bound=1.9)),
            Scripted("b", fails(AssertionError("must not run"))),
            steps=[Step("a", ""), Step("b", "")],
        )
        result = run(toy, gap=0.05)
        assert (result.status, result.exit_code, result.asked_gap) == ("feasible", 0, 0.05)
        assert result.gap == pytest.approx(0.05)

    def test_a_gap_not_met_is_not_zero(self, run):
        assert run(report(plan(2), bound=1.0), gap=0.05).exit_code == 2

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"time_limit": -1}, "time_limit is -1"),
            ({"time_limit": math.nan}, "time_limit is nan"),
            ({"gap": -0.1}, "gap is -0.1"),
            ({"gap": math.inf}, "gap is inf"),
            ({"threads": 0}, "threads is 0"),
            ({"seed": -1}, "seed is -1"),
            ({"seed": 2**31}, "seed is 2147483648"),
            ({"memory_limit": 0}, "memory_limit is 0"),
            ({"method": "fak"}, "has no method 'fak'; did you mean 'fake'?"),
            ({"solver": "hihgs"}, "there is no solver 'hihgs'; did you mean 'highs'?"),
            ({"objective": "makspan"}, "there is no objective 'makspan'; did you mean 'makespan'?"),
            ({"options": {"contigous": True}}, r"\$.question has the unknown key 'contigous'"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_what_has_no_meaning_is_refused(self, run, given, told):
        with pytest.raises(InputError, match=told):
            run(report(plan(1)), **given)


class TestHints:
    @staticmethod
    def take_hint(control, options):
        assert options.hint == plan(2)
        assert control.value == 2.0

    def test_a_valid_one_is_the_first_plan(self, run):
        result = run(self.take_hint, hint=plan(2))
        assert (result.objective, result.method, result.messages) == (2.0, "hint", ())

    def test_a_better_plan_replaces_it(self, run):
        result = run(report(plan(1), bound=1.0), hint=plan(2))
        assert (result.objective, result.status, result.method) == (1.0, "optimal", "fake")
        assert [entry[1] for entry in result.trajectory] == [2.0, 2.0, 1.0]

    @pytest.mark.parametrize("hint", [plan(3), plan(1, 1), Solution()], ids=["invalid", "too long", "empty"])
    def test_an_invalid_one_is_told_and_dropped(self, run, hint):
        def action(control, options):
            assert options.hint is None
            assert control.plan is None
            control.report_plan(plan(2))

        result = run(action, hint=hint)
        assert result.objective == 2.0
        assert result.messages[0].startswith("the hint is no valid plan and is not used: ")

    def test_it_is_never_a_constraint(self):
        instance = Instance.from_times([[3, 1], [2, 4], [2, 2]])
        for method in ("milp", "cpsat"):
            worst = hetopt.solve(instance, method=method, hint=Solution.assign([0, 1, 0]))
            assert (worst.status, worst.objective) == ("optimal", 3.0)


class TestClimb:
    def test_no_method_fits(self, run):
        with pytest.raises(InputError, match=r"no method of toy.sum fits this instance \(fake: too large\)"):
            run(Toy(Scripted("fake", report(), why_not="too large")))

    def test_the_method_asked_for_does_not_fit(self, run):
        with pytest.raises(InputError, match=r"method 'fake' of toy.sum does not fit this instance: too large"):
            run(Toy(Scripted("fake", report(), why_not="too large")), method="fake")

    def test_it_ends_when_value_and_bound_meet(self, run):
        toy = Toy(
            Scripted("a", report(plan(1), bound=1.0)),
            Scripted("b", fails(AssertionError("must not run"))),
            steps=[Step("a", "because"), Step("b", "")],
        )
        result = run(toy)
        assert (result.method, result.method_why) == ("a", "a: because")

    def test_plan_and_bound_from_two_methods(self, run):
        toy = Toy(
            Scripted("a", report(plan(1)), "heuristic"),
            Scripted("b", report(bound=1.0, proof="algorithm"), "relaxation"),
            steps=[Step("a", ""), Step("b", "")],
        )
        result = run(toy)
        assert (result.status, result.method, result.bound_proof) == ("optimal", "a, bound by b", "algorithm")

    def test_events_only_improve(self, run):
        seen = []
        result = run(report(plan(0), plan(2), plan(0), plan(2), plan(1), bound=0.5), on_event=seen.append)
        assert [event.objective for event in seen] == [None, 10.0, 2.0, 1.0]
        assert [entry[1:] for entry in result.trajectory] == [(e.objective, e.bound) for e in seen]
        seconds = [entry[0] for entry in result.trajectory]
        assert seconds == sorted(seconds)

    def test_facts_that_the_question_does_not_use_are_told(self, run):
        instance = toy_instance(due=[5.0], memory=[1.0], capacity=[2.0] * 4, tables={"setup": [[0]]})
        (sentence,) = run(report(), instance=instance).messages
        assert sentence == "the file also holds memory, due, tables.setup, which the question toy.sum does not use"


class TestBound:
    def test_only_what_bounds_is_run(self, run):
        toy = Toy(
            Scripted("exact", fails(AssertionError("must not run"))),
            Scripted("relaxed", report(bound=0.5), "relaxation"),
            Scripted("rounded", report(plan(2), bound=0.75), "approximation"),
            Scripted("greedy", fails(AssertionError("must not run")), "heuristic"),
        )
        result = run(toy, verb=hetopt.bound)
        assert (result.bound, result.objective, result.status) == (0.75, 2.0, "feasible")

    def test_a_method_asked_for(self, run):
        toy = Toy(Scripted("exact", report(plan(1), bound=1.0)), Scripted("relaxed", report(bound=0.5), "relaxation"))
        assert run(toy, verb=hetopt.bound, method="relaxed").bound == 0.5
        assert run(toy, verb=hetopt.bound, method="exact").bound == 1.0
        with pytest.raises(InputError, match="has no method 'relxed'"):
            run(toy, verb=hetopt.bound, method="relxed")

    def test_none_there(self, run):
        with pytest.raises(InputError, match=r"toy.sum has no relaxation that fits"):
            run(Toy(Scripted("exact", report())), verb=hetopt.bound)

    def test_the_method_asked_for_does_not_fit(self, run):
        with pytest.raises(InputError, match="does not fit this instance: too large"):
            run(Toy(Scripted("relaxed", report(), "relaxation", "too large")), verb=hetopt.bound, method="relaxed")


class TestOptionsThatPlayNoPart:
    instance = Instance.from_times([[3, 1], [2, 4], [2, 2]])

    def test_a_solver_for_an_algorithm(self, run):
        result = run(report(plan(1)), solver="highs", native={"presolve": "off"})
        assert result.messages == (
            "fake is run by an algorithm of its own; the solver 'highs' is not used",
            "fake is run by an algorithm of its own; the native options presolve are not used",
        )

    def test_a_linear_solver_for_a_constraint_model(self):
        result = hetopt.solve(self.instance, method="cpsat", solver="highs")
        assert result.messages == ("cpsat is run by CP-SAT; the solver 'highs' is not used",)
        assert hetopt.solve(self.instance, method="cpsat", solver="cpsat").messages == ()

    def test_a_solver_that_cannot(self):
        with pytest.raises(InputError, match="the solver 'glop' cannot take the milp model; these can: highs"):
            hetopt.solve(self.instance, method="milp", solver="glop")
        assert hetopt.bound(self.instance, method="lp").bound == 3.0

    @pytest.mark.parametrize(("method", "option"), [("milp", "presolv"), ("cpsat", "linearization_levl")])
    def test_a_native_option_that_does_not_exist(self, method, option):
        with pytest.raises(InputError, match=f"has no option '{option}'; the nearest is"):
            hetopt.solve(self.instance, method=method, native={option: 1})

    @pytest.mark.parametrize(("method", "option"), [("milp", "presolve"), ("cpsat", "linearization_level")])
    def test_a_native_option_with_a_value_that_does_not_exist(self, method, option):
        with pytest.raises(InputError, match="does not accept the value"):
            hetopt.solve(self.instance, method=method, native={option: "sideways"})


class TestCompare:
    toy = Toy(
        Scripted("a", report(plan(1), bound=0.5)),
        Scripted("b", fails(SolverError("died"), plan(2))),
        Scripted("c", report(), why_not="too large"),
    )

    def test_each_alone(self, run):
        seen = []
        results = run(self.toy, verb=hetopt.compare, on_result=lambda name, result: seen.append(name))
        assert list(results) == seen == ["a", "b"]
        assert (results["a"].objective, results["a"].bound) == (1.0, 0.5)
        assert (results["b"].objective, results["b"].bound, results["b"].exit_code) == (2.0, None, 5)

    def test_what_is_asked_for(self, run):
        assert list(run(self.toy, verb=hetopt.compare, methods=["b"])) == ["b"]
        for bad in ("c", "d"):
            with pytest.raises(InputError, match=f"'{bad}'"):
                run(
                    self.toy,
                    verb=hetopt.compare,
                    methods=["a", bad],
                    on_result=fails(AssertionError("checked too late")),
                )

    def test_cancelled_between_two(self, run):
        control = Control()
        results = run(self.toy, verb=hetopt.compare, control=control, on_result=lambda *_: control.cancel())
        assert list(results) == ["a"]


class TestQuestion:
    class Asking(Toy):
        options = (
            Option("contiguous", ("no", "yes"), "yes", ""),
            Option("stages", int, None, ""),
            Option("slack", float, 0.5, ""),
            Option("both", bool, False, ""),
            Option("weights", list, [], ""),
        )

    def ask(self, own=None, given=None):
        instance = Instance.from_times([[1.0] * 4], question={"objective": "toy", **(own or {})})
        return dict(self.Asking().question(instance, given))

    def test_defaults(self):
        assert self.ask() == {"contiguous": "yes", "stages": None, "slack": 0.5, "both": False, "weights": []}

    def test_the_callers_word_overrides_the_files(self):
        assert self.ask({"stages": 3, "both": True}, {"stages": 4})["stages"] == 4
        assert self.ask({"stages": 3, "both": True}, {"stages": 4})["both"] is True

    @pytest.mark.parametrize(
        ("name", "text", "value"),
        [
            ("stages", "4", 4),
            ("slack", "1", 1.0),
            ("slack", "2.5", 2.5),
            ("both", "true", True),
            ("weights", "[1,2]", [1, 2]),
            ("contiguous", "no", "no"),
        ],
    )
    def test_words_of_a_command_line(self, name, text, value):
        read = self.ask(given={name: text})[name]
        assert (read, type(read)) == (value, type(value))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("stages", 1.5), ("stages", True), ("stages", "many"), ("slack", "yes"), ("slack", True), ("both", 1),
            ("both", "maybe"), ("weights", 3), ("contiguous", "maybe"), ("contiguous", 3), ("slack", None),
        ],
    )  # fmt: skip
    def test_a_value_of_the_wrong_type_names_the_option(self, name, value):
        with pytest.raises(InputError, match=rf"\$.question.{name} is "):
            self.ask(given={name: value})

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_limit_is_finite(self, value):
        with pytest.raises(InputError, match=r"\$\.question\.budget is .*, expected a finite number"):
            hetopt.solve(Instance.from_times([[1.0]]), objective="budget-makespan", options={"budget": value})

    def test_an_unknown_option_names_the_nearest(self):
        with pytest.raises(InputError, match="unknown key 'stage'; did you mean 'stages'"):
            self.ask(given={"stage": 3})

    def test_another_objective_drops_the_files_options_that_it_does_not_know(self):
        instance = Instance.from_times([[1.0] * 4], question={"objective": "other", "stages": 3, "colour": "red"})
        question = self.Asking().question(instance, {"objective": "toy"})
        assert question["stages"] == 3
        assert question.to_json()["objective"] == "toy"
