"""Each entry of each status table, and words of solvers that really say them.

The tables are written out a second time here, by a person: a status that claims a proof must be one, and every word
a solver's package defines must be in its table.
"""

from __future__ import annotations

import numpy as np
import pytest
from solver_cases import CASES, hard

from hetopt import solvers
from hetopt.linear import LinearModel
from hetopt.solvers import Options, SolverError

EXPECTED = {
    "highs": {
        "kNotset": "error", "kLoadError": "error", "kModelError": "error", "kPresolveError": "error",
        "kSolveError": "error", "kPostsolveError": "error", "kModelEmpty": "optimal", "kOptimal": "optimal",
        "kInfeasible": "infeasible", "kUnboundedOrInfeasible": "infeasible_or_unbounded", "kUnbounded": "unbounded",
        "kObjectiveBound": "limit objective", "kObjectiveTarget": "limit objective", "kTimeLimit": "limit time",
        "kIterationLimit": "limit iterations", "kUnknown": "limit other", "kSolutionLimit": "limit nodes",
        "kInterrupt": "interrupted", "kMemoryLimit": "limit memory", "kHighsInterrupt": "interrupted",
    },
    "cpsat": {
        "OPTIMAL": "optimal", "FEASIBLE": "limit other", "INFEASIBLE": "infeasible", "UNKNOWN": "limit other",
        "MODEL_INVALID": "error",
    },
    "glop": {
        "TERMINATION_REASON_OPTIMAL": "optimal", "TERMINATION_REASON_INFEASIBLE": "infeasible",
        "TERMINATION_REASON_UNBOUNDED": "unbounded",
        "TERMINATION_REASON_INFEASIBLE_OR_UNBOUNDED": "infeasible_or_unbounded",
        "TERMINATION_REASON_IMPRECISE": "limit other", "TERMINATION_REASON_NUMERICAL_ERROR": "error",
        "TERMINATION_REASON_OTHER_ERROR": "error", "LIMIT_UNDETERMINED": "limit other",
        "LIMIT_ITERATION": "limit iterations", "LIMIT_TIME": "limit time", "LIMIT_NODE": "limit nodes",
        "LIMIT_SOLUTION": "limit other", "LIMIT_MEMORY": "limit memory", "LIMIT_OBJECTIVE": "limit objective",
        "LIMIT_CUTOFF": "limit objective", "LIMIT_NORM": "limit other", "LIMIT_INTERRUPTED": "interrupted",
        "LIMIT_SLOW_PROGRESS": "limit other", "LIMIT_OTHER": "limit other",
    },
    "cvxpy": {
        "optimal": "optimal", "optimal_inaccurate": "limit other", "infeasible": "infeasible",
        "infeasible_inaccurate": "limit other", "unbounded": "unbounded", "unbounded_inaccurate": "limit other",
        "infeasible_or_unbounded": "infeasible_or_unbounded", "user_limit": "limit other", "solver_error": "error",
    },
    "pulp": {
        "Optimal, optimal solution found": "optimal", "Optimal, solution found": "limit other",
        "Not Solved, no solution found": "limit other", "Not Solved, no solution exists": "limit other",
        "Not Solved, solution found": "limit other", "Infeasible, no solution found": "infeasible",
        "Infeasible, no solution exists": "infeasible", "Unbounded, solution is unbounded": "unbounded",
        "Unbounded, no solution found": "unbounded", "Undefined, no solution found": "limit other",
        "Undefined, no solution exists": "limit other", "NotSolved": "limit other", "Optimal": "optimal",
        "Infeasible": "infeasible", "Unbounded": "unbounded", "Undefined": "limit other", "TimeLimit": "limit time",
        "MemoryLimit": "limit memory", "NodeLimit": "limit nodes", "GapLimit": "limit gap",
        "IterationLimit": "limit iterations", "SolutionLimit": "limit other", "Interrupted": "interrupted",
        "Stopped": "limit other", "NumericalError": "error",
    },
    "scipy": {
        "0": "optimal", "1": "limit other", "2": "infeasible", "3": "unbounded", "4": "error",
        "4, HiGHS 9": "infeasible_or_unbounded", "4, HiGHS 11": "limit objective", "4, HiGHS 12": "limit objective",
        "4, HiGHS 15": "limit other", "4, HiGHS 16": "limit nodes", "4, HiGHS 18": "limit memory",
    },
}  # fmt: skip
EXPECTED["pdlp"] = EXPECTED["glop"]


@pytest.mark.parametrize(
    ("name", "status", "meaning"), [(n, s, m) for n, table in EXPECTED.items() for s, m in table.items()]
)
def test_status_means(name, status, meaning):
    reason, limit = solvers.get(name).verdict(status)
    assert " ".join(filter(None, [reason, limit])) == meaning


@pytest.mark.parametrize("name", solvers.names())
def test_no_entry_is_without_a_test_and_an_unknown_word_is_an_error(name):
    assert set(solvers.get(name).status_table) == set(EXPECTED[name])
    with pytest.raises(SolverError, match=f"{name} .* ended with an unknown status 'kSurprise'"):
        solvers.get(name).verdict("kSurprise")


def test_every_word_of_highs_is_in_its_table():
    highspy = pytest.importorskip("highspy")
    assert set(highspy.HighsModelStatus.__members__) == set(EXPECTED["highs"])


def test_every_word_of_cpsat_is_in_its_table():
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    words = ("OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN", "MODEL_INVALID")
    assert {getattr(cp_model, word).name for word in words} == set(EXPECTED["cpsat"])


def test_every_word_of_mathopt_is_in_its_table():
    result_pb2 = pytest.importorskip("ortools.math_opt.result_pb2")
    reasons = set(result_pb2.TerminationReasonProto.keys())
    limits = set(result_pb2.LimitProto.keys())
    open_words = {
        "TERMINATION_REASON_UNSPECIFIED", "TERMINATION_REASON_FEASIBLE", "TERMINATION_REASON_NO_SOLUTION_FOUND",
        "LIMIT_UNSPECIFIED",
    }  # fmt: skip
    assert (reasons | limits) - open_words == set(EXPECTED["glop"])


def test_every_word_of_cvxpy_is_in_its_table():
    settings = pytest.importorskip("cvxpy.settings")
    assert {*settings.SOLUTION_PRESENT, *settings.INF_OR_UNB, *settings.INACCURATE, *settings.ERROR} <= set(
        EXPECTED["cvxpy"]
    )


def case(name: str) -> LinearModel:
    return next(case for case in CASES if case.name == name).model


def said(name: str, model: LinearModel, **native) -> tuple[str, str]:
    answer = solvers.get(name).solve(model, Options(native=native, time_limit=20))
    return answer.status, " ".join(filter(None, [answer.reason, answer.limit]))


@pytest.mark.parametrize(
    ("status", "meaning", "model", "native"),
    [
        ("kOptimal", "optimal", lambda: case("mixed"), {}),
        ("kInfeasible", "infeasible", lambda: case("parity"), {}),
        ("kUnbounded", "unbounded", lambda: case("unbounded"), {}),
        ("kUnboundedOrInfeasible", "unbounded", lambda: case("unbounded-integers"), {}),
        ("kIterationLimit", "limit iterations", lambda: hard(40, 8).relax(), {"simplex_iteration_limit": 3}),
        ("kSolutionLimit", "limit nodes", lambda: hard(40, 8), {"mip_max_improving_sols": 1}),
        ("kObjectiveTarget", "limit objective", lambda: hard(40, 8), {"objective_target": 500.0}),
        ("kObjectiveBound", "limit objective", lambda: hard(40, 8).relax(),
         {"objective_bound": 1.0, "simplex_strategy": 1, "presolve": "off"}),
    ],
)  # fmt: skip
def test_highs_says(status, meaning, model, native):
    assert said("highs", model(), **native) == (status, meaning)


@pytest.mark.parametrize(
    ("status", "meaning", "model", "native"),
    [
        ("OPTIMAL", "optimal", lambda: case("whole-numbers"), {}),
        ("INFEASIBLE", "infeasible", lambda: case("parity"), {}),
        ("FEASIBLE", "limit other", lambda: hard(40, 8), {"stop_after_first_solution": True}),
        ("UNKNOWN", "limit other", lambda: hard(40, 8), {"max_number_of_conflicts": 0, "stop_after_presolve": True}),
    ],
)
def test_cpsat_says(status, meaning, model, native):
    assert said("cpsat", model(), **native) == (status, meaning)


@pytest.mark.parametrize(
    ("name", "status", "meaning", "model", "native"),
    [
        ("glop", "TERMINATION_REASON_OPTIMAL", "optimal", lambda: case("ranges"), {}),
        ("glop", "TERMINATION_REASON_INFEASIBLE", "infeasible", lambda: case("infeasible"), {}),
        ("glop", "TERMINATION_REASON_INFEASIBLE_OR_UNBOUNDED", "unbounded", lambda: case("unbounded"), {}),
        ("pdlp", "TERMINATION_REASON_OPTIMAL", "optimal", lambda: case("ranges"), {}),
        ("pdlp", "LIMIT_ITERATION", "limit iterations", lambda: hard(40, 8).relax(),
         {"termination_criteria": {"iteration_limit": 5}}),
    ],
)  # fmt: skip
def test_or_tools_says(name, status, meaning, model, native):
    assert said(name, model(), **native) == (status, meaning)


@pytest.mark.parametrize(
    ("status", "meaning", "model", "native"),
    [
        ("optimal (CLARABEL)", "optimal", lambda: case("ranges"), {}),
        ("optimal (HIGHS)", "optimal", lambda: case("mixed"), {}),
        ("infeasible (CLARABEL)", "infeasible", lambda: case("infeasible"), {}),
        ("unbounded (CLARABEL)", "unbounded", lambda: case("unbounded"), {}),
        ("user_limit (CLARABEL)", "limit other", lambda: hard(20, 4).relax(), {"max_iter": 2}),
        ("optimal_inaccurate (OSQP)", "limit other", lambda: hard(20, 4).relax(), {"solver": "OSQP", "max_iter": 2}),
        ("infeasible_or_unbounded (HIGHS)", "unbounded", lambda: case("unbounded-integers"), {}),
    ],
)
def test_cvxpy_says(status, meaning, model, native):
    if native.get("solver") == "OSQP":
        pytest.importorskip("osqp")
        answer = solvers.get("cvxpy").solve(model(), Options(native=native, time_limit=20))
        assert answer.reason == "limit"  # by whichever of its two words for "not there yet"
        return
    assert said("cvxpy", model(), **native) == (status, meaning)


@pytest.mark.parametrize(
    ("status", "meaning", "model", "native"),
    [
        ("0", "optimal", lambda: case("ranges"), {}),
        ("1", "limit other", lambda: hard(40, 8).relax(), {"maxiter": 3}),
        ("4, HiGHS 16", "limit nodes", lambda: hard(20, 5), {"node_limit": 0}),
        ("2", "infeasible", lambda: case("parity"), {}),
        ("3", "unbounded", lambda: case("unbounded"), {}),
        ("4, HiGHS 9", "unbounded", lambda: case("unbounded-integers"), {}),
    ],
)
def test_scipy_says(status, meaning, model, native):
    assert said("scipy", model(), **native) == (status, meaning)


def test_numerical_trouble_of_scipy_is_an_error(monkeypatch):
    import scipy.optimize

    class Result:
        status, message, x = 4, "HiGHS Status 4: Solve error", None

    monkeypatch.setattr(scipy.optimize, "milp", lambda *args, **options: Result())
    with pytest.raises(SolverError, match=r"scipy .* failed: .*Status 4: Solve error"):
        solvers.get("scipy").solve(case("mixed"))


@pytest.mark.parametrize(
    ("meaning", "model", "native"),
    [
        ("optimal", lambda: case("mixed"), {}),
        ("infeasible", lambda: case("infeasible"), {}),
        ("unbounded", lambda: case("unbounded"), {}),
        ("infeasible", lambda: case("parity-open"), {}),
        ("optimal", lambda: case("mixed"), {"solver": "HiGHS"}),
        ("unbounded", lambda: case("unbounded-integers"), {"solver": "HiGHS"}),
        ("limit", lambda: hard(40, 8).relax(), {"solver": "HiGHS", "simplex_iteration_limit": 3}),
    ],
)
def test_pulp_says(meaning, model, native):
    status, found = said("pulp", model(), **native)
    # PuLP 4 says "Undefined" where it cannot tell infeasible from unbounded, and names the limit PuLP 3 keeps to itself
    assert found.startswith(meaning) or (status.startswith("Undefined") and found == "limit other")
    assert "(" in status  # the solver behind PuLP is named


@pytest.mark.parametrize("name", ["highs", "scipy", "glop"])
def test_a_point_left_behind_by_a_limit_is_no_answer(name):
    """A dual simplex method that is stopped holds a point that breaks rows; it must not pass for a plan."""
    limit = {
        "highs": {"simplex_iteration_limit": 3}, "scipy": {"maxiter": 3}, "glop": {"max_number_of_iterations": 3}
    }[name]  # fmt: skip
    model = hard(40, 8).relax()
    answer = solvers.get(name).solve(model, Options(native=limit))
    assert answer.reason == "limit"
    assert answer.x is None or model.check(answer.x) == []
    optimum = solvers.get("highs").solve(model).objective
    assert answer.bound is None or answer.bound <= optimum + 1e-6
    assert answer.row_dual is None
    assert not np.isnan(answer.seconds)
