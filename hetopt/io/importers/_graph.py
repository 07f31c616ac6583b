"""A graph of operators, as ``onnx`` and ``torch`` state it, and the instance that devices make of it by the roofline.

A task is an operator as it stands in the file; nothing is fused, so times are upper estimates for runtimes that fuse. Its
``memory`` is the constants it reads and one copy of its results; a constant that several operators read counts for each, for
they may be on different devices. Its ``output`` is all its results together, for they travel as a whole; the model's own
inputs cost no transfer. It moves its inputs, constants and results through memory once; operators that only rename what is there
(reshapes and such) take no time. Numbers in floating point take the bytes of the precision asked for, or their own where those
are fewer; all others take their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.importers._devices import WIDTH, Crew, ordered
from hetopt.records import Edge, Job, Task

__all__ = ["MAX_OPERATORS", "Operator", "Tensor", "checked", "graph_instance"]

MAX_OPERATORS = 1 << 18
MAX_ELEMENTS = 2**53  # and bytes; more are not exact as floats
MAX_RANK = 64


class Tensor(NamedTuple):
    """Shape, bytes an element as stored, whether its numbers are in floating point; bytes in all where stored otherwise."""

    shape: tuple[int, ...]
    width: float
    floating: bool
    stored: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def bytes(self, precision: str) -> int:
        """Bytes at a precision."""
        if self.stored is not None:
            return self.stored
        return math.ceil(self.elements * (min(self.width, WIDTH[precision]) if self.floating else self.width))


class Operator(NamedTuple):
    """Name, inputs and results by their tensors' names, arithmetic; ``free`` when it moves nothing, ``rows`` when it reads
    only as much of its constants as it hands on (a look-up)."""

    name: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    flops: float
    free: bool = False
    rows: bool = False


def graph_instance(
    operators: Sequence[Operator],
    tensors: Mapping[str, Tensor],
    constants: frozenset[str],
    crew: Crew,
    precision: str,
    *,
    name: str,
    source: str,
    measured: Mapping[str, int] | None = None,
) -> Instance:
    """Instance of one job, asking for throughput.

    Parameters
    ----------
    operators
        Producers before consumers.
    tensors
        Every tensor that an operator reads or makes, by name.
    constants
        Names of those that are there before anything runs.
    measured
        Bytes by operator, where they were measured.

    Raises
    ------
    InputError
        There is no operator or there are too many, or one needs more than 2^53 bytes.
    """
    if not operators:
        raise InputError("the graph has no operator that computes; expected at least one")
    if len(operators) > MAX_OPERATORS:
        raise InputError(f"the graph has {len(operators)} operators, more than {MAX_OPERATORS}; split the model")
    size = {label: tensor.bytes(precision) for label, tensor in tensors.items()}
    names = ordered([op.name or "operator" for op in operators])
    producer = {result: k for k, op in enumerate(operators) for result in op.results}
    tasks, edges = [], []
    for k, op in enumerate(operators):
        reads = dict.fromkeys(op.inputs)
        held = sum(size[label] for label in reads if label in constants)
        fed = sum(size[label] for label in reads if label not in constants)
        made = sum(size[label] for label in op.results)
        moved = fed + made + (min(held, made) if op.rows else held)
        memory = held + made if measured is None else measured[op.name]
        if max(memory, moved) > MAX_ELEMENTS:
            raise InputError(
                f"the operator {names[k]!r} needs {_count(max(memory, moved))} bytes, expected at most 2^53"
            )
        time = crew.nothing() if op.free else crew.times(op.flops, moved)
        tasks.append(Task(name=names[k], time=time, memory=memory, output=made))
        before = sorted({producer[label] for label in reads if label in producer})
        edges += [Edge(source=names[i], target=names[k]) for i in before]
    used = {label for op in operators for label in op.inputs if label in constants}
    parameters = sum(tensors[label].elements for label in used if tensors[label].floating)
    held = sum(size[label] for label in used)
    flops = math.fsum(op.flops for op in operators)
    return Instance.build(
        crew.devices(host_limit=False),
        [Job(name=name or "model", tasks=tasks, edges=edges)],
        crew.links(),
        question={"objective": "throughput"},
        name=name,
        description=f"{len(operators)} operators, {parameters} parameters ({held} bytes of constants as {precision}), "
        f"{flops:.6g} arithmetic operations; times by the roofline, operators not fused",
        source=f"imported from {source}; roofline: {crew.source()}",
    )


def checked(label: str, tensor: Tensor) -> Tensor:
    """The same tensor; InputError when it has a negative size, too many dimensions, or more than 2^53 elements."""
    if len(tensor.shape) > MAX_RANK:
        raise InputError(f"the tensor {label[:80]!r} has {len(tensor.shape)} dimensions, expected at most {MAX_RANK}")
    if any(size < 0 for size in tensor.shape):
        raise InputError(f"the tensor {label[:80]!r} has the shape {list(tensor.shape)[:8]}, expected sizes >= 0")
    if tensor.elements > MAX_ELEMENTS:
        raise InputError(f"the tensor {label[:80]!r} has {_count(tensor.elements)} elements, expected at most 2^53")
    return tensor


def _count(number: int) -> str:
    return str(number) if number < 10**30 else "more than 10^30"
