"""The deadline relaxation of jobs on unrelated machines: smallest T not refuted, its shares, and the 2-approximation.

A plan of makespan T uses only pairs with ``ready_i + time_ji <= T`` and loads no machine beyond T. Relaxed to shares, this is
a linear program for each T, whose smallest feasible T is a lower bound at least as good as the plain relaxation's (it knows
that a job longer than T on a machine has no business there), and whose shares round to a plan within twice that bound.

For a stronger bound take the ladder of :mod:`hetopt.algorithms.makespan_bounds`, for a better plan a search; this is the
algorithm with the guarantee. Solvers only suggest numbers: bounds are replayed in integers by
:func:`hetopt.verify.makespan_certificates.replay`, and the rounding trusts no vertex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.lists import mct
from hetopt.algorithms.makespan_bounds import certified_grid, whole_weights
from hetopt.algorithms.makespan_lp import PairLP, cheapest_pairs, machine_prices
from hetopt.algorithms.rounding import lenstra_shmoys_tardos
from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times, is_integral, makespan
from hetopt.verify.makespan_certificates import CLIP, Grid, exact_sum, replay

__all__ = ["BoundedPlan", "DeadlinePoint", "deadline_certificate", "deadline_relaxation", "lst"]

_TIGHT = 1e-9  # relative gap at which a linear program counts as solved; bounds are proven separately
_UNIT = 1000.0  # times are scaled so that this is about the optimum, far above the solver's absolute tolerances


class DeadlinePoint(NamedTuple):
    """The smallest deadline that the relaxation does not refute.

    Attributes
    ----------
    x
        (n, m) shares with loads and single times within ``deadline``.
    deadline
        Smallest T whose relaxation has shares, as the solver computes it.
    lower_bound
        No plan has a smaller makespan; an int when all numbers of the instance are integers, then ``deadline`` rounded up
        if ``complete``. With decimals it falls short of a complete ``deadline`` by up to some 1e-6 of it, because it is
        proven on a grid.
    certificate
        Proof of ``lower_bound`` for :func:`~hetopt.verify.makespan_certificates.replay`: machine weights under which the jobs
        need more than all machines have by the deadline before it (``deadline-weights``), or none, where the job that is
        long on every machine is proof enough (``machine-weights``).
    complete
        Whether the search was finished rather than stopped.
    """

    x: FloatArray
    deadline: float
    lower_bound: int | float
    certificate: dict[str, Any]
    complete: bool


class BoundedPlan(NamedTuple):
    """A plan with the bound that it is measured against.

    Attributes
    ----------
    plan
        (n,) machine of each job.
    lower_bound, certificate, deadline, complete
        As in :class:`DeadlinePoint`.
    """

    plan: IntArray
    lower_bound: int | float
    certificate: dict[str, Any]
    deadline: float
    complete: bool


def lst(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    rounding: Callable[..., IntArray] = lenstra_shmoys_tardos,
    should_stop: Callable[[], bool] | None = None,
) -> BoundedPlan:
    """Lenstra, Shmoys and Tardos: search for the smallest deadline not refuted, then round its shares.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    ready
        (m,) times from which the machines are free; zero if None.
    rounding
        Function of (time, x, ready=) that makes shares a plan; :func:`~hetopt.algorithms.rounding.shchepin_vakhania` for the
        better ratio.
    should_stop
        Asked between linear programs and during long ones. When it turns true, the best shares so far are rounded.

    Returns
    -------
    BoundedPlan
        When ``complete``, the makespan is at most ``2 deadline``, or ``(2 - 1/m) deadline`` with Shchepin and Vakhania's
        rounding; and the optimum is at least ``deadline``, which ``lower_bound`` and its certificate prove.

    Raises
    ------
    ValueError
        When the arrays are malformed or a job can run nowhere.

    Notes
    -----
    One linear program when the plain relaxation already keeps its own deadline, as it does where jobs are many and short;
    else O(log(n m)) of them, each by column generation over the n m shares. Source: Mathematical Programming 46 (1990).
    """
    point = deadline_relaxation(time, ready=ready, should_stop=should_stop)
    plan = rounding(time, point.x, ready=ready)
    return BoundedPlan(plan, point.lower_bound, point.certificate, point.deadline, point.complete)


def deadline_relaxation(
    time: ArrayLike, *, ready: ArrayLike | None = None, should_stop: Callable[[], bool] | None = None
) -> DeadlinePoint:
    """Smallest deadline T at which shares with loads and single times within T exist, with its proof.

    Arguments and errors as in :func:`lst`.

    Notes
    -----
    Between two consecutive moments at which some job could end on some machine, the pairs allowed are the same, so one
    linear program that minimises the largest load over them settles all T in between: its value is the answer if it lies
    there, and refutes them all if it lies beyond. Values fall and moments rise, so bisection over the moments finds the
    first that is not refuted.
    """
    matrix = check_times(time, runnable=True)
    n, m = matrix.shape
    start = check_ready(ready, m)
    x = np.zeros((n, m))
    if n == 0:
        return DeadlinePoint(x, 0.0, 0, _longest_job(0, m), True)
    plan = mct(matrix, ready=start)
    x[np.arange(n), plan] = 1.0
    deadline, complete = makespan(matrix, plan, start), False
    ends = matrix + start
    if start.any() and not is_integral(matrix, start):
        ends = np.nextafter(ends, 0.0)  # never later than the exact sum
    earliest = float(ends.min(axis=1).max())  # every job must be able to end somewhere
    moments = np.unique(ends[np.isfinite(ends) & (ends >= earliest)])
    after = np.r_[moments[1:], np.inf]
    search = _Search(matrix, start, ends, certified_grid(matrix, start, deadline), should_stop)

    def place(moment: float) -> int:
        """The last moment that is not after this one; the pairs allowed stay the same until the next."""
        return max(0, int(np.searchsorted(moments, moment, side="right")) - 1)

    low, high, middle, source = 0, len(moments), place(deadline), -1
    # Deadlines before moment `low` are refuted; at `high` there are shares, from the program of moment `source`.
    while not complete and (solved := search.solve(float(after[middle]))) is not None:
        value, shares = solved
        settled = place(max(value, float(ends[shares > 0].max())))
        if settled < high or middle == high:
            x, high, deadline, source = shares, settled, max(float(moments[settled]), value), middle
        if value >= after[middle]:
            low = middle + 1
        low = max(low, min(place(float(search.bound)), high))
        # Shares are the best for their moment if it was solved itself, or a later one, with more pairs, settled there. But
        # a program counts every machine that a job may use as ready: with ready times it is exact at its own moment only.
        complete = low >= high and (source == high or (source > high and not start.any()))
        middle = (low + high) // 2
    return DeadlinePoint(x, deadline, search.bound, search.certificate, complete)


class _Search:
    """The linear programs of one instance and the best bound that their duals have proven so far."""

    def __init__(
        self,
        time: FloatArray,
        ready: FloatArray,
        ends: FloatArray,
        grid: Grid,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self.time, self.ready, self.ends, self.grid, self.should_stop = time, ready, ends, grid, should_stop
        self.certificate = _longest_job(grid.shift, len(ready))
        self.bound = replay(time, self.certificate, ready, grid=grid)
        self._weights, value = machine_prices(time, ready, 30, should_stop)
        self._scale = _UNIT / value if value > 0 else 1.0

    def refute_before(self, limit: float, weights: FloatArray) -> None:
        """Prove what these machine weights say about deadlines before ``limit``, and keep the best bound."""
        certificate = deadline_certificate(self.grid, weights, limit)
        if certificate is not None:
            bound = replay(self.time, certificate, self.ready, grid=self.grid)
            if bound > self.bound:
                self.bound, self.certificate = bound, certificate

    def solve(self, limit: float) -> tuple[float, FloatArray] | None:
        """Smallest largest load by shares of pairs that can end before ``limit``, and the shares; None when stopped."""
        allowed = self.ends < limit
        usable = allowed.any(axis=0)
        times = np.where(allowed, self.time * self._scale, np.inf)
        start = np.where(usable, self.ready * self._scale, 0.0)
        # A machine that no job may use must not count with its ready time.
        program = PairLP(times, np.where(usable, -start, np.inf), should_stop=self.should_stop)
        program.admit(cheapest_pairs(times, self._weights, 3, 2))
        best, width = -np.inf, 3
        while True:
            if self.should_stop is not None and self.should_stop():
                return None
            point = program.solve()
            if program.interrupted:
                return None
            weights = np.where(usable, point.weights, 0.0)
            weights /= weights.sum()
            with np.errstate(invalid="ignore"):
                value = float(weights @ start + np.where(allowed, times * weights, np.inf).min(axis=1).sum())
            if value > best:
                best, self._weights = value, weights
            if point.excess - best <= _TIGHT * point.excess:
                break
            # The pairs of the most negative reduced costs are the cheapest; nothing new means that ties hid them.
            before = len(program.job)
            program.admit(cheapest_pairs(times, weights, width, 0))
            if len(program.job) == before:
                if width >= times.shape[1]:
                    break
                width *= 2
        self.refute_before(limit, self._weights)
        shares = np.zeros_like(times)
        shares[program.job, program.machine] = np.maximum(point.share, 0.0)
        return point.excess / self._scale, shares / shares.sum(axis=1, keepdims=True)


def _longest_job(shift: int, machines: int) -> dict[str, Any]:
    """Certificate that uses no weights: every job has to end somewhere."""
    return {"kind": "machine-weights", "shift": shift, "weights": np.zeros(machines, dtype=np.int64)}


def deadline_certificate(grid: Grid, weights: FloatArray, limit: float) -> dict[str, Any] | None:
    """Certificate for the last deadline before ``limit`` that machine weights refute; None when they refute none.

    With ``A`` the pairs that can end before ``limit``, no plan ends by a T before ``limit`` with ``sum_j min_{(j, i) in A} w_i
    time_ji > sum_i w_i max(T - ready_i, 0)``; the largest such T of the grid is found in integers.

    Parameters
    ----------
    grid
        The instance on an integer grid, from :func:`~hetopt.verify.makespan_certificates.on_grid`.
    weights
        (m,) weights >= 0.
    limit
        Deadline, in the instance's units, before which pairs must end; ``inf`` allows all.
    """
    latest = CLIP - 1
    if limit < CLIP:
        scaled = float(np.ldexp(limit, grid.shift))
        # On the grid, times and ready times are rounded down, so a pair may seem to end up to two units too early.
        latest = min(latest, int(np.ceil(scaled)) - 1 if grid.integral and grid.shift == 0 else int(scaled) - 2)
    allowed = grid.time + grid.ready <= latest
    whole, counts = whole_weights(weights, None, int(np.where(grid.time <= CLIP, grid.time, 0).max(initial=0)))
    if allowed.any(axis=1).all():
        demand = exact_sum(np.where(allowed, np.where(allowed, grid.time, 0) * whole, 1 << 62).min(axis=1))
        low, high = -1, latest  # the weights refute `low` (nothing ends before 0) and perhaps later deadlines
        pairs = list(zip(whole.tolist(), grid.ready.tolist(), strict=True))
        while low < high:
            middle = (low + high + 1) // 2
            if sum(w * max(middle - r, 0) for w, r in pairs) < demand:
                low = middle
            else:
                high = middle - 1
        latest = low
    if latest < 0:
        return None
    return {
        "kind": "deadline-weights",
        "shift": grid.shift,
        "deadline": latest,
        "weights": whole,
        "count_weights": counts,
    }
