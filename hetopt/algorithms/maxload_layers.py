"""The layers of the max-load dynamic program: one run over a lattice or a chain with given limits on the loads.

What it is for: :mod:`hetopt.algorithms.maxload_dp` calls it, once for the sum of passes and once for each forward limit when
passes count apart. It holds the graph in integers, the windows, the tables, and reads plans back. What it is not: it knows no
bounds but the ones it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.ideals import Ideals
from hetopt.algorithms.maxload_bounds import balance, worth
from hetopt.algorithms.maxload_kernels import Chain, Limits, Reached, expand_chain, expand_lattice, scratch_for
from hetopt.algorithms.stagecosts import NEVER, StageCosts, integer_costs, integer_sizes
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["Family", "Layers", "Plan", "Problem", "stage_loads"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Plan = list[tuple[Ints, int]]  # stages in order: classes, device type (number in the problem)

_STEPS = 2_000_000  # steps of one kernel call, about 0.1 s


class Family:
    """Prefixes that the program runs over, a lattice or a chain, with the kernel that goes with it."""

    def __init__(self, problem: Problem, prefixes: Ideals | Chain) -> None:
        self.prefixes = prefixes
        weights = np.column_stack([*problem.worths.values(), problem.size.astype(np.float64)])
        if isinstance(prefixes, Chain):
            self.number = len(prefixes.stops)
            sums = np.concatenate([np.zeros((1, weights.shape[1])), np.cumsum(weights[prefixes.order], axis=0)])
            self.potential = np.ascontiguousarray(sums[prefixes.stops])
            self.kernel = expand_chain
        else:
            self.number = len(prefixes.last)
            self.potential = prefixes.total(weights)
            self.kernel = expand_lattice
        self.scratch = scratch_for(len(problem.costs.net_source), self.number, len(problem.size))

    def members(self, prefix: int) -> Ints:
        if isinstance(self.prefixes, Chain):
            return np.sort(self.prefixes.order[: self.prefixes.stops[prefix]])
        return self.prefixes.members(prefix)


class Problem:
    """A graph in integers: types without devices left out, the others ordered by count (most last, for the ring of layers).

    Attributes
    ----------
    types, count
        Device types kept, as numbers of the graph, and their devices, at most one a class.
    costs, unit
        Integer costs and their unit in seconds; ``passes`` is 2 when forward and backward loads count apart, else 1.
    size, room, exact_sizes
        Integer sizes and memories, and whether they are exact.
    balance, prices, worths
        By row of a cap (the only load; or forward, backward, both): balance bound, its prices, worth of each class.
    strides, layers
        Mixed radix of the devices used, and the number of layers.
    """

    def __init__(self, graph: StageGraph, passes: bool, sizes_up: bool) -> None:
        order = np.argsort(graph.count, kind="stable")
        self.types = order[graph.count[order] > 0]
        self.count = np.minimum(graph.count[self.types], max(graph.n, 1))
        part = replace(
            graph,
            time=graph.time[:, self.types],
            count=self.count,
            memory=graph.memory[self.types],
            rate_in=graph.rate_in[self.types],
            rate_out=graph.rate_out[self.types],
            backward_time=None if graph.backward_time is None else graph.backward_time[:, self.types],
        )
        self.costs, self.unit = integer_costs(part, passes)
        self.size, self.room, self.exact_sizes = integer_sizes(part, sizes_up)
        time = np.where(self.costs.time >= NEVER, np.inf, self.costs.time.astype(np.float64)).transpose(1, 2, 0)
        self.passes = 2 if passes else 1
        # loads that windows look at, as rows of a cap: the only pass, or each pass and both together
        self.balance: dict[int, int] = {}
        self.prices: dict[int, Floats] = {}
        self.worths: dict[int, Floats] = {}
        for row, seconds in enumerate([time[0], time[1], time[0] + time[1]] if passes else [time[0]]):
            least, prices = balance(seconds, self.count)
            self.balance[row], self.prices[row] = NEVER if math.isinf(least) else int(least), prices
            worths = worth(seconds, prices)
            self.worths[row] = np.where(np.isfinite(worths), worths, 0.0)
        self.strides = np.concatenate([[1], np.cumprod(self.count + 1)[:-1]]).astype(np.int64)
        self.layers = int(np.prod(self.count + 1))

    def seconds(self, load: int) -> float:
        """An integer load as seconds, rounded down."""
        if load >= NEVER:
            return math.inf
        value = float(load)
        return (math.nextafter(value, 0.0) if int(value) > load else value) * self.unit


class Layers:
    """One run of the program: ``cap`` (forward, backward, both) limits the loads, pass ``which`` is made least.

    Values are not told apart below ``floor``. ``found`` is the best plan with its value in ``cap[which] + 1``.
    """

    def __init__(self, problem: Problem, family: Family, cap: list[int], which: int, floor: int) -> None:
        self.problem, self.family, self.which, self.floor = problem, family, which, floor
        self.cap = np.minimum(np.array(cap), NEVER - 1).astype(np.int64)
        self.layers = 0
        self.found: Plan | None = None

    def run(self, should_stop: Callable[[], bool], better: Callable[[Plan, int], None] | None = None) -> bool:
        """Make all layers; False when stopped. Each better plan lowers the cap and is handed to ``better``."""
        problem, number = self.problem, self.family.number
        full = number - 1
        ring = np.full((int(problem.strides[-1]) + 1, number), NEVER, np.int64)
        ring[0, 0] = self.floor
        self.entries = [
            (np.zeros(1, np.int32), np.full(1, self.floor, np.int64), np.zeros(1, np.int32), np.zeros(1, np.int8))
        ]
        if full == 0:
            self._keep(0, 0, better)
            return True
        for code in range(1, problem.layers):
            used = code // problem.strides % (problem.count + 1)
            best = ring[code % len(ring)]
            best[:] = NEVER
            for t in np.flatnonzero(used):
                np.minimum(best, ring[(code - problem.strides[t]) % len(ring)], out=best)
            reached = Reached(best, np.full(number, -1, np.int32), np.full(number, -1, np.int8))
            for t in np.flatnonzero(used):
                states, values = self.entries[code - problem.strides[t]][:2]
                first = 0
                while first < len(states):
                    if should_stop():
                        return False
                    limits = self._limits(used, int(t))
                    first = int(
                        self.family.kernel(
                            states, values, first, int(t), _STEPS, problem.costs, problem.size, limits,
                            self.family.prefixes, self.family.potential, reached, self.family.scratch,
                        )
                    )  # fmt: skip
            self.layers += 1
            new = np.flatnonzero((reached.kind >= 0) & (best <= self.cap[self.which])).astype(np.int32)
            self.entries.append((new, best[new], reached.back[new], reached.kind[new]))
            if len(new) and new[-1] == full:
                self._keep(code, len(new) - 1, better)
        return True

    def _limits(self, used: Ints, kind: int) -> Limits:
        """Windows: what the devices used can hold at most, and what the devices left must at least find done."""
        problem = self.problem
        left = problem.count - used
        low, high, gain = [], [], []
        whole = self.family.potential[-1]
        for row, prices in problem.prices.items():
            each = prices * float(self.cap[row])
            low.append(whole[row] - left @ each)
            high.append(used @ each)
            gain.append(each[kind])
        room = np.where(problem.room >= NEVER, np.inf, problem.room.astype(np.float64))
        low.append(whole[-1] - room[left > 0] @ left[left > 0])
        high.append(room[used > 0] @ used[used > 0])
        gain.append(room[kind])
        # float sums of up to n terms err by far less than this share of the whole
        margin = 1e-9 * np.abs(whole) + 1e-9
        return Limits(
            cap=self.cap,
            room=problem.room[kind : kind + 1],
            which=np.array([self.which]),
            low=np.array(low) - margin,
            high=np.array(high) + margin,
            gain=np.array(gain) + margin,
            whole=np.array([int(not left.any())]),
        )

    def _keep(self, code: int, entry: int, better: Callable[[Plan, int], None] | None) -> None:
        """Read a plan back from its last entry, and ask for better ones from now on."""
        value = int(self.entries[code][1][entry])
        plan: Plan = []
        while code > 0:
            states, _, back, kinds = self.entries[code]
            kind = int(kinds[entry])
            code -= int(self.problem.strides[kind])
            before = int(self.entries[code][0][back[entry]])
            stage = np.setdiff1d(
                self.family.members(int(states[entry])), self.family.members(before), assume_unique=True
            )
            plan.append((stage, kind))
            entry = int(back[entry])
        self.found = plan[::-1]
        self.cap[self.which] = value - 1
        if better is not None:
            better(self.found, value)


def stage_loads(costs: StageCosts, stage: Ints, kind: int) -> tuple[int, int]:
    """Integer loads of a stage in both passes; ``NEVER`` where it cannot run."""
    if (costs.time[kind, :, stage] >= NEVER).any():
        return NEVER, NEVER
    part = np.zeros(costs.time.shape[2], np.bool_)
    part[stage] = True
    inside = part[costs.net_pin]
    pins = (
        np.add.reduceat(inside, costs.net_ptr[:-1], dtype=np.int64) if len(costs.net_source) else np.zeros(0, np.int64)
    )
    sends = part[costs.net_source]
    pays = np.where(sends, np.where(pins < np.diff(costs.net_ptr), costs.leave[kind], 0), 0)
    pays += np.where(~sends & (pins > 0), costs.arrive[kind], 0)
    first, second = (int(costs.time[kind, p, stage].sum() + pays[costs.net_pass == p].sum()) for p in (0, 1))
    return first, second
