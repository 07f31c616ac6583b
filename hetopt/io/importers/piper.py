"""Import the workloads of Piper (Tarnawski, Narayanan and Phanishayee, NeurIPS 2021): stages with tensor and data parallelism.

A file has ``maxDevices`` equal devices of ``maxMemoryPerDevice`` bytes, ``bandwidth`` bytes a second from each of them,
``mbsInBatch`` micro-batches in a batch, nodes and edges. A node lists, for each tensor degree, configurations (``TMPCs``), such
as with and without recomputation of activations. Each becomes a mode of the task, called ``degree id``; what a mode has no field
for stands in ``tables.hybrid``. Numbers are kept as they are.

Quirks of the public files: they say ``mbsInBatch`` where their description says ``maxBatchSize`` (both are understood);
``syncTimeFw`` is keyed by the tails of incoming edges and ``syncTimeBw`` by the heads of outgoing ones. ``--devices``,
``--memory`` and ``--batch`` replace the file's own, as the published experiments do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import strict
from hetopt.io.instances import load_bytes
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Edge, Job, Link, Mode, NonNegative, Positive, Task

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "piper"
TITLE = "A model's graph with tensor degrees and recomputation (Piper, NeurIPS 2021)."
SOURCE_HELP = "JSON file with maxDevices, maxMemoryPerDevice, bandwidth, mbsInBatch, nodes and edges."
OPTIONS: tuple[Option, ...] = (
    Option("--devices", int, None, "Number of devices; by default the file's maxDevices."),
    Option("--memory", float, None, "Bytes of memory of a device; by default the file's maxMemoryPerDevice."),
    Option("--batch", int, None, "Micro-batches in a batch; by default the file's mbsInBatch."),
)

MAX_BYTES = 256 << 20
MAX_DEVICES = 10_000
GPU = "gpu"


class Way(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    timePerSample: NonNegative
    parameterSize: NonNegative
    memoryUsageA: NonNegative
    memoryUsageB: NonNegative
    syncTimeFw: dict[str, NonNegative]
    syncTimeBw: dict[str, NonNegative]


class Node(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    TMPCs: dict[str, list[Way]]
    name: str = ""


class Connection(msgspec.Struct, forbid_unknown_fields=True):
    sourceId: int
    destId: int
    communicationCost: NonNegative


class Workload(msgspec.Struct, forbid_unknown_fields=True):
    maxMemoryPerDevice: NonNegative
    maxDevices: int
    bandwidth: Positive
    nodes: list[Node]
    edges: list[Connection]
    mbsInBatch: int | None = None
    maxBatchSize: int | None = None


_workload = msgspec.json.Decoder(Workload)
_NESTED = {"nodes": Node, "edges": Connection}


def load(
    source: str | Path, *, devices: int | None = None, memory: float | None = None, batch: int | None = None
) -> Instance:
    """Instance of a workload, with other numbers of devices, bytes or micro-batches where they are given.

    Raises
    ------
    InputError
        The file cannot be read, is not JSON or lacks a key; a number is negative; an id stands twice; a tensor degree is no
        number; an edge leads nowhere, stands twice, or is left out of a configuration's syncTimeFw or syncTimeBw; the edges
        form a cycle; a number given instead of the file's is out of range.
    """
    try:
        return _instance(load_bytes(source, limit=MAX_BYTES), Path(source).stem, devices, memory, batch)
    except InputError as error:
        if str(error).startswith(("cannot read", "--")):
            raise
        raise InputError(f"{source}: {error}") from error


def _instance(raw: bytes, name: str, devices: int | None, memory: float | None, batch: int | None) -> Instance:
    workload = strict.decode(_workload, raw, nested=_NESTED)
    strict.refuse_repeated_keys(raw)
    count = _count(workload.maxDevices, "$.maxDevices", devices, "--devices", MAX_DEVICES)
    own = workload.mbsInBatch if workload.mbsInBatch is not None else workload.maxBatchSize
    if own is None and batch is None:
        raise InputError("$.mbsInBatch is missing, expected the number of micro-batches in a batch")
    batch = _count(own or 0, "$.mbsInBatch", batch, "--batch", 2**31)
    if memory is not None and not 0 <= memory < 2.0**1000:
        raise InputError(f"--memory is {memory!r}, expected bytes, a number >= 0")
    if not workload.nodes:
        raise InputError("$.nodes is empty; expected at least one node")
    index: dict[int, int] = {}
    for k, node in enumerate(workload.nodes):
        if index.setdefault(node.id, k) != k:
            raise InputError(f"$.nodes[{k}].id repeats {node.id} of $.nodes[{index[node.id]}]; ids are unique")
    names = _names(workload.nodes)
    sources: list[dict[str, str]] = [{} for _ in names]
    targets: list[dict[str, str]] = [{} for _ in names]
    for k, edge in enumerate(workload.edges):
        for key, end in (("sourceId", edge.sourceId), ("destId", edge.destId)):
            if end not in index:
                raise InputError(f"$.edges[{k}].{key} is {end}, which is no node's id; expected an id of $.nodes")
        u, v = index[edge.sourceId], index[edge.destId]
        if str(edge.destId) in targets[u]:
            raise InputError(f"$.edges[{k}] repeats the edge {edge.sourceId} -> {edge.destId}; write it once")
        targets[u][str(edge.destId)], sources[v][str(edge.sourceId)] = names[v], names[u]
    tasks: list[Task] = []
    table: dict[str, Any] = {}
    for k, node in enumerate(workload.nodes):
        modes, table[names[k]] = _modes(node, f"$.nodes[{k}].TMPCs", sources[k], targets[k])
        tasks.append(Task(name=names[k], modes=modes))
    edges = [
        Edge(source=names[index[e.sourceId]], target=names[index[e.destId]], data=e.communicationCost)
        for e in workload.edges
    ]
    room = workload.maxMemoryPerDevice if memory is None else memory
    return Instance.build(
        [Device(name=f"{GPU}{k}", type=GPU, memory=room) for k in range(count)],
        [Job(name=name, tasks=tasks, edges=edges)],
        [Link(source="*", target="*", bandwidth=workload.bandwidth)],
        tables={"hybrid": {"batch": batch, "modes": table}},
        question={"objective": "hybrid"},
        name=name,
        source="imported from a Piper workload (Tarnawski et al., NeurIPS 2021); times of one micro-batch as in the file",
    )


def _count(own: int, path: str, given: int | None, flag: str, most: int) -> int:
    if given is not None:
        return whole(flag, given, 1, most)
    if not 1 <= own <= most:
        raise InputError(f"{path} is {own}, expected a whole number from 1 to {most}")
    return own


def _names(nodes: list[Node]) -> list[str]:
    """Unique task names: a node's own where no other has it, else ``name#id``."""
    count: dict[str, int] = {}
    for node in nodes:
        count[node.name] = count.get(node.name, 0) + 1
    return [node.name if node.name and count[node.name] == 1 else f"{node.name or 'node'}#{node.id}" for node in nodes]


def _modes(
    node: Node, path: str, sources: dict[str, str], targets: dict[str, str]
) -> tuple[list[Mode], dict[str, Any]]:
    """Modes of a node, and what the table says of each."""
    modes: list[Mode] = []
    rows: dict[str, Any] = {}
    for degree, ways in node.TMPCs.items():
        if not degree.isascii() or not degree.isdecimal() or not 1 <= int(degree) <= MAX_DEVICES:
            raise InputError(f"{path} has the key {degree!r}, expected a tensor degree, a whole number from 1 on")
        for m, way in enumerate(ways):
            name = f"{int(degree)} {way.id}"
            if name in rows:
                raise InputError(f"{path}.{degree}[{m}].id repeats {way.id!r}; ids are unique for a tensor degree")
            for key, given, known in (("syncTimeFw", way.syncTimeFw, sources), ("syncTimeBw", way.syncTimeBw, targets)):
                if set(given) != set(known):
                    raise InputError(
                        f"{path}.{degree}[{m}].{key} names {sorted(given)}, expected {sorted(known)}, one an edge"
                    )
            modes.append(Mode(name=name, devices=int(degree), time={GPU: way.timePerSample}, memory=way.memoryUsageB))
            rows[name] = {
                "activation": way.memoryUsageA,
                "parameters": way.parameterSize,
                "receive": {sources[end]: size for end, size in way.syncTimeFw.items()},
                "send": {targets[end]: size for end, size in way.syncTimeBw.items()},
            }
    if not modes:
        raise InputError(f"{path} is empty; expected at least one configuration")
    return modes, rows
