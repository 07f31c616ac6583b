"""The linear model: assembly, names, the check of a point, relaxation, statistics, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.linear import LinearModel


def makespan() -> LinearModel:
    """Three jobs on two machines, times [[2, 3], [1, 4], [5, 2]]."""
    times = np.array([[2.0, 3.0], [1.0, 4.0], [5.0, 2.0]])
    model = LinearModel("makespan")
    x = model.binary("x", (3, 2), labels=(["a", "b", "c"], ["gpu", "cpu"]))
    t = model.continuous("makespan")
    model.rows("assign", 3, [(np.arange(3)[:, None], x, 1.0)], lower=1, upper=1, labels=(["a", "b", "c"],))
    model.rows(
        "load", 2, [(np.arange(2)[None, :], x, times), (np.arange(2), t, -1.0)], upper=0, labels=(["gpu", "cpu"],)
    )
    model.minimize(t)
    return model


def test_arrays_are_those_written_on_paper():
    model = makespan()
    assert model.matrix.toarray().tolist() == [
        [1, 1, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0],
        [2, 0, 1, 0, 5, 0, -1],
        [0, 3, 0, 4, 0, 2, -1],
    ]
    assert model.row_lower.tolist() == [1, 1, 1, -np.inf, -np.inf]
    assert model.row_upper.tolist() == [1, 1, 1, 0, 0]
    assert model.lower.tolist() == [0] * 7
    assert model.upper.tolist() == [1] * 6 + [np.inf]
    assert model.integrality.tolist() == [True] * 6 + [False]
    assert model.cost.tolist() == [0] * 6 + [1]
    assert (model.n_columns, model.n_rows, model.is_mip, model.sense) == (7, 5, True, "min")


def test_entries_that_meet_add_up_and_costs_too():
    model = LinearModel()
    x = model.continuous("x", 2)
    model.rows("r", 1, [(0, x[0], 1.0), ([0, 0], [x[0], x[1]], [2.0, 5.0])])
    model.maximize([0, 0, 1], [1.0, 2.0, 4.0], offset=7.0)
    assert model.matrix.toarray().tolist() == [[3.0, 5.0]]
    assert model.cost.tolist() == [3.0, 4.0]
    assert model.objective([1.0, 10.0]) == 3 + 40 + 7


def test_arrays_are_assembled_again_after_a_block_is_added():
    model = makespan()
    assert model.matrix.shape == (5, 7)
    y = model.integer("y", 2, lower=[-1, 2], upper=9)
    model.rows("link", (), [(0, y, [1, -1])], lower=-3)
    assert model.matrix.shape == (6, 9)
    assert model.matrix.toarray()[5].tolist() == [0] * 7 + [1, -1]
    assert model.lower.tolist()[7:] == [-1, 2]
    assert model.cost.tolist() == [0] * 6 + [1, 0, 0]


def test_names_are_read_back_from_labels():
    model = makespan()
    assert [model.column_name(k) for k in (0, 3, 6)] == ["x[a,gpu]", "x[b,cpu]", "makespan"]
    assert [model.row_name(k) for k in (1, 4)] == ["assign[b]", "load[cpu]"]
    assert model.column_names() == [model.column_name(k) for k in range(7)]
    assert model.row_names() == [model.row_name(k) for k in range(5)]
    assert model.columns("x").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert model.rows_of("load").tolist() == [3, 4]


def test_plain_numbers_stand_for_missing_labels_and_empty_blocks_have_no_names():
    model = LinearModel()
    model.binary("none", (0, 3))
    model.binary("y", (2, 2))
    assert model.column_names() == ["y[0,0]", "y[0,1]", "y[1,0]", "y[1,1]"]
    assert model.column_name(3) == "y[1,1]"
    with pytest.raises(IndexError, match="no column 4"):
        model.column_name(4)


def test_a_feasible_point_has_no_violations():
    assert makespan().check([1, 0, 1, 0, 0, 1, 3]) == []


def test_each_kind_of_violation_is_named_with_its_amount_largest_first():
    model = makespan()
    found = model.check([1, 1, 1, 0, 0, 1, 2])
    assert [(v.kind, v.name, v.amount) for v in found] == [
        ("row", "assign[a]", 1.0),
        ("row", "load[cpu]", 3.0),
        ("row", "load[gpu]", 1.0),
    ]
    found = model.check([0.5, 0.5, 1, 0, 0, 1, 3.5])
    assert {(v.kind, v.name) for v in found} == {("integrality", "x[a,gpu]"), ("integrality", "x[a,cpu]")}
    (found,) = model.check([1, 0, 1, 0, -1, 2, 7], most=1)
    assert (found.kind, found.name, found.amount) == ("bound", "x[c,gpu]", 1.0)
    assert str(found) == "bound x[c,gpu] is violated by 1"


def test_tolerance_is_relative_to_the_terms_of_a_row():
    model = LinearModel()
    x = model.continuous("x", 2)
    model.rows("bytes", (), [(0, x, [8e9, -1.0])], upper=0)
    assert model.check([1.0, 8e9 - 100]) == []  # 100 bytes of 8 GB are rounding
    assert [v.amount for v in model.check([1.0, 7e9])] == [1e9]


def test_a_point_of_the_wrong_length_or_not_finite_is_not_feasible():
    model = makespan()
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(7,\)"):
        model.check([1, 2, 3])
    (found,) = model.check([1, 0, np.nan, 0, 0, 1, 3])
    assert found.name == "x[b,gpu]"


def test_the_relaxation_shares_rows_but_not_integrality_or_fate():
    model = makespan()
    relaxed = model.relax()
    assert not relaxed.is_mip
    assert model.is_mip
    assert relaxed.column_names() == model.column_names()
    assert (relaxed.matrix != model.matrix).nnz == 0
    assert relaxed.check([0.5, 0.5, 1, 0, 0, 1, 3.5]) == []
    model.binary("later")
    assert (model.n_columns, relaxed.n_columns) == (8, 7)


def test_without_objective_everything_else_stays():
    model = makespan()
    bare = model.without_objective()
    assert (bare.is_mip, bare.cost.tolist(), bare.offset) == (True, [0] * 7, 0.0)
    assert (bare.matrix != model.matrix).nnz == 0
    assert model.cost.tolist() == [0] * 6 + [1]


def test_statistics_count_and_give_ranges_of_nonzeros():
    stats = makespan().statistics()
    assert (stats.columns, stats.integer_columns, stats.rows, stats.nonzeros) == (7, 6, 5, 14)
    assert stats.matrix_range == (1.0, 5.0)
    assert stats.cost_range == (1.0, 1.0)
    assert stats.bound_range == (1.0, 1.0)
    assert stats.rhs_range == (1.0, 1.0)
    assert LinearModel().statistics().matrix_range is None


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda m: m.binary("x"), "already has a column block named 'x'"),
        (lambda m: m.rows("load", 1, []), "already has a row block named 'load'"),
        (lambda m: m.rows("r", 1, [(1, 0, 1.0)]), "names row 1, but the block has 1 rows"),
        (lambda m: m.rows("r", 1, [(-1, 0, 1.0)]), "names row -1, but the block has 1 rows"),
        (lambda m: m.rows("r", 1, [(0, 7, 1.0)]), "names a column that does not exist"),
        (lambda m: m.rows("r", 1, [(0, 0, np.nan)]), "coefficient of row block 'r' is not finite"),
        (lambda m: m.rows("r", 1, [(0, 0, np.inf)]), "coefficient of row block 'r' is not finite"),
        (lambda m: m.rows("r", 2, [], upper=[1, 2, 3]), "does not fit the block's shape"),
        (lambda m: m.rows("r", 1, [], upper=np.nan), "bound of row block 'r' is not a number"),
        (lambda m: m.continuous("y", 2, lower=[0, np.nan]), "bound of column block 'y' is not a number"),
        (lambda m: m.continuous("y", 2, labels=(["a"],)), r"labels of block 'y' have lengths \[1\]"),
        (lambda m: m.minimize(0, np.inf), "cost of the objective is not finite"),
        (lambda m: m.minimize(0, 1, offset=np.nan), "cost of the objective is not finite"),
        (lambda m: m.minimize(7), "objective names column 7, but the model has 7 columns"),
    ],
)
def test_refusals_are_sentences_that_name_the_block(act, message):
    model = makespan()
    with pytest.raises(ValueError, match=message):
        act(model)
    assert (model.n_columns, model.n_rows) == (7, 5)  # nothing half added


def test_an_unknown_block_is_an_error_that_lists_the_blocks():
    with pytest.raises(KeyError, match="it has x, makespan"):
        makespan().columns("y")


@given(st.data())
def test_assembly_equals_a_loop(data):
    """A random model built in blocks is the same as one filled entry by entry."""
    model = LinearModel()
    n = data.draw(st.integers(1, 5))
    x = model.continuous("x", n)
    expected = np.zeros((0, n))
    for block in range(data.draw(st.integers(0, 3))):
        count = data.draw(st.integers(0, 3))
        part = np.zeros((count, n))
        terms = []
        for _ in range(data.draw(st.integers(0, 6)) if count else 0):
            r, c = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, n - 1))
            v = data.draw(st.integers(-3, 3))
            part[r, c] += v
            terms.append((r, x[c], float(v)))
        model.rows(f"b{block}", count, terms)
        expected = np.vstack([expected, part])
    assert model.matrix.shape == expected.shape
    assert model.matrix.toarray().tolist() == expected.tolist()
