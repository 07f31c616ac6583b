"""The devices that an importer of a model places it on: ``--devices "rtx4090:2,rtx3090,cpu"``, and times on them.

Devices, usable memory and links are those of :mod:`hetopt.costs.cluster`; times those of the roofline
(:mod:`hetopt.costs.roofline`) in steps of a nanosecond, far below what it knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from hetopt.costs.catalogue import GB, Sheet, catalogue
from hetopt.costs.cluster import Cluster, cluster
from hetopt.costs.roofline import Factors, Walls
from hetopt.errors import InputError
from hetopt.io.kinds import Option, chosen
from hetopt.records import Device, Link

__all__ = ["CATALOGUE", "DEVICES", "PRECISION", "WIDTH", "Crew", "crew", "ordered"]

WIDTH = {"fp16": 2, "int8": 1}
"""Bytes of a number by precision; the catalogue has peaks of these."""

DEVICES = Option("--devices", str, "rtx4090:2,rtx3090,cpu", "Devices as name:count,name; see `hetopt devices`.")
CATALOGUE = Option("--catalogue", str, None, "Your own devices and prices, as `hetopt devices --file` reads them.")
PRECISION = Option("--precision", tuple(WIDTH), "fp16", "What floating-point numbers are stored and computed in.")


@dataclass(frozen=True)
class Crew:
    """Devices and their walls by kind; None where a kind has no peak for the precision."""

    cluster: Cluster
    walls: Mapping[str, Walls | None]

    def devices(self, *, host_limit: bool) -> list[Device]:
        """A record for each; without ``host_limit`` the memory of hosts never binds (it can be extended, and be swapped)."""
        found = self.cluster.devices()
        return found if host_limit else [replace(d, memory=None, reserved=0) if d.host else d for d in found]

    def links(self) -> list[Link]:
        """To and from host memory, and between devices."""
        return self.cluster.links()

    def times(self, flops: float, moved: float) -> dict[str, float | None]:
        """Seconds of an operation by kind of device."""
        return {
            name: None if wall is None else round(wall.seconds(flops, moved), 9) for name, wall in self.walls.items()
        }

    def nothing(self) -> dict[str, float | None]:
        """Times of an operation that costs nothing anywhere (it renames what is there)."""
        return dict.fromkeys(self.walls, 0)

    def source(self) -> str:
        """Where the devices' numbers are from."""
        return "; ".join(self.cluster.notes())


def crew(text: str, precision: str, file: str | None, *, one_node: bool) -> Crew:
    """Devices from ``"rtx4090:2, RTX 3090, cpu"``; names are matched whatever their case and punctuation.

    Parameters
    ----------
    file
        A catalogue of the user's own.
    one_node
        Refuse several machines: data pass through one host memory.

    Raises
    ------
    InputError
        As :func:`hetopt.costs.cluster.cluster`; or the precision is unknown, no device has a peak for it, or a device's data
        sheet lacks the bandwidth of its memory.
    """
    chosen("--precision", precision, tuple(WIDTH))
    found = cluster(text, catalogue(file) if file is not None else None)
    if one_node and found.nodes > 1:
        raise InputError(
            f"--devices {text[:80]!r} are {found.nodes} machines, expected one: data pass through host memory"
        )
    walls = {name: _walls(sheet, precision) for name, sheet in found.sheets.items()}
    if not any(walls.values()):
        raise InputError(
            f"--devices {text[:80]!r}: none of them has a published peak for {precision}; choose another precision"
        )
    return Crew(found, walls)


def _walls(sheet: Sheet, precision: str) -> Walls | None:
    if sheet.bandwidth_gbs is None:
        raise InputError(f"--devices names {sheet.name!r}, whose memory's bandwidth is not published; leave it out")
    peak = sheet.fp16_tflops if precision == "fp16" else sheet.int8_tops
    if peak is None:
        return None
    reached = Factors.of(sheet)
    return Walls(peak * 1e12 * reached.efficiency, sheet.bandwidth_gbs * GB * reached.streaming, reached.overhead)


def ordered(names: Sequence[str]) -> list[str]:
    """Unique names of tasks in their order: ``name`` where no other has it, else ``name#k``; never longer than allowed."""
    count: dict[str, int] = {}
    for name in names:
        count[name] = count.get(name, 0) + 1
    taken = {name for name, many in count.items() if many == 1 and len(name) <= 200}
    unique: list[str] = []
    for k, name in enumerate(names):
        label = name if name in taken else f"{name[:200]}#{k}"
        while label in taken and name not in taken:
            label += "#"
        taken.add(label)
        unique.append(label)
    return unique
