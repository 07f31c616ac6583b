"""Preemptive makespan on unrelated machines, exactly: a linear program and a schedule that keeps its value.

A job may be interrupted and go on elsewhere at no cost, but never runs on two machines at once. The optimum is also a lower
bound for plans without preemption, at least a quarter of theirs (Correa, Skutella, Verschae 2012). Machines are available
from time 0 on; ready times and costs of moving a job are not modelled.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.algorithms.makespan_lp import cheapest_pairs, machine_prices
from hetopt.algorithms.open_shop import PieceSchedule, open_shop
from hetopt.algorithms.times import FloatArray, check_times

__all__ = ["PreemptivePlan", "lawler_labetoulle", "preemptive_bound"]

_TIGHT = 1e-9  # relative gap at which the linear program counts as solved
_ROUNDS = 100


class PreemptivePlan(NamedTuple):
    """An optimal preemptive schedule and its proof.

    Attributes
    ----------
    schedule
        The pieces; ``schedule.makespan`` is the value. A job that some machine runs in no time is a piece without length.
    x
        (n, m) share of each job done on each machine.
    lower_bound
        :func:`preemptive_bound` of the weights; equal to the value within about 1e-9 of it.
    machine_weights, job_weights
        (m,) and (n,) weights >= 0 that prove it.
    """

    schedule: PieceSchedule
    x: FloatArray
    lower_bound: float
    machine_weights: FloatArray
    job_weights: FloatArray


def lawler_labetoulle(time: ArrayLike) -> PreemptivePlan:
    """Shortest preemptive schedule of jobs on unrelated machines.

    The shares solve

        min C   sum_i x_ji = 1,   sum_j time_ji x_ji <= C for each machine,   sum_i time_ji x_ji <= C for each job,

    and an open shop with the times ``time_ji x_ji`` takes no longer than its longest machine or job
    (:func:`~hetopt.algorithms.open_shop.open_shop`), which is C.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.

    Returns
    -------
    PreemptivePlan
        At a vertex the parts outnumber the jobs by at most the tight rows of the program, m machines and m jobs, so that at
        most 2 m jobs run on several machines, in 4 m parts; hence at most 5 m slots and 5 m^2 preemptions. (Lawler and
        Labetoulle give 4 m^2 - 5 m + 2; where tried it was about m.)

    Raises
    ------
    ValueError
        When the times are malformed or a job can run nowhere.
    RuntimeError
        When a linear program was not solved.

    Notes
    -----
    Column generation over the n m shares; rows only for jobs that are longer than a lower bound on some machine, for no
    other job can need all of C. Source: Lawler and Labetoulle, "On preemptive scheduling of unrelated parallel processors by
    linear programming", JACM 25 (1978).
    """
    matrix = check_times(time, runnable=True)
    n, m = matrix.shape
    x = np.zeros((n, m))
    rest = np.flatnonzero(matrix.min(axis=1, initial=np.inf) > 0)
    at_once = np.setdiff1d(np.arange(n), rest)
    x[at_once, matrix[at_once].argmin(axis=1)] = 1.0
    best = (0.0, np.zeros(m), np.zeros(n))
    if rest.size:
        x[rest], proofs = _shares(matrix[rest])
        for machine_weights, some in proofs:
            job_weights = np.zeros(n)
            job_weights[rest] = some
            bound = preemptive_bound(matrix, machine_weights, job_weights)
            if bound > best[0]:
                best = (bound, machine_weights, job_weights)
    parts = np.multiply(matrix, x, out=np.zeros((n, m)), where=x > 0)
    schedule = open_shop(parts)
    if at_once.size:
        job = np.r_[schedule.job, at_once]
        machine = np.r_[schedule.machine, x[at_once].argmax(axis=1)]
        start, stop = (np.r_[moments, np.zeros(len(at_once))] for moments in (schedule.start, schedule.stop))
        order = np.lexsort((stop, start, machine))
        schedule = PieceSchedule(job[order], machine[order], start[order], stop[order], schedule.makespan)
    return PreemptivePlan(schedule, x, *best)


def preemptive_bound(time: ArrayLike, machine_weights: ArrayLike, job_weights: ArrayLike) -> float:
    """Lower bound on the preemptive makespan, and hence on every makespan, that any weights >= 0 prove.

    A machine is busy for at most C and so is a job. Weighing them,

        C (sum_i u_i + sum_j v_j)  >=  sum_ji (u_i + v_j) time_ji x_ji  >=  sum_j min_i (u_i + v_j) time_ji.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    machine_weights, job_weights
        (m,) u and (n,) v.

    Raises
    ------
    ValueError
        When the arrays are malformed or a weight is negative or not finite.

    Notes
    -----
    O(n m), in floating point with the rounding errors bounded and taken off. No integer rounding: a preemptive schedule may
    end between two integers.
    """
    matrix = check_times(time, runnable=True)
    n, m = matrix.shape
    u, v = np.asarray(machine_weights, dtype=np.float64), np.asarray(job_weights, dtype=np.float64)
    if u.shape != (m,) or v.shape != (n,):
        raise ValueError(f"weights must have shapes ({m},) and ({n},), not {u.shape} and {v.shape}")
    if not all((np.isfinite(w) & (w >= 0)).all() for w in (u, v)):
        raise ValueError("weights must be finite numbers from 0 on")
    total = math.fsum([*u.tolist(), *v.tolist()])
    if n == 0 or total == 0:
        return 0.0
    finite = np.where(matrix < np.inf, matrix, 0.0)
    paid = np.where(matrix < np.inf, (u + v[:, None]) * finite, np.inf).min(axis=1)
    # One rounding each in the weight, the product, both sums and the quotient.
    return math.fsum(paid.tolist()) / total * (1 - 4 * float(np.finfo(float).eps))


def _shares(time: FloatArray) -> tuple[FloatArray, list[tuple[FloatArray, FloatArray]]]:
    """Vertex of the linear program, for jobs that need time everywhere, and pairs of weights one of which proves it.

    The program gets ``lower`` as a bound on C. Where that is the answer, its own duals prove nothing: it may be missing the
    rows that do.
    """
    n, m = time.shape
    ready = np.zeros(m)
    weights, value = machine_prices(time, ready)
    longest = int(time.min(axis=1).argmax())
    alone = np.zeros(n)
    alone[longest] = 1.0
    proofs = [(weights, np.zeros(n)), (ready, alone)]
    lower = max(value * (1 - _TIGHT), float(time[longest].min()))
    scaled = time / lower
    finite = np.where(time < np.inf, scaled, 0.0)
    long_jobs = np.flatnonzero(finite.max(axis=1) > 1.0)
    admitted = cheapest_pairs(time, weights, 3, 2)
    admitted[np.arange(n), time.argmin(axis=1)] = True
    width = 3
    for _ in range(_ROUNDS):
        job, machine = np.nonzero(admitted)
        x, c, u, v = _solve(scaled[job, machine], job, machine, n, m, long_jobs)
        weight = u + v[:, None]
        cost = np.where(time < np.inf, weight * finite, np.inf)
        total = float(u.sum() + v.sum())
        if c <= 1 + _TIGHT or c - float(cost.min(axis=1).sum()) / total <= _TIGHT * c:
            break
        # The cheapest pairs have the most negative reduced costs; if all of them are in, ties hid the ones that count.
        few = min(width, m)
        cheapest = np.argpartition(cost, few - 1, axis=1)[:, :few]
        before = int(admitted.sum())
        np.put_along_axis(admitted, cheapest, True, axis=1)
        admitted &= time < np.inf
        if int(admitted.sum()) == before:
            if few == m:
                break
            width *= 2
    shares = np.zeros((n, m))
    shares[job, machine] = np.maximum(x, 0.0)
    return shares / shares.sum(axis=1, keepdims=True), [*proofs, (u, v)]


def _solve(
    entry: FloatArray, job: NDArray[Any], machine: NDArray[Any], n: int, m: int, long_jobs: NDArray[Any]
) -> tuple[FloatArray, float, FloatArray, FloatArray]:
    """Shares, value and weights of the program over the pairs (job, machine) with times ``entry``, for C >= 1."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    k, rows = len(job), m + len(long_jobs)
    row_of_job = np.full(n, -1)
    row_of_job[long_jobs] = m + np.arange(len(long_jobs))
    limited = np.flatnonzero(row_of_job[job] >= 0)
    busy = coo_array(
        (
            np.r_[entry, entry[limited], np.full(rows, -1.0)],
            (np.r_[machine, row_of_job[job[limited]], np.arange(rows)], np.r_[np.arange(k), limited, np.full(rows, k)]),
        ),
        shape=(rows, k + 1),
    )
    whole = coo_array((np.ones(k), (job, np.arange(k))), shape=(n, k + 1))
    objective = np.zeros(k + 1)
    objective[k] = 1.0
    bounds = np.column_stack([np.r_[np.zeros(k), 1.0], np.full(k + 1, np.inf)])
    answer = linprog(
        objective,
        busy.tocsr(),
        np.zeros(rows),
        whole.tocsr(),
        np.ones(n),
        bounds,
        "highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status != 0:
        raise RuntimeError(f"the linear program was not solved: {answer.message}")
    dual = np.maximum(-answer.ineqlin.marginals, 0.0)
    job_weights = np.zeros(n)
    job_weights[long_jobs] = dual[m:]
    return answer.x[:k], float(answer.x[k]), dual[:m], job_weights
