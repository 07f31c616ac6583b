"""The greedy sharders that practice compares with: by size, dimension, lookups, both; in turn; at random. No guarantees."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solution import Solution

__all__ = ["SHARDERS"]


class _Greedy(Method):
    """Tables by falling measure, each where the measure's sum is least among the devices with room."""

    kind = "heuristic"

    @abstractmethod
    def measure(self, instance: Instance, question: Question) -> NDArray[np.float64]:
        """(n,) what is balanced."""

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Some table has the measure."""
        return None if self.measure(instance, question).any() else f"no table says what {self.name} balances"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass; no plan when a table is left without room."""
        measure, d = self.measure(instance, question), instance.n_devices
        sums = np.zeros(d)

        def prefer(_: int) -> NDArray[np.int64]:
            return np.argsort(sums, kind="stable")

        def took(j: int, g: int) -> None:
            sums[g] += measure[j]

        return _place(instance, control, np.argsort(-measure, kind="stable"), prefer, took)


class BySize(_Greedy):
    """Bytes of the tables."""

    name = "by-size"
    title = "greedy sharder by bytes; no guarantee"

    def measure(self, instance: Instance, question: Question) -> NDArray[np.float64]:
        """b_j."""
        return instance.memory


class ByDimension(_Greedy):
    """Bytes of the pooled vectors, which go with the dimension."""

    name = "by-dimension"
    title = "greedy sharder by dimension (output bytes); no guarantee"

    def measure(self, instance: Instance, question: Question) -> NDArray[np.float64]:
        """o_j."""
        return instance.output


class ByLookup(_Greedy):
    """Bytes that lookups gather."""

    name = "by-lookup"
    title = "greedy sharder by bytes that lookups gather (activation); no guarantee"

    def measure(self, instance: Instance, question: Question) -> NDArray[np.float64]:
        """l_j."""
        return instance.columns.activation


class BySizeLookup(_Greedy):
    """Bytes that lookups gather times the magnitude of the number of rows."""

    name = "by-size-lookup"
    title = "greedy sharder by lookups times log10(rows); no guarantee"

    def measure(self, instance: Instance, question: Question) -> NDArray[np.float64]:
        """l_j log10(rows); at least 10 rows are counted, and bytes for rows where a table has no output."""
        row = np.where(instance.output > 0, instance.output / max(1, question["batch"]), 1.0)
        measure: NDArray[np.float64] = instance.columns.activation * np.log10(np.maximum(instance.memory / row, 10.0))
        return measure


class RoundRobin(Method):
    """Table j on device j mod d, or the next with room."""

    name = "round-robin"
    title = "tables in turn, the next device when there is no room; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass."""
        d = instance.n_devices

        def prefer(j: int) -> NDArray[np.int64]:
            return (j + np.arange(d)) % d

        return _place(instance, control, np.arange(instance.n_tasks), prefer)


class Random(Method):
    """Each table on a device drawn from those with room."""

    name = "random"
    title = "each table on a random device with room; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass with the run's seed."""
        draw = np.random.default_rng(control.seed)

        def prefer(_: int) -> NDArray[np.int64]:
            return draw.permutation(instance.n_devices)

        return _place(instance, control, np.arange(instance.n_tasks), prefer)


def _place(instance: Instance, control: Control, order, prefer, took=lambda j, g: None) -> Outcome:  # type: ignore[no-untyped-def]
    """Place tables in ``order``, each on the first device of ``prefer(j)`` that has room; report the plan if all have one."""
    free = instance.capacity.copy()
    left = np.array([np.inf if v.max_tasks is None else v.max_tasks for v in instance.devices])
    placement = np.full(instance.n_tasks, -1, np.int64)
    for j in order.tolist():
        able = instance.eligible[j] & (instance.memory[j] <= free) & (left >= 1)
        where = next((g for g in prefer(j).tolist() if able[g]), None)
        if where is None:
            return Outcome(notes=(f"{control.method}: no device has room for {instance.labels[j]!r}",))
        placement[j] = where
        free[where] -= instance.memory[j]
        left[where] -= 1
        took(j, where)
    control.report_plan(Solution.assign(placement))
    return Outcome()


SHARDERS = (BySize(), ByDimension(), ByLookup(), BySizeLookup(), RoundRobin(), Random())
