"""What is made of a solver's nonsense, by a fake solver that answers whatever it is told to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from solver_cases import CASES

from hetopt.errors import InputError
from hetopt.linear import LinearModel
from hetopt.solvers import Answer, Options, SolverError, highs
from hetopt.solvers.adapter import Adapter
from hetopt.solvers.checks import dual_bound, may_be_unbounded


class Fake(Adapter):
    """Says what it was made to say."""

    name = "fake"
    capabilities = frozenset(("lp", "mip", "duals", "hint"))
    package = "numpy"
    distribution = "numpy"
    status_table = {"done": ("optimal", None)}  # noqa: RUF012

    def __init__(self, **said):
        self.said = said

    def version(self):
        return "1"

    def run(self, model, options, watch):
        if isinstance(self.said.get("error"), BaseException):
            raise self.said["error"]
        return Answer(**{"reason": "optimal", "solver": "fake", "version": "1", "status": "done", **self.said})


def knapsack() -> LinearModel:
    """max 10a + 7b + 6c, 5a + 4b + 3c <= 7 in binaries; optimum 13 at (0, 1, 1)."""
    return next(case for case in CASES if case.name == "knapsack").model


BEST = np.array([0.0, 1.0, 1.0])


def test_an_honest_answer_passes():
    answer = Fake(x=BEST, objective=13.0, bound=13.0).solve(knapsack())
    assert (answer.reason, answer.objective, answer.bound, answer.x.tolist()) == ("optimal", 13.0, 13.0, [0, 1, 1])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "says 'done' but gave no point"),
        ({"x": BEST[:2]}, r"a point of shape \(2,\), expected \(3,\)"),
        ({"x": np.array([0, np.nan, 1])}, "a point with values that are not finite"),
        ({"x": np.array([0, np.inf, 1])}, "a point with values that are not finite"),
        ({"x": np.array([1.0, 1, 0])}, "a point that breaks the model: row weight is violated by 2"),
        ({"x": np.array([0, 1, 2.0])}, r"breaks the model: bound x\[2\] is violated by 1"),
        ({"x": np.array([0, 0.5, 1])}, r"breaks the model: integrality x\[1\] is violated by 0.5"),
        ({"x": BEST, "objective": 14.0}, "says the objective is 14.0, but its point has 13.0"),
        ({"x": BEST, "objective": np.nan}, "says the objective is nan"),
        ({"x": BEST, "bound": 12.0}, "a bound of 12.0 that its own point with 13.0 refutes"),
        ({"x": BEST, "bound": np.nan}, "a bound that is not a number"),
        ({"x": BEST, "row_dual": np.zeros(2)}, r"duals of shape \(2,\)"),
        ({"x": BEST, "row_dual": np.array([np.nan])}, "not finite"),
        ({"x": BEST, "reason": "infeasible"}, "says 'done' but gave a point"),
        ({"error": RuntimeError("boom")}, "fake 1 failed: RuntimeError: boom"),
        ({"error": MemoryError()}, "fake 1 failed: MemoryError"),
    ],
)
def test_nonsense_is_an_error_that_says_what_is_wrong(said, message):
    with pytest.raises(SolverError, match=message):
        Fake(**said).solve(knapsack())


def test_the_objective_is_recomputed_and_duals_of_integers_are_dropped():
    answer = Fake(x=BEST, objective=13.0 + 1e-7, bound=13.0, row_dual=np.ones(1)).solve(knapsack())
    assert answer.objective == 13.0
    assert answer.row_dual is None


def test_near_integers_are_rounded_and_bounds_overstepped_a_little_are_restored():
    answer = Fake(x=np.array([-1e-9, 1 - 1e-6, 1 + 1e-9]), bound=13.0).solve(knapsack())
    assert answer.x.tolist() == [0.0, 1.0, 1.0]
    assert not np.signbit(answer.x).any()


def test_an_infinite_bound_is_no_bound():
    assert Fake(reason="limit", limit="time", bound=np.inf).solve(knapsack()).bound is None


def test_a_bound_beyond_the_value_by_a_tolerance_is_drawn_back_to_it():
    answer = Fake(x=BEST, bound=13.0 - 1e-6).solve(knapsack())  # an upper bound below the value proves nothing more
    assert answer.bound == 13.0


def test_optimal_with_a_bound_short_of_the_value_is_a_gap_limit():
    answer = Fake(x=BEST, bound=13.5).solve(knapsack())
    assert (answer.reason, answer.limit, answer.bound) == ("limit", "gap", 13.5)


def test_a_broken_point_at_a_limit_is_dropped_with_a_note_and_the_bound_is_kept():
    answer = Fake(reason="limit", limit="time", x=np.array([1.0, 1, 0]), bound=14.0).solve(knapsack())
    assert (answer.x, answer.objective, answer.bound) == (None, None, 14.0)
    assert "row weight is violated by 2" in answer.notes[0]


def big_switch() -> LinearModel:
    """min s, y <= 1e6 s, y >= 8: a solver's integer tolerance lets s = 8e-6 pass for 0."""
    model = LinearModel("switch")
    s, y = model.binary("s"), model.continuous("y", lower=8)
    model.rows("switch", (), [(0, [y, s], [1.0, -1e6])], upper=0)
    model.minimize(s)
    return model


def test_a_point_that_holds_only_before_rounding_is_an_error_not_an_optimum():
    answer = Fake(x=np.array([8e-6, 8.0]), bound=8e-6).solve(big_switch())
    assert (answer.reason, answer.x, answer.bound) == ("error", None, 8e-6)
    assert "holds only before its integers are rounded: then row switch is violated by 8" in answer.notes[0]


def test_an_unknown_entry_of_an_option_is_not_swallowed():
    with pytest.raises(InputError, match="hint has shape"):
        Fake(x=BEST).solve(knapsack(), Options(hint=np.zeros(2)))


def test_columns_and_rows_that_no_value_fits_are_named_without_asking_the_solver():
    model = knapsack()
    model.continuous("late", lower=5, upper=4)
    answer = Fake(error=AssertionError()).solve(model)
    assert answer.reason == "infeasible"
    assert answer.notes == ("late has lower bound 5 and upper bound 4: no value fits",)
    model = knapsack()
    model.rows("pair", 2, [], lower=[0, 2], upper=[1, 1])
    assert "pair[1] has lower bound 2 and upper bound 1" in Fake().solve(model).notes[0]


def test_a_row_without_entries_is_settled_without_asking_the_solver():
    model = knapsack()
    model.rows("nothing", 2, [], lower=[-1, 1])
    answer = Fake(error=AssertionError()).solve(model)
    assert answer.reason == "infeasible"
    assert answer.notes == ("nothing[1] has no entries, and 0 is not within its bounds",)


def test_a_model_without_columns_is_settled_by_its_rows():
    model = LinearModel()
    model.rows("r", 1, [], lower=1, upper=2)
    answer = Fake(error=AssertionError()).solve(model)
    assert (answer.reason, answer.notes) == ("infeasible", ("r[0] has no entries, and 0 is not within its bounds",))


def test_which_objectives_can_run_away():
    model = LinearModel()
    x = model.continuous("x", 2, lower=[-np.inf, 0], upper=[0, np.inf])
    for sense, cost, open_end in (
        ("min", [1, 0], True), ("min", [-1, 1], False), ("min", [0, -1], True), ("max", [1, -1], False),
        ("max", [-1, 0], True), ("max", [0, 1], True),
    ):  # fmt: skip
        getattr(model, f"{sense}imize")(x, cost)
        assert may_be_unbounded(model) is open_end


def test_dual_bound_by_hand():
    """max x + y + 1, x + 2y <= 4, 3x + y <= 6 with y = (1, 0): 4 + max of (x + y) - (x + 2y) = 4 - y, so 4 + 1."""
    model = CASES[0].model
    assert dual_bound(model, np.array([1.0, 0.0])) == 5.0
    assert dual_bound(model, np.array([0.4, 0.2])) == pytest.approx(3.8)
    assert dual_bound(model, np.array([0.1, 0.1])) is None  # y's reduced cost 0.7 points to infinity
    assert dual_bound(model, np.array([-1.0, 1.0])) is None  # so does a multiplier of the wrong sign


@given(st.integers(0, 10**6))
def test_any_duals_bound_the_optimum(seed):
    """Weak duality, over random boxed LPs and random multipliers, in both senses."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    model = LinearModel()
    x = model.continuous("x", columns, lower=-rng.integers(0, 4, columns), upper=rng.integers(0, 4, columns))
    a = rng.integers(-3, 4, (rows, columns))
    inside = a @ np.zeros(columns)
    model.rows(
        "r",
        rows,
        [(np.arange(rows)[:, None], x[None, :], a)],
        lower=np.where(rng.random(rows) < 0.5, inside - rng.integers(0, 3, rows), -np.inf),
        upper=np.where(rng.random(rows) < 0.5, inside + rng.integers(0, 3, rows), np.inf),
    )
    sense = "min" if rng.random() < 0.5 else "max"
    getattr(model, f"{sense}imize")(x, rng.integers(-3, 4, columns), offset=float(rng.integers(-3, 4)))
    optimum = highs.solve(model)
    assert optimum.reason == "optimal"
    bound = dual_bound(model, rng.integers(-2, 3, rows).astype(float))
    sign = 1 if sense == "min" else -1
    assert bound is None or sign * bound <= sign * optimum.objective + 1e-7
    assert dual_bound(model, optimum.row_dual) == pytest.approx(optimum.objective, abs=1e-6)
