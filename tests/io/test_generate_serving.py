"""Generated networks have the shape that was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from hetopt.algorithms.serving_network import strong_components
from hetopt.io.generate_serving import serving


def test_the_same_arguments_give_the_same_network() -> None:
    first, second = serving(20, 40, 5, types=4, clusters=3), serving(20, 40, 5, types=4, clusters=3)
    for name in ("throughput", "link", "source", "sink"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert not np.array_equal(first.throughput, serving(20, 40, 6, types=4, clusters=3).throughput)


@pytest.mark.parametrize("seed", range(5))
def test_types_clusters_and_memory_are_as_asked(seed: int) -> None:
    network = serving(30, 48, seed, types=4, clusters=3, slow=0.01, spare=2.0)
    assert len(np.unique(network.throughput, axis=0)) == 4
    most = (network.throughput > 0).sum(axis=1)
    assert 2.0 * 48 <= most.sum() <= 2.0 * 48 + 30
    assert strong_components(network, network.throughput.max()).max() == 2
    between = network.link[(network.link > 0) & (network.link < network.throughput.max())]
    area = (network.throughput * np.arange(network.throughput.shape[1])).max(axis=1).sum() / 48
    assert between.min() >= 0.8 * 0.01 * area - 1e-3
    assert between.max() <= 1.2 * 0.01 * area + 1e-3
    held = network.throughput > 0
    area_of = network.throughput * np.arange(network.throughput.shape[1])
    assert (np.diff(area_of, axis=1)[:, 1:][held[:, 2:]] < 0).all()


def test_sparse_networks_are_connected_and_have_few_ends() -> None:
    network = serving(30, 20, 1, density=0.05)
    assert strong_components(network, 1e-9).max() == 0
    assert (network.link > 0).sum() < 0.2 * 30 * 29
    assert (network.source > 0).sum() == (network.sink > 0).sum() == 10


@pytest.mark.parametrize(
    "change",
    [{"types": 0}, {"types": 8}, {"clusters": 11}, {"density": 0.0}, {"slow": 0.0}, {"spare": 0.5}, {"seed": -1}],
)
def test_numbers_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        serving(**{"nodes": 10, "layers": 8, "seed": 0, **change})  # type: ignore[arg-type]
