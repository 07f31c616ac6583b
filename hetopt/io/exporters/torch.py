"""PyTorch pipelines: where to split a traced module, and the modules of each part.

``torch.distributed.pipelining.pipeline`` takes ``split_spec``: a stage begins before each submodule that it names; k names make
k + 1 stages, and stage k runs as rank k. torchtitan takes ``module_fqns_per_model_part``, a list of modules a stage. Tasks are
taken to be modules with the task's name as their qualified name, called in the order of the graph; a stage that begins with the
first task of a layer is named by the layer (``layers.8``). The tasks may be finer than layers. Source: PyTorch and torchtitan
documentation.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _environment, _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "stages_of_parts", "stages_of_split"]

NAME = "torch"
TITLE = "PyTorch: split_spec of torch.distributed.pipelining, and torchtitan's lists of modules, as Python text."


def stages_of_split(modules: Sequence[str], begins: Sequence[str]) -> list[int]:
    """(n) stage of each module, called in this order, when a stage begins before each of the named ones.

    Raises
    ------
    InputError
        A name begins no module, or the first one, before which nothing can be split off.
    """
    found, stage, open_names = list[int](), 0, list(begins)
    for at, module in enumerate(modules):
        name = next((name for name in open_names if _inside(module, name)), None)
        if name is not None:
            if at == 0:
                raise InputError(f"the split at {name!r} is before the first module, so the first stage would be empty")
            open_names.remove(name)
            stage += 1
        found.append(stage)
    if open_names:
        raise InputError(f"the split at {open_names[0]!r} is at no module")
    return found


def stages_of_parts(modules: Sequence[str], parts: Sequence[Sequence[str]]) -> list[int]:
    """(n) stage of each module: the part that names it, or a module that contains it; the longest name counts.

    Raises
    ------
    InputError
        A module is in no part, or by the same name in two.
    """
    found = []
    for module in modules:
        fitting = [(len(name), k) for k, part in enumerate(parts) for name in part if _inside(module, name)]
        longest = [k for size, k in fitting if size == max(fitting)[0]]
        if len(longest) != 1:
            raise InputError(f"the module {module!r} is in {len(longest)} parts, expected one")
        found.append(longest[0])
    return found


def _inside(module: str, name: str) -> bool:
    return module == name or module.startswith(name + ".")


def export(instance: Instance, result: Result | Solution) -> str:
    """Python text that defines ``split_spec`` and ``module_fqns_per_model_part``."""
    plan = _plan.read(instance, result, NAME)
    modules = [instance.labels[task] for task in plan.order]
    stages = plan.sequence()
    whole = _layers_by_task(plan)
    names = [modules[stage.start] for stage in stages[1:]]
    begins = [_shortest(name, modules[: stage.start], whole) for name, stage in zip(names, stages[1:], strict=True)]
    parts = [_parts(modules[stage.start : stage.stop], modules, whole) for stage in stages]
    _plan.are_modules(plan, [*begins, *(name for part in parts for name in part)])
    spec = "".join(f"    {name!r}: SplitPoint.BEGINNING,\n" for name in begins)
    lists = "".join(f"    {part!r},\n" for part in parts)
    shell = "\n".join(f"# {line.removeprefix('# ')}" for line in _environment.lines(plan, [s.device for s in stages]))
    text = (
        f"{shell}\nfrom torch.distributed.pipelining import SplitPoint\n\n"
        f"split_spec = {{\n{spec}}}\n\nmodule_fqns_per_model_part = [\n{lists}]\n"
    )
    planned = plan.indices(plan.placement[plan.order].tolist())
    for mapped in _simulate(text, modules):
        _plan.same(plan, modules, planned, mapped)
    return text


def _layers_by_task(plan: _plan.Plan) -> dict[str, str]:
    """Name of the layer that a task's module is in, where layers can be told."""
    try:
        named = zip(plan.layer_names, plan.layers, strict=True)
    except InputError:
        return {}
    return {plan.instance.labels[task]: name for name, tasks in named for task in tasks}


def _shortest(module: str, earlier: Sequence[str], whole: dict[str, str]) -> str:
    """The layer's name where none of the layer ran earlier, else the module's own."""
    layer = whole.get(module, module)
    return module if any(_inside(other, layer) for other in earlier) else layer


def _parts(members: Sequence[str], modules: Sequence[str], whole: dict[str, str]) -> list[str]:
    inside = set(members)
    complete = {
        layer for layer in set(whole.values()) if all(module in inside for module in modules if _inside(module, layer))
    }
    return list(dict.fromkeys(whole[m] if whole.get(m) in complete else m for m in members))


def _simulate(text: str, modules: Sequence[str]) -> list[list[int]]:
    """Device index of each module, once by ``split_spec`` and once by the lists."""
    devices = _environment.visible(text.replace("# export", "export"))
    values = {node.targets[0].id: node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    split = values["split_spec"]
    assert isinstance(split, ast.Dict)
    begins = [ast.literal_eval(key) for key in split.keys if key is not None]
    parts = ast.literal_eval(values["module_fqns_per_model_part"])
    return [
        [devices[k] for k in found] for found in (stages_of_split(modules, begins), stages_of_parts(modules, parts))
    ]
