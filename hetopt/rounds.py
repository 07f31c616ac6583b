"""Simulate a cluster that plans shares by one question and keeps them in rounds, from the first arrival to the last completion.

Jobs arrive at their ``release`` and have ``steps`` to do. Whenever one has arrived or is done, a plan is made for those that are
there: an instance of them, with the steps that are left, and the question asked; its shares are kept in rounds
(:mod:`hetopt.algorithms.share_rounds`) until the next plan. A deadline counts from the release; where no plan keeps all
deadlines, that plan is made without them. Work is lost nowhere and moving costs nothing: this is no model of checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.share_rounds import Rows, matched, serve
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.instance import Instance
from hetopt.records import Job
from hetopt.registry import problem_for
from hetopt.solve import solve
from hetopt.verify.pairs import pair_rates, together_of
from hetopt.verify.shares import rates

__all__ = ["Moment", "Simulation", "simulate"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moment:
    """A round that begins: its number and time, jobs there, jobs done."""

    round: int
    seconds: float
    active: int
    done: int


@dataclass(frozen=True)
class Simulation:
    """What came of a trace.

    Attributes
    ----------
    finish
        Second at which each job was done, by name; None where it was not.
    completion
        Mean seconds from release to end, of jobs that were done; None where none was.
    makespan
        Second at which the last job was done; None while one is not.
    used
        Part of each type's worker seconds, until the end, in which a job ran.
    time
        Seconds that each job ran on each type, by names; seconds beside another job count as well.
    rounds, plans
        How many.
    notes
        What did not go as asked, in sentences.
    late
        Jobs that were done after their deadline, or had passed it undone at the end.
    """

    finish: Mapping[str, float | None]
    completion: float | None
    makespan: float | None
    used: Mapping[str, float]
    time: Mapping[str, Mapping[str, float]]
    rounds: int
    plans: int
    notes: tuple[str, ...] = field(default_factory=tuple)
    late: tuple[str, ...] = ()


def simulate(
    instance: Instance,
    *,
    objective: str | None = None,
    options: Mapping[str, Any] | None = None,
    method: str = "auto",
    round_seconds: float = 360.0,
    rule: str = "priority",
    horizon: float = math.inf,
    on_round: Callable[[Moment], None] | None = None,
    control: Control | None = None,
) -> Simulation:
    """Run a trace; the same trace and question give the same simulation.

    Parameters
    ----------
    instance
        Jobs with ``release`` and ``steps``.
    objective, options, method
        The question asked of every plan, as for :func:`hetopt.solve`; its plans are shares.
    round_seconds
        Length of a round; a job that is done within one leaves its workers idle until the next.
    rule
        ``"priority"``, the published one, or ``"matching"``, which keeps shares closer, where jobs take one worker each and none
        is beside another (elsewhere the published one is used).
    horizon
        Second after which no round begins.
    on_round
        Called as each round begins.
    control
        Its limit or cancellation ends the simulation early, with what was done by then.

    Raises
    ------
    InputError
        The question does not fit the jobs, has no shares in its plans, or a number is out of its range.
    """
    for name, value in (("round_seconds", round_seconds), ("horizon", horizon)):
        if not value > 0:
            raise InputError(f"{name} is {value!r}, expected seconds above 0")
    if rule not in ("priority", "matching"):
        raise InputError(f"rule is {rule!r}, expected 'priority' or 'matching'")
    run = _Run(instance, objective, dict(options or {}), method, rule == "matching")
    stop = control.should_stop if control is not None else lambda: False
    clock, rounds = 0.0, 0
    while not stop() and run.left.any() and clock < horizon:
        active = run.left & (run.release <= clock)
        if not active.any():
            clock = round_seconds * math.ceil(float(run.release[run.left].min()) / round_seconds)
            continue
        if on_round is not None:
            on_round(Moment(rounds, clock, int(active.sum()), int((~run.left).sum())))
        run.plan(active, clock)
        if not run.turn(clock, round_seconds) and not (run.left & ~active).any():
            run.note(run.stuck(active))
            break
        rounds, clock = rounds + 1, clock + round_seconds
    return run.told(rounds, clock)


class _Run:
    """State of a simulation: steps left, the plan in force, rounds had."""

    def __init__(
        self, instance: Instance, objective: str | None, options: dict[str, Any], method: str, match: bool
    ) -> None:
        self.instance, self.objective, self.options, self.method = instance, objective, options, method
        self.match, self.since = match, 0
        self.problem = problem_for(instance, objective)
        if (why := self.problem.fits(instance)) is not None:
            raise InputError(f"{self.problem.name} cannot be asked of this trace: {why}")
        self.jobs: list[Job] = list(instance.jobs())
        if any(job.tasks is not None or job.steps is None for job in self.jobs):
            raise InputError("each job of a trace needs `steps`, and no graph of tasks")
        self.steps = np.array([float(job.steps or 0) for job in self.jobs])
        self.release = np.array([float(job.release) for job in self.jobs])
        self.scale = np.array([float(job.scale) for job in self.jobs])
        self.workers = np.array([float(device.slots) for device in instance.devices])
        self.rate = rates(instance)
        self.apart = np.zeros(len(self.jobs))  # seconds that what is done would have taken in an even division
        self.left = self.steps > 0
        self.finish = np.where(self.left, np.nan, self.release)
        self.time = np.zeros(self.rate.shape)
        self.used = np.zeros(len(self.workers))
        self.known: NDArray[np.bool_] | None = None
        self.plans, self.notes = 0, list[str]()

    def note(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def stuck(self, active: NDArray[np.bool_]) -> str:
        """Why no job ran in a round."""
        wide = active & (self.scale > self.workers.max())
        if not wide.any():
            return "the plan gives no job any time, so nothing goes on"
        job, most = self.jobs[int(wide.argmax())], self.workers.max()
        return f"{job.name!r} takes {job.scale:g} workers at once, and no type has more than {most:g}: it can run in no round"

    def plan(self, active: NDArray[np.bool_], clock: float) -> None:
        """A new plan, where the jobs are others than the last one's."""
        if self.known is not None and np.array_equal(self.known, active):
            return
        self.known = active.copy()
        where = np.flatnonzero(active)
        told = self.asked(where, clock, True)
        result = solve(told, objective=self.objective, options=self.options, method=self.method)
        if result.status == "infeasible" and any(job.deadline is not None for job in told.jobs()):
            self.note("where no plan kept all deadlines, it was made without them")
            told = self.asked(where, clock, False)
            result = solve(told, objective=self.objective, options=self.options, method=self.method)
        if result.solution is None or result.solution.shares is None:
            words = "; ".join((*result.infeasible, *result.messages)) or result.status
            raise InputError(f"{self.problem.name} gave no shares at {clock:g} s: {words}")
        self.plans += 1
        job, kind = np.nonzero(result.solution.shares)
        together = together_of(told, result.solution.details)
        first = np.concatenate([job, together.job])
        partner = np.concatenate([np.full(len(job), -1), together.other])
        device = np.concatenate([kind, together.device])
        share = np.concatenate([result.solution.shares[job, kind], together.share])
        keep = share > 1e-9
        first, partner, device, share = first[keep], partner[keep], device[keep], share[keep]
        whole = where[first], np.where(partner < 0, -1, where[partner])
        self.rows = Rows(*whole, device, share, self.scale[whole[0]])
        self.speed, self.beside = self.rate[whole[0], device], np.zeros(len(share))
        pair = partner >= 0
        if pair.any():
            self.speed[pair], self.beside[pair] = pair_rates(told).of(first[pair], partner[pair], device[pair])
        self.had, self.since = np.zeros(len(share)), 0
        even = self.workers[None, :] / len(where) / self.scale[where][:, None]
        even /= np.maximum(even.sum(axis=1), 1.0)[:, None]
        self.own = np.zeros(len(self.jobs))
        self.own[where] = (even * self.rate[where]).sum(axis=1)

    def asked(self, where: NDArray[np.int64], clock: float, deadlines: bool) -> Instance:
        """The jobs that are there, as an instance of their own."""
        names = {self.jobs[k].name for k in where.tolist()}
        jobs = []
        for k in where.tolist():
            job, due = self.jobs[k], self.jobs[k].deadline
            rest = None if due is None or not deadlines else due - (clock - self.release[k])
            jobs.append(
                msgspec.structs.replace(job, steps=float(self.steps[k]), deadline=rest if rest and rest > 0 else None)
            )
        tables = {
            name: {job: value for job, value in table.items() if job in names}
            for name, table in self.instance.tables.items()
            if name in ("kind", "entity") and isinstance(table, Mapping)
        }
        tables = {**self.instance.tables, **tables}
        if "tables.isolated" in self.problem.uses:
            tables["isolated"] = {self.jobs[k].name: float(self.apart[k]) for k in where.tolist()}
        question = dict(self.instance.question)
        if "now" in {option.name for option in self.problem.options}:
            question["now"] = clock
        return Instance.build(self.instance.devices, jobs, tables=tables, question=question)

    def turn(self, clock: float, seconds: float) -> bool:
        """One round; whether any job ran."""
        single = self.match and (self.rows.partner < 0).all() and (self.rows.scale == 1).all() and len(self.rows.job)
        runs = (
            matched(self.rows, self.workers, self.had, self.since)
            if single
            else serve(self.rows, self.workers, self.had)
        )
        self.had += runs
        self.since += 1
        for r in np.flatnonzero(runs).tolist():
            kind, longest = int(self.rows.type[r]), 0.0
            for job, rate in ((int(self.rows.job[r]), self.speed[r]), (int(self.rows.partner[r]), self.beside[r])):
                if job < 0:
                    continue
                ran = min(seconds, float(self.steps[job] / rate))
                if ran < seconds or self.steps[job] <= rate * seconds:
                    self.steps[job], self.left[job], self.finish[job] = 0.0, False, clock + ran
                else:
                    self.steps[job] -= rate * seconds
                self.apart[job] += ran * rate / self.own[job]
                self.time[job, kind] += ran
                longest = max(longest, ran)
            self.used[kind] += longest * self.rows.scale[r]
        return bool(runs.any())

    def told(self, rounds: int, clock: float) -> Simulation:
        """The results by name."""
        done = ~self.left
        end = float(self.finish.max()) if done.all() else clock
        if self.left.any():
            first = self.jobs[int(self.left.argmax())].name
            self.note(f"{int(self.left.sum())} jobs were not done at the end, {first!r} among them")
        names = self.instance.device_names
        return Simulation(
            finish={
                job.name: float(t) if ok else None for job, t, ok in zip(self.jobs, self.finish, done, strict=True)
            },
            completion=float((self.finish - self.release)[done].mean()) if done.any() else None,
            makespan=end if done.all() else None,
            used={
                name: float(u / (w * end)) if end else 0.0
                for name, u, w in zip(names, self.used, self.workers, strict=True)
            },
            time={
                job.name: {names[i]: float(row[i]) for i in np.flatnonzero(row).tolist()}
                for job, row in zip(self.jobs, self.time, strict=True)
            },
            rounds=rounds,
            plans=self.plans,
            notes=tuple(self.notes),
            late=tuple(
                job.name
                for job, t in zip(self.jobs, np.where(done, self.finish, clock) - self.release, strict=True)
                if job.deadline is not None and t > job.deadline
            ),
        )
