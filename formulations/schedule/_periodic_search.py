"""Cyclic plans without a solver: annealing over the ways of each model and the order in which frames enter the cycle."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence

import numpy as np

from formulations.schedule._periodic import Frame, plan_of, shortest_cycle
from formulations.schedule._periodic_policies import MAPPINGS, Ways, cheapest_ways, fixed_ways
from formulations.schedule._periodic_prices import device_prices
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.verify.periodic import cyclic_value
from hetopt.verify.periodic_bounds import greatest_rate
from hetopt.verify.streams import Streams, Way, streams_of

__all__ = ["Search", "SearchRate", "first_plan"]

_STEPS = 600  # without a time limit


class _State:
    """Ways of each model and the order of frames, with a neighbour at random."""

    def __init__(self, streams: Streams, seed: int, cycles: int) -> None:
        self.streams = streams
        self.random = np.random.default_rng(seed)
        self.insert = Inserter(streams, cycles)
        self.price = np.array(device_prices(streams) or [1.0] * len(streams.latency))
        due = [
            (streams.models[j].phase + i * streams.models[j].period + streams.models[j].deadline, j, i)
            for j, i in self.insert.frames
        ]
        self.order = sorted(range(len(due)), key=lambda k: due[k])

    def starts(self) -> list[list[Ways]]:
        """Ways to begin with, each mapping of practice that there is."""
        found = (fixed_ways(self.streams, mapping) for mapping in reversed(MAPPINGS))
        return [ways for ways in found if ways is not None]

    def neighbour(self, ways: Sequence[Ways], order: Sequence[int]) -> tuple[list[Ways], list[int]]:
        """Other ways of a model, cheapest under random prices, perhaps with one at random among them; or another order."""
        random, streams = self.random, self.streams
        new, turn = list(ways), list(order)
        if random.random() < 0.5 or len(turn) < 2:
            j = int(random.integers(len(new)))
            price = (
                self.price * random.lognormal(0.0, 0.5, len(self.price)) + random.uniform(0.0, 0.5) * self.price.mean()
            )
            liked = streams.models[j].ways[int(random.integers(len(streams.models[j].ways)))]
            bonus = streams.models[j].period if random.random() < 0.5 else 0.0
            found = cheapest_ways(
                streams,
                streams.models[j],
                lambda way: float(way.seconds * price[way.device]) - (bonus if way == liked else 0.0),
                streams.transfer,
            )
            new[j] = found if found is not None else new[j]
        else:
            a = int(random.integers(len(turn)))
            frame = turn.pop(a)
            turn.insert(int(np.clip(a + random.integers(-3, 4), 0, len(turn))), frame)
        return new, turn


class Search(Method):
    """Annealing at the given rate."""

    name = "annealing"
    title = "annealing over ways and priorities, frames inserted into the gaps of the cycle; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """From each mapping of practice; late seconds count before the value."""
        streams, cycles = streams_of(instance), question["cycles"]
        may_drop = question.problem.may_drop(question)  # type: ignore[attr-defined]
        state = _State(streams, control.seed, cycles)

        def score(ways: Sequence[Ways], order: Sequence[int]) -> tuple[float, float]:
            frames, late = state.insert(ways, order, 1.0, may_drop)
            if late > 0:
                return late, math.inf
            latency = [
                max((s + way.seconds for way, s in zip(f.ways, f.start, strict=True)), default=math.inf)
                - streams.models[f.model].phase
                - f.number * streams.models[f.model].period
                for f in frames
            ]
            measure = question.problem.measure(question)  # type: ignore[attr-defined]
            value = cyclic_value(streams, latency, [f.model for f in frames], measure, question.get("drop_cost"))
            if value < best[1] * (1 - 1e-12) or best[0] > 0:
                control.report_plan(plan_of(instance, streams, frames))
            return 0.0, value

        best: tuple[float, float] = (math.inf, math.inf)
        current: tuple[list[Ways], list[int]] | None = None
        for ways in state.starts():
            found = score(ways, state.order)
            if found < best or current is None:
                best, current = found, (ways, state.order)
        if current is None:
            return Outcome(notes=("no mapping covers every model",))
        now = best
        for step in _steps(control):
            if control.should_stop():
                return Outcome("limit", "time")
            other = state.neighbour(*current)
            found = score(*other)
            heat = 0.05 * 0.997 ** (step % 1500)
            worse = now[0] == 0 and found[0] == 0 and found[1] <= now[1] * (1 + heat * state.random.exponential())
            if found <= now or worse:
                current, now = other, found
            best = min(best, found)
        return Outcome()


def first_plan(streams: Streams, cycles: int, least: float) -> tuple[float, list[Ways]] | None:
    """A rate and ways at which frames, by due dates, fit the cycle: falling from what the devices bear to ``least``."""
    state = _State(streams, 0, cycles)
    starts = state.starts()
    rate = min(greatest_rate(streams, [1.0] * len(streams.latency)), 1e6)
    while rate > least:
        for ways in starts:
            if state.insert(ways, state.order, rate, False)[1] == 0:
                return rate, ways
        rate *= 0.9
    return next(((least, ways) for ways in starts if state.insert(ways, state.order, least, False)[1] == 0), None)


class SearchRate(Method):
    """Annealing for the greatest rate."""

    name = "annealing"
    title = (
        "annealing over ways and priorities at rising rates, the cycle made as short as the order allows; no guarantee"
    )
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Falling rates until there is a plan, then rising ones."""
        streams, cycles = streams_of(instance), question["cycles"]
        state = _State(streams, control.seed, cycles)
        whole = streams.hyperperiod * cycles
        best = 0.0

        def tried(ways: Sequence[Ways], order: Sequence[int], rate: float) -> float:
            """Rate of the order that frames take in the cycle of a rate, 0 where it keeps no deadlines at any; reported."""
            nonlocal best
            frames, late = state.insert(ways, order, rate, False)
            if math.isinf(late):
                return 0.0
            tight = shortest_cycle(streams, frames, whole / rate, cycles)
            reached, kept = (whole / tight[1], tight[0]) if tight is not None else (0.0, frames)
            if late == 0 and rate > reached:
                reached, kept = rate, frames
            if reached > best:
                best = reached
                control.report_plan(plan_of(instance, streams, kept, best))
            return reached

        starts = state.starts()
        if not starts:
            return Outcome(notes=("no mapping covers every model",))
        first = first_plan(streams, cycles, question["least_rate"])
        current, now = (starts[0], state.order), 0.0
        if first is not None:
            current = first[1], state.order
            now = tried(*current, first[0])
        top = current
        for step in _steps(control):
            if control.should_stop():
                return Outcome("limit", "time")
            if step % 400 == 399:
                current, now = top, best
            before = best
            other = state.neighbour(*current)
            found = tried(*other, max(now, question["least_rate"]) * (1.0 + 0.05 * state.random.random()))
            heat = 0.05 * 0.98 ** (step % 400)
            if found >= now * (1 - heat * state.random.exponential()):
                current, now = other, found
            if best > before:
                top = other
        return Outcome()


def _steps(control: Control) -> range:
    return range(_STEPS if math.isinf(control.remaining) else 10**9)


class Inserter:
    """Frames one by one into the gaps of a cycle."""

    def __init__(self, streams: Streams, cycles: int) -> None:
        self.streams, self.cycles = streams, cycles
        self.frames = [(j, i) for j, m in enumerate(streams.models) for i in range(m.frames * cycles)]
        self.edges = [{(u, v): sent for u, v, sent in m.edges} for m in streams.models]

    def __call__(
        self, ways: Sequence[Ways], order: Sequence[int], rate: float, may_drop: bool
    ) -> tuple[list[Frame], float]:
        """Frames placed in ``order``, each segment as early as a gap allows; and the seconds by which deadlines are missed."""
        streams = self.streams
        cycle = streams.hyperperiod * self.cycles / rate
        busy: list[list[tuple[float, float]]] = [[] for _ in streams.latency]
        placed: list[Frame] = []
        late = 0.0
        for k in order:
            j, i = self.frames[k]
            model = streams.models[j]
            release = (model.phase + i * model.period) / rate
            due = release + model.deadline / (rate if model.implicit else 1.0)
            starts: list[float] = []
            marks: list[tuple[int, tuple[float, float]]] = []
            end = release
            for way in ways[j]:
                ready = self._ready(j, ways[j], way, starts, release)
                start = _gap(busy[way.device], ready, way.seconds, cycle)
                starts.append(start)
                end = max(end, start + way.seconds)
                if way.seconds > 0 and math.isfinite(start):
                    mark = (start % cycle, way.seconds)
                    insort(busy[way.device], mark)
                    marks.append((way.device, mark))
            if end <= due * (1 + 1e-12):
                placed.append(Frame(j, i, ways[j], tuple(starts)))
                continue
            for p, mark in marks if may_drop else ():
                busy[p].remove(mark)
            late += 0.0 if may_drop else end - due
            placed.append(Frame(j, i, (), ()) if may_drop else Frame(j, i, ways[j], tuple(starts)))
        return placed, late

    def _ready(self, j: int, ways: Ways, way: Way, starts: list[float], release: float) -> float:
        ready = release
        for before, start in zip(ways, starts, strict=False):
            for u, v, sent in self.streams.models[j].edges:
                if before.first <= u <= before.last and way.first <= v <= way.last:
                    ready = max(ready, start + before.seconds + self.streams.transfer(before, way, sent))
        return ready


def _gap(busy: list[tuple[float, float]], ready: float, seconds: float, cycle: float) -> float:
    """First moment from ``ready`` on at which a device is free for so long, in every cycle."""
    if seconds == 0:
        return ready
    if seconds > cycle:
        return math.inf
    start, slack = ready, 1e-12 * cycle
    for _ in range(2 * len(busy) + 2):
        at = start % cycle
        clash = 0.0
        for begin, lasts in busy:
            for turn in (-cycle, 0.0, cycle):
                b = begin + turn
                if b < at + seconds - slack and b + lasts > at + slack:
                    clash = max(clash, b + lasts - at)
        if clash == 0.0:
            return start
        start += clash
        if start > ready + cycle:
            return math.inf
    return math.inf
