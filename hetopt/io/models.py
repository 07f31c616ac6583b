"""Write a linear model as an MPS or LP file for other solvers and for reading.

MPS is the exact one: numbers are written with all their digits and the order of rows and columns is kept. LP (CPLEX's
format) is for people: two-sided rows become two rows, and readers order columns by first appearance. Free rows are left
out of both. Names are the model's own, made safe: ``x[layer 3,gpu-1]`` becomes ``x(layer_3,gpu_1)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.io.atomic import atomically
from hetopt.linear import LinearModel

__all__ = ["safe_names", "write_model"]

CHUNK = 20_000  # rows or columns turned into text at a time
LONGEST = 200  # characters of a name; the LP format allows 255

_UNSAFE = re.compile(r"[^A-Za-z0-9_.,()]")
_LEADING = re.compile(r"(?=[0-9.,()]|[eE](?:[0-9.]|$))")
_KEYWORDS = """
    bin binaries binary bound bounds end free gen general generals inf infinity integer integers marker max maximise
    maximize maximum min minimise minimize minimum obj objsense ranges rhs rows s.t. sec semi semis sos st subject
"""
_RESERVED = frozenset(_KEYWORDS.split())


def write_model(model: LinearModel, path: str | Path) -> None:
    """Write ``model`` to ``path``, as MPS or LP by its suffix; the file appears whole or not at all.

    A million coefficients take a few seconds.

    Raises
    ------
    InputError
        The suffix is neither ``.mps`` nor ``.lp``, or the file cannot be written.
    """
    target = Path(path)
    writers: dict[str, Callable[[LinearModel], Iterator[str]]] = {".mps": _mps, ".lp": _lp}
    writer = writers.get(target.suffix.lower())
    if writer is None:
        raise InputError(f"cannot write a model to {str(target)!r}: the name must end in .mps or .lp")
    with atomically(target, "w") as stream:
        _pour(writer(model), stream)


def safe_names(names: Iterable[str]) -> list[str]:
    """Names that both formats take: letters, digits and ``_.,()``, no number or keyword in front, short and unique.

    Names that come out alike are told apart by ``#2``, ``#3`` and so on, in order; ``#`` is kept for that.
    """
    safe: list[str] = []
    seen: dict[str, int] = {}
    for name in names:
        text = _UNSAFE.sub("_", name.replace("[", "(").replace("]", ")"))
        if not text or _LEADING.match(text) or text.lower() in _RESERVED:
            text = f"_{text}"
        text = text[:LONGEST]
        seen[text] = seen.get(text, 0) + 1
        safe.append(text if seen[text] == 1 else f"{text}#{seen[text]}")
    return safe


def _pour(lines: Iterator[str], stream: IO[Any]) -> None:
    for line in lines:
        stream.write(line)
        stream.write("\n")


def _numbers(values: NDArray[np.float64]) -> list[str]:
    """Shortest text that reads back as the same number."""
    return [str(int(v)) if v.is_integer() and abs(v) < 1e15 else repr(v) for v in values.tolist()]


def _kept_rows(model: LinearModel) -> NDArray[np.bool_]:
    """Rows with a bound on some side."""
    kept: NDArray[np.bool_] = np.isfinite(model.row_lower) | np.isfinite(model.row_upper)
    return kept


# MPS ------------------------------------------------------------------------------------------------------------------


def _mps(model: LinearModel) -> Iterator[str]:
    columns, rows = safe_names(model.column_names()), safe_names(model.row_names())
    objective = safe_names([*rows, "cost"])[-1]
    low, high = model.row_lower, model.row_upper
    equal, ranged = low == high, np.isfinite(low) & np.isfinite(high) & (low != high)
    # a range is a difference: of its two anchors, take one from which the other bound is found again exactly
    span = np.where(ranged, high, 0.0) - np.where(ranged, low, 0.0)
    from_below = np.isfinite(low) & (~np.isfinite(high) | (ranged & (high - span != low)))
    kind = np.where(equal, "E", np.where(from_below, "G", "L"))
    right = np.where(from_below, low, high)
    kept = np.flatnonzero(_kept_rows(model))

    yield f"NAME {safe_names([model.name])[0]}"
    if model.sense == "max":
        yield from ("OBJSENSE", "    MAX")
    yield from ("ROWS", f" N  {objective}")
    yield from (f" {kind[k]}  {rows[k]}" for k in kept)
    yield "COLUMNS"
    yield from _mps_columns(model, columns, rows, objective)
    yield "RHS"
    if model.offset:
        yield f" RHS {objective} {_numbers(np.array([-model.offset]))[0]}"
    yield from (f" RHS {rows[k]} {v}" for k, v in zip(kept, _numbers(right[kept]), strict=True) if right[k] != 0)
    if ranged.any():
        yield "RANGES"
        which = np.flatnonzero(ranged)
        yield from (f" RANGE {rows[k]} {v}" for k, v in zip(which, _numbers(span[which]), strict=True))
    yield "BOUNDS"
    yield from _mps_bounds(model, columns)
    yield "ENDATA"


def _mps_columns(model: LinearModel, columns: list[str], rows: list[str], objective: str) -> Iterator[str]:
    """Entries column by column, integer columns between markers."""
    a, cost, kept = model.matrix.tocsc(), model.cost, _kept_rows(model)
    whole = model.integrality
    edges = {0, *(np.flatnonzero(np.diff(whole)) + 1).tolist(), *range(0, model.n_columns, CHUNK), model.n_columns}
    ends = sorted(edges)
    inside = False
    for start, end in pairwise(ends):
        if bool(whole[start]) != inside:
            inside = not inside
            yield f" MARKER 'MARKER' '{'INTORG' if inside else 'INTEND'}'"
        first, last = a.indptr[start], a.indptr[end]
        names = np.repeat(np.arange(start, end), np.diff(a.indptr[start : end + 1])).tolist()
        entries = zip(names, a.indices[first:last].tolist(), _numbers(a.data[first:last]), strict=True)
        # every column is named in the objective first, so that columns without entries exist and the order is kept
        prices = _numbers(cost[start:end])
        lines: list[str] = []
        reached = start
        for column, row, value in entries:
            while reached <= column:
                lines.append(f" {columns[reached]} {objective} {prices[reached - start]}")
                reached += 1
            if kept[row]:
                lines.append(f" {columns[column]} {rows[row]} {value}")
        lines += [f" {columns[k]} {objective} {prices[k - start]}" for k in range(reached, end)]
        yield "\n".join(lines)
    if inside:
        yield " MARKER 'MARKER' 'INTEND'"


def _mps_bounds(model: LinearModel, columns: list[str]) -> Iterator[str]:
    """Bounds other than 0 and infinity; those of integer columns always, because readers disagree on their default."""
    low, high, whole = model.lower, model.upper, model.integrality
    told = np.flatnonzero(whole | (low != 0) | (high != np.inf))
    for k, below, above in zip(
        told.tolist(), _numbers(_zero_if_infinite(low[told])), _numbers(_zero_if_infinite(high[told])), strict=True
    ):
        name = columns[k]
        if low[k] == high[k]:
            yield f" FX BOUND {name} {below}"
        elif low[k] == -np.inf and high[k] == np.inf:
            yield f" FR BOUND {name}"
        else:
            yield f" MI BOUND {name}" if low[k] == -np.inf else f" LO BOUND {name} {below}"
            yield f" UP BOUND {name} {above}" if high[k] < np.inf else f" PL BOUND {name}"


def _zero_if_infinite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, 0.0)


# LP -------------------------------------------------------------------------------------------------------------------


def _lp(model: LinearModel) -> Iterator[str]:
    columns, rows = safe_names(model.column_names()), safe_names(model.row_names())
    yield f"\\ {safe_names([model.name])[0]}"
    yield "Maximize" if model.sense == "max" else "Minimize"
    priced = np.flatnonzero(model.cost)
    terms = _terms(columns, priced.tolist(), model.cost[priced])
    constant = [f"{model.offset:+.17g}"] if model.offset else []
    yield f" obj: {_broken([*terms, *constant]) if terms or constant else f'0 {columns[0]}' if columns else ''}"
    yield "Subject To"
    yield from _lp_rows(model, columns, rows)
    yield "Bounds"
    yield from _lp_bounds(model, columns)
    whole, low, high = model.integrality, model.lower, model.upper
    binary = whole & (low == 0) & (high == 1)
    for title, which in (("General", whole & ~binary), ("Binary", binary)):
        if which.any():
            yield title
            yield from (f" {columns[k]}" for k in np.flatnonzero(which))
    yield "End"


def _lp_rows(model: LinearModel, columns: list[str], rows: list[str]) -> Iterator[str]:
    a, low, high = model.matrix, model.row_lower, model.row_upper
    for start in range(0, model.n_rows, CHUNK):
        end = min(start + CHUNK, model.n_rows)
        first, last = a.indptr[start], a.indptr[end]
        terms = _terms(columns, a.indices[first:last].tolist(), a.data[first:last])
        ends = (a.indptr[start : end + 1] - first).tolist()
        below, above = _numbers(_zero_if_infinite(low[start:end])), _numbers(_zero_if_infinite(high[start:end]))
        for k in range(start, end):
            i = k - start
            left = _broken(terms[ends[i] : ends[i + 1]]) or (f"0 {columns[0]}" if columns else "0")
            if low[k] == high[k]:
                yield f" {rows[k]}: {left} = {below[i]}"
                continue
            both = np.isfinite(low[k]) and np.isfinite(high[k])
            if np.isfinite(low[k]):
                yield f" {rows[k]}{'#lower' if both else ''}: {left} >= {below[i]}"
            if np.isfinite(high[k]):
                yield f" {rows[k]}{'#upper' if both else ''}: {left} <= {above[i]}"


def _lp_bounds(model: LinearModel, columns: list[str]) -> Iterator[str]:
    """Bounds of every column, so that those without rows and cost exist too."""
    low, high = model.lower, model.upper
    below, above = _numbers(_zero_if_infinite(low)), _numbers(_zero_if_infinite(high))
    for k, name in enumerate(columns):
        if low[k] == high[k]:
            yield f" {name} = {below[k]}"
        elif low[k] == -np.inf and high[k] == np.inf:
            yield f" {name} free"
        elif high[k] == np.inf:
            yield f" {name} >= {below[k]}"
        else:
            yield f" {'-inf' if low[k] == -np.inf else below[k]} <= {name} <= {above[k]}"


def _terms(columns: list[str], which: list[int], values: NDArray[np.float64]) -> list[str]:
    signs = np.where(values < 0, "-", "+").tolist()
    return [
        f"{sign} {number} {columns[k]}" for sign, number, k in zip(signs, _numbers(abs(values)), which, strict=True)
    ]


def _broken(terms: list[str], width: int = 8) -> str:
    """Terms in lines short enough for readers with a limit (CPLEX: 560 characters)."""
    if len(terms) <= width:
        return " ".join(terms)
    return "\n  ".join(" ".join(terms[k : k + width]) for k in range(0, len(terms), width))
