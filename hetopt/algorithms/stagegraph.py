"""The contracted graph that every pipeline-partition kernel works on.

A *class* is a set of tasks that must share a device (a colour class, a forward task with its backward task, a fused
strongly connected component). A *net* is a task's output together with its consumers, projected onto classes. A part
``S`` placed on one device of type ``t`` loads it with

    load_t(S) = sum_{v in S} time[v, t]
              + rate_in[t]  * sum of weight[h] over nets h whose source is outside S and that have a pin in S
              + rate_out[t] * sum of weight[h] over nets h whose source is in S and that have a pin outside S

(each net at most once in and once out per device). A host device (a CPU) has both rates zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["StageGraph"]


@dataclass(frozen=True, eq=False)
class StageGraph:
    """Contracted task graph, nets and device types. ``n`` classes in topological order, ``h`` nets, ``t`` device types.

    Attributes
    ----------
    time
        (n, t) seconds of a class on a device of the type; ``inf`` where a member cannot run.
    size
        (n,) bytes a class needs on a device that has a memory limit.
    pred_ptr, pred
        CSR of predecessors in the precedence graph that contiguity speaks of: the predecessors of class ``v`` are
        ``pred[pred_ptr[v]:pred_ptr[v + 1]]``, all smaller than ``v``.
    net_ptr, net_pin
        CSR of the nets' pins (classes, ascending, the source included, at least two pins).
    net_source
        (h,) class of the task whose output the net carries.
    net_weight
        (h,) bytes (or time units when rates are one); positive.
    count
        (t,) devices of each type.
    memory
        (t,) bytes per device of the type; ``inf`` when unlimited.
    rate_in, rate_out
        (t,) seconds per unit of net weight.
    member
        (tasks,) class of each original task.
    backward_time
        (n, t) the part of ``time`` that belongs to the backward pass of training; None when there is no backward pass.
    net_backward
        (h,) whether the net carries the output of a backward task; None when there is none.
    """

    time: NDArray[np.float64]
    size: NDArray[np.float64]
    pred_ptr: NDArray[np.int64]
    pred: NDArray[np.int64]
    net_ptr: NDArray[np.int64]
    net_pin: NDArray[np.int64]
    net_source: NDArray[np.int64]
    net_weight: NDArray[np.float64]
    count: NDArray[np.int64]
    memory: NDArray[np.float64]
    rate_in: NDArray[np.float64]
    rate_out: NDArray[np.float64]
    member: NDArray[np.int64]
    backward_time: NDArray[np.float64] | None = None
    net_backward: NDArray[np.bool_] | None = None

    @property
    def n(self) -> int:
        """Number of classes."""
        return len(self.size)

    @property
    def types(self) -> int:
        """Number of device types."""
        return len(self.count)

    @property
    def host(self) -> NDArray[np.bool_]:
        """(t,) whether a type neither pays for communication nor has a memory limit, as a CPU."""
        return np.asarray((self.rate_in == 0) & (self.rate_out == 0) & np.isinf(self.memory))

    def nets_of_classes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """CSR of the nets that have a pin in each class: ``net[ptr[v]:ptr[v + 1]]``, ascending; O(pins)."""
        nets = np.repeat(np.arange(len(self.net_weight)), np.diff(self.net_ptr))
        order = np.argsort(self.net_pin, kind="stable")
        ptr = np.zeros(self.n + 1, np.int64)
        np.cumsum(np.bincount(self.net_pin, minlength=self.n), out=ptr[1:])
        return ptr, nets[order]

    def load(self, part: NDArray[np.bool_], device_type: int) -> float:
        """Load of one device of a type that holds the classes where ``part`` (n,) is true; O(pins), sums rounded once.

        ``inf`` where a class cannot run on the type. Memory is not looked at.
        """
        return math.fsum([*self.time[part, device_type], *self._net_costs(part, device_type)])

    def pass_loads(self, part: NDArray[np.bool_], device_type: int) -> tuple[float, float]:
        """Forward and backward load of the same device; a net counts in the pass of the task that makes it."""
        if self.backward_time is None or self.net_backward is None:
            return self.load(part, device_type), 0.0
        time, backward = self.time[part, device_type], self.backward_time[part, device_type]
        if np.isinf(time).any():
            return math.inf, math.inf
        costs = self._net_costs(part, device_type)
        forward = math.fsum([*time, *-backward, *costs[~self.net_backward]])
        return forward, math.fsum([*backward, *costs[self.net_backward]])

    def _net_costs(self, part: NDArray[np.bool_], device_type: int) -> NDArray[np.float64]:
        pins = part[self.net_pin]
        inside = np.add.reduceat(pins, self.net_ptr[:-1], dtype=np.int64) if len(self.net_weight) else np.zeros(0, int)
        source = part[self.net_source]
        arrives = np.where((inside > 0) & ~source, self.rate_in[device_type], 0.0)
        leaves = np.where(source & (inside < np.diff(self.net_ptr)), self.rate_out[device_type], 0.0)
        return np.asarray(self.net_weight * (arrives + leaves))
