"""A 2-approximation for jobs on unrelated machines without linear programming: whole jobs pushed through a network.

For a deadline T it keeps a complete plan and a price on each machine's time, and moves jobs from machines beyond 2 T to
machines within T until none is left beyond, or until the prices prove that no plan ends by T. It needs no solver. The
prices are machine weights of the same certificate as in :mod:`hetopt.algorithms.deadline_lp`, which has the same ratio and
in practice the better plan and bound: here a deadline below the optimum that is not refuted, because some plan ends by
twice that, is never looked at again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.deadline_lp import BoundedPlan, deadline_certificate
from hetopt.algorithms.jit import njit
from hetopt.algorithms.lists import mct
from hetopt.algorithms.makespan_bounds import certified_grid
from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times, is_integral, makespan
from hetopt.verify.makespan_certificates import replay

__all__ = ["gairing_monien_woclaw"]

_RUNNING, _WITHIN, _REFUTED = 0, 1, 2
_EQUAL = 1e-9  # relative; costs this close count as tied
_PRECISE = 1e-6  # relative distance of bound and deadline at which the search over decimals ends
_WORK_PER_CALL = 1 << 24  # elementary steps, about 0.05 s


def gairing_monien_woclaw(
    time: ArrayLike, *, ready: ArrayLike | None = None, should_stop: Callable[[], bool] | None = None
) -> BoundedPlan:
    """Gairing, Monien and Woclaw's combinatorial 2-approximation, by bisection over the deadline T.

    Every machine i has a price w_i >= 1 for its time, and every job sits on a machine where it pays least, among those where
    it can end by T. A machine is *low* with a load up to T and *high* beyond 2 T. While a high machine reaches a low one
    along machines linked by jobs that pay the same on both, jobs move one link nearer to it; a job is at most T long, so
    the low machine does not become high. When none is reached, the prices of all machines reached are raised until a job
    there pays the same elsewhere. If there is no such job, or if ``sum_i w_i (load_i - T) > 0``, the jobs cost more than
    all machines can be worth by T: no plan ends by then.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    ready
        (m,) times from which the machines are free; zero if None.
    should_stop
        Asked about every 0.1 s. When it turns true, the best plan and bound so far are returned.

    Returns
    -------
    BoundedPlan
        The plan of the smallest makespan met on the way (the first is minimum completion time's), at most ``2 deadline``.
        When ``complete``, ``lower_bound`` is at least ``deadline``: exactly with integers, else up to 1e-6 of it.

    Raises
    ------
    ValueError
        When the arrays are malformed or a job can run nowhere.

    Notes
    -----
    At fixed prices a move brings a job nearer to a low machine and no machine ever comes nearer (low machines only get
    fewer, a moved job opens no short cut), so there are at most n m^2 moves, O(n + m^2) each; raising prices costs O(n m)
    and strictly raises the dual value. Source: Gairing, Monien and Woclaw, "A faster combinatorial approximation algorithm
    for scheduling unrelated parallel machines", Theoretical Computer Science 380 (2007), who prove a polynomial bound for
    their order of pushes; the order here is simpler.
    """
    matrix = check_times(time, runnable=True)
    n, m = matrix.shape
    start = check_ready(ready, m)
    plan = mct(matrix, ready=start)
    best = makespan(matrix, plan, start)
    grid = certified_grid(matrix, start, best)
    certificate = {"kind": "machine-weights", "shift": grid.shift, "weights": np.zeros(m, dtype=np.int64)}
    bound = replay(matrix, certificate, start, grid=grid)
    if n == 0:
        return BoundedPlan(plan, bound, certificate, 0.0, True)
    integral = is_integral(matrix, start)
    ends = matrix + start
    if start.any() and not integral:
        ends = np.nextafter(ends, 0.0)  # never later than the exact sum
    moments = np.unique(ends[np.isfinite(ends)])
    low, high = max(float(bound), float(ends.min(axis=1).max())), best  # a plan within 2 `high` is known
    while low < high if integral else low < high * (1 - _PRECISE):
        deadline = math.floor((low + high) / 2) if integral else (low + high) / 2
        outcome, candidate, prices = _at_deadline(matrix, ends, start, deadline, should_stop)
        if outcome == _RUNNING:
            return BoundedPlan(plan, bound, certificate, high, False)
        if outcome == _WITHIN:
            high = deadline
            if makespan(matrix, candidate, start) < best:
                plan, best = candidate, makespan(matrix, candidate, start)
            continue
        after = np.append(moments[moments > deadline], np.inf)[0]
        found = deadline_certificate(grid, prices, float(after))
        if found is not None:
            proven = replay(matrix, found, start, grid=grid)
            if proven > bound:
                bound, certificate = proven, found
        low = max(float(bound), deadline + 1 if integral else deadline)
    return BoundedPlan(plan, bound, certificate, high, True)


def _at_deadline(
    time: FloatArray, ends: FloatArray, ready: FloatArray, deadline: float, should_stop: Callable[[], bool] | None
) -> tuple[int, IntArray, FloatArray]:
    """Outcome for one deadline, the plan reached and the prices."""
    n, m = time.shape
    allowed = ends <= deadline
    plan = np.where(allowed, time, np.inf).argmin(axis=1)
    load = ready + np.bincount(plan, weights=time[np.arange(n), plan], minlength=m)
    price = np.ones(m)
    least = np.empty(n)
    ratio, link = np.empty((m, m)), np.empty((m, m), dtype=np.int64)
    _links(time, allowed, plan, price, least, ratio, link)
    outcome = _RUNNING
    while outcome == _RUNNING and not (should_stop is not None and should_stop()):
        outcome = _push(time, allowed, ready, deadline, plan, load, price, least, ratio, link, _WORK_PER_CALL)
    return outcome, plan, price


@njit
def _links(time, allowed, plan, price, least, ratio, link):  # type: ignore[no-untyped-def]
    """What each job pays at least, and the links of all machines, at new prices."""
    n, m = time.shape
    for j in range(n):
        least[j] = np.inf
        for i in range(m):
            if allowed[j, i]:
                least[j] = min(least[j], price[i] * time[j, i])
    for i in range(m):
        _links_from(i, time, allowed, plan, price, least, ratio, link)


@njit
def _links_from(i, time, allowed, plan, price, least, ratio, link):  # type: ignore[no-untyped-def]
    """Row i: ``link[i, k]`` is the longest job on i that pays the least on k too (-1: none), ``ratio[i, k]`` the smallest
    time on k to time on i of any job on i that may move there. A job that takes no time stays."""
    n, m = time.shape
    ratio[i, :] = np.inf
    link[i, :] = -1
    for j in range(n):
        own = time[j, i]
        if plan[j] != i or own == 0:
            continue
        for k in range(m):
            if k == i or not allowed[j, k]:
                continue
            ratio[i, k] = min(ratio[i, k], time[j, k] / own)
            if price[k] * time[j, k] <= least[j] * (1 + _EQUAL) and (link[i, k] < 0 or own > time[link[i, k], i]):
                link[i, k] = j


@njit
def _push(time, allowed, ready, deadline, plan, load, price, least, ratio, link, budget):  # type: ignore[no-untyped-def]
    """Move jobs and raise prices until the outcome is known or the budget of elementary steps is used up."""
    n, m = time.shape
    hops = np.empty(m, dtype=np.int64)
    queue = np.empty(m, dtype=np.int64)
    far = np.empty(m)
    done = np.empty(m, dtype=np.bool_)
    while budget > 0:
        high = np.logical_and(load > 2 * deadline, load > ready)
        if not high.any():
            return _WITHIN
        tail = 0
        for i in range(m):
            hops[i] = -1
            if load[i] <= deadline:
                hops[i] = 0
                queue[tail] = i
                tail += 1
        head = 0
        while head < tail:
            k = queue[head]
            head += 1
            for i in range(m):
                if hops[i] < 0 and link[i, k] >= 0:
                    hops[i] = hops[k] + 1
                    queue[tail] = i
                    tail += 1
        giver = -1
        for i in range(m):
            if high[i] and hops[i] > 0 and (giver < 0 or hops[i] < hops[giver]):
                giver = i
        budget -= m * m
        if giver >= 0:
            taker = -1
            for k in range(m):
                if link[giver, k] >= 0 and hops[k] == hops[giver] - 1 and (taker < 0 or load[k] < load[taker]):
                    taker = k
            j = link[giver, taker]
            plan[j] = taker
            load[giver] -= time[j, giver]
            load[taker] += time[j, taker]
            _links_from(giver, time, allowed, plan, price, least, ratio, link)
            _links_from(taker, time, allowed, plan, price, least, ratio, link)
            budget -= 4 * n
            continue
        if _raise_prices(deadline, ready, load, high, price, ratio, far, done):
            return _REFUTED
        _links(time, allowed, plan, price, least, ratio, link)
        budget -= 2 * n * m
    return _RUNNING


@njit
def _raise_prices(deadline, ready, load, high, price, ratio, far, done):  # type: ignore[no-untyped-def]
    """Raise prices until a high machine is linked with a low one; True when the prices refute the deadline.

    Shortest paths from the high machines, where a step from i to k costs the factor by which k is too dear for a job on i:
    a machine nearer than the nearest low one is raised by what is missing.
    """
    m = len(price)
    for i in range(m):
        far[i] = 1.0 if high[i] else np.inf
        done[i] = False
    reach = 1.0
    low_reached = False
    while True:
        i = -1
        for k in range(m):
            if not done[k] and far[k] < np.inf and (i < 0 or far[k] < far[i]):
                i = k
        if i < 0:
            break
        done[i] = True
        reach = far[i]
        if load[i] <= deadline:
            low_reached = True
            break
        for k in range(m):
            step = max(1.0, price[k] * ratio[i, k] / price[i])
            if not done[k] and far[i] * step < far[k]:
                far[k] = far[i] * step
    for i in range(m):
        if far[i] < reach:
            price[i] *= reach / far[i]
    if not low_reached:  # no job on a machine reached may go anywhere else
        for i in range(m):
            if far[i] == np.inf:
                price[i] = 0.0
        return True
    value = 0.0
    for i in range(m):
        if ready[i] <= deadline:
            value += price[i] * (load[i] - deadline)
    return value > 0
