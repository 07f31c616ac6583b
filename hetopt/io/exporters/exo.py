"""exo: whether its own split is the plan, for it takes none.

exo gives each machine of a ring layers in proportion to its memory: whole numbers by the largest remainder, the earlier machine
first among equals, and one layer at least (taken from the machine with the most). There is no setting to write; the text says
which layers each machine gets, and any other plan is refused with what exo would do. Source: exo, placement of shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "export", "proportional"]

NAME = "exo"
TITLE = "exo: the layers of each machine, where its own split by memory is the plan."


def proportional(layers: int, weights: Sequence[float]) -> list[int]:
    """Layers of each machine in proportion to its weight, by the largest remainder, one at least.

    Parameters
    ----------
    layers
        Layers to give out; at least one a machine.
    weights
        Memory of each machine, in any unit; positive.

    Raises
    ------
    InputError
        There are fewer layers than machines.

    Examples
    --------
    >>> proportional(61, [3, 2, 1])
    [31, 20, 10]
    """
    if layers < len(weights):
        raise InputError(f"exo gives each machine a layer, and there are {layers} for {len(weights)}")
    total = sum(map(Fraction, weights))
    exact = [layers * Fraction(weight) / total for weight in weights]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda k: (counts[k] - exact[k], k))
    for k in by_remainder[: layers - sum(counts)]:
        counts[k] += 1
    for k, count in enumerate(counts):
        if count == 0:
            counts[counts.index(max(counts))] -= 1
            counts[k] = 1
    return counts


def export(instance: Instance, result: Result | Solution) -> str:
    """Lines of text: a machine, its first and last layer."""
    plan = _plan.read(instance, result, NAME)
    stages = plan.stages()
    memory = [instance.devices[stage.device].memory for stage in stages]
    if not all(memory):
        raise plan.refuse("it splits by memory, and a device of the plan states none")
    split = proportional(len(plan.layers), [float(size) for size in memory if size])
    mapped = [stage.device for stage, size in zip(stages, split, strict=True) for _ in range(size)]
    if mapped != plan.layer_device:
        own = ", ".join(f"{plan.device(s.device)} {size}" for s, size in zip(stages, split, strict=True))
        raise plan.refuse(f"it splits by memory and takes no other split; it would give {own} layers")
    lines = [
        f"{plan.device(s.device)}: {plan.layer_names[s.start]} to {plan.layer_names[s.stop - 1]} ({s.size} layers)"
        for s in stages
    ]
    return "\n".join([*lines, "exo makes this split by itself; there is nothing to set"]) + "\n"
