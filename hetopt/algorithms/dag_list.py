"""List schedules of a task graph on unrelated devices: HEFT, CPoP, PEFT, ETF, MCT, min-min, max-min, sufferage.

None has a guarantee on unrelated devices with transfers. Each places every task once, in O((n + e) m) after its priorities
(the last four in O(n r m) with r tasks ready at once). Ties go to smaller numbers, so that a plan depends on the data alone.

Sources: H. Topcuoglu, S. Hariri, M.-Y. Wu, IEEE TPDS 13 (2002), for HEFT and CPoP; H. Arabnejad, J. Barbosa, IEEE TPDS 25 (2014),
for PEFT; J.-J. Hwang, Y.-C. Chow, F. Anger, C.-Y. Lee, SIAM J. Computing 18 (1989), for ETF; T. Braun et al., Journal of Parallel
and Distributed Computing 61 (2001), for MCT, min-min, max-min; M. Maheswaran et al., the same journal 59 (1999), for sufferage.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.dag_graph import Schedule, TaskGraph
from hetopt.algorithms.dag_kernels import (
    EARLIEST_START,
    MAXIMUM,
    MINIMUM,
    SUFFERAGE,
    by_priority,
    optimistic_costs,
    place,
    rank_down,
    rank_up,
    waves,
)

__all__ = ["RULES", "Rank", "Rule", "in_order", "list_schedule", "prioritised", "upward_rank"]

Rule = Literal["heft", "cpop", "peft", "etf", "mct", "min-min", "max-min", "sufferage"]
Rank = Literal["paper", "saga"]
RULES: tuple[Rule, ...] = ("heft", "cpop", "peft", "etf", "mct", "min-min", "max-min", "sufferage")
_WAVES = {"etf": EARLIEST_START, "min-min": MINIMUM, "max-min": MAXIMUM, "sufferage": SUFFERAGE}
_NOTHING = np.zeros((0, 0))


def list_schedule(graph: TaskGraph, rule: Rule, *, rank: Rank = "paper") -> Schedule | None:
    """The schedule of one rule; None when it leaves a task without a device that has room.

    Parameters
    ----------
    rank
        How priorities average: ``paper`` over eligible devices and over links between different devices, ``saga`` as the
        package anrg-saga 2.0 does (links of a device to itself count, one a device, beside one a pair; downward ranks take
        the harmonic mean of a task's own times), so that its values are reproduced.
    """
    if rule in _WAVES:
        found = waves(_WAVES[rule], rule != "etf", graph.time, graph.pred_start, graph.pred, graph.pred_data,
                      graph.succ_start, graph.succ, *_rest(graph))  # fmt: skip
        return _schedule(found)
    if rule == "mct":
        return in_order(graph, graph.topological, insertion=False)
    if rule == "heft":
        return prioritised(graph, upward_rank(graph, rank))
    if rule == "peft":
        table = optimistic_costs(
            graph.topological, graph.time, graph.succ_start, graph.succ, graph.succ_data, *_transfer(graph, "paper")
        )
        return prioritised(graph, table.mean(axis=1), extra=table)
    return _cpop(graph, rank)


def prioritised(
    graph: TaskGraph, priority: NDArray[np.float64], *, wish: NDArray[np.int64] | None = None, extra: Any = _NOTHING
) -> Schedule | None:
    """Place ready tasks by falling ``priority`` (n,), with insertion; ``wish`` and ``extra`` as :func:`in_order`."""
    return in_order(
        graph, by_priority(priority, graph.pred_start, graph.succ_start, graph.succ), wish=wish, extra=extra
    )


def in_order(
    graph: TaskGraph,
    order: NDArray[np.int64],
    *,
    wish: NDArray[np.int64] | None = None,
    extra: Any = _NOTHING,
    insertion: bool = True,
) -> Schedule | None:
    """Place tasks in a topological ``order``, where they end first (plus ``extra``, (n, m)) or on ``wish`` (n,), -1 for any."""
    wishes = np.full(len(order), -1, np.int64) if wish is None else wish
    found = place(
        order, wishes, extra, insertion, graph.time, graph.pred_start, graph.pred, graph.pred_data, *_rest(graph)
    )
    return _schedule(found)


def upward_rank(graph: TaskGraph, rank: Rank = "paper") -> NDArray[np.float64]:
    """(n,) mean time plus the longest mean way to the end."""
    way: NDArray[np.float64] = rank_up(
        graph.topological, _mean(graph.time), graph.succ_start, graph.succ, graph.succ_data, *_transfer(graph, rank)
    )
    return way


def _cpop(graph: TaskGraph, rank: Rank) -> Schedule | None:
    """The critical path on the device where it is shortest, other tasks where they end first."""
    own = _mean(graph.time)
    transfer = _transfer(graph, rank)
    nothing, up = np.zeros(len(own)), upward_rank(graph, rank)
    sources = np.diff(graph.pred_start) == 0
    first, before, after = nothing, own, nothing
    if rank == "saga":  # several sources are reached from one of no length there, in its own way of counting
        before, after = nothing, _harmonic_mean(graph.time)
        first = np.where(sources & (sources.sum() > 1), after, 0.0)
    down = rank_down(graph.topological, first, before, after, graph.pred_start, graph.pred, graph.pred_data, *transfer)
    priority, longest = up + down, up[sources].max(initial=0.0)
    # A path's ranks are equal sums in different order; of several critical tasks in parallel all count, as published.
    critical = np.isclose(priority, longest)
    wish = np.full(len(own), -1, np.int64)
    wish[critical] = int(graph.time[critical].sum(axis=0).argmin()) if critical.any() else -1
    return prioritised(graph, priority, wish=wish)


def _rest(graph: TaskGraph) -> tuple[Any, ...]:
    return graph.latency, graph.slowness, graph.release, graph.free, graph.unit, graph.need, graph.room


def _schedule(found: tuple[Any, Any, Any, float]) -> Schedule | None:
    machine, start, end, makespan = found
    return Schedule(machine, start, end, float(makespan)) if np.isfinite(makespan) else None


def _mean(time: NDArray[np.float64]) -> NDArray[np.float64]:
    finite = np.isfinite(time)
    total: NDArray[np.float64] = np.where(finite, time, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
    return total


def _harmonic_mean(time: NDArray[np.float64]) -> NDArray[np.float64]:
    speed = np.where(time > 0, 1.0 / np.where(time > 0, time, 1.0), np.inf).mean(axis=1)
    return np.asarray(1.0 / speed)


def _transfer(graph: TaskGraph, rank: Rank) -> tuple[float, float]:
    """Mean latency and slowness of a link."""
    m = len(graph.free)
    if m < 2:
        return 0.0, 0.0
    share = m * (m - 1) if rank == "paper" else m * (m + 1)
    return float(graph.latency.sum()) / share, float(graph.slowness.sum()) / share
