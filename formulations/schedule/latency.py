r"""R|prec, c_pq, r_v|Cmax: task graphs on unrelated devices with transfers, the last task done as early as possible.

Asked of a model or a workflow for which one pass shall end soonest: which task on which device, and when.

    sets, data
    v in V            tasks of all jobs;  E edges (u, v) with b_uv bytes (their own, or the output of u)
    p, q in D         devices, one task at a time;  t_vp seconds of v on p, absent where it cannot run
    c_uvpq            L_pq + b_uv / B_pq: seconds from p to q, 0 for p = q.  Links are directed; without a link of the two, the
                      way through host memory.  Transfers do not get in each other's way
    r_v, a_p          release of the task's job; first second a device is free
    m_v, M_p, o_v     bytes of a task, of a device, of a task's result: the sum of m_v of all tasks placed there counts,
                      whenever they run, and o_v does not; see (19)-(24) for memory over time

    variables
    x_vp in {0,1}     v runs on p;      s_v >= r_v  start;      y_uv in {0,1}  u before v, for pairs that no way orders

    minimise C                                                                                     (schedule-latency)
    subject to  sum_p x_vp = 1                                                                 (1)  assign
                x_up = x_vp                                 u, v of one group                  (2)  group
                sum_v m_v x_vp <= M_p                                                          (3)  memory
                s_v >= sum_p a_p x_vp                                                          (4)  free
                C >= s_v + sum_p t_vp x_vp                                                     (5)  ends
                s_v >= s_u + sum_p t_up x_up                (u, v) in E                        (6)  waits
                s_v >= s_u + sum_p t_up x_up + c_uvpq (x_up + x_vq - 1)                        (7)  transfer
                s_v >= s_u + t_up - H (3 - x_up - x_vp - y_uv),  and the other way             (8)  first, second

``milp`` is (1)-(8); (8) only for tasks that take time on p. A task of no length takes no device's time. ``lp`` keeps (1)-(3):

    f_v >= sum_p (t_vp + max(r_v, a_p)) x_vp,   C >= f_v                                       (9)  begins, (10) ends
    C >= sum_v t_vp x_vp                                                                       (11) load
    f_v >= f_u + sum_p t_vp x_vp + z_uv min_pq c_uvpq                                          (12) waits
    z_uv >= x_up - x_vp                                     for each p                         (13) apart

``cpsat`` has a head h_vp and a tail g_vp of each pair, and optional intervals:

    h_vp <= s_v,  C >= s_v + t_vp + g_vp                    if x_vp                            (14) heads, tails
    intervals [s_v, s_v + t_vp) if x_vp do not overlap on p                                    (15)
    C >= sum_v t_vp x_vp                                                                       (16)
    s_v >= s_u + t_up + sum_q c_uvpq x_vq                   if x_up, (u, v) in E               (17)

``pool``, for identical devices without transfers: at most |D| intervals at once                (18)

With ``memory`` = ``over-time``, weights m_v stay, and results and copies of them come and go. They are blocks: on p, w bytes in
[begin, until). The result of u has h_u = max(o_u, max_v b_uv) bytes; R_uq are the readers of u that run on q. With e_v the end
of v, whose length may be rounded down (f_v in {0, 1} units; 0 with whole numbers),

    e_v = s_v + sum_p t_vp x_vp + f_v                                                              (19)
    result of u on its device p:  h_u bytes in [s_u, until_u),   until_u >= e_u                    (20)
                                  until_u >= e_v for v in R_up,  until_u >= e_u + c_uvpq for v in R_uq     (21)
    copy of u on another q:       max b_uv over R_uq in [e_u, until_uq),  until_uq >= e_v for v in R_uq    (22)
                                  (none where x_uq or R_uq is empty)                               (23)
    at every moment the blocks on p have at most M_p - sum_v m_v x_vp bytes                        (24)

(24) is ``cumulative`` over optional intervals. Whatever holds without (19)-(24) still bounds. Delaying a task may make room, so
schedules in which nothing can start earlier are not enough. But say of a best schedule, for each two blocks on a device and
each two tasks, whether one ends before the other begins: schedules that keep what is said keep (24), for blocks that overlap
two by two overlap at one moment (Helly). They are the solutions of rows s_v >= s_u + w, which have a least one, and in it each
start is a release, or

    s_v = s_u + t_u + c - r   for some u,   c in {0, c_uvpq of an edge from u},  r in {0, t_v}              (25) tight

So with whole numbers some best schedule is whole, it ends within the horizon, and trying (25) is exhaustive.

``paths`` proves bounds without a solver, replayed from the instance (:mod:`hetopt.algorithms.dag_bounds` has the argument): the
longest way with its transfers, and the work between a head and a tail under prices of the devices' time. The list schedules
(:mod:`hetopt.algorithms.dag_list`) and ``annealing`` give plans. ``rank`` chooses how HEFT and CPoP average (``saga``: as the
package anrg-saga 2.0 does, so that its values come out). Where memory over time binds, both take the devices and the order of
the list schedules and wait for room (:mod:`hetopt.algorithms.dag_room`); a heuristic may then find no plan where there is one.

Sources: H. Topcuoglu, S. Hariri, M.-Y. Wu, IEEE TPDS 13 (2002), for the question and HEFT; S. Pal et al., IEEE Micro 39 (2019),
for a model's graph on several GPUs; P. Baptiste, C. Le Pape, W. Nuijten, Constraint-Based Scheduling (2001), for heads and tails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, ClassVar

import numpy as np

from formulations._jobs import jobs_of, shortfalls
from formulations.schedule._graphs import graph, plan_of, rescheduled
from formulations.schedule._latency_cpsat import CPSAT, Pool
from formulations.schedule._latency_milp import LP, MILP
from formulations.schedule._residence import annealed, binds, candidates, in_room, too_large
from hetopt.algorithms.dag_anneal import anneal
from hetopt.algorithms.dag_bounds import head_load_tail, heads, path_bound, tails
from hetopt.algorithms.dag_list import RULES, Rule, in_order, list_schedule
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.residence import memory_over_time, peaks
from hetopt.verify.schedule import check_schedule
from hetopt.verify.schedule_bounds import replay_schedule_bound, whole_numbers
from hetopt.verify.sequence import gantt_details

__all__ = ["PROBLEM", "Annealing", "Latency", "ListSchedule", "Paths"]

_TITLES = {
    "heft": "HEFT: ready tasks by mean way to the end, each where it ends first, in gaps too",
    "cpop": "CPoP: the critical path on one device, other tasks where they end first",
    "peft": "PEFT: looks ahead by a table of optimistic costs",
    "etf": "ETF: the pair of ready task and device that starts first",
    "mct": "MCT: tasks in order, each where it ends first",
    "min-min": "min-min: of a wave of ready tasks the one that ends first",
    "max-min": "max-min: of a wave of ready tasks the one whose first end is last",
    "sufferage": "sufferage: of a wave of ready tasks the one that would lose most",
}


class ListSchedule(Method):
    """One of the list schedules."""

    kind = "heuristic"

    def __init__(self, rule: Rule) -> None:
        self.name = rule  # type: ignore[misc]
        self.title = f"{_TITLES[rule]}; no guarantee"  # type: ignore[misc]
        self.rule = rule

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan, or none where memory is left for no device."""
        found = list_schedule(graph(instance), self.rule, rank=question.get("rank", "paper"))
        if found is None:
            return Outcome(notes=(f"{self.rule} left a task without a device that has room",))
        if binds(instance, question):
            tried = in_room(instance, [found])
            if tried is None or tried.left:
                return Outcome(
                    notes=(f"on the devices that {self.rule} chose no order was found in which results find room",)
                )
            found = tried.schedule
        control.report_plan(plan_of(found))
        return Outcome()


class Annealing(Method):
    """Simulated annealing from the best list schedule."""

    name = "annealing"
    title = "best list schedule, then annealing over priorities and devices, tasks inserted into gaps; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Every rule; then annealing again and again, hotter and longer, while a time limit leaves time."""
        if binds(instance, question):
            return annealed(instance, question, control)
        g = graph(instance)
        best = rescheduled(instance, control.plan) if control.plan is not None else None
        for rule in RULES:
            found = list_schedule(g, rule, rank=question.get("rank", "paper"))
            if found is not None:
                control.report_plan(plan_of(found))
                best = found if best is None else min(best, found, key=lambda schedule: schedule.makespan)
            if control.should_stop():
                return Outcome("limit", "time")
        if best is None:
            return Outcome(notes=("no list schedule found room for every task",))
        attempt = 0
        while True:
            found = anneal(
                g,
                best,
                seed=control.seed + 7919 * attempt,
                steps=min(2_000_000, (4_000 + 400_000 // max(1, instance.n_tasks)) << min(attempt, 6)),
                hot=(0.03, 0.1, 0.01, 0.3)[attempt % 4],
                should_stop=control.should_stop,
                report=lambda schedule: control.report_plan(plan_of(schedule)),
            )
            best, attempt = min(best, found, key=lambda schedule: schedule.makespan), attempt + 1
            if control.should_stop():
                return Outcome("limit", "time")
            if math.isinf(control.remaining) or attempt == 100:
                return Outcome()


class Paths(Method):
    """Bounds by paths and by work between heads and tails."""

    name = "paths"
    title = "longest way with transfers, and work between heads and tails; replayed"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Both bounds; the better one is proved by the replay."""
        g = graph(instance)
        head, tail = heads(g), tails(g)
        way, work = path_bound(g, head, tail), head_load_tail(g, head, tail, control.cancelled.is_set)
        certificate: dict[str, Any] = {"kind": "path"}
        if work.bound > way:
            certificate = {
                "kind": "head-load-tail",
                "head": work.head,
                "tail": work.tail,
                "prices": work.prices.tolist(),
            }
        proved = question.problem.replay(instance, question, certificate)
        control.report_bound(proved, "replayed", certificate)
        return Outcome()


class Latency(Problem):
    """Makespan of task graphs with transfers."""

    name = "schedule.latency"
    objectives = ("schedule-latency", "dag-makespan")
    title = "task graphs on unrelated devices with transfers, last task done first (R|prec, c_pq, r_v|Cmax)"
    uses = frozenset(
        {"time", "memory", "group", "pin", "forbid", "edges", "output", "links", "release", "available_from"}
    )
    options: ClassVar[tuple[Option, ...]] = (
        Option("rank", ("paper", "saga"), "paper", "how HEFT and CPoP average times and links"),
        Option(
            "memory", ("placed", "over-time"), "placed", "weights alone, or weights and the results held at each moment"
        ),
    )
    methods = (CPSAT(), Pool(), MILP(), LP(), Paths(), *(ListSchedule(rule) for rule in RULES), Annealing())

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Last end of the plan's own start times."""
        done, violations = check_schedule(instance, solution.placement, solution.start)
        if not np.isfinite(done).all():
            return Evaluation(math.inf, violations)
        assert solution.placement is not None
        value, details = float(done.max(initial=0.0)), gantt_details(instance, solution.placement, done)
        if question.get("memory", "placed") == "over-time":
            assert solution.start is not None
            violations += memory_over_time(instance, solution.placement, solution.start, done)
            for row, peak in zip(
                details.values(), peaks(instance, solution.placement, solution.start, done), strict=True
            ):
                row["peak_memory"] = float(peak)
        return Evaluation(value, violations, {"devices": details})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A group that runs nowhere, more bytes than there is room, a task whose results and inputs fit nowhere."""
        graph(instance)
        jobs = jobs_of(instance)
        seen = shortfalls(instance, replace(jobs, most=np.full(instance.n_devices, np.inf)))
        return seen or (too_large(instance) if binds(instance, question) else ())

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With whole numbers throughout, some best plan has a whole value: round up."""
        return float(math.ceil(bound - slack)) if whole_numbers(instance) else bound

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays paths, heads and tails, and linear duals."""
        if certificate.get("kind") in ("path", "head-load-tail"):
            proved = replay_schedule_bound(instance, certificate)
            return self.round_bound(instance, question, proved, slack=0.0)
        return super().replay(instance, question, certificate)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Bounds, a search, then what is exact."""
        steps = [
            Step("heft", "a plan at once", 0.2),
            Step("paths", "a bound at once", 0.2),
            Step("annealing", "list schedules, and better ones soon", 0.3),
        ]
        for name, why in (("pool", "exact: the devices are alike"), ("cpsat", "exact, starts from the best plan")):
            if self.method(name).fits(instance, question) is None:
                return (*steps, Step(name, why))
        return (*steps, Step("annealing", "the best plan once more: too many tasks for an exact method"))

    def bounds(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Paths, and the LP where it is not large."""
        steps = [Step("paths", self.method("paths").title)]
        if self.method("lp").size(instance, question) <= 300_000:
            steps.append(Step("lp", self.method("lp").title))
        return steps

    def sample(self, seed: int) -> Instance:
        """Up to four tasks on up to three devices in one or two jobs; links of two speeds, one way slower than the other."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        alike, over_time = seed % 6 == 5, seed % 4 == 3
        times = rng.integers(0, 12, (n, 1 if alike else d)) * np.ones((1, d))
        times[(rng.random((n, d)) < (0 if alike else 0.2)) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        devices = [
            Device(
                name=f"d{i}",
                available_from=0 if alike or rng.random() < 0.6 else int(rng.integers(0, 6)),
                memory=int(rng.integers(*((12, 24) if over_time else (6, 14)))) if over_time or seed % 3 == 1 else None,
            )
            for i in range(d)
        ]
        links = [
            Link(
                source="*", target="*", bandwidth=None if alike else 2, latency=0 if alike else int(rng.integers(0, 3))
            )
        ]
        if d > 1 and not alike:
            links.append(Link(source="d0", target="d1", bandwidth=1, latency=1))
        split = n if seed % 2 else int(rng.integers(1, n + 1))
        jobs = []
        for j, members in enumerate((range(split), range(split, n))):
            tasks = [
                Task(
                    name=f"t{k}",
                    time=[None if np.isinf(t) else int(t) for t in times[k]],
                    memory=int(rng.integers(0, 6)),
                    output=2 * int(rng.integers(0, 5)),
                    group="g"
                    if seed % 4 == 2 and k - members[0] < 2 and np.isfinite(times[members[:2]]).all()
                    else None,
                )
                for k in members
            ]
            edges = [
                Edge(source=f"t{a}", target=f"t{b}", data=2 * int(rng.integers(0, 5)) if rng.random() < 0.3 else None)
                for a in members
                for b in members
                if a < b and rng.random() < 0.6
            ]
            if tasks:
                jobs.append(
                    Job(name=f"j{j}", tasks=tasks, edges=edges, release=int(rng.integers(0, 4)) * (j + seed % 2))
                )
        return Instance.build(devices, jobs, links, question={"objective": self.objectives[0]})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All placements in all topological orders, each task as early as possible behind those before it; or by (25)."""
        g = graph(instance)
        edges = instance.edges.tolist()
        for plain in super().every_plan(instance, question):
            assert plain.placement is not None
            if question.get("memory", "placed") == "over-time":
                yield from candidates(instance, plain.placement)
                continue
            for order in permutations(range(instance.n_tasks)):
                if all(order.index(u) < order.index(v) for u, v in edges):
                    found = in_order(g, np.array(order), wish=plain.placement, insertion=False)
                    if found is not None and (found.machine == plain.placement).all():
                        yield plan_of(found)


PROBLEM = Latency()
