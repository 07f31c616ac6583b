"""Few unrelated machines: makespan within 1 + epsilon, or exactly, by a dynamic program over the loads.

For two to four machines, say. The states number (n / epsilon)^(m - 1) at worst, so more machines want
:mod:`hetopt.algorithms.deadline_lp` or a search. With ``epsilon`` 0 only equal or dominated states are merged: exact, and
quick while loads are small integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.algorithms.lists import RULES
from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times, is_integral, makespan

__all__ = ["TrimmedPlan", "horowitz_sahni"]


class TrimmedPlan(NamedTuple):
    """A plan with the bound that the dynamic program proves.

    Attributes
    ----------
    plan
        (n,) machine of each job.
    lower_bound
        No plan has a smaller makespan: the makespan found minus all that trimming can have lost. It is proven by the
        algorithm having run, not by a certificate.
    complete
        Whether all jobs were run through; else the plan is a list heuristic's.
    states
        Most states kept at once.
    """

    plan: IntArray
    lower_bound: float
    complete: bool
    states: int


def horowitz_sahni(
    time: ArrayLike,
    epsilon: float,
    *,
    ready: ArrayLike | None = None,
    max_states: int = 500_000,
    should_stop: Callable[[], bool] | None = None,
) -> TrimmedPlan:
    """Makespan at most ``(1 + epsilon)`` times the optimum on a fixed number of machines.

    Jobs are placed one after another; a state is the loads so far. Of all states whose loads on the first m - 1 machines
    fall into the same cell of a grid of width ``epsilon LB / n``, the one with the least load on the last machine is kept,
    with its true loads: it stands in for the others at the price of a cell's width per job, ``epsilon LB`` in all.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    epsilon
        Accuracy, from 0 (exact) on.
    ready
        (m,) times from which the machines are free; zero if None.
    max_states
        Most states to keep at once: 6 bytes each for every job, and 8 m for the current one.
    should_stop
        Asked after each job; when it turns true, the best list heuristic's plan is returned, not ``complete``.

    Raises
    ------
    ValueError
        When the arrays are malformed, a job can run nowhere, or epsilon is negative.
    MemoryError
        When more states than ``max_states`` would be kept; a larger epsilon needs fewer.

    Notes
    -----
    O(n m S log S) time for S states, S at most (UB n / (epsilon LB))^(m - 1) with UB a list heuristic's makespan, above
    which states are dropped. Floating-point sums are taken at face value: their rounding errors are far below a cell.
    Source: Horowitz and Sahni, "Exact and approximate algorithms for scheduling nonidentical processors", JACM 23 (1976).
    """
    matrix = check_times(time, runnable=True)
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be a number from 0 on, not {epsilon}")
    n, m = matrix.shape
    start = check_ready(ready, m)
    plans = [RULES[rule](matrix, ready=start) for rule in ("min-min", "sufferage", "max-min", "mct")]
    best = min(plans, key=lambda plan: makespan(matrix, plan, start))
    upper = makespan(matrix, best, start)
    work = np.cumsum(matrix.min(axis=1)[::-1])[::-1]  # least total time of this job and those after it
    lower = max(float((matrix + start).min(axis=1).max(initial=0.0)), float(work[0]) / m if n else 0.0)
    width = epsilon * lower / n if n else 0.0
    loads = np.zeros((1, m))  # zero for a machine not used yet, which does not count with its ready time
    history: list[tuple[NDArray[np.int32], NDArray[np.int16]]] = []
    trims, most = 0, 1
    for j in range(n):
        if should_stop is not None and should_stop():
            return TrimmedPlan(best, _safe(lower, matrix, start), False, most)
        parents, machines, grown = [], [], []
        for i in np.flatnonzero(matrix[j] < np.inf).tolist():
            moved = loads.copy()
            moved[:, i] = np.maximum(loads[:, i], start[i]) + matrix[j, i]
            # Only plans below the best known are of interest, and the jobs to come need their time as well.
            useful = (moved[:, i] < upper) & (moved.sum(axis=1) + (work[j + 1] if j + 1 < n else 0.0) < m * upper)
            kept = np.flatnonzero(useful)
            parents.append(kept.astype(np.int32))
            machines.append(np.full(len(kept), i, dtype=np.int16))
            grown.append(moved[kept])
        loads = np.concatenate(grown)
        if len(loads) == 0:
            break  # nothing can be better than the heuristic by more than trimming lost
        cells = np.floor(loads[:, :-1] / width) if width > 0 else loads[:, :-1]
        order = np.lexsort((loads[:, -1], *cells.T))
        cells = cells[order]
        first = np.r_[True, (cells[1:] != cells[:-1]).any(axis=1)]
        trims += width > 0 and not first.all()
        order = order[first]
        if len(order) > max_states:
            raise MemoryError(f"{len(order)} states after {j + 1} of {n} jobs: allow more or take a larger epsilon")
        loads, most = loads[order], max(most, len(order))
        history.append((np.concatenate(parents)[order], np.concatenate(machines)[order]))
    value = upper
    if len(history) == n and n:
        last = int(loads.max(axis=1).argmin())
        value = min(upper, float(loads[last].max()))
        best = np.empty(n, dtype=np.int64)
        for j in range(n - 1, -1, -1):
            best[j] = history[j][1][last]
            last = int(history[j][0][last])
    return TrimmedPlan(best, _safe(max(lower, value - trims * width), matrix, start), True, most)


def _safe(bound: float, time: FloatArray, ready: FloatArray) -> float:
    """A bound computed in floating point, made good for the exact sums: up for integers, else down by their errors."""
    exact = is_integral(time, ready)
    error = 2.0 * (len(time) + 2) * float(np.finfo(float).eps) * bound
    return float(math.ceil(bound - error)) if exact else max(0.0, bound - error)
