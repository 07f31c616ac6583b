"""Writers of settings for other tools, one file each: ``get("vllm").export(instance, result)`` returns the text.

An exporter never writes what it has not read back: it states the plan in the target's own terms, runs the target's own
mapping (re-implemented in the same file, from its documentation) on that text, and compares device by device. Where the
target would do something else (a rounding, an order, a shape it does not know), it refuses with a sentence.

A file offers ``NAME`` (as in ``--to``), ``TITLE`` (a line), ``export(instance, result)`` and its mapping as pure functions. A
new target is a new file; nothing else is edited. What is not done here: no target is started, and nothing says that its
memory suffices beyond what the instance says (the verifier does).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.io import kinds
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["export", "exporters", "get", "names"]

# Spelled with a dot, which a file's name cannot have.
_SPELLED = {"llama-cpp": "llama.cpp"}


def names() -> list[str]:
    """Names of the targets, sorted; imports none of them."""
    return sorted(_SPELLED.get(name, name) for name in kinds.kinds(sys.modules[__name__]))


def get(name: str) -> ModuleType:
    """The exporter for a target; InputError that names the nearest when there is none."""
    if name not in names():
        raise InputError(f"there is no export target {name!r}; {nearest(name, names(), what='the targets')}")
    return kinds.kind(sys.modules[__name__], name.replace(".", "-"), "export target")


def exporters() -> Iterator[ModuleType]:
    """Every exporter, by name."""
    yield from map(get, names())


def export(instance: Instance, result: Result | Solution, to: str) -> str:
    """A plan as the setting of another tool.

    Parameters
    ----------
    instance
        What was planned.
    result
        A Result, or a bare Solution for the instance's own question; it is verified first.
    to
        Target, one of :func:`names`.

    Returns
    -------
    str
        Text of the setting, in the target's exact format; ends with a line feed.

    Raises
    ------
    InputError
        There is no such target; the result has no plan; a name cannot stand in a line of text; or the target cannot follow
        the plan, with the reason.
    VerificationError
        The plan breaks a constraint of the instance, or the result claims what does not hold.
    """
    from hetopt.verify.result import verify

    target = get(to)
    plan = result if isinstance(result, Solution) else result.solution
    if plan is None:
        raise InputError(f"the result holds no plan, so there is nothing to export to {to}; solve the instance first")
    verify(instance, result)
    for name in (*instance.device_names, *(device.type or "" for device in instance.devices), *instance.labels):
        if not name.isprintable():
            raise InputError(
                f"settings are lines of text, and the name {name!r} does not stay in its line; choose another"
            )
    text = target.export(instance, result)
    assert isinstance(text, str)
    return text
