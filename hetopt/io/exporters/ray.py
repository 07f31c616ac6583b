"""Ray: a placement group, one bundle a device, as Python text.

Bundle k is for rank k: one GPU and a CPU, or a CPU only, on nodes whose ``ray.io/accelerator-type`` is the one that Ray
itself detects for the device (from the catalogue), or whose label ``hetopt/device-type``, set by you, is the device's type.
Ray's names are coarse: it calls all A100 alike. A plan that needs them told apart is refused, for devices with one label must
be alike.
Source: Ray documentation, placement groups and label selectors.
"""

from __future__ import annotations

import ast
import json

from hetopt.costs.catalogue import known
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "ranks"]

NAME = "ray"
TITLE = "Ray: placement group with a bundle and a label selector for each device, as Python text."
ACCELERATOR, TYPE = "ray.io/accelerator-type", "hetopt/device-type"


def ranks(text: str) -> list[str]:
    """Label of the nodes that each bundle may be on.

    Raises
    ------
    InputError
        There are not as many selectors as bundles, or a bundle asks for more than one GPU.
    """
    values = {
        node.targets[0].id: ast.literal_eval(node.value)  # type: ignore[attr-defined]
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
    }
    bundles, selectors = values["bundles"], values["bundle_label_selector"]
    if len(bundles) != len(selectors) or any(bundle.get("GPU", 1) != 1 for bundle in bundles):
        raise InputError("expected one selector a bundle, and one GPU at most")
    return [next(iter(selector.values())) for selector in selectors]


def export(instance: Instance, result: Result | Solution) -> str:
    """Python text that defines ``bundles`` and ``bundle_label_selector`` and makes the group."""
    plan = _plan.read(instance, result, NAME, one_job=False)
    workers = _plan.workers(plan)
    selectors = {k: _selector(device.type or device.name) for k, device in enumerate(instance.devices)}
    labels = {k: value for k, (_, value) in selectors.items()}
    _plan.interchangeable(plan, labels)
    for number in workers:
        if plan.kind(number) not in ("cpu", "gpu"):
            raise plan.refuse(f"its bundles ask for GPUs and CPUs, and {plan.device(number)} is a {plan.kind(number)}")
    wants = [{"CPU": 1} if plan.kind(k) == "cpu" else {"GPU": 1, "CPU": 1} for k in workers]
    bundles = "".join(
        f"    {json.dumps(want)},  # rank {rank}: {plan.device(workers[rank])}\n" for rank, want in enumerate(wants)
    )
    chosen = "".join(f"    {dict([selectors[k]])!r},\n" for k in workers)
    text = (
        "from ray.util.placement_group import placement_group\n\n"
        f"bundles = [\n{bundles}]\nbundle_label_selector = [\n{chosen}]\n\n"
        'group = placement_group(bundles, strategy="PACK", bundle_label_selector=bundle_label_selector)\n'
    )
    names = [f"rank {rank}" for rank in range(len(workers))]
    _plan.same(plan, names, [labels[k] for k in workers], ranks(text))
    return text


def _selector(kind_name: str) -> tuple[str, str]:
    sheet = known(kind_name)
    return (ACCELERATOR, sheet.accelerator) if sheet is not None and sheet.accelerator else (TYPE, kind_name)
