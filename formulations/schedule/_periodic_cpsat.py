"""CP-SAT model of a cyclic schedule, of fixed length or as short as possible.

Moments are whole units, by which the hyperperiod is divided without remainder; durations, transfers and releases are rounded
down, so that every plan rounds to a point of the model whose value is no worse. Where decimals make everything whole in some
unit, nothing is rounded. A cycle of variable length is whole units as well: a plan whose cycle is not is stretched, by less than
a unit a cycle, by which explicit deadlines are later here. The order found is decoded in the original numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.schedule._periodic import Frame, earliest, frames_of, plan_of, shortest_cycle
from formulations.schedule._periodic_search import first_plan
from hetopt.control import Control
from hetopt.formulation import ConstraintModel, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.periodic_bounds import alone, greatest_rate
from hetopt.verify.streams import Model, Streams, streams_of

__all__ = ["Cyclic", "CyclicRate"]

MOST = 150_000  # literals and rows beyond which the model does not get anywhere
_BITS = 30
_EXACT = 4e-16
_CLOSE = 1 + 1e-7


class Grid(NamedTuple):
    """Seconds of a unit, whether nothing is rounded, units of a hyperperiod."""

    unit: float
    exact: bool
    length: int

    def down(self, seconds: float) -> int:
        """Whole units, rounded down further than sums of decimals can have been rounded up."""
        return round(seconds / self.unit) if self.exact else math.floor(seconds / self.unit * (1 - 1e-12))

    def up(self, seconds: float) -> int:
        """Whole units, rounded up."""
        return round(seconds / self.unit) if self.exact else math.ceil(seconds / self.unit * (1 + 1e-12))


def grid(streams: Streams, longest: float, *, fine: bool = False) -> Grid:
    """A unit for moments up to ``longest``; the finest that fits where a length is sought."""
    common = math.lcm(*(model.frames for model in streams.models))
    step = streams.hyperperiod / common
    seconds = {step, *(model.phase for model in streams.models), *(model.deadline for model in streams.models)}
    for model in streams.models:
        seconds |= {way.seconds for way in model.ways}
        seconds |= {late for row in _transfers(streams, model) for late in row.values()}
    for unit in (10.0**-k for k in range(10)):
        if longest / unit < 2.0**_BITS and all(
            abs(round(s / unit) * unit - s) <= _EXACT * max(s, unit) for s in seconds
        ):
            if fine:
                unit /= math.floor(2.0**_BITS * unit / longest)
            return Grid(unit, True, round(step / unit) * common)
    parts = max(1, math.floor(2.0**_BITS * step / longest))
    return Grid(step / parts, False, parts * common)


def _transfers(streams: Streams, model: Model) -> list[dict[int, float]]:
    """For each way, the ways that may read from it, with the seconds of the slowest of their transfers."""
    ways = model.ways
    holding: dict[int, list[int]] = {}
    for k, way in enumerate(ways):
        for v in range(way.first, way.last + 1):
            holding.setdefault(v, []).append(k)
    rows: list[dict[int, float]] = [{} for _ in ways]
    for u, v, sent in model.edges:
        for a in holding.get(u, ()):
            for b in holding.get(v, ()):
                if ways[a].last < ways[b].first or ways[b].last < ways[a].first:
                    rows[a][b] = max(rows[a].get(b, 0.0), streams.transfer(ways[a], ways[b], sent))
    return rows


class _Built(NamedTuple):
    """A model with literals of ways of each model and frame, starts by frame and task, frames as (model, index), presence."""

    model: Any
    frames: list[tuple[int, int]]
    literal: list[list[Any]]
    start: list[dict[int, Any]]
    present: list[Any]
    done: list[Any]
    release: list[int]
    cycle: Any


class Cyclic(ConstraintModel):
    """(1)-(9) with a cycle of given length."""

    name = "cpsat"
    title = "CP-SAT (1)-(9): ways as literals, intervals repeated with the cycle"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough literals."""
        size = self.size(instance, question)
        return f"it would have some {size:,} literals and rows, more than {MOST:,}" if size > MOST else None

    def size(self, instance: Instance, question: Question) -> int:
        """Ways of all frames, each with its copies."""
        models = streams_of(instance).models
        return int(4 * question["cycles"] * sum(model.frames * len(model.ways) for model in models))

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals of ways, presences, starts."""
        streams = streams_of(instance)
        span = streams.hyperperiod * question["cycles"] + max(m.phase + m.deadline for m in streams.models)
        units = grid(streams, span)
        built = _model(instance, streams, question, units)
        return _program(built, _aim(built, streams, question, units), self.name, units.unit)

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Ways and order of the point, each segment as early as the order allows."""
        streams = streams_of(instance)
        frames, _ = _frames(streams, program, x)
        found = earliest(streams, frames, streams.hyperperiod * question["cycles"])
        if found is None:
            raise ValueError("the order does not repeat within the cycle in the original numbers")
        return plan_of(instance, streams, found)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """Literals and, as whole units, starts; nothing for a plan so slow that the model leaves it out."""
        streams = streams_of(instance)
        frames = frames_of(instance, streams, solution)
        cycle = streams.hyperperiod * question["cycles"] / float(solution.details.get("rate", 1.0))
        most = program.built.cycle if isinstance(program.built.cycle, int) else program.built.cycle.proto.domain[-1]
        if frames is None or math.ceil(cycle / program.unit - 1e-6) > most:
            return None
        return _point(streams, program, frames, cycle)


class CyclicRate(Cyclic):
    """The same with a cycle as short as possible."""

    title = "CP-SAT (1)-(8), (10): the length of the cycle is a variable too"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """With a literal for each pair's order, without which clashes in every cycle are refuted by moving dates unit by unit.

        Once more when the first plan's cycle, by which units are chosen, was so long that they leave a gap.
        """
        options = replace(options, native={"use_strong_propagation_in_disjunctive": True, **options.native})
        outcome = super().run(instance, question, control, options)
        if outcome.reason == "finished" and control.value and control.bound and control.bound > control.value * _CLOSE:
            outcome = super().run(instance, question, control, options)
        return outcome

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals of ways, starts, the length of the cycle."""
        streams, cycles = streams_of(instance), question["cycles"]
        whole = streams.hyperperiod * cycles
        fastest = greatest_rate(streams, [1.0] * instance.n_devices)
        slowest = question["least_rate"]
        if control.plan is not None and control.value:
            slowest = control.value * (1 - 1e-9)
        elif (first := first_plan(streams, cycles, slowest)) is not None:
            slowest = first[0] * (1 - 1e-9)
        longest = whole / slowest
        late = max((m.deadline for m in streams.models if not m.implicit), default=0.0)
        phase = max(m.phase for m in streams.models) / streams.hyperperiod
        units = grid(streams, (2 + phase) * longest + late, fine=True)
        least = max(1, units.down(whole / fastest) if math.isfinite(fastest) else 1)
        built = _model(instance, streams, question, units, (least, max(least, units.up(longest) + 1)))
        built.model.minimize(built.cycle)

        def to_bound(value: float) -> float:
            shortest = (math.ceil(value - 1e-6) - 1) * units.unit * (1 - 1e-12)
            return whole / shortest if shortest > 0 else math.inf

        return _program(built, to_bound, self.name, units.unit)

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Ways and order of the point, in the shortest cycle that they allow."""
        streams, cycles = streams_of(instance), question["cycles"]
        found = shortest_cycle(streams, *_frames(streams, program, x), cycles)
        if found is None:
            raise ValueError("the order keeps no deadlines in the original numbers")
        return plan_of(instance, streams, found[0], streams.hyperperiod * cycles / found[1])


class _Date(NamedTuple):
    """A moment: ``share`` of the cycle and ``more`` units."""

    share: Fraction
    more: int


def _model(
    instance: Instance, streams: Streams, question: Question, units: Grid, lengths: tuple[int, int] | None = None
) -> _Built:
    """Constraints (1)-(8); with ``lengths`` (least, greatest) the cycle is a variable."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    cycles, drops = question["cycles"], question.problem.may_drop(question)  # type: ignore[attr-defined]
    shortest, longest = lengths or (units.length * cycles,) * 2
    cycle: Any = longest if lengths is None else model.new_int_var(shortest, longest, "cycle")
    built = _Built(model, [], [], [], [], [], [], cycle)
    intervals: list[list[Any]] = [[] for _ in range(instance.n_devices)]
    load: list[list[Any]] = [[] for _ in range(instance.n_devices)]
    held: dict[tuple[int, int], list[Any]] = {}
    copies = _copies(streams, cycles, units.unit * shortest)
    moments: dict[Fraction, Any] = {}
    for j, one in enumerate(streams.models):
        end, rows = alone(streams, one).end, _transfers(streams, one)
        free = lengths is not None and one.implicit
        able = [free or moment <= one.deadline * (1 + 1e-9) for moment in end]
        shared = [model.new_bool_var("") if ok else None for ok in able]
        if drops and question["mapping"] == "fixed":
            _cover(model, one, shared, model.new_bool_var(""))  # (8), which frames take or leave
        for i in range(one.frames * cycles):
            present = model.new_bool_var("") if drops else 1
            literal = shared
            if drops or question["mapping"] == "free":
                literal = [model.new_bool_var("") if ok else None for ok in able]
            if drops and question["mapping"] == "fixed":
                for own, common in zip(literal, shared, strict=True):
                    if own is not None:
                        model.add_implication(own, common)
            _cover(model, one, literal, present)  # (1)
            release, due = _dates(streams, one, i, units, cycles, None if lengths is None else shortest)
            last = math.ceil(due.share * longest) + due.more + 1
            start = {
                way.first: model.new_int_var(0, last, "")
                for way, z in zip(one.ways, literal, strict=True)
                if z is not None
            }
            done = model.new_int_var(0, last, "")
            moment: Any = release.more
            if release.share:
                if release.share not in moments:
                    moments[release.share] = model.new_int_var(0, math.ceil(release.share * longest) + 1, "")
                    p, q = release.share.numerator, release.share.denominator
                    model.add_linear_constraint(p * cycle - q * moments[release.share], 0, q - 1)
                moment = moments[release.share]
            model.add(
                due.share.denominator * done <= due.share.numerator * cycle + due.share.denominator * due.more
            )  # (4)
            for k, (way, z) in enumerate(zip(one.ways, literal, strict=True)):
                if z is None:
                    continue
                begun, seconds = start[way.first], units.down(way.seconds)
                head = units.down(max(0.0, end[k] - way.seconds))
                model.add(begun >= moment + head).only_enforce_if(z)  # (2)
                model.add(done >= begun + seconds).only_enforce_if(z)  # (5)
                _wait(model, one, k, rows[k], literal, start, seconds, units)  # (3)
                for v in range(way.first, way.last + 1):
                    if instance.memory[v] > 0 and math.isfinite(instance.capacity[way.device]):
                        held.setdefault((v, way.device), []).append(z)
                if seconds == 0:
                    continue
                load[way.device].append(seconds * z)
                for c in range(copies):
                    moved = begun
                    if c:
                        moved = model.new_int_var(0, last + c * longest, "")
                        model.add(moved == begun + c * cycle)
                    intervals[way.device].append(model.new_optional_fixed_size_interval_var(moved, seconds, z, ""))
            built.frames.append((j, i))
            built.literal.append(literal)
            built.start.append(start)
            built.present.append(present)
            built.done.append(done)
            built.release.append(release.more)
    for p in range(instance.n_devices):
        model.add_no_overlap(intervals[p])  # (6)
        if load[p]:
            model.add(cp_model.LinearExpr.sum(load[p]) <= cycle)
    _memory(instance, model, held)  # (7)
    return built


def _copies(streams: Streams, cycles: int, shortest: float) -> int:
    """Cycles that the windows of all frames span: so many copies of an interval meet all that it can overlap."""
    whole = streams.hyperperiod * cycles
    first = min(one.phase for one in streams.models) / whole
    last = max(
        (one.phase + one.period * (one.frames * cycles - 1)) / whole
        + (one.deadline / whole if one.implicit else one.deadline / shortest)
        for one in streams.models
    )
    return max(1, math.ceil(last - first + 1e-6) + (0 if shortest >= whole else 1))


def _dates(streams: Streams, one: Model, i: int, units: Grid, cycles: int, shortest: int | None) -> tuple[_Date, _Date]:
    """Release, rounded down, and due date, rounded up, of a frame; ``shortest`` units of a cycle where that is a variable."""
    if shortest is None:
        release = units.down(one.phase) + i * (units.length // one.frames)
        slack = 0 if units.exact else 2
        return _Date(Fraction(0), release), _Date(Fraction(0), release + units.up(one.deadline) + slack)
    whole = streams.hyperperiod * cycles
    share = (one.phase + i * one.period) / whole
    if one.implicit:
        return _Date(_share(share), 0), _Date(_share(share + one.period / whole, up=True), 1)
    deadline = units.up(one.deadline)
    return _Date(_share(share), 0), _Date(_share(share, up=True), deadline + math.ceil(deadline / shortest) + 1)


def _share(value: float, *, up: bool = False) -> Fraction:
    """A fraction of small terms for a share of the cycle, rounded where there is none that is as good as equal."""
    near = Fraction(value).limit_denominator(4096)
    if abs(float(near) - value) <= 1e-13 * max(1.0, value):
        return near
    return Fraction(math.ceil(value * 4096) if up else math.floor(value * 4096), 4096)


def _cover(model: Any, one: Model, literal: list[Any], present: Any) -> None:
    """The ways taken lead from the first task to behind the last one."""
    leaving: dict[int, list[Any]] = {}
    coming: dict[int, list[Any]] = {}
    for way, z in zip(one.ways, literal, strict=True):
        if z is not None:
            leaving.setdefault(way.first, []).append(z)
            coming.setdefault(way.last + 1, []).append(z)
    model.add(sum(leaving.get(one.begin, [])) == present)
    for v in sorted({*leaving, *coming} - {one.begin, one.end}):
        model.add(sum(leaving.get(v, [])) == sum(coming.get(v, [])))


def _wait(
    model: Any,
    one: Model,
    k: int,
    after: dict[int, float],
    literal: list[Any],
    start: dict[int, Any],
    seconds: int,
    units: Grid,
) -> None:
    """What reads from way ``k`` starts behind its end and the transfer: in one row what follows at once, else one by one."""
    way, z = one.ways[k], literal[k]
    end = start[way.first] + seconds
    follows = [(b, units.down(late)) for b, late in sorted(after.items()) if literal[b] is not None]
    at_once = [(b, late) for b, late in follows if one.ways[b].first == way.last + 1]
    every = sum(literal[b] is not None for b, other in enumerate(one.ways) if other.first == way.last + 1)
    if at_once and len(at_once) == every:
        model.add(start[way.last + 1] >= end + sum(late * literal[b] for b, late in at_once)).only_enforce_if(z)
        follows = [(b, late) for b, late in follows if one.ways[b].first != way.last + 1]
    for b, late in follows:
        model.add(start[one.ways[b].first] >= end + late).only_enforce_if([z, literal[b]])


def _memory(instance: Instance, model: Any, held: dict[tuple[int, int], list[Any]]) -> None:
    """Weights of the tasks that ever run on a device fit it; bytes rounded down."""
    memory, capacity = instance.memory, instance.capacity
    small = bool((memory == np.floor(memory)).all()) and float(memory.sum()) < 2.0**31
    scale = 1.0 if small else float(2.0 ** (math.frexp(float(memory.sum()))[1] - 30))
    for p in np.flatnonzero(np.isfinite(capacity)).tolist():
        terms = []
        for (v, device), literals in sorted(held.items(), key=lambda item: item[0]):
            if device == p:
                there = model.new_bool_var("")
                for z in sorted(set(literals), key=lambda literal: literal.index):
                    model.add_implication(z, there)
                terms.append(math.floor(memory[v] / scale) * there)
        room = math.floor(capacity[p] / scale) if small else math.ceil(capacity[p] / scale)
        model.add(sum(terms) <= min(room, 2**31))


def _aim(built: _Built, streams: Streams, question: Question, units: Grid) -> Callable[[float], float]:
    """State the objective (9) and say what a bound on it means."""
    model, cycles = built.model, question["cycles"]
    ones = [streams.models[j] for j, _ in built.frames]
    weight = [one.weight for one in ones]
    measure = question.problem.measure(question)  # type: ignore[attr-defined]
    if measure == "drops":
        scale, factors = _integers(weight)
        model.minimize(sum(f * (1 - there) for f, there in zip(factors, built.present, strict=True)))
        return lambda bound: math.ceil(bound - 1e-6) / scale * (1 if scale == 1 else 1 - 1e-12)
    latencies = []
    for one, done, release, there in zip(ones, built.done, built.release, built.present, strict=True):
        latency = done - release
        if question["drop_cost"] is not None:
            lost = units.down(question["drop_cost"] * one.deadline)
            latency = model.new_int_var(0, max(lost, units.up(one.deadline) + 4), "")
            model.add(latency >= done - release).only_enforce_if(there)
            model.add(latency >= lost).only_enforce_if(~there)
        latencies.append(latency)
    keep = 1 - 1e-12
    if measure == "p90":
        worst = model.new_int_var(0, 2**31, "p90")
        beyond = [model.new_bool_var("") for _ in latencies]
        for latency, out in zip(latencies, beyond, strict=True):
            model.add(latency <= worst).only_enforce_if(~out)
        model.add(sum(beyond) <= len(latencies) - math.ceil(0.9 * len(latencies) - 1e-9))
        model.minimize(worst)
        return lambda bound: max(0.0, (math.ceil(bound - 1e-6) - (not units.exact)) * units.unit * keep)
    total = math.fsum(one.weight for one in streams.models)
    share = [one.weight / (one.frames * cycles) for one in ones]
    common = math.lcm(*(one.frames for one in streams.models)) * cycles
    scale, factors = _integers([s * common for s in share])
    model.minimize(sum(f * latency for f, latency in zip(factors, latencies, strict=True)))
    rounded = math.fsum(
        s * (one.phase - units.down(one.phase) * units.unit) for s, one in zip(share, ones, strict=True)
    )
    under = 0.0 if units.exact else max(0.0, rounded)
    return lambda bound: max(0.0, (math.ceil(bound - 1e-6) / (scale * common) * units.unit - under) / total * keep)


def _integers(values: list[float]) -> tuple[float, list[int]]:
    """A scale and whole numbers that are no more than the scaled values: scale 1 where these are whole themselves."""
    if all(abs(value - round(value)) <= 1e-12 * value for value in values) and max(values) < 2**20:
        return 1.0, [round(value) for value in values]
    scale = 2.0**20 / max(values)
    return scale, [math.floor(value * scale) for value in values]


def _program(built: _Built, to_bound: Callable[[float], float], name: str, unit: float) -> Any:
    """The program over presences, literals, starts and, where it is one, the cycle; each variable once."""
    from hetopt.solvers.cpsat import CpProgram

    used = [there for there in built.present if not isinstance(there, int)]
    used += [z for literal in built.literal for z in literal if z is not None]
    used += [start[v] for start in built.start for v in sorted(start)]
    used += [] if isinstance(built.cycle, int) else [built.cycle]
    once = {variable.index: variable for variable in used}
    program = CpProgram(built.model, list(once.values()), to_bound=to_bound, name=name)
    object.__setattr__(program, "built", built)
    object.__setattr__(program, "unit", unit)
    return program


def _frames(streams: Streams, program: Any, x: NDArray[np.float64]) -> tuple[list[Frame], float]:
    """Frames of a point in seconds, and the length of its cycle."""
    built, unit = program.built, program.unit
    value = dict(
        zip((variable.index for variable in program.variables), np.asarray(x, np.float64).tolist(), strict=True)
    )
    frames = []
    for (j, i), literal, start in zip(built.frames, built.literal, built.start, strict=True):
        pairs = zip(streams.models[j].ways, literal, strict=True)
        ways = tuple(way for way, z in pairs if z is not None and value[z.index] > 0.5)
        frames.append(Frame(j, i, ways, tuple(value[start[way.first].index] * unit for way in ways)))
    return frames, (built.cycle if isinstance(built.cycle, int) else value[built.cycle.index]) * unit


def _point(streams: Streams, program: Any, frames: list[Frame], cycle: float) -> NDArray[np.float64]:
    """Values of the variables that a plan states, ``nan`` where it states none; dates rounded up, which keeps their order."""
    built, unit = program.built, program.unit
    by = {(frame.model, frame.number): frame for frame in frames}
    value: dict[int, float] = (
        {} if isinstance(built.cycle, int) else {built.cycle.index: math.ceil(cycle / unit - 1e-6)}
    )
    for key, there, literal, start in zip(built.frames, built.present, built.literal, built.start, strict=True):
        frame = by[key]
        if not isinstance(there, int):
            value[there.index] = float(bool(frame.ways))
        for way, z in zip(streams.models[key[0]].ways, literal, strict=True):
            if z is not None:
                value[z.index] = max(value.get(z.index, 0.0), float(way in frame.ways))
        for way, begun in zip(frame.ways, frame.start, strict=True):
            value[start[way.first].index] = math.ceil(begun / unit - 1e-6)
    return np.array([value.get(variable.index, math.nan) for variable in program.variables])
