"""Makespan plus weighted tardiness of jobs and of machines, on unrelated machines: value, dispatching rule, exact, annealing.

A plan gives each job a machine and a position; machines run their jobs without waiting from the moment they are free. With
C_j the completion of job j and L_i the end of machine i's last job (its ``ready`` when it has none),

    value = max_i L_i + sum_j weight_j max(0, C_j - due_j) + sum_i machine_weight_i max(0, L_i - machine_due_i).

Bounds are not this module's business (a formulation's relaxation gives them), and neither are release dates.
Source of the objective and of the rule: Hitzges and Sagnol, ICMLA 2025, arXiv 2512.19527.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.draws import uniform_star
from hetopt.algorithms.jit import njit

__all__ = ["MOST_JOBS", "Sequenced", "Shop", "anneal_tardiness", "best_tardiness", "dispatch", "tardiness_value"]

MOST_JOBS = 12
"""Most jobs of the exact program: 3^12 = 0.5 million pairs of sets a machine and makespan tried."""

_STEPS = 4_000_000  # job visits of one call of the annealing kernel, below 0.1 s


class Shop(NamedTuple):
    """The data, times in one unit.

    Attributes
    ----------
    time
        (n, m) time of each job on each machine, ``inf`` where it cannot run.
    due, weight
        (n,) of the jobs; ``inf`` for no due date.
    ready, machine_due, machine_weight
        (m,) when each machine is free, when it should be done, and what a unit of delay costs.
    """

    time: NDArray[np.float64]
    due: NDArray[np.float64]
    weight: NDArray[np.float64]
    ready: NDArray[np.float64]
    machine_due: NDArray[np.float64]
    machine_weight: NDArray[np.float64]


class Sequenced(NamedTuple):
    """A plan: the machine of each job (n,), its position on that machine (n,), and the plan's value."""

    machine: NDArray[np.int64]
    position: NDArray[np.int64]
    value: float


def tardiness_value(shop: Shop, machine: NDArray[np.int64], position: NDArray[np.int64]) -> float:
    """Value of a plan; jobs run by position on each machine."""
    ends, cost = shop.ready.copy(), 0.0
    for j in np.argsort(position, kind="stable").tolist():
        i = int(machine[j])
        ends[i] += shop.time[j, i]
        cost += shop.weight[j] * max(0.0, ends[i] - shop.due[j])
    return float(ends.max() + cost + (shop.machine_weight * np.maximum(0.0, ends - shop.machine_due)).sum())


def dispatch(shop: Shop) -> Sequenced | None:
    """The published dispatching rule; None when some job can run nowhere.

    The machine that is free first takes, of the jobs left, the shortest one on it that no other machine on duty would finish
    strictly earlier; where there is none, it goes off duty for good. Ties: machines by weight (largest first), then due
    date, then number; jobs likewise.

    Notes
    -----
    O(n^2 m) time. No guarantee. A machine goes off duty only when each job left has a better one on duty, so every job is
    placed in the end.
    """
    n, m = shop.time.shape
    if not np.isfinite(shop.time).any(axis=1).all():
        return None
    ends, on = shop.ready.copy(), np.ones(m, bool)
    machine, position = np.empty(n, np.int64), np.empty(n, np.int64)
    rank = np.lexsort((np.arange(m), shop.machine_due, -shop.machine_weight))
    left = np.lexsort((np.arange(n), shop.due, -shop.weight))
    for place in range(n):
        while True:
            duty = rank[on[rank]]
            i = int(duty[np.argmin(ends[duty])])
            tried = left[np.argsort(shop.time[left, i], kind="stable")]
            finish = ends[duty] + shop.time[tried][:, duty]
            own = ends[i] + shop.time[tried, i]
            good = np.flatnonzero((finish.min(axis=1) >= own) & np.isfinite(own))
            if good.size:
                break
            on[i] = False
        j = int(tried[good[0]])
        machine[j], position[j] = i, place
        ends[i] += shop.time[j, i]
        left = left[left != j]
    return _sequenced(shop, machine, position)


def best_tardiness(shop: Shop, *, should_stop: Callable[[], bool] = lambda: False) -> Sequenced | None:
    """Least value, exactly, for at most :data:`MOST_JOBS` jobs; None when some job can run nowhere, or when stopped.

    Dynamic programs over sets of jobs: the least tardiness of each set on each machine, then the best partition of all jobs
    among the machines when no machine may end after a limit. The limit falls from plan to plan: after a plan that ends at C
    only plans that end before C can be better, and none is when the tardiness alone costs too much.

    Raises
    ------
    ValueError
        There are more jobs than the program takes.

    Notes
    -----
    O(m 2^n n + k m 3^n) time, k the number of makespans tried (at most the size of the Pareto front of makespan and
    tardiness), O(m 2^n) memory; sums of products of integers are exact.
    """
    n, m = shop.time.shape
    if n > MOST_JOBS:
        raise ValueError(f"there are {n} jobs, and the exact program takes at most {MOST_JOBS}")
    if not np.isfinite(shop.time).any(axis=1).all():
        return None
    cost, last, load = np.empty((m, 1 << n)), np.zeros((m, 1 << n), np.int64), np.empty((m, 1 << n))
    for i in range(m):
        _sets(shop.time[:, i].copy(), shop.due, shop.weight, shop.ready[i], cost[i], last[i], load[i])
        with np.errstate(invalid="ignore"):
            late = shop.machine_weight[i] * np.maximum(0.0, load[i] - shop.machine_due[i])
        cost[i] += np.where(np.isfinite(load[i]), late, 0.0)
    best: Sequenced | None = None
    limit, least = np.inf, float(shop.ready.max())
    while not should_stop():
        tardiness, choice = _partition(cost, load, limit)
        if not np.isfinite(tardiness) or (best is not None and tardiness + least >= best.value):
            return best
        machine, position, left = np.empty(n, np.int64), np.empty(n, np.int64), (1 << n) - 1
        # The limit comes from the very sums it is compared with: decimals added in another order might not fall below it.
        limit = -np.inf
        for i in range(m - 1, -1, -1):
            mine = int(choice[i, left])
            limit = max(limit, float(load[i, mine]))
            left ^= mine
            for place in range(mine.bit_count() - 1, -1, -1):
                j = int(last[i, mine])
                machine[j], position[j] = i, place
                mine ^= 1 << j
        found = _sequenced(shop, machine, position)
        if best is None or found.value < best.value:
            best = found
    return None


@njit
def _sets(time, due, weight, ready, cost, last, load):  # type: ignore[no-untyped-def]
    """For each set S of jobs: least weighted tardiness, the job that ends it, and when the machine is done."""
    n = len(time)
    cost[0], load[0] = 0.0, ready
    for s in range(1, 1 << n):
        low = 0
        while not (s >> low) & 1:
            low += 1
        load[s] = load[s & (s - 1)] + time[low]
        cost[s] = np.inf
        if load[s] == np.inf:
            continue
        for j in range(n):
            if (s >> j) & 1:
                value = cost[s ^ (1 << j)]
                if load[s] > due[j]:
                    value += weight[j] * (load[s] - due[j])
                if value < cost[s]:
                    cost[s], last[s] = value, j


@njit
def _partition(cost, load, limit):  # type: ignore[no-untyped-def]
    """Least sum of costs over partitions in which every machine ends before ``limit``, and what each machine takes."""
    m, sets = cost.shape
    choice = np.zeros((m, sets), np.int64)
    value = np.empty(sets)
    for s in range(sets):
        choice[0, s] = s
        value[s] = cost[0, s] if load[0, s] < limit else np.inf
    for i in range(1, m):
        after = np.empty(sets)
        # The last machine's answer is needed for all jobs only.
        for s in range(sets - 1 if i == m - 1 else 0, sets):
            best, taken, part = np.inf, 0, s
            while True:
                if load[i, part] < limit:
                    total = value[s ^ part] + cost[i, part]
                    if total < best:
                        best, taken = total, part
                if part == 0:
                    break
                part = (part - 1) & s
            after[s], choice[i, s] = best, taken
        value = after
    return value[sets - 1], choice


def anneal_tardiness(
    shop: Shop,
    *,
    start: Sequenced | None = None,
    seed: int = 0,
    proposals: int = 2_000_000,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Sequenced], None] = lambda plan: None,
) -> Sequenced | None:
    """Simulated annealing over sequences: move a job within or between machines, swap two jobs of two machines.

    Parameters
    ----------
    shop
        The data.
    start
        The plan to begin with, at a tenth of the temperature; None for that of :func:`dispatch`.
    seed
        Of its own random numbers: the same plan on any machine.
    proposals
        Moves tried; the temperature falls over all of them.
    should_stop, report
        Asked after, and told of better plans after, each call of the kernel (some 0.1 s).

    Returns
    -------
    Sequenced or None
        The best plan seen, at least as good as the start; None when some job can run nowhere.

    Notes
    -----
    A proposal costs O(jobs on two machines). No guarantee.
    """
    best = dispatch(shop) if start is None else start
    if best is None:
        return None
    report(best)
    n, m = shop.time.shape
    time = np.ascontiguousarray(shop.time.T)
    facts = (time, shop.due, shop.weight, shop.ready, shop.machine_due, shop.machine_weight)
    order, count = np.zeros((m, n), np.int64), np.zeros(m, np.int64)
    for j in np.argsort(best.position, kind="stable").tolist():
        i = best.machine[j]
        order[i, count[i]] = j
        count[i] += 1
    state = np.array([seed * 2 + 1], np.uint64)
    short = np.where(np.isfinite(shop.time), shop.time, np.inf).min(axis=1)
    spread = max(float(short.mean() * (1.0 + shop.weight.mean())), 1e-300)
    hot, cold = (1.0 if start is None else 0.1) * spread, 0.01 * spread
    chunk = max(1000, _STEPS * m // (n + m))
    calls = max(1, -(-proposals // chunk))
    chunk = min(chunk, proposals)
    for turn in range(calls):
        if should_stop() or m * n < 2:
            break
        warm, cool = (hot * (cold / hot) ** (step / calls) for step in (turn, turn + 1))
        kept_order, kept_count = order.copy(), count.copy()
        value = _anneal(*facts, order, count, kept_order, kept_count, state, warm, cool, chunk)
        if value < best.value:
            machine, position = np.empty(n, np.int64), np.empty(n, np.int64)
            for i, k in enumerate(kept_count.tolist()):
                machine[kept_order[i, :k]], position[kept_order[i, :k]] = i, np.arange(k)
            found = _sequenced(shop, machine, position)
            if found.value < best.value:
                best = found
                report(best)
    return best


@njit
def _changed(time, due, weight, clock, row, k, skip, at, job):  # type: ignore[no-untyped-def]
    """Tardiness and end of a row of k jobs without position ``skip``, with ``job`` as number ``at`` of what remains."""
    cost, place = 0.0, 0
    for q in range(k + 1):
        if place == at:
            clock += time[job]
            if clock > due[job]:
                cost += weight[job] * (clock - due[job])
            place += 1
        if q in (k, skip):
            continue
        j = row[q]
        clock += time[j]
        if clock > due[j]:
            cost += weight[j] * (clock - due[j])
        place += 1
    return cost, clock


@njit
def _late(end, due, weight):  # type: ignore[no-untyped-def]
    return weight * (end - due) if end > due else 0.0


@njit
def _place(row, k, at, job):  # type: ignore[no-untyped-def]
    """Insert ``job`` before position ``at`` of a row with k jobs."""
    for q in range(k, at, -1):
        row[q] = row[q - 1]
    row[at] = job


@njit
def _drop(row, k, at):  # type: ignore[no-untyped-def]
    for q in range(at, k - 1):
        row[q] = row[q + 1]


@njit
def _anneal(  # type: ignore[no-untyped-def]
    time,
    due,
    weight,
    ready,
    machine_due,
    machine_weight,
    order,
    count,
    kept_order,
    kept_count,
    state,
    warm,
    cool,
    proposals,
):
    m = len(time)
    cost, end = np.empty(m), np.empty(m)
    for i in range(m):
        cost[i], end[i] = _changed(time[i], due, weight, ready[i], order[i], count[i], -1, -1, 0)
        cost[i] += _late(end[i], machine_due[i], machine_weight[i])
    energy = cost.sum() + end.max()
    kept, unsaved = energy, False
    factor = (cool / warm) ** (1.0 / proposals)
    heat = warm
    for _ in range(proposals):
        heat *= factor
        a = int(uniform_star(state) * m)
        if count[a] == 0:
            continue
        p = int(uniform_star(state) * count[a])
        j = order[a, p]
        b = int(uniform_star(state) * m)
        swap = b != a and uniform_star(state) < 0.4
        q, other = 0, 0
        if swap:
            if count[b] == 0:
                continue
            q = int(uniform_star(state) * count[b])
            other = order[b, q]
            if time[b, j] == np.inf or time[a, other] == np.inf:
                continue
            cost_a, end_a = _changed(time[a], due, weight, ready[a], order[a], count[a], p, p, other)
            cost_b, end_b = _changed(time[b], due, weight, ready[b], order[b], count[b], q, q, j)
        elif a == b:
            q = int(uniform_star(state) * count[a])
            cost_a, end_a = _changed(time[a], due, weight, ready[a], order[a], count[a], p, q, j)
            cost_b, end_b = 0.0, end_a
        else:
            if time[b, j] == np.inf:
                continue
            q = int(uniform_star(state) * (count[b] + 1))
            cost_a, end_a = _changed(time[a], due, weight, ready[a], order[a], count[a], p, -1, 0)
            cost_b, end_b = _changed(time[b], due, weight, ready[b], order[b], count[b], -1, q, j)
        cost_a += _late(end_a, machine_due[a], machine_weight[a])
        change = cost_a - cost[a]
        if a != b:
            cost_b += _late(end_b, machine_due[b], machine_weight[b])
            change += cost_b - cost[b]
        was, worst = 0.0, max(end_a, end_b)
        for i in range(m):
            was = max(was, end[i])
            if i != a and i != b and end[i] > worst:
                worst = end[i]
        change += worst - was
        if change > 0 and uniform_star(state) >= np.exp(-change / heat):
            continue
        if change > 0 and unsaved:
            kept_order[:] = order
            kept_count[:] = count
            unsaved = False
        if swap:
            order[a, p], order[b, q] = other, j
        else:
            _drop(order[a], count[a], p)
            count[a] -= 1
            _place(order[b], count[b], q, j)
            count[b] += 1
        cost[a], end[a] = cost_a, end_a
        if a != b:
            cost[b], end[b] = cost_b, end_b
        energy += change
        if energy < kept:
            kept, unsaved = energy, True
    if unsaved:
        kept_order[:] = order
        kept_count[:] = count
    return kept


def _sequenced(shop: Shop, machine: NDArray[np.int64], position: NDArray[np.int64]) -> Sequenced:
    """The plan with positions counted from 0 on each machine, and its value."""
    order = np.lexsort((position, machine))
    first = np.searchsorted(machine[order], np.arange(shop.time.shape[1]))
    place = np.empty(len(machine), np.int64)
    place[order] = np.arange(len(machine)) - first[machine[order]]
    return Sequenced(machine, place, tardiness_value(shop, machine, place))
