"""A model's graph, operation by operation, and the instance that a fleet of processors makes of it by the roofline.

Conventions, the same for all models: a task is one fused operation (a convolution with its normalisation and activation, a
matrix product with its bias); its ``output`` is its result in bytes; its ``memory`` is its weights, its state (a KV cache)
and one copy of its result. Each accelerator talks to host memory over its own link; a CPU works in host memory. Times are
rounded to nanoseconds, far below what a roofline knows.

Training adds a backward task for each task: twice the arithmetic and traffic, on the same device as its forward task (a
group of the two), from consumers to producers; weights then take 16 bytes a parameter (half-precision weights and gradients,
single-precision copy and two moments of Adam).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hetopt.costs.roofline import Processor, fleet, seconds
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.kinds import Option
from hetopt.records import Device, Link

__all__ = ["Model", "Operation", "backward_edges", "common_options"]

BYTES = {"fp16": 2, "int8": 1}
TRAINING_BYTES = 16  # a parameter: fp16 weight and gradient, fp32 copy and two moments
RESERVED = 0.1  # share of an accelerator's memory that contexts and workspace take


@dataclass(frozen=True)
class Operation:
    """One task: arithmetic, weights (parameters), result and extra traffic (elements), state kept (bytes)."""

    name: str
    inputs: tuple[int, ...]
    flops: float
    weights: int
    result: int
    touched: int
    state: int


@dataclass
class Model:
    """A graph under construction; producers come before consumers."""

    operations: list[Operation] = field(default_factory=list)

    def add(
        self,
        name: str,
        inputs: Sequence[int],
        *,
        result: int,
        flops: float = 0,
        weights: int = 0,
        touched: int | None = None,
        state: int = 0,
    ) -> int:
        """Add an operation; returns its number.

        Parameters
        ----------
        inputs
            Numbers of the producers.
        result
            Elements of the result, for the whole batch.
        flops
            Arithmetic for the whole batch; a multiply-add counts two.
        weights
            Parameters.
        touched
            Weights that are read; all by default (an embedding reads few).
        state
            Bytes that stay on the device and are read each time (a KV cache).
        """
        read = weights if touched is None else touched
        self.operations.append(Operation(name, tuple(inputs), flops, weights, result, read, state))
        return len(self.operations) - 1

    @property
    def parameters(self) -> int:
        """Weights of all operations."""
        return sum(op.weights for op in self.operations)

    def moved(self, op: Operation, precision: str) -> float:
        """Bytes that an operation reads and writes."""
        elements = op.result + op.touched + sum(self.operations[k].result for k in op.inputs)
        return elements * BYTES[precision] + op.state

    def instance(
        self,
        processors: str,
        *,
        name: str,
        description: str,
        precision: str = "fp16",
        own_precision: dict[str, str] | None = None,
        only: dict[str, tuple[str, ...]] | None = None,
        training: bool = False,
        noise: float = 0.0,
        seed: int = 0,
    ) -> Instance:
        """The instance on a fleet (:func:`hetopt.costs.roofline.fleet`), asking for throughput.

        Parameters
        ----------
        precision
            What weights and results are stored in.
        own_precision
            Precision by processor, where it differs.
        only
            Processor kinds that can run an operation, by its name; all by default.
        training
            Add the backward pass.
        noise
            Each time is multiplied by a number drawn from [1 - noise, 1 + noise], once for a task and processor.
        """
        if not 0 <= noise < 1:
            raise InputError(f"--noise is {noise}, expected a number from 0 to less than 1")
        crew = fleet(processors)
        ops, n, passes = self.operations, len(self.operations), 2 if training else 1
        times = np.array([[self._seconds(op, p, precision, own_precision, only) for p, _ in crew] for op in ops])
        times = np.concatenate([times, 2 * times]) if training else times
        random = np.random.default_rng(seed)
        times = times * random.uniform(1 - noise, 1 + noise, times.shape) if noise else times
        edges = [(k, v) for v, op in enumerate(ops) for k in op.inputs]
        unit = BYTES[precision]
        results = [op.result * unit for op in ops]
        # what goes back is the gradient of the inputs; of several, one message carries the largest
        returned = [max((results[k] for k in op.inputs), default=0) for op in ops]
        a_weight = TRAINING_BYTES if training else unit
        memory = [op.weights * a_weight + op.state + out for op, out in zip(ops, results, strict=True)]
        return Instance.from_graph(
            np.repeat([[round(t, 9) for t in row] for row in times.tolist()], [count for _, count in crew], axis=1),
            edges + (backward_edges(edges, n) if training else []),
            output=results + (returned if training else []),
            memory=memory + [0] * n * (passes - 1),
            tasks=[op.name for op in ops] + ([f"{op.name}.grad" for op in ops] if training else []),
            devices=_devices(crew),
            group=[op.name for op in ops] * 2 if training else None,
            backward=[False] * n + [True] * n * (passes - 1),
            links=[
                Link(source=p.name, target="host", bandwidth=_whole(p.link), both=True)
                for p, _ in crew
                if p.link is not None
            ],
            question={"objective": "throughput"},
            name=name,
            description=description,
            source="roofline of public architecture dimensions on data sheets: "
            + "; ".join(f"{p.name}: {p.source} ({p.confidence})" for p, _ in crew),
        )

    def _seconds(
        self,
        op: Operation,
        processor: Processor,
        precision: str,
        own_precision: dict[str, str] | None,
        only: dict[str, tuple[str, ...]] | None,
    ) -> float:
        if only and processor.kind not in only.get(op.name, (processor.kind,)):
            return float("inf")
        own = (own_precision or {}).get(processor.name, precision)
        return seconds(processor, op.flops, self.moved(op, own), own)


def backward_edges(edges: Sequence[tuple[int, int]], n: int) -> list[tuple[int, int]]:
    """Edges of the backward pass of ``n`` tasks: task k + n is the backward task of k; each sink starts its own."""
    producers = {k for k, _ in edges}
    return [(v + n, k + n) for k, v in edges] + [(k, k + n) for k in range(n) if k not in producers]


def common_options(processors: str) -> tuple[Option, ...]:
    """Options of every model: fleet, noise, seed."""
    return (
        Option("--fleet", str, processors, "Processors and how many of each, as name:count,name:count."),
        Option("--noise", float, 0.0, "Relative noise of the times, as measured profiles have it."),
        Option("--seed", int, 0, "Seed of the noise."),
    )


def _devices(crew: list[tuple[Processor, int]]) -> list[Device]:
    return [
        Device(
            name=f"{p.name}-{k}",
            type=p.name,
            memory=p.memory,
            reserved=0 if p.memory is None else round(RESERVED * p.memory),
            power=_whole(p.power),
            host=p.kind == "cpu",
        )
        for p, count in crew
        for k in range(count)
    ]


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value
