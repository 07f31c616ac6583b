"""Finding solvers by name and by capability, without importing any."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hetopt import solvers
from hetopt.linear import LinearModel
from hetopt.solvers.adapter import Adapter

ROOT = Path(__file__).resolve().parents[2]


def test_the_default_for_linear_models_is_highs_and_for_programs_cpsat():
    assert solvers.with_capability("mip")[0] == "highs"
    assert solvers.with_capability("cp") == ["cpsat"]
    assert solvers.with_capability("convex") == ["cvxpy"]
    assert set(solvers.with_capability("lp", "duals")) >= {"highs", "glop", "pdlp", "cvxpy", "scipy"}
    assert solvers.with_capability("mip", "cp") == []


def test_an_unknown_solver_lists_those_there_are():
    with pytest.raises(
        ValueError, match="there is no solver 'cplex'; there are highs, cpsat, glop, pdlp, cvxpy, pulp, scipy"
    ):
        solvers.get("cplex")


def test_looking_around_imports_no_solver():
    code = """
import sys
import hetopt.solvers as solvers
solvers.available(), solvers.with_capability("lp"), solvers.overview()
heavy = {"highspy", "ortools", "cvxpy", "pulp", "clarabel", "scipy.optimize"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_modules_are_attributes_of_the_package():
    model = LinearModel()
    model.minimize(model.continuous("x", lower=2))
    assert solvers.highs.solve(model.relax()).objective == 2.0
    assert solvers.ortools_lp.glop(model).objective == 2.0
    with pytest.raises(AttributeError, match="no attribute 'gurobi'"):
        solvers.gurobi  # noqa: B018


def test_the_overview_says_what_is_there_and_how_to_get_what_is_not(monkeypatch):
    monkeypatch.setattr(type(solvers.get("glop")), "package", "no_such_package")
    rows = {row["name"]: row for row in solvers.overview()}
    assert list(rows) == solvers.names()
    assert rows["highs"]["missing"] is None
    assert rows["highs"]["version"][0].isdigit()
    assert rows["glop"]["missing"] == "glop needs the package ortools: pip install ortools"
    assert "glop" not in solvers.with_capability("lp")
    with pytest.raises(solvers.SolverMissing, match="pip install ortools"):
        solvers.get("glop").solve(LinearModel())


class Theirs(Adapter):
    """A third party's adapter."""

    name = "theirs"
    capabilities = frozenset(("lp",))
    package = "numpy"
    distribution = "numpy"
    status_table = {}  # noqa: RUF012

    def run(self, model, options, watch):
        return None


@pytest.fixture
def third_parties(monkeypatch):
    """Entry points of others: a good one, one that takes a built-in name, one that cannot be loaded."""
    found = [
        EntryPoint("theirs", f"{__name__}:Theirs", "hetopt.solvers"),
        EntryPoint("highs", f"{__name__}:Theirs", "hetopt.solvers"),
        EntryPoint("broken", "no_such_module:Solver", "hetopt.solvers"),
    ]
    monkeypatch.setattr(solvers.importlib.metadata, "entry_points", lambda group: found)
    solvers._entries.cache_clear()
    solvers.get.cache_clear()
    yield
    monkeypatch.undo()
    solvers._entries.cache_clear()
    solvers.get.cache_clear()


@pytest.mark.usefixtures("third_parties")
def test_third_parties_come_last_and_cannot_take_a_built_in_name():
    assert solvers.names()[-2:] == ["broken", "theirs"]
    assert type(solvers.get("theirs")).__name__ == "Theirs"
    assert type(solvers.get("highs")).__name__ == "Highs"


@pytest.mark.usefixtures("third_parties")
def test_an_adapter_that_cannot_be_loaded_says_so_and_disturbs_nobody():
    with pytest.raises(
        solvers.SolverError, match="the adapter of solver 'broken' cannot be loaded from no_such_module"
    ):
        solvers.get("broken")
    assert "highs" in solvers.with_capability("lp")
    assert "cannot be loaded" in solvers.available()["broken"]
    assert "broken" in {row["name"] for row in solvers.overview()}
