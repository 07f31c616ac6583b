"""Solvers, one adapter each, found by name or by what they can do.

    from hetopt import solvers
    answer = solvers.highs.solve(model.relax())
    for name in solvers.with_capability("mip"):
        answer = solvers.get(name).solve(model, solvers.Options(time_limit=10))

Importing this package imports no solver; an adapter's module is imported when it is first asked for, and a solver's own
package when it first solves. Third parties add adapters through the entry-point group ``hetopt.solvers``: each entry names
a class derived from :class:`~hetopt.solvers.adapter.Adapter`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from hetopt.errors import InputError
from hetopt.solvers.base import Answer, Capability, Options, SolverError, SolverMissing

if TYPE_CHECKING:
    from hetopt.solvers.adapter import Adapter

__all__ = [
    "Answer",
    "Options",
    "SolverError",
    "SolverMissing",
    "available",
    "get",
    "names",
    "overview",
    "with_capability",
]

# Order of preference: the first that can do what is asked is the default.
BUILT_IN = {
    "highs": "hetopt.solvers.highs:Highs",
    "cpsat": "hetopt.solvers.cpsat:CpSat",
    "glop": "hetopt.solvers.ortools_lp:Glop",
    "pdlp": "hetopt.solvers.ortools_lp:Pdlp",
    "cvxpy": "hetopt.solvers.cvxpy:Cvxpy",
    "pulp": "hetopt.solvers.pulp:Pulp",
    "scipy": "hetopt.solvers.scipy:Scipy",
}
MODULES = ("highs", "cpsat", "ortools_lp", "cvxpy", "pulp", "scipy")


@cache
def _entries() -> dict[str, str]:
    """Name -> ``module:class`` of every adapter; a third party cannot take the name of a built-in one."""
    found = {entry.name: entry.value for entry in importlib.metadata.entry_points(group="hetopt.solvers")}
    return {**BUILT_IN, **{name: found[name] for name in sorted(found) if name not in BUILT_IN}}


def names() -> list[str]:
    """Names of all adapters, installed solver or not, in order of preference."""
    return list(_entries())


@cache
def get(name: str) -> Adapter:
    """The adapter called ``name``.

    Raises
    ------
    InputError
        There is no such adapter; the message lists those there are.
    SolverError
        A third party's adapter cannot be imported.
    """
    if name not in _entries():
        raise InputError(f"there is no solver {name!r}; there are {', '.join(names())}")
    module, _, attribute = _entries()[name].partition(":")
    try:
        adapter: Adapter = getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise SolverError(f"the adapter of solver {name!r} cannot be loaded from {module}: {error}") from error
    return adapter


def available() -> dict[str, str | None]:
    """Name -> None when the solver can be used, else how to install it or why its adapter cannot be loaded."""
    found: dict[str, str | None] = {}
    for name in names():
        try:
            found[name] = get(name).available()
        except SolverError as error:
            found[name] = str(error)
    return found


def with_capability(*capabilities: Capability) -> list[str]:
    """Names of the usable solvers that have all the capabilities, in order of preference."""
    usable = [name for name, missing in available().items() if missing is None]
    return [name for name in usable if get(name).capabilities.issuperset(capabilities)]


def overview() -> list[dict[str, Any]]:
    """What ``hetopt versions`` shows of each adapter: name, version, capabilities, and what is missing (None if nothing)."""
    rows: list[dict[str, Any]] = []
    for name, missing in available().items():
        row: dict[str, Any] = {"name": name, "version": None, "capabilities": [], "missing": missing}
        with suppress(SolverError):
            row |= {"version": get(name).version(), "capabilities": sorted(get(name).capabilities)}
        rows.append(row)
    return rows


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return importlib.import_module(f"hetopt.solvers.{name}")
    raise AttributeError(f"module 'hetopt.solvers' has no attribute {name!r}")
