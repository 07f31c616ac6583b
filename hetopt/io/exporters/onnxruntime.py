"""ONNX Runtime: which node runs on which kind of device, by annotations and a session option, as JSON.

Each node gets the annotation that ``layer_ann`` says (``metadata_props`` of the node of the task's name), and the option
``session.layer_assignment_settings`` maps annotations to ``cpu``, ``gpu`` or ``npu``: ``gpu(a, b); cpu(=c)``, where ``a`` is a
prefix and ``=c`` an exact annotation; prefixes are looked up before exact ones, each from left to right. The exporter writes
exact ones only. A session has one device of a kind, so a plan with two GPUs needs a session each: split the model instead.
Source: ONNX Runtime documentation of annotated partitioning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "assigned", "export", "parse"]

NAME = "onnxruntime"
TITLE = "ONNX Runtime: node annotations and session.layer_assignment_settings, as JSON."
OPTION = "session.layer_assignment_settings"
KINDS = ("cpu", "gpu", "npu")


def parse(setting: str) -> list[tuple[str, str, bool]]:
    """(device, annotation, whether it is exact) of each rule, from the option's value, in order.

    Raises
    ------
    InputError
        The text is not ``device(annotation, ...); ...``, or a device is none of cpu, gpu, npu.
    """
    rules = []
    for part in setting.split(";"):
        match = re.fullmatch(r"\s*(\w+)\s*\(([^()]*)\)\s*", part)
        if match is None or match[1] not in KINDS:
            raise InputError(f"{OPTION} holds {part.strip()!r}, expected cpu, gpu or npu and annotations in brackets")
        for word in match[2].split(","):
            annotation = word.strip()
            if not annotation.removeprefix("="):
                raise InputError(f"{OPTION} holds an empty annotation in {part.strip()!r}")
            rules.append((match[1], annotation.removeprefix("="), annotation.startswith("=")))
    return rules


def assigned(setting: str, annotation: str) -> str | None:
    """The device that a node with this annotation is given; None when no rule fits."""
    rules = parse(setting)
    prefixes = (device for device, text, exact in rules if not exact and annotation.startswith(text))
    return next(prefixes, None) or next((device for device, text, exact in rules if exact and annotation == text), None)


def export(instance: Instance, result: Result | Solution) -> str:
    """JSON text: ``session_options``, ``layer_ann`` by node, and how many ``islands`` each device gets."""
    plan = _plan.read(instance, result, NAME)
    device_of: dict[str, int] = {}
    planned = []
    for number in plan.placement[plan.order].tolist():
        kind = plan.kind(number)
        if kind not in KINDS:
            raise plan.refuse(f"it knows cpu, gpu and npu, and {plan.device(number)} is a {kind}")
        if device_of.setdefault(kind, number) != number:
            one, two = plan.device(device_of[kind]), plan.device(number)
            raise plan.refuse(
                f"a session has one {kind}, and the plan uses {one} and {two}; run a session on each instead"
            )
        planned.append(kind)
    names = [instance.labels[task] for task in plan.order]
    setting = "; ".join(f"{kind}(=hetopt_{kind})" for kind in sorted(device_of))
    record = {
        "session_options": {OPTION: setting},
        "layer_ann": {name: f"hetopt_{kind}" for name, kind in zip(names, planned, strict=True)},
    }
    text = json.dumps({**record, "islands": _islands(plan)}, indent=1) + "\n"
    _plan.same(plan, names, planned, _simulate(json.loads(text), names))
    return text


def _islands(plan: _plan.Plan) -> dict[str, int]:
    """Connected parts of the graph on each kind of device: what the runtime hands over one by one."""
    edges = plan.instance.edges
    place = plan.placement
    inside = edges[place[edges[:, 0]] == place[edges[:, 1]]] if len(edges) else np.empty((0, 2), np.int64)
    n = plan.instance.n_tasks
    graph = coo_array((np.ones(len(inside)), (inside[:, 0], inside[:, 1])), shape=(n, n))
    _, part = connected_components(graph, directed=False)
    first = np.unique(part[plan.order], return_index=True)[1]
    kinds = [plan.kind(int(place[plan.order[k]])) for k in first.tolist()]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def _simulate(record: Mapping[str, Mapping[str, str]], names: list[str]) -> list[str]:
    """Kind of device of each node, as ONNX Runtime assigns it."""
    setting = record["session_options"][OPTION]
    return [str(assigned(setting, record["layer_ann"][name])) for name in names]
