"""Weighted sum of completion times on unrelated machines: convex relaxation, proven bound, plans within 3/2 of it.

Two convex functions of the jobs' shares, G and H, lie below the cost of every plan (:mod:`hetopt.algorithms.completion_program`
states them), so Z = min max(G, H) is a lower bound. Because rounding at random costs E <= H + G / 2 in expectation, rounding
the optimum costs at most 3/2 Z, and fixing the jobs one by one so that the conditional expectation never rises makes a plan
of it. The solver is not trusted: :func:`completion_bound` proves a bound from *any* shares by linearising H there.

Source: Skutella, "Convex quadratic and semidefinite programming relaxations in scheduling", Journal of the ACM 48 (2001).
Not for release dates of jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.completion_program import CompletionProgram, ConvexPoint
from hetopt.algorithms.forest import check_shares
from hetopt.algorithms.times import FloatArray, IntArray

__all__ = [
    "SkutellaPlan",
    "completion_bound",
    "convex_relaxation",
    "derandomise",
    "expected_completion",
    "round_at_random",
    "skutella",
]

_SWEEPS = 30  # of coordinate descent between two looks at the bound
_LOOKS = 5000
_PASSES = 50  # over the jobs of a plan, each of which only improves it


class SkutellaPlan(NamedTuple):
    """A plan within 3/2 of a proven bound.

    Attributes
    ----------
    plan
        (n,) machine of each job; each machine runs its jobs by Smith's rule.
    lower_bound, x, mixture
        As in :class:`ConvexPoint`.
    """

    plan: IntArray
    lower_bound: float
    x: FloatArray
    mixture: float


def skutella(
    time: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ready: ArrayLike | None = None,
    gap: float = 1e-5,
    should_stop: Callable[[], bool] | None = None,
) -> SkutellaPlan:
    """Skutella's 3/2-approximation: the convex program, rounded by conditional expectations.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    weight
        (n,) weights >= 0, one each if None.
    ready
        (m,) times from which the machines are free; zero if None.
    gap
        Relative gap at which the convex program counts as solved.
    should_stop
        Asked every few sweeps; when it turns true, the shares so far are rounded.

    Returns
    -------
    SkutellaPlan
        Its value (:func:`~hetopt.algorithms.completion.weighted_completion`) is at most ``3/2 (1 + gap) lower_bound``,
        unless stopped.

    Raises
    ------
    ValueError
        When the arrays are malformed or a job can run nowhere.

    Notes
    -----
    Complexity: that of :func:`convex_relaxation`, the rounding being a few sweeps more.
    """
    point = convex_relaxation(time, weight, ready=ready, gap=gap, should_stop=should_stop)
    return SkutellaPlan(derandomise(time, point.x, weight, ready=ready), point.lower_bound, point.x, point.mixture)


def convex_relaxation(
    time: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ready: ArrayLike | None = None,
    gap: float = 1e-5,
    solver: str | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> ConvexPoint:
    """Minimise max(G, H) over the shares. Arguments and errors as in :func:`skutella`.

    Coordinate descent by default: with all others fixed, the best shares of one job fill its machines up to a common
    marginal cost. H alone is minimised first; only where G exceeds it there, as with few jobs per machine, their mixture is
    found by bisection. With ``solver`` the program goes to a conic solver of that name through cvxpy instead.

    Notes
    -----
    O(n m log n) a sweep (prefix sums in a Fenwick tree per machine), less for the sweeps that visit only jobs that still
    move. With a gap of 1e-5: 0.3 s for 1,000 jobs on 50 machines, half a minute for 10,000 on 100.
    """
    program = CompletionProgram.of(time, weight, ready)
    n, m = program.time.shape
    if n == 0:
        return ConvexPoint(np.zeros((0, m)), 0.0, 0.0, 0.0)
    if solver is not None:
        return program.prove(check_shares(program.time, _by_cvxpy(program, solver)))
    x = np.zeros((n, m))
    x[np.arange(n), program.total.argmin(axis=1)] = 1.0
    best = program.prove(x)
    low, high, mixture = 0.0, 1.0, 0.0
    heavy: FloatArray | None = None  # last minimiser of a mixture with G above H, and with H above G
    light: FloatArray | None = None
    for _ in range(_LOOKS):
        if best.value - best.lower_bound <= gap * best.value or (should_stop is not None and should_stop()):
            break
        program.descend(x, mixture, _SWEEPS)
        point = program.prove(x.copy())
        if point.lower_bound > best.lower_bound or (point.lower_bound == best.lower_bound and point.value < best.value):
            best = point
        g, h = program.parts(x)
        mixed = mixture * g + (1 - mixture) * h
        if mixed - program.bound(x, mixture) > 0.25 * gap * mixed:
            continue
        if g <= h and mixture == 0:
            break
        if g > h:
            low, heavy = mixture, x.copy()
        else:
            high, light = mixture, x.copy()
        if heavy is not None and light is not None:
            best = max(best, program.between(heavy, light), key=lambda p: (p.lower_bound - p.value, p.lower_bound))
        mixture = (low + high) / 2
    return best


def completion_bound(
    time: ArrayLike, x: ArrayLike, mixture: float, weight: ArrayLike | None = None, *, ready: ArrayLike | None = None
) -> float:
    """Lower bound on the weighted sum of completion times that any shares prove.

    With a the ``mixture`` and all y shares of the jobs, H(y) >= H(x) + H'(x) (y - x) by convexity, so that every plan costs
    at least

        min_y a G(y) + (1 - a) H(y)  >=  sum_j min_i [a c_ij + (1 - a) H'(x)_ij] - (1 - a) sum_i x_i . M_i x_i / 2.

    Parameters
    ----------
    x
        (n, m) numbers >= 0, zero where the job cannot run. They need not sum to 1.
    mixture
        a, from 0 to 1. The other arguments are as in :func:`skutella`.

    Returns
    -------
    float
        The bound, rounded up to an integer when times, ready times and weights are integers.

    Raises
    ------
    ValueError
        When the arrays are malformed, or a share is negative or not a number.

    Notes
    -----
    O(n m log n). Every sum has terms >= 0 only, so the floating-point error is at most some 4 n epsilon of the sums
    themselves, also when Smith's order is wrong in the last digit; it is taken off.
    """
    program = CompletionProgram.of(time, weight, ready)
    shares = np.asarray(x, dtype=np.float64)
    if shares.shape != program.time.shape or not (np.isfinite(shares) & (shares >= 0)).all():
        raise ValueError(f"x must be a matrix of shape {program.time.shape} with numbers from 0 on")
    if (shares[program.time == np.inf] > 0).any():
        raise ValueError("a job has a share of a machine that cannot run it")
    if not 0 <= mixture <= 1:
        raise ValueError(f"the mixture must lie between 0 and 1, not {mixture}")
    return program.bound(shares, mixture) if len(shares) else 0.0


def expected_completion(
    time: ArrayLike, x: ArrayLike, weight: ArrayLike | None = None, *, ready: ArrayLike | None = None
) -> float:
    """Expected weighted sum of completion times, E(x), when each job draws its machine by its shares."""
    program = CompletionProgram.of(time, weight, ready)
    shares = check_shares(program.time, x)
    before, _ = program.around(shares)
    return float((shares * (program.own + program.weight[:, None] * (program.ready + before))).sum())


def round_at_random(x: ArrayLike, seed: int) -> IntArray:
    """Draw the machine of each job with its shares (n, m) as probabilities, independently. O(n m)."""
    upto = np.cumsum(np.asarray(x, dtype=np.float64), axis=1)
    drawn = np.random.default_rng(seed).random(len(upto)) * upto[:, -1]
    plan: IntArray = (upto > drawn[:, None]).argmax(axis=1)
    return plan


def derandomise(
    time: ArrayLike, x: ArrayLike, weight: ArrayLike | None = None, *, ready: ArrayLike | None = None
) -> IntArray:
    """Make a plan of shares that costs at most E(x): the method of conditional expectations.

    Job by job, E is linear in the shares of one job, so giving it wholly to the machine of the least coefficient does not
    raise E. The same step is then repeated on the plan, where it moves a job to where it costs least, until none moves.

    Arguments and errors as in :func:`skutella`, and those of :func:`~hetopt.algorithms.forest.check_shares`.

    Returns
    -------
    ndarray
        (n,) machine of each job. O(n m log n) a pass, at most 50 passes.
    """
    program = CompletionProgram.of(time, weight, ready)
    shares = check_shares(program.time, x)
    for _ in range(_PASSES):
        if not program.fix(shares):
            break
    plan: IntArray = shares.argmax(axis=1)
    return plan


def _by_cvxpy(program: CompletionProgram, solver: str) -> FloatArray:
    """The program (2), (3) as a conic program: H as a weighted sum of squares of the loads of each machine's first jobs.

    With jobs in Smith order and rho = w / p, ``x . M x = sum_t (rho_t - rho_{t+1}) (sum_{k <= t} p_k x_k)^2``.
    """
    import cvxpy as cp
    from scipy.sparse import coo_array

    n, m = program.time.shape
    scale = float(program.own.mean()) or 1.0
    size = float(program.finite.mean()) or 1.0
    x = cp.Variable((n, m), nonneg=True)
    shared = (program.time == np.inf).astype(float)
    linear = np.where(program.time < np.inf, program.total, 0.0) / scale
    waiting = program.weight[:, None] * program.ready / scale
    halves = [cp.sum(cp.multiply(program.own / (2 * scale) + waiting, x))]
    constraints = [cp.sum(x, axis=1) == 1, cp.multiply(shared, x) == 0]
    for i in range(m):
        jobs = program.order[i][program.finite[program.order[i], i] > 0]
        if jobs.size == 0:
            continue
        time = program.finite[jobs, i] / size
        rho = program.weight[jobs] / time
        drop = np.maximum(rho - np.r_[rho[1:], 0.0], 0.0) * (size / scale)
        upto = cp.Variable(len(jobs))
        k = np.arange(len(jobs))
        chain = coo_array((np.r_[np.ones(len(jobs)), -np.ones(len(jobs) - 1)], (np.r_[k, k[1:]], np.r_[k, k[:-1]])))
        constraints.append(chain.tocsr() @ upto == cp.multiply(time, x[jobs, i]))
        halves.append(cp.sum_squares(cp.multiply(np.sqrt(drop / 2), upto)))
    largest = cp.Variable()
    constraints += [largest >= cp.sum(cp.multiply(linear, x)), largest >= cp.sum(cp.hstack(halves))]
    problem = cp.Problem(cp.Minimize(largest), constraints)
    problem.solve(solver=solver)
    if x.value is None:
        raise RuntimeError(f"{solver} ended with status {problem.status} and no point")
    shares = np.where(program.time < np.inf, np.maximum(x.value, 0.0), 0.0)
    normed: FloatArray = shares / shares.sum(axis=1, keepdims=True)
    return normed
