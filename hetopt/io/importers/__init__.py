"""Readers of other formats, one file each: ``get("hcsp").load(path)`` returns an Instance.

All are strict: what cannot be right is an :class:`~hetopt.errors.InputError` with place, value and expectation. A source is
data: nothing in it is executed, and its size is refused before memory is taken.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from hetopt.io import kinds

__all__ = ["get", "importers", "names"]


def names() -> list[str]:
    """Names of the importers; imports none of them."""
    return kinds.kinds(sys.modules[__name__])


def get(name: str) -> ModuleType:
    """The importer called ``name``; InputError that names the nearest when there is none."""
    return kinds.kind(sys.modules[__name__], name, "importer")


def importers() -> Iterator[ModuleType]:
    """Every importer, by name."""
    yield from map(get, names())
