"""Model files: what is written is read back by HiGHS as the same model, with names, from both formats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.errors import InputError
from hetopt.io.models import safe_names, write_model
from hetopt.linear import LinearModel
from hetopt.solvers import highs

highspy = pytest.importorskip("highspy")


def everything() -> LinearModel:
    """Each kind of row, bound and column, with names that neither format takes as they are."""
    model = LinearModel("gpu plan")
    x = model.binary("x", (2, 2), labels=(["layer 1", "layer-2"], ["gpu:0", "é"]))
    n = model.integer("n", 3, lower=[-2, 0, 1], upper=[7, np.inf, 1])
    y = model.continuous("y", 5, lower=[-np.inf, -np.inf, -3, 0.1, 2], upper=[np.inf, -1, np.inf, 0.3, 2])
    model.continuous("alone")
    model.rows("assign", 2, [(np.arange(2)[:, None], x, 1.0)], lower=1, upper=1)
    model.rows("range", (), [(0, [x[0, 0], n[0], y[0]], [1.5, -1, 1])], lower=-2.25, upper=6)
    model.rows("least", (), [(0, [n[1], y[1], n[0]], [1, 1, 0.1])], lower=0.1)
    model.rows("most", 2, [([0, 1, 1], [y[2], y[3], n[1]], [1e-7, 1e9, 1 / 3])], upper=[4, 1e12])
    model.rows("free", (), [(0, y, 1.0)])
    model.rows("empty", (), [], lower=-1, upper=0)
    model.minimize([*n, y[2], x[1, 1], y[0]], [0.1, 1, 1, 1 / 3, -2, 1], offset=2.5)
    return model


def read(path):
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(path)).name == "kOk"
    return solver


def solved(solver) -> float:
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.run()
    assert solver.getModelStatus().name == "kOptimal"
    return solver.getInfo().objective_function_value


def as_model(solver, *, maximize: bool) -> LinearModel:
    """What HiGHS has read, as a model of ours whose blocks are the single columns and rows in the file's order."""
    lp = solver.getLp()
    model = LinearModel()
    for k, name in enumerate(lp.col_names_):
        whole = len(lp.integrality_) > 0 and lp.integrality_[k].name == "kInteger"
        (model.integer if whole else model.continuous)(name, lower=lp.col_lower_[k], upper=lp.col_upper_[k])
    solver.ensureRowwise()
    matrix = solver.getLp().a_matrix_
    for k, name in enumerate(lp.row_names_):
        span = slice(matrix.start_[k], matrix.start_[k + 1])
        columns, values = np.array(matrix.index_[span], np.int64), np.array(matrix.value_[span])
        model.rows(name, (), [(0, columns, values)], lower=lp.row_lower_[k], upper=lp.row_upper_[k])
    (model.maximize if maximize else model.minimize)(
        np.arange(model.n_columns), np.array(lp.col_cost_), offset=lp.offset_
    )
    return model


def test_an_mps_file_is_the_same_model_number_by_number(tmp_path):
    model, path = everything(), tmp_path / "model.mps"
    write_model(model, path)
    got = as_model(read(path), maximize=False)
    kept = [k for k, name in enumerate(model.row_names()) if name != "free"]
    assert got.column_names() == safe_names(model.column_names())
    assert got.row_names() == [name for name in safe_names(model.row_names()) if name != "_free"]
    assert (got.matrix != model.matrix[kept]).nnz == 0
    for name in ("lower", "upper", "integrality", "cost"):
        assert getattr(got, name).tolist() == getattr(model, name).tolist(), name
    assert got.row_lower.tolist() == model.row_lower[kept].tolist()
    assert got.row_upper.tolist() == model.row_upper[kept].tolist()
    assert got.offset == model.offset


def test_an_lp_file_has_the_same_columns_by_name_and_two_rows_for_a_range(tmp_path):
    model, path = everything(), tmp_path / "model.lp"
    write_model(model, path)
    got = as_model(read(path), maximize=False)
    names = safe_names(model.column_names())
    assert sorted(got.column_names()) == sorted(names)
    order = [got.column_names().index(name) for name in names]
    for name in ("lower", "upper", "integrality", "cost"):
        assert getattr(got, name)[order].tolist() == getattr(model, name).tolist(), name
    assert got.offset == model.offset
    assert got.row_names() == [
        "assign(0)", "assign(1)", "range#lower", "range#upper", "least", "most(0)", "most(1)", "empty#lower", "empty#upper",
    ]  # fmt: skip
    wanted = [0, 1, 2, 2, 3, 4, 5, 7, 7]
    np.testing.assert_array_equal(got.matrix.toarray()[:, order], model.matrix.toarray()[wanted])


@pytest.mark.parametrize("suffix", [".mps", ".lp"])
def test_the_optimum_is_the_same(tmp_path, suffix):
    model, path = everything(), tmp_path / f"model{suffix}"
    write_model(model, path)
    assert solved(read(path)) == pytest.approx(highs.solve(model).objective, abs=1e-9)


@pytest.mark.parametrize("suffix", [".mps", ".lp"])
def test_a_maximisation_stays_one(tmp_path, suffix):
    model = LinearModel()
    x = model.integer("x", 2, upper=9)
    model.rows("r", (), [(0, x, [3, 4])], upper=11)
    model.maximize(x, [2, 3], offset=-4)
    path = tmp_path / f"model{suffix}"
    model.write(path)
    assert solved(read(path)) == 4.0


@pytest.mark.parametrize("suffix", [".mps", ".lp"])
@pytest.mark.parametrize("empty", ["costs", "rows"])
def test_models_without_costs_or_rows(tmp_path, suffix, empty):
    model = LinearModel()
    x = model.continuous("x", lower=1, upper=2)
    if empty == "costs":
        model.rows("r", (), [(0, x, 1.0)], lower=1.5)
    else:
        model.minimize(x)
    path = tmp_path / f"model{suffix}"
    write_model(model, path)
    solver = read(path)
    assert solved(solver) == (0.0 if empty == "costs" else 1.0)
    assert solver.getLp().col_names_ == ["x"]


@given(st.integers(0, 10**6))
def test_random_models_survive_both_formats(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    model = LinearModel()
    columns, rows = int(rng.integers(1, 6)), int(rng.integers(0, 5))
    low = rng.integers(-5, 3, columns).astype(float)
    high = low + rng.integers(0, 5, columns)
    x = model.integer("x", columns // 2, lower=low[: columns // 2], upper=high[: columns // 2])
    y = model.continuous("y", columns - columns // 2, lower=low[columns // 2 :], upper=high[columns // 2 :])
    where = np.concatenate([x, y])
    a = rng.choice([0, 0, 1, -2, 0.3, 7.25], (rows, columns))
    middle = a @ ((low + high) / 2)
    lower = np.where(rng.random(rows) < 0.4, -np.inf, middle - rng.choice([0, 0.1, 3], rows))
    upper = np.where(rng.random(rows) < 0.4, np.inf, middle + rng.choice([0, 0.2, 3], rows))
    model.rows("r", rows, [(np.arange(rows)[:, None], where[None, :], a)], lower=lower, upper=upper)
    getattr(model, rng.choice(["minimize", "maximize"]))(
        where, rng.integers(-3, 4, columns), offset=float(rng.normal())
    )
    expected = highs.solve(model)
    folder = tmp_path_factory.mktemp("models")
    for suffix in (".mps", ".lp"):
        write_model(model, folder / f"m{suffix}")
        solver = read(folder / f"m{suffix}")
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.run()
        if expected.reason == "infeasible":
            assert solver.getModelStatus().name == "kInfeasible"
        else:
            assert solver.getInfo().objective_function_value == pytest.approx(expected.objective, abs=1e-6)


def test_names_are_safe_unique_and_still_readable():
    names = ["x[layer 1,gpu-0]", "x[layer_1,gpu_0]", "e1", "end", "3d", "", "é", "memory", "X" * 300, "X" * 299]
    assert safe_names(names) == [
        "x(layer_1,gpu_0)", "x(layer_1,gpu_0)#2", "_e1", "_end", "_3d", "_", "_#2", "memory", "X" * 200, "X" * 200 + "#2",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["model.txt", "model"])
def test_an_unknown_suffix_is_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"the name must end in \.mps or \.lp"):
        write_model(everything(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    from hetopt.io import models

    path = tmp_path / "model.mps"
    path.write_text("the old one")

    def fail(*args):
        yield "half"
        raise RuntimeError("interrupted")

    monkeypatch.setattr(models, "_mps_bounds", fail)
    with pytest.raises(RuntimeError):
        write_model(everything(), path)
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="cannot write"):
        write_model(everything(), tmp_path / "missing" / "model.lp")
