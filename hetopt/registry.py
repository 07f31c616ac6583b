"""Find problems by name, lazily: the modules under ``formulations``, entry points, and files named by the user.

A module offers a problem by a module-level ``PROBLEM`` (or a tuple ``PROBLEMS``). Nothing is imported before the first
question; then every formulation module is, which costs milliseconds because they import solvers only inside functions.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import zlib
from collections.abc import Container, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from hetopt.errors import InputError, nearest
from hetopt.formulation import Problem
from hetopt.instance import Instance

__all__ = ["add_file", "problem", "problem_for", "problems"]

_extra: dict[str, Problem] = {}


@cache
def _shipped() -> dict[str, Problem]:
    found: dict[str, Problem] = {}
    package = importlib.import_module("formulations")
    for info in sorted(pkgutil.walk_packages(package.__path__, "formulations."), key=lambda info: info.name):
        if not info.ispkg and not info.name.rpartition(".")[2].startswith("_"):
            _collect(importlib.import_module(info.name), found)
    for entry in sorted(entry_points(group="hetopt.formulations"), key=lambda entry: entry.name):
        _collect(entry.load(), found)
    return found


def _collect(source: object, found: dict[str, Problem], taken: Container[str] = ()) -> int:
    """Add the problems of a module (or a problem itself) to ``found``; returns how many there were."""
    offered = [source] if isinstance(source, Problem) else [*getattr(source, "PROBLEMS", ())]
    if isinstance(getattr(source, "PROBLEM", None), Problem):
        offered.append(source.PROBLEM)  # type: ignore[attr-defined]
    for problem in offered:
        if problem.name in found or problem.name in taken:
            raise InputError(f"two formulations offer the problem {problem.name!r}; names are unique")
        found[problem.name] = problem
    return len(offered)


def add_file(path: str | Path) -> None:
    """Load the problems of a user's own formulation file (``--formulation ./mine.py``); this runs the file.

    Loaded again, a file replaces what it offered before.

    Raises
    ------
    InputError
        The file cannot be read or run, offers no ``PROBLEM``, or one whose name is taken.
    """
    place = Path(path)
    name = _module_name(place)
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None or not place.is_file():
        raise InputError(f"--formulation {str(path)!r} is no Python file; expected a file that sets PROBLEM")
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"--formulation {str(path)!r} does not run: {type(error).__name__}: {error}") from error
    others = {key: problem for key, problem in _extra.items() if type(problem).__module__ != name}
    if not _collect(module, others, _shipped()):
        raise InputError(f"--formulation {str(path)!r} sets no PROBLEM; expected a module-level PROBLEM = MyProblem()")
    _extra.clear()
    _extra.update(others)


def from_file(path: str | Path) -> list[Problem]:
    """The problems that a user's own formulation file offers, once it is loaded."""
    return [one for one in _extra.values() if type(one).__module__ == _module_name(Path(path))]


def _module_name(place: Path) -> str:
    return f"hetopt_user_{place.stem}_{zlib.crc32(str(place.resolve()).encode()):08x}"


def problems() -> Iterator[Problem]:
    """Every problem there is, by name."""
    known = {**_shipped(), **_extra}
    yield from (known[name] for name in sorted(known))


def problem(name: str) -> Problem:
    """The problem called ``name`` (``family.problem``); InputError that names the nearest when there is none."""
    known = {**_shipped(), **_extra}
    if name not in known:
        raise InputError(f"there is no problem {name!r}; {nearest(name, known, what='problems')}")
    return known[name]


def problem_for(instance: Instance, objective: str | None = None) -> Problem:
    """The problem that an objective (or the instance's own question) asks for.

    An objective is a problem's full name or one of its words; where several problems share the word, the one that fits the
    instance is meant.

    Raises
    ------
    InputError
        No objective is given or known, none of its problems fits, or more than one does.
    """
    if not isinstance(instance, Instance):
        kind = type(instance).__name__
        raise InputError(
            f"the instance is a {kind}; hetopt.read(path) makes an Instance of a file, Instance.build of records"
        )
    known = list(problems())
    asked = objective or instance.question.get("objective")
    if asked is None:
        fitting = [p.objectives[0] for p in known if p.fits(instance) is None]
        raise InputError(
            f"the instance asks no question; choose one with --objective: {', '.join(sorted(set(fitting)))}"
        )
    if not isinstance(asked, str):
        raise InputError(f"$.question.objective is {asked!r}, expected a word")
    named = [p for p in known if p.name == asked]
    if named:
        why = named[0].fits(instance)
        if why:
            raise InputError(f"{asked} does not fit this instance: {why}")
        return named[0]
    meant = [p for p in known if asked in p.objectives]
    if not meant:
        words = {word for p in known for word in p.objectives} | {p.name for p in known}
        raise InputError(f"there is no objective {asked!r}; {nearest(asked, words, what='objectives')}")
    reasons = {p.name: p.fits(instance) for p in meant}
    fitting_problems = [p for p in meant if reasons[p.name] is None]
    if len(fitting_problems) == 1:
        return fitting_problems[0]
    if not fitting_problems:
        name, why = next(iter(reasons.items()))
        raise InputError(f"objective {asked!r} ({name}) does not fit this instance: {why}")
    names = ", ".join(p.name for p in fitting_problems)
    raise InputError(f"objective {asked!r} is asked by several problems that fit ({names}); give the full name")
