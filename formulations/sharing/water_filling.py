r"""Water filling: the worst-off job as well off as possible, then the next, and so on; for jobs or for their owners.

Data as in :mod:`formulations.sharing.max_min`; a_ij = s_i T_ij / p_i (``agnostic`` as there). Jobs may belong to entities
(``tables.entity`` by job) of weights W_e (``tables.entities``, 1 where silent). L_i = sum_j a_ij x_ij is the level of job i. In
round r the jobs A that are not frozen have weights w^r_i:

    no entities              w_i
    within = "fairness"      W_e w_i / (sum of w over e's jobs in A)
    within = "first-in-first-out"   W_e for e's first job in A by release and name, 0 for the others

Round r, with l_i what job i has from the rounds before (0 at first):

    maximise    c
    subject to  L_i >= l_i + w^r_i c            for each job in A                       (1)  rise
                L_i >= l_i                      for each frozen job                     (2)  keep
                sum_j x_ij <= 1                 for each job i                          (3)  turns
                sum_i s_i x_ij <= C_j           for each type j                         (4)  workers

then l_i += w^r_i c, and the jobs that cannot rise any more are frozen. The value is the first round's c; the plan is right only
if all rounds are, and brings the proof of each: with prices u of (1), (2) and p of (4),

    sum_i u_i L_i <= B(u, p) = sum_i max_j (u_i a_ij - s_i p_j)^+ + sum_j p_j C_j,

so c <= (B - sum_i u_i l_i) / (sum_A u_i w^r_i), and no job with u_i > 0 gets more than l_i + w^r_i c plus what is missing in that
inequality, over u_i. A job is frozen when this excess is within 1e-6 of its level: the verifier does the same sums. So the duals
of one linear program a round name the jobs to freeze, and no integer program is asked.

Source: Narayanan et al., OSDI 2020 (water filling with an integer program a round). Freezing by prices and its proof are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._cluster import AGNOSTIC, ClusterProblem, cluster_of
from formulations.sharing._prices import checked, most
from formulations.sharing._water_programs import by_cone, by_cvxpy, by_simplex
from formulations.sharing._water_rounds import CHECKED, Solver, excess, fill, gains, weights
from hetopt.control import Control
from hetopt.formulation import Evaluation, Method, Option, Outcome, Question, RunOptions, Step
from hetopt.instance import Instance
from hetopt.solution import Solution
from hetopt.verify.shares import share_violations

__all__ = ["PROBLEM", "LPs", "WaterFilling"]

Floats = NDArray[np.float64]


class LPs(Method):
    """A linear program a round."""

    kind = "exact"
    engine = "convex"

    def __init__(self, name: str, title: str, solver: Callable[[Control], Solver]) -> None:
        self.name, self.title, self.solver = name, title, solver  # type: ignore[misc]

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """All rounds, then the first round's prices as the bound."""
        plan = fill(instance, question, self.solver(control), control.should_stop)
        if plan is None:
            if control.should_stop():
                return Outcome("limit", "time")
            return Outcome(
                "limit", "other", notes=("a round's program ended without shares: its numbers lie too far apart",)
            )
        control.report_plan(plan)
        first = plan.details["rounds"][0]
        certificate = {
            "kind": "prices",
            "jobs": [first["jobs"].get(label, 0.0) for label in instance.labels],
            "types": [first["types"][name] for name in instance.device_names],
        }
        question.prove(instance, control, certificate)
        return Outcome(solver="clarabel", statistics={"rounds": len(plan.details["rounds"])})


class WaterFilling(ClusterProblem):
    """The question."""

    name = "sharing.water_filling"
    objectives = ("water-filling",)
    title = "time shares of a cluster, every job as well off as the worse-off ones allow, for jobs or their owners"
    sense = "max"
    unit = "of a proportional share"
    uses: ClassVar[frozenset[str]] = frozenset(
        {"time", "scale", "slots", "weight", "release", "tables.entity", "tables.entities"}
    )
    options = (
        Option("within", ("fairness", "first-in-first-out"), "fairness", "how an entity's jobs share what it has"),
        AGNOSTIC,
    )
    methods = (
        LPs(
            "lps",
            "a linear program a round by an interior point method; its prices freeze jobs and prove levels",
            by_cone,
        ),
        LPs("cvxpy", "each round's program stated in cvxpy, for reading and as a second opinion", by_cvxpy),
    )

    def fits(self, instance: Instance) -> str | None:
        """As the family, and every weight above 0."""
        own = super().fits(instance)
        if own is None and (instance.columns.weight <= 0).any():
            return "a job has the weight 0; its level would never count"
        return own

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Shares within limits, every round's proof, and the levels that it asks for."""
        wrong = share_violations(instance, solution.shares)
        shape = (instance.n_tasks, instance.n_devices)
        if solution.shares is None or solution.shares.shape != shape or wrong:
            return Evaluation(-np.inf, wrong or ("the plan has no shares",))
        reached = (gains(instance, question) * solution.shares).sum(axis=1)
        weight = weights(instance, question, np.ones(instance.n_tasks, bool))
        value = float((reached[weight > 0] / weight[weight > 0]).min())
        level, found = self._levels(instance, question, solution.details.get("rounds"))
        low = np.flatnonzero(reached < level * (1 - CHECKED))[:20].tolist() if not found else []
        found += [f"job {instance.labels[k]!r} is at the level {reached[k]:.9g}, below its {level[k]:.9g}" for k in low]
        return Evaluation(value, tuple(found), {"levels": dict(zip(instance.labels, reached.tolist(), strict=True))})

    def _levels(self, instance: Instance, question: Question, rounds: Any) -> tuple[Floats, list[str]]:
        """(n,) levels that the rounds reach, each proved to be as high as it can; sentences where one is not."""
        n = instance.n_tasks
        active, level, gain = np.ones(n, bool), np.zeros(n), gains(instance, question)
        if not isinstance(rounds, list):
            return level, ["the plan's details.rounds is no list of rounds with their proofs"]
        for r, one in enumerate(rounds):
            rise, frozen, jobs, types = (one[key] for key in ("rise", "frozen", "jobs", "types"))
            if isinstance(rise, bool) or not 0 <= float(rise) < np.inf:
                return level, [f"round {r} rises by {rise!r}, expected a number, 0 or more"]
            u = np.zeros(n)
            for name, price in jobs.items():
                u[instance.task_index[name]] = price
            u, p = checked(cluster_of(instance), u, [types[name] for name in instance.device_names])
            weight = weights(instance, question, active)
            over = excess(instance, gain, level, weight, float(rise), u, p)
            level = level + weight * float(rise)
            who = [instance.task_index[name] for name in frozen]
            for k in who:
                if not active[k] or weight[k] <= 0 or over[k] > CHECKED * max(level[k], 1e-300):
                    name = instance.labels[k]
                    return level, [f"round {r} stops job {name!r}, and its prices let it rise by {over[k]:.3g} more"]
            active[who] = False
            if not who:
                return level, [f"round {r} stops no job"]
        if active.any():
            return level, [f"no round stops job {instance.labels[int(active.argmax())]!r}"]
        return level, []

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The one method."""
        return (Step("lps", "exact, a linear program a round"),)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays the first round's prices."""
        if certificate.get("kind") != "prices":
            return super().replay(instance, question, certificate)
        cluster = cluster_of(instance)
        u, p = checked(cluster, certificate["jobs"], certificate["types"])
        weight = weights(instance, question, np.ones(instance.n_tasks, bool))
        asked = float(u @ weight) * (1 - 1e-12)
        if asked <= 0:
            raise ValueError("the prices are of no job that rises")
        return most(cluster, gains(instance, question), u, p) / asked

    def sample(self, seed: int) -> Instance:
        """As the family's, every other one with entities."""
        made = super().sample(seed)
        tables: dict[str, Any] = {}
        if seed % 2:
            tables = {"entity": {name: "ab"[k % 2] for k, name in enumerate(made.labels)}, "entities": {"a": 2}}
        return Instance.build(made.devices, list(made.jobs()), tables=tables, question={"objective": "water-filling"})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """The one right plan, by another solver: levels are unique."""
        plan = fill(instance, question, by_simplex, lambda: False)
        if plan is not None:
            yield plan


PROBLEM = WaterFilling()
