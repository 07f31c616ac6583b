"""The stage graph of an instance: devices that are alike become one type, tasks that share a device one class; and its order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.stagegraph import StageGraph
from hetopt.instance import HOST, Instance
from hetopt.solution import Solution

__all__ = [
    "Pipeline",
    "chain_order",
    "device_of_position",
    "forward_edges",
    "host_links",
    "pipeline_of",
    "precedence",
    "rates",
]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A stage graph with the way back to the instance's tasks and devices.

    Attributes
    ----------
    graph
        Classes, nets and device types.
    kind
        (d,) type of each device of the instance.
    device
        (d,) device of the instance for each device as kernels number them: type by type.
    """

    graph: StageGraph
    kind: NDArray[np.int64]
    device: NDArray[np.int64]

    def solution(self, classes: NDArray[np.int64]) -> Solution:
        """Plan of the tasks from the device (n,) of each class, devices numbered type by type."""
        return Solution.assign(self.device[classes[self.graph.member]])

    def classes(self, solution: Solution) -> NDArray[np.int64]:
        """(n,) device of each class, numbered type by type, in a plan of the tasks; the first member decides."""
        assert solution.placement is not None
        number = np.empty(len(self.device), np.int64)
        number[self.device] = np.arange(len(self.device))
        first = np.full(self.graph.n, -1, np.int64)
        first[self.graph.member[::-1]] = np.arange(len(self.graph.member))[::-1]
        return number[solution.placement[first]]


def rates(instance: Instance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d,) seconds per byte that each device pays to receive from, and to send to, host memory; 0 for a host device.

    Raises
    ------
    InputError
        Some task hands data on, and a device has no link to or from ``"host"``.
    """
    into, out, _, _ = host_links(instance)
    return into, out


def host_links(instance: Instance) -> tuple[NDArray[np.float64], ...]:
    """(d,) each: seconds per byte to receive from and to send to host memory, and latencies of the same; 0 for a host device.

    Raises
    ------
    InputError
        As for :func:`rates`.
    """
    d = instance.n_devices
    into, out, late_in, late_out = np.zeros((4, d))
    if not len(instance.edges) or not instance.output[instance.edges[:, 0]].any():
        return into, out, late_in, late_out
    for i, name in enumerate(instance.device_names):
        if not instance.is_host[i]:
            come, go = instance.need_link(HOST, name), instance.need_link(name, HOST)
            into[i] = 0.0 if come.bandwidth is None else 1.0 / come.bandwidth
            out[i] = 0.0 if go.bandwidth is None else 1.0 / go.bandwidth
            late_in[i], late_out[i] = come.latency, go.latency
    return into, out, late_in, late_out


@lru_cache(maxsize=8)
def pipeline_of(instance: Instance, contiguous: str, transfers: str = "host", merged: bool = True) -> Pipeline:
    """Stage graph of an instance for a kind of contiguity (``ideals``, ``device`` or ``none``).

    Only ``ideals`` has precedence between classes; under ``device`` convexity is about tasks, and classes are just groups.
    Devices are of one type when their times, memory and links are equal. With ``transfers="direct"`` links with the host are
    not asked for, and the graph has no nets. ``merged=False`` keeps classes without time apart: merging them changes nothing
    only where loads are sums and memory does not depend on the stage.
    """
    from hetopt.algorithms.contraction import contract

    links = host_links(instance) if transfers == "host" else tuple(np.zeros((4, instance.n_devices)))
    into, out, _, _ = links
    seen: dict[bytes, int] = {}
    kind = np.array(
        [
            seen.setdefault(
                instance.time[:, i].tobytes()
                + np.array(
                    [instance.capacity[i], instance.is_host[i], *(part[i] for part in links)], np.float64
                ).tobytes(),
                len(seen),
            )
            for i in range(instance.n_devices)
        ],
        np.int64,
    )
    first = np.unique(kind, return_index=True)[1]
    graph = contract(
        instance.time[:, first],
        instance.memory,
        instance.edges,
        instance.output,
        instance.group,
        instance.backward,
        np.bincount(kind),
        instance.capacity[first],
        into[first],
        out[first],
        contiguous=contiguous == "ideals",
        merge_zero_time=merged and contiguous != "device",
    )
    return Pipeline(graph, kind, np.argsort(kind, kind="stable"))


def precedence(graph: StageGraph) -> tuple[Ints, Ints]:
    """(u, v) pairs of classes of which the first comes before the second in a chain of ideals."""
    return graph.pred, np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr))


def forward_edges(instance: Instance) -> tuple[Ints, Ints]:
    """(u, v) edges between forward tasks."""
    u, v = instance.edges.T
    forward = ~instance.backward[u] & ~instance.backward[v]
    return u[forward], v[forward]


def chain_order(graph: StageGraph, classes: Ints) -> Ints | None:
    """(d,) devices, numbered type by type, in an order that makes a plan a chain of ideals; None when there is none.

    Empty devices come last.
    """
    d = int(graph.count.sum())
    u, v = precedence(graph)
    pairs = np.unique(np.stack([classes[u], classes[v]], axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    waiting = np.bincount(pairs[:, 1], minlength=d)
    used = np.unique(classes).tolist()
    order: list[int] = []
    ready = [i for i in used if not waiting[i]]
    while ready:
        i = ready.pop(0)
        order.append(i)
        for j in pairs[pairs[:, 0] == i, 1].tolist():
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
    if len(order) < len(used):
        return None
    return np.array(order + [i for i in range(d) if i not in set(used)], np.int64)


def device_of_position(graph: StageGraph, kind: Ints) -> Ints:
    """(d,) device, numbered type by type, of each position: the next free one of the position's type."""
    start = np.concatenate([[0], np.cumsum(graph.count)[:-1]])
    rank = np.zeros(len(kind), np.int64)
    for t in range(graph.types):
        rank[kind == t] = np.arange(np.count_nonzero(kind == t))
    return np.asarray(start[kind] + rank, np.int64)
