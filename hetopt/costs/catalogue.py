"""Data sheets of devices by name: memory, bandwidth, peaks, links, power, dated prices, and how far each can be trusted.

The numbers are in ``devices.json`` beside this file, the only source of device numbers; :mod:`hetopt.costs.roofline` builds its
processors from them. Peaks are dense (data sheets like to print the double, for sparse matrices); of GeForce cards they are those
with single-precision accumulation; gigabytes are decimal; links are in one direction. A price is a sample with its date, or
without one where nobody checked it: state your own in a file (``hetopt devices --file MINE.json``), whose rows override
or add to those here. ``cpu`` is a generic host with stated defaults. Nothing is measured here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hetopt.errors import InputError, nearest

__all__ = ["FORMAT", "Price", "Sheet", "catalogue", "describe", "find", "known", "table"]

FORMAT = "hetopt-devices/1"
GB = 1_000_000_000
MOST_BYTES = 1 << 24  # of a user's file

_Number = Annotated[int, Meta(gt=0, le=10**12)] | Annotated[float, Meta(gt=0, le=1e12)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Kind = Literal["gpu", "cpu", "npu", "tpu", "soc", "accelerator"]

# Where a row does not say: share of the peak that large matrix products reach, and microseconds to start an operation.
_EFFICIENCY = {"gpu": 0.7, "cpu": 0.5, "npu": 0.4}
_OVERHEAD = {"gpu": 5.0, "cpu": 1.0, "npu": 2.0}
_USABLE = 0.9


class _Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Price(_Row, frozen=True, kw_only=True):
    """What an hour costs; ``date`` (YYYY, YYYY-MM or YYYY-MM-DD) is None where the price was not checked."""

    usd_per_hour: Annotated[float, Meta(ge=0, le=1e9)]
    date: Annotated[str, Meta(pattern=r"^\d{4}(-\d{2}){0,2}$")] | None = None
    note: str = ""


class Sheet(_Row, frozen=True, kw_only=True):
    """One device's data sheet; a number that nobody publishes is None.

    Attributes
    ----------
    name, vendor, kind
        What it is called, by whom it is made, what it is.
    memory_gb, usable, shared_memory
        Decimal gigabytes; the share of them that weights and caches may take (contexts and workspace have the rest; 0.9 unless
        the row says otherwise); whether they are the host's memory.
    bandwidth_gbs
        Gigabytes per second of that memory.
    fp16_tflops, int8_tops
        Dense peaks, in 1e12 operations per second; ``fp16`` stands for bf16 too.
    efficiency
        Share of the peak that large matrix products reach; None where it is assumed (:attr:`reached`).
    overhead_us
        Microseconds to start an operation; None for what is usual for the kind.
    host_link_gbs, peer_link, peer_link_gbs
        Gigabytes per second to host memory, and to another device of its kind, in one direction.
    power_w
        Watts, as the data sheet limits them.
    price
        A dated sample.
    product, accelerator
        What GPU feature discovery and Ray call it.
    source, confidence
        Where the numbers are from, and how far they can be trusted.
    """

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"[A-Za-z0-9]")]
    vendor: str = ""
    kind: _Kind = "gpu"
    memory_gb: _Number | None = None
    shared_memory: bool = False
    usable: _Share = _USABLE
    bandwidth_gbs: _Number | None = None
    fp16_tflops: _Number | None = None
    int8_tops: _Number | None = None
    efficiency: _Share | None = None
    overhead_us: _Number | None = None
    host_link_gbs: _Number | None = None
    peer_link: str | None = None
    peer_link_gbs: _Number | None = None
    power_w: _Number | None = None
    price: Price | None = None
    product: str | None = None
    accelerator: str | None = None
    source: str = ""
    confidence: str = ""

    @property
    def memory(self) -> int | None:
        """Bytes of memory."""
        return None if self.memory_gb is None else round(self.memory_gb * GB)

    @property
    def usable_memory(self) -> int | None:
        """Bytes that weights, caches and results may take."""
        return None if self.memory is None else int(self.memory * self.usable)

    @property
    def reached(self) -> float:
        """Share of the peak that large matrix products reach, measured or assumed."""
        return self.efficiency if self.efficiency is not None else _EFFICIENCY.get(self.kind, _EFFICIENCY["gpu"])

    @property
    def overhead(self) -> float:
        """Seconds to start an operation."""
        given = self.overhead_us if self.overhead_us is not None else _OVERHEAD.get(self.kind, _OVERHEAD["gpu"])
        return given / 1e6  # 5 / 1e6 is 5e-6; 5 * 1e-6 is not


class _File(_Row, frozen=True, kw_only=True):
    format: Literal["hetopt-devices/1"]
    devices: list[dict[str, Any]]


def catalogue(file: str | Path | None = None) -> dict[str, Sheet]:
    """Data sheets by name, in the file's order.

    Parameters
    ----------
    file
        A file of your own, ``{"format": "hetopt-devices/1", "devices": [{"name": "l4", "price": {...}}, ...]}``: what a row says
        overrides that row here (names matched whatever the case and punctuation); a new name is a new device.

    Raises
    ------
    InputError
        The file cannot be read, is not of that format, has an unknown field, a value of the wrong type or size, or a name twice.
    """
    rows = {_plain(name): dict(row) for name, row in _shipped().items()}
    seen = set()
    for k, row in enumerate(_rows(Path(file)) if file is not None else []):
        name = row.get("name")
        if not isinstance(name, str) or not _plain(name):
            raise InputError(f"{file}: $.devices[{k}].name is {name!r}, expected a name with letters or digits")
        if _plain(name) in seen:
            raise InputError(f"{file}: $.devices[{k}].name repeats {name!r}; write each device once")
        seen.add(_plain(name))
        before = rows.get(_plain(name), {})
        rows[_plain(name)] = before | row | ({"name": before["name"]} if before else {})
        _sheet(rows[_plain(name)], f"{file}: $.devices[{k}]")
    return {row["name"]: _sheet(row, str(file or "devices.json")) for row in rows.values()}


def find(name: str, sheets: Mapping[str, Sheet] | None = None) -> Sheet:
    """The device called ``name``, whatever its case and punctuation, or the only one whose name begins so.

    Parameters
    ----------
    name
        Such as ``RTX 4090``, ``rtx4090``, ``A100-SXM4-80GB`` (as the driver calls it) or ``h200``.
    sheets
        Where to look; the shipped catalogue by default.

    Raises
    ------
    InputError
        No device or several fit; the message lists the candidates.
    """
    among = _default() if sheets is None else sheets
    exact = known(name, among)
    if exact is not None:
        return exact
    plain = _plain(name)
    fitting = [
        sheet for sheet in among.values() if plain and any(called.startswith(plain) for called in _called(sheet))
    ]
    if len(fitting) > 1:
        listed = ", ".join(sheet.name for sheet in fitting)
        raise InputError(f"the device name {name!r} could be {listed}; write one of them")
    if not fitting:
        raise InputError(
            f"there is no device {name!r} in the catalogue; {nearest(name.lower(), among, what='the devices')}"
        )
    return fitting[0]


def known(name: str, sheets: Mapping[str, Sheet] | None = None) -> Sheet | None:
    """The device of exactly this name, whatever the case and punctuation; None where there is none."""
    among = _default() if sheets is None else sheets
    plain = _plain(name)
    return next((sheet for sheet in among.values() if plain in _called(sheet)), None) if plain else None


def _plain(name: str) -> str:
    """A name without case, punctuation and maker, so that ``NVIDIA RTX-4090`` is ``rtx4090``."""
    words = re.sub(r"[^a-z0-9+]+", " ", name.lower()).replace("+", "plus").split()
    while len(words) > 1 and words[0] in ("nvidia", "geforce", "tesla", "amd", "intel", "google", "apple", "qualcomm"):
        del words[0]
    return "".join(words)


def _called(sheet: Sheet) -> tuple[str, ...]:
    return (_plain(sheet.name), _plain(sheet.product)) if sheet.product else (_plain(sheet.name),)


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in _rows(Path(__file__).with_name("devices.json"))}


@cache
def _default() -> dict[str, Sheet]:
    return catalogue()


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise InputError(f"{file} has more than {MOST_BYTES} bytes, expected a list of devices")
    try:
        return msgspec.json.decode(data, type=_File).devices
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f'{file}: {error}; expected {{"format": "{FORMAT}", "devices": [...]}}') from error


def _sheet(row: dict[str, Any], where: str) -> Sheet:
    try:
        return msgspec.convert(row, Sheet)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from error


# For people -----------------------------------------------------------------------------------------------------------


def describe(sheet: Sheet) -> str:
    """A data sheet as lines of text."""
    usable = (
        None
        if sheet.usable_memory is None
        else f"{sheet.memory_gb:g} GB, of which {sheet.usable_memory / GB:.6g} usable"
    )
    price = sheet.price
    cost = None if price is None else f"{price.usd_per_hour:g} USD/h ({price.date or 'not dated'}; {price.note})"
    peer = None
    if sheet.peer_link:
        rate = f"{sheet.peer_link_gbs:g} GB/s" if sheet.peer_link_gbs else "rate not published"
        peer = f"{rate} ({sheet.peer_link})"
    rows = (
        ("kind", sheet.kind + (f", {sheet.vendor}" if sheet.vendor else "")),
        ("memory", usable and usable + (", shared with the host" if sheet.shared_memory else "")),
        ("bandwidth", _unit(sheet.bandwidth_gbs, "GB/s")),
        ("fp16", _unit(sheet.fp16_tflops, "TFLOPS dense")),
        ("int8", _unit(sheet.int8_tops, "TOPS dense")),
        ("efficiency", f"{sheet.reached:g} of the peak, {'measured' if sheet.efficiency is not None else 'assumed'}"),
        ("host link", _unit(sheet.host_link_gbs, "GB/s, one direction")),
        ("peer link", peer),
        ("power", _unit(sheet.power_w, "W")),
        ("price", cost),
        ("source", sheet.source or None),
        ("confidence", sheet.confidence or None),
    )
    return "\n".join([sheet.name, *(f"  {label:<11} {value or 'not known'}" for label, value in rows)])


def table(sheets: Mapping[str, Sheet]) -> str:
    """Data sheets as a table of text, a line a device."""
    head = ("device", "kind", "GB", "usable", "GB/s", "fp16", "int8", "host", "peer", "W", "USD/h", "as of")
    rows = [
        (
            s.name, s.kind, _short(s.memory_gb), _short(s.usable_memory and s.usable_memory / GB), _short(s.bandwidth_gbs),
            _short(s.fp16_tflops), _short(s.int8_tops), _short(s.host_link_gbs), _short(s.peer_link_gbs), _short(s.power_w),
            _short(s.price.usd_per_hour if s.price else None), (s.price.date or "unchecked") if s.price else "-",
        )
        for s in sheets.values()
    ]  # fmt: skip
    width = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    left = (0, 1, len(head) - 1)
    return "\n".join(
        "  ".join(cell.ljust(w) if k in left else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, width, strict=True)))
        .rstrip()
        for row in [head, *rows]
    )  # fmt: skip


def _unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:g} {unit}"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
