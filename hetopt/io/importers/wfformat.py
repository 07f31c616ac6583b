"""Import a workflow trace in WfFormat 1.4 or 1.5 (WfCommons), and give it devices to run on.

Read: ``workflow.specification`` (tasks with ``id``, ``parents``, ``children``, ``inputFiles``, ``outputFiles``; files with
``sizeInBytes``) and ``workflow.execution.tasks`` (``runtimeInSeconds``). An edge carries the files that its source writes and
its target reads. The trace's machines are not used: a trace has one time a task, and the question needs one a device.
Source of the format: T. Coleman et al., Future Generation Computer Systems 128 (2022), and its public schema.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._related import OPTIONS as DEVICES
from hetopt.io.importers._related import on_related_devices
from hetopt.io.importers._text import load_text
from hetopt.io.kinds import Option

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "wfformat"
TITLE = "A workflow trace in WfFormat (WfCommons), on devices with drawn speeds and links."
SOURCE_HELP = "JSON file (.json or .json.gz) in WfFormat 1.4 or 1.5."
OPTIONS: tuple[Option, ...] = DEVICES


def load(source: str | Path, *, devices: int = 4, ccr: float = 1.0, seed: int = 0) -> Instance:
    """Instance of a trace; tasks keep their ids, devices are ``d0, d1, ...``; the question is when the last task is done.

    Raises
    ------
    InputError
        The file cannot be read or is no trace; a task, file or number is not as expected (the message has its path).
    """
    try:
        data = json.loads(load_text(source))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not a JSON text: {str(error)[:200]}") from error
    try:
        names, seconds, edges = _graph(data)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    title = data.get("name")
    return on_related_devices(
        names,
        seconds,
        edges,
        devices=devices,
        ccr=ccr,
        seed=seed,
        name=title[:200] if isinstance(title, str) else Path(source).name,
        source=f"imported from the WfFormat trace {Path(source).name}",
    )


def _graph(data: Any) -> tuple[list[str], list[float], list[tuple[str, str, float]]]:
    workflow = _get(data, "workflow", dict, "$")
    at = "$.workflow.specification"
    plan = _get(workflow, "specification", dict, "$.workflow")
    tasks = _get(plan, "tasks", list, at)
    run = _get(_get(workflow, "execution", dict, "$.workflow"), "tasks", list, "$.workflow.execution")
    size = {}
    for k, file in enumerate(_get(plan, "files", list, at) if "files" in plan else []):
        path = f"{at}.files[{k}]"
        size[_get(file, "id", str, path)] = _number(
            _get(file, "sizeInBytes", (int, float), path), f"{path}.sizeInBytes"
        )
    took = {}
    for k, record in enumerate(run):
        path = f"$.workflow.execution.tasks[{k}]"
        value = _get(record, "runtimeInSeconds", (int, float), path)
        took[_get(record, "id", str, path)] = _number(value, f"{path}.runtimeInSeconds")
    names = [_get(task, "id", str, f"{at}.tasks[{k}]") for k, task in enumerate(tasks)]
    if not names:
        raise InputError(f"{at}.tasks is empty, expected at least one task")
    number = {name: k for k, name in enumerate(names)}
    for k, name in enumerate(names):
        if name not in took:
            raise InputError(f"{at}.tasks[{k}]: $.workflow.execution.tasks has no runtimeInSeconds of {name[:80]!r}")
    pairs: set[tuple[int, int]] = set()
    for k, task in enumerate(tasks):
        for key in ("parents", "children"):
            for other in _words(task, key, f"{at}.tasks[{k}]"):
                if other not in number:
                    raise InputError(f"{at}.tasks[{k}].{key} names {other[:80]!r}, which is no task's id")
                pairs.add((number[other], k) if key == "parents" else (k, number[other]))
    written = [set(_words(task, "outputFiles", f"{at}.tasks[{k}]")) for k, task in enumerate(tasks)]
    read = [_words(task, "inputFiles", f"{at}.tasks[{k}]") for k, task in enumerate(tasks)]
    edges = []
    for u, v in sorted(pairs):
        shared = [file for file in dict.fromkeys(read[v]) if file in written[u]]
        missing = next((file for file in shared if file not in size), None)
        if missing is not None:
            raise InputError(f"{at}.files has no sizeInBytes of {missing[:80]!r}")
        edges.append((names[u], names[v], math.fsum(size[file] for file in shared)))
    return names, [took[name] for name in names], edges


def _get(record: Any, key: str, kind: Any, path: str) -> Any:
    """Value of a key, of one kind."""
    if not isinstance(record, dict):
        raise InputError(f"{path} is {type(record).__name__}, expected an object with {key!r}")
    value = record.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        named = "a number" if kind == (int, float) else {dict: "an object", list: "a list", str: "a text"}[kind]
        raise InputError(f"{path}.{key} is {'missing' if key not in record else repr(value)[:60]}, expected {named}")
    return value


def _number(value: int | float, path: str) -> float:
    if not 0 <= value <= 2**53:
        raise InputError(f"{path} is {str(value)[:40]}, expected a number from 0 to 2^53")
    return float(value)


def _words(task: Any, key: str, path: str) -> list[str]:
    """List of texts at a key that may be missing."""
    words = task.get(key, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f"{path}.{key} is {repr(words)[:60]}, expected a list of ids")
    return words
