"""Offloading along a sequence: shortest paths under prices of memory, and the bound they prove.

States of a task: ``(g, r)``, the accelerator g that the sequence has reached and where the task lies, on g (r = 0) or on host
r - 1. A path of states costs its tasks' seconds and transfers, and lambda_i for each byte on device i. For any lambda >= 0

    shortest path under prices  -  sum_i lambda_i M_i                                                                  (1)

is at most the seconds of every plan that fits (Lagrangian relaxation); its best value over lambda is that of the path
program's linear relaxation, because paths have integral extreme points. :func:`price` climbs it by subgradients and repairs
the paths it meets into plans. O(n s^2) a path, s = accelerators x (1 + hosts). :func:`split` makes a plan from the other side:
pieces by dynamic program, each filled by seconds saved a byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit

__all__ = ["Sequence", "price", "shortest", "split"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Sequence(NamedTuple):
    """A sequence of n tasks with s states each.

    Attributes
    ----------
    seconds
        (n, s) of each task in each state, with its copy where it is swapped; ``inf`` where it may not be.
    runs, lies
        (s,) device that computes, and device that holds the task.
    reached
        (s,) accelerator that the sequence has reached, in order; the first state of each is the one that lies on it.
    memory, output
        (n,) bytes.
    cut
        (n,) may the accelerator change behind the task?
    latency, slowness
        (d, d) seconds and seconds a byte between devices; ``inf`` where there is no link.
    capacity
        (d,) bytes, ``inf`` without a limit.
    """

    seconds: Floats
    runs: Ints
    lies: Ints
    reached: Ints
    memory: Floats
    output: Floats
    cut: NDArray[np.bool_]
    latency: Floats
    slowness: Floats
    capacity: Floats


@njit
def _shortest(cost: Any, runs: Any, reached: Any, output: Any, cut: Any, latency: Any, slowness: Any) -> Any:
    n, s = cost.shape
    best = np.full((n, s), np.inf)
    origin = np.zeros((n, s), np.int64)
    for b in range(s):
        best[0, b] = cost[0, b]
    for t in range(1, n):
        for b in range(s):
            if cost[t, b] == np.inf:
                continue
            for a in range(s):
                if reached[a] != reached[b] and (reached[a] > reached[b] or not cut[t - 1]):
                    continue
                move = 0.0
                if runs[a] != runs[b]:
                    move = latency[runs[a], runs[b]] + output[t - 1] * slowness[runs[a], runs[b]]
                value = best[t - 1, a] + move
                if value < best[t, b] - cost[t, b]:
                    best[t, b] = value + cost[t, b]
                    origin[t, b] = a
    return best, origin


def shortest(line: Sequence, prices: Floats) -> tuple[float, Ints]:
    """Least cost of a path under (d,) prices a byte, and the (n,) states of such a path; ``inf`` when there is none."""
    cost = line.seconds + line.memory[:, None] * prices[line.lies][None, :]
    best, origin = _shortest(cost, line.runs, line.reached, line.output, line.cut, line.latency, line.slowness)
    n = len(cost)
    state = np.zeros(n, np.int64)
    state[-1] = int(best[-1].argmin())
    for t in range(n - 1, 0, -1):
        state[t - 1] = origin[t, state[t]]
    return float(best[-1].min()), state


def price(
    line: Sequence,
    should_stop: Callable[[], bool],
    on_plan: Callable[[Ints], float | None],
    on_prices: Callable[[Floats], float],
    rounds: int = 300,
) -> None:
    """Climb (1) by subgradients; reports states (n,) of paths, as they are and repaired, and the prices that raise the bound.

    ``on_plan`` returns the value of a plan when it fits, else None; ``on_prices`` the bound that the prices prove.
    """
    limited = np.flatnonzero(np.isfinite(line.capacity))
    prices = np.zeros(len(line.capacity))
    bound, value, step, idle = -np.inf, np.inf, 1.0, 0
    for _ in range(rounds):
        if should_stop():
            return
        total, state = shortest(line, prices)
        if not np.isfinite(total):
            return
        found = total - float(prices[limited] @ line.capacity[limited])
        if found > bound + 1e-9 * abs(found):
            bound, idle = max(bound, on_prices(prices.copy())), 0
        else:
            idle += 1
            if idle % 5 == 0:
                step /= 2
        for one in (state, _repaired(line, state)):
            if one is not None:
                met = on_plan(one)
                value = value if met is None else min(value, met)
        used = np.bincount(line.lies[state], weights=line.memory, minlength=len(prices))
        over = np.zeros_like(prices)
        over[limited] = used[limited] - line.capacity[limited]
        over[(prices <= 0) & (over < 0)] = 0.0
        if not over.any() or step < 1e-4:
            return
        aim = value if np.isfinite(value) else abs(found) * 1.1 + 1e-300
        prices = np.maximum(prices + step * max(aim - found, 1e-6 * abs(found)) / float(over @ over) * over, 0.0)


def _repaired(line: Sequence, state: Ints) -> Ints | None:
    """Tasks moved from overfull accelerators to hosts, cheapest seconds a byte first, and back where there is room."""
    state = state.copy()
    n, s = line.seconds.shape
    used = np.bincount(line.lies[state], weights=line.memory, minlength=len(line.capacity)).astype(np.float64)
    hosts = [[b for b in range(s) if line.reached[b] == line.reached[a] and b != a] for a in range(s)]
    for out in (True, False):
        moves = []
        for t in range(n):
            a = int(state[t])
            for b in hosts[a]:
                held, other = int(line.lies[a]), int(line.lies[b])
                inward = line.reached[b] == other
                if inward == out or not np.isfinite(line.seconds[t, b]):
                    continue
                worth = (line.seconds[t, b] - line.seconds[t, a]) / max(line.memory[t], 1.0)
                moves.append((float(worth), t, b, held, other))
        for worth, t, b, held, other in sorted(moves):
            need = line.memory[t]
            if line.lies[state[t]] != held or used[other] + need > line.capacity[other]:
                continue
            if used[held] > line.capacity[held] if out else worth < 0:
                used[held] -= need
                used[other] += need
                state[t] = b
    return state if (used <= line.capacity).all() else None


@njit
def _savings(gain: Any, memory: Any, order: Any, room: Any, bounds: Any) -> Any:
    """(g, pieces, pieces) seconds saved when tasks from one boundary to another are offered to an accelerator; greedy."""
    g_count, n = order.shape
    m = len(bounds)
    saved = np.full((g_count, m, m), -np.inf)
    for g in range(g_count):
        for i in range(m):
            for j in range(i, m):
                left, total = room[g], 0.0
                for k in range(n):
                    t = order[g, k]
                    if t < bounds[i] or t >= bounds[j]:
                        continue
                    worth = gain[t, g]
                    if worth <= 0.0:
                        break
                    if memory[t] <= left:
                        left -= memory[t]
                        total += worth
                    elif worth > 1e299:  # it has nowhere else to be
                        total = -np.inf
                        break
                saved[g, i, j] = total
    return saved


def split(line: Sequence, most: int = 150) -> Ints | None:
    """States (n,) of a plan by pieces: for each piece and accelerator the tasks that save most seconds a byte, as many as fit.

    Transfers and other hosts than each task's fastest are not looked at; equal tasks are taken in order, so that few hand over.
    At most ``most`` boundaries are tried. None when a task that no host may hold fits nowhere.
    """
    n = len(line.memory)
    own = [int(b) for b in np.unique(line.reached, return_index=True)[1]]  # an accelerator's first state is: lies there
    rest = np.array([b for b in range(len(line.lies)) if b not in own], np.int64)
    away = line.seconds[:, rest].min(axis=1)
    here = line.seconds[:, own]
    with np.errstate(invalid="ignore"):  # neither here nor on a host
        gain = np.where(np.isfinite(away)[:, None], away[:, None] - here, 1e200)
    gain = np.where(np.isfinite(here), gain, -np.inf)
    room = np.array([line.capacity[line.lies[b]] for b in own])
    swapped = bool((line.runs[rest] != line.lies[rest]).any())
    if swapped and line.memory.sum() > room.sum():
        room[0] -= line.memory.max()
    density = np.where(gain > -np.inf, gain / np.maximum(line.memory, 1.0)[:, None], -np.inf)
    order = np.array([np.lexsort((np.arange(n), -np.round(density[:, g], 15))) for g in range(len(own))])
    bounds = np.array([0, *(np.flatnonzero(line.cut[:-1]) + 1).tolist(), n], np.int64)
    if len(bounds) > most:
        bounds = bounds[np.unique(np.linspace(0, len(bounds) - 1, most).astype(np.int64))]
    saved = _savings(gain, line.memory, order, room, bounds)
    best, origin = saved[0, 0], []
    for g in range(1, len(own)):
        table = best[:, None] + saved[g]
        origin.append(table.argmax(axis=0))
        best = table.max(axis=0)
    if not best[-1] > -np.inf:
        return None
    ends = [len(bounds) - 1]
    for back in reversed(origin):
        ends.append(int(back[ends[-1]]))
    ends = [0, *reversed(ends)]
    state = np.empty(n, np.int64)
    for g, b in enumerate(own):
        piece = np.arange(bounds[ends[g]], bounds[ends[g + 1]])
        mine = [c for c in rest.tolist() if line.reached[c] == line.reached[b]]
        state[piece] = np.array(mine, np.int64)[line.seconds[np.ix_(piece, mine)].argmin(axis=1)]
        left = room[g]
        for t in order[g].tolist():
            if piece.size and piece[0] <= t <= piece[-1] and gain[t, g] > 0 and line.memory[t] <= left:
                left -= line.memory[t]
                state[t] = b
    return state
