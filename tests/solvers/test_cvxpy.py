"""Convex problems in CVXPY's own language: statuses that are not optimal, values, duals and a bound."""

from __future__ import annotations

import numpy as np
import pytest
from solver_cases import CASES, verify

from hetopt.errors import InputError
from hetopt.solvers import Options, SolverError
from hetopt.solvers import cvxpy as adapter

cp = pytest.importorskip("cvxpy")


def log_utility():
    """max log a + 2 log b with a + b <= 3: shares 1 and 2, value 2 log 2, price 1 of the row."""
    a, b = cp.Variable(name="a"), cp.Variable(name="b")
    row = a + b <= 3
    return cp.Problem(cp.Maximize(cp.log(a) + 2 * cp.log(b)), [row]), row


def test_a_convex_problem_by_hand():
    problem, row = log_utility()
    answer = adapter.solve_problem(problem, Options(time_limit=20))
    assert answer.reason == "optimal"
    assert answer.status == "optimal (CLARABEL)"
    assert answer.objective == pytest.approx(2 * np.log(2), abs=1e-6)
    assert 2 * np.log(2) <= answer.bound <= 2 * np.log(2) + 1e-6
    by_name = {v.name(): float(v.value) for v in problem.variables()}
    assert by_name["a"] == pytest.approx(1, abs=1e-4)
    assert answer.x == pytest.approx([by_name[v.name()] for v in problem.variables()])
    assert row.dual_value == pytest.approx(1, abs=1e-4)


def test_values_are_flattened_in_c_order():
    x = cp.Variable((2, 3))
    target = np.arange(6.0).reshape(2, 3)
    answer = adapter.solve_problem(cp.Problem(cp.Minimize(cp.sum_squares(x - target))))
    np.testing.assert_allclose(answer.x, np.arange(6), atol=1e-5)


def test_infeasible_and_unbounded():
    x = cp.Variable()
    assert adapter.solve_problem(cp.Problem(cp.Minimize(x), [x >= 2, x <= 1])).reason == "infeasible"
    assert adapter.solve_problem(cp.Problem(cp.Minimize(x), [x <= 1])).reason == "unbounded"


def test_a_run_cut_short_is_not_optimal():
    problem, _ = log_utility()
    answer = adapter.solve_problem(problem, Options(native={"max_iter": 2}))
    assert (answer.reason, answer.limit) == ("limit", "other")


def test_a_problem_that_is_not_convex_is_refused():
    x = cp.Variable()
    with pytest.raises(SolverError, match="does not follow the rules of disciplined convexity"):
        adapter.solve_problem(cp.Problem(cp.Maximize(cp.square(x)), [x <= 1]))


def test_a_solver_that_cannot_take_the_problem_is_an_error():
    problem, _ = log_utility()
    with pytest.raises(SolverError, match="failed with HIGHS"):
        adapter.solve_problem(problem, Options(native={"solver": "HIGHS"}))


def test_an_unknown_solver_lists_those_there_are():
    problem, _ = log_utility()
    with pytest.raises(InputError, match=r"cvxpy has no solver 'SOLVEIT' here; it has .*CLARABEL"):
        adapter.solve_problem(problem, Options(native={"solver": "SOLVEIT"}))


@pytest.mark.parametrize("solver", ["CLARABEL", "HIGHS", "SCS", "OSQP", "SCIPY"])
def test_linear_models_by_each_of_its_solvers(solver):
    if solver not in cp.installed_solvers():
        pytest.skip(f"{solver} is not installed")
    accuracy = 1e-3 if solver in ("SCS", "OSQP") else 1e-6
    for case in CASES[:4]:
        answer = adapter.solve(case.model, Options(native={"solver": solver}))
        assert answer.reason == case.reason
        assert answer.objective == pytest.approx(case.objective, abs=accuracy)
        np.testing.assert_allclose(answer.row_dual, case.dual, atol=10 * accuracy)
        if solver in ("CLARABEL", "HIGHS", "SCIPY"):
            verify(case, answer)


def test_options_a_solver_has_no_name_for_are_noted():
    answer = adapter.solve(CASES[0].model, Options(threads=2, seed=3, native={"solver": "SCS"}))
    assert answer.notes == (
        "cvxpy's SCS has no option for threads; it was ignored",
        "cvxpy's SCS has no option for seed; it was ignored",
    )
