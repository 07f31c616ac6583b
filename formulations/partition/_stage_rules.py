"""The options of ``maxload``, the rules they add to one device a stage and transfers by bandwidth, and their dynamic program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.partition._pipeline import Pipeline, host_links, pipeline_of
from hetopt.algorithms.stagegraph import StageGraph
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Method, Option, Outcome, Question, RunOptions
from hetopt.instance import HOST, Instance
from hetopt.solution import Solution

__all__ = [
    "IDEALS",
    "MOST_REPLICAS",
    "OPTIONS",
    "Stages",
    "asked",
    "check_question",
    "every_plan",
    "outputs",
    "plain_rules",
    "rules_asked",
    "transfer_costs",
    "unused_facts",
]

MOST_REPLICAS = 16
IDEALS = 200_000

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OPTIONS = (
    Option(
        "transfers",
        ("host", "direct"),
        "host",
        "outputs pass through host memory, once out and once in a device; or go from device to device over their links",
    ),
    Option(
        "in_flight",
        ("none", "1f1b"),
        "none",
        "the k-th stage from the end holds its tasks' `activation` k times, as one-forward-one-backward training does",
    ),
    Option("overlap", bool, False, "transfers run beside compute: a load is the larger of the two"),
    Option(
        "contiguous",
        ("ideals", "device", "none"),
        "ideals",
        "stages as a chain of ideals, convex per device, or any sets of tasks",
        aliases={"true": "ideals", "false": "none"},
    ),
    Option("passes", ("sum", "max"), "sum", "forward and backward load together, or the largest of each added up"),
    Option(
        "replicas", int, 1, "largest number of equal devices that share a stage, each taking its turn of the inputs"
    ),
    Option("batch", int, 1, "inputs between two sums of the gradients of a shared stage, in training"),
)


def asked(instance: Instance, question: Question | None) -> Mapping[str, Any]:
    """The options in force: the question's, else the instance's own."""
    own = instance.question
    return question or {option.name: option.check(own.get(option.name, option.default)) for option in OPTIONS}


def rules_asked(instance: Instance, question: Question) -> list[str]:
    """The rules in force that the plain methods do not know, in words; latency counts where links to the host have some."""
    rules = []
    if question["overlap"]:
        rules.append("overlap")
    if question["replicas"] > 1:
        rules.append("replicas")
    if question["in_flight"] != "none":
        rules.append("in_flight")
    if question["transfers"] == "direct":
        rules.append("transfers=direct")
    elif any(late.any() for late in host_links(instance)[2:]):
        rules.append("latency of links")
    return rules


def plain_rules(instance: Instance, question: Question) -> str | None:
    """Why a method of the plain rules cannot answer: rules it does not know; None when there are none."""
    rules = rules_asked(instance, question)
    return f"it does not know {', '.join(rules)}" if rules else None


def unused_facts(instance: Instance, question: Question) -> tuple[str, ...]:
    """A sentence for each fact in the file that the question, as its rules are, does not read."""
    notes = []
    if question["in_flight"] == "none" and instance.columns.activation.any():
        notes.append("the tasks' activation is not counted in memory; in_flight=1f1b counts it")
    direct = question["transfers"] == "direct"
    between = [{link.source, link.target} for link in instance.links if "*" not in (link.source, link.target)]
    if not direct and any(HOST not in ends for ends in between):
        notes.append("links between devices are not used, outputs pass through the host; transfers=direct uses them")
    if direct and any(HOST in ends for ends in between):
        notes.append("links with the host are not used with transfers=direct")
    return tuple(notes)


def check_question(question: Question) -> None:
    """Refuse numbers out of range, and combinations of rules that no method answers.

    Raises
    ------
    InputError
        In words.
    """
    replicas, batch = question["replicas"], question["batch"]
    if not 1 <= replicas <= MOST_REPLICAS:
        raise InputError(f"$.question.replicas is {replicas!r}, expected a number from 1 to {MOST_REPLICAS}")
    if not 1 <= batch < 2**53:
        raise InputError(f"$.question.batch is {batch!r}, expected a number >= 1")
    for name, there in (("replicas > 1", replicas > 1), ("in_flight=1f1b", question["in_flight"] != "none")):
        for key, answered in (("contiguous", "ideals"), ("passes", "sum"), ("transfers", "host")):
            if there and question[key] != answered:
                raise InputError(
                    f"$.question: {name} is answered with {key}={answered} only, and {key} is {question[key]!r}; "
                    f"ask for {key}={answered}, or leave {name.split()[0].split('=')[0]} out"
                )


def transfer_costs(instance: Instance) -> tuple[Floats, Floats, Ints]:
    """(s, d) seconds that each device pays to receive and to send each output that travels, and the tasks (s,) it is of."""
    into, out, late_in, late_out = host_links(instance)
    tasks = np.unique(instance.edges[:, 0]) if len(instance.edges) else np.zeros(0, np.int64)
    tasks = tasks[instance.output[tasks] > 0]
    weight = np.asarray(instance.output, np.float64)[tasks, None]
    return weight * into + late_in, weight * out + late_out, tasks


class Stages(Method):
    """Exact dynamic program over order ideals for shared stages, in-flight memory, latency and overlap."""

    name = "stages"
    title = "dynamic program over order ideals with shared stages, in-flight memory, latency, overlap"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Chains of ideals over host memory, both passes together."""
        if question["contiguous"] != "ideals":
            return "it answers contiguous=ideals only"
        if question["passes"] != "sum":
            return "it knows the sum of passes only"
        if question["transfers"] != "host":
            return "what a stage costs must not depend on the devices of the others: transfers=host only"
        return None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """The program; along one topological order, without a proof, where there are too many ideals."""
        from hetopt.algorithms.ideals import TooManyIdeals
        from hetopt.algorithms.stage_program import solve_stages

        pipeline = pipeline_of(instance, "ideals", merged=False)
        proved = True
        notes: tuple[str, ...] = ()
        try:
            answer = solve_stages(
                _problem(instance, pipeline, question, None), should_stop=control.should_stop, ideal_limit=IDEALS
            )
        except TooManyIdeals as error:
            proved, notes = False, (f"stages: not proved: {error}; one topological order was cut instead",)
            along = np.arange(pipeline.graph.n)
            answer = solve_stages(
                _problem(instance, pipeline, question, along), should_stop=control.should_stop, ideal_limit=IDEALS
            )
        if answer.stages is not None:
            control.report_plan(_solution(instance, pipeline, answer.stages))
        if proved and (answer.bound > 0 or answer.optimal) and answer.bound < math.inf:
            control.report_bound(answer.bound * (1 - 2.0**-50), "algorithm")
        if proved and answer.optimal and answer.stages is None:
            why = "the dynamic program found no chain of stages that fits the memories and the devices"
            return Outcome("infeasible", infeasible=(why,))
        notes += unused_facts(instance, question)
        return Outcome(notes=notes) if proved and answer.optimal else Outcome("limit", "other", notes=notes)


def _problem(instance: Instance, pipeline: Pipeline, question: Question, along: Ints | None) -> Any:
    """The program's input; with ``along`` the classes are a sequence."""
    from hetopt.algorithms.contraction import equal_nets
    from hetopt.algorithms.stage_program import StageProblem

    graph = pipeline.graph
    first = np.unique(pipeline.kind, return_index=True)[1]
    arrive, leave, tasks = transfer_costs(instance)
    ptr, pin, source, owner = outputs(instance, graph, tasks)
    arrive, leave = arrive[owner][:, first].T, leave[owner][:, first].T
    same = equal_nets(ptr, pin, source)
    kept = np.flatnonzero(same == np.arange(len(same)))
    number = np.zeros(len(same), np.int64)
    number[kept] = np.arange(len(kept))
    # Sums of equal nets' costs are off by an ulp an addend; taking that off keeps them lower bounds.
    less = 1 - (np.bincount(number[same], minlength=len(kept)) - 1) * 2.0**-52 if len(same) else np.zeros(0)
    arrive, leave = (
        np.array([np.bincount(number[same], row, len(kept)) * less for row in part]).reshape(len(first), len(kept))
        for part in (arrive, leave)
    )
    length = np.diff(ptr)
    pin = pin[np.repeat(same == np.arange(len(same)), length)]
    flight = question["in_flight"] == "1f1b"
    sync_byte, sync_once = _sync(instance, pipeline, question)
    activation = np.zeros(graph.n)
    if flight:
        activation = np.asarray(np.bincount(graph.member, instance.columns.activation, graph.n), np.float64)
    chained = along is not None
    return StageProblem(
        time=graph.time,
        size=graph.size,
        activation=activation,
        pred_ptr=np.concatenate([[0], np.arange(graph.n)]).astype(np.int64) if chained else graph.pred_ptr,
        pred=np.arange(graph.n - 1, dtype=np.int64) if chained else graph.pred,
        net_ptr=np.concatenate([[0], np.cumsum(length[kept])]).astype(np.int64),
        net_pin=pin,
        net_source=source[kept],
        arrive=arrive,
        leave=leave,
        count=graph.count,
        memory=graph.memory,
        sync_byte=sync_byte,
        sync_once=sync_once,
        overlap=question["overlap"],
        in_flight=flight,
    )


def outputs(instance: Instance, graph: StageGraph, tasks: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """CSR of the classes that make or use each output in more than one class, its source, and its row among ``tasks``."""
    row = np.full(instance.n_tasks, -1)
    row[tasks] = np.arange(len(tasks))
    edges = instance.edges[row[instance.edges[:, 0]] >= 0] if len(tasks) else np.zeros((0, 2), np.int64)
    pairs = np.concatenate(
        [
            np.stack([row[edges[:, 0]], graph.member[edges[:, 1]]], axis=1),
            np.stack([np.arange(len(tasks)), graph.member[tasks]], axis=1),
        ]
    )
    pairs = np.unique(pairs.reshape(-1, 2), axis=0)
    count = np.bincount(pairs[:, 0], minlength=len(tasks))
    wide = count > 1
    pairs = pairs[wide[pairs[:, 0]]]
    ptr = np.concatenate([[0], np.cumsum(count[wide])]).astype(np.int64)
    return ptr, pairs[:, 1].astype(np.int64), graph.member[tasks[wide]].astype(np.int64), np.flatnonzero(wide)


def _sync(instance: Instance, pipeline: Pipeline, question: Question) -> tuple[Floats, Floats]:
    """(t, r) seconds a byte, and seconds, that a ring all-reduce among r devices of a type takes for each input."""
    copies = min(question["replicas"], int(pipeline.graph.count.max(initial=1)))
    byte, once = np.zeros((pipeline.graph.types, copies)), np.zeros((pipeline.graph.types, copies))
    if not instance.backward.any() or copies == 1:
        return byte, once
    names = instance.device_names
    for t in range(pipeline.graph.types):
        members = np.flatnonzero(pipeline.kind == t).tolist()
        if len(members) < 2 or instance.is_host[members[0]]:
            continue
        links = [instance.need_link(names[a], names[b]) for a, b in itertools.permutations(members, 2)]
        if len({(link.bandwidth, link.latency) for link in links}) > 1:
            raise InputError(
                f"$.links: equal devices such as {names[members[0]]!r} and {names[members[1]]!r} have links of different speed "
                "among themselves, and stages that they share are priced by one speed; give them the same, or replicas=1"
            )
        r = np.arange(1, copies + 1)
        if links[0].bandwidth is not None:
            byte[t] = 2 * (r - 1) / (r * float(links[0].bandwidth) * question["batch"])
        once[t] = 2 * (r - 1) * float(links[0].latency) / question["batch"]
    return byte, once


def _solution(instance: Instance, pipeline: Pipeline, stages: tuple[tuple[Ints, int, int], ...]) -> Solution:
    placement = np.zeros(pipeline.graph.n, np.int64)
    following = np.concatenate([[0], np.cumsum(pipeline.graph.count)])[:-1].astype(np.int64)
    named = []
    for classes, t, r in stages:
        devices = pipeline.device[following[t] : following[t] + r]
        following[t] += r
        placement[classes] = devices[0]
        named.append([instance.device_names[i] for i in devices.tolist()])
    return Solution.assign(placement[pipeline.graph.member], stages=named)


def every_plan(instance: Instance, question: Question) -> Iterator[Solution]:
    """Every placement, and where stages matter every order of the devices used and every way to share them."""
    names, plain = instance.device_names, question["replicas"] == 1 and question["in_flight"] == "none"
    for placement in itertools.product(*[np.flatnonzero(row).tolist() for row in instance.eligible]):
        if plain:
            yield Solution.assign(placement)
            continue
        used = sorted(set(placement))
        free = [i for i in range(len(names)) if i not in used]
        for order in itertools.permutations(used):
            for owner in itertools.product([None, *used], repeat=len(free)):
                stages = [[names[i], *(names[k] for k, o in zip(free, owner, strict=True) if o == i)] for i in order]
                yield Solution.assign(placement, stages=stages)
