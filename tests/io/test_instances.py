"""Reading is strict and says where, what and what was expected; writing loses nothing; equal facts have equal digests."""

from __future__ import annotations

import copy
import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetopt.errors import InputError
from hetopt.instance import Device, Edge, Instance, Job, Link, Mode, Task
from hetopt.io.instances import decode, encode, load_bytes, read, write

GOOD: dict[str, Any] = {
    "format": "hetopt-instance/1",
    "name": "two jobs",
    "devices": [{"name": "a", "type": "gpu", "memory": 100}, {"name": "b", "type": "gpu"}, {"name": "c"}],
    "links": [{"from": "gpu", "to": "c", "bandwidth": 4, "both": True}],
    "jobs": [
        {"name": "lone", "time": [1, None, 2.5], "memory": 7},
        {
            "name": "graph",
            "weight": 2,
            "tasks": [
                {"name": "x", "time": {"gpu": 1, "c": 4}, "output": 3, "group": "g"},
                {"name": "y", "time": {"gpu": 2, "b": None, "c": 8}, "group": "g", "pin": "gpu"},
            ],
            "edges": [{"from": "x", "to": "y"}],
        },
    ],
    "question": {"objective": "makespan"},
}


def broken(*path: str | int, **change: Any) -> str:
    """The good file with the value at a path replaced (``to``), or keys added to the object there (``add``)."""
    record = copy.deepcopy(GOOD)
    place: Any = record
    for step in path[:-1]:
        place = place[step]
    if "to" in change:
        place[path[-1]] = change["to"]
    elif "add" in change:
        (place[path[-1]] if path else place).update(change["add"])
    else:
        del place[path[-1]]
    return json.dumps(record)


def mode(**facts: Any) -> str:
    """The good file with a mode of its first job, which has a time of its own."""
    return broken("jobs", 0, add={"modes": [{"name": "m", **facts}]})


def complaint(text: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        decode(text)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 300
    return message


def test_a_file_becomes_arrays() -> None:
    instance = decode(json.dumps(GOOD))
    assert instance.labels == ("lone", "graph/x", "graph/y")
    assert instance.time.tolist() == [[1, np.inf, 2.5], [1, 1, 4], [2, np.inf, np.inf]]
    assert instance.memory.tolist() == [7, 0, 0]
    assert instance.output.tolist() == [0, 3, 0]
    assert instance.group.tolist() == [-1, 0, 0]
    assert instance.edges.tolist() == [[1, 2]]
    assert instance.edge_data.tolist() == [3]
    assert instance.capacity.tolist() == [100, np.inf, np.inf]
    assert instance.columns.weight.tolist() == [1, 2]
    assert instance.link("c", "b").bandwidth == 4  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        # the outline
        (broken("format", to="hetopt-result/1"), "$.format", ["'hetopt-result/1'", "expected 'hetopt-instance/1'"]),
        (broken("format", to=1), "$.format", ["1", "expected str"]),
        (broken("format"), "$", ["lacks the key 'format'"]),
        ('{"model_type": "llama", "hidden_size": 8}', "$", ["a model's configuration", "`hetopt plan`"]),
        (broken("devices"), "$", ["lacks the key 'devices'"]),
        (broken(add={"devcies": []}), "$", ["unknown key 'devcies'", "did you mean 'devices'?"]),
        (broken("question", to=[]), "$.question", ["[]", "expected object"]),
        (broken("jobs", to={}), "$.jobs", ["{}", "expected array"]),
        (broken("jobs", to=[]), "$.jobs", ["empty", "at least one job"]),
        (broken("jobs", 0, to=3), "$.jobs[0]", ["3", "expected object"]),
        # devices and links
        (broken("devices", to=[]), "$.devices", ["empty", "at least one device"]),
        (broken("devices", 1, "name", to="a"), "$.devices[1].name", ["repeats 'a'", "$.devices[0]"]),
        (broken("devices", 1, "name", to="host"), "$.devices[1].name", ["'host'", "choose another"]),
        (broken("devices", 1, "name", to=""), "$.devices[1].name", ['""', "length >= 1"]),
        (broken("devices", 0, "memory", to=-1), "$.devices[0].memory", ["-1", "expected a number >= 0"]),
        (broken("devices", 0, "memory", to=2**53 + 1), "$.devices[0].memory", ["9007199254740993", "<="]),
        (broken("devices", 0, "slots", to=0), "$.devices[0].slots", ["0", "expected a number > 0"]),
        (broken("devices", 0, add={"mem": 1}), "$.devices[0]", ["unknown key 'mem'", "'memory'"]),
        (broken("links", 0, "to", to="d"), "$.links[0].to", ["'d'", "expected a device, a type, '*' or 'host'"]),
        (broken("links", 0, "bandwidth", to=0), "$.links[0].bandwidth", ["0", "expected a number > 0"]),
        (broken("links", 0, "bandwidth", to=1e-200), "$.links[0].bandwidth", ["1e-200", "expected 1e-140 to 1e+140"]),
        (broken("links", 0, add={"latency": 1e200}), "$.links[0].latency", ["1e+200", "expected from 0 to 1e+140"]),
        (broken("links", 0, "bandwidth"), "$.links[0]", ["lacks the key 'bandwidth'"]),
        (broken("links", to=GOOD["links"] * 2), "$.links[1]", ["repeats the link", "write each direction once"]),
        # times
        (broken("jobs", 0, "time"), "$.jobs[0]", ["no `time`", "expected a list of 3 numbers or a map"]),
        (broken("jobs", 0, "time", to=[1, 2]), "$.jobs[0].time", ["2 entries", "expected 3"]),
        (broken("jobs", 0, "time", 1, to=-4), "$.jobs[0].time[1]", ["-4", "expected a number >= 0"]),
        (broken("jobs", 0, "time", 2, to=-0.5), "$.jobs[0].time[2]", ["-0.5", "expected a number >= 0"]),
        (broken("jobs", 0, "time", 1, to=1e200), "$.jobs[0].time[1]", ["1e+200", "sums may overflow", "at most 1e+140"]),
        (broken("jobs", 0, "time", to={"gpu": 1e200}), "$.jobs[0].time.gpu", ["1e+200", "sums may overflow"]),
        (broken("jobs", 0, "time", 1, to=True), "$.jobs[0].time[1]", ["true", "expected int | float | null"]),
        (broken("jobs", 0, "time", 1, to="3"), "$.jobs[0].time[1]", ['"3"', "expected int | float | null"]),
        (broken("jobs", 0, "time", 1, to=2**53 + 1), "$.jobs[0].time[1]", ["9007199254740993", "<="]),
        (broken("jobs", 0, "time", 1, to=10**400), "$.jobs[0].time[1]", ["1000", "<="]),
        (broken("jobs", 0, "time", to={"gpu": 1, "z": 2}), "$.jobs[0].time", ["key 'z'", "no device and no type"]),
        (broken("jobs", 0, "time", to={"gpu": 1, "c": -2}), "$.jobs[0].time.c", ["-2", "expected a number >= 0"]),
        (broken("jobs", 0, "time", to=[None] * 3), "$.jobs[0]", ["'lone'", "can run nowhere", "no time"]),
        (broken("jobs", 0, add={"pin": "b"}), "$.jobs[0]", ["'lone'", "can run nowhere", "pin and forbid"]),
        (broken("jobs", 1, "tasks", 1, "pin", to="z"), "$.jobs[1].tasks[1].pin", ["'z'", "a device or a type"]),
        (broken("jobs", 1, "tasks", 1, "pin", to=[]), "$.jobs[1].tasks[1].pin", ["[]", "length >= 1"]),
        (broken("jobs", 0, add={"forbid": "q"}), "$.jobs[0].forbid", ["'q'", "a device or a type"]),
        # modes
        (mode(time=[]), "$.jobs[0].modes[0].time", ["0 entries", "expected 3"]),
        (mode(energy=[1]), "$.jobs[0].modes[0].energy", ["1 entries", "expected 3"]),
        (mode(cost={"z": 1}), "$.jobs[0].modes[0].cost", ["key 'z'", "no device and no type"]),
        (mode(time=[1, 2, 1e200]), "$.jobs[0].modes[0].time[2]", ["1e+200", "sums may overflow"]),
        (mode(score=-1e200), "$.jobs[0].modes[0].score", ["1e+200", "sums may overflow"]),
        (mode(score=2**60), "$.jobs[0].modes[0].score", ["beyond 2^53"]),
        # names, tasks, edges
        (broken("jobs", 1, "name", to="lone"), "$.jobs[1].name", ["repeats 'lone'", "$.jobs[0]"]),
        (broken("jobs", 0, add={"wieght": 1}), "$.jobs[0]", ["unknown key 'wieght'", "did you mean 'weight'?"]),
        (broken("jobs", 1, "tasks", 0, add={"tme": 1}), "$.jobs[1].tasks[0]", ["unknown key 'tme'", "'time'"]),
        (broken("jobs", 1, "tasks", 1, "name", to="x"), "$.jobs[1].tasks[1].name", ["repeats 'x'", "tasks[0]"]),
        (broken("jobs", 1, "tasks", to=[]), "$.jobs[1].tasks", ["empty", "at least one task"]),
        (broken("jobs", 1, add={"memory": 3}), "$.jobs[1].memory", ["beside `tasks`", "inside each task"]),
        (broken("jobs", 1, add={"time": [1, 1, 1]}), "$.jobs[1].time", ["beside `tasks`"]),
        (broken("jobs", 0, add={"edges": [{"from": "x", "to": "y"}]}), "$.jobs[0].edges", ["no tasks"]),
        (broken("jobs", 1, "edges", 0, "to", to="w"), "$.jobs[1].edges[0].to", ["'w'", "no task of the job"]),
        (broken("jobs", 1, "edges", 0, add={"dat": 1}), "$.jobs[1].edges[0]", ["unknown key 'dat'", "'data'"]),
        (broken("jobs", 1, "edges", to=GOOD["jobs"][1]["edges"] * 2), "$.jobs[1].edges[1]", ["repeats the edge"]),
        (broken("jobs", 1, "edges", 0, add={"data": -1}), "$.jobs[1].edges[0].data", ["-1", "a number >= 0"]),
        (broken("jobs", 1, "edges", 0, "to", to="x"), "edges", ["cycle", "'graph/x'"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_path_value_and_expectation(text: str, path: str, said: list[str]) -> None:
    message = complaint(text)
    assert message.startswith((path + " ", path + ":"))
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "text is empty"),
        ("[]", "[], expected object"),
        ("{", "ends too early"),
        (json.dumps(GOOD)[:-20], "ends too early"),
        (json.dumps(GOOD) + "x", "line 1, column"),
        ('{\n"format": hetopt}', "line 2, column"),
        ("\ufeff" + json.dumps(GOOD), "byte order mark"),
        (json.dumps(GOOD).replace("2.5", "NaN"), "holds NaN"),
        (json.dumps(GOOD, indent=1).replace("2.5", "-Infinity"), "Infinity, which JSON does not have"),
        (json.dumps(GOOD).replace("2.5", "1e999"), "number out of range"),
        ('{"tables": {"a": ' + "[" * 100_000, "nested too deeply"),
        (b'{"name": "\xff"}', "invalid UTF-8"),
    ],
)
def test_text_that_is_no_json_is_refused(text: str | bytes, said: str) -> None:
    assert said in complaint(text)


def test_a_key_given_twice_is_refused_wherever_it_stands() -> None:
    """A decoder would silently take the last of the two."""
    text = json.dumps(GOOD)
    assert complaint(text.replace('"memory": 7', '"memory": 7, "memory": 8')) == (
        "$.jobs[0] has the key 'memory' twice; expected each key once"
    )
    assert "$.jobs[1].tasks[0].time has the key 'c' twice" in complaint(text.replace('"c": 4', '"c": 4, "c": 5'))
    assert "$.devices[1] has the key 'name' twice" in complaint(text.replace('"name": "b"', '"name": "b", "name": "b"'))
    assert "$ has the key 'jobs' twice" in complaint(text.replace('"links"', '"jobs": [], "links"'))
    assert "'time' twice" in complaint(text.replace('"memory": 7', '"\\u0074ime": [1, 1, 1]'))


def test_a_name_that_looks_like_a_key_is_no_repetition() -> None:
    record = copy.deepcopy(GOOD)
    record["jobs"][0]["name"] = '"memory": "memory":'
    record["jobs"].append({"name": ":time", "time": [1, 1, 1], "pin": ["a", "c"], "forbid": "b"})
    assert decode(json.dumps(record)).labels[0] == '"memory": "memory":'


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i.json", "i.json.gz"])
def test_a_written_file_reads_back_equal(tmp_path: Path, name: str) -> None:
    instance = decode(json.dumps(GOOD))
    write(instance, tmp_path / name)
    again = read(tmp_path / name)
    assert again.digest == instance.digest
    assert again.question == instance.question
    assert again.name == "two jobs"
    assert list(again.jobs()) == list(instance.jobs())
    assert (tmp_path / name).read_bytes()[:2] == (b"\x1f\x8b" if name.endswith("gz") else b'{"')
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    instance = decode(json.dumps(GOOD))
    for name in ("a.json.gz", "b.json.gz"):
        write(instance, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert encode(decode(encode(instance))) == encode(instance)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    def said(path: Path) -> str:
        with pytest.raises(InputError) as caught:
            read(path)
        return str(caught.value)

    assert said(tmp_path) == f"cannot read '{tmp_path}': it is a directory; expected a file"
    assert "No such file" in said(tmp_path / "none.json")
    half = tmp_path / "half.json"
    half.write_text(json.dumps(GOOD)[:150])
    assert said(half).startswith(f"{half}: $ is not JSON: the text ends too early")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(json.dumps(GOOD).encode())[:-30])
    assert "gzip data are broken" in said(cut)
    cut.write_bytes(b"\x1f\x8bnonsense")
    assert "gzip data are broken" in said(cut)
    assert "null byte" in said(Path("a\0b"))


def test_a_large_file_cut_in_half_is_refused(tmp_path: Path) -> None:
    text = encode(Instance.from_times(np.ones((100_000, 3))))
    path = tmp_path / "big.json"
    path.write_bytes(text[: len(text) // 2])
    with pytest.raises(InputError, match="ends too early"):
        read(path)


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    path.write_text(json.dumps(GOOD))
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        read(path)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        write(decode(json.dumps(GOOD)), tmp_path / "missing" / "i.json")
    assert not list(tmp_path.iterdir())


def test_sizes_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "i.json"
    path.write_text(json.dumps(GOOD))
    with pytest.raises(InputError, match="more than 0 MiB"):
        load_bytes(path, limit=100)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b" " * (3 << 20)))
    with pytest.raises(InputError, match="more than 2 MiB"):
        load_bytes(bomb, limit=2 << 20)
    devices = [{"name": f"d{k}", "type": "t"} for k in range(20_000)]
    tasks = [{"name": f"t{k}", "time": {"t": 1}} for k in range(20_000)]
    jobs: list[Any] = [{"name": f"j{k}", "time": {"t": 1}} for k in range(20_000)]
    flat = json.dumps({"format": "hetopt-instance/1", "devices": devices, "jobs": jobs}).encode()
    tracemalloc.start()
    try:
        assert "$.jobs times $.devices is 20000 x 20000" in complaint(flat)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    many = {"format": "hetopt-instance/1", "devices": devices[:2], "jobs": [{"name": "g", "tasks": tasks}]}
    assert decode(json.dumps(many)).n_tasks == 20_000


# Digests --------------------------------------------------------------------------------------------------------------


def variant(change: Callable[[dict[str, Any]], None]) -> str:
    record = copy.deepcopy(GOOD)
    change(record)
    return decode(json.dumps(record)).digest


def test_the_digest_is_of_the_facts_not_of_their_spelling() -> None:
    plain = decode(json.dumps(GOOD)).digest
    assert decode(json.dumps(GOOD, sort_keys=True, indent=2)).digest == plain
    lists = [{"time": [1, 1, 4]}, {"time": [2, None, 8]}]
    assert variant(lambda r: [t.update(s) for t, s in zip(r["jobs"][1]["tasks"], lists, strict=True)]) == plain  # type: ignore[func-returns-value]
    names = [{"time": {"a": 1, "b": 1.0, "c": 4}}, {"time": {"a": 2, "c": 8.0}}]
    assert variant(lambda r: [t.update(s) for t, s in zip(r["jobs"][1]["tasks"], names, strict=True)]) == plain  # type: ignore[func-returns-value]
    assert variant(lambda r: r["devices"][0].update(memory=100.0)) == plain
    assert variant(lambda r: r.update(name="other", question={}, description="x")) == plain


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["jobs"][0].update(time=[1, None, 2.25]),
        lambda r: r["jobs"][0].update(memory=8),
        lambda r: r["jobs"][0].update(name="alone"),
        lambda r: r["devices"][0].update(memory=101),
        lambda r: r["links"][0].update(both=False),
        lambda r: r["jobs"][1]["edges"].clear(),
        lambda r: r["jobs"][1]["edges"][0].update(data=3.5),
        lambda r: r["jobs"][1]["tasks"][0].pop("group"),
        lambda r: r["jobs"][1]["tasks"][1].pop("pin"),
        lambda r: r["jobs"][1].update(due=9),
        lambda r: r.update(tables={"setup": [[1]]}),
    ],
)
def test_another_fact_is_another_digest(change: Callable[[dict[str, Any]], None]) -> None:
    assert variant(change) != decode(json.dumps(GOOD)).digest


# Round trips ----------------------------------------------------------------------------------------------------------

numbers = st.one_of(st.integers(0, 2**53), st.floats(0, 1e140), st.sampled_from([0, 0.1, 1 / 3, 5e-324]))
words = st.text(min_size=1, max_size=5).filter(lambda s: s.encode("utf-8", "ignore").decode() == s)
tables = st.lists(st.one_of(st.none(), numbers), min_size=3, max_size=3)


@st.composite
def facts(draw: st.DrawFn) -> dict[str, Any]:
    times = draw(tables)
    given: dict[str, Any] = {"time": times}
    if all(time is None for time in times):
        times[0] = 1
    for key in ("memory", "output", "kv_bytes_per_token", "activation"):
        if draw(st.booleans()):
            given[key] = draw(numbers)
    for key in ("cost", "energy"):
        if draw(st.integers(0, 4)) == 0:
            given[key] = draw(tables)
    given["group"] = draw(st.sampled_from([None, None, "g", "h"]))
    given["forbid"] = (
        draw(st.sampled_from([None, None, "b", ["b"]])) if times[0] is not None or times[2] is not None else None
    )
    given["cut"], given["backward"] = draw(st.booleans()), draw(st.booleans())
    if draw(st.integers(0, 4)) == 0:
        given["modes"] = [Mode(name="fp8", time=draw(tables), score=draw(st.floats(-1, 1)), devices=2)]
    return given


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    jobs = []
    for name in draw(st.lists(words, min_size=1, max_size=4, unique=True)):
        shared: dict[str, Any] = {"name": name, "weight": draw(numbers)}
        for key in ("release", "due", "deadline", "steps"):
            if draw(st.integers(0, 3)) == 0:
                shared[key] = draw(numbers)
        if draw(st.booleans()):
            jobs.append(Job(**shared, **draw(facts())))
            continue
        count = draw(st.integers(1, 4))
        tasks = [Task(name=f"{name}{k}", **draw(facts())) for k in range(count)]
        pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if draw(st.booleans())]
        edges = [
            Edge(source=tasks[a].name, target=tasks[b].name, data=draw(st.one_of(st.none(), numbers))) for a, b in pairs
        ]
        jobs.append(Job(**shared, tasks=tasks, edges=edges))
    devices = [
        Device(name="a", type="t", memory=draw(st.one_of(st.none(), numbers))),
        Device(name="b", type="t"),
        Device(name="c"),
    ]
    links = [
        Link(source="t", target="*", bandwidth=draw(st.one_of(st.none(), st.floats(1, 1e12))), latency=draw(numbers))
    ]
    return Instance.build(
        devices, jobs, links, name=draw(st.text(max_size=3).filter(lambda s: s.isprintable())), tables={"n": [1, 2]}
    )


@settings(max_examples=150)
@given(instances())
def test_writing_and_reading_loses_nothing(instance: Instance) -> None:
    again = decode(encode(instance))
    assert again.digest == instance.digest
    assert again.devices == instance.devices
    assert again.links == instance.links
    assert again.labels == instance.labels
    assert np.array_equal(again.time, instance.time)
    assert np.array_equal(again.edge_data, instance.edge_data, equal_nan=True)
    assert list(again.jobs()) == list(instance.jobs())
    assert [again.task(k) for k in range(again.n_tasks)] == [instance.task(k) for k in range(instance.n_tasks)]


@settings(max_examples=60)
@given(st.binary(max_size=60), st.integers(0, 600), st.booleans())
def test_damaged_files_are_refused_or_read_never_worse(noise: bytes, at: int, cut: bool) -> None:
    """Whatever stands in a file, the reader answers with an instance or with one sentence."""
    text = encode(decode(json.dumps(GOOD)))
    damaged = text[:at] + noise + (b"" if cut else text[at + len(noise) :])
    try:
        assert decode(damaged).n_devices > 0
    except InputError as error:
        assert str(error).strip()
        assert "\n" not in str(error)


def test_a_thousand_jobs_on_fifty_devices_are_read_exactly() -> None:
    times = np.random.default_rng(7).random((1000, 50))
    times[::7, 3] = np.inf
    times[5] = np.arange(50)
    again = decode(encode(Instance.from_times(times)))
    assert np.array_equal(again.time, times)
    assert again.columns.task(5).time == list(range(50))
    assert again.columns.task(7).time[3] is None  # type: ignore[index]


# Records from Python are checked like those of a file ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (Job(name="j", time=[1.0, -2.0]), r"\$\.jobs\[0\]\.time\[1\] is -2\.0, expected a finite number >= 0"),
        (Job(name="j", time=[1.0, float("nan")]), r"\$\.jobs\[0\]\.time\[1\] is nan, expected a finite number >= 0"),
        (Job(name="j", time={"a": float("inf")}), r"\$\.jobs\[0\]\.time\.a is inf, expected a finite number >= 0"),
        (Job(name="j", time=[1, 2**60]), r"\$\.jobs\[0\]\.time\[1\] is an integer beyond 2\^53"),
        (Job(name="j", time=[1, 1], memory=-1), r"\$\.jobs\[0\]\.memory is -1\.0, expected a finite number >= 0"),
        (Job(name="j", time=[1, 1], weight=float("nan")), r"\$\.jobs\[0\]\.weight is nan"),
        (Job(name="j", time=[1, 1], due=-3), r"\$\.jobs\[0\]\.due is -3\.0"),
        (
            Job(name="j", time=[1, 1], memory=1e308),
            r"\$\.jobs\[0\]\.memory is 1e\+308, so large that sums may overflow",
        ),
        (Job(name="j", time=[1, 1], cost=[-1, 1]), r"\$\.jobs\[0\]\.cost\[0\] is -1"),
    ],
)
def test_numbers_of_records_built_in_python_are_checked(job: Job, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Instance.build([Device(name="a"), Device(name="b")], [job])


def test_numbers_of_arrays_leave_room_for_sums() -> None:
    with pytest.raises(InputError, match=r"\$\.jobs\[1\]\.time\[0\] is 1e\+308, so large that sums may overflow"):
        Instance.from_times([[1, 2], [1e308, 3]])
    assert Instance.from_times([[1e140, np.inf]]).time[0, 0] == 1e140


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="rows of different lengths"):
        Instance.from_times([[1, 2], [3]])


def test_numbers_of_devices_built_in_python_are_checked() -> None:
    with pytest.raises(InputError, match=r"\$\.devices\[0\]\.memory is -1, expected a finite number >= 0"):
        Instance.build([Device(name="a", memory=-1)], [Job(name="j", time=[1])])


def test_integers_that_a_float_cannot_hold_are_refused_in_arrays_too() -> None:
    assert Instance.from_times([[2**53]]).time[0, 0] == 2**53
    with pytest.raises(InputError, match=r"times holds the integer 9007199254740993, beyond 2\^53"):
        Instance.from_times(np.array([[1, 2**53 + 1]]))


@pytest.mark.parametrize(
    "number", ["9" * 400, "9007199254740993", "1e200", "-1e200"], ids=["digits", "2^53", "large", "negative"]
)
def test_a_number_in_a_table_that_sums_cannot_take_is_refused_with_its_place(number):
    text = (
        '{"format": "hetopt-instance/1", "devices": [{"name": "d"}], "jobs": [{"name": "j", "time": [1]}], '
        f'"tables": {{"setup": [[0, {{"j": {number}}}]]}}}}'
    )
    with pytest.raises(InputError, match=r"\$\.tables\.setup\[0\]\[1\]\.j is "):
        decode(text)
