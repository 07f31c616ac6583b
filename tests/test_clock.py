"""The clock that stands still while kernels are compiled."""

from __future__ import annotations

import time

import pytest

from hetopt import clock
from hetopt.algorithms.jit import HAVE_NUMBA, njit
from hetopt.control import Control


def test_it_stands_still_while_something_compiles():
    control, before = Control(time_limit=0.05), clock.compiled()
    clock.pause()
    clock.pause()  # a kernel that the first one calls
    time.sleep(0.1)
    assert clock.compiling()
    assert control.remaining > 0
    clock.resume()
    assert clock.compiling()
    clock.resume()
    assert not clock.compiling()
    assert clock.compiled() - before >= 0.1
    assert 0 < control.remaining <= 0.05
    time.sleep(0.06)
    assert control.should_stop()


@pytest.mark.skipif(not HAVE_NUMBA, reason="kernels run as plain Python")
def test_a_new_kernel_is_not_counted():
    @njit(cache=False)
    def twice(x):
        return 2 * x

    before, began = clock.compiled(), clock.now()
    assert twice(3) == 6
    taken = clock.compiled() - before
    assert taken > 0
    assert twice(4) == 8
    assert clock.compiled() - before == taken
    assert clock.now() >= began
