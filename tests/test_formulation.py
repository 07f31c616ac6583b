"""How a linear or CP formulation is run, with solvers that answer anything at all."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import hetopt
from formulations.assignment.makespan import MILP
from hetopt import InputError, Instance, Solution, solvers
from hetopt.formulation import LinearFormulation, Option
from hetopt.linear import LinearModel
from hetopt.solvers import Answer, SolverError

# The optimum is 3: j1 alone on d0, j0 and j2 on d1. The LP gives 2.5, which integers round up to 3.
INSTANCE = Instance.from_times([[3, 1], [2, 4], [2, 2]])
MODEL = MILP().build(INSTANCE)


def point(*placement: int) -> np.ndarray:
    return MILP().encode(INSTANCE, MODEL, Solution.assign(placement))


BEST, WORSE = point(1, 0, 1), point(0, 1, 0)


class Fake:
    """An adapter that reports what it is told to and then answers, or raises, what it is told to."""

    name, capabilities = "fake", frozenset(("lp", "mip", "cp"))

    def __init__(self, answer, incumbents=(), bounds=()) -> None:
        self.answer, self.incumbents, self.bounds = answer, incumbents, bounds

    def solve(self, model, options, control):
        self.options, self.model = options, model
        for x in self.incumbents:
            options.on_incumbent(x)
        for bound in self.bounds:
            options.on_bound(bound)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def run(monkeypatch):
    def go(answer, incumbents=(), bounds=(), method="milp", **given):
        fake = answer if isinstance(answer, Fake) else Fake(answer, incumbents, bounds)
        monkeypatch.setattr(solvers, "get", lambda name: fake)
        return hetopt.solve(INSTANCE, method=method, **given)

    return go


def said(reason, **more) -> Answer:
    return Answer(reason, "fake", "1.0", reason, **more)


class TestPlans:
    def test_the_value_is_the_plans_not_the_solvers(self, run):
        result = run(said("optimal", x=WORSE, objective=1.0, bound=1.0))
        assert (result.objective, result.bound, result.status, result.verified) == (5.0, 1.0, "feasible", True)

    def test_a_point_that_is_no_plan(self, run):
        """A half here and a half there reads as a plan of its own, and that one is judged."""
        half = np.full(MODEL.n_columns, 0.5)
        result = run(said("optimal", x=half, objective=2.5, bound=2.5))
        assert result.verified
        assert result.objective == hetopt.verify(INSTANCE, result.solution).objective
        assert result.status == "feasible"

    def test_incumbents_count_when_the_answer_has_none(self, run):
        result = run(said("limit", limit="time"), incumbents=[WORSE, BEST, WORSE])
        assert (result.objective, result.limit, result.solver) == (3.0, "time", "fake 1.0")

    @pytest.mark.parametrize("x", [np.zeros(3), np.zeros((2, 2)), np.full(7, np.nan)], ids=["short", "square", "nan"])
    def test_a_point_of_another_shape_is_told(self, run, x):
        result = run(said("optimal", x=x, bound=3.0), incumbents=[BEST])
        assert (result.objective, result.verified) == (3.0, True)
        assert result.exit_code in (0, 5)

    def test_a_point_that_cannot_be_read_is_a_rejected_plan(self, run, monkeypatch):
        def unreadable(*_):
            raise ValueError("no stage is first")

        monkeypatch.setattr(MILP, "decode", unreadable)
        result = run(said("optimal", x=BEST, bound=3.0), incumbents=[BEST])
        assert (result.solution, result.bound, result.status) == (None, 3.0, "unknown")
        assert "the solver's point cannot be read as a plan: no stage is first" in result.messages[0]


class TestBounds:
    def test_a_bound_beyond_the_plan_is_discarded(self, run):
        result = run(said("optimal", x=BEST, bound=3.5))
        assert (result.bound, result.status) == (None, "feasible")
        assert "contradicts a verified plan" in result.messages[-1]

    def test_integers_round_a_solvers_bound_up_with_room_for_its_tolerance(self, run):
        assert run(said("limit", limit="time", bound=2.01)).bound == 3.0
        assert run(said("limit", limit="time", bound=2.0000001)).bound == 2.0
        assert run(said("limit", limit="time", bound=1.9999999)).bound == 2.0

    def test_bounds_come_in_as_they_are_found(self, run):
        events = []
        run(said("limit", limit="time"), bounds=[0.5, 1.5, 1.2, math.inf, math.nan, 2.5], on_event=events.append)
        assert [event.bound for event in events] == [1.0, 2.0, 3.0]

    @pytest.mark.parametrize("bound", [math.nan, math.inf, -math.inf])
    def test_no_number(self, run, bound):
        assert run(said("optimal", x=BEST, bound=bound)).bound is None

    @pytest.mark.parametrize(
        "dual",
        [
            [1e300] * 5,
            [-1e300] * 5,
            [0.0] * 5,
            [math.nan] * 5,
            [math.inf] * 5,
            [5.0, 5.0, 5.0, 5.0, 5.0],
            [1, 1, 1, -0.5, -0.5],
        ],
        ids=str,
    )
    def test_whatever_the_duals_the_replayed_bound_is_one(self, run, dual):
        answer = said("optimal", x=np.zeros(7), row_dual=np.array(dual, float))
        try:
            result = run(answer, method="lp")
        except ValueError as error:
            pytest.fail(f"not told as a failure of the solver: {error}")
        assert result.solution is None
        assert result.bound is None or result.bound <= 3.0
        if result.bound is not None:
            assert hetopt.verify(INSTANCE, result).bound_proof == "replayed"

    def test_a_proof_is_preferred_to_a_word_that_says_the_same(self, run):
        dual = solvers.get("highs").solve(MODEL.relax()).row_dual
        result = run(said("optimal", x=np.zeros(7), bound=2.5 + 1e-9, row_dual=dual), method="lp")
        assert (result.bound, result.bound_proof) == (3.0, "replayed")

    def test_an_lp_that_was_stopped_bounds_nothing_by_its_objective(self, run):
        result = run(said("limit", limit="time", x=np.zeros(7), bound=2.9), method="lp")
        assert (result.bound, result.solution) == (None, None)


class TestReasons:
    @pytest.mark.parametrize(
        ("reason", "status", "code"),
        [
            ("infeasible", "infeasible", 3),
            ("infeasible_or_unbounded", "unknown", 4),
            ("unbounded", "error", 5),
            ("error", "error", 5),
            ("limit", "unknown", 4),
        ],
    )
    def test_without_a_plan(self, run, reason, status, code):
        result = run(said(reason))
        assert (result.status, result.exit_code) == (status, code)

    @pytest.mark.parametrize("reason", ["infeasible", "unbounded", "error"])
    def test_with_a_plan_the_plan_stays(self, run, reason):
        result = run(said(reason), incumbents=[BEST])
        assert (result.objective, result.status, result.exit_code) == (3.0, "feasible", 5)
        assert result.messages

    def test_a_failure_tells_the_solvers_own_word_and_notes(self, run):
        result = run(said("error", notes=("the basis is singular",)))
        assert result.messages == ("milp: fake 1.0 ended with 'error' on the milp model; the basis is singular",)

    def test_infeasible_names_who_proved_it(self, run):
        assert run(said("infeasible")).infeasible == ("fake 1.0 proved that the milp model has no solution",)

    @pytest.mark.parametrize("error", [SolverError("it crashed"), RuntimeError("a bug"), MemoryError()], ids=repr)
    def test_it_raises(self, run, error):
        result = run(error, incumbents=[BEST], bounds=[1.0])
        assert (result.objective, result.bound, result.exit_code) == (3.0, 1.0, 5)

    @pytest.mark.parametrize("nonsense", [None, "optimal", 7, {}], ids=repr)
    def test_it_answers_something_else(self, run, nonsense):
        result = run(nonsense, incumbents=[BEST])
        assert (result.objective, result.exit_code) == (3.0, 5)
        assert "failed with" in result.messages[0]

    def test_an_option_it_does_not_take_is_the_callers_mistake(self, run):
        with pytest.raises(InputError, match="fake has no option 'x'"):
            run(ValueError("fake has no option 'x'"))


class TestWishes:
    def test_they_reach_the_solver(self, run):
        fake = Fake(said("limit", limit="time"))
        run(fake, threads=2, seed=7, gap=0.1, memory_limit=1 << 30, log_file="log", deterministic=True, native={"a": 1})
        told = fake.options
        assert (told.threads, told.seed, told.relative_gap, told.memory_limit) == (2, 7, 0.1, 1 << 30)
        assert (told.log_file, told.deterministic, told.native) == ("log", True, {"a": 1})

    def test_the_best_plan_so_far_is_the_hint(self, run):
        fake = Fake(said("limit", limit="time"))
        run(fake, hint=Solution.assign([0, 1, 0]))
        assert fake.options.hint.tolist() == WORSE.tolist()
        run(fake)
        assert fake.options.hint is None
        run(fake, hint=Solution.assign([0, 5, 0]))
        assert fake.options.hint is None

    def test_costs_far_from_one_are_brought_near_it(self, run, monkeypatch):
        tiny = Instance.from_times(np.array([[3.5, 1], [2, 4], [2, 2]]) * 2.0**-40)
        fake = Fake(said("limit", limit="time", bound=1.0))
        monkeypatch.setattr(solvers, "get", lambda name: fake)
        result = hetopt.solve(tiny, method="milp")
        assert 2.0**-10 <= fake.model.cost.max() <= 2.0**30
        scale = fake.model.cost.max() / MILP().build(tiny).cost.max()
        assert result.bound == pytest.approx(1.0 / scale)


class TestKinds:
    """A relaxation's points are no plans, a restriction's bounds are no bounds, and an exact LP's point is a plan."""

    @staticmethod
    def method(of_kind):
        class Whole(LinearFormulation):
            name, title, kind = "whole", "the makespan model", of_kind

            def build(self, instance, question=None):
                return MILP().build(instance, question)

            def decode(self, instance, model, x):
                assert self.kind != "relaxation"
                return MILP().decode(instance, model, x)

        return Whole()

    @pytest.mark.parametrize(
        ("kind", "objective", "bound"),
        [("exact", 3.0, 3.0), ("relaxation", None, 3.0), ("heuristic", 3.0, None), ("approximation", 3.0, None)],
    )
    def test_each(self, monkeypatch, kind, objective, bound):
        problem = hetopt.registry.problem("assignment.makespan")
        monkeypatch.setattr(type(problem), "methods", (self.method(kind),))
        result = hetopt.solve(INSTANCE, method="whole")
        assert (result.objective, result.bound) == (objective, bound)

    def test_an_exact_lp_gives_a_plan(self, monkeypatch):
        class Relaxed(LinearFormulation):
            name, title, kind = "relaxed", "an LP whose vertices are plans here", "exact"

            def build(self, instance, question=None):
                return MILP().build(instance, question).relax()

            def decode(self, instance, model, x):
                return MILP().decode(instance, model, x)

        problem = hetopt.registry.problem("assignment.makespan")
        monkeypatch.setattr(type(problem), "methods", (Relaxed(),))
        result = hetopt.solve(Instance.from_times([[3], [4]]), method="relaxed")
        assert (result.status, result.objective, result.bound_proof) == ("optimal", 7.0, "replayed")


def test_scaled_objectives_change_nothing_else():
    model = LinearModel("m")
    x = model.integer("x", 2, upper=3)
    model.rows("r", 1, [(0, x, 1.0)], upper=4)
    model.maximize(x, [1.0, 2.0], offset=5.0)
    scaled = model.with_scaled_objective(0.25)
    assert (scaled.cost.tolist(), scaled.offset, scaled.sense) == ([0.25, 0.5], 1.25, "max")
    assert scaled.integrality.all()
    assert (scaled.matrix != model.matrix).nnz == 0
    assert model.cost.tolist() == [1.0, 2.0]


def test_aliases_of_a_choice():
    option = Option("contiguous", ("ideals", "none"), "ideals", "", aliases={"true": "ideals", "false": "none"})
    assert [option.check(word) for word in (True, "false", "none", False)] == ["ideals", "none", "none", "none"]
    with pytest.raises(InputError):
        replace(option, aliases={}).check(True)
