"""Write the pages that are made from the code: one a formulation, the format's types, the command line's help.

A formulation's page is its module's docstring: the mathematics as it runs, in the words of the code.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

__all__ = ["pages"]

PICTURES = (
    ("stages.svg", "split-a-model-over-uneven-gpus.md", "stages.svg"),
    ("segments.svg", "how-many-edge-accelerators.md", "segments.svg"),
    ("phone.svg", "run-models-with-periods.md", "phone.svg"),
)
"""File, the page whose commands make it, and what it is called there."""


def pages(folder: Path) -> None:
    """Write all generated pages into ``folder``."""
    folder.mkdir(exist_ok=True)
    written = {f"{p.name}.md": _problem(p) for p in _problems()}
    written["formulations.md"] = _index()
    written["types.md"] = _types()
    written["commands.md"] = _commands()
    for name, text in written.items():
        place = folder / name
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")
    for name, page, made in PICTURES:
        if not (folder / name).exists():
            _picture(folder / name, page, made)


def _picture(place: Path, page: str, last: str) -> None:
    """Run the commands of a page up to the one that draws its picture, and keep the picture."""
    text = (place.parents[1] / "tasks" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [row[2:] for block in blocks for row in block.replace("\\\n", "").splitlines() if row.startswith("$ ")]
    shown = next(k for k, line in enumerate(lines) if line.startswith("hetopt plot"))
    tool = f'hetopt() {{ "{sys.executable}" -m hetopt "$@"; }}\n'
    with tempfile.TemporaryDirectory() as work:
        for line in (line for line in lines[: shown + 1] if not line.startswith("hetopt explain")):
            subprocess.run(["bash", "-c", tool + line], cwd=work, capture_output=True, check=False, text=True)
        made = Path(work) / last
        place.write_bytes(made.read_bytes())


def _problems():
    from hetopt.registry import problems

    return list(problems())


def _index() -> str:
    known = _problems()
    rows = "\n".join(p.name for p in known)
    table = "\n".join(f"| [`{p.name}`]({p.name}.md) | {_words(p)} | {_cell(p.title)} |" for p in known)
    return (
        "# Formulations\n\n"
        "Each page is the docstring of the file that runs: sets, data, variables, numbered constraints, source.\n\n"
        f"| problem | `--objective` | question |\n|---|---|---|\n{table}\n\n```{{toctree}}\n:hidden:\n\n{rows}\n```\n"
    )


def _words(problem) -> str:
    return " ".join(f"`{word}`" for word in problem.objectives)


def _problem(problem) -> str:
    module = inspect.getmodule(type(problem))
    title, _, mathematics = (inspect.getdoc(module) or "").partition("\n")
    options = "\n".join(f"| `{o.name}` | `{o.default!r}` | {_cell(o.help)} |" for o in problem.options)
    methods = "\n".join(f"| `{m.name}` | {m.kind} | {_cell(m.title)} |" for m in problem.methods)
    better = "smaller" if problem.sense == "min" else "larger"
    unit = f" ({problem.unit})" if problem.unit else ""
    out = [
        f"# {problem.name}\n\n{title}\n",
        f"Ask for it with `--objective {problem.objectives[0]}`; {better} values are better{unit}.\n",
        f"```text\n{mathematics.strip()}\n```\n",
        f"## Methods\n\n| method | kind | what it is |\n|---|---|---|\n{methods}\n",
    ]
    if options:
        out.append(f"## Options of the question\n\n| option | default | meaning |\n|---|---|---|\n{options}\n")
    out.append(f"Source: `{module.__name__.replace('.', '/')}.py`\n")
    return "\n".join(out)


def _types() -> str:
    from hetopt import records

    out = ["# Types of the instance format\n\nMade from the types that read the files.\n"]
    for name in ("InstanceFile", "Device", "Link", "Job", "Task", "Edge", "Mode"):
        kind = getattr(records, name)
        schema = msgspec.json.schema(kind)["$defs"][name]
        out.append(f"## {name}\n\n{inspect.getdoc(kind)}\n\n| key | type | default |\n|---|---|---|")
        for key, entry in schema["properties"].items():
            default = "required" if key in schema.get("required", ()) else f"`{entry.get('default', None)!r}`"
            out.append(f"| `{key}` | {_shape(entry)} | {default} |")
        out.append("")
    return "\n".join(out)


def _shape(entry) -> str:
    if "anyOf" in entry:
        return " or ".join(dict.fromkeys(_shape(part) for part in entry["anyOf"]))
    if "$ref" in entry:
        return entry["$ref"].rpartition("/")[2]
    kind = entry.get("type", "any")
    if kind == "array":
        return f"list of {_shape(entry.get('items', {}))}"
    if kind == "object":
        return (
            f"map to {_shape(entry['additionalProperties'])}"
            if isinstance(entry.get("additionalProperties"), dict)
            else "map"
        )
    limit = next(
        (f" {sign} {entry[word]}" for word, sign in (("minimum", ">="), ("exclusiveMinimum", ">")) if word in entry), ""
    )
    return kind + limit


def _commands() -> str:
    import click

    from hetopt.cli import main

    out = ["# Command line\n\nThe help texts, as the program prints them.\n"]

    def show(command: click.Command, path: str) -> None:
        context = click.Context(command, info_name=path, max_content_width=100)
        out.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                part = command.get_command(context, name)
                if part is not None:
                    show(part, f"{path} {name}")

    show(main, "hetopt")
    return "\n".join(out)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    pages(Path(sys.argv[1]))
