"""The reader takes the published layouts whole and refuses whatever says something else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hetopt.io.helix import read_layout
from hetopt.verify.serving import max_flow

# Two nodes, three layers: node 0 keeps 1 or 2 (rates 5 and 2.5), node 1 keeps 1 (rate 40).
LINES = {
    "hold0": "hold_constraint_0: hold_0_1 + hold_0_2 = 1",
    "end0": "end_constraint_0: start_0 + hold_0_1 + 2 hold_0_2 <= 3",
    "hold1": "hold_constraint_1: hold_1_1 = 1",
    "end1": "end_constraint_1: start_1 + hold_1_1 <= 3",
    "flow0": "node_flow_constraint_0: flow_source_0 - flow_0_1 = 0",
    "flow1": "node_flow_constraint_1: flow_0_1 - flow_1_sink = 0",
    "rate0": "node_throughput_constraint_0: - 5 hold_0_1\n   - 2.5 hold_0_2 + flow_source_0 <= 0",
    "rate1": "node_throughput_constraint_1: - 4e+01 hold_1_1 + flow_0_1 <= 0",
    "cap_s": "edge_flow_constr_source_0: flow_source_0 - 100 switch_source_0 <= 0",
    "cap_01": "edge_flow_constr_0_1: flow_0_1 - 7.5 switch_0_1 <= 0",
    "cap_t": "edge_flow_constr_1_sink: flow_1_sink - 1e+06 switch_1_sink\n   <= 0",
    "off_s": "edge_disable_constr_source_0: start_0 + 3 switch_source_0 <= 3",
    "off1_01": "edge_disable_constr1_0_1: start_0 - start_1 + hold_0_1 + 2 hold_0_2\n   + 3 switch_0_1 <= 3",
    "off2_01": "edge_disable_constr2_0_1: - start_0 + start_1 - hold_0_1 - 2 hold_0_2\n   + 3 switch_0_1 <= 3",
    "off_t": "edge_disable_constr_1_sink: - start_1 - hold_1_1 + 3 switch_1_sink <= 0",
}


def write(folder: Path, **changes: str | None) -> Path:
    lines = {**LINES, **changes}
    body = "".join(f" {line}\n" for line in lines.values() if line is not None)
    text = (
        f"\\ Model\nMaximize\n  flow_source_0\nSubject To\n{body}Bounds\nBinaries\n hold_0_1\nGenerals\n start_0\nEnd\n"
    )
    (folder / "ilp_model.lp").write_text(text)
    return folder


def test_a_small_model_is_read(tmp_path: Path) -> None:
    network = read_layout(write(tmp_path))
    assert network.layers == 3
    assert network.throughput.tolist() == [[0, 5, 2.5], [0, 40, 0]]
    assert network.link.tolist() == [[0, 7.5], [0, 0]]
    assert network.source.tolist() == [100, 0]
    assert network.sink.tolist() == [0, 1e6]
    assert read_layout(tmp_path / "ilp_model.lp").layers == 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hold0": "hold_constraint_0: hold_0_1 + 2 hold_0_2 = 1"}, "row hold_constraint_0"),
        ({"hold0": "hold_constraint_0: hold_0_1 + hold_0_2 <= 1"}, "sum of hold_0_k = 1"),
        ({"end0": "end_constraint_0: start_0 + hold_0_1 + 3 hold_0_2 <= 3"}, "row end_constraint_0"),
        ({"end1": "end_constraint_1: start_1 + hold_1_1 <= 4"}, "switch must be off"),
        ({"off_t": None, "end1": "end_constraint_1: start_1 + hold_1_1 <= 2"}, "one number was expected"),
        ({"flow1": "node_flow_constraint_1: flow_0_1 - 2 flow_1_sink = 0"}, "inflow - outflow"),
        ({"rate1": "node_throughput_constraint_1: - 40 hold_1_1 + 2 flow_0_1 <= 0"}, "flow_0_1 has coefficient 2"),
        ({"rate1": "node_throughput_constraint_1: - 40 hold_1_2 + flow_0_1 <= 0"}, "different numbers of layers"),
        ({"cap_01": "edge_flow_constr_0_1: flow_0_1 + 7.5 switch_0_1 <= 0"}, "row edge_flow_constr_0_1"),
        ({"off_s": "edge_disable_constr_source_0: start_0 + 3 switch_source_0 <= 4"}, "switch must be off"),
        ({"off2_01": None}, "but not both"),
        ({"cap_01": None}, "but not both"),
        ({"off1_01": "edge_disable_constr1_0_1: start_0 - start_1 + 3 switch_0_1 <= 3"}, "only links that join"),
        ({"more": "budget: hold_0_1 <= 1"}, "row budget is not part"),
        ({"more": "hold_constraint_0: hold_0_1 * 2 = 1"}, "cannot be read"),
        ({"more": "hold_constraint_0 = 1:"}, "cannot read the row"),
        ({"hold1": None, "end1": None}, "only links that join"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, changes: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_layout(write(tmp_path, **changes))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        read_layout(tmp_path)
    (tmp_path / "ilp_model.lp").write_text("NAME model\nROWS\n")
    with pytest.raises(ValueError, match="sections Subject To and Bounds"):
        read_layout(tmp_path)


@pytest.mark.parametrize(
    ("layout", "nodes", "layers", "links", "value"),
    [
        ("quality", 10, 60, 90, 286.5874097546421),
        ("raw_24", 24, 80, 326, 1212.1768454598210),
        ("no_prune_24", 24, 80, 552, 952.1073984850639),
        ("raw_42", 42, 80, 852, 4137.547584553615),
    ],
)
def test_published_plans_have_their_published_values(
    data_dir: Path, layout: str, nodes: int, layers: int, links: int, value: float
) -> None:
    """Values are the ``Objective value`` lines of the published solution files."""
    folder = data_dir / "helix" / "layouts" / layout
    network = read_layout(folder)
    assert (network.n, network.layers, int((network.link > 0).sum())) == (nodes, layers, links)
    start, hold = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    published = None
    for line in (folder / "ilp_solution.sol").read_text().splitlines():
        if line.startswith("# Objective value = "):
            published = float(line.split("=")[1])
        elif line.startswith("start_"):
            name, number = line.split()
            start[int(name.split("_")[1])] = round(float(number))
        elif line.startswith("hold_") and round(float(line.split()[1])) == 1:
            _, i, k = line.split()[0].split("_")
            hold[int(i)] = int(k)
    assert published == pytest.approx(value, rel=1e-6)
    assert max_flow(network, start, hold).value == pytest.approx(value, rel=1e-12)
