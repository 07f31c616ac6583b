"""Dynamic programs that cut a sequence of layers into stages: can it be done within limits, and what is the least sum.

Layers 0..n-1 have boundaries 0..n; boundary p is before layer p. A stage (q, p) holds the layers q..p-1. Which stages a device
(or a number of equal devices) may hold is a *window*: for each end p the starts ``low[p] <= q < p``; both programs need no more
than that ``low`` never falls as p rises, which sums of non-negative amounts per layer and layers that cannot run there keep.
Times are integer ticks, so that sums are exact; rounding seconds down to ticks, which makes values bounds, is the caller's
business. :mod:`hetopt.algorithms.chain_states` says in which order devices may be used.

Complexity: O(arcs * n) for either program. Guarantee: exact in ticks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.chain_states import States
from hetopt.algorithms.jit import njit

__all__ = [
    "FAR",
    "Limits",
    "Stage",
    "bisect",
    "ceiling_windows",
    "cheapest",
    "exact_windows",
    "floor_windows",
    "least_bottleneck",
    "reach",
    "widest_balance",
]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
FAR = 2**61  # ticks that no sum reaches: a transfer that cannot be made, a boundary that cannot be reached
_CHUNK = 20_000_000  # steps of a kernel between two looks at the clock, well below 0.2 s


class Stage(NamedTuple):
    """A stage of a plan: the arc that adds it, the state it leads to, its first boundary and the one behind it."""

    arc: int
    state: int
    start: int
    end: int


class Limits(NamedTuple):
    """What bounds a stage and a transfer, in ticks.

    Attributes
    ----------
    owner, copies
        (w,) type whose prefix sums a window uses, and number of equal devices that share its stage.
    prefix
        (t, n + 1) ticks of the layers before each boundary, by type; a layer that cannot run there adds nothing.
    low
        (w, n + 1) least start for each end, from memory and eligibility.
    transfer
        (c, n + 1) ticks to pass each boundary, by class of link; 0 at boundary 0, FAR where there is no way.
    cut
        (n + 1,) whether a stage may end at a boundary; True at n.
    """

    owner: Ints
    copies: Ints
    prefix: Ints
    low: Ints
    transfer: Ints
    cut: Bools


def exact_windows(
    values: NDArray[np.float64], limit: float | Fraction, more: NDArray[np.float64] | None = None, times: int = 0
) -> Ints:
    """(n + 1,) least start q for each end p with ``values[q:p] + times * more[q:p]`` adding up to at most ``limit``; p for none.

    Nothing is rounded: integers below 2^53 are compared as they are, decimals as the multiples of a power of two that they are.
    """
    n = len(values)
    if limit == math.inf:
        return np.zeros(n + 1, np.int64)
    more = np.zeros(n) if more is None or not times else more
    whole = bool((values == np.floor(values)).all() and (more == np.floor(more)).all())
    if whole and float(values.sum()) + times * float(more.sum()) < 2.0**53:
        sums = np.concatenate([np.zeros(1), np.cumsum(values + times * more)])
        low = np.searchsorted(sums, sums - float(math.floor(limit)), side="left")
        return np.minimum(low, np.arange(n + 1)).astype(np.int64)
    ratios = [value.as_integer_ratio() for value in (*values.tolist(), *more.tolist(), limit)]
    unit = max(ratio[1] for ratio in ratios)
    *parts, most = [above * (unit // below) for above, below in ratios]
    total = [0, *accumulate(one + times * other for one, other in zip(parts[:n], parts[n:], strict=True))]
    return np.array([min(p, bisect_left(total, total[p] - most)) for p in range(n + 1)], np.int64)


@njit
def ceiling_windows(
    prefix: Ints, owner: Ints, copies: Ints, low: Ints, limit: int
) -> Ints:  # pragma: no cover - compiled
    """(w, n + 1) least start such that no device of the stage is busy for more than ``limit`` ticks; ``low`` or more."""
    out = low.copy()
    n = low.shape[1] - 1
    for w in range(low.shape[0]):
        row, most = prefix[owner[w]], limit * copies[w]
        q = 0
        for p in range(n + 1):
            while q < p and row[p] - row[q] > most:
                q += 1
            if q > out[w, p]:
                out[w, p] = q
    return out


@njit
def floor_windows(prefix: Ints, owner: Ints, copies: Ints, least: int) -> Ints:  # pragma: no cover - compiled
    """(w, n + 1) greatest start such that each device of the stage is busy for at least ``least`` ticks; -1 for none."""
    w_count, n = len(owner), prefix.shape[1] - 1
    out = np.full((w_count, n + 1), -1, np.int64)
    for w in range(w_count):
        row, enough = prefix[owner[w]], least * copies[w]
        q = 0
        for p in range(1, n + 1):
            while q < p and row[p] - row[q] >= enough:
                q += 1
            out[w, p] = q - 1
    return out


@njit
def _reach(
    begin: int,
    end: int,
    first: Ints,
    tail: Ints,
    window: Ints,
    link: Ints,
    skip: Ints,
    low: Ints,
    high: Ints,
    passes: Bools,
    cut: Bools,
    out: Bools,
) -> None:  # pragma: no cover - compiled
    n = low.shape[1] - 1
    for s in range(begin, end):
        row = out[s]
        if skip[s] >= 0:
            row[:] = out[skip[s]]
        for a in range(first[s], first[s + 1]):
            start, w, c = out[tail[a]], window[a], link[a]
            latest, q = -1, 0  # latest usable start up to high[p]
            for p in range(1, n + 1):
                while q <= min(high[w, p], p - 1):
                    if start[q] and passes[c, q]:
                        latest = q
                    q += 1
                if latest >= low[w, p] and latest >= 0 and cut[p]:
                    row[p] = True


def reach(
    states: States, low: Ints, high: Ints, passes: Bools, cut: Bools, should_stop: Callable[[], bool]
) -> Bools | None:
    """(s, n + 1) whether a state can be at a boundary with every stage inside its window; None when told to stop.

    ``low`` and ``high`` (w, n + 1) are the least and greatest start of a stage for each end, ``passes`` (c, n + 1) whether a
    boundary can be passed over a class of link, ``cut`` (n + 1,) whether a stage may end there.
    """
    s, n = len(states.skip), low.shape[1] - 1
    out = np.zeros((s, n + 1), bool)
    out[0, 0] = True
    for begin, end in _chunks(states, n):
        if should_stop():
            return None
        _reach(begin, end, *states[:5], low, high, passes, cut, out)
    return out


def reached_plan(states: States, low: Ints, high: Ints, passes: Bools, reached: Bools) -> list[Stage] | None:
    """A plan behind a table of :func:`reach`, stage by stage; None when the last boundary cannot be reached."""
    n = low.shape[1] - 1
    ends = np.flatnonzero(states.final & reached[:, n])
    if not ends.size:
        return None
    s, p, stages = int(ends[0]), n, []
    while p:
        if states.skip[s] >= 0 and reached[states.skip[s], p]:
            s = int(states.skip[s])
            continue
        for a in range(int(states.first[s]), int(states.first[s + 1])):
            w, u = int(states.window[a]), int(states.tail[a])
            begin, end = int(low[w, p]), min(int(high[w, p]), p - 1) + 1
            usable = np.flatnonzero(reached[u, begin:end] & passes[states.link[a], begin:end])
            if usable.size:
                stages.append(Stage(a, s, begin + int(usable[-1]), p))
                s, p = u, begin + int(usable[-1])
                break
    return stages[::-1]


@njit
def _cheapest(
    begin: int,
    end: int,
    first: Ints,
    tail: Ints,
    window: Ints,
    link: Ints,
    skip: Ints,
    low: Ints,
    spent: Ints,
    fee: Ints,
    transfer: Ints,
    cut: Bools,
    out: Ints,
) -> None:  # pragma: no cover - compiled
    n = low.shape[1] - 1
    start = np.empty(n + 1, np.int64)
    value = np.empty(n + 1, np.int64)
    for s in range(begin, end):
        row = out[s]
        if skip[s] >= 0:
            row[:] = out[skip[s]]
        for a in range(first[s], first[s + 1]):
            before, w, c = out[tail[a]], window[a], link[a]
            head, size = 0, 0  # a queue of starts whose values rise: the least one inside the window is at its head
            for p in range(1, n + 1):
                q = p - 1
                if before[q] < FAR and transfer[c, q] < FAR:
                    worth = before[q] + transfer[c, q] - spent[w, q]
                    while size > head and value[size - 1] >= worth:
                        size -= 1
                    start[size], value[size] = q, worth
                    size += 1
                while head < size and start[head] < low[w, p]:
                    head += 1
                if head < size and cut[p]:
                    total = value[head] + spent[w, p] + fee[w]
                    if total < row[p]:
                        row[p] = total


def cheapest(
    states: States,
    low: Ints,
    spent: Ints,
    fee: Ints,
    transfer: Ints,
    cut: Bools,
    should_stop: Callable[[], bool],
) -> tuple[int, list[Stage]] | None:
    """Least sum of stages and transfers, and a plan that has it; ``(FAR, [])`` when there is none, None when told to stop.

    A stage (q, p) of window w costs ``fee[w] + spent[w, p] - spent[w, q]``, passing boundary q over a link of class c costs
    ``transfer[c, q]``. Shapes: ``low``, ``spent`` (w, n + 1), ``fee`` (w,), ``transfer`` (c, n + 1), ``cut`` (n + 1,).
    """
    s, n = len(states.skip), low.shape[1] - 1
    best = np.full((s, n + 1), FAR, np.int64)
    best[0, 0] = 0
    for begin, end in _chunks(states, n):
        if should_stop():
            return None
        _cheapest(begin, end, *states[:5], low, spent, fee, transfer, cut, best)
    value = int(np.where(states.final, best[:, n], FAR).min())
    if value >= FAR:
        return FAR, []
    s, p, stages = int(np.argmax(states.final & (best[:, n] == value))), n, []
    while p:
        if states.skip[s] >= 0 and best[states.skip[s], p] == best[s, p]:
            s = int(states.skip[s])
            continue
        for a in range(int(states.first[s]), int(states.first[s + 1])):
            w, u, c = int(states.window[a]), int(states.tail[a]), int(states.link[a])
            begin = int(low[w, p])
            before, way = best[u, begin:p], transfer[c, begin:p]
            sums = np.where((before < FAR) & (way < FAR), before + way + spent[w, p] - spent[w, begin:p] + fee[w], FAR)
            usable = np.flatnonzero(sums == best[s, p])
            if usable.size:
                stages.append(Stage(a, s, begin + int(usable[-1]), p))
                s, p = u, begin + int(usable[-1])
                break
    return value, stages[::-1]


def bisect(
    refuted: int, known: int, probe: Callable[[int], int | None], should_stop: Callable[[], bool]
) -> tuple[int, int]:
    """Narrow ``refuted < optimum <= known`` until they are neighbours; returns both, further apart when told to stop.

    ``probe(limit)`` gives the value, at most ``limit``, of a plan, or None when there is no such plan.
    """
    while known - refuted > 1 and not should_stop():
        middle = (refuted + known) // 2
        value = probe(middle)
        if should_stop():
            break
        if value is None:
            refuted = middle
        else:
            known = value
    return refuted, known


def _busy(stages: list[Stage], states: States, limits: Limits) -> list[tuple[int, int]]:
    """Ticks of all layers of each stage, and the number of devices that share them."""
    windows = [int(states.window[stage.arc]) for stage in stages]
    rows = [limits.prefix[limits.owner[w]] for w in windows]
    sums = [int(row[stage.end] - row[stage.start]) for row, stage in zip(rows, stages, strict=True)]
    return [(ticks, int(limits.copies[w])) for ticks, w in zip(sums, windows, strict=True)]


def _value(stages: list[Stage], states: States, limits: Limits) -> int:
    """Ticks of the busiest device or transfer of a plan, rounded up."""
    passed = [int(limits.transfer[states.link[stage.arc], stage.start]) for stage in stages]
    return max(*passed, *(-(-ticks // copies) for ticks, copies in _busy(stages, states, limits)))


def least_bottleneck(
    states: States,
    limits: Limits,
    should_stop: Callable[[], bool],
    report: Callable[[list[Stage]], None],
    *,
    refuted: int = -1,
) -> tuple[int, int | None]:
    """Least ticks of the busiest device or transfer, by bisection over :func:`reach`.

    ``report`` is called with each plan as it gets better; no plan takes ``refuted`` ticks or less. Returns the ticks that are
    refuted in the end and those of the best plan (None for none): they are neighbours unless it was told to stop.
    """
    far = int(limits.prefix.max()) + int(np.where(limits.transfer < FAR, limits.transfer, 0).max()) + 1
    high = np.broadcast_to(np.arange(-1, limits.low.shape[1] - 1), limits.low.shape).copy()

    def probe(limit: int) -> int | None:
        low = ceiling_windows(limits.prefix, limits.owner, limits.copies, limits.low, limit)
        passes = limits.transfer <= limit
        reached = reach(states, low, high, passes, limits.cut, should_stop)
        stages = None if reached is None else reached_plan(states, low, high, passes, reached)
        if stages is None:
            return None
        report(stages)
        return _value(stages, states, limits)

    known = probe(far)
    if known is None:
        return (-1 if should_stop() else far), None
    refuted, known = bisect(min(refuted, known - 1), known, probe, should_stop)
    return refuted, known


def widest_balance(
    states: States, limits: Limits, limit: int, should_stop: Callable[[], bool], report: Callable[[list[Stage]], None]
) -> None:
    """Among plans of at most ``limit`` ticks, report ones whose least busy used device is ever busier, the best last."""
    low = ceiling_windows(limits.prefix, limits.owner, limits.copies, limits.low, limit)
    passes = limits.transfer <= limit

    def probe(least: int) -> int | None:
        high = floor_windows(limits.prefix, limits.owner, limits.copies, least)
        reached = reach(states, low, high, passes, limits.cut, should_stop)
        stages = None if reached is None else reached_plan(states, low, high, passes, reached)
        if stages is None:
            return None
        report(stages)
        return -min(ticks // copies for ticks, copies in _busy(stages, states, limits))

    known = probe(0)
    if known is not None:
        bisect(-limit - 1, known, lambda negative: probe(-negative), should_stop)


def _chunks(states: States, n: int) -> list[tuple[int, int]]:
    """Ranges of states whose arcs take a kernel a fraction of a second."""
    steps = (states.first + np.arange(len(states.first))) * (n + 1)
    parts = steps // _CHUNK
    edges = np.flatnonzero(np.diff(parts)) + 1
    bounds = [0, *edges.tolist(), len(states.skip)]
    return [(a, b) for a, b in pairwise(bounds) if b > a]
