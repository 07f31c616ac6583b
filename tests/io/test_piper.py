"""The importer of Piper's workloads keeps every number and names the place of what cannot be right."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import importers
from hetopt.io.instances import decode, encode
from hetopt.verify.hybrid import hybrid_facts


def way(name: str, seconds: float, fw: dict[str, float], bw: dict[str, float]) -> dict[str, Any]:
    return {
        "id": name, "timePerSample": seconds, "parameterSize": 7, "memoryUsageA": 3.5, "memoryUsageB": 11,
        "syncTimeFw": fw, "syncTimeBw": bw,
    }  # fmt: skip


WORKLOAD: dict[str, Any] = {
    "maxMemoryPerDevice": 100.0,
    "maxDevices": 3,
    "bandwidth": 2.0,
    "mbsInBatch": 6,
    "nodes": [
        {
            "id": 5,
            "name": "embed",
            "TMPCs": {"1": [way("vanilla", 0.5, {}, {"7": 2}), way("recomp", 0.75, {}, {"7": 2})]},
        },
        {"id": 7, "TMPCs": {"1": [way("vanilla", 1, {"5": 1}, {})], "2": [way("vanilla", 0.6, {"5": 4}, {})]}},
    ],
    "edges": [{"sourceId": 5, "destId": 7, "communicationCost": 9.0}],
}


def load(tmp_path: Path, workload: dict[str, Any] = WORKLOAD, **options: Any) -> Instance:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(workload))
    return importers.get("piper").load(path, **options)  # type: ignore[no-any-return]


def complaint(tmp_path: Path, workload: dict[str, Any] = WORKLOAD, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, workload, **options)
    return str(caught.value)


def changed(*path: Any, **entries: Any) -> dict[str, Any]:
    workload = copy.deepcopy(WORKLOAD)
    at = workload
    for key in path:
        at = at[key]
    at.update(entries)
    return workload


def test_numbers_are_kept(tmp_path: Path) -> None:
    instance = load(tmp_path)
    assert instance.labels == ("embed", "node#7")
    assert instance.question["objective"] == "hybrid"
    facts = hybrid_facts(decode(encode(instance)))
    assert (facts.batch, facts.bandwidth, facts.capacity, facts.devices) == (6, 2, 100, 3)
    assert facts.data.tolist() == [9]
    first, second = facts.modes
    assert [(m.name, m.tensor, m.seconds) for m in first] == [("1 vanilla", 1, 0.5), ("1 recomp", 1, 0.75)]
    assert [(m.name, m.tensor, m.seconds) for m in second] == [("1 vanilla", 1, 1), ("2 vanilla", 2, 0.6)]
    assert (first[0].memory, first[0].activation, first[0].parameters) == (11, 3.5, 7)
    assert (first[0].send, first[0].receive) == ({0: 2}, {})
    assert (second[1].send, second[1].receive) == ({}, {0: 4})


def test_published_experiments_change_devices_memory_and_batch(tmp_path: Path) -> None:
    facts = hybrid_facts(load(tmp_path, devices=16, memory=50.0, batch=8))
    assert (facts.batch, facts.capacity, facts.devices) == (8, 50, 16)
    described = changed()
    described["maxBatchSize"] = described.pop("mbsInBatch")
    assert hybrid_facts(load(tmp_path, described)).batch == 6


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        (changed(maxDevices=0), "$.maxDevices is 0"),
        (changed(nodes=[]), "$.nodes is empty"),
        (changed("nodes", 1, id=5), "$.nodes[1].id repeats 5"),
        (changed("nodes", 0, TMPCs={}), "$.nodes[0].TMPCs is empty"),
        (changed("nodes", 0, TMPCs={"two": []}), "has the key 'two'"),
        (changed("nodes", 0, "TMPCs", "1", 1, id="vanilla"), "repeats 'vanilla'"),
        (changed("nodes", 0, "TMPCs", "1", 0, syncTimeBw={}), "$.nodes[0].TMPCs.1[0].syncTimeBw names []"),
        (changed("nodes", 0, "TMPCs", "1", 0, timePerSample=-1), "-1"),
        (changed("edges", 0, destId=8), "$.edges[0].destId is 8"),
        (changed(edges=[WORKLOAD["edges"][0]] * 2), "$.edges[1] repeats the edge 5 -> 7"),
        (changed(bandwith=3), "bandwith"),
        (changed(mbsInBatch=None), "$.mbsInBatch is missing"),
    ],
)
def test_what_cannot_be_right_is_named(tmp_path: Path, workload: dict[str, Any], told: str) -> None:
    assert told in complaint(tmp_path, workload)


def test_options_out_of_range_are_named(tmp_path: Path) -> None:
    assert complaint(tmp_path, devices=0).startswith("--devices is 0")
    assert complaint(tmp_path, batch=-1).startswith("--batch is -1")
    assert complaint(tmp_path, memory=-1.0).startswith("--memory is -1")
