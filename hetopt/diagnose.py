"""Why there is no plan and what would mend it; what holds a plan back and what more would buy. By solving, with limits.

:func:`hetopt.explain` answers from counts alone; :func:`diagnose` tries changes (:mod:`hetopt.changes`) and reports only what
was verified: an amount is enough when a plan of the changed instance passed its verifier, and too little when there is a proof
that no plan exists. Since what a change allows grows with its amount, the least amount lies between the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetopt import clock
from hetopt.changes import Change, bytes_text, extra_devices, faster_links, fewer_tokens, looser_rules, more_memory
from hetopt.control import Control, Event
from hetopt.errors import InputError
from hetopt.formulation import LinearFormulation, Problem, Question
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.registry import problem_for
from hetopt.result import Result
from hetopt.solve import solve

__all__ = ["Diagnosis", "Gain", "Mend", "diagnose"]

_GRAINS = 64  # amounts of so many grains are searched in whole grains
_FINE = 1e-5  # relative width at which the search of an amount ends
_SHARE = 0.05  # of the time, for one question "is there a plan?"; at least the seconds below
_LEAST = 6.0
_OWN = 10.0  # seconds that the instance's own answer may take even if that is half of all
_FULL = 0.9  # memory used beyond this share counts as scarce
_MANY = 1e6  # amounts beyond are not searched to the last unit
_MOST_ROWS = 30  # a conflict of more rows tells people nothing
_LARGE = 300_000  # nonzeros of a model in which a conflict or a price is looked for


@dataclass(frozen=True)
class Mend:
    """A change after which there is a plan.

    Attributes
    ----------
    sentence
        The change with its amount, and how sharp that is.
    amount
        Bytes, tokens, or 1.
    too_little
        Largest amount for which it is proved that no plan exists; None when that is not known.
    """

    sentence: str
    amount: float
    too_little: float | None


@dataclass(frozen=True)
class Gain:
    """What a change would buy: value and bound of the changed instance beside those of the instance itself."""

    change: str
    value: float | None
    bound: float | None
    sentence: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything found out.

    Attributes
    ----------
    result
        The instance's own answer.
    conflict
        Rows of the linear relaxation that cannot hold together and of which none can be left out, by name.
    mends
        Changes after which there is a plan, for an infeasible instance.
    binding
        Sentences on what is scarce in the plan.
    prices
        Shadow prices in the linear relaxation, a sentence each.
    gains
        What changes would buy, for a feasible instance.
    """

    result: Result
    conflict: tuple[str, ...] = ()
    mends: tuple[Mend, ...] = ()
    binding: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    gains: tuple[Gain, ...] = ()

    def lines(self) -> list[str]:
        """Sentences for a terminal."""
        r = self.result
        out = []
        if r.solution is None:
            out += ["there is no plan:" if r.status == "infeasible" else "no plan was found in the time given"]
            out += [f"  {sentence}" for sentence in r.infeasible]
            if self.conflict:
                out += ["these limits cannot hold together:", f"  {', '.join(self.conflict)}"]
            if self.mends:
                out += ["each of these would mend it:", *(f"  {m.sentence}" for m in self.mends)]
            elif r.status == "infeasible":
                out.append("none of the changes tried mends it (memory, one more device, faster links, looser rules)")
            return out
        bound = "no bound" if r.bound is None else f"bound {r.bound:.6g}"
        out.append(f"the best plan found has the value {r.objective:.6g}, {bound}")
        if self.binding:
            out += ["what is scarce in it:", *(f"  {sentence}" for sentence in (*self.binding, *self.prices))]
        if self.gains:
            out += ["what more would buy:", *(f"  {gain.sentence}" for gain in self.gains)]
        return out

    def to_json(self) -> dict[str, Any]:
        """Plain data with the same content."""
        return {
            "status": self.result.status,
            "objective": self.result.objective,
            "bound": self.result.bound,
            "infeasible": list(self.result.infeasible),
            "conflict": list(self.conflict),
            "mends": [{"sentence": m.sentence, "amount": m.amount, "too_little": m.too_little} for m in self.mends],
            "binding": list(self.binding),
            "prices": list(self.prices),
            "gains": [
                {"change": g.change, "value": g.value, "bound": g.bound, "sentence": g.sentence} for g in self.gains
            ],
        }


def diagnose(
    instance: Instance,
    *,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float = 20.0,
    seed: int = 0,
    control: Control | None = None,
) -> Diagnosis:
    """Find out why there is no plan, or what holds the plan back.

    Parameters
    ----------
    objective, options, seed
        As for :func:`hetopt.solve`.
    time_limit
        Seconds for everything; what could not be settled in its share is left out or said to be unknown.
    control
        To cancel from elsewhere.
    """
    given = {**(options or {}), **({"objective": objective} if objective else {})}
    problem = problem_for(instance, objective)
    question = problem.question(instance, given)
    run = _Inquiry(instance.with_question(question.to_json()), problem, question, time_limit, seed, control)
    own = run.answer(run.instance, max(time_limit / 4, min(time_limit / 2, _OWN)))
    if own.solution is not None:
        found = tuple(_binding(own, instance))
        gains = tuple(run.gains(own))
        return Diagnosis(own, binding=found, prices=tuple(run.prices(own)), gains=gains)
    if own.status != "infeasible":
        return Diagnosis(own)
    mends = tuple(run.mends())
    return Diagnosis(own, conflict=run.conflict(), mends=mends)


class _Inquiry:
    """One diagnosis; every question asked of a changed instance goes through it."""

    def __init__(
        self,
        instance: Instance,
        problem: Problem,
        question: Question,
        time_limit: float,
        seed: int,
        control: Control | None,
    ) -> None:
        self.instance, self.problem, self.question, self.seed = instance, problem, question, seed
        self.time_limit = time_limit
        self.end = clock.now() + time_limit
        self.cancelled = control.cancelled if control is not None else None

    def over(self) -> bool:
        return clock.now() >= self.end or (self.cancelled is not None and self.cancelled.is_set())

    def answer(self, instance: Instance, seconds: float, *, hint: Any = None, first: bool = False) -> Result:
        """Solve a changed instance; with ``first``, only until there is a plan."""
        control = Control() if self.cancelled is None or first else Control(cancelled=self.cancelled)

        def stop(event: Event) -> None:
            if event.objective is not None or (self.cancelled is not None and self.cancelled.is_set()):
                control.cancel()

        left = max(0.05, min(seconds, self.end - clock.now()))
        return solve(
            instance, time_limit=left, seed=self.seed, hint=hint, control=control, on_event=stop if first else None
        )

    # No plan ---------------------------------------------------------------------------------------------------------

    def possible(self, instance: Instance) -> bool | None:
        """Whether there is a plan; None when that could not be settled."""
        try:
            result = self.answer(instance, max(_LEAST, _SHARE * self.time_limit), first=True)
        except InputError:
            return None
        if result.solution is not None:
            return True
        return False if result.status == "infeasible" else None

    def mends(self) -> Iterator[Mend]:
        """Changes that make a plan possible, each with its least amount as far as it could be settled."""
        steps = [
            *looser_rules(self.instance, self.problem),
            *extra_devices(self.instance),
            *faster_links(self.instance, self.problem),
        ]
        amounts = [*more_memory(self.instance, self.problem), *fewer_tokens(self.instance, self.problem)]
        for change in [*amounts, *steps]:
            if self.over():
                return
            found = self.made(change) if change.most is None else self.least(change, change.most)
            if found is not None:
                yield found

    def made(self, change: Change) -> Mend | None:
        done = self.possible(change.apply(self.instance, 1.0))
        return Mend(change.say(1.0), 1.0, 0.0) if done else None

    def least(self, change: Change, most: float) -> Mend | None:
        """The least amount by halving, between one proved too little and one with a verified plan."""
        if not self.possible(change.apply(self.instance, most)):
            return None
        low, high, known = 0.0, most, True
        if change.grain and most >= _MANY:
            high = math.ceil(most / change.grain) * change.grain
        while not self.over():
            unit = change.grain if change.grain and high >= _GRAINS * change.grain else float(change.whole)
            if high - low <= max(unit, 0.0 if change.whole and high < _MANY else _FINE * high):
                break
            middle = (low + high) / 2
            middle = math.floor(middle / unit) * unit if unit else middle
            answer = self.possible(change.apply(self.instance, middle))
            if answer:
                high = middle
            else:
                low, known = middle, known and answer is False
        if change.grain and high >= _MANY:
            high = math.ceil(high / change.grain) * change.grain
        sharp = f"{change.size(low)} is proved too little" if known else "enough; whether less would do is not known"
        return Mend(f"{change.say(high)} ({sharp})", high, low if known else None)

    def conflict(self) -> tuple[str, ...]:
        """An irreducible set of rows of the linear relaxation; empty when that is feasible, too large or there is none."""
        method = self.linear()
        left = self.end - clock.now()
        if method is None or left <= 0:
            return ()
        return irreducible(method.build(self.instance, self.question), left)

    def linear(self) -> LinearFormulation | None:
        """A linear formulation of the question of moderate size whose relaxation bounds it, the smallest first."""
        fitting = [
            m
            for m in self.problem.methods
            if isinstance(m, LinearFormulation) and m.gives_bound and m.fits(self.instance, self.question) is None
        ]
        best = min(fitting, key=lambda m: m.size(self.instance, self.question), default=None)
        return best if best is not None and best.size(self.instance, self.question) < _LARGE else None

    # A plan ----------------------------------------------------------------------------------------------------------

    def prices(self, own: Result) -> Iterator[str]:
        """By how much the LP relaxation's optimum moves with a unit more of memory where it is scarce, and of devices' time."""
        method = self.linear()
        scarce = {name: usable for name, _, usable in _scarce(own, self.instance)}
        if method is None or not scarce:
            return
        base = _relaxed(method, self.instance, self.question)
        for change in more_memory(self.instance, self.problem, scarce):
            if base is None or self.over():
                return
            amount = float(_some(scarce))
            moved = _relaxed(method, change.apply(self.instance, amount), self.question)
            if moved is not None:
                better = (base - moved) if own.sense == "min" else (moved - base)
                words = f"moves it by {better:.6g}" if better > 1e-9 * abs(base) else "does not move it"
                yield f"shadow price in the {method.name} relaxation (optimum {base:.6g}): {change.say(amount)} {words}"

    def gains(self, own: Result) -> Iterator[Gain]:
        """What one more device, a tenth more memory where it is scarce, and faster links would buy."""
        amounts: list[tuple[Change, float]] = [(change, 1.0) for change in extra_devices(self.instance)]
        amounts += [(change, 1.0) for change in faster_links(self.instance, self.problem)]
        scarce = {name: usable for name, _, usable in _scarce(own, self.instance)}
        amounts += [(change, _some(scarce)) for change in more_memory(self.instance, self.problem, scarce)]
        for number, (change, amount) in enumerate(amounts):
            if self.over():
                return
            seconds = (self.end - clock.now()) / (len(amounts) - number)
            try:
                result = self.answer(change.apply(self.instance, amount), seconds, hint=own.solution)
            except InputError:
                continue
            if result.solution is not None:
                yield _gain(change.say(amount), own, result)


def _gain(change: str, own: Result, result: Result) -> Gain:
    """Compare two answers; only what value and bound of both prove is called a gain, or none."""
    assert own.objective is not None and result.objective is not None
    sign = 1.0 if own.sense == "min" else -1.0
    scale = abs(own.objective) or 1.0
    proved = sign * (own.bound - result.objective) if own.bound is not None else -math.inf
    most = sign * (own.objective - result.bound) if result.bound is not None else math.inf
    seen = sign * (own.objective - result.objective)
    if most <= 1e-6 * scale:
        words = "gains nothing (proved)"
    elif proved > 1e-6 * scale:
        sharp = (
            ""
            if most <= proved + 1e-6 * scale
            else f", at least {100 * proved / scale:.2g} %, at most {100 * most / scale:.2g} %"
        )
        words = f"{own.objective:.6g} becomes {result.objective:.6g} ({100 * seen / scale:.2g} % better{sharp})"
    elif seen > 1e-6 * scale:
        words = f"{own.objective:.6g} becomes {result.objective:.6g}, but the present plan may not be the best one"
    else:
        limit = "" if math.isinf(most) else f"; it could be {100 * most / scale:.2g} % at most"
        words = f"no gain found{limit}"
    return Gain(change, result.objective, result.bound, f"{change}: {words}")


def _some(scarce: Mapping[str, float]) -> float:
    """An amount of memory worth asking about: a GiB, or a tenth of the largest where units are small."""
    largest = max(scarce.values(), default=0.0)
    return 2.0**30 if largest >= 2.0**31 else float(math.ceil(largest / 10))


def _relaxed(method: LinearFormulation, instance: Instance, question: Question) -> float | None:
    """Optimum of a formulation's LP relaxation, a solver's word."""
    from hetopt import solvers
    from hetopt.solvers import Options

    answer = solvers.get("highs").solve(method.build(instance, question).relax(), Options(), Control())
    return answer.objective if answer.reason == "optimal" else None


def _rows(result: Result) -> dict[str, Mapping[str, Any]]:
    rows = result.evaluation.get("devices", {})
    return {k: v for k, v in rows.items() if isinstance(v, Mapping)} if isinstance(rows, Mapping) else {}


def _scarce(result: Result, instance: Instance) -> list[tuple[str, float, float]]:
    """(device, bytes used, bytes usable) where memory is nearly full."""
    rows = _rows(result)
    used = {name: float(row["memory"]) for name, row in rows.items() if isinstance(row.get("memory"), (int, float))}
    capacity = dict(zip(instance.device_names, instance.capacity.tolist(), strict=True))
    used |= {name: capacity[name] for name in _fullest(result)}
    return [(n, u, capacity[n]) for n, u in used.items() if n in capacity and u >= _FULL * capacity[n] > 0]


def _rooms(result: Result) -> dict[str, float]:
    """Tokens of cache that each device has room for, where their least number is the plan's value."""
    rooms = {n: row["tokens"] for n, row in _rows(result).items() if isinstance(row.get("tokens"), (int, float))}
    return rooms if rooms and result.evaluation.get("tokens") == result.objective else {}


def _fullest(result: Result) -> list[str]:
    rooms = _rooms(result)
    return [name for name, room in rooms.items() if room == min(rooms.values())]


def _binding(result: Result, instance: Instance) -> Iterator[str]:
    """Sentences on the devices that set the value and on memory that is nearly full."""
    load = {n: float(row["load"]) for n, row in _rows(result).items() if isinstance(row.get("load"), (int, float))}
    if load and result.objective is not None:
        top = max(load.values())
        slowest = [name for name, value in load.items() if value >= top * (1 - 1e-9)]
        if math.isclose(top, result.objective, rel_tol=1e-9):
            idle = np.mean([1 - value / top for value in load.values()]) if top > 0 else 0.0
            verb = "sets" if len(slowest) == 1 else "set"
            yield f"time: {', '.join(slowest)} {verb} the value; devices idle {100 * idle:.3g} % on average"
    rooms, full = _rooms(result), _fullest(result)
    if rooms:
        slack = [f"{name} for {room:,.0f}" for name, room in rooms.items() if name not in full]
        verb = "has" if len(full) == 1 else "have"
        more = f"; unused: {', '.join(slack)}" if slack else ""
        yield f"cache: {', '.join(full)} {verb} room for {rooms[full[0]]:,.0f} tokens, and so has the pipeline{more}"
    for name, used, usable in _scarce(result, instance):
        yield f"memory: {name} uses {bytes_text(used)} of {bytes_text(usable)}"


def irreducible(model: LinearModel, seconds: float = math.inf) -> tuple[str, ...]:
    """Names of rows of a model's LP relaxation that cannot hold together, none of which can be left out.

    A phase-one program (least total violation) singles out rows with a dual price; of these, each is left out in turn, and
    stays out when the rest is still infeasible. Empty when the relaxation is feasible, time was too short, or there are too many.
    """
    from hetopt import solvers
    from hetopt.solvers import Options

    adapter, end = solvers.get("highs"), clock.now() + seconds

    def solved(part: LinearModel) -> Any:
        left = end - clock.now()
        return adapter.solve(part, Options(time_limit=None if math.isinf(left) else max(left, 0.01)), Control())

    relaxed = model.relax()
    answer = solved(relaxed.elastic())
    if answer.reason != "optimal" or answer.row_dual is None or answer.objective is None or answer.objective <= 1e-7:
        return ()
    kept = [int(r) for r in np.flatnonzero(np.abs(answer.row_dual[: model.n_rows]) > 1e-9)]
    if len(kept) > _MOST_ROWS:
        return ()
    for row in list(kept):
        rest = [r for r in kept if r != row]
        left = solved(relaxed.only(rest))
        if left.reason == "infeasible":
            kept = rest
        elif left.reason != "optimal":
            return ()
    return tuple(model.row_name(r) for r in kept)
