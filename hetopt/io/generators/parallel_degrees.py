"""Degrees of data, tensor and pipeline parallelism for a decoder on equal nodes, with a simple model of their times.

Seconds: compute split over all GPUs, tensor collectives inside a node, a bubble of (pipeline - 1) / micro-batches, gradients over
data copies between nodes. Rates are round numbers; a table measured on the cluster replaces them.
"""

from __future__ import annotations

from hetopt.instance import Instance
from hetopt.io.kinds import Option, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "parallel-degrees"
TITLE = "Rows of data x tensor x pipeline degrees for a decoder on equal nodes, modelled times."
OPTIONS: tuple[Option, ...] = (
    Option("--nodes", int, 8, "Nodes."),
    Option("--gpus", int, 4, "GPUs of each node."),
    Option("--layers", int, 32, "Layers."),
    Option("--batch", int, 256, "Samples of a batch."),
)


def make(*, nodes: int = 8, gpus: int = 4, layers: int = 32, batch: int = 256) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`."""
    for name, value, most in (("--nodes", nodes, 4096), ("--gpus", gpus, 64), ("--layers", layers, 1000)):
        whole(name, value, 1, most)
    whole("--batch", batch, 1, 1 << 20)
    weights, heads, micro = layers * 200_000_000, 32, 1
    rows = []
    sizes = sorted(set(range(1, gpus + 1)) | {n * gpus for n in range(1, nodes + 1)})
    for size in sizes:
        for tensor in (t for t in range(1, min(gpus, size) + 1) if size % t == 0 and heads % t == 0):
            for pipeline in (p for p in range(1, size // tensor + 1) if size // tensor % p == 0 and layers % p == 0):
                data = size // tensor // pipeline
                if batch % data:
                    continue
                work = 6 * weights * 2048 * batch / (size * 1.5e14)
                collectives = 0.0 if tensor == 1 else 0.12 * work * tensor**0.5 + 0.05
                bubble = (work + collectives) * (pipeline - 1) / (batch // data)
                gradients = 0.0 if data == 1 else 4 * weights / (tensor * pipeline) / 2.5e10
                rows.append(
                    {
                        "data": data,
                        "tensor": tensor,
                        "pipeline": pipeline,
                        "seconds": round(work + collectives + bubble + gradients, 4),
                        "memory": 16 * weights // (tensor * pipeline) + 2_000_000_000,
                    }
                )
    numa = {"distance": [[10, 32] if g < gpus / 2 else [32, 10] for g in range(gpus)], "cores": [24, 24]}
    tables = {
        "degrees": rows,
        "model": {"layers": layers, "heads": heads, "batch": batch, "micro": micro},
        "numa": numa,
    }
    return Instance.build(
        [Device(name=f"node{k}", slots=gpus, memory=80_000_000_000, price=12) for k in range(nodes)],
        [Job(name="train", time=[1] * nodes)],
        tables=tables,
        question={"objective": "parallelism", "cpus": 8},
        name=f"parallel-degrees-{nodes}x{gpus}",
        description=f"{layers} layers on {nodes} nodes of {gpus} GPUs, modelled times.",
        source="made up, see hetopt generate parallel-degrees --help",
    )
