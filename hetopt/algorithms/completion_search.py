"""Annealing for the sum of weighted completion times on unrelated machines, without release dates.

Under Smith's rule two jobs j, k on machine i cost each other min(p_ij w_k, p_ik w_j), whatever else runs there: the first of
them delays the second, and the rule puts first whom it is cheaper to wait for. So the value of a plan is

    sum_j w_j (ready_i + p_ij) + sum over pairs j, k on the same machine i of min(p_ij w_k, p_ik w_j),

and no order needs to be kept. Bounds are not this module's business: see :mod:`hetopt.algorithms.completion_relaxation`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from hetopt.algorithms.completion import CompletionPlan, check_weights, weighted_completion
from hetopt.algorithms.draws import uniform_star
from hetopt.algorithms.jit import njit
from hetopt.algorithms.times import check_ready, check_times

__all__ = ["anneal_completion"]

_CHUNK = 1_000_000  # proposals of one kernel call, some 0.05 s


def anneal_completion(
    time: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ready: ArrayLike | None = None,
    start: ArrayLike | None = None,
    seed: int = 0,
    proposals: int = 20_000_000,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[CompletionPlan], None] = lambda plan: None,
) -> CompletionPlan:
    """Simulated annealing over plans: move a job to another machine, swap two jobs of two machines.

    Parameters
    ----------
    time
        (n, m) time of each job on each machine; ``inf`` where it cannot run.
    weight
        (n,) weights >= 0, one each if None.
    ready
        (m,) times from which the machines are free; zero if None.
    start
        (n,) machine of each job to start from; the one that is cheapest alone if None.
    seed
        Of its own random numbers: the same plan on any machine.
    proposals
        Moves tried; the temperature falls over all of them.
    should_stop, report
        Asked after, and told of better plans after, each million proposals.

    Returns
    -------
    CompletionPlan
        The best plan seen, at least as good as the start.

    Raises
    ------
    ValueError
        When the arrays are malformed, a job can run nowhere, or the start puts a job where it cannot run.

    Notes
    -----
    What each job would add to each machine is kept up to date, so a proposal costs O(1) and an accepted one O(n). The table
    is computed anew for each million proposals, which keeps sums of decimals from drifting. No guarantee.
    """
    matrix = check_times(time, runnable=True)
    n, m = matrix.shape
    weights, free = check_weights(weight, n), check_ready(ready, m)
    if start is None:
        plan = np.argmin(weights[:, None] * free + np.where(np.isfinite(matrix), matrix, np.inf), axis=1)
    else:
        plan = np.array(start, np.int64)
        if plan.shape != (n,) or (n and not np.isfinite(matrix[np.arange(n), plan]).all()):
            raise ValueError(f"the start must name, for each of the {n} jobs, a machine that can run it")
    best = CompletionPlan(plan.copy(), weighted_completion(matrix, plan, weights, ready=free))
    report(best)
    able = np.ascontiguousarray(np.isfinite(matrix).T)
    seconds = np.where(able, matrix.T, 0.0)
    state = np.array([seed * 2 + 1], np.uint64)
    spread = max(float(matrix.min(axis=1, initial=np.inf).mean() * weights.mean()), 1e-300) if n else 0.0
    hot, cold = 0.5 * spread, 0.01 * spread
    calls, chunk = max(1, -(-proposals // _CHUNK)), min(proposals, _CHUNK)
    for turn in range(calls):
        if should_stop() or n * m < 2 or m == 1:
            break
        warm, cool = (hot * (cold / hot) ** (step / calls) for step in (turn, turn + 1))
        kept = plan.copy()
        _anneal(seconds, able, weights, free, plan, kept, state, warm, cool, chunk)
        value = weighted_completion(matrix, kept, weights, ready=free)
        if value < best.value:
            best = CompletionPlan(kept, value)
            report(best)
    return best


@njit
def _costs(time, weight, ready, plan):  # type: ignore[no-untyped-def]
    """[i, j]: what job j adds to the value on machine i beside the other jobs that the plan puts there."""
    m, n = time.shape
    added = np.empty((m, n))
    for i in range(m):
        for j in range(n):
            added[i, j] = weight[j] * (ready[i] + time[i, j])
        for k in range(n):
            if plan[k] == i:
                for j in range(n):
                    if j != k:
                        added[i, j] += min(time[i, k] * weight[j], time[i, j] * weight[k])
    return added


@njit
def _anneal(time, able, weight, ready, plan, kept, state, warm, cool, proposals):  # type: ignore[no-untyped-def]
    """Change ``plan`` by annealing and leave the best plan met in ``kept``; returns how much better than the start it is."""
    m, n = time.shape
    added = _costs(time, weight, ready, plan)
    gained, best, unsaved = 0.0, 0.0, False
    factor = (cool / warm) ** (1.0 / proposals)
    heat = warm
    for _ in range(proposals):
        heat *= factor
        j = int(uniform_star(state) * n)
        a = plan[j]
        k = -1
        if uniform_star(state) < 0.5:
            b = int(uniform_star(state) * m)
        else:
            k = int(uniform_star(state) * n)
            b = plan[k]
        if a == b or not able[b, j]:
            continue
        change = added[b, j] - added[a, j]
        if k >= 0:
            if not able[a, k]:
                continue
            change += added[a, k] - added[b, k]
            change -= min(time[b, k] * weight[j], time[b, j] * weight[k])
            change -= min(time[a, k] * weight[j], time[a, j] * weight[k])
        if change > 0 and uniform_star(state) >= np.exp(-change / heat):
            continue
        if change > 0 and unsaved:
            kept[:] = plan
            unsaved = False
        _move(time, weight, added, plan, j, b)
        if k >= 0:
            _move(time, weight, added, plan, k, a)
        gained -= change
        if gained > best:
            best, unsaved = gained, True
    if unsaved:
        kept[:] = plan
    return best


@njit
def _move(time, weight, added, plan, j, b):  # type: ignore[no-untyped-def]
    """Put job j on machine b, and keep what the other jobs add up to date."""
    a = plan[j]
    for k in range(len(plan)):
        if k != j:
            added[a, k] -= min(time[a, k] * weight[j], time[a, j] * weight[k])
            added[b, k] += min(time[b, k] * weight[j], time[b, j] * weight[k])
    plan[j] = b
