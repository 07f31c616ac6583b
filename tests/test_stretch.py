"""A plan and a bound on every answer, however short the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetopt

INSTANCES = Path(__file__).resolve().parents[1] / "instances"
FILES = ["assignment/jobcorr-100x10", "assignment/u10_100-100x10-memory", "partition/pareto-10x2", "schedule/phone-3x3"]


@pytest.mark.parametrize("file", FILES)
def test_there_is_a_plan_and_a_bound(file):
    result = hetopt.solve(hetopt.read(INSTANCES / f"{file}.json"), time_limit=1e-9)
    assert result.limit == "time" or result.status == "optimal"
    assert result.verified
    assert result.bound is not None


def test_a_method_asked_for_is_not_helped():
    result = hetopt.solve(hetopt.read(INSTANCES / f"{FILES[0]}.json"), method="ladder", time_limit=1e-9)
    assert result.solution is None


def test_a_limit_of_nothing_is_kept():
    result = hetopt.solve(hetopt.Instance.from_times([[3, 1], [2, 4]]), time_limit=0)
    assert result.status in ("unknown", "optimal")
