r"""Kernels on devices with memories of their own: copies beside computing, kernels split over two devices, the last end early.

Asked of a graph of data-parallel kernels (OpenCL, CUDA) on CPUs and GPUs, where copies take as long as computing and overlap with
it as far as copy engines and command queues let them.

    sets, data
    v in V, (u, v) in E   kernels; edges with b_uv bytes;  i_v, o_v  bytes from and to the host besides (``tables.kernels``)
    p in D                devices: c_p copy engines, one for each direction or one for both; Q_p kernels in flight, one a command
                          queue; S_p kernels that compute at once (``tables.engines``, ``slots``); t_vp seconds of a whole kernel
    L_p, l_p; K_p, k_p    seconds and seconds a byte from the host and to it, 0 where p works in host memory (``host``)
    w in W_v              ways: whole on p; or shares a and 1 - a on two devices, a in units of 1/``grain``
    r_v, D_v, a_p         release and deadline of the job; first second a device is free

    variables
    x_w in {0,1}          way of a kernel;    of each of its parts starts s of write, computation, read;    C  makespan

    minimise C                                                                                          (kernel-makespan)
    subject to  sum_{w in W_v} x_w = 1                                                         (1)
    lengths     write   whole: L_p + l_p (i_v + sum of b_uv over u that are not whole on p), 0 if nothing is copied
                        part of share a: L_p + a l_p (i_v + sum of all b_uv)
                read    whole: K_p + k_p (o_v + largest b_vw of a w that is not whole on p), 0 if nothing is copied
                        part of share a: K_p + a k_p (o_v + largest b_vw)                      (2)
                computation a t_vp                                                             (3)
    order       write, computation, read of a part; a computation after those of u whole on the same device; a write
                after all reads of u otherwise                                                 (4)
    at once     one copy on an engine; S_p computations; Q_p parts between their first and last stage    (5)
                C and D_v >= end of every part of v                                            (6)

A queue serves in order: it is held by a kernel from its first to its last stage. Each kernel writes what it reads into buffers of
its own, also where another on its device has written the same. Kernels that compute at once do not slow each other down.
With Q_p = 1 nothing overlaps on a device; with more, copies hide behind computing. ``lp`` is a relaxation:

    y_uvp >= x_vp - x_up                      v whole on p and u not                           (7)
    R_up >= (K_p + k_p (o_u + b_uv)) (x_up - x_vp),   R_up >= (K_p + k_p o_u) x_up             (8)
    C >= computation of a device / S_p;   C >= copies of an engine, l_p b_uv y_uvp and R_up among them   (9)
    f_v >= sum_w (begin, write and computation alone) x_w      (10);      C >= f_v             (11)
    f_v >= f_u + sum_w computation x_w + y_uvp (least read and write)                          (12)

``cpsat`` is (1)-(6). ``list`` gives kernels in order the whole device where all so far end first; ``annealing`` changes ways and
priorities from there (:mod:`hetopt.algorithms.kernel_stages`). ``paths`` is the longest way over the ways to run each kernel,
with the copies between two alone (:func:`hetopt.verify.kernels.replay_paths`).

Source: A. Ghose, S. Singh, V. Kulaharia, L. Dokara, S. Maity, S. Dey, PySchedCL, arXiv 2009.07482 (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import Any, ClassVar

import numpy as np

from formulations.schedule._kernels import deadlines_kept, kernels, listed, plan_of, ranks
from formulations.schedule._kernels_cpsat import CPSAT
from formulations.schedule._kernels_lp import LP
from hetopt.algorithms.kernel_stages import Timed, anneal, timed
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.kernels import check_kernels, facts_of, replay_paths

__all__ = ["PROBLEM", "Annealing", "KernelMakespan", "ListSchedule", "Paths"]


class ListSchedule(Method):
    """One list schedule."""

    name = "list"
    title = "kernels by their way to the end, each on the whole device where all so far end first; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan, or none where a deadline is missed."""
        found = listed(kernels(instance, question))
        return _report(instance, question, control, found)


class Annealing(Method):
    """Simulated annealing from the list schedule."""

    name = "annealing"
    title = "list schedule, then annealing over ways (devices and splits) and priorities; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Again and again while a time limit leaves time."""
        data = kernels(instance, question)
        best, attempt = listed(data), 0
        told = _report(instance, question, control, best)
        while not control.should_stop():
            found = anneal(
                data, best, ranks(data), seed=control.seed + 7919 * attempt, steps=3000 << min(attempt, 6),
                should_stop=control.should_stop, report=lambda better: _report(instance, question, control, better),
            )  # fmt: skip
            best, attempt = min(best, found, key=lambda one: one.end), attempt + 1
            if math.isinf(control.remaining) or attempt == 100:
                return _report(instance, question, control, best)
        return Outcome("limit", "time") if not control.closed else told


def _report(instance: Instance, question: Question, control: Control, found: Timed) -> Outcome:
    if math.isinf(found.end) or not deadlines_kept(instance, found):
        return Outcome(notes=("no plan found keeps the deadlines",))
    control.report_plan(plan_of(instance, kernels(instance, question), int(question["grain"]), found))
    return Outcome()


class Paths(Method):
    """The bound by paths."""

    name = "paths"
    title = "longest way over the ways to run each kernel, with its copies; replayed"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """The replay is the computation."""
        question.prove(instance, control, {"kind": "paths"})
        return Outcome()


class KernelMakespan(Problem):
    """Makespan of kernels with copies."""

    name = "schedule.kernels"
    objectives = ("kernel-makespan", "kernels")
    title = (
        "kernels with writes and reads on copy engines, command queues, kernels split over two devices; last end early"
    )
    uses = frozenset(
        {"time", "pin", "forbid", "edges", "output", "links", "release", "deadline", "available_from", "slots"}
        | {"tables.engines", "tables.kernels"}
    )
    options: ClassVar[tuple[Option, ...]] = (
        Option("grain", int, 1, "units in which a kernel may be split over two devices; 1 keeps all whole"),
    )
    methods = (CPSAT(), LP(), Paths(), ListSchedule(), Annealing())

    def fits(self, instance: Instance) -> str | None:
        """Refuse what the mathematics leaves out."""
        if (instance.group >= 0).any():
            return "it knows no groups"
        if instance.memory.sum() > instance.capacity.min():
            return "it knows no memory"
        try:
            facts_of(instance)
        except InputError as error:  # a link with the host that is missing, tables that cannot be read
            return str(error)
        return None

    def question(self, instance: Instance, given: Mapping[str, Any] | None = None) -> Question:
        """The question in force; InputError for a grain out of range."""
        question = super().question(instance, given)
        if not 1 <= question["grain"] <= 100:
            raise InputError(f"$.question.grain is {question['grain']}, expected a whole number from 1 to 100")
        return question

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Last end of the plan's own starts."""
        report = check_kernels(instance, solution.details, int(question["grain"]))
        names = ("write", "compute", "read")
        devices = {
            name: dict(zip(names, row, strict=True))
            for name, row in zip(instance.device_names, report.busy.tolist(), strict=True)
        }
        return Evaluation(float(report.end.max()), report.violations, {"devices": devices})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A deadline before the longest way of its job."""
        deadline = instance.columns.deadline
        kernels(instance, question)
        if not np.isfinite(deadline).any():
            return ()
        over = replay_paths(instance, int(question["grain"])) - deadline
        j = int(np.argmax(over))
        if over[j] > 1e-9 * deadline[j]:
            return (
                f"job {instance.columns.job_name[j]!r} cannot end before {over[j] + deadline[j]:.9g}, and its deadline is "
                f"{deadline[j]:.9g}: {over[j]:.9g} seconds short",
            )
        return ()

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays paths and linear duals."""
        if certificate.get("kind") == "paths":
            return float(replay_paths(instance, int(question["grain"])).max(initial=0.0))
        return super().replay(instance, question, certificate)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """A list schedule, bounds, a search, then what is exact."""
        steps = [Step("list", "a plan at once", 0.1), Step("paths", "a bound at once", 0.2)]
        if self.method("lp").fits(instance, question) is None:
            steps.append(Step("lp", "a bound by loads", 0.2))
        steps.append(Step("annealing", "better plans soon", 0.2))
        if self.method("cpsat").fits(instance, question) is None:
            steps.append(Step("cpsat", "exact, starts from the best plan"))
        return steps

    def sample(self, seed: int) -> Instance:
        """Up to three kernels (two where they may be split) on one or two devices with engines and queues that bind."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 3 if seed % 3 == 0 else 4)), 2 if seed % 3 == 0 else int(rng.integers(1, 3))
        devices = [
            Device(
                name=f"d{i}", host=i == 0 and seed % 2 == 0, available_from=int(rng.integers(0, 3)),
                slots=2 if seed % 4 == 1 else 1,
            )
            for i in range(d)
        ]  # fmt: skip
        times = 2 * rng.integers(0, 7, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.15) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        tasks = [
            Task(
                name=f"k{v}",
                time=[None if np.isinf(t) else int(t) for t in times[v]],
                output=4 * int(rng.integers(0, 4)),
            )
            for v in range(n)
        ]
        edges = [
            Edge(source=f"k{a}", target=f"k{b}") for a in range(n) for b in range(n) if a < b and rng.random() < 0.5
        ]
        links = [
            Link(source="host", target="*", bandwidth=2, latency=int(rng.integers(0, 3))),
            Link(source="*", target="host", bandwidth=1, latency=int(rng.integers(0, 2))),
        ]
        tables: dict[str, Any] = {}
        if seed % 5:
            tables["engines"] = {"*": {"copy": 1 + seed % 2, "queues": 1 + int(rng.integers(0, 2))}}
            tables["kernels"] = {f"k{n - 1}": {"in": 4 * int(rng.integers(0, 3)), "out": 4 * int(rng.integers(0, 3))}}
        grain = 2 if seed % 3 == 0 else 1
        deadline = int(rng.integers(8, 40)) if seed % 4 == 3 else None
        job = Job(name="j", tasks=tasks, edges=edges, release=int(rng.integers(0, 2)), deadline=deadline)
        return Instance.build(
            devices, [job], links, tables=tables, question={"objective": self.objectives[0], "grain": grain}
        )

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All ways, their stages timed in every order."""
        data, n = kernels(instance, question), instance.n_tasks
        for ways in product(*(range(data.first[v], data.first[v + 1]) for v in range(n))):
            way = np.array(ways, np.int64)
            seen: set[bytes] = set()
            parts = [2 * v + k for v, w in enumerate(ways) for k in range(2) if k == 0 or data.two[w] >= 0]
            for order in _orders(parts):
                key = np.zeros((2 * n, 3))
                for place, (part, stage) in enumerate(order):
                    key[part, stage] = place
                found = timed(data, way, key, False)
                if math.isinf(found.end) or found.start.tobytes() in seen:
                    continue
                seen.add(found.start.tobytes())
                yield plan_of(instance, data, int(question["grain"]), found)


def _orders(parts: list[int]) -> Iterator[list[tuple[int, int]]]:
    """Interleavings of the three stages of parts: all of them for up to three parts, else writes before the rest."""
    if len(parts) > 3:
        for few, rest in product(permutations(parts), permutations(parts)):
            yield [(p, 0) for p in few] + [(p, s) for p in rest for s in (1, 2)]
        return
    begun: list[tuple[list[tuple[int, int]], dict[int, int]]] = [([], dict.fromkeys(parts, 0))]
    while begun:
        told, count = begun.pop()
        if len(told) == 3 * len(parts):
            yield told
        begun += [([*told, (p, count[p])], {**count, p: count[p] + 1}) for p in parts if count[p] < 3]


PROBLEM = KernelMakespan()
