"""Configurations of accelerators over classes of alike jobs: which jobs may be together, found block by block, and plans of them.

Jobs that may have one accelerator are alike when their rates, kind, floor and present place are: a configuration counts classes,
not jobs. A job that may have several is a class of its own, as its floor is its own.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.accelerator_facts import Facts, facts_of
from hetopt.verify.accelerators import SLACK

__all__ = ["Classes", "Columns", "classes_of", "gathered", "plan_of"]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
BLOCK = 1 << 18  # pairs of classes that are looked at together


class Columns(NamedTuple):
    """Configurations: (c,) type and watts above idle, (e,) entries of their members: column, class, steps a second."""

    device: Numbers
    watts: Floats
    column: Numbers
    member: Numbers
    rate: Floats

    def chosen(self, keep: NDArray[np.bool_]) -> Columns:
        """Those columns (c,) that are kept."""
        new = np.cumsum(keep) - 1
        mine = keep[self.column]
        return Columns(self.device[keep], self.watts[keep], new[self.column[mine]], self.member[mine], self.rate[mine])

    def members(self) -> list[list[int]]:
        """Classes of each configuration, sorted."""
        out: list[list[int]] = [[] for _ in range(len(self.device))]
        for column, member in zip(self.column.tolist(), self.member.tolist(), strict=True):
            out[column].append(member)
        return [sorted(row) for row in out]


def gathered(blocks: Iterable[Columns]) -> Columns:
    """All columns as one block."""
    parts = list(blocks)
    start = np.cumsum([0, *(len(part.device) for part in parts)])
    none = np.zeros(0, np.int64)
    if not parts:
        return Columns(none, np.zeros(0), none, none, np.zeros(0))
    moved = [part._replace(column=part.column + at) for part, at in zip(parts, start[:-1].tolist(), strict=True)]
    return Columns(*(np.concatenate(field) for field in zip(*moved, strict=True)))


class Classes(NamedTuple):
    """k classes of jobs with a floor.

    Attributes
    ----------
    jobs
        Members of each class, in file order.
    size, floor, most
        (k,) their number N, floor F, and accelerators D that each may have.
    first
        (k,) one member each.
    away
        (k, m) 1 where an accelerator on a type is a move, for jobs that may have one.
    facts
        The instance's numbers.
    """

    jobs: list[list[int]]
    size: Numbers
    floor: Floats
    most: Numbers
    first: Numbers
    away: Floats
    facts: Facts

    @property
    def many(self) -> NDArray[np.bool_]:
        """(k,) whether its one job may have several accelerators."""
        return self.most > 1

    @property
    def n_pairs(self) -> int:
        """Pairs of classes on a type at most."""
        kind = self.facts.pairs.kind[self.first]
        number = np.bincount(kind[kind >= 0], minlength=int(self.facts.pairs.second.max(initial=-1)) + 1)
        return int((number[self.facts.pairs.first] * number[self.facts.pairs.second]).sum())

    def enough(self, member: Numbers, rate: Floats) -> NDArray[np.bool_]:
        """Whether a rate serves a class: its floor, or more than nothing where it may have several."""
        return np.where(self.many[member], rate > 0, rate >= self.floor[member] * (1 - SLACK)) & (self.most[member] > 0)

    def blocks(self, move: float) -> Iterator[Columns]:
        """All configurations in which everybody is served well enough, with watts of moves: alone, in pairs, in groups."""
        k, m = len(self.first), self.facts.rate.shape[1]
        member, device = (index.ravel() for index in np.indices((k, m)))
        rate, watts = self.facts.rate[self.first], self.facts.watts[self.first]
        keep = self.enough(member, rate.ravel())
        yield self._block(device[keep], watts.ravel()[keep], member[keep][:, None], rate.ravel()[keep][:, None], move)
        for a, b, where, one, two, power in self._pairs():
            keep = self.enough(a, one) & self.enough(b, two)
            both, rates = np.column_stack([a, b])[keep], np.column_stack([one, two])[keep]
            yield self._block(where[keep], power[keep], both, rates, move)
        yield from self._groups(move)

    def _block(self, device: Numbers, watts: Floats, member: Numbers, rate: Floats, move: float) -> Columns:
        count = member.shape[1]
        above = watts - self.facts.idle[device] + move * self.away[member, device[:, None]].sum(axis=1)
        return Columns(device, above, np.repeat(np.arange(len(device)), count), member.ravel(), rate.ravel())

    def _pairs(self) -> Iterator[tuple[Any, ...]]:
        """Classes, type, rates and watts of pairs, block by block."""
        pairs, able = self.facts.pairs, self.facts.rate[self.first] > 0
        kind = pairs.kind[self.first]
        order = np.argsort(kind, kind="stable")
        kinds = int(pairs.second.max(initial=-1)) + 1
        start = np.searchsorted(kind[order], np.arange(kinds + 1))
        number = np.diff(start)
        a, b = pairs.first, pairs.second
        ends = np.cumsum(number[a] * number[b])
        for low in range(0, int(ends[-1]) if len(ends) else 0, BLOCK):
            place = np.arange(low, min(low + BLOCK, int(ends[-1])))
            row = np.searchsorted(ends, place, side="right")
            place -= ends[row] - number[a[row]] * number[b[row]]
            c, d = order[start[a[row]] + place // number[b[row]]], order[start[b[row]] + place % number[b[row]]]
            device = pairs.type[row]
            good = able[c, device] & able[d, device]
            good &= (a[row] != b[row]) | (c < d) | ((c == d) & (self.size[c] > 1))
            c, d, row = c[good], d[good], row[good]
            yield c, d, pairs.type[row], pairs.rate[row], pairs.other[row], self.facts.pair_watts[row]

    def _groups(self, move: float) -> Iterator[Columns]:
        of = defaultdict(list)
        for c, kind in enumerate(self.facts.pairs.kind[self.first].tolist()):
            of[kind].append(c)
        for group in self.facts.groups.values():
            rates = dict(zip(group.kinds, group.rate, strict=True))
            parts = [
                list(itertools.combinations_with_replacement(of[kind], len(list(same))))
                for kind, same in itertools.groupby(group.kinds)
            ]
            found = []
            for choice in itertools.product(*parts):
                members = [c for part in choice for c in part]
                if all(members.count(c) <= self.size[c] for c in members):
                    found.append(members)
            if not found:
                continue
            member = np.array(found, np.int64)
            rate = np.broadcast_to(np.array([rates[kind] for kind in group.kinds]), member.shape)
            able = self.facts.rate[self.first[member], group.device] > 0
            keep = (self.enough(member.ravel(), rate.ravel()).reshape(member.shape) & able).all(axis=1)
            device = np.full(int(keep.sum()), group.device)
            yield self._block(device, np.full(len(device), group.watts), member[keep], rate[keep], move)


@lru_cache(maxsize=4)
def classes_of(instance: Instance, caution: float) -> Classes:
    """Classes of an instance whose estimated rates are lowered with this caution."""
    facts = facts_of(instance, caution)
    runs = np.flatnonzero(facts.floor > 0)
    own = np.where(facts.most[runs] > 1, runs, -1)
    alike = np.column_stack(
        [facts.rate[runs], facts.watts[runs], facts.pairs.kind[runs], facts.floor[runs], facts.most[runs],
         facts.current[runs], own]
    )  # fmt: skip
    _, first, of = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    jobs: list[list[int]] = [[] for _ in range(len(first))]
    for job, c in zip(runs.tolist(), of.ravel().tolist(), strict=True):
        jobs[c].append(job)
    chosen = runs[first]
    now = facts.current[chosen]
    away = (now == 0) & (now.sum(axis=1) > 0)[:, None] & (facts.most[chosen] == 1)[:, None]
    return Classes(
        jobs, np.array([len(row) for row in jobs], np.int64), facts.floor[chosen], facts.most[chosen], chosen,
        away.astype(np.float64), facts,
    )  # fmt: skip


def plan_of(instance: Instance, classes: Classes, columns: Columns, count: Numbers) -> Solution:
    """A plan that has each configuration (c,) so many times; members of a class are dealt in file order.

    Raises
    ------
    ValueError
        A class is asked for more members than it has.
    """
    left = [
        iter(jobs) if many == 0 else itertools.repeat(jobs[0])
        for jobs, many in zip(classes.jobs, classes.many, strict=True)
    ]
    names, labels = instance.device_names, instance.labels
    used = np.flatnonzero(count > 0)
    keep = np.zeros(len(count), bool)
    keep[used] = True
    some = columns.chosen(keep)
    rows = []
    for device, members, times in zip(some.device.tolist(), some.members(), count[used].tolist(), strict=True):
        for _ in range(times):
            try:
                jobs = sorted([next(left[c]) for c in members])
            except StopIteration:
                raise ValueError("a job is on more accelerators than it may have") from None
            rows.append([names[device], [labels[k] for k in jobs]])
    return Solution(details={"accelerators": rows})
