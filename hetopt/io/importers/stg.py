"""Import a graph of the Standard Task Graph Set: whole times, precedence, no transfers, identical processors.

The first number is that of the tasks without the two of no length that begin and end the graph; then, for each task, its
number, its time, how many predecessors it has, and their numbers. Lines from ``#`` on are comments. Source of the format:
T. Tobita, H. Kasahara, Journal of Scheduling 5 (2002).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._text import MAX_CELLS, load_text
from hetopt.io.kinds import Option, whole
from hetopt.records import Link

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "stg"
TITLE = "A graph of the Standard Task Graph Set on identical processors without transfers."
SOURCE_HELP = "text file: number of tasks, then 'task time predecessors...' for each."
OPTIONS: tuple[Option, ...] = (Option("--devices", int, 2, "Number of processors."),)


def load(source: str | Path, *, devices: int = 2) -> Instance:
    """Instance of a file; tasks are ``t0, t1, ...``, processors ``p0, p1, ...``; the question is when the last task is done.

    Raises
    ------
    InputError
        The file cannot be read, is cut off or too long, or a number is not as expected.
    """
    d = whole("--devices", devices, 1, 1000)
    text = load_text(source)
    try:
        seconds, edges = _graph(text, d)
        return Instance.from_graph(
            np.repeat(np.array(seconds, np.float64)[:, None], d, axis=1),
            np.array(edges, np.int64).reshape(-1, 2),
            devices=[f"p{i}" for i in range(d)],
            links=[Link(source="*", target="*", bandwidth=None)],
            question={"objective": "schedule-latency"},
            name=Path(source).name,
            source=f"imported from the standard task graph {Path(source).name}",
        )
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _graph(text: str, d: int) -> tuple[list[int], list[tuple[int, int]]]:
    words = [
        (line, word) for line, row in enumerate(text.splitlines(), 1) for word in row.partition("#")[0].split()
    ]  # fmt: skip
    at = 0

    def take(what: str, most: int) -> int:
        nonlocal at
        if at == len(words):
            raise InputError(f"the file ends where {what} is expected; is it cut off?")
        line, word = words[at]
        if not (word.isascii() and word.isdigit() and len(word) < 16 and int(word) <= most):
            raise InputError(f"line {line} holds {word[:40]!r}, expected {what}: a whole number from 0 to {most}")
        at += 1
        return int(word)

    n = take("the number of tasks", MAX_CELLS // d - 2) + 2
    if n > len(words):
        raise InputError(f"line 1 announces {n - 2} tasks, but the file has only {len(words)} numbers; is it cut off?")
    seconds: list[int] = []
    edges: list[tuple[int, int]] = []
    for v in range(n):
        line = words[at][0] if at < len(words) else 0
        number = take(f"task {v}", n - 1)
        if number != v:
            raise InputError(f"line {line} holds task {number}, expected task {v}: tasks stand in order")
        seconds.append(take(f"the time of task {v}", 10**12))
        edges += [(take(f"a predecessor of task {v}", n - 1), v) for _ in range(take("how many predecessors", n))]
    if at < len(words):
        raise InputError(f"line {words[at][0]} holds {words[at][1][:40]!r} after the last task")
    return seconds, edges
