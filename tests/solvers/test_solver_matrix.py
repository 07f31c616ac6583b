"""Every solver on every case its capabilities allow, and every common option with the same meaning everywhere."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from solver_cases import CASES, Case, hard, verify

from hetopt import solvers
from hetopt.errors import InputError
from hetopt.solvers import Options, SolverError

ACCURACY = {"pdlp": 1e-5}


def usable(*capabilities: str) -> list[str]:
    return solvers.with_capability(*capabilities)


def pairs() -> list[tuple[str, Case]]:
    found = [(name, case) for case in CASES for name in usable("mip" if case.model.is_mip else "lp")]
    whole = [case for case in CASES if case.name in ("knapsack", "whole-numbers", "parity", "crossed")]
    return found + [("cpsat", case) for case in whole if "cpsat" in usable("cp")]


@pytest.mark.parametrize(("name", "case"), pairs(), ids=lambda value: getattr(value, "name", value))
def test_solver_on_case(name, case):
    verify(case, solvers.get(name).solve(case.model, Options(time_limit=20)), ACCURACY.get(name, 1e-6))


def test_every_solver_meets_some_case():
    assert {name for name, _ in pairs()} == set(usable())


@pytest.mark.parametrize("name", usable("lp", "duals"))
def test_duals_are_there_for_solvers_that_promise_them(name):
    answer = solvers.get(name).solve(CASES[0].model)
    np.testing.assert_allclose(answer.row_dual, CASES[0].dual, atol=1e-5)


def solvable(name: str):
    """A model the solver can take: the knapsack, or the first LP."""
    knapsack = next(case for case in CASES if case.name == "knapsack")
    return (
        knapsack if "lp" not in solvers.get(name).capabilities or "mip" in solvers.get(name).capabilities else CASES[0]
    )


@pytest.mark.parametrize("name", usable())
def test_no_time_means_no_run(name):
    answer = solvers.get(name).solve(solvable(name).model, Options(time_limit=0))
    assert (answer.reason, answer.limit, answer.x, answer.status) == ("limit", "time", None, "not started")


@pytest.mark.parametrize("name", usable())
def test_an_unknown_native_option_names_the_nearest(name):
    known = {
        "highs": ("mip_rel_gapp", "mip_rel_gap"),
        "cpsat": ("linearisation_level", "linearization_level"),
        "glop": ("max_number_of_iteration", "max_number_of_iterations"),
        "pdlp": ("termination_criterion", "termination_criteria"),
        "cvxpy": ("mip_rel_gapp", "mip_rel_gap"),
        "pulp": ("gapRell", "gapRel"),
        "scipy": ("node_limits", "node_limit"),
    }
    wrong, right = known[name]
    with pytest.raises(InputError, match=f"no option '{wrong}'; the nearest is '{right}'"):
        solvers.get(name).solve(solvable(name).model, Options(native={wrong: 1}))


@pytest.mark.parametrize("name", usable())
def test_a_native_value_of_the_wrong_kind_is_refused(name):
    known = {
        "highs": "mip_rel_gap", "cpsat": "linearization_level", "glop": "max_number_of_iterations",
        "pdlp": "num_threads",
    }  # fmt: skip
    if name not in known:
        pytest.skip(f"{name} passes values on as they are")
    with pytest.raises(InputError, match="does not accept"):
        solvers.get(name).solve(solvable(name).model, Options(native={known[name]: "many"}))


@pytest.mark.parametrize("name", usable())
def test_a_hint_of_the_wrong_length_is_refused(name):
    with pytest.raises(InputError, match=r"hint has shape \(1,\), expected"):
        solvers.get(name).solve(solvable(name).model, Options(hint=np.zeros(1)))


@pytest.mark.parametrize("name", usable())
def test_what_a_solver_cannot_honour_is_noted(name):
    adapter, case = solvers.get(name), solvable(name)
    hint = np.zeros(case.model.n_columns)
    answer = adapter.solve(case.model, Options(hint=hint, memory_limit=2**40, deterministic=True))
    verify(case, answer, ACCURACY.get(name, 1e-6))
    said = " ".join(answer.notes)
    assert ("start hint" in said) == ("hint" not in adapter.capabilities)
    assert ("memory limit" in said) == ("memory_limit" not in adapter.capabilities)
    assert ("same answer" in said) == ("deterministic" not in adapter.capabilities)


@pytest.mark.parametrize("name", [*usable("mip"), "cpsat"])
def test_the_time_limit_ends_a_hard_model_with_plan_and_bound(name):
    model = hard()
    answer = solvers.get(name).solve(model, Options(time_limit=1.5))
    assert (answer.reason, answer.limit) == ("limit", "time"), answer
    assert answer.seconds < 6
    assert answer.x is None or model.check(answer.x) == []
    if name != "pulp":  # CBC's bound is not handed on by PuLP
        assert answer.bound is not None
        assert 90 < answer.bound <= 109  # 109 has been reached, 105 is the bound of the relaxation rounded up


@pytest.mark.parametrize("name", [*usable("mip"), "cpsat"])
def test_a_gap_that_was_asked_for_is_met_but_not_called_optimal(name):
    model = hard(40, 8)
    answer = solvers.get(name).solve(model, Options(relative_gap=0.5, time_limit=20))
    assert answer.reason == "limit"
    assert answer.limit in ("gap", "time" if name == "pulp" else "gap")
    assert model.check(answer.x) == []
    if answer.bound is not None:
        assert answer.objective - answer.bound <= 0.5 * answer.objective


@pytest.mark.parametrize("name", usable("hint"))
def test_a_hint_gives_the_first_incumbent(name):
    """The solver may look at no more than the hint, so its plan is the hint's or better."""
    model = hard(30, 6)
    hint = np.zeros(model.n_columns)
    times = model.matrix[30:, :-1].toarray().reshape(6, 30, 6).max(axis=0)
    best = times.argmin(axis=1)
    hint[np.arange(30) * 6 + best] = 1
    hint[-1] = max(times[np.arange(30), best][best == m].sum() for m in range(6))
    native = {
        "highs": {"mip_max_nodes": 0, "mip_heuristic_effort": 0.0, "presolve": "off"},
        "cpsat": {"stop_after_first_solution": True, "cp_model_presolve": False},
        "pulp": {"maxNodes": 0},
    }[name]
    seen: list[float] = []
    answer = solvers.get(name).solve(
        model, Options(hint=hint, native=native, time_limit=20, on_incumbent=lambda x: seen.append(model.objective(x)))
    )
    assert answer.objective <= model.objective(hint)
    if name != "pulp":
        assert seen[0] == model.objective(hint)


@pytest.mark.parametrize("name", usable("hint"))
def test_an_infeasible_hint_harms_nothing(name):
    case = next(case for case in CASES if case.name == "knapsack")
    verify(case, solvers.get(name).solve(case.model, Options(hint=np.ones(3))))


@pytest.mark.parametrize("name", [name for name in usable("hint") if name != "pulp"])
def test_a_hint_may_leave_values_open(name):
    case = next(case for case in CASES if case.name == "knapsack")
    verify(case, solvers.get(name).solve(case.model, Options(hint=np.array([0, np.nan, 1]))))


@pytest.mark.parametrize("name", usable("events"))
def test_events_come_in_the_callers_thread_and_improve(name):
    import threading

    model, here = hard(60, 10), threading.get_ident()
    values: list[float] = []
    bounds: list[float] = []

    def incumbent(x):
        assert threading.get_ident() == here
        assert model.check(x) == []
        values.append(model.objective(x))

    answer = solvers.get(name).solve(
        model, Options(time_limit=2, on_incumbent=incumbent, on_bound=lambda bound: bounds.append(bound))
    )
    assert len(values) >= 2
    assert all(b < a for a, b in pairwise(values))
    assert values[-1] == answer.objective
    assert bounds
    assert max(bounds) <= answer.bound + 1e-9 <= answer.objective + 1e-9


@pytest.mark.parametrize("name", usable("deterministic"))
def test_the_same_run_twice_gives_the_same_answer(name):
    model = hard(14, 4) if "mip" in solvers.get(name).capabilities or name == "cpsat" else hard(60, 8).relax()
    native = {"cpsat": {"max_number_of_conflicts": 2000}, "highs": {"mip_max_nodes": 30}, "scipy": {"node_limit": 30}}
    given = native.get(name, {})
    options = Options(deterministic=True, seed=7, native=given, time_limit=60)
    one, two = (solvers.get(name).solve(model, options) for _ in range(2))
    assert (one.reason, one.limit, one.objective, one.bound) == (two.reason, two.limit, two.objective, two.bound)
    assert one.x.tolist() == two.x.tolist()


@pytest.mark.parametrize("name", usable())
def test_the_log_goes_to_the_file_and_nowhere_else(name, tmp_path, capfd):
    path = tmp_path / "solver.log"
    answer = solvers.get(name).solve(solvable(name).model, Options(log_file=str(path)))
    assert answer.reason == "optimal"
    assert capfd.readouterr().out == ""
    if solvers.get(name).writes_log:
        assert path.read_text().strip()
    else:
        assert any("log" in note for note in answer.notes)


@pytest.mark.parametrize("name", usable())
def test_a_log_file_that_cannot_be_written_is_refused(name, tmp_path):
    with pytest.raises(InputError, match=r"cannot write the log file .*: No such file or directory"):
        solvers.get(name).solve(solvable(name).model, Options(log_file=str(tmp_path / "missing" / "x.log")))


@pytest.mark.parametrize("name", [name for name in usable() if "mip" not in solvers.get(name).capabilities])
def test_models_beyond_a_solvers_capabilities_are_refused_by_name(name):
    case = next(case for case in CASES if case.name == "mixed")
    with pytest.raises(SolverError, match=f"{name} cannot"):
        solvers.get(name).solve(case.model)


@pytest.mark.parametrize("name", [name for name in usable("mip") if name not in ("pulp",)])
def test_two_threads_are_accepted(name):
    case = next(case for case in CASES if case.name == "whole-numbers")
    verify(case, solvers.get(name).solve(case.model, Options(threads=2)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"time_limit": -1.0}, "time_limit is -1.0"),
        ({"time_limit": float("nan")}, "time_limit is nan"),
        ({"relative_gap": -0.1}, "relative_gap is -0.1"),
        ({"relative_gap": float("nan")}, "relative_gap is nan"),
        ({"threads": 0}, "threads is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"memory_limit": 0}, "memory_limit is 0"),
    ],
)
def test_options_without_meaning_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        Options(**given)
