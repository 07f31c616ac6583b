"""Operators one after the other, each split over unlike processors: a program over a forest of inputs, weights, descent.

A *state* of an operator is how many units each device has of it. Arrays in, arrays out; no compiled code is needed, since
everything is a maximum or a sum over small tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Split", "improve", "program", "seconds", "states_of", "worst_case_prices"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Split(NamedTuple):
    """``n`` operators, ``d`` devices, ``w`` scenarios, ``e`` edges.

    Attributes
    ----------
    states
        Of each operator (s, d) units.
    base
        Of each operator (s, w, d) seconds on each device without inputs, ``-inf`` where it has no units.
    source, target
        (e,) ends of edges.
    moved
        Of each edge (s of its source, d) seconds until its data are on a device.
    inputs
        (n,) edge of each operator that the program keeps, -1 for none.
    """

    states: list[Ints]
    base: list[Floats]
    source: Ints
    target: Ints
    moved: list[Floats]
    inputs: Ints


def states_of(able: Ints, d: int, grain: int, whole: bool) -> Ints:
    """(s, d) every way to give ``grain`` units to the devices in ``able``, or to one of them."""
    rows: list[list[int]] = []

    def fill(row: list[int], left: int) -> None:
        if len(row) == len(able) - 1:
            rows.append([*row, left])
            return
        for units in range(left + 1):
            fill([*row, units], left - units)

    if whole:
        rows = (grain * np.eye(len(able), dtype=np.int64)).tolist()
    else:
        fill([], grain)
    found = np.zeros((len(rows), d), np.int64)
    found[:, able] = rows
    return found


def seconds(split: Split, choice: Ints, *, kept_only: bool = False) -> Floats:
    """(n, w) seconds of each operator in its chosen state; with the program's inputs only, or with all."""
    n = len(split.states)
    late = np.zeros((n, split.base[0].shape[2]))
    for e, (u, v) in enumerate(zip(split.source.tolist(), split.target.tolist(), strict=True)):
        if not kept_only or split.inputs[v] == e:
            late[v] += split.moved[e][choice[u]]
    return np.array([(split.base[v][choice[v]] + late[v]).max(axis=1) for v in range(n)])


def program(split: Split, weights: Floats) -> tuple[float, Ints]:
    """Least weighted seconds with the kept inputs alone, and the states (n,); O(n s^2 w d)."""
    n = len(split.states)
    parent = [int(split.source[e]) if e >= 0 else -1 for e in split.inputs.tolist()]
    children: list[list[int]] = [[] for _ in range(n)]
    for v, u in enumerate(parent):
        if u >= 0:
            children[u].append(v)
    order = [v for v in range(n) if parent[v] < 0]
    for v in order:
        order += children[v]
    rest = [np.zeros(len(some)) for some in split.states]
    best: list[Ints] = [np.zeros(0, np.int64)] * n
    total = 0.0
    for v in reversed(order):
        u = parent[v]
        late = np.zeros((1, split.base[v].shape[2])) if u < 0 else split.moved[split.inputs[v]]
        cost = np.zeros((len(late), len(rest[v])))
        for w in np.flatnonzero(weights).tolist():
            cost += weights[w] * (late[:, None, :] + split.base[v][None, :, w, :]).max(axis=2)
        cost += rest[v]
        best[v] = cost.argmin(axis=1)
        least = cost[np.arange(len(late)), best[v]]
        if u >= 0:
            rest[u] += least
        else:
            total += float(least[0])
    choice = np.zeros(n, np.int64)
    for v in order:
        choice[v] = best[v][choice[parent[v]] if parent[v] >= 0 else 0]
    return total, choice


def improve(
    split: Split, choice: Ints, value: Callable[[Floats], Floats], should_stop: Callable[[], bool] = lambda: False
) -> Ints:
    """Change one operator's state at a time while that makes ``value`` of the sums (..., w) smaller; all inputs count."""
    choice = choice.copy()
    n, d = len(split.states), split.base[0].shape[2]
    into = [np.flatnonzero(split.target == v).tolist() for v in range(n)]
    out = [np.flatnonzero(split.source == v).tolist() for v in range(n)]
    own = seconds(split, choice)
    better = True
    while better and not should_stop():
        better = False
        for v in range(n):
            late = sum((split.moved[e][choice[split.source[e]]] for e in into[v]), np.zeros(d))
            total = own.sum(axis=0) - own[v] + (split.base[v] + late).max(axis=2)  # (s, w)
            for e in out[v]:
                c = int(split.target[e])
                others = sum((split.moved[f][choice[split.source[f]]] for f in into[c] if f != e), np.zeros(d))
                after = (split.moved[e] + others)[:, None, :] + split.base[c][choice[c]][None]
                total = total - own[c] + after.max(axis=2)
            values = value(total)
            k = int(np.argmin(values))
            if values[k] < values[choice[v]] * (1 - 1e-12):
                choice[v], better = k, True
                own = seconds(split, choice)
            if should_stop():
                break
    return choice


def worst_case_prices(
    split: Split,
    report: Callable[[float, Floats, Ints], object],
    *,
    rounds: int = 60,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Weights (w,) of scenarios under which the program's value, a bound on the worst case, grows; each is reported."""
    scenarios = split.base[0].shape[1]
    weights, best = np.full(scenarios, 1.0 / scenarios), -np.inf
    centre = weights
    for corner in np.eye(scenarios):
        bound, choice = program(split, corner)
        report(bound, corner, choice)
        if should_stop():
            return
    for k in range(rounds if scenarios > 1 else 0):
        bound, choice = program(split, weights)
        report(bound, weights, choice)
        if bound > best:
            best, centre = bound, weights
        if should_stop():
            return
        total = seconds(split, choice, kept_only=True).sum(axis=0)
        spread = total.max() - total.min()
        if spread <= 0:
            return
        step = np.exp(4.0 / (1 + k) * (total - total.max()) / spread)
        start = centre if k % 5 == 4 else weights
        weights = start * step + 1e-12
        weights = weights / weights.sum()
