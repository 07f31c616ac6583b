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
from hetopt.algorithms.maxload_kernels import Chain, Limits, Reached, expand_chain
from hetopt.algorithms.maxload_lattice import Lattice, expand_lattice, lattice_of
from hetopt.algorithms.stagecosts import NEVER, StageCosts, integer_costs, integer_sizes
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["Family", "Layers", "Plan", "Problem", "stage_loads"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Plan = list[tuple[Ints, int]]  # stages in order: classes, device type (number in the problem)

_STEPS = 2_000_000  # steps of one kernel call, about 0.1 s


class Family:
    """Prefixes that the program runs over, the first one empty and the last one full, with the kernel that goes with them.

    Attributes
    ----------
    number
        Prefixes.
    potential
        (number, k) worths, as the windows measure them, and size of each prefix.
    """

    def __init__(self, problem: Problem, chain: Chain) -> None:
        self.table: Chain | Lattice = chain
        self.number, self.kernel = len(chain.stops), expand_chain
        weights = problem.weights[chain.order]
        sums = np.concatenate([np.zeros((1, weights.shape[1])), np.cumsum(weights, axis=0)])
        self.potential = np.ascontiguousarray(sums[chain.stops])

    @classmethod
    def of_ideals(cls, problem: Problem, ideals: Ideals, should_stop: Callable[[], bool]) -> Family | None:
        """All ideals; None when stopped."""
        potential = ideals.total(problem.weights)
        number = np.argsort(potential[:, -2], kind="stable")
        lattice = lattice_of(
            ideals, number, potential[number, -2], problem.costs, problem.size, problem.heir, should_stop
        )
        if lattice is None:
            return None
        self = cls.__new__(cls)
        self.table, self.number, self.kernel = lattice, len(potential), expand_lattice
        self.potential = potential[number]
        return self

    def members(self, prefix: int) -> Ints:
        """Classes of a state, ascending."""
        if isinstance(self.table, Chain):
            return np.sort(self.table.order[: self.table.stops[prefix]])
        return self.table.members(prefix)


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
    weights
        (n, k) the worths and the size of each class: what windows add up.
    heir
        (n,) a class that each class comes before, n where there is none.
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
        self.weights = np.column_stack([*self.worths.values(), self.size.astype(np.float64)])
        self.heir = np.full(graph.n, graph.n)
        np.minimum.at(self.heir, graph.pred, np.repeat(np.arange(graph.n), np.diff(graph.pred_ptr)))
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
        problem, family, number = self.problem, self.family, self.family.number
        full = number - 1
        ring = np.full((int(problem.strides[-1]) + 1, number), NEVER, np.int64)
        ring[0, 0] = self.floor
        self.entries = [
            (np.zeros(1, np.int32), np.full(1, self.floor, np.int64), np.zeros(1, np.int32), np.zeros(1, np.int8))
        ]
        if full == 0:
            self._keep(0, 0, better)
            return True
        codes = np.arange(problem.layers)[:, None] // problem.strides % (problem.count + 1)
        windows = self._windows(codes)
        which, strides = np.array([self.which]), problem.strides.tolist()
        for code, used in enumerate(codes.tolist()):
            kinds = [t for t, devices in enumerate(used) if devices]
            if not kinds:
                continue
            best = ring[code % len(ring)]
            best[:] = NEVER
            for t in kinds:
                np.minimum(best, ring[(code - strides[t]) % len(ring)], out=best)
            reached = Reached(best, np.full(number, -1, np.int32), np.full(number, -1, np.int8))
            whole = np.array([int(code == problem.layers - 1)])
            for t in kinds:
                states, values = self.entries[code - strides[t]][:2]
                low, high, gain = windows[0][code], windows[1][code], windows[2][t]
                limits = Limits(self.cap, problem.room[t : t + 1], which, low, high, gain, whole)
                first = 0
                while first < len(states):
                    if should_stop():
                        return False
                    first = int(
                        family.kernel(
                            states, values, first, t, _STEPS, problem.costs, limits, family.table, family.potential, reached
                        )
                    )  # fmt: skip
            self.layers += 1
            new = np.flatnonzero((reached.kind >= 0) & (best <= self.cap[self.which])).astype(np.int32)
            self.entries.append((new, best[new], reached.back[new], reached.kind[new]))
            if len(new) and new[-1] == full:
                self._keep(code, len(new) - 1, better)
                windows = self._windows(codes)
        return True

    def _windows(self, used: Ints) -> tuple[Floats, Floats, Floats]:
        """(layers, k) least and largest potential of a prefix that is of use in a layer, and what a device of a type adds.

        A prefix is too heavy for the ``used`` (layers, t) devices when they cannot hold it, and too light when those left
        cannot hold the rest.
        """
        problem = self.problem
        left = problem.count - used
        whole = self.family.potential[-1]
        room = np.where(problem.room >= NEVER, np.inf, problem.room.astype(np.float64))
        each = np.array([prices * float(self.cap[row]) for row, prices in problem.prices.items()] + [room])
        # a type without devices on a side adds nothing there, also where its room is infinite
        held, found = (
            np.where(side[:, None, :] > 0, side[:, None, :] * np.where(side[:, None, :] > 0, each, 0.0), 0.0).sum(
                axis=2
            )
            for side in (used, left)
        )
        # float sums of up to n terms err by far less than this share of the whole
        margin = 1e-9 * np.abs(whole) + 1e-9
        return whole - found - margin, held + margin, np.ascontiguousarray(each.T) + margin

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
