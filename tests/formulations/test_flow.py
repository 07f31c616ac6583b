"""partition.flow: hand-worked networks, and the smallest published layout through importer, engine and verifier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hetopt
from hetopt.algorithms.serving_network import ServingNetwork
from hetopt.io import importers
from hetopt.io.serving import instance_of


def two_nodes(link: float) -> hetopt.Instance:
    """Two layers; each node keeps one at rate 10 or both at rate 4; capacity ``link`` from the first to the second."""
    rates = [[0.0, 10.0, 4.0], [0.0, 10.0, 4.0]]
    network = ServingNetwork(
        2,
        np.array(rates),
        np.array([[0.0, link], [0.0, 0.0]]),
        np.array([20.0, 20.0]),
        np.array([20.0, 20.0]),
        ("a", "b"),
    )
    return instance_of(network)


def test_a_chain_beats_two_copies_over_a_good_link_by_hand():
    """Chain: min(10, link, 10) = 9; two copies of the whole model: 4 + 4 = 8."""
    result = hetopt.solve(two_nodes(9.0), time_limit=20)
    assert result.objective == 9.0
    assert result.bound >= 9.0 - 1e-9
    assert result.solution.details == {"start": {"a": 0, "b": 1}, "hold": {"a": 1, "b": 1}}


def test_two_copies_beat_a_chain_over_a_poor_link_by_hand():
    """Chain: 3; two copies: 8."""
    result = hetopt.solve(two_nodes(3.0), time_limit=20)
    assert result.objective == 8.0
    assert set(result.solution.details["hold"].values()) == {2}


def test_wrong_plans_are_caught():
    """Too many layers, and a value that the intervals do not carry."""
    instance = two_nodes(9.0)
    result = hetopt.solve(instance, time_limit=20)
    broken = hetopt.Solution(details={"start": {"a": 1, "b": 0}, "hold": {"a": 2, "b": 2}})
    with pytest.raises(hetopt.VerificationError, match="keeps layers 1 to 2"):
        hetopt.verify(instance, replace(result, solution=broken))
    with pytest.raises(hetopt.VerificationError, match="claims"):
        hetopt.verify(instance, replace(result, objective=9.5))


def test_missing_tables_are_named():
    """Without tables the question does not fit, and says which is missing."""
    plain = hetopt.Instance.from_times([[1.0]], tables={"layers": 3})
    with pytest.raises(hetopt.InputError, match=r"no tables\.throughput"):
        hetopt.solve(plain, objective="serving-flow")


def test_published_layout_of_ten_nodes(data_dir):
    """286.5874 tokens per second, the published optimum; bound within 1e-6, replayed."""
    instance = importers.get("helix").load(data_dir / "helix" / "layouts" / "quality")
    result = hetopt.solve(instance, time_limit=60)
    assert result.objective == pytest.approx(286.5874097546, rel=1e-9)
    assert result.bound_proof == "replayed"
    assert result.gap < 1e-5
    hetopt.verify(instance, result)
