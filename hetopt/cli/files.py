"""Commands between formats: import, generate, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from hetopt.cli.group import Group, main
from hetopt.cli.running import read_instance, writable
from hetopt.cli.values import FILE, FORMULATION

__all__ = ["export", "generate", "import_", "kind_options"]


class Kinds(Group):
    """One subcommand for each importer or generator, made from its own description when it is asked for."""

    what = "kind"

    def __init__(self, *args: Any, package: str, **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.package = package

    def _registry(self) -> Any:
        import importlib

        return importlib.import_module(self.package)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._registry().names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        registry = self._registry()
        return _kind_command(registry.get(cmd_name)) if cmd_name in registry.names() else None


def _kind_command(kind: Any) -> click.Command:
    """A click command for an importer (has SOURCE_HELP) or a generator."""
    importing = hasattr(kind, "SOURCE_HELP")

    def run(**given: Any) -> int:
        import hetopt

        output = given.pop("output")
        writable(output)
        instance = kind.load(given.pop("source"), **given) if importing else kind.make(**given)
        if output is None:
            from hetopt.io.instances import encode

            sys.stdout.buffer.write(encode(instance))
            return 0
        hetopt.write(instance, output)
        size = f"{instance.n_tasks} tasks, {instance.n_devices} devices, {len(instance.edges)} edges"
        click.echo(f"{output}: {size}", err=True)
        return 0

    params: list[click.Parameter] = [click.Argument(["source"], type=click.Path(path_type=Path))] if importing else []
    params += kind_options(kind)
    params.append(
        click.Option(
            ["--output", "-o"],
            type=click.Path(path_type=Path),
            help="Instance file to write; else standard output.",
        )
    )
    text = f"{kind.TITLE}\n\nSOURCE: {kind.SOURCE_HELP}" if importing else kind.TITLE
    return click.Command(kind.NAME, params=params, callback=run, help=text)


def kind_options(kind: Any) -> list[click.Parameter]:
    """Options of an importer or a generator."""
    found: list[click.Parameter] = []
    for flag, kind_of, default, text in kind.OPTIONS:
        if isinstance(kind_of, tuple):
            kind_of = click.Choice(list(kind_of))
        shown = default is not None and default is not False
        names = list(dict.fromkeys([flag, flag.replace("isation", "ization")]))  # either spelling
        found.append(
            click.Option(names, is_flag=True, default=False, help=text)
            if kind_of is bool
            else click.Option(names, type=kind_of, default=default, help=text, show_default=shown)
        )
    return found


@main.group("import", cls=Kinds, package="hetopt.io.importers")
def import_() -> None:
    """Read another format and write an instance file."""


@main.group("generate", cls=Kinds, package="hetopt.io.generators")
def generate() -> None:
    """Make an instance from a published distribution or public dimensions."""


@main.command()
@FILE
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--to", "target", metavar="TARGET", required=True, help="Tool (vllm, slurm); a wrong name lists them.")
@FORMULATION
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File to write; else standard output.")
def export(file: Path, result: Path, target: str, formulation: Path | None, output: Path | None) -> int:
    """Write the plan in RESULT as the setting of another tool (vllm, llama.cpp, ...), or say why it cannot follow it.

    The plan is verified first; the text is read back as the tool would read it, and must come back as the plan.
    """
    import hetopt
    from hetopt.io import exporters
    from hetopt.io.atomic import atomic_write

    title = exporters.get(target).TITLE
    instance = read_instance(file, formulation)
    writable(output)
    text = hetopt.export(instance, hetopt.read_result(result, instance), to=target)
    if output is None:
        sys.stdout.buffer.write(text.encode())
        return 0
    atomic_write(output, text)
    click.echo(f"{output}: {title}", err=True)
    return 0
