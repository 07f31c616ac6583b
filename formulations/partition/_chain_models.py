"""Linear models of a chain: stages as arcs of a path over boundaries and devices. The mathematics is in :mod:`.chain`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from formulations.partition._chain import Chain, asked, chain_of, rules_of
from hetopt.formulation import LinearFormulation, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.chain import ChainRules

__all__ = ["LP", "MILP"]

MOST_COLUMNS = 60_000


@dataclass(frozen=True, eq=False)
class _Arcs:
    """Stages ``(device, start, end)`` and passes ``(from device, to device, boundary)`` that some plan may have, as rows."""

    stage: NDArray[np.int64]
    hop: NDArray[np.int64]


@lru_cache(maxsize=4)
def _arcs(instance: Instance, rules: ChainRules) -> _Arcs:
    chain, single = _plain(instance, rules)
    low, n, d = chain.windows(single), len(chain.sequence), instance.n_devices
    kind = _kind(chain, d)
    passing = chain.passing()
    limit = math.inf if rules.period is None else rules.period
    stages = [
        (device, q, p)
        for device in range(d)
        for p in range(1, n + 1)
        if chain.cut[p]
        for q in range(int(low[kind[device], p]), p)
        if chain.cut[q]
    ]
    place = np.argsort(rules.order) if rules.order is not None else np.zeros(d, np.int64)
    hops = [
        (a, b, q)
        for a in range(d)
        for b in range(d)
        if a != b and (rules.order is None or _follows(place[a], place[b], rules.empty))
        for q in range(1, n)
        if chain.cut[q] and np.isfinite(passing[chain.link[a, b], q]) and passing[chain.link[a, b], q] <= limit
    ]
    return _Arcs(np.array(stages, np.int64).reshape(-1, 3), np.array(hops, np.int64).reshape(-1, 3))


def _follows(a: int, b: int, empty: bool) -> bool:
    return bool(a < b if empty else a + 1 == b)


def _plain(instance: Instance, rules: ChainRules) -> tuple[Chain, ChainRules]:
    """The chain without shared stages."""
    single = replace(rules, replicas=1)
    return chain_of(instance, single), single


def _kind(chain: Chain, d: int) -> NDArray[np.int64]:
    kind = np.empty(d, np.int64)
    for k, group in enumerate(chain.members):
        kind[list(group)] = k
    return kind


class MILP(LinearFormulation):
    """(1)-(8)."""

    name = "milp"
    title = "MILP (1)-(8): stages as arcs of a path"
    kind = "exact"

    def __init__(self, objective: str) -> None:
        self.objective = objective

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Each device has a stage of its own, any best plan will do, and there are few enough stages to list."""
        if question.get("then", "any") != "any":
            return f"it finds any best plan, and then={question['then']} asks for a certain one"
        return _unfit(instance, question)

    def size(self, instance: Instance, question: Question) -> int:
        """Stages and passes at most."""
        return _size(instance)

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``stage[device:start-end]``, ``pass[from-to:boundary]``, and the objective's own."""
        rules = rules_of(instance, question if question is not None else asked(instance))
        chain, _ = _plain(instance, rules)
        arcs, n, d = _arcs(instance, rules), len(chain.sequence), instance.n_devices
        names = instance.device_names
        model = LinearModel(f"chain-{self.objective}")
        (i, q, p), (a, b, at) = arcs.stage.T, arcs.hop.T
        z = model.binary("stage", len(i), labels=([f"{names[k]}:{s}-{e}" for k, s, e in arcs.stage.tolist()],))
        y = model.binary("pass", len(a), labels=([f"{names[k]}-{names[m]}:{s}" for k, m, s in arcs.hop.tolist()],))
        inner = n - 1
        ends, starts = p < n, q > 0
        labels = (names, range(1, n))
        model.rows("start", 1, [(0, z[~starts], 1.0)], lower=1, upper=1)  # (1)
        leave: list[tuple[Any, Any, Any]] = [
            (i[ends] * inner + p[ends] - 1, z[ends], 1.0),
            (a * inner + at - 1, y, -1.0),
        ]
        model.rows("leave", (d, inner), leave, lower=0, upper=0, labels=labels)  # (2)
        enter: list[tuple[Any, Any, Any]] = [
            (b * inner + at - 1, y, 1.0),
            (i[starts] * inner + q[starts] - 1, z[starts], -1.0),
        ]
        model.rows("enter", (d, inner), enter, lower=0, upper=0, labels=labels)  # (3)
        model.rows("once", d, [(i, z, 1.0)], lower=0 if rules.empty else 1, upper=1, labels=(names,))  # (4)
        _OBJECTIVES[self.objective](instance, rules, chain, arcs, model, z, y)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Each layer on the device of the stage chosen."""
        labels = model.column_blocks[0].labels
        assert labels is not None
        chosen = [labels[0][k] for k in np.flatnonzero(x[model.columns("stage")] > 0.5).tolist()]
        sequence = chain_of(instance, ChainRules()).sequence
        placement = np.full(instance.n_tasks, -1, np.int64)
        for label in chosen:
            name, _, reach = str(label).rpartition(":")
            start, _, end = reach.partition("-")
            placement[sequence[int(start) : int(end)]] = instance.device_index[name]
        return Solution(placement)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Stages and passes of a plan; the objective's own column is left open."""
        if solution.placement is None or solution.details:
            return None
        where = solution.placement[chain_of(instance, ChainRules()).sequence].tolist()
        starts = [0, *(k for k in range(1, len(where)) if where[k] != where[k - 1]), len(where)]
        names = instance.device_names
        stages = {f"{names[where[s]]}:{s}-{e}" for s, e in pairwise(starts)}
        hops = {f"{names[where[s - 1]]}-{names[where[s]]}:{s}" for s in starts[1:-1]}
        point = np.full(model.n_columns, np.nan)
        for block, chosen in zip(model.column_blocks[:2], (stages, hops), strict=True):
            assert block.labels is not None
            point[block.start : block.start + block.size] = [label in chosen for label in block.labels[0]]
        return point


class LP(LinearFormulation):
    """The LP relaxation of the MILP."""

    name = "lp"
    title = "LP relaxation of (1)-(8), bound replayed without a solver"
    kind = "relaxation"

    def __init__(self, objective: str) -> None:
        self.objective = objective

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Each device has a stage of its own, and there are few enough stages to list."""
        return _unfit(instance, question)

    def size(self, instance: Instance, question: Question) -> int:
        """As the MILP."""
        return _size(instance)

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """The MILP without integrality."""
        return MILP(self.objective).build(instance, question).relax()


def _size(instance: Instance) -> int:
    """Stages and passes at most."""
    n, d = instance.n_tasks, instance.n_devices
    return d * n * (n + 1) // 2 + d * (d - 1) * (n - 1)


def _unfit(instance: Instance, question: Question) -> str | None:
    if question.get("replicas", 1) > 1:
        return "it knows no stages that devices share"
    size = _size(instance)
    return f"there are up to {size} stages and passes, more than {MOST_COLUMNS}" if size > MOST_COLUMNS else None


def _stage_seconds(chain: Chain, arcs: _Arcs, d: int) -> NDArray[np.float64]:
    """Seconds of each stage."""
    prefix = np.zeros((len(chain.members), len(chain.cut)))
    np.cumsum(np.where(np.isinf(chain.time), 0.0, chain.time).T, axis=1, out=prefix[:, 1:])
    i, q, p = arcs.stage.T
    kind = _kind(chain, d)[i]
    return np.asarray(prefix[kind, p] - prefix[kind, q])


def _hop_seconds(chain: Chain, arcs: _Arcs) -> NDArray[np.float64]:
    a, b, at = arcs.hop.T
    return np.asarray(chain.passing()[chain.link[a, b], at])


def _bottleneck(
    instance: Instance, rules: ChainRules, chain: Chain, arcs: _Arcs, model: LinearModel, z: Any, y: Any
) -> None:
    d, names = instance.n_devices, instance.device_names
    seconds, hops = _stage_seconds(chain, arcs, d), _hop_seconds(chain, arcs)
    longest = max(float(seconds.max(initial=0.0)), float(hops.max(initial=0.0)))
    unit = time_unit(longest)
    t = model.continuous("bottleneck", upper=longest / unit)
    of = np.arange(d)
    model.rows("busy", d, [(arcs.stage[:, 0], z, seconds / unit), (of, t, -1.0)], upper=0, labels=(names,))  # (5)
    passing: list[tuple[Any, Any, Any]] = [(arcs.hop[:, 0], y, hops / unit), (of, t, -1.0)]
    model.rows("passing", d, passing, upper=0, labels=(names,))  # (5)
    model.minimize(t, unit)


def _latency(
    instance: Instance, rules: ChainRules, chain: Chain, arcs: _Arcs, model: LinearModel, z: Any, y: Any
) -> None:
    seconds, hops = _stage_seconds(chain, arcs, instance.n_devices), _hop_seconds(chain, arcs)
    model.minimize(np.concatenate([z, y]), np.concatenate([seconds, hops]))  # (6)


def _tokens(
    instance: Instance, rules: ChainRules, chain: Chain, arcs: _Arcs, model: LinearModel, z: Any, y: Any
) -> None:
    room = _blocks(instance, rules, chain, arcs)
    most = float(room[np.isfinite(room)].max(initial=0.0))
    blocks = model.continuous("blocks", upper=most)
    of = np.arange(instance.n_devices)
    # N <= room of the stage chosen; a device without stage, or without cache, bounds nothing.
    less = np.where(np.isfinite(room), room, most) - most
    terms: list[tuple[Any, Any, Any]] = [(of, blocks, 1.0), (arcs.stage[:, 0], z, -less)]
    model.rows("room", len(of), terms, upper=most, labels=(instance.device_names,))  # (7)
    model.maximize(blocks, rules.block)


def _blocks(instance: Instance, rules: ChainRules, chain: Chain, arcs: _Arcs) -> NDArray[np.float64]:
    """Whole blocks of tokens that each stage has room for; ``inf`` where its layers keep no cache."""
    total = np.zeros((2, len(chain.cut)), object)
    for row, values in zip(total, (chain.memory, chain.kv), strict=True):
        row[1:] = np.cumsum([Fraction(value) for value in values.tolist()])
    out = []
    for device, q, p in arcs.stage.tolist():
        cache = (total[1, p] - total[1, q]) * rules.block
        left = Fraction(float(instance.capacity[device])) - (total[0, p] - total[0, q])
        out.append(math.inf if not cache else float(left // cache))
    return np.array(out, float)


def _cost(instance: Instance, rules: ChainRules, chain: Chain, arcs: _Arcs, model: LinearModel, z: Any, y: Any) -> None:
    price = np.array([device.price or 0.0 for device in instance.devices], float)
    model.minimize(z, price[arcs.stage[:, 0]])  # (8)


_OBJECTIVES = {
    "bottleneck": _bottleneck,
    "latency": _latency,
    "tokens": _tokens,
    "cost": _cost,
}
