"""Plans of inference latency: how subgraphs are written into a solution, and how a plan is judged."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.partition._pipeline import rates
from hetopt.formulation import Question
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.latency import LatencyReport, check_latency

__all__ = ["alike", "evaluate", "numbers_of", "with_numbers"]


def with_numbers(
    instance: Instance, question: Question, placement: NDArray[np.int64], number: NDArray[np.int64] | None = None
) -> Solution:
    """A plan; with more than one subgraph allowed, ``details`` gives the number of each task on an accelerator."""
    if int(question["subgraphs"]) == 1:
        return Solution.assign(placement)
    numbers = np.ones(len(placement), np.int64) if number is None else number
    named = {
        label: k
        for label, d, k in zip(instance.labels, placement.tolist(), numbers.tolist(), strict=True)
        if not instance.is_host[d]
    }
    return Solution.assign(placement, subgraphs=named)


def numbers_of(instance: Instance, question: Question, solution: Solution) -> NDArray[np.int64]:
    """(n,) number of each task's subgraph: what ``details["subgraphs"]`` says, 1 where it says nothing.

    Raises
    ------
    ValueError
        It names a task that does not exist, or something that is no whole number; the engine makes this a violation.
    """
    number = np.ones(instance.n_tasks, np.int64)
    if int(question["subgraphs"]) == 1:
        return number
    given = solution.details.get("subgraphs", {})
    if not isinstance(given, dict):
        raise ValueError(f"subgraphs is {given!r}, expected an object with a number for each task on an accelerator")
    for label, k in given.items():
        if label not in instance.task_index:
            raise ValueError(f"subgraphs names {label!r}, which is no task of the instance")
        if isinstance(k, bool) or not isinstance(k, int):
            raise ValueError(f"subgraphs gives {label!r} the number {k!r}, expected a whole one")
        number[instance.task_index[label]] = k if 1 <= k <= int(question["subgraphs"]) else 0
    return number


def evaluate(instance: Instance, question: Question, solution: Solution) -> LatencyReport:
    """What the verifier says of a plan with a placement."""
    into, out = rates(instance)
    assert solution.placement is not None
    return check_latency(
        instance.time,
        instance.memory,
        instance.edges,
        instance.output,
        instance.capacity,
        instance.is_host,
        into,
        out,
        solution.placement,
        numbers_of(instance, question, solution),
        most=int(question["subgraphs"]),
        group=instance.group,
        tasks=instance.labels,
        devices=instance.device_names,
    )


def alike(instance: Instance) -> list[list[int]]:
    """Accelerators by type: equal times, memory and links; each type in ascending order."""
    into, out = rates(instance)
    kinds: dict[bytes, list[int]] = {}
    for d in np.flatnonzero(~instance.is_host).tolist():
        key = instance.time[:, d].tobytes() + np.array([instance.capacity[d], into[d], out[d]]).tobytes()
        kinds.setdefault(key, []).append(d)
    return list(kinds.values())
