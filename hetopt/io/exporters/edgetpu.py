"""Edge TPU: segments of a pipeline, as JSON: file names as the compiler gives them, and the operations of each.

``edgetpu_compiler --num_segments`` cuts by parameter bytes and takes no cuts of one's own; cuts of one's own are separate
``.tflite`` files named ``NAME_segment_K_of_N_edgetpu.tflite``, which the pipeline runs in the order of K, one on each Edge TPU.
The text says from which operation to which each file goes, for cutting the model before compiling. Source: Coral documentation
of pipelines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hetopt.costs.catalogue import known
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "segment_of"]

NAME = "edgetpu"
EDGE_TPU = "coral-edgetpu"
TITLE = "Edge TPU: operations of each segment and the files' names, as JSON."


def segment_of(files: Sequence[Mapping[str, Any]], operations: Sequence[str]) -> list[int]:
    """(n) number of the segment of each operation, from the records ``file``, ``first``, ``last`` in any order.

    Raises
    ------
    InputError
        A file's name is not of the compiler's form, or the numbers are not each one of 0 to N - 1; the segments do not cover
        the operations in order.
    """
    numbered: dict[int, Mapping[str, Any]] = {}
    for entry in files:
        match = re.fullmatch(r".+_segment_(\d+)_of_(\d+)_edgetpu\.tflite", entry["file"])
        if match is None or int(match[2]) != len(files) or not int(match[1]) < len(files):
            raise InputError(f"{entry['file']!r} is not NAME_segment_K_of_{len(files)}_edgetpu.tflite")
        numbered[int(match[1])] = entry
    index = {name: at for at, name in enumerate(operations)}
    found: list[int] = []
    for number in range(len(files)):
        first, last = (index.get(numbered.get(number, {}).get(end, ""), -1) for end in ("first", "last"))
        if first != len(found) or last < first:
            raise InputError(f"segment {number} does not go on where the one before it ends")
        found += [number] * (last + 1 - first)
    if len(found) != len(operations):
        raise InputError(f"the segments end before the operation {operations[len(found)]!r}")
    return found


def export(instance: Instance, result: Result | Solution) -> str:
    """JSON text: a record a segment with ``file``, ``device``, ``first`` and ``last`` operation, and all ``operations``."""
    plan = _plan.read(instance, result, NAME)
    stages = plan.sequence()
    names = [instance.labels[task] for task in plan.order]
    for stage in stages:
        device = instance.devices[stage.device]
        sheet = known(device.type or device.name)
        if stage.device not in plan.accelerators or (sheet is not None and sheet.name != EDGE_TPU):
            raise plan.refuse(f"its segments run on Edge TPUs, and {plan.device(stage.device)} is none")
    stem = re.sub(r"[^A-Za-z0-9.-]+", "_", instance.name).strip("_") or "model"
    segments = [
        {
            "file": f"{stem}_segment_{k}_of_{len(stages)}_edgetpu.tflite",
            "device": plan.accelerators.index(stage.device),
            "first": names[stage.start],
            "last": names[stage.stop - 1],
            "operations": names[stage.start : stage.stop],
        }
        for k, stage in enumerate(stages)
    ]
    text = json.dumps({"segments": segments}, indent=1) + "\n"
    back = json.loads(text)["segments"]
    mapped = [back[k]["device"] for k in segment_of(back, names)]
    planned = [plan.accelerators.index(k) for k in plan.placement[plan.order].tolist()]
    _plan.same(plan, names, planned, mapped)
    return text
