"""Inference latency: a model's graph over devices, one input through it as soon as possible.

One input runs through the model. A host device (a CPU) runs each of its tasks as soon as the task's inputs are ready, any
number at a time. An accelerator runs its tasks as a few convex *subgraphs*, one after the other: a subgraph starts when all
its inputs are there, and hands on all its outputs at its end. Transfers go through host memory: a subgraph pays for each
output it reads from outside and for each of its outputs that is read outside, once; a host pays nothing.

Sets and data
    v in V      tasks; a ``group`` of tasks shares a device; all tasks count, forward and backward alike
    i in D      devices, hosts H among them; a host has no memory limit
    p_vi        seconds of task v on device i, absent where it cannot run
    s_v, M_i    bytes task v needs, bytes accelerator i has for all its subgraphs together
    w_v         bytes of the task's output; a_i, b_i seconds per byte accelerator i receives and sends
    q           subgraphs an accelerator may have (option ``subgraphs``)

Variables of ``cpsat``
    y_vi in {0, 1}              task v is on device i, the same for a whole group
    x_vik in {0, 1}             task v is in subgraph k = 1..q of accelerator i
    in_uik, out_uik in {0, 1}   the subgraph reads the output of u from outside, hands on the output of u
    S_ik, E_ik, R_v, L >= 0     start and end of a subgraph, moment task v is ready, latency
    n_v, n_ik                   an order of tasks and subgraphs

Minimise L subject to

    sum_i y_vi = 1                                                    for each task                           (1)
    sum_k x_vik = y_vi                                                for each task, accelerator              (2)
    R_v >= p_vi,  R_v >= R_u + p_vi       if y_vi                     for each edge u -> v, host              (3)
    in_uik >= x_vik - x_uik                                           for each edge u -> v, subgraph          (4)
    out_uik >= x_uik - x_vik                                          for each edge u -> v, subgraph          (5)
    S_ik >= R_u if in_uik,
    E_ik >= S_ik + sum_v p_vi x_vik + a_i sum_u w_u in_uik + b_i sum_u w_u out_uik     for each subgraph      (6)
    R_v >= E_ik if x_vik,  S_i,k+1 >= E_ik,  L >= R_v                                                         (7)
    sum_v s_v y_vi <= M_i                                             for each accelerator                    (8)
    n_v > n_u on a host, n_ik > n_u if in_uik, n_v = n_ik if x_vik    for each edge u -> v, subgraph          (9)

(9) keeps apart what (6) cannot when it takes no time: subgraphs that wait for each other. It implies convexity.

A plan is a placement and, when q > 1, ``details["subgraphs"]``: the number (from 1, in the order they run) of the subgraph
of each task on an accelerator; 1 for a task it leaves out.

Sources: J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, Efficient algorithms for device placement
of DNN graph operators, NeurIPS 2020: the question and its integer program. ``labels`` and ``barrier`` are described in
:mod:`hetopt.algorithms.latency_labels` and :mod:`hetopt.algorithms.latency_barrier`; ``packed`` gives each of several subgraphs
an accelerator of its own for the bound, and packs the plans.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from formulations._jobs import jobs_of, shortfalls
from formulations.partition._latency_cpsat import CPSAT
from formulations.partition._latency_methods import Barrier, Beam, CriticalPath, Labels, Segments
from formulations.partition._latency_packed import Packed
from formulations.partition._latency_plans import alike, evaluate
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, Option, Problem, Question, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution

__all__ = ["PROBLEM", "Latency"]


class _Subgraphs(Option):
    """A whole number of at least 1."""

    def check(self, value: Any) -> Any:
        """``value`` as an int from 1 to 1000."""
        number = super().check(value)
        if not 1 <= number <= 1000:
            raise InputError(f"$.question.subgraphs is {number}, expected a number from 1 to 1000")
        return number


class Latency(Problem):
    """Least time in which one input runs through a model's graph."""

    name = "partition.latency"
    objectives = ("inference-latency", "latency")
    title = "a model's graph over accelerators and CPUs, one input through it as soon as possible"
    uses = frozenset({"time", "memory", "group", "pin", "forbid", "edges", "output", "links", "backward"})
    options = (_Subgraphs("subgraphs", int, 1, "convex subgraphs an accelerator may run, one after the other"),)
    methods = (Labels(), Packed(), CPSAT(), Barrier(), CriticalPath(), Segments(), Beam())

    def fits(self, instance: Instance) -> str | None:
        """One graph; outputs travel as a whole; hosts have no memory limit."""
        if len(instance.edges) and not np.isnan(instance.columns.edge_data).all():
            return "an edge carries `data` of its own, and this question counts each task's `output`, once a subgraph"
        limited = instance.is_host & np.isfinite(instance.capacity)
        if limited.any():
            name = instance.device_names[int(np.argmax(limited))]
            return f"the host {name!r} has a memory limit, and in this question hosts have none"
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Moment the last task is ready, recomputed task by task; order, memory, groups, eligibility checked."""
        if solution.placement is None:
            return Evaluation(math.inf, ("the plan has no placement",))
        report = evaluate(instance, question, solution)
        runs = [
            {"device": instance.device_names[d], "subgraph": k, "start": start, "end": end, "load": load}
            for d, k, start, end, load in report.runs
        ]
        memory = dict(zip(instance.device_names, report.memory, strict=True))
        return Evaluation(float(report.value), report.violations, {"runs": runs, "memory": memory})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A group that no device can take, a class larger than every device it can run on, more bytes than there are."""
        return shortfalls(instance, jobs_of(instance))

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Labels where they are exact; otherwise bounds and quick plans, then CP-SAT."""
        exact = self.method("labels").fits(instance, question) is None
        quick = Step("segments", "a valid plan at once", share=0.2)
        first = Step("critical-path", "a bound at once")
        if exact:
            return (quick, first, Step("labels", "exact for one subgraph an accelerator, on the lattice of ideals"))
        steps = [quick, first]
        if self.method("packed").fits(instance, question) is None:
            why = "a bound and plans, with an accelerator for each subgraph"
            steps.append(Step("packed", why, share=0.7))
        else:
            steps += [Step("beam", "a better plan", share=0.3), Step("barrier", "a stronger bound", share=0.3)]
        steps.append(Step("cpsat", "exact, starts from the best plan"))
        return [s for s in steps if self.method(s.method).fits(instance, question) is None]

    def sample(self, seed: int) -> Instance:
        """Up to six tasks on up to three devices; groups, memory, tasks that cannot run everywhere, two subgraphs."""
        rng = np.random.default_rng(seed)
        twice = seed % 3 == 1
        n = int(rng.integers(2, 6 if twice else 7))
        accelerators, hosts = int(rng.integers(1, 3)), int(rng.integers(0, 2))
        memory = int(rng.integers(8, 30)) if rng.random() < 0.5 else None
        devices = [Device(name=f"acc{k}", type="acc", memory=memory) for k in range(accelerators)]
        devices += [Device(name=f"cpu{k}", type="cpu", host=True) for k in range(hosts)]
        ratio = int(rng.integers(2, 6))
        tasks, edges = [], []
        for v in range(n):
            fast = int(rng.integers(0, 12))
            own: dict[str, int | float | None] = {"acc": fast, "cpu": fast * ratio} if hosts else {"acc": fast}
            if hosts and rng.random() < 0.2:
                own["acc" if rng.random() < 0.5 else "cpu"] = None
            tasks.append(
                Task(
                    name=f"t{v}",
                    time=own,
                    memory=int(rng.integers(0, 8)),
                    output=int(rng.integers(0, 6)),
                    group="g" if rng.random() < 0.2 else None,
                )
            )
        for u in range(n):
            edges += [Edge(source=f"t{u}", target=f"t{v}") for v in range(u + 1, n) if rng.random() < 0.4]
        links = [Link(source="acc", target="host", bandwidth=1, both=True)]
        question = {"objective": self.name, **({"subgraphs": 2} if twice else {})}
        return Instance.build(devices, [Job(name="model", tasks=tasks, edges=edges)], links, question=question)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Every placement, with every numbering of subgraphs; equal accelerators are used in order."""
        most = int(question["subgraphs"])
        kinds = alike(instance)
        options = [
            [(d, k) for d in np.flatnonzero(row).tolist() for k in range(1, 2 if instance.is_host[d] else most + 1)]
            for row in instance.eligible
        ]
        for plan in itertools.product(*options):
            used = list(dict.fromkeys(d for d, _ in plan))
            if any([d for d in used if d in kind] != kind[: sum(d in kind for d in used)] for kind in kinds):
                continue
            named = {label: k for label, (d, k) in zip(instance.labels, plan, strict=True) if not instance.is_host[d]}
            yield Solution.assign([d for d, _ in plan], **({"subgraphs": named} if most > 1 else {}))


PROBLEM = Latency()
