"""Pipeline throughput: a model's graph over devices, the busiest device as little loaded as possible.

In a full pipeline every device works on another input; the time between two results is the largest load of a device, and the
throughput its inverse. Transfers go through host memory: an accelerator pays for each output it sends and for each it
receives, once, however many consumers there are; a host device (a CPU) pays nothing, and its memory binds where it is stated.

Sets and data
    v in V      classes: tasks that share a device (a ``group``; a forward task with its backward task)
    i in D      devices
    p_vi        seconds of class v on device i, absent where it cannot run
    s_v, M_i    bytes class v needs, bytes device i has
    h in H      nets: an output with its producer src(h) and its consumers, weight w_h bytes
    a_i, b_i    seconds per byte device i receives and sends (0 for a host)

Load of device i that holds S:  sum_{v in S} p_vi + a_i sum of w_h over nets from outside S with a consumer in S
                                                 + b_i sum of w_h over nets from S with a consumer outside S

Variables of ``milp`` and ``cpsat``
    x_vi in {0, 1}        class v is on device i
    in_hi, out_hi >= 0    device i receives, sends net h
    T                     largest load

Minimise T subject to

    sum_i x_vi = 1                                          for each class                       (1)  assign
    in_hi >= x_vi - x_src(h),i                              for each net, consumer v, device     (2)  receive
    out_hi >= x_src(h),i - x_vi                             for each net, consumer v, device     (3)  send
    sum_v p_vi x_vi + a_i sum_h w_h in_hi + b_i sum_h w_h out_hi <= T    for each device         (4)  load
    sum_v s_v x_vi <= M_i                                   for each device with limited memory  (5)  memory

Contiguity (option ``contiguous``), on forward tasks:
    ``ideals``  the devices can be put in an order in which no task feeds a task on an earlier device: a chain of order ideals
                (a class without forward tasks counts with its backward edges reversed). A class then has a stage; with
                x_vj the stage j of v, positions j = 1..|D|, y_vj = sum_{j' <= j} x_vj':
                    y_uj >= y_vj                            for each edge u -> v, position       (6)  order
                and stage j is a device of one type; (4), (5) hold for the type chosen (7).
    ``device``  no path of forward tasks leaves a device and comes back; here u, v are tasks, with the x of their classes,
                and z_vi = 1 for ancestors of what i holds:
                    z_vi >= x_vi,  z_ui >= z_vi,  z_vi <= x_vi - x_ui + 1   for each edge u -> v  (8)  convex
    ``none``    any set of tasks.

Rules beyond these, as options. A stage may be shared and has a place k = 1, 2, .. counted from the end of the pipeline:
    latency     links with the host may have some: a net costs l_i + a_i w_h, l_i' + b_i w_h
    overlap     load = max(compute, transfers):  sum_v p_vi x_vi <= T  and  transfers <= T instead of (4)                (11)
    direct      (``transfers=direct``) an output goes over the link i -> j, to each device that needs it once; both ends are
                busy for it, c_hij = latency + w_h / bandwidth, a host device is not:
                    pair_hij <= x_src(h),i,   sum_{i != j} pair_hij >= x_vj - x_src(h),j     for each consumer v  (9), (10)
                and, for chains of ideals, an order of the devices: before_ij >= x_ui + x_vj - 1 for each edge u -> v,
                before_ij + before_ji <= 1, transitive                                                                   (12)
    replicas    up to so many equal devices r share a stage S, each holding all of it and taking every r-th input:
                    load = (compute + transfers) / r + 2 (r - 1) (s_S / (r bandwidth) + latency) / batch                 (13)
                the second part, a ring all-reduce of the stage's bytes between the devices once in ``batch`` inputs, only
                where there are backward tasks, and never for host devices
    in_flight   (``1f1b``) sum_v (s_v + k activation_v) x_vi <= M_i                                                      (14)
``stages`` answers (11), (13), (14) and latency for chains of ideals, ``rules`` (9)-(12) and latency for every kind.

``passes = max`` minimises the largest forward load plus the largest backward load instead (synchronous training); times and
nets count in the pass of their task.

Sources: J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, Efficient algorithms for device placement
of DNN graph operators, NeurIPS 2020: semantics, (6)-(8), and the dynamic program over ideals that ``dp`` makes fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from formulations._jobs import jobs_of, shortfalls
from formulations.partition._maxload_cpsat import CPSAT
from formulations.partition._maxload_methods import (
    DP,
    Balance,
    Contiguous,
    Cut,
    Exchange,
    MinCut,
    replay_balance,
    replay_maxload,
)
from formulations.partition._maxload_milp import LP, MILP
from formulations.partition._pipeline import rates
from formulations.partition._ruled_models import RuledMILP
from formulations.partition._stage_rules import OPTIONS, Stages, check_question, every_plan, rules_asked
from hetopt.formulation import Evaluation, Problem, Question, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.stage_rules import RuledReport, check_rules
from hetopt.verify.stages import StageReport, check_stages

__all__ = ["DP", "PROBLEM", "Contiguous", "MaxLoad"]


class MaxLoad(Problem):
    """Least largest load of a pipeline's devices."""

    name = "partition.maxload"
    objectives = ("throughput", "maxload")
    title = "a model's graph over pipeline devices, the busiest one as little loaded as possible"
    uses = frozenset({"time", "memory", "group", "pin", "forbid", "edges", "output", "links", "backward", "activation"})
    options = OPTIONS
    methods = (
        DP(), CPSAT(), MILP(), Stages(), RuledMILP(), LP(), Balance(), MinCut(), Cut(), Contiguous(), Exchange()
    )  # fmt: skip

    def fits(self, instance: Instance) -> str | None:
        """Outputs travel as a whole: an edge may not carry data of its own."""
        if len(instance.edges) and not np.isnan(instance.columns.edge_data).all():
            return (
                "an edge carries `data` of its own, and this question counts each task's `output`, once for each device"
            )
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Largest load, recomputed from the tasks; contiguity, memory, groups, eligibility checked."""
        if solution.placement is None:
            return Evaluation(math.inf, ("the plan has no placement",))
        report = _checked(instance, question, solution)
        devices = {
            name: {
                "load": report.load[i],
                "compute": report.compute[i],
                "in": report.arrive[i],
                "out": report.leave[i],
                "memory": report.memory[i],
                "tasks": int(np.count_nonzero(solution.placement == i)),
            }
            for i, name in enumerate(instance.device_names)
        }
        details: dict[str, Any] = {"devices": devices}
        if devices:
            details["bottleneck"] = max(devices, key=lambda name: devices[name]["load"])
        if isinstance(report, RuledReport):
            for i, name in enumerate(instance.device_names):
                details["devices"][name]["sync"] = report.sync[i]
            details["stages"] = [[instance.device_names[i] for i in stage] for stage in report.stages]
        elif report.order is not None:
            details["stages"] = [instance.device_names[i] for i in report.order]
        return Evaluation(float(report.value), report.violations, details)

    def question(self, instance: Instance, given: Mapping[str, Any] | None = None) -> Question:
        """As every problem's; combinations of rules that no method answers are refused."""
        question = super().question(instance, given)
        check_question(question)
        return question

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Placements, and where they matter the order of stages and the devices that share them."""
        return every_plan(instance, question)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A group that no device can take, a class larger than every device it can run on, more bytes than there are."""
        return shortfalls(instance, jobs_of(instance))

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The dynamic program for chains of ideals; otherwise its plan as a start for CP-SAT."""
        first = Step("cut", "a valid plan at once, before anything is compiled")
        if rules_asked(instance, question):
            return self._ruled_plan(instance, question, first)
        if question["contiguous"] == "ideals":
            return (
                first,
                Step("dp", "exact over order ideals, and the fastest there is for chains of ideals"),
            )
        return (
            first,
            Step("contiguous", "a good plan soon", share=0.3),
            Step("balance", "a bound at once"),
            *(
                (Step("min-cut", "a stronger bound where transfers are dear", share=0.3),)
                if question["contiguous"] == "device" and question["passes"] == "sum"
                else ()
            ),
            *(
                (Step("exchange", "search and column generation in turns, with stored proofs", share=0.8),)
                if question["contiguous"] == "none" and question["passes"] == "sum"
                else ()
            ),
            *(
                (Step("cpsat", "exact, starts from the best plan so far"),)
                if self.method("cpsat").fits(instance, question) is None
                else ()
            ),
        )

    def _ruled_plan(self, instance: Instance, question: Question, first: Step) -> Sequence[Step]:
        steps = (
            first,
            Step("balance", "a bound at once"),
            Step("contiguous", "a better plan, judged by the rules", share=0.2),
            Step("min-cut", "a stronger bound where transfers are dear", share=0.2),
            Step("stages", "exact over order ideals under these rules"),
            Step("rules", "exact, starts from the best plan so far"),
        )
        fitting = [step for step in steps if self.method(step.method).fits(instance, question) is None]
        exact = [step.method for step in fitting if step.method in ("stages", "rules")]
        # Where stages fits it is the faster of the two by far.
        return [step for step in fitting if step.method not in exact[1:]]

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays balance prices and linear duals."""
        if certificate.get("kind") == "balance":
            return replay_balance(instance, question, certificate)
        if certificate.get("kind") == "maxload":
            return replay_maxload(instance, certificate)
        return super().replay(instance, question, certificate)

    def sample(self, seed: int) -> Instance:
        """Up to six tasks on up to three devices, some of them hosts; groups, memory, backward tasks."""
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 7))
        accelerators, hosts = int(rng.integers(1, 3)), int(rng.integers(0, 2))
        memory = int(rng.integers(6, 30)) if rng.random() < 0.5 else None
        devices = [Device(name=f"acc{k}", type="acc", memory=memory) for k in range(accelerators)]
        devices += [Device(name=f"cpu{k}", type="cpu", host=True) for k in range(hosts)]
        ratio = int(rng.integers(2, 6))
        tasks, edges = [], []
        trained = seed % 3 == 2 and n >= 4
        half = n // 2 if trained else n
        for v in range(n):
            fast = int(rng.integers(0, 12))
            own: dict[str, int | float | None] = {"acc": fast, "cpu": fast * ratio} if hosts else {"acc": fast}
            if hosts and rng.random() < 0.1:
                own["acc"] = None
            back = trained and v >= half
            tasks.append(
                Task(
                    name=f"t{v}",
                    time=own,
                    memory=int(rng.integers(0, 8)),
                    output=int(rng.integers(0, 6)),
                    backward=back,
                    group=f"g{n - 1 - v if back else v}" if trained else ("g" if rng.random() < 0.15 else None),
                )
            )
        for u in range(n):
            edges += [Edge(source=f"t{u}", target=f"t{v}") for v in range(u + 1, n) if rng.random() < 0.4]
        links = [Link(source="acc", target="host", bandwidth=1, both=True)]
        question: dict[str, Any] = {"objective": self.name}
        ruled = (
            {"transfers": "direct"},
            {"replicas": 2, "contiguous": "ideals", "passes": "sum", "batch": 2},
            {"in_flight": "1f1b", "contiguous": "ideals", "passes": "sum"},
        )
        if seed >= 9:
            question |= ruled[seed % 3]
            links = [Link(source="*", target="*", bandwidth=1, latency=seed % 2)]
            tasks = [structs.replace(task, activation=int(rng.integers(0, 3))) for task in tasks]
        return Instance.build(devices, [Job(name="model", tasks=tasks, edges=edges)], links, question=question)


def _checked(instance: Instance, question: Question, solution: Solution) -> StageReport | RuledReport:
    """The verifier's report: that of the plain rules, or of all rules where others are in force."""
    assert solution.placement is not None
    if rules_asked(instance, question):
        return check_rules(instance, solution.placement, question, solution.details.get("stages"))
    into, out = rates(instance)
    return check_stages(
        instance.time,
        instance.memory,
        instance.edges,
        instance.output,
        instance.capacity,
        into,
        out,
        solution.placement,
        group=instance.group,
        backward=instance.backward,
        contiguity=question["contiguous"],
        mirror_orphans=True,
        variant=question["passes"],
        tasks=instance.labels,
        devices=instance.device_names,
    )


PROBLEM = MaxLoad()
