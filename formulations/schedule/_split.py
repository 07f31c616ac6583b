"""An instance as tables of states, a choice of states as a plan, and the plan that runtimes fall back to."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.operator_split import Split, states_of
from hetopt.formulation import Question
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.operators import Facts, facts_of
from hetopt.verify.schedule import links_between

__all__ = ["data_of", "fallback", "plan_of", "totals_value"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def data_of(instance: Instance, question: Question, *, tables: bool = True) -> Split:
    """Tables of states in units of the question's grain; without ``tables`` the instance is only looked at.

    Raises
    ------
    InputError
        A table of the instance cannot be read, or no link leads where an input must go.
    """
    return _data(instance, int(question["grain"]) if tables else 0)


@lru_cache(maxsize=4)
def _data(instance: Instance, grain: int) -> Split:
    facts, d = facts_of(instance), instance.n_devices
    latency, slowness = links_between(instance)
    e = instance.edges
    may = instance.eligible.astype(np.float64)
    talks = may[e[:, 0]].T @ may[e[:, 1]] > 0 if len(e) else np.zeros((d, d), bool)
    for p, q in np.argwhere(talks & np.isinf(latency))[:1].tolist():
        instance.need_link(instance.device_names[p], instance.device_names[q])
    latency = np.where(np.isfinite(latency), latency, 0.0)
    if grain == 0:
        return Split([], [], e[:, 0], e[:, 1], [], np.zeros(0, np.int64))
    time = np.where(instance.eligible, instance.time, 0.0)
    states, base = [], []
    for v in range(instance.n_tasks):
        units = states_of(np.flatnonzero(instance.eligible[v]), d, grain, bool(facts.whole[v]))
        used = units > 0
        apart = used.sum(axis=1) > 1
        fixed = facts.launch[None, :] + np.where(apart[:, None], facts.merge[None, :], 0.0)
        work = fixed[:, None, :] + facts.slowdown[None, :, :] * (time[v] * units / grain)[:, None, :]
        states.append(units)
        base.append(np.where(used[:, None, :], work, -np.inf))
    moved = [
        (states[u] > 0).astype(np.float64) @ latency + states[u] @ (data * slowness) / grain
        for u, data in zip(e[:, 0].tolist(), instance.edge_data.tolist(), strict=True)
    ]
    inputs = np.full(instance.n_tasks, -1, np.int64)
    for k, v in enumerate(e[:, 1].tolist()):
        if inputs[v] < 0 or moved[k].max(initial=0.0) > moved[inputs[v]].max(initial=0.0):
            inputs[v] = k
    return Split(states, base, e[:, 0], e[:, 1], moved, inputs)


def plan_of(data: Split, choice: Ints, question: Question) -> Solution:
    """The plan of a state (n,) of each operator."""
    units = np.array([some[k] for some, k in zip(data.states, choice.tolist(), strict=True)])
    return Solution(shares=units / int(question["grain"]))


def totals_value(facts: Facts, question: Question) -> Callable[[Floats], Floats]:
    """Value of the sums (..., w) over operators: their worst or their mean."""
    if question["robust"] == "worst":
        return lambda totals: np.asarray(totals.max(axis=-1))
    return lambda totals: np.asarray(totals @ facts.probability)


def fallback(instance: Instance, data: Split, facts: Facts, first: int) -> Ints:
    """(n,) states with each operator whole on device ``first``, or where it is fastest when that one does not support it."""
    choice = np.zeros(instance.n_tasks, np.int64)
    for v, units in enumerate(data.states):
        i = first if instance.eligible[v, first] else int(np.argmin(instance.time[v]))
        choice[v] = int(np.argmax(units[:, i]))
    return choice
