"""R|s_ijk|Cmax: jobs on unrelated machines with setup times between consecutive jobs, the last one done as early as possible.

Sets and data
    j, k in J   jobs (independent tasks); 0 stands for the idle machine before its first and after its last job
    i in M      devices
    p_ij        seconds of job j on device i, absent where it cannot run
    s_ijk >= 0  seconds between j and k when k follows j on i: ``tables.setup[i][j][k]``; nothing before the first job

Variables
    x_ij  in {0, 1}     job j runs on device i
    y_ijk in {0, 1}     k follows j on i (0: first, last)
    C_j >= 0            completion of job j
    T >= 0              makespan

Minimise T subject to

    sum_i x_ij = 1                                                  for each job                        (1)  assign
    sum_{j != k} y_ijk = x_ik,  sum_{k != j} y_ijk = x_ij           for each job, device (0 included)   (2)  before, after
    sum_k y_i0k <= 1                                                for each device                     (3)  first
    C_k >= C_j + s_ijk + p_ik - B (1 - y_ijk)                       for each pair of jobs, device       (4)  order
    sum_j p_ij x_ij + sum_jk s_ijk y_ijk <= T                       for each device                     (5)  load

``lp``: each job but a device's first waits for its least setup. With m_ik = min_j s_ijk and M_i = max_k m_ik,
    sum_j (p_ij + m_ij) x_ij - M_i <= T,  (1),  0 <= x <= 1                                             (6)
bounds every plan; its dual is replayed without a solver.

``subsets``: exact for at most 14 jobs, the quickest path through each set of jobs on each device, then the best partition.

Sources: E. Vallada, R. Ruiz, European Journal of Operational Research 211 (2011), for (1)-(5) and the published sets;
M. Held, R. Karp, Journal of SIAM 10 (1962), for the paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations._jobs import time_unit
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import (
    ConstraintModel,
    Evaluation,
    LinearFormulation,
    Method,
    Outcome,
    Problem,
    Question,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.solution import Solution
from hetopt.verify.sequence import TOLERANCE, check_sequence, gantt_details

__all__ = ["CPSAT", "LP", "MILP", "PROBLEM", "Annealing", "SetupTimes", "Subsets"]

_BITS = 31  # CP-SAT's presolve multiplies numbers of this size without overflow


class Subsets(Method):
    """Dynamic programs over sets of jobs."""

    name = "subsets"
    title = "dynamic programs over sets of jobs; exact, at most 14 jobs"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """At most 14 jobs, all devices free from the start."""
        from hetopt.algorithms.setup_times import MOST_JOBS

        return f"there are more than {MOST_JOBS} jobs" if instance.n_tasks > MOST_JOBS else None

    def size(self, instance: Instance, question: Question) -> int:
        """Pairs of nested sets."""
        return int(min(3.0**instance.n_tasks * instance.n_devices, 2.0**62))

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Paths, partition; the value is the optimum by the algorithm's proof."""
        from hetopt.algorithms.setup_times import best_sequences

        best = best_sequences(instance.time, _setup(instance))
        if best is None:
            return Outcome("infeasible", infeasible=("the dynamic program found no device for every job",))
        control.report_plan(_plan(instance, best.machine, best.position))
        if control.value is not None:
            control.report_bound(min(control.value, best.makespan), "algorithm")
        return Outcome()


class Annealing(Method):
    """Simulated annealing over sequences."""

    name = "annealing"
    title = "simulated annealing over sequences; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Sixty rounds of falling temperature; again from other random numbers while a time limit leaves time."""
        from hetopt.algorithms.setup_times import anneal_sequences

        def better(plan: Any) -> None:
            control.report_plan(_plan(instance, plan.machine, plan.position))

        attempt = 0
        while True:
            anneal_sequences(
                instance.time,
                _setup(instance),
                seed=control.seed + 7919 * attempt,
                should_stop=control.should_stop,
                report=better,
            )
            attempt += 1
            if control.should_stop():
                return Outcome("limit", "time")
            if math.isinf(control.remaining) or attempt == 100 or instance.n_tasks * instance.n_devices < 2:
                return Outcome()


class LP(LinearFormulation):
    """(1), (6)."""

    name = "lp"
    title = "LP relaxation (1), (6) with least setups, bound replayed without a solver"
    kind = "relaxation"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x[task,device]`` and ``makespan``, in units that suit tolerances."""
        n, d = instance.time.shape
        unit = _model_unit(instance)
        time, least = instance.time / unit, _least_setup(instance) / unit
        can = instance.eligible
        model = LinearModel("setup-bound")
        x = model.continuous("x", (n, d), upper=can, labels=(instance.labels, instance.device_names))
        t = model.continuous("makespan", upper=_horizon(instance) / unit)
        j, i = np.nonzero(can)
        model.rows("assign", n, [(j, x[j, i], 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        terms: list[tuple[Any, Any, Any]] = [(i, x[j, i], time[j, i] + least[i, j]), (np.arange(d), t, -1.0)]
        model.rows("load", d, terms, upper=least.max(axis=1, initial=0.0), labels=(instance.device_names,))  # (6)
        model.minimize(t, unit)
        return model


class MILP(LinearFormulation):
    """(1)-(5)."""

    name = "milp"
    title = "MILP (1)-(5)"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Nonzeros: a few for each pair of jobs on each device."""
        return 7 * instance.n_devices * instance.n_tasks**2

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``x[task,device]``, ``y[device,before,after]`` (0 is the idle machine), ``done``, ``makespan``, the last two
        in units that suit tolerances.
        """
        n, d = instance.time.shape
        unit = _model_unit(instance)
        time, setup, big = instance.time / unit, _setup(instance) / unit, _horizon(instance) / unit
        can = instance.eligible
        model = LinearModel("setup-times")
        x = model.binary("x", (n, d), upper=can, labels=(instance.labels, instance.device_names))
        free = np.zeros((d, n + 1, n + 1))
        free[:, 1:, 1:] = can.T[:, :, None] & can.T[:, None, :] & ~np.eye(n, dtype=bool)
        free[:, 0, 1:], free[:, 1:, 0] = can.T, can.T
        y = model.binary("y", (d, n + 1, n + 1), upper=free)
        done = model.continuous("done", n, upper=big)
        t = model.continuous("makespan", upper=big)
        j, i = np.nonzero(can)
        model.rows("assign", n, [(j, x[j, i], 1.0)], lower=1, upper=1, labels=(instance.labels,))  # (1)
        row = np.arange(n * d).reshape(n, d)
        for block, arcs in (("before", y[:, :, 1:].transpose(2, 0, 1)), ("after", y[:, 1:, :].transpose(1, 0, 2))):
            model.rows(block, (n, d), [(row[:, :, None], arcs, 1.0), (row, x, -1.0)], lower=0, upper=0)  # (2)
        model.rows("first", d, [(np.arange(d)[:, None], y[:, 0, 1:], 1.0)], upper=1)  # (3)
        device, before, after = np.nonzero(free[:, 1:, 1:])
        wait = setup[device, before, after] + time[after, device]
        pair = np.arange(len(device))
        terms: list[tuple[Any, Any, Any]] = [
            (pair, done[after], 1.0),
            (pair, done[before], -1.0),
            (pair, y[device, before + 1, after + 1], -big),
        ]
        model.rows("order", len(device), terms, lower=wait - big)  # (4)
        terms = [
            (i, x[j, i], time[j, i]),
            (device, y[device, before + 1, after + 1], setup[device, before, after]),
            (np.arange(d), t, -1.0),
        ]
        model.rows("load", d, terms, upper=0, labels=(instance.device_names,))  # (5)
        model.minimize(t, unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """Devices by x, order by the arcs."""
        n, d = instance.time.shape
        y = x[model.columns("y")] > 0.5
        machine = np.argmax(x[model.columns("x")], axis=1)
        position = np.zeros(n, np.int64)
        for i in range(d):
            at, place = 0, 0
            while True:
                following = np.flatnonzero(y[i, at, 1:])
                if not following.size or place > n:
                    break
                at = int(following[0]) + 1
                position[at - 1] = place
                place += 1
        return _plan(instance, machine, position)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """x and arcs of a plan."""
        if solution.placement is None or solution.start is None:
            return None
        point = np.full(model.n_columns, np.nan)
        n, d = instance.time.shape
        point[model.columns("x")] = solution.placement[:, None] == np.arange(d)
        arcs = np.zeros((d, n + 1, n + 1))
        for i, order in enumerate(_orders(instance, solution)):
            stops = [0, *(k + 1 for k in order), 0]
            if order:
                arcs[i, stops[:-1], stops[1:]] = 1.0
        point[model.columns("y")] = arcs
        return point


class CPSAT(ConstraintModel):
    """A circuit for each device in CP-SAT; decimals are rounded down for the bound."""

    name = "cpsat"
    title = "CP-SAT, a circuit of jobs for each device"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Arcs."""
        return instance.n_devices * (instance.n_tasks + 1) ** 2

    def program(self, instance: Instance, question: Question, control: Control) -> Any:
        """Literals x_ij, arcs y_ijk, one makespan."""
        from ortools.sat.python import cp_model

        from hetopt.solvers.cpsat import CpProgram

        n, d = instance.time.shape
        setup, can, unit = _setup(instance), instance.eligible, _unit(instance)
        time = np.floor(np.where(can, instance.time, 0.0) / unit).astype(np.int64)
        wait = np.floor(setup / unit).astype(np.int64)
        model = cp_model.CpModel()
        makespan = model.new_int_var(0, math.floor(_horizon(instance) / unit) + 1, "makespan")
        x = {(j, i): model.new_bool_var("") for j, i in zip(*np.nonzero(can), strict=True)}
        y: dict[tuple[int, int, int], Any] = {}
        for j in range(n):
            model.add_exactly_one(x[j, i] for i in range(d) if can[j, i])  # (1)
        for i in range(d):
            mine = np.flatnonzero(can[:, i]).tolist()
            idle = model.new_bool_var("")
            arcs = [(0, 0, idle)]
            terms, weights = [x[j, i] for j in mine], [int(time[j, i]) for j in mine]
            for j in mine:
                arcs.append((j + 1, j + 1, ~x[j, i]))
                model.add_implication(idle, ~x[j, i])
                for key in ((i, 0, j + 1), (i, j + 1, 0), *((i, j + 1, k + 1) for k in mine if k != j)):
                    y[key] = model.new_bool_var("")
                    arcs.append((key[1], key[2], y[key]))
                    if key[1] and key[2]:
                        terms.append(y[key])
                        weights.append(int(wait[i, j, key[2] - 1]))
            model.add_circuit(arcs)  # (2), (3)
            model.add(cp_model.LinearExpr.weighted_sum(terms, weights) <= makespan)  # (5)
        model.minimize(makespan)
        points = [*x.values(), *y.values()]
        return CpProgram(model, points, to_bound=lambda bound: math.ceil(bound - 1e-6) * unit, name=self.name)

    def _arcs(self, instance: Instance) -> tuple[NDArray[np.int64], list[tuple[int, int, int]]]:
        """Pairs (job, device) and arcs (device, before, after), in the order of the program's variables."""
        pairs = np.argwhere(instance.eligible)
        arcs: list[tuple[int, int, int]] = []
        for i in range(instance.n_devices):
            mine = np.flatnonzero(instance.eligible[:, i]).tolist()
            for j in mine:
                arcs += [(i, 0, j + 1), (i, j + 1, 0), *((i, j + 1, k + 1) for k in mine if k != j)]
        return pairs, arcs

    def decode(self, instance: Instance, question: Question, program: Any, x: NDArray[np.float64]) -> Solution:
        """Devices by x, order by the arcs."""
        pairs, arcs = self._arcs(instance)
        values = np.asarray(x) > 0.5
        machine = np.zeros(instance.n_tasks, np.int64)
        chosen = pairs[values[: len(pairs)]]
        machine[chosen[:, 0]] = chosen[:, 1]
        follows = {(i, a): b for (i, a, b), on in zip(arcs, values[len(pairs) :], strict=True) if on}
        position = np.zeros(instance.n_tasks, np.int64)
        for i in range(instance.n_devices):
            at, place = follows.get((i, 0), 0), 0
            while at:
                position[at - 1] = place
                place += 1
                at = follows[i, at]
        return _plan(instance, machine, position)

    def encode(
        self, instance: Instance, question: Question, program: Any, solution: Solution
    ) -> NDArray[np.float64] | None:
        """x and arcs of a plan."""
        if solution.placement is None or solution.start is None:
            return None
        pairs, arcs = self._arcs(instance)
        used: set[tuple[int, int, int]] = set()
        for i, order in enumerate(_orders(instance, solution)):
            stops = [0, *(k + 1 for k in order), 0]
            used |= {(i, a, b) for a, b in pairwise(stops)}
        literals = solution.placement[pairs[:, 0]] == pairs[:, 1]
        return np.concatenate([literals, [arc in used for arc in arcs]]).astype(np.float64)


class SetupTimes(Problem):
    """Makespan with setup times that depend on device and sequence."""

    name = "assignment.setup_times"
    objectives = ("setup-makespan",)
    title = "last job done as early as possible with setup times between jobs (R|s_ijk|Cmax)"
    uses = frozenset({"time", "pin", "forbid", "tables.setup"})
    methods = (Subsets(), CPSAT(), MILP(), LP(), Annealing())

    def fits(self, instance: Instance) -> str | None:
        """A table of setups, independent jobs, no groups, everything there from the start."""
        if "setup" not in instance.tables:
            return "the file has no tables.setup, a list of devices x jobs x jobs in seconds"
        if len(instance.edges):
            return "tasks depend on each other by edges"
        if (instance.group >= 0).any():
            return "it knows no groups"
        if (instance.columns.release > 0).any():
            return "jobs have release dates"
        return "devices are not all free at 0 (available_from)" if instance.available_from.any() else None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Latest completion; setups between consecutive jobs of a device are kept."""
        done, violations = check_sequence(instance, solution.placement, solution.start)
        if violations or not np.isfinite(done).all():
            return Evaluation(math.inf, violations)
        assert solution.placement is not None and solution.start is not None
        setup, wrong = _setup(instance), list(violations)
        keep = 1.0 if _whole(instance) else 1.0 - TOLERANCE
        for i, order in enumerate(_orders(instance, solution)):
            for j, k in pairwise(order):
                least = done[j] + setup[i, j, k]
                if solution.start[k] < least * keep:
                    names = instance.labels[j], instance.labels[k], instance.device_names[i]
                    wrong.append(
                        f"task {names[1]!r} starts on {names[2]!r} at {solution.start[k]:.9g}, but {names[0]!r} and the setup "
                        f"end at {least:.9g}"
                    )
        details = {"devices": gantt_details(instance, solution.placement, done)}
        return Evaluation(float(done.max()), tuple(wrong), details)

    def round_bound(self, instance: Instance, question: Question, bound: float, *, slack: float) -> float:
        """With integer times and setups every value is an integer: round up."""
        return float(math.ceil(bound - slack)) if _whole(instance) else bound

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """Sets of jobs while they are few; else a bound, annealing, and CP-SAT for the proof."""
        if self.method("subsets").fits(instance, question) is None:
            return (Step("subsets", "few jobs: dynamic programs over sets are exact at once"),)
        return (
            Step("lp", "a bound at once", share=0.1),
            Step("annealing", "good plans quickly", share=0.5),
            Step("cpsat", "exact, starts from the annealed plan"),
        )

    def sample(self, seed: int) -> Instance:
        """Up to five jobs on up to three devices."""
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        times = rng.integers(0, 12, (n, d)).astype(float)
        times[(rng.random((n, d)) < 0.15) & (np.arange(d) != rng.integers(0, d, (n, 1)))] = np.inf
        setup = rng.integers(0, 9, (d, n, n)).tolist()
        return Instance.from_times(times, tables={"setup": setup}, question={"objective": self.name})

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All placements in all orders."""
        for plain in super().every_plan(instance, question):
            assert plain.placement is not None
            for order in permutations(range(instance.n_tasks)):
                yield _plan(instance, plain.placement, np.argsort(order))


def _setup(instance: Instance) -> NDArray[np.float64]:
    """(d, n, n) setups; InputError when the table is not what it should be."""
    n, d = instance.n_tasks, instance.n_devices
    try:
        setup = np.array(instance.tables["setup"], np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"$.tables.setup is no array of numbers: {error}") from None
    if setup.shape != (d, n, n):
        raise InputError(f"$.tables.setup has shape {setup.shape}, expected {d} devices x {n} jobs x {n} jobs")
    if not (np.isfinite(setup) & (setup >= 0)).all():
        raise InputError("$.tables.setup holds a number that is negative or not finite; expected seconds >= 0")
    return setup


def _least_setup(instance: Instance) -> NDArray[np.float64]:
    """(d, n) least setup before each job on each device, over the jobs that can run there; 0 for a job that is alone."""
    setup = _setup(instance)
    off = np.eye(instance.n_tasks, dtype=bool)[None] | ~instance.eligible.T[:, :, None]
    least = np.where(off, np.inf, setup).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


def _whole(instance: Instance) -> bool:
    setup = _setup(instance)
    return instance.integral and bool((setup == np.floor(setup)).all())


def _horizon(instance: Instance) -> float:
    """No plan without needless waiting takes longer."""
    slowest = np.where(instance.eligible, instance.time, 0.0).max(axis=1).sum()
    return float(slowest + _setup(instance).max(axis=(0, 2), initial=0.0).sum())


def _model_unit(instance: Instance) -> float:
    """Seconds per unit of time in the linear models, a power of two."""
    return time_unit(max(float(instance.time[instance.eligible].max()), float(_setup(instance).max(initial=0.0))))


def _unit(instance: Instance) -> float:
    """Seconds per integer unit: 1 for small integers, else a power of two; sums stay below 2^31."""
    horizon = _horizon(instance)
    return 1.0 if _whole(instance) and horizon < 2.0**_BITS else 2.0 ** (math.frexp(horizon)[1] - _BITS)


def _plan(instance: Instance, machine: NDArray[np.int64], position: NDArray[np.int64]) -> Solution:
    """Plan that runs each device's jobs by position, each as early as possible; names the sequences that starts leave open."""
    setup, start, orders = _setup(instance), np.zeros(instance.n_tasks), []
    for i in range(instance.n_devices):
        mine = np.flatnonzero(np.asarray(machine) == i)
        orders.append(mine[np.argsort(np.asarray(position)[mine], kind="stable")].tolist())
        clock = 0.0
        for k, j in enumerate(orders[i]):
            start[j] = clock + (setup[i, orders[i][k - 1], j] if k else 0.0)
            clock = start[j] + instance.time[j, i]
    plain = Solution(placement=np.array(machine, np.int64), start=start)
    seen = zip(instance.device_names, orders, _orders(instance, plain), strict=True)
    told = {name: [instance.labels[j] for j in order] for name, order, read in seen if order != read}
    return replace(plain, details={"sequence": told}) if told else plain


def _orders(instance: Instance, solution: Solution) -> list[list[int]]:
    """Jobs of each device in the order they run: by start and end, or as ``details.sequence`` has it where these do not rise.

    Jobs of no length may share a moment, and only their sequence says which setups lie between them.
    """
    assert solution.placement is not None and solution.start is not None
    placement, start = solution.placement, solution.start
    done = start + instance.time[np.arange(instance.n_tasks), placement]
    rank = np.lexsort((done, start))
    orders = [rank[placement[rank] == i].tolist() for i in range(instance.n_devices)]
    told = solution.details.get("sequence")
    for name, tasks in told.items() if isinstance(told, Mapping) else ():
        i = instance.device_index.get(name)
        if i is None or not isinstance(tasks, Sequence) or isinstance(tasks, str):
            continue
        order = [instance.task_index.get(task, -1) if isinstance(task, str) else -1 for task in tasks]
        moments = [(float(start[j]), float(done[j])) for j in order if j >= 0]
        if sorted(order) == sorted(orders[i]) and moments == sorted(moments):
            orders[i] = order
    return orders


PROBLEM = SetupTimes()
