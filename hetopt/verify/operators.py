"""Check shares of operators on unlike processors, and time them under every scenario; replay the bound by weights of scenarios.

Operators run one after the other; each is split over the devices that its row of shares names. Shares nothing with any model;
numbers are those of :mod:`formulations.schedule.split`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.verify.schedule import links_between

__all__ = ["Facts", "Report", "check_operators", "facts_of", "replay_weights"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-9
_KEYS = ("name", "probability", "slowdown")


class Facts(NamedTuple):
    """(d,) seconds to launch and to merge, (n,) operators that stay whole; names, probabilities, factors (w, d) of scenarios."""

    launch: Floats
    merge: Floats
    whole: NDArray[np.bool_]
    names: tuple[str, ...]
    probability: Floats
    slowdown: Floats


class Report(NamedTuple):
    """(n, w) seconds of each operator under each scenario, and a sentence for each broken constraint."""

    seconds: Floats
    violations: tuple[str, ...]


def facts_of(instance: Instance) -> Facts:
    """Read ``tables.launch``, ``tables.merge``, ``tables.whole`` and ``tables.scenarios``.

    Raises
    ------
    InputError
        A table names something unknown or holds something else than expected.
    """
    whole = np.zeros(instance.n_tasks, bool)
    listed = instance.tables.get("whole", [])
    if not isinstance(listed, list):
        raise InputError(f"$.tables.whole is {type(listed).__name__}, expected a list of operators")
    for k, label in enumerate(listed):
        if not isinstance(label, str) or label not in instance.task_index:
            hint = nearest(str(label), list(instance.task_index)[:1000], what="the operators")
            raise InputError(f"$.tables.whole[{k}] is {label!r}; {hint}")
        whole[instance.task_index[label]] = True
    scenarios = instance.tables.get("scenarios", [{"name": "alone"}])
    if not isinstance(scenarios, list) or not scenarios:
        raise InputError(f"$.tables.scenarios is {scenarios!r:.60}, expected a list of scenarios")
    names, chances, factors = [], [], []
    for k, row in enumerate(scenarios):
        path = f"$.tables.scenarios[{k}]"
        if not isinstance(row, Mapping) or not isinstance(row.get("name"), str) or not row["name"]:
            raise InputError(f"{path} is {row!r:.60}, expected a name, a probability and slowdowns")
        for key in row:
            if key not in _KEYS:
                raise InputError(f"{path} has {key!r}; {nearest(key, _KEYS, what='the keys')}")
        names.append(row["name"])
        chances.append(_number(row.get("probability", 1.0), f"{path}.probability", 0.0))
        factors.append(_by_device(instance, row.get("slowdown", {}), f"{path}.slowdown", 1.0, 1e-6))
    if len(set(names)) < len(names):
        raise InputError("$.tables.scenarios gives two scenarios the same name")
    total = math.fsum(chances)
    if not total > 0:
        raise InputError("$.tables.scenarios: all probabilities are 0, expected some above")
    launch, merge = (
        _by_device(instance, instance.tables.get(key, {}), f"$.tables.{key}", 0.0, 0.0) for key in ("launch", "merge")
    )
    return Facts(launch, merge, whole, tuple(names), np.array(chances) / total, np.array(factors))


def _by_device(instance: Instance, table: Any, path: str, default: float, low: float) -> Floats:
    """(d,) the most specific entry of each device: by name, type or ``*``."""
    if not isinstance(table, Mapping):
        raise InputError(f'{path} must map devices, types or "*" to numbers')
    known = ["*", *instance.device_names, *(v.type for v in instance.devices if v.type)]
    for name, value in table.items():
        if name not in known:
            raise InputError(f"{path} names {name!r}; {nearest(name, known[:1000], what='devices and types')}")
        _number(value, f"{path}.{name}", low)
    keys = [(device.name, device.type, "*") for device in instance.devices]
    return np.array([next((table[key] for key in some if key in table), default) for some in keys], np.float64)


def _number(value: Any, path: str, low: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= 1e9:
        raise InputError(f"{path} is {value!r}, expected a number from {low:g} to 1e9")
    return float(value)


def check_operators(instance: Instance, shares: Floats | None, grain: int) -> Report:
    """Recompute the seconds of each operator from the shares (n, d), multiples of 1 / ``grain``."""
    facts, n, d = facts_of(instance), instance.n_tasks, instance.n_devices
    lost = np.full((n, len(facts.names)), np.inf)
    if shares is None or shares.shape != (n, d) or not np.isfinite(shares).all():
        return Report(lost, ("the plan has no share for each operator and device",))
    units = np.round(shares * grain)
    wrong = []
    for k, label in enumerate(instance.labels):
        if np.abs(shares[k] * grain - units[k]).max() > 1e-6 or (units[k] < 0).any():
            wrong.append(f"the shares of {label!r} are no multiples of 1/{grain}")
        elif units[k].sum() != grain:  # (1)
            wrong.append(f"the shares of {label!r} add up to {units[k].sum():g}/{grain}")
        elif ((units[k] > 0) & ~instance.eligible[k]).any():  # (2)
            i = int(np.argmax((units[k] > 0) & ~instance.eligible[k]))
            wrong.append(f"operator {label!r} cannot run on {instance.device_names[i]!r} and has a share there")
        elif facts.whole[k] and (units[k] > 0).sum() > 1:  # (3)
            wrong.append(f"operator {label!r} is split and must stay whole")
    if wrong:
        return Report(lost, tuple(wrong[:20]))
    into: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    for (u, v), data in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True):
        into[v].append((u, data))
    links = links_between(instance)
    seconds = np.array(
        [
            [
                _time(instance, facts, links, v, units[v], [(units[u], data) for u, data in into[v]], w, grain)
                for w in range(lost.shape[1])
            ]
            for v in range(n)
        ]
    )
    total = seconds.sum(axis=0)
    deadline = float(instance.columns.deadline.min())
    for w in np.flatnonzero(total > deadline * (1 + TOLERANCE)).tolist():  # (7)
        over = total[w] - deadline
        wrong.append(
            f"under {facts.names[w]!r} the last operator ends at {total[w]:.9g}, {over:.9g} after the deadline"
        )
    return Report(seconds, tuple(wrong))


def _time(
    instance: Instance, facts: Facts, links: tuple[Floats, Floats], v: int, units: Sequence[float] | Floats,
    inputs: Iterable[tuple[Any, float]], w: int, grain: int,
) -> float:  # fmt: skip
    """(4): seconds of one operator under one scenario, the slowest of its devices."""
    latency, slowness = links
    used = [i for i in range(instance.n_devices) if units[i] > 0]
    slowest = 0.0
    inputs = list(inputs)
    for i in used:
        own = facts.launch[i] + (facts.merge[i] if len(used) > 1 else 0.0)
        own += facts.slowdown[w, i] * float(instance.time[v, i]) * units[i] / grain
        for there, data in inputs:
            for p in range(instance.n_devices):
                if p != i and there[p] > 0:
                    if math.isinf(latency[p, i]):
                        instance.need_link(instance.device_names[p], instance.device_names[i])
                    own += latency[p, i] + data * slowness[p, i] * there[p] / grain
        slowest = max(slowest, float(own))
    return slowest


def replay_weights(instance: Instance, certificate: Mapping[str, Any], grain: int) -> float:
    """Weighted seconds that no plan can beat: a program over the forest of inputs that the certificate keeps.

    ``weights`` (w,) of scenarios have sum 1, so that their mean is at most the worst; ``inputs`` (n,) names the operator whose
    result is fetched when v begins, -1 for none: leaving out the others makes no operator slower.

    Raises
    ------
    ValueError
        The certificate's numbers are not as expected.
    """
    facts, n = facts_of(instance), instance.n_tasks
    weights = np.asarray(certificate.get("weights"), np.float64)
    kept = certificate.get("inputs")
    if (
        weights.shape != (len(facts.names),)
        or not np.isfinite(weights).all()
        or (weights < 0).any()
        or not weights.sum() > 0
    ):
        raise ValueError(f"expected {len(facts.names)} weights >= 0, some above")
    weights = weights / weights.sum()
    data = {(u, v): b for (u, v), b in zip(instance.edges.tolist(), instance.edge_data.tolist(), strict=True)}
    if not isinstance(kept, list) or len(kept) != n or not all(u == -1 or (u, v) in data for v, u in enumerate(kept)):
        raise ValueError(f"expected an input of each of {n} operators, or -1")
    links = links_between(instance)
    children: list[list[int]] = [[] for _ in range(n)]
    for v, u in enumerate(kept):
        if u >= 0:
            children[u].append(v)
    states = [_states(instance, facts, v, grain) for v in range(n)]
    rest: list[Floats] = [np.zeros(len(some)) for some in states]  # of what follows below an operator, by its state
    order = [v for v in range(n) if kept[v] < 0]
    for v in order:
        order += children[v]
    total = 0.0
    for v in reversed(order):
        u = kept[v]
        before = [[(units, data[u, v])] for units in states[u]] if u >= 0 else [[]]
        least = np.full(len(before), np.inf)
        for k, inputs in enumerate(before):
            for s, units in enumerate(states[v]):
                own = sum(
                    q * _time(instance, facts, links, v, units, inputs, w, grain)
                    for w, q in enumerate(weights)
                    if q > 0
                )
                least[k] = min(least[k], own + rest[v][s])
        if u >= 0:
            rest[u] += least
        else:
            total += float(least[0])
    return total * (1 - (n + 20) * 2.0**-46)


def _states(instance: Instance, facts: Facts, v: int, grain: int) -> list[tuple[int, ...]]:
    """Every way to give an operator's units to the devices that support it."""
    able = np.flatnonzero(instance.eligible[v]).tolist()
    found = []
    counts: Iterable[tuple[int, ...]]
    if facts.whole[v]:
        counts = (tuple(grain if k == j else 0 for k in range(len(able))) for j in range(len(able)))
    else:
        counts = (c for c in itertools.product(range(grain + 1), repeat=len(able)) if sum(c) == grain)
    for count in counts:
        row = [0] * instance.n_devices
        for i, units in zip(able, count, strict=True):
            row[i] = units
        found.append(tuple(row))
    return found
