"""Sum of completion times on unrelated machines: value of a plan, and the exact answer for equal weights.

On one machine the sum of weighted completion times is least when jobs run by increasing time per weight (Smith's rule), so
a plan is again the machine of each job. Weights that differ make the problem hard: for those see
:mod:`hetopt.algorithms.completion_relaxation`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times

__all__ = ["CompletionPlan", "check_weights", "completion_times", "horn", "weighted_completion"]


class CompletionPlan(NamedTuple):
    """An optimal plan for the sum of completion times.

    Attributes
    ----------
    plan
        (n,) machine of each job; the jobs of a machine run shortest first.
    value
        Sum of completion times.
    """

    plan: IntArray
    value: float


def completion_times(
    time: ArrayLike, plan: ArrayLike, weight: ArrayLike | None = None, *, ready: ArrayLike | None = None
) -> FloatArray:
    """Completion time of each job when every machine runs its jobs by Smith's rule.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    plan
        (n,) machine of each job.
    weight
        (n,) weights >= 0, one each if None. Ties in time per weight run the lower job number first; weight 0 goes last.
    ready
        (m,) times from which the machines are free; zero if None.

    Raises
    ------
    ValueError
        When the arrays are malformed or a job has no machine.
    """
    matrix = check_times(time)
    n, m = matrix.shape
    machine = np.asarray(plan, dtype=np.int64)
    if machine.shape != (n,) or (n and not 0 <= machine.min() <= machine.max() < m):
        raise ValueError(f"the plan must name a machine from 0 to {m - 1} for each of the {n} jobs")
    weights, start = check_weights(weight, n), check_ready(ready, m)
    own = matrix[np.arange(n), machine]
    with np.errstate(divide="ignore", invalid="ignore"):
        per_weight = np.where(own == 0, 0.0, own / weights)
    done = np.empty(n)
    order = np.lexsort((np.arange(n), per_weight, machine))
    bounds = np.searchsorted(machine[order], np.arange(m + 1))
    for i in range(m):
        jobs = order[bounds[i] : bounds[i + 1]]
        done[jobs] = start[i] + np.cumsum(own[jobs])
    return done


def weighted_completion(
    time: ArrayLike, plan: ArrayLike, weight: ArrayLike | None = None, *, ready: ArrayLike | None = None
) -> float:
    """Sum of weighted completion times of a plan under Smith's rule. Arguments as in :func:`completion_times`."""
    done = completion_times(time, plan, weight, ready=ready)
    return float(check_weights(weight, len(done)) @ done)


def horn(time: ArrayLike, *, ready: ArrayLike | None = None) -> CompletionPlan:
    """Smallest sum of completion times, by matching jobs with positions counted from the end of each machine.

    A job that runs as the k-th last on machine i adds its time to k completion times, so it costs ``k time[j, i] +
    ready[i]`` there, and the best plan is a cheapest matching of jobs with (machine, k).

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    ready
        (m,) times from which the machines are free; zero if None.

    Raises
    ------
    ValueError
        When the arrays are malformed or a job can run nowhere.

    Notes
    -----
    Exact (to the rounding of sums). O(n^2 K) for K positions in all. Only as many positions as are needed are offered to
    each machine: the least cost as a function of the numbers of jobs per machine is M-convex (it is an assignment problem
    whose positions are merged), so a plan is optimal if moving one job's place from any machine to any other does not help;
    when every machine leaves its last position free, all such moves were on offer. Sources: Horn, "Minimizing average flow
    time with parallel machines", Operations Research 21 (1973); Bruno, Coffman and Sethi, Communications of the ACM 17
    (1974); Murota, Discrete Convex Analysis (2003), for the argument about positions.
    """
    from scipy.optimize import linear_sum_assignment

    matrix = check_times(time, runnable=True)
    n, m = matrix.shape
    start = check_ready(ready, m)
    if n == 0:
        return CompletionPlan(np.zeros(0, dtype=np.int64), 0.0)
    eligible = (matrix < np.inf).sum(axis=0)
    offered = np.minimum(eligible, n // m + 2)
    while True:
        machine = np.repeat(np.arange(m), offered)
        position = np.arange(offered.sum()) - np.repeat(np.cumsum(offered) - offered, offered) + 1
        full = offered < eligible
        if len(machine) >= n:
            try:
                jobs, slots = linear_sum_assignment(matrix[:, machine] * position + start[machine])
            except ValueError:  # some jobs have too few positions on the machines that can run them
                pass
            else:
                plan = np.empty(n, dtype=np.int64)
                plan[jobs] = machine[slots]
                full &= np.bincount(plan, minlength=m) >= offered
                if not full.any():
                    return CompletionPlan(plan, weighted_completion(matrix, plan, ready=start))
        offered = np.where(full, np.minimum(eligible, 2 * offered), offered)


def check_weights(weight: ArrayLike | None, jobs: int) -> FloatArray:
    """Return weights as a float64 vector, ones for None.

    Raises
    ------
    ValueError
        When the length is not ``jobs`` or a weight is negative, infinite or not a number.
    """
    weights = np.ones(jobs) if weight is None else np.asarray(weight, dtype=np.float64)
    if weights.shape != (jobs,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"weight must have {jobs} finite numbers from 0 on")
    return weights
