"""Check an offloading plan, and add up its seconds and bytes, sharing nothing with any model.

A sequence of tasks (parts of layers, such as a layer's dense part and its experts) lies partly on accelerators, partly on
hosts (devices that say ``host``). The accelerators hold consecutive pieces, in the order of ``tables.order`` or of the file; what
two of them hold is separated by a place where the sequence may be cut. A task on a host runs there (``execute = "in-place"``),
or is copied to the first accelerator each time and runs there (``"swap"``), which must keep room for the largest such task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.verify.assignment import device_sums, placement_violations
from hetopt.verify.chain import layer_sequence

__all__ = ["OffloadReport", "accelerators", "check_offload", "handed_on", "may_reside"]


@dataclass(frozen=True)
class OffloadReport:
    """What a plan amounts to.

    Attributes
    ----------
    seconds
        Times of all tasks where they run, copies of swapped tasks, and transfers between devices that run neighbours.
    memory
        (d,) bytes resident, with the room kept for copies.
    load
        (d,) seconds that each device computes.
    transfers
        Seconds of transfers and copies.
    violations
        A sentence for each broken constraint.
    """

    seconds: float
    memory: NDArray[np.float64]
    load: NDArray[np.float64]
    transfers: float
    violations: tuple[str, ...]


def accelerators(instance: Instance) -> list[int]:
    """Numbers of the devices that are no hosts, in the order in which they hold pieces.

    Raises
    ------
    InputError
        ``tables.order`` is no list that names each of them once.
    """
    found = np.flatnonzero(~instance.is_host).tolist()
    names = instance.tables.get("order")
    if names is None:
        return [int(i) for i in found]
    mine = {instance.device_names[i]: int(i) for i in found}
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(mine):
        raise InputError(
            f"$.tables.order is {names!r}, expected a list of the accelerators, each once: {', '.join(mine)}"
        )
    return [mine[str(name)] for name in names]


def handed_on(instance: Instance) -> NDArray[np.float64]:
    """(n,) bytes that each task of a sequence hands to the next one: its edge's own ``data``, or its ``output``."""
    out = np.zeros(instance.n_tasks)
    out[instance.edges[:, 0]] = instance.edge_data
    return out


def may_reside(instance: Instance, swap: bool) -> NDArray[np.bool_]:
    """(n, d) where each task may lie: where it can run; with ``swap`` on hosts also when it cannot run there."""
    if not swap:
        return instance.eligible
    allowed = instance.columns.allowed
    return np.asarray(instance.eligible | (instance.is_host[None, :] & (True if allowed is None else allowed)))


def check_offload(
    instance: Instance, placement: NDArray[np.int64] | None, *, swap: bool, hosted: int | None
) -> OffloadReport:
    """Evaluate a placement (n,) of the tasks and list what is wrong with it.

    Parameters
    ----------
    swap
        Tasks on a host are copied to the first accelerator to run.
    hosted
        Exact number of tasks on hosts that is asked for; None for any.
    """
    n, d = instance.n_tasks, instance.n_devices
    nothing = OffloadReport(math.inf, np.zeros(d), np.zeros(d), math.inf, ())
    sequence = layer_sequence(instance)
    if sequence is None:
        return OffloadReport(*_parts(nothing), ("the tasks do not form one sequence",))
    wrong = list(placement_violations(instance, placement, limits=False))
    if placement is None or placement.shape != (n,) or ((placement < 0) | (placement >= d)).any():
        return OffloadReport(*_parts(nothing), tuple(wrong))
    labels, names = instance.labels, instance.device_names
    host = instance.is_host
    if swap:  # a host need not be able to run what is copied from it
        wrong = [] if may_reside(instance, swap)[np.arange(n), placement].all() else wrong
        wrong += [s for s in placement_violations(instance, placement, limits=False) if "share" in s and s not in wrong]
    wrong += _order(instance, sequence, placement)
    on_host = host[placement]
    if hosted is not None and int(on_host.sum()) != hosted:
        wrong.append(f"{int(on_host.sum())} tasks are on hosts, exactly {hosted} are asked for")

    main = accelerators(instance)[0]
    where = np.where(on_host, main, placement) if swap else placement
    seconds = instance.columns.time[np.arange(n), where]
    if not np.isfinite(seconds).all():
        lost = int(np.flatnonzero(~np.isfinite(seconds))[0])
        wrong.append(f"task {labels[lost]!r} cannot run on {names[int(where[lost])]!r}")
        return OffloadReport(*_parts(nothing), tuple(wrong))
    moves: list[float] = []
    if swap:
        for k in np.flatnonzero(on_host).tolist():
            link = instance.need_link(names[int(placement[k])], names[main])
            moves.append(link.latency + (float(instance.memory[k]) / link.bandwidth if link.bandwidth else 0.0))
    output = handed_on(instance)
    for u, v in zip(sequence[:-1].tolist(), sequence[1:].tolist(), strict=True):
        if where[u] != where[v]:
            link = instance.need_link(names[int(where[u])], names[int(where[v])])
            moves.append(link.latency + (float(output[u]) / link.bandwidth if link.bandwidth else 0.0))
    memory = device_sums(instance.memory, placement, d)
    if swap:
        memory[main] += float(instance.memory[on_host].max(initial=0.0))
    for i in np.flatnonzero(memory > instance.capacity).tolist():
        kept = " (with room for the largest task that is copied in)" if swap and i == main and on_host.any() else ""
        short = memory[i] - instance.capacity[i]
        wrong.append(
            f"device {names[i]!r} needs {memory[i]:.12g} bytes of memory{kept} and has {instance.capacity[i]:.12g}: "
            f"{short:.12g} too many"
        )
    load = device_sums(seconds, where, d)
    return OffloadReport(math.fsum([*seconds.tolist(), *moves]), memory, load, math.fsum(moves), tuple(wrong))


def _parts(report: OffloadReport) -> tuple[float, NDArray[np.float64], NDArray[np.float64], float]:
    return report.seconds, report.memory, report.load, report.transfers


def _order(instance: Instance, sequence: NDArray[np.int64], placement: NDArray[np.int64]) -> list[str]:
    """Accelerators in their order, changed only where the sequence may be cut."""
    wrong = []
    place = {g: k for k, g in enumerate(accelerators(instance))}
    last, cut = -1, True
    for k in sequence.tolist():
        device = int(placement[k])
        if not instance.is_host[device]:
            name = instance.device_names[device]
            if place[device] < last:
                wrong.append(f"task {instance.labels[k]!r} is on {name!r}, before the device of an earlier task")
            elif last >= 0 and place[device] != last and not cut:
                wrong.append(
                    f"task {instance.labels[k]!r} on {name!r} is torn from its neighbours: no cut is allowed there"
                )
            last, cut = place[device], False
        cut = cut or bool(instance.columns.cut[k])
    return wrong
