"""What people see of several runs beside each other: a row a method, a plan of their own, or a file. Computes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rich.table import Table
from rich.text import Text

from hetopt.comparison import best
from hetopt.report import COLOUR, number, percent, standard_output
from hetopt.result import Result

__all__ = ["notes", "print_comparison"]

WIDE = 110  # columns where there is no terminal


def print_comparison(results: Mapping[str, Result], what: str = "method", plans: Collection[str] = ()) -> None:
    """A row a method (or a file): status, value, bound, gap, its proof, why it ended, times; ``plans`` are rows only judged.

    Below them the best value and the best bound, where methods answer the same question.
    """
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(what, overflow="fold")
    table.add_column("status", no_wrap=True)
    for name in ("value", "bound", "gap", "proof", "ended", "seconds", "cpu"):
        table.add_column(name, justify="left" if name in ("proof", "ended") else "right")
    for name, r in results.items():
        word = _word(r)
        status = Text(word, style=COLOUR.get(word, "red"))
        numbers = (number(r.objective), number(r.bound), percent(r.gap))
        times = ("-", "-") if name in plans else (f"{r.seconds:.2f}", f"{r.cpu_seconds:.2f}")
        table.add_row(
            Text(name), status, *numbers, r.bound_proof, "judged only" if name in plans else _ended(r), *times
        )
    console = standard_output(WIDE)
    console.print(table)
    found = best(results) if what == "method" and len(results) > 1 else None
    if found is not None:
        plan, bound, gap = found
        told = f"best value {number(results[plan].objective)} by {plan}, best bound {number(results[bound].bound)} by {bound}"
        console.print(f"{told}: gap {percent(gap)}", markup=False, highlight=False, soft_wrap=True)


def notes(results: Mapping[str, Result]) -> Iterator[str]:
    """Sentences on the rows, each once, with the names of those it is about where it is not about all."""
    about: dict[str, list[str]] = {}
    for name, r in results.items():
        for sentence in (*r.infeasible, *r.messages):
            about.setdefault(sentence, []).append(name)
    for sentence, names in about.items():
        yield sentence if len(names) == len(results) else f"{', '.join(names)}: {sentence}"


def _word(result: Result) -> str:
    """The status, told apart where one word stands for several: a relaxation's bound, a plan that is none."""
    if result.status == "unknown" and result.bound is not None:
        return "bound"
    return "refused" if result.solution is not None and not result.verified else result.status


def _ended(result: Result) -> str:
    """Why a run stopped."""
    if result.reason == "limit":
        return f"{result.limit} limit" if result.limit not in (None, "other") else "limit"
    return "finished" if result.reason == "infeasible" else result.reason
