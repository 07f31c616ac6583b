"""The command that compiles beforehand."""

from __future__ import annotations

import click

from hetopt.cli.group import INTERRUPTED, main
from hetopt.cli.running import running

__all__ = ["warm"]


@main.command()
@click.argument("questions", nargs=-1, metavar="[QUESTION]...")
def warm(questions: tuple[str, ...]) -> int:
    """Compile kernels now, of all questions or of those named, so that first solves do not wait for it.

    Once on a machine; all of them take some minutes.
    """
    from hetopt.warm import warm as compile_kernels

    with running(as_json=True) as control:
        for name, seconds in compile_kernels(questions, cancelled=control.cancelled):
            click.echo(f"{name:<36} {seconds:6.1f} s")
    return INTERRUPTED if control.cancelled.is_set() else 0
