"""The command compare: methods, and plans of the user's own, on one question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetopt.cli.group import BAD_INPUT, INTERRUPTED, main
from hetopt.cli.running import made_folder, print_json, read_instance, running, tell_unasked
from hetopt.cli.values import FILE, JSON, LIMITS, QUESTION, Gap
from hetopt.errors import InputError

if TYPE_CHECKING:
    from hetopt.instance import Instance
    from hetopt.result import Result
    from hetopt.solution import Solution

__all__ = ["compare"]


@main.command()
@FILE
@QUESTION
@click.option("--methods", metavar="M,M,...", help="Methods to compare; all that fit otherwise.")
@click.option(
    "--plan", "plans", type=click.Path(path_type=Path), multiple=True,
    help="Result file or plan written by hand, judged for the same question; may be repeated.",
)  # fmt: skip
@LIMITS
@click.option("--gap", type=Gap(), default=0.0, show_default=True, help="Stop each at this relative gap.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Folder for each METHOD.result.json as it ends.")
@JSON
def compare(
    file: Path, objective: str | None, options: Any, formulation: Path | None, methods: str | None, plans: tuple[Path, ...],
    time_limit: float | None, threads: int, seed: int, gap: float, output: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Run several methods on FILE, each alone with the same limits; 10 s each without --time-limit.

    The exit code is 1 when a --plan breaks a constraint or a result file could not be written.
    """
    import hetopt
    from hetopt.report_comparison import notes, print_comparison
    from hetopt.solve import methods_compared

    instance = read_instance(file, formulation)
    tell_unasked(instance, formulation, objective)
    own = _plans(plans, instance)
    asked: Any = {"objective": objective, "options": dict(options)}
    wanted = [name.strip() for name in methods.split(",")] if methods else None
    names = methods_compared(instance, methods=wanted, plans=own, **asked)
    written = _Written(instance, made_folder(output), own)
    with running(as_json) as control:
        results = hetopt.compare(
            instance, methods=names, plans=own, time_limit=10.0 if time_limit is None else time_limit, gap=gap,
            threads=threads, seed=seed, on_result=written, control=control, **asked,
        )  # fmt: skip
    for name, result in results.items():
        if written.results.get(name, result) is not result:  # a later plan refuted its bound
            written(name, result)
    if as_json:
        print_json(_record(results, instance, written.files))
    else:
        print_comparison(results, plans=own)
    for sentence in notes(results):
        click.echo(f"note: {sentence}", err=True)
    if left := [name for name in names if name not in results]:
        click.echo(f"note: interrupted before these methods ran: {', '.join(left)}", err=True)
    if control.cancelled.is_set():
        return INTERRUPTED
    return BAD_INPUT if written.failed or any(results[name].objective is None for name in own) else 0


class _Written:
    """Writes each method's result into a folder as it ends; a file that cannot be written is told, and nothing else is lost."""

    def __init__(self, instance: Instance, folder: Path | None, plans: dict[str, Solution]) -> None:
        self.instance, self.folder, self.plans = instance, folder, plans
        self.files: dict[str, str] = {}
        self.results: dict[str, Result] = {}
        self.failed = False

    def __call__(self, name: str, result: Result) -> None:
        from hetopt.io.results import write_result

        if self.folder is None or name in self.plans:
            return
        target = self.folder / f"{name}.result.json"
        self.results[name] = result
        try:
            write_result(result, self.instance, target)
        except InputError as error:
            self.failed = True
            click.echo(f"error: {error}", err=True)
        else:
            self.files[name] = str(target)


def _plans(files: tuple[Path, ...], instance: Instance) -> dict[str, Solution]:
    """The plans in some files by the files' stems; InputError where a file holds none."""
    import hetopt

    found: dict[str, Solution] = {}
    for file in files:
        result = hetopt.read_result(file, instance)
        name = file.stem.removesuffix(".result")
        if result.solution is None:
            raise InputError(f"--plan {str(file)!r} holds no plan; give a result file with a solution")
        if name in found:
            raise InputError(f"two files of --plan are called {name!r}, which names their rows; rename one")
        if result.instance_digest not in ("", instance.digest):
            told = f"note: {name} was made for another instance, and is judged for this one"
            click.echo(told, err=True)
        found[name] = result.solution
    return found


def _record(results: dict[str, Result], instance: Instance, files: dict[str, str]) -> dict[str, Any]:
    """The object that ``--json`` prints: each row without its plan, which is in the ``file`` where there is one."""
    from hetopt.io.results import summary

    rows = {name: {k: v for k, v in summary(r, instance).items() if k != "solution"} for name, r in results.items()}
    return {name: {**row, **({"file": files[name]} if name in files else {})} for name, row in rows.items()}
