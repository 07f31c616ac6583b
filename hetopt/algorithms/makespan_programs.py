"""Groups of machines placed anew by programs, one after another: the step of the makespan search for decimal data.

Nothing here is a bound; :func:`~hetopt.algorithms.makespan_group.place_anew` solves one group, this chooses the groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.makespan_bounds import Relaxation, reduced_costs
from hetopt.algorithms.makespan_group import place_anew
from hetopt.algorithms.makespan_lp import Floats

__all__ = ["Best", "programs"]

_SOLVES = 8  # programs in a row
_NODES = 300  # of branch and bound for each
_LARGEST = 7  # machines in a group; of more, branch and bound sees little with so few nodes
_WHOLE = 6  # after so many steps a program over all machines
_SHARE = 0.5  # of what a better plan could afford, what a single pair may cost


class Best(Protocol):
    """The best plan so far, its value, and when to end."""

    time: Floats
    ready: Floats
    plan: NDArray[np.int64]
    value: float

    def over(self) -> bool:
        """Whether to return now."""
        ...

    def offer_plan(self, plan: NDArray[np.int64]) -> None:
        """Keep a plan if it is the best so far."""
        ...


def programs(state: Best, relaxation: Relaxation, seed: int) -> Iterator[bool]:
    """Lower the latest machine's load by placing the jobs of a group around it anew; larger groups when that ends.

    Parameters
    ----------
    state
        Holds the best plan and takes a better one.
    relaxation
        Its reduced costs say which pairs a plan better than the best can use at all.
    seed
        Of the choice of groups.

    Yields
    ------
    bool
        True after some programs in a row.
    """
    time, m = state.time, state.time.shape[1]
    cost = reduced_costs(time, relaxation.weights) / max(float(relaxation.weights.sum()), 1e-300)
    random = np.random.default_rng(seed)
    size, idle = min(5, m), 0
    for step in itertools.count(1):
        whole = step % _WHOLE == 0
        for _ in range(1 if whole else _SOLVES):
            if state.over():
                break
            used = np.bincount(state.plan, minlength=m) > 0
            load = np.where(used, state.ready + np.bincount(state.plan, time[np.arange(len(time)), state.plan], m), 0.0)
            latest = int(load.argmax())
            others = np.delete(np.arange(m), latest)
            group = np.sort(np.r_[latest, random.choice(others, size - 1, replace=False)])
            group = np.arange(m) if whole else group
            allowed = cost <= _SHARE * (state.value - relaxation.value)
            nodes = _NODES // 3 if whole else _NODES
            plan = place_anew(time, state.ready, state.plan, group, allowed, nodes=nodes, should_stop=state.over)
            before = state.value
            if plan is not None:
                state.offer_plan(plan)
            idle = 0 if state.value < before else idle + 1
            if idle > m:
                size, idle = size + 1 if size < min(m, _LARGEST) else min(5, m), 0
        yield True
