"""Sweeps: every file answered once, resumed where they stood, spread over Dask with the same answers."""

from __future__ import annotations

import threading

import pytest

import hetopt
from hetopt.sweep import sweep


@pytest.fixture
def files(tmp_path):
    paths = []
    for k, times in enumerate(([[1, 2], [2, 1]], [[3, 1], [2, 4], [2, 2]])):
        paths.append(tmp_path / f"jobs{k}.json")
        hetopt.write(hetopt.Instance.from_times(times), paths[-1])
    return paths


def values(answers):
    return {file.name: answer.objective for file, answer in answers}


def test_answers_every_file_and_writes_the_results(files, tmp_path):
    assert values(sweep(files, output=tmp_path / "out")) == {"jobs0.json": 1.0, "jobs1.json": 3.0}
    kept = hetopt.read_result(tmp_path / "out" / "jobs1.result.json", hetopt.read(files[1]))
    assert kept.objective == 3.0


def test_goes_on_where_it_stood(files, tmp_path):
    first = dict(sweep(files[:1], output=tmp_path / "out"))
    again = dict(sweep(files, output=tmp_path / "out"))
    assert again[files[0]].seconds == pytest.approx(first[files[0]].seconds, abs=1e-6)
    assert len(again) == 2


def test_a_result_of_another_instance_is_no_answer(files, tmp_path):
    list(sweep(files[:1], output=tmp_path / "out"))
    hetopt.write(hetopt.Instance.from_times([[1, 3], [2, 1]]), files[0])
    (answer,) = dict(sweep(files[:1], output=tmp_path / "out")).values()
    assert isinstance(answer, hetopt.InputError)
    assert "does not verify: the result belongs to an instance with digest" in str(answer)


def test_a_bad_file_does_not_stop_the_others(files, tmp_path):
    files[0].write_text("{")
    answers = dict(sweep(files, output=tmp_path / "out"))
    assert isinstance(answers[files[0]], hetopt.InputError)
    assert answers[files[1]].objective == 3.0


def test_equal_stems_are_refused(files, tmp_path):
    (tmp_path / "b").mkdir()
    twin = tmp_path / "b" / files[0].name
    twin.write_bytes(files[0].read_bytes())
    with pytest.raises(hetopt.InputError, match="would share the result"):
        list(sweep([files[0], twin], output=tmp_path / "out"))


def test_ends_when_cancelled(files, tmp_path):
    cancelled = threading.Event()
    cancelled.set()
    assert list(sweep(files, output=tmp_path / "out", cancelled=cancelled)) == []


def test_dask_gives_the_same_answers(files, tmp_path):
    pytest.importorskip("distributed")
    alone = values(sweep(files, output=tmp_path / "alone"))
    assert values(sweep(files, output=tmp_path / "spread", dask="local")) == alone


def test_no_scheduler_is_a_sentence(files, tmp_path):
    pytest.importorskip("distributed")
    with pytest.raises(hetopt.InputError, match="'nonsense://'"):
        list(sweep(files, output=tmp_path / "out", dask="nonsense://"))
