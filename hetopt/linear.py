"""A sparse LP or MILP as arrays, with named blocks of columns and rows.

:class:`LinearModel` is a container and a small vectorised builder. It knows no solver and no scheduling problem; it can
check a point, relax itself, describe itself and write MPS and LP files. A block is a named array of indices, so that a row
can be read back as ``memory[gpu1]`` and a column as ``x[layer3,gpu1]``.

    m = LinearModel("makespan")
    x = m.binary("x", (n, d), labels=(jobs, devices))        # (n, d) array of column indices
    t = m.continuous("makespan")
    m.rows("assign", n, [(rows_of_x, x, 1.0)], lower=1, upper=1, labels=(jobs,))
    m.rows("load", d, [(device_of_x, x, time), (np.arange(d), t, -1.0)], upper=0, labels=(devices,))
    m.minimize(t)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hetopt.blocks import Block, Blocks, Labels

__all__ = ["Block", "LinearModel", "ModelStatistics", "Violation"]


@dataclass(frozen=True)
class Violation:
    """One constraint that a point breaks: its readable name, and by how much in the constraint's own units."""

    kind: Literal["row", "bound", "integrality"]
    name: str
    amount: float

    def __str__(self) -> str:
        return f"{self.kind} {self.name} is violated by {self.amount:.6g}"


@dataclass(frozen=True)
class ModelStatistics:
    """Size and numerical range of a model; ranges are (smallest, largest) absolute nonzero values, or None when empty."""

    columns: int
    integer_columns: int
    rows: int
    nonzeros: int
    matrix_range: tuple[float, float] | None
    cost_range: tuple[float, float] | None
    bound_range: tuple[float, float] | None
    rhs_range: tuple[float, float] | None


@dataclass
class _Rows:
    row: list[NDArray[np.int64]] = field(default_factory=list)
    column: list[NDArray[np.int64]] = field(default_factory=list)
    value: list[NDArray[np.float64]] = field(default_factory=list)


class LinearModel:
    """min or max c x + offset subject to row_lower <= A x <= row_upper, lower <= x <= upper, some x integer.

    Columns and rows are added in named blocks. Infinite bounds are ``np.inf`` with the right sign. Reading an array property
    freezes nothing: further blocks may be added, and the arrays are assembled again.

    Parameters
    ----------
    name
        Name written into MPS and LP files.
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self.sense: Literal["min", "max"] = "min"
        self.offset = 0.0
        self.column_blocks = Blocks("column")
        self.row_blocks = Blocks("row")
        self._lower: list[NDArray[np.float64]] = []
        self._upper: list[NDArray[np.float64]] = []
        self._integer: list[NDArray[np.bool_]] = []
        self._cost: dict[str, NDArray[Any]] = {"columns": np.empty(0, np.int64), "values": np.empty(0)}
        self._row_lower: list[NDArray[np.float64]] = []
        self._row_upper: list[NDArray[np.float64]] = []
        self._terms = _Rows()

    # Columns ---------------------------------------------------------------------------------------------------------

    def continuous(
        self,
        name: str,
        shape: int | tuple[int, ...] = (),
        *,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = np.inf,
        labels: Labels | None = None,
    ) -> NDArray[np.int64]:
        """Add a block of continuous columns; returns the array of their indices, of the given shape."""
        return self._columns(name, shape, lower, upper, False, labels)

    def integer(
        self,
        name: str,
        shape: int | tuple[int, ...] = (),
        *,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = np.inf,
        labels: Labels | None = None,
    ) -> NDArray[np.int64]:
        """Add a block of integer columns; returns the array of their indices, of the given shape."""
        return self._columns(name, shape, lower, upper, True, labels)

    def binary(
        self,
        name: str,
        shape: int | tuple[int, ...] = (),
        *,
        upper: ArrayLike = 1.0,
        labels: Labels | None = None,
    ) -> NDArray[np.int64]:
        """Add a block of 0-1 columns; ``upper`` may fix some of them to 0. Returns the array of their indices."""
        return self._columns(name, shape, 0.0, upper, True, labels)

    def _columns(
        self,
        name: str,
        shape: int | tuple[int, ...],
        lower: ArrayLike,
        upper: ArrayLike,
        integer: bool,
        labels: Labels | None,
    ) -> NDArray[np.int64]:
        block = self.column_blocks.next(name, shape, labels)
        low, high = (_spread(v, block.shape, f"bounds of {name!r}") for v in (lower, upper))
        if np.isnan(low).any() or np.isnan(high).any():
            raise ValueError(f"a bound of column block {name!r} is not a number")
        self.column_blocks.append(block)
        self._lower.append(low)
        self._upper.append(high)
        self._integer.append(np.full(block.size, integer))
        self._forget()
        return block.indices

    # Rows ------------------------------------------------------------------------------------------------------------

    def rows(
        self,
        name: str,
        shape: int | tuple[int, ...],
        terms: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike]],
        *,
        lower: ArrayLike = -np.inf,
        upper: ArrayLike = np.inf,
        labels: Labels | None = None,
    ) -> NDArray[np.int64]:
        """Add a block of rows ``lower <= sum of terms <= upper``; returns the array of their indices.

        Parameters
        ----------
        name
            Unique name of the block.
        shape
            Number of rows, or the block's shape.
        terms
            Groups ``(row, column, coefficient)`` that broadcast against each other; ``row`` counts from 0 inside the block
            (flattened), ``column`` holds column indices. Entries that meet in the same place add up.
        lower, upper
            Bounds of the rows; scalars or arrays of the block's shape.
        labels
            One sequence of labels per axis.

        Raises
        ------
        ValueError
            A row or column index out of range, a coefficient that is not finite, a name used before.
        """
        block = self.row_blocks.next(name, shape, labels)
        groups = []
        for row, column, value in terms:
            r, c, v = np.broadcast_arrays(
                np.asarray(row, np.int64), np.asarray(column, np.int64), np.asarray(value, np.float64)
            )
            if r.size and (r.min() < 0 or r.max() >= block.size):
                bad = int(r.min() if r.min() < 0 else r.max())
                raise ValueError(f"a term of row block {name!r} names row {bad}, but the block has {block.size} rows")
            if c.size and (c.min() < 0 or c.max() >= self.n_columns):
                raise ValueError(f"a term of row block {name!r} names a column that does not exist")
            if not np.isfinite(v).all():
                raise ValueError(f"a coefficient of row block {name!r} is not finite")
            groups.append((r.ravel() + block.start, c.ravel(), v.ravel()))
        low, high = (_spread(v, block.shape, f"bounds of {name!r}") for v in (lower, upper))
        if np.isnan(low).any() or np.isnan(high).any():
            raise ValueError(f"a bound of row block {name!r} is not a number")
        for r, c, v in groups:
            self._terms.row.append(r)
            self._terms.column.append(c)
            self._terms.value.append(v)
        self.row_blocks.append(block)
        self._row_lower.append(low)
        self._row_upper.append(high)
        self._forget()
        return block.indices

    # Objective -------------------------------------------------------------------------------------------------------

    def minimize(self, columns: ArrayLike, costs: ArrayLike = 1.0, *, offset: float = 0.0) -> None:
        """Minimise ``offset + sum of costs * columns``."""
        self._objective("min", columns, costs, offset)

    def maximize(self, columns: ArrayLike, costs: ArrayLike = 1.0, *, offset: float = 0.0) -> None:
        """Maximise ``offset + sum of costs * columns``."""
        self._objective("max", columns, costs, offset)

    def _objective(self, sense: Literal["min", "max"], columns: ArrayLike, costs: ArrayLike, offset: float) -> None:
        c, v = np.broadcast_arrays(np.asarray(columns, np.int64), np.asarray(costs, np.float64))
        if not np.isfinite(v).all() or not np.isfinite(offset):
            raise ValueError("a cost of the objective is not finite")
        if c.size and (c.min() < 0 or c.max() >= self.n_columns):
            bad = int(c.min() if c.min() < 0 else c.max())
            raise ValueError(f"the objective names column {bad}, but the model has {self.n_columns} columns")
        self.sense, self.offset = sense, float(offset)
        self._cost = {"columns": c.ravel(), "values": v.ravel()}
        self._forget()

    # Arrays ----------------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        for name in ("matrix", "lower", "upper", "integrality", "row_lower", "row_upper", "cost"):
            self.__dict__.pop(name, None)

    @property
    def n_columns(self) -> int:
        """Number of columns (variables)."""
        return self.column_blocks.size

    @property
    def n_rows(self) -> int:
        """Number of rows (constraints)."""
        return self.row_blocks.size

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """(rows, columns) coefficients as CSR with sorted, summed entries and 32-bit indices where they fit."""
        parts = self._terms
        if not parts.row:
            return sparse.csr_array((self.n_rows, self.n_columns))
        index = np.int32 if max(self.n_rows, self.n_columns) < 2**31 else np.int64
        row, column = (np.concatenate(p).astype(index, copy=False) for p in (parts.row, parts.column))
        out = sparse.csr_array((np.concatenate(parts.value), (row, column)), shape=(self.n_rows, self.n_columns))
        out.sum_duplicates()
        return out

    @cached_property
    def lower(self) -> NDArray[np.float64]:
        """(columns,) lower bounds."""
        return _join(self._lower)

    @cached_property
    def upper(self) -> NDArray[np.float64]:
        """(columns,) upper bounds."""
        return _join(self._upper)

    @cached_property
    def integrality(self) -> NDArray[np.bool_]:
        """(columns,) True where a column is integer."""
        return np.concatenate(self._integer) if self._integer else np.empty(0, bool)

    @cached_property
    def row_lower(self) -> NDArray[np.float64]:
        """(rows,) lower bounds of the rows."""
        return _join(self._row_lower)

    @cached_property
    def row_upper(self) -> NDArray[np.float64]:
        """(rows,) upper bounds of the rows."""
        return _join(self._row_upper)

    @cached_property
    def cost(self) -> NDArray[np.float64]:
        """(columns,) objective coefficients in the model's own sense."""
        out = np.zeros(self.n_columns)
        np.add.at(out, self._cost["columns"], self._cost["values"])
        return out

    @property
    def is_mip(self) -> bool:
        """Whether some column is integer."""
        return bool(self.integrality.any())

    # Names -----------------------------------------------------------------------------------------------------------

    def column_name(self, index: int) -> str:
        """Readable name of column ``index``, such as ``x[layer3,gpu1]``."""
        return self.column_blocks.name(index)

    def row_name(self, index: int) -> str:
        """Readable name of row ``index``, such as ``memory[gpu1]``."""
        return self.row_blocks.name(index)

    def column_names(self) -> list[str]:
        """Readable names of all columns in order."""
        return self.column_blocks.names()

    def row_names(self) -> list[str]:
        """Readable names of all rows in order."""
        return self.row_blocks.names()

    def columns(self, name: str) -> NDArray[np.int64]:
        """Indices of the column block ``name``, in its shape."""
        return self.column_blocks.indices(name)

    def rows_of(self, name: str) -> NDArray[np.int64]:
        """Indices of the row block ``name``, in its shape."""
        return self.row_blocks.indices(name)

    # Questions -------------------------------------------------------------------------------------------------------

    def objective(self, x: ArrayLike) -> float:
        """Objective value of the point ``x`` (columns,)."""
        return float(self.cost @ np.asarray(x, np.float64)) + self.offset

    def check(self, x: ArrayLike, *, tolerance: float = 1e-6, most: int = 20) -> list[Violation]:
        """Constraints that the point ``x`` breaks by more than ``tolerance`` times the row's scale.

        The scale of a row is the largest of 1, its finite bounds and its terms' absolute values, so that bytes and seconds
        are judged alike. Returns at most ``most`` violations, the largest first; an empty list means that x is feasible.
        """
        point = np.asarray(x, np.float64)
        if point.shape != (self.n_columns,):
            raise ValueError(f"the point has shape {point.shape}, expected ({self.n_columns},)")
        if not np.isfinite(point).all():
            bad = int(np.flatnonzero(~np.isfinite(point))[0])
            return [Violation("bound", self.column_name(bad), float("inf"))]
        found: list[tuple[float, Violation]] = []

        def add(
            kind: Literal["row", "bound", "integrality"], excess: NDArray[np.float64], scale: NDArray[np.float64]
        ) -> None:
            relative = excess / scale
            for k in np.flatnonzero(relative > tolerance):
                name = self.row_name(int(k)) if kind == "row" else self.column_name(int(k))
                found.append((float(relative[k]), Violation(kind, name, float(excess[k]))))

        a = self.matrix
        terms = abs(a) @ abs(point) if a.nnz else np.zeros(self.n_rows)
        activity = a @ point if a.nnz else np.zeros(self.n_rows)
        add("row", np.maximum(self.row_lower - activity, activity - self.row_upper), np.maximum(1.0, terms))
        add("bound", np.maximum(self.lower - point, point - self.upper), np.maximum(1.0, abs(point)))
        off = np.where(self.integrality, abs(point - np.round(point)), 0.0)
        add("integrality", off, np.ones_like(off))
        return [violation for _, violation in sorted(found, key=lambda item: -item[0])[:most]]

    def relax(self) -> LinearModel:
        """The LP relaxation: the same arrays and names, no integrality. Its optimum bounds this model's optimum."""
        other = LinearModel(f"{self.name}-relaxed")
        other.__dict__.update({k: v for k, v in self.__dict__.items() if k not in ("name", "integrality", "_integer")})
        other._integer = [np.zeros(len(part), bool) for part in self._integer]
        other.column_blocks, other.row_blocks = self.column_blocks.copy(), self.row_blocks.copy()
        for name in ("_lower", "_upper", "_row_lower", "_row_upper"):
            setattr(other, name, list(getattr(self, name)))
        other._terms = _Rows(list(self._terms.row), list(self._terms.column), list(self._terms.value))
        return other

    def without_objective(self) -> LinearModel:
        """The same columns and rows with nothing to optimise: solved, it tells infeasible from unbounded."""
        other = self._copy("feasibility")
        other.minimize(np.empty(0, np.int64), np.empty(0))
        return other

    def with_scaled_objective(self, factor: float) -> LinearModel:
        """The same model with its costs and offset times ``factor`` > 0; for solvers' absolute tolerances."""
        other = self._copy("scaled")
        costs = self._cost
        other._objective(self.sense, costs["columns"], costs["values"] * factor, self.offset * factor)
        return other

    def elastic(self) -> LinearModel:
        """Phase one of the relaxation: every row may be violated at a price of one for its largest coefficient.

        Columns ``x`` are this model's, row numbers are the same. The optimum is 0 where the relaxation is feasible; else rows
        with a dual price are part of why it is not.
        """
        other = LinearModel(f"{self.name}-elastic")
        x = other.continuous("x", self.n_columns, lower=self.lower, upper=self.upper)
        largest = (
            np.asarray(abs(self.matrix).max(axis=1).todense(), dtype=np.float64).ravel() if self.n_rows else np.zeros(0)
        )
        largest[largest == 0] = 1.0
        terms: list[Any] = [self._entries(x)]
        for sign, side in ((1.0, self.row_lower), (-1.0, self.row_upper)):
            rows = np.flatnonzero(np.isfinite(side))
            slack = other.continuous("below" if sign > 0 else "above", rows.size, lower=0)
            terms.append((rows, slack, sign * largest[rows]))
        other.rows("row", self.n_rows, terms, lower=self.row_lower, upper=self.row_upper)
        other.minimize(np.arange(self.n_columns, other.n_columns))
        return other

    def only(self, rows: ArrayLike) -> LinearModel:
        """The relaxation of this model with some of its rows and nothing to optimise."""
        chosen = np.asarray(rows, dtype=np.int64)
        other = LinearModel(f"{self.name}-part")
        x = other.continuous("x", self.n_columns, lower=self.lower, upper=self.upper)
        part = self.matrix[chosen].tocoo()
        terms = [(part.row, x[part.col], part.data)]
        other.rows("row", chosen.size, terms, lower=self.row_lower[chosen], upper=self.row_upper[chosen])
        return other

    def _entries(self, x: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        entries = self.matrix.tocoo()
        return entries.row, x[entries.col], entries.data

    def _copy(self, suffix: str) -> LinearModel:
        other = self.relax()
        other.name = f"{self.name}-{suffix}"
        other._integer = list(self._integer)
        return other

    def statistics(self) -> ModelStatistics:
        """Sizes and numerical ranges; a wide matrix range is a warning about tolerances."""
        return ModelStatistics(
            columns=self.n_columns,
            integer_columns=int(self.integrality.sum()),
            rows=self.n_rows,
            nonzeros=int(self.matrix.nnz),
            matrix_range=_range(self.matrix.data),
            cost_range=_range(self.cost),
            bound_range=_range(np.concatenate([self.lower, self.upper])),
            rhs_range=_range(np.concatenate([self.row_lower, self.row_upper])),
        )

    def write(self, path: str | Path) -> None:
        """Write the model as ``.mps`` or ``.lp``, with readable names; the file appears whole or not at all."""
        from hetopt.io.models import write_model

        write_model(self, Path(path))

    def __repr__(self) -> str:
        return f"LinearModel({self.name!r}, columns={self.n_columns}, rows={self.n_rows})"


def _spread(value: ArrayLike, shape: tuple[int, ...], what: str) -> NDArray[np.float64]:
    try:
        return np.broadcast_to(np.asarray(value, np.float64), shape).ravel().copy()
    except ValueError:
        raise ValueError(f"{what} have shape {np.shape(value)}, which does not fit the block's shape {shape}") from None


def _join(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate(parts) if parts else np.empty(0)


def _range(values: NDArray[np.float64]) -> tuple[float, float] | None:
    kept = abs(values[np.isfinite(values) & (values != 0)])
    return (float(kept.min()), float(kept.max())) if kept.size else None
