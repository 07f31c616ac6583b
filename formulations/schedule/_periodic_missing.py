"""What models with periods lack when CP-SAT has proved that there is no cyclic plan: bytes, or longer periods.

Both are found by asking once more, with a time limit: the fewest bytes for the weights alone, whatever the times, and the
greatest rate (:mod:`formulations.schedule.periodic`) of the same models.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from formulations._jobs import in_mebibytes
from formulations.schedule._periodic_cpsat import Cyclic, CyclicRate
from hetopt.control import Control
from hetopt.formulation import Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.streams import streams_of

__all__ = ["CPSAT", "CPSATRate"]

PATIENCE = 10.0  # seconds for each question about a missing plan
CLOSE = 1e-6


class CPSATRate(CyclicRate):
    """The greatest rate; where there is none, the bytes that are missing."""

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As :class:`CyclicRate`."""
        outcome = super().run(instance, question, control, options)
        if outcome.reason != "infeasible":
            return outcome
        return replace(outcome, infeasible=(*_bytes(instance), *outcome.infeasible))


class CPSAT(Cyclic):
    """A cycle of given length; where no plan keeps it, the bytes that are missing, or how much longer periods must be."""

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As :class:`Cyclic`."""
        outcome = super().run(instance, question, control, options)
        if outcome.reason != "infeasible":
            return outcome
        found = _bytes(instance) or _periods(instance, question)
        return replace(outcome, infeasible=(*found, *outcome.infeasible))


def _bytes(instance: Instance) -> tuple[str, ...]:
    """The fewest bytes that each device with a limit needs besides for all weights, each task where some way takes it."""
    from hetopt import solvers

    limits = np.flatnonzero(np.isfinite(instance.capacity))
    able = np.zeros(instance.time.shape, bool)
    for one in streams_of(instance).models:
        for way in one.ways:
            able[way.first : way.last + 1, way.device] = True
    v, p = np.nonzero(able)
    unit = max(float(instance.memory.max(initial=0.0)), 1e-300)
    model = LinearModel("weights")
    x, more = model.binary("on", len(v)), model.continuous("more")
    model.rows("somewhere", instance.n_tasks, [(v, x, 1.0)], lower=1)
    mine = np.isin(p, limits)
    place = np.full(instance.n_devices, -1)
    place[limits] = np.arange(len(limits))
    terms = [(place[p[mine]], x[mine], instance.memory[v[mine]] / unit)]
    terms.append((np.arange(len(limits)), np.repeat(np.ravel(more), len(limits)), np.full(len(limits), -1.0)))
    model.rows("room", len(limits), terms, upper=instance.capacity[limits] / unit)
    model.minimize(more)
    answer = solvers.get("highs").solve(model, solvers.Options(time_limit=PATIENCE))
    if answer.reason != "optimal" or answer.x is None:
        return ()
    chosen = answer.x[model.columns("on")] > 0.5
    held = [math.fsum(instance.memory[v[chosen & (p == i)]].tolist()) for i in limits.tolist()]
    need = max((a - b for a, b in zip(held, instance.capacity[limits].tolist(), strict=True)), default=0.0)
    if need <= 0:
        return ()
    return (
        f"memory: the weights alone need {need:.12g} bytes more{in_mebibytes(need)} on each device that has a limit, "
        "however the models are cut",
    )


def _periods(instance: Instance, question: Question) -> tuple[str, ...]:
    """How many times as long all periods, phases and deadlines that are periods would have to be."""
    slower: Question = question.problem.slower(instance, question)  # type: ignore[attr-defined]

    def judge(plan: Solution) -> float:
        evaluation = slower.problem.judge(instance, slower, plan)
        if evaluation.violations:
            raise ValueError(evaluation.violations[0])
        return evaluation.value

    control = Control(sense="max", time_limit=PATIENCE, judge=judge)
    CyclicRate().run(instance, slower, control, RunOptions())
    if control.value is None or not 0 < control.value < 1:
        return ()
    enough = 1 / control.value
    if control.bound is not None and control.bound <= control.value * (1 + CLOSE):
        proof = "with less there is none"
    elif control.bound is not None and control.bound < 1:
        proof = f"{1 / control.bound:.6g} times are needed at least"
    else:
        proof = "whether less would do was not proved in time"
    return (f"periods: with all of them {enough:.6g} times as long there is a plan; {proof}",)
