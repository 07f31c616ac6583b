"""Makers of instances, one file each: ``get("unrelated").make(jobs=20, seed=1)`` returns an Instance.

The same options and seed give the same instance on every platform: numbers are drawn by PCG64 and only added, multiplied,
divided and compared. Each instance says in ``source`` where its numbers come from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from hetopt.io import kinds

__all__ = ["generators", "get", "names"]


def names() -> list[str]:
    """Names of the generators; imports none of them."""
    return kinds.kinds(sys.modules[__name__])


def get(name: str) -> ModuleType:
    """The generator called ``name``; InputError that names the nearest when there is none."""
    return kinds.kind(sys.modules[__name__], name, "generator")


def generators() -> Iterator[ModuleType]:
    """Every generator, by name."""
    yield from map(get, names())
