"""Kernels of the program over ideals for stages with tensor and data degrees: walk all stages that end a set of later ones.

What it is for: :mod:`hetopt.algorithms.hybrid_program`, which explains the arrays. All numbers are integers (ticks of time, units
of memory), so that the order of additions does not matter.
"""

from __future__ import annotations

import numpy as np

from hetopt.algorithms.jit import njit

__all__ = ["FAR", "MOST_CHOICES", "expand"]

FAR = 2**31 - 1
MOST_CHOICES = 4096  # choices of configurations kept side by side before a stage is waved through
SECONDS, CROSSING, RESYNC, ACTIVATION, MEMORY, FAST_ACTIVATION, FAST_MEMORY, NONE, MIXED = range(9)
WIDTH = 9


@njit
def expand(first, budget, limit, lattice, rest, costs, options, shape, least, back, back_option, scratch):  # type: ignore[no-untyped-def]
    """Walk all stages before the ideals from ``first`` on, until ``budget`` steps are done; returns the first not walked.

    ``least[j, s]`` becomes the least number of devices for the classes of ideal j, their stages' data degrees summing to s, each
    stage within ``limit`` ticks.
    """
    cover_ptr, cover, cover_class = lattice
    devices, capacity = shape
    stamp, inside, stack, sums, drops, count = scratch
    n_ideals, n_sums = least.shape
    tensor_of, data_of, width_of = options
    inc_ptr, inc_node, _, low, low_cross = costs[:5]
    n_tensor = low.shape[0]
    steps = 0
    entry = first
    while entry < n_ideals - 1 and steps < budget:
        found = 0
        fewest = FAR
        for s in range(n_sums):
            if least[entry, s] < fewest:
                fewest = least[entry, s]
                drops[found] = s
                found += 1
        steps += 1
        if found == 0 or rest[entry] > (devices - fewest) * limit:
            entry += 1
            continue
        depth = 0
        stack[0, 0] = cover_ptr[entry]
        stack[0, 1] = cover_ptr[entry + 1]
        for k in range(n_tensor):
            for c in range(WIDTH):
                sums[0, k, c] = 0
        while depth >= 0:
            p = stack[depth, 0]
            if p >= stack[depth, 1]:
                if depth > 0:
                    inside[stack[depth, 2]] = 0
                depth -= 1
                continue
            stack[depth, 0] = p + 1
            j = cover[p]
            if stamp[j] == entry + 1:
                continue
            stamp[j] = entry + 1
            steps += 1
            v = cover_class[p]
            depth += 1
            stack[depth, 2] = v
            inside[v] = 1
            for k in range(n_tensor):
                for c in range(WIDTH):
                    sums[depth, k, c] = sums[depth - 1, k, c] + low[k, v, c]
                for q in range(inc_ptr[v], inc_ptr[v + 1]):
                    # an edge within the stage is paid for at neither of its ends
                    if inside[inc_node[q, 0]]:
                        sums[depth, k, CROSSING] -= low_cross[k, inc_node[q, 1]]
                    else:
                        sums[depth, k, CROSSING] += low_cross[k, q]
            alive = False
            for o in range(len(data_of)):
                k = tensor_of[o]
                d = data_of[o]
                here = sums[depth, k]
                if here[NONE] > 0 or fewest + width_of[o] > devices:
                    continue
                work = here[SECONDS] + (d - 1) * here[RESYNC]
                if work > d * limit or here[ACTIVATION] + here[MEMORY] > capacity:
                    continue
                alive = True
                if work + here[CROSSING] > d * limit:
                    continue
                for i in range(found):
                    s = drops[i] + d
                    if s >= n_sums:
                        break
                    used = least[entry, drops[i]] + width_of[o]
                    if used >= least[j, s] or used > devices or rest[j] > (devices - used) * limit:
                        continue
                    flight = (s + d - 1) // d
                    if here[ACTIVATION] * flight + here[MEMORY] > capacity:
                        break
                    if here[MIXED] > 0 or here[FAST_ACTIVATION] * flight + here[FAST_MEMORY] > capacity:
                        steps += depth
                        if not _fits(stack, depth, inside, k, d, flight, d * limit, capacity, costs, count):
                            break
                    least[j, s] = used
                    back[j, s] = entry
                    back_option[j, s] = o
            if alive:
                stack[depth, 0] = cover_ptr[j]
                stack[depth, 1] = cover_ptr[j + 1]
            else:
                inside[v] = 0
                depth -= 1
        entry += 1
    return entry


@njit
def _fits(stack, depth, inside, k, d, flight, budget, capacity, costs, count):  # type: ignore[no-untyped-def]
    """Whether the stage's classes have configurations of at most ``budget`` ticks that fit the memory: exact, but see count.

    A knapsack with a few choices a class: from the cheapest ones on, memory must be saved without spending the slack.
    """
    begin, price, room, spent, used = _choices(stack, depth, inside, k, d, flight, costs)
    slack, need = budget - spent, used - capacity
    if slack < 0:
        return False
    if need <= 0:
        return True
    most = np.zeros(depth, np.int64)
    ratio, rated = np.zeros(depth, np.float64), np.zeros(depth, np.int64)
    for i in range(depth):
        for b in range(begin[i], begin[i + 1]):
            if room[b] > 0:
                most[i] = max(most[i], room[b])
                rate = room[b] / max(price[b], 1e-9)
                if rate > ratio[i]:
                    ratio[i], rated[i] = rate, b
    order = np.argsort(-ratio, kind="mergesort")
    behind = np.zeros(depth + 1, np.int64)
    for i in range(depth - 1, -1, -1):
        behind[i] = behind[i + 1] + most[order[i]]
    if behind[0] < need:
        return False
    told = _by_rates(order, most, ratio, rated, price, room, slack, need)
    return told > 0 or (told == 0 and _by_merging(order, begin, most, ratio, behind, price, room, slack, need, count))


@njit
def _choices(stack, depth, inside, k, d, flight, costs):  # type: ignore[no-untyped-def]
    """Configurations of the stage's classes: where each class's begin, what one costs more than the class's cheapest and how
    many bytes it saves; and what the cheapest ones cost and need together."""
    inc_ptr, inc_node, alt_ptr, low, _, alt, cross_ptr, cross = costs
    n = low.shape[1]
    price = np.zeros(len(alt), np.int64)
    room = np.zeros(len(alt), np.int64)
    begin = np.zeros(depth + 1, np.int64)
    spent, used = 0, 0
    at = 0
    for i in range(depth):
        v = stack[i + 1, 2]
        begin[i] = at
        cheapest = -1
        for a in range(alt_ptr[k * n + v], alt_ptr[k * n + v + 1]):
            cost = alt[a, SECONDS] + (d - 1) * alt[a, RESYNC]
            for q in range(inc_ptr[v], inc_ptr[v + 1]):
                if not inside[inc_node[q, 0]]:
                    cost += cross[cross_ptr[a] + q - inc_ptr[v]]
            price[at] = cost
            room[at] = alt[a, ACTIVATION] * flight + alt[a, MEMORY]
            if cheapest < 0 or (cost, room[at]) < (price[cheapest], room[cheapest]):
                cheapest = at
            at += 1
        cost, size = price[cheapest], room[cheapest]
        spent += cost
        used += size
        for b in range(begin[i], at):
            price[b] -= cost
            room[b] = size - room[b]
    begin[depth] = at
    return begin, price, room, spent, used


@njit
def _by_rates(order, most, ratio, rated, price, room, slack, need):  # type: ignore[no-untyped-def]
    """1 when whole choices by bytes saved a tick do, -1 when not even parts of them would, 0 when neither tells."""
    got, left, could, purse = 0, slack, 0.0, float(slack)
    for item in order:
        if most[item] == 0:
            break
        if price[rated[item]] <= left:
            got += room[rated[item]]
            left -= price[rated[item]]
            if got >= need:
                return 1
        part = min(float(most[item]), purse * ratio[item])
        could += part
        purse -= part / ratio[item]
    return -1 if could * (1 + 1e-9) + 1 < need else 0


@njit
def _by_merging(order, begin, most, ratio, behind, price, room, slack, need, count):  # type: ignore[no-untyped-def]
    """Dynamic program over the classes: pairs of ticks spent and bytes saved, undominated, that can still save enough.

    With more than ``MOST_CHOICES`` of them at a time the answer is yes, and ``count`` tells how often that was.
    """
    spent = np.empty(MOST_CHOICES, np.int64)
    saved = np.empty(MOST_CHOICES, np.int64)
    next_spent = np.empty(MOST_CHOICES, np.int64)
    next_saved = np.empty(MOST_CHOICES, np.int64)
    spent[0], saved[0] = 0, 0
    kept = 1
    for i in range(len(order)):
        item = order[i]
        if most[item] == 0:
            return False
        total = 0
        heads = np.zeros(begin[item + 1] - begin[item], np.int64)
        highest = -1
        while True:  # merge by what is spent; a choice is kept when it saves more than all cheaper ones
            best = -1
            for b in range(len(heads)):
                if heads[b] < kept and room[begin[item] + b] >= 0:
                    c = begin[item] + b
                    if best < 0:
                        best = b
                    else:
                        e = begin[item] + best
                        mine = spent[heads[b]] + price[c]
                        other = spent[heads[best]] + price[e]
                        more = saved[heads[b]] + room[c] > saved[heads[best]] + room[e]
                        if mine < other or (mine == other and more):
                            best = b
            if best < 0:
                break
            c = begin[item] + best
            pay, gain = spent[heads[best]] + price[c], saved[heads[best]] + room[c]
            heads[best] += 1
            if pay > slack or gain <= highest:
                continue
            if gain >= need:
                return True
            highest = gain
            if gain + behind[i + 1] < need:
                continue
            following = ratio[order[i + 1]] if i + 1 < len(order) else 0.0
            if gain + (slack - pay) * following * (1 + 1e-9) + 1 < need:
                continue
            if total == MOST_CHOICES:
                count[0] += 1
                return True
            next_spent[total], next_saved[total] = pay, gain
            total += 1
        if total == 0:
            return False
        kept = total
        spent[:kept] = next_spent[:kept]
        saved[:kept] = next_saved[:kept]
    return False
