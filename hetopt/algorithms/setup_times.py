"""Jobs on unrelated machines with setup times that depend on the order: exact for few jobs, annealing for many.

``time[j, i]`` seconds of job j on machine i (``inf``: it cannot run there), ``setup[i, j, k]`` seconds between job j and job k
when k follows j on machine i; nothing before the first job. The makespan is the largest sum of times and setups of a machine.
Bounds are not this module's business (a formulation's relaxation gives them), and neither are release dates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.algorithms.draws import uniform_star
from hetopt.algorithms.jit import njit

__all__ = ["MOST_JOBS", "Sequences", "anneal_sequences", "best_sequences", "sequence_loads"]

MOST_JOBS = 14
"""Most jobs of the exact program: 3^14 = 4.8 million pairs of sets a machine."""

_CHUNK = 200_000  # most proposals of one kernel call, below 0.2 s for some hundred jobs
_PER_JOB = 2_000  # proposals of one kernel call per job, where jobs are few


class Sequences(NamedTuple):
    """A plan: the machine of each job (n,), its position on that machine (n,), and the makespan."""

    machine: NDArray[np.int64]
    position: NDArray[np.int64]
    makespan: float


def sequence_loads(time: ArrayLike, setup: ArrayLike, machine: ArrayLike, position: ArrayLike) -> NDArray[np.float64]:
    """(m,) time at which each machine is done when it runs its jobs by position, setups included."""
    seconds, between = np.asarray(time, np.float64), np.asarray(setup, np.float64)
    where, place = np.asarray(machine, np.int64), np.asarray(position, np.int64)
    loads = np.zeros(seconds.shape[1])
    for i in range(seconds.shape[1]):
        mine = np.flatnonzero(where == i)
        mine = mine[np.argsort(place[mine], kind="stable")]
        loads[i] = seconds[mine, i].sum() + between[i, mine[:-1], mine[1:]].sum()
    return loads


def best_sequences(time: ArrayLike, setup: ArrayLike) -> Sequences | None:
    """Least makespan, exactly, for at most :data:`MOST_JOBS` jobs; None when some job can run nowhere.

    Two dynamic programs over sets of jobs: the quickest path through each set on each machine (Held and Karp 1962), then the
    best partition of all jobs into a set for each machine.

    Raises
    ------
    ValueError
        There are more jobs than the program takes.

    Notes
    -----
    O(m 2^n n^2 + m 3^n) time, O(m 2^n n) memory; sums of integers are exact.
    """
    seconds, between = np.ascontiguousarray(time, np.float64), np.ascontiguousarray(setup, np.float64)
    n, m = seconds.shape
    if n > MOST_JOBS:
        raise ValueError(f"there are {n} jobs, and the exact program takes at most {MOST_JOBS}")
    if n == 0 or not np.isfinite(seconds).any(axis=1).all():
        return None
    finish = np.empty((m, 1 << n))
    ends = np.empty((m, 1 << n, n))
    for i in range(m):
        _paths(seconds[:, i], between[i], ends[i], finish[i])
    best, choice = _partition(finish)
    if not np.isfinite(best):
        return None
    machine, position = np.empty(n, np.int64), np.empty(n, np.int64)
    left = (1 << n) - 1
    for i in range(m - 1, -1, -1):
        mine = int(choice[i, left])
        left ^= mine
        for place, job in enumerate(_path(seconds[:, i], between[i], ends[i], mine)):
            machine[job], position[job] = i, place
    return Sequences(machine, position, float(best))


@njit
def _paths(time, setup, ends, finish):  # type: ignore[no-untyped-def]
    """ends[S, j]: quickest way through the set S that ends with j; finish[S]: quickest way through S."""
    n = len(time)
    for s in range(1 << n):
        finish[s] = 0.0 if s == 0 else np.inf
        for j in range(n):
            ends[s, j] = np.inf
            if not (s >> j) & 1:
                continue
            rest = s ^ (1 << j)
            best = 0.0 if rest == 0 else np.inf
            for k in range(n):
                if (rest >> k) & 1 and ends[rest, k] + setup[k, j] < best:
                    best = ends[rest, k] + setup[k, j]
            ends[s, j] = best + time[j]
            finish[s] = min(finish[s], ends[s, j])


@njit
def _partition(finish):  # type: ignore[no-untyped-def]
    """Least largest finish over partitions of all jobs, and for each machine and set what the machine takes of it."""
    m, sets = finish.shape
    choice = np.zeros((m, sets), np.int64)
    value = finish[0].copy()
    for s in range(sets):
        choice[0, s] = s
    for i in range(1, m):
        after = np.empty(sets)
        for s in range(sets):
            best, taken, part = np.inf, 0, s
            while True:
                worst = max(finish[i, part], value[s ^ part])
                if worst < best:
                    best, taken = worst, part
                if part == 0:
                    break
                part = (part - 1) & s
            after[s], choice[i, s] = best, taken
        value = after
    return value[sets - 1], choice


def _path(time: NDArray[np.float64], setup: NDArray[np.float64], ends: NDArray[np.float64], jobs: int) -> list[int]:
    """Jobs of a set in the order of its quickest path."""
    order: list[int] = []
    follower = -1
    while jobs:
        inside = [j for j in range(len(time)) if jobs >> j & 1]
        follower = min(inside, key=lambda j: ends[jobs, j] + (setup[j, follower] if follower >= 0 else 0.0))
        order.append(follower)
        jobs ^= 1 << follower
    return order[::-1]


def anneal_sequences(
    time: ArrayLike,
    setup: ArrayLike,
    *,
    seed: int = 0,
    rounds: int = 60,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Sequences], None] = lambda plan: None,
) -> Sequences:
    """Simulated annealing over sequences: move a job to the best place of another machine or its own, swap two jobs.

    Parameters
    ----------
    time, setup
        (n, m) and (m, n, n).
    seed
        Of its own random numbers: the same plan on any machine.
    rounds
        Calls of up to 200,000 proposals each, fewer for few jobs; the temperature falls over all of them.
    should_stop, report
        Asked after, and told of better plans after, each call.

    Notes
    -----
    The energy is the makespan plus a small share of the mean load, so that plans with the same makespan differ. A proposal
    costs O(jobs on a machine). No guarantee.
    """
    seconds, between = np.ascontiguousarray(time, np.float64), np.ascontiguousarray(setup, np.float64)
    n, m = seconds.shape
    order = np.full((m, n), -1, np.int64)
    count, load = np.zeros(m, np.int64), np.zeros(m)
    for j in np.argsort(-np.where(np.isfinite(seconds), seconds, 0.0).min(axis=1), kind="stable").tolist():
        growth = [
            load[i] + seconds[j, i] + (between[i, order[i, count[i] - 1], j] if count[i] else 0.0) for i in range(m)
        ]
        i = int(np.argmin(growth))
        order[i, count[i]], load[i] = j, growth[i]
        count[i] += 1
    machine = np.empty(n, np.int64)
    for i in range(m):
        machine[order[i, : count[i]]] = i
    best = _sequences(seconds, between, order, count)
    report(best)
    state = np.array([seed * 2 + 1], np.uint64)
    spread = max(float(np.where(np.isfinite(seconds), seconds, 0.0).mean()), 1e-9)
    hot, cold = 0.3 * spread, 0.005 * spread
    proposals = min(_CHUNK, _PER_JOB * n)
    for turn in range(rounds):
        if should_stop() or m * n < 2:
            break
        warm = hot * (cold / hot) ** (turn / rounds)
        cool = hot * (cold / hot) ** ((turn + 1) / rounds)
        kept_order, kept_count = order.copy(), count.copy()
        value = _anneal(
            seconds, between, order, count, load, machine, kept_order, kept_count, state, warm, cool, proposals
        )
        if value < best.makespan:
            found = _sequences(seconds, between, kept_order, kept_count)
            if found.makespan < best.makespan:
                best = found
                report(best)
    return best


def _sequences(
    time: NDArray[np.float64], setup: NDArray[np.float64], order: NDArray[np.int64], count: NDArray[np.int64]
) -> Sequences:
    machine, position = np.empty(len(time), np.int64), np.empty(len(time), np.int64)
    for i, k in enumerate(count.tolist()):
        machine[order[i, :k]], position[order[i, :k]] = i, np.arange(k)
    return Sequences(machine, position, float(sequence_loads(time, setup, machine, position).max(initial=0.0)))


@njit
def _gap(setup, row, k, a, b):  # type: ignore[no-untyped-def]
    """Setup between positions a and b of a row with k jobs; 0 beyond its ends."""
    if a < 0 or b >= k:
        return 0.0
    return setup[row[a], row[b]]


@njit
def _best_place(setup, row, k, job):  # type: ignore[no-untyped-def]
    """Position where inserting ``job`` costs the least setup, and that cost."""
    best, where = np.inf, 0
    for p in range(k + 1):
        cost = 0.0
        if p > 0:
            cost += setup[row[p - 1], job]
        if p < k:
            cost += setup[job, row[p]]
        cost -= _gap(setup, row, k, p - 1, p)
        if cost < best:
            best, where = cost, p
    return where, best


@njit
def _anneal(time, setup, order, count, load, machine, kept_order, kept_count, state, warm, cool, proposals):  # type: ignore[no-untyped-def]
    n, m = time.shape
    best = load.max()
    total = load.sum()
    energy = best + 0.05 * total / m
    kept_value = np.inf
    factor = (cool / warm) ** (1.0 / proposals)
    heat = warm
    row = np.empty(n, np.int64)
    for _ in range(proposals):
        heat *= factor
        # Half of the proposals start from the machine that is done last.
        if uniform_star(state) < 0.5:
            a = int(load.argmax())
            if count[a] == 0:
                continue
            p = int(uniform_star(state) * count[a])
            j = order[a, p]
        else:
            j = int(uniform_star(state) * n)
            a = machine[j]
            p = 0
            while order[a, p] != j:
                p += 1
        b = int(uniform_star(state) * m)
        if time[j, b] == np.inf:
            continue
        k = count[a]
        out = time[j, a] + _gap(setup[a], order[a], k, p - 1, p) + _gap(setup[a], order[a], k, p, p + 1)
        out -= _gap(setup[a], order[a], k, p - 1, p + 1) if 0 < p < k - 1 else 0.0
        without = 0
        for q in range(k):
            if q != p:
                row[without] = order[a, q]
                without += 1
        if a == b:
            where, cost = _best_place(setup[a], row, without, j)
            # A random place now and then: always taking the best one stalls.
            if uniform_star(state) < 0.3:
                where = int(uniform_star(state) * (without + 1))
                cost = -_gap(setup[a], row, without, where - 1, where)
                cost += setup[a, row[where - 1], j] if where > 0 else 0.0
                cost += setup[a, j, row[where]] if where < without else 0.0
            new_a = load[a] - out + time[j, a] + cost
            new_b = new_a
        else:
            where, cost = _best_place(setup[b], order[b], count[b], j)
            new_a, new_b = load[a] - out, load[b] + time[j, b] + cost
        worst = max(new_a, new_b)
        for i in range(m):
            if i != a and i != b and load[i] > worst:
                worst = load[i]
        change = new_a - load[a] + (new_b - load[b] if a != b else 0.0)
        proposed = worst + 0.05 * (total + change) / m
        if proposed > energy and uniform_star(state) >= np.exp((energy - proposed) / heat):
            continue
        count[a] -= 1
        for q in range(without):
            order[a, q] = row[q]
        for q in range(count[b], where, -1):
            order[b, q] = order[b, q - 1]
        order[b, where] = j
        count[b] += 1
        machine[j] = b
        load[a], load[b] = new_a, new_b
        total += change
        energy = proposed
        if worst < kept_value:
            kept_value = worst
            kept_order[:] = order
            kept_count[:] = count
    return kept_value
