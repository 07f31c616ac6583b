"""Published families of unrelated-machine instances, by name and seed; not the published files themselves.

Two sources:

* Fanjul-Peyro and Ruiz, "Iterated greedy local search methods for unrelated parallel machine scheduling", European
  Journal of Operational Research 207 (2010): integers, five uniform classes and two with correlated times.
* Braun et al., "A comparison of eleven static heuristics for mapping a class of independent tasks onto heterogeneous
  distributed computing systems", Journal of Parallel and Distributed Computing 61 (2001): decimals by the range-based
  method, wide (``hi``) or narrow (``lo``) in tasks and in machines; *consistent* when a machine that is faster for one
  task is faster for all, *semi-consistent* when that holds for every second machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KINDS", "unrelated"]

_UNIFORM = {
    "u1_100": (1, 100),
    "u10_100": (10, 100),
    "u100_120": (100, 120),
    "u100_200": (100, 200),
    "u1000_1100": (1000, 1100),
}
_CORRELATED = ("jobcorr", "maccorr")
_TASK_RANGE = {"hi": 3000.0, "lo": 100.0}
_MACHINE_RANGE = {"hi": 1000.0, "lo": 10.0}
_RANGE_BASED = tuple(f"u_{c}_{task}{machine}" for c in "cis" for task in ("hi", "lo") for machine in ("hi", "lo"))

KINDS = (*_UNIFORM, *_CORRELATED, *_RANGE_BASED)
"""Names of the families: the seven integer classes, then ``u_{c,i,s}_{hi,lo}{hi,lo}`` (consistency, tasks, machines)."""


def unrelated(kind: str, n: int, m: int, seed: int) -> NDArray[np.float64]:
    """Processing times of a family.

    Parameters
    ----------
    kind
        One of :data:`KINDS`. ``jobcorr`` is U(1, 20) + a job's own U(1, 100), ``maccorr`` U(1, 20) + a machine's U(1, 100).
    n, m
        Number of jobs and of machines, >= 1.
    seed
        >= 0; the same four arguments give the same instance on every platform (PCG64).

    Returns
    -------
    ndarray
        (n, m) times, ``[job, machine]``; whole numbers in the seven integer classes.

    Raises
    ------
    ValueError
        The kind is unknown, or a number is out of range.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of instance {kind!r}; known are {', '.join(KINDS)}")
    if n < 1 or m < 1 or seed < 0:
        raise ValueError(f"n and m must be at least 1 and the seed at least 0, not {n}, {m} and {seed}")
    random = np.random.default_rng([seed, n, m, KINDS.index(kind)])
    times: NDArray[Any]
    if kind in _UNIFORM:
        low, high = _UNIFORM[kind]
        times = random.integers(low, high + 1, (m, n)).T
    elif kind in _CORRELATED:
        noise = random.integers(1, 21, (m, n)).T
        own = random.integers(1, 101, (n, 1) if kind == "jobcorr" else (1, m))
        times = noise + own
    else:
        _, consistency, width = kind.split("_")
        task = random.uniform(1.0, _TASK_RANGE[width[:2]], (n, 1))
        times = task * random.uniform(1.0, _MACHINE_RANGE[width[2:]], (n, m))
        if consistency == "c":
            times.sort(axis=1)
        elif consistency == "s":
            times[:, ::2] = np.sort(times[:, ::2], axis=1)
    return np.ascontiguousarray(times, dtype=np.float64)
