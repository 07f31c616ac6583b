"""Prices of the devices' time by linear programming: (11) of models that run again and again, and what is too short."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from hetopt.instance import Instance
from hetopt.verify.periodic_bounds import cheapest
from hetopt.verify.streams import Streams

__all__ = ["device_prices", "too_short"]


def device_prices(streams: Streams) -> list[float] | None:
    """The dual of (11): prices of sum 1 under which the cheapest ways of all frames cost most; None where there are none."""
    from scipy.optimize import linprog

    d = len(streams.latency)
    rows, columns, values = [], [], []
    cost = np.zeros(d + sum(model.end - model.begin + 1 for model in streams.models))
    at, row = d, 0
    for (
        model
    ) in streams.models:  # potential of each cut: that of the way's end exceeds that of its begin by its price at most
        for way in model.ways:
            rows += [row, row, row]
            columns += [at + way.last + 1 - model.begin, at + way.first - model.begin, way.device]
            values += [1.0, -1.0, -way.seconds / streams.hyperperiod]
            row += 1
        cost[at] += model.frames
        cost[at + model.end - model.begin] -= model.frames
        at += model.end - model.begin + 1
    matrix = sparse.csr_array((values, (rows, columns)), shape=(row, len(cost)))
    total = sparse.csr_array((np.ones(d), (np.zeros(d, np.int64), np.arange(d))), shape=(1, len(cost)))
    bounds: list[tuple[float | None, float | None]] = [(0, None)] * d + [(None, None)] * (len(cost) - d)
    pinned = d
    for model in streams.models:
        bounds[pinned] = (0, 0)
        pinned += model.end - model.begin + 1
    found = linprog(cost, matrix, np.zeros(row), total, [1.0], bounds=bounds, method="highs")
    if found.x is None:
        return None
    prices = np.maximum(found.x[:d], 0.0)
    return (prices / prices.sum()).tolist() if prices.sum() > 0 else None


def too_short(instance: Instance, streams: Streams) -> tuple[str, ...]:
    """Sentences that say by how much the periods are too short for the devices; none when they are not, or no price shows it."""
    prices = device_prices(streams)
    if prices is None:
        return ()
    need = [model.frames * cheapest(model, prices) for model in streams.models]
    total = math.fsum(need)
    if total <= streams.hyperperiod * (1 + 1e-9):
        return ()
    scarce = ", ".join(
        f"{name} {price:.3g}" for name, price in zip(instance.device_names, prices, strict=True) if price > 0
    )
    told = [
        f"the periods are too short: all models need {total / streams.hyperperiod:.9g} times the time there is "
        f"(devices weighted {scarce}); at most {streams.hyperperiod / total:.9g} of the frames' rate can be borne"
    ]
    for model, own in zip(streams.models, need, strict=True):
        left = streams.hyperperiod - (total - own)
        if left > 1e-9 * total:
            period = own / left * model.period
            told.append(
                f"with the others as they are, the period of {model.name!r} would have to be at least {period:.9g} s, not "
                f"{model.period:.9g}: {period - model.period:.9g} s longer"
            )
    return tuple(told)
