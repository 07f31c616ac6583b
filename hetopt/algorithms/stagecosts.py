"""Stage costs as integers that round down, so that an exact search over them proves a bound on the true problem.

Times and net costs become multiples of one power of two, small enough that a sum over everything keeps 60 bits. Every
cost is rounded down; hence a load in integers, times the unit, is never above the true load, and is below it by less than
two units a term. Sums of integers have no order and no drift: kernels may add and take away at will.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.contraction import equal_nets
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["NEVER", "StageCosts", "integer_costs", "integer_sizes"]

NEVER = 1 << 61
"""Integer time of a class where it cannot run; larger than the sum of all other costs, and twice it fits an int64."""

_BITS = 60


class StageCosts(NamedTuple):
    """Integer costs of a stage graph with ``n`` classes, ``h`` nets and ``t`` device types.

    Attributes
    ----------
    time
        (t, 2, n) forward and backward time; all in the first row when passes are not told apart. ``NEVER``: cannot run.
    arrive, leave
        (t, h) cost of receiving and of sending a net.
    net_ptr, net_pin, net_source
        The nets, as in :class:`~hetopt.algorithms.stagegraph.StageGraph`.
    net_pass
        (h,) 0 or 1: the pass whose load pays for the net.
    in_ptr, in_net
        CSR of the nets that have a pin in each class.
    """

    time: NDArray[np.int64]
    arrive: NDArray[np.int64]
    leave: NDArray[np.int64]
    net_ptr: NDArray[np.int64]
    net_pin: NDArray[np.int64]
    net_source: NDArray[np.int64]
    net_pass: NDArray[np.int64]
    in_ptr: NDArray[np.int64]
    in_net: NDArray[np.int64]


def integer_costs(graph: StageGraph, passes: bool = False) -> tuple[StageCosts, float]:
    """Integer costs of a graph and their unit in seconds (a power of two).

    With ``passes``, forward and backward times and nets are kept apart; otherwise equal nets are added up. O(pins).
    """
    possible = np.isfinite(graph.time)
    whole_time = np.where(possible, graph.time, 0.0)
    backward = np.zeros_like(whole_time)
    if passes and graph.backward_time is not None:
        backward = np.where(possible, graph.backward_time, 0.0)
    forward = _difference(whole_time, backward)
    ptr, pin, source, weight, kind = graph.net_ptr, graph.net_pin, graph.net_source, graph.net_weight, None
    if passes and graph.net_backward is not None:
        kind = graph.net_backward.astype(np.int64)
    directed = bool((graph.rate_in != graph.rate_out).any())
    if not passes and len(weight):
        same = equal_nets(ptr, pin, source if directed else np.zeros_like(source))
        first = np.flatnonzero(same == np.arange(len(same)))
        number = np.zeros(len(same), np.int64)
        number[first] = np.arange(len(first))
        total = np.bincount(number[same], weight, len(first))
        exact = bool((weight == np.floor(weight)).all()) and total.max() < 2.0**53
        added = np.bincount(number[same], minlength=len(first)) > 1
        weight = np.where(added & (not exact), np.maximum(total * (1 - len(same) * 2.0**-52), 0.0), total)
        length = np.diff(ptr)
        pin = pin[np.repeat(same == np.arange(len(same)), length)]
        source, ptr = source[first], np.concatenate([[0], np.cumsum(length[first])]).astype(np.int64)
    arrive, leave = _products(graph.rate_in, weight), _products(graph.rate_out, weight)
    whole = float(whole_time.max(axis=1, initial=0.0).sum())
    whole += float(arrive.max(axis=0, initial=0.0).sum() + leave.max(axis=0, initial=0.0).sum())
    bits = _BITS - math.frexp(whole)[1] if whole > 0 else 0
    time = np.stack([_floor(forward, bits), _floor(backward, bits)]).transpose(2, 0, 1)
    time[~np.broadcast_to(possible.T[:, None, :], time.shape)] = NEVER
    net_number = np.repeat(np.arange(len(weight)), np.diff(ptr))
    order = np.argsort(pin, kind="stable")
    in_ptr = np.zeros(graph.n + 1, np.int64)
    np.cumsum(np.bincount(pin, minlength=graph.n), out=in_ptr[1:])
    costs = StageCosts(
        time=np.ascontiguousarray(time),
        arrive=_floor(arrive, bits),
        leave=_floor(leave, bits),
        net_ptr=ptr,
        net_pin=pin,
        net_source=source,
        net_pass=np.zeros(len(weight), np.int64) if kind is None else kind,
        in_ptr=in_ptr,
        in_net=net_number[order],
    )
    return costs, math.ldexp(1.0, -bits)


def integer_sizes(graph: StageGraph, up: bool) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    """Sizes (n,) and memories (t,) as integers, sizes rounded up or down, and whether the rounding changed nothing.

    Parts that fit with sizes rounded up fit; parts that do not fit with sizes rounded down do not. A memory that cannot
    bind becomes ``NEVER``.
    """
    whole = float(graph.size.sum())
    bits = _BITS - math.frexp(whole)[1] if whole > 0 else 0
    scaled = np.ldexp(graph.size, bits)
    size = (np.ceil(scaled) if up else np.floor(scaled)).astype(np.int64)
    binds = graph.memory < whole * (1 + 1e-9)
    room = np.full(graph.types, NEVER, np.int64)
    room[binds] = np.floor(np.ldexp(graph.memory[binds], bits)).astype(np.int64)
    return size, room, bool((scaled == size).all())


def _products(rate: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """(t, h) products rounded towards zero: Dekker's product gives the rounding error, whose sign decides."""
    a, b = rate[:, None], weight[None, :]
    product = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    error = al * bl - (((product - ah * bh) - al * bh) - ah * bl)
    return np.where(error < 0, np.maximum(np.nextafter(product, -np.inf), 0.0), product)


def _halves(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    scaled = 134217729.0 * x
    high = scaled - (scaled - x)
    return high, x - high


def _difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """a - b rounded down (Knuth's two-sum gives the rounding error), at least 0."""
    s = a - b
    taken = a - s
    error = (a - (s + taken)) + (taken - b)
    return np.maximum(np.where(error < 0, np.nextafter(s, -np.inf), s), 0.0)


def _floor(values: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    return np.floor(np.ldexp(values, bits)).astype(np.int64)
