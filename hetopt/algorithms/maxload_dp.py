"""Contiguous pipeline partition with the least largest load: exact dynamic program over order ideals, several device types.

A plan is a chain of ideals, empty set to full set; what one ideal adds to the one before is a stage, alone on a device.
Devices may stay empty. The value of a plan is

* ``variant="sum"``: the largest load of a device, forward and backward pass together;
* ``variant="max"``: the largest forward load plus the largest backward load, each over all devices.

What this module is for: proving optimality where the graph has up to some hundred thousand ideals, and a plan with a lower
bound where it has more. What it is not: plans without contiguity, or with contiguity per device only.

Method. A state is (devices used of each type, ideal); its value the best largest load. Layers follow each other by devices
used, in mixed radix; from each state that improves on all layers with one device fewer, the ideals that one more stage
reaches are found among those of a window (:mod:`hetopt.algorithms.maxload_lattice`). Only plans better than the best known
count: a prefix too light for the devices left or too heavy for the devices used, measured by the prices of the balance
bound and by memory, is left out (*windows*). The best plan known starts with the best splits of a few linear extensions.

``max`` is solved by scanning the forward limit F: with F fixed, the same program finds the least backward load. A plan
found at F with loads (f, b) rules out all forward loads in [f, F], since none there has less than b; the rest is searched
by halving, most promising interval first, until no interval can beat the best sum.

Source: Tarnawski et al., NeurIPS 2020, section 4 (the dynamic program over ideals); windows and the scan are this
package's. Loads are integers that round down (:mod:`hetopt.algorithms.stagecosts`): the bound holds for the exact data,
and an optimal plan's value exceeds it by rounding at most.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.ideals import TooManyIdeals, enumerate_ideals
from hetopt.algorithms.maxload_bounds import min_cut
from hetopt.algorithms.maxload_chain import chain_of, choose_stops, linear_extension
from hetopt.algorithms.maxload_kernels import Chain
from hetopt.algorithms.maxload_layers import Family, Layers, Plan, Problem, stage_loads
from hetopt.algorithms.stagecosts import NEVER
from hetopt.algorithms.stagegraph import StageGraph

__all__ = ["ContiguousAnswer", "solve_contiguous"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_EXTENSIONS = (3, 6)  # linear extensions tried before ideals are listed, and when there are too many
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
    (product of counts plus one), R pairs of nested ideals that pass the windows and d nets that an ideal cuts, plus a
    64th of that for all pairs in the windows.
    """
    if variant not in ("sum", "max"):
        raise ValueError(f"variant is {variant!r}; expected 'sum' or 'max'")
    return _Solver(graph, variant, seed, should_stop, report, ideal_limit, table_limit).run()


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
            bound, proved = self._attempt(Problem(self.graph, passes, sizes_up=False))
        except _Misfit:
            # a plan fits in rounded sizes but not in the true ones: search among the plans that surely fit; what has been
            # proved so far is the bound, since that search leaves plans out
            bound, proved = self.problem.seconds(self.lower), False
            self.plan, self.value, self.best = None, math.inf, 2 * NEVER
            self._attempt(Problem(self.graph, passes, sizes_up=True))
            self.stats["reason"] = "not proved: memory is so nearly full that rounding of sizes decides"
        if self.plan is None:
            return ContiguousAnswer(None, None, (), math.inf, bound, proved, self.stats)
        device, kind, stages = self._devices(self.plan)
        return ContiguousAnswer(device, kind, stages, self.value, min(bound, self.value), proved, self.stats)

    def _attempt(self, problem: Problem) -> tuple[float, bool]:
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
        self._chains(0, _EXTENSIONS[0])
        if self.plan is not None:
            self.stats["chain"] = self.value
        if self.best <= self.lower:
            return problem.seconds(self.lower), True
        try:
            words, types = -(-self.graph.n // 64), len(problem.types)
            limit = min(
                self.ideal_limit, self.table_limit // (8 * int(problem.strides[-1]) + 32 * words + 20 * types + 96)
            )
            ideals = enumerate_ideals(self.graph.pred_ptr, self.graph.pred, limit, self.should_stop)
        except TooManyIdeals as error:
            self.stats["reason"] = f"not proved: {error}"
            self._chains(*_EXTENSIONS)
            self.stats["chain"] = self.value
            self.lower, cuts = min_cut(problem.costs, self.lower, 10 * _CUT_EFFORT, self.should_stop)
            self.stats["cuts"] = cuts
            return problem.seconds(self.lower), self.best <= self.lower
        finished = False
        if ideals is not None:
            self.stats["ideals"] = len(ideals.last)
            family = Family.of_ideals(problem, ideals, self.should_stop)
            del ideals
            finished = family is not None and self._search(family)
        if not finished:
            self.stats["reason"] = "not proved: stopped before every chain of ideals was ruled out"
            return problem.seconds(self.lower), False
        if self.plan is None:
            self.stats["reason"] = (
                "no contiguous plan fits the memory of the devices: every chain of ideals was ruled out"
            )
        return problem.seconds(min(self.best, NEVER)), True

    def _hopeless(self, problem: Problem) -> str:
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
        together = sum(r * c for r, c in zip(problem.room.tolist(), problem.count.tolist(), strict=True))
        if (problem.room < NEVER).all() and int(problem.size.sum()) > together:
            total = float(self.graph.memory[problem.types] @ problem.count)
            return f"all classes need {self.graph.size.sum():g} of memory; the devices have {total:g} together"
        return ""

    def _task(self, v: int) -> int:
        return int(np.argmax(self.graph.member == v))

    def _chains(self, first: int, last: int) -> None:
        """Best splits of some linear extensions; long ones with few stops, then with more around the places found."""
        problem = self.problem
        for turn in range(first, last):
            if self.should_stop() or self.best <= self.lower:
                return
            order = linear_extension(self.graph, min(turn, 2), self.seed + turn)
            keep = np.zeros(0, np.int64)
            for _ in range(1 if self.graph.n < _STOPS else 3):
                stops = choose_stops(problem.costs, order, problem.worths[0], _STOPS, keep)
                chain = chain_of(problem.costs, problem.size, problem.room, order, stops, problem.passes)
                family = Family(problem, chain)
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

    def _search(self, family: Family, limit: int = 2 * NEVER) -> bool:
        """Look for a plan of value at most ``limit`` that beats the best one; whether everything was ruled out else."""
        limit = min(limit, self.best - 1)
        exact = not isinstance(family.table, Chain)
        if self.problem.passes == 2:
            return self._scan(family, limit, exact)
        # no plan is better than the lower bound: values below it need not be told apart
        layers = Layers(self.problem, family, [limit, NEVER, NEVER], 0, max(self.floor[0], self.lower))
        return self._run(layers, exact)

    def _scan(self, family: Family, limit: int, exact: bool) -> bool:
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
            layers = Layers(self.problem, family, [f, most - a, most], 1, bw)
            if not self._run(layers, exact):
                return False
            if f < b:
                heapq.heappush(heap, (f + 1 + bw, f + 1, b, bw, True))
            if layers.found is not None:
                loads = [stage_loads(self.problem.costs, stage, kind) for stage, kind in layers.found]
                forward, backward = max(load[0] for load in loads), max(bw, max(load[1] for load in loads))
                heapq.heappush(heap, (a + backward, a, forward - 1, backward, False))
        return True

    def _run(self, layers: Layers, exact: bool) -> bool:
        """One run; the caller is told of better plans at once when it may be long, else of the last one; False when stopped."""
        known = self.best
        finished = layers.run(self.should_stop, lambda plan, _: self._take(plan, tell=exact))
        self.stats["layers"] = int(self.stats["layers"]) + layers.layers
        if not exact and self.best < known:
            self._tell()
        return finished

    def _tell(self) -> None:
        """Value the best plan in the original numbers and hand it to the caller."""
        assert self.plan is not None
        true = [self._true_loads(stage, kind) for stage, kind in self.plan]
        self.value = sum(max(load[p] for load in true) for p in range(self.problem.passes))
        self.report(self.value, self._devices(self.plan)[0])

    def _take(self, plan: Plan, tell: bool) -> None:
        """Take a plan if it is better, after a look at its true memory."""
        loads = [stage_loads(self.problem.costs, stage, kind) for stage, kind in plan]
        value = sum(max(load[p] for load in loads) for p in range(self.problem.passes))
        if value >= self.best:
            return
        for stage, kind in plan:
            memory = self.graph.memory[self.problem.types[kind]]
            exact = self.problem.exact_sizes or math.isinf(memory)
            if not exact and self._too_large(stage, float(memory)):
                raise _Misfit
        self.plan, self.best = plan, value
        if tell:
            self._tell()

    def _too_large(self, stage: Ints, memory: float) -> bool:
        held = math.fsum(self.graph.size[stage])  # rounded once: only where it equals the memory does rounding decide
        return held > memory or (held == memory and sum(map(Fraction, self.graph.size[stage])) > Fraction(memory))

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
