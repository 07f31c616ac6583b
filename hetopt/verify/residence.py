"""What lies in each device's memory at each moment of a schedule, and where that is more than there is room.

It shares nothing with any model. Weights (a task's ``memory``) lie on the task's device all the time. A result of a task lies on
its device from the task's start until the task, every reader there and every transfer away from it have ended; a copy of it lies
on each other device that reads it from the task's end until the last reader there has ended. Readers on one device share a copy.
A result is as large as the task's ``output``, or as the largest of its edges with bytes of their own; a copy as the largest
edge into its device. What ends at a moment makes room for what begins at it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.verify.assignment import device_sums
from hetopt.verify.schedule import links_between

__all__ = ["Residents", "memory_over_time", "occupied", "peaks", "residents"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-9  # of the moment compared, for sums of decimals, as for starts; whole numbers are compared as they are
_NAMED = 6


class Residents(NamedTuple):
    """Results and copies, (blocks,) each: device, first moment, moment from which it is gone, bytes, who made it, copy or not."""

    device: Ints
    begin: Floats
    until: Floats
    size: Floats
    task: Ints
    copy: NDArray[np.bool_]


def residents(instance: Instance, placement: Ints, start: Floats, done: Floats) -> Residents:
    """Results and copies of a schedule in which every task has a device, a start and an end; those of no bytes are left out."""
    n, d = instance.n_tasks, instance.n_devices
    size, until = np.array(instance.output), np.array(done)
    large, late = np.zeros(n * d), np.zeros(n * d)  # copies, by task and device
    if len(instance.edges):
        latency, slowness = links_between(instance)
        u, v = instance.edges.T
        sent, p, q = instance.edge_data, placement[u], placement[v]
        apart = p != q
        arrives = done[u] + np.where(apart, latency[p, q] + sent * slowness[p, q], 0.0)
        np.maximum.at(size, u, sent)
        np.maximum.at(until, u, np.where(apart, arrives, done[v]))
        np.maximum.at(large, (u * d + q)[apart], sent[apart])
        np.maximum.at(late, (u * d + q)[apart], done[v][apart])
    made, there = np.divmod(np.flatnonzero(large), d)
    found = Residents(
        np.concatenate([placement, there]),
        np.concatenate([start, done[made]]),
        np.concatenate([until, late[large > 0]]),
        np.concatenate([size, large[large > 0]]),
        np.concatenate([np.arange(n), made]),
        np.arange(n + len(made)) >= n,
    )
    kept = found.size > 0
    return Residents._make(part[kept] for part in found)  # type: ignore[arg-type]


def memory_over_time(instance: Instance, placement: Ints, start: Floats, done: Floats) -> tuple[str, ...]:
    """A sentence for each device that holds too much: at its fullest moment, by how many bytes, and what lies there."""
    found = residents(instance, placement, start, done)
    weights = device_sums(instance.memory, placement, instance.n_devices)
    said = []
    for i in np.flatnonzero(np.isfinite(instance.capacity)).tolist():
        moments, level = occupied(found, i, float(weights[i]))
        room = float(instance.capacity[i])
        near = np.flatnonzero(level > room * (1 - TOLERANCE))
        exact = [_held(found, i, float(moments[k]), float(weights[i])) for k in near.tolist()]
        if exact and max(exact) > room:
            at = float(moments[near[int(np.argmax(exact))]])
            said.append(_too_much(instance, found, i, at, max(exact), float(weights[i])))
    return tuple(said)


def occupied(found: Residents, device: int, weights: float) -> tuple[Floats, Floats]:
    """Sorted moments, the first at most 0, and the bytes on a device from each of them on."""
    mine = found.device == device
    begin, size = found.begin[mine], found.size[mine]
    until = np.where(found.until[mine] > begin, _gone(found)[mine], begin)
    moments = np.unique(np.concatenate([[min(0.0, float(begin.min(initial=0.0)))], begin, until]))
    come, go = np.argsort(begin, kind="stable"), np.argsort(until, kind="stable")
    plus = np.concatenate([[0.0], np.cumsum(size[come])])[np.searchsorted(begin[come], moments, side="right")]
    minus = np.concatenate([[0.0], np.cumsum(size[go])])[np.searchsorted(until[go], moments, side="right")]
    return moments, weights + np.asarray(plus - minus)


def peaks(instance: Instance, placement: Ints, start: Floats, done: Floats) -> Floats:
    """(d,) most bytes that each device holds at a moment."""
    found = residents(instance, placement, start, done)
    weights = device_sums(instance.memory, placement, instance.n_devices)
    return np.array([occupied(found, i, float(w))[1].max() for i, w in enumerate(weights)])


def _gone(found: Residents) -> Floats:
    """Moments from which blocks are gone; with decimals a little earlier, so that rounded sums do not overlap."""
    whole = all(bool((side == np.floor(side)).all()) for side in (found.begin, found.until))
    return found.until if whole else np.maximum(found.begin, found.until * (1 - TOLERANCE))


def _there(found: Residents, device: int, moment: float) -> Ints:
    inside = (found.device == device) & (found.begin <= moment) & (_gone(found) > moment)
    return np.flatnonzero(inside)


def _held(found: Residents, device: int, moment: float, weights: float) -> float:
    return math.fsum([weights, *found.size[_there(found, device, moment)].tolist()])


def _too_much(instance: Instance, found: Residents, device: int, moment: float, held: float, weights: float) -> str:
    there = _there(found, device, moment)
    there = there[np.lexsort((found.task[there], -found.size[there]))]
    parts = [f"weights {weights:.12g}"] if weights else []
    for k in there[:_NAMED].tolist():
        label = repr(instance.labels[int(found.task[k])])
        parts.append(f"{'a copy of ' if found.copy[k] else ''}the result of {label} {found.size[k]:.12g}")
    if len(there) > _NAMED:
        parts.append(f"{len(there) - _NAMED} more")
    room = float(instance.capacity[device])
    return (
        f"device {instance.device_names[device]!r} holds {held:.12g} bytes at {moment:.9g} and has {room:.12g}: "
        f"{held - room:.12g} too many ({', '.join(parts)})"
    )
