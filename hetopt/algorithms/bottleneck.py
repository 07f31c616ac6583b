"""Bottleneck assignment: jobs to places so that the worst single cost is as small as possible, with a proof.

Each machine takes at most ``capacity`` jobs (one by default) and the value is the largest cost of any pair used, not a sum:
the slowest link, the last arrival, the largest device time of federated shards. Costs of several jobs on a machine do not
add up; when they do, the question is a makespan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.algorithms.times import FloatArray, IntArray

__all__ = ["BottleneckPlan", "bottleneck_assignment", "bottleneck_bound"]


class BottleneckPlan(NamedTuple):
    """An optimal bottleneck assignment.

    Attributes
    ----------
    plan
        (n,) machine of each job.
    value
        Largest cost used, the optimum.
    witness
        Jobs that prove it: with pairs of smaller cost only, the machines they may use have fewer places than they are
        (Hall's condition). :func:`bottleneck_bound` checks it.
    """

    plan: IntArray
    value: float
    witness: IntArray


def bottleneck_assignment(cost: ArrayLike, capacity: ArrayLike | None = None) -> BottleneckPlan:
    """Smallest possible largest cost, by bisection over the costs and maximum matchings.

    Parameters
    ----------
    cost
        (n, m) cost of each job on each machine, of any sign; ``inf`` where it must not go.
    capacity
        (m,) most jobs on each machine, integers from 0; 1 if None.

    Raises
    ------
    ValueError
        When the arrays are malformed, or the jobs cannot all be placed; the message names jobs that compete for too few
        places.

    Notes
    -----
    Exact. O(log(n m)) Hopcroft-Karp matchings of O(E sqrt V) each, after sorting the costs. Sources: Garfinkel, "An improved
    algorithm for the bottleneck assignment problem", Operations Research 19 (1971); Hopcroft and Karp, SIAM Journal on
    Computing 2 (1973); Hall's theorem (1935) for the witness.
    """
    costs, places = _check(cost, capacity)
    n = len(costs)
    if n == 0:
        return BottleneckPlan(np.zeros(0, dtype=np.int64), -np.inf, np.zeros(0, dtype=np.int64))
    plan, witness = _match(costs < np.inf, places)
    if witness.size:
        free = int(places[(costs[witness] < np.inf).any(axis=0)].sum())
        listed = ", ".join(map(str, witness[:10].tolist())) + (", ..." if witness.size > 10 else "")
        raise ValueError(f"jobs {listed} ({witness.size} in all) can use only {free} places")
    floor = float(costs.min(axis=1).max())
    values = np.unique(costs[(costs >= floor) & (costs < np.inf)])
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        trial, _ = _match(costs <= values[middle], places)
        if trial.min() >= 0:
            plan, high = trial, middle
        else:
            low = middle + 1
    value = float(values[high])
    _, witness = _match(costs < value, places)
    return BottleneckPlan(plan, value, witness)


def bottleneck_bound(cost: ArrayLike, witness: ArrayLike, capacity: ArrayLike | None = None) -> float:
    """Lower bound that some jobs prove: below it, the machines they may use have fewer places than they are.

    Parameters
    ----------
    cost, capacity
        As in :func:`bottleneck_assignment`.
    witness
        Distinct jobs.

    Returns
    -------
    float
        Every assignment uses a pair of at least this cost; ``inf`` when there is none, ``-inf`` for an empty witness.

    Raises
    ------
    ValueError
        When the arrays are malformed or a job is listed twice.

    Notes
    -----
    By Hall's condition alone, whatever the witness: O(k m log m) for k jobs. A machine counts from the least cost that any of
    the jobs has on it, and machines are opened in the order of these costs until there are places enough.
    """
    costs, places = _check(cost, capacity)
    jobs = np.asarray(witness, dtype=np.int64)
    if (
        jobs.ndim != 1
        or np.unique(jobs).size < jobs.size
        or (jobs.size and not 0 <= jobs.min() <= jobs.max() < len(costs))
    ):
        raise ValueError(f"the witness must list distinct jobs from 0 to {len(costs) - 1}")
    if jobs.size == 0:
        return -np.inf
    opens = costs[jobs].min(axis=0)
    order = np.argsort(opens, kind="stable")
    order = order[opens[order] < np.inf]
    enough = np.flatnonzero(np.cumsum(places[order]) >= jobs.size)
    return float(opens[order[enough[0]]]) if enough.size else np.inf


def _check(cost: ArrayLike, capacity: ArrayLike | None) -> tuple[FloatArray, IntArray]:
    costs = np.asarray(cost, dtype=np.float64)
    if costs.ndim != 2 or costs.shape[1] == 0:
        raise ValueError(f"cost must be a (jobs, machines) matrix with at least one machine, not shape {costs.shape}")
    if np.isnan(costs).any() or (costs == -np.inf).any():
        raise ValueError("costs must be numbers above -inf")
    m = costs.shape[1]
    given = np.ones(m) if capacity is None else np.asarray(capacity, dtype=np.float64)
    if given.shape != (m,) or not ((given >= 0) & (given == np.floor(given))).all():
        raise ValueError(f"capacity must have {m} integers from 0 on")
    return costs, np.minimum(given, len(costs)).astype(np.int64)


def _match(allowed: NDArray[np.bool_], places: IntArray) -> tuple[IntArray, IntArray]:
    """A largest matching of jobs with places: the machine of each job or -1, and Hall violators (none when complete)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    n, m = allowed.shape
    machine_of_place = np.repeat(np.arange(m), places)
    open_places = allowed[:, machine_of_place]
    graph = csr_array(open_places.astype(np.int8))
    job_at = (
        maximum_bipartite_matching(graph, perm_type="row") if open_places.size else np.full(len(machine_of_place), -1)
    )
    plan = np.full(n, -1, dtype=np.int64)
    taken = np.flatnonzero(job_at >= 0)
    plan[job_at[taken]] = machine_of_place[taken]
    if plan.min() >= 0:
        return plan, np.zeros(0, dtype=np.int64)
    # Jobs reached from one without a place along alternating paths: each machine they may use is full, of them.
    members = [np.flatnonzero(plan == i) for i in range(m)]
    reached = np.zeros(n, dtype=bool)
    seen = np.zeros(m, dtype=bool)
    queue = [int(np.flatnonzero(plan < 0)[0])]
    reached[queue] = True
    for j in queue:
        for i in np.flatnonzero(allowed[j] & ~seen).tolist():
            seen[i] = True
            for k in members[i][~reached[members[i]]].tolist():
                reached[k] = True
                queue.append(k)
    return plan, np.flatnonzero(reached)
