"""Costs of jobs on devices, limits on sums of decimals, and the annealed search that the questions with costs share."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import Jobs, job_names, jobs_of
from hetopt.algorithms.goal_search import Goals, reach, tighten
from hetopt.control import Control
from hetopt.formulation import Outcome
from hetopt.instance import Instance

__all__ = ["cost_of", "costs_of", "goals_of", "missing_cost", "search", "stuck", "upper_limit", "whole_costs"]

_NOISE = 1e-9  # by which a sum of decimals may exceed its limit


def costs_of(instance: Instance, jobs: Jobs) -> NDArray[np.float64]:
    """(n, d) cost of each job on each device, groups fused; 0 where the file gives none, ``inf`` where it cannot run."""
    own = instance.columns.cost
    table = np.zeros(instance.time.shape) if own is None else np.where(instance.eligible, own, 0.0)
    fused = np.zeros(jobs.time.shape)
    np.add.at(fused, jobs.member, table)
    return np.where(np.isfinite(jobs.time), fused, np.inf)


def cost_of(instance: Instance, placement: NDArray[np.int64]) -> float:
    """Cost of a placement (n,), exactly rounded; tasks that are unplaced or cannot run where they are cost nothing."""
    own = instance.columns.cost
    if own is None:
        return 0.0
    placed = np.flatnonzero((placement >= 0) & (placement < instance.n_devices))
    used = placed[instance.eligible[placed, placement[placed]]]
    return math.fsum(own[used, placement[used]].tolist())


def missing_cost(instance: Instance) -> str | None:
    """A sentence that names a task without a cost where it may run; None when there is none."""
    own = instance.columns.cost
    if own is None:
        return None
    odd = np.argwhere(instance.eligible & ~np.isfinite(own))
    if not odd.size:
        return None
    k, i = odd[0].tolist()
    return f"task {instance.labels[k]!r} has a time on {instance.device_names[i]!r} and no cost; give one, or forbid it"


def whole_costs(instance: Instance) -> bool:
    """Whether all costs are integers."""
    own = instance.columns.cost
    if own is None:
        return True
    finite = own[np.isfinite(own)]
    return bool((finite == np.floor(finite)).all())


def upper_limit(limit: float | None, whole: bool) -> float:
    """The limit that models, bounds and the verifier use alike: as asked for integers, up to noise for sums of decimals."""
    if limit is None:
        return math.inf
    return limit if whole else limit * (1.0 + _NOISE)


def goals_of(instance: Instance, jobs: Jobs) -> Goals:
    """Memory and task limits as goals, ready times as loads that come with the first job; room and budget without end."""
    n, d = jobs.time.shape
    extra = np.zeros((d, n + 1))
    extra[:, 1:] = jobs.ready[:, None]
    endless = np.full(d, np.inf)
    cost = costs_of(instance, jobs)
    return Goals(
        jobs.time, extra, jobs.memory, jobs.count.astype(float), cost, endless, jobs.capacity, jobs.most, math.inf
    )


def search(
    instance: Instance,
    control: Control,
    start: NDArray[np.int64],
    basis: Goals,
    aim: Callable[[float], Goals],
    measure: Callable[[NDArray[np.int64]], float],
    lowest: float,
    step: float,
) -> Outcome:
    """A plan that meets the ``basis``, then ever lower aims; again from other random numbers while a time limit leaves time."""
    jobs = jobs_of(instance)

    def report(plan: NDArray[np.int64]) -> None:
        control.report_plan(jobs.solution(plan))

    attempt = 0
    plan = reach(basis, start, seed=control.seed, should_stop=control.should_stop)
    while not control.should_stop():
        if plan is None:
            plan = reach(
                basis, start, seed=control.seed + 7919 * attempt, proposals=2_000_000, should_stop=control.should_stop
            )
        else:
            report(plan)
            floor = max(lowest, control.bound) if control.bound is not None else lowest
            plan = tighten(
                aim,
                measure,
                plan,
                floor,
                step=step,
                seed=control.seed + 7919 * attempt,
                should_stop=control.should_stop,
                report=report,
            )
            if measure(plan) <= floor:
                break
        attempt += 1
        if math.isinf(control.remaining) or attempt == 100:
            break
    if plan is not None:
        report(plan)
    return Outcome("limit", "time") if control.should_stop() and not control.closed else Outcome()


def stuck(instance: Instance, jobs: Jobs, deadline: float) -> tuple[str, ...]:
    """A sentence when some job can end by the deadline nowhere, or the shortest work is more than the devices' time.

    Empty when neither is so; there may be no plan all the same.
    """
    soonest = (jobs.time + jobs.ready).min(axis=1)
    late = np.flatnonzero(soonest > deadline)
    if late.size:
        j = int(late[np.argmax(soonest[late])])
        name = job_names(instance, jobs)[j]
        over = soonest[j] - deadline
        return (
            f"{name!r} ends at {soonest[j]:.12g} at the earliest, {over:.12g} seconds after the deadline {deadline:.12g}",
        )
    work, there = math.fsum(jobs.time.min(axis=1).tolist()), math.fsum(np.maximum(deadline - jobs.ready, 0.0).tolist())
    if work <= there * (1 + 1e-12):
        return ()
    return (
        f"the jobs take {work:.12g} seconds where they are quickest, and the devices have {there:.12g} until the deadline "
        f"{deadline:.12g}: {work - there:.12g} short",
    )
