"""The contracted graph that every pipeline-partition kernel works on.

A *class* is a set of tasks that must share a device (a colour class, a forward task with its backward task, a strongly
connected component after fusing). A *net* is a task's output together with its consumers, projected onto classes. A part
``S`` placed on one device of type ``t`` loads it with

    load_t(S) = sum_{v in S} time[v, t]
              + rate_in[t]  * sum of weight[h] over nets h whose source is outside S and that have a pin in S
              + rate_out[t] * sum of weight[h] over nets h whose source is in S and that have a pin outside S

(each net at most once in and once out per device). A host device (a CPU) has both rates zero.
"""

from __future__ import annotations

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

    @property
    def n(self) -> int:
        """Number of classes."""
        return len(self.size)
