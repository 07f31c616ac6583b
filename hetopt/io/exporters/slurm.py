"""Slurm: a batch script of a heterogeneous job, one task a device, one component for each stretch of equal devices.

Ranks count through the components in order. ``--ntasks`` and the like hold for their own component only, so each states its own.
A GPU is asked for by the name of its type (``--gpus-per-task=TYPE:1``), which must be the name that the cluster's ``gres.conf``
gives it; a CPU by a node feature (``--constraint=TYPE``). Slurm picks any device of a type, so devices of one type must be alike.
Source: Slurm documentation, heterogeneous jobs and sbatch.
"""

from __future__ import annotations

import re
from itertools import groupby

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "ranks"]

NAME = "slurm"
TITLE = "Slurm: batch script of a heterogeneous job, a task for each device."


def ranks(text: str) -> list[str]:
    """Type of the device that each rank is given, from a batch script.

    Raises
    ------
    InputError
        A component states no number of tasks, or the step does not run in all components.
    """
    components: list[dict[str, str]] = [{}]
    step = re.search(r"^srun --het-group=([\d,]+) ", text, re.MULTILINE)
    for line in text.splitlines():
        if line.strip() == "#SBATCH hetjob":
            components.append({})
        elif line.startswith("#SBATCH "):
            components[-1].update(re.findall(r"--([\w-]+)=(\S+)", line))
    if len(components) > 1 and (step is None or step[1] != ",".join(map(str, range(len(components))))):
        raise InputError("the step does not run in all components of the job")
    found = []
    for entry in components:
        if "ntasks" not in entry:
            raise InputError("a component states no --ntasks, and it is not taken over from the one before")
        kind = entry["gpus-per-task"].removesuffix(":1") if "gpus-per-task" in entry else entry["constraint"]
        found += [kind] * int(entry["ntasks"])
    return found


def export(instance: Instance, result: Result | Solution) -> str:
    """The batch script; ``sbatch SCRIPT COMMAND`` runs the command as every rank."""
    plan = _plan.read(instance, result, NAME, one_job=False)
    workers = _plan.workers(plan)
    labels = {k: device.type or device.name for k, device in enumerate(instance.devices)}
    for number in workers:
        if plan.kind(number) not in ("cpu", "gpu"):
            raise plan.refuse(f"its tasks ask for GPUs and CPUs, and {plan.device(number)} is a {plan.kind(number)}")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", labels[number]):
            raise plan.refuse(
                f"its types are letters, digits and _.+-, and {plan.device(number)} is of type {labels[number]!r}"
            )
    _plan.interchangeable(plan, labels)
    components = []
    for (label, is_cpu), members in groupby((labels[k], plan.kind(k) == "cpu") for k in workers):
        which = f"--constraint={label}" if is_cpu else f"--gpus-per-task={label}:1"
        components.append(f"#SBATCH --ntasks={len(list(members))} {which}")
    groups = f"--het-group={','.join(str(k) for k in range(len(components)))} " if len(components) > 1 else ""
    counts = [int((plan.placement == k).sum()) for k in workers]
    about = [f"# rank {r}: {plan.device(k)}, {n} tasks" for r, (k, n) in enumerate(zip(workers, counts, strict=True))]
    text = "\n".join(["#!/bin/bash", *about, "\n#SBATCH hetjob\n".join(components), f'srun {groups}"$@"']) + "\n"
    _plan.same(plan, [f"rank {r}" for r in range(len(workers))], [labels[k] for k in workers], ranks(text))
    return text
