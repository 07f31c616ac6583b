"""The command plan: from a model to the settings of a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hetopt.cli.files import kind_options
from hetopt.cli.group import BAD_INPUT, main
from hetopt.cli.running import print_json, running
from hetopt.cli.values import JSON, LIMITS, Gap
from hetopt.errors import InputError

__all__ = ["plan"]


class _Modelled(click.Command):
    """A command that also takes the options of an importer, which are read when it is run or explained."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from hetopt.io.importers import hf

        own = super().get_params(ctx)
        return [*own[:1], *kind_options(hf), *own[1:]]


@main.command(cls=_Modelled)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--to", "targets", multiple=True, metavar="TOOL", help="Tools to write settings for: vllm,llama.cpp,accelerate, ..."
)
@LIMITS
@click.option("--gap", type=Gap(), default=0.0, show_default=True, help="Stop at this relative gap (0.01 or 1%).")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Folder for instance, result and settings.")
@JSON
def plan(
    model: Path, targets: tuple[str, ...], time_limit: float | None, threads: int, seed: int, gap: float, output: Path | None,
    as_json: bool, **options: Any,
) -> int:  # fmt: skip
    """Plan a published model on some devices: import, solve, verify and export in one go.

    MODEL: config.json of a published model, or its folder.
    """
    from hetopt import report_plan
    from hetopt.plan import plan, write_plan

    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"cannot write into {str(output)!r}: it is a file; give a folder")
    names = [name.strip() for text in targets for name in text.split(",")]
    with running(as_json) as control:
        planned = plan(
            model, to=names, time_limit=60.0 if time_limit is None else time_limit, gap=gap, threads=threads, seed=seed,
            control=control, **options,
        )  # fmt: skip
    if output is not None:
        write_plan(planned, output)
    for message in (*planned.result.messages, *planned.refused.values()):
        click.echo(f"note: {message}", err=True)
    if as_json:
        print_json(report_plan.record(planned))
    else:
        report_plan.print_plan(planned, output)
    return BAD_INPUT if planned.refused else planned.result.exit_code
