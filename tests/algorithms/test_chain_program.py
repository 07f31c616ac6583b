"""The chain programs against plain twins and against listing all stages."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hetopt.algorithms import chain_program
from hetopt.algorithms.chain_program import FAR, ceiling_windows, cheapest, exact_windows, floor_windows, reach
from hetopt.algorithms.chain_states import fixed_states, free_states


def never() -> bool:
    return False


def layout(seed: int):
    """Random states, windows, transfers and cuts."""
    rng = np.random.default_rng(seed)
    n, t = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    classes = int(rng.integers(1, 4))
    link = rng.integers(0, classes, (t, t))
    empty = bool(rng.integers(2))
    if seed % 2:
        states = free_states(rng.integers(1, 3, t), link, empty=empty)
    else:
        states = fixed_states(np.arange(t), link, empty=empty)
    prefix = np.concatenate([np.zeros((t, 1), np.int64), np.cumsum(rng.integers(0, 9, (t, n)), axis=1)], axis=1)
    transfer = np.where(rng.random((classes, n + 1)) < 0.2, FAR, rng.integers(0, 6, (classes, n + 1)))
    transfer[:, 0] = 0
    cut = rng.random(n + 1) < 0.8
    cut[[0, n]] = True
    return states, prefix, transfer, cut, n, t


@pytest.mark.parametrize("seed", range(40))
def test_kernels_and_their_plain_twins(seed, monkeypatch):
    states, prefix, transfer, cut, n, t = layout(seed)
    owner, copies, low = np.arange(t), np.ones(t, np.int64), np.zeros((t, n + 1), np.int64)
    limit = 12
    tight, wide = ceiling_windows(prefix, owner, copies, low, limit), floor_windows(prefix, owner, copies, 2)
    for k in range(t):
        for p in range(n + 1):
            sums = [prefix[k, p] - prefix[k, q] for q in range(p)]
            assert tight[k, p] == next((q for q, s in enumerate(sums) if s <= limit), p)
            assert wide[k, p] == max((q for q, s in enumerate(sums) if s >= 2), default=-1)
    fee = np.ones(t, np.int64)
    reached = reach(states, tight, wide, transfer <= limit, cut, never)
    least = cheapest(states, tight, prefix, fee, transfer, cut, never)
    for name in ("_reach", "_cheapest"):
        kernel = getattr(chain_program, name)
        monkeypatch.setattr(chain_program, name, getattr(kernel, "py_func", kernel))
    assert (reach(states, tight, wide, transfer <= limit, cut, never) == reached).all()
    assert cheapest(states, tight, prefix, fee, transfer, cut, never) == least


@pytest.mark.parametrize("seed", range(40))
def test_least_sum_is_that_of_the_best_walk(seed):
    """Every walk over arcs and boundaries, one stage at a time."""
    states, prefix, transfer, cut, n, t = layout(seed)
    low = ceiling_windows(prefix, np.arange(t), np.ones(t, np.int64), np.zeros((t, n + 1), np.int64), 20)
    best = {(0, 0): 0}
    for s in range(1, len(states.skip)):
        for p in range(n + 1):
            ways = [best.get((int(states.skip[s]), p), FAR)] if states.skip[s] >= 0 else []
            for a in range(int(states.first[s]), int(states.first[s + 1])):
                w, u, c = int(states.window[a]), int(states.tail[a]), int(states.link[a])
                ways += [
                    best[u, q] + int(transfer[c, q] + prefix[w, p] - prefix[w, q]) + 1
                    for q in range(int(low[w, p]), p)
                    if (u, q) in best and transfer[c, q] < FAR and cut[p]
                ]
            if min(ways, default=FAR) < FAR:
                best[s, p] = min(ways)
    expected = min((best.get((s, n), FAR) for s in np.flatnonzero(states.final).tolist()), default=FAR)
    found = cheapest(states, low, prefix, np.ones(t, np.int64), transfer, cut, never)
    assert found is not None
    assert found[0] == expected


@pytest.mark.parametrize("seed", range(30))
def test_windows_round_nothing(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    values, more = rng.integers(0, 10, (2, n)) / (1 if seed % 2 else 10)
    limit, times = float(rng.integers(0, 30)) / (1 if seed % 2 else 10), int(rng.integers(0, 3))
    low = exact_windows(values, limit, more, times)
    for p in range(n + 1):
        sums = [sum((Fraction(v) + times * Fraction(m) for v, m in zip(values[q:p], more[q:p], strict=True)), Fraction(0))
                for q in range(p)]  # fmt: skip
        assert low[p] == next((q for q, total in enumerate(sums) if total <= Fraction(limit)), p)


def test_told_to_stop():
    states, prefix, transfer, cut, n, t = layout(0)
    low = np.zeros((t, n + 1), np.int64)
    assert reach(states, low, low, transfer < FAR, cut, lambda: True) is None
    assert cheapest(states, low, prefix, np.zeros(t, np.int64), transfer, cut, lambda: True) is None
