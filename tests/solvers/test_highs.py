"""What only the HiGHS adapter does: infeasible subsystems, interior point with crossover, bounds in the model's sense."""

from __future__ import annotations

import numpy as np
import pytest
from solver_cases import CASES, hard, verify

from hetopt.linear import LinearModel
from hetopt.solvers import Options, SolverError, highs

pytest.importorskip("highspy")


def overfull() -> LinearModel:
    """Three tasks of size 5, 6, 7 on devices with 8 and 9, and a row that has nothing to do with it."""
    model = LinearModel("overfull")
    x = model.binary("x", (3, 2), labels=(["a", "b", "c"], ["gpu0", "gpu1"]))
    model.rows("assign", 3, [(np.arange(3)[:, None], x, 1.0)], lower=1, upper=1, labels=(["a", "b", "c"],))
    size = np.array([[5.0], [6.0], [7.0]])
    model.rows("memory", 2, [(np.arange(2)[None, :], x, size)], upper=[8, 9], labels=(["gpu0", "gpu1"],))
    model.rows("idle", (), [(0, x[:, 0], 1.0)], upper=3)
    model.minimize(x)
    return model


def test_the_rows_that_cannot_hold_together_are_named():
    rows, columns = highs.iis(overfull())
    assert rows == ["assign[a]", "assign[b]", "assign[c]", "memory[gpu0]", "memory[gpu1]"]
    assert columns == []


def test_bounds_that_take_part_are_named():
    model = LinearModel()
    x = model.binary("x", 2)
    model.rows("free", (), [(0, x, [1, -1])], upper=2)
    model.rows("three", (), [(0, x, 1.0)], lower=3)
    model.minimize(x)
    assert highs.iis(model) == (["three"], ["x[0]", "x[1]"])


def test_a_subsystem_is_irreducible():
    """Without any one of its rows, the rest has a solution."""
    model = overfull()
    rows, _ = highs.iis(model)
    for left_out in rows:
        relaxed = overfull().relax()
        number = relaxed.row_names().index(left_out)
        relaxed.row_lower[number], relaxed.row_upper[number] = -np.inf, np.inf
        assert highs.solve(relaxed).reason == "optimal", left_out


def test_no_subsystem_of_a_feasible_relaxation():
    with pytest.raises(SolverError, match="found no infeasible set of rows in the linear relaxation of 'parity'"):
        highs.iis(next(case for case in CASES if case.name == "parity").model)


@pytest.mark.parametrize("solver", ["simplex", "ipm", "pdlp"])
def test_every_engine_for_linear_programs_gives_value_and_duals(solver):
    accuracy = 1e-4 if solver == "pdlp" else 1e-6
    for case in CASES[:4]:
        verify(case, highs.solve(case.model, Options(native={"solver": solver})), accuracy)


def test_interior_point_with_crossover_ends_in_a_vertex():
    """A vertex of an assignment LP with m machines has at most m fractional jobs; the face of optima has more."""
    model = hard(60, 6).relax()
    answer = highs.solve(model, Options(native={"solver": "ipm", "run_crossover": "on"}))
    share = answer.x[:-1].reshape(60, 6)
    assert ((share > 1e-7) & (share < 1 - 1e-7)).any(axis=1).sum() <= 6


def test_bounds_of_a_maximisation_come_from_above():
    model = hard(40, 8)
    model.maximize(model.columns("makespan"), -1.0)
    bounds: list[float] = []
    answer = highs.solve(model, Options(relative_gap=0.2, on_bound=bounds.append))
    assert answer.objective < 0
    assert answer.bound >= answer.objective
    assert all(bound >= answer.objective for bound in bounds)


def test_a_model_whose_numbers_are_out_of_range_is_refused_in_a_sentence():
    model = LinearModel("wild")
    x = model.continuous("x")
    model.rows("r", (), [(0, x, 1e300)], upper=1)
    model.minimize(x)
    with pytest.raises(SolverError, match="refused the model 'wild'"):
        highs.solve(model)


def test_coefficients_are_kept_down_to_what_highs_can_take_and_refused_below():
    """1e-10 x >= 1e-3 needs x = 1e7; HiGHS by its defaults drops the coefficient and calls the model infeasible."""
    model = LinearModel("tiny")
    x = model.continuous("x")
    model.rows("r", (), [(0, x, 1e-10)], lower=1e-3)
    model.minimize(x)
    assert highs.solve(model).objective == pytest.approx(1e7)
    model.rows("smaller", (), [(0, x, 1e-13)], lower=1)
    with pytest.raises(SolverError, match="takes the coefficient 1e-13 in smaller for zero"):
        highs.solve(model)


def test_a_coefficient_below_that_widens_its_row_by_what_its_term_can_be_worth():
    """1e-13 x + 1e3 y = z <= 5 with x in [2, 4]: without x's term z may be what is left, give or take."""
    model = LinearModel("tiny")
    x, y = model.continuous("x", lower=2, upper=4), model.binary("y", 1)
    z = model.continuous("z", upper=5)
    model.rows("sum", (), [(0, x, 1e-13), (0, y[0], 1e3), (0, z, -1.0)], lower=0, upper=0)
    model.rows("chosen", (), [(0, y[0], 1.0), (0, x, -1e-14)], lower=-1)
    model.minimize(z)
    before = model.matrix.data.copy()
    answer = highs.solve(model)
    assert answer.reason == "optimal"
    assert answer.bound <= 2e-13
    assert (model.matrix.data == before).all()


def test_a_loaded_model_is_the_model_in_the_callers_hands(capfd):
    model = hard(20, 4)
    solver = highs.load(model)
    assert (solver.getNumCol(), solver.getNumRow(), solver.getNumNz()) == (81, 24, 164)
    assert solver.getLp().col_cost_[-1] == 1.0
    assert capfd.readouterr().out == ""


def test_the_arrays_of_the_model_are_not_changed():
    model = hard(20, 4)
    before = [v.copy() for v in (model.matrix.data, model.lower, model.upper, model.cost, model.row_lower)]
    highs.solve(model, Options(time_limit=0.3))
    after = (model.matrix.data, model.lower, model.upper, model.cost, model.row_lower)
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
