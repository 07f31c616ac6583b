"""Chains of stages with shared stages, in-flight memory, latencies and overlap: exact dynamic program over order ideals.

The plain question (one device a stage, transfers added to compute, memory that does not depend on the place in the pipeline)
is answered faster by :mod:`hetopt.algorithms.maxload_dp`. Here a stage S on r equal devices of type t, the k-th from the end,
has

    load   = (compute_t(S) + transfers_t(S)) / r + sync,  or with overlap  max(compute_t(S), transfers_t(S)) / r + sync
    sync   = sync_byte[t, r] size(S) + sync_once[t, r]
    memory = size(S) + k activation(S)       (k = 1 unless ``in_flight``)

States are (devices used of each type, stages so far, ideal), from the end of the pipeline to its start, so that the number of
stages behind a stage is known when it is chosen. From each ideal a depth-first walk over covers visits what one more stage
reaches. The walk stops at compute time that no device may have within a limit; limits grow from the balance bound until
a plan is found, which is then the best one.

What this is not: a method for plans without order. Costs are integers that round down, so the optimum found bounds the true
one from below; the plan's true value exceeds it by rounding only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.ideals import enumerate_ideals
from hetopt.algorithms.jit import njit
from hetopt.algorithms.maxload_bounds import balance

__all__ = ["StageAnswer", "StageProblem", "solve_stages"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NEVER = 1 << 61
_BITS = 58  # of the sum of all costs
_CHUNK = 3_000_000  # pairs of a set and a state looked at in one kernel call, some tens of milliseconds
_TABLE = 1 << 28  # states
_FIRST = 1 / 64  # the first limit is this much above the balance bound


@dataclass(frozen=True, eq=False)
class StageProblem:
    """``n`` classes in topological order, ``h`` nets, ``t`` types of equal devices, up to ``r`` devices a stage.

    Attributes
    ----------
    time
        (n, t) seconds; ``inf`` where a class cannot run.
    size, activation
        (n,) bytes a class needs once, and for each input in flight.
    pred_ptr, pred
        CSR of predecessors, smaller than the class.
    net_ptr, net_pin, net_source
        CSR of the nets' pins (classes, the source included) and the source's class.
    arrive, leave
        (t, h) seconds to receive and to send a net.
    count, memory
        (t,) devices, and bytes a device (``inf`` without limit).
    sync_byte, sync_once
        (t, r) seconds a byte of the stage, and seconds, that sharing a stage by 1..r devices adds.
    overlap, in_flight
        Whether transfers run beside compute, and whether activations count once for each stage from here to the end.
    """

    time: Floats
    size: Floats
    activation: Floats
    pred_ptr: Ints
    pred: Ints
    net_ptr: Ints
    net_pin: Ints
    net_source: Ints
    arrive: Floats
    leave: Floats
    count: Ints
    memory: Floats
    sync_byte: Floats
    sync_once: Floats
    overlap: bool = False
    in_flight: bool = False


class StageAnswer(NamedTuple):
    """Stages in pipeline order as (classes, type, devices), or None; a bound (``inf``: no plan fits); whether it is proved."""

    stages: tuple[tuple[Ints, int, int], ...] | None
    bound: float
    optimal: bool


def solve_stages(
    problem: StageProblem,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    ideal_limit: int = 200_000,
) -> StageAnswer:
    """Best chain of stages.

    Parameters
    ----------
    problem
        Classes, nets, types and rules.
    should_stop
        Asked every few hundredths of a second; then the bound so far is returned without a plan.
    ideal_limit
        Most ideals to list.

    Raises
    ------
    TooManyIdeals
        There are more, or the table of states would be too large.

    Notes
    -----
    Time O(R L t r) for R pairs of nested ideals within the limit and L states an ideal.
    """
    n, types = problem.time.shape
    if n == 0:
        return StageAnswer((), 0.0, True)
    copies = problem.sync_byte.shape[1]
    total = int(problem.count.sum())
    counted = problem.in_flight and copies > 1  # stages are not told by devices used
    layers = math.prod(int(c) + 1 for c in problem.count) * (total + 1 if counted else 1)
    limit = min(ideal_limit, _TABLE // layers)
    ptr, pred = _reversed(problem.pred_ptr, problem.pred)
    found = enumerate_ideals(ptr, pred, limit, should_stop)
    least, _ = balance(problem.time, problem.count)
    if found is None or math.isinf(least):
        return StageAnswer(None, least if found is not None else 0.0, found is not None)
    costs, unit = _integers(problem)
    strides = np.cumprod(np.concatenate([[1], problem.count + 1]))
    ideals = len(found.last)
    value = np.empty((ideals, layers), np.int64)
    origin, move = np.empty((ideals, layers), np.int32), np.empty((ideals, layers), np.int16)
    ceiling = 2 * int(
        np.where(costs.time < _NEVER, costs.time, 0).max(axis=0).sum() + costs.arrive.sum() + costs.leave.sum()
    )
    ceiling += (
        int(np.ceil((costs.sync_byte.max(initial=0.0) * costs.size.sum()) + costs.sync_once.max(initial=0.0))) + 1
    )
    lattice = found.cover_ptr, found.cover, found.cover_class
    rules = problem.count, strides, counted, problem.overlap, problem.in_flight
    most, excess = int(least / unit), _FIRST
    while True:
        most = min(ceiling, int(least / unit * (1 + excess)) + 1)
        value[:] = _NEVER
        value[0, 0] = 0
        at = 0
        scratch = _Scratch.of(n, ideals, len(problem.net_source), types, copies)
        while at < ideals - 1:
            if should_stop():
                return StageAnswer(None, least, False)
            at = _sweep(lattice, costs, (*rules, most), (value, origin, move), scratch, at, _CHUNK)
        end = int(value[-1].argmin())
        if value[-1, end] < _NEVER:
            best = float(value[-1, end]) * unit
            return StageAnswer(_trace(problem, found.words, origin, move, end, strides, counted), best, True)
        if most == ceiling:
            return StageAnswer(None, math.inf, True)
        least = max(least, (most + 1) * unit)
        excess = 2 * max(excess, _FIRST)


def _reversed(ptr: Ints, pred: Ints) -> tuple[Ints, Ints]:
    """The precedence read backwards, class v renumbered n - 1 - v."""
    n = len(ptr) - 1
    target = n - 1 - pred
    source = n - 1 - np.repeat(np.arange(n), np.diff(ptr))
    order = np.lexsort((source, target))
    out = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=n), out=out[1:])
    return out, source[order]


class _Costs(NamedTuple):
    time: Ints
    size: Ints
    activation: Ints
    net_ptr: Ints
    net_source: Ints
    in_ptr: Ints
    in_net: Ints
    arrive: Ints
    leave: Ints
    room: Ints
    sync_byte: Floats
    sync_once: Floats


def _integers(problem: StageProblem) -> tuple[_Costs, float]:
    """Costs of the classes in reversed numbering as integers that round down, and the seconds of one (a power of two)."""
    n, types = problem.time.shape
    finite = np.where(np.isfinite(problem.time), problem.time, 0.0)
    whole = float(finite.max(axis=1).sum() + problem.arrive.max(axis=0, initial=0).sum())
    whole += float(problem.leave.max(axis=0, initial=0).sum() + problem.sync_once.max(initial=0.0))
    whole += float(problem.sync_byte.max(initial=0.0) * problem.size.sum())
    bits = _BITS - math.frexp(whole)[1] if whole > 0 else 0
    time = np.where(np.isfinite(problem.time), np.floor(np.ldexp(finite, bits)), float(_NEVER)).astype(np.int64)
    stages = int(problem.count.sum())
    bytes_ = float(problem.size.sum() + stages * problem.activation.sum())
    scale = _BITS - 4 - math.frexp(bytes_)[1] if bytes_ > 0 else 0
    size, activation = (np.floor(np.ldexp(a, scale)).astype(np.int64)[::-1] for a in (problem.size, problem.activation))
    room = np.full(types, _NEVER, np.int64)
    binds = problem.memory < bytes_
    room[binds] = np.floor(np.ldexp(problem.memory[binds], scale)).astype(np.int64)
    pin = n - 1 - problem.net_pin
    net = np.repeat(np.arange(len(problem.net_source)), np.diff(problem.net_ptr))
    order = np.argsort(pin, kind="stable")
    in_ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(pin, minlength=n), out=in_ptr[1:])
    arrive, leave = (np.floor(np.ldexp(a, bits)).astype(np.int64) for a in (problem.arrive, problem.leave))
    costs = _Costs(
        np.ascontiguousarray(time[::-1].T), np.ascontiguousarray(size), np.ascontiguousarray(activation), problem.net_ptr,
        n - 1 - problem.net_source, in_ptr, net[order], arrive, leave, room,
        np.ldexp(problem.sync_byte, bits - scale) * (1 - 2.0**-50), np.ldexp(problem.sync_once, bits) * (1 - 2.0**-50),
    )  # fmt: skip
    return costs, math.ldexp(1.0, -bits)


class _Scratch(NamedTuple):
    seen: Ints
    inside: Ints
    held: NDArray[np.bool_]
    stack: Ints
    place: Ints
    added: Ints
    compute: Ints
    barred: Ints
    transfer: Ints
    load: Ints

    @classmethod
    def of(cls, n: int, ideals: int, nets: int, types: int, copies: int) -> _Scratch:
        """Room for one walk."""
        return cls(
            np.full(ideals, -1, np.int64), np.zeros(nets, np.int64), np.zeros(nets, np.bool_), np.zeros(n + 1, np.int64),
            np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64), np.zeros(types, np.int64), np.zeros(types, np.int64),
            np.zeros(types, np.int64), np.zeros((types, copies), np.int64),
        )  # fmt: skip


@njit
def _change(v, sign, time, net_ptr, net_source, in_ptr, in_net, arrive, leave, inside, held, compute, barred, transfer):  # type: ignore[no-untyped-def]
    """Put class v into the stage (sign 1) or take it out (-1): compute, and what each type pays for nets."""
    types = len(compute)
    for t in range(types):
        if time[t, v] >= 1 << 61:
            barred[t] += sign
        else:
            compute[t] += sign * time[t, v]
    for p in range(in_ptr[v], in_ptr[v + 1]):
        h = in_net[p]
        whole = net_ptr[h + 1] - net_ptr[h]
        came = inside[h] > 0 and not held[h]
        left = held[h] and inside[h] < whole
        inside[h] += sign
        if net_source[h] == v:
            held[h] = sign > 0
        comes = inside[h] > 0 and not held[h]
        leaves = held[h] and inside[h] < whole
        for t in range(types):
            if came != comes:
                transfer[t] += arrive[t, h] if comes else -arrive[t, h]
            if left != leaves:
                transfer[t] += leave[t, h] if leaves else -leave[t, h]


@njit
def _sweep(lattice, costs, rules, table, scratch, at, budget):  # type: ignore[no-untyped-def]
    """Extend the states of the ideals from ``at`` on by one stage; where to go on after ``budget`` pairs."""
    cover_ptr, cover, cover_class = lattice
    time, size, activation, net_ptr, net_source, in_ptr, in_net, arrive, leave, room, sync_byte, sync_once = costs
    count, strides, counted, overlap, in_flight, most = rules
    value, origin, move = table
    seen, inside, held, stack, place, added, compute, barred, transfer, load = scratch
    stage = (time, net_ptr, net_source, in_ptr, in_net, arrive, leave, inside, held, compute, barred, transfer)
    ideals, layers = value.shape
    types, copies = sync_byte.shape
    per = strides[types]
    alive = np.empty(layers, np.int64)
    done = 0
    while at < ideals - 1:
        if done > budget:
            return at
        live = 0
        for s in range(layers):
            if value[at, s] < 1 << 61:
                alive[live] = s
                live += 1
        if live == 0:
            at += 1
            continue
        depth = 0
        stack[0], place[0] = at, cover_ptr[at]
        bytes_, flying = 0, 0
        while depth >= 0:
            i = stack[depth]
            if place[depth] >= cover_ptr[i + 1]:
                if depth > 0:
                    v = added[depth]
                    _change(v, -1, *stage)
                    bytes_ -= size[v]
                    flying -= activation[v]
                depth -= 1
                continue
            j, v = cover[place[depth]], cover_class[place[depth]]
            place[depth] += 1
            if seen[j] == at:
                continue
            seen[j] = at
            _change(v, 1, *stage)
            bytes_ += size[v]
            flying += activation[v]
            hopeful = False
            for t in range(types):
                for r in range(1, min(copies, count[t]) + 1):
                    extra = int(sync_byte[t, r - 1] * bytes_ + sync_once[t, r - 1])
                    if barred[t] > 0 or bytes_ + flying > room[t] or compute[t] // r + extra > most:
                        load[t, r - 1] = 1 << 61
                        continue
                    hopeful = True
                    busy = max(compute[t], transfer[t]) if overlap else compute[t] + transfer[t]
                    busy = busy // r + extra
                    load[t, r - 1] = busy if busy <= most else 1 << 61
            if not hopeful:
                _change(v, -1, *stage)
                bytes_ -= size[v]
                flying -= activation[v]
                continue
            for a in range(live):
                s = alive[a]
                done += 1
                used = s % per
                stages = 1
                if counted:
                    stages += s // per
                else:
                    rest = used
                    for t in range(types):
                        stages += rest % (count[t] + 1)
                        rest //= count[t] + 1
                for t in range(types):
                    free = count[t] - (used // strides[t]) % (count[t] + 1)
                    if bytes_ + (stages if in_flight else 1) * flying > room[t]:
                        continue
                    for r in range(1, min(copies, free) + 1):
                        reached = max(value[at, s], load[t, r - 1])
                        to = s + r * strides[t] + (per if counted else 0)
                        if reached < value[j, to]:
                            value[j, to] = reached
                            origin[j, to] = at
                            move[j, to] = t * copies + r - 1
            depth += 1
            stack[depth], place[depth], added[depth] = j, cover_ptr[j], v
        at += 1
    return at


def _trace(
    problem: StageProblem, words: NDArray[np.uint64], origin: NDArray[np.int32], move: NDArray[np.int16],
    end: int, strides: Ints, counted: bool,
) -> tuple[tuple[Ints, int, int], ...]:  # fmt: skip
    """Stages from the start of the pipeline, read back from the last state."""
    n, copies = len(problem.size), problem.sync_byte.shape[1]
    stages, ideal, state = [], len(words) - 1, end
    while ideal > 0:
        t, r = divmod(int(move[ideal, state]), copies)
        before = int(origin[ideal, state])
        gone = np.unpackbits((words[ideal] & ~words[before]).astype("<u8").view(np.uint8), bitorder="little")
        stages.append((n - 1 - np.flatnonzero(gone)[::-1], t, r + 1))
        state -= int((r + 1) * strides[t] + (strides[-1] if counted else 0))
        ideal = before
    return tuple(stages)
