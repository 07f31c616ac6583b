"""Import the workloads of Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators" (NeurIPS 2020).

A file has ``maxFPGAs`` accelerators of ``maxSizePerFPGA`` bytes, ``maxCPUs`` CPUs, nodes and edges. An edge's ``cost`` is
the time to move the output of its source between an accelerator and the CPUs' memory; it is the same on all edges that leave
a node. Numbers are kept exactly as they stand: a node's cost becomes its ``output``, and a link of bandwidth 1 from each
accelerator to host memory and back makes one unit of output take one unit of time (milliseconds, in the public files).

The files for throughput and for latency have the same keys. Which question is meant is said by ``--question``; by default a
file in a folder ``latency-inputs``, or with ``latency`` in its own name, asks for latency, any other for throughput.

Quirks of the public files that are understood: flags as 0/1 or true/false; no ``colorClass`` (a colour of its own); no
``size`` (0); an accelerator time of null where ``supportedOnFpga`` is false; ``layerId`` and an edge's ``size`` say nothing
to the question and are dropped. In the throughput files of layer graphs the costs are a thousandth of those in the latency
files, as published.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io import strict
from hetopt.io.instances import load_bytes
from hetopt.io.kinds import Option, chosen
from hetopt.records import Device, Edge, Job, Link, NonNegative, Task

__all__ = ["NAME", "OPTIONS", "SOURCE_HELP", "TITLE", "load"]

NAME = "dnn-partitioning"
TITLE = "A model's graph with accelerator and CPU times (Tarnawski et al., NeurIPS 2020)."
SOURCE_HELP = "JSON file with maxFPGAs, maxSizePerFPGA, maxCPUs, nodes and edges."
QUESTIONS = ("throughput", "latency")
OPTIONS: tuple[Option, ...] = (
    Option(
        "--question", QUESTIONS, None, "What is asked; by default as the file's name or folder says, else throughput."
    ),
)

MAX_BYTES = 256 << 20
MAX_DEVICES = 4096
COST_TOLERANCE = 1e-6  # the published code's own
ACCELERATOR, CPU = "fpga", "cpu"

Flag = bool | Literal[0, 1]


class Node(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    supportedOnFpga: Flag
    cpuLatency: NonNegative | None
    fpgaLatency: NonNegative | None = None
    isBackwardNode: Flag = False
    colorClass: int | None = None
    size: NonNegative = 0
    name: str = ""
    layerId: int | None = None


class Connection(msgspec.Struct, forbid_unknown_fields=True):
    sourceId: int
    destId: int
    cost: NonNegative
    size: NonNegative | None = None


class Workload(msgspec.Struct, forbid_unknown_fields=True):
    maxSizePerFPGA: NonNegative
    maxFPGAs: int
    maxCPUs: int
    nodes: list[Node]
    edges: list[Connection]


_workload = msgspec.json.Decoder(Workload)
_NESTED = {"nodes": Node, "edges": Connection}


def load(source: str | Path, *, question: str | None = None) -> Instance:
    """Instance of a workload; ``question`` is ``throughput``, ``latency`` or None (by the file's name, see above).

    Raises
    ------
    InputError
        The file cannot be read, is not JSON or lacks a key; a number is negative; an id stands twice; an edge leads nowhere
        or stands twice; the costs on the edges that leave a node differ by more than 1e-6; a node runs nowhere; the edges
        form a cycle; there are too many devices or none.
    """
    if question is not None:
        chosen("--question", question, QUESTIONS)
    place = Path(source)
    try:
        return _instance(load_bytes(source, limit=MAX_BYTES), place.stem, question or _question(place))
    except InputError as error:
        if str(error).startswith("cannot read"):
            raise
        raise InputError(f"{source}: {error}") from error


def _question(place: Path) -> str:
    folders = [part.lower() for part in place.absolute().parts[:-1]]
    return "latency" if "latency" in place.name.lower() or "latency-inputs" in folders else "throughput"


def _instance(raw: bytes, name: str, question: str) -> Instance:
    workload = strict.decode(_workload, raw, nested=_NESTED)
    strict.refuse_repeated_keys(raw)
    devices = _devices(workload)
    if not workload.nodes:
        raise InputError("$.nodes is empty; expected at least one node")
    index: dict[int, int] = {}
    for k, node in enumerate(workload.nodes):
        if index.setdefault(node.id, k) != k:
            raise InputError(f"$.nodes[{k}].id repeats {node.id} of $.nodes[{index[node.id]}]; ids are unique")
    names = _names(workload.nodes)
    output = _outputs(workload, index)
    links = [Link(source=ACCELERATOR, target="host", bandwidth=1, both=True)] if workload.maxFPGAs else []
    tasks = [
        Task(
            name=names[k],
            time=_time(k, node, workload),
            memory=node.size,
            output=output.get(node.id, 0),
            group=None if node.colorClass is None else str(node.colorClass),
            backward=bool(node.isBackwardNode),
        )
        for k, node in enumerate(workload.nodes)
    ]
    edges = [Edge(source=names[index[e.sourceId]], target=names[index[e.destId]]) for e in workload.edges]
    return Instance.build(
        devices,
        [Job(name=name, tasks=tasks, edges=edges)],
        links,
        question={"objective": question},
        name=name,
        source="imported from a dnn-partitioning workload (Tarnawski et al., NeurIPS 2020); times as in the file, in ms",
    )


def _devices(workload: Workload) -> list[Device]:
    for key, count in (("maxFPGAs", workload.maxFPGAs), ("maxCPUs", workload.maxCPUs)):
        if not 0 <= count <= MAX_DEVICES:
            raise InputError(f"$.{key} is {count}, expected a whole number from 0 to {MAX_DEVICES}")
    if not workload.maxFPGAs and not workload.maxCPUs:
        raise InputError("$.maxFPGAs and $.maxCPUs are both 0; expected at least one device")
    memory = workload.maxSizePerFPGA
    accelerators = [Device(name=f"{ACCELERATOR}{k}", type=ACCELERATOR, memory=memory) for k in range(workload.maxFPGAs)]
    return accelerators + [Device(name=f"{CPU}{k}", type=CPU, host=True) for k in range(workload.maxCPUs)]


def _names(nodes: list[Node]) -> list[str]:
    """Unique task names: a node's own where no other has it, else ``name#id``; ``node#id`` for none."""
    count: dict[str, int] = {}
    for node in nodes:
        count[node.name] = count.get(node.name, 0) + 1
    return [node.name if node.name and count[node.name] == 1 else f"{node.name or 'node'}#{node.id}" for node in nodes]


def _time(k: int, node: Node, workload: Workload) -> dict[str, int | float | None]:
    if node.supportedOnFpga and node.fpgaLatency is None:
        raise InputError(f"$.nodes[{k}].fpgaLatency is missing, expected a number >= 0 where supportedOnFpga is true")
    times = {
        ACCELERATOR: (node.fpgaLatency if node.supportedOnFpga else None, workload.maxFPGAs),
        CPU: (node.cpuLatency, workload.maxCPUs),
    }
    return {kind: time for kind, (time, count) in times.items() if count}


def _outputs(workload: Workload, index: dict[int, int]) -> dict[int, int | float]:
    """Cost of each node's output by id, the same on all its edges."""
    first: dict[int, int] = {}
    output: dict[int, int | float] = {}
    seen: dict[tuple[int, int], int] = {}
    for k, edge in enumerate(workload.edges):
        for key, end in (("sourceId", edge.sourceId), ("destId", edge.destId)):
            if end not in index:
                raise InputError(f"$.edges[{k}].{key} is {end}, which is no node's id; expected an id of $.nodes")
        pair = (edge.sourceId, edge.destId)
        if seen.setdefault(pair, k) != k:
            raise InputError(
                f"$.edges[{k}] repeats the edge {pair[0]} -> {pair[1]} of $.edges[{seen[pair]}]; write it once"
            )
        before = output.get(edge.sourceId, edge.cost)
        if abs(before - edge.cost) > COST_TOLERANCE:
            raise InputError(
                f"$.edges[{k}].cost is {edge.cost}, expected {before} as in $.edges[{first[edge.sourceId]}]: "
                f"the edges that leave node {edge.sourceId} carry the same output"
            )
        first.setdefault(edge.sourceId, k)
        output[edge.sourceId] = max(before, edge.cost)  # within the tolerance; no plan is called better than it is
    return output
