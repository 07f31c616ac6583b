"""Check which jobs are on which accelerators, and add up the watts, sharing nothing with any model.

A plan's ``details.accelerators`` has a row ``[type, [job, ...]]`` for each accelerator in use. What an instance says of rates,
floors and watts: :mod:`hetopt.verify.accelerator_facts`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.accelerator_facts import facts_of

__all__ = ["SLACK", "Checked", "check_accelerators"]

SLACK = 1e-9  # part of a floor that sums of rates may miss by rounding


class Checked(NamedTuple):
    """Watts (those of moves included), a sentence for each broken rule, steps a second by job, accelerators in use by type."""

    watts: float
    violations: tuple[str, ...]
    rate: dict[str, float]
    used: dict[str, int]
    moved: int


def check_accelerators(instance: Instance, solution: Solution, caution: float, move: float) -> Checked:
    """A plan's watts, recomputed, and every rule it breaks.

    Parameters
    ----------
    caution
        Standard errors by which estimated rates are lowered.
    move
        Watts that count for each accelerator a job gets on a type beyond those it has there now, where it runs now.
    """
    facts, labels, names = facts_of(instance, caution), instance.labels, instance.device_names
    rows = solution.details.get("accelerators")
    if not isinstance(rows, list):
        return Checked(math.inf, ("the plan's details.accelerators is no list of [type, [job, ...]]",), {}, {}, 0)
    n, m = facts.rate.shape
    wrong: list[str] = []
    got, has, used, watts = np.zeros(n), np.zeros((n, m), np.int64), np.zeros(m, np.int64), []
    for row in rows:
        device, jobs = _accelerator(instance, row)
        used[device] += 1
        rate, power = facts.company(device, jobs)
        watts.append(power)
        if len(set(jobs)) != len(jobs):
            wrong.append(f"job {labels[jobs[0]]!r} is twice on one accelerator")
        elif min(rate) <= 0:
            who = ", ".join(repr(labels[k]) for k in jobs)
            wrong.append(f"the instance has no rate above 0 for {who} on {names[device]!r}")
        for k, own in zip(jobs, rate, strict=True):
            got[k] += own
            has[k, device] += 1
    count, short = has.sum(axis=1), np.maximum(facts.floor - got, 0.0)
    wrong += [
        f"job {labels[k]!r} has no floor and is not to run"
        for k in np.flatnonzero((facts.floor <= 0) & (count > 0))[:20].tolist()
    ]
    wrong += [
        f"job {labels[k]!r} needs {facts.floor[k]:.6g} steps a second and makes {got[k]:.6g}: {short[k]:.6g} short"
        for k in np.flatnonzero(short > facts.floor * SLACK)[:20].tolist()
    ]
    wrong += [
        f"job {labels[k]!r} is on {count[k]} accelerators and may have {facts.most[k]}"
        for k in np.flatnonzero(count > facts.most)[:20].tolist()
    ]
    wrong += [
        f"{names[i]!r} has {facts.workers[i]} accelerators and the plan uses {used[i]}"
        for i in np.flatnonzero(used > facts.workers).tolist()
    ]
    runs = facts.current.sum(axis=1) > 0
    moved = int(np.maximum(has - facts.current, 0)[runs].sum())
    unused = np.maximum(facts.workers - used, 0) * facts.idle
    total = math.fsum([*watts, *unused.tolist(), move * moved])
    steps = {labels[k]: float(got[k]) for k in np.flatnonzero(facts.floor > 0).tolist()}
    return Checked(total, tuple(wrong), steps, dict(zip(names, used.tolist(), strict=True)), moved)


def _accelerator(instance: Instance, row: Any) -> tuple[int, tuple[int, ...]]:
    if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], list) or not row[1]:
        raise ValueError(f"details.accelerators has the row {row!r:.60}, expected [type, [job, ...]]")
    return instance.device_index[row[0]], tuple(instance.task_index[name] for name in row[1])
