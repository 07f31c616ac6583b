"""Collectives by their formulas, worked by hand, and names of networks."""

from __future__ import annotations

import pytest

from hetopt.costs import links
from hetopt.costs.links import LINK_EFFICIENCY, NETWORKS, Route
from hetopt.errors import InputError

ROUTE = Route(1e9 / LINK_EFFICIENCY, 1e-3, "1 GB/s reached, 1 ms")


def test_a_copy_takes_latency_and_bandwidth():
    assert ROUTE.rate == pytest.approx(1e9)
    assert ROUTE.seconds(2e9) == pytest.approx(2.001)


def test_a_ring_moves_little_and_a_tree_waits_little():
    """Eight devices, 1 GB/s, 1 ms. 8 GB: ring 14 ms + 14 s, tree 6 ms + 16 s. 1 kB: ring 14 ms + 1.75 us, tree 6 ms + 2 us."""
    assert links.all_reduce(8e9, 8, ROUTE) == pytest.approx(14.014)
    assert links.all_reduce(1e3, 8, ROUTE) == pytest.approx(6e-3 + 2e-6)


def test_halves_of_an_all_reduce_make_a_ring():
    ring = links.reduce_scatter(8e9, 8, ROUTE) + links.all_gather(8e9, 8, ROUTE)
    assert ring == pytest.approx(links.all_reduce(8e9, 8, ROUTE))
    assert links.all_to_all(4e9, 4, ROUTE) == pytest.approx(3e-3 + 3)
    assert links.broadcast(1e9, 5, ROUTE) == pytest.approx(3e-3 + 1)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_one_device_waits_for_nobody(collective):
    assert getattr(links, collective)(1e9, 1, ROUTE) == 0


def test_networks_have_names_or_numbers():
    assert links.network("10GbE") is NETWORKS["10gbe"]
    assert links.network("40:20")[:2] == (5e9, 2e-5)
    for text in ("10gb", "40", "0:1", "nan:1", "x:y", "1e99:1", ""):
        with pytest.raises(InputError, match="--network is"):
            links.network(text)
