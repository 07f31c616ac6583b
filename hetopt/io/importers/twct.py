"""Import weighted completion times on unrelated machines: a JSON object with weights and a row of times for each machine.

``{"name": ..., "weights": [n numbers], "processing_time_by_machine": [m rows of n numbers]}``; other keys are ignored, such
as ``published``, which says what others found.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._text import MAX_CELLS, load_text
from hetopt.io.kinds import Option

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "twct"
TITLE = "Total weighted completion time on unrelated machines (JSON with weights and a row of times a machine)."
SOURCE_HELP = "JSON file (.json or .json.gz) with 'weights' and 'processing_time_by_machine'."
OPTIONS: tuple[Option, ...] = ()


def load(source: str | Path) -> Instance:
    """Instance of a file; jobs are ``j0, j1, ...``, machines ``m0, m1, ...``, the question is the weighted completion.

    Raises
    ------
    InputError
        The file cannot be read or is no such object, or a number is missing, negative or not a number.
    """
    try:
        data = json.loads(load_text(source))
    except (ValueError, RecursionError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{source}: not a JSON text: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{source}: expected a JSON object with 'weights' and 'processing_time_by_machine'")
    weight = _numbers(source, data, "weights", 1)
    times = _numbers(source, data, "processing_time_by_machine", 2)
    if times.shape[1] != len(weight):
        raise InputError(
            f"{source}: $.processing_time_by_machine has {times.shape[1]} times a machine, expected {len(weight)}, one a weight"
        )
    name = data.get("name")
    return Instance.from_times(
        times.T,
        weight=weight,
        jobs=[f"j{j}" for j in range(times.shape[1])],
        devices=[f"m{i}" for i in range(times.shape[0])],
        question={"objective": "weighted-completion"},
        name=name if isinstance(name, str) else Path(source).name,
        source=f"imported from the file {Path(source).name}",
    )


def _numbers(source: str | Path, data: dict[str, Any], key: str, axes: int) -> np.ndarray:  # type: ignore[type-arg]
    """Array of finite numbers >= 0 at a key."""
    expected = "a list of numbers >= 0" if axes == 1 else "a list of machines, each a list of as many numbers >= 0"
    if key not in data:
        raise InputError(f"{source}: $.{key} is missing, expected {expected}")
    try:
        values = np.array(data[key])
        good = values.ndim == axes and 0 < values.size <= MAX_CELLS and values.dtype.kind in "iuf"
    except ValueError:
        good = False
    if not good or not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(f"{source}: $.{key} is not {expected}, at most {MAX_CELLS} in all")
    return values.astype(np.float64)
