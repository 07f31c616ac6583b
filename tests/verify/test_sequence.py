"""Plans that run one task at a time: what rounding may excuse, and what not."""

from __future__ import annotations

import numpy as np

from hetopt.instance import Instance
from hetopt.verify.sequence import check_sequence


def test_a_long_task_elsewhere_excuses_no_overlap_of_short_ones():
    """Two tasks of 0.1 ms at once on one device, beside 10^6 s on another: a plan half as long for them, not rounding."""
    instance = Instance.from_times([[np.inf, 1e6], [1e-4, np.inf], [1e-4, np.inf]])
    placement = np.array([1, 0, 0])
    done, wrong = check_sequence(instance, placement, np.array([0.0, 0.0, 0.0]))
    assert done.tolist() == [1e6, 1e-4, 1e-4]
    assert wrong == ("tasks 'j1' and 'j2' run on 'd0' at the same time, at 0",)
    assert check_sequence(instance, placement, np.array([0.0, 0.0, 1e-4]))[1] == ()


def test_a_sum_of_decimals_may_round_either_way():
    """0.1 + 0.2 is more than 0.3 in binary; a start at 0.3 after them is meant to be their end."""
    instance = Instance.from_times([[0.1], [0.2], [0.4]])
    assert check_sequence(instance, np.zeros(3, np.int64), np.array([0.0, 0.1, 0.3]))[1] == ()
    assert check_sequence(instance, np.zeros(3, np.int64), np.array([0.0, 0.1, 0.2999]))[1] != ()
