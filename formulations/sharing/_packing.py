"""Classes of alike jobs of which two may share a worker: their columns, the prices they prove, and plans for every member.

Jobs of equal rates, scale, weight, kind (and prices, where these are given) are a class: by convexity the average over alike jobs
of an optimum is an optimum, so a class's totals say everything, and the members' shares may be taken equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import cluster_of
from formulations.sharing._prices import ROUNDING
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.pairs import PairRates, pair_rates

__all__ = ["Classes", "Pairs", "classes_of", "expanded", "joined"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
BLOCK = 1 << 19  # columns of pairs that are looked at together


class Pairs(NamedTuple):
    """Columns of two classes (or one, ``first == second``) on a type: (q,) classes, device, levels of one job of each."""

    first: Numbers
    second: Numbers
    device: Numbers
    gain: Floats
    other: Floats


def joined(blocks: Iterable[Pairs]) -> Pairs:
    """All columns as one block."""
    parts = list(blocks)
    if not parts:
        none = np.zeros(0, np.int64)
        return Pairs(none, none, none, np.zeros(0), np.zeros(0))
    return Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Classes(NamedTuple):
    """k classes of jobs on m types.

    Attributes
    ----------
    of
        (n,) class of each job.
    members
        (k,) their number, N.
    gain
        (k, m) level that all its time alone on a type gives a job, f T.
    factor
        (k,) level for a step a second, f.
    scale, workers
        (k,) s, (m,) C.
    kind
        (k,) kind, -1 without one.
    rates
        The instance's rates of pairs.
    """

    of: Numbers
    members: Floats
    gain: Floats
    factor: Floats
    scale: Floats
    workers: Floats
    kind: Numbers
    rates: PairRates

    @property
    def n_pairs(self) -> int:
        """Columns of pairs at most, both ways round."""
        size = np.bincount(self.kind[self.kind >= 0], minlength=int(self.rates.second.max(initial=-1)) + 1)
        return int((size[self.rates.first] * size[self.rates.second]).sum())

    def pairs(self) -> Iterator[Pairs]:
        """All columns of pairs, block by block; nothing is held but a block."""
        order = np.argsort(self.kind, kind="stable")
        kinds = int(self.rates.second.max(initial=-1)) + 1
        start = np.searchsorted(self.kind[order], np.arange(kinds + 1))
        size = np.diff(start)
        a, b = self.rates.first, self.rates.second
        ends = np.cumsum(size[a] * size[b])
        for low in range(0, int(ends[-1]) if len(ends) else 0, BLOCK):
            place = np.arange(low, min(low + BLOCK, int(ends[-1])))
            row = np.searchsorted(ends, place, side="right")
            place -= ends[row] - size[a[row]] * size[b[row]]
            c = order[start[a[row]] + place // size[b[row]]]
            d = order[start[b[row]] + place % size[b[row]]]
            device = self.rates.type[row]
            good = (self.scale[c] == self.scale[d]) & (self.gain[c, device] > 0) & (self.gain[d, device] > 0)
            good &= (a[row] != b[row]) | (c < d) | ((c == d) & (self.members[c] > 1))
            c, d, row, device = c[good], d[good], row[good], device[good]
            yield Pairs(c, d, device, self.factor[c] * self.rates.rate[row], self.factor[d] * self.rates.other[row])

    def most(self, u: Floats, v: Floats, p: Floats) -> float:
        """What prices of levels (k,), of a job's time (k,) and of workers (m,) leave: no plan has sum N u L above it, rounded up.

        Prices of time are raised where a column would gain by its own: each job of a pair pays half of what is missing.
        """
        alone = np.where(self.gain > 0, u[:, None] * self.gain - self.scale[:, None] * p[None, :], 0.0)
        turns = np.maximum(v, alone.max(axis=1))
        missing = np.zeros(len(u))
        for pairs in self.pairs():
            c, d, device = pairs.first, pairs.second, pairs.device
            offer = u[c] * pairs.gain + u[d] * pairs.other - self.scale[c] * p[device] - turns[c] - turns[d]
            np.maximum.at(missing, c, offer)
            np.maximum.at(missing, d, offer)
        total = math.fsum((self.members * (turns + missing / 2)).tolist()) + math.fsum((p * self.workers).tolist())
        if not math.isfinite(total):
            raise ValueError("the prices prove nothing")
        return total * (1 + ROUNDING)


def classes_of(instance: Instance, factor: Floats, *prices: Floats) -> Classes:
    """Classes of jobs whose level is ``factor`` (n,) times their steps a second; jobs of other ``prices`` (n,) are told apart."""
    cluster, rates = cluster_of(instance), pair_rates(instance)
    alike = np.column_stack([cluster.rate, cluster.scale, factor, rates.kind, *prices])
    _, first, of, count = np.unique(alike, axis=0, return_index=True, return_inverse=True, return_counts=True)
    rate, scale = cluster.rate[first], cluster.scale[first]
    return Classes(
        of.ravel(), count.astype(np.float64), rate * factor[first][:, None], factor[first], scale, cluster.workers,
        rates.kind[first], rates,
    )  # fmt: skip


def expanded(instance: Instance, classes: Classes, alone: Floats, pairs: Pairs, time: Floats) -> Solution:
    """A plan for all jobs from totals of classes: time alone (k, m), and time (q,) of pairs.

    Each member of a class gets the same. Two classes of N and M members meet in the order of the file, as two rods cut into N and
    M parts and laid side by side: N + M - 1 pairs of jobs at most, and the parts are exact. Within a class of even size the first
    meets the second, and so on; three that are left over meet one another. A little that a solver's tolerance gave too much is
    scaled back.
    """
    cluster = cluster_of(instance)
    alone, time = np.where(classes.gain > 0, np.maximum(alone, 0.0), 0.0), np.maximum(time, 0.0)
    keep = time > 1e-12 * classes.members[pairs.first]
    c, d, device, time = pairs.first[keep], pairs.second[keep], pairs.device[keep], time[keep]
    k, m = alone.shape
    own = alone.sum(axis=1) + np.bincount(c, time, k) + np.bincount(d, time, k)
    room = 1.0 / np.maximum(own / classes.members, 1.0)
    alone, time = alone * room[:, None], time * np.minimum(room[c], room[d])
    used = classes.scale @ alone + np.bincount(device, time * classes.scale[c], m)
    less = np.minimum(1.0, cluster.workers / np.maximum(used, 1e-300))
    alone, time = alone * less, time * less[device]
    order = np.argsort(classes.of, kind="stable")
    start = np.searchsorted(classes.of[order], np.arange(k + 1))
    labels, names = instance.labels, instance.device_names
    rows: list[list[Any]] = []
    for one, two, where, much in zip(c.tolist(), d.tolist(), device.tolist(), time.tolist(), strict=True):
        i, j, part = _met(len_of(start, one), None if one == two else len_of(start, two))
        members = order[start[one] + i].tolist(), order[start[two] + j].tolist()
        rows += [
            [labels[a], labels[b], names[where], much * share]
            for a, b, share in zip(*members, part.tolist(), strict=True)
        ]
    shares = (alone / classes.members[:, None])[classes.of]
    return Solution(shares=shares, details={"together": rows})


def len_of(start: Numbers, k: int) -> int:
    """Members of a class."""
    return int(start[k + 1] - start[k])


def _met(n: int, m: int | None) -> tuple[Numbers, Numbers, Floats]:
    """Numbers of the members that meet, and the part of their classes' time together, for classes of n and m, or n in one."""
    if m is not None:
        cuts = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
        return cuts[:-1] // m, cuts[:-1] // n, np.diff(cuts) / (n * m)
    even = np.arange(0, n if n % 2 == 0 else n - 3, 2)
    i, j, part = even, even + 1, np.full(len(even), 2.0 / n)
    if n % 2:
        i, j = np.r_[i, n - 3, n - 3, n - 2], np.r_[j, n - 2, n - 1, n - 1]
        part = np.r_[part, np.full(3, 1.0 / n)]
    return i, j, part
