"""Makespan plus weighted tardiness by sequences of machines: bounds by column generation, plans by choosing among the columns.

:mod:`hetopt.algorithms.tardiness_master` chooses fractions of sequences, and :mod:`hetopt.algorithms.tardiness_pricing` finds
those worth adding. The prices asked lie between the best ones so far and the program's (smoothing), because the program's
own are wild at first; all of them prove bounds, in the exact arithmetic of :mod:`hetopt.verify.tardiness_prices`. When the
program is solved, three things make it better:

* The makespan is a mean of long and short sequences: the makespans are divided there, and each part is a program of its own.
* Sequences repeat jobs: longer memories forbid that (Roberti and Mingozzi, Transportation Science 48, 2014, for routes).
* An integer program over the columns near the bound looks for better plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.algorithms.tardiness import Sequenced, Shop, tardiness_value
from hetopt.algorithms.tardiness_master import Master
from hetopt.algorithms.tardiness_pricing import Pricer, Sequence
from hetopt.verify.tardiness_prices import Slots, cheapest_makespan

__all__ = ["price_tardiness"]

Floats = NDArray[np.float64]

_WARM = 60  # rounds of the subgradient method before the linear program is first asked
_FEW, _MANY = 3, 12  # sequences taken of a machine in those rounds, and in later ones
_CLOSE = 1e-5  # relative distance of linear program and bound at which it counts as solved
_NODES, _DEEP = 100, 1000  # most nodes of an integer program's tree in each round, and in the end
_INTERVALS = 16  # most parts of the makespans
_GAIN, _PATIENCE = 0.02, 4  # the search ends after so many rounds that each close less of the gap


class _Interval:
    """The makespans from slot ``first`` to ``last`` (None: any later one), and the best prices known for them.

    Attributes
    ----------
    job, end
        (n,) and (m,) prices in whole ticks.
    bound
        Ticks that they prove, minus infinity before any are asked.
    solved
        Whether the linear program was solved with the present memories.
    """

    def __init__(self, first: int, last: int | None, job: Floats, end: Floats) -> None:
        self.first, self.last, self.job, self.end = first, last, job, end
        self.bound, self.solved = -math.inf, False


def price_tardiness(
    shop: Shop,
    slots: Slots,
    plans: Iterable[Sequenced],
    *,
    should_stop: Callable[[], bool] = lambda: False,
    report_plan: Callable[[Sequenced], None] = lambda plan: None,
    report_bound: Callable[[dict[str, Any]], None] = lambda certificate: None,
) -> None:
    """Raise the bound and look for better plans until neither gets better.

    Parameters
    ----------
    shop, slots
        The data, and what :func:`~hetopt.verify.tardiness_prices.slots_of` makes of them.
    plans
        Plans to begin with, at least one; the best is the first value to beat.
    should_stop
        Asked after each machine's pricing and during the integer program.
    report_plan, report_bound
        Told of better plans, and of certificates for :func:`~hetopt.verify.tardiness_prices.replay_prices`, each better
        than the one before.

    Notes
    -----
    No guarantee on the time; one call with 100 jobs on 10 machines and 100 slots takes some seconds.
    """
    search = _Search(shop, slots, list(plans), should_stop, report_plan)
    search.warm_up()
    told, idle = -math.inf, 0
    while not should_stop():
        weakest = search.weakest()
        if not weakest.solved:
            search.generate(weakest)
            continue
        search.master.solve(weakest.first, weakest.last)
        if weakest.bound > told + _GAIN * max(search.target - told, 0.0):
            report_bound(search.certificate())
            told, idle = weakest.bound, 0
        idle = 0 if search.choose(weakest, _NODES) else idle + 1
        if idle < _PATIENCE and (search.divide(weakest) or search.lengthen_memories()):
            continue
        if not search.choose_deeply():
            break
    if search.weakest().bound > told:
        report_bound(search.certificate())


class _Search:
    """The intervals, the columns and the best plan so far."""

    def __init__(
        self,
        shop: Shop,
        slots: Slots,
        plans: list[Sequenced],
        should_stop: Callable[[], bool],
        report_plan: Callable[[Sequenced], None],
    ) -> None:
        self._shop, self._slots = shop, slots
        self._should_stop, self._report_plan = should_stop, report_plan
        self.n, self.m = shop.time.shape
        self._pricers = [Pricer(slots, i) for i in range(self.m)]
        self._plan = min(plans, key=lambda plan: plan.value)
        self.master = Master(slots, self.n, self.m, self.target)
        for plan in plans:
            self._learn(plan)
        start = np.floor(np.full(self.m, slots.slot / self.m))
        self._intervals = [_Interval(int(slots.ready.max(initial=0)), None, np.zeros(self.n), start)]

    @property
    def target(self) -> float:
        """Ticks of the best plan's value."""
        return max(self._plan.value / self._slots.tick, 1.0)

    def weakest(self) -> _Interval:
        """The interval of the least bound, which is the bound of all plans."""
        return min(self._intervals, key=lambda interval: interval.bound)

    def _learn(self, plan: Sequenced) -> None:
        """Take a plan's sequences as columns."""
        for i in range(self.m):
            mine = np.flatnonzero(plan.machine == i)
            jobs = tuple(mine[np.argsort(plan.position[mine], kind="stable")].tolist())
            self.master.add(self._pricers[i].sequence(jobs))

    def _ask(
        self, interval: _Interval, job: Floats, end: Floats, most: int, within: float = 0.0
    ) -> tuple[float, list[list[Sequence]]] | None:
        """Price all machines; ticks proved and sequences, None when stopped. The interval keeps the best prices."""
        found, total = [], float(job.sum()) + cheapest_makespan(self._slots, interval.first, int(end.sum()))
        for pricer in self._pricers:
            priced = pricer.price(job, float(end[pricer.machine]), interval.last, most, within)
            total += priced.least
            found.append(priced.sequences)
            if self._should_stop():
                return None
        if total > interval.bound:
            interval.job, interval.end, interval.bound = job, end, total
        return total, found

    def warm_up(self) -> None:
        """Subgradient steps from prices of nothing towards the best plan's value."""
        interval, step, failed = self._intervals[0], 1.0, 0
        job, end = interval.job, interval.end
        for _ in range(_WARM):
            before = interval.bound
            answer = self._ask(interval, job, end, _FEW)
            if answer is None:
                return
            value, found = answer
            failed = 0 if value > before else failed + 1
            if failed == 5:
                step, failed = step / 1.6, 0
            missing = np.ones(self.n)
            for i, sequences in enumerate(found):
                cheapest = min(sequences, key=lambda s: s.cost + end[i] * s.end - job[list(s.jobs)].sum())
                missing -= np.bincount(np.array(cheapest.jobs, np.int64), minlength=self.n)
                for sequence in sequences:
                    self.master.add(sequence)
            if not missing.any():
                return
            job = self._whole(job + step * max(0.0, self.target - value) / (missing @ missing) * missing)

    def generate(self, interval: _Interval) -> None:
        """Column generation for an interval until its linear program is solved, it is beaten, or the search is stopped."""
        while not self._should_stop():
            point = self.master.solve(interval.first, interval.last)
            new, weight = 0, 0.8 if math.isfinite(interval.bound) else 0.0
            if point.value - interval.bound <= _CLOSE * abs(point.value):
                break
            while True:
                job, end = (
                    weight * best + (1 - weight) * own if weight else own
                    for best, own in ((interval.job, point.job), (interval.end, point.end))
                )
                answer = self._ask(interval, self._whole(job), self._whole_ends(end), _MANY)
                if answer is None:
                    return
                for i, sequences in enumerate(answer[1]):
                    for s in sequences:
                        if (
                            s.cost + point.end[i] * s.end - point.job[list(s.jobs)].sum()
                            < point.machine[i] - 1e-9 * point.value
                        ):
                            new += self.master.add(s)
                if new or not weight:
                    break
                weight = weight / 2 if weight > 0.1 else 0.0
            if not new or interval.bound >= self.target:
                break
        interval.solved = True

    def _whole(self, price: Floats) -> Floats:
        """Prices as whole ticks, not negative and small enough for exact sums."""
        return np.floor(np.clip(price, 0.0, 2.0**51 / (2 * self._slots.horizon) - self._slots.slot))

    def _whole_ends(self, price: Floats) -> Floats:
        """Prices of ends as whole ticks whose sum is at most the cost of the makespan."""
        whole = np.floor(np.maximum(price, 0.0))
        if whole.sum() > self._slots.slot:
            whole = np.floor(whole * (self._slots.slot / whole.sum()))
        return whole

    def certificate(self) -> dict[str, Any]:
        """Each interval's best prices, and the present memories, under which they prove no less than they did."""
        return {
            "kind": "machine-prices",
            "unit": self._slots.unit,
            "tick": self._slots.tick,
            "horizon": self._slots.horizon,
            "intervals": [
                {
                    "first": one.first,
                    "last": one.last,
                    "price": [int(p) for p in one.job],
                    "end_price": [int(p) for p in one.end],
                }
                for one in self._intervals
            ],
            "memory": [pricer.memory for pricer in self._pricers],
        }

    def divide(self, interval: _Interval) -> bool:
        """Cut an interval at the program's makespan when it is a mean of longer and shorter sequences; whether it was cut."""
        makespan, longest = self.master.makespan, max(s.end for s in self.master.used())
        middle = math.floor((makespan + longest) / 2)
        if longest <= makespan + 0.5 or len(self._intervals) == _INTERVALS:
            return False
        if interval.last is not None and longest > interval.last:
            return False
        k = self._intervals.index(interval)
        halves = [
            _Interval(first, last, interval.job, interval.end)
            for first, last in ((interval.first, middle), (middle + 1, interval.last))
        ]
        for half in halves:
            self._ask(half, interval.job, interval.end, _MANY)
        self._intervals[k : k + 1] = halves
        return True

    def lengthen_memories(self) -> bool:
        """Forbid what repeats jobs in the last solution; whether there was something to forbid."""
        new = {s.machine for s in self.master.used() if self._pricers[s.machine].remember(s.jobs)}
        self.master.forbid(lambda s: s.machine in new and not self._pricers[s.machine].allows(s.jobs))
        for interval in self._intervals:
            interval.solved = not new
        return bool(new)

    def choose_deeply(self) -> bool:
        """Choose in each interval that may hold a better plan, among more columns and longer; whether there was one."""
        found = False
        for interval in sorted(self._intervals, key=lambda one: one.bound):
            if interval.bound < self.target and not self._should_stop():
                answer = self._ask(interval, interval.job, interval.end, _MANY, self.target - interval.bound)
                for sequence in () if answer is None else (s for found in answer[1] for s in found):
                    self.master.add(sequence)
                self.master.solve(interval.first, interval.last)
                found = self.choose(interval, _DEEP) or found
        return found

    def choose(self, interval: _Interval, nodes: int) -> bool:
        """Whole sequences among the columns that a plan better than the best may use; whether there was such a plan."""
        chosen = self.master.choose(self.target, self.target - interval.bound, nodes, self._should_stop)
        if chosen is None:
            return False
        machine, position = np.full(self.n, -1, np.int64), np.zeros(self.n, np.int64)
        # A job that two sequences hold stays where the first of them is: without it the others are no later.
        for s in chosen:
            for place, job in enumerate(s.jobs):
                if machine[job] < 0:
                    machine[job], position[job] = s.machine, place
        if (machine < 0).any():
            return False
        plan = Sequenced(machine, position, tardiness_value(self._shop, machine, position))
        if plan.value >= self._plan.value:
            return False
        self._plan = plan
        self._learn(plan)
        self._report_plan(plan)
        return True
