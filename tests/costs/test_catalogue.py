"""The catalogue: known figures, names in any spelling, a user's file, and one source of numbers for the roofline."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from hetopt.cli import main
from hetopt.costs.catalogue import FORMAT, catalogue, describe, find, known, table
from hetopt.costs.roofline import PROCESSORS
from hetopt.errors import InputError

SHEETS = catalogue()


def own(tmp_path, *rows, **more) -> str:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"format": FORMAT, "devices": list(rows)} | more))
    return str(file)


# Figures --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "memory", "bandwidth", "fp16", "host_link", "power"),
    [  # data sheets
        ("h100-sxm", 80, 3350, 989, 63, 700),
        ("a100-sxm-40", 40, 1555, 312, 31.5, 400),
        ("t4", 16, 320, 65, 15.75, 70),
        ("l4", 24, 300, 121, 31.5, 72),  # 242 is the sparse figure
        ("rtx3090", 24, 936, 71, 31.5, 350),  # 142 is with half-precision accumulation
        ("mi300x", 192, 5300, 1307, 63, 750),
    ],
)
def test_figures_of_data_sheets(name, memory, bandwidth, fp16, host_link, power):
    sheet = SHEETS[name]
    found = (sheet.memory_gb, sheet.bandwidth_gbs, sheet.fp16_tflops, sheet.host_link_gbs, sheet.power_w)
    assert found == (memory, bandwidth, fp16, host_link, power)


def test_the_reference_devices_are_all_there_with_their_numbers(data_dir):
    """Rows agree with the reference file, but for a CPU's peak, which is stated with an efficiency of a half beside it."""
    for row in json.loads((data_dir / "devices.json").read_text())["devices"]:
        sheet = find(row["id"])
        assert sheet.memory_gb == row["mem_gb"]
        assert sheet.bandwidth_gbs == pytest.approx(row["mem_bw_gbs"], rel=1e-3) if row["mem_bw_gbs"] else True
        assert sheet.power_w == row["tdp_w"]
        if sheet.kind != "cpu":
            assert (sheet.fp16_tflops, sheet.int8_tops) == (row["bf16_dense_tflops"], row["int8_dense_tops"])
        if row["usd_per_hour"] is not None:
            assert sheet.price is not None
            assert sheet.price.usd_per_hour == row["usd_per_hour"]


def test_every_sheet_says_where_it_is_from_and_every_price_its_date_or_that_nobody_checked():
    for sheet in SHEETS.values():
        assert sheet.source
        assert sheet.confidence
        if sheet.price is not None:
            assert (sheet.price.date is None) == ("not checked" in sheet.price.note)


def test_usable_memory_is_less_than_nominal():
    assert SHEETS["a100-sxm-40"].usable_memory == 36_000_000_000
    assert SHEETS["m2-ultra-192"].usable_memory == 144_000_000_000  # three quarters of a unified memory
    assert SHEETS["coral-edgetpu"].usable_memory == 6_880_000  # of 8 MB
    assert all(s.usable_memory is None or s.usable_memory < s.memory for s in SHEETS.values())


def test_cpu_is_a_generic_host_with_stated_defaults():
    cpu = find("cpu")
    assert (cpu.kind, cpu.memory_gb, cpu.bandwidth_gbs, cpu.shared_memory) == ("cpu", 64, 51.2, True)
    assert cpu.fp16_tflops == pytest.approx(8 * 3e9 * 32 / 1e12)
    assert "8 cores at 3 GHz" in cpu.source
    assert cpu.confidence.startswith("assumed")


def test_the_roofline_has_the_catalogues_numbers():
    for name, processor in PROCESSORS.items():
        sheet = SHEETS[name]
        assert processor.peak.get("fp16", 0) == (sheet.fp16_tflops or 0) * 1e12
        assert processor.bandwidth == sheet.bandwidth_gbs * 1_000_000_000
        assert processor.memory == (None if sheet.shared_memory else sheet.memory)
        assert (processor.efficiency, processor.overhead) == (sheet.reached, sheet.overhead)
    assert PROCESSORS["h100-sxm"].overhead == 5e-6  # exactly: committed instances hang on the last bit
    assert not {"coral-edgetpu", "tpu-v5e", "m2-ultra-192"} & set(PROCESSORS)  # numbers or a fleet are missing


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("RTX 4090", "rtx4090"), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("rtx_4090", "rtx4090"), ("A100 SXM-80", "a100-sxm-80"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80"), ("Tesla T4", "t4"), ("L4", "l4"), ("h200", "h200-sxm"),
        ("Xeon 8480+", "xeon-8480plus"),
        ("snapdragon-8-gen3-npu", "snapdragon-8-gen-3-npu"), ("MI300", "mi300x"), ("CPU", "cpu"), ("m2 ultra", "m2-ultra-192"),
        ("TPU v5p", "tpu-v5p"), ("h100p", "h100-pcie"),
    ],
)  # fmt: skip
def test_names_match_whatever_their_case_and_punctuation(written, name):
    assert find(written).name == name


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("a100", "could be a100-sxm-40, a100-sxm-80, a100-pcie-80; write one of them"),
        ("v100", "could be v100-sxm2-16, v100-sxm2-32; write one"),
        ("snapdragon", "could be snapdragon-8-gen-3-npu, snapdragon-8-gen-3-cpu"),
        ("rtx4091", "there is no device 'rtx4091' in the catalogue; did you mean 'rtx4090'?"),
        ("", "there is no device ''"),
        ("--", "there is no device '--'"),
    ],
)
def test_ambiguous_and_unknown_names_list_candidates(written, says):
    with pytest.raises(InputError, match=re.escape(says)):
        find(written)


def test_a_beginning_is_no_exact_name():
    assert known("m2 ultra") is None
    assert known("H200 SXM") == SHEETS["h200-sxm"]
    assert known("H200") == SHEETS["h200-sxm"]  # as the driver calls it
    assert known("x") is None


def test_no_two_devices_are_called_alike():
    for name in SHEETS:
        assert find(name).name == name


# A user's file ----------------------------------------------------------------------------------------------------------


def test_a_file_overrides_what_it_states_and_adds_what_is_new(tmp_path):
    file = own(
        tmp_path,
        {"name": "RTX 4090", "price": {"usd_per_hour": 0.4, "date": "2026-11-30"}},
        {"name": "our-board", "kind": "npu", "memory_gb": 8},
    )
    sheets = catalogue(file)
    assert sheets["rtx4090"].price.usd_per_hour == 0.4
    assert sheets["rtx4090"].memory_gb == 24
    assert (sheets["our-board"].kind, sheets["our-board"].memory) == ("npu", 8_000_000_000)
    assert len(sheets) == len(SHEETS) + 1
    assert catalogue() == SHEETS  # the shipped one is as before


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"name": "l4", "memory": 24}, "$.devices[0]: Object contains unknown field `memory`"),
        ({"name": "l4", "memory_gb": -1}, "$.devices[0]"),
        ({"name": "l4", "memory_gb": "24"}, "$.devices[0]"),
        ({"name": "l4", "memory_gb": 1e300}, "$.devices[0]"),
        ({"name": "l4", "usable": 1.5}, "$.devices[0]"),
        ({"name": "l4", "kind": "gp"}, "$.devices[0]"),
        ({"name": "l4", "price": {"usd_per_hour": 1, "date": "today"}}, "$.devices[0]"),
        ({"name": "--"}, "expected a name with letters or digits"),
        ({"memory_gb": 1}, "$.devices[0].name is None"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(tmp_path, row, says):
    with pytest.raises(InputError, match=re.escape(says)):
        catalogue(own(tmp_path, row))


def test_a_wrong_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="repeats 'L-4'"):
        catalogue(own(tmp_path, {"name": "l4"}, {"name": "L-4"}))
    with pytest.raises(InputError, match=r"cannot read .*none.json"):
        catalogue(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"expected .*hetopt-devices/1"):
        catalogue(own(tmp_path, format="other/1"))
    deep = tmp_path / "deep.json"
    deep.write_bytes(b'{"format": "hetopt-devices/1", "devices": [' + b'{"a":' * 100_000)
    with pytest.raises(InputError, match=r"deep.json"):
        catalogue(deep)
    large = tmp_path / "large.json"
    large.write_bytes(b" " * ((1 << 24) + 1))
    with pytest.raises(InputError, match="more than 16777216 bytes"):
        catalogue(large)


# The command ----------------------------------------------------------------------------------------------------------


def call(*words):
    return CliRunner().invoke(main, ["devices", *words])


def test_the_command_shows_a_table_with_dates():
    lines = call().stdout.splitlines()
    assert len(lines) == 1 + len(SHEETS)
    assert lines[0].split() == [
        "device",
        "kind",
        "GB",
        "usable",
        "GB/s",
        "fp16",
        "int8",
        "host",
        "peer",
        "W",
        "USD/h",
        "as",
        "of",
    ]
    row = next(line for line in lines if line.startswith("a10 "))
    assert row.split() == ["a10", "gpu", "24", "21.6", "600", "125", "250", "31.5", "-", "150", "1.006", "2026-06"]
    assert next(line for line in lines if line.startswith("t4 ")).split()[-2:] == ["0.526", "unchecked"]
    assert table({}).split()[0] == "device"


def test_the_command_shows_a_data_sheet():
    text = call("RTX-4090").stdout
    assert text == describe(SHEETS["rtx4090"]) + "\n"
    for line in (
        "memory      24 GB, of which 21.6 usable",
        "fp16        165.2 TFLOPS dense",
        "0.7 of the peak, assumed",
        "price       not known",
    ):
        assert line in text
    h100 = call("h100-sxm").stdout
    assert "0.803 of the peak, measured" in h100
    assert "450 GB/s (NVLink4)" in h100
    assert "4.92 USD/h (2024; an eighth" in h100
    assert "shared with the host" in call("cpu").stdout
    assert "rate not published (NeuronLink)" in call("trainium2").stdout


def test_the_command_prints_json_that_can_be_read_back(tmp_path):
    run = call("--json")
    assert json.loads(run.stdout)["format"] == FORMAT
    again = tmp_path / "all.json"
    again.write_text(run.stdout)
    assert catalogue(again) == SHEETS
    [row] = json.loads(call("t4", "--json").stdout)["devices"]
    assert (row["name"], row["memory_gb"]) == ("t4", 16)


def test_the_command_takes_a_file_and_lists_candidates(tmp_path):
    file = own(tmp_path, {"name": "t4", "price": {"usd_per_hour": 0.11, "date": "2026-12", "note": "ours"}})
    assert "0.11 USD/h (2026-12; ours)" in call("t4", "--file", file).stdout
    for words, says in ((["a100"], "could be a100-sxm-40"), (["t4", "--file", "none.json"], "cannot read 'none.json'")):
        run = call(*words)
        assert (run.exit_code, run.stdout) == (1, "")
        assert says in run.stderr
