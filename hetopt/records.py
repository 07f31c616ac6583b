"""The wire types of ``hetopt-instance/1``: what one device, link, task, job or edge says. Frozen, strict, no behaviour.

:class:`~hetopt.instance.Instance` is built from these and keeps columns; it hands records out again on request. The JSON
Schema is generated from this file. SI units: seconds, bytes, bytes per second, watts, currency per hour.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

__all__ = ["FORMAT", "Device", "Edge", "Job", "Link", "Mode", "Task"]

FORMAT = "hetopt-instance/1"

Name = Annotated[str, Meta(min_length=1, max_length=1024)]
# An integer beyond 2^53 is refused: as a float it would silently be another number.
NonNegative = Annotated[int, Meta(ge=0, le=2**53)] | Annotated[float, Meta(ge=0)]
Positive = Annotated[int, Meta(gt=0, le=2**53)] | Annotated[float, Meta(gt=0)]
Table = list[NonNegative | None] | dict[str, NonNegative | None]
Names = Name | Annotated[list[Name], Meta(min_length=1)]


class _Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Device(_Record, frozen=True, kw_only=True):
    """Something that runs work.

    ``type`` groups devices with equal times; it defaults to the name. ``memory`` is None when it never binds; ``reserved``
    of it is not ours. ``slots`` tasks run at once. ``available_from`` is the first second it is free.
    """

    name: Name
    type: Name | None = None
    memory: NonNegative | None = None
    reserved: NonNegative = 0
    available_from: NonNegative = 0
    idle_power: NonNegative | None = None
    power: NonNegative | None = None
    price: NonNegative | None = None
    slots: Annotated[int, Meta(ge=1)] = 1
    max_tasks: Annotated[int, Meta(ge=0)] | None = None
    due: NonNegative | None = None
    weight: NonNegative = 1
    host: bool = False


class Link(_Record, frozen=True, kw_only=True):
    """A directed connection between devices, device types, ``"*"`` (any device) or ``"host"`` (the shared host memory).

    ``bandwidth`` in bytes per second; an explicit null means that only ``latency`` (seconds) counts. ``both`` writes the
    two directions at once.
    """

    source: Name = field(name="from")
    target: Name = field(name="to")
    bandwidth: Positive | None
    latency: NonNegative = 0
    both: bool = False


class Mode(_Record, frozen=True, kw_only=True):
    """An alternative way to run a task: a precision, a sharding, a tensor degree; with its own time, memory and score."""

    name: Name
    time: Table | None = None
    memory: NonNegative | None = None
    output: NonNegative | None = None
    energy: Table | None = None
    cost: Table | None = None
    score: int | float | None = None
    devices: Annotated[int, Meta(ge=1)] = 1


class Task(_Record, frozen=True, kw_only=True):
    """A piece of work that runs on one device.

    ``time``, ``cost`` and ``energy`` are lists in device order or maps by device name or type; null or absent means that
    the task cannot run there. ``memory`` counts on devices with a memory limit. ``output`` travels to the successors.
    ``group``: tasks that must share a device. ``pin``/``forbid``: devices or types it must or must not use. ``cut``: may a
    chain be cut behind this task. ``backward``: belongs to the backward pass of training.
    """

    name: Name
    time: Table | None = None
    memory: NonNegative = 0
    output: NonNegative = 0
    group: Name | None = None
    pin: Names | None = None
    forbid: Names | None = None
    cut: bool = True
    backward: bool = False
    kv_bytes_per_token: NonNegative = 0
    activation: NonNegative = 0
    cost: Table | None = None
    energy: Table | None = None
    modes: list[Mode] = field(default_factory=list)

    def memory_of(self, mode: Mode) -> int | float:
        """Bytes that the task takes in ``mode``: its own where the mode states none."""
        return self.memory if mode.memory is None else mode.memory


class Edge(_Record, frozen=True, kw_only=True):
    """A dependency between two tasks of a job; ``data`` bytes travel, by default the source task's output."""

    source: Name = field(name="from")
    target: Name = field(name="to")
    data: NonNegative | None = None


class Job(_Record, frozen=True, kw_only=True):
    """Work with a common weight and dates: either a graph of tasks, or a single task whose fields it carries itself."""

    name: Name
    weight: NonNegative = 1
    release: NonNegative = 0
    due: NonNegative | None = None
    deadline: NonNegative | None = None
    period: Positive | None = None
    steps: NonNegative | None = None
    scale: NonNegative = 1
    tasks: list[Task] | None = None
    edges: list[Edge] = field(default_factory=list)
    time: Table | None = None
    memory: NonNegative = 0
    output: NonNegative = 0
    group: Name | None = None
    pin: Names | None = None
    forbid: Names | None = None
    cut: bool = True
    backward: bool = False
    kv_bytes_per_token: NonNegative = 0
    activation: NonNegative = 0
    cost: Table | None = None
    energy: Table | None = None
    modes: list[Mode] = field(default_factory=list)

    def memory_of(self, mode: Mode) -> int | float:
        """Bytes that the task takes in ``mode``: its own where the mode states none."""
        return self.memory if mode.memory is None else mode.memory


class InstanceFile(_Record, frozen=True, kw_only=True):
    """A whole instance file. ``tables`` holds named arrays that single questions define (setup times, for example)."""

    format: Literal["hetopt-instance/1"]
    name: str = ""
    description: str = ""
    source: str = ""
    devices: list[Device]
    links: list[Link] = field(default_factory=list)
    jobs: list[Job]
    tables: dict[str, Any] = field(default_factory=dict)
    question: dict[str, Any] = field(default_factory=dict)
