"""A sequence of layers on pools of equal units: every trade of seconds between two items against joules an item.

States are the boundary reached, the units taken of each pool and the pool of the last stage; each keeps the undominated pairs of
(longest stage so far, active energy so far). What idle units draw is known at the end: it is the period times a number that the
units taken say. The pairs of all ends, undominated, are the Pareto front. What it is not: it reads no instance.

Source: the question is that of Z. Bai et al., DyPe, arXiv 2502.06304; a program over stages of (type, number) is theirs, labels
that are pairs are the usual way to a front (P. Hansen, Bicriterion path problems, LNEMS 177, 1980).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ParetoPoint", "StageTable", "pareto_front"]

MARGIN = 1e-12  # relative, below which two points are one


@dataclass(frozen=True, eq=False)
class StageTable:
    """``n`` layers on ``t`` pools.

    Attributes
    ----------
    work
        (t, k, n + 1, n + 1) seconds of the stage from boundary i to j on 1..k units, ``inf`` where impossible.
    receive
        (t, t, n + 1) seconds to receive what passes a boundary from another stage's pool (first axis), ``inf`` where it cannot.
    active, idle
        (t,) watts of a unit at work beyond those when idle, and when idle.
    units
        (t,) units of each pool.
    """

    work: NDArray[np.float64]
    receive: NDArray[np.float64]
    active: NDArray[np.float64]
    idle: NDArray[np.float64]
    units: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """States times stages from each, at most."""
        t, k, n = *self.work.shape[:2], self.work.shape[2] - 1
        return int(math.prod(int(units) + 1 for units in self.units) * t * t * k * n * n)


@dataclass(frozen=True)
class ParetoPoint:
    """Seconds between items, joules an item, and stages ``(pool, begin, end, units)`` that take them."""

    period: float
    energy: float
    stages: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, eq=False)
class _Labels:
    """(m,) longest stage and active energy; (m, 2) the step that led here, and the label it came from."""

    period: NDArray[np.float64]
    energy: NDArray[np.float64]
    origin: NDArray[np.int64]


def pareto_front(
    table: StageTable, most_period: float, most_energy: float, should_stop: Callable[[], bool]
) -> list[ParetoPoint] | None:
    """Undominated points of a period and an energy that are allowed, by period ascending; None when told to stop."""
    t, n = len(table.units), table.work.shape[2] - 1
    steps: list[tuple[tuple[int, ...], int, int, int, int]] = []  # state before, pool, begin, end, units
    origin = (0, -1, *(0,) * t)  # boundary, last pool, units taken of each
    kept = {origin: _Labels(np.zeros(1), np.zeros(1), np.full((1, 2), -1))}
    grown: dict[tuple[int, ...], list[_Labels]] = {}
    usages = list(itertools.product(*(range(k + 1) for k in table.units.tolist())))
    for i in range(n):
        states = [origin] if not i else [(i, pool, *usage) for pool in range(t) for usage in usages]
        for state in states:
            if should_stop():
                return None
            if state != origin:
                found = grown.pop(state, None)
                if found is None:
                    continue
                kept[state] = _undominated(found)
            _grow(table, state, kept[state], most_period, steps, grown)
    ends = [(state, _undominated(found)) for state, found in sorted(grown.items())]
    points = []
    for state, labels in ends:
        energy = labels.energy + labels.period * float(np.dot(table.idle, state[2:]))
        points += [
            (p, e, state, k) for k, (p, e) in enumerate(zip(labels.period.tolist(), energy.tolist(), strict=True))
        ]
        kept[state] = labels
    points.sort()
    front: list[ParetoPoint] = []
    for period, joules, state, k in points:
        if joules <= most_energy and (not front or joules < front[-1].energy * (1 - MARGIN)):
            front.append(ParetoPoint(period, joules, _trace(kept, steps, state, k)))
    return front


def _grow(
    table: StageTable,
    state: tuple[int, ...],
    labels: _Labels,
    most_period: float,
    steps: list[tuple[tuple[int, ...], int, int, int, int]],
    grown: dict[tuple[int, ...], list[_Labels]],
) -> None:
    """Append every stage to the labels of a state."""
    i, last, usage = state[0], state[1], state[2:]
    for pool, total in enumerate(table.units.tolist()):
        received = float(table.receive[last, pool, i]) if i else 0.0
        for units in range(1, total - usage[pool] + 1):
            row = table.work[pool, units - 1, i]
            for j in np.flatnonzero(row + received <= most_period).tolist():
                if not np.isfinite(row[j] + received):
                    continue
                period = np.maximum(labels.period, row[j] + received)
                energy = labels.energy + units * table.active[pool] * row[j]
                came = np.column_stack([np.full(len(period), len(steps)), np.arange(len(period))])
                steps.append((state, pool, i, j, units))
                after = (j, pool, *usage[:pool], usage[pool] + units, *usage[pool + 1 :])
                grown.setdefault(after, []).append(_Labels(period, energy, came))


def _undominated(found: list[_Labels]) -> _Labels:
    """The labels of which no other has at most the period and at most the energy; of equal ones the first."""
    period = np.concatenate([labels.period for labels in found])
    energy = np.concatenate([labels.energy for labels in found])
    order = np.lexsort((energy, period))
    least = np.minimum.accumulate(energy[order])
    first = np.ones(len(order), bool)
    first[1:] = energy[order][1:] < least[:-1]
    keep = order[first]
    return _Labels(period[keep], energy[keep], np.concatenate([labels.origin for labels in found])[keep])


def _trace(
    kept: dict[tuple[int, ...], _Labels],
    steps: list[tuple[tuple[int, ...], int, int, int, int]],
    state: tuple[int, ...],
    label: int,
) -> tuple[tuple[int, int, int, int], ...]:
    stages = []
    while state[0]:
        step, label = kept[state].origin[label].tolist()
        state, pool, begin, end, units = steps[step]
        stages.append((pool, begin, end, units))
    return tuple(stages[::-1])
