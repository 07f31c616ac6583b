"""Import unrelated machines with setup times that depend on the sequence, in the layout of Vallada and Ruiz's sets.

First line: jobs, machines, one more number. Second line: machines. A line a job follows with pairs (machine, time), then
``SSD``, then for each machine a line ``M0``, ``M1``, ... and a matrix of setups, a row for the job before, a column for the job
after. Source of the sets: Vallada and Ruiz, European Journal of Operational Research 211 (2011).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._text import MAX_CELLS, load_text, plain_numbers
from hetopt.io.kinds import Option

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "upmsp"
TITLE = "Unrelated machines with sequence-dependent setup times (Vallada and Ruiz's layout)."
SOURCE_HELP = "text file: sizes, a line of (machine, time) pairs a job, 'SSD', then a setup matrix a machine."
OPTIONS: tuple[Option, ...] = ()


def load(source: str | Path) -> Instance:
    """Instance of a file; jobs are ``j0, j1, ...``, machines ``M0, M1, ...``, the question is the makespan with setups.

    Raises
    ------
    InputError
        The file cannot be read, is cut off, or a line is not as expected; the message names the line.
    """
    try:
        return _instance(load_text(source), Path(source).name)
    except InputError as error:
        if str(error).startswith("cannot read"):
            raise
        raise InputError(f"{source}: {error}") from error


def _instance(text: str, name: str) -> Instance:
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    sizes = _numbers(lines, 0, None)[:2]
    if len(sizes) < 2 or any(size != int(size) or not 1 <= size < 1e6 for size in sizes):
        raise InputError(
            "line 1 does not start with the numbers of jobs and machines; expected two whole numbers from 1 on"
        )
    n, m = (int(size) for size in sizes)
    if n * n * m > MAX_CELLS:
        raise InputError(
            f"line 1 announces {m} setup matrices of {n} x {n}, more than {MAX_CELLS} numbers; split the file"
        )
    _numbers(lines, 1, None)
    pairs = np.array([_numbers(lines, 2 + j, 2 * m) for j in range(n)])
    if (pairs[:, ::2] != np.arange(m)).any():
        j = int(np.flatnonzero((pairs[:, ::2] != np.arange(m)).any(axis=1))[0])
        raise InputError(f"line {lines[2 + j][0]} does not name the machines 0 to {m - 1} in order before their times")
    _word(lines, 2 + n, "SSD")
    setup = np.empty((m, n, n))
    at = 3 + n
    for i in range(m):
        _word(lines, at, f"M{i}")
        setup[i] = [_numbers(lines, at + 1 + j, n) for j in range(n)]
        at += n + 1
    if at < len(lines):
        raise InputError(f"line {lines[at][0]} follows the last setup matrix; expected the end of the file")
    return Instance.from_times(
        pairs[:, 1::2],
        jobs=[f"j{j}" for j in range(n)],
        devices=[f"M{i}" for i in range(m)],
        tables={"setup": _plain(setup)},
        question={"objective": "setup-makespan"},
        name=name,
        source=f"imported from the file {name}",
    )


def _plain(array: np.ndarray) -> list:  # type: ignore[type-arg]
    whole = (array == np.floor(array)).all()
    return list((array.astype(np.int64) if whole else array).tolist())


def _numbers(lines: list[tuple[int, list[str]]], at: int, length: int | None) -> list[float]:
    """Numbers of a line, as many as expected."""
    if at >= len(lines):
        raise InputError("the file ends too early; is it cut off?")
    number, words = lines[at]
    values = plain_numbers(words)
    if values is None or (length is not None and len(values) != length):
        wanted = "numbers >= 0" if length is None else f"{length} numbers >= 0"
        raise InputError(f"line {number} is {' '.join(words)[:40]!r}, expected {wanted}")
    return values


def _word(lines: list[tuple[int, list[str]]], at: int, word: str) -> None:
    if at >= len(lines) or lines[at][1] != [word]:
        shown = "missing; is the file cut off?" if at >= len(lines) else repr(" ".join(lines[at][1])[:40])
        raise InputError(f"line {lines[at][0] if at < len(lines) else len(lines) + 1} is {shown}, expected {word!r}")
