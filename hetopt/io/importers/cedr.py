"""Import an application of CEDR: a graph of nodes with a cost on each platform, to run on a chip's processing elements.

Read: ``AppName`` and ``DAG``; each node's ``platforms`` (``name``, ``nodecost``; of a platform named twice the least cost),
``predecessors`` and ``successors`` (``name``, ``edgecost``). An edge is there when either end names it, and costs the larger of
what the two say. Arguments, variables and functions are not kept. Costs have no unit in these files and become seconds; an edge's
cost is paid between different elements. With several copies of the application the question is their mean latency.
Source of the format: J. Mack et al., ACM Transactions on Embedded Computing Systems 22 (2023), and its public repository.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.io.importers._text import MAX_CELLS, load_text
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Link, Task

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "cedr"
TITLE = "An application graph of CEDR with costs on platforms (cpu, fft, mmult, gpu)."
SOURCE_HELP = "JSON file of the application (AppName, DAG)."
OPTIONS: tuple[Option, ...] = (
    Option("--workers", str, "", "Elements of each platform, such as cpu=3,fft=1; one of each platform without it."),
    Option("--jobs", int, 1, "Copies of the application."),
    Option("--every", float, 0.0, "Seconds between the releases of two copies."),
)


def load(source: str | Path, *, workers: str = "", jobs: int = 1, every: float = 0.0) -> Instance:
    """Instance of an application; nodes keep their names, elements are ``cpu0, cpu1, ..., fft0, ...``.

    Raises
    ------
    InputError
        The file cannot be read, a node or an edge is not as expected, or no element is left for a node.
    """
    count = whole("--jobs", jobs, 1, 100_000)
    if isinstance(every, bool) or not 0 <= every <= 1e9:
        raise InputError(f"--every is {every}, expected seconds from 0 to 1e9")
    try:
        data = json.loads(load_text(source))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not a JSON text: {str(error)[:200]}") from error
    try:
        costs, edges = _application(data)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    platforms = sorted({platform for row in costs.values() for platform in row})
    elements = _elements(workers, platforms)
    if count * len(costs) * sum(elements.values()) > MAX_CELLS:
        raise InputError(
            f"{count} jobs of {len(costs)} nodes on {sum(elements.values())} elements are more than {MAX_CELLS} times"
        )
    there = [platform for platform in platforms if elements[platform]]
    for node, row in costs.items():
        if not any(platform in there for platform in row):
            raise InputError(
                f"node {node[:80]!r} runs on {', '.join(sorted(row))[:200]} only, and --workers leaves none of these"
            )
    tasks = [Task(name=node, time={p: row[p] for p in there if p in row}) for node, row in costs.items()]
    arcs = [Edge(source=u, target=v, data=cost) for (u, v), cost in edges.items()]
    name = data["AppName"] if isinstance(data.get("AppName"), str) and data["AppName"] else Path(source).name
    return Instance.build(
        [Device(name=f"{platform}{k}", type=platform) for platform in there for k in range(elements[platform])],
        [Job(name=f"{name[:80]}-{k}", tasks=tasks, edges=arcs, release=k * every) for k in range(count)],
        [Link(source="*", target="*", bandwidth=1)],
        question={"objective": "schedule-latency" if count == 1 else "online-latency"},
        name=name[:200],
        source=f"imported from the CEDR application {Path(source).name}",
    )


def _application(data: Any) -> tuple[dict[str, dict[str, float]], dict[tuple[str, str], float]]:
    """Cost of each node on its platforms, cost of each edge; both sorted as in the file."""
    if not isinstance(data, dict) or not isinstance(data.get("DAG"), dict) or not data["DAG"]:
        raise InputError("$.DAG is missing or no object with nodes; is this an application of CEDR?")
    costs: dict[str, dict[str, float]] = {}
    edges: dict[tuple[str, str], float] = {}
    for node, record in data["DAG"].items():
        path = f"$.DAG.{node[:80]}"
        if not isinstance(record, dict):
            raise InputError(f"{path} is {type(record).__name__}, expected an object")
        row: dict[str, float] = {}
        for at, entry in _entries(record, "platforms", path):
            platform, cost = _name(entry, at), _cost(entry, "nodecost", at)
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,60}", platform, re.ASCII):
                raise InputError(f"{at}.name is {platform[:40]!r}, expected the name of a platform such as 'cpu'")
            row[platform] = min(cost, row.get(platform, cost))
        if not row:
            raise InputError(f"{path}.platforms is empty, expected at least one platform that runs the node")
        costs[node] = row
        for key in ("predecessors", "successors"):
            for at, entry in _entries(record, key, path):
                other, cost = _name(entry, at), _cost(entry, "edgecost", at)
                if other not in data["DAG"]:
                    raise InputError(
                        f"{at}.name is {other[:80]!r}; {nearest(other[:80], list(data['DAG'])[:1000], what='the nodes')}"
                    )
                pair = (node, other) if key == "successors" else (other, node)
                edges[pair] = max(cost, edges.get(pair, cost))
    return costs, edges


def _elements(text: str, platforms: list[str]) -> dict[str, int]:
    """Number of elements of each platform; one of each when the option is silent."""
    if not text:
        return dict.fromkeys(platforms, 1)
    found = dict.fromkeys(platforms, 0)
    for part in text.split(","):
        name, _, number = part.partition("=")
        if name not in found:
            raise InputError(
                f"--workers names {name[:40]!r}; {nearest(name[:40], platforms, what='the platforms of the file')}"
            )
        if not (number.isascii() and number.isdigit() and len(number) < 5):
            raise InputError(f"--workers is {text[:60]!r}, expected numbers of elements such as cpu=3,fft=1")
        found[name] = int(number)
    return found


def _entries(record: dict[str, Any], key: str, path: str) -> list[tuple[str, dict[str, Any]]]:
    """Path and record of each entry of a list."""
    rows = record.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(
            f"{path}.{key} is {'missing' if key not in record else repr(rows)[:60]}, expected a list of objects"
        )
    return [(f"{path}.{key}[{k}]", row) for k, row in enumerate(rows)]


def _name(entry: dict[str, Any], path: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"{path}.name is {repr(name)[:60]}, expected a name")
    return name


def _cost(entry: dict[str, Any], key: str, path: str) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2**53:
        raise InputError(f"{path}.{key} is {repr(value)[:60]}, expected a number from 0 to 2^53")
    return float(value)
