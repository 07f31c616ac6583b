"""Several subgraphs an accelerator: the question with as many accelerators as subgraphs, and its plans packed.

With q subgraphs an accelerator, let each subgraph have an accelerator of its own. That is a relaxation (memory is shared no
longer, nothing waits for its turn), and one subgraph an accelerator, so that label search is exact for it. A plan of it is one
of the true question once its subgraphs are packed: at most q on an accelerator, within its memory, one after the other. When
packing costs nothing, the plan is proved optimal. Where memory is short, accelerators with less room each are tried too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from formulations.partition._latency_climb import climb, stopped
from formulations.partition._latency_methods import accelerators_alike, graphs_of, relaxed_tasks, tasks_of
from formulations.partition._latency_plans import evaluate, with_numbers
from formulations.partition._pipeline import rates
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.verify.latency import check_latency

if TYPE_CHECKING:
    from hetopt.algorithms.latency_graph import LatencyGraph, Sinks

__all__ = ["Packed"]

_ROOMS = (1.0, 0.8, 0.65, 0.5)  # of an accelerator's memory, for a subgraph; 1 / q is tried last
_SHARE = 0.3  # of the time, for plans after the bound

Ints = NDArray[np.int64]


class Packed(Method):
    """Label search with an accelerator for each subgraph, plans packed onto the real ones."""

    name = "packed"
    title = "label search with an accelerator for each subgraph: a bound, and plans packed onto the accelerators"
    kind = "search"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Several subgraphs, accelerators alike."""
        if question["subgraphs"] == 1:
            return "it is for more than one subgraph"
        return accelerators_alike(instance)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """The relaxation, exactly, in most of the time; then plans with less room for a subgraph, by a beam."""
        from hetopt.algorithms.ideals import TooManyIdeals

        outcome = Outcome("limit", "other")
        until = control.remaining * _SHARE
        for sinks in ("own", "light"):
            try:
                outcome = self._relaxed(instance, question, control, sinks, until)
                break
            except TooManyIdeals as error:
                outcome = Outcome("limit", "other", notes=(f"packed: {error}",))
        most = int(question["subgraphs"])
        if not outcome.infeasible and not control.should_stop():
            try:
                _plans(
                    instance, question, control, sorted({1 / most, *(r for r in _ROOMS if r > 1 / most)}, reverse=True)
                )
            except TooManyIdeals as error:
                return Outcome("limit", "other", notes=(*outcome.notes, f"packed: no plans, {error}"))
        return outcome

    def _relaxed(self, instance: Instance, question: Question, control: Control, sinks: Sinks, until: float) -> Outcome:
        from hetopt.algorithms.latency_graph import NEVER, build

        graph = build(relaxed_tasks(instance, question), [], (), sinks)
        if graph is None:
            return Outcome("infeasible", infeasible=("some task runs nowhere",))

        def take(graph: LatencyGraph, place: Ints) -> None:
            _pack(instance, question, control, graph, place)

        cap = NEVER if control.value is None else math.floor(control.value / graph.unit) + 1
        done = climb([graph], control, cap, take, bounds=True, until=until)
        if done.note:
            return Outcome("limit", "other", notes=(f"packed: {done.note}",))
        if done.finished and done.best >= NEVER:
            return Outcome("infeasible", infeasible=("label search ruled out every plan that fits the memories",))
        return Outcome("limit", "other", statistics={"labels": done.labels, "ideals": done.ideals})


def _plans(instance: Instance, question: Question, control: Control, rooms: list[float]) -> None:
    """Pack the beam's plans of graphs whose accelerators have some of the room; groups are one node each, as they may be."""
    from formulations.partition._latency_climb import lattice_of_graph
    from hetopt.algorithms.latency_barrier import barriers
    from hetopt.algorithms.latency_graph import NEVER
    from hetopt.algorithms.latency_labels import search_labels
    from hetopt.algorithms.latency_lattice import cuts

    tasks, _, _ = tasks_of(instance)
    most = int(question["subgraphs"])

    def late() -> bool:
        return stopped(control)

    for room in rooms:
        many = tasks._replace(count=min(tasks.count * most, instance.n_tasks), room=tasks.room * room)
        for _, graph in zip(range(2), graphs_of(many, "heavy"), strict=False):
            lattice = lattice_of_graph(graph, control)
            cap = NEVER if control.value is None else math.floor(control.value / graph.unit) + 1
            known = lattice and barriers(graph, lattice, cap, late)
            if late() or not lattice or not known:
                return
            if known.reached[-1, -1] < cap:
                answer = search_labels(graph, lattice, known, cuts(graph), cap, beam=2, should_stop=late)
                if answer.place is not None:
                    _pack(instance, question, control, graph, answer.place)
        if not math.isfinite(tasks.room):
            return


def _pack(instance: Instance, question: Question, control: Control, graph: LatencyGraph, place: Ints) -> None:
    """Report the plan of ``place`` (-1 the host, else a subgraph, in order of start) with its subgraphs packed in some ways."""
    tasks, accelerators, hosts = tasks_of(instance)
    if not accelerators:
        return
    most = int(question["subgraphs"])
    where = np.append(place, -1)[graph.member]
    count = int(where.max(initial=-1)) + 1
    into, out = rates(instance)
    home = np.array([*hosts, 0])[graph.home]
    report = check_latency(
        np.column_stack([*[tasks.acc] * count, tasks.host]),
        tasks.size,
        tasks.edges,
        instance.output,
        np.full(count + len(hosts), np.inf),
        [False] * count + [True] * len(hosts),
        [into[accelerators[0]]] * count + [0.0] * len(hosts),
        [out[accelerators[0]]] * count + [0.0] * len(hosts),
        np.where(where >= 0, where, count + np.maximum(graph.home, 0)),
    )
    start, end, held = np.zeros(count), np.zeros(count), np.zeros(count)
    for d, _, begin, finish, _ in report.runs:
        start[d], end[d] = begin, finish
    np.add.at(held, where[where >= 0], tasks.size[where >= 0])
    for order in (np.arange(count), np.argsort(-held, kind="stable")):
        for apart in (True, False):
            bins = _bins(order, start, end, held, len(accelerators), most, tasks.room, apart)
            if bins is None:
                continue
            number = np.zeros(count, np.int64)
            for d in range(len(accelerators)):
                mine = np.flatnonzero(bins == d)
                number[mine] = 1 + np.arange(len(mine))
            on = where >= 0
            placement = np.where(on, np.array([*accelerators, 0])[np.append(bins, 0)[where]], home)
            plan = with_numbers(instance, question, placement, np.where(on, np.append(number, 1)[where], 1))
            if not evaluate(instance, question, plan).violations:
                control.report_plan(plan)


def _bins(
    order: Ints,
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    held: NDArray[np.float64],
    count: int,
    most: int,
    room: float,
    apart: bool,
) -> Ints | None:
    """(subgraphs,) accelerator of each: the emptiest that has room, of those it does not overlap on first; None if none has.

    ``apart``: subgraphs that overlap in time never share.
    """
    bins = np.full(len(order), -1)
    for k in order.tolist():
        options = []
        for d in range(count):
            mine = bins == d
            free = room - held[mine].sum() - held[k]
            overlap = bool((mine & (start < end[k]) & (end > start[k])).any())
            if mine.sum() < most and free >= 0 and not (apart and overlap):
                options.append((overlap, -free, d))
        if not options:
            return None
        bins[k] = min(options)[2]
    return bins
