"""Import a table of times: a row a job, a column a device, an empty cell where the job cannot run.

Delimiter (comma, semicolon, tab), header and name column are found by looking; where looking could be wrong, the importer
asks (``--header``, ``--names``) instead of guessing, for a header taken for a job would be a wrong answer without a sign.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._text import MAX_CELLS, load_text, number, plain_numbers
from hetopt.io.kinds import Option, chosen

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "csv"
TITLE = "A table of times: a row a job, a column a device, empty where the job cannot run."
SOURCE_HELP = "text table with commas, semicolons or tabs; a header and a first column of names are optional."
CHOICES = ("auto", "yes", "no")
OPTIONS: tuple[Option, ...] = (
    Option("--header", CHOICES, "auto", "Whether the first row names the devices."),
    Option("--names", CHOICES, "auto", "Whether the first column names the jobs."),
)

# Tabs and semicolons first: names and decimal commas hold commas, hardly ever the others.
_DELIMITERS = "\t;,"
# A first cell that says that its column holds names, even when the names are numbers.
_NAMES_COLUMN = re.compile(
    r"(?:item|job|kernel|layer|model|node|op|operator|task|workload)s?(?:[ _-]?(?:id|index|name)s?)?|(?:id|index|name)s?|",
    re.IGNORECASE,
)
# Not a number as we read them, yet nobody's name of a device: a decimal comma, grouped digits, nan.
_NEARLY_NUMBER = re.compile(
    r"[+-]?[\d.,_' ]*\d[\d.,_' eE+-]*|[+-]?(nan|inf|infinity|na|n/a|null|none|-+)", re.IGNORECASE
)


def load(source: str | Path, *, header: str = "auto", names: str = "auto") -> Instance:
    """Instance of a table; the question is the makespan.

    Parameters
    ----------
    source
        The file.
    header
        Whether the first row names the devices. ``auto``: it does when every cell in it beyond the first is text, or when
        its first cell is a word such as ``job``.
    names
        Whether the first column names the jobs. ``auto``: it does when a cell in it is text, or its header says so.

    Raises
    ------
    InputError
        The file cannot be read, a row has another number of cells, a cell is neither empty nor a number >= 0, a name stands
        twice or is missing, or a job can run nowhere; the message names line and column.
    """
    chosen("--header", header, CHOICES)
    chosen("--names", names, CHOICES)
    try:
        return _instance(load_text(source), Path(source).name, header, names)
    except InputError as error:
        if str(error).startswith("cannot read"):
            raise
        raise InputError(f"{source}: {error}") from error


Row = tuple[int, list[str]]
"""Line number and cells."""


def _instance(text: str, name: str, header: str, names: str) -> Instance:
    rows = _rows(text)
    head: Row | None = None
    if header == "yes" or (header == "auto" and _is_header(rows[0], len(rows))):
        head = rows.pop(0)
        if not rows:
            raise InputError("the table has a header and no row below it; expected a row a job")
    width = len(rows[0][1])
    named = names == "yes" or (names == "auto" and _has_names(head, rows, width))
    devices = _device_names(head, width, named)
    times = np.empty((len(rows), width - named))
    jobs: dict[str, int] = {}
    for k, (line, cells) in enumerate(rows):
        if len(cells) != width:
            raise InputError(f"line {line} has {len(cells)} cells, expected {width} as in line {rows[0][0]}")
        job = cells[0] if named else f"j{k}"
        if not job:
            raise InputError(f"line {line}, column 1 is empty, expected the job's name")
        if jobs.setdefault(job, line) != line:
            raise InputError(f"line {line}, column 1 repeats the job {job!r} of line {jobs[job]}; names are unique")
        own = cells[named:]
        times[k] = plain_numbers(own) or [_time(cell, line, i + 1 + named) for i, cell in enumerate(own)]
        if np.isinf(times[k]).all():
            raise InputError(f"line {line}: the job {job!r} can run nowhere, all its cells are empty; give it a time")
    nobody = np.flatnonzero(np.isinf(times).all(axis=0))
    if nobody.size and devices is None:
        raise InputError(
            f"column {nobody[0] + 1 + named} is empty in every row; expected times, or a header that names it"
        )
    return Instance.from_times(
        times,
        jobs=list(jobs),
        devices=devices,
        question={"objective": "makespan"},
        name=Path(name).stem,
        source=f"imported from the table {name}",
    )


def _rows(text: str) -> list[Row]:
    """Lines with their cells, blank lines left out."""
    delimiter = next((mark for mark in _DELIMITERS if _fits(text, mark)), ",")
    if text.count(delimiter) + text.count("\n") > MAX_CELLS:
        raise InputError(f"the table has more than {MAX_CELLS} cells; split the file")
    rows = list(_cut(text, delimiter))
    if not rows:
        raise InputError("the file is empty; expected a row a job and a column a device")
    return rows


def _fits(text: str, delimiter: str) -> bool:
    """Whether a delimiter cuts the first lines into rows of one length (a header may be one cell shorter) above one."""
    try:
        widths = {len(cells) for _, cells in islice(_cut(text, delimiter), 20)}
    except InputError:
        return False
    return bool(widths) and max(widths) > 1 and max(widths) - min(widths) <= 1


def _cut(text: str, delimiter: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if len(cells) > 1 or any(cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"line {reader.line_num} is no row of a table: {error}") from error


def _is_header(first: Row, count: int) -> bool:
    line, cells = first
    if count > 1 and len(cells) > 1 and cells[0] and _NAMES_COLUMN.fullmatch(cells[0]):
        return True
    if len(cells) > 1 and cells == ["", *(str(k) for k in range(len(cells) - 1))]:
        raise InputError(f"line {line} may number the devices or hold times; say --header yes or --header no")
    beyond = cells[1:] or cells
    text = [_is_text(cell) for cell in beyond]
    if any(text) and not all(text):
        i = text.index(True) + (len(cells) > 1)
        raise InputError(
            f"line {line}, column {i + 1} is {cells[i][:40]!r} beside cells that are no text; expected text in all or in none "
            "(say --header yes if this line names the devices)"
        )
    return all(text)


def _is_text(cell: str) -> bool:
    return bool(cell) and number(cell) is None and not _NEARLY_NUMBER.fullmatch(cell)


def _has_names(head: Row | None, rows: list[Row], width: int) -> bool:
    if width == 1:
        return False
    if head is not None and (len(head[1]) == width - 1 or _NAMES_COLUMN.fullmatch(head[1][0])):
        return True
    first = [cells[0] for _, cells in rows]
    if len(first) > 3 and first in ([str(k) for k in range(len(first))], [str(k + 1) for k in range(len(first))]):
        raise InputError(
            "column 1 counts the rows: it may number the jobs or hold times; say --names yes or --names no"
        )
    return any(map(_is_text, first))


def _device_names(head: Row | None, width: int, named: bool) -> list[str] | None:
    if width == named:
        raise InputError("the table has names and no column of times; expected a column a device")
    if head is None:
        return None
    line, cells = head
    names = cells[named:] if len(cells) == width else cells
    if len(names) != width - named:
        raise InputError(f"line {line}, the header, has {len(cells)} cells, expected {width} as in the rows below it")
    seen: set[str] = set()
    for i, name in enumerate(names):
        column = i + 1 + (named and len(cells) == width)
        if not name:
            raise InputError(f"line {line}, column {column} is empty, expected the device's name")
        if name in seen:
            raise InputError(f"line {line}, column {column} repeats the device {name!r}; names are unique")
        seen.add(name)
    return names


def _time(cell: str, line: int, column: int) -> float:
    if not cell:
        return np.inf
    value = number(cell)
    if value is None or value < 0:
        hint = "; decimals are written with a point" if "," in cell else ""
        raise InputError(
            f"line {line}, column {column} is {cell[:40]!r}, expected a number >= 0, or nothing where the job cannot run{hint}"
        )
    return value
