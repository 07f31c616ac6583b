"""Turn times by job and machine into a preemptive schedule no longer than the longest row or column.

An open shop with preemption: the parts of a job may run in any order, but never two at once, and a machine runs one job at
a time. Where the times come from is not this module's business (:mod:`hetopt.algorithms.preemptive` is one source; shares
of a cluster's time are another). Everything is counted in whole units, so that sums are exact; decimals are first rounded
up to a fine grid.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.jit import njit
from hetopt.algorithms.times import FloatArray, IntArray, is_integral

__all__ = ["PieceSchedule", "open_shop"]

_BITS = 48  # of the makespan on the grid of decimals
_STEPS_PER_CALL = 256


class PieceSchedule(NamedTuple):
    """A preemptive schedule as the pieces in which the jobs run.

    Attributes
    ----------
    job, machine
        (k,) what runs where; sorted by machine, then by start.
    start, stop
        (k,) from when to when. Pieces of a job that follow each other on a machine without a break are one piece.
    makespan
        Latest stop.
    """

    job: IntArray
    machine: IntArray
    start: FloatArray
    stop: FloatArray
    makespan: float

    @property
    def preemptions(self) -> int:
        """How often a job is interrupted, to go on later or elsewhere: pieces minus jobs."""
        return len(self.job) - len(np.unique(self.job))

    def slots(self, machines: int) -> tuple[FloatArray, FloatArray, IntArray]:
        """The same by time: start and duration of each slot in which nothing changes, (s,), and the job of each machine in
        it, (s, machines), -1 where idle. Pieces without length do not appear."""
        real = self.stop > self.start
        moments = np.unique(np.concatenate([[0.0], self.start[real], self.stop[real]]))
        first = np.searchsorted(moments, self.start[real])
        last = np.searchsorted(moments, self.stop[real])
        running = np.full((len(moments) - 1, machines), -1, dtype=np.int64)
        for j, i, a, b in zip(self.job[real], self.machine[real], first, last, strict=True):
            running[a:b, i] = j
        return moments[:-1], np.diff(moments), running


def open_shop(duration: ArrayLike) -> PieceSchedule:
    """Shortest preemptive schedule of an open shop.

    As long as time is left, the jobs and machines that need all of it are *tight*. A matching of jobs with machines that
    covers all tight ones runs until a part is done or something else becomes tight. Such a matching always exists; it is
    repaired from slot to slot rather than found anew, so that running parts go on where they can. The jobs that need one
    machine only are lumped together, machine by machine, and cut from the lump afterwards.

    Parameters
    ----------
    duration
        (n, m) time that each job needs on each machine, finite and >= 0.

    Returns
    -------
    PieceSchedule
        Its makespan is the largest row or column sum: no schedule is shorter. With decimals, durations are rounded up to
        multiples of 2^-48 of that (by magnitude). Let R be the number of jobs that need several machines plus the
        machines with a lump, and E the positive entries of these rows: there are at most E + R + m slots, and at most m
        preemptions in each.

    Raises
    ------
    ValueError
        When the matrix is malformed.

    Notes
    -----
    O((E + R + m) R m) at worst. Sources: Gonzalez and Sahni, "Open shop scheduling to minimize finish time", JACM 23 (1976);
    Lawler and Labetoulle, JACM 25 (1978), for the argument by tight rows and columns; Mendelsohn and Dulmage (1958).
    """
    times = np.asarray(duration, dtype=np.float64)
    if times.ndim != 2 or times.shape[1] == 0:
        raise ValueError(
            f"durations must be a (jobs, machines) matrix with at least one machine, not shape {times.shape}"
        )
    if not (np.isfinite(times) & (times >= 0)).all():
        raise ValueError("durations must be finite numbers from 0 on")
    whole, unit = _in_units(times)
    m = times.shape[1]
    several = np.flatnonzero((whole > 0).sum(axis=1) > 1)
    single = np.flatnonzero((whole > 0).sum(axis=1) == 1)
    home = whole[single].argmax(axis=1)
    lump = np.bincount(home, weights=whole[single, home], minlength=m).astype(np.int64)  # exact below 2^53
    rows = np.concatenate([whole[several], np.diag(lump)])

    length = int(max(rows.sum(axis=1).max(initial=0), rows.sum(axis=0).max(initial=0)))
    slots = int((rows > 0).sum()) + len(rows) + m
    runs, ends = np.full((slots, m), -1, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    row_of, column_of = np.full(m, -1, dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
    left, done = length, 0
    while left > 0:
        left, done = _run(rows, row_of, column_of, left, length, runs, ends, done, _STEPS_PER_CALL)

    pieces: list[tuple[int, int, int, int]] = []
    starts = np.r_[0, ends[:done]]
    for i in range(m):
        queue = [(int(j), int(whole[j, i])) for j in single[home == i]][::-1]
        for s in range(done):
            row, now, stop = int(runs[s, i]), int(starts[s]), int(ends[s])
            while row >= 0 and now < stop:
                if row < len(several):
                    job, until = int(several[row]), stop
                else:
                    job, rest = queue.pop()
                    until = min(stop, now + rest)
                    if rest > until - now:
                        queue.append((job, rest - (until - now)))
                if pieces and pieces[-1][:2] == (job, i) and pieces[-1][3] == now:
                    pieces[-1] = (job, i, pieces[-1][2], until)
                else:
                    pieces.append((job, i, now, until))
                now = until
    table = np.array(pieces, dtype=np.int64).reshape(-1, 4)
    moments = table[:, 2:].astype(np.float64) * unit
    return PieceSchedule(table[:, 0], table[:, 1], moments[:, 0], moments[:, 1], length * unit)


def _in_units(times: FloatArray) -> tuple[IntArray, float]:
    """Times as integers, decimals rounded up, and the unit, a power of two."""
    largest = max(float(times.sum(axis=1).max(initial=0.0)), float(times.sum(axis=0).max(initial=0.0)))
    if is_integral(times) and largest < 2.0**52:
        return times.astype(np.int64), 1.0
    exponent = math.frexp(largest)[1] - _BITS
    return np.ceil(np.ldexp(times, -exponent)).astype(np.int64), math.ldexp(1.0, exponent)


@njit
def _run(rows, row_of, column_of, left, length, runs, ends, done, steps):  # type: ignore[no-untyped-def]
    """Run up to ``steps`` slots; return the time left and the number of slots.

    ``row_of`` and ``column_of`` are the matching, kept between slots; ``rows`` the times still needed.
    """
    n, m = rows.shape
    need_row, need_column = np.zeros(n, dtype=np.int64), np.zeros(m, dtype=np.int64)
    for r in range(n):
        for c in range(m):
            need_row[r] += rows[r, c]
            need_column[c] += rows[r, c]
    seen_row, seen_column = np.zeros(n, dtype=np.int64), np.zeros(m, dtype=np.int64)
    came_row, came_column = np.empty(n, dtype=np.int64), np.empty(m, dtype=np.int64)
    queue = np.empty(max(n, m), dtype=np.int64)
    stamp = 0
    for _ in range(steps):
        if left == 0:
            break
        for r in range(n):
            if column_of[r] < 0 and need_row[r] == left:
                stamp += 1
                _cover_row(r, rows, need_row, left, row_of, column_of, seen_column, came_column, queue, stamp)
        for tight in (True, False):  # then whatever else can run: a matching that no path from a free column enlarges
            for c in range(m):
                if row_of[c] < 0 and need_column[c] > 0 and (need_column[c] == left or not tight):
                    stamp += 1
                    _cover_column(c, rows, need_column, left, row_of, column_of, seen_row, came_row, queue, stamp)
        step = left
        for c in range(m):
            if row_of[c] >= 0:
                step = min(step, rows[row_of[c], c])
            else:
                step = min(step, left - need_column[c])
        for r in range(n):
            if column_of[r] < 0:
                step = min(step, left - need_row[r])
        left -= step
        for c in range(m):
            r = row_of[c]
            runs[done, c] = r
            if r >= 0:
                rows[r, c] -= step
                need_row[r] -= step
                need_column[c] -= step
                if rows[r, c] == 0:
                    row_of[c] = column_of[r] = -1
        ends[done] = length - left
        done += 1
    return left, done


@njit
def _cover_row(start, rows, need_row, left, row_of, column_of, seen, came, queue, stamp):  # type: ignore[no-untyped-def]
    """Match the tight row ``start`` along an alternating path that ends at a free column, or at a row that is not tight
    and gives up its column. Matched columns stay matched, and so do tight rows."""
    m = len(row_of)
    queue[0], tail, head = start, 1, 0
    while head < tail:
        r = queue[head]
        head += 1
        for c in range(m):
            if rows[r, c] == 0 or seen[c] == stamp or row_of[c] == r:
                continue
            seen[c] = stamp
            came[c] = r
            other = row_of[c]
            if other < 0 or need_row[other] < left:
                if other >= 0:
                    column_of[other] = -1
                while True:  # flip the path back to the start
                    r = came[c]
                    before = column_of[r]
                    row_of[c], column_of[r] = r, c
                    if r == start:
                        return
                    c = before
            queue[tail] = other
            tail += 1


@njit
def _cover_column(start, rows, need_column, left, row_of, column_of, seen, came, queue, stamp):  # type: ignore[no-untyped-def]
    """The same for a column, with matched rows staying so; one that is not tight takes no other column's row."""
    n = len(column_of)
    queue[0], tail, head = start, 1, 0
    tight = need_column[start] == left
    while head < tail:
        c = queue[head]
        head += 1
        for r in range(n):
            if rows[r, c] == 0 or seen[r] == stamp or column_of[r] == c:
                continue
            seen[r] = stamp
            came[r] = c
            other = column_of[r]
            if other < 0 or (tight and need_column[other] < left):
                if other >= 0:
                    row_of[other] = -1
                while True:
                    c = came[r]
                    before = row_of[c]
                    row_of[c], column_of[r] = r, c
                    if c == start:
                        return
                    r = before
            queue[tail] = other
            tail += 1
