"""Shares turned into rounds: who runs where in the next round, so that in the long run everyone has the share that is planned.

A row is a job, or two that share workers, on a type, with its planned share of time. :func:`serve` is the published rule: each
round the row that is furthest behind, by the ratio of its share to the rounds that it has had, comes first, if its jobs are free
and its workers are (Narayanan et al., OSDI 2020). It may leave a worker idle that another choice would not, so some shares stay
below the plan. :func:`matched` runs the rows whose missing rounds add up to most, a matching of jobs of one worker with workers:
the sum of their squares grows by no more than a constant a round, so averages go to the plan as one over the root of the rounds
(L. Tassiulas, A. Ephremides, 1992, for queues).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows", "matched", "serve"]


class Rows(NamedTuple):
    """Planned rows: job, partner (-1 for none), type, share of time, workers taken; each (r,)."""

    job: NDArray[np.int64]
    partner: NDArray[np.int64]
    type: NDArray[np.int64]
    share: NDArray[np.float64]
    scale: NDArray[np.float64]


def serve(rows: Rows, workers: NDArray[np.float64], had: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(r,) rows that run in the next round.

    Parameters
    ----------
    rows
        The plan.
    workers
        (m,) of each type.
    had
        (r,) rounds that each row has run since the plan was made.
    """
    behind = np.where(had > 0, rows.share / np.maximum(had, 1.0), np.inf)
    left, busy = workers.tolist(), set()
    runs = np.zeros(len(rows.share), bool)
    job, partner, kind, scale = rows.job.tolist(), rows.partner.tolist(), rows.type.tolist(), rows.scale.tolist()
    for r in np.lexsort((np.arange(len(behind)), -rows.share, -behind)).tolist():
        if rows.share[r] <= 0 or left[kind[r]] < scale[r] or job[r] in busy or partner[r] in busy:
            continue
        runs[r] = True
        left[kind[r]] -= scale[r]
        busy |= {job[r]} if partner[r] < 0 else {job[r], partner[r]}
    return runs


def matched(rows: Rows, workers: NDArray[np.float64], had: NDArray[np.float64], rounds: int) -> NDArray[np.bool_]:
    """(r,) rows that run after ``rounds`` rounds, for jobs of one worker, none beside another; see :func:`serve`."""
    from scipy.optimize import linear_sum_assignment

    jobs, missing = np.unique(rows.job, return_inverse=True)[1], (rounds + 1) * rows.share - had
    each = np.minimum(workers, len(rows.share)).astype(int)
    start = np.concatenate([[0], np.cumsum(each)])
    worth, row = np.zeros((int(jobs.max()) + 1, start[-1])), np.full((int(jobs.max()) + 1, start[-1]), -1)
    for r, (job, kind) in enumerate(zip(jobs.tolist(), rows.type.tolist(), strict=True)):
        if missing[r] > 0:
            worth[job, start[kind] : start[kind + 1]], row[job, start[kind] : start[kind + 1]] = missing[r], r
    chosen = row[linear_sum_assignment(worth, maximize=True)]
    runs = np.zeros(len(rows.share), bool)
    runs[chosen[chosen >= 0]] = True
    return runs
