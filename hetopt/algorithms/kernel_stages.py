"""Time a choice of ways for kernels with their copies, by stages: write, compute, read; and search over ways and priorities.

A *way* of a kernel is a device, or two devices with a share for each. Given the ways, what is copied is known, and stages are
timed one after the other: of those that can be timed next, the one that starts first (ties by key), or the one of least key.
A kernel takes one of its device's queues with its first stage and gives it back with its last. Engines, slots and queues serve in
the order in which stages are timed. No guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.draws import uniform
from hetopt.algorithms.jit import njit

__all__ = ["Kernels", "Timed", "anneal", "timed"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CHUNK = 400_000  # parts looked at between two questions whether to stop, about 0.1 seconds


class Kernels(NamedTuple):
    """``n`` kernels on ``m`` devices.

    Attributes
    ----------
    first, one, two, share
        (n + 1,), (ways,): ways of kernel v are ``first[v]:first[v + 1]``; devices (``two`` -1 for none), share of the first.
    time
        (n, m) seconds of a whole kernel.
    pred_start, pred, pred_data, succ_start, succ, succ_data
        Edges as rows of predecessors and of successors, with their bytes.
    given, wanted
        (n,) bytes from and to the host besides those of edges.
    down, up
        (m, 2) seconds, and seconds a byte, from and to the host; ``host`` (m,) devices that copy nothing.
    engine
        (m, 2) number of the copy engine of each direction; ``slots``, ``queues`` (m,).
    release, free
        (n,), (m,).
    """

    first: Ints
    one: Ints
    two: Ints
    share: Floats
    time: Floats
    pred_start: Ints
    pred: Ints
    pred_data: Floats
    succ_start: Ints
    succ: Ints
    succ_data: Floats
    given: Floats
    wanted: Floats
    down: Floats
    up: Floats
    host: NDArray[np.bool_]
    engine: Ints
    slots: Ints
    queues: Ints
    release: Floats
    free: Floats


class Timed(NamedTuple):
    """Ways (n,), seconds and starts of two parts a kernel (2 n, 3); ``end`` is the last moment, ``inf`` where it got stuck."""

    way: Ints
    seconds: Floats
    start: Floats
    end: float


def timed(data: Kernels, way: Ints, key: Floats, greedy: bool) -> Timed:
    """Time the ways (n,) by ``key`` (2 n, 3), one a stage of each part; O(parts^2)."""
    seconds = _seconds(way, *data[:16])
    start, end = _timed(way, key, greedy, seconds, *data)
    return Timed(way, seconds, start, float(end))


def anneal(
    data: Kernels,
    found: Timed,
    rank: Floats,
    *,
    seed: int = 0,
    steps: int = 3000,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Timed], object] = lambda found: None,
) -> Timed:
    """Best ways found from ``found`` on by changing one or two kernels' ways and ranks (n,); each better one is reported."""
    n = len(data.first) - 1
    state = np.array([(seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) & (2**64 - 1)], np.uint64)
    way, order, value, best = found.way.copy(), rank.copy(), np.array([found.end]), found
    chunk, at = max(1, _CHUNK // (12 * n * n)), 0
    while at < steps and not should_stop():
        until = min(steps, at + chunk)
        better, where, ranks = _anneal(state, at, until, steps, found.end, way, order, value, best.end, *data)
        if better < best.end:
            best = timed(data, where, _keys(ranks), True)
            report(best)
        at = until
    return best


def _keys(rank: Floats) -> Floats:
    """(2 n, 3) stages' keys of ranks (n,): larger ranks first."""
    return np.repeat(-rank, 6).reshape(-1, 3)


@njit
def _crosses(u: int, v: int, way: Any, one: Any, two: Any) -> bool:
    """Whether what v reads of u passes through the host."""
    return bool(two[way[u]] >= 0 or two[way[v]] >= 0 or one[way[u]] != one[way[v]])


@njit
def _seconds(way: Any, first: Any, one: Any, two: Any, share: Any, time: Any, pred_start: Any, pred: Any, pred_data: Any,
             succ_start: Any, succ: Any, succ_data: Any, given: Any, wanted: Any, down: Any, up: Any,
             host: Any) -> Any:  # fmt: skip
    n = len(way)
    seconds = np.zeros((2 * n, 3))
    for v in range(n):
        away, many, most, asked = 0.0, 0, 0.0, 0
        for j in range(pred_start[v], pred_start[v + 1]):
            if _crosses(pred[j], v, way, one, two):
                away += pred_data[j]
                many += 1
        for j in range(succ_start[v], succ_start[v + 1]):
            if _crosses(v, succ[j], way, one, two):
                most = max(most, succ_data[j])
                asked += 1
        for k in range(2):
            p = one[way[v]] if k == 0 else two[way[v]]
            if p < 0:
                continue
            part = share[way[v]] if k == 0 else 1.0 - share[way[v]]
            seconds[2 * v + k, 1] = part * time[v, p]
            if not host[p] and (many > 0 or given[v] > 0.0):
                seconds[2 * v + k, 0] = down[p, 0] + part * (given[v] + away) * down[p, 1]
            if not host[p] and (asked > 0 or wanted[v] > 0.0):
                seconds[2 * v + k, 2] = up[p, 0] + part * (wanted[v] + most) * up[p, 1]
    return seconds


@njit
def _timed(way: Any, key: Any, greedy: bool, seconds: Any, first: Any, one: Any, two: Any, share: Any, time: Any,
           pred_start: Any, pred: Any, pred_data: Any, succ_start: Any, succ: Any, succ_data: Any, given: Any, wanted: Any,
           down: Any, up: Any, host: Any, engine: Any, slots: Any, queues: Any, release: Any, free: Any) -> Any:  # fmt: skip
    n, m = time.shape
    start, stage = np.zeros((2 * n, 3)), np.full(2 * n, 3, np.int64)
    device, mine = np.full(2 * n, -1, np.int64), np.zeros(2 * n, np.int64)
    busy = np.zeros(2 * m)
    slot, queue = np.full((m, slots.max()), np.inf), np.full((m, queues.max()), np.inf)
    for p in range(m):
        slot[p, : slots[p]] = free[p]
        queue[p, : queues[p]] = free[p]
    left = 0
    for v in range(n):
        for k in range(2):
            p = one[way[v]] if k == 0 else two[way[v]]
            if p >= 0:
                device[2 * v + k], stage[2 * v + k] = p, 0
                left += 1
    while left > 0:
        chosen, moment, best = -1, np.inf, np.inf
        for i in range(2 * n):
            if stage[i] == 3:
                continue
            v, p, s = i // 2, device[i], stage[i]
            alone = s == 0 and seconds[i, 0] == 0.0  # nothing to write: it begins by computing
            ready = release[v] if s == 0 else start[i, s - 1] + seconds[i, s - 1]
            open_ = True
            for j in range(pred_start[v], pred_start[v + 1] if s < 2 else pred_start[v]):
                u = pred[j]
                crosses = _crosses(u, v, way, one, two)
                for a in range(2 * u, 2 * u + 2):
                    if device[a] < 0:
                        continue
                    if crosses and s == 0:
                        open_ = open_ and stage[a] == 3
                        ready = max(ready, start[a, 2] + seconds[a, 2])
                    elif not crosses and (s == 1 or alone or greedy):
                        open_ = open_ and stage[a] >= 2
                        if s == 1 or alone:
                            ready = max(ready, start[a, 1] + seconds[a, 1])
            if not open_:
                continue
            if s == 0:
                ready = max(ready, queue[p].min())
            if s == 1 or alone:
                if seconds[i, 1] > 0.0:
                    ready = max(ready, slot[p].min())
            elif s == 0:
                ready = max(ready, busy[engine[p, 0]])
            elif s == 2 and seconds[i, 2] > 0.0:
                ready = max(ready, busy[engine[p, 1]])
            if ready == np.inf:
                continue
            now = 1 if alone else s
            one_, two_ = (ready, key[i, now]) if greedy else (key[i, now], ready)
            if chosen < 0 or one_ < moment or (one_ == moment and two_ < best):
                chosen, moment, best = i, one_, two_
        if chosen < 0:
            return start, np.inf
        i, p, s = chosen, device[chosen], stage[chosen]
        ready = moment if greedy else best
        if s == 0:
            mine[i] = queue[p].argmin()
            queue[p, mine[i]] = np.inf
            start[i, 0] = ready
            if seconds[i, 0] > 0.0:
                busy[engine[p, 0]] = ready + seconds[i, 0]
            else:
                s = 1
        if s == 1:
            start[i, 1] = ready
            if seconds[i, 1] > 0.0:
                slot[p, slot[p].argmin()] = ready + seconds[i, 1]
            if seconds[i, 2] == 0.0:
                start[i, 2] = ready + seconds[i, 1]
                s = 2
        elif s == 2:
            start[i, 2] = ready
            if seconds[i, 2] > 0.0:
                busy[engine[p, 1]] = ready + seconds[i, 2]
        stage[i] = s + 1
        if s == 2:
            queue[p, mine[i]] = start[i, 2] + seconds[i, 2]
            left -= 1
    end = 0.0
    for i in range(2 * n):
        if device[i] >= 0:
            end = max(end, start[i, 2] + seconds[i, 2])
    return start, end


@njit
def _anneal(state: Any, at: int, until: int, steps: int, scale: float, way: Any, rank: Any, value: Any, least: float,
            first: Any, one: Any, two: Any, share: Any, time: Any, pred_start: Any, pred: Any, pred_data: Any, succ_start: Any,
            succ: Any, succ_data: Any, given: Any, wanted: Any, down: Any, up: Any, host: Any, engine: Any, slots: Any,
            queues: Any, release: Any, free: Any) -> Any:  # fmt: skip
    n = len(way)
    where, ranks, span = way.copy(), rank.copy(), rank.max()
    key = np.empty((2 * n, 3))
    for step in range(at, until):
        hot = 0.05 * scale * (1e-3) ** (step / steps)
        new, order = way.copy(), rank.copy()
        for _ in range(1 + int(uniform(state) * 2)):
            v = int(uniform(state) * n)
            if uniform(state) < 0.7:
                new[v] = first[v] + int(uniform(state) * (first[v + 1] - first[v]))
            else:
                order[v] += (uniform(state) - 0.5) * 0.5 * span
        for i in range(2 * n):
            key[i, :] = -order[i // 2]
        seconds = _seconds(new, first, one, two, share, time, pred_start, pred, pred_data, succ_start, succ, succ_data, given,
                           wanted, down, up, host)  # fmt: skip
        _, end = _timed(new, key, True, seconds, first, one, two, share, time, pred_start, pred, pred_data, succ_start, succ,
                        succ_data, given, wanted, down, up, host, engine, slots, queues, release, free)  # fmt: skip
        if end <= value[0] or (hot > 0.0 and uniform(state) < np.exp((value[0] - end) / hot)):
            way[:], rank[:], value[0] = new, order, end
            if end < least:
                least, where, ranks = end, new, order
    return least, where, ranks
