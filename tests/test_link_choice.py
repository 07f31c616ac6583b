"""The link between two devices is the most specific one written, as a plain search through all of them finds it."""

from __future__ import annotations

import numpy as np
import pytest

from hetopt.instance import Instance
from hetopt.records import Device, Link


def plainly(instance: Instance, source: str, target: str) -> Link | None:
    """Every link in turn; a later one must be better to be taken."""

    def rank(pattern: str, end: str) -> int:
        kind = next((v.type for v in instance.devices if v.name == end), None)
        return 2 if pattern == end else 0 if pattern == "*" else 1 if pattern == kind else -1

    best: tuple[tuple[int, int], Link] | None = None
    for link in instance.links:
        for here, there in ((link.source, link.target), (link.target, link.source))[: 2 if link.both else 1]:
            a, b = rank(here, source), rank(there, target)
            if min(a, b) >= 0 and (best is None or (a + b, a) > best[0]):
                best = ((a + b, a), link)
    return best[1] if best else None


@pytest.mark.parametrize("seed", range(60))
def test_the_most_specific_link_is_found(seed):
    rng = np.random.default_rng(seed)
    devices = [Device(name=f"d{k}", type=[None, "x", "y", f"d{k}"][rng.integers(4)]) for k in range(4)]
    ends = ["d0", "d1", "d2", "d3", "host", "*", *{v.type for v in devices if v.type} & {"x", "y"}]
    ends.sort()
    links, written = [], set()
    for k in range(int(rng.integers(1, 12))):
        source, target, both = str(rng.choice(ends)), str(rng.choice(ends)), bool(rng.integers(2))
        directions = {(source, target), (target, source)} if both else {(source, target)}
        if not directions & written and not (both and source == target):
            written |= directions
            links.append(Link(source=source, target=target, bandwidth=k + 1, both=both))
    instance = Instance.from_times(np.ones((1, 4)), devices=devices, links=links)
    for source in ("d0", "d1", "d2", "d3", "host"):
        for target in ("d0", "d1", "d2", "d3", "host"):
            assert instance.link(source, target) == plainly(instance, source, target)
