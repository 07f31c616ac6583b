"""Preemptive plans: rounding is excused once a plan, not once a piece."""

from __future__ import annotations

import numpy as np

from hetopt.instance import Instance
from hetopt.verify.pieces import check_pieces

ALONE = Instance.from_times([[1.5, np.inf], [np.inf, 1.5]], devices=["a", "b"])


def test_empty_pieces_do_not_stand_for_work():
    """A job done to 99.99 % stays undone, however many pieces of no length are listed with it."""
    short = [["j0", "a", 0.0, 1.49985], ["j1", "b", 0.0, 1.49985]]
    padding = [["j0", "a", 0.0, 0.0], ["j1", "b", 0.0, 0.0]] * 60_000
    assert len(check_pieces(ALONE, short + padding)[1]) == 2
    whole = [["j0", "a", 0.0, 1.5], ["j1", "b", 0.0, 1.5]]
    value, wrong, busy = check_pieces(ALONE, whole + padding[:20])
    assert (value, wrong, busy) == (1.5, (), [1.5, 1.5])


def test_small_overlaps_add_up():
    """2000 pieces, each 10^-9 s before the last one ends: 2 microseconds won of 1.5 s is no rounding."""
    count, each = 2000, 1.5 / 2000
    starts = np.arange(count) * (each - 1e-9)
    pieces = [["j0", "a", t, t + each] for t in starts.tolist()] + [["j1", "b", 0.0, 1.4]]
    sentences = check_pieces(ALONE, pieces)[1]
    assert any("device 'a' runs two pieces" in sentence for sentence in sentences)
