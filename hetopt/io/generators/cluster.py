"""Jobs that share the time of a cluster's device types: faster types are dearer, and each kind of job gains more or less by them.

All numbers are drawn from a seed. Type k is 3^k times as fast as the first for a job that gains all of it; a kind of job gains a
power between 0.3 and 1 of that, and cannot run on the slowest type now and then. Jobs take 1, 2, 4 or 8 workers. With ``kinds`` 0
every job is a kind of its own. For the packed questions two jobs of kinds of one scale make each 45 to 95 % of their steps beside
each other, and one pair of kinds in five does not fit together on a type. For mean completion each job takes one worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "cluster"
TITLE = "Jobs that share the time of a cluster's device types (fairness, makespan, cost)."
QUESTIONS = (
    "max-min-fairness", "water-filling", "sharing-makespan", "finish-time-fairness", "sharing-cost", "sharing-cost-ratio",
    "packed-max-min-fairness", "packed-makespan", "nash-welfare", "strategy-proof", "first-in-first-out", "shortest-job-first",
    "mean-completion",
)  # fmt: skip
OPTIONS: tuple[Option, ...] = (
    Option("--question", QUESTIONS, "max-min-fairness", "What is asked."),
    Option("--jobs", int, 24, "Number of jobs."),
    Option("--types", int, 3, "Number of device types."),
    Option("--kinds", int, 0, "Kinds of jobs with equal rates; 0 makes every job different."),
    Option("--workers", int, 0, "Workers of each type; 0 takes a twelfth of the jobs."),
    Option("--seed", int, 0, "Seed."),
)
MAX_JOBS = 2_000_000
MAX_PAIRED = 300  # kinds whose pairs are written down


def make(
    *,
    question: str = "max-min-fairness",
    jobs: int = 24,
    types: int = 3,
    kinds: int = 0,
    workers: int = 0,
    seed: int = 0,
) -> Instance:
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range, another question, or so many kinds that their pairs would not fit a file.
    """
    chosen("--question", question, QUESTIONS)
    whole("--jobs", jobs, 1, MAX_JOBS)
    whole("--types", types, 1, 64)
    whole("--kinds", kinds, 0, MAX_JOBS)
    whole("--workers", workers, 0, 1_000_000)
    whole("--seed", seed, 0, 2**32)
    random = np.random.default_rng([seed, jobs, types, kinds])
    count = kinds or jobs
    paired = question.startswith("packed")
    if paired and count > MAX_PAIRED:
        raise InputError(f"--kinds is {kinds or jobs}, expected {MAX_PAIRED} at most where pairs of kinds have rates")
    speed = 3.0 ** np.arange(types)
    gain = random.uniform(0.3, 1.0, count)
    times = np.round(random.uniform(0.05, 2.0, count)[:, None] / speed[None, :] ** gain[:, None], 5) + 1e-5
    unable = random.random(count) < 0.1 if types > 1 else np.zeros(count, bool)
    of = random.integers(0, count, jobs) if kinds else np.arange(jobs)
    scale = random.choice([1, 2, 4, 8], count, p=[0.7, 0.1, 0.15, 0.05])
    if question == "mean-completion":
        scale[:] = 1
    seconds = np.round(60.0 * 10.0 ** random.uniform(1.5, 3.5, jobs))
    weight = random.choice([1, 2, 5], jobs, p=[0.6, 0.2, 0.2])
    each = workers or max(1, jobs // 12)
    devices = [Device(name=f"type{k}", slots=each, price=round(0.5 * float(speed[k]) ** 0.8, 3)) for k in range(types)]
    records = []
    for k in range(jobs):
        row: list[float | None] = np.round(times[of[k]], 5).tolist()
        if unable[of[k]]:
            row[0] = None
        due: dict[str, Any] = {}
        if question.startswith("sharing-cost") and k % 6 == 5:
            due["deadline"] = float(seconds[k]) * 10
        steps = max(1, round(float(seconds[k]) / float(times[of[k], -1])))
        records.append(Job(name=f"j{k}", time=row, scale=int(scale[of[k]]), weight=int(weight[k]), steps=steps, **due))
    tables: dict[str, Any] = {}
    if paired:
        rows = _together(random, times, scale, unable)
        tables = {"kind": {f"j{k}": f"kind{of[k]}" for k in range(jobs)}, "together": rows}
    return Instance.build(
        devices,
        records,
        tables=tables,
        question={"objective": question},
        name=f"cluster-{jobs}x{types}-{seed}",
        source=f"generated with seed {seed}",
    )


def _together(random: np.random.Generator, times: Any, scale: Any, unable: Any) -> list[list[Any]]:
    """Rows of ``tables.together`` (:mod:`hetopt.verify.pairs`)."""
    rows = []
    for a in range(len(times)):
        for b in range(a, len(times)):
            for k in range(times.shape[1]):
                own, other = random.uniform(0.45, 0.95, 2)
                if scale[a] == scale[b] and random.random() < 0.8 and not (k == 0 and (unable[a] or unable[b])):
                    pair = times[a, k] / own, times[b, k] / (own if a == b else other)
                    rows.append([f"type{k}", f"kind{a}", f"kind{b}", *(round(float(t), 5) for t in pair)])
    return rows
