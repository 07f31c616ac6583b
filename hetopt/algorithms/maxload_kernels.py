"""What the max-load dynamic program hands to its compiled steps, and the step on the prefixes of one linear extension.

A step takes a list of reached prefixes, walks over all stages that may come next on one device of one type, and lowers the
best value of the prefixes they end in. It works in the integers of :mod:`hetopt.algorithms.stagecosts` and returns after
about ``budget`` steps with the place to go on from. The step on all ideals is in :mod:`hetopt.algorithms.maxload_lattice`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit

__all__ = ["Chain", "Limits", "Reached", "expand_chain"]


class Limits(NamedTuple):
    """What a stage on the device type at hand may be, and which prefixes are of use.

    ``cap`` (3,) largest load in each pass and in both together, ``room`` (1,) memory, ``which`` (1,) pass whose load is
    minimised. A prefix is of use when each of its potentials lies in ``[low, high]`` (k,); a stage adds at most ``gain``
    (k,) to a potential. ``whole`` (1,): 1 when only the full set is of use.
    """

    cap: NDArray[np.int64]
    room: NDArray[np.int64]
    which: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    gain: NDArray[np.float64]
    whole: NDArray[np.int64]


class Chain(NamedTuple):
    """A linear extension: ``order`` (n,) of the classes; ``stops`` (N,) ascending, places where a stage may end, 0 and n
    among them; ``loads`` (t, passes, N, N) of the stage between two stops, ``NEVER`` where it cannot be.
    """

    order: NDArray[np.int64]
    stops: NDArray[np.int64]
    loads: NDArray[np.int64]


class Reached(NamedTuple):
    """Best value (N,) of each prefix in the layer being made, and the entry and device type (-1: none) it came from."""

    best: NDArray[np.int64]
    back: NDArray[np.int32]
    kind: NDArray[np.int8]


@njit
def expand_chain(entries, values, first, kind, budget, costs, limits, chain, potential, reached):  # type: ignore[no-untyped-def]
    """Stages on a device of type ``kind`` after the stops ``entries[first:]`` of value ``values``, from a table of loads.

    ``costs`` is there for the other family's sake only.
    """
    loads = chain.loads
    passes = loads.shape[1]
    full = loads.shape[2] - 1
    cap0, cap1, cap, which = limits.cap[0], limits.cap[1], limits.cap[2], limits.which[0]
    steps = 0
    entry = first
    while entry < len(entries) and steps < budget:
        a = entries[entry]
        value = values[entry]
        useful = value <= (cap0 if which == 0 else cap1)
        for k in range(len(limits.low)):
            if potential[a, k] + limits.gain[k] < limits.low[k]:
                useful = False
        steps += 1
        b = full if limits.whole[0] == 1 else a + 1
        while useful and b <= full:
            steps += 1
            fits = True
            for k in range(len(limits.low)):
                if potential[b, k] > limits.high[k]:
                    useful = False
                if potential[b, k] < limits.low[k]:
                    fits = False
            load0 = loads[kind, 0, a, b]
            load1 = loads[kind, 1, a, b] if passes > 1 else 0
            if fits and useful and load0 <= cap0 and load1 <= cap1 and load0 + load1 <= cap:
                worst = max(load0 if which == 0 else load1, value)
                if worst < reached.best[b]:
                    reached.best[b] = worst
                    reached.back[b] = entry
                    reached.kind[b] = kind
            b += 1
        entry += 1
    return entry
