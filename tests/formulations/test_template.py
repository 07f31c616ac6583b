"""The file that new problems start from is itself a right problem: it loads as a user's own and keeps the contract."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
import test_contract as contract
from click.testing import CliRunner

import hetopt
from hetopt import Instance, Solution
from hetopt import registry as registered
from hetopt.cli import main
from hetopt.records import Device

TEMPLATE = Path(__file__).resolve().parents[2] / "formulations" / "_template.py"
NAME = "template.total"


@pytest.fixture
def loaded(monkeypatch):
    monkeypatch.setattr(registered, "_extra", {})
    registered.add_file(TEMPLATE)
    return registered.problem(NAME)


def test_it_is_not_shipped_as_a_problem():
    assert NAME not in [p.name for p in registered.problems()]


def test_it_answers_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(registered, "_extra", {})
    path = tmp_path / "i.json"
    hetopt.write(Instance.from_times([[3, 1], [2, 4], [2, 2]]), path)
    run = CliRunner().invoke(
        main, ["solve", str(path), "--formulation", str(TEMPLATE), "--objective", "total-time", "--json"]
    )
    assert run.exit_code == 0, run.output
    answer = json.loads(run.stdout)
    assert (answer["status"], answer["objective"], answer["problem"]) == ("optimal", 5.0, NAME)


@pytest.mark.parametrize("method", ["milp", "lp", "fastest"])
def test_by_hand(loaded, method):
    """One task only on the fast device: the task that loses least moves, 1 + 4 = 5 instead of 1 + 2 = 3."""
    devices = [Device(name="fast", max_tasks=1), Device(name="slow")]
    instance = Instance.from_times([[2, 4], [1, 9]], devices=devices, question={"objective": NAME})
    result = hetopt.solve(instance, method=method)
    expected = {"milp": (5.0, "optimal"), "lp": (None, "unknown"), "fastest": (11.0, "feasible")}
    assert (result.objective, result.status) == expected[method]
    if method != "fastest":
        assert result.bound == pytest.approx(5.0)


def test_what_it_does_not_know_it_refuses(loaded):
    grouped = Instance.from_graph([[1], [1]], [[0, 1]], group=["g", "g"])
    assert loaded.fits(grouped) == "it knows no groups"
    tight = Instance.from_times([[1, 1]] * 2, memory=[1, 1], capacity=[1, 1])
    assert loaded.fits(tight) == "it knows no memory"


def test_the_contract(loaded):
    """Every contract test that takes a problem's name, called for this one."""
    parts = {
        "name": [NAME],
        "seed": range(6),
        "method": [m.name for m in loaded.methods],
        "factor": [2.0**-30, 1000.0],
        "fact": [fact for fact in ("group", "release", "available_from") if fact not in loaded.uses],
    }
    called = 0
    for group in vars(contract).values():
        if not inspect.isclass(group) or not group.__name__.startswith("Test"):
            continue
        for name, test in vars(group).items():
            if not name.startswith("test_"):
                continue
            wanted = [key for key in inspect.signature(test).parameters if key != "self"]
            for values in contract.itertools.product(*[parts[key] for key in wanted]):
                if name == "test_documentation_names_it":
                    continue
                try:
                    test(group(), **dict(zip(wanted, values, strict=True)))
                except pytest.skip.Exception:
                    continue
                called += 1
    assert called >= 90


def test_a_plan_without_a_placement(loaded):
    instance = loaded.sample(0)
    assert loaded.evaluate(instance, loaded.question(instance), Solution()).violations == ("the plan has no placement",)
