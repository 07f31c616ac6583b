"""Programs as steps of the makespan search: groups of machines placed anew for decimal data, a goal met for few integers.

Nothing here is a bound; :func:`~hetopt.algorithms.makespan_group.place_anew` solves one group, this chooses the groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.makespan_bounds import Relaxation, reduced_costs
from hetopt.algorithms.makespan_group import place_anew
from hetopt.algorithms.makespan_lp import Floats

__all__ = ["Best", "meetings", "programs"]

_SOLVES = 8  # programs in a row
_NODES = 300  # of branch and bound for each
_FIRST = 100  # nodes of the first program with a goal; each later one has twice as many


class Best(Protocol):
    """The best plan so far, its value, and when to end."""

    time: Floats
    ready: Floats
    plan: NDArray[np.int64]
    value: float
    bound: float
    cut_costs: Floats | None

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
    cost = reduced_costs(time, relaxation.weights)
    random = np.random.default_rng(seed)
    size, idle = min(5, m), 0
    while True:
        for _ in range(_SOLVES):
            if state.over():
                break
            used = np.bincount(state.plan, minlength=m) > 0
            load = np.where(used, state.ready + np.bincount(state.plan, time[np.arange(len(time)), state.plan], m), 0.0)
            latest = int(load.argmax())
            others = np.delete(np.arange(m), latest)
            group = np.sort(np.r_[latest, random.choice(others, size - 1, replace=False)])
            allowed = cost <= state.value - relaxation.value
            plan = place_anew(time, state.ready, state.plan, group, allowed, nodes=_NODES, should_stop=state.over)
            before = state.value
            if plan is not None:
                state.offer_plan(plan)
            idle = 0 if state.value < before else idle + 1
            if idle > m // 2:
                size, idle = size + 1 if size < min(m, 10) else min(5, m), 0
        yield True


def meetings(state: Best) -> Iterator[bool]:
    """Ask programs for a plan that meets a goal between bound and value; for integers, few jobs and machines.

    Where the bound is tight and few plans meet it (machines of different speeds), branch and bound finds one sooner than
    exchanges do. Pairs that cost more in the cardinality program than a better plan could afford are left out. Each program
    has twice the nodes of the one before.

    Parameters
    ----------
    state
        Holds the best plan, the bound and the costs; takes a better plan.

    Yields
    ------
    bool
        True after a program.
    """
    nodes = _FIRST
    while True:
        goal = state.bound + (state.value - state.bound - 1) // 2
        group = np.flatnonzero(state.ready <= goal)
        allowed = state.time <= goal
        if state.cut_costs is not None:
            allowed &= state.cut_costs <= state.value - state.bound
        plan = place_anew(
            state.time,
            state.ready,
            state.plan,
            group,
            allowed,
            nodes=nodes,
            goal=goal,
            should_stop=state.over,
        )
        if plan is not None:
            state.offer_plan(plan)
        nodes *= 2
        yield True
