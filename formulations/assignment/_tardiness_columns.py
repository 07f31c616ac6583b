"""Column generation over machines' sequences for :mod:`formulations.assignment.tardiness`: plans and replayed bounds in turns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from formulations.assignment._tardiness_lp import plan_of, shop_of
from hetopt.algorithms.tardiness import Sequenced, Shop, anneal_tardiness, tardiness_value
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.verify.tardiness_prices import Slots, replay_prices, slots_of

__all__ = ["Columns", "known_plan", "replay"]

_SLOTS = 1000  # most slots of the horizon, and for many jobs ...
_STEPS = 2e8  # ... most slots times pairs of jobs
_TRIALS, _TRIAL, _TRAIL = (
    4,
    500_000,
    8,
)  # runs of annealing, proposals of each, and how many of its plans lend their sequences


class Columns(Method):
    """(10)-(12), sequences found by dynamic programs, plans chosen among them."""

    name = "columns"
    title = "column generation over the sequences of devices (10)-(12), plans among them; bound replayed"
    kind = "search"

    def size(self, instance: Instance, question: Question) -> int:
        """States of the dynamic programs."""
        return instance.n_devices * instance.n_tasks * _SLOTS

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Until neither plan nor bound gets better; each bound is replayed before it counts."""
        from hetopt.algorithms.tardiness_columns import price_tardiness

        shop = shop_of(instance)
        facts = tuple(shop)

        def plan(found: Sequenced) -> None:
            control.report_plan(plan_of(instance, found.machine, found.position))

        def bound(certificate: dict[str, Any]) -> None:
            control.report_bound(
                question.problem.round_bound(instance, question, replay_prices(certificate, *facts), slack=0.0),
                "replayed",
                certificate,
            )

        known = known_plan(shop, control.plan)
        plans = [] if known is None else [known]
        late = 0.75 * control.remaining  # most of the time is for the columns
        for trial in range(1, 1 + _TRIALS):
            trail: list[Sequenced] = []
            anneal_tardiness(
                shop,
                seed=control.seed + trial,
                proposals=_TRIAL,
                should_stop=lambda: control.should_stop() or control.remaining < late,
                report=trail.append,
            )
            plans += trail[-_TRAIL:]
        if not plans:
            return Outcome("infeasible", infeasible=("some job can run on no device",))
        best = min(plans, key=lambda one: one.value)
        plan(best)
        price_tardiness(
            shop,
            _slots(shop, best),
            plans,
            should_stop=control.should_stop,
            report_plan=plan,
            report_bound=bound,
        )
        return Outcome("limit", "time") if control.remaining <= 0 else Outcome()


def known_plan(shop: Shop, plan: Any) -> Sequenced | None:
    """A plan reported before as machines and positions."""
    if plan is None or plan.placement is None or plan.start is None:
        return None
    machine = plan.placement
    done = plan.start + shop.time[np.arange(len(machine)), machine]
    position = np.empty(len(machine), np.int64)
    position[np.lexsort((done, plan.start))] = np.arange(len(machine))
    return Sequenced(machine, position, tardiness_value(shop, machine, position))


def _slots(shop: Shop, plan: Sequenced) -> Slots:
    """Slots for twice the plan's makespan: of a second where times are whole and those are few, else powers of two."""
    n, m = shop.time.shape
    ends = shop.ready + np.bincount(plan.machine, shop.time[np.arange(n), plan.machine], minlength=m)
    last = 2.0 * max(float(ends.max()), 1e-300)
    most = max(32, min(_SLOTS, int(_STEPS / n**2)))
    finite = np.concatenate([shop.time[np.isfinite(shop.time)], shop.ready])
    unit = 1.0
    if last > most or (finite != np.floor(finite)).any():
        unit = 2.0 ** math.ceil(math.log2(last / most))
    return slots_of(*shop, unit=unit, horizon=max(1, math.ceil(last / unit)))


def replay(instance: Instance, certificate: Mapping[str, Any]) -> float:
    """The bound that a certificate of this method proves; ValueError when it is damaged."""
    return replay_prices(certificate, *shop_of(instance))
