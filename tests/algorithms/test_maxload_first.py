"""The first plan: valid wherever there is one, even where nothing else binds, and none where none fits."""

from __future__ import annotations

import numpy as np
import pytest
from stage_samples import random_graph, stage_graph

from hetopt.algorithms.maxload_anneal import device_loads, fits
from hetopt.algorithms.maxload_first import first_plan


def test_equal_classes_are_spread_evenly() -> None:
    graph = stage_graph([[2.0]] * 6, [], [3], [1.0], [1.0])
    assert first_plan(graph).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_fast_type_takes_more() -> None:
    # Three seconds a class on the first device, one on the second: 3 and 3 seconds.
    graph = stage_graph([[3.0, 1.0]] * 4, [], [1, 1], [0.0, 0.0], [0.0, 0.0])
    assert first_plan(graph).tolist() == [0, 1, 1, 1]


def test_memory_moves_the_cut() -> None:
    graph = stage_graph([[1.0]] * 4, [], [2], [1.0], [1.0], [3.0, 1.0, 1.0, 1.0], [3.0])
    assert first_plan(graph).tolist() == [0, 1, 1, 1]
    assert first_plan(stage_graph([[1.0]], [], [2], [1.0], [1.0], [4.0], [3.0])) is None


def test_nothing_to_place_and_nowhere_to_place_it() -> None:
    assert first_plan(stage_graph([], [], [2], [1.0], [1.0])).tolist() == []
    assert first_plan(stage_graph([[np.inf]], [], [1], [1.0], [1.0])) is None


@pytest.mark.parametrize("seed", range(60))
def test_what_is_found_fits_and_follows_the_order(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed), 9, devices=4)
    plan = first_plan(graph)
    if plan is None:
        return
    assert fits(graph, plan)
    assert np.isfinite(device_loads(graph, plan)).all()
    assert len(np.unique(plan)) == 1 + np.count_nonzero(np.diff(plan))
