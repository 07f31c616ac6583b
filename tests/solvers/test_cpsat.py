"""Native programs of CP-SAT: points, bounds in the question's units, hints, determinism, and data it must refuse."""

from __future__ import annotations

import numpy as np
import pytest
from solver_cases import CASES, hard

from hetopt.errors import InputError
from hetopt.linear import LinearModel
from hetopt.solvers import Options, SolverError, cpsat
from hetopt.solvers.cpsat import CpProgram

cp_model = pytest.importorskip("ortools.sat.python.cp_model")


def two_machines(times=(3, 2, 2, 1)) -> CpProgram:
    """Makespan on two equal machines; total 8, so the optimum is 4 and the bound too. Literals first, then the makespan."""
    model = cp_model.CpModel()
    first = [model.new_bool_var(f"first{k}") for k in range(len(times))]
    makespan = model.new_int_var(0, sum(times), "makespan")
    model.add(sum(t * b for t, b in zip(times, first, strict=True)) <= makespan)
    model.add(sum(t * ~b for t, b in zip(times, first, strict=True)) <= makespan)
    model.minimize(makespan)
    return CpProgram(model, [*first, makespan], name="two-machines")


def test_a_program_gives_integers_in_the_order_of_its_variables():
    answer = cpsat.solve(two_machines())
    assert (answer.reason, answer.objective, answer.bound) == ("optimal", 4.0, 4.0)
    assert answer.x.dtype == np.int64
    assert answer.x[4] == 4
    assert np.dot([3, 2, 2, 1], answer.x[:4]) == 4


def test_bounds_and_values_are_turned_into_the_questions_units():
    """Times were doubled and rounded up: a bound b of the program proves (b - 4 tasks) / 2 at least."""
    program = two_machines()
    seen: list[float] = []
    program = CpProgram(program.model, program.variables, to_bound=lambda bound: (bound - 4) / 2)
    answer = cpsat.solve(program, Options(on_bound=seen.append))
    assert (answer.objective, answer.bound) == (0.0, 0.0)
    assert all(bound <= 0 for bound in seen)


def test_a_conversion_that_fails_is_an_error_and_not_a_crash():
    """It is called in a thread of CP-SAT's own first."""
    program = two_machines()
    program = CpProgram(program.model, program.variables, to_bound=lambda bound: 1 / 0)
    with pytest.raises(SolverError, match="ZeroDivisionError"):
        cpsat.solve(program)


def test_negated_literals_are_read_as_literals():
    model = cp_model.CpModel()
    a = model.new_bool_var("a")
    model.add(a == 1)
    assert cpsat.solve(CpProgram(model, [a, ~a])).x.tolist() == [1, 0]


def test_a_program_without_objective_is_optimal_without_values():
    model = cp_model.CpModel()
    x = model.new_int_var(2, 2, "x")
    answer = cpsat.solve(CpProgram(model, [x]))
    assert (answer.reason, answer.x.tolist(), answer.objective, answer.bound) == ("optimal", [2], None, None)


def test_an_infeasible_program():
    program = two_machines()
    program.model.add(program.variables[4] <= 3)
    answer = cpsat.solve(program)
    assert (answer.reason, answer.x, answer.bound) == ("infeasible", None, None)


def test_an_invalid_program_is_an_error_with_cpsats_reason():
    model = cp_model.CpModel()
    x = model.new_int_var(-(2**62), 2**62, "x")
    model.add(2**10 * x <= 5)
    with pytest.raises(SolverError, match="refuses the model 'program'"):
        cpsat.solve(CpProgram(model, [x]))


def test_a_hint_is_the_first_plan_and_replaces_older_hints():
    program = two_machines()
    program.model.add_hint(program.variables[4], 8)
    seen: list[list[int]] = []
    cpsat.solve(
        program,
        Options(
            hint=np.array([1, 1, 0, 0, 5]),
            on_incumbent=lambda x: seen.append(x.tolist()),
            native={"cp_model_presolve": False},
        ),
    )
    assert seen[0] == [1, 1, 0, 0, 5]
    assert seen[-1][4] == 4


def test_deterministic_runs_count_work_and_repeat_exactly():
    """The limit is hit before the search is over, and still both runs end alike."""
    model = hard(60, 10)
    options = Options(deterministic=True, time_limit=0.3, threads=2)
    one, two = cpsat.solve(model, options), cpsat.solve(model, options)
    assert (one.reason, one.limit) == ("limit", "time")
    assert one.x.tolist() == two.x.tolist()
    assert one.bound == two.bound


def test_native_options_of_every_kind():
    native = {
        "linearization_level": 2, "cp_model_presolve": True, "search_branching": "PORTFOLIO_SEARCH",
        "ignore_subsolvers": ["core", "lb_tree_search"], "name": "run",
    }  # fmt: skip
    assert cpsat.solve(two_machines(), Options(native=native)).objective == 4.0
    with pytest.raises(InputError, match="does not accept the value 'FASTEST' for its option 'search_branching'"):
        cpsat.solve(two_machines(), Options(native={"search_branching": "FASTEST"}))


def test_a_maximisation_keeps_its_sense_with_offset():
    whole = next(case for case in CASES if case.name == "whole-numbers").model
    seen: list[float] = []
    answer = cpsat.solve(whole, Options(on_bound=seen.append))
    assert (answer.objective, answer.bound) == (4.0, 4.0)
    assert all(bound >= 4 for bound in seen)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.continuous("late", upper=3), r"late is continuous, and CP-SAT knows integers only"),
        (lambda m: m.integer("wide"), r"wide has no finite bounds"),
        (lambda m: m.integer("odd", upper=2.5), r"odd has a bound that is not an integer"),
        (lambda m: m.rows("half", (), [(0, 0, 0.5)], upper=1), r"half has a coefficient that is not an integer"),
        (lambda m: m.rows("third", (), [(0, 0, 1.0)], upper=1 / 3), r"third has a bound that is not an integer"),
        (
            lambda m: m.rows("huge", (), [(0, 0, 2.0**60)], upper=1),
            r"huge has a coefficient that is not an integer below",
        ),
        (lambda m: m.maximize(m.columns("x"), [1, 0.1, 1]), r"x\[1\] has a cost that is not an integer"),
    ],
)
def test_a_linear_model_that_is_not_all_integer_is_refused_by_name(change, message):
    model = next(case for case in CASES if case.name == "knapsack").model
    change(model)
    with pytest.raises(SolverError, match=message):
        cpsat.solve(model)


def test_fractional_offsets_are_exact():
    model = LinearModel()
    model.minimize(model.integer("x", lower=-3, upper=3), 2, offset=0.125)
    answer = cpsat.solve(model)
    assert (answer.objective, answer.bound) == (-5.875, -5.875)


def test_a_run_that_ends_before_the_search_has_no_bound():
    """CP-SAT reports a bound of 0 then, which no plan of this maximisation is as low as."""
    model = cp_model.CpModel()
    x = [model.new_int_var(1, 9, f"x{k}") for k in range(300)]
    rng = np.random.default_rng(0)
    for _ in range(600):
        chosen = rng.choice(300, 5, replace=False)
        model.add(sum(int(w) * x[k] for w, k in zip(rng.integers(1, 9, 5), chosen, strict=True)) <= 60)
    model.maximize(sum(x))
    answer = cpsat.solve(CpProgram(model, x, sense="max"), Options(time_limit=1e-6))
    assert answer.x is None
    assert answer.bound is None
