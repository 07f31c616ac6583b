"""Small models with their optimum, primal and dual worked out by hand, and one check of an answer against all of it.

A case says what is known; :func:`verify` checks whatever the solver could give: value, feasibility, a unique optimal
point, the sign of duals, complementarity and the dual value. A new solver's tests are one line each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hetopt.linear import LinearModel
from hetopt.solvers import Answer

__all__ = ["CASES", "Case", "hard", "verify"]


@dataclass(frozen=True)
class Case:
    """A model and what is known of its answer; ``x`` and ``dual`` only where they are unique."""

    name: str
    build: Callable[[], LinearModel]
    reason: str
    objective: float | None = None
    x: tuple[float, ...] | None = None
    dual: tuple[float, ...] | None = None

    @property
    def model(self) -> LinearModel:
        return self.build()


def _two_rows_max() -> LinearModel:
    """max x + y + 1, x + 2y <= 4, 3x + y <= 6: corner (8/5, 6/5); duals solve y1 + 3 y2 = 1, 2 y1 + y2 = 1."""
    model = LinearModel("two-rows-max")
    x = model.continuous("x", 2)
    model.rows("r", 2, [([0, 0, 1, 1], [0, 1, 0, 1], [1, 2, 3, 1])], upper=[4, 6])
    model.maximize(x, offset=1)
    return model


def _cover_min() -> LinearModel:
    """min 2x + 3y - 1, x + y >= 4, x <= 3: corner (3, 1), the row's dual is y's cost."""
    model = LinearModel("cover-min")
    x = model.continuous("x", 2, upper=[3, np.inf])
    model.rows("cover", (), [(0, x, 1.0)], lower=4)
    model.minimize(x, [2, 3], offset=-1)
    return model


def _ranges() -> LinearModel:
    """min x - y, -2 <= x + y <= 6, x - 2y = -3, x >= -5, y free.

    x = 2y - 3 makes the objective y - 3, and x + y >= -2 makes 3y >= 1: y = 1/3, x = -7/3, value -8/3. The duals solve
    y1 + y2 = 1, y1 - 2 y2 = -1: (1/3, 2/3).
    """
    model = LinearModel("ranges")
    x = model.continuous("x", 2, lower=[-5, -np.inf])
    model.rows("range", (), [(0, x, 1.0)], lower=-2, upper=6)
    model.rows("equal", (), [(0, x, [1.0, -2.0])], lower=-3, upper=-3)
    model.minimize(x, [1, -1])
    return model


def _upper_side_max() -> LinearModel:
    """max 3x + 2y, 1 <= x + y <= 4, x <= 3, y >= 0: (3, 1), 11; the row's dual is y's profit 2."""
    model = LinearModel("upper-side-max")
    x = model.continuous("x", 2, upper=[3, np.inf])
    model.rows("range", (), [(0, x, 1.0)], lower=1, upper=4)
    model.maximize(x, [3, 2])
    return model


def _free_row() -> LinearModel:
    """min x, x >= 2 by its bound; a row without bounds and one without entries change nothing."""
    model = LinearModel("free-row")
    x = model.continuous("x", lower=2)
    model.rows("free", (), [(0, x, 1.0)])
    model.rows("nothing", (), [], lower=-1, upper=1)
    model.minimize(x)
    return model


def _no_rows() -> LinearModel:
    model = LinearModel("no-rows")
    model.maximize(model.continuous("x", 2, lower=-1, upper=[4, 3]), [1, -1])
    return model


def _infeasible() -> LinearModel:
    model = LinearModel("infeasible")
    x = model.continuous("x", 2)
    model.rows("least", (), [(0, x, 1.0)], lower=3)
    model.rows("most", (), [(0, x, 1.0)], upper=2)
    model.minimize(x)
    return model


def _unbounded() -> LinearModel:
    """max x + y, x - y >= 3: some solvers call this infeasible, because its dual is."""
    model = LinearModel("unbounded")
    x = model.continuous("x", 2)
    model.rows("r", (), [(0, x, [1, -1])], lower=3)
    model.maximize(x)
    return model


def _knapsack() -> LinearModel:
    """max 10a + 7b + 6c, 5a + 4b + 3c <= 7: b + c = 13 beats a = 10; the relaxation has 14."""
    model = LinearModel("knapsack")
    x = model.binary("x", 3)
    model.rows("weight", (), [(0, x, [5, 4, 3])], upper=7)
    model.maximize(x, [10, 7, 6])
    return model


def _mixed() -> LinearModel:
    """min 3n + z + 2, 2n + z >= 5.5, z <= 1, n integer: n = 3 with z = 0 costs 9, n = 2.25 is not allowed."""
    model = LinearModel("mixed")
    n = model.integer("n", upper=10)
    z = model.continuous("z", upper=1)
    model.rows("demand", (), [(0, [n, z], [2, 1])], lower=5.5)
    model.minimize([n, z], [3, 1], offset=2)
    return model


def _whole_numbers() -> LinearModel:
    """max 2x + 3y - 4, 3x + 4y <= 11, -2 <= x - y <= 1, x, y in 0..9: (1, 2) gives 8 - 4; (2, 1) gives 7 - 4."""
    model = LinearModel("whole-numbers")
    x = model.integer("x", 2, upper=9)
    model.rows("r", 2, [([0, 0, 1, 1], [0, 1, 0, 1], [3, 4, 1, -1])], lower=[-np.inf, -2], upper=[11, 1])
    model.maximize(x, [2, 3], offset=-4)
    return model


def _parity() -> LinearModel:
    """2x = 3 has no integer solution, though its relaxation has one."""
    model = LinearModel("parity")
    x = model.integer("x", upper=9)
    model.rows("odd", (), [(0, x, 2.0)], lower=3, upper=3)
    model.maximize(x)
    return model


def _unbounded_integers() -> LinearModel:
    model = LinearModel("unbounded-integers")
    x = model.integer("x", 2)
    model.rows("r", (), [(0, x, [1, -1])], lower=3)
    model.maximize(x)
    return model


def _infeasible_though_relaxation_is_unbounded() -> LinearModel:
    """2x = 1 with x integer and a free way to improve: infeasible, though the relaxation is unbounded."""
    model = LinearModel("parity-open")
    x = model.integer("x", upper=9)
    y = model.continuous("y")
    model.rows("odd", (), [(0, x, 2.0)], lower=1, upper=1)
    model.maximize(y)
    return model


def _crossed() -> LinearModel:
    model = LinearModel("crossed")
    x = model.integer("x", lower=2, upper=1)
    model.minimize(x)
    return model


def _no_columns() -> LinearModel:
    model = LinearModel("no-columns")
    model.rows("r", 1, [], lower=-1, upper=1)
    model.minimize([], [], offset=3)
    return model


CASES = [
    Case("two-rows-max", _two_rows_max, "optimal", 3.8, (1.6, 1.2), (0.4, 0.2)),
    Case("cover-min", _cover_min, "optimal", 8.0, (3, 1), (3,)),
    Case("ranges", _ranges, "optimal", -8 / 3, (-7 / 3, 1 / 3), (1 / 3, 2 / 3)),
    Case("upper-side-max", _upper_side_max, "optimal", 11.0, (3, 1), (2,)),
    Case("free-row", _free_row, "optimal", 2.0, (2,), (0, 0)),
    Case("no-rows", _no_rows, "optimal", 5.0, (4, -1), ()),
    Case("infeasible", _infeasible, "infeasible"),
    Case("unbounded", _unbounded, "unbounded"),
    Case("crossed-lp", lambda: _crossed().relax(), "infeasible"),
    Case("no-columns", _no_columns, "optimal", 3.0, ()),
    Case("knapsack", _knapsack, "optimal", 13.0, (0, 1, 1)),
    Case("mixed", _mixed, "optimal", 11.0, (3, 0)),
    Case("whole-numbers", _whole_numbers, "optimal", 4.0, (1, 2)),
    Case("parity", _parity, "infeasible"),
    Case("unbounded-integers", _unbounded_integers, "unbounded"),
    Case("parity-open", _infeasible_though_relaxation_is_unbounded, "infeasible"),
    Case("crossed", _crossed, "infeasible"),
]


def verify(case: Case, answer: Answer, tolerance: float = 1e-6) -> None:
    """Everything that must hold of an answer to a case."""
    model = case.model
    assert answer.reason == case.reason, answer
    if case.reason != "optimal":
        assert (answer.x, answer.objective, answer.bound, answer.row_dual) == (None, None, None, None)
        return
    scale = max(1.0, abs(case.objective))
    assert abs(answer.objective - case.objective) <= tolerance * scale, answer
    assert model.check(answer.x, tolerance=tolerance) == []
    sign = 1.0 if model.sense == "min" else -1.0
    assert answer.bound is not None
    assert sign * answer.bound <= sign * answer.objective
    assert abs(answer.bound - case.objective) <= tolerance * scale, answer
    if case.x is not None:
        np.testing.assert_allclose(answer.x, case.x, atol=10 * tolerance)
    if answer.row_dual is not None:
        _verify_dual(case, model, sign, answer, 10 * tolerance)


def _verify_dual(case: Case, model: LinearModel, sign: float, answer: Answer, tolerance: float) -> None:
    """Signs, complementary slackness, and the dual value, all from the definition of a dual in the model's sense."""
    y = sign * answer.row_dual
    reduced = sign * model.cost - model.matrix.T @ y
    activity = model.matrix @ answer.x
    for multiplier, value, low, high in (
        (y, activity, model.row_lower, model.row_upper),
        (reduced, answer.x, model.lower, model.upper),
    ):
        side = np.where(multiplier > tolerance, low, np.where(multiplier < -tolerance, high, value))
        np.testing.assert_allclose(value, side, atol=tolerance)  # infinite sides fail too
    if case.dual is not None:
        np.testing.assert_allclose(answer.row_dual, case.dual, atol=tolerance)


def hard(jobs: int = 100, machines: int = 15, seed: int = 1) -> LinearModel:
    """R||Cmax that no solver here proves in seconds, though all find plans in tenths of one; pure integer."""
    times = np.random.default_rng(seed).integers(10, 100, (jobs, machines)).astype(float)
    model = LinearModel("hard")
    x = model.binary("x", (jobs, machines))
    t = model.integer("makespan", upper=100 * jobs)
    model.rows("assign", jobs, [(np.arange(jobs)[:, None], x, 1.0)], lower=1, upper=1)
    model.rows("load", machines, [(np.arange(machines)[None, :], x, times), (np.arange(machines), t, -1.0)], upper=0)
    model.minimize(t)
    return model
