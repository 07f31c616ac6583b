"""What people see of simulated traces: a row a policy. Computes nothing but counts."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from hetopt.report import number, percent, standard_output
from hetopt.rounds import Simulation

__all__ = ["print_rounds"]

MOST_TYPES = 6
WIDE = 110  # columns where there is no terminal


def print_rounds(told: Mapping[str, Simulation]) -> None:
    """A row a policy: mean seconds from release to completion, makespan, jobs done and late, rounds, plans, use of each type."""
    types = list(dict.fromkeys(name for one in told.values() for name in one.used))[:MOST_TYPES]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("policy", overflow="fold")
    for title in ("mean s", "makespan s", "done", "late", "rounds", "plans", *types):
        table.add_column(Text(title), justify="right")
    for name, one in told.items():
        done = sum(end is not None for end in one.finish.values())
        times = (number(one.completion), number(one.makespan), f"{done} of {len(one.finish)}", str(len(one.late)))
        used = (percent(one.used.get(kind)) for kind in types)
        table.add_row(Text(name), *times, str(one.rounds), str(one.plans), *used)
    standard_output(WIDE).print(table)
