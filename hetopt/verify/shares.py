"""Check time shares of jobs on device types, and add up what they give, sharing nothing with any model.

A job runs on one device type at a time: its shares add up to 1 at most. A job of scale s takes s of a type's workers (its
``slots``) while it runs there. Time that two jobs spend together on the same workers (:mod:`hetopt.verify.pairs`) counts for
both of them, and once for the workers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.verify.pairs import Together

__all__ = ["TOLERANCE", "rates", "share_violations", "throughputs"]

TOLERANCE = 1e-9
"""What shares may exceed a limit by, relative to it: shares are decimals, and sums of them are rounded."""


def rates(instance: Instance) -> NDArray[np.float64]:
    """(n, d) steps a second of each job on each type, the inverse of its time; 0 where it cannot run."""
    with np.errstate(divide="ignore"):
        return np.where(instance.eligible, 1.0 / instance.time, 0.0)


def throughputs(instance: Instance, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) steps a second that shares (n, d) give each job, exactly rounded sums."""
    return np.array([math.fsum(row) for row in (rates(instance) * shares).tolist()])


def share_violations(
    instance: Instance, shares: NDArray[np.float64] | None, most: int = 20, together: Together | None = None
) -> tuple[str, ...]:
    """A sentence for each limit that shares (n, d) break, at most ``most`` of each kind; with the time of pairs, if any."""
    n, d = instance.n_tasks, instance.n_devices
    if shares is None:
        return ("the plan has no shares",)
    if shares.shape != (n, d):
        return (f"the shares have shape {shares.shape}, expected ({n}, {d})",)
    if not np.isfinite(shares).all():
        return ("the plan has a share that is no finite number",)
    labels, names = instance.labels, instance.device_names
    found = [
        f"job {labels[k]!r} has the share {shares[k, i]:.9g} on {names[i]!r}, below 0"
        for k, i in np.argwhere(shares < 0)[:most].tolist()
    ]
    found += [
        f"job {labels[k]!r} has a share of {names[i]!r}, where it cannot run"
        for k, i in np.argwhere((shares > 0) & ~instance.eligible)[:most].tolist()
    ]
    total = shares.sum(axis=1) + (0.0 if together is None else together.time(n))
    found += [
        f"job {labels[k]!r} has shares that add up to {total[k]:.12g}, more than 1"
        for k in np.flatnonzero(total > 1 + TOLERANCE)[:most].tolist()
    ]
    scale = instance.columns.scale[instance.job_of]
    used = scale @ shares + (0.0 if together is None else together.used(scale, d))
    workers = np.array([device.slots for device in instance.devices], np.float64)
    found += [
        f"{names[i]!r} has {workers[i]:g} workers, and the shares take {used[i]:.12g}: {used[i] - workers[i]:.9g} too many"
        for i in np.flatnonzero(used > workers * (1 + TOLERANCE)).tolist()
    ]
    return tuple(found)
