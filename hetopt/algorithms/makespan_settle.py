"""A plan for very many jobs near a relaxation's: moves along reduced costs until the loads meet a target.

Not a search: it takes a few passes over the cheapest pairs, and has no guarantee beyond the bound that stands beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.jit import njit
from hetopt.algorithms.makespan_bounds import Relaxation, reduced_costs
from hetopt.algorithms.makespan_lp import Floats
from hetopt.algorithms.times import makespan

__all__ = ["settle"]

Plan = NDArray[np.int64]

_PASSES = 20  # over the pairs, for each target


def settle(time: Floats, ready: Floats, relaxation: Relaxation, bound: float, pairs: int = 10) -> Plan:
    """A plan from each job's cheapest machine: cheap pairs one after another, off machines above a target to lower ones.

    Parameters
    ----------
    time, ready, relaxation
        As for :func:`round_relaxation`.
    bound
        A bound on the makespan; the targets lie up to 1 % above it.
    pairs
        Pairs looked at per job, those of the smallest reduced costs. O(n m + pairs n log n).
    """
    n, m = time.shape
    cost = reduced_costs(time, relaxation.weights)
    start: Plan = cost.argmin(axis=1)
    keep = min(pairs * n, n * m - 1)
    chosen = np.argpartition(cost.ravel(), keep)[:keep]
    chosen = chosen[np.isfinite(time.ravel()[chosen])]
    chosen = chosen[np.lexsort((chosen, cost.ravel()[chosen]))]
    job, machine = chosen // m, chosen % m
    needs = time[job, machine]
    best: Plan = start
    for above in (0.0005, 0.002, 0.005, 0.01):
        plan, current = start.copy(), time[np.arange(n), start]
        load = ready + np.bincount(plan, current, m)
        for _ in range(_PASSES):
            _settle(job, machine, needs, plan, current, load, bound * (1 + above))
            if load.max() <= bound * (1 + above):
                break
        if makespan(time, plan, ready) < makespan(time, best, ready):
            best = plan
    return best


@njit
def _settle(job: Any, machine: Any, needs: Any, plan: Any, current: Any, load: Any, target: float) -> None:
    """Moves in the order of the pairs; plan, current times and loads are updated in place."""
    for k in range(len(job)):
        j, to = job[k], machine[k]
        if to != plan[j] and load[plan[j]] > target and load[to] + needs[k] < load[plan[j]]:
            load[plan[j]] -= current[j]
            load[to] += needs[k]
            plan[j], current[j] = to, needs[k]
