"""The rounding-safe dual bound against exact rational arithmetic, and against the true optimum of small LPs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetopt.linear import LinearModel
from hetopt.verify.bounds import lp_dual_certificate, replay_lp_dual, safe_dual_bound


def model_of(a, row_lower, row_upper, cost, lower, upper, sense="min", offset=0.0) -> LinearModel:
    a = np.asarray(a, float)
    m, n = a.shape
    model = LinearModel("random")
    x = model.continuous("x", n, lower=lower, upper=upper)
    rows, _ = np.indices((m, n))
    model.rows("r", m, [(rows, np.broadcast_to(x, (m, n)), a)], lower=row_lower, upper=row_upper)
    (model.minimize if sense == "min" else model.maximize)(x, cost, offset=offset)
    return model


def exact_dual_value(model: LinearModel, dual) -> Fraction | float:
    """Formula (1) of the module in rational arithmetic, duals that lean on an infinite side taken as zero."""
    sign = 1 if model.sense == "min" else -1
    a = model.matrix.toarray()
    total = Fraction(sign * model.offset)
    y = []
    for v, low, high in zip(dual, model.row_lower, model.row_upper, strict=True):
        v = sign * float(v)
        side = low if v > 0 else high
        if v == 0 or math.isinf(side):
            y.append(Fraction(0))
            continue
        y.append(Fraction(v))
        total += Fraction(v) * Fraction(float(side))
    for j in range(model.n_columns):
        d = Fraction(sign * float(model.cost[j])) - sum(
            (Fraction(float(a[r, j])) * y[r] for r in range(model.n_rows)), Fraction(0)
        )
        if d == 0:
            continue
        side = float(model.lower[j] if d > 0 else model.upper[j])
        if math.isinf(side):
            return -sign * math.inf
        total += d * Fraction(side)
    return sign * total


def solve_square(rows: list[list[Fraction]], rhs: list[Fraction]) -> list[Fraction] | None:
    n = len(rhs)
    t = [[*row, b] for row, b in zip(rows, rhs, strict=True)]
    for k in range(n):
        pivot = next((r for r in range(k, n) if t[r][k] != 0), None)
        if pivot is None:
            return None
        t[k], t[pivot] = t[pivot], t[k]
        t[k] = [v / t[k][k] for v in t[k]]
        for r in range(n):
            if r != k and t[r][k] != 0:
                t[r] = [v - t[r][k] * w for v, w in zip(t[r], t[k], strict=True)]
    return [row[n] for row in t]


def exact_optimum(model: LinearModel) -> Fraction | None:
    """Optimum of an LP with a finite box by trying every vertex in rational arithmetic; None when it is infeasible."""
    n = model.n_columns
    a = model.matrix.toarray()
    planes = []
    for j in range(n):
        unit = [Fraction(int(k == j)) for k in range(n)]
        planes += [(unit, Fraction(float(model.lower[j]))), (unit, Fraction(float(model.upper[j])))]
    for r in range(model.n_rows):
        row = [Fraction(float(v)) for v in a[r]]
        planes += [
            (row, Fraction(float(side))) for side in (model.row_lower[r], model.row_upper[r]) if math.isfinite(side)
        ]
    cost = [Fraction(float(c)) for c in model.cost]
    best = None
    for chosen in itertools.combinations(planes, n):
        x = solve_square([p[0] for p in chosen], [p[1] for p in chosen])
        if x is None or not feasible(model, a, x):
            continue
        value = sum((c * v for c, v in zip(cost, x, strict=True)), Fraction(model.offset))
        if best is None or (value < best if model.sense == "min" else value > best):
            best = value
    return best


def feasible(model: LinearModel, a, x: list[Fraction]) -> bool:
    if any(not float(lo) <= v <= float(hi) for v, lo, hi in zip(x, model.lower, model.upper, strict=True)):
        return False
    for r in range(model.n_rows):
        activity = sum((Fraction(float(c)) * v for c, v in zip(a[r], x, strict=True)), Fraction(0))
        if not float(model.row_lower[r]) <= activity <= float(model.row_upper[r]):
            return False
    return True


def no_better_than(bound: float, truth, sense: str) -> bool:
    """Whether ``bound`` is a valid bound on ``truth``, compared without rounding."""
    if isinstance(truth, float):  # infinite
        return bound == truth
    if math.isinf(bound):
        return bound < 0 if sense == "min" else bound > 0
    return Fraction(bound) <= truth if sense == "min" else Fraction(bound) >= truth


@st.composite
def linear_programs(draw, scales=(1.0,), most_columns=3, boxed=True):
    n, m = draw(st.integers(1, most_columns)), draw(st.integers(1, 3))
    number = st.builds(
        lambda v, s: v * s,
        st.one_of(st.integers(-9, 9).map(float), st.floats(-9, 9).map(lambda v: round(v, 5)), st.floats(1, 9)),
        st.sampled_from(scales),
    )
    a = [[draw(number) for _ in range(n)] for _ in range(m)]
    lower = [draw(number) for _ in range(n)]
    upper = [low + abs(draw(number)) for low in lower]
    if not boxed:
        lower = [draw(st.sampled_from([low, -math.inf])) for low in lower]
        upper = [draw(st.sampled_from([high, math.inf])) for high in upper]
    row_lower, row_upper = [], []
    for _ in range(m):
        side, width = draw(number), abs(draw(number))
        kind = draw(st.sampled_from(["equal", "below", "above", "range", "free"]))
        row_lower.append(-math.inf if kind in ("below", "free") else side)
        row_upper.append({"equal": side, "below": side, "range": side + width}.get(kind, math.inf))
    return model_of(
        a, row_lower, row_upper, [draw(number) for _ in range(n)], lower, upper,
        draw(st.sampled_from(["min", "max"])), draw(number),
    )  # fmt: skip


SCALES = (1.0, 1e-9, 1e9, 1e-30, 1e30)


@settings(max_examples=250)
@given(linear_programs(), st.data())
def test_any_duals_give_a_bound_on_the_true_optimum(model, data):
    dual = np.array(data.draw(st.lists(st.floats(-5, 5), min_size=model.n_rows, max_size=model.n_rows)))
    bound = safe_dual_bound(model, dual)
    optimum = exact_optimum(model)
    if optimum is not None:
        assert no_better_than(bound, optimum, model.sense)


@settings(max_examples=250)
@given(linear_programs(), st.integers(-1, 1))
def test_a_solvers_duals_are_tight_and_perturbed_ones_stay_a_bound(model, direction):
    from hetopt import solvers

    answer = solvers.get("highs").solve(model)
    optimum = exact_optimum(model)
    if answer.reason != "optimal" or optimum is None:
        return
    dual = answer.row_dual * (1 + direction * 1e-7) + direction * 1e-9
    bound = safe_dual_bound(model, dual)
    assert no_better_than(bound, optimum, model.sense)
    assert abs(bound - float(optimum)) <= 1e-5 * max(
        1.0, abs(float(optimum)), float(abs(model.cost) @ abs(model.upper))
    )


@settings(max_examples=400)
@given(linear_programs(SCALES, most_columns=4, boxed=False), st.data())
def test_never_beyond_the_exact_dual_value(model, data):
    number = st.builds(lambda v, s: v * s, st.floats(-9, 9), st.sampled_from(SCALES))
    dual = np.array(data.draw(st.lists(number, min_size=model.n_rows, max_size=model.n_rows)))
    # Duals so small that products with them could underflow are dropped: any duals give a bound, also without these.
    truth = exact_dual_value(model, np.where(abs(dual) < 2.0**-500, 0.0, dual))
    bound = safe_dual_bound(model, dual)
    if isinstance(truth, float):  # infinite: the duals prove nothing, and nothing may come out
        assert bound == truth
    else:
        assert no_better_than(bound, truth, model.sense)


@settings(max_examples=200)
@given(linear_programs(), st.data())
def test_close_to_the_exact_dual_value_in_a_box(model, data):
    dual = np.array(data.draw(st.lists(st.floats(-5, 5), min_size=model.n_rows, max_size=model.n_rows)))
    truth, bound = exact_dual_value(model, dual), safe_dual_bound(model, dual)
    size = 1 + float(abs(model.cost) @ abs(np.maximum(abs(model.lower), abs(model.upper)))) + abs(float(truth))
    size += float(abs(dual) @ (abs(model.matrix) @ np.maximum(abs(model.lower), abs(model.upper))))
    assert abs(float(truth) - bound) <= 1e-12 * size


def test_cancellation_that_floating_point_hides():
    """The column's reduced cost is 1 - (1e16 + 1 - 1e16) = 0 exactly; computed in floating point it is 1 or more."""
    model = model_of([[1.0], [1.0], [1.0]], [1e16, 1.0, -1e16], [1e16, 1.0, -1e16], [1.0], [0.0], [1e9])
    dual = np.array([1e16, 1.0, -1e16])
    truth = exact_dual_value(model, dual)
    assert no_better_than(safe_dual_bound(model, dual), truth, "min")


def test_sums_of_tenths_are_never_rounded_up():
    """min x with x >= 0.1 ten times over: ten duals of 0.1 sum to just above 1 in exact arithmetic."""
    model = model_of([[1.0]] * 10, [0.1] * 10, [math.inf] * 10, [1.0], [0.0], [10.0])
    dual = np.full(10, 0.1)
    bound = safe_dual_bound(model, dual)
    assert no_better_than(bound, exact_dual_value(model, dual), "min")
    assert bound == pytest.approx(0.1, abs=1e-12)


def test_infinite_sides_prove_nothing():
    above = model_of([[1.0]], [-math.inf], [4.0], [-1.0], [0.0], [math.inf])
    assert safe_dual_bound(above, np.array([-2.0])) == pytest.approx(-8.0)  # d = 1 >= 0, priced at the lower bound 0
    assert safe_dual_bound(above, np.array([1.0])) == -math.inf  # leans on the missing lower side, then d = -1
    assert safe_dual_bound(above, np.zeros(1)) == -math.inf
    ceiling = model_of([[1.0]], [-math.inf], [4.0], [1.0], [0.0], [math.inf], sense="max")
    assert safe_dual_bound(ceiling, np.zeros(1)) == math.inf
    assert 4.0 <= safe_dual_bound(ceiling, np.array([2.0])) <= 8.0 + 1e-12


@pytest.mark.parametrize("upper", [1e250, math.inf])
def test_underflow_is_not_taken_for_zero(upper):
    """d = -1e-400 is worth -1e-150 on a column up to 1e250; taken for zero, the bound would be 1e-200 on an optimum of 0."""
    model = model_of([[1e-200]], [1.0], [math.inf], [0.0], [0.0], [upper])
    for dual in (1e-200, 1e-120, 1.0):
        assert no_better_than(safe_dual_bound(model, np.array([dual])), Fraction(0), "min")


@pytest.mark.parametrize("huge", [1e200, 1e308])
def test_overflow_proves_nothing_and_warns_of_nothing(huge):
    model = model_of([[huge, -huge]], [1.0], [math.inf], [1.0, 1.0], [0.0, 0.0], [huge, huge], offset=1.0)
    assert safe_dual_bound(model, np.array([huge])) == -math.inf
    many = model_of([[0.0]] * 4, [huge] * 4, [math.inf] * 4, [1.0], [0.0], [1.0])
    assert safe_dual_bound(many, np.full(4, 1.0)) <= 4 * huge
    flipped = model_of([[huge, -huge]], [1.0], [math.inf], [1.0, 1.0], [0.0, 0.0], [huge, huge], sense="max")
    assert safe_dual_bound(flipped, np.array([-huge])) == math.inf


def test_models_without_rows_or_columns():
    bare = LinearModel("bare")
    x = bare.continuous("x", 2, lower=[1.0, -3.0], upper=[5.0, 7.0])
    bare.minimize(x, [2.0, 1.0], offset=0.5)
    assert safe_dual_bound(bare, np.empty(0)) == pytest.approx(-0.5)
    empty = LinearModel("empty")
    empty.rows("r", 2, [], lower=-1, upper=1)
    assert safe_dual_bound(empty, np.array([1.0, -1.0])) == pytest.approx(-2.0)


class TestCertificates:
    """A stored certificate is data from a file: whatever it holds, it proves no more than its duals do."""

    model = model_of([[1.0, 2.0], [3.0, 1.0]], [4.0, -math.inf], [math.inf, 9.0], [1.0, 1.0], [0.0, 0.0], [9.0, 9.0])

    def test_round_trip(self):
        dual = np.array([0.5, 0.0])
        certificate = lp_dual_certificate("lp", dual)
        assert certificate == {"kind": "lp-dual", "method": "lp", "rows": [0], "values": [0.5]}
        assert replay_lp_dual(self.model, certificate) == safe_dual_bound(self.model, dual)
        assert replay_lp_dual(self.model, certificate) == pytest.approx(2.0)

    @pytest.mark.parametrize(
        "damage",
        [
            {"rows": None},
            {"rows": "all"},
            {"rows": [0, 1], "values": [1.0]},
            {"rows": [-1], "values": [1.0]},
            {"rows": [2], "values": [1.0]},
            {"rows": [2**70], "values": [1.0]},
            {"rows": [0], "values": [None]},
            {"rows": [0], "values": ["much"]},
            {"rows": [0], "values": [math.inf]},
            {"rows": [0], "values": [math.nan]},
            {"rows": [0], "values": [10**400]},
            {"rows": [[0], [0, 1]], "values": [1.0]},
            {"rows": {"0": 1}, "values": [1.0]},
        ],
        ids=str,
    )
    def test_damage_is_a_sentence(self, damage):
        certificate = {"kind": "lp-dual", "method": "lp", "rows": [0], "values": [0.5], **damage}
        with pytest.raises(ValueError, match="the lp-dual certificate"):
            replay_lp_dual(self.model, certificate)

    @pytest.mark.parametrize("gone", ["rows", "values"])
    def test_a_missing_part_is_a_sentence(self, gone):
        certificate = {"kind": "lp-dual", "method": "lp", "rows": [0], "values": [0.5]}
        del certificate[gone]
        with pytest.raises(ValueError, match="the lp-dual certificate"):
            replay_lp_dual(self.model, certificate)
