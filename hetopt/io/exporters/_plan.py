"""A plan in the terms that other tools use: layers, stages, ranks. Shared by the exporters; knows no target.

Which tasks are layers. A task whose name has a part such as ``layer7``, ``layers.7``, ``block7``, ``blk.7`` or ``h.7`` (parts
are separated by ``.``, ``/`` or ``:``) belongs to layer 7; all tasks of a layer have the same text up to there, and the layers
count up from 0 or 1 along the graph. Of two such stacks (an encoder and a decoder) there is no single count, so they are
refused; a stack that is named ``mtp`` (multi-token prediction) is no layer. Where no task is numbered so and the tasks form a
chain, each task is a layer, except one at the start that is called an embedding and those at the end that are called norm, head
or output. A task that is no layer stands before them (no layer is among its ancestors: the embedding) or after them (no layer is
among its descendants: norm and head); anything between is refused. Tasks of the backward pass follow their forward tasks.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.costs.catalogue import known
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["Plan", "Run", "are_modules", "interchangeable", "read", "runs", "same", "workers"]

_LAYER = re.compile(r"^(?P<stem>(?:.*[./:])?(?:layers?|blocks?|blk|h)[._-]?)(?P<number>\d+)(?=$|[./:])", re.IGNORECASE)
_FIRST = re.compile(r"(?:.*[./:])?(?:embed\w*|\w*_embed\w*|wte|wpe|input)", re.IGNORECASE)
_LAST = re.compile(r"(?:.*[./:])?(?:\w*norm\w*|ln_f|\w*head|output|logits|pool\w*|classif\w*|softmax)", re.IGNORECASE)


class Run(NamedTuple):
    """Consecutive items on one device."""

    device: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many items."""
        return self.stop - self.start


def runs(devices: Sequence[int]) -> list[Run]:
    """Maximal runs of equal entries.

    Examples
    --------
    >>> [run.size for run in runs([4, 4, 2])]
    [2, 1]
    """
    found, at = [], 0
    for device, members in groupby(devices):
        stop = at + len(list(members))
        found.append(Run(device, at, stop))
        at = stop
    return found


@dataclass(frozen=True, eq=False)
class Plan:
    """A placement of one job, read for a target (whose name the refusals carry)."""

    instance: Instance
    placement: NDArray[np.int64]
    target: str

    def refuse(self, why: str) -> InputError:
        """The refusal, as a sentence that names the target."""
        return InputError(f"{self.target} cannot follow this plan: {why}")

    def unusable(self, why: str) -> InputError:
        """The refusal of a device that the target cannot use so, with how to plan without it."""
        return self.refuse(f"{why}; plan again for it: of a published model, `hetopt plan ... --to {self.target}` does")

    def device(self, number: int) -> str:
        """Name of a device."""
        return self.instance.device_names[number]

    # The graph ------------------------------------------------------------------------------------------------------

    @cached_property
    def order(self) -> list[int]:
        """Forward tasks in topological order; of several that could come next, the first in the file."""
        instance = self.instance
        after: dict[int, list[int]] = defaultdict(list)
        waiting = np.zeros(instance.n_tasks, np.int64)
        for source, target in self._forward_edges:
            after[source].append(target)
            waiting[target] += 1
        ready = [k for k in range(instance.n_tasks) if not waiting[k] and not instance.backward[k]]
        found: list[int] = []
        while ready:
            task = heapq.heappop(ready)
            found.append(task)
            for target in after[task]:
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(ready, target)
        return found

    @cached_property
    def _forward_edges(self) -> list[tuple[int, int]]:
        backward = self.instance.backward
        return [(s, t) for s, t in self.instance.edges.tolist() if not backward[s] and not backward[t]]

    @cached_property
    def is_chain(self) -> bool:
        """Whether each forward task feeds the next and no other."""
        pairs = set(zip(self.order, self.order[1:], strict=False))
        return set(self._forward_edges) == pairs

    # Layers ---------------------------------------------------------------------------------------------------------

    @cached_property
    def layers(self) -> list[list[int]]:
        """(L) forward tasks of each layer, in topological order. Raises InputError where layers cannot be told."""
        return [tasks for _, tasks in self._numbered]

    @cached_property
    def layer_names(self) -> list[str]:
        """(L) what the tasks of each layer are called up to its number, as ``model.layers.7``."""
        return [name for name, _ in self._numbered]

    @cached_property
    def _numbered(self) -> list[tuple[str, list[int]]]:
        stacks: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for task in self.order:
            match = _LAYER.match(self.instance.labels[task])
            if match and "mtp" not in match["stem"].lower():
                stacks[match["stem"]][int(match["number"])].append(task)
        if not stacks:
            return self._chain_layers()
        if len(stacks) > 1:
            named = " and ".join(repr(stem) for stem in sorted(stacks)[:2])
            raise self.refuse(f"it counts one stack of layers, and the tasks are named after several ({named})")
        [(stem, layers)] = stacks.items()
        numbers = sorted(layers)
        low = numbers[0]
        if low > 1 or numbers != list(range(low, low + len(numbers))):
            lost = next((k for k in range(1, numbers[-1]) if k not in layers), 0)
            raise self.refuse(f"its layers count up from 0 or 1 without a hole, and no task is named {stem}{lost}")
        where = {task: number for number, tasks in layers.items() for task in tasks}
        for source, target in self._forward_edges:
            if where.get(source, -1) > where.get(target, where.get(source, -1)):
                tasks = f"{self.instance.labels[source]!r} feeds {self.instance.labels[target]!r}"
                raise self.refuse(f"the numbers of its layers do not count along the graph: {tasks}")
        return [(f"{stem}{number}", layers[number]) for number in numbers]

    def _chain_layers(self) -> list[tuple[str, list[int]]]:
        if not self.is_chain:
            raise self.refuse(
                "it places numbered layers; no task's name holds one (layer7, layers.7, blk.7), and the tasks are no chain"
            )
        labels, order = self.instance.labels, list(self.order)
        while len(order) > 1 and _FIRST.fullmatch(labels[order[0]]):
            del order[0]
        while len(order) > 1 and _LAST.fullmatch(labels[order[-1]]):
            del order[-1]
        return [(labels[task], [task]) for task in order]

    @cached_property
    def _ends(self) -> tuple[list[int], list[int]]:
        inside = {task for tasks in self.layers for task in tasks}
        below, above = set(inside), set(inside)  # descendants and ancestors of layers
        for source, target in sorted(self._forward_edges, key=lambda e: self._rank[e[0]]):
            if source in below:
                below.add(target)
        for source, target in sorted(self._forward_edges, key=lambda e: -self._rank[e[1]]):
            if target in above:
                above.add(source)
        before, after = list[int](), list[int]()
        for task in self.order:
            if task in inside:
                continue
            if task in below and task in above:
                name = self.instance.labels[task]
                raise self.refuse(
                    f"it places whole layers, and the task {name!r} stands between layers without a number"
                )
            (after if task in below else before).append(task)
        return before, after

    @cached_property
    def _rank(self) -> dict[int, int]:
        return {task: at for at, task in enumerate(self.order)}

    @property
    def before(self) -> list[int]:
        """Tasks that no layer feeds: embeddings."""
        return self._ends[0]

    @property
    def after(self) -> list[int]:
        """Tasks that layers feed and that feed no layer: norm, head."""
        return self._ends[1]

    @cached_property
    def layer_device(self) -> list[int]:
        """(L) device of each layer. Raises InputError where a layer is cut in two."""
        return [
            self.one_device(tasks, f"the layer {name}")
            for name, tasks in zip(self.layer_names, self.layers, strict=True)
        ]

    def one_device(self, tasks: Sequence[int], what: str) -> int:
        """The device that all of some tasks are on; a refusal that names two that are apart otherwise."""
        first = tasks[0]
        for task in tasks[1:]:
            if self.placement[task] != self.placement[first]:
                one, other = (
                    f"{self.instance.labels[k]!r} is on {self.device(self.placement[k])}" for k in (first, task)
                )
                raise self.refuse(
                    f"it keeps {what} whole, and {one} but {other}; solve again with those tasks in one group"
                )
        return int(self.placement[first])

    # Stages ---------------------------------------------------------------------------------------------------------

    def stages(self) -> list[Run]:
        """Stages of a pipeline of whole layers: one run of layers a device, embedding on the first, head on the last.

        Raises
        ------
        InputError
            A layer is cut; a device has layers in two places; the embedding or the head is elsewhere.
        """
        found = self.one_run_each(self.layer_device, self.layer_names)
        for tasks, stage, end in ((self.before, found[0], "first"), (self.after, found[-1], "last")):
            for task in tasks:
                if self.placement[task] != stage.device:
                    here, there = self.device(self.placement[task]), self.device(stage.device)
                    name = self.instance.labels[task]
                    raise self.refuse(f"{name!r} is on {here}, but it runs with the {end} layers, which are on {there}")
        return found

    def one_run_each(self, devices: Sequence[int], names: Sequence[str]) -> list[Run]:
        """Runs of items by device, in order; refuses a device that has two."""
        found, seen = runs(devices), dict[int, Run]()
        for run in found:
            if run.device in seen:
                one, two = (f"{names[r.start]} to {names[r.stop - 1]}" for r in (seen[run.device], run))
                raise self.refuse(
                    f"a device runs one stretch of the model, and {self.device(run.device)} has {one} and {two}"
                )
            seen[run.device] = run
        return found

    def sequence(self) -> list[Run]:
        """Stages of a pipeline of single tasks in topological order, one run a device; refuses a device that has two."""
        names = [self.instance.labels[task] for task in self.order]
        return self.one_run_each(self.placement[self.order].tolist(), names)

    # Devices --------------------------------------------------------------------------------------------------------

    def kind(self, number: int) -> str:
        """What a device is: ``cpu`` for a host, else as the catalogue knows its type, else ``gpu``."""
        device = self.instance.devices[number]
        if device.host:
            return "cpu"
        name = device.type or device.name
        sheet = known(name)
        word = re.match(r"cpu|npu|tpu", name.lower())
        return sheet.kind if sheet is not None else word[0] if word else "gpu"

    @cached_property
    def accelerators(self) -> list[int]:
        """Devices other than CPUs, in the instance's order."""
        return [k for k in range(self.instance.n_devices) if self.kind(k) != "cpu"]

    @cached_property
    def maker(self) -> str:
        """Who makes the GPUs, ``nvidia`` where the catalogue does not know; a runtime numbers those of one maker only."""
        sheets = [known(v.type or v.name) for v in self.instance.devices]
        makers = sorted({s.vendor for k, s in enumerate(sheets) if s is not None and self._is_gpu(k)})
        if len(makers) > 1:
            raise self.refuse(f"it numbers the GPUs of one maker, and the instance has {' and '.join(makers)}")
        return makers[0] if makers else "nvidia"

    @cached_property
    def gpus(self) -> list[int]:
        """GPUs in the instance's order, as a runtime numbers them; refuses makers without numbers."""
        if self.maker not in ("nvidia", "amd"):
            raise self.refuse(f"its devices are GPUs of NVIDIA or AMD, and the instance has those of {self.maker}")
        return [k for k in range(self.instance.n_devices) if self._is_gpu(k)]

    def _is_gpu(self, number: int) -> bool:
        return self.kind(number) in ("gpu", "soc")

    def indices(self, devices: Sequence[int]) -> list[int]:
        """What a runtime calls each device: number k is the k-th GPU of the instance. Refuses what is no GPU."""
        for number in devices:
            if not self._is_gpu(number):
                raise self.unusable(f"its stages run on GPUs, and {self.device(number)} is a {self.kind(number)}")
        return [self.gpus.index(number) for number in devices]

    def legend(self, devices: Sequence[int]) -> str:
        """Which index is which device, for a comment."""
        named = sorted(zip(self.indices(devices), devices, strict=True))
        return ", ".join(f"{index} = {self.device(number)}" for index, number in named)


def workers(plan: Plan) -> list[int]:
    """Devices that run something, in the order in which the work first reaches them: one worker each, numbered so."""
    return list(dict.fromkeys(plan.placement[plan.order].tolist()))


def interchangeable(plan: Plan, labels: Mapping[int, str]) -> None:
    """A scheduler picks any device with a worker's label, so the devices of a label must be alike.

    Parameters
    ----------
    labels
        Label of each accelerator and CPU of the instance, as the scheduler sees it.

    Raises
    ------
    InputError
        Two devices with one label, of which the plan uses one, differ in times, memory or links.
    """
    instance = plan.instance
    ends = {end for link in instance.links for end in (link.source, link.target)}
    for used in workers(plan):
        for other, label in labels.items():
            if other == used or label != labels[used]:
                continue
            apart = [
                what
                for what, differ in (
                    ("times", not np.array_equal(instance.time[:, used], instance.time[:, other])),
                    ("usable memory", instance.capacity[used] != instance.capacity[other]),
                    ("links", plan.device(used) in ends or plan.device(other) in ends),
                )
                if differ
            ]
            if apart:
                pair = f"{plan.device(used)} and {plan.device(other)}"
                raise plan.refuse(
                    f"it tells devices apart by the label {label!r}, which {pair} share, with other {apart[0]}"
                )


def read(instance: Instance, result: Result | Solution, target: str, *, one_job: bool = True) -> Plan:
    """The plan, of one job unless the target takes several, every task with a place.

    Raises
    ------
    InputError
        No plan or no placement; several jobs; a task without a place; start times, shares or details (replicas, modes), which a
        target would not follow; a backward task apart from its forward task.
    """
    solution = result if isinstance(result, Solution) else result.solution
    if solution is None or solution.placement is None:
        raise InputError(f"the result places no tasks, so there is nothing to export to {target}")
    more = [name for name in ("start", "shares") if getattr(solution, name) is not None] + sorted(solution.details)
    if more:
        raise InputError(f"{target} follows a placement only, and the plan also has: {', '.join(more)}")
    if one_job and instance.n_jobs != 1:
        raise InputError(
            f"{target} runs one model, and the instance has {instance.n_jobs} jobs; export them one by one"
        )
    for task in np.flatnonzero(solution.placement < 0).tolist():
        raise InputError(f"the task {instance.labels[task]!r} has no place in the plan, so {target} could not run it")
    plan = Plan(instance, solution.placement, target)
    if one_job:
        _backward_follows(plan)
    return plan


def _backward_follows(plan: Plan) -> None:
    """Pipelines run a backward task where its forward task ran: refuse one that is not in a group with it, or elsewhere."""
    instance, place = plan.instance, plan.placement
    home = {(g, d) for g, d, b in zip(instance.group, place, instance.backward, strict=True) if g >= 0 and not b}
    for task in np.flatnonzero(instance.backward).tolist():
        if (instance.group[task], place[task]) not in home:
            name = instance.labels[task]
            raise plan.refuse(
                f"the backward task {name!r} is in no group with a forward task on {plan.device(place[task])}"
            )


def are_modules(plan: Plan, names: Sequence[str]) -> None:
    """Refuse names of operators, which ``import torch`` writes as ``layers.0.mlp: linear_3``, where a target knows modules."""
    finer = next((name for name in names if ":" in name), None)
    if finer is not None:
        raise plan.refuse(
            f"it places modules, and {finer!r} is an operator in one; plan the model's config.json instead (`hetopt import hf`), "
            "whose tasks are modules"
        )


def same(plan: Plan, names: Sequence[str], planned: Sequence[int | str], mapped: Sequence[int | str]) -> None:
    """Compare, item by item, where the plan has it with where the target's own mapping would put it.

    Raises
    ------
    InputError
        They differ; the sentence names the first item.
    """
    if len(planned) != len(mapped):
        raise plan.refuse(f"read back, its setting places {len(mapped)} items, and the plan has {len(planned)}")
    for name, want, got in zip(names, planned, mapped, strict=True):
        if want != got:
            raise plan.refuse(f"read back, its setting puts {name} on device {got}, and the plan on device {want}")
