"""Contiguous pipeline partition with the least largest load: exact dynamic program over order ideals, several device types.

A plan is a chain of ideals, empty set to full set; what one ideal adds to the one before is a stage, alone on a device.
Devices may stay empty. The value of a plan is

* ``variant="sum"``: the largest load of a device, forward and backward pass together;
* ``variant="max"``: the largest forward load plus the largest backward load, each over all devices.

What this module is for: proving optimality where the graph has up to some hundred thousand ideals, and a plan with a lower
bound where it has more. What it is not: plans without contiguity, or with contiguity per device only.

Method. A state is (devices used of each type, ideal); its value the best largest load. Layers follow each other by devices
used, in mixed radix; from each state that improves on all layers with one device fewer, a depth-first walk over covers
visits the ideals that one more stage reaches (:mod:`hetopt.algorithms.maxload_kernels`). Only plans better than the best
known count: a stage whose certain load exceeds it is cut off, and so is a prefix too light for the devices left or too
heavy for the devices used, measured by the prices of the balance bound, and by memory (*windows*). The best plan known
starts with the best splits of a few linear extensions.

``max`` is solved by scanning the forward limit F: with F fixed, the same program finds the least backward load. A plan
found at F with loads (f, b) rules out all forward loads in [f, F], since none there has less than b; the rest is searched
by halving, most promising interval first, until no interval can beat the best sum.

Source: Tarnawski et al., NeurIPS 2020, section 4 (the dynamic program over ideals); windows, certain loads and the scan
are this package's. Loads are integers that round down (:mod:`hetopt.algorithms.stagecosts`): the bound holds for the exact
data, and an optimal plan's value exceeds it by rounding at most.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.ideals import Ideals, TooManyIdeals, enumerate_ideals
from hetopt.algorithms.maxload_bounds import balance, min_cut
from hetopt.algorithms.maxload_chain import chain_of, choose_stops, linear_extension
from hetopt.algorithms.maxload_kernels import Chain, Limits, Reached, expand_chain, expand_lattice, scratch_for
from hetopt.algorithms.stagecosts import NEVER, StageCosts, integer_costs, integer_sizes
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["ContiguousAnswer", "solve_contiguous"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Plan = list[tuple[Ints, int]]  # stages in order: classes, device type

_STEPS = 2_000_000  # steps of one kernel call, about 0.1 s
_EXTENSIONS = 6  # linear extensions tried
_CHAIN_RUNS = 12  # forward limits tried on each, when passes count apart
_CUT_EFFORT = 2_000_000  # arcs looked at for the cut bound before the search; ten times as many when there is no search
_STOPS = 1024  # places where a stage may end in a long chain


class ContiguousAnswer(NamedTuple):
    """How a contiguous search ended.

    Attributes
    ----------
    device
        (n,) device of each class, or None without a plan. Devices are numbered type by type: type t has the numbers
        from ``count[:t].sum()`` on, and its stages take them in pipeline order.
    kind
        (n,) device type of each class, or None.
    stages
        Devices in pipeline order; empty devices are left out.
    value
        Value of the plan from the original numbers, ``inf`` without one.
    bound
        No plan is better; ``inf`` when it is proved that there is none.
    optimal
        The search was completed: value and bound differ by rounding at most.
    stats
        ``ideals`` (0 when not listed), ``layers``, ``cuts``, ``balance``, ``chain`` (value of the best split of
        a linear extension), ``reason`` (in words, when not optimal or without a plan).
    """

    device: Ints | None
    kind: Ints | None
    stages: tuple[int, ...]
    value: float
    bound: float
    optimal: bool
    stats: dict[str, float | int | str]


def solve_contiguous(
    graph: StageGraph,
    *,
    variant: str = "sum",
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[float, Ints], None] = lambda value, device: None,
    ideal_limit: int = 1_000_000,
    table_limit: int = 1 << 30,
) -> ContiguousAnswer:
    """Split a stage graph into contiguous stages with the least largest load.

    Parameters
    ----------
    graph
        Classes, nets and device types, as :func:`hetopt.algorithms.contraction.contract` makes them.
    variant
        ``"sum"`` or ``"max"`` (see the module docstring).
    seed
        Of the random linear extensions; does not change a proved value.
    should_stop
        Asked between steps of about 0.1 s; then the best plan so far is returned with a bound.
    report
        Called with value and devices of each better plan.
    ideal_limit
        More ideals are not listed; the plan then comes from linear extensions and the bound from balance and cuts.
    table_limit
        Bytes that the dynamic program's value tables may take; the same holds beyond.

    Raises
    ------
    ValueError
        If ``variant`` is neither of the two.

    Notes
    -----
    Guarantee: ``bound <= optimum <= value`` always; equality up to rounding when ``optimal``. Time O(L R d) for L layers
    (product of counts plus one), R pairs of nested ideals that pass the windows and nets per class d.
    """
    if variant not in ("sum", "max"):
        raise ValueError(f"variant is {variant!r}; expected 'sum' or 'max'")
    return _Solver(graph, variant, seed, should_stop, report, ideal_limit, table_limit).run()


class _Family:
    """Prefixes that the program runs over, a lattice or a chain, with the kernel that goes with it."""

    def __init__(self, problem: _Problem, prefixes: Ideals | Chain) -> None:
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


class _Problem:
    """A graph in integers, types without devices left out and the others ordered by count, and its potentials."""

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
            with np.errstate(invalid="ignore"):
                worth = np.where(np.isfinite(seconds), seconds * prices, np.inf).min(axis=1, initial=np.inf)
            self.worths[row] = np.where(np.isfinite(worth), worth, 0.0)
        self.strides = np.concatenate([[1], np.cumprod(self.count + 1)[:-1]]).astype(np.int64)
        self.layers = int(np.prod(self.count + 1))

    def seconds(self, load: int) -> float:
        """An integer load as seconds, rounded down."""
        if load >= NEVER:
            return math.inf
        value = float(load)
        return (math.nextafter(value, 0.0) if int(value) > load else value) * self.unit


class _Layers:
    """The layers of one run: limits are the largest loads allowed, ``which`` of them is made as small as possible."""

    def __init__(self, problem: _Problem, family: _Family, cap: list[int], which: int, floor: int) -> None:
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


class _Solver:
    """One call of :func:`solve_contiguous`: the plan and the bound so far."""

    def __init__(
        self,
        graph: StageGraph,
        variant: str,
        seed: int,
        should_stop: Callable[[], bool],
        report: Callable[[float, Ints], None],
        ideal_limit: int,
        table_limit: int,
    ) -> None:
        self.graph, self.variant, self.seed = graph, variant, seed
        self.should_stop, self.report = should_stop, report
        self.ideal_limit, self.table_limit = ideal_limit, table_limit
        self.plan: Plan | None = None
        self.value, self.best = math.inf, 2 * NEVER
        self.lower, self.floor = 0, [0, 0]
        self.stats: dict[str, float | int | str] = {"ideals": 0, "layers": 0, "cuts": 0}

    def run(self) -> ContiguousAnswer:
        if self.graph.n == 0:
            empty = np.zeros(0, np.int64)
            return ContiguousAnswer(empty, empty, (), 0.0, 0.0, True, self.stats)
        passes = self.variant == "max" and self.graph.backward_time is not None
        try:
            bound, proved = self._attempt(_Problem(self.graph, passes, sizes_up=False))
        except _Misfit:
            # a plan fits in rounded sizes but not in the true ones: search among the plans that surely fit
            self.plan, self.value, self.best = None, math.inf, 2 * NEVER
            problem = _Problem(self.graph, passes, sizes_up=True)
            self._attempt(problem)
            bound, proved = problem.seconds(self.lower), False
            self.stats["reason"] = "not proved: memory is so nearly full that rounding of sizes decides"
        if self.plan is None:
            return ContiguousAnswer(None, None, (), math.inf, bound, proved, self.stats)
        device, kind, stages = self._devices(self.plan)
        return ContiguousAnswer(device, kind, stages, self.value, min(bound, self.value), proved, self.stats)

    def _attempt(self, problem: _Problem) -> tuple[float, bool]:
        """Search; the proved bound in seconds and whether the search was completed."""
        self.problem = problem
        reason = self._hopeless(problem)
        if reason:
            self.stats["reason"] = reason
            return math.inf, True
        slowest = problem.costs.time.min(axis=0).max(axis=1)
        self.floor = [max(problem.balance[p], int(slowest[p])) for p in range(problem.passes)]
        least = max(sum(self.floor), max(problem.balance.values()))
        self.lower, cuts = min_cut(problem.costs, least, _CUT_EFFORT, self.should_stop)
        self.stats.update(balance=problem.seconds(max(problem.balance.values())), cuts=cuts)
        self._chains()
        self.stats["chain"] = self.value
        if self.best <= self.lower:
            return problem.seconds(self.lower), True
        try:
            words = -(-self.graph.n // 64)
            limit = min(self.ideal_limit, self.table_limit // (8 * int(problem.strides[-1]) + 16 * words + 32))
            ideals = enumerate_ideals(self.graph.pred_ptr, self.graph.pred, limit, self.should_stop)
        except TooManyIdeals as error:
            self.stats["reason"] = f"not proved: {error}"
            self.lower, cuts = min_cut(problem.costs, self.lower, 10 * _CUT_EFFORT, self.should_stop)
            self.stats["cuts"] = cuts
            return problem.seconds(self.lower), self.best <= self.lower
        finished = False
        if ideals is not None:
            self.stats["ideals"] = len(ideals.last)
            finished = self._search(_Family(problem, ideals))
        if not finished:
            self.stats["reason"] = "not proved: stopped before every chain of ideals was ruled out"
            return problem.seconds(self.lower), False
        if self.plan is None:
            self.stats["reason"] = (
                "no contiguous plan fits the memory of the devices: every chain of ideals was ruled out"
            )
        return problem.seconds(min(self.best, NEVER)), True

    def _hopeless(self, problem: _Problem) -> str:
        """Why no plan exists, where that is plain to see."""
        time, room = problem.costs.time[:, 0, :], problem.room[:, None]
        if not len(time) or (time.min(axis=0) >= NEVER).any():
            v = int(np.argmax(time.min(axis=0) >= NEVER)) if len(time) else 0
            return f"class {v} (task {self._task(v)}) runs on no type of device that there is"
        stuck = ((time >= NEVER) | (problem.size[None, :] > room)).all(axis=0)
        if stuck.any():
            v = int(np.argmax(stuck))
            memory = self.graph.memory[problem.types][time[:, v] < NEVER].max()
            return f"class {v} (task {self._task(v)}) needs {self.graph.size[v]:g} of memory; a device has at most {memory:g}"
        if (problem.room < NEVER).all() and int(problem.size.sum()) > sum(map(int, problem.room * problem.count)):
            total = float(self.graph.memory[problem.types] @ problem.count)
            return f"all classes need {self.graph.size.sum():g} of memory; the devices have {total:g} together"
        return ""

    def _task(self, v: int) -> int:
        return int(np.argmax(self.graph.member == v))

    def _chains(self) -> None:
        """Best splits of a few linear extensions; long ones with few stops, then with more around the places found."""
        problem = self.problem
        for turn in range(_EXTENSIONS):
            if self.should_stop() or self.best <= self.lower:
                return
            order = linear_extension(self.graph, min(turn, 2), self.seed + turn)
            keep = np.zeros(0, np.int64)
            for _ in range(1 if self.graph.n < _STOPS else 3):
                stops = choose_stops(problem.costs, order, problem.worths[0], _STOPS, keep)
                chain = chain_of(problem.costs, problem.size, problem.room, order, stops, problem.passes)
                family = _Family(problem, chain)
                before = self.best
                # small limits first: they keep the windows narrow
                excess = self.lower // 16
                while self.best >= NEVER and self.lower + excess < NEVER and excess > 0:
                    self._search(family, self.lower + excess)
                    excess *= 2
                self._search(family)
                if self.best == before or self.plan is None:
                    break
                keep = np.cumsum([len(stage) for stage, _ in self.plan])

    def _search(self, family: _Family, limit: int = 2 * NEVER) -> bool:
        """Look for a plan of value at most ``limit`` that beats the best one; whether everything was ruled out else."""
        limit = min(limit, self.best - 1)
        exact = not isinstance(family.prefixes, Chain)
        if self.problem.passes == 2:
            return self._scan(family, limit, exact)
        layers = _Layers(self.problem, family, [limit, NEVER, NEVER], 0, self.floor[0])
        finished = layers.run(self.should_stop, self._offer)
        self._count(layers)
        return finished

    def _scan(self, family: _Family, limit: int, exact: bool) -> bool:
        """Scan of the forward limit (module docstring); with chains the number of runs is limited."""
        least0, least1 = self.floor
        heap = [(least0 + least1, least0, limit - least1, least1, True)]
        runs = 0
        while heap:
            lower, a, b, bw, top = heapq.heappop(heap)
            if exact:
                self.lower = max(self.lower, min(lower, self.best))
            b = min(b, min(limit, self.best - 1) - bw)
            if a > b:
                continue
            if runs == _CHAIN_RUNS and not exact:
                return False
            runs += 1
            f = b if top else (a + b) // 2
            most = min(limit, self.best - 1)
            layers = _Layers(self.problem, family, [f, most - a, most], 1, bw)
            finished = layers.run(self.should_stop, self._offer)
            self._count(layers)
            if not finished:
                return False
            if f < b:
                heapq.heappush(heap, (f + 1 + bw, f + 1, b, bw, True))
            if layers.found is not None:
                loads = [stage_loads(self.problem.costs, stage, kind) for stage, kind in layers.found]
                forward, backward = (max(load[p] for load in loads) for p in (0, 1))
                heapq.heappush(heap, (a + backward, a, forward - 1, backward, False))
        return True

    def _count(self, layers: _Layers) -> None:
        self.stats["layers"] = int(self.stats["layers"]) + layers.layers

    def _offer(self, plan: Plan, _: int) -> None:
        """Take a plan if it is better, after a look at its true memory; tell the caller."""
        loads = [stage_loads(self.problem.costs, stage, kind) for stage, kind in plan]
        value = sum(max(load[p] for load in loads) for p in range(self.problem.passes))
        if value >= self.best:
            return
        for stage, kind in plan:
            memory = self.graph.memory[self.problem.types[kind]]
            exact = self.problem.exact_sizes or math.isinf(memory)
            if not exact and sum(map(Fraction, self.graph.size[stage])) > Fraction(memory):
                raise _Misfit
        self.plan, self.best = plan, value
        true = [self._true_loads(stage, kind) for stage, kind in plan]
        self.value = sum(max(load[p] for load in true) for p in range(self.problem.passes))
        self.report(self.value, self._devices(plan)[0])

    def _true_loads(self, stage: Ints, kind: int) -> tuple[float, float]:
        part = np.zeros(self.graph.n, np.bool_)
        part[stage] = True
        t = int(self.problem.types[kind])
        if self.problem.passes == 1:
            return self.graph.load(part, t), 0.0
        return self.graph.pass_loads(part, t)

    def _devices(self, plan: Plan) -> tuple[Ints, Ints, tuple[int, ...]]:
        device, kind = np.full(self.graph.n, -1), np.full(self.graph.n, -1)
        following = np.concatenate([[0], np.cumsum(self.graph.count)])[:-1].astype(np.int64)
        stages = []
        for stage, number in plan:
            t = int(self.problem.types[number])
            device[stage], kind[stage] = following[t], t
            stages.append(int(following[t]))
            following[t] += 1
        return device, kind, tuple(stages)


class _Misfit(Exception):
    """A plan fits memory in rounded sizes only."""


def stage_loads(costs: StageCosts, stage: Ints, kind: int) -> tuple[int, int]:
    """Integer loads of a stage in both passes."""
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
