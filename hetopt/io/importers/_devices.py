"""The devices that an importer of a model places it on: ``--devices "rtx4090:2,rtx3090,cpu"``, from the catalogue.

Times are those of the roofline (:mod:`hetopt.costs.roofline`), in nanoseconds' steps, far below what it knows. Each accelerator
reaches host memory over its own link, and another device through host memory, at the slower of the two links; faster links
between accelerators are for the user to add. A CPU works in host memory and has no limit of its own there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetopt.costs.catalogue import Sheet, find
from hetopt.costs.roofline import PROCESSORS, Processor, seconds
from hetopt.errors import InputError, nearest
from hetopt.io.kinds import Option
from hetopt.records import Device, Link

__all__ = ["DEVICES", "PRECISION", "Crew", "crew"]

WIDTH = {"fp16": 2, "int8": 1}
"""Bytes of a number by precision; the catalogue has peaks of these."""

DEVICES = Option("--devices", str, "rtx4090:2,rtx3090,cpu", "Devices as name:count,name; see `hetopt devices`.")
PRECISION = Option("--precision", tuple(WIDTH), "fp16", "What floating-point numbers are stored and computed in.")

_MOST = 4096  # devices in all
_COPY = 1e-5  # seconds to start a copy from device to device; an assumption


@dataclass(frozen=True)
class Crew:
    """Processors with their data sheets and how many there are of each."""

    members: tuple[tuple[Processor, Sheet, int], ...]

    def devices(self) -> list[Device]:
        """A device record for each, called ``type-0``, ``type-1``, ...; what weights may not take is reserved."""
        return [
            Device(
                name=f"{p.name}-{k}",
                type=p.name,
                memory=p.memory,
                reserved=0 if p.memory is None else p.memory - (sheet.usable_memory or p.memory),
                power=_whole(p.power),
                price=None if sheet.price is None else _whole(sheet.price.usd_per_hour),
                host=p.kind == "cpu",
            )
            for p, sheet, count in self.members
            for k in range(count)
        ]

    def links(self) -> list[Link]:
        """To and from host memory, and between every two types."""
        host = [
            Link(source=p.name, target="host", bandwidth=_whole(p.link), both=True)
            for p, _, _ in self.members
            if p.link is not None
        ]
        rates = [(p.name, p.bandwidth if p.link is None else p.link, count) for p, _, count in self.members]
        between = [
            Link(source=a, target=b, bandwidth=_whole(min(rate, other)), latency=_COPY, both=k != i)
            for k, (a, rate, count) in enumerate(rates)
            for i, (b, other, _) in enumerate(rates)
            if i > k or (i == k and count > 1)
        ]
        return host + between

    def times(self, flops: float, moved: float, precision: str) -> dict[str, float | None]:
        """Seconds of an operation by type; None where the type does not know the precision."""
        took = {p.name: seconds(p, flops, moved, precision) for p, _, _ in self.members}
        return {name: None if t == float("inf") else round(t, 9) for name, t in took.items()}

    def nothing(self) -> dict[str, float | None]:
        """Times of an operation that costs nothing anywhere (it renames what is there)."""
        return {p.name: 0 for p, _, _ in self.members}

    def source(self) -> str:
        """Where the devices' numbers are from."""
        return "; ".join(f"{p.name}: {p.source} ({p.confidence})" for p, _, _ in self.members)


def crew(text: str, precision: str) -> Crew:
    """Devices from ``"rtx4090:2, RTX 3090, cpu"``; names are matched whatever their case and punctuation.

    Raises
    ------
    InputError
        A name is unknown, ambiguous or stands twice, its data sheet lacks what the roofline needs, a count is no whole number
        from 1 on, there are too many, the precision is unknown, or no device has a peak for it.
    """
    if precision not in WIDTH:
        raise InputError(f"--precision is {precision!r}; {nearest(str(precision), WIDTH, what='the choices')}")
    members: dict[str, tuple[Processor, Sheet, int]] = {}
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        sheet = _sheet(name)
        number = int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 0 if count else 1
        if not 1 <= number <= _MOST:
            raise InputError(
                f"--devices holds {part.strip()[:60]!r}, expected a count from 1 to {_MOST} after the colon"
            )
        if sheet.name in members:
            raise InputError(f"--devices names {sheet.name!r} twice; expected each once, with its count")
        members[sheet.name] = (PROCESSORS[sheet.name], sheet, number)
    if sum(count for _, _, count in members.values()) > _MOST:
        raise InputError(f"--devices names more than {_MOST} devices")
    if not any(precision in p.peak for p, _, _ in members.values()):
        raise InputError(
            f"--devices {text!r}: none of them has a published peak for {precision}; choose another precision"
        )
    return Crew(tuple(members.values()))


def _sheet(name: str) -> Sheet:
    try:
        sheet = find(name)
    except InputError as error:
        raise InputError(f"--devices: {error}") from None
    if sheet.name not in PROCESSORS:
        raise InputError(
            f"--devices names {sheet.name!r}, whose data sheet lacks a peak, bandwidth, power or link; choose another device"
        )
    return sheet


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value


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
