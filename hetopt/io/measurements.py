"""Seconds that somebody measured, from a file: ``{"format": "hetopt-measurements/1", "measurements": [...]}``.

Each entry has a ``device`` (as the catalogue names it), ``seconds``, and what took so long: ``what`` is ``"layer"`` (one
layer, as the middle one of the model) or ``"model"`` (all of it), for a ``phase``, ``batch`` and ``context``. Seconds of a
decode step are the inverse of the steps a second, which most servers print. What the numbers are used for is in
:mod:`hetopt.costs.calibration`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, json

from hetopt.errors import InputError
from hetopt.io import strict
from hetopt.io.instances import load_bytes

__all__ = ["FORMAT", "Measured", "read_measurements"]

FORMAT = "hetopt-measurements/1"
MOST_BYTES = 1 << 20
MOST = 1000


class Measured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measurement."""

    device: Annotated[str, Meta(min_length=1, max_length=64)]
    seconds: Annotated[float, Meta(gt=0, le=1e9)]
    what: Literal["layer", "model"] = "model"
    phase: Literal["decode", "prefill", "train"] = "decode"
    batch: Annotated[int, Meta(ge=1, le=1 << 16)] = 1
    context: Annotated[int, Meta(ge=1, le=1 << 24)]


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["hetopt-measurements/1"]
    measurements: Annotated[list[Measured], Meta(min_length=1, max_length=MOST)]


_decoder = json.Decoder(_File)


def read_measurements(path: str | Path) -> list[Measured]:
    """Measurements of a file, in its order.

    Raises
    ------
    InputError
        The file cannot be read, is not of that format, or has an unknown field or a value that cannot be.
    """
    data = load_bytes(path, limit=MOST_BYTES)
    try:
        return strict.decode(_decoder, data, nested={"measurements": Measured}).measurements
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
