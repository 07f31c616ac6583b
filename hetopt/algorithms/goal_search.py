"""Annealing towards goals: a plan whose machines end in time, whose memory fits and whose cost stays within a budget.

For questions of independent jobs that have more limits than the makespan: all limits are goals here, and what a plan misses of
them, in relative terms, is what the search lowers; a plan that misses nothing ends it. The caller tightens the goal that is
its objective and asks again (:func:`tighten`). No guarantee and no bound; not for questions where order matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.draws import uniform
from hetopt.algorithms.jit import njit

__all__ = ["Goals", "reach", "tighten"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PART = 20_000  # proposals between two looks at the clock


class Goals(NamedTuple):
    """``n`` jobs on ``m`` machines, and the goals.

    Attributes
    ----------
    time
        (n, m) load of each job on each machine; ``inf`` where it cannot run.
    extra
        (m, n + 1) load that comes with holding k jobs, zero for none; ready times and fused kernels are of this kind.
    memory, tasks
        (n,) bytes and tasks of each job.
    cost
        (n, m) cost of each job on each machine; finite where time is.
    room, capacity, most
        (m,) goals for loads, bytes and tasks; ``inf`` for none. An empty machine meets them all.
    budget
        Goal for the cost; ``inf`` for none.
    """

    time: Floats
    extra: Floats
    memory: Floats
    tasks: Floats
    cost: Floats
    room: Floats
    capacity: Floats
    most: Floats
    budget: float


def reach(
    goals: Goals,
    start: Ints,
    *,
    seed: int = 0,
    proposals: int = 400_000,
    should_stop: Callable[[], bool] | None = None,
) -> Ints | None:
    """A plan (n,) that meets all goals, or None when the proposals are used up first.

    Parameters
    ----------
    start
        (n,) plan to start from, each job where it can run.
    proposals
        Moves and exchanges to try while the temperature falls.
    should_stop
        Asked after every 20,000 proposals.
    """
    plan = np.array(start, np.int64)
    n, m = goals.time.shape
    if missed(goals, plan) == 0:
        return plan
    if n == 0 or m < 2:
        return None
    state = np.array([2 * seed + 1], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    able = np.isfinite(goals.time)
    parts = max(1, proposals // _PART)
    units = _units(goals)
    typical = max(float(goals.time[able].mean()) / units[0], 1e-9)  # what moving one job changes of a miss
    for part in range(parts):
        hot, cold = (0.2 * typical * 0.01 ** ((part + k) / parts) for k in (0, 1))
        if _anneal(*goals, *units, plan, hot, cold, min(_PART, proposals), state):
            return plan
        if should_stop is not None and should_stop():
            return None
    return None


def tighten(
    aim: Callable[[float], Goals],
    measure: Callable[[Ints], float],
    plan: Ints,
    lowest: float,
    *,
    step: float = 0.0,
    seed: int = 0,
    rounds: int = 40,
    should_stop: Callable[[], bool] | None = None,
    report: Callable[[Ints], None] | None = None,
) -> Ints:
    """Lower a plan's value by aiming below it, nearer each time that an aim is missed.

    Parameters
    ----------
    aim
        Goals that a plan of at most this value meets, and only such a plan.
    measure
        Value of a plan.
    plan
        (n,) plan that meets the other goals.
    lowest
        Where to stop: a lower bound.
    step
        Values differ by at least this (1 for integers).
    rounds
        Aims to try at most; the nearest aim is missed three times with ever more proposals before the search gives up.

    Returns
    -------
    ndarray
        (n,) the best plan found.
    """
    best, value = np.array(plan, np.int64), measure(plan)
    share, misses = 0.5, 0
    first = min(100_000, 2_000 * aim(value).time.size)
    for attempt in range(rounds):
        if value <= lowest + 1e-9 * abs(lowest) or (should_stop is not None and should_stop()):
            break
        target = min(value - step, value - share * (value - lowest)) if step else value - share * (value - lowest)
        found = reach(aim(target), best, seed=seed + attempt, proposals=first << 2 * misses, should_stop=should_stop)
        if found is not None and measure(found) < value:
            best, value, misses = found, measure(found), 0
            if report is not None:
                report(best)
        elif share * (value - lowest) <= max(step, 1e-7 * abs(value)):
            misses += 1
            if misses == 3:
                break
        else:
            share *= 0.5
    return best


def missed(goals: Goals, plan: Ints) -> float:
    """What a plan misses of its goals, each as a share of the goal; 0 when it meets them all."""
    units = _units(goals)
    m = goals.time.shape[1]
    rows = np.arange(len(plan))
    held = np.bincount(plan, minlength=m)
    load = np.bincount(plan, weights=goals.time[rows, plan], minlength=m) + goals.extra[np.arange(m), held]
    parts = (
        (load - goals.room) / units[0],
        (np.bincount(plan, weights=goals.memory, minlength=m) - goals.capacity) / units[1],
        (np.bincount(plan, weights=goals.tasks, minlength=m) - goals.most) / units[2],
    )
    over = sum(float(np.maximum(np.where(held > 0, part, 0.0), 0.0).sum()) for part in parts)
    return over + max(0.0, (float(goals.cost[rows, plan].sum()) - goals.budget) / units[3])


def _units(goals: Goals) -> tuple[float, float, float, float]:
    """What one unit of a miss is, for loads, bytes, tasks and the cost."""

    def unit(goal: Floats, whole: float) -> float:
        finite = goal[np.isfinite(goal)]
        return float(finite.mean()) if finite.size and finite.mean() > 0 else max(whole, 1.0)

    able = np.isfinite(goals.time)
    load = float(np.where(able, goals.time, 0.0).max(initial=0.0))
    price = float(np.abs(np.where(able, goals.cost, 0.0)).max(initial=0.0))
    return (
        unit(goals.room, load) or 1.0,
        unit(goals.capacity, float(goals.memory.max(initial=0.0))) or 1.0,
        unit(goals.most, 1.0) or 1.0,
        max(abs(goals.budget), price) if np.isfinite(goals.budget) and max(abs(goals.budget), price) > 0 else 1.0,
    )


@njit
def _over(
    i: int,
    held: int,
    load: float,
    bytes_: float,
    tasks: float,
    extra: Floats,
    room: Floats,
    capacity: Floats,
    most: Floats,
    load_unit: float,
    memory_unit: float,
    task_unit: float,
) -> float:
    """What machine i misses of its goals with these jobs."""
    if held == 0:
        return 0.0
    over: float = max(0.0, load + extra[i, held] - room[i]) / load_unit
    over += max(0.0, bytes_ - capacity[i]) / memory_unit
    over += max(0.0, tasks - most[i]) / task_unit
    return over


@njit
def _anneal(
    time: Floats,
    extra: Floats,
    memory: Floats,
    count: Floats,
    cost: Floats,
    room: Floats,
    capacity: Floats,
    most: Floats,
    budget: float,
    load_unit: float,
    memory_unit: float,
    task_unit: float,
    cost_unit: float,
    plan: Ints,
    hot: float,
    cold: float,
    proposals: int,
    state: NDArray[np.uint64],
) -> bool:
    """Moves and exchanges under a temperature from ``hot`` to ``cold``; ``plan`` changes; True when it meets all goals."""
    n, m = time.shape
    load, bytes_, tasks, held = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m, np.int64)
    paid = 0.0
    for j in range(n):
        i = plan[j]
        load[i] += time[j, i]
        bytes_[i] += memory[j]
        tasks[i] += count[j]
        held[i] += 1
        paid += cost[j, i]
    own = np.zeros(m)
    total = 0.0
    for i in range(m):
        own[i] = _over(
            i, held[i], load[i], bytes_[i], tasks[i], extra, room, capacity, most, load_unit, memory_unit, task_unit
        )
        total += own[i]
    spend = max(0.0, paid - budget) / cost_unit
    cooling = (cold / hot) ** (1.0 / proposals)
    heat = hot
    for _ in range(proposals):
        heat *= cooling
        j = int(uniform(state) * n)
        a = plan[j]
        k = -1
        if uniform(state) < 0.5:
            b = int(uniform(state) * m)
        else:
            k = int(uniform(state) * n)
            b = plan[k]
            if not time[k, a] < np.inf:
                continue
        if a == b or not time[j, b] < np.inf:
            continue
        la, lb = load[a] - time[j, a], load[b] + time[j, b]
        ma, mb = bytes_[a] - memory[j], bytes_[b] + memory[j]
        ta, tb = tasks[a] - count[j], tasks[b] + count[j]
        ha, hb = held[a] - 1, held[b] + 1
        pay = paid + cost[j, b] - cost[j, a]
        if k >= 0:
            la, lb = la + time[k, a], lb - time[k, b]
            ma, mb = ma + memory[k], mb - memory[k]
            ta, tb = ta + count[k], tb - count[k]
            ha, hb = held[a], held[b]
            pay += cost[k, a] - cost[k, b]
        oa = _over(a, ha, la, ma, ta, extra, room, capacity, most, load_unit, memory_unit, task_unit)
        ob = _over(b, hb, lb, mb, tb, extra, room, capacity, most, load_unit, memory_unit, task_unit)
        owed = max(0.0, pay - budget) / cost_unit
        worse = oa + ob - own[a] - own[b] + owed - spend
        if worse > 0.0 and uniform(state) >= np.exp(-worse / heat):
            continue
        plan[j] = b
        if k >= 0:
            plan[k] = a
        load[a], load[b], bytes_[a], bytes_[b], tasks[a], tasks[b] = la, lb, ma, mb, ta, tb
        held[a], held[b], paid, spend, own[a], own[b] = ha, hb, pay, owed, oa, ob
        total += worse
        if total <= 1e-9:
            # Sums drift by rounding: count again before believing it.
            total = spend
            for i in range(m):
                total += own[i]
            if total == 0.0:
                return True
    return False
