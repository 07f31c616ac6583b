"""Dispatching policies on fixed ways, run by the replay until they repeat themselves: what phones do today."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from formulations.schedule._periodic import Frame, plan_of
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.replay import follow
from hetopt.verify.streams import Model, Streams, Way, streams_of

__all__ = ["MAPPINGS", "Policy", "PolicyRate", "Ways", "cheapest_ways", "fixed_ways", "sustained"]

MAPPINGS = ("one-device", "best-device", "cut")
_TURNS = 8  # hyperperiods in which a policy must come to repeat itself
Ways = tuple[Way, ...]


def cheapest_ways(
    streams: Streams, model: Model, cost: Callable[[Way], float], join: Callable[[Way, Way, float], float]
) -> Ways | None:
    """Ways of least cost one after the other: each has its own, and each transfer between neighbours its own."""
    sent = {(u, v): data for u, v, data in model.edges}
    best: dict[int, list[tuple[float, Ways]]] = {model.begin: [(0.0, ())]}
    for way in model.ways:
        value = cost(way)
        options = []
        for before, path in best.get(way.first, ()):
            late = 0.0
            if path and (way.first - 1, way.first) in sent:
                late = join(path[-1], way, sent[way.first - 1, way.first])
            options.append((before + late + value, (*path, way)))
        options = [option for option in options if math.isfinite(option[0])]
        if options:
            row = best.setdefault(way.last + 1, [])
            row.append(min(options, key=lambda option: option[0]))
    ends = best.get(model.end, [])
    return min(ends, key=lambda option: option[0])[1] if ends else None


def fixed_ways(streams: Streams, mapping: str) -> list[Ways] | None:
    """Ways of each model under a mapping of practice.

    ``one-device``: all models on the same device, of those devices the one of least work; tasks that cannot run there run where
    they are done first. ``best-device``: each model on the device where it alone is done first. ``cut``: each model cut and
    spread so that it alone is done first.
    """
    devices = range(len(streams.latency))

    def on(model: Model, p: int) -> Ways | None:
        away = 1e6 * (1.0 + model.period)
        return cheapest_ways(
            streams,
            model,
            lambda way: way.seconds + (way.last - way.first + 1) * away * (way.device != p),
            streams.transfer,
        )

    def alone(model: Model, ways: Ways) -> float:
        pairs = pairwise(ways)
        sent = {(u, v): data for u, v, data in model.edges}
        late = sum(streams.transfer(a, b, sent.get((a.last, b.first), 0.0)) for a, b in pairs)
        return sum(way.seconds for way in ways) + late

    if mapping == "cut":
        found = [cheapest_ways(streams, model, lambda way: way.seconds, streams.transfer) for model in streams.models]
        return None if None in found else found  # type: ignore[return-value]
    rows = [[on(model, p) for p in devices] for model in streams.models]
    if any(ways is None for row in rows for ways in row):
        return None
    if mapping == "best-device":
        return [min(row, key=lambda ways: alone(model, ways)) for model, row in zip(streams.models, rows, strict=True)]  # type: ignore
    work = [sum(m.frames * alone(m, row[p]) for m, row in zip(streams.models, rows, strict=True)) for p in devices]  # type: ignore
    best = min(devices, key=lambda p: work[p])
    return [row[best] for row in rows]  # type: ignore[misc]


def settled(instance: Instance, ways: Sequence[Ways], policy: str, rate: float, may_drop: bool) -> list[Frame] | None:
    """Frames of one hyperperiod of a policy that has come to repeat itself without a miss; None where it misses or does not."""
    streams = streams_of(instance)
    seen, starts = follow(instance, ways, policy, rate=rate, turns=_TURNS, may_drop=may_drop)
    if seen.misses or (seen.drops and not may_drop):
        return None
    cycle = streams.hyperperiod / rate
    size = sum(model.frames for model in streams.models)
    turns = [
        [[(way, start - turn * cycle) for way, start in row] for row in starts[turn * size : (turn + 1) * size]]
        for turn in range(_TURNS)
    ]
    for turn in range(_TURNS - 1, 0, -1):
        if _alike(turns[turn - 1], turns[turn], 1e-9 * cycle):
            numbers = [(j, i) for j, model in enumerate(streams.models) for i in range(model.frames)]
            release = [(streams.models[j].phase + i * streams.models[j].period) / rate for j, i in numbers]
            return [  # differences of moments may have been rounded to before the release
                Frame(j, i, tuple(way for way, _ in row), tuple(max(start, begun) for _, start in row))
                for (j, i), row, begun in zip(numbers, turns[turn], release, strict=True)
            ]
    return None


def _alike(a: list[list[tuple[Way, float]]], b: list[list[tuple[Way, float]]], slack: float) -> bool:
    return all(
        len(x) == len(y) and all(abs(s - t) <= slack for (_, s), (_, t) in zip(x, y, strict=True))
        for x, y in zip(a, b, strict=True)
    )


def sustained(
    instance: Instance,
    ways: Sequence[Ways],
    policy: str,
    slowest: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[float, list[Frame]] | None:
    """Greatest rate found at which a policy keeps all deadlines: doubling, then halving the interval.

    What a policy keeps at a rate it may miss at a lower one, so this is the best of the rates tried.
    """
    best: tuple[float, list[Frame]] | None = None
    low, high = 0.0, math.inf
    rate = max(slowest, 0.5)
    for _ in range(60):
        frames = settled(instance, ways, policy, rate, may_drop=False)
        if frames is not None:
            best, low = (rate, frames), rate
        else:
            high = rate
        if should_stop() or (high < math.inf and (high - low) <= 1e-4 * high) or high <= slowest:
            break
        rate = 2 * rate if high == math.inf else max(slowest, (low + high) / 2)
    return best


class Policy(Method):
    """A policy on the ways of one of the mappings, until it repeats itself."""

    kind = "heuristic"

    def __init__(self, policy: str, mapping: str) -> None:
        where = {
            "one-device": "all models on one device",
            "best-device": "each model on its best device",
            "cut": "each model cut so that it alone is done first",
        }[mapping]
        self.name = policy if mapping == "cut" else f"{mapping}-{policy}"  # type: ignore[misc]
        self.title = f"{policy}, {where}; run until it repeats, no guarantee"  # type: ignore[misc]
        self.policy, self.mapping = policy, mapping

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Policies repeat after one hyperperiod."""
        return None if question["cycles"] == 1 else "a policy is run for a cycle of one hyperperiod"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One run."""
        streams = streams_of(instance)
        may_drop = question.problem.may_drop(question)  # type: ignore[attr-defined]
        ways = fixed_ways(streams, self.mapping)
        frames = None
        if ways is not None:
            frames = settled(instance, ways, self.policy, 1.0, may_drop)
        if frames is None:
            return Outcome(notes=(f"{self.name} misses a deadline, or does not come to repeat itself",))
        control.report_plan(plan_of(instance, streams, frames))
        return Outcome()


class PolicyRate(Policy):
    """The greatest rate at which the policy keeps all deadlines, as far as tried."""

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Runs at several rates."""
        streams = streams_of(instance)
        ways = fixed_ways(streams, self.mapping)
        found = None
        if ways is not None:
            found = sustained(instance, ways, self.policy, question["least_rate"], control.should_stop)
        if found is None:
            return Outcome(notes=(f"{self.name} keeps the deadlines at none of the rates tried",))
        control.report_plan(plan_of(instance, streams, found[1], found[0]))
        return Outcome()
