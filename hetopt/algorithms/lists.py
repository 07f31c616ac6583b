"""List heuristics for jobs on unrelated machines: one irrevocable placement after another, ready in milliseconds.

For starting points, baselines and instances with millions of pairs. Not for proofs: a bound comes from elsewhere.

=================  ========================================================  ==============================================
rule               next job                                                  machine
=================  ========================================================  ==============================================
:func:`mct`        in the order given                                        where it completes first
:func:`met`        in the order given                                        where it takes the shortest time
:func:`olb`        in the order given                                        that becomes free first
:func:`min_min`    whose earliest completion is the earliest                 where it completes first
:func:`max_min`    whose earliest completion is the latest                   where it completes first
:func:`sufferage`  that loses most if denied its first choice of completion  where it completes first
:func:`max_regret` with the largest gap between its two shortest times       where it completes first
=================  ========================================================  ==============================================

**Guarantee.** Every rule but olb and met adds at most ``min_i time[j, i]`` to the makespan when it places job j (its
fastest machine was one of the choices), so without memory limits the makespan is at most ``max ready + sum_j min_i
time[j, i]``: with ready times 0, m times the optimum (Ibarra and Kim 1977), and no better for mct. The same holds for met.
olb has no guarantee.

**Memory.** With ``memory`` (n,) and ``capacity`` (m,), a job is only placed where it still fits; one that fits nowhere
gets machine -1. That does not mean that no plan exists: packing is hard, and a list rule never takes a placement back.

**Ties.** A job that completes equally early on two machines prefers the shorter time, then the machine of the lower number;
of equal jobs the one of the lower number is next (min-min: the one of the shorter time first). The plan never depends on
the computer it was made on.

Sources: Ibarra and Kim, JACM 24 (1977); Maheswaran et al., JPDC 59 (1999) for sufferage (here one job at a time); Braun et
al., JPDC 61 (2001); Martello and Toth's measure of regret (1981).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.jit import njit
from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times

__all__ = ["RULES", "max_min", "max_regret", "mct", "met", "min_min", "olb", "sufferage"]

_MCT, _MET, _OLB = 0, 1, 2
_MAX_MIN, _SUFFERAGE = 0, 1
_PAIRS_PER_CALL = 1 << 24  # work of one kernel call, about 0.1 s: between calls an interrupt gets through


class _State(NamedTuple):
    time: FloatArray
    memory: FloatArray
    load: FloatArray
    free: FloatArray
    plan: IntArray


def mct(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    order: ArrayLike | None = None,
) -> IntArray:
    """Minimum completion time: each job in turn goes where it completes first.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    ready
        (m,) times from which the machines are free; zero if None.
    memory, capacity
        (n,) memory of each job and (m,) memory of each machine, in the same unit; both or neither.
    order
        Jobs in the sequence in which they are placed; as numbered if None.

    Returns
    -------
    ndarray
        (n,) machine of each job, -1 where it fits nowhere (or is not in ``order``).

    Raises
    ------
    ValueError
        When shapes do not agree or an entry is negative or not a number.

    Notes
    -----
    O(n m), one pass. Makespan at most ``max ready + sum_j min_i time[j, i]``.
    """
    return _in_sequence(_MCT, _start(time, ready, memory, capacity), order)


def met(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    order: ArrayLike | None = None,
) -> IntArray:
    """Minimum execution time: each job goes to its fastest machine, whatever the loads. Arguments as in :func:`mct`.

    O(n m). Total work is the least possible, hence a makespan of at most ``max ready + sum_j min_i time[j, i]``.
    """
    return _in_sequence(_MET, _start(time, ready, memory, capacity), order)


def olb(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    order: ArrayLike | None = None,
) -> IntArray:
    """Opportunistic load balancing: each job goes to the machine that is free first. Arguments as in :func:`mct`.

    O(n m). No guarantee: it looks at no time before the job is placed.
    """
    return _in_sequence(_OLB, _start(time, ready, memory, capacity), order)


def max_regret(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
) -> IntArray:
    """Jobs by decreasing regret (second shortest minus shortest time), each where it completes first.

    Regret counts machines whose whole capacity would hold the job; a job with one such machine has infinite regret and
    goes first. Arguments as in :func:`mct`; O(n m + n log n), the bound of :func:`mct`.
    """
    state = _start(time, ready, memory, capacity)
    n, m = state.time.shape
    regret = np.full(n, np.inf)
    step = max(1, _PAIRS_PER_CALL // m)
    for first in range(0, n if m > 1 else 0, step):
        rows = slice(first, first + step)
        shortest = np.partition(np.where(state.memory[rows, None] <= state.free, state.time[rows], np.inf), 1, axis=1)
        placeable = shortest[:, 0] < np.inf
        regret[rows][placeable] = shortest[placeable, 1] - shortest[placeable, 0]
    return _in_sequence(_MCT, state, np.argsort(-regret, kind="stable"))


def min_min(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> IntArray:
    """Min-min: of all jobs, place the one that completes first, where it does.

    On one machine the job that completes first is the shortest one left, so each machine keeps the jobs sorted by their
    time on it and offers the first that is unplaced and still fits; free memory only shrinks, so a job passed over for
    lack of it is passed over for good.

    Arguments as in :func:`mct`. When ``should_stop()`` turns true, the jobs left are placed by :func:`mct`.

    Notes
    -----
    O(n m log n) for the lists and O(n m) for all placements together; 4 n m bytes beside the matrix. The bound of
    :func:`mct`.
    """
    state = _start(time, ready, memory, capacity)
    n, m = state.time.shape
    lists = np.empty((m, n), dtype=np.int32)
    length = np.empty(m, dtype=np.int64)
    for i in range(m):
        column = state.time[:, i]
        lists[i] = np.argsort(column, kind="stable")
        length[i] = n - np.count_nonzero(column == np.inf)
    head = np.zeros(m, dtype=np.int64)
    steps = max(1, _PAIRS_PER_CALL // (4 * m))
    while _min_min(state.time, state.memory, state.load, state.free, state.plan, lists, length, head, steps) == steps:
        if should_stop is not None and should_stop():
            return _in_sequence(_MCT, state, np.flatnonzero(state.plan < 0))
    return state.plan


def max_min(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> IntArray:
    """Max-min: of all jobs, place the one whose earliest completion is the latest, where it completes first.

    Arguments as in :func:`min_min`; O(n^2) in practice (see :func:`sufferage`), the bound of :func:`mct`.
    """
    return _by_completion(_MAX_MIN, _start(time, ready, memory, capacity), should_stop)


def sufferage(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> IntArray:
    """Sufferage: place the job whose second earliest completion exceeds the earliest by most, where it completes first.

    A job with one machine left that it fits on suffers infinitely and goes first. Arguments as in :func:`min_min`; the
    bound of :func:`mct`.

    Notes
    -----
    A placement changes the completions on one machine, so only the jobs whose first or second choice it was are looked at
    again: about 2 n/m of n jobs, hence O(n^2) in practice and O(n^2 m) when the same two machines are everyone's choice.
    O(n) memory beside the matrix.
    """
    return _by_completion(_SUFFERAGE, _start(time, ready, memory, capacity), should_stop)


RULES: dict[str, Callable[..., IntArray]] = {
    "mct": mct,
    "met": met,
    "olb": olb,
    "min-min": min_min,
    "max-min": max_min,
    "sufferage": sufferage,
    "max-regret": max_regret,
}
"""The rules by the names that the literature uses."""


def _start(time: ArrayLike, ready: ArrayLike | None, memory: ArrayLike | None, capacity: ArrayLike | None) -> _State:
    matrix = check_times(time)
    n, m = matrix.shape
    load = check_ready(ready, m)
    if (memory is None) != (capacity is None):
        raise ValueError("memory and capacity belong together: give both or neither")
    need = np.zeros(n) if memory is None else np.ascontiguousarray(memory, dtype=np.float64)
    free = np.full(m, np.inf) if capacity is None else np.array(capacity, dtype=np.float64)
    if need.shape != (n,) or free.shape != (m,):
        raise ValueError(f"memory and capacity must have shapes ({n},) and ({m},), not {need.shape} and {free.shape}")
    if not ((need >= 0).all() and (free >= 0).all()):
        raise ValueError("memory and capacity are numbers from 0 on")
    return _State(matrix, need, load, free, np.full(n, -1, dtype=np.int64))


def _in_sequence(rule: int, state: _State, order: ArrayLike | None) -> IntArray:
    n, m = state.time.shape
    step = max(1, _PAIRS_PER_CALL // m)
    sequence = None if order is None else np.ascontiguousarray(order, dtype=np.int64)
    if sequence is not None and sequence.size:
        if sequence.ndim != 1 or sequence.min() < 0 or sequence.max() >= n:
            raise ValueError(f"order must list jobs from 0 to {n - 1}")
        if np.bincount(sequence).max() > 1:
            raise ValueError(f"order lists job {int(np.bincount(sequence).argmax())} twice")
    for first in range(0, n if sequence is None else len(sequence), step):
        part = np.arange(first, min(first + step, n)) if sequence is None else sequence[first : first + step]
        _place_in_sequence(rule, part, state.time, state.memory, state.load, state.free, state.plan)
    return state.plan


@njit
def _place_in_sequence(rule, sequence, time, memory, load, free, plan):  # type: ignore[no-untyped-def]
    """Place the jobs of a sequence; ``load``, ``free`` and ``plan`` are updated."""
    for j in sequence:
        best = -1
        value = shortest = np.inf
        for i in range(len(load)):
            t = time[j, i]
            if t == np.inf or memory[j] > free[i]:
                continue
            v = load[i] + t if rule == _MCT else (t if rule == _MET else load[i])
            if best < 0 or v < value or (v == value and t < shortest):
                best, value, shortest = i, v, t
        plan[j] = best
        if best >= 0:
            load[best] += shortest
            free[best] -= memory[j]


@njit
def _min_min(time, memory, load, free, plan, lists, length, head, steps):  # type: ignore[no-untyped-def]
    """Place up to ``steps`` jobs and return how many; fewer only when no job is left that fits somewhere."""
    for step in range(steps):
        best = job = -1
        value = shortest = np.inf
        for i in range(len(load)):
            h = head[i]
            while h < length[i] and (plan[lists[i, h]] >= 0 or memory[lists[i, h]] > free[i]):
                h += 1
            head[i] = h
            if h == length[i]:
                continue
            j = lists[i, h]
            t = time[j, i]
            v = load[i] + t
            if best < 0 or v < value or (v == value and (t < shortest or (t == shortest and j < job))):
                best, job, value, shortest = i, j, v, t
        if best < 0:
            return step
        plan[job] = best
        load[best] += shortest
        free[best] -= memory[job]
    return steps


def _by_completion(rule: int, state: _State, should_stop: Callable[[], bool] | None) -> IntArray:
    n, m = state.time.shape
    # By position: the jobs left come first, with their first and second choice (0: not looked at yet) and the rule's key.
    job = np.arange(n)
    first, second, key = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n)
    left, changed = n, 0
    while left:
        if left < n and should_stop is not None and should_stop():
            return _in_sequence(_MCT, state, np.sort(job[:left]))
        steps = max(1, _PAIRS_PER_CALL // ((m + 4) * left))
        left, changed = _place_by_completion(rule, *state, job, first, second, key, left, changed, steps)
    return state.plan


@njit
def _place_by_completion(  # type: ignore[no-untyped-def]
    rule, time, memory, load, free, plan, job, first, second, key, left, changed, steps
):
    """Place up to ``steps`` of the jobs at the first ``left`` positions; return how many remain and the machine changed.

    ``changed`` is the machine whose completions moved since the choices were last looked at.
    """
    for _ in range(steps):
        best = -1
        k = 0
        while k < left:
            if first[k] == changed or second[k] == changed:
                one, two, early, late = _choices(job[k], time, memory, load, free)
                if one < 0:  # fits nowhere any more
                    left -= 1
                    job[k], first[k], second[k], key[k] = job[left], first[left], second[left], key[left]
                    continue
                first[k], second[k] = one, two
                key[k] = early if rule == _MAX_MIN else late - early
            if best < 0 or key[k] > key[best] or (key[k] == key[best] and job[k] < job[best]):
                best = k
            k += 1
        if best < 0:
            return 0, changed
        j, changed = job[best], first[best]
        plan[j] = changed
        load[changed] += time[j, changed]
        free[changed] -= memory[j]
        left -= 1
        job[best], first[best], second[best], key[best] = job[left], first[left], second[left], key[left]
        if left == 0:
            break
    return left, changed


@njit
def _choices(j, time, memory, load, free):  # type: ignore[no-untyped-def]
    """First and second machine by completion for job ``j``, and the completions; -1 and inf where there is none.

    The first loop has no branches to mispredict: it is three times as fast as the obvious one.
    """
    early = late = np.inf
    need = memory[j]
    for i in range(len(load)):
        v = load[i] + time[j, i]
        v = v if need <= free[i] else np.inf
        worse = v if v > early else early
        early = v if v < early else early
        late = worse if worse < late else late
    one = two = -1
    for i in range(len(load)):
        v = load[i] + time[j, i]
        if v <= late and v < np.inf and need <= free[i]:
            if v == early and (one < 0 or time[j, i] < time[j, one]):
                one, two = i, one if early == late else two
            else:
                two = i
    return one, two, early, late
