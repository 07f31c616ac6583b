"""The program of least power over some configurations, and the bound of prices over all of them.

Numbers of equations are those of :mod:`formulations.sharing.energy`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._configurations import Classes, Columns
from hetopt.instance import Instance
from hetopt.linear import LinearModel

__all__ = ["Program", "bound_of", "idle_watts", "program"]

Floats = NDArray[np.float64]
ROUNDING = 2.0**-40  # of all that is added up in (6)


class Program(LinearModel):
    """(1)-(5) over some configurations, which it remembers to read a point back."""

    classes: Classes
    columns_of: Columns


def idle_watts(classes: Classes) -> float:
    """sum_a I_a C_a."""
    return math.fsum((classes.facts.workers * classes.facts.idle).tolist())


def program(
    instance: Instance, classes: Classes, columns: Columns, move: float, *,
    out: float | None = None, more: float | None = None, watts: bool = True,
) -> Program:  # fmt: skip
    """The model.

    Parameters
    ----------
    out
        Cost of a job that is left out; None where none may be.
    more
        Cost of an accelerator beyond those there are; None where there is none.
    watts
        Whether watts count.
    """
    model = Program("energy")
    model.classes, model.columns_of = classes, columns
    facts, names = classes.facts, instance.device_names
    k, count = len(classes.first), len(columns.device)
    many = classes.many[columns.member]
    most = facts.workers[columns.device].astype(np.float64)
    np.minimum.at(most, columns.column, np.where(many, classes.most[columns.member], classes.size[columns.member]))
    if more is not None:
        most = np.full(count, np.inf)
    short = [instance.labels[job] for job in classes.first.tolist()]
    labels = [
        f"{names[i]}: {' + '.join(short[c] for c in members)}"
        for i, members in zip(columns.device.tolist(), columns.members(), strict=True)
    ]
    x = model.integer("accelerators", count, lower=0, upper=most, labels=(labels,))
    one, several = np.flatnonzero(~classes.many), np.flatnonzero(classes.many)
    row = np.empty(k, np.int64)
    row[one], row[several] = np.arange(len(one)), np.arange(len(several))
    at, who = columns.column, columns.member
    class_terms: list[Any] = [(row[who[~many]], x[at[~many]], 1.0)]
    floor_terms: list[Any] = [(row[who[many]], x[at[many]], columns.rate[many] / classes.floor[who[many]])]
    room_terms: list[Any] = [(columns.device, x, 1.0)]
    costs, values = [x], [columns.watts * watts]
    if out is not None:
        left = model.integer("out", k, lower=0, upper=classes.size)
        class_terms.append((np.arange(len(one)), left[one], 1.0))
        floor_terms.append((np.arange(len(several)), left[several], 1.0))
        costs, values = [*costs, left], [*values, np.full(k, out)]
    if more is not None:
        extra = model.integer("more", len(names), lower=0, labels=(names,))
        room_terms.append((np.arange(len(names)), extra, -1.0))
        costs, values = [*costs, extra], [*values, np.full(len(names), more)]
    model.rows("class", len(one), class_terms, lower=classes.size[one], upper=classes.size[one])  # (5)
    model.rows("floor", len(several), floor_terms, lower=1.0)  # (1)
    model.rows("most", len(several), [(row[who[many]], x[at[many]], 1.0)], upper=classes.most[several])  # (2)
    model.rows("accelerators", len(names), room_terms, upper=facts.workers, labels=(names,))  # (3)
    runs = several[facts.current[classes.first[several]].sum(axis=1) > 0]
    if move > 0 and watts and len(runs):
        m = len(names)
        y = model.continuous("moves", (len(runs), m), lower=0, upper=classes.most[runs][:, None])
        place = np.full(k, -1)
        place[runs] = np.arange(len(runs))
        mine = place[who] >= 0
        cell = place[who[mine]] * m + columns.device[at[mine]]
        now = facts.current[classes.first[runs]].ravel()
        model.rows("moves", y.size, [(cell, x[at[mine]], 1.0), (np.arange(y.size), y.ravel(), -1.0)], upper=now)  # (4)
        costs, values = [*costs, y.ravel()], [*values, np.full(y.size, move)]
    model.minimize(np.concatenate(costs), np.concatenate(values), offset=idle_watts(classes) if watts else 0.0)
    return model


def bound_of(classes: Classes, prices: Floats, move: float) -> float:
    """(6) for prices (k,) of classes: no plan takes fewer watts, rounding included."""
    facts = classes.facts
    best = np.zeros(len(facts.workers))
    for block in classes.blocks(move):
        offer = np.bincount(block.column, prices[block.member], len(block.device)) - block.watts
        np.maximum.at(best, block.device, offer)
    terms = [*(classes.size * prices).tolist(), *(-facts.workers * best).tolist()]
    size = math.fsum(abs(v) for v in terms) + float(facts.workers @ (np.abs(best) + facts.idle))
    return math.fsum([idle_watts(classes), *terms]) - ROUNDING * size
