r"""What to measure next, so that what is not measured can be estimated: which jobs on which device types, at least cost.

Two questions about a matrix of n jobs and m types, M of it measured, entry (i, j) costing c_ij to measure:

``connecting``: with times that are a factor of the job by a factor of the type, an entry follows from the measured ones exactly
when job and type are connected in the graph of measured entries. The cheapest entries that connect everything are a minimum
spanning tree of what M leaves apart, which is exact.

``anchors``: maps between types are fitted to jobs that are measured on a type and on a reference type r, in each class of jobs
(kinds of operations) by themselves. With z_ij in {0, 1} measured then (1 on M), w_ij in {0, 1} job i an anchor of type j,

    w_ij <= z_ij,  w_ij <= z_ir,   sum_{i in k} w_ij >= min(q, |k|)   for each class k and type j != r,   sum_j z_ij >= 1

at least cost sum c_ij z_ij (a set cover with several covers each; an integer program, exact); or, within a budget, with as many
as possible of the anchors that are asked for, sum_kj min(q, sum_{i in k} w_ij) (a greedy choice by anchors a unit of cost is
offered beside it: with equal costs and r measured everywhere it has at least 1 - 1/e of the best, as the sum is submodular
then).

Source: minimum spanning trees: J. Kruskal, 1956; submodular covering: G. Nemhauser, L. Wolsey, M. Fisher, 1978.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.errors import InputError

__all__ = ["Measurements", "anchors", "anchors_greedy", "connecting", "covered"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
PATIENCE = 60.0  # seconds for the integer program


class Measurements(NamedTuple):
    """(n, m) entries to measure, their cost, anchors there are then, and a bound on the cost (or anchors) of any choice."""

    chosen: Mask
    cost: float
    anchors: int
    bound: float | None


def _costs(measured: ArrayLike, cost: ArrayLike) -> tuple[Mask, Floats]:
    known, price = np.array(measured, bool), np.array(cost, np.float64)
    if known.ndim != 2 or price.shape != known.shape:
        raise InputError(f"costs of shape {price.shape} for a matrix of shape {known.shape}, expected the same")
    if (np.isnan(price) | (price < 0)).any():
        raise InputError("a cost is below 0 or no number; expected 0 or more, infinite where nothing can be measured")
    return known, price


def connecting(measured: ArrayLike, cost: ArrayLike) -> Measurements:
    """The cheapest entries that connect all jobs and types: exact.

    Parameters
    ----------
    measured
        (n, m) what is measured already.
    cost
        (n, m) cost of each entry, ``inf`` where it cannot be measured.

    Raises
    ------
    InputError
        Shapes or costs that cannot be, or no choice connects everything.
    """
    known, price = _costs(measured, cost)
    n, m = known.shape
    parent = list(range(n + m))

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for i, j in np.argwhere(known).tolist():
        parent[root(i)] = root(n + j)
    chosen = np.zeros_like(known)
    order = np.argsort(price, axis=None, kind="stable")
    for i, j in zip(*(index.tolist() for index in np.unravel_index(order, price.shape)), strict=True):
        if np.isfinite(price[i, j]) and root(i) != root(n + j):
            parent[root(i)] = root(n + j)
            chosen[i, j] = True
    apart = len({root(k) for k in range(n + m)})
    if apart > 1:
        raise InputError(
            f"what can be measured leaves {apart} parts that nothing connects; expected finite costs between them"
        )
    total = float(price[chosen].sum())
    return Measurements(chosen, total, 0, total)


def covered(measured: ArrayLike, reference: int, wanted: int, classes: ArrayLike | None = None) -> int:
    """Anchors that are asked for and there, sum over classes and types of min(wanted, anchors)."""
    known = np.array(measured, bool)
    of = np.zeros(len(known), np.int64) if classes is None else np.unique(np.asarray(classes), return_inverse=True)[1]
    both = known & known[:, [reference]]
    both[:, reference] = False
    count = np.zeros((int(of.max()) + 1, known.shape[1]), np.int64)
    np.add.at(count, of, both)
    return int(np.minimum(count, wanted).sum())


def anchors(
    measured: ArrayLike,
    cost: ArrayLike,
    reference: int,
    wanted: int = 3,
    *,
    classes: ArrayLike | None = None,
    budget: float | None = None,
) -> Measurements:
    """The cheapest measurements with the anchors asked for, or the most anchors within a budget: an integer program.

    Parameters
    ----------
    measured, cost
        As in :func:`connecting`.
    reference
        The type r to which others are mapped.
    wanted
        Anchors q for each class and type; a class of fewer jobs needs all of them.
    classes
        (n,) labels; one class when not given.
    budget
        Most that the measurements may cost together; None asks for all anchors at least cost.

    Raises
    ------
    InputError
        Numbers that cannot be, or there is no choice (without a budget), or the program found none in a minute.
    """
    from hetopt import solvers
    from hetopt.linear import LinearModel

    known, price = _costs(measured, cost)
    n, m = known.shape
    if not 0 <= reference < m or wanted < 1 or (budget is not None and not budget >= 0):
        raise InputError(
            f"reference {reference}, wanted {wanted}, budget {budget}: expected a type, 1 or more, 0 or more"
        )
    of = np.zeros(n, np.int64) if classes is None else np.unique(np.asarray(classes), return_inverse=True)[1]
    k = int(of.max()) + 1
    able = known | np.isfinite(price)
    model = LinearModel("anchors")
    z = model.binary("measure", (n, m), upper=able)
    w = model.binary("anchor", (n, m), upper=able & able[:, [reference]] & (np.arange(m) != reference))
    cell = np.arange(n * m)
    model.rows("own", n * m, [(cell, w.ravel(), 1.0), (cell, z.ravel(), -1.0)], upper=0)
    model.rows(
        "reference", n * m, [(cell, w.ravel(), 1.0), (cell, z[:, [reference]].repeat(m, axis=1).ravel(), -1.0)], upper=0
    )
    need = np.minimum(np.bincount(of, minlength=k), wanted)
    row = (of[:, None] * m + np.arange(m)).ravel()
    spent = np.where(known | ~able, 0.0, price)
    if budget is None:
        lower = np.where(np.arange(m) == reference, 0, need[:, None]).ravel()
        model.rows("anchors", k * m, [(row, w.ravel(), 1.0)], lower=lower)
        model.rows("seen", n, [(np.arange(n)[:, None], z, 1.0)], lower=1)
        model.minimize(z, spent)
    else:
        g = model.continuous("covered", (k, m), lower=0, upper=need[:, None])
        model.rows("anchors", k * m, [(row, w.ravel(), 1.0), (np.arange(k * m), g.ravel(), -1.0)], lower=0)
        model.rows("budget", 1, [(np.zeros(n * m, np.int64), z.ravel(), spent.ravel())], upper=budget)
        model.maximize(g)
    answer = solvers.get("highs").solve(model, solvers.Options(time_limit=PATIENCE))
    if answer.reason == "infeasible":
        raise InputError(
            f"what can be measured has no {wanted} anchors for each class and type; ask for fewer, or set a budget"
        )
    if answer.x is None:
        raise InputError(f"no choice of measurements was found in {PATIENCE:g} s; use the greedy one")
    chosen = (answer.x[z] > 0.5) & ~known
    if budget is not None:  # nothing is measured for nothing
        used = answer.x[w] > 0.5
        chosen &= used | ((used.sum(axis=1)[:, None] > 0) & (np.arange(m) == reference))
    there = covered(known | chosen, reference, wanted, classes)
    return Measurements(chosen, float(price[chosen].sum()), there, answer.bound)


def anchors_greedy(
    measured: ArrayLike,
    cost: ArrayLike,
    reference: int,
    wanted: int,
    budget: float,
    *,
    classes: ArrayLike | None = None,
) -> Measurements:
    """Entries by new anchors a unit of cost, one after another, a job's reference with the entry where it lacks it."""
    known, price = _costs(measured, cost)
    now, chosen, left = known.copy(), np.zeros_like(known), float(budget)
    while True:
        have, best = covered(now, reference, wanted, classes), None
        for i, j in np.argwhere(~now & np.isfinite(price)).tolist():
            if j == reference:
                continue
            with_reference = 0.0 if now[i, reference] else price[i, reference]
            spent = float(price[i, j] + with_reference)
            if not spent <= left:
                continue
            then = now.copy()
            then[i, [j, reference]] = True
            gain = covered(then, reference, wanted, classes) - have
            if gain > 0 and (best is None or gain / max(spent, 1e-300) > best[0]):
                best = (gain / max(spent, 1e-300), spent, i, j)
        if best is None:
            return Measurements(chosen, float(price[chosen].sum()), have, None)
        _, spent, i, j = best
        left -= spent
        for column in (j, reference):
            chosen[i, column] |= not now[i, column]
            now[i, column] = True
