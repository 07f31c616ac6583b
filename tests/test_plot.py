"""Pictures: what is drawn for which plan."""

from __future__ import annotations

import numpy as np

import hetopt
from hetopt import Instance
from hetopt.plot import figure
from hetopt.records import Device, Link


def row(edges) -> Instance:
    """Four tasks of 1 s and 3 bytes on two devices of 7 and 9."""
    devices = [Device(name="a", memory=7), Device(name="b", memory=9)]
    links = [Link(source="*", target="*", bandwidth=None)]
    return Instance.from_graph(np.ones((4, 2)), edges, memory=[3] * 4, devices=devices, links=links, output=[0] * 4)


def test_a_sequence_in_stages_is_a_bar_a_stage_over_its_tasks():
    instance = row([(0, 1), (1, 2), (2, 3)])
    above, below = figure(instance, hetopt.solve(instance, objective="chain-bottleneck")).axes
    assert [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in above.patches] == [(0, 2, 2), (2, 2, 2)]
    assert [bar.get_height() for bar in below.patches if bar.get_height()] == [6, 6]
    assert [line.get_ydata()[1] for line in below.lines] == [7, 9]


def test_a_graph_with_branches_has_loads_and_a_strip():
    instance = row([(0, 1), (0, 2), (1, 3), (2, 3)])
    above, below = figure(instance, hetopt.solve(instance, objective="throughput")).axes
    assert above.get_xlabel() == "load"
    assert below.get_xlabel() == "tasks in topological order"
