"""What the questions about a sequence of layers on pools of equal units share: its sums, its plans, its samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.chain import layer_sequence

__all__ = ["Layers", "every_pool_plan", "layers_of", "plan_of", "slots_of", "stages_of", "unfit_pools"]


@dataclass(frozen=True, eq=False)
class Layers:
    """``n`` layers on ``t`` pools.

    Attributes
    ----------
    sequence
        (n,) task of each layer.
    inside
        (n + 1, n + 1) whether a stage may lead from boundary i to boundary j: i < j, cuts allowed at both.
    able
        (t, n + 1, n + 1) whether all layers between can run on the pool.
    """

    sequence: NDArray[np.int64]
    inside: NDArray[np.bool_]
    able: NDArray[np.bool_]

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(t, n + 1, n + 1) sums of ``values`` (tasks, t) over the layers from i to j; 0 for what cannot be a stage."""
        ordered = np.where(np.isfinite(values), values, 0.0)[self.sequence]
        n, t = ordered.shape
        out = np.zeros((t, n + 1, n + 1))
        for i in range(n):  # each stage is added up from its own start: no difference of prefixes, no cancellation
            out[:, i, i + 1 :] = np.cumsum(ordered[i:], axis=0).T
        return np.asarray(np.where(self.able, out, 0.0))


@lru_cache(maxsize=8)
def layers_of(instance: Instance) -> Layers:
    """The sequence of an instance whose tasks form one."""
    sequence = layer_sequence(instance)
    assert sequence is not None
    n = len(sequence)
    cut = np.ones(n + 1, bool)
    cut[1:n] = instance.columns.cut[sequence[:-1]]
    inside = np.triu(np.ones((n + 1, n + 1), bool), 1) & cut[:, None] & cut
    barred = np.zeros((instance.n_devices, n + 1), np.int64)
    np.cumsum(~instance.eligible[sequence].T, axis=1, out=barred[:, 1:])
    able = inside & (barred[:, :, None] == barred[:, None, :])
    return Layers(sequence, inside, able)


def unfit_pools(instance: Instance) -> str | None:
    """Why an instance is no sequence of layers; None when it is."""
    if layer_sequence(instance) is None:
        return "its tasks do not form one sequence"
    return "it knows no groups" if (instance.group >= 0).any() else None


def slots_of(instance: Instance) -> NDArray[np.int64]:
    """(t,) units of each pool."""
    return np.array([device.slots for device in instance.devices], np.int64)


def plan_of(instance: Instance, stages: Sequence[tuple[int, int, int, int]]) -> Solution:
    """Plan of stages ``(pool, begin, end, units)`` in the order of the layers."""
    placement = np.full(instance.n_tasks, -1, np.int64)
    sequence = layers_of(instance).sequence
    for pool, begin, end, _ in stages:
        placement[sequence[begin:end]] = pool
    details = {"layers": [end - begin for _, begin, end, _ in stages], "units": [units for *_, units in stages]}
    return Solution(placement, details=details)


def stages_of(instance: Instance, solution: Solution) -> list[tuple[int, int, int, int]] | None:
    """Inverse of :func:`plan_of`; None for what it never makes."""
    if solution.placement is None or set(solution.details) != {"layers", "units"}:
        return None
    ends = list(itertools.accumulate(solution.details["layers"], initial=0))
    first = solution.placement[layers_of(instance).sequence].tolist()
    return [(first[a], a, b, k) for (a, b), k in zip(pairwise(ends), solution.details["units"], strict=True)]


def every_pool_plan(instance: Instance) -> Iterator[Solution]:
    """All cuts with all pools and all units."""
    n, slots = instance.n_tasks, slots_of(instance).tolist()
    for inner in itertools.product([False, True], repeat=n - 1):
        ends = [0, *(k + 1 for k, cut in enumerate(inner) if cut), n]
        parts = list(pairwise(ends))
        ways = [(pool, units) for pool, most in enumerate(slots) for units in range(1, most + 1)]
        for chosen in itertools.product(ways, repeat=len(parts)):
            yield plan_of(instance, [(p, a, b, k) for (p, k), (a, b) in zip(chosen, parts, strict=True)])
