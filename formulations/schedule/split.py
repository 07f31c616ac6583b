r"""Operators split over unlike processors, robust over contention: which share of each operator on CPU, GPU and NPU.

Asked of a network on a phone, whose operators run one after the other. A processor that does not support an operator has no time
for it; a share elsewhere costs launches, copies and a merge; and what else runs on the phone slows some processors down.

    sets, data
    v in V, (u, v) in E   operators in order of their inputs, one at a time; edges with b_uv bytes
    i in D                processors; t_vi seconds of all of v on i, absent where i does not support it (fallback sets)
    l_i, m_i              seconds to launch a part, and to merge one of several (``tables.launch``, ``tables.merge``)
    L_pi, B_pi            latency and bandwidth from p to i;   H  the operators that stay whole (``tables.whole``)
    w in W                scenarios: probability p_w, factors f_wi of the times on i (``tables.scenarios``)
    g, D                  units of a share (``grain``);  deadline of the job

    variables
    n_vi in {0..g}        units of v on i;   a_vi in {0,1}  some;   s_v in {0,1}  split;   T_vw  seconds of v in scenario w

    minimise Z = max_w sum_v T_vw  or  sum_w p_w sum_v T_vw  (``robust``: worst, expected)                 (operator-split)
    subject to  sum_i n_vi = g,   n_vi <= g a_vi,   a_vi <= n_vi                               (1)
                n_vi = 0                                          i does not support v         (2)
                sum_i a_vi <= 1 + (|D| - 1) s_v,    s_v = 0 for v in H                         (3)
                T_vw >= l_i a_vi + m_i (a_vi + s_v - 1) + f_wi t_vi n_vi / g
                        + sum_{u, p != i} (L_pi a_up + b_uv / (g B_pi) n_up) - M_vi (1 - a_vi)  (4)
                Z >= sum_v T_vw                                   (worst)                      (5)
                Z >= sum_w p_w sum_v T_vw                         (expected)                   (6)
                sum_v T_vw <= D                                                                (7)

M_vi is the most that the copies can take. A processor fetches from every other one the part of each input that lies there, one
after the other. ``milp`` is (1)-(7), ``lp`` its relaxation.

``program`` is exact where every operator reads at most one other, for one scenario or the expected time without a deadline: of
each operator the least time to come for each state (how many units where), (1)-(4) being tables of states. ``prices`` gives the
worst case weights q_w with sum 1: sum_w q_w T_w is no more than the worst, so the program's value is a bound; with several inputs
the one that costs most is kept, which makes no plan slower. It is replayed from the instance, and the states found are plans,
which single changes improve. ``fallback`` is what runtimes do: all on one processor, and what it does not support elsewhere.

Source: S. Liu, W. Zhou, Z. Zhou, B. Guo, M. Wang, C. Fang, Z. Lin, Z. Yu, Deep Learning Inference on Heterogeneous Mobile
Processors: Potentials and Pitfalls, arXiv 2405.01851 (2024), for the question.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np

from formulations.schedule._split import data_of, fallback, plan_of, totals_value
from formulations.schedule._split_milp import MILP
from hetopt.algorithms.operator_split import improve, program, seconds, worst_case_prices
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, Method, Option, Outcome, Problem, Question, Relaxed, RunOptions, Step
from hetopt.instance import Instance
from hetopt.records import Device, Edge, Job, Link, Task
from hetopt.solution import Solution
from hetopt.verify.operators import check_operators, facts_of, replay_weights

__all__ = ["PROBLEM", "Fallback", "OperatorSplit", "Prices", "Program"]

_ROUNDING = 2.0**-40
MOST_CELLS = 30_000_000  # of all tables of states


class Program(Method):
    """The exact program."""

    name = "program"
    title = "least expected time over the states of operators, each of which reads at most one other; exact"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """A forest, one number a state, no deadline."""
        if np.bincount(instance.edges[:, 1], minlength=1).max(initial=0) > 1:
            return "an operator reads several others"
        if question["robust"] == "worst" and len(facts_of(instance).names) > 1:
            return "the worst of several scenarios is no sum"
        if np.isfinite(instance.columns.deadline).any():
            return "a deadline holds in each scenario"
        return _too_large(instance, question)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass over the operators, last first."""
        data, facts = data_of(instance, question), facts_of(instance)
        weights = facts.probability
        value, choice = program(data, weights)
        control.report_plan(plan_of(data, choice, question))
        control.report_bound(value * (1 - _ROUNDING), "algorithm")
        return Outcome()


class Prices(Method):
    """Bounds by weights of scenarios, plans by descent."""

    name = "prices"
    title = "weights of scenarios: a replayed bound, and plans improved by single changes"
    kind = "search"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few enough states."""
        return _too_large(instance, question)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Weights anew and anew; for the expected time one set of them."""
        data, facts = data_of(instance, question), facts_of(instance)
        value = totals_value(facts, question)
        inputs = [int(data.source[e]) if e >= 0 else -1 for e in data.inputs.tolist()]
        best = -math.inf
        deadline = float(instance.columns.deadline.min())

        def offer(choice: Any) -> None:
            if seconds(data, choice).sum(axis=0).max() <= deadline:
                control.report_plan(plan_of(data, choice, question))

        def told(bound: float, weights: Any, choice: Any) -> None:
            nonlocal best
            offer(choice)
            if bound > best:
                best = bound
                question.prove(instance, control, {"kind": "weights", "weights": weights.tolist(), "inputs": inputs})
                offer(improve(data, choice, value, control.should_stop))

        if question["robust"] == "worst":
            worst_case_prices(data, told, should_stop=control.should_stop)
        else:
            told(*program(data, facts.probability)[:1], facts.probability, program(data, facts.probability)[1])
        for first in range(instance.n_devices):
            offer(improve(data, fallback(instance, data, facts, first), value, control.should_stop))
        return Outcome("limit", "time") if control.should_stop() and not control.closed else Outcome()


class Fallback(Method):
    """The best of all on one processor."""

    name = "fallback"
    title = "all on one processor, what it does not support where it is fastest; the best such plan, no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One plan a processor."""
        if (why := _too_large(instance, question)) is not None:
            return Outcome(notes=(why,))
        data, facts = data_of(instance, question), facts_of(instance)
        deadline, told = float(instance.columns.deadline.min()), False
        for first in range(instance.n_devices):
            choice = fallback(instance, data, facts, first)
            if seconds(data, choice).sum(axis=0).max() <= deadline:
                control.report_plan(plan_of(data, choice, question))
                told = True
        return Outcome(notes=() if told else ("no such plan keeps the deadline in every scenario",))


def _too_large(instance: Instance, question: Question) -> str | None:
    """Why the tables of states would take too much memory; None when they do not."""
    able = instance.eligible.sum(axis=1)
    states = np.array([math.comb(int(question["grain"]) + int(k) - 1, int(k) - 1) for k in able], np.float64)
    cells = float((states**2).sum()) * instance.n_devices
    return (
        f"tables of states would hold up to {cells:,.0f} numbers, more than {MOST_CELLS:,}"
        if cells > MOST_CELLS
        else None
    )


class OperatorSplit(Problem):
    """Shares of operators."""

    name = "schedule.split"
    objectives = ("operator-split", "robust-split")
    title = "operators one after the other, each split over unlike processors, robust over contention scenarios"
    uses = frozenset(
        {"time", "pin", "forbid", "edges", "output", "links", "deadline"}
        | {"tables.launch", "tables.merge", "tables.whole", "tables.scenarios"}
    )
    options: ClassVar[tuple[Option, ...]] = (
        Option("robust", ("worst", "expected"), "worst", "which time over the scenarios counts"),
        Option("grain", int, 4, "units in which an operator may be split"),
    )
    methods = (MILP(), Program(), Relaxed(MILP(), "(1)-(7)"), Prices(), Fallback())

    def fits(self, instance: Instance) -> str | None:
        """One job, no groups, no memory that binds."""
        if instance.n_jobs != 1:
            return f"it needs one job of operators, and the instance has {instance.n_jobs} jobs"
        if (instance.group >= 0).any():
            return "it knows no groups"
        if instance.memory.sum() > instance.capacity.min():
            return "it knows no memory"
        return None

    def question(self, instance: Instance, given: Mapping[str, Any] | None = None) -> Question:
        """The question in force; InputError for a grain out of range."""
        question = super().question(instance, given)
        if not 1 <= question["grain"] <= 100:
            raise InputError(f"$.question.grain is {question['grain']}, expected a whole number from 1 to 100")
        return question

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Worst or expected sum of the operators' seconds."""
        report, facts = check_operators(instance, solution.shares, int(question["grain"])), facts_of(instance)
        wrong = [f"the plan's details hold {key!r}, expected none" for key in solution.details]
        totals = [math.fsum(column) for column in report.seconds.T.tolist()]
        worst = question["robust"] == "worst"
        value = (
            max(totals)
            if worst
            else math.fsum(p * t for p, t in zip(facts.probability.tolist(), totals, strict=True) if p > 0)
        )
        return Evaluation(
            value, (*report.violations, *wrong), {"scenarios": dict(zip(facts.names, totals, strict=True))}
        )

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A scenario in which no plan meets the deadline."""
        facts, deadline = facts_of(instance), float(instance.columns.deadline.min())
        if math.isinf(deadline) or _too_large(instance, question) is not None:
            data_of(instance, question, tables=False)
            return ()
        data = data_of(instance, question)
        bounds = [program(data, np.eye(len(facts.names))[w])[0] * (1 - _ROUNDING) for w in range(len(facts.names))]
        w = int(np.argmax(bounds))
        if bounds[w] > deadline:
            return (
                f"under {facts.names[w]!r} no plan ends before {bounds[w]:.9g}, and the deadline is {deadline:.9g}: "
                f"{bounds[w] - deadline:.9g} seconds short",
            )
        return ()

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays weights of scenarios and linear duals."""
        if certificate.get("kind") != "weights":
            return super().replay(instance, question, certificate)
        if question["robust"] == "expected":
            certificate = {**certificate, "weights": facts_of(instance).probability.tolist()}
        return replay_weights(instance, certificate, int(question["grain"]))

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The program where it is exact; else prices, then the MILP."""
        if self.method("program").fits(instance, question) is None:
            return (Step("program", "exact: every operator reads at most one other"),)
        steps = [Step("fallback", "a plan at once", 0.1)]
        if self.method("prices").fits(instance, question) is None:
            steps.append(Step("prices", "a bound and better plans", 0.4))
        return (*steps, Step("milp", "exact, starts from the best plan"))

    def bounds(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Prices and the LP."""
        steps = [Step("prices", self.method("prices").title)] if _too_large(instance, question) is None else []
        return (*steps, Step("lp", self.method("lp").title))

    def sample(self, seed: int) -> Instance:
        """Up to three operators on up to three processors, one or two scenarios, deadlines that bind."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 4)), int(rng.integers(1, 3 if seed % 2 else 4))
        times = 4 * rng.integers(0, 7, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.2) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        tasks = [
            Task(
                name=f"o{v}",
                time=[None if np.isinf(t) else int(t) for t in times[v]],
                output=2 * int(rng.integers(0, 4)),
            )
            for v in range(n)
        ]
        edges = [Edge(source=f"o{a}", target=f"o{b}") for b in range(n) for a in range(b) if rng.random() < 0.6]
        if seed % 3 == 2:
            edges = [Edge(source=f"o{a}", target=f"o{a + 1}") for a in range(n - 1)]
        links = [Link(source="*", target="*", bandwidth=2, latency=int(rng.integers(0, 2)))]
        tables: dict[str, Any] = {}
        if seed % 4:
            tables = {"launch": {"*": int(rng.integers(0, 2))}, "merge": {"d0": 1}}
            busy = {"name": "busy", "probability": 0.25, "slowdown": {"d0": 2.0}}
            if seed % 4 > 1:
                tables["scenarios"] = [{"name": "alone", "probability": 0.75}, busy]
        if seed % 5 == 4:
            tables["whole"] = ["o0"]
        deadline = int(rng.integers(8, 40)) if seed % 5 == 3 else None
        job = Job(name="net", tasks=tasks, edges=edges, deadline=deadline)
        question = {"objective": self.objectives[0], "grain": 2 if d < 3 else 1 + seed % 2}
        return Instance.build([Device(name=f"d{i}") for i in range(d)], [job], links, tables=tables, question=question)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Every state of every operator."""
        data = data_of(instance, question)
        for choice in product(*(range(len(some)) for some in data.states)):
            yield plan_of(data, np.array(choice, np.int64), question)


PROBLEM = OperatorSplit()
