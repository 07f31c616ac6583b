"""Accelerate and transformers: a ``device_map``, as JSON.

A key is the qualified name of a module or parameter, ``""`` the whole model; a value is a GPU's number, ``"cpu"`` or ``"disk"``
(a host of that name). A parameter goes where the longest key that is a prefix of its name says (whole parts between dots
count), and each parameter must have one. Tasks are taken to be modules with the task's name; a layer that lies on one device
whole is one key. Devices need not have one stretch of the model each, but every change of device is a transfer. Source:
Accelerate documentation, big model inference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "resolve"]

NAME = "accelerate"
TITLE = "Accelerate and transformers: device_map as JSON."


def resolve(device_map: Mapping[str, int | str], parameters: Sequence[str]) -> list[int | str]:
    """Device of each parameter, by the longest key that is a prefix of its name.

    Raises
    ------
    InputError
        A value is neither a whole number nor ``"cpu"`` or ``"disk"``; a parameter has no key.
    """
    for key, value in device_map.items():
        if isinstance(value, bool) or (not isinstance(value, int) and value not in ("cpu", "disk")):
            raise InputError(f"device_map[{key!r}] is {value!r}, expected a GPU's number, 'cpu' or 'disk'")
    found = []
    for name in parameters:
        parts = name.split(".")
        keys = [".".join(parts[:k]) for k in range(len(parts), -1, -1)]
        matching = [key for key in keys if key in device_map]
        if not matching:
            raise InputError(f"the device_map has no key for the parameter {name!r}")
        found.append(device_map[matching[0]])
    return found


def export(instance: Instance, result: Result | Solution) -> str:
    """JSON text of the map, keys in the order in which the modules run."""
    plan = _plan.read(instance, result, NAME)
    names = [instance.labels[task] for task in plan.order]
    place = plan.placement[plan.order].tolist()
    hosts = sorted({plan.device(k) for k in place if plan.kind(k) == "cpu" and not _is_disk(plan, k)})
    if len(hosts) > 1:
        raise plan.refuse(f"it knows one host, and the plan uses {' and '.join(hosts)}")
    planned = [_value(plan, k) for k in place]
    if len(set(planned)) == 1:
        device_map = {"": planned[0]}
    else:
        where, device_map = dict(zip(names, planned, strict=True)), {}
        layer_of = _whole_layers(plan, where)
        for name in names:
            device_map[layer_of.get(name, name)] = where[name]
        _plan.are_modules(plan, list(device_map))
    text = json.dumps(device_map, indent=1) + "\n"
    _plan.same(plan, names, planned, resolve(json.loads(text), names))
    return text


def _is_disk(plan: _plan.Plan, number: int) -> bool:
    device = plan.instance.devices[number]
    return "disk" in (device.name, device.type) and plan.kind(number) == "cpu"


def _value(plan: _plan.Plan, number: int) -> int | str:
    """What the map calls a device."""
    if plan.kind(number) == "cpu":
        return "disk" if _is_disk(plan, number) else "cpu"
    return plan.indices([number])[0]


def _whole_layers(plan: _plan.Plan, where: Mapping[str, int | str]) -> dict[str, str]:
    """Name of the layer for each task of a layer that is on one device; empty where layers cannot be told."""
    try:
        named = list(zip(plan.layer_names, plan.layers, strict=True))
    except InputError:
        return {}
    labels = plan.instance.labels
    alone = [(name, [labels[k] for k in tasks]) for name, tasks in named if len({where[labels[k]] for k in tasks}) == 1]
    return {task: name for name, tasks in alone for task in tasks}
