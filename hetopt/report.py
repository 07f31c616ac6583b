"""What people see in a terminal: progress, results, catalogues. Tables by rich; no number is computed here."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hetopt import clock
from hetopt.errors import InputError

if TYPE_CHECKING:
    from hetopt.control import Control
    from hetopt.diagnose import Diagnosis
    from hetopt.explain import Explanation
    from hetopt.formulation import Problem, Question
    from hetopt.instance import Instance
    from hetopt.result import Result

__all__ = [
    "COLOUR",
    "catalogue",
    "number",
    "print_catalogue",
    "print_explanation",
    "print_replay",
    "print_result",
    "print_versions",
    "progress",
    "standard_output",
]

MOST_ROWS = 40
COLOUR = {
    "optimal": "green",
    "feasible": "yellow",
    "bound": "yellow",
    "infeasible": "red",
    "unknown": "red",
    "error": "red",
}


def number(value: float | None) -> str:
    """A number as people read it: integers whole, else seven digits; a dash for unknown."""
    if value is None:
        return "-"
    return f"{int(value)}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.7g}"


def percent(gap: float | None) -> str:
    """A relative gap in per cent, a dash for unknown."""
    return "-" if gap is None else f"{100 * gap:.3g} %" if gap > 1e-9 else "0 %"


@contextmanager
def progress(control: Control, *, show: bool) -> Iterator[None]:
    """Show elapsed time, value, bound and gap on standard error while the block runs; nothing unless ``show``."""
    if not show:
        yield
        return

    class Line:
        def __rich__(self) -> Text:
            value, bound = control.value, control.bound
            gap = abs(value - bound) / abs(value) if value and bound is not None else None
            stopping = "  stopping" if control.cancelled.is_set() else ""
            state = f"value {number(value)}  bound {number(bound)}  gap {percent(gap)}"
            doing = "compiling, once on this machine" if clock.compiling() else control.method
            return Text(f"{control.elapsed:8.1f} s  {state}  {doing}{stopping}")

    with Live(Line(), console=Console(stderr=True), refresh_per_second=4, transient=True):
        yield


def print_replay(told: Mapping[str, Any]) -> None:
    """What a replay came to: latencies of frames, and a row a device."""
    console = standard_output()
    console.print(f"  frames      {told['frames']}, {told['misses']} late, {told['drops']} dropped", highlight=False)
    for key, word in (("mean_latency", "mean"), ("p90_latency", "p90"), ("worst_latency", "worst")):
        console.print(f"  {word:<11} {number(told[key])} s after release", highlight=False)
    console.print(f"  value       {number(told['objective'])}, added up from what happened", highlight=False)
    table = Table("device", box=None, padding=(0, 1, 0, 2))
    for title in ("utilisation", "busy s", "peak memory, bytes"):
        table.add_column(title, justify="right")
    for name, row in told["devices"].items():
        table.add_row(name, percent(row["utilisation"]), number(row["busy"]), number(row["peak_memory"]))
    console.print(table)


def print_result(result: Result, instance: Instance, output: Path | None) -> None:
    """The answer: status, value, bound and its proof, method, and what each device holds."""
    console = standard_output()
    head = Text(result.status, style=f"bold {COLOUR[result.status]}")
    head.append(f"  {result.problem}", style="default not bold")
    console.print(head)
    for sentence in result.infeasible:
        console.print(f"  {sentence}", markup=False, highlight=False, soft_wrap=True)
    if result.status == "infeasible":
        console.print("  what would mend it: `hetopt explain`", highlight=False)
    if result.reason in ("limit", "interrupted", "error"):
        console.print(f"  stopped by  {result.limit or result.reason}{' limit' if result.limit else ''}")
    if result.objective is not None:
        unit = _unit(result.problem)
        console.print(f"  value       {number(result.objective)}{unit}, recomputed from the instance", highlight=False)
    if result.bound is not None:
        word = {
            "replayed": "proof stored, replayed by `hetopt verify`",
            "algorithm": "by an exact algorithm",
            "solver": f"the word of {result.solver}",
            "none": "without proof",
        }[result.bound_proof]
        console.print(f"  bound       {number(result.bound)}, {word}", highlight=False)
    if result.objective is not None:
        console.print(f"  gap         {percent(result.gap)}", highlight=False)
    if told := _guarantee(result):
        console.print(f"  guarantee   {told}", highlight=False)
    found_by = result.method.split(",")[0]
    last = "" if result.method_why.startswith(f"{found_by}:") else "last run: "
    why = f"  method      {result.method}  ({last}{result.method_why})"
    console.print(why, markup=False, highlight=False, soft_wrap=True)
    console.print(f"  time        {result.seconds:.2f} s ({result.cpu_seconds:.2f} s of processor)", highlight=False)
    if output is not None:
        console.print(f"  written to  {output}", markup=False, highlight=False)
    devices = result.evaluation.get("devices")
    if isinstance(devices, Mapping) and devices:
        console.print(_devices(devices))


def _devices(devices: Mapping[str, Mapping[str, Any]]) -> Table:
    keys = list(dict.fromkeys(key for row in devices.values() for key in row))
    keys = [key for key in keys if any(row.get(key) for row in devices.values())] or keys[:1]
    table = Table("device", box=None, padding=(0, 1, 0, 2))
    for key in keys:
        table.add_column(key.replace("_", " "), justify="right")
    for name, row in list(devices.items())[:MOST_ROWS]:
        table.add_row(Text(name), *(_cell(row.get(key)) for key in keys))
    if len(devices) > MOST_ROWS:
        table.add_row(f"... {len(devices) - MOST_ROWS} more", *[""] * len(keys))
    return table


def _cell(value: Any) -> str:
    """A device's number in few digits, so that the table fits a narrow terminal."""
    return value if isinstance(value, str) else "-" if value is None else f"{float(value):.4g}"


def catalogue(instance: Instance | None) -> list[dict[str, Any]]:
    """Every problem with its methods; with an instance, its own question first, whether each fits, why not, and how big it is."""
    from hetopt.registry import problems

    rows: list[dict[str, Any]] = []
    for problem in problems():
        if instance is not None and problem.fits(instance) is not None:
            continue
        try:
            methods = _methods(problem, instance)
        except InputError:
            if instance is None or _own(problem, instance):
                raise
            continue  # it lacks a fact that only a closer look misses, such as a link with the host
        options = [{"name": o.name, "default": o.default, "help": o.help} for o in problem.options]
        rows.append(
            {
                "name": problem.name,
                "objectives": list(problem.objectives),
                "title": problem.title,
                "sense": problem.sense,
                "asked": instance is not None and _own(problem, instance),
                "options": options,
                "methods": methods,
            }
        )
    return sorted(rows, key=lambda row: not row["asked"])


def _methods(problem: Problem, instance: Instance | None) -> list[dict[str, Any]]:
    """A row for each method; InputError where the instance lacks a fact that the problem asks for late."""
    question = _question(problem, instance) if instance is not None else None
    rows = []
    for method in problem.methods:
        row: dict[str, Any] = {
            "name": method.name,
            "kind": method.kind,
            "engine": method.engine,
            "title": method.title,
        }
        if instance is not None and question is not None:
            row["why_not"] = method.fits(instance, question)
            row["size"] = method.size(instance, question)
        rows.append(row)
    return rows


def _question(problem: Problem, instance: Instance) -> Question:
    """The file's own question where it asks this problem, else the problem's usual one."""
    return problem.question(instance if _own(problem, instance) else instance.with_question({}))


def _own(problem: Problem, instance: Instance) -> bool:
    """Whether the file asks this problem."""
    asked = instance.question.get("objective")
    return asked == problem.name or asked in problem.objectives


def print_catalogue(rows: Sequence[Mapping[str, Any]], instance: Instance | None) -> None:
    """The catalogue as an indented list."""
    console = standard_output()
    for row in rows:
        title = Text(row["name"], style="bold").append(f"  {row['title']}", style="default not bold")
        console.print(title, soft_wrap=True)
        asked = "  (what the file asks)" if row["asked"] else ""
        console.print(f"  --objective {' or '.join(row['objectives'])}{asked}", markup=False, highlight=False)
        for option in row["options"]:
            line = f"  -O {option['name']}={option['default']}  {option['help']}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        for method in row["methods"]:
            why = f"  (does not fit: {method['why_not']})" if method.get("why_not") else ""
            size = f"  ~{method['size']:.2g} nonzeros or states" if instance is not None and not why else ""
            line = f"    {method['name']:<14} {method['kind']:<13} {method['title']}{size}{why}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_explanation(told: Explanation, found: Diagnosis | None = None) -> None:
    """Sentences, the decisive one first."""
    console = standard_output()
    for line in [*(told.lines()[:1] if found and told.infeasible else told.lines()), *(found.lines() if found else [])]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_versions(record: Mapping[str, Any]) -> None:
    """Versions, machine and solvers, one a line."""
    console = standard_output()
    for name, value in {**record["versions"], **record["machine"]}.items():
        console.print(f"{name:<12} {value if value is not None else 'not installed'}", markup=False, highlight=False)
    console.print()
    for about in record["solvers"]:
        state = about["missing"] or f"{about['version']}  {', '.join(about['capabilities'])}"
        console.print(f"{about['name']:<12} {state}", markup=False, highlight=False, soft_wrap=True)


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command line knows what to do; rich would exit with 1


def standard_output(width: int | None = None) -> Console:
    """Where answers are printed; ``width`` columns where there is no terminal."""
    return _Output(file=sys.stdout, width=None if sys.stdout.isatty() else width)


def _guarantee(result: Result) -> str:
    """What an approximation promises of its plan and its own bound, and what came out; empty for other methods."""
    from hetopt.registry import problem

    promised = next((m.guarantee for m in problem(result.problem).methods if m.name == result.method), "")
    if not promised or not result.objective or not result.bound:
        return ""
    factor = result.objective / result.bound if result.sense == "min" else result.bound / result.objective
    early = "" if result.reason == "finished" else " when it is run to its end"
    return f"{promised}{early}; here {factor:.3g} times"


def _unit(name: str) -> str:
    from hetopt.registry import problem

    unit = problem(name).unit
    return f" {unit}" if unit else ""
