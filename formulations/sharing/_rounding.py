"""Values that are sums of whole numbers lie on a grid; a bound between two points of it is rounded up to the next one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["next_value"]

LARGEST = 2.0**40  # sums of numbers below this are exact in floating point, as many as a plan has
NOISE = 1e-9


def next_value(bound: float, parts: ArrayLike, offset: float, slack: float) -> float:
    """The least ``offset`` plus a sum of whole multiples of ``parts`` that a value of at least ``bound - slack`` can be.

    With a part that is no whole number, ``bound`` itself: nothing is known of such sums.
    """
    each = np.asarray(parts, np.float64).ravel()
    if not len(each) or (each != np.rint(each)).any() or offset != round(offset) or np.abs(each).max() > LARGEST:
        return bound
    step = int(np.gcd.reduce(np.abs(each).astype(np.int64)))
    if step == 0 or not math.isfinite(bound) or abs(bound - offset) > LARGEST * step:
        return bound
    return max(bound, float(offset + step * math.ceil((bound - slack - offset) / step - NOISE)))
