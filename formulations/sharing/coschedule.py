r"""Co-scheduling: a queue of jobs on nodes that run two or more at once, each set with the division and power cap that suit it.

Sets and data (tables: :mod:`hetopt.verify.corun`)
    kinds k of alike jobs, N_k of them;  c  sets of kinds with a configuration: n_kc jobs of kind k, p_c watts, t_c seconds
    until all of them are done; every kind alone is among them

Variables
    x_c in {0, 1, ...}  sets of that kind and configuration in the plan

Minimise sum_c t_c x_c subject to

    sum_c n_kc x_c = N_k                            for each kind k                  (1)  each job in one set
    sum_c p_c x_c <= P                              with ``site`` P                  (2)  power of all sets
    sum_c x_c <= M                                  with ``site``, M nodes           (3)  nodes

over the sets of at most ``group`` jobs (2 by default) and ``cap`` watts. Without ``site`` sets run one after another on a node
and the value is the time for the whole queue; only the fastest configuration of a set matters, and with sets of one or two jobs
(1) is a minimum-weight perfect matching (``matching``: Edmonds). With ``site`` all sets run at once, each on a node of its own.

The relaxation of (1) alone may be off: three alike jobs that gain by pairs are three halves of a pair to it. Every plan also
keeps

    sum_c floor(n_c(B) / 2) x_c <= floor(N(B) / 2)  for each set B of kinds          (4)  odd set

with n_c(B), N(B) the jobs of B's kinds, being (1) summed over B, halved, rounded down. ``odd-sets`` adds those that are broken:
all of them, by minimum odd cuts, where sets are pairs and at most 60 kinds hang together. With a job of each kind, pairs and no
``site`` the bound is then the optimum; several jobs of a kind, sets of three, (2) and (3) may leave a gap, which is told as it
is. Proof, with u free and y, lambda, mu >= 0:

    value >= sum_k N_k u_k - sum_B y_B floor(N(B)/2) - lambda P - mu M + sum_k N_k min(0, min_{c with k} r_c / |c|)    (5)
    r_c = t_c - sum_k n_kc u_k + sum_B y_B floor(n_c(B)/2) + lambda p_c + mu

Source: I. Saba, E. Arima, D. Liu, M. Schulz, Orchestrated co-scheduling, resource partitioning, and power capping on CPU-GPU
heterogeneous systems via machine learning, ARCS 2022 (pairs by matching; (2), (3), (5) and larger sets are ours); odd cuts: M.
Padberg, M. Rao, Mathematics of Operations Research 7, 1982. Its rule that no set takes longer than its jobs one by one needs no
constraint: without ``site`` such a set is never better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.sharing._coschedule_methods import Alone, Greedy, Matching, OddSets, explained, price_bound
from formulations.sharing._queue import Queue, encoded, plan_of, queue_of
from formulations.sharing._rounding import next_value
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
    Option,
    Outcome,
    Problem,
    Question,
    Relaxed,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify.corun import check_sets, coruns_of

__all__ = ["MILP", "PROBLEM", "CoSchedule"]


class Program(LinearModel):
    """(1)-(3), with the queue it was made from."""

    queue: Queue


class MILP(LinearFormulation):
    """(1)-(3)."""

    name = "milp"
    title = "MILP (1)-(3), alike jobs counted together: set partitioning for sets of any size"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """A set's kinds, watts and node."""
        return 4 * len(coruns_of(instance).sets)

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``sets[kinds configuration watts]``."""
        queue = queue_of(instance, question if question is not None else PROBLEM.question(instance))
        model = Program("coschedule")
        model.queue = queue
        c, k = np.nonzero(queue.has)
        x = model.integer("sets", len(queue.seconds), lower=0, upper=queue.most(), labels=(queue.labels(),))
        n = queue.size
        model.rows("jobs", len(n), [(k, x[c], queue.has[c, k])], lower=n, upper=n, labels=(queue.names,))  # (1)
        if queue.site is not None:
            unit = max(queue.site, 1.0)
            zero = np.zeros(len(x), np.int64)
            model.rows("power", 1, [(zero, x, queue.watts / unit)], upper=queue.site / unit)  # (2)
            model.rows("nodes", 1, [(zero, x, 1.0)], upper=queue.nodes)  # (3)
        model.minimize(x, queue.seconds)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Jobs of a kind are dealt to its sets in file order."""
        assert isinstance(model, Program)
        return plan_of(instance, model.queue, np.rint(x[model.columns("sets")]).astype(np.int64))

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """How often a plan has each set; None where another configuration of a set is at least as good."""
        assert isinstance(model, Program)
        return encoded(instance, model.queue, solution)

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any program; where there is no plan, how many watts or nodes would make one is looked for."""
        return explained(instance, question, super().run(instance, question, control, options))


class Fractions(Relaxed):
    """The relaxation; where it has no point there is no plan, and why is told."""

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any relaxation."""
        return explained(instance, question, super().run(instance, question, control, options))


class CoSchedule(Problem):
    """The question."""

    name = "sharing.coschedule"
    objectives = ("coschedule",)
    title = "a queue of jobs in sets on nodes, each set with its best division and power cap, least seconds together"
    unit = "seconds"
    uses = frozenset({"time", "slots", "power", "tables.corun", "tables.kind"})
    options = (
        Option("cap", float, None, "most watts of a set"),
        Option("site", float, None, "most watts of all sets together, which then run at once on a node each"),
        Option("group", int, 2, "most jobs of a set"),
    )
    methods = (
        MILP(),
        Matching(),
        Fractions(MILP(), "(1)-(3), no odd sets: a gap is told"),
        OddSets(),
        Greedy(),
        Alone(),
    )

    def fits(self, instance: Instance) -> str | None:
        """One kind of node, and sets."""
        if "corun" not in instance.tables:
            return "it has no `tables.corun` (rows [names, configuration, watts, seconds])"
        return (
            None
            if instance.n_devices == 1
            else f"it has {instance.n_devices} devices; nodes of one kind are one device"
        )

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Seconds of all sets, each job in one, every limit checked."""
        asked = {name: question[name] for name in ("cap", "site", "group")}
        told = check_sets(instance, solution, **asked)
        one_by_one = math.fsum(instance.time[:, 0].tolist())
        return Evaluation(told.seconds, told.violations, {"watts together": told.watts, "one by one": one_by_one})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """A job for which there is no set within the cap; too few nodes or watts at a glance."""
        for name in ("cap", "site"):
            if question[name] is not None and not 0 <= question[name] <= 1e12:
                raise InputError(f"$.question.{name} is {question[name]!r}, expected watts, 0 or more")
        if question["group"] < 1:
            raise InputError(f"$.question.group is {question['group']!r}, expected 1 or more")
        known, queue = coruns_of(instance), queue_of(instance, question)
        served = queue.has.any(axis=0)
        found = []
        for k in np.flatnonzero(~served)[:20].tolist():
            least = min(one.watts for one in known.sets if k in one.kinds and len(one.kinds) <= question["group"])
            found.append(
                f"cap: {queue.names[k]!r} takes {least:g} W at least, in any set, and a set may take {question['cap']:g} W: "
                f"{least - question['cap']:g} W too many"
            )
        if found or queue.site is None:
            return tuple(found)
        jobs, width = int(queue.size.sum()), int(queue.has.sum(axis=1).max())
        if jobs > width * queue.nodes:
            found.append(
                f"nodes: {jobs} jobs in sets of at most {width} take {-(-jobs // width)} nodes, there are {queue.nodes}: "
                f"{-(-jobs // width) - queue.nodes} too few"
            )
        per_job = np.where(queue.has > 0, (queue.watts / queue.has.sum(axis=1))[:, None], np.inf).min(axis=0)
        watts = math.fsum((queue.size * per_job).tolist())
        if watts > queue.site * (1 + 1e-9):
            found.append(
                f"site: the jobs take {watts:g} W at least, there are {queue.site:g} W: {watts - queue.site:g} W too few"
            )
        return tuple(found)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The rule, a bound that is stored, the program."""
        return (
            Step("greedy", "a plan in moments", 0.1),
            Step("odd-sets", "a bound whose proof is stored", 0.3),
            Step("milp", "exact, over kinds of alike jobs"),
        )

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """(5), or the duals of the relaxation."""
        if certificate.get("kind") != "odd-sets":
            return super().replay(instance, question, certificate)
        bound = price_bound(queue_of(instance, question), certificate)
        return self.round_bound(instance, question, bound, slack=0.0)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """Whole seconds add up to multiples of what divides all of them."""
        return next_value(bound, queue_of(instance, question).seconds, 0.0, slack)

    def sample(self, seed: int) -> Instance:
        """Up to six jobs, some alike, two configurations and two caps."""
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 7))
        kinds = {f"k{k}": int(rng.integers(3, 20)) for k in range(4)}
        of = {f"j{k}": f"k{int(rng.integers(0, 4))}" for k in range(n)}
        rows: list[list[Any]] = [[["k0"], "whole", 60, 2 * kinds["k0"]]]
        for a, b in itertools.combinations_with_replacement(sorted(kinds), 2):
            for split, watts in itertools.product(("left", "right"), (60, 100)):
                if rng.random() < 0.6:
                    longest, both = max(kinds[a], kinds[b]), kinds[a] + kinds[b]
                    rows.append([[a, b], split, watts, int(rng.integers(longest, both + 3))])
        question: dict[str, Any] = {"objective": "coschedule"}
        if seed % 3 == 1:
            question["site"], question["cap"] = float(rng.integers(30, 60) * n), 100.0
        if seed % 2:
            question["group"] = 3
            rows.append([["k0", "k1", "k2"], "thirds", 100, 25])
            rows.append([["k1", "k1", "k1"], "thirds", 60, 2 * kinds["k1"]])
        devices = [Device(name="node", power=100, slots=max(2, -(-2 * n // 3)))]
        jobs = [Job(name=name, time=[kinds[kind]]) for name, kind in of.items()]
        return Instance.build(devices, jobs, tables={"kind": of, "corun": rows}, question=question)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Every partition of the jobs into sets, with every configuration of each."""
        known = coruns_of(instance)
        by_kinds: dict[tuple[int, ...], list[list[Any]]] = {}
        for one in known.sets:
            by_kinds.setdefault(one.kinds, []).append([one.configuration, one.watts])

        def fill(left: list[int]) -> Iterator[list[list[Any]]]:
            if not left:
                yield []
                return
            for more in range(min(question["group"], len(left))):
                for others in itertools.combinations(left[1:], more):
                    chosen = [left[0], *others]
                    names = [instance.labels[job] for job in chosen]
                    for way in by_kinds.get(tuple(sorted(known.kind[chosen].tolist())), ()):
                        for rest in fill([job for job in left[1:] if job not in others]):
                            yield [[names, *way], *rest]

        for rows in fill(list(range(instance.n_tasks))):
            yield Solution(details={"sets": rows})


PROBLEM = CoSchedule()
