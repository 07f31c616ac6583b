"""The two convex functions below the weighted sum of completion times, their bound, and descent on them.

With ``x`` the shares of the jobs, ``p`` their times, ``w`` their weights and each machine's jobs in Smith order (increasing p
per weight; k before j), rounding every job to a machine at random with its shares costs in expectation

    E(x) = sum_i [ c_i . x_i + sum_j w_j x_ij sum_{k before j} p_ik x_ik ],        c_ij = w_j (p_ij + ready_i).      (1)

E is not convex. Two functions that are no larger than E on plans (x = 0 or 1, where x^2 = x) are:

    G(x) = sum_i c_i . x_i                                      (leaves the waiting out)                            (2)
    H(x) = sum_i [ w . ready_i x_i + c'_i . x_i / 2 + x_i . M_i x_i / 2 ],  M_i,jk = min(w_j p_ik, w_k p_ij),         (3)

with c' = c without ready times; H equals E there. M_i is positive semidefinite, so H is convex. What is made of them is in
:mod:`hetopt.algorithms.completion_relaxation`; this module has the arithmetic and the kernels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.completion import check_weights
from hetopt.algorithms.jit import njit
from hetopt.algorithms.times import FloatArray, IntArray, check_ready, check_times, is_integral

__all__ = ["CompletionProgram", "ConvexPoint"]

_PAIRS_PER_CALL = 1 << 19  # pairs that one kernel call visits, some 0.1 s
_STILL = 1e-9  # a job whose shares change less is left alone for the rest of the sweeps


class ConvexPoint(NamedTuple):
    """A point of the convex program and the bound that it proves.

    Attributes
    ----------
    x
        (n, m) shares.
    mixture
        Weight of G against H, between 0 and 1, in the bound that ``x`` proves
        (:func:`~hetopt.algorithms.completion_relaxation.completion_bound`).
    lower_bound
        No plan has a smaller weighted sum of completion times.
    value
        max(G(x), H(x)) in floating point; the program's optimum lies between the bound (before rounding up) and this.
    """

    x: FloatArray
    mixture: float
    lower_bound: float
    value: float


class CompletionProgram(NamedTuple):
    """One instance in the shapes that G and H want."""

    time: FloatArray  # (n, m), inf where a job cannot run
    finite: FloatArray  # the same with 0 there
    weight: FloatArray
    ready: FloatArray
    own: FloatArray  # weight times time, c' in (3)
    total: FloatArray  # c in (1), inf where a job cannot run
    order: IntArray  # (m, n) jobs in Smith order
    rank: IntArray  # (n, m) position of each job in it
    integral: bool

    @classmethod
    def of(cls, time: ArrayLike, weight: ArrayLike | None, ready: ArrayLike | None) -> CompletionProgram:
        """The program of times (n, m), weights (n,) and ready times (m,); ValueError where they do not agree."""
        matrix = check_times(time, runnable=True)
        n, m = matrix.shape
        weights, start = check_weights(weight, n), check_ready(ready, m)
        finite = np.where(matrix < np.inf, matrix, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            per_weight = np.where(finite == 0, 0.0, finite / weights[:, None])
        order = np.argsort(per_weight.T, axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(n)[None, :], axis=1)
        own = weights[:, None] * finite
        total = np.where(matrix < np.inf, own + weights[:, None] * start, np.inf)
        integral = is_integral(matrix, weights, start)
        return cls(matrix, finite, weights, start, own, total, order, np.ascontiguousarray(rank.T), integral)

    def around(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By share, the time of the jobs before each job on each machine and the weight of those after it, (n, m)."""
        sorted_time = np.take_along_axis((self.finite * x).T, self.order, axis=1)
        sorted_weight = np.take_along_axis((self.weight[:, None] * x).T, self.order, axis=1)
        before, after = np.zeros_like(sorted_time), np.zeros_like(sorted_weight)
        sums = np.zeros_like(sorted_time)
        sums[:, 1:] = np.cumsum(sorted_time, axis=1)[:, :-1]
        np.put_along_axis(before, self.order, sums, axis=1)
        sums[:, -1:] = 0.0
        sums[:, :-1] = np.cumsum(sorted_weight[:, ::-1], axis=1)[:, ::-1][:, 1:]
        np.put_along_axis(after, self.order, sums, axis=1)
        return before.T, after.T

    def tangent(self, x: FloatArray) -> tuple[FloatArray, float]:
        """Gradient of H and ``sum_i x_i . M_i x_i``; all terms are >= 0."""
        before, after = self.around(x)
        pull = self.weight[:, None] * before + self.finite * after + self.own * x
        return self.own / 2 + self.weight[:, None] * self.ready + pull, float((x * pull).sum())

    def parts(self, x: FloatArray) -> tuple[float, float]:
        """G(x) and H(x)."""
        slope, square = self.tangent(x)
        g = float((np.where(x > 0, self.total, 0.0) * x).sum())
        return g, float((slope * x).sum()) - square / 2

    def mix(self, slope: FloatArray, mixture: float) -> FloatArray:
        """Gradient of the mixture of G and H from that of H; inf where a job cannot run."""
        if mixture == 0:
            return np.where(self.time < np.inf, slope, np.inf)
        return mixture * self.total + (1 - mixture) * slope

    def bound(self, x: FloatArray, mixture: float) -> float:
        """The bound of :func:`~hetopt.algorithms.completion_relaxation.completion_bound`."""
        slope, square = self.tangent(x)
        rest = 1.0 - mixture
        demand = math.fsum(self.mix(slope, mixture).min(axis=1).tolist())
        error = (4 * len(x) + 64) * float(np.finfo(float).eps) * (demand + rest * square)
        bound = max(0.0, demand - rest * square / 2 - error)
        return float(math.ceil(bound)) if self.integral else bound

    def prove(self, x: FloatArray) -> ConvexPoint:
        """The point with the mixture that proves most; the bound is concave in it."""
        slope, square = self.tangent(x)

        def raw(mixture: float) -> float:
            return float(self.mix(slope, mixture).min(axis=1).sum()) - (1 - mixture) * square / 2

        low, high = 0.0, 1.0
        if raw(1e-4) <= raw(0.0):
            high = 0.0
        while high - low > 1e-7:
            left, right = low + (high - low) / 3, high - (high - low) / 3
            if raw(left) < raw(right):
                low = left
            else:
                high = right
        mixture = max((low, high), key=raw)
        return ConvexPoint(x, mixture, self.bound(x, mixture), max(self.parts(x)))

    def between(self, heavy: FloatArray, light: FloatArray) -> ConvexPoint:
        """The point on the line from shares with G > H to shares with G <= H where both are equal."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            g, h = self.parts(middle * heavy + (1 - middle) * light)
            low, high = (low, middle) if g > h else (middle, high)
        return self.prove(high * heavy + (1 - high) * light)

    def descend(self, x: FloatArray, mixture: float, sweeps: int) -> None:
        """Sweeps of coordinate descent on the mixture of G and H, in place: all jobs once, then those that still move."""
        n, m = x.shape
        times, weights = np.empty((m, n + 1)), np.empty((m, n + 1))
        step = max(1, _PAIRS_PER_CALL // m)
        jobs, moved = np.arange(n), np.empty(n, dtype=np.bool_)
        _plant(self.finite, self.weight, self.rank, x, times, weights)
        for _ in range(sweeps):
            for first in range(0, len(jobs), step):
                part = jobs[first : first + step]
                _descend(self.time, self.weight, self.ready, self.rank, x, mixture, times, weights, part, moved)
            jobs = jobs[moved[jobs]]

    def fix(self, x: FloatArray) -> bool:
        """Give each job to its best machine in turn, in place; whether any row changed."""
        n, m = x.shape
        times, weights = np.empty((m, n + 1)), np.empty((m, n + 1))
        _plant(self.finite, self.weight, self.rank, x, times, weights)
        step, changed = max(1, _PAIRS_PER_CALL // m), False
        for first in range(0, n, step):
            last = min(first + step, n)
            changed |= _fix(self.time, self.weight, self.ready, self.rank, x, times, weights, first, last)
        return changed


@njit
def _prefix(tree, k):  # type: ignore[no-untyped-def]
    """Sum of the first ``k`` entries of a Fenwick tree."""
    total = 0.0
    while k > 0:
        total += tree[k]
        k -= k & -k
    return total


@njit
def _add(tree, k, value):  # type: ignore[no-untyped-def]
    """Add to entry ``k``, counted from 0."""
    k += 1
    while k < len(tree):
        tree[k] += value
        k += k & -k


@njit
def _plant(finite, weight, rank, x, times, weights):  # type: ignore[no-untyped-def]
    """Fenwick trees of each machine, by rank: time by share and weight by share. Entry 0, unused by a tree, has the total."""
    n, m = x.shape
    times[:, :] = 0.0
    weights[:, :] = 0.0
    for j in range(n):
        for i in range(m):
            if x[j, i] > 0:
                times[i, rank[j, i] + 1] = finite[j, i] * x[j, i]
                weights[i, rank[j, i] + 1] = weight[j] * x[j, i]
                times[i, 0] += finite[j, i] * x[j, i]
                weights[i, 0] += weight[j] * x[j, i]
    for i in range(m):
        for k in range(1, n + 1):
            above = k + (k & -k)
            if above <= n:
                times[i, above] += times[i, k]
                weights[i, above] += weights[i, k]


@njit
def _replace(j, i, share, time, weight, rank, x, times, weights):  # type: ignore[no-untyped-def]
    """Set one share and keep the trees."""
    change = share - x[j, i]
    if change != 0:
        _add(times[i], rank[j, i], time[j, i] * change)
        _add(weights[i], rank[j, i], weight[j] * change)
        times[i, 0] += time[j, i] * change
        weights[i, 0] += weight[j] * change
        x[j, i] = share


@njit
def _descend(time, weight, ready, rank, x, mixture, times, weights, jobs, moved):  # type: ignore[no-untyped-def]
    """For each of the jobs in turn, minimise the mixture over the shares of the one job, exactly; note whether it ``moved``.

    On machine i the marginal cost is ``base_i + slope_i x``. Machines are opened in the order of ``base`` and all share the
    level at which the shares add up to one; a machine without slope takes whatever is left at its level.
    """
    m = x.shape[1]
    base, slope = np.empty(m), np.empty(m)
    for j in jobs:
        w = weight[j]
        moved[j] = False
        for i in range(m):
            p = time[j, i]
            if p == np.inf:
                base[i] = np.inf
                continue
            before = _prefix(times[i], rank[j, i])
            after = max(0.0, weights[i, 0] - _prefix(weights[i], rank[j, i] + 1))
            h = w * (ready[i] + p / 2 + before) + p * after
            base[i] = mixture * w * (ready[i] + p) + (1 - mixture) * h
            slope[i] = (1 - mixture) * w * p
        order = np.argsort(base)
        level, inverse, weighted, opened = np.inf, 0.0, 0.0, 0
        for i in order:
            if base[i] >= level or base[i] == np.inf:
                break
            opened += 1
            if slope[i] < 1e-300:
                level = base[i]
                break
            inverse += 1 / slope[i]
            weighted += base[i] / slope[i]
            level = (1 + weighted) / inverse
        left = 1.0
        for k in range(m):
            i = order[m - 1 - k]  # dearest first: the cheapest machine takes the rounding error
            if m - 1 - k >= opened:
                share = 0.0
            elif slope[i] < 1e-300 or k == m - 1:
                share = left
            else:
                share = min(left, max(0.0, (level - base[i]) / slope[i]))
            left -= share
            moved[j] |= abs(share - x[j, i]) > _STILL
            _replace(j, i, share, time, weight, rank, x, times, weights)


@njit
def _fix(time, weight, ready, rank, x, times, weights, first, last):  # type: ignore[no-untyped-def]
    """Give each of the jobs ``first`` to ``last`` to the machine where E has its least coefficient; a whole one stays
    unless it gains."""
    m = x.shape[1]
    changed = False
    for j in range(first, last):
        w = weight[j]
        best = now = -1
        least = stay = np.inf
        for i in range(m):
            p = time[j, i]
            if p == np.inf:
                continue
            before = _prefix(times[i], rank[j, i])
            after = max(0.0, weights[i, 0] - _prefix(weights[i], rank[j, i] + 1))
            cost = w * (ready[i] + p + before) + p * after
            if best < 0 or cost < least:
                best, least = i, cost
            if x[j, i] == 1.0:
                now, stay = i, cost
        if now >= 0 and least >= stay * (1 - 1e-12):
            continue
        changed = True
        for i in range(m):
            _replace(j, i, 1.0 if i == best else 0.0, time, weight, rank, x, times, weights)
    return changed
