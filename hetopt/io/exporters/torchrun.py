"""torchrun: a command that starts one process a stage on one machine, rank k on the device of stage k.

Local rank k uses visible device k, so the order of the stages is the order of ``CUDA_VISIBLE_DEVICES``. The instance does not
say which devices share a machine; the command is for one. Source: PyTorch documentation of torchrun.
"""

from __future__ import annotations

import re

from hetopt.instance import Instance
from hetopt.io.exporters import _environment, _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "ranks"]

NAME = "torchrun"
TITLE = "torchrun: a command for one process a stage, with the devices in the order of the stages."


def ranks(text: str) -> list[int]:
    """Device index of each rank that the command starts: local rank k takes the k-th visible device."""
    found = re.search(r"--nnodes (\d+) --nproc-per-node (\d+)", text)
    assert found is not None
    return _environment.visible(text)[: int(found[1]) * int(found[2])]


def export(instance: Instance, result: Result | Solution) -> str:
    """Shell lines; the script and its own arguments stand in for the last words."""
    plan = _plan.read(instance, result, NAME)
    stages = plan.sequence()
    devices = [stage.device for stage in stages]
    names = [instance.labels[task] for task in plan.order]
    lines = [
        *_environment.lines(plan, devices),
        *(f"# rank {k}: {names[s.start]} to {names[s.stop - 1]} ({s.size} tasks)" for k, s in enumerate(stages)),
        f"torchrun --nnodes 1 --nproc-per-node {len(stages)} --rdzv-backend c10d --rdzv-endpoint localhost:29500 script.py",
    ]
    text = "\n".join(lines) + "\n"
    _plan.same(plan, [f"rank {k}" for k in range(len(stages))], plan.indices(devices), ranks(text))
    return text
