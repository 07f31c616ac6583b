"""Jobs that may share accelerators for good, with floors and watts; or a queue of jobs for nodes that run two or more at once.

All numbers are drawn from a seed. With ``least-power``, type k is 2^k times as fast as the first for a job that gains all of it
and draws 90 times 1.7^k watts, a fifth less with one job alone; two or three kinds on an accelerator make 30 to 95 % of their
steps; a floor is 15, 30 or 50 % of the rate on the fastest type. With ``coschedule``, a node's power caps are 150, 200 and 250
watts and its parts are split 2:1, 1:1 or 1:2 between two jobs, each of which minds a smaller part or a lower cap more or less.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.kinds import Option, chosen, whole
from hetopt.records import Device, Job

__all__ = ["NAME", "OPTIONS", "TITLE", "make"]

NAME = "colocation"
TITLE = "Jobs that share accelerators or nodes: least power with floors, or a queue in pairs under power caps."
QUESTIONS = ("least-power", "coschedule")
OPTIONS: tuple[Option, ...] = (
    Option("--question", QUESTIONS, "least-power", "What is asked."),
    Option("--jobs", int, 40, "Number of jobs."),
    Option("--kinds", int, 8, "Kinds of jobs with equal rates."),
    Option("--types", int, 3, "Accelerator types (least-power)."),
    Option("--unmeasured", float, 0.0, "Part of the times, alone and in pairs, that nobody measured (least-power)."),
    Option("--seed", int, 0, "Seed."),
)
CAPS = (150, 200, 250)
SPLITS = {"2:1": (2 / 3, 1 / 3), "1:1": (0.5, 0.5), "1:2": (1 / 3, 2 / 3)}


def make(
    *, question: str = "least-power", jobs: int = 40, kinds: int = 8, types: int = 3, unmeasured: float = 0.0, seed: int = 0
) -> Instance:  # fmt: skip
    """The instance; parameters as in :data:`OPTIONS`.

    Raises
    ------
    InputError
        A number out of its range, or another question.
    """
    chosen("--question", question, QUESTIONS)
    whole("--jobs", jobs, 1, 1_000_000)
    whole("--kinds", kinds, 1, 300)
    whole("--types", types, 1, 16)
    whole("--seed", seed, 0, 2**32)
    if not 0 <= unmeasured < 1:
        raise InputError(f"--unmeasured is {unmeasured!r}, expected a number from 0 to below 1")
    random = np.random.default_rng([seed, jobs, kinds, 20])
    names = [f"kind{k}" for k in range(kinds)]
    of = {f"job{k}": names[int(random.integers(kinds))] for k in range(jobs)}
    draw = _power if question == "least-power" else _queue
    devices, times, tables = draw(random, names, of, types)
    if unmeasured and question == "least-power":
        tables["unmeasured"] = _forget(random, of, times, [device.name for device in devices], unmeasured)
        gone = random.random(len(tables["together"])) < unmeasured
        lost = [
            row
            for row, away in zip(tables["together"], gone.tolist(), strict=True)
            if away and {*row[1:3]} <= {*of.values()}
        ]
        tables["unmeasured_pairs"] = [row[:3] for row in lost]
        tables["together"] = [row for row in tables["together"] if row not in lost]
    return Instance.build(
        devices,
        [Job(name=name, time=times[kind]) for name, kind in of.items()],
        tables={"kind": of, **tables},
        question={"objective": question},
        name=f"{'colocation' if question == 'least-power' else question}-{jobs}-{seed}",
        source=f"generated with seed {seed}",
    )


def _power(random: np.random.Generator, names: list[str], of: dict[str, str], types: int) -> tuple[Any, Any, Any]:
    devices = [
        Device(name=f"type{i}", slots=max(1, len(of) // 3), power=round(90 * 1.7**i), idle_power=round(9 * 1.7**i))
        for i in range(types)
    ]
    gain = random.uniform(0.3, 1.0, len(names))
    base = np.round(random.uniform(0.5, 4.0, len(names)), 3)
    time = np.round(base[:, None] / 2.0 ** (gain[:, None] * np.arange(types)), 4)
    together, groups, watts = [], [], []
    for i, device in enumerate(devices):
        watts += [[device.name, [name], round(0.8 * (device.power or 0))] for name in names]
        for a, b in itertools.combinations_with_replacement(range(len(names)), 2):
            slow = np.round(time[[a, b], i] / random.uniform(0.5, 0.95, 2), 4)
            if random.random() < 0.85:
                together.append([device.name, names[a], names[b], *slow.tolist()])
        for a, b, c in itertools.combinations(range(min(len(names), 6)), 3):
            slow = np.round(time[[a, b, c], i] / random.uniform(0.3, 0.7, 3), 4)
            if random.random() < 0.3:
                groups.append([device.name, [names[a], names[b], names[c]], slow.tolist()])
    number = {name: k for k, name in enumerate(names)}
    part = random.choice([0.15, 0.3, 0.5], len(of), p=[0.4, 0.4, 0.2]).tolist()
    floor = {job: round(p / float(time[number[kind], -1]), 4) for (job, kind), p in zip(of.items(), part, strict=True)}
    tables = {"together": together, "groups": groups, "watts": watts, "floor": floor}
    return devices, dict(zip(names, time.tolist(), strict=True)), tables


def _forget(
    random: np.random.Generator, of: dict[str, str], times: dict[str, list[float | None]], types: list[str], part: float
) -> dict[str, list[str]]:
    """Take times away, but one of each kind at least; by job, where they are missing."""
    for row in times.values():
        gone = random.random(len(row)) < part
        gone[int(random.integers(len(row)))] = False
        row[:] = [None if lost else time for lost, time in zip(gone.tolist(), row, strict=True)]
    missing = {
        job: [name for name, time in zip(types, times[kind], strict=True) if time is None] for job, kind in of.items()
    }
    return {job: names for job, names in missing.items() if names}


def _queue(random: np.random.Generator, names: list[str], of: dict[str, str], types: int) -> tuple[Any, Any, Any]:
    n = len(names)
    alone = np.round(random.uniform(30, 300, n), 1)
    parts, watts = random.uniform(0.1, 1.0, n), random.uniform(0.0, 0.8, n)  # how much a job minds
    rows: list[list[Any]] = []

    def seconds(k: int, share: float, cap: int) -> float:
        return float(alone[k] * share ** -parts[k] * (cap / CAPS[-1]) ** -watts[k])

    for k in range(n):
        rows += [[[names[k]], "all", cap, round(seconds(k, 1.0, cap), 1)] for cap in CAPS[:-1]]
    for a, b in itertools.combinations_with_replacement(range(n), 2):
        noise = float(random.uniform(1.0, 1.1))
        for split, (one, two) in SPLITS.items():
            for cap in CAPS:
                both = max(seconds(a, one, cap), seconds(b, two, cap)) * noise
                rows.append([[names[a], names[b]], split, cap, round(both, 1)])
    devices = [Device(name="node", slots=max(1, -(-len(of) // 2)), power=CAPS[-1])]
    return devices, {name: [float(alone[k])] for k, name in enumerate(names)}, {"corun": rows}
