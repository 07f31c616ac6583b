"""Check degrees of parallelism on equal nodes and the binding of processes to NUMA domains; find the best row again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hetopt.instance import Instance

__all__ = ["check_parallelism", "layout", "least_row", "row_complaints"]

DEGREES = ("data", "tensor", "pipeline")


def layout(instance: Instance, row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Nodes and processes a node of a row's degrees; None when they do not fill whole nodes."""
    product, slots = math.prod(int(row[name]) for name in DEGREES), instance.devices[0].slots
    if product <= slots:
        return 1, product
    return None if product % slots else (product // slots, slots)


def row_complaints(instance: Instance, row: Mapping[str, Any], cpus: int) -> list[str]:
    """Why the degrees of a row of ``tables.degrees`` cannot be run."""
    model, node, found = instance.tables.get("model", {}), instance.devices[0], []
    name = "x".join(str(row[key]) for key in DEGREES)
    placed = layout(instance, row)
    if placed is None:
        return [f"{name} processes do not fill nodes of {node.slots}"]
    nodes, each = placed
    if nodes > instance.n_devices:
        found.append(
            f"{name} needs {nodes} nodes, there are {instance.n_devices}: {nodes - instance.n_devices} too many"
        )
    if row["tensor"] > each:
        found.append(f"{name} splits tensors over {row['tensor']} processes, a node has {each}")
    for fact, parts in (("layers", "pipeline"), ("heads", "tensor")):
        if fact in model and model[fact] % row[parts]:
            found.append(f"{name} does not divide the model's {model[fact]} {fact} by {row[parts]}")
    share = row["data"] * model.get("micro", 1)
    if "batch" in model and model["batch"] % share:
        found.append(f"{name} does not divide the batch of {model['batch']} by {share}")
    most = float(instance.capacity[0])
    if row.get("memory", 0) > most:
        found.append(
            f"{name} needs {row['memory']:.9g} bytes a process, there are {most:.9g}: {row['memory'] - most:.9g} short"
        )
    cores = instance.tables.get("numa", {}).get("cores")
    if cores is not None and sum(c // cpus for c in cores) < each:
        found.append(
            f"{name} puts {each} processes of {cpus} cores on nodes with room for {sum(c // cpus for c in cores)}"
        )
    return found


def value_of(instance: Instance, row: Mapping[str, Any], cost: bool) -> float:
    """Seconds of a step, or what its nodes cost meanwhile."""
    placed = layout(instance, row)
    if not cost or placed is None:
        return float(row["seconds"])
    return float(row["seconds"]) / 3600 * placed[0] * float(instance.devices[0].price or 0)


def least_row(instance: Instance, cpus: int, cost: bool) -> float:
    """Least value of a row that can be run; ``inf`` when none can."""
    rows = instance.tables["degrees"]
    return min(
        (value_of(instance, row, cost) for row in rows if not row_complaints(instance, row, cpus)), default=math.inf
    )


def check_parallelism(
    instance: Instance, details: Mapping[str, Any], cpus: int, cost: bool
) -> tuple[float, tuple[str, ...]]:
    """Value and complaints of ``{"data", "tensor", "pipeline", "nodes", "processes", "cpus", "binding": [domain, ...]}``."""
    asked = tuple(details.get(name) for name in DEGREES)
    row = next((row for row in instance.tables["degrees"] if tuple(row[name] for name in DEGREES) == asked), None)
    if row is None:
        return math.inf, (f"tables.degrees has no row of data, tensor, pipeline {asked}",)
    wrong = row_complaints(instance, row, cpus)
    placed = layout(instance, row)
    if placed is not None and (details.get("nodes"), details.get("processes")) != placed:
        given = (details.get("nodes"), details.get("processes"))
        wrong.append(f"nodes and processes a node are {given}, the degrees need {placed}")
    if details.get("cpus") != cpus:
        wrong.append(f"the plan has {details.get('cpus')!r} cores a process, {cpus} are asked for")
    numa, binding = instance.tables.get("numa"), details.get("binding")
    if numa is not None and placed is not None and not wrong:
        wrong += _binding_complaints(numa["distance"][: placed[1]], [c // cpus for c in numa["cores"]], binding)
    return value_of(instance, row, cost), tuple(wrong)


def _binding_complaints(distance: Sequence[Sequence[float]], room: Sequence[int], binding: Any) -> list[str]:
    """A binding is of least total distance when no circle of moves between domains shortens it."""
    d = len(room)
    if not isinstance(binding, list) or len(binding) != len(distance) or not all(b in range(d) for b in binding):
        return [
            f"the binding is {binding!r}, expected a domain from 0 to {d - 1} for each of {len(distance)} processes"
        ]
    held = [binding.count(b) for b in range(d)]
    over = [f"domain {b} holds {held[b]} processes and has room for {room[b]}" for b in range(d) if held[b] > room[b]]
    if over:
        return over
    best = [[math.inf] * (d + 1) for _ in range(d + 1)]  # the last is free room
    for b in range(d):
        best[d][b] = 0.0 if held[b] else math.inf
        best[b][d] = 0.0 if held[b] < room[b] else math.inf
    for g, a in enumerate(binding):
        for b in range(d):
            best[a][b] = min(best[a][b], distance[g][b] - distance[g][a])
    for k in range(d + 1):
        for a in range(d + 1):
            for b in range(d + 1):
                best[a][b] = min(best[a][b], best[a][k] + best[k][b])
    shorter = any(best[b][b] < -1e-9 for b in range(d + 1))
    return ["the binding is not the nearest: exchanging processes between domains shortens it"] if shorter else []
