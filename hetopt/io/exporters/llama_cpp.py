"""llama.cpp: how many layers go to devices (``-ngl``) and in which proportion (``-ts``).

llama.cpp counts slots: one a repeating layer, and one for the output head behind them. ``-ngl N`` takes the last N slots to
devices, the others stay in host memory; ``-ts a,b`` are proportions in the order of ``--device``, added up and normalised in
single precision, and a slot goes to the first device whose share ends beyond it. The cache of a layer lives with the layer. The
exporter writes proportions that are the whole numbers of slots, which come back exactly.

Experts of a layer on a device may lie in host memory: ``-ot`` maps tensors to memories by a regular expression that is searched
in their names (``--n-cpu-moe N`` where the layers are the first N). These are the tasks of a layer whose names end in
``experts`` or ``exps``.

The input embedding always stays in host memory, whatever the plan says; where the plan has it on a device the text says so
in a comment, for this needs host memory and frees the device's. Numbers of ``-ngl`` follow builds that count the output head.
Source: llama.cpp documentation of its server and of several GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "hosted_experts", "slots"]

NAME = "llama.cpp"
TITLE = "llama.cpp: --device, --n-gpu-layers and --tensor-split."
HOST = -1
_EXPERTS = re.compile(r"(?:.*[._/:])?(?:experts|\w*_exps)", re.IGNORECASE)
_TENSORS = ("up", "down", "gate")  # blk.K.ffn_up_exps.weight and so on


def slots(layers: int, offloaded: int, split: Sequence[float]) -> list[int]:
    """(layers + 1) device of each slot, the last being the output head; -1 for host memory.

    Parameters
    ----------
    layers
        Repeating layers of the model.
    offloaded
        Value of ``-ngl``.
    split
        Values of ``-ts``, one a device.

    Examples
    --------
    >>> [slots(32, 99, [1, 1]).count(k) for k in (0, 1)]
    [17, 16]
    """
    first = max(layers + 1 - offloaded, 0)
    active = min(offloaded, layers + 1)
    ends = np.cumsum(np.asarray(split, np.float32), dtype=np.float32)
    ends = ends / ends[-1] if len(ends) else ends
    found = []
    for slot in range(layers + 1):
        at = np.float32(slot - first) / np.float32(max(active, 1))
        found.append(int(np.searchsorted(ends, at, side="right")) if first <= slot < first + active else HOST)
    return found


def hosted_experts(given: Mapping[str, str], layers: int) -> list[bool]:
    """(layers) whether the experts of each layer are kept in host memory, from the arguments by name.

    Raises
    ------
    InputError
        Some of a layer's three expert tensors are, and some are not.

    Examples
    --------
    >>> hosted_experts({"--n-cpu-moe": "1"}, 2)
    [True, False]
    """
    first = int(given.get("--n-cpu-moe", "0"))
    pattern, _, memory = given.get("--override-tensor", "").strip('"').rpartition("=")
    found = []
    for layer in range(layers):
        names = [f"blk.{layer}.ffn_{kind}_exps.weight" for kind in _TENSORS]
        kept = {layer < first or (memory == "CPU" and re.search(pattern, name) is not None) for name in names}
        if len(kept) > 1:
            raise InputError(
                f"--override-tensor {pattern!r} holds some experts of layer {layer} only; expected all or none"
            )
        found.append(kept.pop())
    return found


def export(instance: Instance, result: Result | Solution) -> str:
    """Arguments for ``llama-server`` and ``llama-cli``, with comments."""
    plan = _plan.read(instance, result, NAME)
    devices, apart = _layers(plan)
    devices.append(plan.one_device(plan.after, "the output head") if plan.after else devices[-1])
    names = [*plan.layer_names, "the output head"]
    stages = plan.one_run_each(devices, names)
    for stage in stages[1:]:
        if plan.kind(stage.device) == "cpu":
            what = f"{names[stage.start]} to {names[stage.stop - 1]}"
            raise plan.unusable(
                f"it keeps the first layers in host memory, and the plan has {what} on {plan.device(stage.device)}"
            )
    on_host = stages[0].size if plan.kind(stages[0].device) == "cpu" else 0
    used = [stage for stage in stages if plan.kind(stage.device) != "cpu"]
    indices = plan.indices([stage.device for stage in used])
    arguments = [f"--n-gpu-layers {len(devices) - on_host}"]
    lines = []
    if used:
        lines.append(f"# devices as llama-server --list-devices shows them: {plan.legend([s.device for s in used])}")
        prefix = "ROCm" if plan.maker == "amd" else "CUDA"
        names_of_devices = ",".join(f"{prefix}{index}" for index in indices)
        split = ",".join(str(stage.size) for stage in used)
        arguments = [f"--device {names_of_devices}", *arguments, "--split-mode layer", f"--tensor-split {split}"]
    if any(apart):
        arguments.append(_override(apart))
    for task in plan.before:
        if plan.kind(int(plan.placement[task])) != "cpu":
            size = f"{instance.memory[task]:,.0f} bytes"
            lines.append(
                f"# {instance.labels[task]!r} ({size}) stays in host memory, not on {plan.device(plan.placement[task])}"
            )
    text = "\n".join([*lines, " ".join(arguments)]) + "\n"
    planned = [str(HOST) if plan.kind(k) == "cpu" else str(plan.indices([k])[0]) for k in devices]
    planned += [str(HOST) if k else where for k, where in zip(apart, planned[:-1], strict=True)]
    experts = [f"the experts of {name}" for name in plan.layer_names]
    _plan.same(plan, [*names, *experts], planned, _simulate(text, len(plan.layers)))
    return text


def _layers(plan: _plan.Plan) -> tuple[list[int], list[bool]]:
    """Device of each layer, and whether its experts are on the host while it is on another device."""
    devices, apart = [], []
    for name, tasks in zip(plan.layer_names, plan.layers, strict=True):
        experts = [k for k in tasks if _EXPERTS.fullmatch(plan.instance.labels[k])]
        rest = [k for k in tasks if k not in experts]
        hosted = bool(experts and rest) and all(plan.kind(int(plan.placement[k])) == "cpu" for k in experts)
        devices.append(plan.one_device(rest if hosted else tasks, f"the layer {name}"))
        apart.append(hosted and plan.kind(devices[-1]) != "cpu")
    return devices, apart


def _override(apart: Sequence[bool]) -> str:
    """The argument that keeps the experts of some layers in host memory."""
    kept = [k for k, hosted in enumerate(apart) if hosted]
    if kept == list(range(len(kept))):
        return f"--n-cpu-moe {len(kept)}"
    return rf'--override-tensor "blk\.({"|".join(map(str, kept))})\.ffn_({"|".join(_TENSORS)})_exps\.=CPU"'


def _simulate(text: str, layers: int) -> list[str]:
    """(2 layers + 1) number of the device of each slot, then of each layer's experts; ``-1`` for host memory."""
    words = text.splitlines()[-1].split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    devices = [re.sub(r"^(CUDA|ROCm)", "", name) for name in given.get("--device", "").split(",")]
    split = [float(part) for part in given.get("--tensor-split", "0").split(",")]
    offloaded = int(given["--n-gpu-layers"])
    found = [str(HOST) if k == HOST else devices[k] for k in slots(layers, offloaded, split if offloaded else [])]
    experts = zip(hosted_experts(given, layers), found[:-1], strict=True)
    return [*found, *(str(HOST) if hosted else where for hosted, where in experts)]
