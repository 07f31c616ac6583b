"""The linear relaxation of jobs on unrelated machines, restricted to a growing set of job-machine pairs.

Only a few pairs of each job can carry anything in an optimal vertex, so the linear program is solved over those and the
rest are priced by reduced cost (sifting). The machinery is shared by the bounds of
:mod:`hetopt.algorithms.makespan_bounds`, which say what is minimised and prove it; this module makes no claims.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["PairLP", "PairPoint", "cheapest_pairs", "machine_prices"]

Floats = NDArray[np.float64]

_BLOCK = 1 << 21  # pairs priced together, to bound the memory of large instances
_WATCHED = 3000  # rows from which the simplex method is asked at each iteration whether it should stop


def machine_prices(
    time: Floats, ready: Floats, rounds: int = 30, should_stop: Callable[[], bool] | None = None
) -> tuple[Floats, float]:
    """Prices of the machines' time by raising those of overloaded machines (dual ascent without a linear program).

    Each round gives every job its cheapest machine under the prices, and multiplies a machine's price by
    ``exp(step (load / mean load - 1))`` with a step that falls like 1/round.

    Parameters
    ----------
    time
        (n, m) processing times, ``inf`` where a job cannot run.
    ready
        (m,) moments from which the machines are free.
    rounds
        Number of passes over all pairs.
    should_stop
        Asked after each round; None never stops.

    Returns
    -------
    weights, value
        (m,) weights >= 0 with sum 1, and ``sum_i weights_i ready_i + sum_j min_i weights_i time_ji``, the best found: a
        lower bound on the largest load up to rounding errors, which the caller has to prove.

    Notes
    -----
    O(rounds n m). On the published classes 30 rounds come within 0.1 % of the linear program, and within 1 % where the
    machines' speeds differ widely.
    """
    n, m = time.shape
    total, number = np.zeros(m), np.zeros(m)
    for rows in _blocks(n, m):
        finite = np.isfinite(time[rows])
        total += np.where(finite, time[rows], 0.0).sum(axis=0)
        number += finite.sum(axis=0)
    mean = total / np.maximum(number, 1)
    scale = float(mean.max(initial=0.0)) or 1.0
    logarithm = -np.log(np.maximum(mean, 1e-9 * scale))
    best, best_weights = -np.inf, np.full(m, 1.0 / m)
    for k in range(rounds):
        weights = np.exp(logarithm - logarithm.max())
        weights /= weights.sum()
        value, load = float(weights @ ready), ready.copy()
        for rows in _blocks(n, m):
            block = time[rows]
            machine = _priced(block, weights).argmin(axis=1)
            chosen = block[np.arange(len(block)), machine]
            value += float(weights[machine] @ chosen)
            load += np.bincount(machine, chosen, m)
        if value > best:
            best, best_weights = value, weights
        mean_load = load.mean()
        if mean_load <= 0 or (should_stop is not None and should_stop()):
            break
        logarithm += np.clip(0.15 / (1 + 0.2 * k) * (load / mean_load - 1), -0.5, 0.5)
    return best_weights, best


def cheapest_pairs(
    time: Floats, weights: Floats, per_job: int, per_machine: float, offset: Floats | None = None
) -> NDArray[np.bool_]:
    """Pairs worth starting with: each job's ``per_job`` cheapest ones and each machine's ``per_machine n / m`` ones.

    Cheap means a small reduced cost ``weights_i time_ji + offset_i`` minus the job's least. Ties are broken by a fixed
    pattern that spreads them over the machines: with many equal costs the first machines would take all.

    Returns
    -------
    ndarray
        (n, m) mask; ineligible pairs are never in it. O(n m).
    """
    n, m = time.shape
    cost = _priced(time, weights)
    if offset is not None:
        cost += offset
    least = cost.min(axis=1, keepdims=True)
    cost -= least
    spread = max(float(least.mean()), 1e-300) * 1e-6
    cost += spread * ((np.arange(n)[:, None] * 0.6180339887498949 + np.arange(m) * 0.7548776662466927) % 1.0)
    mask = np.zeros((n, m), dtype=bool)
    few = min(per_job, m)
    np.put_along_axis(mask, np.argpartition(cost, few - 1, axis=1)[:, :few], True, axis=1)
    few = min(n, int(np.ceil(per_machine * n / m)))
    if few:
        np.put_along_axis(mask, np.argpartition(cost, few - 1, axis=0)[:few], True, axis=0)
    mask &= np.isfinite(cost)
    return mask


class PairPoint(NamedTuple):
    """An optimal point of the restricted program and its duals.

    Attributes
    ----------
    excess
        Value of the excess variable, the objective.
    missing
        Total share of jobs that no admitted pair could take.
    share
        (pairs,) share of the job on the machine, in the order of :attr:`PairLP.job` and :attr:`PairLP.machine`.
    weights, count_weights
        (m,) duals >= 0 of the load rows and of the count rows (zeros when there are none).
    prices
        (n,) duals of the assignment rows.
    """

    excess: float
    missing: float
    share: Floats
    weights: Floats
    count_weights: Floats
    prices: Floats


class PairLP:
    """Minimise e subject to: each job whole; ``load_i <= room_i + e``; optionally ``count_i <= counts_i``.

    A job may also be left out at ``penalty`` per share (with ``penalty`` None it may not). Pairs are added by
    :meth:`admit`; the basis is kept between calls, so that a re-solve after adding pairs or moving the deadline is cheap.

    Parameters
    ----------
    time
        (n, m) processing times; only admitted pairs are looked at.
    room
        (m,) what the loads are compared with.
    counts
        (m,) most jobs per machine, or None for no such rows.
    penalty
        Cost of leaving out a job; None forbids it.
    should_stop
        Asked during long solves; the point of an interrupted solve is the last one, and :attr:`interrupted` is True.
    """

    def __init__(
        self,
        time: Floats,
        room: Floats,
        counts: Floats | None = None,
        penalty: float | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        import highspy

        n, m = time.shape
        self.time, self.interrupted = time, False
        self.admitted = np.zeros((n, m), dtype=bool)
        self.job, self.machine = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._counted = counts is not None
        self._first = 1 if penalty is None else 1 + n  # column of the first pair
        self._solver: Any = highspy.Highs()
        self._optimal = highspy.HighsModelStatus.kOptimal
        for name, value in {"output_flag": False, "threads": 1, "solver": "simplex", "presolve": "off"}.items():
            self._solver.setOptionValue(name, value)
        self._inf = highspy.kHighsInf
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self._first, n + m * (1 + self._counted)
        model.col_cost_ = np.r_[1.0, np.full(self._first - 1, penalty or 0.0)]
        model.col_lower_ = np.r_[-self._inf, np.zeros(self._first - 1)]
        model.col_upper_ = np.full(self._first, self._inf)
        upper = [np.ones(n), room] + ([counts] if counts is not None else [])
        model.row_upper_ = np.concatenate(upper)
        model.row_lower_ = np.r_[np.ones(n), np.full(model.num_row_ - n, -self._inf)]
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.r_[0, m + np.arange(self._first)].astype(np.int32)
        model.a_matrix_.index_ = np.r_[n + np.arange(m), np.arange(self._first - 1)].astype(np.int32)
        model.a_matrix_.value_ = np.r_[np.full(m, -1.0), np.ones(self._first - 1)]
        self._solver.passModel(model)
        if should_stop is not None and n + m >= _WATCHED:

            def ask(event: Any) -> None:
                if should_stop():
                    event.interrupt()

            self._solver.cbSimplexInterrupt.subscribe(ask)

    def admit(self, pairs: NDArray[np.bool_]) -> None:
        """Add the pairs of an (n, m) mask that are not there yet."""
        n, m = self.time.shape
        job, machine = np.nonzero(pairs & ~self.admitted)
        if len(job) == 0:
            return
        rows = np.stack([job, n + machine] + ([n + m + machine] if self._counted else []), axis=1)
        entries = np.ones(rows.shape)
        entries[:, 1] = self.time[job, machine]
        k, per_pair = rows.shape
        start = (per_pair * np.arange(k)).astype(np.int32)
        zero, high = np.zeros(k), np.full(k, self._inf)
        self._solver.addCols(k, zero, zero, high, rows.size, start, rows.ravel().astype(np.int32), entries.ravel())
        self.admitted[job, machine] = True
        self.job, self.machine = np.r_[self.job, job], np.r_[self.machine, machine]

    def set_deadline(self, room: Floats, counts: Floats, usable: NDArray[np.bool_]) -> None:
        """Move the deadline: new right sides, and pairs outside the (n, m) mask ``usable`` carry nothing."""
        n, m = self.time.shape
        rows = (n + np.arange(2 * m)).astype(np.int32)
        self._solver.changeRowsBounds(2 * m, rows, np.full(2 * m, -self._inf), np.r_[room, counts])
        k = len(self.job)
        columns = (self._first + np.arange(k)).astype(np.int32)
        high = np.where(usable[self.job, self.machine], self._inf, 0.0)
        self._solver.changeColsBounds(k, columns, np.zeros(k), high)

    def solve(self) -> PairPoint:
        """Optimise over the admitted pairs."""
        n, m = self.time.shape
        self._solver.run()
        self.interrupted = self._solver.getModelStatus() != self._optimal
        solution = self._solver.getSolution()
        x = np.asarray(solution.col_value, dtype=np.float64)
        dual = np.asarray(solution.row_dual, dtype=np.float64)
        count_weights = np.maximum(-dual[n + m :], 0.0) if self._counted else np.zeros(m)
        return PairPoint(
            excess=float(x[0]),
            missing=float(x[1 : self._first].sum()),
            share=x[self._first :],
            weights=np.maximum(-dual[n : n + m], 0.0),
            count_weights=count_weights,
            prices=dual[:n],
        )


def _priced(time: Floats, weights: Floats) -> Floats:
    """``weights * time`` where zero times ``inf`` is ``inf``: a free machine does not become eligible."""
    if (weights > 0).all():
        return time * weights
    with np.errstate(invalid="ignore"):
        cost: Floats = time * weights
    cost[np.isnan(cost)] = np.inf
    return cost


def _blocks(n: int, m: int) -> list[slice]:
    step = max(1, _BLOCK // m)
    return [slice(k, min(k + step, n)) for k in range(0, n, step)]
