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


def test_memory_over_time_is_drawn_below_the_schedule():
    """Two tasks after each other on a: 3 bytes of weights each, 1 and 2 bytes handed on, of 8."""
    devices = [Device(name="a", memory=8)]
    graph = Instance.from_graph(np.ones((2, 1)), [(0, 1)], memory=[3, 2], output=[1, 2], devices=devices)
    asked = {"objective": "schedule-latency", "options": {"memory": "over-time"}}
    above, below = figure(graph, hetopt.solve(graph, **asked)).axes
    assert len(above.patches) == 2
    held, limit = below.lines
    assert (held.get_xdata().tolist(), held.get_ydata().tolist()) == ([0, 1, 2, 2], [75, 100, 62.5, 62.5])
    assert limit.get_ydata()[0] == 100
    assert len(figure(graph, hetopt.solve(graph, objective="schedule-latency")).axes) == 1


def test_shares_are_stacked_a_column_a_job():
    """Two jobs of one worker on a (1 slot) and b (1 slot); many jobs are put in the order of their main devices."""
    devices = [Device(name="a"), Device(name="b")]
    jobs = Instance.from_times([[1, 2], [2, 1]], devices=devices, question={"objective": "max-min-fairness"})
    (axes,) = figure(jobs, hetopt.solve(jobs)).axes
    first, second = axes.patches
    np.testing.assert_allclose(first.get_data().values, [1, 0], atol=1e-6)
    np.testing.assert_allclose(second.get_data().values, [1, 1], atol=1e-6)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(jobs.labels)
    many = Instance.from_times([[1, 2], [2, 1]] * 30, devices=devices, question={"objective": "max-min-fairness"})
    (axes,) = figure(many, hetopt.solve(many)).axes
    heights = axes.patches[0].get_data().values
    assert (heights[:30] > 1e-3).all()
    assert (heights[30:] < 1e-3).all()
