"""Lower bounds on the makespan of jobs on unrelated machines: linear program and cardinality cuts, each with its proof.

The first two rungs of the ladder; the knapsack rungs are in :mod:`hetopt.algorithms.makespan_knapsack`. Solvers only
suggest numbers here. Every bound returned has been replayed over all pairs in integers by
:func:`hetopt.verify.makespan_certificates.replay`, whose page defines the instance, the makespan and the certificates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.makespan_lp import Floats, PairLP, cheapest_pairs, machine_prices
from hetopt.verify.makespan_certificates import CLIP, Grid, on_grid, replay

__all__ = [
    "Certificate",
    "DeadlineBound",
    "DeadlineTest",
    "Relaxation",
    "cardinality_bound",
    "certified_grid",
    "lp_relaxation",
    "reduced_costs",
    "refutes",
    "whole_weights",
]

Certificate = dict[str, Any]

_FINE = 30  # bits of the makespan on the grid of decimal data
_WHOLE = 36  # bits up to which integer data are used as they are
_SIMPLEX_JOBS = 20_000  # from here dual ascent alone is within 0.3 % and a simplex method would take minutes
_ROUNDS = 60  # of pricing; the published classes need one to four


class Relaxation(NamedTuple):
    """The linear relaxation: a proven bound, its certificate, duals and a vertex.

    Attributes
    ----------
    bound
        No plan has a smaller makespan; an int when the instance's numbers are integers.
    certificate
        Of kind ``machine-weights``.
    weights
        (m,) duals of the machines, >= 0, sum 1, in floating point.
    value
        The dual value ``sum_i weights_i ready_i + sum_j min_i weights_i time_ji`` in floating point.
    job, machine, share
        Sparse vertex: this share of the job on the machine. At most m - 1 jobs are split. When the program was not solved
        (too many jobs, or interrupted), each job is whole on its cheapest machine, whatever the loads.
    """

    bound: int | float
    certificate: Certificate
    weights: Floats
    value: float
    job: NDArray[np.int64]
    machine: NDArray[np.int64]
    share: Floats


class DeadlineBound(NamedTuple):
    """What testing deadlines has shown.

    Attributes
    ----------
    bound, certificate
        The best proven bound and its certificate; both None when no deadline was refuted.
    deadline
        Smallest deadline known not to be refuted (or not tested yet, if interrupted), in grid units.
    grid
        The integer instance that the deadlines speak about.
    weights, count_weights
        (m,) duals >= 0 at ``deadline``; the weights sum to 1 unless all are zero.
    """

    bound: int | float | None
    certificate: Certificate | None
    deadline: int
    grid: Grid
    weights: Floats
    count_weights: Floats


def lp_relaxation(
    time: Floats,
    ready: Floats | None = None,
    *,
    upper: float = math.inf,
    grid: Grid | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Relaxation:
    """Bound by the linear relaxation, solved over the pairs that matter and priced over all.

    Parameters
    ----------
    time
        (n, m) processing times, >= 0, ``inf`` where a job cannot run; at least one job.
    ready
        (m,) moments from which the machines are free; None means 0.
    upper
        Makespan of a known plan. Machines that are free only then are priced out of use.
    grid
        The instance on the grid of :func:`certified_grid`, when the caller has it already.
    should_stop
        Asked between the steps; stopping early weakens the bound, never its proof.

    Returns
    -------
    Relaxation
        From 20,000 jobs on the bound of dual ascent (:func:`~hetopt.algorithms.makespan_lp.machine_prices`).

    Raises
    ------
    ValueError
        The arrays do not describe an instance.

    Notes
    -----
    Source of the relaxation: Lenstra, Shmoys and Tardos, Mathematical Programming 46 (1990), without their pruning.
    """
    time = np.ascontiguousarray(time, dtype=np.float64)
    n, m = time.shape
    free = np.zeros(m) if ready is None else np.asarray(ready, dtype=np.float64)
    grid = certified_grid(time, free, upper) if grid is None else grid
    late = free >= upper
    if late.all():
        late[:] = False
    active = np.where(late, np.inf, time) if late.any() else time
    start = np.where(late, 0.0, free)
    large = n >= _SIMPLEX_JOBS
    weights, value = machine_prices(active, start, 100 if large else 30, should_stop)
    job, machine, share = np.arange(n), _price(active, weights).argmin(axis=1), np.ones(n)
    if not large and not (should_stop is not None and should_stop()):
        program = PairLP(active, -start, should_stop=should_stop)
        program.admit(cheapest_pairs(active, weights, 3, 2))
        wide = 3
        for _ in range(_ROUNDS):
            point = program.solve()
            if program.interrupted:
                break
            job, machine, share = program.job, program.machine, point.share
            duals = point.weights / point.weights.sum()
            cost = _price(active, duals)
            dual_value = float(duals @ start + cost.min(axis=1).sum())
            if dual_value < value:  # the duals of a thin program can be far off: widen it around the best ones known
                wide *= 2
                program.admit(cheapest_pairs(active, weights, wide, 2))
            else:
                weights, value = duals, dual_value
            if point.excess - value <= 1e-9 * abs(value):
                break
            if not _admit_violated(program, cost - point.prices[:, None]):
                break
        keep = share > 1e-9
        job, machine, share = job[keep], machine[keep], share[keep]
    if late.any():
        weights = _price_out(time, weights, late)
    whole = whole_weights(weights, None, int(np.where(grid.time <= CLIP, grid.time, 0).max()))[0]
    certificate: Certificate = {"kind": "machine-weights", "shift": grid.shift, "weights": whole}
    bound = replay(time, certificate, free, grid=grid)
    return Relaxation(bound, certificate, weights, value, job, machine, share)


def cardinality_bound(
    time: Floats,
    ready: Floats | None = None,
    *,
    lower: float,
    upper: float,
    weights: Floats | None = None,
    grid: Grid | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> DeadlineBound:
    """Largest deadline that the relaxation with deadlines and cardinality cuts refutes, by bisection.

    At a deadline T, a pair whose job cannot end by T on the machine is dropped, and machine i takes at most as many jobs
    as fit in T together, shortest first. The dual of the program over all pairs, rounded to integers, is the proof.

    Parameters
    ----------
    time, ready
        As in :func:`lp_relaxation`.
    lower
        Where to start: a bound known already.
    upper
        Makespan of a known plan; deadlines from there on are not tested.
    weights
        (m,) duals of :func:`lp_relaxation`, used to choose the pairs to start with.
    grid
        The instance on the grid to use; None takes :func:`certified_grid`.
    should_stop
        Asked between the steps.

    Returns
    -------
    DeadlineBound
        Its duals are priced over all pairs at the first deadline not refuted, the next rung starts from them.

    Notes
    -----
    Matters where n / m is not a whole number and times are similar, or machines differ in speed: +1 to 4 % there. For
    decimal data the search ends at a relative precision of 1e-6.
    """
    time = np.ascontiguousarray(time, dtype=np.float64)
    free = np.zeros(time.shape[1]) if ready is None else np.asarray(ready, dtype=np.float64)
    grid = certified_grid(time, free, upper) if grid is None else grid
    if weights is None:
        weights = machine_prices(time, free, 30, should_stop)[0]
    test = DeadlineTest(grid, weights, should_stop)
    low = max(math.ceil(math.ldexp(lower, grid.shift)), 0)
    high = max(math.ceil(math.ldexp(upper, grid.shift)), low)
    unit = 1 if grid.integral else max(1, low // 1_000_000)
    step, deadline = unit, low
    while deadline < high:  # gallop: most often the first test already ends it
        if not test.refute(deadline):
            high = deadline
            break
        low = deadline + 1
        deadline, step = low + step, 2 * step
    while high - low >= unit and not test.stopped():
        middle = (low + high) // 2
        if middle == high or not test.refute(middle):
            high = middle
            if middle == low:
                break
        else:
            low = middle + 1
    deadline = low if test.stopped() else high
    test.refute(deadline, complete=True)
    certificate = test.certificate
    bound = None if certificate is None else replay(time, certificate, free, grid=grid)
    total = test.weights.sum() or 1.0
    return DeadlineBound(bound, certificate, deadline, grid, test.weights / total, test.count_weights / total)


def reduced_costs(time: Floats, weights: Floats, count_weights: Floats | None = None) -> Floats:
    """Reduced cost of every pair: ``weights_i time_ji + count_weights_i`` minus the job's least; (n, m), >= 0.

    For any plan, ``sum_i weights_i load_i`` is the dual value plus the plan's reduced costs. With weights of sum 1, a plan
    of makespan T has reduced costs of at most T minus the dual value in all.
    """
    cost = _price(time, weights)
    if count_weights is not None:
        cost += count_weights
    cost -= cost.min(axis=1, keepdims=True)
    return cost


def certified_grid(time: Floats, ready: Floats | None, upper: float) -> Grid:
    """The grid on which proofs are made: the instance itself when it is integer, else about 30 bits for ``upper``.

    With ``upper`` infinite, the sum of the jobs' shortest times stands for it.

    Raises
    ------
    ValueError
        The arrays do not describe an instance.
    """
    grid = on_grid(time, ready)
    if not math.isfinite(upper):
        longest = 0.0 if ready is None else float(np.max(ready))
        upper = longest + float(np.asarray(time, dtype=np.float64).min(axis=1).sum())
    bits = math.frexp(upper)[1] if upper > 0 else 0
    if grid.integral and bits <= _WHOLE:
        return grid
    return on_grid(time, ready, max(-1000, min(_FINE - bits, 1000)))


def whole_weights(
    weights: Floats, count_weights: Floats | None, longest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Round duals to integers as finely as int64 allows for times up to ``longest``; zero duals stay zero."""
    counts = np.zeros_like(weights) if count_weights is None else count_weights
    top = float((weights * max(longest, 1) + counts).max(initial=0.0))
    if not 0 < top < math.inf:
        return np.zeros(len(weights), dtype=np.int64), np.zeros(len(weights), dtype=np.int64)
    factor = min(2.0**60 / top, 2.0**50 / float(max(weights.max(), counts.max())))
    return np.floor(weights * factor).astype(np.int64), np.floor(counts * factor).astype(np.int64)


def refutes(grid: Grid, certificate: Certificate) -> bool:
    """Whether a certificate about a deadline stands, by replay on the grid."""
    try:
        replay(grid.time, certificate, grid=grid)
    except ValueError:
        return False
    return True


class DeadlineTest:
    """The program with cardinality cuts, kept warm between deadlines."""

    def __init__(self, grid: Grid, weights: Floats, should_stop: Callable[[], bool] | None) -> None:
        self.grid, self.should_stop = grid, should_stop
        self.time = grid.time.astype(np.float64)
        self.certificate: Certificate | None = None
        m = self.time.shape[1]
        self.weights, self.count_weights = np.zeros(m), np.zeros(m)
        self._guess = weights
        self._fitting = np.cumsum(np.sort(grid.time, axis=0), axis=0)
        self._program: PairLP | None = None

    def stopped(self) -> bool:
        return self.should_stop is not None and self.should_stop()

    def refute(self, deadline: int, complete: bool = False) -> bool:
        """Whether the deadline is refuted; the certificate is kept. ``complete`` prices the duals over all pairs."""
        room = deadline - self.grid.ready
        usable = self.grid.time <= room
        if not usable.any(axis=1).all():
            return self._keep(deadline, np.zeros(len(room)), np.zeros(len(room)))
        counts = np.array([np.searchsorted(self._fitting[:, i], r, side="right") for i, r in enumerate(room)], float)
        free = np.maximum(room, 0).astype(np.float64)
        if self._program is None:
            self._program = PairLP(self.time, free, counts, 10.0 * (deadline + 1), self.should_stop)
            start = np.where(usable, self.time, np.inf)
            self._program.admit(cheapest_pairs(start, self._guess, 3, 2))
        self._program.set_deadline(free, counts, usable)
        best = -math.inf
        for _ in range(_ROUNDS):
            point = self._program.solve()
            if self._program.interrupted:
                return False
            cost = np.where(usable, self.time * point.weights + point.count_weights, np.inf)
            dual = float(cost.min(axis=1).sum() - point.weights @ free - point.count_weights @ counts)
            scale = float(point.weights.sum())
            if dual > 1e-9 * deadline * scale and self._keep(deadline, point.weights, point.count_weights):
                return True
            if scale > 0 and dual / scale > best:
                best, self.weights, self.count_weights = dual / scale, point.weights, point.count_weights
            fits = point.missing <= 1e-9 and point.excess <= 1e-9 * deadline
            if fits and (not complete or point.excess - best <= 1e-7 * deadline):
                return False
            if not _admit_violated(self._program, cost - point.prices[:, None]) or self.stopped():
                return False
        return False

    def _keep(self, deadline: int, weights: Floats, count_weights: Floats) -> bool:
        whole, counts = whole_weights(weights, count_weights, deadline)
        certificate: Certificate = {
            "kind": "deadline-weights",
            "shift": self.grid.shift,
            "deadline": deadline,
            "weights": whole,
            "count_weights": counts,
        }
        if not refutes(self.grid, certificate):
            return False
        if self.certificate is None or self.certificate["deadline"] < deadline:
            self.certificate = certificate
        return True


def _admit_violated(program: PairLP, reduced: Floats) -> bool:
    """Admit each job's three most negative pairs that are not in the program; False when there are none."""
    n, m = reduced.shape
    tolerance = 1e-9 * max(1.0, float(np.abs(reduced[np.isfinite(reduced)]).mean()))
    reduced = np.where(program.admitted, 0.0, reduced)
    few = min(3, m)
    worst = np.argpartition(reduced, few - 1, axis=1)[:, :few]
    chosen = np.zeros((n, m), dtype=bool)
    np.put_along_axis(chosen, worst, np.take_along_axis(reduced, worst, axis=1) < -tolerance, axis=1)
    program.admit(chosen)
    return bool(chosen.any())


def _price(time: Floats, weights: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        cost: Floats = time * weights
    if not (weights > 0).all():
        cost[np.isnan(cost)] = np.inf
    return cost


def _price_out(time: Floats, weights: Floats, late: NDArray[np.bool_]) -> Floats:
    """Weights at which no job is cheaper on a machine that is free too late than on its cheapest other machine."""
    least = _price(np.where(late, np.inf, time), weights).min(axis=1)
    weights = weights.copy()
    for i in np.flatnonzero(late):
        positive = time[:, i] > 0
        weights[i] = float((least[positive] / time[positive, i]).max(initial=0.0))
    return weights
