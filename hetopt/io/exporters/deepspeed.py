"""DeepSpeed: bounds of the pipeline's stages for a ``PipelineModule``.

DeepSpeed has no setting for explicit bounds: it splits by itself (``uniform``, ``parameters``, ``type:regex``). The exporter
writes a subclass that sets the bounds in the method that would compute them; where DeepSpeed's uniform split is the plan, it
writes that instead. Items are what the list of layers holds, one for each: embedding tasks, layers, tasks after them. Stage k
is coordinate k of the pipeline axis. Source: DeepSpeed documentation of pipelines.
"""

from __future__ import annotations

import ast

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _environment, _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "stage_of", "uniform_bounds"]

NAME = "deepspeed"
TITLE = "DeepSpeed: bounds of the stages of a PipelineModule, as Python text."

_CLASS = '''
class Planned(PipelineModule):
    """PipelineModule(layers, num_stages={stages}) with these bounds."""

    def _partition_layers(self, method="planned"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = PARTS
        self._set_bounds(start=PARTS[stage], stop=PARTS[stage + 1])
'''
_UNIFORM = '''
def planned(layers, **more):
    """The uniform split is the plan."""
    return PipelineModule(layers, num_stages={stages}, partition_method="uniform", **more)
'''


def uniform_bounds(items: int, stages: int) -> list[int]:
    """(stages + 1) bounds of DeepSpeed's uniform split: the first stages take one item more.

    Examples
    --------
    >>> uniform_bounds(7, 2)
    [0, 4, 7]
    """
    size, more = divmod(items, stages)
    return [k * size + min(k, more) for k in range(stages + 1)]


def stage_of(bounds: list[int], items: int) -> list[int]:
    """(items) stage of each item; InputError where the bounds do not cover the items in order."""
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != items or bounds != sorted(bounds):
        raise InputError(f"the bounds {bounds} do not run from 0 to {items} in order")
    return [k for k in range(len(bounds) - 1) for _ in range(bounds[k], bounds[k + 1])]


def export(instance: Instance, result: Result | Solution) -> str:
    """Python text: ``PARTS``, and a class (or function) that builds the module with them."""
    plan = _plan.read(instance, result, NAME)
    groups = [*([task] for task in plan.before), *plan.layers, *([task] for task in plan.after)]
    names = [instance.labels[tasks[0]] if len(tasks) == 1 else plan.layer_names[k - len(plan.before)]
             for k, tasks in enumerate(groups)]  # fmt: skip
    items = [plan.one_device(tasks, f"the item {name}") for tasks, name in zip(groups, names, strict=True)]
    stages = plan.one_run_each(items, names)
    bounds = [0, *(stage.stop for stage in stages)]
    uniform = bounds == uniform_bounds(len(items), len(stages))
    body = (_UNIFORM if uniform else _CLASS).format(stages=len(stages))
    shell = "\n".join(f"# {line.removeprefix('# ')}" for line in _environment.lines(plan, [s.device for s in stages]))
    text = (
        f"{shell}\n# items: {names[0]}, ..., {names[-1]} ({len(items)})\n"
        f"from deepspeed.pipe import PipelineModule\n\nPARTS = {bounds}\n\n{body}"
    )
    _plan.same(plan, names, plan.indices(items), _simulate(text, len(items)))
    return text


def _simulate(text: str, items: int) -> list[int]:
    """(items) device index of each item, as DeepSpeed would run the text with its stages on the visible devices."""
    devices = _environment.visible(text.replace("# export", "export"))
    [value] = [node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    bounds = uniform_bounds(items, len(devices)) if 'partition_method="uniform"' in text else []
    return [devices[stage] for stage in stage_of(bounds or ast.literal_eval(value), items)]
