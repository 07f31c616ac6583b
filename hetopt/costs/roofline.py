"""The roofline: seconds of an operation from its arithmetic and the bytes it moves, and a processor's data sheet.

    seconds = overhead + max(flops / (peak * efficiency), bytes / (bandwidth * MEMORY_EFFICIENCY))

It says which of two walls an operation runs into and is right within a small factor for large dense operations. It knows
nothing of caches, of shapes that fill a processor badly, or of contention: measured times belong in an instance where they
exist. Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52 (2009).

The catalogue holds dense peaks (data sheets like to print the double, for sparse matrices), decimal gigabytes, and links in
one direction. ``confidence`` says how far a row can be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hetopt.errors import InputError, nearest

__all__ = ["MEMORY_EFFICIENCY", "PROCESSORS", "Processor", "fleet", "seconds"]

MEMORY_EFFICIENCY = 0.8
"""Share of a memory's data-sheet bandwidth that a streaming kernel reaches; an assumption, the same for all."""

GB = 1_000_000_000


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


def _gpu(
    name: str, tflops: float, tops: float | None, memory: int, bandwidth: float, link: float, power: float, source: str,
    *, efficiency: float = 0.7, confidence: str = "peak and memory as published; efficiency assumed",
) -> Processor:  # fmt: skip
    peak = {"fp16": tflops * 1e12} | ({"int8": tops * 1e12} if tops else {})
    return Processor(
        name, "gpu", peak, efficiency, bandwidth * GB, memory * GB, link * GB, 5e-6, power, source, confidence
    )


_MEASURED = "peak and memory as published; efficiency measured by others (public table of achievable matmul throughput)"

PROCESSORS: Mapping[str, Processor] = {
    p.name: p
    for p in (
        _gpu("h100-sxm", 989, 1979, 80, 3350, 63, 700, "NVIDIA H100 data sheet; PCIe 5.0 x16",
             efficiency=0.803, confidence=_MEASURED),
        _gpu("a100-sxm-80", 312, 624, 80, 2039, 31.5, 400, "NVIDIA A100 data sheet; PCIe 4.0 x16",
             efficiency=0.869, confidence=_MEASURED),
        _gpu("a100-sxm-40", 312, 624, 40, 1555, 31.5, 400, "NVIDIA A100 data sheet; PCIe 4.0 x16",
             efficiency=0.869, confidence=_MEASURED),
        _gpu("l40s", 362, 733, 48, 864, 31.5, 350, "NVIDIA L40S data sheet; PCIe 4.0 x16"),
        _gpu("l4", 121, 242, 24, 300, 31.5, 72, "NVIDIA L4 data sheet (half of the sparse peak); PCIe 4.0 x16"),
        _gpu("a10", 125, 250, 24, 600, 31.5, 150, "NVIDIA A10 data sheet; PCIe 4.0 x16"),
        _gpu("t4", 65, 130, 16, 320, 15.75, 70, "NVIDIA T4 data sheet (fp16); PCIe 3.0 x16"),
        _gpu("v100-sxm2-16", 125, None, 16, 900, 15.75, 300, "NVIDIA V100 data sheet (fp16); PCIe 3.0 x16"),
        _gpu("rtx3090", 71, 284, 24, 936, 31.5, 350, "NVIDIA GA102 white paper (fp32 accumulation); PCIe 4.0 x16"),
        _gpu("rtx4090", 165.2, 661, 24, 1008, 31.5, 450, "NVIDIA Ada white paper (fp32 accumulation); PCIe 4.0 x16"),
        Processor(
            "xeon-8480plus", "cpu", {"fp16": 229e12, "int8": 458e12}, 0.5, 307.2 * GB, None, None, 1e-6, 350,
            "Intel Xeon 8480+ data sheet: 56 cores, AMX 2048 bf16 operations a cycle and core at 2 GHz, 8 x DDR5-4800",
            "memory as published; peak computed, efficiency assumed",
        ),
        Processor(
            "epyc-9654", "cpu", {"fp16": 14.7e12, "int8": 29.5e12}, 0.5, 460.8 * GB, None, None, 1e-6, 360,
            "AMD EPYC 9654 data sheet: 96 cores, 64 bf16 operations a cycle and core at 2.4 GHz, 12 x DDR5-4800",
            "memory as published; peak computed, efficiency assumed",
        ),
        Processor(
            "snapdragon-8-gen-3-cpu", "cpu", {"fp16": 0.71e12, "int8": 1.42e12}, 0.5, 76.8 * GB, None, None, 1e-6, 5,
            "Qualcomm product brief: 1 Cortex-X4 at 3.3 GHz, 5 Cortex-A720 at 3.0 to 3.2 GHz, LPDDR5X-4800 64 bit; "
            "Arm optimisation guides: four and two 128-bit pipes",
            "memory as published; peak computed, power and efficiency assumed",
        ),
        Processor(
            "adreno-750", "gpu", {"fp16": 5.5e12, "int8": 5.5e12}, 0.4, 76.8 * GB, None, 38.4 * GB, 10e-6, 5,
            "Qualcomm product brief for the memory; peak from public reports (1536 units at 0.9 GHz)",
            "low: the vendor publishes no peak; link is half of the shared memory's bandwidth (a copy reads and writes)",
        ),
        Processor(
            "snapdragon-8-gen-3-npu", "npu", {"int8": 45e12}, 0.4, 76.8 * GB, None, 38.4 * GB, 2e-6, 8,
            "Qualcomm product brief for the memory; peak from public reports (45, others say 34 int8 TOPS)",
            "low: the vendor publishes no peak; link is half of the shared memory's bandwidth (a copy reads and writes)",
        ),
    )
}  # fmt: skip
"""The processors by name."""


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
