"""Megatron-LM: ``--pipeline-model-parallel-layout``, a string of stages.

``E`` is the embedding, ``t`` a decoder layer, ``m`` a multi-token-prediction layer, ``L`` norm, head and loss; ``|`` separates
stages, ``x*n`` and ``(...)*n`` repeat, commas mean nothing. There are pp * vpp stages; stage s runs on pipeline rank s % pp, as
its part s // pp. So a plan that goes round its devices several times in one order can be followed too. Stages without
layers are allowed: an embedding or a head may have a device to itself. Source: Megatron-LM, argument documentation.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.io.exporters import _environment, _plan
from hetopt.result import Result
from hetopt.solution import Solution

__all__ = ["NAME", "TITLE", "Layout", "export", "layout", "parse"]

NAME = "megatron"
TITLE = "Megatron-LM: --pipeline-model-parallel-layout, also for interleaved stages."
MOST = 1 << 16  # letters that a layout may hold; a real one holds hundreds


class Layout(NamedTuple):
    """What a string says: ``stages[s]`` is the text of stage s, expanded."""

    stages: tuple[str, ...]

    @property
    def decoders(self) -> int:
        """Decoder layers."""
        return sum(stage.count("t") for stage in self.stages)

    @property
    def predictors(self) -> int:
        """Multi-token-prediction layers."""
        return sum(stage.count("m") for stage in self.stages)


def parse(text: str, ranks: int) -> Layout:
    """Read a layout string for ``ranks`` pipeline ranks.

    Raises
    ------
    InputError
        A letter that means nothing, a bracket or factor that does not fit; a number of stages that is no multiple of
        ``ranks``; not exactly one ``E`` at the start and one ``L`` at the end; an ``m`` before a ``t``, in two stages, or on
        the first rank.
    """
    body = re.sub(r"[,\s]", "", text)
    while "(" in body or ")" in body:
        match = re.search(r"\(([^()]*)\)(?:\*(\d+))?", body)
        if match is None:
            raise InputError(f"the layout {text!r} has a bracket without its other half")
        body = body[: match.start()] + _repeat(match[1], match[2], text) + body[match.end() :]
    body = re.sub(r"([EtmL|])\*(\d+)", lambda match: _repeat(match[1], match[2], text), body)
    if re.search(r"[^EtmL|]", body) or len(body) > MOST:
        raise InputError(f"the layout {text!r} holds more than E, t, m, L, |, brackets and factors")
    stages = body.split("|")
    if len(stages) % ranks:
        raise InputError(f"the layout {text!r} has {len(stages)} stages, expected a multiple of {ranks} ranks")
    plain = body.replace("|", "")
    if not re.fullmatch(r"Et*m*L", plain):
        raise InputError(f"the layout {text!r} is {plain!r} in a row, expected E, then t, then m, then L")
    with_m = [s for s, stage in enumerate(stages) if "m" in stage]
    if len(with_m) > 1 or (with_m and with_m[0] % ranks == 0 and ranks > 1):
        raise InputError(f"the layout {text!r} must keep its m in one stage, which is not on the first rank")
    return Layout(tuple(stages))


def _repeat(part: str, times: str | None, text: str) -> str:
    factor = int(times) if times and len(times) < 7 else 1 if times is None else MOST + 1
    if len(part) * factor > MOST:
        raise InputError(f"the layout {text[:60]!r} holds more than {MOST} letters")
    return part * factor


def layout(stages: list[Counter[str]]) -> str:
    """The shortest plain string of stages that hold so many of each letter.

    Examples
    --------
    >>> layout([Counter(E=1, t=7), Counter(t=8, L=1)])
    'Et*7|t*8L'
    """
    return "|".join(
        "".join(letter + (f"*{stage[letter]}" if stage[letter] > 1 else "") for letter in "EtmL" if stage[letter])
        for stage in stages
    )


def export(instance: Instance, result: Result | Solution) -> str:
    """Shell lines for the devices in rank order, and the two arguments."""
    plan = _plan.read(instance, result, NAME)
    items = [("t", device) for device in plan.layer_device]
    if plan.before:
        items.insert(0, ("E", plan.one_device(plan.before, "the embedding")))
    else:
        items.insert(0, ("E", items[0][1]))
    predictors = [task for task in plan.after if "mtp" in instance.labels[task].lower()]
    items += [("m", int(plan.placement[task])) for task in predictors]
    head = [task for task in plan.after if task not in predictors]
    items.append(("L", plan.one_device(head, "the head") if head else items[-1][1]))
    stages = _plan.runs([device for _, device in items])
    order = [stage.device for stage in stages]
    ranks = list(dict.fromkeys(order))
    if len(order) % len(ranks) or any(device != ranks[k % len(ranks)] for k, device in enumerate(order)):
        raise plan.refuse(
            "its stages go round the ranks in one order, and the plan visits " + ", ".join(map(plan.device, order))
        )
    string = layout([Counter(letter for letter, _ in items[stage.start : stage.stop]) for stage in stages])
    text = "\n".join([
        *_environment.lines(plan, ranks),
        f'# pretrain_gpt.py with: --pipeline-model-parallel-size {len(ranks)} --pipeline-model-parallel-layout "{string}"',
    ]) + "\n"  # fmt: skip
    names = ["the embedding", *plan.layer_names, *(instance.labels[k] for k in predictors), "the head"]
    _plan.same(plan, names, plan.indices([device for _, device in items]), _simulate(text))
    return text


def _simulate(text: str) -> list[int]:
    """Device index of each letter in a row, as Megatron-LM would place it."""
    devices = _environment.visible(text)
    found = re.search(r'-size (\d+) --pipeline-model-parallel-layout "([^"]*)"', text)
    assert found is not None
    ranks = int(found[1])
    stages = parse(found[2], ranks).stages
    return [devices[s % ranks] for s, stage in enumerate(stages) for _ in stage]
