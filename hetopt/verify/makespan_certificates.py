"""Replay of lower bounds on the makespan of jobs on unrelated machines, without a solver and without rounding luck.

A certificate is a small dict of plain numbers that some search produced; nothing here trusts it. Every function looks at
*all* pairs of job and machine and returns a bound that is proven by integer arithmetic alone, or raises ``ValueError``
with a sentence. This module is not where certificates are found (see :mod:`hetopt.algorithms.makespan_bounds`).

**The instance.** ``time[j, i] >= 0`` is the time of job ``j`` on machine ``i`` (``inf``: it cannot run there), and machine
``i`` is free from ``ready[i]`` on. A plan gives each job one machine; the *makespan* is the latest moment at which a
machine that has a job is done, ``max over used i of ready[i] + sum of its times``. A machine without a job does not
count.

**The grid.** Each certificate names a ``shift`` k, and everything is checked on the integer instance
``q[j, i] = floor(2^k time[j, i])``, clipped at 2^40 (and the same for ``ready``). Multiplying a float by a power of two
is exact and rounding down only makes plans shorter, so a bound for the grid, divided by 2^k, is a bound for the instance.
With integer data and ``shift`` 0 the grid *is* the instance and the bound an integer.

**The kinds.** With ``c_i(T) = max(T - ready_i, 0)``, what machine i can process by time T:

``machine-weights``  weights w >= 0.
    Any plan that ends by T has ``sum_j min_i w_i q_ji <= sum_i w_i c_i(T)``. The bound is the smallest T that satisfies it.
``deadline-weights``  deadline T, weights w >= 0, count weights v >= 0.
    A plan that ends by T uses only pairs with ``q_ji <= c_i(T)`` and places at most ``k_i`` jobs on machine i, the number of
    its shortest jobs that fit in c_i(T) together. So ``sum_j min_i (w_i q_ji + v_i) > sum_i (w_i c_i(T) + v_i k_i)`` refutes T.
``knapsack``  deadline T, prices u >= 0 of the jobs, and optionally w and v as above.
    With B the right side minus the left side of the last inequality, a pair with ``w_i q_ji + v_i`` more than B above the
    job's minimum is in no plan that ends by T. Over the pairs left, let K_i be the largest total price of jobs that fit
    in c_i(T) together, by an exact dynamic program; ``sum_j u_j > sum_i K_i`` refutes T.

A refuted T means that the bound is T + 1 on the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["CLIP", "KINDS", "Grid", "exact_sum", "job_counts", "on_grid", "replay"]

CLIP = 1 << 40
"""Largest time on the grid; longer ones are clipped, which can only weaken a bound."""

KINDS = ("machine-weights", "deadline-weights", "knapsack")

_LIMIT = 1 << 62  # products and knapsack values stay below it, so that int64 cannot wrap
_NEVER = CLIP << 1  # an ineligible pair: longer than any deadline
_BLOCK = 1 << 21  # pairs looked at together, to bound the memory of large instances
_WORK = 1 << 40  # steps of the knapsack programs that a replay is willing to do


class Grid(NamedTuple):
    """The integer instance that a certificate speaks about.

    Attributes
    ----------
    time
        (n, m) integers; an ineligible pair is above every deadline.
    ready
        (m,) integers.
    shift
        One unit of the grid is 2^-shift units of the instance.
    integral
        Whether the instance's own numbers are all integers.
    """

    time: NDArray[np.int64]
    ready: NDArray[np.int64]
    shift: int
    integral: bool

    def value(self, bound: int) -> int | float:
        """A bound of the grid in the instance's units, rounded towards the safe side."""
        if self.integral:
            return -((-bound) >> self.shift) if self.shift >= 0 else bound << -self.shift
        with np.errstate(over="ignore"):
            value = min(float(np.ldexp(float(bound), -self.shift)), np.finfo(np.float64).max)
        return value if bound < 1 << 53 else float(np.nextafter(value, 0.0))


def on_grid(time: ArrayLike, ready: ArrayLike | None = None, shift: int = 0) -> Grid:
    """Round an instance down to multiples of 2^-shift.

    Parameters
    ----------
    time
        (n, m) processing times, >= 0, ``inf`` where a job cannot run.
    ready
        (m,) finite moments, >= 0, from which the machines are free; None means 0.
    shift
        The grid's resolution, -1000 to 1000; 0 keeps integers as they are.

    Raises
    ------
    ValueError
        The arrays do not describe an instance, or a job can run on no machine.
    """
    if not isinstance(shift, int | np.integer) or isinstance(shift, bool) or abs(shift) > 1000:
        raise ValueError(f"the shift must be an integer between -1000 and 1000, not {shift!r}")
    times = np.asarray(time, dtype=np.float64)
    if times.ndim != 2 or times.shape[1] == 0:
        raise ValueError(f"times must be a matrix of jobs by machines, not of shape {times.shape}")
    n, m = times.shape
    free = np.zeros(m) if ready is None else np.asarray(ready, dtype=np.float64)
    if free.shape != (m,) or not np.isfinite(free).all() or (free < 0).any():
        raise ValueError(f"ready must be {m} finite moments >= 0")
    grid = np.empty((n, m), dtype=np.int64)
    integral = bool((free == np.floor(free)).all())
    for rows in _blocks(n, m):
        block = times[rows]
        if not (block >= 0).all():
            raise ValueError("a time is negative or not a number")
        eligible = block < np.inf
        if not eligible.any(axis=1).all():
            job = rows.start + int(np.flatnonzero(~eligible.any(axis=1))[0])
            raise ValueError(f"job {job} can run on no machine")
        integral = integral and bool((block == np.floor(block)).all())  # inf equals its floor
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.minimum(np.floor(np.ldexp(block, shift)), float(CLIP))
        grid[rows] = np.where(eligible, scaled, float(_NEVER))
    with np.errstate(over="ignore", under="ignore"):
        start = np.minimum(np.floor(np.ldexp(free, shift)), float(CLIP)).astype(np.int64)
    return Grid(grid, start, int(shift), integral)


def replay(
    time: ArrayLike, certificate: Mapping[str, Any], ready: ArrayLike | None = None, *, grid: Grid | None = None
) -> int | float:
    """Check a certificate and return the bound that it proves.

    Parameters
    ----------
    time
        (n, m) processing times, >= 0, ``inf`` where a job cannot run.
    certificate
        ``kind``, ``shift`` and the numbers of the kind: ``weights`` (m,), ``count_weights`` (m,), ``prices`` (n,) as
        integers >= 0 in lists or arrays, ``deadline`` as an integer in units of 2^-shift.
    ready
        (m,) moments from which the machines are free; None means 0.
    grid
        The instance on the certificate's grid, when the caller has it already.

    Returns
    -------
    int or float
        No plan has a smaller makespan. An int when all numbers of the instance are integers.

    Raises
    ------
    ValueError
        The certificate is malformed, or does not prove what it claims.

    Notes
    -----
    O(n m) for weights, O(n m log n) with count weights, O(pairs left x T) for knapsacks. Exact: integers below 2^62 only.
    """
    kind = certificate.get("kind")
    if kind not in KINDS:
        raise ValueError(f"unknown kind of certificate {kind!r}; known are {', '.join(KINDS)}")
    shift = certificate.get("shift")
    if grid is None or grid.shift != shift:
        grid = on_grid(time, ready, shift)  # type: ignore[arg-type]
    n, m = grid.time.shape
    if n == 0:
        return grid.value(0)
    if kind == "machine-weights":
        return grid.value(_machine_weights(grid, _integers(certificate, "weights", m)))
    deadline = _deadline(certificate)
    if kind == "deadline-weights":
        weights, counts = _integers(certificate, "weights", m), _integers(certificate, "count_weights", m)
        slack = _slack(grid, deadline, weights, counts)
        if slack >= 0:
            raise ValueError(f"these weights do not refute the deadline {deadline}: {slack} is left over")
        return grid.value(deadline + 1)
    prices = _integers(certificate, "prices", n)
    zero = np.zeros(m, dtype=np.int64)
    weights = _integers(certificate, "weights", m) if "weights" in certificate else zero
    counts = _integers(certificate, "count_weights", m) if "count_weights" in certificate else zero
    if not _knapsacks_refute(grid, deadline, prices, weights, counts):
        raise ValueError(f"these prices do not refute the deadline {deadline}: the knapsacks can hold them")
    return grid.value(deadline + 1)


def exact_sum(values: NDArray[np.int64]) -> int:
    """Sum of integers >= 0 that cannot wrap, for up to 2^31 of them."""
    return (int((values >> 31).sum()) << 31) + int((values & ((1 << 31) - 1)).sum())


def job_counts(grid: Grid, deadline: int) -> NDArray[np.int64]:
    """How many jobs each machine can finish by the deadline at most, (m,): its shortest eligible ones."""
    room = np.maximum(deadline - grid.ready, -1)
    counts = np.zeros(len(room), dtype=np.int64)
    for i in np.flatnonzero(deadline >= grid.ready):
        column = grid.time[:, i]
        done = np.cumsum(np.sort(column[column <= room[i]]))
        counts[i] = np.searchsorted(done, room[i], side="right")
    return counts


def _machine_weights(grid: Grid, weights: NDArray[np.int64]) -> int:
    _refuse_overflow(grid, weights, 0)
    demand, longest = 0, 0
    for rows in _blocks(*grid.time.shape):
        block = grid.time[rows]
        eligible = block <= CLIP
        demand += exact_sum(np.where(eligible, np.where(eligible, block, 0) * weights, _LIMIT).min(axis=1))
        longest = max(longest, int((block + grid.ready).min(axis=1).max()))
    # Fill the machines in the order in which they become free until their weighted room covers the demand.
    moment, rate, room = 0, 0, 0
    for start, weight in sorted(zip(grid.ready.tolist(), weights.tolist(), strict=True)):
        if room + rate * (start - moment) >= demand:
            break
        room += rate * (start - moment)
        moment, rate = start, rate + weight
    if rate:
        moment += -(-max(demand - room, 0) // rate)
    return max(moment, longest)


def _slack(grid: Grid, deadline: int, weights: NDArray[np.int64], counts: NDArray[np.int64]) -> int:
    """Weighted room minus weighted demand at the deadline; negative refutes it."""
    least = _pair_costs(grid, deadline, weights, counts).least
    if (least >= _LIMIT).any():
        return -1  # a job that no machine can finish by the deadline
    room = np.maximum(deadline - grid.ready, 0)
    number = job_counts(grid, deadline) if counts.any() else np.zeros_like(counts)
    have = sum(w * c + v * k for w, c, v, k in zip(*(a.tolist() for a in (weights, room, counts, number)), strict=True))
    return int(have - exact_sum(least))


class _PairCosts(NamedTuple):
    cost: list[NDArray[np.int64]]
    least: NDArray[np.int64]


def _pair_costs(grid: Grid, deadline: int, weights: NDArray[np.int64], counts: NDArray[np.int64]) -> _PairCosts:
    """``w q + v`` of each pair that can end by the deadline (a huge number elsewhere) by blocks of jobs, and each job's least."""
    _refuse_overflow(grid, weights, int(counts.max(initial=0)))
    room = deadline - grid.ready
    cost = []
    for rows in _blocks(*grid.time.shape):
        fits = grid.time[rows] <= room
        cost.append(np.where(fits, np.where(fits, grid.time[rows], 0) * weights + counts, _LIMIT))
    return _PairCosts(cost, np.concatenate([block.min(axis=1) for block in cost]))


def _knapsacks_refute(
    grid: Grid,
    deadline: int,
    prices: NDArray[np.int64],
    weights: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> bool:
    total = exact_sum(prices)
    if total >= _LIMIT:
        raise ValueError("the prices are too large: their sum must stay below 2^62")
    slack = _slack(grid, deadline, weights, counts)
    if slack < 0:
        return True
    costs = _pair_costs(grid, deadline, weights, counts)
    margin = min(slack, _LIMIT - 1)
    kept = np.concatenate([block - block.min(axis=1, keepdims=True) <= margin for block in costs.cost])
    kept &= grid.time <= deadline - grid.ready
    room = np.maximum(deadline - grid.ready, 0)
    if int((kept.sum(axis=0) * (room + 1)).sum()) > _WORK:
        raise ValueError(f"the deadline {deadline} is too fine a grid for exact knapsacks of this size")
    for i in range(grid.time.shape[1]):
        jobs = np.flatnonzero(kept[:, i] & (prices > 0))
        total -= _knapsack(grid.time[jobs, i], prices[jobs], int(room[i]))
        if total <= 0:
            return False
    return True


def _knapsack(size: NDArray[np.int64], price: NDArray[np.int64], room: int) -> int:
    """Largest total price of items that fit together: the textbook program over capacities, exact."""
    if int(size.sum()) <= room:
        return exact_sum(price)
    best = np.zeros(room + 1, dtype=np.int64)
    for s, u in zip(size.tolist(), price.tolist(), strict=True):
        np.maximum(best[s:], best[: room + 1 - s] + u, out=best[s:])
    return int(best[room])


def _deadline(certificate: Mapping[str, Any]) -> int:
    deadline = certificate.get("deadline")
    if not isinstance(deadline, int | np.integer) or isinstance(deadline, bool) or not 0 <= deadline < CLIP:
        raise ValueError(f"the deadline must be an integer from 0 to below 2^40 grid units, not {deadline!r}")
    return int(deadline)


def _integers(certificate: Mapping[str, Any], name: str, length: int) -> NDArray[np.int64]:
    """A row of integers >= 0 out of a certificate; floats are refused, because they would have to be rounded."""
    try:
        values = np.asarray(certificate[name])
    except KeyError:
        raise ValueError(f"the certificate has no {name!r}") from None
    except ValueError as error:
        raise ValueError(f"{name!r} must be a list of {length} integers >= 0") from error
    if values.shape != (length,) or values.dtype.kind not in "iu" or (values < 0).any() or (values >= _LIMIT).any():
        raise ValueError(f"{name!r} must be {length} integers >= 0 and below 2^62")
    return values.astype(np.int64)


def _refuse_overflow(grid: Grid, weights: NDArray[np.int64], extra: int) -> None:
    blocks = (grid.time[rows] for rows in _blocks(*grid.time.shape))
    longest = max(int(np.where(block <= CLIP, block, 0).max()) for block in blocks)
    if int(weights.max(initial=0)) * longest + extra >= _LIMIT:
        raise ValueError("the weights are too large: weight times time must stay below 2^62")


def _blocks(n: int, m: int) -> Iterator[slice]:
    step = max(1, _BLOCK // m)
    return (slice(k, min(k + step, n)) for k in range(0, n, step))
