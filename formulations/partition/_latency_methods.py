"""Methods of inference latency that need no solver: label search, barrier and critical-path bounds, segments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from formulations.partition._latency_climb import climb, lattice_of_graph, stopped
from formulations.partition._latency_plans import alike, evaluate, with_numbers
from formulations.partition._pipeline import rates
from hetopt.control import Control
from hetopt.formulation import Method, Outcome, Question, RunOptions
from hetopt.instance import Instance
from hetopt.solution import Solution

if TYPE_CHECKING:
    from hetopt.algorithms.latency_graph import LatencyGraph, LatencyTasks, Sinks

__all__ = [
    "Barrier",
    "Beam",
    "CriticalPath",
    "Labels",
    "Segments",
    "accelerators_alike",
    "graphs_of",
    "relaxed_tasks",
    "tasks_of",
]

_CHOICES = 64  # combinations of places of awkward groups
_EXTENSIONS = 8
_BEAM = 3  # labels of an ideal


@lru_cache(maxsize=2)
def tasks_of(instance: Instance) -> tuple[LatencyTasks, list[int], list[int]]:
    """Tasks on equal accelerators, with the accelerators, and the host that stands for each column of host times."""
    from hetopt.algorithms.latency_graph import LatencyTasks

    into, out = rates(instance)
    accelerators = np.flatnonzero(~instance.is_host).tolist()
    columns: dict[bytes, int] = {}
    for d in np.flatnonzero(instance.is_host).tolist():
        columns.setdefault(instance.time[:, d].tobytes(), d)
    hosts = list(columns.values())
    first = accelerators[0] if accelerators else -1
    tasks = LatencyTasks(
        acc=instance.time[:, first] if accelerators else np.full(instance.n_tasks, np.inf),
        host=instance.time[:, hosts].reshape(instance.n_tasks, len(hosts)),
        size=instance.memory,
        arrive=instance.output * into[first] if accelerators else np.zeros(instance.n_tasks),
        send=instance.output * out[first] if accelerators else np.zeros(instance.n_tasks),
        edges=instance.edges,
        group=instance.group,
        count=len(accelerators),
        room=float(instance.capacity[first]) if accelerators else math.inf,
    )
    return tasks, accelerators, hosts


def relaxed_tasks(instance: Instance, question: Question) -> LatencyTasks:
    """Every accelerator as good as the best in each respect, each subgraph on one of its own.

    Of groups remains what costs nothing: a task that takes no time and reads nothing from outside its group goes where its
    only reader goes, into the same subgraph. There its bytes count no less and its output need not move.
    """
    tasks, accelerators, _ = tasks_of(instance)
    if not accelerators:
        return tasks._replace(group=np.full(instance.n_tasks, -1))
    into, out = rates(instance)
    tasks = tasks._replace(
        acc=instance.time[:, accelerators].min(axis=1),
        arrive=instance.output * into[accelerators].min(),
        send=instance.output * out[accelerators].min(),
        count=min(len(accelerators) * int(question["subgraphs"]), instance.n_tasks),
        room=float(instance.capacity[accelerators].max()),
    )
    return tasks._replace(group=_followers(tasks))


def _followers(tasks: LatencyTasks) -> np.ndarray:  # type: ignore[type-arg]
    """(n,) the reader that a task of no time follows for nothing, the reader's own number for itself; -1 for the others."""
    n, group = len(tasks.acc), tasks.group.tolist()
    before: list[list[int]] = [[] for _ in range(n)]
    after: list[list[int]] = [[] for _ in range(n)]
    for u, v in tasks.edges.tolist():
        before[v].append(u)
        after[u].append(v)
    missing = [len(b) for b in before]
    order = [v for v in range(n) if not missing[v]]
    for v in order:
        for w in after[v]:
            missing[w] -= 1
            if not missing[w]:
                order.append(w)
    idle = (tasks.acc == 0) & (tasks.host == 0).all(axis=1)
    follows = [False] * n
    for v in order:
        follows[v] = bool(idle[v]) and group[v] >= 0 and all(group[u] == group[v] and follows[u] for u in before[v])
    leader = list(range(n))
    for v in reversed(order):
        readers = {leader[w] for w in after[v]}
        if follows[v] and len(readers) == 1 and all(group[w] == group[v] for w in after[v]):
            leader[v] = readers.pop()
    led = np.array(leader, np.int64)
    return np.where(np.bincount(led, minlength=n)[led] > 1, led, -1)


def _solution(instance: Instance, question: Question, graph: LatencyGraph, place: np.ndarray) -> Solution:  # type: ignore[type-arg]
    """Plan of the tasks from the place of each node."""
    _, accelerators, hosts = tasks_of(instance)
    where = np.append(place, -1)[graph.member]
    device = np.array([*accelerators, 0])
    home = np.array([*hosts, 0])
    return with_numbers(instance, question, np.where(where >= 0, device[where], home[graph.home]))


def graphs_of(tasks: LatencyTasks, sinks: Sinks = "own") -> Iterator[LatencyGraph]:
    """A graph for each choice of the awkward groups' places."""
    from hetopt.algorithms.latency_graph import awkward_groups, build, choices

    awkward = awkward_groups(tasks)
    for places in choices(tasks, awkward):
        graph = build(tasks, awkward, places, sinks)
        if graph is not None:
            yield graph


def accelerators_alike(instance: Instance) -> str | None:
    """None when they are, else what to say of a method that needs it."""
    return "its accelerators must be alike" if len(alike(instance)) > 1 else None


class Labels(Method):
    """Exact label search on the ideal lattice, one subgraph an accelerator."""

    name = "labels"
    title = "label search on the lattice of ideals, exact for one subgraph an accelerator"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """One subgraph, accelerators alike, few groups that a host cannot run as one task."""
        if question["subgraphs"] != 1:
            return "it is for subgraphs=1"
        if accelerators_alike(instance):
            return accelerators_alike(instance)
        from hetopt.algorithms.latency_graph import awkward_groups, choices

        tasks, _, _ = tasks_of(instance)
        many = sum(1 for _, _ in zip(range(_CHOICES + 1), choices(tasks, awkward_groups(tasks)), strict=False))
        if many > _CHOICES:
            return f"groups that act on a host as more than one task can be placed in more than {_CHOICES} ways"
        return None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Search below ascending targets, with each combination of awkward groups' places."""
        from hetopt.algorithms.ideals import TooManyIdeals

        try:
            return self._exact(instance, question, control, ("own",))
        except TooManyIdeals as error:
            note = str(error)
        try:
            outcome = self._exact(instance, question, control, ("heavy", "light"))
        except TooManyIdeals as error:
            return Outcome("limit", "other", notes=(f"labels: {error}",))
        return outcome if outcome.reason != "limit" else Outcome("limit", "other", notes=(f"labels: {note}",))

    def _exact(self, instance: Instance, question: Question, control: Control, variants: tuple[Sinks, ...]) -> Outcome:
        from hetopt.algorithms.latency_graph import NEVER

        ended = Outcome("limit", "other")
        for sinks in variants:
            relaxes = sinks != "heavy"

            def take(graph: LatencyGraph, place: np.ndarray, sinks: Sinks = sinks) -> None:  # type: ignore[type-arg]
                if sinks != "light":
                    control.report_plan(_solution(instance, question, graph, place))

            graphs = list(graphs_of(tasks_of(instance)[0], sinks))
            if not graphs:
                return Outcome("infeasible", infeasible=("some group of tasks runs nowhere together",))
            best = NEVER if control.value is None else math.floor(control.value / graphs[0].unit) + 1
            done = climb(graphs, control, best, take, bounds=relaxes)
            if not done.finished:
                return Outcome("limit", "other", notes=(f"labels: {done.note}",)) if done.note else Outcome("limit")
            ended = Outcome(statistics={"labels": done.labels, "ideals": done.ideals})
            if relaxes and done.best >= NEVER:
                return Outcome("infeasible", infeasible=("label search ruled out every plan that fits the memories",))
        return ended


class Beam(Method):
    """Label search that keeps few labels; plans only, of one subgraph an accelerator, valid where more are allowed."""

    name = "beam"
    title = "label search with few labels an ideal, for a plan of one subgraph an accelerator"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Accelerators alike."""
        return accelerators_alike(instance)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """For each of the first choices of awkward groups' places whose ideals can be listed."""
        from hetopt.algorithms.ideals import TooManyIdeals
        from hetopt.algorithms.latency_barrier import barriers
        from hetopt.algorithms.latency_graph import NEVER
        from hetopt.algorithms.latency_labels import search_labels
        from hetopt.algorithms.latency_lattice import cuts

        for _, graph in zip(range(4), graphs_of(tasks_of(instance)[0], "heavy"), strict=False):
            cap = NEVER if control.value is None else math.floor(control.value / graph.unit) + 1
            try:
                lattice = lattice_of_graph(graph, control)
            except TooManyIdeals as error:
                return Outcome(notes=(f"beam: {error}",))
            known = lattice and barriers(graph, lattice, cap, lambda: stopped(control))
            if not lattice or not known:
                return Outcome("limit")
            answer = search_labels(
                graph, lattice, known, cuts(graph), cap, beam=_BEAM, should_stop=lambda: stopped(control)
            )
            if answer.place is not None:
                plan = _solution(instance, question, graph, answer.place)
                if not evaluate(instance, question, plan).violations:
                    control.report_plan(plan)
        return Outcome()


class Barrier(Method):
    """Barrier relaxation, for any number of subgraphs and any accelerators."""

    name = "barrier"
    title = "barrier relaxation on the lattice of ideals: exact at cut nodes, longest paths between them"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Bound from the graph without groups; where it has too many ideals, the critical path."""
        from hetopt.algorithms.ideals import TooManyIdeals
        from hetopt.algorithms.latency_barrier import barriers
        from hetopt.algorithms.latency_graph import NEVER, build

        _critical_path(instance, question, control)
        tasks = relaxed_tasks(instance, question)
        graph = build(tasks, [], ())
        light = build(tasks, [], (), "light")
        for one in (graph, light):
            if one is None:
                continue
            try:
                lattice = lattice_of_graph(one, control)
            except TooManyIdeals:
                continue
            known = lattice and barriers(one, lattice, NEVER, lambda: stopped(control), backward=False)
            if not known:
                return Outcome("limit")
            if known.reached[-1, -1] < NEVER:
                control.report_bound(one.seconds(max(int(known.reached[-1, -1]), int(one.floor[0]))), "algorithm")
            return Outcome()
        return Outcome(notes=("barrier: too many ideals, so only the critical path bounds the latency",))


class CriticalPath(Method):
    """Longest path with each task at its fastest."""

    name = "critical-path"
    title = "longest path with each task on its fastest device"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Report it."""
        _critical_path(instance, question, control)
        return Outcome()


def _critical_path(instance: Instance, question: Question, control: Control) -> None:
    from hetopt.algorithms.latency_graph import build
    from hetopt.algorithms.latency_lattice import tails

    graph = build(relaxed_tasks(instance, question), [], ())
    if graph is not None:
        longest = max(int((graph.release + tails(graph)).max(initial=0)), int(graph.floor[0]))
        control.report_bound(graph.seconds(longest), "algorithm")


class Segments(Method):
    """Best splits of a few linear extensions."""

    name = "segments"
    title = "best split of linear extensions into segments one after the other"
    kind = "heuristic"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Accelerators alike."""
        return accelerators_alike(instance)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """A natural extension and some random ones, for each of the first choices of awkward groups' places."""
        from hetopt.algorithms.latency_graph import linear_extension
        from hetopt.algorithms.latency_segments import best_segments

        rng = np.random.default_rng(control.seed)
        for turn in range(_EXTENSIONS):
            for _, graph in zip(range(4), graphs_of(tasks_of(instance)[0], "heavy"), strict=False):
                order = linear_extension(graph, rng if turn else None)
                found = best_segments(graph, order, lambda: stopped(control))
                if found is not None:
                    plan = _solution(instance, question, graph, found[1])
                    if not evaluate(instance, question, plan).violations:
                        control.report_plan(plan)
                if stopped(control):
                    return Outcome("limit")
        return Outcome()
