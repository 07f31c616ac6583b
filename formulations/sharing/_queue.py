"""The queue of a co-scheduling question as arrays: kinds, the sets that may be, and plans made of numbers of sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.corun import Set, coruns_of

__all__ = ["Queue", "encoded", "plan_of", "queue_of"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Queue(NamedTuple):
    """K kinds, s sets that no other one makes useless.

    Attributes
    ----------
    names, size
        (K,) kinds and their jobs, N.
    has
        (s, K) jobs of each kind in a set.
    seconds, watts
        (s,) of a set.
    sets
        (s,) records.
    site, nodes
        Watts of all sets together, None where they run one by one; nodes.
    """

    names: tuple[str, ...]
    size: Numbers
    has: Numbers
    seconds: Floats
    watts: Floats
    sets: tuple[Set, ...]
    site: float | None
    nodes: int

    def most(self) -> Floats:
        """(s,) how often a set can be in a plan."""
        per = np.where(self.has > 0, self.size // np.maximum(self.has, 1), np.iinfo(np.int64).max)
        return np.asarray(per.min(axis=1), np.float64)

    def labels(self) -> list[str]:
        """(s,) names of the sets."""
        return [
            f"{' + '.join(self.names[k] for k in one.kinds)} {one.configuration} {one.watts:.17g} W"
            for one in self.sets
        ]

    def alone(self) -> Floats:
        """(K,) least seconds alone; ``inf`` where a kind cannot be."""
        single = self.has.sum(axis=1) == 1
        least = np.where(self.has[single] > 0, self.seconds[single][:, None], np.inf).min(axis=0, initial=np.inf)
        return np.asarray(least, np.float64)


def queue_of(instance: Instance, question: Mapping[str, Any]) -> Queue:
    """The sets within the question's limits; of two of the same jobs, one that takes no fewer seconds nor watts is left out."""
    known = coruns_of(instance)
    size = np.bincount(known.kind, minlength=len(known.names))
    cap, group, site = question["cap"], question["group"], question["site"]
    open_sets = [
        one
        for one in known.sets
        if len(one.kinds) <= group
        and (cap is None or one.watts <= cap * (1 + 1e-12))
        and all(n <= size[k] for k, n in Counter(one.kinds).items())
    ]
    kept: list[Set] = []
    for one in sorted(open_sets, key=lambda one: (one.kinds, one.seconds, one.watts, one.configuration)):
        last = kept[-1] if kept and kept[-1].kinds == one.kinds else None
        if last is None or (site is not None and one.watts < last.watts):
            kept.append(one)
    count = np.zeros((len(kept), len(known.names)), np.int64)
    for c, one in enumerate(kept):
        for k in one.kinds:
            count[c, k] += 1
    return Queue(
        known.names, size, count, np.array([one.seconds for one in kept], np.float64),
        np.array([one.watts for one in kept], np.float64), tuple(kept), site, instance.devices[0].slots,
    )  # fmt: skip


def plan_of(instance: Instance, queue: Queue, times: Numbers) -> Solution:
    """A plan that has each set (s,) so many times; jobs of a kind are dealt in file order.

    Raises
    ------
    ValueError
        Sets take more jobs of a kind than there are.
    """
    kind = coruns_of(instance).kind
    left = [iter(np.flatnonzero(kind == k).tolist()) for k in range(len(queue.names))]
    rows = []
    for one, count in zip(queue.sets, times.tolist(), strict=True):
        for _ in range(count):
            try:
                jobs = sorted([next(left[k]) for k in one.kinds])
            except StopIteration:
                raise ValueError("sets take more jobs of a kind than there are") from None
            rows.append([[instance.labels[job] for job in jobs], one.configuration, one.watts])
    return Solution(details={"sets": rows})


def encoded(instance: Instance, queue: Queue, solution: Solution) -> Floats | None:
    """(s,) how often a plan has each set; None where it has one that the queue left out."""
    known = coruns_of(instance)
    number = {(one.kinds, one.configuration, one.watts): c for c, one in enumerate(queue.sets)}
    point = np.zeros(len(queue.sets))
    for jobs, configuration, watts in solution.details.get("sets", ()):
        kinds = tuple(sorted(int(known.kind[instance.task_index[job]]) for job in jobs))
        at = number.get((kinds, configuration, float(watts)))
        if at is None:
            return None
        point[at] += 1.0
    return point
