"""The roofline: seconds of an operation from its arithmetic and the bytes it moves, and a processor's data sheet.

    seconds = overhead + max(flops / (peak * efficiency), bytes / (bandwidth * MEMORY_EFFICIENCY))

It says which of two walls an operation runs into and is right within a small factor for large dense operations. It knows
nothing of caches, of shapes that fill a processor badly, or of contention: measured times belong in an instance where they
exist. Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52 (2009).

The numbers are those of :mod:`hetopt.costs.catalogue`; :class:`Factors` replaces its assumptions by what was measured
(:mod:`hetopt.costs.calibration` fits them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hetopt.costs.catalogue import GB, Sheet, catalogue
from hetopt.errors import InputError, nearest

__all__ = ["MEMORY_EFFICIENCY", "PROCESSORS", "Factors", "Processor", "Walls", "fleet", "seconds", "walls"]

MEMORY_EFFICIENCY = 0.8
"""Share of a memory's data-sheet bandwidth that a streaming kernel reaches; an assumption, the same for all."""


class Factors(NamedTuple):
    """How far a device stays below its data sheet.

    Attributes
    ----------
    efficiency, streaming
        Shares of the peak and of the memory's bandwidth that are reached.
    overhead
        Seconds to start an operation.
    note
        Where they are from.
    """

    efficiency: float
    streaming: float
    overhead: float
    note: str

    @classmethod
    def of(cls, sheet: Sheet) -> Factors:
        """What the catalogue says, or assumes."""
        known = "efficiency from the catalogue" if sheet.efficiency is not None else "efficiency assumed"
        return cls(sheet.reached, MEMORY_EFFICIENCY, sheet.overhead, f"{known}, streaming and overhead assumed")


class Walls(NamedTuple):
    """The two walls of a device for one precision, as they are reached, and the seconds to start an operation."""

    arithmetic: float
    traffic: float
    overhead: float

    def seconds(self, flops: float, moved: float) -> float:
        """Seconds of one operation of ``flops`` that moves ``moved`` bytes."""
        return self.overhead + max(flops / self.arithmetic, moved / self.traffic)


def walls(sheet: Sheet, factors: Factors | None = None) -> Walls:
    """Walls of a device for arithmetic in half precision.

    Raises
    ------
    InputError
        Its data sheet has no such peak, or no bandwidth.
    """
    if sheet.fp16_tflops is None or sheet.bandwidth_gbs is None:
        lacks = "fp16_tflops" if sheet.fp16_tflops is None else "bandwidth_gbs"
        raise InputError(
            f"the data sheet of {sheet.name!r} has no {lacks}, so times on it cannot be told; leave the device out, or state the "
            "number in a file of your own (`hetopt devices` shows the fields)"
        )
    reached = factors or Factors.of(sheet)
    return Walls(
        sheet.fp16_tflops * 1e12 * reached.efficiency, sheet.bandwidth_gbs * GB * reached.streaming, reached.overhead
    )


@dataclass(frozen=True)
class Processor:
    """One device's data sheet.

    Attributes
    ----------
    name
        Catalogue name.
    kind
        ``gpu``, ``npu`` or ``cpu``; a CPU works in host memory.
    peak
        Dense operations per second by precision (``fp16`` stands for bf16 too).
    efficiency
        Share of the peak that large matrix products reach.
    bandwidth
        Bytes per second of its memory.
    memory
        Bytes; None where it shares host memory.
    link
        Bytes per second to and from host memory, one direction; None where it works in host memory.
    overhead
        Seconds to start an operation.
    power
        Watts, as the data sheet limits them.
    source, confidence
        Where the numbers are from, and how far they can be trusted.
    """

    name: str
    kind: str
    peak: Mapping[str, float]
    efficiency: float
    bandwidth: float
    memory: int | None
    link: float | None
    overhead: float
    power: float
    source: str
    confidence: str


def _processor(sheet: Sheet) -> Processor | None:
    """A processor from its data sheet; None where the roofline lacks a number, or the kind has no fleet."""
    peaks = {"fp16": sheet.fp16_tflops, "int8": sheet.int8_tops}
    peak = {precision: tera * 1e12 for precision, tera in peaks.items() if tera is not None}
    link = None if sheet.host_link_gbs is None else sheet.host_link_gbs * GB
    unreachable = link is None and sheet.kind != "cpu"
    if (
        sheet.kind not in ("gpu", "npu", "cpu")
        or not peak
        or sheet.bandwidth_gbs is None
        or sheet.power_w is None
        or unreachable
    ):
        return None
    return Processor(
        sheet.name, sheet.kind, peak, sheet.reached, sheet.bandwidth_gbs * GB, None if sheet.shared_memory else sheet.memory,
        link, sheet.overhead, sheet.power_w, sheet.source, sheet.confidence,
    )  # fmt: skip


PROCESSORS: Mapping[str, Processor] = {
    processor.name: processor for processor in map(_processor, catalogue().values()) if processor is not None
}
"""The processors by name: every data sheet of the catalogue that has the numbers."""


def seconds(processor: Processor, flops: float, moved: float, precision: str) -> float:
    """Seconds of one operation.

    Parameters
    ----------
    processor
        Where it runs.
    flops
        Arithmetic operations (a multiply-add counts two).
    moved
        Bytes read from and written to the processor's memory.
    precision
        Key of ``processor.peak``.

    Returns
    -------
    float
        ``inf`` where the processor does not know the precision.
    """
    peak = processor.peak.get(precision)
    if peak is None:
        return float("inf")
    arithmetic = flops / (peak * processor.efficiency)
    traffic = moved / (processor.bandwidth * MEMORY_EFFICIENCY)
    return processor.overhead + max(arithmetic, traffic)


def fleet(text: str, most: int = 4096) -> list[tuple[Processor, int]]:
    """Processors and how many of each, from ``"h100-sxm:1,l4:2"``.

    Raises
    ------
    InputError
        A name that is not in the catalogue or stands twice, or a count that is no whole number from 1 to ``most``.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        if name not in PROCESSORS:
            raise InputError(f"--fleet names {name!r}; {nearest(name, PROCESSORS, what='the processors')}")
        number = int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 1 if not count else 0
        if not 1 <= number <= most:
            raise InputError(f"--fleet holds {part.strip()!r}, expected a count from 1 to {most} after the colon")
        if name in found:
            raise InputError(f"--fleet names {name!r} twice; expected each processor once, with its count")
        found[name] = number
    return [(PROCESSORS[name], number) for name, number in found.items()]
