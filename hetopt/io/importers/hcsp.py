"""Import matrices of the heterogeneous computing scheduling problem: the ETC sets of Braun et al. in the hcsp layout.

The first line holds the number of tasks, the number of machines and perhaps a third number (0, 1 or 2: consistent,
semi-consistent, inconsistent), which says nothing that the matrix does not. The times follow, row by row (a row a task),
one a line or several, separated by blanks. Source of the sets: Braun et al., Journal of Parallel and Distributed Computing
61 (2001); of the layout: the public repository chgogos/hcsp.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._text import MAX_CELLS, load_text, number, plain_numbers
from hetopt.io.kinds import Option

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "hcsp"
TITLE = "A matrix of task times on unrelated machines (Braun et al., hcsp layout)."
SOURCE_HELP = "text file: 'tasks machines [class]' on the first line, then the times, a row a task."
OPTIONS: tuple[Option, ...] = ()

_CHUNK = 1 << 15


def load(source: str | Path) -> Instance:
    """Instance of a file; tasks are ``t0, t1, ...``, machines ``m0, m1, ...``, the question is the makespan.

    Raises
    ------
    InputError
        The file cannot be read, its first line is not as expected, it is cut off or too long, or a time is not a number >= 0.
    """
    try:
        return _instance(load_text(source), Path(source).name)
    except InputError as error:
        if str(error).startswith("cannot read"):
            raise
        raise InputError(f"{source}: {error}") from error


def _instance(text: str, name: str) -> Instance:
    lines = text.splitlines()
    head = lines[0].split() if lines else []
    sizes = [int(word) if word.isascii() and word.isdigit() and len(word) < 10 else 0 for word in head[:2]]
    if len(head) not in (2, 3) or min(sizes, default=0) < 1 or (len(head) == 3 and head[2] not in ("0", "1", "2")):
        shown = repr(lines[0][:60]) if lines else "missing"
        raise InputError(f"line 1 is {shown}, expected 'tasks machines' or 'tasks machines class' (class 0, 1 or 2)")
    n, m = sizes
    if n * m > MAX_CELLS:
        raise InputError(f"line 1 announces {n} x {m} times, more than {MAX_CELLS}; split the file")
    if len(text) < 2 * n * m:
        raise InputError(f"line 1 announces {n} x {m} times, but the file has only {len(text)} bytes; is it cut off?")
    times = np.empty(n * m)
    count = 0
    for first in range(1, len(lines), _CHUNK):
        words = " ".join(lines[first : first + _CHUNK]).split()
        values = plain_numbers(words)
        if values is None or count + len(values) > n * m:
            _complain(lines, first, n * m - count, f"{n} x {m}")
        else:
            times[count : count + len(values)] = values
            count += len(values)
    if count < n * m:
        raise InputError(f"the file ends after {count} times, but line 1 announces {n} x {m}; is it cut off?")
    return Instance.from_times(
        times.reshape(n, m),
        jobs=[f"t{k}" for k in range(n)],
        devices=[f"m{k}" for k in range(m)],
        question={"objective": "makespan"},
        name=name,
        source=f"imported from the hcsp file {name}",
    )


def _complain(lines: list[str], first: int, room: int, announced: str) -> NoReturn:
    """Raise the InputError of the first word, from a line on, that is no time or for which there is no room."""
    for row in range(first, len(lines)):
        for word in lines[row].split():
            value = number(word)
            if value is None or value < 0:
                raise InputError(f"line {row + 1} holds {word[:40]!r}, expected a time: a number >= 0")
            if room == 0:
                raise InputError(
                    f"line {row + 1} holds {word[:40]!r} after the {announced} times that line 1 announces"
                )
            room -= 1
    raise InputError(f"the times that follow line {first} add up to more than a float holds; use a larger unit")
