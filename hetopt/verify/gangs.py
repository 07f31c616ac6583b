"""Check gangs of bundles on nodes: all of a gang or none, every resource of every node, one domain where that is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.errors import InputError, nearest
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["amounts", "gang_violations"]

Floats = NDArray[np.float64]


def amounts(instance: Instance) -> tuple[Floats, Floats, list[str]]:
    """(nodes, resources) room less reserves, (bundles, resources) needs, and the resources' names in order.

    Raises
    ------
    InputError
        A table names a node, bundle or resource that is not there, or an amount is no number, 0 or more.
    """
    room = _table(instance, "capacity", instance.device_index, "nodes")
    need = _table(instance, "demand", instance.task_index, "bundles")
    kept = _table(instance, "reserve", instance.device_index, "nodes")
    names = sorted({word for row in room.values() for word in row})
    for key, table in (("demand", need), ("reserve", kept)):
        for row, given in table.items():
            for word in given:
                if word not in names:
                    raise InputError(
                        f"$.tables.{key}.{row} has the resource {word!r}, which no node has; "
                        f"{nearest(word, names, what='resources')}"
                    )
    at = {word: r for r, word in enumerate(names)}
    have, take = np.zeros((instance.n_devices, len(names))), np.zeros((instance.n_tasks, len(names)))
    for name, given in room.items():
        for word, amount in given.items():
            have[instance.device_index[name], at[word]] = amount
    for name, given in kept.items():
        for word, amount in given.items():
            have[instance.device_index[name], at[word]] = max(0.0, have[instance.device_index[name], at[word]] - amount)
    for name, given in need.items():
        for word, amount in given.items():
            take[instance.task_index[name], at[word]] = amount
    return have, take, names


def _table(instance: Instance, key: str, index: Mapping[str, int], what: str) -> Mapping[str, Mapping[str, float]]:
    table = instance.tables.get(key, {})
    if not isinstance(table, Mapping):
        raise InputError(f"$.tables.{key} is {type(table).__name__}, expected amounts by name and resource")
    for name, row in table.items():
        if name not in index:
            raise InputError(f"$.tables.{key} names {name!r}; {nearest(str(name), list(index)[:10000], what=what)}")
        if not isinstance(row, Mapping):
            raise InputError(f"$.tables.{key}.{name} is {type(row).__name__}, expected amounts by resource")
        for word, amount in row.items():
            if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount < math.inf:
                raise InputError(f"$.tables.{key}.{name}.{word} is {amount!r}, expected a number, 0 or more")
    return table


def gang_violations(
    instance: Instance, solution: Solution, domain: NDArray[np.int64] | None, all_placed: bool
) -> tuple[list[int], dict[str, Any], tuple[str, ...]]:
    """Gangs placed, amounts used by node, and a sentence for each broken rule.

    Parameters
    ----------
    domain
        (nodes,) number of each node's domain, where a gang must stay within one; None where it need not.
    all_placed
        Whether a gang may not be left out.
    """
    placement = solution.placement
    if placement is None or placement.shape != (instance.n_tasks,):
        return [], {}, ("the plan has no node for each bundle",)
    if (placement < -1).any() or (placement >= instance.n_devices).any():
        return [], {}, ("the plan names a node that is not there",)
    said = solution.details.get("gangs")
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        return [], {}, ("the plan's details.gangs is no list of the gangs it places",)
    room, need, resources = amounts(instance)
    jobs, names, labels = instance.columns.job_name, instance.device_names, instance.labels
    wrong = [f"the plan places the gang {name!r}, which is not there" for name in said if name not in jobs][:20]
    if len(set(said)) != len(said):
        wrong.append("the plan names a gang twice")
    placed = []
    gang = np.asarray(instance.job_of)
    for g, name in enumerate(jobs):
        at = placement[gang == g]
        there = int((at >= 0).sum())
        if name in said:
            placed.append(g)
            if there < len(at):
                wrong.append(f"the gang {name!r} is placed with {there} of its {len(at)} bundles")
            if domain is not None and len(np.unique(domain[at[at >= 0]])) > 1:
                wrong.append(f"the gang {name!r} is spread over several domains")
        elif there:
            wrong.append(f"the gang {name!r} is not placed, and {there} of its bundles are")
        elif all_placed:
            wrong.append(f"the gang {name!r} is left out")
    for k in np.flatnonzero(placement >= 0).tolist():
        if not instance.eligible[k, placement[k]]:
            wrong.append(f"bundle {labels[k]!r} is on {names[placement[k]]!r}, where it cannot run")
    used: dict[str, Any] = {}
    for v, name in enumerate(names):
        mine = need[placement == v]
        total = [math.fsum(mine[:, r].tolist()) for r in range(len(resources))]
        used[name] = {word: f"{t:g} of {a:g}" for word, t, a in zip(resources, total, room[v].tolist(), strict=True)}
        wrong += [
            f"{name!r} has {a:g} of {word!r} to give, and its bundles take {t:g}: {t - a:g} too many"
            for word, t, a in zip(resources, total, room[v].tolist(), strict=True)
            if t > a * (1 + 1e-9)
        ]
    return placed, used, tuple(wrong)
