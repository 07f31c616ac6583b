"""Kinds of importers and generators: a file each in a package, found by name, imported when asked for.

A file offers ``NAME`` (its own name with dashes), ``TITLE`` (a line) and ``OPTIONS``; an importer also ``SOURCE_HELP`` and
``load(source, **options)``, a generator ``make(**options)``, both returning an Instance. The command line makes its commands
from these. A new kind is a new file; nothing else is edited.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any, NamedTuple

from hetopt.errors import InputError, nearest

__all__ = ["Option", "chosen", "kind", "kinds", "whole"]


class Option(NamedTuple):
    """One option: ``--flag`` (keyword ``flag`` in Python, dashes as underscores), type or tuple of words, default, help."""

    flag: str
    kind: type | tuple[str, ...]
    default: Any
    help: str


def kinds(package: ModuleType) -> list[str]:
    """Names of the kinds in a package, sorted; imports none of them."""
    return sorted(
        info.name.replace("_", "-")
        for info in pkgutil.iter_modules(package.__path__)
        if not info.ispkg and not info.name.startswith("_")
    )


def kind(package: ModuleType, name: str, what: str) -> ModuleType:
    """The module of a kind; InputError that names the nearest when there is none."""
    if name not in kinds(package):
        raise InputError(f"there is no {what} {name!r}; {nearest(name, kinds(package), what=f'{what}s')}")
    return importlib.import_module(f"{package.__name__}.{name.replace('-', '_')}")


def whole(flag: str, value: Any, low: int, high: int) -> int:
    """A whole number between two limits (a size is refused before memory is taken); InputError that names the flag."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{flag} is {value!r}, expected a whole number from {low} to {high}")
    return value


def chosen(flag: str, value: Any, words: tuple[str, ...]) -> str:
    """One of several words; InputError that names the flag and the nearest."""
    if value not in words:
        raise InputError(f"{flag} is {value!r}; {nearest(str(value), words, what='the choices')}")
    return str(value)
