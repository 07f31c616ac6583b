r"""R|online, prec, c_pq, r_j|sum w_j (C_j - r_j): a stream of jobs, each a graph of tasks, done soon after it has come.

Asked of a system on a chip or a server that gets one job after another and decides as they come. An online method knows a job
from its release on; the optimum of the whole stream, found as if all arrivals were known, says what that ignorance costs.

    sets, data
    j in J, v in V    jobs, tasks; V_j those of j;  E edges (u, v) with b_uv bytes
    q in Q            ways: a device p(q) at one of its speeds (``tables.speeds``); one task at a time on a device
    t_vq, e_vq        seconds (time over speed) and joules (seconds times power) of v that way
    c_uvpp'           seconds from device p to p', as in :mod:`formulations.schedule.latency`; 0 for p = p'
    r_j, w_j, a_p     release and weight of a job; first second a device is free
    gamma, B          weighted seconds that a joule is worth (``energy_price``); joules that a job may take (``job_energy``)
    h_vp, g_vp        head and tail: least time before v on p, and behind it to the end of its job

    variables
    x_vq in {0,1}     v runs that way;      s_v  start;      C_j  end of a job

    minimise (sum_j w_j (C_j - r_j) + gamma sum_vq e_vq x_vq) / sum_j w_j                            (online-latency)
    subject to  sum_q x_vq = 1                                                                 (1)
                s_v >= h_vp(q)                                          if x_vq                (2)
                C_j >= s_v + t_vq + g_vp(q)                             if x_vq, v in V_j      (3)
                intervals [s_v, s_v + t_vq) if x_vq do not overlap on a device                 (4)
                s_v >= s_u + t_uq + c_uvp(q)p(q')                       if x_uq, x_vq'         (5)
                sum_{v in V_j, q} e_vq x_vq <= B                                               (6)
    the objective, weights and prices as integers                                              (7)

A task of no length takes no device's time. A table of speeds is ``{"big": [{"name": "fast", "speed": 1, "power": 3}, ...]}``;
times in the file are those at speed 1, power is the watts drawn while a task runs above those of an idle device.

``cpsat`` is (1)-(7). ``met``, ``eft``, ``etf``, ``rank-eft`` dispatch (:mod:`hetopt.algorithms.online_dispatch`); ``rolling``
plans anew at each arrival. These five are online: what they decide at a moment depends on jobs released by then alone, and
inputs are sent to a device only once it is decided. A plan does not show that; it is these methods' promise, and the tests cut
streams off to see that the beginning stays. ``bounds`` proves, replayed from the instance, that no plan is better than each job
alone, or than all on one preemptive machine (:func:`hetopt.verify.online.replay_online_bound` has the argument).

Sources: T. Sung, V. Chockalingam, A. Yahja, B. Ryu, arXiv 1906.03724 (2019), for the question; S. Arda et al., IEEE Transactions
on Computers 69 (2020), for its data; L. Schrage (1968) and M. Goemans (1997) for the machine that may be taken from a job.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations, product
from typing import Any, ClassVar

import numpy as np

from formulations.schedule._online import decoded, plan_of, stream
from formulations.schedule._online_cpsat import CPSAT
from formulations.schedule._online_rolling import Rolling
from hetopt.algorithms.makespan_lp import machine_prices
from hetopt.algorithms.online_dispatch import dispatch
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.online import check_online, replay_online_bound
from hetopt.verify.sequence import gantt_details

__all__ = ["PROBLEM", "Bounds", "Dispatch", "Online"]

_TITLES = {
    "met": "MET: each ready task where it costs least, whatever the queues; online, no guarantee",
    "eft": "EFT: each ready task where it ends first; online, no guarantee",
    "etf": "ETF: the pair of ready task and device that starts first; online, no guarantee",
    "rank-eft": "rank-EFT: ready tasks by their way to the job's end, where they end first; online, no guarantee",
}


class Dispatch(Method):
    """One of the dispatching rules."""

    kind = "heuristic"

    def __init__(self, rule: str) -> None:
        self.name = rule  # type: ignore[misc]
        self.title = _TITLES[rule]  # type: ignore[misc]
        self.rule = rule

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass over the stream."""
        data = stream(instance, question)
        found = dispatch(data, self.rule, control.should_stop)
        if found is None:
            return Outcome("limit", "time")
        control.report_plan(plan_of(instance, data, found[0], found[1]))
        return Outcome()


class Bounds(Method):
    """Each job alone; all jobs on one machine."""

    name = "bounds"
    title = "each job alone, and all jobs on one preemptive machine under prices of the devices' time; replayed"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """The better of the two; of prices, those of the devices' loads and equal ones."""
        certificates: list[dict[str, Any]] = [{"kind": "alone"}]
        data = stream(instance, question)
        prices = [np.full(instance.n_devices, 1.0 / instance.n_devices)]
        weights, _ = machine_prices(np.ascontiguousarray(data.graph.time), np.zeros(instance.n_devices), rounds=100)
        if np.isfinite(weights).all() and weights.sum() > 0:
            prices.append(weights / weights.sum())
        certificates += [{"kind": "one-machine", "prices": row.tolist()} for row in prices]
        for certificate in certificates:
            question.prove(instance, control, certificate)
        return Outcome()


class Online(Problem):
    """Mean latency of a stream, and its energy."""

    name = "schedule.online"
    objectives = ("online-latency", "stream-latency")
    title = "a stream of task graphs on devices with speeds: weighted mean latency and energy"
    uses = frozenset(
        {"time", "pin", "forbid", "edges", "output", "links", "release", "weight", "available_from", "tables.speeds"}
    )
    options: ClassVar[tuple[Option, ...]] = (
        Option("energy_price", float, 0.0, "weighted seconds of latency that a joule is worth"),
        Option("job_energy", float, None, "joules that each job may take"),
    )
    methods = (CPSAT(), Bounds(), *(Dispatch(rule) for rule in _TITLES), Rolling())

    def fits(self, instance: Instance) -> str | None:
        """Refuse what the mathematics leaves out."""
        if (instance.group >= 0).any():
            return "it knows no groups"
        if instance.memory.sum() > instance.capacity.min():
            return "it knows no memory"
        return (
            None
            if instance.columns.weight.sum() > 0
            else "all jobs have weight 0, and a weighted mean needs some weight"
        )

    def question(self, instance: Instance, given: Mapping[str, Any] | None = None) -> Question:
        """The question in force; InputError for a price or a limit out of range."""
        question = super().question(instance, given)
        for name in ("energy_price", "job_energy"):
            value = question[name]
            if value is not None and not 0 <= value <= 1e30:
                raise InputError(f"$.question.{name} is {value!r}, expected a number from 0 to 1e30")
        return question

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Weighted latency and energy over the weights."""
        report = check_online(instance, solution, question["job_energy"])
        if not (np.isfinite(report.latency).all() and np.isfinite(report.energy).all()):
            return Evaluation(math.inf, report.violations)
        assert solution.placement is not None
        weight = instance.columns.weight
        joules = math.fsum(report.energy.tolist())
        late = math.fsum((weight * report.latency).tolist())
        value = (late + question["energy_price"] * joules) / math.fsum(weight.tolist())
        details = {
            "mean_latency": float(report.latency.mean()),
            "p90_latency": float(np.sort(report.latency)[math.ceil(0.9 * len(report.latency)) - 1]),
            "energy": joules,
            "devices": gantt_details(instance, solution.placement, report.done),
        }
        return Evaluation(value, report.violations, details)

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A job that takes more joules than it may, however it runs."""
        data = stream(instance, question)
        least = np.bincount(data.job, weights=data.energy.min(axis=1), minlength=instance.n_jobs)
        over = least - data.most
        j = int(np.argmax(over))
        if over[j] > 1e-9 * data.most:
            return (
                f"job {instance.columns.job_name[j]!r} takes at least {least[j]:.9g} J and may take {data.most:.9g}: "
                f"{over[j]:.9g} too many",
            )
        return ()

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays jobs alone and the one machine."""
        if certificate.get("kind") in ("alone", "one-machine"):
            return replay_online_bound(instance, certificate, question["energy_price"])
        return super().replay(instance, question, certificate)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Two rules, the bounds, rolling, then the whole stream where it is not too large."""
        steps = [
            Step("rank-eft", "a plan at once", 0.1),
            Step("eft", "another one at once", 0.1),
            Step("bounds", "a bound at once", 0.2),
        ]
        why_not = self.method("cpsat").fits(instance, question)
        if why_not is None:
            steps.append(Step("rolling", "better plans, arrival by arrival", 0.4))
            return (*steps, Step("cpsat", "exact: the whole stream, as if all arrivals were known"))
        return (*steps, Step("rolling", f"better plans, arrival by arrival; of the whole stream {why_not}"))

    def sample(self, seed: int) -> Instance:
        """Up to four tasks in up to three jobs, on up to two devices, some with two speeds; limits of energy that bind."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 5)), int(rng.integers(1, 3))
        times = 2 * rng.integers(0, 8, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.15) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        devices = [
            Device(name=f"d{i}", power=int(rng.integers(1, 6)), idle_power=1, available_from=int(rng.integers(0, 3)))
            for i in range(d)
        ]
        links = [Link(source="*", target="*", bandwidth=2, latency=int(rng.integers(0, 3)))]
        cuts = sorted({0, n, *rng.integers(0, n + 1, 2).tolist()})
        jobs = []
        for j, (first, last) in enumerate(pairwise(cuts)):
            members = range(first, last)
            tasks = [
                Task(
                    name=f"t{k}",
                    time=[None if np.isinf(t) else int(t) for t in times[k]],
                    output=2 * int(rng.integers(0, 4)),
                )
                for k in members
            ]
            edges = [
                Edge(source=f"t{a}", target=f"t{b}") for a in members for b in members if a < b and rng.random() < 0.6
            ]
            jobs.append(
                Job(
                    name=f"j{j}",
                    tasks=tasks,
                    edges=edges,
                    release=3 * j,
                    weight=int(rng.integers(1, 4)) if seed % 2 else 1,
                )
            )
        tables = {}
        question: dict[str, Any] = {"objective": self.objectives[0], "energy_price": float(seed % 4) / 2}
        if seed % 3 == 1:
            speeds = [{"name": "slow", "speed": 0.5, "power": 1}, {"name": "fast", "speed": 1, "power": 3}]
            tables = {"speeds": {"d0": speeds if n < 4 else speeds[1:]}}
            least = sum(min(t for t in row if np.isfinite(t)) for row in times)
            question["job_energy"] = round(float(least * rng.uniform(0.5, 3)))
        return Instance.build(devices, jobs, links, tables=tables, question=question)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All ways in all topological orders, each task as early as possible behind those before it."""
        data = stream(instance, question)
        edges = instance.edges.tolist()
        orders = [
            np.argsort(order).astype(np.float64)
            for order in permutations(range(instance.n_tasks))
            if all(order.index(u) < order.index(v) for u, v in edges)
        ]
        for ways in product(*(np.flatnonzero(np.isfinite(row)).tolist() for row in data.time)):
            way = np.array(ways, np.int64)
            for key in orders:
                yield plan_of(instance, data, way, decoded(data, way, key))


PROBLEM = Online()
