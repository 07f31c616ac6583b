"""Annealing for jobs on unrelated machines that re-optimises a few machines at a time by meeting in the middle.

Not a search by itself: :mod:`hetopt.algorithms.makespan_search` chooses targets, candidates and temperatures. One step
takes three to five machines, one of them above the target. Of the jobs on them, those that could cheaply move within the
group are split into two halves; all placements of either half are listed, and pairs of them are combined whose loads meet
the target closely, found through buckets over two of the loads. Thousands of simultaneous exchanges are weighed in some
ten microseconds, and the next state is drawn from them by their energy (a heat bath), so that the balance of loads that
simple moves approach step by step is hit exactly.

The energy of a plan is ``sum_i max(0, load_i - target)^2 + pull sum_j cost_j``, where the costs are the plan's reduced costs
in a relaxation, of which a plan of small makespan can afford only little. The squares are not weighted by the duals: where
machines differ in speed, those of the slow ones are so small that the search would leave them overloaded.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.makespan_lp import Floats

__all__ = ["Candidates", "Schedule", "candidates", "exchange"]

Ints = NDArray[np.int64]

_SLICE = 0.05  # seconds that one call of the kernel should take
_WIDEST = 6  # machines in a group at most
_BUCKETS = 64  # per load, of the second half's placements


class Candidates(NamedTuple):
    """Machines that a job may go to, in CSR form: ``machine[start[j]:start[j + 1]]`` with times and reduced costs."""

    start: Ints
    machine: Ints
    time: Floats
    cost: Floats


class Schedule(NamedTuple):
    """One annealing run.

    Attributes
    ----------
    hot, cold
        First and last temperature, in squared units of time; geometric in between.
    pull
        Weight of the reduced costs in the energy, in units of time when the costs are in units of time.
    group
        Machines re-optimised together, 2 to 6.
    half
        Placements listed of either half of the movable jobs, at most.
    checks
        Pairs of placements weighed per step, at most (about).
    steps
        Length of the run.
    """

    hot: float
    cold: float
    pull: float
    group: int
    half: int
    checks: int
    steps: int


def candidates(time: Floats, reduced: Floats, per_job: float, plan: Ints, least: int = 2) -> Candidates:
    """The pairs with the smallest reduced costs, ``per_job`` a job on average, at least ``least`` for each, and the plan's.

    Parameters
    ----------
    time
        (n, m) processing times, ``inf`` where a job cannot run; such pairs are never candidates.
    reduced
        (n, m) reduced costs; they become the candidates' costs.
    per_job, least
        Average and smallest number of candidates of a job.
    plan
        (n,) machine of each job.
    """
    n, m = time.shape
    keep = min(int(n * per_job), n * m - 1)
    mask = reduced <= np.partition(reduced.ravel(), keep)[keep]
    few = min(least, m)
    np.put_along_axis(mask, np.argpartition(reduced, few - 1, axis=1)[:, :few], True, axis=1)
    mask &= np.isfinite(time)
    mask[np.arange(n), plan] = True
    job, machine = np.nonzero(mask)
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(mask.sum(axis=1), out=start[1:])
    return Candidates(start, machine, time[job, machine], reduced[job, machine])


def exchange(
    time: Floats,
    ready: Floats,
    plan: Ints,
    choice: Candidates,
    target: float,
    schedule: Schedule,
    seed: int,
    should_stop: Callable[[], bool],
) -> tuple[float, Ints]:
    """Anneal from a plan; the best plan met counts, by largest load.

    Parameters
    ----------
    time
        (n, m) processing times.
    ready
        (m,) loads of the empty machines.
    plan
        (n,) machine of each job to start from, among its candidates.
    choice
        Where the jobs may go.
    target
        Largest load to reach; the run ends when it is met.
    schedule
        Temperatures, length and sizes.
    seed
        Same arguments, same result, however the work is cut into calls.
    should_stop
        Asked about every twentieth of a second.

    Returns
    -------
    value, plan
        Largest load (machines without jobs included) and the plan that has it, never worse than the start.

    Notes
    -----
    Some 20,000 to 100,000 steps a second. Two-list enumeration: Horowitz and Sahni, Journal of the ACM 21 (1974).
    """
    n, m = time.shape
    room = np.bincount(choice.machine, minlength=m)
    first = np.zeros(m + 1, dtype=np.int64)
    np.cumsum(room, out=first[1:])
    order = np.argsort(plan, kind="stable")
    count = np.bincount(plan, minlength=m)
    slot, position = np.zeros(first[-1], dtype=np.int64), np.zeros(n, dtype=np.int64)
    rank = np.arange(n) - np.repeat(np.cumsum(count) - count, count)
    slot[first[plan[order]] + rank] = order
    position[order] = rank
    place, best_plan = plan.astype(np.int64), plan.astype(np.int64)
    current = time[np.arange(n), plan]
    load = ready + np.bincount(plan, current, m)
    state = np.array([(seed * 0x9E3779B97F4A7C15 + 88172645463325252) % (1 << 64) or 1], dtype=np.uint64)
    number = np.array([load.max(), schedule.hot])  # best value, temperature
    ratio = (schedule.cold / schedule.hot) ** (1.0 / max(schedule.steps, 1))
    tolerance = 1e-9 * max(1.0, target)
    group = min(schedule.group, m, _WIDEST)
    done, step = 0, 1
    while done < schedule.steps and number[0] > target + tolerance and not should_stop():
        step = min(step, schedule.steps - done)
        began = clock.perf_counter()
        _exchange(
            choice.start,
            choice.machine,
            choice.time,
            choice.cost,
            first,
            slot,
            count,
            position,
            place,
            current,
            ready,
            load,
            target,
            tolerance,
            group,
            schedule.half,
            schedule.checks,
            schedule.pull,
            ratio,
            state,
            number,
            best_plan,
            step,
        )
        done += step
        took = clock.perf_counter() - began
        if took < _SLICE / 2:
            step *= 2
        elif took > 2 * _SLICE:
            step = max(step // 2, 1)
    return float(number[0]), best_plan


@njit
def _random(state: Any) -> Any:
    """Next number of a xorshift generator, 64 bits."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x


@njit
def _below(state: Any, k: int) -> Any:
    """Uniform integer from 0 to below k."""
    return np.int64(((_random(state) >> np.uint64(32)) * np.uint64(k)) >> np.uint64(32))


@njit
def _unit(state: Any) -> float:
    """Uniform number from 0 to below 1."""
    return float(_random(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit
def _pick_group(
    start: Any,
    machine: Any,
    first: Any,
    slot: Any,
    count: Any,
    over: Any,
    size: int,
    state: Any,
    group: Any,
    index: Any,
) -> None:
    """A machine above the target and others that jobs of the group could go to; ``index`` gets their places in ``group``."""
    m = len(index)
    i = over[_below(state, len(over))]
    group[0], index[i] = i, 0
    g, tries = 1, 0
    while g < size:
        tries += 1
        h = group[_below(state, g)]
        if tries < 4 * size and count[h] > 0 and _unit(state) < 0.7:
            j = slot[first[h] + _below(state, count[h])]
            k = machine[start[j] + _below(state, start[j + 1] - start[j])]
        else:
            k = _below(state, m)
        if index[k] < 0:
            group[g], index[k] = k, g
            g += 1


@njit
def _split(
    start: Any,
    machine: Any,
    costs: Any,
    first: Any,
    slot: Any,
    count: Any,
    group: Any,
    size: int,
    index: Any,
    half: int,
    noise: float,
    state: Any,
    job: Any,
    regret: Any,
    halves: Any,
) -> tuple[int, int]:
    """Movable jobs of the group, cheapest moves first with some noise, dealt to two halves of at most ``half`` placements."""
    movable = 0
    for x in range(size):
        i = group[x]
        for s in range(first[i], first[i] + count[i]):
            j = slot[s]
            options, low, high = 0, np.inf, np.inf
            for z in range(start[j], start[j + 1]):
                if index[machine[z]] >= 0:
                    options += 1
                    if costs[z] < low:
                        low, high = costs[z], low
                    elif costs[z] < high:
                        high = costs[z]
            if options >= 2:
                u = _unit(state)
                job[movable] = j
                regret[movable] = (high - low) * (0.5 + u) + noise * u
                movable += 1
    order = np.argsort(regret[:movable])
    sizes_a, sizes_b, a, b = 1, 1, 0, 0
    for s in range(movable):
        j = job[order[s]]
        options = 0
        for z in range(start[j], start[j + 1]):
            if index[machine[z]] >= 0:
                options += 1
        if sizes_a <= sizes_b and sizes_a * options <= half:
            halves[0, a] = j
            a += 1
            sizes_a *= options
        elif sizes_b * options <= half:
            halves[1, b] = j
            b += 1
            sizes_b *= options
        elif sizes_a * options <= half:
            halves[0, a] = j
            a += 1
            sizes_a *= options
        else:
            break
    return a, b


@njit
def _list_placements(
    start: Any,
    machine: Any,
    needs: Any,
    costs: Any,
    jobs: Any,
    number: int,
    index: Any,
    size: int,
    load: Any,
    total: Any,
    charge: Any,
) -> int:
    """What the jobs add in each of their placements, the first job turning fastest: loads (size, placements), their sums, and
    the reduced costs."""
    filled = 1
    for x in range(size):
        load[x, 0] = 0.0
    charge[0] = 0.0
    for s in range(number):
        j = jobs[s]
        options = 0
        for z in range(start[j], start[j + 1]):
            if index[machine[z]] >= 0:
                if options > 0:
                    to = options * filled
                    for x in range(size):
                        for e in range(filled):
                            load[x, to + e] = load[x, e]
                    for e in range(filled):
                        charge[to + e] = charge[e]
                options += 1
        k = 0
        for z in range(start[j], start[j + 1]):
            x = index[machine[z]]
            if x >= 0:
                for e in range(k * filled, (k + 1) * filled):
                    load[x, e] += needs[z]
                    charge[e] += costs[z]
                k += 1
        filled *= options
    for e in range(filled):
        total[e] = 0.0
    for x in range(size):
        for e in range(filled):
            total[e] += load[x, e]
    return filled


@njit
def _carry_out(
    start: Any,
    machine: Any,
    needs: Any,
    jobs: Any,
    number: int,
    placement: int,
    index: Any,
    first: Any,
    slot: Any,
    count: Any,
    position: Any,
    place: Any,
    current: Any,
) -> None:
    """Move the jobs where a listed placement has them."""
    for s in range(number):
        j = jobs[s]
        options = 0
        for z in range(start[j], start[j + 1]):
            if index[machine[z]] >= 0:
                options += 1
        digit = placement % options
        placement //= options
        for z in range(start[j], start[j + 1]):
            to = machine[z]
            if index[to] < 0:
                continue
            if digit == 0 and to != place[j]:
                i = place[j]
                count[i] -= 1
                last = slot[first[i] + count[i]]
                slot[first[i] + position[j]] = last
                position[last] = position[j]
                slot[first[to] + count[to]] = j
                position[j] = count[to]
                count[to] += 1
                place[j] = to
                current[j] = needs[z]
            digit -= 1


@njit(nogil=True)
def _exchange(
    start: Any,
    machine: Any,
    needs: Any,
    costs: Any,
    first: Any,
    slot: Any,
    count: Any,
    position: Any,
    place: Any,
    current: Any,
    ready: Any,
    load: Any,
    target: float,
    tolerance: float,
    size: int,
    half: int,
    checks: int,
    pull: float,
    ratio: float,
    state: Any,
    number: Any,
    best_plan: Any,
    steps: int,
) -> None:
    """``steps`` steps; all arrays are updated in place, ``number`` holds the best value and the temperature."""
    m, n = len(load), len(place)
    group, index = np.empty(size, np.int64), np.full(m, -1, np.int64)
    over, job, regret = np.empty(m, np.int64), np.empty(n, np.int64), np.empty(n)
    halves = np.empty((2, 64), np.int64)
    list_a, list_b, sorted_b = np.empty((size, half)), np.empty((size, half)), np.empty((half, size))
    total_a, total_b = np.empty(half), np.empty(half)
    charge_a, charge_b, sorted_charge = np.empty(half), np.empty(half), np.empty(half)
    origin, bucket = np.empty(half, np.int64), np.empty(half, np.int64)
    end = np.empty(_BUCKETS * _BUCKETS + 1, np.int64)
    noise = 1e-3 * np.sqrt(number[1])  # breaks ties between equal regrets
    base, least, spread = np.empty(size), np.empty(size), np.empty(size)
    for _ in range(steps):
        number[1] *= ratio
        heat = number[1]
        late = 0
        for i in range(m):
            if load[i] > target + tolerance:
                over[late] = i
                late += 1
        if late == 0:
            return
        _pick_group(start, machine, first, slot, count, over[:late], size, state, group, index)
        a, b = _split(
            start, machine, costs, first, slot, count, group, size, index, half, noise, state, job, regret, halves
        )
        energy = 0.0
        for x in range(size):
            base[x] = load[group[x]] - target
            if base[x] > 0:
                energy += base[x] * base[x]
        for h in range(2):
            for s in range(a if h == 0 else b):
                j = halves[h, s]
                base[index[place[j]]] -= current[j]
        size_a = _list_placements(start, machine, needs, costs, halves[0], a, index, size, list_a, total_a, charge_a)
        size_b = _list_placements(start, machine, needs, costs, halves[1], b, index, size, list_b, total_b, charge_b)
        base_total = 0.0
        for x in range(size):
            base_total += base[x]
            for e in range(size_a):
                list_a[x, e] += base[x]
        # Sort the second half into a square of buckets over the two loads that differ most.
        p, q, wide_p, wide_q = 0, 0, -1.0, -1.0
        for x in range(size):
            low, high = np.inf, -np.inf
            for e in range(size_b):
                low = min(low, list_b[x, e])
                high = max(high, list_b[x, e])
            least[x], spread[x] = low, high - low
            if spread[x] > wide_p:
                q, wide_q = p, wide_p
                p, wide_p = x, spread[x]
            elif spread[x] > wide_q:
                q, wide_q = x, spread[x]
        wide_q = spread[q]
        side = 1
        while side < _BUCKETS and 2 * side * side < size_b:
            side *= 2
        per_p, per_q = (side - 0.5) / max(wide_p, 1e-12), (side - 0.5) / max(wide_q, 1e-12)
        end[: side * side + 1] = 0
        least_total = np.inf
        for e in range(size_b):
            cell = int((list_b[p, e] - least[p]) * per_p) * side + int((list_b[q, e] - least[q]) * per_q)
            bucket[e] = cell
            end[cell + 1] += 1
            least_total = min(least_total, total_b[e])
        for cell in range(side * side):
            end[cell + 1] += end[cell]
        for e in range(size_b):
            r = end[bucket[e]]
            end[bucket[e]] += 1  # from the start of the bucket it becomes its end
            origin[r], sorted_charge[r] = e, charge_b[e]
            for x in range(size):
                sorted_b[r, x] = list_b[x, e]
        # No load may be so high that its overload alone exceeds the limit, so none of the others can be so low that the
        # total would fall below the least one.
        limit = energy - heat * np.log(_unit(state) + 1e-300) + tolerance
        reach = np.sqrt(limit)
        chosen, chosen_a, chosen_b, weighed = np.inf, -1, -1, 0
        e = _below(state, size_a)
        for _ in range(size_a):
            e = e + 1 if e + 1 < size_a else 0
            if weighed > checks and chosen_a >= 0:
                break
            floor = base_total + total_a[e] + least_total - (size - 1) * reach
            low_p, high_p = floor - list_a[p, e] - least[p], reach - list_a[p, e] - least[p]
            low_q, high_q = floor - list_a[q, e] - least[q], reach - list_a[q, e] - least[q]
            if low_p > high_p or high_p < 0 or low_p > wide_p or high_q < 0 or low_q > wide_q:
                continue
            from_p = int(low_p * per_p) if low_p > 0 else 0
            from_q = int(low_q * per_q) if low_q > 0 else 0
            to_p = int(high_p * per_p) if high_p < wide_p else side - 1
            to_q = int(high_q * per_q) if high_q < wide_q else side - 1
            for row in range(from_p, to_p + 1):
                cell = row * side + from_q
                for r in range(0 if cell == 0 else end[cell - 1], end[row * side + to_q]):
                    weighed += 1
                    excess = 0.0
                    for x in range(size):
                        v = list_a[x, e] + sorted_b[r, x]
                        if v > 0.0:
                            excess += v * v
                    if excess <= limit:
                        # Least (energy + heat x Gumbel noise): a draw with probabilities exp(-energy / heat).
                        gumbel = heat * np.log(-np.log(_unit(state) + 1e-300) + 1e-300)
                        value = excess + pull * (charge_a[e] + sorted_charge[r]) + gumbel
                        if value < chosen:
                            chosen, chosen_a, chosen_b = value, e, origin[r]
        if chosen_a >= 0:
            _carry_out(
                start, machine, needs, halves[0], a, chosen_a, index, first, slot, count, position, place, current
            )
            _carry_out(
                start, machine, needs, halves[1], b, chosen_b, index, first, slot, count, position, place, current
            )
            for x in range(size):
                i = group[x]
                load[i] = ready[i]
                for s in range(first[i], first[i] + count[i]):
                    load[i] += current[slot[s]]
            highest = load.max()
            if highest < number[0] - tolerance:
                number[0] = highest
                best_plan[:] = place
        for x in range(size):
            index[group[x]] = -1
