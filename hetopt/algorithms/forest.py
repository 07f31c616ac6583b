"""Split jobs as a forest: turn any fractional assignment into one whose split jobs and machines form no cycle.

A fractional assignment gives each job shares ``x[j, i]`` of the machines, in rows of sum 1. Draw an edge between a job that
is split and each machine that has a part of it. Rounding theorems want this graph to be (nearly) a forest, as it is at a
vertex of the linear program; but an interior-point or first-order solver, or an average of solutions, returns no vertex.
:func:`split_forest` makes a forest of whatever it is given and never raises a machine's load, so that theorems about
vertices hold for its result without trust in a solver. It does not look at costs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.jit import njit
from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times

__all__ = ["Joint", "SplitForest", "check_shares", "load_by_share", "split_forest"]

_NOTHING = 1e-12  # smaller shares are rounding noise of a solver
_DRIFT = 1e-9  # relative error of row sums and loads that is rounding noise; more is refused
_EDGES_PER_CALL = 1 << 14  # edges that one kernel call adds, each at O(m) work
_RESIDUE = 1e-14  # what is left of a share after a subtraction that should have been exact
_HUGE = 1e150


class Joint(NamedTuple):
    """A split job in a rooted tree: its row in :class:`SplitForest`, the machine towards the root, the machines beyond."""

    row: int
    parent: int
    children: list[int]


class SplitForest(NamedTuple):
    """A fractional assignment without cycles.

    Attributes
    ----------
    plan
        (n,) machine of each whole job, -1 for a split one.
    whole_load
        (m,) ready time plus the times of the whole jobs.
    load
        (m,) ready time plus the times of all jobs by share; nowhere above the load that came in.
    split
        (k,) the split jobs, at most m - 1.
    share
        (k, m) their shares, in rows of sum 1; the positive ones are the edges of the forest.
    """

    plan: IntArray
    whole_load: FloatArray
    load: FloatArray
    split: IntArray
    share: FloatArray

    def joints(self) -> list[Joint]:
        """The split jobs from the leaves of each tree inwards; the root of a tree is its machine of the largest load."""
        machines_of = [np.flatnonzero(row).tolist() for row in self.share]
        jobs_of: list[list[int]] = [[] for _ in self.load]
        for k, machines in enumerate(machines_of):
            for i in machines:
                jobs_of[i].append(k)
        visited = np.zeros(len(self.load), dtype=bool)
        outward: list[Joint] = []
        for root in np.argsort(-self.whole_load, kind="stable").tolist():
            if visited[root]:
                continue
            visited[root] = True
            queue: list[tuple[int, int]] = [(root, -1)]
            for machine, job_before in queue:  # grows while it is read
                for k in jobs_of[machine]:
                    if k != job_before:
                        children = [i for i in machines_of[k] if i != machine]
                        visited[children] = True
                        queue += [(i, k) for i in children]
                        outward.append(Joint(k, machine, children))
        return outward[::-1]


def check_shares(time: FloatArray, x: ArrayLike) -> FloatArray:
    """Return the shares ``x`` cleaned of rounding noise: entries below 1e-12 are zero and rows sum to 1.

    Raises
    ------
    ValueError
        When shapes differ, an entry is below -1e-7 or not a number, a row sum is further than 1e-6 from 1, or a job has a
        share of a machine that cannot run it.
    """
    share = np.array(x, dtype=np.float64)
    if share.shape != time.shape:
        raise ValueError(f"shares have shape {share.shape}, times {time.shape}")
    if share.size == 0:
        return share
    if not share.min() >= -1e-7:
        raise ValueError("shares must be numbers from 0 on")
    share[share < _NOTHING] = 0.0
    total = share.sum(axis=1)
    odd = np.flatnonzero(~(np.abs(total - 1.0) <= 1e-6))
    if odd.size:
        raise ValueError(f"the shares of job {odd[0]} sum to {total[odd[0]]}, not 1")
    share /= total[:, None]
    wrong = np.argwhere((share > 0) & (time == np.inf))
    if wrong.size:
        raise ValueError(f"job {wrong[0, 0]} has a share of machine {wrong[0, 1]}, which cannot run it")
    return share


def load_by_share(time: FloatArray, share: FloatArray) -> FloatArray:
    """Times by share, summed for each machine; a share of zero of an infinite time counts nothing."""
    parts: FloatArray = np.multiply(time, share, out=np.zeros_like(share), where=share > 0)
    loads: FloatArray = parts.sum(axis=0)
    return loads


def split_forest(time: ArrayLike, x: ArrayLike, ready: ArrayLike | None = None) -> SplitForest:
    """Cancel every cycle of split jobs and machines in a fractional assignment.

    Around a cycle the shares can be shifted so that all its machines but one keep their load, and in one of the two
    directions that one's load does not rise either. Shifting until a share is zero breaks the cycle. A job that has a
    share of a machine where it takes no time goes there as a whole first.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    x
        (n, m) shares, rows of sum 1.
    ready
        (m,) times from which the machines are free; zero if None.

    Returns
    -------
    SplitForest
        Row sums stay 1, positive shares are a subset of those of ``x`` and no load rises (both up to 1e-9 relative). With
        k split jobs in a forest with m machines, each with two or more edges: k <= m - 1.

    Raises
    ------
    ValueError
        On the conditions of :func:`check_shares` and when times or ready times are malformed.
    ArithmeticError
        When rounding errors would exceed 1e-9, which takes times that differ by hundreds of orders of magnitude.

    Notes
    -----
    O(n m) to look, then O(m) for each positive share of a split job: a vertex needs no cancellation at all, a dense matrix
    O(n m^2). The vertex argument is from Lenstra, Shmoys and Tardos, Mathematical Programming 46 (1990).
    """
    matrix = check_times(time)
    m = matrix.shape[1]
    start = check_ready(ready, m)
    share = check_shares(matrix, x)
    incoming = start + load_by_share(matrix, share)
    free = (share > 0) & (matrix == 0)
    at_no_time = free.any(axis=1)
    share[at_no_time] = 0.0
    share[at_no_time, free[at_no_time].argmax(axis=1)] = 1.0

    split = np.flatnonzero((share > 0).sum(axis=1) > 1)
    part, rows = matrix[split], share[split]
    part[rows == 0] = 0.0
    edges = np.empty((2, 3 * m + 2), dtype=np.int64)
    row, column, count = 0, 0, 0
    while row < len(split):
        row, column, count = _cancel(part, rows, edges[0], edges[1], row, column, count, _EDGES_PER_CALL)
    total = rows.sum(axis=1)
    if split.size and np.abs(total - 1.0).max() > _DRIFT:
        raise ArithmeticError("times differ too much for shares in floating point")
    rows /= total[:, None]
    share[split] = rows

    plan = np.where((share > 0).sum(axis=1) == 1, share.argmax(axis=1), -1)
    whole = np.flatnonzero(plan >= 0)
    whole_load = start + np.bincount(plan[whole], weights=matrix[whole, plan[whole]], minlength=m)
    split = np.flatnonzero(plan < 0)
    rows = share[split]
    load = whole_load + load_by_share(matrix[split], rows)
    if (load > incoming * (1 + _DRIFT)).any():
        raise ArithmeticError("times differ too much for shares in floating point")
    return SplitForest(plan, whole_load, load, split, rows)


@njit
def _cancel(time, share, edge_job, edge_machine, row, column, count, budget):  # type: ignore[no-untyped-def]
    """Add the edges of split jobs to a forest one by one, cancelling each cycle that closes; at most ``budget`` edges.

    The forest is the edge list ``edge_job``, ``edge_machine`` of length ``count``; jobs in it have two or more edges, but
    for the one of the current ``row``. Shares not yet in the list stand still. Returns where to go on.
    """
    n, m = share.shape
    head = np.empty(m + n, dtype=np.int64)
    head[:] = -1
    after = np.empty((2, len(edge_job)), dtype=np.int64)
    before = np.empty(m + n, dtype=np.int64)  # edge by which the search reached a node
    queue = np.empty(2 * m + 2, dtype=np.int64)
    degree = np.zeros(n, dtype=np.int64)
    cycle = np.empty(2 * m + 2, dtype=np.int64)
    shift = np.empty(m + 1)
    while row < n and budget > 0:
        while column < m and budget > 0:
            if share[row, column] <= 0:
                column += 1
                continue
            budget -= 1
            edge_job[count], edge_machine[count] = row, column
            length = _path(edge_job, edge_machine, count, row, column, m, head, after, before, queue, cycle)
            count += 1
            if length > 0:
                cycle[0] = count - 1
                _shift(time, share, edge_job, edge_machine, cycle, length + 1, shift)
                count = _prune(share, edge_job, edge_machine, count, row, degree)
            column += 1
        if column == m:
            count = _prune(share, edge_job, edge_machine, count, -1, degree)
            row, column = row + 1, 0
    return row, column, count


@njit
def _path(edge_job, edge_machine, count, job, machine, m, head, after, before, queue, cycle):  # type: ignore[no-untyped-def]
    """Edges of the forest's path from ``job`` to ``machine`` into ``cycle[1:]``; return their number, 0 without a path."""
    for e in range(count):
        head[edge_machine[e]] = head[m + edge_job[e]] = -1
    head[machine] = head[m + job] = -1
    for e in range(count):
        after[0, e], head[edge_machine[e]] = head[edge_machine[e]], e
        after[1, e], head[m + edge_job[e]] = head[m + edge_job[e]], e
    queue[0], tail = m + job, 1
    before[m + job] = -1
    k = 0
    while k < tail:
        node = queue[k]
        k += 1
        if node == machine:
            break
        side = 1 if node >= m else 0
        e = head[node]
        while e >= 0:
            if e != before[node]:
                other = edge_machine[e] if side == 1 else m + edge_job[e]
                before[other] = e
                queue[tail] = other
                tail += 1
            e = after[side, e]
    else:
        return 0
    length = 0
    node = machine
    while node != m + job:
        e = before[node]
        length += 1
        cycle[length] = e
        node = m + edge_job[e] if node < m else edge_machine[e]
    for k in range(length // 2):  # from the job outwards
        cycle[1 + k], cycle[length - k] = cycle[length - k], cycle[1 + k]
    return length


@njit
def _shift(time, share, edge_job, edge_machine, cycle, length, shift):  # type: ignore[no-untyped-def]
    """Shift shares around a cycle until one is zero, without raising a load.

    ``cycle`` lists the edges (i0, j0), (i1, j0), (i1, j1), (i2, j1), ..., (i0, jk). Job s passes on ``shift[s]`` of its share
    from its first edge to its second; machine s + 1 keeps its load when job s + 1 takes away what job s brings. Only the
    load of machine i0 changes; when it would rise, everything goes the other way round.
    """
    jobs = length // 2
    shift[0] = 1.0
    for s in range(1, jobs):
        machine = edge_machine[cycle[2 * s]]
        ratio = time[edge_job[cycle[2 * s - 1]], machine] / time[edge_job[cycle[2 * s]], machine]
        shift[s] = shift[s - 1] * ratio
        if shift[s] > _HUGE:
            for k in range(s + 1):
                shift[k] /= _HUGE
    machine = edge_machine[cycle[0]]
    gain = time[edge_job[cycle[length - 1]], machine] * shift[jobs - 1] - time[edge_job[cycle[0]], machine] * shift[0]
    giving = 1 if gain > 0 else 0
    step, tight = np.inf, -1
    for s in range(jobs):
        e = cycle[2 * s + giving]
        x = share[edge_job[e], edge_machine[e]]
        if x < step * shift[s]:
            step, tight = x / shift[s], e
    for s in range(jobs):
        e, f = cycle[2 * s + giving], cycle[2 * s + 1 - giving]
        x = share[edge_job[e], edge_machine[e]]
        moved = step * shift[s]
        if e == tight or x - moved < _RESIDUE:
            moved = x
        share[edge_job[e], edge_machine[e]] = x - moved
        share[edge_job[f], edge_machine[f]] += moved


@njit
def _prune(share, edge_job, edge_machine, count, current, degree):  # type: ignore[no-untyped-def]
    """Drop edges without a share and the last edge of every job but ``current`` that is whole; return the new count."""
    for e in range(count):
        degree[edge_job[e]] = 0
    for e in range(count):
        if share[edge_job[e], edge_machine[e]] > 0:
            degree[edge_job[e]] += 1
    kept = 0
    for e in range(count):
        j, i = edge_job[e], edge_machine[e]
        if share[j, i] <= 0:
            continue
        if degree[j] == 1 and j != current:
            share[j, i] = 1.0
            continue
        edge_job[kept], edge_machine[kept] = j, i
        kept += 1
    return kept
