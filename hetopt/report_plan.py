"""What people see of a plan for a model: stages, times, memory, what binds, and where the settings are. Computes nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hetopt.io.results import summary
from hetopt.plan import Planned, settings_file
from hetopt.plan_stages import Stage
from hetopt.report import number, percent

__all__ = ["print_plan", "record"]

WIDE = 100  # columns where there is no terminal
_UNITS = {"chain-tokens": "tokens", "chain-cost": "an hour"}


def record(planned: Planned) -> dict[str, Any]:
    """The object that ``--json`` prints: the answer as of ``solve``, with stages, rates and settings."""
    return {
        **summary(planned.result, planned.instance),
        "stages": [asdict(stage) for stage in planned.stages],
        "rates": dict(planned.rates),
        "binding": list(planned.binding),
        "settings": dict(planned.settings),
        "refused": dict(planned.refused),
        "mends": list(planned.mends),
        "notes": list(planned.notes),
    }


def print_plan(planned: Planned, folder: Path | None) -> None:
    """Status, stages, what binds, settings."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE)
    result = planned.result

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    head = Text(result.status, style="bold green" if result.status == "optimal" else "bold yellow")
    console.print(head.append(f"  {planned.instance.description}", style="default not bold"), soft_wrap=True)
    for sentence in (*planned.notes, *result.infeasible):
        line(f"  {sentence}")
    if result.solution is None and result.status != "infeasible":
        line("  no plan was found in the time given; more of it is --time-limit")
    if planned.mends:
        line(f"  there is a plan with: {'; '.join(planned.mends)}")
    if planned.stages:
        console.print(_table(planned.stages))
        for text in _numbers(planned):
            line(f"  {text}")
    for target, text in planned.settings.items():
        where = f"  {folder / settings_file(target)}" if folder is not None else ""
        line(f"{target}{where}")
        for row in _shown(text):
            line(f"    {row}")


def _shown(text: str, most: int = 12) -> list[str]:
    """The first lines of a setting."""
    rows = text.splitlines()
    return rows if len(rows) <= most else [*rows[: most - 1], f"... {len(rows) - most + 1} more lines"]


def _numbers(planned: Planned) -> Iterator[str]:
    result = planned.result
    unit = _UNITS.get(str(result.question.get("objective")), "s")
    proof = {
        "replayed": "proof stored, replayed by `hetopt verify`",
        "algorithm": "by an exact algorithm",
        "solver": f"the word of {result.solver}",
        "none": "without proof",
    }[result.bound_proof]
    yield f"value {number(result.objective)} {unit}, bound {number(result.bound)} ({proof}), gap {percent(result.gap)}"
    for name, value in planned.rates:
        yield f"{name}: {value:.4g}"
    yield from planned.binding


def _table(stages: tuple[Stage, ...]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for head in ("stage", "device", "modules"):
        table.add_column(head, no_wrap=True)
    for head in ("layers", "ms", "send ms", "GB held", "of", "tokens"):
        table.add_column(head, justify="right")
    for k, s in enumerate(stages):
        room = "-" if s.tokens is None else str(s.tokens) if s.tokens < 100_000 else f"{s.tokens // 1000} k"
        times = (f"{s.seconds * 1e3:.4g}", f"{s.send * 1e3:.2g}")
        sizes = (f"{(s.weights + s.cache) / 1e9:.2f}", f"{s.usable / 1e9:.2f}")
        table.add_row(str(k), Text(s.device), Text(s.modules), str(s.layers), *times, *sizes, room)
    return table
