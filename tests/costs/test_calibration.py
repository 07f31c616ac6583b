"""Factors come back from times made with them; too few measurements change what they tell and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from hetopt.costs.calibration import Measurement, calibrate
from hetopt.costs.catalogue import find
from hetopt.costs.roofline import MEMORY_EFFICIENCY, Factors, walls
from hetopt.errors import InputError

SHEET = find("rtx3090")  # 71 TFLOPS, 936 GB/s
TRUE = Factors(0.55, 0.73, 9e-6, "")


def measured(operations, factors=TRUE):
    reached = walls(SHEET, factors)
    return Measurement(operations, sum(reached.seconds(*op) for op in operations))


@pytest.mark.parametrize("seed", range(5))
def test_factors_come_back(seed):
    rng = np.random.default_rng(seed)
    draw = [[(10 ** rng.uniform(8, 13), 10 ** rng.uniform(6, 9)) for _ in range(5)] for _ in range(6)]
    found = calibrate(SHEET, [measured(operations) for operations in draw])
    assert found[:3] == pytest.approx(TRUE[:3], rel=1e-6)
    assert found.note.startswith("fitted to 6 measurements")


def test_one_measurement_tells_of_one_wall():
    """A copy of 93.6 GB that takes 0.125 s + 5 us runs at 80 % of the bandwidth; at 0.2 s + 5 us, at half of it."""
    assert calibrate(SHEET, [Measurement([(0.0, 93.6e9)], 0.125 + 5e-6)]).streaming == pytest.approx(0.8, rel=1e-9)
    slow = calibrate(SHEET, [Measurement([(0.0, 93.6e9)], 0.2 + 5e-6)])
    assert slow.streaming == pytest.approx(0.5, rel=1e-9)
    assert (slow.efficiency, slow.overhead) == (SHEET.reached, SHEET.overhead)
    fast = calibrate(SHEET, [Measurement([(71e12, 1.0)], 2.0 + 5e-6)])
    assert fast.efficiency == pytest.approx(0.5, rel=1e-9)
    assert fast.streaming == MEMORY_EFFICIENCY


def test_nothing_is_faster_than_its_data_sheet():
    found = calibrate(SHEET, [Measurement([(71e12, 1.0)], 0.5)])
    assert found.efficiency == pytest.approx(1)
    assert "largest error 1e+02 %" in found.note


def test_noise_is_told():
    good, bad = measured([(1e12, 1e6)]), measured([(1e12, 1e6)])
    found = calibrate(SHEET, [good, Measurement(bad.operations, bad.seconds * 1.2)])
    assert 0.45 < found.efficiency < 0.55
    assert "largest error 9" in found.note or "largest error 1" in found.note


def test_what_cannot_be_fitted_is_refused():
    for several in ([], [Measurement([], 1.0)], [Measurement([(1.0, 1.0)], 0.0)], [Measurement([(1.0, 1.0)], np.inf)]):
        with pytest.raises(InputError, match="needs operations and seconds"):
            calibrate(SHEET, several)
    with pytest.raises(InputError, match="lacks a peak"):
        calibrate(find("coral-edgetpu"), [Measurement([(1.0, 1.0)], 1.0)])
