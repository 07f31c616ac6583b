"""Results: what is derived, what a file keeps, and what a file cannot claim."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetopt
from hetopt import InputError, Instance, Result, Solution
from hetopt.io.results import decode_result, encode_result, plain, summary

INSTANCE = Instance.from_times([[3, 1], [2, 4]], jobs=["a", "b"], devices=["x", "y"])
PLAN = Solution.assign([1, 0])
FULL = Result(
    problem="assignment.makespan",
    question={"objective": "makespan"},
    sense="min",
    reason="finished",
    solution=PLAN,
    objective=2.0,
    bound=2.0,
    bound_proof="replayed",
    certificate={"kind": "lp-dual", "method": "lp", "rows": [0, 1], "values": [0.5, 0.25]},
    verified=True,
    method="cpsat, bound by lp",
    method_why="cpsat: exact",
    solver="cpsat 9.9",
    seconds=0.25,
    cpu_seconds=0.125,
    instance_name=INSTANCE.name,
    instance_digest=INSTANCE.digest,
    asked_gap=0.01,
    messages=("a note",),
    evaluation={"devices": {"x": {"load": 2.0}}},
    run={"options": {"seed": 0, "time_limit": None}},
    trajectory=((0.1, None, 1.0), (0.2, 2.0, 1.0)),
)
EMPTY = Result(problem="assignment.makespan", question={}, sense="min", reason="limit", limit="time")


def made(**claims) -> Result:
    return replace(EMPTY, **claims)


class TestDerived:
    @pytest.mark.parametrize(
        ("objective", "bound", "sense", "gap"),
        [
            (None, 1.0, "min", None),
            (1.0, None, "min", None),
            (4.0, 3.0, "min", 0.25),
            (4.0, 5.0, "max", 0.25),
            (-4.0, -5.0, "min", 0.25),
            (4.0, 4.0, "min", 0.0),
            (4.0, 5.0, "min", 0.0),
            (0.0, 0.0, "min", 0.0),
            (0.0, -1.0, "min", None),
        ],
    )
    def test_gap(self, objective, bound, sense, gap):
        assert made(objective=objective, bound=bound, sense=sense).gap == gap

    @pytest.mark.parametrize(
        ("claims", "status", "code"),
        [
            ({}, "unknown", 4),
            ({"bound": 1.0, "bound_proof": "solver"}, "unknown", 4),
            ({"reason": "infeasible"}, "infeasible", 3),
            ({"reason": "error"}, "error", 5),
            ({"reason": "interrupted"}, "unknown", 130),
            ({"solution": PLAN, "objective": 2.0, "verified": True}, "feasible", 2),
            (
                {"solution": PLAN, "objective": 2.0, "verified": True, "bound": 2.0, "bound_proof": "solver"},
                "optimal",
                0,
            ),
            ({"solution": PLAN, "objective": 2.0, "verified": True, "bound": 2.0}, "feasible", 2),
            ({"solution": PLAN, "objective": 2.0, "bound": 2.0, "bound_proof": "solver"}, "unknown", 4),
            ({"objective": 2.0, "verified": True, "bound": 2.0, "bound_proof": "solver"}, "unknown", 4),
        ],
    )
    def test_status_and_exit_code(self, claims, status, code):
        result = made(**claims)
        assert (result.status, result.exit_code) == (status, code)

    def test_a_plan_that_was_interrupted_or_ended_in_failure_keeps_its_status(self):
        plan = {"solution": PLAN, "objective": 2.0, "verified": True}
        assert (made(reason="interrupted", **plan).status, made(reason="interrupted", **plan).exit_code) == (
            "feasible",
            130,
        )
        assert (made(reason="error", **plan).status, made(reason="error", **plan).exit_code) == ("feasible", 5)

    @pytest.mark.parametrize(("asked", "code"), [(0.0, 2), (0.49, 2), (0.5, 0), (0.6, 0)])
    def test_within_the_asked_gap(self, asked, code):
        result = made(solution=PLAN, objective=2.0, verified=True, bound=1.0, bound_proof="solver", asked_gap=asked)
        assert (result.status, result.exit_code) == ("feasible", code)

    def test_a_gap_without_proof_is_not_met(self):
        assert made(solution=PLAN, objective=2.0, verified=True, bound=2.0, asked_gap=0.5).exit_code == 2

    def test_a_wide_tolerance_cannot_be_claimed(self):
        result = made(solution=PLAN, objective=2.0, verified=True, bound=1.0, bound_proof="solver", tolerance=1.0)
        assert result.status == "feasible"
        assert replace(result, bound=2.0 - 1e-7, tolerance=1e-9).status == "feasible"


class TestFile:
    def test_round_trip(self):
        assert decode_result(encode_result(FULL, INSTANCE), INSTANCE) == FULL

    @pytest.mark.parametrize("result", [EMPTY, made(reason="infeasible", infeasible=("7 bytes short",))], ids=repr)
    def test_what_is_unknown_stays_unknown(self, result):
        text = encode_result(result, INSTANCE)
        assert decode_result(text, INSTANCE) == result
        record = json.loads(text)
        assert [record[key] for key in ("objective", "bound", "gap", "solution", "solver")] == [None] * 5

    def test_the_object_of_the_command_line_has_every_key(self):
        record = summary(FULL, INSTANCE)
        assert list(record)[:11] == [
            "status", "objective", "bound", "gap", "bound_proof", "verified", "method", "solver", "seconds", "instance",
            "solution",
        ]  # fmt: skip
        assert record["status"] == "optimal"
        assert record["instance"] == {"name": "", "digest": INSTANCE.digest}
        assert record["solution"] == {"placement": {"a": "y", "b": "x"}}

    def test_a_file_says_more_than_the_object(self):
        record = json.loads(encode_result(FULL, INSTANCE))
        assert record["format"] == "hetopt-result/1"
        assert {"question", "run", "versions", "machine", "trajectory", "certificate", "tolerance"} <= set(record)
        assert record["versions"]["hetopt"] == hetopt.__version__

    def test_written_whole_and_read_back(self, tmp_path):
        path = tmp_path / "r.json"
        hetopt.write_result(FULL, INSTANCE, path)
        assert hetopt.read_result(path, INSTANCE) == FULL
        assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"format": "hetopt-instance/1"}, r"\$.format is 'hetopt-instance/1', expected 'hetopt-result/1'"),
            ({"objektive": 1}, "unknown key 'objektive'; did you mean 'objective'"),
            ({"status": "feasible"}, r"\$.status is 'feasible', but what else the file says makes it 'optimal'"),
            ({"bound": 1.0}, r"\$.status is 'optimal', but what else the file says makes it 'feasible'"),
            ({"verified": False}, r"\$.status is 'optimal', but"),
            ({"objective": "2"}, r"\$.objective is '2', expected a finite number"),
            ({"objective": True}, r"\$.objective is True, expected a finite number"),
            ({"bound": 10**400}, r"\$.bound is 1000000"),
            ({"tolerance": []}, r"\$.tolerance is \[\], expected a finite number"),
            ({"sense": "most"}, r"\$.sense is 'most', expected one of min, max"),
            ({"sense": ["min"]}, r"\$.sense is \['min'\], expected one of"),
            ({"reason": "tired"}, r"\$.reason is 'tired', expected one of"),
            ({"bound_proof": "trust me"}, r"\$.bound_proof is 'trust me'"),
            ({"certificate": [1]}, r"\$.certificate is list, expected dict"),
            ({"verified": "yes"}, r"\$.verified is str, expected bool"),
            ({"question": []}, r"\$.question is list"),
            ({"messages": "a note"}, r"\$.messages is str"),
            ({"trajectory": [[1, 2]]}, r"\$.trajectory\[0\] is \[1, 2\], expected \[seconds, objective, bound\]"),
            ({"trajectory": [[0, "x", None]]}, r"\$.trajectory\[0\] is 'x'"),
            ({"trajectory": {}}, r"\$.trajectory is dict"),
            ({"instance": "mine"}, r"\$.instance is str"),
            ({"solution": [0, 1]}, r"\$.solution is list, expected an object"),
            ({"solution": {"placment": {}}}, r"\$.solution has the unknown key 'placment'; did you mean 'placement'"),
            ({"solution": {"placement": ["y"]}}, r"\$.solution.placement is list, expected an object"),
            ({"solution": {"placement": {"c": "x"}}}, r"\$.solution.placement.c: 'c' is no task"),
            ({"solution": {"placement": {"a": "z"}}}, r"\$.solution.placement.a: 'z' is no device"),
            ({"solution": {"placement": {"a": 1}}}, r"\$.solution.placement.a: 1 is no device"),
            ({"solution": {"start": {"a": "now"}}}, r"\$.solution.start.a is 'now', expected a finite number"),
            ({"solution": {"start": {"a": 10**400}}}, r"\$.solution.start.a is 1000"),
            ({"solution": {"shares": {"a": {"x": True}}}}, r"\$.solution.shares.a.x is True"),
            ({"solution": {"details": [1]}}, r"\$.solution.details is list"),
        ],
        ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else "",
    )
    def test_what_is_wrong_is_told_with_its_path(self, change, told):
        record = json.loads(encode_result(FULL, INSTANCE)) | change
        with pytest.raises(InputError, match=told):
            decode_result(json.dumps(record).encode(), INSTANCE)

    @pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b"\xff", b'{"a":NaN}', b"[" * 100_000, b"{}"], ids=repr)
    def test_what_is_no_result_file(self, text):
        with pytest.raises(InputError, match=r"^\$"):
            decode_result(text, INSTANCE)

    def test_the_path_of_the_file_is_told(self, tmp_path):
        path = tmp_path / "r.json"
        path.write_text("{}")
        with pytest.raises(InputError, match=r"r\.json: \$\.format is None"):
            hetopt.read_result(path, INSTANCE)
        with pytest.raises(InputError, match=r"cannot read .*No such file"):
            hetopt.read_result(tmp_path / "none.json", INSTANCE)

    def test_numbers_that_json_lacks_become_null(self):
        assert plain({"a": math.inf, 1: np.float64("nan"), "b": (np.int64(3), np.array([1.5, -math.inf]))}) == {
            "a": None, "1": None, "b": [3, [1.5, None]],
        }  # fmt: skip


class TestSolution:
    def test_arrays_are_the_plans_own(self):
        given = np.array([1, 0])
        plan = Solution(placement=given, start=[0.0, 1.0], shares=[[0.5, 0.5], [1.0, 0.0]])
        given[0] = 7
        assert plan.placement.tolist() == [1, 0]
        assert (plan.placement.dtype, plan.start.dtype, plan.shares.shape) == (np.int64, np.float64, (2, 2))
        for array in (plan.placement, plan.start, plan.shares):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0

    @pytest.mark.parametrize("placement", [[0.5, 0], [math.nan, 0], [1e300, 0]], ids=str)
    def test_a_fraction_is_no_device(self, placement):
        with pytest.raises(InputError, match="not integers"):
            Solution.assign(placement)

    def test_equality_is_by_content(self):
        assert Solution.assign([1.0, 0.0]) == PLAN
        assert Solution.assign([0, 1]) != PLAN
        assert Solution.assign([1, 0], order=["a"]) != PLAN
        assert Solution(start=[math.nan, 1.0]) == Solution(start=[math.nan, 1.0])
        assert Solution(start=[0.0, 1.0]) != Solution(shares=[[0.0], [1.0]])

    @given(
        st.lists(st.integers(-1, 1), min_size=2, max_size=2),
        st.lists(st.floats(0, 1e9) | st.just(math.nan), min_size=2, max_size=2),
        st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=2, max_size=2),
    )
    def test_json_round_trip(self, placement, start, shares):
        plan = Solution(placement, start, shares, {"order": ["b", "a"]})
        data = json.loads(json.dumps(plan.to_json(INSTANCE)))
        assert Solution.from_json(INSTANCE, data) == plan

    def test_names_not_numbers(self):
        plan = Solution([1, -1], [0.5, math.nan], [[0.0, 1.0], [0.0, 0.0]])
        assert plan.to_json(INSTANCE) == {
            "placement": {"a": "y", "b": None}, "start": {"a": 0.5}, "shares": {"a": {"y": 1.0}, "b": {}},
        }  # fmt: skip
