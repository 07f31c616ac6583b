"""The command complete: times that nobody measured are estimated, with their errors, or what to measure next is told."""

from __future__ import annotations

from pathlib import Path

import click

from hetopt.cli.group import main
from hetopt.cli.running import print_json, read_instance, writable
from hetopt.cli.values import FILE, JSON

__all__ = ["complete"]


@main.command()
@FILE
@click.option("--method", default="auto", show_default=True, help="How times are estimated; a wrong name lists them.")
@click.option("--everywhere", is_flag=True, help="Every missing time is one that nobody measured.")
@click.option(
    "--measure", type=click.IntRange(1, 1000), metavar="Q", help="Say what to measure for Q anchors a type instead."
)
@click.option(
    "--reference", metavar="DEVICE", help="Device (or type) to which others are compared; else the most measured."
)
@click.option("--budget", type=click.FloatRange(0), help="Most measurements; then as many anchors as possible.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Instance file to write, its estimates marked.")
@JSON
def complete(
    file: Path, method: str, everywhere: bool, measure: int | None, reference: str | None, budget: float | None,
    output: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Estimate the times of FILE that nobody measured, or say which to measure next.

    A missing time means that a task cannot run there; `tables.unmeasured` names those that only have not been tried.
    """
    import hetopt
    from hetopt.costs.completing import complete_instance, to_measure

    instance = read_instance(file, None)
    if measure is not None:
        found = to_measure(instance, measure, reference=reference, budget=budget, everywhere=everywhere)
        if as_json:
            print_json(found)
            return 0
        for task, types in found["measure"].items():
            click.echo(f"{task}: {', '.join(types)}")
        click.echo(f"{found['count']} measurements give {found['anchors']} of {found['wanted']} anchors", err=True)
        return 0
    writable(output)
    done = complete_instance(instance, method, everywhere=everywhere)
    tried = {name: None if error != error else error for name, error in done.table.tried.items()}
    pairs = None if done.pairs is None else done.pairs.method
    record = {
        "method": done.table.method, "method of pairs": pairs, "estimated": done.estimated, "unknown": done.unknown,
        "held out error": tried,
    }  # fmt: skip
    if output is not None:
        hetopt.write(done.instance, output)
    if as_json:
        print_json(record)
        return 0
    for name, error in tried.items():
        told = "says nothing" if error is None else f"{100 * error:.3g} %"
        click.echo(f"{'*' if name == done.table.method else ' '} {name:12} {told}")
    also = "" if pairs is None else f", pairs by {pairs}"
    click.echo(f"{done.estimated} estimated by {done.table.method}{also}; {done.unknown} still unknown", err=True)
    return 0
