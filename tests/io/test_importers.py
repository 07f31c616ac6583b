"""Importers keep every number, guess nothing that could be wrong, and name the place of what is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import importers
from hetopt.io.instances import decode, encode

INF = np.inf


def load(kind: str, tmp_path: Path, text: str | bytes, name: str = "source", **options: Any) -> Instance:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return importers.get(kind).load(path, **options)  # type: ignore[no-any-return]


def complaint(kind: str, tmp_path: Path, text: str | bytes, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(kind, tmp_path, text, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(("cannot read", str(tmp_path), "--"))
    return message


# The registry ---------------------------------------------------------------------------------------------------------


def test_the_importers_are_found_by_name() -> None:
    assert {"csv", "dnn-partitioning", "hcsp"} <= set(importers.names())
    assert importers.names() == sorted(importers.names())
    for importer in importers.importers():
        assert importers.get(importer.NAME) is importer
        assert importer.TITLE.endswith(".")
        assert importer.SOURCE_HELP
        for flag, kind, default, text in importer.OPTIONS:
            assert flag.startswith("--")
            assert default is None or (default in kind if isinstance(kind, tuple) else isinstance(default, kind))
            assert text.endswith(".")
    with pytest.raises(InputError, match="did you mean 'hcsp'"):
        importers.get("hscp")


@pytest.mark.parametrize("kind", ["csv", "dnn-partitioning", "hcsp"])
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        importers.get(kind).load(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        importers.get(kind).load(tmp_path / "none")
    assert "UTF-8" in complaint(kind, tmp_path, b"\xff\xfe\x00 1 2\n") or kind == "dnn-partitioning"
    assert complaint(kind, tmp_path, "")


# dnn-partitioning -----------------------------------------------------------------------------------------------------

WORKLOAD: dict[str, Any] = {
    "maxSizePerFPGA": 100.5,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [
        {"id": 7, "name": "conv", "supportedOnFpga": 1, "cpuLatency": 6.959999999999999, "fpgaLatency": 0.696,
         "isBackwardNode": 0, "colorClass": 3, "size": 40.25},
        {"id": 2, "name": "relu", "supportedOnFpga": True, "cpuLatency": 2, "fpgaLatency": 1, "isBackwardNode": False},
        {"id": 5, "name": "relu", "supportedOnFpga": 0, "cpuLatency": 4, "isBackwardNode": 1, "colorClass": 3},
    ],
    "edges": [
        {"sourceId": 7, "destId": 2, "cost": 0.125, "size": 99},
        {"sourceId": 7, "destId": 5, "cost": 0.125},
        {"sourceId": 2, "destId": 5, "cost": 0.5},
    ],
}  # fmt: skip


def workload(**change: Any) -> dict[str, Any]:
    record = json.loads(json.dumps(WORKLOAD))
    for path, value in change.items():
        place, steps = record, path.split("__")
        for step in steps[:-1]:
            place = place[int(step)] if step.isdigit() else place[step]
        if value is None:
            del place[steps[-1]]
        else:
            place[steps[-1]] = value
    return record  # type: ignore[no-any-return]


def test_a_workload_is_taken_over_exactly(tmp_path: Path) -> None:
    instance = load("dnn-partitioning", tmp_path, json.dumps(WORKLOAD), "tiny.json")
    assert instance.name == "tiny"
    assert instance.device_names == ("fpga0", "fpga1", "cpu0")
    assert instance.is_host.tolist() == [False, False, True]
    assert instance.capacity.tolist() == [100.5, 100.5, INF]
    assert instance.labels == ("conv", "relu#2", "relu#5")
    assert instance.time.tolist() == [[0.696, 0.696, 6.959999999999999], [1, 1, 2], [INF, INF, 4]]
    assert instance.memory.tolist() == [40.25, 0, 0]
    assert instance.output.tolist() == [0.125, 0.5, 0]
    assert instance.group.tolist() == [0, -1, 0]
    assert instance.backward.tolist() == [False, False, True]
    assert instance.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    for ends in (("fpga1", "host"), ("host", "fpga0")):
        link = instance.need_link(*ends)
        assert (link.bandwidth, link.latency) == (1, 0)
    assert instance.question == {"objective": "throughput"}
    assert decode(encode(instance)).digest == instance.digest


def test_the_question_follows_the_folder_the_name_or_the_option(tmp_path: Path) -> None:
    text = json.dumps(WORKLOAD)

    def asked(name: str, **options: Any) -> Any:
        return load("dnn-partitioning", tmp_path, text, name, **options).question["objective"]

    assert asked("w.json") == "throughput"
    assert asked("latency-inputs/w.json") == "latency"
    assert asked("my-latency.json") == "latency"
    assert asked("latency-inputs/w.json", question="throughput") == "throughput"
    assert asked("w.json", question="latency") == "latency"
    message = complaint("dnn-partitioning", tmp_path, text, question="latancy")
    assert message == "--question is 'latancy'; did you mean 'latency'?"


def test_a_workload_without_accelerators_or_without_cpus_is_one_too(tmp_path: Path) -> None:
    instance = load("dnn-partitioning", tmp_path, json.dumps(workload(maxFPGAs=0)))
    assert instance.time.tolist() == [[6.959999999999999], [2], [4]]
    assert not instance.links
    message = complaint("dnn-partitioning", tmp_path, json.dumps(workload(maxCPUs=0)))
    assert "'relu#5') can run nowhere" in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"maxFPGAs": None}, "$ lacks the key 'maxFPGAs'"),
        ({"maxFPGAs": -1}, "$.maxFPGAs is -1, expected a whole number from 0"),
        ({"maxFPGAs": 10**9}, "$.maxFPGAs is 1000000000, expected a whole number"),
        ({"maxFPGAs": 0, "maxCPUs": 0}, "are both 0"),
        ({"maxSizePerFPGA": -2}, "$.maxSizePerFPGA is -2, expected a number >= 0"),
        ({"nodes": []}, "$.nodes is empty"),
        ({"maxDevices": 3}, "$ has the unknown key 'maxDevices'"),
        ({"nodes__0__colourClass": 3}, "$.nodes[0] has the unknown key 'colourClass'; did you mean 'colorClass'?"),
        ({"nodes__0__id": None}, "$.nodes[0] lacks the key 'id'"),
        ({"nodes__0__id": "7"}, '$.nodes[0].id is "7", expected int'),
        ({"nodes__1__id": 7}, "$.nodes[1].id repeats 7 of $.nodes[0]"),
        ({"nodes__0__supportedOnFpga": 2}, "$.nodes[0].supportedOnFpga"),
        ({"nodes__0__fpgaLatency": -1}, "$.nodes[0].fpgaLatency is -1, expected a number >= 0"),
        ({"nodes__0__fpgaLatency": None}, "$.nodes[0].fpgaLatency is missing"),
        ({"nodes__0__cpuLatency": "x"}, '$.nodes[0].cpuLatency is "x"'),
        ({"nodes__0__size": True}, "$.nodes[0].size is true"),
        ({"edges__0__destId": 9}, "$.edges[0].destId is 9, which is no node's id"),
        ({"edges__2__sourceId": 8}, "$.edges[2].sourceId is 8, which is no node's id"),
        ({"edges__1__destId": 2}, "$.edges[1] repeats the edge 7 -> 2 of $.edges[0]"),
        ({"edges__1__cost": 0.12501}, "$.edges[1].cost is 0.12501, expected 0.125 as in $.edges[0]"),
        ({"edges__1__cost": None}, "$.edges[1] lacks the key 'cost'"),
        ({"edges__2__destId": 7}, "edges form a cycle"),
    ],
)
def test_a_workload_that_cannot_be_right_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in complaint("dnn-partitioning", tmp_path, json.dumps(workload(**change)))


def test_costs_within_the_tolerance_are_one_output(tmp_path: Path) -> None:
    instance = load("dnn-partitioning", tmp_path, json.dumps(workload(edges__1__cost=0.1250009)))
    assert instance.output[0] == 0.1250009


def test_a_workload_that_is_no_json_is_refused(tmp_path: Path) -> None:
    text = json.dumps(WORKLOAD)
    assert "ends too early" in complaint("dnn-partitioning", tmp_path, text[: len(text) // 2])
    assert "holds NaN" in complaint("dnn-partitioning", tmp_path, text.replace("0.696", "NaN", 1))
    assert "'size' twice" in complaint(
        "dnn-partitioning", tmp_path, text.replace('"size": 40.25', '"size": 1, "size": 2')
    )


@pytest.mark.parametrize(
    ("name", "devices", "tasks", "edges", "memory"),
    [
        ("throughput-inputs/LayerGraphs/bert24_training", 7, 64, 110, 17185374208),
        ("throughput-inputs/OperatorGraphs/bert_l-3_inference", 4, 235, 250, 17185374208),
        ("throughput-inputs/OperatorGraphs/bert_L-12_training", 7, 2012, 2751, 17185374208),
        ("latency-inputs/LayerGraphs/inceptionv3_inference", 20, 326, 363, 2147483648),
    ],
)
def test_published_workloads_keep_their_sizes_and_sums(
    data_dir: Path, name: str, devices: int, tasks: int, edges: int, memory: float
) -> None:
    path = data_dir / "dnn-partitioning" / f"{name}.json"
    instance = importers.get("dnn-partitioning").load(path)
    assert (instance.n_devices, instance.n_tasks, len(instance.edges)) == (devices, tasks, edges)
    assert instance.capacity[0] == memory
    assert instance.question == {"objective": name.split("-")[0]}
    record = json.loads(path.read_text())
    assert instance.time[:, 0].tolist() == [node["fpgaLatency"] for node in record["nodes"]]
    assert instance.time[:, -1].tolist() == [node["cpuLatency"] for node in record["nodes"]]
    assert instance.memory.tolist() == [node["size"] for node in record["nodes"]]
    index = {node["id"]: k for k, node in enumerate(record["nodes"])}
    assert all(instance.output[index[edge["sourceId"]]] == edge["cost"] for edge in record["edges"])


# hcsp -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["2 3 0\n1\n2.5\n3\n4\n5e1\n6\n", "2 3\n1 2.5 3\n4 50 6", "2 3 1\r\n1 2.5\r\n3 4 50 6\r\n\r\n"]
)
def test_an_hcsp_matrix_is_read_row_by_row(text: str, tmp_path: Path) -> None:
    instance = load("hcsp", tmp_path, text, "u_c_hihi.0")
    assert instance.time.tolist() == [[1, 2.5, 3], [4, 50, 6]]
    assert instance.labels == ("t0", "t1")
    assert instance.device_names == ("m0", "m1", "m2")
    assert (instance.name, instance.question) == ("u_c_hihi.0", {"objective": "makespan"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1 is missing"),
        ("two 3\n", "line 1 is 'two 3', expected 'tasks machines'"),
        ("2\n1\n2\n", "line 1 is '2'"),
        ("0 3\n", "line 1 is '0 3'"),
        ("2 3 9\n1 2 3 4 5 6", "class 0, 1 or 2"),
        ("-2 3\n1 2 3 4 5 6", "line 1 is '-2 3'"),
        ("99999 99999\n1\n", "more than"),
        ("999 999\n1\n", "is it cut off?"),
        ("2 3 0\n1000\n2000\n3000\n4000\n5000", "the file ends after 5 times, but line 1 announces 2 x 3"),
        ("2 2\n1\n2\n3\n4\n5\n", "line 6 holds '5' after the 2 x 2 times"),
        ("2 2\n1\nnan\n3\n4\n", "line 3 holds 'nan', expected a time"),
        ("2 2\n1\n2\ninf\n4\n", "line 4 holds 'inf'"),
        ("2 2\n1\n2\n-3\n4\n", "line 4 holds '-3'"),
        ("2 2\n1\n2\n3,5\n4\n", "line 4 holds '3,5'"),
        ("2 2\n1\n2\n1e999\n4\n", "line 4 holds '1e999'"),
        ("2 2\n1\n2\n1_0\n4\n", "line 4 holds '1_0'"),
    ],
)
def test_an_hcsp_file_that_cannot_be_right_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert said in complaint("hcsp", tmp_path, text)


def test_published_hcsp_matrices_are_read(data_dir: Path) -> None:
    instance = importers.get("hcsp").load(data_dir / "hcsp" / "512x16" / "u_c_hihi.0")
    assert instance.time.shape == (512, 16)
    assert instance.time[0, :3].tolist() == [91753.195312, 263115.4375, 275111.21875]
    assert (np.diff(instance.time, axis=1) >= 0).all()  # consistent: the same order of machines for every task


# csv ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "jobs", "devices", "times"),
    [
        ("1,2\n3,4\n", None, None, [[1, 2], [3, 4]]),
        ("a,1,2\nb,,4.5\n", ["a", "b"], None, [[1, 2], [INF, 4.5]]),
        ("gpu,cpu\n1,2\n", None, ["gpu", "cpu"], [[1, 2]]),
        ("job,gpu,cpu\na,1,2\n", ["a"], ["gpu", "cpu"], [[1, 2]]),
        ("job,gpu,cpu\n17,1,2\n", ["17"], ["gpu", "cpu"], [[1, 2]]),
        ("Task Name,3090,4090\nmatmul,1,2\n", ["matmul"], ["3090", "4090"], [[1, 2]]),
        (",gpu,cpu\n0,1,2\n1,3,4\n", ["0", "1"], ["gpu", "cpu"], [[1, 2], [3, 4]]),
        ("gpu,cpu\na,1,2\n", ["a"], ["gpu", "cpu"], [[1, 2]]),
        ("gpu;cpu\n1.5;2\n", None, ["gpu", "cpu"], [[1.5, 2]]),
        ("a\t1\t\nb\t3\t4e2", ["a", "b"], None, [[1, INF], [3, 400]]),
        ('"x, y",1,2\n"z ""q""",3,4\n', ["x, y", 'z "q"'], None, [[1, 2], [3, 4]]),
        ("\ufeffgpu,cpu\r\n1,2\r\n\r\n3,4\r\n", None, ["gpu", "cpu"], [[1, 2], [3, 4]]),
        ("time\n3\n4\n", None, ["time"], [[3], [4]]),
        ("a,3\nb,4\n", ["a", "b"], None, [[3], [4]]),
        (" a , 3 \n b , +4.\n", ["a", "b"], None, [[3], [4]]),
        ("2080ti,a100\n3,.5\n", None, ["2080ti", "a100"], [[3, 0.5]]),
    ],
)
def test_a_table_is_understood(text: str, jobs: Any, devices: Any, times: Any, tmp_path: Path) -> None:
    instance = load("csv", tmp_path, text, "table.csv")
    assert instance.time.tolist() == times
    assert list(instance.labels) == (jobs or [f"j{k}" for k in range(len(times))])
    assert list(instance.device_names) == (devices or [f"d{k}" for k in range(len(times[0]))])
    assert (instance.name, instance.question) == ("table", {"objective": "makespan"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n \n", "the file is empty"),
        ("gpu,cpu\n", "a header and no row below"),
        ("1,2\n3,4,5\n", "line 2 has 3 cells, expected 2 as in line 1"),
        ("1,2,3\n4\n", "line 2 has 1 cells, expected 3"),
        ("gpu,cpu,npu,x\n1,2\n3,4", "line 1, the header, has 4 cells, expected 2 as in the rows below"),
        ("1,2\n3,nan\n", "line 2, column 2 is 'nan', expected a number >= 0"),
        ("1,2\n3,inf\n", "line 2, column 2 is 'inf'"),
        ("nan,2\n3,4\n", "line 1, column 1 is 'nan'"),
        ("1,2\n3,-4\n", "line 2, column 2 is '-4'"),
        ("1,2\n3,x\n", "line 2, column 2 is 'x'"),
        ("a,1,2\nb,1_000,4\n", "line 2, column 2 is '1_000'"),
        (
            "1,5;2,5\n3;4\n",
            "line 1, column 1 is '1,5', expected a number >= 0, or nothing where the job cannot run; decimals",
        ),
        ("a,1,2\na,3,4\n", "line 2, column 1 repeats the job 'a' of line 1"),
        ("a,1,2\n,3,4\n", "line 2, column 1 is empty, expected the job's name"),
        ("gpu,gpu\n1,2\n", "line 1, column 2 repeats the device 'gpu'"),
        ("job,gpu,\na,1,2\n", "line 1, column 3 is empty, expected the device's name"),
        ("a,1,2\nb,,\n", "line 2: the job 'b' can run nowhere"),
        ("x,gpu,3090\na,1,2\n", "line 1, column 2 is 'gpu' beside cells that are no text"),
        (",0,1\n0,3,4\n1,5,6\n", "line 1 may number the devices or hold times; say --header yes or --header no"),
        ("0,3\n1,4\n2,5\n3,6\n", "column 1 counts the rows: it may number the jobs or hold times; say --names yes"),
        ('a,1\n"b,2\n', "is no row of a table"),
        ("a,1\nb,\0\n", "line 2 holds a NUL byte"),
        ("1,2,\n3,4,\n", "column 3 is empty in every row"),
        ("job\na\nb\n", "line 2, column 1 is 'a', expected a number"),
    ],
)
def test_a_table_that_could_mislead_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert said in complaint("csv", tmp_path, text)


def test_options_say_what_looking_cannot_tell(tmp_path: Path) -> None:
    counted = "0,3\n1,4\n2,5\n3,6\n"
    assert load("csv", tmp_path, counted, names="yes").labels == ("0", "1", "2", "3")
    assert load("csv", tmp_path, counted, names="no").time[3].tolist() == [3, 6]
    numbered = ",0,1\n0,3,4\n1,5,6\n"
    assert load("csv", tmp_path, numbered, header="yes").device_names == ("0", "1")
    assert load("csv", tmp_path, numbered, header="no", names="no").time[0].tolist() == [INF, 0, 1]
    assert load("csv", tmp_path, "x,gpu,3090\na,1,2\n", header="yes").device_names == ("gpu", "3090")
    assert "--header is 'maybe'" in complaint("csv", tmp_path, counted, header="maybe")
    assert "no column of times" in complaint("csv", tmp_path, "a\nb\n", names="yes", header="no")


def test_a_large_table_is_refused_before_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importers.get("csv"), "MAX_CELLS", 10)
    assert "more than 10 cells" in complaint("csv", tmp_path, "1,2\n" * 8)


def test_a_table_gives_back_the_matrix_that_was_written(tmp_path: Path) -> None:
    times = np.random.default_rng(3).random((40, 6))
    times[::5, 2] = INF
    rows = [
        ",".join([f"job {k}", *("" if np.isinf(t) else repr(float(t)) for t in row)]) for k, row in enumerate(times)
    ]
    assert np.array_equal(load("csv", tmp_path, "\n".join(rows)).time, times)


@pytest.mark.parametrize("rate", ["9" * 400, "1e300", "-1", "true"], ids=["400 digits", "1e300", "negative", "bool"])
def test_a_rate_that_no_job_has_is_refused(tmp_path, rate):
    """An integer of hundreds of digits is below infinity and still no float."""
    oracle = tmp_path / "oracle.json"
    table = f'{{"(\'ResNet-18 (batch size 16)\', 1)": {{"null": {rate}}}}}'
    oracle.write_text(f'{{"k80": {table}, "p100": {table}, "v100": {table}}}')
    with pytest.raises(InputError, match="expected steps a second"):
        importers.get("gavel").load(oracle, jobs=2, capacity="1,1,1")
