r"""Batch sizes of unlike devices that train together: most samples a second, or most utilisation, with updates in balance.

Asked of asynchronous training on CPUs and GPUs: large batches keep a GPU busy, and a CPU with small ones then makes so many more
updates that the model drifts to what the CPU saw.

Sets and data
    w in W         devices;  B_w their batch sizes with measured seconds t_w(b) and utilisation U_w(b) in [0, 1]:
                   ``tables.batches`` = {device, type or "*": [[b, t, U], ...]}
    r_wb = 1/t_w(b)  batches a second;  N samples of an epoch (``steps`` of the one job, may be left out)
    rho, S, U      ``balance``: largest ratio of two devices' rates; ``staleness``: most batches of all others during one of a
                   device; ``utilisation``: least mean utilisation; none of them limits when left out

Variables
    x_wb in {0, 1}  device w works on batches of b;     m >= 0  the least rate

Maximise sum_wb b r_wb x_wb (batch), or sum_wb U_w(b) x_wb / |W| (batch-utilisation), subject to

    sum_b x_wb = 1                                              for each device     (1)  choose
    m <= sum_b r_wb x_wb <= rho m                               for each device     (2)  balance
    sum_{w' b} r_w'b x_w'b <= (S + 1) sum_b r_wb x_wb           for each device     (3)  staleness
    sum_wb U_w(b) x_wb >= U |W|                                                     (4)  utilised

An epoch takes N / value seconds. Without (3) and (4) ``window`` is exact: the least rate m is one of the rates, and for each of
them every device chooses alone. :func:`curve` solves the question for many rho. ``adaptive`` is the published rule, run until it
settles.

Source: Y. Ma, F. Rusu, Heterogeneous CPU+GPU stochastic gradient descent algorithms, arXiv 2004.08771 (the rule, the trade-off;
they state no program, (1)-(4) are ours).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.splitting._curves import entry, number
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
    Method,
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
from hetopt.verify.batch import check_batches

__all__ = ["MILP", "PROBLEMS", "Adaptive", "Batch", "Utilisation", "Window", "curve"]

PATIENCE = 10.0  # seconds for the question about missing batches


class Grid(NamedTuple):
    """(c,) device, batch, batches a second and utilisation of all choices, batches growing; (W + 1,) first of each device."""

    of: NDArray[np.int64]
    batch: NDArray[np.int64]
    rate: NDArray[np.float64]
    utilisation: NDArray[np.float64]
    start: NDArray[np.int64]


@lru_cache(maxsize=4)
def grid(instance: Instance) -> Grid:
    """All choices of ``tables.batches``.

    Raises
    ------
    InputError
        The table is missing, names no device, or has a row that is not [batch, seconds, utilisation].
    """
    table = instance.tables.get("batches")
    if not isinstance(table, Mapping):
        raise InputError('$.tables.batches must map devices, types or "*" to lists of [batch, seconds, utilisation]')
    known = {"*", *instance.device_names, *(v.type for v in instance.devices if v.type)}
    for name in table:
        if name not in known:
            raise InputError(f"$.tables.batches names {name!r}, which is no device or type of the instance")
    rows: list[tuple[int, float, float]] = []
    start = [0]
    for device in instance.devices:
        listed, path = entry(table, device.name, device.type), f"$.tables.batches of {device.name!r}"
        if not isinstance(listed, list) or not listed:
            raise InputError(f"{path} is {listed!r:.60}, expected a list of [batch, seconds, utilisation]")
        mine = []
        for k, row in enumerate(listed):
            if not isinstance(row, list) or len(row) != 3:
                raise InputError(f"{path}[{k}] is {row!r:.60}, expected [batch, seconds, utilisation]")
            b, seconds, share = row
            if isinstance(b, bool) or not isinstance(b, int) or not 1 <= b < 2**53:
                raise InputError(f"{path}[{k}] has the batch {b!r}, expected a whole number, 1 or more")
            if number(share, f"{path}[{k}], utilisation") > 1:
                raise InputError(f"{path}[{k}] has the utilisation {share!r}, expected at most 1")
            mine.append((b, number(seconds, f"{path}[{k}], seconds", 1e-140), float(share)))
        if len({row[0] for row in mine}) < len(mine):
            raise InputError(f"{path} lists a batch twice")
        rows += sorted(mine)
        start.append(len(rows))
    batch, seconds_, share_ = (np.array(column) for column in zip(*rows, strict=True))
    of = np.repeat(np.arange(instance.n_devices), np.diff(start))
    return Grid(of, batch.astype(np.int64), 1.0 / seconds_, share_.astype(np.float64), np.array(start, np.int64))


def _plan(instance: Instance, chosen: NDArray[np.int64]) -> Solution:
    batches = grid(instance).batch[chosen].tolist()
    return Solution(details={"batch": dict(zip(instance.device_names, batches, strict=True))})


def _gain(instance: Instance, question: Question | None) -> NDArray[np.float64]:
    """(c,) what each choice adds to the value."""
    choices = grid(instance)
    if question is not None and isinstance(question.problem, Utilisation):
        return choices.utilisation / instance.n_devices
    return choices.batch * choices.rate


class MILP(LinearFormulation):
    """(1)-(4)."""

    name = "milp"
    title = "MILP (1)-(4)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``batch[device=b]`` and ``least``; rates in units of the largest."""
        return self.program(instance, question if question is not None else PROBLEMS[0].question(instance))

    def program(self, instance: Instance, question: Question, utilised_most: bool = False) -> LinearModel:
        """(1)-(4), or (1)-(3) with the greatest mean utilisation asked for."""
        choices, names, d = grid(instance), instance.device_names, instance.n_devices
        labels = [f"{names[w]}={b}" for w, b in zip(choices.of.tolist(), choices.batch.tolist(), strict=True)]
        rate = choices.rate / 2.0 ** np.frexp(choices.rate.max())[1]
        model = LinearModel("batch")
        x = model.binary("batch", len(labels), labels=(labels,))
        model.rows("choose", d, [(choices.of, x, 1.0)], lower=1, upper=1, labels=(names,))  # (1)
        balance, staleness, utilised = _limits(question)
        if math.isfinite(balance):
            least = model.continuous("least", upper=1.0)
            own: list[tuple[Any, Any, Any]] = [(choices.of, x, rate)]
            every = np.arange(d)
            model.rows("least_of", d, [*own, (every, least, -1.0)], lower=0, labels=(names,))  # (2)
            model.rows("balance", d, [*own, (every, least, -balance)], upper=0, labels=(names,))  # (2)
        if math.isfinite(staleness):
            all_of = (np.arange(d)[:, None], x[None, :], rate[None, :])
            mine = (choices.of, x, -(staleness + 1.0) * rate)
            model.rows("staleness", d, [all_of, mine], upper=0, labels=(names,))  # (3)
        if utilised > 0 and not utilised_most:
            model.rows("utilised", 1, [(0, x, choices.utilisation)], lower=utilised * d)  # (4)
        model.maximize(x, choices.utilisation / d if utilised_most else _gain(instance, question))
        return model

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """As any MILP; where no batches keep all limits, the most utilisation that the others leave."""
        from hetopt import solvers

        outcome = super().run(instance, question, control, options)
        utilised = _limits(question)[2]
        if outcome.reason != "infeasible" or utilised <= 0:
            return outcome
        answer = solvers.get("highs").solve(
            self.program(instance, question, utilised_most=True), solvers.Options(time_limit=PATIENCE)
        )
        if answer.reason != "optimal" or answer.objective is None:
            return outcome
        told = (
            f"a mean utilisation of {utilised:.9g} is asked for, within balance and staleness it is {answer.objective:.9g} "
            f"at most: {utilised - answer.objective:.9g} short"
        )
        return replace(outcome, infeasible=(told, *outcome.infeasible))

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The batch chosen for each device."""
        chosen = np.flatnonzero(x[model.columns("batch")] > 0.5)
        if not np.array_equal(grid(instance).of[chosen], np.arange(instance.n_devices)):
            raise ValueError("not one batch a device")
        return _plan(instance, chosen)

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """Ones and zeros of the batches."""
        given, choices = solution.details.get("batch"), grid(instance)
        if not isinstance(given, Mapping):
            return None
        taken = np.array([given.get(name, -1) for name in instance.device_names])
        point = np.full(model.n_columns, np.nan)
        point[model.columns("batch")] = choices.batch == taken[choices.of]
        return point


def _limits(question: Question) -> tuple[float, float, float]:
    """Balance, staleness and utilisation, ``inf``, ``inf`` and 0 where not asked for."""
    balance, staleness, utilised = (question[name] for name in ("balance", "staleness", "utilisation"))
    return (
        math.inf if balance is None else balance,
        math.inf if staleness is None else staleness,
        0.0 if utilised is None else utilised,
    )


def _too_far_apart(choices: Grid, balance: float, staleness: float) -> tuple[str, ...]:
    """Rates that never keep balance and staleness, and by how much.

    With any least rate, the smallest rates from there on, one a device, have both the least ratio and the least staleness.
    """
    low = np.unique(choices.rate)
    high, total = low.copy(), np.zeros(len(low))
    for first, last in pairwise(choices.start.tolist()):
        mine = np.append(np.sort(choices.rate[first:last]), np.inf)
        next_one = mine[np.searchsorted(mine, low)]
        high, total = np.maximum(high, next_one), total + next_one
    ratio, stale = high / low, total / low - 1.0
    if ratio.min() > balance * (1 + 1e-12):
        return (
            f"no batches have rates within a factor of {balance:.9g}, the least is {ratio.min():.9g}: "
            f"{ratio.min() - balance:.9g} too much",
        )
    least = float(stale[ratio <= balance * (1 + 1e-12)].min())
    if least > staleness * (1 + 1e-9) + 1e-9:
        return (
            f"while the slowest device works on a batch the others make {least:.9g} at least"
            f"{f' (within a balance of {balance:.9g})' if math.isfinite(balance) else ''}, "
            f"a staleness of {staleness:.9g} is asked for: {least - staleness:.9g} too much",
        )
    return ()


class Window(Method):
    """All windows of rates."""

    name = "window"
    title = "for each least rate, every device's best batch within the balance; exact"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Nothing but the balance ties the devices together."""
        _, staleness, utilised = _limits(question)
        return "staleness and utilisation tie devices together" if math.isfinite(staleness) or utilised > 0 else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass over the rates."""
        from hetopt.algorithms.batch import best_window

        choices, gain = grid(instance), _gain(instance, question)
        balance = _limits(question)[0]
        chosen = best_window(choices.rate, gain, choices.of, instance.n_devices, balance, control.should_stop)
        if control.should_stop() and not control.closed:
            return Outcome("limit", "time")
        if chosen is None:
            return Outcome("infeasible", infeasible=(f"no batches have rates within a factor of {balance:.9g}",))
        control.report_plan(_plan(instance, chosen))
        control.report_bound(float(gain[chosen].sum()) * (1 + 2.0**-40), "algorithm")
        return Outcome()


class Adaptive(Method):
    """The published rule."""

    name = "adaptive"
    title = "the adaptive rule, from the largest batches until it settles; no guarantee"
    kind = "heuristic"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """Its batches after 1, 2, 4, ... updates a device, where they keep the limits."""
        from hetopt.algorithms.batch import adaptive

        choices = grid(instance)
        for k in range(9):
            if control.should_stop():
                break
            plan = _plan(instance, adaptive(choices.rate, choices.start, (2**k - 1) * instance.n_devices))
            if not question.problem.judge(instance, question, plan).violations:
                control.report_plan(plan)
        return Outcome()


class Batch(Problem):
    """Most samples a second."""

    name = "splitting.batch"
    objectives = ("batch",)
    title = "batch sizes of devices that train together, most samples a second with updates in balance"
    sense = "max"
    unit = "samples a second"
    uses = frozenset({"time", "steps", "tables.batches"})
    options = (
        Option("balance", float, None, "largest ratio of two devices' batches a second, 1 or more"),
        Option("staleness", float, None, "most batches of all others while a device works on one"),
        Option("utilisation", float, None, "least mean utilisation, from 0 to 1"),
    )
    methods = (Window(), MILP(), Relaxed(MILP(), "(1)-(4)"), Adaptive())

    def fits(self, instance: Instance) -> str | None:
        """One job and a table."""
        if instance.n_tasks != 1:
            return f"it needs one job that is split, and the instance has {instance.n_tasks} tasks"
        return None if "batches" in instance.tables else "it needs tables.batches"

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Samples a second, limits checked."""
        grid(instance)
        report = check_batches(instance, solution.details, *_limits(question))
        if not report.batch:
            return Evaluation(-math.inf, report.violations)
        rows = zip(instance.device_names, report.batch, report.rate, report.utilisation, strict=True)
        devices = {name: {"batch": b, "rate": rate, "utilisation": share} for name, b, rate, share in rows}
        speed, steps = math.fsum(report.speed), float(instance.columns.steps[0])
        details = {
            "devices": devices,
            "samples_a_second": speed,
            "utilisation": math.fsum(report.utilisation) / len(report.batch),
            "balance": max(report.rate) / min(report.rate),
            "epoch_seconds": steps / speed if steps == steps else None,
        }
        return Evaluation(self.value(details), report.violations, details)

    def value(self, details: Mapping[str, Any]) -> float:
        """Which of the numbers is asked for."""
        return float(details["samples_a_second"])

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """Options out of range, a utilisation that nothing reaches, rates that are never in balance."""
        balance, staleness, utilised = _limits(question)
        for name, value, low in (
            ("balance", balance, 1.0),
            ("staleness", staleness, 0.0),
            ("utilisation", utilised, 0.0),
        ):
            if not value >= low:
                raise InputError(f"$.question.{name} is {value!r}, expected a number, {low:g} or more")
        choices = grid(instance)
        most = math.fsum(np.maximum.reduceat(choices.utilisation, choices.start[:-1]).tolist()) / instance.n_devices
        if most < utilised * (1 - 1e-9):
            return (
                f"a mean utilisation of {utilised:.9g} is asked for, the most is {most:.9g}: {utilised - most:.9g} short",
            )
        slowest = np.minimum.reduceat(choices.rate, choices.start[:-1])
        quickest = np.maximum.reduceat(choices.rate, choices.start[:-1])
        a, b = int(slowest.argmax()), int(quickest.argmin())
        if a != b and slowest[a] > balance * quickest[b] * (1 + 1e-12):
            names = instance.device_names
            return (
                f"{names[a]!r} makes {slowest[a] / quickest[b]:.9g} batches for each of {names[b]!r} at least, "
                f"a balance of {balance:.9g} is asked for",
            )
        return _too_far_apart(choices, balance, staleness)

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The windows where they are exact, else the rule and the program."""
        if self.method("window").fits(instance, question) is None:
            return (Step("window", "exact in moments"),)
        return (Step("adaptive", "a plan at once", 0.1), Step("milp", "exact"))

    def sample(self, seed: int) -> Instance:
        """Up to three devices of up to four batches."""
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 4))
        table = {}
        for w in range(d):
            n, pace = int(rng.integers(1, 5)), float(rng.integers(1, 4))
            seconds = np.cumsum(rng.integers(1, 5, n)) * pace / 8
            table[f"d{w}"] = [[2**k, float(seconds[k]), (k + 1) / n] for k in range(n)]
        question: dict[str, Any] = {"objective": self.objectives[0], "balance": float(rng.integers(4, 13)) / 2}
        if seed % 3 == 1:
            question["staleness"] = float(rng.integers(4, 13))
        if seed % 3 == 2:
            question["utilisation"] = float(rng.integers(1, 7)) / 8
        job = Job(name="epoch", steps=1000, time=[1] * d)
        return Instance.build(
            [Device(name=f"d{w}") for w in range(d)], [job], tables={"batches": table}, question=question
        )

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All choices."""
        start = grid(instance).start.tolist()
        for chosen in product(*(range(a, b) for a, b in pairwise(start))):
            yield _plan(instance, np.array(chosen, np.int64))


class Utilisation(Batch):
    """Most utilisation."""

    name = "splitting.batch_utilisation"
    objectives = ("batch-utilisation",)
    title = "batch sizes of devices that train together, most mean utilisation with updates in balance"
    unit = ""

    def value(self, details: Mapping[str, Any]) -> float:
        """The mean utilisation."""
        return float(details["utilisation"])


def curve(
    instance: Instance, balances: Sequence[float], objective: str = "batch", **options: Any
) -> list[tuple[float, Any]]:
    """(balance, verified result) for each balance asked for: the trade-off between balance and speed or utilisation.

    Parameters
    ----------
    balances
        Numbers of 1 or more.
    objective
        ``batch`` or ``batch-utilisation``.
    options
        As of :func:`hetopt.solve`.
    """
    import hetopt

    own = {**instance.question, "objective": objective}
    return [(rho, hetopt.solve(instance.with_question({**own, "balance": float(rho)}), **options)) for rho in balances]


PROBLEMS = (Batch(), Utilisation())
