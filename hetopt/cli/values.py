"""Values of flags, and the flags that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["FILE", "FORMULATION", "JSON", "LIMITS", "OPTIONS", "OUTPUT", "QUESTION", "Bytes", "Gap", "Pair", "Seconds"]


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """Seconds, also as ``90s``, ``5m`` or ``1h``."""

    name = "SEC"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        unit = {"s": 1.0, "m": 60.0, "h": 3600.0}
        text = str(value).strip()
        scale = unit.get(text[-1:].lower(), 1.0)
        try:
            seconds = float(text[:-1] if text[-1:].lower() in unit else text) * scale
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            self.fail(f"{value!r} is no duration; expected seconds, or a number with s, m or h", param, ctx)
        return seconds


class Gap(click.ParamType):  # type: ignore[type-arg]
    """A relative gap, also in percent."""

    name = "GAP"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        text = str(value).strip()
        try:
            gap = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            gap = -1.0
        if not 0 <= gap < float("inf"):
            self.fail(f"{value!r} is no gap; expected a number such as 0.01, or 1%", param, ctx)
        if gap > 1 and not text.endswith("%"):
            self.fail(f"{value!r} would be {100 * gap:.6g} %; expected {text}%, or a number up to 1", param, ctx)
        return gap


class Bytes(click.ParamType):  # type: ignore[type-arg]
    """Bytes, also in powers of 1024 as ``4G`` or ``4GiB``."""

    name = "BYTES"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
        text = str(value).strip().lower().removesuffix("ib").removesuffix("b")
        try:
            size = float(text[:-1]) * unit[text[-1]] if text[-1:] in unit else float(text)
        except ValueError:
            size = -1.0
        if not 0 < size < 2**63:
            self.fail(f"{value!r} is no size; expected bytes, or a number with K, M or G", param, ctx)
        return int(size)


class Pair(click.ParamType):  # type: ignore[type-arg]
    """A setting ``KEY=VALUE``."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is no setting; expected KEY=VALUE", param, ctx)
        return key.strip(), rest.strip()


def options_of(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several click options as one decorator, shown in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


FILE = click.argument("file", type=click.Path(path_type=Path))
FORMULATION = click.option(
    "--formulation", type=click.Path(path_type=Path), help="Python file with a formulation of your own; it is run."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON object to standard output, nothing else.")
OPTIONS = click.option(
    "--option",
    "-O",
    "options",
    type=Pair(),
    multiple=True,
    help="Option of the question (contiguous=none); may be repeated.",
)
QUESTION = options_of(
    click.option("--objective", metavar="O", help="Objective, instead of the file's own (see `hetopt list`)."),
    OPTIONS,
    FORMULATION,
)
LIMITS = options_of(
    click.option("--time-limit", type=Seconds(), help="Stop after this time (60, 5m, 1h) with what was found."),
    click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads a solver may use."),
    click.option(
        "--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of random numbers."
    ),
)
OUTPUT = click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the result file here.")
