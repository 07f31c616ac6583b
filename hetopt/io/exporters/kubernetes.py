"""Kubernetes: one Pod a device, as a JSON manifest (``kubectl apply -f FILE``).

A Pod limits ``nvidia.com/gpu`` (AMD: ``amd.com/gpu``) to 1 and selects nodes by ``nvidia.com/gpu.product``, the label that GPU
feature discovery sets, as the catalogue knows it for the device's type; a device that the catalogue has no product name for is
selected by the label ``hetopt/device-type`` instead, which you set on the nodes. The scheduler picks any node with the labels,
so devices with equal labels must be alike. ``IMAGE`` stands for your image; the environment says which rank a Pod is.
Source: Kubernetes documentation, device plugins and node labels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hetopt.costs.catalogue import known
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "ranks"]

NAME = "kubernetes"
TITLE = "Kubernetes: a Pod for each device, as a JSON manifest."
PRODUCT, TYPE = "nvidia.com/gpu.product", "hetopt/device-type"
RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}


def ranks(manifest: Mapping[str, Any]) -> list[str]:
    """Label of the nodes that each rank's Pod may run on.

    Raises
    ------
    InputError
        A rank is missing, or a Pod selects by other than one label, or asks for other than a whole device.
    """
    found: dict[int, str] = {}
    for pod in manifest["items"]:
        [container] = pod["spec"]["containers"]
        rank = next(int(entry["value"]) for entry in container["env"] if entry["name"] == "RANK")
        selector = list(pod["spec"]["nodeSelector"].values())
        if len(selector) != 1 or any(count != 1 for count in container["resources"].get("limits", {}).values()):
            raise InputError(f"the Pod of rank {rank} must select by one label and limit its device to 1")
        found[rank] = selector[0]
    if sorted(found) != list(range(len(manifest["items"]))):
        raise InputError("the Pods' ranks must count from 0, each once")
    return [found[rank] for rank in sorted(found)]


def export(instance: Instance, result: Result | Solution) -> str:
    """The manifest: a List of Pods, rank by rank."""
    plan = _plan.read(instance, result, NAME, one_job=False)
    workers = _plan.workers(plan)
    selectors = {k: _selector(device.type or device.name) for k, device in enumerate(instance.devices)}
    labels = {k: value for k, (_, value) in selectors.items()}
    for number in workers:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", labels[number]):
            raise plan.refuse(f"the type {labels[number]!r} of {plan.device(number)} cannot be the value of a label")
    _plan.interchangeable(plan, labels)
    stem = re.sub(r"[^a-z0-9]+", "-", instance.name.lower()).strip("-")[:40].strip("-") or "plan"
    pods = [
        _pod(f"{stem}-{rank}", selectors[number], plan, number, rank, len(workers))
        for rank, number in enumerate(workers)
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}, indent=1) + "\n"
    names = [f"rank {rank}" for rank in range(len(workers))]
    _plan.same(plan, names, [labels[k] for k in workers], ranks(json.loads(text)))
    return text


def _selector(kind_name: str) -> tuple[str, str]:
    sheet = known(kind_name)
    return (PRODUCT, sheet.product) if sheet is not None and sheet.product else (TYPE, kind_name)


def _pod(name: str, selector: tuple[str, str], plan: _plan.Plan, number: int, rank: int, world: int) -> dict[str, Any]:
    device = plan.instance.devices[number]
    sheet = known(device.type or device.name)
    resource = RESOURCES.get(sheet.vendor if sheet is not None else "nvidia")
    if plan.kind(number) not in ("cpu", "gpu") or (plan.kind(number) == "gpu" and resource is None):
        raise plan.refuse(f"it knows how to ask for GPUs of NVIDIA and AMD and for CPUs, not for {plan.device(number)}")
    limits = {} if plan.kind(number) == "cpu" else {resource: 1}
    tasks = int((plan.placement == number).sum())
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"hetopt/device": plan.device(number), "hetopt/tasks": str(tasks)}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": dict([selector]),
            "containers": [
                {
                    "name": "worker",
                    "image": "IMAGE",
                    "env": [{"name": "RANK", "value": str(rank)}, {"name": "WORLD_SIZE", "value": str(world)}],
                    "resources": {"limits": limits} if limits else {},
                }
            ],
        },
    }
