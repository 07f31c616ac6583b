"""The linear program over sequences of machines whose duals are the prices of :mod:`hetopt.algorithms.tardiness_columns`.

With a share x_s of each known sequence s of a machine, C the makespan in slots,

    minimise slot C + sum_s cost_s x_s
    sum_s (times s holds j) x_s >= 1    for each job         dual u_j, the job's price
    sum_{s of i} x_s = 1                for each machine
    C >= sum_{s of i} end_s x_s         for each machine     dual v_i, the price of its end
    first <= C <= last,  x_s = 0 when end_s > last

What is proved with them is not this module's business, nor where sequences come from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.tardiness_pricing import Sequence
from hetopt.verify.tardiness_prices import Slots

__all__ = ["Master", "Point"]

Floats = NDArray[np.float64]

_COLUMNS = 3000  # most columns of the integer program
_FORBIDDEN = 1e6  # cost of a job that no column covers, where all values are about a thousand


class Point(NamedTuple):
    """Ticks of the least value, and prices of jobs (n,), ends (m,) and machines (m,)."""

    value: float
    job: Floats
    end: Floats
    machine: Floats


class Master:
    """The linear program over the sequences known; costs are scaled so that a value of ``target`` ticks is a thousand."""

    def __init__(self, slots: Slots, n: int, m: int, target: float) -> None:
        import highspy

        self._slots, self._n, self._m, self._scale = slots, n, m, target / 1000.0
        self._columns: list[Sequence] = []
        self._known: set[tuple[int, tuple[int, ...]]] = set()
        self._banned: set[int] = set()
        self._limits: tuple[int, int | None] = (0, None)
        self._inf = highspy.kHighsInf
        self._solver: Any = highspy.Highs()
        for name, value in {"output_flag": False, "threads": 1, "solver": "simplex", "presolve": "off"}.items():
            self._solver.setOptionValue(name, value)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = 1 + n, n + 2 * m
        model.col_cost_ = np.r_[slots.slot / self._scale, np.full(n, _FORBIDDEN)]
        model.col_lower_, model.col_upper_ = np.zeros(1 + n), np.full(1 + n, self._inf)
        model.row_lower_ = np.r_[np.ones(n + m), np.zeros(m)]
        model.row_upper_ = np.r_[np.full(n, self._inf), np.ones(m), np.full(m, self._inf)]
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.r_[0, m + np.arange(n + 1)].astype(np.int32)
        model.a_matrix_.index_ = np.r_[n + m + np.arange(m), np.arange(n)].astype(np.int32)
        model.a_matrix_.value_ = np.ones(m + n)
        self._solver.passModel(model)

    def add(self, sequence: Sequence) -> bool:
        """Add a column; False when it is there already."""
        key = sequence.machine, sequence.jobs
        if key in self._known:
            return False
        self._known.add(key)
        self._columns.append(sequence)
        times = np.bincount(np.array(sequence.jobs, np.int64), minlength=self._n)
        jobs = np.flatnonzero(times)
        rows = np.r_[jobs, self._n + sequence.machine, self._n + self._m + sequence.machine].astype(np.int32)
        entries = np.r_[times[jobs], 1.0, -float(sequence.end)]
        upper = self._inf if self._allowed(len(self._columns) - 1) else 0.0
        self._solver.addCol(sequence.cost / self._scale, 0.0, upper, len(rows), rows, entries)
        return True

    def forbid(self, banned: Callable[[Sequence], bool]) -> None:
        """Use no column any more for which ``banned`` says so."""
        self._banned |= {k for k, sequence in enumerate(self._columns) if banned(sequence)}
        self._limit()

    def _allowed(self, k: int) -> bool:
        last = self._limits[1]
        return k not in self._banned and (last is None or self._columns[k].end <= last)

    def _limit(self) -> None:
        first, last = self._limits
        k = len(self._columns)
        upper = np.array([self._inf if self._allowed(q) else 0.0 for q in range(k)])
        self._solver.changeColsBounds(k, 1 + self._n + np.arange(k, dtype=np.int32), np.zeros(k), upper)
        self._solver.changeColBounds(0, float(first), self._inf if last is None else float(last))

    def solve(self, first: int, last: int | None) -> Point:
        """Optimise over makespans from slot ``first`` to ``last``, None for no limit."""
        if self._limits != (first, last):
            self._limits = first, last
            self._limit()
        self._solver.run()
        solution = self._solver.getSolution()
        self._value = np.asarray(solution.col_value, np.float64)
        self._dual = np.asarray(solution.row_dual, np.float64) * self._scale
        n, m = self._n, self._m
        return Point(
            float(self._solver.getInfo().objective_function_value) * self._scale,
            np.maximum(self._dual[:n], 0.0),
            np.maximum(self._dual[n + m :], 0.0),
            self._dual[n : n + m],
        )

    @property
    def makespan(self) -> float:
        """Slots of C in the last solution."""
        return float(self._value[0])

    def used(self) -> list[Sequence]:
        """Columns with a share in the last solution."""
        share = self._value[1 + self._n :].tolist()
        return [s for s, x in zip(self._columns, share, strict=False) if x > 1e-6]

    def choose(self, target: float, gap: float, nodes: int, should_stop: Callable[[], bool]) -> list[Sequence] | None:
        """Whole sequences for less than ``target`` ticks, of those with a reduced cost of at most ``gap``; None: not found."""
        n, m, dual = self._n, self._m, self._dual
        price = [
            dual[list(s.jobs)].sum() + dual[n + s.machine] - dual[n + m + s.machine] * s.end for s in self._columns
        ]
        reduced = np.array([s.cost for s in self._columns]) - price
        near = [k for k in np.argsort(reduced, kind="stable").tolist() if self._allowed(k) and reduced[k] <= gap]
        program = Master(self._slots, n, m, 1000.0 * self._scale)
        for k in sorted(near[:_COLUMNS]):
            program.add(self._columns[k])
        return program.whole(target, nodes, should_stop)

    def whole(self, target: float, nodes: int, should_stop: Callable[[], bool]) -> list[Sequence] | None:
        """A solution of whole columns for less than ``target`` ticks by branch and bound; None when it found none."""
        import highspy

        def ask(event: Any) -> None:
            if should_stop():
                event.interrupt()

        k = len(self._columns)
        columns = 1 + self._n + np.arange(k, dtype=np.int32)
        self._solver.changeColsIntegrality(k, columns, np.full(k, highspy.HighsVarType.kInteger))
        options = {
            "solver": "choose", "presolve": "on", "objective_bound": target / self._scale, "mip_max_nodes": nodes,
        }  # fmt: skip
        for name, value in options.items():
            self._solver.setOptionValue(name, value)
        self._solver.cbMipInterrupt.subscribe(ask)
        self._solver.run()
        if self._solver.getInfo().primal_solution_status != 2:  # kSolutionStatusFeasible
            return None
        self._value = np.asarray(self._solver.getSolution().col_value, np.float64)
        return self.used()
