"""The unit in which an integer model counts seconds: a power of ten or two that divides every number given, where there is one.

Where the numbers are whole, or fractions of few digits, nothing is rounded but the error of writing decimals in binary, which is
measured and subtracted from every bound. Elsewhere times are rounded down, so that a model's optimum is a bound as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Units", "units_of"]

_BITS = 29
_NEAR = 1e-6  # of a unit: farther from a whole number a moment is none


class Units(NamedTuple):
    """``seconds`` of one unit; ``error`` in units that one number may be too large by (None: all are rounded down)."""

    seconds: float
    error: float | None

    def down(self, seconds: float) -> int:
        """Whole units: the number that is meant, or no more than it is."""
        if self.error is not None:
            return round(seconds / self.seconds)
        return math.floor(seconds / self.seconds * (1.0 - 1e-9))

    def exact(self, moments: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Moments in units where they are whole; None where they are not, or where numbers are rounded."""
        units = moments / self.seconds
        near = np.round(units)
        return near if self.error is not None and bool((np.abs(units - near) < _NEAR).all()) else None

    def slack(self, numbers: int) -> float:
        """Units that a sum of so many numbers may be too large by."""
        return 0.0 if self.error is None else self.error * numbers


def units_of(facts: Iterable[ArrayLike], span: float) -> Units:
    """Units for the finite numbers in ``facts`` and sums of them up to ``span`` seconds."""
    values = np.unique(np.concatenate([np.asarray(fact, np.float64).ravel() for fact in facts]))
    values = values[np.isfinite(values)]
    for digits in range(13):
        unit = 10.0**-digits
        if span / unit >= 2.0**_BITS:
            break
        scaled = values / unit
        meant = np.round(scaled)
        off = np.abs(scaled - meant)
        if bool((off <= 1e-9 + 1e-12 * meant).all()) and bool((meant[values > 0] > 0).all()):
            return Units(unit, 0.0 if digits == 0 and not off.any() else float(off.max(initial=0.0)) + 1e-12)
    unit = float(2.0 ** (math.frexp(span)[1] - _BITS)) if span > 0 else 1.0
    if bool((values / unit == np.floor(values / unit)).all()):
        common = math.gcd(*(values / unit).astype(np.int64).tolist())
        return Units(unit * (common & -common or 1), 0.0)
    return Units(unit, None)
