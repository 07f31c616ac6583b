"""Devices by a word, ``"a100-sxm-40:2,t4:4,cpu"``: records, links by topology, usable memory, and where each number is from.

``name:count,name`` is one node; nodes are separated by ``/``. Names are those of :mod:`hetopt.costs.catalogue`, whatever their
case and punctuation. A system on a chip is a node of its own.

Links inside a node: devices of one kind whose data sheet has an on-board peer link (NVLink, Infinity Fabric) are an island
and use it; cards that take a bridge use it in pairs, first with second, when ``bridges`` says that they have one; everything
else goes over the PCIe links to the host, at the slower of the two. Between nodes there is one network. A link reaches
:data:`~hetopt.costs.links.LINK_EFFICIENCY` of its nominal rate. Several links never slow each other down here.

Usable memory is ``memory * share - context``: the share (0.9; 0.75 where an operating system limits unified memory; or
``utilisation``) leaves room for fragmentation and the rest of the system, the context is what a GPU's runtime and its
workspace take before any weight does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from hetopt.costs.catalogue import GB, Sheet, find
from hetopt.costs.links import NETWORKS, Route
from hetopt.errors import InputError
from hetopt.records import Device, Link

__all__ = ["CONTEXT", "MOST_DEVICES", "Cluster", "Unit", "cluster", "to_host"]

CONTEXT = 1_000_000_000
"""Bytes that the runtime's context takes on a GPU with memory of its own; an assumption (0.5 to 2 GB are reported)."""

MOST_DEVICES = 256
_COPY = 10e-6  # seconds to start a copy over PCIe
_PEER = 5e-6  # and over a peer link


@dataclass(frozen=True)
class Unit:
    """One device: its name, data sheet and node."""

    name: str
    sheet: Sheet
    node: int


@dataclass(frozen=True)
class Cluster:
    """Devices and how they are connected.

    Attributes
    ----------
    units
        The devices, in the order of the word.
    between
        Network between nodes.
    bridges
        Whether cards that take a bridge have one.
    utilisation
        Share of every device's memory that may be used; None for what its data sheet says.
    context
        Bytes a GPU's context takes.
    workspace
        Bytes that each device needs beside weights and caches.
    """

    units: tuple[Unit, ...]
    between: Route = NETWORKS["10gbe"]
    bridges: bool = False
    utilisation: float | None = None
    context: int = CONTEXT
    workspace: int = 0

    @property
    def sheets(self) -> dict[str, Sheet]:
        """Data sheets by name, in order of first appearance."""
        return {unit.sheet.name: unit.sheet for unit in self.units}

    def devices(self) -> list[Device]:
        """A record for each device; what may not be used is ``reserved``."""
        found = []
        for unit in self.units:
            sheet, usable = unit.sheet, self.usable(unit.sheet)
            found.append(
                Device(
                    name=unit.name,
                    type=sheet.name,
                    memory=sheet.memory,
                    reserved=0 if sheet.memory is None or usable is None else sheet.memory - usable,
                    power=sheet.power_w,
                    price=sheet.price.usd_per_hour if sheet.price is not None else None,
                    host=sheet.kind == "cpu",
                )
            )
        return found

    def usable(self, sheet: Sheet) -> int | None:
        """Bytes of a device that weights and caches may take; None where its memory is not known."""
        if sheet.memory is None:
            return None
        share = sheet.usable if self.utilisation is None else self.utilisation
        own = self.context if sheet.kind == "gpu" and not sheet.shared_memory else 0
        return max(0, int(sheet.memory * share) - own - self.workspace)

    # Links ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> dict[str, set[int]]:
        """Nodes in which each kind of device is."""
        found: dict[str, set[int]] = {}
        for unit in self.units:
            found.setdefault(unit.sheet.name, set()).add(unit.node)
        return found

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len({unit.node for unit in self.units})

    def links(self) -> list[Link]:
        """Links between all devices, and to host memory; by kind of device where all pairs are alike, else by name."""
        links = [
            Link(source=name, target="host", bandwidth=whole(to_host(sheet).rate), latency=_COPY, both=True)
            for name, sheet in self.sheets.items()
            if sheet.kind != "cpu"
        ]
        if self.nodes > 1:
            links.append(_link("*", "*", self.between, both=False))
        bridged, seen = self._bridged(), set[tuple[str, str]]()
        for one, other in combinations(self.units, 2):
            if one.node != other.node:
                continue
            a, b = one.sheet, other.sheet
            route = bridged.get((one.name, other.name))
            if route is not None or len(self._nodes[a.name] | self._nodes[b.name]) > 1:
                links.append(_link(one.name, other.name, route or _inside(a, b)))
            elif (a.name, b.name) not in seen:
                seen |= {(a.name, b.name), (b.name, a.name)}
                links.append(_link(a.name, b.name, _inside(a, b), both=a is not b))
        return links

    def _bridged(self) -> dict[tuple[str, str], Route]:
        """Pairs of cards with a bridge between them: of each kind in a node the first with the second, and so on."""
        waiting: dict[tuple[str, int], str] = {}
        found = {}
        for unit in self.units if self.bridges else ():
            key, rate = (unit.sheet.name, unit.node), unit.sheet.peer_link_gbs
            if rate is None or not _takes_bridge(unit.sheet):
                continue
            if key in waiting:
                found[waiting.pop(key), unit.name] = Route(rate * GB, _PEER, f"{unit.sheet.peer_link}")
            else:
                waiting[key] = unit.name
        return found

    # Sources --------------------------------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        """A sentence a fact: where memories, prices and links are from."""
        found = []
        for sheet in self.sheets.values():
            usable = self.usable(sheet)
            room = "memory unknown" if usable is None else f"{usable / GB:.6g} of {sheet.memory_gb:g} GB usable"
            price = "" if sheet.price is None else f"; price {sheet.price.date or 'not dated'}"
            found.append(
                f"{sheet.name}: {room}; {sheet.source or 'your own file'} ({sheet.confidence or 'as stated'}){price}"
            )
        for one, other in _pairs(self.units):
            route = _inside(one, other)
            found.append(f"link {one.name} - {other.name}: {route.bandwidth / GB:g} GB/s, {route.note}")
        if self.nodes > 1:
            found.append(f"between nodes: {self.between.note}")
        if self.bridges:
            found.append("cards that take a bridge are bridged in pairs, as stated")
        return found


def cluster(
    text: str,
    sheets: Mapping[str, Sheet] | None = None,
    *,
    between: Route = NETWORKS["10gbe"],
    bridges: bool = False,
    utilisation: float | None = None,
    context: int = CONTEXT,
    workspace: int = 0,
) -> Cluster:
    """Devices from a word.

    Parameters
    ----------
    text
        Such as ``"rtx4090:2, RTX 3090, cpu"``, or ``"h100-sxm:8 / h100-sxm:8"`` for two nodes.
    sheets
        Data sheets to look in; the shipped catalogue by default.
    between, bridges, utilisation, context, workspace
        As in :class:`Cluster`.

    Raises
    ------
    InputError
        A name is unknown, ambiguous, or twice in a node; a count is no whole number from 1 on; there are too many devices; or two
        devices of a node have no link that is known.
    """
    if utilisation is not None and not 0 < utilisation <= 1:
        raise InputError(f"--utilisation is {utilisation!r}, expected a share, more than 0 and at most 1")
    parts: list[tuple[Sheet, int]] = []
    node, total = 0, 0
    for words in text.split("/"):
        node += 1
        seen = set()
        for part in words.split(","):
            sheet, number = _part(part, sheets)
            total += number
            if total > MOST_DEVICES:
                raise InputError(f"--devices names more than {MOST_DEVICES} devices; plan for some of them at a time")
            if sheet.name in seen:
                raise InputError(f"--devices names {sheet.name!r} twice in a node; write it once, with its count")
            seen.add(sheet.name)
            for _ in range(number):
                own = sheet.kind == "soc"  # a chip with its own memory is a machine
                node += own
                parts.append((sheet, -node if own else node))
    numbers: dict[str, int] = {}
    units = []
    for sheet, where in parts:
        number = numbers.setdefault(sheet.name, 0)
        numbers[sheet.name] += 1
        units.append(Unit(f"{sheet.name}-{number}", sheet, where))
    found = Cluster(tuple(units), between, bridges, utilisation, context, workspace)
    found.links()  # an unknown link is told now
    return found


def whole(value: float) -> int | float:
    """The same number, an integer where it is one, so that files are short."""
    return int(value) if value == int(value) else value


def _part(part: str, sheets: Mapping[str, Sheet] | None) -> tuple[Sheet, int]:
    name, colon, count = part.strip().partition(":")
    if not name.strip():
        raise InputError("--devices has an empty part, expected devices as name:count,name (see `hetopt devices`)")
    try:
        sheet = find(name, sheets)
    except InputError as error:
        raise InputError(f"--devices: {error}") from None
    number = 1 if not colon else int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 0
    if number < 1:
        raise InputError(
            f"--devices holds {part.strip()[:60]!r}, expected a count from 1 to {MOST_DEVICES} after the colon, "
            "and commas between devices"
        )
    return sheet, number


def _takes_bridge(sheet: Sheet) -> bool:
    return "bridge" in (sheet.peer_link or "").lower()


def _inside(a: Sheet, b: Sheet) -> Route:
    """The way between two devices of one node."""
    if a.name == b.name and a.peer_link_gbs is not None and not _takes_bridge(a):
        return Route(a.peer_link_gbs * GB, _PEER, f"{a.peer_link or 'peer link'}, as published")
    one, other = to_host(a), to_host(b)
    slower = min(one, other, key=lambda route: route.bandwidth)
    return Route(slower.bandwidth, _COPY, slower.note)


def to_host(sheet: Sheet) -> Route:
    """The way to host memory; a CPU is there, and so is what shares its memory."""
    rate = sheet.host_link_gbs
    if rate is not None:
        return Route(rate * GB, _COPY, f"host link of {sheet.name}, as published")
    if sheet.shared_memory and sheet.bandwidth_gbs is not None:
        return Route(sheet.bandwidth_gbs * GB, _COPY, f"memory of {sheet.name}")
    raise InputError(
        f"the data sheet of {sheet.name!r} has no host_link_gbs, so its link to other devices is not known; state it in a "
        "file of your own (--catalogue)"
    )


def _pairs(units: Sequence[Unit]) -> list[tuple[Sheet, Sheet]]:
    """Kinds of devices that meet in a node, each pair once."""
    found: dict[tuple[str, str], tuple[Sheet, Sheet]] = {}
    for one, other in combinations(units, 2):
        key = (one.sheet.name, other.sheet.name)
        if one.node == other.node and key[::-1] not in found:
            found.setdefault(key, (one.sheet, other.sheet))
    return list(found.values())


def _link(source: str, target: str, route: Route, *, both: bool = True) -> Link:
    return Link(source=source, target=target, bandwidth=whole(route.rate), latency=route.latency, both=both)
