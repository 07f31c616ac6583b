"""Devices by a word: nodes, islands, bridges, usable memory, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetopt.costs.catalogue import catalogue
from hetopt.costs.cluster import CONTEXT, MOST_DEVICES, cluster
from hetopt.costs.links import LINK_EFFICIENCY, NETWORKS
from hetopt.errors import InputError
from hetopt.instance import Instance


def bandwidths(text: str, **more: object) -> dict[tuple[str, str], float]:
    """GB/s reached between all pairs of devices."""
    made = cluster(text, **more)
    devices = made.devices()
    instance = Instance.from_times(np.ones((1, len(devices))), devices=devices, links=made.links())
    found = {}
    for a in instance.device_names:
        for b in instance.device_names:
            if a != b:
                link = instance.need_link(a, b)
                assert link.bandwidth is not None
                found[a, b] = link.bandwidth / LINK_EFFICIENCY / 1e9
    return found


def test_devices_of_a_kind_with_a_peer_link_are_an_island():
    """NVLink 3 has 300 GB/s in one direction; everything else goes over the slower host link (PCIe 3: 15.75, 4: 31.5)."""
    found = bandwidths("a100-sxm-40:2, t4:2, cpu")
    assert found["a100-sxm-40-0", "a100-sxm-40-1"] == pytest.approx(300)
    assert found["a100-sxm-40-0", "t4-1"] == found["t4-1", "t4-0"] == found["cpu-0", "t4-0"] == pytest.approx(15.75)
    assert found["cpu-0", "a100-sxm-40-1"] == pytest.approx(31.5)


def test_bridges_are_used_when_they_are_there_and_join_pairs():
    assert list(bandwidths("rtx3090:4").values()) == pytest.approx([31.5] * 12)
    found = bandwidths("rtx3090:3", bridges=True)
    assert found["rtx3090-0", "rtx3090-1"] == found["rtx3090-1", "rtx3090-0"] == pytest.approx(56)
    assert found["rtx3090-1", "rtx3090-2"] == pytest.approx(31.5)
    found = bandwidths("rtx3090:2 / rtx3090:3", bridges=True)
    assert found["rtx3090-0", "rtx3090-1"] == found["rtx3090-3", "rtx3090-2"] == pytest.approx(56)
    assert found["rtx3090-4", "rtx3090-3"] == pytest.approx(31.5)
    assert found["rtx3090-1", "rtx3090-2"] == pytest.approx(1.25)


def test_nodes_talk_over_the_network_only():
    found = bandwidths("h100-sxm:2 / h100-sxm:2, l4", between=NETWORKS["100gbe"])
    assert found["h100-sxm-0", "h100-sxm-1"] == found["h100-sxm-3", "h100-sxm-2"] == pytest.approx(450)
    assert found["h100-sxm-1", "h100-sxm-2"] == found["l4-0", "h100-sxm-0"] == pytest.approx(12.5)
    assert found["l4-0", "h100-sxm-3"] == pytest.approx(31.5)


def test_a_system_on_a_chip_is_a_node_of_its_own():
    found = bandwidths("m2-ultra-192:2", between=NETWORKS["1gbe"])
    assert list(found.values()) == pytest.approx([0.125] * 2)


def test_usable_memory_is_a_share_less_the_context():
    devices = {v.type: v for v in cluster("t4,cpu,m2-ultra-192", workspace=5).devices()}
    left = {name: v.memory - v.reserved for name, v in devices.items()}
    assert left["t4"] == 14_400_000_000 - CONTEXT - 5
    assert left["cpu"] == 57_600_000_000 - 5
    assert left["m2-ultra-192"] == 144_000_000_000 - 5  # three quarters of unified memory, as its system allows
    more = cluster("m2-ultra-192", utilisation=0.9).devices()[0]
    assert more.memory - more.reserved == 172_800_000_000
    assert (
        cluster("coral-edgetpu", utilisation=0.5, workspace=10**9).devices()[0].reserved == 8_000_000
    )  # never below nothing


def test_devices_keep_price_power_and_kind():
    a100, host = cluster("A100-SXM4-40GB, cpu").devices()
    assert (a100.name, a100.type, a100.price, a100.power, a100.host) == (
        "a100-sxm-40-0",
        "a100-sxm-40",
        1.84,
        400,
        False,
    )
    assert (host.type, host.host) == ("cpu", True)


def test_every_fact_names_its_source():
    notes = "\n".join(cluster("rtx3090:2, t4 / t4", bridges=True).notes())
    for said in ("rtx3090: ", "link rtx3090 - t4: 15.75 GB/s", "between nodes: Ethernet, 10 Gbit/s", "bridged"):
        assert said in notes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has an empty part"),
        ("t4,,l4", "has an empty part"),
        ("t4:0", "holds 't4:0', expected a count"),
        ("t4:-1", "expected a count"),
        ("t4:1e3", "expected a count"),
        ("t4:٣", "expected a count"),
        ("t4:99999", f"more than {MOST_DEVICES} devices"),
        ("t4:200/t4:200", f"more than {MOST_DEVICES} devices"),
        ("t4,T4:2", "twice in a node"),
        ("a100", "could be a100-sxm-40, a100-sxm-80, a100-pcie-80"),
        ("rtx4091", "did you mean 'rtx4090'"),
        ("tpu-v4:2", "has no host_link_gbs"),
    ],
)
def test_what_cannot_be_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        cluster(text)


def test_a_share_is_a_share():
    for share in (0, -1, 1.5, float("nan")):
        with pytest.raises(InputError, match="--utilisation is"):
            cluster("t4", utilisation=share)


def test_sheets_of_ones_own_are_used():
    sheets = catalogue()
    sheets["t4"] = msgspec_replace(sheets["t4"], 32)
    assert cluster("t4", sheets).devices()[0].memory == 32_000_000_000
    assert replace(cluster("t4"), context=0).devices()[0].reserved == 1_600_000_000


def msgspec_replace(sheet, gigabytes):
    import msgspec

    return msgspec.structs.replace(sheet, memory_gb=gigabytes)
