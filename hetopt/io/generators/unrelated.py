"""Independent jobs on unrelated machines, by the published distributions; memory, eligibility, pins, other questions on request.

The distributions are in :mod:`hetopt.io.generate_unrelated`, what questions other than the makespan need in
:mod:`hetopt.io.generate_questions`. Memory limits are as tight as asked and never so tight that there
is no plan: a plan that fits is known when the limits are set.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.generate_questions import QUESTIONS, facts_for
from hetopt.io.generate_unrelated import KINDS, unrelated
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "unrelated"
TITLE = "Independent jobs on unrelated machines: seven integer classes and the range-based families."
OPTIONS: tuple[Option, ...] = (
    Option("--kind", KINDS, "u1_100", "Distribution of the times."),
    Option("--jobs", int, 50, "Number of jobs."),
    Option("--machines", int, 10, "Number of machines."),
    Option("--eligible", float, 1.0, "Chance that a job may run on a machine; at least one machine stays."),
    Option("--memory", float, 0.0, "Memory of all machines over that of all jobs, 1 or more; 0 for no memory."),
    Option("--pins", int, 0, "Jobs that are pinned to a machine of theirs."),
    Option(
        "--question",
        QUESTIONS,
        "makespan",
        "What is asked; weights, slots, setup times or costs are drawn as it needs.",
    ),
    Option("--seed", int, 0, "Seed."),
)
MAX_CELLS = 1 << 26

FANJUL_RUIZ = "Fanjul-Peyro and Ruiz, European Journal of Operational Research 207 (2010)"
BRAUN = "Braun et al., Journal of Parallel and Distributed Computing 61 (2001), range-based, rounded to six decimals"


def make(
    *,
    kind: str = "u1_100",
    jobs: int = 50,
    machines: int = 10,
    eligible: float = 1.0,
    memory: float = 0.0,
    pins: int = 0,
    question: str = "makespan",
    seed: int = 0,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        An unknown kind, or a number out of its range.
    """
    chosen("--kind", kind, KINDS)
    whole("--jobs", jobs, 1, MAX_CELLS)
    whole("--machines", machines, 1, MAX_CELLS)
    whole("--jobs times --machines", jobs * machines, 1, MAX_CELLS)
    whole("--pins", pins, 0, jobs)
    chosen("--question", question, QUESTIONS)
    whole("--seed", seed, 0, 2**32)
    if not 0 < eligible <= 1:
        raise InputError(f"--eligible is {eligible}, expected a number above 0, at most 1")
    if memory and not 1 <= memory < 1e6:
        raise InputError(f"--memory is {memory}, expected 0 or a number from 1 to a million")
    times = np.round(unrelated(kind, jobs, machines, seed), 6)
    random = np.random.default_rng([seed, jobs, machines, 1])
    may = random.random((jobs, machines)) < eligible
    home = random.integers(0, machines, jobs)
    may[np.arange(jobs), home] = True
    pinned = np.sort(random.permutation(jobs)[:pins])
    pin = dict(zip(pinned.tolist(), home[pinned].tolist(), strict=True))
    need = random.integers(1, 101, jobs) if memory else np.zeros(jobs, np.int64)
    limit = _limit(need, may, pin, memory) if memory else None
    integral = bool((times == np.floor(times)).all())
    values = (times.astype(np.int64) if integral else times).tolist()
    facts = facts_for(question, times, may, seed)
    return Instance.build(
        [Device(name=f"m{i}", memory=limit, **facts.device) for i in range(machines)],
        [
            Job(
                name=f"j{k}",
                time=[time if ok else None for time, ok in zip(values[k], may[k].tolist(), strict=True)],
                memory=int(need[k]),
                pin=f"m{pin[k]}" if k in pin else None,
                **facts.jobs[k],
            )
            for k in range(jobs)
        ],
        tables=facts.tables,
        question=facts.question,
        name=f"{kind}-{jobs}x{machines}-{seed}",
        source=f"generated with seed {seed} by the distribution {kind} of {BRAUN if kind.startswith('u_') else FANJUL_RUIZ}",
    )


def _limit(need: NDArray[np.int64], may: NDArray[np.bool_], pin: dict[int, int], slack: float) -> int:
    """Memory of each machine: ``slack`` times the mean, or what a plan needs that puts the largest jobs where most is free."""
    used = np.zeros(may.shape[1], np.int64)
    for k, i in pin.items():
        used[i] += need[k]
    for k in np.argsort(-need, kind="stable").tolist():
        if k not in pin:
            where = np.flatnonzero(may[k])
            used[where[np.argmin(used[where])]] += need[k]
    tight: int = used.max()
    return int(max(math.ceil(slack * int(need.sum()) / may.shape[1]), tight))
