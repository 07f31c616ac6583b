"""Some hundred broken inputs for each importer: a valid instance or one sentence. The long run is benchmarks/fuzz.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import Failure, judge, mutated, prepared
from model_files import SOURCES

from hetopt.io import importers

COUNT = 200


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_a_broken_input_is_refused_with_a_sentence_or_read(kind: str, tmp_path: Path) -> None:
    if kind not in importers.names():
        pytest.skip(f"there is no importer {kind}")
    load = importers.get(kind).load
    verdicts = {"instance": 0, "refused": 0}
    sources = prepared(kind, tmp_path)
    for source, place in sources:
        path = place / source.name
        path.write_bytes(source.make())
        assert judge(load, path, source.options) == "instance"
    for number in range(COUNT):
        source, place = sources[number % len(sources)]
        path = place / source.name
        path.write_bytes(mutated(kind, 0, number, source.make()))
        try:
            verdicts[judge(load, path, source.options)] += 1
        except Failure as failure:
            pytest.fail(f"{kind}, seed 0, number {number}: {failure}")
    assert verdicts["refused"] > COUNT / 4
    assert sum(verdicts.values()) == COUNT


def test_every_importer_has_a_source_to_break() -> None:
    assert set(importers.names()) <= set(SOURCES)
