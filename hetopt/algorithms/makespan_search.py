"""Plans and proofs for jobs on unrelated machines, both as good as the time allows: the driver of the makespan kernels.

It alternates between raising the lower bound (linear program, cardinality cuts, knapsacks, configurations) and lowering the
makespan (list scheduling, rounding, annealing by exchanges, small programs where times are decimals), and reports each
improvement. Every bound comes with a certificate that :func:`hetopt.verify.makespan_certificates.replay` has accepted.
Nothing here has a guarantee on the plan beyond the bound that stands beside it; the algorithms with a priori ratios are
elsewhere.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetopt.algorithms.makespan_bounds import (
    Certificate,
    Relaxation,
    cardinality_bound,
    certified_grid,
    lp_relaxation,
    reduced_costs,
)
from hetopt.algorithms.makespan_exchange import Schedule, candidates, exchange
from hetopt.algorithms.makespan_knapsack import configuration_bound, knapsack_bound
from hetopt.algorithms.makespan_lp import Floats
from hetopt.algorithms.makespan_programs import programs, whole_programs
from hetopt.algorithms.makespan_settle import settle
from hetopt.verify.makespan_certificates import Grid, on_grid

__all__ = ["Climb", "Report", "climb", "list_schedule", "makespan", "round_relaxation"]

Plan = NDArray[np.int64]

_COARSE = 13  # bits of the makespan on the grid of the knapsacks for decimal data
_CUTS = 2_000_000  # pairs up to which cardinality cuts are tried
_CONFIGURATIONS = 300  # jobs up to which the configuration program is tried
_STEPS = 100_000  # most of an annealing run in the first rotation; later rotations take longer
_STEPS_PER_JOB = 500
_MANY = 5_000  # jobs from which a plan near the relaxation is made by moves along reduced costs
_PROGRAMS = (1_000, 50_000)  # pairs of decimal data between which programs place jobs anew
_WHOLE_PROGRAMS = (300, 2_000)  # the same for integers
_FIRST = 2  # annealing runs before the programs
_NEAR = 0.0015  # how far above the bound the target for decimal data is at most, in makespans


class Report(Protocol):
    """Called at each improvement with what improved: a plan and its value, or a bound and its certificate."""

    def __call__(
        self,
        *,
        plan: Plan | None = None,
        value: float | None = None,
        bound: float | None = None,
        certificate: Certificate | None = None,
    ) -> None: ...


class Climb(NamedTuple):
    """How far the climb came.

    Attributes
    ----------
    plan, value
        (n,) machine of each job, and its makespan.
    bound, certificate
        No plan has a smaller makespan, and the proof. Ints when the instance's numbers are integers.
    """

    plan: Plan
    value: int | float
    bound: int | float
    certificate: Certificate


class _Setting(NamedTuple):
    """An annealing run's settings in units of the instance: see :class:`~hetopt.algorithms.makespan_exchange.Schedule`."""

    hot: float
    cold: float
    pull: float
    per_job: float
    group: int
    cuts: float  # share of the cardinality program in the costs, the rest is the linear relaxation's
    aim: float  # where between bound and makespan the target lies
    afresh: bool  # start from the rounded relaxation instead of the best plan
    half: int = 1024
    checks: int = 500
    length: int = 1  # so many times the steps


_ROTATION = (
    _Setting(1.0, 0.03, 0.1, 3, 4, 0.5, 0.0, True),
    _Setting(0.3, 0.01, 0.1, 3, 4, 0.5, 0.5, False),
    _Setting(1.0, 0.03, 0.1, 3, 4, 0.0, 0.0, True),
    _Setting(0.3, 0.01, 0.1, 3, 4, 0.5, 0.0, False),
    _Setting(100.0, 0.01, 0.2, 3, 3, 0.0, 0.3, True),
    _Setting(0.3, 0.03, 0.1, 2, 5, 0.5, 0.0, False),
    _Setting(1.0, 0.03, 0.1, 3, 4, 1.0, 0.0, True),
    _Setting(10.0, 0.01, 0.1, 3, 4, 0.0, 0.5, True),
)

# Decimal times that differ widely: every other group meets some target, so more and smaller groups in the same time.
_DECIMAL = (
    _Setting(1.0, 0.03, 0.1, 3, 3, 0.0, 0.7, True, 256, 200, 2),
    _Setting(0.3, 0.01, 0.1, 3, 4, 0.0, 0.5, False),
    _Setting(1.0, 0.03, 0.1, 3, 3, 0.0, 0.7, True, 256, 200, 2),
    _Setting(0.3, 0.01, 0.1, 3, 4, 0.0, 0.3, False, 512, 300),
    _Setting(10.0, 0.03, 0.1, 3, 3, 0.0, 0.7, True, 256, 200, 2),
    _Setting(0.3, 0.01, 0.1, 3, 4, 0.0, 0.7, False),
)

# Before them where second machines cost little beside a mean job (consistent matrices): temperatures in units of those costs are
# low there, and large jobs of slow machines must get past each other.
_HOT = (
    _Setting(50.0, 0.0125, 0.05, 3, 3, 0.0, 0.7, True, 512, 400),
    _Setting(50.0, 0.0125, 0.05, 3, 3, 0.0, 0.7, True, 256, 200),
)
_LITTLE = 0.1  # mean jobs


def climb(
    time: ArrayLike,
    *,
    ready: ArrayLike | None = None,
    deadline: float | None = None,
    should_stop: Callable[[], bool] | None = None,
    seed: int = 0,
    report: Report | None = None,
    target_gap: float = 0.0,
    threads: int = 1,
    rotations: int | None = None,
) -> Climb:
    """Search for a plan of small makespan and for the proof that it is close to the best.

    Parameters
    ----------
    time
        (n, m) processing times, >= 0, ``inf`` where a job cannot run.
    ready
        (m,) moments from which the machines are free; None means 0. The makespan is the latest moment at which a machine
        that has a job is done; machines without a job do not count.
    deadline
        Seconds of wall time to spend; None means no limit.
    should_stop
        Asked between the steps, which take about 0.1 s each (simplex solves of large instances may take longer).
    seed
        Same instance, seed and ``threads=1``: same sequence of plans and bounds, cut off by the limits.
    report
        Called at each improvement.
    target_gap
        End when value - bound <= target_gap * value; 0 asks for a proof of optimality.
    threads
        Annealing runs at a time.
    rotations
        End after so many rotations through the settings of the annealing; None takes 3 when there is neither a deadline
        nor ``should_stop``, and no end otherwise.

    Returns
    -------
    Climb
        The best plan and the best bound.

    Raises
    ------
    ValueError
        The arrays do not describe an instance.
    """
    times = np.ascontiguousarray(time, dtype=np.float64)
    free = np.zeros(times.shape[-1]) if ready is None else np.asarray(ready, dtype=np.float64)
    if rotations is None and deadline is None and should_stop is None:
        rotations = 3
    ends = math.inf if deadline is None else clock.monotonic() + deadline
    state = _State(times, free, ends, should_stop, report, target_gap)
    if len(times) == 0:
        return state.result()
    state.offer_plan(list_schedule(times, free))
    relaxation = lp_relaxation(times, free, upper=state.value, grid=state.grid, should_stop=state.over)
    state.offer_bound(relaxation.bound, relaxation.certificate)
    if state.over():
        return state.result()
    rounded = round_relaxation(times, free, relaxation)
    state.offer_plan(rounded)
    if len(times) >= _MANY:
        rounded = settle(times, free, relaxation, float(state.bound))
        state.offer_plan(rounded)
    rungs = _rungs(state, relaxation)
    annealing = _annealing(state, relaxation, rounded, seed, threads)
    anew = _programs(state, relaxation, seed)
    next(rungs, None)
    pause, turn = 1, 0
    while not state.over() and (rotations is None or turn < rotations * len(_ROTATION)):
        if pause <= 0 and next(rungs, None) is not None:
            pause = 1 + turn // 2
            continue
        next(annealing)
        turn, pause = turn + 1, pause - 1
        while anew is not None and turn >= _FIRST and not state.over() and next(anew):
            pass
    return state.result()


def makespan(time: Floats, plan: Plan, ready: Floats | None = None) -> float:
    """Latest moment at which a machine that has a job is done, rounded once from the exact sum; 0 without jobs.

    Parameters
    ----------
    time
        (n, m) processing times.
    plan
        (n,) machine of each job.
    ready
        (m,) moments from which the machines are free; None means 0.
    """
    latest = 0.0
    order = np.argsort(plan, kind="stable")
    needs = time[order, plan[order]]
    machines, start = np.unique(plan[order], return_index=True)
    for i, part in zip(machines, np.split(needs, start[1:]), strict=True) if len(plan) else ():
        first = 0.0 if ready is None else float(ready[i])
        latest = max(latest, math.fsum([first, *part.tolist()]))
    return latest


def list_schedule(time: Floats, ready: Floats) -> Plan:
    """Jobs by falling shortest time, each to the machine that would finish it first; (n,) machines, O(n m).

    Ibarra and Kim, Journal of the ACM 24 (1977); at most m times the optimum.
    """
    n = len(time)
    plan, load = np.zeros(n, dtype=np.int64), ready.copy()
    for j in np.argsort(-time.min(axis=1), kind="stable"):
        finish = load + time[j]
        i = int(finish.argmin())
        plan[j], load[i] = i, finish[i]
    return plan


def round_relaxation(time: Floats, ready: Floats, relaxation: Relaxation, split: float = 0.05) -> Plan:
    """A plan near a relaxation's vertex: whole jobs stay, split ones go where they finish first.

    Parameters
    ----------
    time, ready
        As for :func:`climb`.
    relaxation
        Of :func:`~hetopt.algorithms.makespan_bounds.lp_relaxation`. If it only gives every job its cheapest machine, the
        ``split`` share of the jobs that lose least elsewhere is treated as split.
    """
    n, m = time.shape
    plan = np.full(n, -1, dtype=np.int64)
    whole = relaxation.share > 1 - 1e-6
    plan[relaxation.job[whole]] = relaxation.machine[whole]
    if whole.all() and m > 1 and len(relaxation.job) == n:
        cost = np.partition(reduced_costs(time, relaxation.weights), 1, axis=1)[:, 1]
        plan[np.argsort(cost, kind="stable")[: math.ceil(split * n)]] = -1
    fixed = np.flatnonzero(plan >= 0)
    load = ready + np.bincount(plan[fixed], time[fixed, plan[fixed]], m)
    rest = np.flatnonzero(plan < 0)
    for j in rest[np.argsort(-time[rest].min(axis=1), kind="stable")]:
        finish = load + time[j]
        i = int(finish.argmin())
        plan[j], load[i] = i, finish[i]
    return plan


class _State:
    """Best plan and bound so far, and when to end."""

    def __init__(
        self,
        time: Floats,
        ready: Floats,
        ends: float,
        should_stop: Callable[[], bool] | None,
        report: Report | None,
        target_gap: float,
    ) -> None:
        self.time, self.ready = time, ready
        self._ends, self._should_stop, self._report, self._target_gap = ends, should_stop, report, target_gap
        self.grid: Grid = certified_grid(time, ready, math.inf)
        self.plan, self.value = np.zeros(0, dtype=np.int64), math.inf if len(time) else 0.0
        self.cut_costs: Floats | None = None  # reduced costs of the cardinality program, scaled to weights of sum 1
        self.bound: int | float = 0
        self.certificate: Certificate = {
            "kind": "machine-weights",
            "shift": self.grid.shift,
            "weights": np.zeros(time.shape[1], dtype=np.int64),
        }

    def over(self) -> bool:
        """Whether to return now."""
        closed = self.value - self.bound <= self._target_gap * self.value
        return closed or clock.monotonic() >= self._ends or (self._should_stop is not None and self._should_stop())

    def offer_plan(self, plan: Plan) -> None:
        """Keep a plan if it is the best so far."""
        value = makespan(self.time, plan, self.ready)
        if value < self.value:
            self.plan, self.value = plan, value
            if self._report is not None:
                self._report(plan=plan.copy(), value=int(value) if self.grid.integral else value)

    def offer_bound(self, bound: float | None, certificate: Certificate | None) -> None:
        """Keep a bound if it is the best so far."""
        if bound is not None and certificate is not None and bound > self.bound:
            self.bound, self.certificate = bound, certificate
            if self._report is not None:
                self._report(bound=bound, certificate=certificate)

    def result(self) -> Climb:
        """What has been found."""
        value = int(self.value) if self.grid.integral else self.value
        return Climb(self.plan, value, self.bound, self.certificate)


def _rungs(state: _State, relaxation: Relaxation) -> Iterator[bool]:
    """Raise the bound a rung at a time, the cheap ones first."""
    time, ready = state.time, state.ready
    n, m = time.shape
    if n * m <= _CUTS:
        cuts = cardinality_bound(
            time,
            ready,
            lower=state.bound,
            upper=state.value,
            weights=relaxation.weights,
            grid=state.grid,
            should_stop=state.over,
        )
        state.offer_bound(cuts.bound, cuts.certificate)
        state.cut_costs = reduced_costs(time, cuts.weights, cuts.count_weights)
    yield True
    grid = state.grid
    if not (grid.integral and grid.shift == 0):
        grid = on_grid(time, ready, max(-1000, min(_COARSE - math.frexp(state.value)[1], 1000)))
    for effort in (1, 10, 100) if state.grid.integral or n <= _CONFIGURATIONS else (1,):
        rung = configuration_bound if n <= _CONFIGURATIONS else knapsack_bound
        raised = rung(
            grid,
            math.ceil(math.ldexp(state.bound, grid.shift)),
            math.ceil(math.ldexp(state.value, grid.shift)),
            relaxation.weights,
            cells=effort * 1_000_000_000,
            should_stop=state.over,
        )
        state.offer_bound(raised.bound, raised.certificate)
        yield True


def _second_choice(state: _State, costs: Floats) -> float:
    """What the n second cheapest pairs cost at most, in units of time: the unit of temperatures; never 0."""
    n, m = costs.shape
    second = min(2 * n, n * m - 1)
    unit = float(np.partition(costs.ravel(), second)[second])
    return max(unit if math.isfinite(unit) else 0.0, 1.0 if state.grid.integral else 1e-6 * state.value)


def _programs(state: _State, relaxation: Relaxation, seed: int) -> Iterator[bool] | None:
    """Lower the makespan by programs, a step at a time; None where they are too large to help."""
    fewest, most = _WHOLE_PROGRAMS if state.grid.integral else _PROGRAMS
    if not fewest <= state.time.size <= most:
        return None
    if state.grid.integral:
        return whole_programs(state, relaxation, seed)
    n, m = state.time.shape
    unit = _second_choice(state, _machine_costs(state.time, relaxation))
    return programs(state, relaxation, seed, wide=unit >= _LITTLE * state.value * m / n)


def _machine_costs(time: Floats, relaxation: Relaxation) -> Floats:
    """(n, m) reduced costs in units of a mean machine's time."""
    scale: float = time.shape[1] / max(float(relaxation.weights.sum()), 1e-300)
    return reduced_costs(time, relaxation.weights) * scale


def _annealing(state: _State, relaxation: Relaxation, rounded: Plan, seed: int, threads: int) -> Iterator[bool]:
    """Lower the makespan by annealing, one setting (or ``threads`` of them at once) after another, ever longer."""
    time = state.time
    n, m = time.shape
    costs = _machine_costs(time, relaxation)
    cut_costs = costs if state.cut_costs is None else state.cut_costs * m
    unit = _second_choice(state, costs)
    rotation: tuple[_Setting, ...] = _ROTATION
    if not state.grid.integral and _PROGRAMS[0] <= time.size <= _PROGRAMS[1]:
        rotation = (*_HOT, *_DECIMAL) if unit < _LITTLE * state.value * m / n else _DECIMAL
    turn = 0

    def run(turn: int) -> Plan:
        setting = rotation[turn % len(rotation)]
        start = rounded if setting.afresh else state.plan
        gap = state.value - state.bound
        if state.grid.integral:
            target = state.bound + math.floor(setting.aim * max(gap - 1, 0))
        else:
            target = state.bound + min((0.25 + 0.7 * setting.aim) * gap, _NEAR * state.value)
        # A machine that becomes free too late and is not used only blurs the largest load.
        late = (state.ready >= state.value) & (np.bincount(start, minlength=m) == 0)
        parts = [share * cost for share, cost in ((1 - setting.cuts, costs), (setting.cuts, cut_costs)) if share > 0]
        mixed = sum(parts[1:], start=parts[0])
        usable = np.where(late, np.inf, mixed) if late.any() else mixed
        eligible = np.where(late, np.inf, time) if late.any() else time
        first = min(_STEPS, _STEPS_PER_JOB * n)
        steps = first // 5 if turn == 0 else first * min(2 ** (turn // len(_ROTATION)), 20) * setting.length
        schedule = Schedule(
            hot=setting.hot * unit**2,
            cold=setting.cold * unit**2,
            pull=setting.pull * unit,
            group=setting.group,
            half=setting.half,
            checks=setting.checks,
            steps=steps,
        )
        choice = candidates(eligible, usable, setting.per_job, start)
        free = np.where(late, 0.0, state.ready)
        number = seed * 1_000_003 + turn
        return exchange(time, free, start, choice, float(target), schedule, number, state.over)[1]

    with ThreadPoolExecutor(threads) as pool:
        while True:
            if threads == 1:
                state.offer_plan(run(turn))
            else:
                for plan in list(pool.map(run, range(turn, turn + threads))):
                    state.offer_plan(plan)
            turn += threads
            yield True
