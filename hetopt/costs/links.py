"""Seconds to move bytes: from device to device, and by a group of devices at once (collectives).

    point to point      a + s / b
    all-reduce, ring    2 (p - 1) a + 2 (p - 1) / p  s / b
    all-reduce, tree    2 ceil(log2 p) a + 2 s / b            (double binary tree, both halves in full duplex)
    all-gather,
    reduce-scatter      (p - 1) a + (p - 1) / p  s / b        (ring; s is the whole)
    all-to-all          (p - 1) a + (p - 1) / p  s / b        (s is what each device holds)
    broadcast           ceil(log2 p) a + s / b                (pipelined tree)

with latency a, bandwidth b in one direction, p devices. Nothing here knows contention: p devices under one switch are taken to
send at the same time. A group is as fast as its slowest link.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, IJHPCA 19 (2005);
P. Sanders, J. Speck, J. Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 35
(2009).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hetopt.errors import InputError, nearest

__all__ = [
    "LINK_EFFICIENCY",
    "NETWORKS",
    "Route",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "network",
    "reduce_scatter",
]

LINK_EFFICIENCY = 0.8
"""Share of a link's nominal bandwidth that large copies reach; an assumption, the same for all."""


class Route(NamedTuple):
    """A way from one device to another.

    Attributes
    ----------
    bandwidth
        Nominal bytes per second in one direction.
    latency
        Seconds before the first byte arrives.
    note
        What it is, and where the number is from.
    """

    bandwidth: float
    latency: float
    note: str

    @property
    def rate(self) -> float:
        """Bytes per second that large copies reach."""
        return self.bandwidth * LINK_EFFICIENCY

    def seconds(self, size: float) -> float:
        """Seconds to move ``size`` bytes."""
        return self.latency + size / self.rate


_ETHERNET, _FABRIC = 50e-6, 5e-6  # a message by TCP through the kernel, and past it
NETWORKS = {
    "wifi6": Route(1.2e9 / 8, 3e-3, "Wi-Fi 6, two streams, 1.2 Gbit/s"),
    "1gbe": Route(1e9 / 8, _ETHERNET, "Ethernet, 1 Gbit/s"),
    "10gbe": Route(10e9 / 8, _ETHERNET, "Ethernet, 10 Gbit/s"),
    "25gbe": Route(25e9 / 8, _ETHERNET, "Ethernet, 25 Gbit/s"),
    "100gbe": Route(100e9 / 8, _ETHERNET, "Ethernet, 100 Gbit/s"),
    "hdr": Route(200e9 / 8, _FABRIC, "InfiniBand HDR, 200 Gbit/s"),
    "ndr": Route(400e9 / 8, _FABRIC, "InfiniBand NDR, 400 Gbit/s"),
}
"""Networks between nodes by name; rates are nominal, latencies assumed."""


def network(text: str) -> Route:
    """The network called ``text``, or ``GBIT:MICROSECONDS`` of your own.

    Examples
    --------
    >>> network("40:20").bandwidth, network("10GbE").latency
    (5000000000.0, 5e-05)

    Raises
    ------
    InputError
        There is no such network, and the text is no two numbers > 0.
    """
    known = NETWORKS.get(text.strip().lower())
    if known is not None:
        return known
    rate, colon, wait = text.partition(":")
    try:
        numbers = float(rate), float(wait)
    except ValueError:
        numbers = (0.0, 0.0)
    if not colon or not all(0 < number < 1e9 for number in numbers):
        raise InputError(
            f"--network is {text!r}, expected GBIT:MICROSECONDS (as 40:20), or a name; "
            f"{nearest(text.lower(), NETWORKS, what='the networks')}"
        )
    return Route(numbers[0] * 1e9 / 8, numbers[1] / 1e6, f"{numbers[0]:g} Gbit/s, {numbers[1]:g} us, as stated")


def all_reduce(size: float, count: int, route: Route) -> float:
    """Seconds until ``count`` devices all hold the sum of their ``size`` bytes: ring or tree, whichever is faster."""
    if count < 2:
        return 0.0
    ring = 2 * (count - 1) * route.latency + 2 * (count - 1) / count * size / route.rate
    tree = 2 * _depth(count) * route.latency + 2 * size / route.rate
    return min(ring, tree)


def all_gather(size: float, count: int, route: Route) -> float:
    """Seconds until ``count`` devices all hold the ``size`` bytes of which each has a part."""
    return _around(size, count, route)


def reduce_scatter(size: float, count: int, route: Route) -> float:
    """Seconds until each of ``count`` devices holds its part of the sum of ``size`` bytes."""
    return _around(size, count, route)


def all_to_all(size: float, count: int, route: Route) -> float:
    """Seconds until each of ``count`` devices has sent every other its part of ``size`` bytes."""
    return _around(size, count, route)


def broadcast(size: float, count: int, route: Route) -> float:
    """Seconds until ``count`` devices have the ``size`` bytes of one."""
    return 0.0 if count < 2 else _depth(count) * route.latency + size / route.rate


def _around(size: float, count: int, route: Route) -> float:
    return 0.0 if count < 2 else (count - 1) * route.latency + (count - 1) / count * size / route.rate


def _depth(count: int) -> int:
    return math.ceil(math.log2(count))
