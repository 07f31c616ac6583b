"""Programs as steps of the makespan search: which machines' jobs are placed anew, over which pairs.

Nothing here is a bound; :func:`~hetopt.algorithms.makespan_group.place_anew` solves one program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.makespan_bounds import Relaxation, reduced_costs
from hetopt.algorithms.makespan_group import place_anew
from hetopt.algorithms.makespan_lp import Floats

__all__ = ["Best", "programs", "whole_programs"]

# Of the distance to the relaxation that a pair may cost in a program of all machines, in turn.
_SHARES = (0.05, 0.1, 0.15)
_WIDE = 1000  # nodes of branch and bound for such a program
_SOLVES = 8  # programs of groups in a row
_NODES = 300  # nodes for each
_LARGE_SHARES = (0.5, 0.25)  # the same for integers, of which few jobs bear a plan's whole distance
_FEW = 150  # nodes of the first programs for integers


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


def programs(state: Best, relaxation: Relaxation, seed: int, *, wide: bool) -> Iterator[bool]:
    """Place jobs anew for decimal data: on all machines over the cheapest pairs, and on groups around the latest machine.

    A plan pays for its distance to the relaxation in reduced costs and idle time, and good plans pay in many small amounts:
    hardly a pair of theirs costs more than a tenth of the distance. Over such pairs alone the program of all machines is
    small enough for the solver's own neighbourhood search, which finds what exchanges on few machines cannot. When it
    finds nothing, groups of machines are placed over all pairs that a better plan can afford.

    Parameters
    ----------
    state
        Holds the best plan and takes a better one.
    relaxation
        Its reduced costs say which pairs a plan better than the best can use at all.
    seed
        Of the choice of groups and of the solver.
    wide
        Whether to solve the programs of all machines. Where second machines cost little, too many pairs are cheap, and exchanges
        and groups are the better use of the time.

    Yields
    ------
    bool
        Whether to go on at once: the program of all machines before has improved the best plan.
    """
    time, m = state.time, state.time.shape[1]
    cost = reduced_costs(time, relaxation.weights)
    random = np.random.default_rng(seed)
    size, idle, turn = min(5, m), 0, 0

    def improved(group: NDArray[np.int64], share: float, nodes: int) -> bool:
        before = state.value
        allowed = cost <= share * (before - relaxation.value)
        number = seed + turn
        plan = place_anew(
            time, state.ready, state.plan, group, allowed, nodes=nodes, seed=number, should_stop=state.over
        )
        if plan is not None:
            state.offer_plan(plan)
        return state.value < before

    while True:
        better = True
        while wide and better:
            share = _SHARES[turn % len(_SHARES)]
            better = improved(np.flatnonzero(state.ready < state.value), share, _WIDE)
            turn += 1
            yield better
        for _ in range(_SOLVES):
            if state.over():
                break
            used = np.bincount(state.plan, minlength=m) > 0
            load = np.where(used, state.ready + np.bincount(state.plan, time[np.arange(len(time)), state.plan], m), 0.0)
            latest = int(load.argmax())
            others = np.delete(np.arange(m), latest)
            group = np.sort(np.r_[latest, random.choice(others, size - 1, replace=False)])
            idle = 0 if improved(group, 1.0, _NODES) else idle + 1
            if idle > m // 2:
                size, idle = size + 1 if size < min(m, 10) else min(5, m), 0
        if not wide:
            yield False


def whole_programs(state: Best, relaxation: Relaxation, seed: int) -> Iterator[bool]:
    """The programs of all machines for integers: any plan better than the best will do, and few may exist.

    Where machines differ in speed, branch and bound finds them sooner than exchanges do. The pairs are cheap in the linear
    relaxation or, in every other program, cost no more in the cardinality program than a better plan can afford.

    Parameters
    ----------
    state, relaxation, seed
        As for :func:`programs`.

    Yields
    ------
    bool
        Whether the best plan was improved, after each program. Every four programs the nodes double.
    """
    cost = reduced_costs(state.time, relaxation.weights)
    turn = 0
    while True:
        before, nodes = state.value, _FEW * 2 ** (turn // 4)
        if turn % 2 == 1 and state.cut_costs is not None:
            allowed = state.cut_costs <= before - state.bound
        else:
            allowed = cost <= _LARGE_SHARES[turn // 2 % len(_LARGE_SHARES)] * (before - relaxation.value)
        plan = place_anew(
            state.time,
            state.ready,
            state.plan,
            np.flatnonzero(state.ready < before),
            allowed,
            nodes=nodes,
            least=state.bound,
            seed=seed + turn,
            should_stop=state.over,
        )
        if plan is not None:
            state.offer_plan(plan)
        turn += 1
        yield state.value < before
