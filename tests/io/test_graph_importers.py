"""Task graphs from other formats: what each line becomes, published values, sentences for what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from model_files import SOURCES

import hetopt
from hetopt import InputError
from hetopt.io import importers

DATA = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[3] / "shared" / "data"))


def read(kind: str, folder: Path):
    source = SOURCES[kind][0]
    for name, make in {source.name: source.make, **source.beside}.items():
        (folder / name).write_bytes(make())
    options = {k: str(folder / v) if v in source.beside else v for k, v in source.options.items()}
    return importers.get(kind).load(folder / source.name, **options)


def test_a_trace_keeps_seconds_and_shared_files(tmp_path):
    instance = read("wfformat", tmp_path)
    assert instance.labels == ("a", "b")
    assert instance.edge_data.tolist() == [4000]  # of what a writes, b reads f only
    ratio = instance.time[0] / instance.time[1]
    assert np.allclose(ratio, 2.5 / 4)
    rate = np.mean([link.bandwidth for link in instance.links])
    speed = 4 / instance.time[1]
    assert 4000 / rate == pytest.approx(0.5 * 3.25 / speed.mean())


def test_a_standard_task_graph(tmp_path):
    instance = read("stg", tmp_path)
    assert instance.time.tolist() == [[0] * 3, [4] * 3, [3] * 3, [0] * 3]
    assert instance.edges.tolist() == [[0, 1], [0, 2], [1, 2], [2, 3]]
    assert hetopt.solve(instance).objective == 7


def test_a_chip_sends_through_its_memory(tmp_path):
    instance = read("ds3", tmp_path)
    assert instance.device_names == ("P1.0", "P1.1", "A1")
    assert instance.time.tolist() == [[4, 4, np.inf], [7.5, 7.5, 2]]
    result = hetopt.solve(instance)
    assert (result.status, result.objective) == ("optimal", 4 + 6 / 2 + 6 / 3 + 2)


@pytest.mark.skipif(not (DATA / "socrates").is_dir(), reason="no socrates data: set HETOPT_DATA")
def test_the_published_job_on_the_published_chip():
    instance = importers.get("ds3").load(DATA / "socrates" / "job_Top.txt", soc=DATA / "socrates" / "DASH.SoC.Top.txt")
    assert hetopt.solve(instance, method="heft").objective == 80  # as Topcuoglu et al. print it
    result = hetopt.solve(instance)
    assert (result.status, result.objective) == ("optimal", 73)


def test_an_application_on_platforms(tmp_path):
    instance = read("cedr", tmp_path)
    assert instance.device_names == ("cpu0", "fft0")
    assert instance.time.tolist() == [[4, np.inf], [20.5, 6]]
    result = hetopt.solve(instance)
    assert (result.status, result.objective) == ("optimal", 4 + 5 + 6)
    several = importers.get("cedr").load(tmp_path / "app.json", workers="cpu=2,fft=1", jobs=2, every=3.0)
    assert several.device_names == ("cpu0", "cpu1", "fft0")
    result = hetopt.solve(several)
    assert (result.problem, result.status) == ("schedule.online", "optimal")
    assert result.objective == (15 + (15 + 6 - 3)) / 2  # the second copy waits for the accelerator


@pytest.mark.skipif(not (DATA / "cedr").is_dir(), reason="no cedr data: set HETOPT_DATA")
def test_the_published_applications():
    """Each is read, and ends no sooner than its longest way without transfers on one element of each platform."""
    found = {}
    for path in sorted((DATA / "cedr").glob("*/*.json")):
        instance = importers.get("cedr").load(path)
        result = hetopt.solve(instance)
        assert result.status == "optimal", path
        found[path.parent.name] = (instance.n_tasks, result.objective)
    assert len(found) == 14
    # three nodes one after the other on the one processor, costs read off the file: 10 + 5 + 12
    assert found["fft_acc_ds"] == (3, 27)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("cedr", "{}", r"\$\.DAG is missing"),
        ("cedr", '{"DAG": {"a": {}}}', r"\$\.DAG\.a\.platforms is missing, expected a list"),
        (
            "cedr",
            '{"DAG": {"a": {"platforms": [{"name": "cpu", "nodecost": -1}]}}}',
            r"nodecost is -1, expected a number",
        ),
        ("stg", "2\n0 0 0\n1 x 1 0\n", "line 3 holds 'x', expected the time of task 1"),
        ("stg", "1\n0 0 0\n2 1 0\n", "line 3 holds task 2, expected task 1"),
        ("stg", "9\n0 0 0\n", "is it cut off"),
        ("wfformat", '{"workflow": {}}', r"\$\.workflow\.specification is missing, expected an object"),
        ("wfformat", "[", "not a JSON text"),
    ],
)
def test_what_is_wrong_is_said(kind, text, said, tmp_path):
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError, match=said):
        importers.get(kind).load(tmp_path / "file")


@pytest.mark.parametrize(
    ("workers", "said"),
    [("fft=1", "node 'head' runs on cpu only"), ("gpu=1", "--workers names 'gpu'"), ("cpu", "such as cpu=3,fft=1")],
)
def test_elements_that_do_not_fit_an_application(workers, said, tmp_path):
    read("cedr", tmp_path)
    with pytest.raises(InputError, match=said):
        importers.get("cedr").load(tmp_path / "app.json", workers=workers)


def test_a_chip_is_asked_for(tmp_path):
    (tmp_path / "job").write_text("job_name x\na 0\n")
    with pytest.raises(InputError, match="--soc is missing"):
        importers.get("ds3").load(tmp_path / "job")
