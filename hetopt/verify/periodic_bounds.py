"""Bounds on cyclic schedules of models that run again and again, proved from the instance without a solver.

**alone**: the least time of a model that has all devices to itself. The earliest end of a segment w is its seconds behind the
latest of its inputs, each from the best segment before w that may hold its producer; a plan's segments end no sooner, whatever
else runs. On a sequence of tasks it is what a plan of the model alone takes.

**prices** y_p >= 0 of a device's time, of sum 1: a frame costs at least the cheapest cover of its tasks by segments, and all
devices together offer the length of the cycle. With n_g frames and cheapest cover c_g,  sum_g n_g c_g <= cycle.

All sums are of numbers >= 0 and lowered by more than their roundings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hetopt.verify.streams import Model, Streams

__all__ = ["Alone", "alone", "cheapest", "fewest_drops", "greatest_rate", "least_latencies", "quantile"]

_SAFE = 1.0 - 1e-12


class Alone(NamedTuple):
    """Earliest end of each way of a model after its release, and least seconds until all of its tasks are done."""

    end: tuple[float, ...]
    latency: float


def alone(streams: Streams, model: Model) -> Alone:
    """Earliest ends of a model's ways, and its least latency (``inf`` where no segments fit together)."""
    ways = model.ways
    holding: dict[int, list[int]] = {}
    for k, way in enumerate(ways):
        for v in range(way.first, way.last + 1):
            holding.setdefault(v, []).append(k)
    into: dict[int, list[tuple[int, float]]] = {}
    for u, v, sent in model.edges:
        into.setdefault(v, []).append((u, sent))
    end: list[float] = []
    for way in ways:
        ready = 0.0
        for v in range(way.first, way.last + 1):
            for u, sent in into.get(v, ()):
                if not way.first <= u <= way.last:
                    before = (k for k in holding.get(u, ()) if ways[k].last < way.first) if u < v else ()
                    least = min((end[k] + streams.transfer(ways[k], way, sent) for k in before), default=math.inf)
                    ready = max(ready, least if u < v else 0.0)
        end.append(ready + way.seconds)
    done = [min((end[k] for k in holding.get(v, ())), default=math.inf) for v in range(model.begin, model.end)]
    return Alone(tuple(value * _SAFE for value in end), max(done) * _SAFE)


def cheapest(model: Model, prices: Sequence[float], allowed: Sequence[bool] | None = None) -> float:
    """Least priced seconds of a cover of the model's tasks by its ways; ``inf`` when there is no cover."""
    cost = {model.begin: 0.0}
    for k, way in enumerate(model.ways):  # sorted by first task
        if way.first in cost and (allowed is None or allowed[k]):
            value = cost[way.first] + prices[way.device] * way.seconds
            cost[way.last + 1] = min(value, cost.get(way.last + 1, math.inf))
    return cost.get(model.end, math.inf) * _SAFE


def least_latencies(streams: Streams, drop_cost: float | None) -> list[float]:
    """Latency that no frame of each model beats; of a dropped frame, ``drop_cost`` deadlines."""
    found = []
    for model in streams.models:
        least = alone(streams, model).latency
        late = least > model.deadline * (1 + 1e-9)
        dropped = math.inf if drop_cost is None else drop_cost * model.deadline
        found.append(dropped if late else min(least, dropped))
    return found


def quantile(latencies: Sequence[float]) -> float:
    """The least value that nine in ten frames do not exceed."""
    return sorted(latencies)[math.ceil(0.9 * len(latencies) - 1e-9) - 1]


def greatest_rate(streams: Streams, prices: Sequence[float]) -> float:
    """Rate that no plan exceeds: the cycle of a rate r is hyperperiod / r long, and prices say how long it must be.

    Nor may a period that is a deadline become shorter than its model takes alone.
    """
    total = _checked(prices)
    need = math.fsum(model.frames * cheapest(model, prices) for model in streams.models)
    rate = streams.hyperperiod * total / (need * _SAFE) if need > 0 else math.inf
    for model in streams.models:
        least = alone(streams, model).latency if model.implicit else 0.0
        rate = min(rate, model.deadline / (least * _SAFE)) if least > 0 else rate
    return rate


def fewest_drops(streams: Streams, prices: Sequence[float], cycles: int) -> float:
    """Least total weight of dropped frames of a plan: of frames that are never in time, and of as many as the devices must.

    Fractions of frames of least weight a priced second are dropped until the rest fits.
    """
    total = _checked(prices)
    over = -streams.hyperperiod * cycles * total * (1 + 1e-12)
    lost, left = 0.0, []
    for model in streams.models:
        count = model.frames * cycles
        if alone(streams, model).latency > model.deadline * (1 + 1e-9):
            lost += count * model.weight
            continue
        cost = cheapest(model, prices)
        over += count * cost
        if cost > 0:
            left.append((model.weight / cost, count * cost))
    for weight, seconds in sorted(left):
        part = min(max(over, 0.0), seconds)
        lost += weight * part
        over -= part
    return lost * _SAFE


def _checked(prices: Sequence[float]) -> float:
    total = math.fsum(prices)
    if not all(math.isfinite(price) and price >= 0 for price in prices) or not total > 0:
        raise ValueError("expected finite prices >= 0, not all of them 0")
    return total
