"""assignment.weighted_completion: hand-worked and broken plans, annealing in the automatic climb, the published sets."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import hetopt
from hetopt.io import importers
from hetopt.records import Device, Job


def one_machine(release: int = 0) -> hetopt.Instance:
    return hetopt.Instance.build(
        [Device(name="a", available_from=1)],
        [Job(name="heavy", time=[4], weight=8, release=release), Job(name="light", time=[1], weight=1)],
        question={"objective": "weighted-completion"},
    )


@pytest.mark.parametrize(("release", "value"), [(0, 8 * 5 + 6), (2, 8 * 6 + 2), (1, 8 * 5 + 6)])
def test_by_hand(release, value):
    """Free from 1: heavy first (4/8 < 1/1) ends at 5, light at 6; released at 2, light fits before it."""
    result = hetopt.solve(one_machine(release))
    assert (result.status, result.objective) == ("optimal", value)


@pytest.mark.parametrize(
    ("start", "told"), [([1, 4], "at the same time"), ([0, 6], "available"), ([np.nan, 1], "no start time")]
)
def test_a_broken_plan_is_caught(start, told):
    broken = hetopt.Solution(placement=np.zeros(2, np.int64), start=np.array(start, float))
    with pytest.raises(hetopt.VerificationError, match=told):
        hetopt.verify(one_machine(), broken)


def test_annealing_keeps_to_pins_and_refuses_release_dates():
    jobs = [Job(name=f"j{k}", time=[1, 9], weight=k + 1, pin="b" if k == 0 else None) for k in range(4)]
    instance = hetopt.Instance.build([Device(name="a"), Device(name="b")], jobs)
    result = hetopt.solve(instance, objective="weighted-completion", method="annealing", time_limit=1)
    assert result.solution.placement.tolist() == [1, 0, 0, 0]
    assert result.objective == 9 + 4 * 1 + 3 * 2 + 2 * 3
    with pytest.raises(hetopt.InputError, match="release dates"):
        hetopt.solve(one_machine(2), method="annealing")


@pytest.mark.parametrize("power", [-30, 0, 40])
def test_units_do_not_matter(power):
    """The interval-indexed bound of nanoseconds, and of values around 10^14, is that of seconds."""
    rng = np.random.default_rng(3)
    time, unit = rng.integers(1, 60, (8, 3)), 2.0**power
    instance = hetopt.Instance.build(
        [Device(name=f"d{i}") for i in range(3)],
        [
            Job(name=f"j{j}", time=(time[j] * unit).tolist(), weight=1 + j % 4, release=j % 3 * 5 * unit)
            for j in range(8)
        ],
        question={"objective": "weighted-completion"},
    )
    result = hetopt.solve(instance, method="lp")
    assert result.bound_proof == "replayed"
    assert 292.9 <= result.bound / unit <= 293


def test_published_sets(data_dir):
    """The listed value of three files, found and verified; none is undercut."""
    for name in ("4_40_1", "8_60_1", "12_60_1"):
        file = data_dir / "weighted-completion" / f"{name}.json.gz"
        with gzip.open(file) as stream:
            listed = json.load(stream)["published"]["objective"]
        instance = importers.get("twct").load(file)
        result = hetopt.solve(instance, method="annealing")
        hetopt.verify(instance, result)
        assert result.objective == listed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "JSON object"),
        ("{", "not a JSON text"),
        ('{"weights": [1]}', r"\$.processing_time_by_machine is missing"),
        ('{"weights": [1, "2"], "processing_time_by_machine": [[1, 1]]}', r"\$.weights is not a list of numbers"),
        ('{"weights": [1, 2], "processing_time_by_machine": [[1, 2, 3]]}', "3 times a machine, expected 2"),
        ('{"weights": [1, 2], "processing_time_by_machine": [[1, 2], [1]]}', "each a list"),
        ('{"weights": [1, 2], "processing_time_by_machine": [[1, -2]]}', "each a list"),
    ],
)
def test_damaged_files_are_refused(text, told, tmp_path):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(hetopt.InputError, match=told):
        importers.get("twct").load(file)


def test_import_keeps_the_numbers(tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"name": "x", "weights": [3, 1], "processing_time_by_machine": [[1, 2], [4, 5.5], [6, 7]]}')
    instance = importers.get("twct").load(file)
    assert instance.time.tolist() == [[1, 4, 6], [2, 5.5, 7]]
    assert instance.columns.weight.tolist() == [3, 1]
    assert instance.question == {"objective": "weighted-completion"}
