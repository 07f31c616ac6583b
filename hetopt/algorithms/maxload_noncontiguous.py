"""Partition without contiguity: the least largest load of any device, as a plan, a bound and the bound's certificate.

Search and proof take turns. The search (:mod:`hetopt.algorithms.maxload_search`) starts from a plan that is given, or from
the best splits of a few orders of the classes, and lowers the value. The proof starts with the balance of the device types
and with cuts, and goes on with prices (:mod:`hetopt.algorithms.maxload_columns`): it refutes larger and larger limits, half
the remaining way at a time, up to a hair below the value. Every certificate is replayed in integers before it counts.

What this is not: exact. The linear program behind the prices may stay below the optimum, and memory enters the bound only in
total per type. For contiguous plans see :mod:`hetopt.algorithms.maxload_dp`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.frontier_order import FrontierTooWide, node_orders, thinnest_frontier
from hetopt.algorithms.maxload_anneal import device_loads, devices, fits
from hetopt.algorithms.maxload_columns import Refuter, balance_certificate
from hetopt.algorithms.maxload_cuts import cut_certificate
from hetopt.algorithms.maxload_dp import solve_contiguous
from hetopt.algorithms.maxload_search import improve
from hetopt.algorithms.stagegraph import StageGraph
from hetopt.verify.maxload_certificates import replay

__all__ = ["NoncontiguousAnswer", "solve_noncontiguous"]

IntArray = NDArray[np.int64]

_MEET = 1e-7  # value and bound this close, relatively, count as equal; rounding of the replay is far below
_FINE = 1e-5  # limits between a proved and a hopeless one closer than this are not tried
_PRICED = 4_000  # classes; beyond, one sweep takes longer than whole searches
_FIRST = 8  # linear programs of the first turn; later turns are longer
_LONGEST = 64
_EVEN = 150  # classes at which a descent and a linear program take about equally long; a descent grows faster


class NoncontiguousAnswer(NamedTuple):
    """How a search without contiguity ended.

    Attributes
    ----------
    device
        (n,) device of each class, types in order (``count[0]`` devices of type 0 first), or None when no plan was found.
    value
        Largest load in seconds, recomputed from the graph; ``inf`` without a plan.
    bound
        No plan that respects memory has a smaller largest load; ``inf`` when a class fits nowhere.
    certificate
        Proof of the bound for :func:`hetopt.verify.maxload_certificates.replay`; None when the bound is 0 or ``inf``.
    optimal
        Value and bound meet within a relative 1e-7.
    stats
        ``descents``, ``programs`` (linear programs solved), ``columns``, ``states`` (of the frontier; 0 when it is too
        wide), ``seconds_search``, ``seconds_proof``.
    """

    device: IntArray | None
    value: float
    bound: float
    certificate: dict[str, Any] | None
    optimal: bool
    stats: dict[str, float]


def solve_noncontiguous(
    graph: StageGraph,
    *,
    start: IntArray | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[float, IntArray], None] = lambda value, device: None,
    seed: int = 0,
    time_limit: float = math.inf,
    patience: int = 400,
    max_states: int = 60_000,
) -> NoncontiguousAnswer:
    """Assign every class to a device so that the largest load is small, and prove how small it can be.

    Parameters
    ----------
    graph
        Classes, nets and device types; the precedence is ignored.
    start
        (n,) device of each class to start from, for example the contiguous optimum; None to split orders of the classes.
    should_stop
        Asked between steps of about 0.2 s.
    report
        Called with value and devices of each better plan.
    seed
        Of node orders and search.
    time_limit
        Seconds of wall-clock time after which to stop.
    patience
        Stop after this many descents without a better plan, when the bound cannot be raised either.
    max_states
        Frontier states that the proof may use.

    Raises
    ------
    ValueError
        ``start`` does not fit the graph, names a device that does not exist, or exceeds a memory.

    Notes
    -----
    Guarantee: ``bound <= optimum <= value`` always. The turns are counted in steps, so the same seed gives the same
    answer unless the time limit or ``should_stop`` cuts it short.
    """
    deadline = time.monotonic() + time_limit
    run = _Run(graph, report, lambda: time.monotonic() >= deadline or should_stop(), seed, max_states)
    if start is not None:
        run.check(start)
    return run.solve(start, patience)


class _Run:
    """One call of :func:`solve_noncontiguous`: the best plan and the best certificate so far."""

    def __init__(
        self,
        graph: StageGraph,
        report: Callable[[float, IntArray], None],
        should_stop: Callable[[], bool],
        seed: int,
        max_states: int,
    ) -> None:
        self.graph, self.report, self.should_stop, self.seed, self.max_states = (
            graph,
            report,
            should_stop,
            seed,
            max_states,
        )
        self.device: IntArray | None = None
        self.value, self.bound = math.inf, 0.0
        self.certificate: dict[str, Any] | None = None
        self.hopeless = math.inf  # the prices' linear program covers everything within this limit
        self.refuter: Refuter | None = None
        self.stats = {
            "descents": 0.0,
            "programs": 0.0,
            "columns": 0.0,
            "states": 0.0,
            "seconds_search": 0.0,
            "seconds_proof": 0.0,
        }

    def check(self, start: IntArray) -> None:
        """Refuse a start that is no plan."""
        count = int(self.graph.count.sum())
        if start.shape != (self.graph.n,) or (self.graph.n and not 0 <= start.min() <= start.max() < count):
            raise ValueError(f"start must give each of the {self.graph.n} classes one of the {count} devices")
        if not fits(self.graph, start):
            raise ValueError("start puts a class where it cannot run, or more on a device than its memory holds")

    def solve(self, start: IntArray | None, patience: int) -> NoncontiguousAnswer:
        graph = self.graph
        if graph.n == 0:
            return self._answer(np.zeros(0, dtype=np.int64), 0.0)
        placeable = np.isfinite(graph.time) & (graph.size[:, None] <= graph.memory * (1 + 1e-9)) & (graph.count > 0)
        if not placeable.any(axis=1).all():
            self.bound = math.inf
            return self._answer(None, math.inf)
        self._prove(balance_certificate(graph))
        order = self._order()
        self._keep_best([start] if start is not None else self._starts(order))
        if self.device is None:
            return self._answer(None, math.inf)
        self._prove(cut_certificate(graph, self.bound, should_stop=self.should_stop))
        fruitless, turn = 0, 0
        while not self._closed() and not self.should_stop():
            size = min(_LONGEST, _FIRST << turn)
            before = self.value
            descents = max(4, min(patience, size * _EVEN // graph.n))
            self._search(order, descents, turn)
            fruitless = fruitless + descents if self.value == before else 0
            proving = self._raise_bound(size)
            if not proving and fruitless >= patience:
                break
            turn += 1
        return self._answer(self.device, self.value)

    def _order(self) -> IntArray:
        """An order of small frontier width, for divisions of two devices."""
        if self.graph.n > _PRICED:
            return node_orders(self.graph, starts=1)[-1]
        try:
            return thinnest_frontier(
                self.graph, int(np.flatnonzero(self.graph.count > 0)[0]), math.inf, self.max_states
            ).order
        except FrontierTooWide:
            return node_orders(self.graph, starts=1)[-1]

    def _starts(self, order: IntArray) -> list[IntArray]:
        """Best splits of orders of the classes into stages, and a plan that only looks at memory."""
        plans = []
        for candidate in (np.arange(self.graph.n, dtype=np.int64), order):
            answer = solve_contiguous(_chained(self.graph, candidate), should_stop=self.should_stop)
            if answer.device is not None:
                plan = np.empty(self.graph.n, dtype=np.int64)
                plan[candidate] = answer.device
                plans.append(plan)
        return [*plans, _by_size(self.graph)]

    def _keep_best(self, plans: list[IntArray]) -> None:
        for plan in plans:
            if fits(self.graph, plan):
                self._better(float(device_loads(self.graph, plan).max()), plan)

    def _better(self, value: float, device: IntArray) -> None:
        if value < self.value:
            self.value, self.device = value, device.copy()
            self.report(value, self.device)

    def _search(self, order: IntArray, descents: int, turn: int) -> None:
        assert self.device is not None
        begin = time.process_time()
        improve(
            self.graph, self.device, order, rounds=descents, target=self.bound, seed=self.seed + 7919 * turn,
            should_stop=self.should_stop, report=self._better,
        )  # fmt: skip
        self.stats["descents"] += descents
        self.stats["seconds_search"] += time.process_time() - begin

    def _closed(self) -> bool:
        return self.bound >= self.value * (1 - _MEET)

    def _prove(self, certificate: dict[str, Any] | None) -> bool:
        """Keep a certificate that raises the bound, after a replay."""
        if certificate is None or certificate["limit"] <= self.bound:
            return False
        try:
            bound = replay(self.graph, certificate)
        except ValueError:  # the search's floats were too sure of themselves
            return False
        self.bound, self.certificate = bound, certificate
        return True

    def _raise_bound(self, programs: int) -> bool:
        """Refute larger limits with a number of linear programs; False when no further limit can be refuted."""
        if self.graph.n > _PRICED or self._closed():
            return False
        begin = time.process_time()
        proving = self._refute(programs)
        self.stats["seconds_proof"] += time.process_time() - begin
        return proving

    def _refute(self, programs: int) -> bool:
        if self.refuter is None:
            try:
                self.refuter = Refuter(self.graph, self.value, max_states=self.max_states, seed=self.seed)
            except FrontierTooWide:
                self.max_states = 0
                return False
            self.stats["states"] = float(sum(s.states for s in self.refuter.sweeps.values()))
        refuter = self.refuter
        found: list[dict[str, Any]] = []
        low = self.bound
        while programs > 0 and not self.should_stop():
            top = min(self.value * (1 - _MEET / 2), self.hopeless)
            if low >= top * (1 - (_FINE if top == self.hopeless else _MEET)):
                break
            # The last limit is tried early: with columns at hand, a certificate there ends it all.
            limit = top if top != self.hopeless and low > top * (1 - 2e-4) else low + (top - low) / 2
            attempt = refuter.refute(limit, self.should_stop, programs)
            programs -= attempt.rounds + 1
            self.stats["programs"] += attempt.rounds
            if attempt.certificate is not None:
                low = limit
                found.append(attempt.certificate)
            elif attempt.exhausted:
                self.hopeless = limit
            else:
                break
        self.stats["columns"] = float(len(refuter.columns))
        while found and not self._prove(found[-1]):
            # What the replay, blunter by its rounding, does not see is not tried again.
            self.hopeless = min(self.hopeless, found.pop()["limit"])
        top = min(self.value * (1 - _MEET / 2), self.hopeless)
        return self.bound < top * (1 - (_FINE if top == self.hopeless else _MEET))

    def _answer(self, device: IntArray | None, value: float) -> NoncontiguousAnswer:
        if device is not None and self.graph.n:
            value = float(device_loads(self.graph, device).max())
        bound = min(self.bound, value) if device is not None else self.bound
        certificate = self.certificate if 0 < self.bound < math.inf else None
        return NoncontiguousAnswer(device, value, bound, certificate, bound >= value * (1 - _MEET), self.stats)


def _chained(graph: StageGraph, order: IntArray) -> StageGraph:
    """The graph with classes renumbered along an order, each the only predecessor of the next."""
    n = graph.n
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    net = np.repeat(np.arange(len(graph.net_weight)), np.diff(graph.net_ptr))
    pins = position[graph.net_pin]
    return replace(
        graph,
        time=graph.time[order],
        size=graph.size[order],
        pred_ptr=np.concatenate([[0], np.arange(n)]).astype(np.int64),
        pred=np.arange(n - 1, dtype=np.int64),
        net_pin=pins[np.lexsort((pins, net))],
        net_source=position[graph.net_source],
        member=np.arange(n, dtype=np.int64),
        backward_time=None,
        net_backward=None,
    )


def _by_size(graph: StageGraph) -> IntArray:
    """Largest classes first, each where it fits with the least load of computing; where none fits, the emptiest."""
    d = devices(graph)
    free, load = d.memory.copy(), np.zeros(len(d.type))
    plan = np.zeros(graph.n, dtype=np.int64)
    for v in np.lexsort((-graph.time.min(axis=1), -graph.size)).tolist():
        seconds = graph.time[v, d.type]
        after = np.where(graph.size[v] <= free, load + seconds, np.inf)
        e = (
            int(after.argmin())
            if np.isfinite(after).any()
            else int(np.where(np.isfinite(seconds), free, -np.inf).argmax())
        )
        plan[v] = e
        free[e] -= graph.size[v]
        load[e] += seconds[e]
    return plan
