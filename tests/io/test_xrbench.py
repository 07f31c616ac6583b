"""XRBench scenarios: what each line becomes, the published files, sentences for what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from model_files import SOURCES

import hetopt
from hetopt import InputError
from hetopt.io import importers
from hetopt.verify.streams import streams_of

DATA = (
    Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[3] / "shared" / "data")) / "xrbench" / "usage_scenarios"
)
XRBENCH = importers.get("xrbench")


def read(folder: Path, text: str | None = None, **options):
    source = SOURCES["xrbench"][0]
    (folder / "scene.m").write_bytes(source.make() if text is None else text.encode())
    return XRBENCH.load(folder / "scene.m", **{**source.options, **options})


def test_networks_become_models_with_periods(tmp_path):
    instance = read(tmp_path)
    assert instance.columns.job_name == ("eyes+gaze", "hands")
    assert instance.columns.period.tolist() == [1 / 60, 1 / 45]
    assert instance.columns.task_name == ("eyes.0", "eyes.1", "gaze.2", "b0")
    assert instance.edges.tolist() == [[0, 1], [1, 2]]
    assert instance.device_names == ("adreno-750", "snapdragon-8-gen-3-cpu-0", "snapdragon-8-gen-3-cpu-1")
    streams = streams_of(instance)
    assert [model.frames for model in streams.models] == [4, 3]
    assert streams.hyperperiod == pytest.approx(1 / 15)


def test_arithmetic_and_bytes(tmp_path):
    instance = read(tmp_path)
    assert instance.memory.tolist() == [2 * 32 * 3 * 9, 2 * 32 * 9, 2 * 512 * 512, 2 * 64 * 3 * 49]
    assert instance.output.tolist() == [2 * 32 * 80 * 60, 2 * 32 * 80 * 60, 2 * 512 * 12, 2 * 64 * 128 * 128]
    from hetopt.costs.roofline import PROCESSORS, seconds

    moved = 2 * (32 * 3 * 9 + 3 * 80 * 60 + 32 * 80 * 60)
    expected = seconds(PROCESSORS["adreno-750"], 2 * 32 * 3 * 9 * 80 * 60, moved, "fp16")
    assert instance.time[0, 0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("blocks", "tasks"), [(0, 4), (1, 3), (2, 4), (100, 4)])
def test_layers_are_merged(blocks, tasks, tmp_path):
    assert read(tmp_path, blocks=blocks).n_tasks == tasks


@pytest.mark.skipif(not DATA.is_dir(), reason="no xrbench data: set HETOPT_DATA")
@pytest.mark.parametrize(
    ("name", "models", "frames"),
    [
        ("AR_gaming", 3, [3, 2, 1]),
        ("VR_gaming", 2, [4, 3]),
        ("outdoor_activity_B", 2, [1, 10]),
        ("social_interactionA", 3, [2, 1, 1]),
    ],
)
def test_published_scenarios(name, models, frames):
    instance = XRBENCH.load(DATA / f"{name}.m")
    streams = streams_of(instance)
    assert instance.n_jobs == models
    assert [model.frames for model in streams.models] == frames
    result = hetopt.solve(instance, method="edf")
    assert result.verified


NETWORK = "Network a { FPS: 3 Layer l { Type: CONV Dimensions: { K: 2 } } }"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no networks"),
        ("Net a {", "line 1 has 'Net', expected 'Network'"),
        ("Network a { FPS: x }", "has the FPS 'x'"),
        ("Network a { FPS: 3 }", "has no layers"),
        (NETWORK.replace("CONV", "POOL"), "type 'POOL'"),
        (NETWORK.replace("K: 2", "K: 0"), "K: 0, expected"),
        (NETWORK.replace("K: 2", "Q: 2"), "Q: 2, expected"),
        (NETWORK + NETWORK, "a second network 'a'"),
        (NETWORK[:-1], "the end of the file"),
        (NETWORK.replace("FPS", "Fps"), "the nearest|FPS"),
        (NETWORK.replace("FPS: 3", "FPS: 3 Dependency: { b }"), "depends on 'b'"),
        (NETWORK.replace("FPS: 3", "FPS: 3 Dependency: { a }"), "circle"),
        (NETWORK + NETWORK.replace("a {", "b {").replace("FPS: 3", "FPS: 5 Dependency: { a }"), "of the same FPS"),
    ],
    ids=range(13),
)
def test_what_is_wrong_is_said(text, said, tmp_path):
    with pytest.raises(InputError, match=said):
        read(tmp_path, text)


def test_blocks_out_of_range(tmp_path):
    with pytest.raises(InputError, match="--blocks"):
        read(tmp_path, blocks=-1)
