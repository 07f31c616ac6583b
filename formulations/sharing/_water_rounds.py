"""Rounds of water filling: what jobs gain and weigh, one program a round, and how prices tell which jobs stop.

``water_filling``'s docstring has the mathematics; the programs themselves are in :mod:`formulations.sharing._water_programs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import cluster_of, proportional, seen, tidy
from formulations.sharing._prices import most
from hetopt.errors import InputError
from hetopt.formulation import Question
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["CHECKED", "Round", "Solver", "excess", "fill", "gains", "weights"]

Floats = NDArray[np.float64]
FROZEN, CHECKED = 1e-7, 1e-6  # excess over a level at which a job is frozen, and that the verifier lets pass


class Round(NamedTuple):
    """Shares (n, m), rise c, prices u (n,) and p (m,) of a round's program."""

    shares: Floats
    rise: float
    jobs: Floats
    types: Floats


Solver = Callable[[Instance, Floats, Floats, Floats], Round | None]


def gains(instance: Instance, question: Question) -> Floats:
    """(n, m) a."""
    cluster = seen(cluster_of(instance), question)
    return np.asarray(cluster.rate * (cluster.scale / proportional(cluster))[:, None])


def weights(instance: Instance, question: Question, active: NDArray[np.bool_]) -> Floats:
    """(n,) w^r of the active jobs, 0 for the others."""
    weight = cluster_of(instance).weight
    of = instance.tables.get("entity")
    if of is None:
        return np.where(active, weight, 0.0)
    entity, own = _entities(instance)
    out = np.zeros(len(weight))
    for e in range(len(own)):
        mine = np.flatnonzero(active & (entity == e))
        if not len(mine):
            continue
        if question["within"] == "fairness":
            out[mine] = own[e] * weight[mine] / weight[mine].sum()
        else:
            release = instance.columns.release[instance.job_of]
            out[min(mine.tolist(), key=lambda k: (release[k], instance.labels[k]))] = own[e]
    return out


def _entities(instance: Instance) -> tuple[NDArray[np.int64], Floats]:
    """(n,) number of each job's entity, and the entities' weights."""
    of, own = instance.tables["entity"], instance.tables.get("entities", {})
    if not isinstance(of, Mapping) or not isinstance(own, Mapping):
        raise InputError("$.tables.entity and $.tables.entities must be an entity by job and a weight by entity")
    missing = [name for name in instance.labels if not isinstance(of.get(name), str)]
    if missing:
        raise InputError(f"$.tables.entity has no entity for the job {missing[0]!r}; expected one for each job")
    names = sorted({of[name] for name in instance.labels})
    for name in names:
        weight = own.get(name, 1)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < np.inf:
            raise InputError(f"$.tables.entities.{name} is {weight!r}, expected a weight above 0")
    at = {name: e for e, name in enumerate(names)}
    return np.array([at[of[name]] for name in instance.labels]), np.array([float(own.get(name, 1)) for name in names])


def excess(
    instance: Instance, gain: Floats, level: Floats, weight: Floats, rise: float, u: Floats, p: Floats
) -> Floats:
    """(n,) how far above its new level the prices let each job be; ``inf`` where its price is 0."""
    missing = most(cluster_of(instance), gain, u, p) - float(u @ level) - rise * float(u @ weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(u > 0, np.maximum(missing, 0.0) / u, np.inf)


def fill(instance: Instance, question: Question, solve: Solver, stop: Callable[[], bool]) -> Solution | None:
    """The plan by one program a round, with the proof of each; None when stopped or a program fails."""
    n, labels, names = instance.n_tasks, instance.labels, instance.device_names
    active, level = np.ones(n, bool), np.zeros(n)
    rounds: list[dict[str, Any]] = []
    shares = np.zeros((n, instance.n_devices))
    gain = gains(instance, question)
    whole = (cluster_of(instance).workers >= cluster_of(instance).scale[:, None]) & (gain >= gain.max(axis=1)[:, None])
    top = np.where(whole.any(axis=1), gain.max(axis=1), np.inf)  # a job's level when it has its best type all the time

    def rises(level: Floats, weight: Floats) -> tuple[Round, float] | None:
        found = None if stop() else solve(instance, gain, level * (1 - 1e-10), weight)
        if found is None:
            return None
        # What is certain of the rise: the shares, scaled back inside the limits, have it.
        shares = np.asarray(tidy(instance, found.shares).shares)
        reached, on = (gain * shares).sum(axis=1), weight > 0
        rise = max(0.0, float(((reached - level)[on] / weight[on]).min()))
        return found._replace(shares=shares), rise if (reached >= level * (1 - 1e-8)).all() else 0.0

    def told(rise: float, frozen: NDArray[np.int64], u: Floats, p: Floats) -> None:
        rounds.append(
            {
                "rise": rise,
                "frozen": [labels[k] for k in frozen.tolist()],
                "jobs": {labels[k]: float(u[k]) for k in np.flatnonzero(u).tolist()},
                "types": dict(zip(names, p.tolist(), strict=True)),
            }
        )

    while active.any():
        weight = weights(instance, question, active)
        answer = rises(level, weight)
        if answer is None:
            return None
        found, rise = answer
        on = weight > 0
        full = np.where(on, (top - level) / np.where(on, weight, 1.0), np.inf)
        if "entity" not in instance.tables and on.sum() > 1 and rise >= full.min() * (1 - 1e-9):
            for k in _at_their_top(level, weight, full, top, rises):
                step = max(0.0, float((top[k] - level[k]) / weight[k]))
                level = np.where(active, level + weight * step, level)
                active[k], weight = False, np.where(np.arange(n) == k, 0.0, weight)
                told(step, np.array([k]), np.eye(1, n, k)[0], np.zeros(instance.n_devices))
            continue
        u = np.where(found.jobs > 1e-9 * found.jobs.max(), found.jobs, 0.0)
        over = excess(instance, gain, level, weight, rise, u, found.types)
        target = level + weight * rise
        frozen = on & (over <= FROZEN * np.maximum(target, 1e-300))
        if not frozen.any():
            frozen = on & (over == over[on].min())
        level = np.where(active, target, level)
        active &= ~frozen
        shares = found.shares
        told(rise, np.flatnonzero(frozen), u, found.types)
    return Solution(shares=shares, details={"rounds": rounds})


def _at_their_top(
    level: Floats,
    weight: Floats,
    full: Floats,
    top: Floats,
    rises: Callable[[Floats, Floats], tuple[Round, float] | None],
) -> list[int]:
    """Jobs, in order, that reach their best type's level before anything else stops a job; the last job is never among them.

    By doubling and halving: all others still rise as far as the last of them when these have their levels. The proof of each is
    its own best type: no job gets more.
    """
    order = np.argsort(full, kind="stable")
    reach = int(min(np.isfinite(full).sum(), (weight > 0).sum() - 1))

    def holds(count: int) -> bool:
        mine = order[:count]
        at, of = np.array(level), np.array(weight)
        at[mine], of[mine] = top[mine], 0.0
        answer = rises(at, of)
        return answer is not None and answer[1] >= full[order[count - 1]] * (1 - 1e-9)

    low, high = 1, 2
    while high <= reach and holds(high):
        low, high = high, 2 * high
    high = min(high, reach + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return [int(k) for k in order[:low]]
