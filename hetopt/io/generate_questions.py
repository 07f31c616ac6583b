"""What other questions need beside the times of independent jobs: weights, slots, setup times, costs with a limit.

Drawn from their own random numbers, so that the times of an instance are the same whatever is asked. Not published
distributions, but where one is named.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["QUESTIONS", "Facts", "facts_for"]

QUESTIONS = (
    "makespan",
    "weighted-completion",
    "preemptive-makespan",
    "bottleneck",
    "setup-makespan",
    "budget-makespan",
    "least-cost",
)
HEAVIEST = 10
LONGEST_SETUP = 49  # of the sets S_1-49 by Vallada and Ruiz, European Journal of Operational Research 211 (2011)


class Facts(NamedTuple):
    """Facts by key, to be added to each job and each device; tables and the question."""

    jobs: list[dict[str, Any]]
    device: dict[str, Any]
    tables: dict[str, Any]
    question: dict[str, Any]


def facts_for(question: str, times: NDArray[np.float64], may: NDArray[np.bool_], seed: int) -> Facts:
    """Facts that ``question`` needs about jobs with these times (n, m), where ``may`` says.

    Weights are U{1..10}; slots just enough for all jobs; setup times U{1..49}. Costs fall with the time, so that quick
    machines are dear: the integer nearest 1000 u / time with u in U[0.5, 1.5]. The budget is a third of the way from the
    cheapest plan to that of the quickest machines; the deadline that of a plan which puts each job where it ends first.
    """
    n, m = times.shape
    random = np.random.default_rng([seed, n, m, 3])
    jobs: list[dict[str, Any]] = [{} for _ in range(n)]
    device: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    asked: dict[str, Any] = {"objective": question}
    if question == "weighted-completion":
        weights: list[int] = random.integers(1, HEAVIEST + 1, size=(n,)).tolist()
        jobs = [{"weight": weight} for weight in weights]
    elif question == "bottleneck":
        device = {"slots": -(-n // m)}
    elif question == "setup-makespan":
        setup = random.integers(1, LONGEST_SETUP + 1, (m, n, n))
        setup[:, np.arange(n), np.arange(n)] = 0
        tables = {"setup": setup.tolist()}
    elif question in ("budget-makespan", "least-cost"):
        cost = np.rint(1000.0 * random.uniform(0.5, 1.5, (n, m)) / np.maximum(times, 1.0)).astype(np.int64)
        price = cost.astype(object)
        price[~may] = None
        jobs = [{"cost": row} for row in price.tolist()]
        if question == "budget-makespan":
            quick = np.where(may, times, np.inf).argmin(axis=1)
            least = int(np.where(may, cost, cost.max()).min(axis=1).sum())
            asked["budget"] = least + (int(cost[np.arange(n), quick].sum()) - least) // 3
        else:
            asked["deadline"] = _ends(np.where(may, times, np.inf))
    return Facts(jobs, device, tables, asked)


def _ends(times: NDArray[np.float64]) -> float:
    """When the last job ends if each goes where it ends first, in order."""
    load = np.zeros(times.shape[1])
    for row in times:
        i = int((load + row).argmin())
        load[i] += row[i]
    return float(load.max())
