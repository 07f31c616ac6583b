"""What could be changed about an instance: more memory, one more device, faster links, looser rules.

A :class:`Change` is a family of instances that grow more generous with its amount: what is feasible stays feasible, and no
optimum gets worse. :mod:`hetopt.diagnose` looks for the least amount that mends an instance and for what an amount would buy.
This file changes facts only; it solves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from hetopt.formulation import Problem
from hetopt.instance import Instance
from hetopt.records import Device

__all__ = ["Change", "bytes_text", "extra_devices", "faster_links", "fewer_tokens", "looser_rules", "more_memory"]

Apply = Callable[[Instance, float], Instance]
_KINDS = 6  # device types up to which each device has a change of its own


@dataclass(frozen=True)
class Change:
    """One way to be more generous.

    Attributes
    ----------
    apply
        (instance, amount) -> changed instance; the amount 0 leaves it as it is.
    say
        amount -> a few words, such as ``"3.00 GiB more memory on gpu0"``.
    most
        An amount beyond which more makes no difference; None for a change that is made or not (amount 1).
    whole
        Amounts are integers.
    grain
        Amounts this large are rounded up to whole multiples of it, for people.
    size
        amount -> its words alone, rounded down.
    """

    apply: Apply
    say: Callable[[float], str]
    most: float | None = None
    whole: bool = False
    grain: float = 0.0
    size: Callable[[float], str] = lambda amount: f"{amount:,.0f}"


def more_memory(instance: Instance, problem: Problem, devices: Collection[str] | None = None) -> Iterator[Change]:
    """More memory on one device, on all devices of a type, and on all devices with a limit; only on ``devices``, if given."""
    if "memory" not in problem.uses:
        return
    limited = [v for v in instance.devices if v.memory is not None and (devices is None or v.name in devices)]
    if len(limited) <= _KINDS:
        for device in limited:
            yield _memory(instance, {device.name}, f"on {device.name}")
    kinds: dict[str, list[Device]] = {}
    for device in limited:
        kinds.setdefault(device.type or device.name, []).append(device)
    for kind, same in kinds.items():
        if len(same) > 1:
            yield _memory(instance, {v.name for v in same}, f"on each {kind}")
    if len(kinds) > 1:
        yield _memory(
            instance, {v.name for v in limited}, "on each device" if devices is None else "on each of these devices"
        )


def _memory(instance: Instance, names: set[str], where: str) -> Change:
    capacity = instance.capacity[np.isfinite(instance.capacity)]
    most = max(1.0, float(instance.memory.sum() + capacity.max(initial=0.0)))
    whole = bool((instance.memory == np.floor(instance.memory)).all() and (capacity == np.floor(capacity)).all())

    def apply(instance: Instance, amount: float) -> Instance:
        devices = tuple(
            msgspec.structs.replace(v, memory=_sum(v.memory, amount)) if v.name in names and v.memory is not None else v
            for v in instance.devices
        )
        return replace(instance, devices=devices)

    return Change(apply, lambda amount: f"{bytes_text(amount)} more memory {where}", most, whole, 2.0**20, _floored)


def fewer_tokens(instance: Instance, problem: Problem) -> Iterator[Change]:
    """Fewer tokens of context to keep, where the question counts them."""
    tokens = instance.question.get("tokens")
    if "tokens" in {option.name for option in problem.options} and isinstance(tokens, (int, float)) and tokens > 0:
        yield Change(
            lambda one, amount: one.with_question({**one.question, "tokens": type(tokens)(tokens - amount)}),
            lambda amount: f"{tokens - amount:,.0f} tokens of context instead of {tokens:,.0f}",
            float(tokens),
            True,
            size=lambda amount: f"{amount:,.0f} fewer",
        )


def extra_devices(instance: Instance) -> Iterator[Change]:
    """One more device of each type, with the times and links of its kind; not where tables are laid out by device."""
    if instance.tables:
        return
    kinds: dict[str, int] = {}
    for number, device in enumerate(instance.devices):
        kinds.setdefault(device.type or device.name, number)
    for kind, number in kinds.items():
        slots = instance.devices[number].slots
        yield _one_more(number, f"one more {kind}" if slots == 1 else f"one more {kind} with {slots} slots")


def _one_more(number: int, words: str) -> Change:
    return Change(lambda one, amount: _copied(one, number) if amount else one, lambda _: words)


def _copied(instance: Instance, number: int) -> Instance:
    """The instance with a twin of one device behind all others; links that name the device hold for its type, so for both."""
    twin = instance.devices[number]
    kind = twin.type or twin.name
    taken = {v.name for v in instance.devices}
    name = next(n for i in range(len(taken) + 1) if (n := f"{twin.name}+{i + 1}") not in taken)
    c = instance.columns
    devices = instance.devices
    wider: dict[str, Any] = {
        key: np.hstack([value, value[:, [number]]])
        for key in ("time", "cost", "energy", "allowed")
        if (value := getattr(c, key)) is not None
    }
    return replace(
        instance,
        devices=(*devices, msgspec.structs.replace(twin, name=name, type=kind)),
        columns=replace(c, **wider),
    )


def faster_links(instance: Instance, problem: Problem) -> Iterator[Change]:
    """Twice the bandwidth on all links."""
    if "links" in problem.uses and any(link.bandwidth for link in instance.links):
        yield Change(
            lambda one, amount: replace(
                one,
                links=tuple(
                    msgspec.structs.replace(v, bandwidth=v.bandwidth * (1 + amount)) if v.bandwidth else v
                    for v in one.links
                ),
            ),
            lambda amount: f"{1 + amount:g} times the bandwidth on all links",
        )


def looser_rules(instance: Instance, problem: Problem) -> Iterator[Change]:
    """Without colocation groups; without limits on the number of tasks."""
    if "group" in problem.uses and (instance.group >= 0).any():
        alone = np.full(instance.n_tasks, -1, np.int64)
        yield Change(
            lambda one, amount: (
                replace(one, columns=replace(one.columns, group=alone, group_name=())) if amount else one
            ),
            lambda _: "letting the tasks of a group run apart",
        )
    if "max_tasks" in problem.uses and any(v.max_tasks is not None for v in instance.devices):
        yield Change(
            lambda one, amount: (
                replace(one, devices=tuple(msgspec.structs.replace(v, max_tasks=None) for v in one.devices))
                if amount
                else one
            ),
            lambda _: "lifting the limits on the number of tasks",
        )


def bytes_text(amount: float) -> str:
    """Bytes for people: plain below a million, else MiB rounded up, or GiB."""
    if amount < 1e6:
        return f"{amount:,.6g} bytes"
    mebi = np.ceil(amount / 2**20)
    return f"{mebi:,.0f} MiB" if mebi < 100 * 1024 else f"{amount / 2**30:,.2f} GiB"


def _floored(amount: float) -> str:
    """Bytes, never more than there are."""
    return f"{amount:,.6g} bytes" if amount < 1e6 else f"{np.floor(amount / 2**20):,.0f} MiB"


def _sum(memory: Mapping[str, Any] | float | int, amount: float) -> float | int:
    total = float(memory) + amount  # type: ignore[arg-type]
    return int(total) if total == int(total) else total
