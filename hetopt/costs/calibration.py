"""Factors of the roofline fitted to a few measurements of one device, instead of assumed.

A measurement is a list of operations (flops, bytes moved) and the seconds they took together. With the peak P and the
bandwidth B of the data sheet, the roofline says

    seconds = sum over operations of  max(x flops / P, y bytes / B) + o
    x = 1 / efficiency >= 1,  y = 1 / streaming >= 1,  o >= 0

Which wall an operation runs into depends on its flops a byte against y / x only, so there are no more cases than different
operations; each is a linear least squares of relative errors with bounds, and the case that fits best when put back into the
formula is taken. Where there are fewer measurements than unknowns, the overhead, then the wall that matters less, keeps its
assumed value. It says nothing of devices, phases or sizes far from those measured; the note gives the largest error that is
left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetopt.costs.catalogue import GB, Sheet
from hetopt.costs.roofline import Factors
from hetopt.errors import InputError

__all__ = ["Measurement", "calibrate"]

_SAME = 1e-12  # a sum of squared relative errors that is no difference


@dataclass(frozen=True)
class Measurement:
    """Operations as (flops, bytes moved), and the seconds of all together."""

    operations: Sequence[tuple[float, float]]
    seconds: float


def calibrate(sheet: Sheet, measured: Sequence[Measurement], usual: Factors | None = None) -> Factors:
    """Factors of a device that fit its measurements best.

    Parameters
    ----------
    sheet
        Its data sheet; needs a half-precision peak and a bandwidth.
    measured
        At least one measurement.
    usual
        Factors kept where the measurements do not tell; those of the catalogue by default.

    Raises
    ------
    InputError
        There is no measurement, one has no operation or no time, or the data sheet lacks a number.
    """
    if sheet.fp16_tflops is None or sheet.bandwidth_gbs is None:
        raise InputError(f"{sheet.name!r} cannot be calibrated: its data sheet lacks a peak or a bandwidth")
    if not measured or any(not one.operations or not 0 < one.seconds < np.inf for one in measured):
        raise InputError(f"{sheet.name!r} cannot be calibrated: each measurement needs operations and seconds > 0")
    before = usual or Factors.of(sheet)
    assumed = np.array([1 / before.efficiency, 1 / before.streaming, before.overhead])
    operations = np.array([op for one in measured for op in one.operations], np.float64)
    owner = np.repeat(np.arange(len(measured)), [len(one.operations) for one in measured])
    took = np.array([one.seconds for one in measured])
    ideal = operations / [sheet.fp16_tflops * 1e12, sheet.bandwidth_gbs * GB]
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity = np.where(ideal[:, 1] > 0, ideal[:, 0] / ideal[:, 1], np.inf)
    best, least = assumed, _error(ideal, owner, took, assumed)
    for limit in sorted({*intensity.tolist(), np.inf}, key=lambda limit: _distance(limit, assumed[1] / assumed[0])):
        bound = intensity >= limit  # by arithmetic
        columns = np.zeros((len(took), 3))
        np.add.at(columns[:, 0], owner[bound], ideal[bound, 0])
        np.add.at(columns[:, 1], owner[~bound], ideal[~bound, 1])
        np.add.at(columns[:, 2], owner, 1.0)
        found = _fit(columns / took[:, None], assumed)
        error = _error(ideal, owner, took, found)
        if error < least - _SAME:
            best, least = found, error
    worst = float(np.abs(_predicted(ideal, owner, len(took), best) / took - 1).max())
    note = f"fitted to {len(took)} measurement{'s'[: len(took) > 1]}, largest error {100 * worst:.2g} %"
    return Factors(1 / float(best[0]), 1 / float(best[1]), float(best[2]), note)


def _distance(limit: float, usual: float) -> tuple[float, float]:
    """How far a border between the walls is from the usual one: of cases that fit alike, the nearest is taken."""
    return abs(np.log(max(limit, 1e-300)) - np.log(usual)) if np.isfinite(limit) else np.inf, limit


def _predicted(
    ideal: NDArray[np.float64], owner: NDArray[np.int64], count: int, x: NDArray[np.float64]
) -> NDArray[np.float64]:
    each = np.maximum(ideal[:, 0] * x[0], ideal[:, 1] * x[1]) + x[2]
    total: NDArray[np.float64] = np.bincount(owner, each, count).astype(np.float64)
    return total


def _error(
    ideal: NDArray[np.float64], owner: NDArray[np.int64], took: NDArray[np.float64], x: NDArray[np.float64]
) -> float:
    return float(((_predicted(ideal, owner, len(took), x) / took - 1) ** 2).sum())


def _fit(relative: NDArray[np.float64], assumed: NDArray[np.float64]) -> NDArray[np.float64]:
    """(3,) least squares of ``relative @ x = 1`` with bounds; what the rows cannot tell stays as assumed."""
    from scipy.optimize import lsq_linear

    share = (relative * assumed).sum(axis=0)
    walls = [k for k in (0, 1) if share[k] > 0]
    walls.sort(key=lambda k: -share[k])
    free = [*walls, 2][: len(relative)] if len(relative) < len(walls) + 1 else [*walls, 2]
    fixed = [k for k in range(3) if k not in free]
    right = 1 - relative[:, fixed] @ assumed[fixed]
    scale = assumed[free]  # so that seconds and shares are of one size
    low = np.array([1.0, 1.0, 0.0])[free] / scale
    answer = lsq_linear(relative[:, free] * scale, right, bounds=(low, np.full(len(free), np.inf)), method="bvls")
    found = assumed.copy()
    found[free] = np.maximum(answer.x, low) * scale
    return found
