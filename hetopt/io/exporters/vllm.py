"""vLLM: layers of each pipeline rank, as the environment variable ``VLLM_PP_LAYER_PARTITION``.

The list has one whole number a rank, in the order of the ranks, and sums to the model's hidden layers. The embedding runs on the
first rank, norm and head on the last; draft (MTP) layers sit on the last and are not counted. Rank k runs on the k-th visible
device. Without the variable vLLM splits evenly, with what is left over going to ranks before the last (:func:`default_split`).
Source: vLLM documentation, parallelism and environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _environment, _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "default_split", "export", "parse"]

NAME = "vllm"
TITLE = "vLLM: VLLM_PP_LAYER_PARTITION and the order of devices."
VARIABLE = "VLLM_PP_LAYER_PARTITION"


def default_split(layers: int, ranks: int) -> list[int]:
    """(ranks) layers of each rank when nothing is set.

    Examples
    --------
    >>> default_split(22, 4)
    [5, 6, 6, 5]
    """
    split = [layers // ranks] * ranks
    for k in range(2, layers % ranks + 2):
        split[-k] += 1
    return split


def parse(text: str, *, layers: int, ranks: int) -> list[int]:
    """(ranks) layers of each rank, from the variable's value.

    Raises
    ------
    InputError
        A part is no whole number; there are not ``ranks`` parts; they do not sum to ``layers``.
    """
    parts = text.split(",")
    for part in parts:
        if not re.fullmatch(r"\s*\d+\s*", part, re.ASCII):
            raise InputError(f"{VARIABLE} holds {part!r}, expected whole numbers with commas between")
    split = [int(part) for part in parts]
    if len(split) != ranks:
        raise InputError(f"{VARIABLE} has {len(split)} parts, expected one for each of {ranks} ranks")
    if sum(split) != layers:
        raise InputError(f"{VARIABLE} sums to {sum(split)}, expected the {layers} layers of the model")
    return split


def export(instance: Instance, result: Result | Solution) -> str:
    """Shell lines: the devices in rank order, the partition, and how to start (a comment)."""
    plan = _plan.read(instance, result, NAME)
    stages = plan.stages()
    ranks = [stage.device for stage in stages]
    split = [stage.size for stage in stages]
    lines = [
        *_environment.lines(plan, ranks),
        f"export {VARIABLE}={','.join(map(str, split))}",
        f"# vllm serve MODEL --pipeline-parallel-size {len(ranks)}",
    ]
    if split != default_split(len(plan.layers), len(ranks)):
        lines.append(f"# vLLM's own split would be {','.join(map(str, default_split(len(plan.layers), len(ranks))))}")
    text = "\n".join(lines) + "\n"
    _plan.same(plan, plan.layer_names, plan.indices(plan.layer_device), _simulate(text, len(plan.layers), ranks))
    return text


def _simulate(text: str, layers: int, ranks: Sequence[int]) -> list[int]:
    """(layers) device index of each layer, as vLLM reads the lines."""
    devices = _environment.visible(text)
    value = next(line for line in text.splitlines() if line.startswith(f"export {VARIABLE}=")).partition("=")[2]
    split = parse(value, layers=layers, ranks=len(ranks))
    return [device for device, size in zip(devices, split, strict=True) for _ in range(size)]
