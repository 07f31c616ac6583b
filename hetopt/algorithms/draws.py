"""Uniform numbers in [0, 1) for kernels, from one word of state: the same on any machine, with numba and without.

The state is an array of one ``uint64`` that is not 0, where a generator would stay; each draw moves it on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetopt.algorithms.jit import njit

__all__ = ["uniform", "uniform_star"]


@njit
def uniform(state: Any) -> float:
    """By xorshift64: shifts only, 53 bits of the word (Marsaglia, Journal of Statistical Software 8, 2003)."""
    z = state[0]
    z ^= z << np.uint64(13)
    z ^= z >> np.uint64(7)
    z ^= z << np.uint64(17)
    state[0] = z
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit
def uniform_star(state: Any) -> float:
    """By xorshift64*, whose last product also mixes the low bits (Vigna, ACM Transactions on Mathematical Software 42, 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0
