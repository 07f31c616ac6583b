"""What an offloading question is about: its options, the line of states along the sequence, and what no plan can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import in_mebibytes
from hetopt.formulation import Option, Question
from hetopt.instance import Instance
from hetopt.verify.chain import layer_sequence
from hetopt.verify.offload import accelerators, handed_on, may_reside

__all__ = ["OPTIONS", "asked", "homeless", "line_of", "states_of", "swaps", "too_many_bytes"]

OPTIONS = (
    Option(
        "execute",
        ("in-place", "swap"),
        "in-place",
        "where tasks on a host run: there, or copied to the first accelerator",
    ),
    Option("hosted", int, None, "exact number of tasks on hosts; any when left out"),
)


def asked(instance: Instance, question: Question | None) -> Mapping[str, Any]:
    """The options in force: the question's, else the instance's own."""
    own = instance.question
    return question or {option.name: option.check(own.get(option.name, option.default)) for option in OPTIONS}


def swaps(question: Mapping[str, Any]) -> bool:
    """Whether tasks on a host run as copies on the first accelerator."""
    return bool(question["execute"] == "swap")


@lru_cache(maxsize=4)
def line_of(instance: Instance, swap: bool) -> Any:
    """The instance as a :class:`hetopt.algorithms.offload.Sequence`, tasks in order."""
    from hetopt.algorithms import offload

    sequence = layer_sequence(instance)
    assert sequence is not None
    on = np.array(states_of(instance), np.int64)
    place = {g: k for k, g in enumerate(accelerators(instance))}
    reached, lies = np.array([place[g] for g in on[:, 0].tolist()], np.int64), on[:, 1]
    runs = np.where(instance.is_host[lies], accelerators(instance)[0], lies) if swap else lies
    latency, slowness = _ways(instance)
    memory = instance.memory[sequence]
    seconds = instance.columns.time[sequence][:, runs].copy()
    if swap:
        copied = instance.is_host[lies]
        copy = latency[lies, runs][None, :] + memory[:, None] * slowness[lies, runs][None, :]
        seconds[:, copied] += copy[:, copied]
    seconds[~may_reside(instance, swap)[sequence][:, lies]] = np.inf
    return offload.Sequence(
        seconds, runs, lies, reached, memory, handed_on(instance)[sequence], instance.columns.cut[sequence], latency, slowness,
        instance.capacity,
    )  # fmt: skip


def _ways(instance: Instance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d, d) latency and seconds a byte of each pair of devices; ``inf`` latency and 0 where no link matches."""
    d, names = instance.n_devices, instance.device_names
    latency, slowness = np.full((d, d), np.inf), np.zeros((d, d))
    np.fill_diagonal(latency, 0.0)
    for a in range(d):
        for b in range(d):
            link = instance.link(names[a], names[b]) if a != b else None
            if link is not None:
                latency[a, b] = link.latency
                slowness[a, b] = 1.0 / link.bandwidth if link.bandwidth else 0.0
    return latency, slowness


def states_of(instance: Instance) -> list[tuple[int, int]]:
    """(accelerator reached, device where the task lies) of each state."""
    host = np.flatnonzero(instance.is_host).tolist()
    return [(g, i) for g in accelerators(instance) for i in (g, *host)]


def homeless(instance: Instance, may: NDArray[np.bool_]) -> tuple[str, ...]:
    """The first group that has no room on any device where all of it may lie."""
    for g, name in enumerate(instance.columns.group_name):
        inside = instance.group == g
        able = may[inside].all(axis=0)
        if not able.any():
            return (f"group {name!r}: no device may hold all of its {int(inside.sum())} tasks",)
        where = int(np.argmax(np.where(able, instance.capacity, -np.inf)))
        need, has = math.fsum(instance.memory[inside].tolist()), float(instance.capacity[where])
        if need > has * (1.0 + 1e-12):
            return (
                f"memory: group {name!r} needs {need:.12g} bytes, and {instance.device_names[where]!r} offers {has:.12g}: "
                f"{need - has:.12g} bytes short{in_mebibytes(need - has)}",
            )
    return ()


def too_many_bytes(instance: Instance, may: NDArray[np.bool_]) -> tuple[str, ...]:
    """Tasks that have together more bytes than the devices on which any of them may lie; the largest shortfall."""
    whole = bool((instance.memory == np.floor(instance.memory)).all())
    most, told = 0.0, ""
    for devices in np.unique(may, axis=0):
        tied = ~(may & ~devices).any(axis=1)
        need, there = math.fsum(instance.memory[tied].tolist()), math.fsum(instance.capacity[devices].tolist())
        short = need - there * (1.0 if whole else 1.0 + 1e-12)
        if short > most:
            who, has, most = f"the tasks that lie {_where(instance, devices)} need", "there are", short
            if devices.all():
                who, has = "all tasks need", "all devices have"
            told = f"memory: {who} {need:.12g} bytes, and {has} {there:.12g}: {need - there:.12g} bytes short"
            told += in_mebibytes(need - there)
    return (told,) if told else ()


def _where(instance: Instance, devices: NDArray[np.bool_]) -> str:
    names = [instance.device_names[k] for k in np.flatnonzero(devices).tolist()]
    return f"on {' or '.join(map(repr, names[:4]))}" + (f" or {len(names) - 4} more" if len(names) > 4 else "")
