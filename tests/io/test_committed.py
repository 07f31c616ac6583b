"""The committed instances are those of the generators, valid by schema and reader; index and schema are fresh."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

import hetopt
from hetopt import report
from hetopt.io.instances import encode
from hetopt.io.schema import schema_text
from hetopt.registry import problem_for
from hetopt.result import TOLERANCE

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "instances"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"instances_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make, index = script("make"), script("index")
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "instance.schema.json").read_text())


def test_the_committed_schema_is_fresh() -> None:
    """Mend with: python -m hetopt.io.schema docs/instance.schema.json"""
    assert (ROOT / "docs" / "instance.schema.json").read_text() == schema_text()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_file_is_made_and_indexed() -> None:
    assert index.files() == sorted(file for file, _, _ in make.FILES)
    assert [entry["file"] for entry in INDEX] == index.files()
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.json")) < 3_000_000


@pytest.mark.parametrize(
    "file",
    [
        "assignment/u1_100-50x10.json",
        "assignment/u_s_hilo-200x20.json",
        "assignment/u100_200-200x20-memory-eligible-pins.json",
        "partition/resnet50-training.json",
        "partition/llama70b-mixed.json",
        "partition/mobile-trio.json",
        "partition/series-parallel-30.json",
    ],
)
def test_a_file_is_made_again_byte_for_byte(file: str) -> None:
    """Mend with: python instances/make.py"""
    assert (FOLDER / file).read_bytes() == encode(make.made(file))


@pytest.mark.parametrize("file", index.files())
def test_what_can_be_asked_of_a_file_is_listed(file: str) -> None:
    """Its own question among others; a problem that lacks a fact only a closer look misses is left out, not a fault."""
    instance = hetopt.read(FOLDER / file)
    named = {row["name"] for row in report.catalogue(instance)}
    assert problem_for(instance).name in named


@pytest.mark.parametrize("file", index.files())
def test_a_file_is_valid_and_its_entry_fresh(file: str) -> None:
    """Mend with: python instances/index.py"""
    record = json.loads((FOLDER / file).read_text())
    jsonschema.validate(record | {"jobs": record["jobs"][:50]}, SCHEMA)
    entry = next(entry for entry in INDEX if entry["file"] == file)
    assert index.facts(file).items() <= entry.items()
    assert entry["name"] == Path(file).stem


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["name"])
def test_what_the_index_claims_is_consistent(entry: dict[str, Any]) -> None:
    value, bound = entry["objective"], entry["bound"]
    assert (value is None) == (entry["method"] is None)
    assert (bound is None) == (entry["bound_method"] is None)
    assert (bound is None) == (entry["bound_proof"] == "none")
    if value is not None and bound is not None:
        sense = problem_for(hetopt.read(FOLDER / entry["file"])).sense
        over = value - bound if sense == "min" else bound - value
        assert over >= -1e-9 * abs(value)
        assert entry["optimal"] == (over <= TOLERANCE * abs(value))
    else:
        assert not entry["optimal"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "hetopt-instance/2"),
        (("devices", 0, "memory"), -1),
        (("devices", 0, "memroy"), 1),
        (("jobs", 0, "time"), "fast"),
        (("jobs", 0, "time", 0), -1),
        (("jobs", 0, "pin"), []),
        (("links",), [{"from": "m0", "to": "m1", "bandwidth": 0}]),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(path: tuple[Any, ...], value: Any) -> None:
    record = json.loads((FOLDER / "assignment" / "u1_100-50x10.json").read_text())
    place = record
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(record, SCHEMA)
    with pytest.raises(hetopt.InputError):
        hetopt.io.instances.decode(json.dumps(record))
