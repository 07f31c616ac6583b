"""Lower bounds on the makespan from knapsacks: which jobs fit on a machine together, machine by machine.

The upper two rungs of the ladder whose lower two are in :mod:`hetopt.algorithms.makespan_bounds`. For a deadline T and
prices u >= 0 of the jobs, let K_i(u) be the largest total price of jobs that machine i can finish by T. A plan that ends by
T pays every price, so ``D(u) = sum_j u_j - sum_i K_i(u) > 0`` refutes T. The Lagrangian bound raises D by subgradients; the
configuration linear program finds the best prices by column generation. Both give a certificate of kind ``knapsack``.

Source: the Lagrangian dual with knapsack subproblems, van de Velde, ORSA Journal on Computing 5 (1993), and Martello,
Soumis and Toth, Discrete Applied Mathematics 75 (1997); the configuration program, Verschae and Wiese, Journal of Scheduling
17 (2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import HAVE_NUMBA, njit
from hetopt.algorithms.makespan_bounds import Certificate, DeadlineBound, DeadlineTest, refutes, whole_weights
from hetopt.algorithms.makespan_lp import Floats
from hetopt.verify.makespan_certificates import Grid, replay

__all__ = ["Effort", "KnapsackDual", "configuration_bound", "knapsack_bound", "raise_prices"]

Stop = Callable[[], bool]

_CELLS = 50_000_000  # cells of the dynamic programs between two looks at the clock, about 0.05 s
_EFFORT = 2_000_000_000  # cells in all, about 2 s
_MASTER = 10_000_000  # what a solve of the configuration program counts for
_GAVE_UP = 2_000_000_000  # cells of one evaluation from which the rung is not worth its time
_MEMORY = 1 << 28  # bytes for the choices of the largest program


class Effort:
    """What a rung may spend: cells of dynamic programs (a measure that is the same on every machine) and patience."""

    def __init__(self, cells: int = _EFFORT, should_stop: Stop | None = None) -> None:
        self.cells, self._should_stop = cells, should_stop

    def spent(self) -> bool:
        """Whether to give up now."""
        return self.cells <= 0 or (self._should_stop is not None and self._should_stop())


class KnapsackDual:
    """D(u) at one deadline, over the pairs that the cardinality duals leave possible.

    Parameters
    ----------
    grid
        The integer instance.
    deadline
        T in grid units, with at least one usable pair for every job.
    weights, count_weights
        (m,) duals >= 0 at the deadline. Rounded to integers, they drop the pairs whose reduced cost is more than the
        deadline leaves; the certificates carry them.

    Attributes
    ----------
    kept
        (n, m) the pairs that are left.
    slack
        What the deadline leaves for reduced costs, in grid units (weights scaled to sum 1).
    first_prices
        (n,) the linear program's prices.
    affordable
        Whether the dynamic programs are small enough to be worth it; if not, :meth:`evaluate` must not be called.
    """

    def __init__(self, grid: Grid, deadline: int, weights: Floats, count_weights: Floats) -> None:
        self.grid, self.deadline = grid, deadline
        self.whole, self.counts = whole_weights(weights, count_weights, deadline)
        total = max(float(self.whole.sum()), 1.0)
        weights, count_weights = self.whole / total, self.counts / total
        self.room = np.maximum(deadline - grid.ready, 0)
        usable = grid.time <= deadline - grid.ready
        cost = np.where(usable, grid.time * weights + count_weights, np.inf)
        least = cost.min(axis=1)
        fitting = np.array(
            [
                np.searchsorted(np.cumsum(np.sort(grid.time[usable[:, i], i])), room, side="right")
                for i, room in enumerate(self.room)
            ]
        )
        self.slack = float(weights @ self.room + count_weights @ fitting - least.sum())
        self.kept = usable & (cost - least[:, None] <= self.slack + 1e-9 * max(deadline, 1))
        self.first_prices: Floats = least
        self.jobs = [np.flatnonzero(self.kept[:, i]) for i in range(len(self.room))]
        self.sizes = [grid.time[jobs, i] for i, jobs in enumerate(self.jobs)]
        most = max((len(jobs) for jobs in self.jobs), default=0)
        widest = int(self.room.max(initial=0)) + 1
        self.cells = int(sum(len(jobs) * (room + 1) for jobs, room in zip(self.jobs, self.room.tolist(), strict=True)))
        self.affordable = self.cells <= _GAVE_UP and most * widest <= _MEMORY
        if self.affordable:
            self._value, self._spare = np.zeros(widest), np.zeros(widest)
            self._choice = np.zeros((most, widest), dtype=np.bool_)

    def evaluate(self, prices: Floats, effort: Effort) -> tuple[float, list[NDArray[np.int64]]] | None:
        """D(u) in floating point, and the jobs that each machine's knapsack takes; None when the effort is spent first."""
        value, taken, since = float(prices.sum()), [], 0
        for jobs, size, room in zip(self.jobs, self.sizes, self.room.tolist(), strict=True):
            price = prices[jobs]
            use = price > 0
            jobs, size, price = jobs[use], size[use], price[use]
            if size.sum() <= room:
                value -= float(price.sum())
                taken.append(jobs)
                continue
            take = np.zeros(len(jobs), dtype=np.bool_)
            value -= knapsack(size, price, room, self._value, self._spare, self._choice, take)
            taken.append(jobs[take])
            since += len(jobs) * room
            effort.cells -= len(jobs) * room
            if since > _CELLS:
                since = 0
                if effort.spent():
                    return None
        return value, taken

    def certificate(self, prices: Floats) -> Certificate:
        """The claim that these prices refute the deadline; whether it stands, :func:`refutes` says."""
        total = float(prices.sum())
        factor = 2.0**45 / total if total > 0 else 0.0
        return {
            "kind": "knapsack",
            "shift": self.grid.shift,
            "deadline": self.deadline,
            "prices": np.floor(np.maximum(prices, 0.0) * factor).astype(np.int64),
            "weights": self.whole,
            "count_weights": self.counts,
        }


def raise_prices(
    dual: KnapsackDual,
    prices: Floats | None = None,
    *,
    iterations: int = 100,
    effort: Effort | None = None,
    seen: Callable[[list[NDArray[np.int64]]], None] | None = None,
) -> tuple[Floats, Certificate | None]:
    """Raise D(u) by a deflected subgradient method until it refutes the deadline or gives up.

    Parameters
    ----------
    dual
        The function to raise; its unit is the deadline's when the weights sum to 1.
    prices
        (n,) where to start; None takes the linear program's.
    iterations
        Evaluations to spend at most. Most deadlines that fall do so within 40.
    effort
        What the evaluations may cost; None is the default :class:`Effort`.
    seen
        Called with the knapsacks' contents of each evaluation.

    Returns
    -------
    prices, certificate
        The best prices found, and the replayed proof that the deadline is refuted, or None.
    """
    effort = Effort() if effort is None else effort
    current = dual.first_prices.copy() if prices is None else prices.copy()
    n = len(current)
    best, best_prices, direction = -math.inf, current, np.zeros(n)
    step, idle, margin = 1.0, 0, 1e-7
    scale = max(dual.deadline, 1) * 1e-3
    for _ in range(iterations):
        evaluated = dual.evaluate(current, effort)
        if evaluated is None:
            break
        value, taken = evaluated
        if seen is not None:
            seen(taken)
        idle = 0 if value > best + 1e-4 else idle + 1
        if value > best:
            best, best_prices = value, current.copy()
        if value > margin * scale:
            certificate = dual.certificate(current)
            if refutes(dual.grid, certificate):
                return current, certificate
            margin *= 10
        if effort.spent():
            break
        if idle >= 20:
            step, idle, current, direction = 0.7 * step, 0, best_prices.copy(), np.zeros(n)
            if step < 1e-5:
                break
        count = np.bincount(np.concatenate(taken), minlength=n) if taken else np.zeros(n)
        direction = (1.0 - count) + 0.6 * direction
        norm = float(direction @ direction)
        if norm < 1e-12:
            break
        current = np.maximum(current + step * (0.02 - min(value, 0.0)) / norm * direction, 0.0)
    return best_prices, None


def knapsack_bound(
    grid: Grid,
    deadline: int,
    upper: int,
    weights: Floats,
    *,
    iterations: int = 100,
    cells: int = _EFFORT,
    should_stop: Stop | None = None,
) -> DeadlineBound:
    """Raise the bound deadline by deadline with the Lagrangian dual.

    Parameters
    ----------
    grid
        The integer instance. Knapsacks are exact over capacities, so the deadline should have few bits: for decimal data
        take a grid of about 13 bits.
    deadline
        Where to start, in grid units.
    upper
        Deadlines from here on are not tested (a plan meets it).
    weights
        (m,) machine duals of the linear relaxation.
    iterations
        Evaluations per deadline before giving up.
    cells
        Effort in all, in cells of the dynamic programs; about 1e9 a second.
    should_stop
        Asked between evaluations.

    Returns
    -------
    DeadlineBound
        As for :func:`~hetopt.algorithms.makespan_bounds.cardinality_bound`, but the duals are those of the deadline tested
        last. O(pairs left x T) per evaluation.
    """

    effort = Effort(cells, should_stop)

    def attempt(dual: KnapsackDual) -> Certificate | None:
        return raise_prices(dual, iterations=iterations, effort=effort)[1]

    return _climb(grid, deadline, upper, weights, attempt, effort)


def configuration_bound(
    grid: Grid,
    deadline: int,
    upper: int,
    weights: Floats,
    *,
    cells: int = _EFFORT,
    should_stop: Stop | None = None,
) -> DeadlineBound:
    """Raise the bound to the configuration linear program's, by column generation; for up to some 200 jobs.

    Parameters, result and unit as for :func:`knapsack_bound`; the prices start from there, the columns from the knapsacks
    that it met.
    """
    known: dict[tuple[int, bytes], None] = {}
    effort = Effort(cells, should_stop)

    def attempt(dual: KnapsackDual) -> Certificate | None:
        return _generate_columns(dual, known, effort)

    return _climb(grid, deadline, upper, weights, attempt, effort)


def _climb(
    grid: Grid,
    deadline: int,
    upper: int,
    weights: Floats,
    attempt: Callable[[KnapsackDual], Certificate | None],
    effort: Effort,
) -> DeadlineBound:
    """Test deadlines upwards with growing steps, then halve the way back; the cardinality duals come first each time."""
    test = DeadlineTest(grid, weights, effort.spent)
    certificate: Certificate | None = None
    low, high, step = deadline, max(upper, deadline), 1
    target = low
    while low < high and not effort.spent():
        proof: Certificate | None = None
        if test.refute(target, complete=True):
            proof = test.certificate
        elif not effort.spent():
            dual = KnapsackDual(grid, target, test.weights, test.count_weights)
            proof = attempt(dual) if dual.affordable else None
        if proof is not None:
            certificate, low = proof, target + 1
            target = min(target + step, high - 1) if high == upper else (low + high) // 2
            step *= 2
        elif effort.spent():
            break
        else:
            high = target
            target = (low + high) // 2
        target = max(target, low)
    bound = None if certificate is None else replay(grid.time, certificate, grid=grid)
    total = test.weights.sum() or 1.0
    return DeadlineBound(bound, certificate, low, grid, test.weights / total, test.count_weights / total)


def _generate_columns(dual: KnapsackDual, known: dict[tuple[int, bytes], None], effort: Effort) -> Certificate | None:
    """Minimise the share of jobs that no convex mix of configurations covers; its duals are the best prices.

    ``known`` keeps configurations between deadlines: one that fits a deadline fits every later one.
    """
    n, m = dual.kept.shape
    fresh: list[tuple[int, NDArray[np.int64]]] = []

    def remember(taken: list[NDArray[np.int64]]) -> None:
        for i, jobs in enumerate(taken):
            key = (i, jobs.tobytes())
            if len(jobs) and key not in known:
                known[key] = None
                fresh.append((i, jobs))

    prices, certificate = raise_prices(dual, iterations=150, effort=effort, seen=remember)
    if certificate is not None:
        return certificate
    master = _Master(n, m)
    for i, content in known:
        jobs = np.frombuffer(content, dtype=np.int64)
        if dual.grid.time[jobs, i].sum() <= dual.room[i]:
            master.add(i, jobs)
    scale = max(float(prices.max()), 1e-300)
    centre, best = prices / scale, -math.inf
    while not effort.spent():
        missing, duals = master.solve()
        effort.cells -= _MASTER
        if missing <= 1e-7:
            return None
        # Prices between the best known and the master's own settle the oscillation of column generation.
        for smoothing in (0.7, 0.3, 0.0):
            trial = smoothing * centre + (1 - smoothing) * duals
            fresh.clear()
            evaluated = dual.evaluate(trial, effort)
            if evaluated is None:
                return None
            value, taken = evaluated
            if value > 1e-9:
                certificate = dual.certificate(trial)
                if refutes(dual.grid, certificate):
                    return certificate
            if value > best:
                best, centre = value, trial
            remember(taken)
            if any(duals[jobs].sum() > master.machine_duals[i] + 1e-9 for i, jobs in fresh):
                break
        if not fresh:
            return None
        for i, jobs in fresh:
            master.add(i, jobs)
    return None


class _Master:
    """Configurations chosen fractionally, at most one a machine; what jobs miss is paid for."""

    def __init__(self, n: int, m: int) -> None:
        import highspy

        self._n, self._m = n, m
        self._solver: Any = highspy.Highs()
        for name, value in {"output_flag": False, "threads": 1, "solver": "simplex", "presolve": "off"}.items():
            self._solver.setOptionValue(name, value)
        self._inf = highspy.kHighsInf
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = n, n + m
        model.col_cost_, model.col_lower_, model.col_upper_ = np.ones(n), np.zeros(n), np.full(n, self._inf)
        model.row_lower_ = np.r_[np.ones(n), np.full(m, -self._inf)]
        model.row_upper_ = np.r_[np.full(n, self._inf), np.ones(m)]
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.arange(n + 1, dtype=np.int32)
        model.a_matrix_.index_ = np.arange(n, dtype=np.int32)
        model.a_matrix_.value_ = np.ones(n)
        self._solver.passModel(model)
        self.machine_duals: Floats = np.zeros(m)

    def add(self, machine: int, jobs: NDArray[np.int64]) -> None:
        rows = np.r_[jobs, self._n + machine].astype(np.int32)
        self._solver.addCol(0.0, 0.0, self._inf, len(rows), rows, np.ones(len(rows)))

    def solve(self) -> tuple[float, Floats]:
        """Total missing share and the jobs' duals, clipped to [0, 1]."""
        self._solver.run()
        dual = np.asarray(self._solver.getSolution().row_dual, dtype=np.float64)
        self.machine_duals = np.maximum(-dual[self._n :], 0.0)
        return float(self._solver.getInfo().objective_function_value), np.clip(dual[: self._n], 0.0, 1.0)


def _knapsack_by_rows(
    size: NDArray[np.int64],
    price: Floats,
    room: int,
    value: Floats,
    spare: Floats,
    choice: NDArray[np.bool_],
    take: NDArray[np.bool_],
) -> float:
    """The knapsack program with one array operation per item; ``take`` receives an optimal choice."""
    value[: room + 1] = 0.0
    for k in range(len(size)):
        s = size[k]
        better = value[: room + 1 - s] + price[k]
        choice[k, :s] = False
        choice[k, s : room + 1] = better > value[s : room + 1]
        value[s : room + 1] = np.maximum(value[s : room + 1], better)
    left = room
    for k in range(len(size) - 1, -1, -1):
        take[k] = choice[k, left]
        if take[k]:
            left -= size[k]
    return float(value[room])


@njit
def _knapsack_by_cells(
    size: NDArray[np.int64],
    price: Floats,
    room: int,
    value: Floats,
    spare: Floats,
    choice: NDArray[np.bool_],
    take: NDArray[np.bool_],
) -> float:
    """The same with loops; the copy in ``spare`` lets the compiler use vector instructions."""
    value[: room + 1] = 0.0
    for k in range(len(size)):
        s, u = size[k], price[k]
        width = room + 1 - s
        chosen = choice[k]
        for q in range(width):
            spare[q] = value[q] + u
        for q in range(s):
            chosen[q] = False
        above, mark = value[s : room + 1], chosen[s : room + 1]
        for q in range(width):
            better = spare[q] > above[q]
            mark[q] = better
            above[q] = spare[q] if better else above[q]
    left = room
    for k in range(len(size) - 1, -1, -1):
        take[k] = choice[k, left]
        if take[k]:
            left -= size[k]
    total: float = value[room]
    return total


knapsack: Any = _knapsack_by_cells if HAVE_NUMBA else _knapsack_by_rows
"""``(size, price, room, value, spare, choice, take) -> total``: exact 0-1 knapsack, O(items x room), sizes <= room."""
