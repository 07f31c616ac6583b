"""Traces: own times by hand, steps, kinds of device in a folder, chains; and what cannot be right."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import trace_of

import hetopt
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import importers

INF = np.inf


def load(path: Path, data: bytes, **options: Any) -> Instance:
    path.write_bytes(data)
    return importers.get("trace").load(path, **options)  # type: ignore[no-any-return]


def complaint(path: Path, data: bytes, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(path, data, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_events_count_their_own_time(tmp_path: Path) -> None:
    # model 0..10 holds up 1..5 (which holds act 2..3) and down 5..9; a second model 20..30 holds nothing
    data = trace_of(("model", 0, 10), ("up", 1, 4), ("act", 2, 1), ("down", 5, 4), ("model", 20, 10))
    instance = load(tmp_path / "run.json", data, devices="t4:2")
    assert instance.labels == ("model", "up", "act", "down")
    assert instance.device_names == ("t4-0", "t4-1")
    assert instance.time[:, 0] == pytest.approx([12e-6, 3e-6, 1e-6, 4e-6])
    assert (instance.time[:, 0] == instance.time[:, 1]).all()
    assert instance.question == {"objective": "makespan"}
    assert load(tmp_path / "run.json", data, steps=2).time[:, 0] == pytest.approx([6e-6, 1.5e-6, 0.5e-6, 2e-6])
    assert load(tmp_path / "run.json", data, only="[ud]*").labels == ("up", "down")
    assert load(tmp_path / "run.json.gz", gzip.compress(data)).name == "run"


def test_steps_are_counted_where_the_profiler_marks_them(tmp_path: Path) -> None:
    marks = [("ProfilerStep#3", 0, 9), ("ProfilerStep#4", 10, 9), ("up", 1, 4), ("up", 11, 6)]
    instance = load(tmp_path / "run.json", trace_of(*marks))
    assert instance.labels == ("up",)
    assert instance.time[0, 0] == pytest.approx(5e-6)


def test_the_category_is_the_most_telling_one_or_the_one_asked_for(tmp_path: Path) -> None:
    events = [json.loads(trace_of((name, 0, 1), cat=cat))["traceEvents"][1] for name, cat in
              (("a", "cpu_op"), ("b", "kernel"), ("c", "user_annotation"), ("d", "gpu_user_annotation"))]  # fmt: skip
    for k in range(4, 0, -1):
        assert load(tmp_path / "run.json", json.dumps(events[:k]).encode()).labels == ("abcd"[k - 1],)
    assert load(tmp_path / "run.json", json.dumps(events).encode(), category="kernel").labels == ("b",)
    plain = [{**event, "cat": "mine"} for event in events]
    assert len(load(tmp_path / "run.json", json.dumps(plain).encode(), only="[ab]").labels) == 2
    said = complaint(tmp_path / "run.json", json.dumps(events).encode(), category="gpu")
    assert "the categories are: cpu_op, gpu_user_annotation, kernel, user_annotation" in said


def test_tracks_are_apart(tmp_path: Path) -> None:
    data = json.loads(trace_of(("a", 0, 10), ("b", 5, 10)))
    data["traceEvents"][2]["tid"] = 7
    assert load(tmp_path / "run.json", json.dumps(data).encode()).time[:, 0] == pytest.approx([1e-5, 1e-5])
    data["traceEvents"][2]["tid"] = 2
    assert "'b' begins inside 'a' and ends after it" in complaint(tmp_path / "run.json", json.dumps(data).encode())


def test_a_flood_of_events_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importers.get("trace"), "MAX_EVENTS", 1)
    assert "more than 1 events" in complaint(tmp_path / "run.json", trace_of(("a", 0, 1), ("b", 1, 1)))


def test_a_folder_has_a_trace_for_each_kind_of_device(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "t4.json").write_bytes(trace_of(("up", 0, 2), ("down", 2, 3)))
    (folder / "cpu.json").write_bytes(trace_of(("up", 0, 20), ("down", 20, 30), ("tokens", 50, 5)))
    get = importers.get("trace")
    instance = get.load(folder, devices="t4:2,cpu")
    assert instance.device_names == ("t4-0", "t4-1", "cpu-0")
    assert instance.labels == ("up", "down", "tokens")
    assert instance.time == pytest.approx(np.array([[2, 2, 20], [3, 3, 30], [INF, INF, 5]]) * 1e-6)
    assert get.load(folder).device_names == ("cpu-0", "t4-0")
    chain = get.load(folder, devices="t4,cpu", boundary=1000, bandwidth=1e9)
    assert chain.edges.tolist() == [[0, 1], [1, 2]]
    result = hetopt.solve(chain)
    assert (result.status, result.objective) == ("optimal", pytest.approx(5e-6))
    hetopt.verify(chain, result)
    with pytest.raises(InputError, match=r"the folder has no l4\.json"):
        get.load(folder, devices="l4")
    with pytest.raises(InputError, match="--bandwidth is None"):
        get.load(folder, boundary=1000)
    with pytest.raises(InputError, match="holds 0 traces"):
        (tmp_path / "empty").mkdir()
        get.load(tmp_path / "empty")


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (b"", {}, "the text is empty"),
        (b"{}", {}, "lacks the key 'traceEvents'"),
        (b'{"traceEvents": [{"ph": "X", "name": 3}]}', {}, "traceEvents[0].name is 3"),
        (trace_of(), {}, "the categories are: none"),
        (trace_of(("a", 0, -1)), {}, "dur of event 1 is -1"),
        (trace_of(("a", 0, 1e300)), {}, "dur of event 1 is"),
        (b'[{"ph": "X", "name": "a", "ts": 0}]', {}, "dur of event 0 is None, expected microseconds"),
        (b'[{"ph": "X", "name": "a", "ts": "x", "dur": 1}]', {}, "ts of event 0 is 'x'"),
        (trace_of(("a" * 300 + "1", 0, 1), ("a" * 300 + "2", 2, 1)), {}, "equal in their first 200 characters"),
        (trace_of(("a", 0, 1)), {"devices": "t4,cpu"}, "--devices names several kinds"),
        (trace_of(("a", 0, 1)), {"devices": "t4:x"}, "--devices holds 't4:x'"),
        (trace_of(("a", 0, 1)), {"steps": 0}, "--steps is 0"),
        (trace_of(("a", 0, 1)), {"boundary": -1}, "--boundary is -1"),
        (trace_of(("a", 0, 1)), {"boundary": 1, "bandwidth": 0.0}, "--bandwidth is 0.0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "x",
)
def test_a_trace_that_cannot_be_right_is_refused(data: bytes, options: Any, said: str, tmp_path: Path) -> None:
    assert said in complaint(tmp_path / "run.json", data, **options)
