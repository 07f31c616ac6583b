"""How many ways of model parallelism, how many of data parallelism, by table: the fastest training on so many devices.

Sets and data, in ``tables.strategy``, by number written as text
    G            devices of the instance
    M, S_M       ``model``: speed-up of a training step when one worker uses M devices for the model (1 for M = 1)
    N, e_N, E_N  ``efficiency`` of a step on N workers, and ``epochs`` to the same accuracy with the batch of N workers

S_M comes from a placement question about one worker's graph (``partition.latency``, ``partition.maxload``), e_N from timing the
exchange of gradients, E_N from training runs: a larger batch needs more epochs, which is what makes model parallelism pay.

Variables
    z_MN in {0, 1}   N workers of M devices each

Maximise  sum_MN S_M N e_N (E_1 / E_N) z_MN  subject to

    sum_MN z_MN = 1                                                      (1)  one
    sum_MN M N z_MN <= G                                                 (2)  devices

The value says how many times as fast training is as on one device. ``evaluation`` shows the best value with data parallelism
alone beside it. ``table`` tries all pairs, which verify repeats; ``milp``: (1)-(2).

Source: S. Pal, E. Ebrahimi, A. Zulfiqar, Y. Fu, V. Zhang, S. Migacz, D. Nellans, P. Gupta, Optimizing multi-GPU parallelization
strategies for deep learning training, IEEE Micro 39 (2019), arXiv 1907.13257.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import Evaluation, LinearFormulation, Method, Outcome, Problem, Question, RunOptions
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution

__all__ = ["MILP", "PROBLEM", "Strategy", "Table"]

_KEYS = ("model", "efficiency", "epochs")


class Table(Method):
    """Every pair."""

    name = "table"
    title = "all pairs of the table; exact, replayed without a solver"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass."""
        values = _values(instance)
        model, data = max(values, key=lambda pair: (values[pair], -pair[0] * pair[1]))
        control.report_plan(Solution(details={"model": model, "data": data}))
        question.prove(instance, control, {"kind": "table"})
        return Outcome()


class MILP(LinearFormulation):
    """(1)-(2)."""

    name = "milp"
    title = "MILP (1)-(2)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``pair[MxN]``, those beyond the devices too, so that (2) is what leaves them out."""
        values = _values(instance, all_pairs=True)
        pairs = np.array(list(values), np.int64).reshape(-1, 2)
        model = LinearModel("strategy")
        z = model.binary("pair", len(pairs), labels=([f"{m}x{n}" for m, n in pairs.tolist()],))
        model.rows("one", 1, [(np.zeros(len(z), np.int64), z, 1.0)], lower=1, upper=1)  # (1)
        used = pairs.prod(axis=1).astype(np.float64)
        model.rows("devices", 1, [(np.zeros(len(z), np.int64), z, used)], upper=instance.n_devices)  # (2)
        model.maximize(z, np.array([float(value) for value in values.values()]))
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The pair chosen."""
        pairs = list(_values(instance, all_pairs=True))
        m, n = pairs[int(np.argmax(x[model.columns("pair")]))]
        return Solution(details={"model": m, "data": n})

    def encode(self, instance: Instance, model: LinearModel, solution: Solution) -> NDArray[np.float64] | None:
        """The pair of a plan."""
        pair = (solution.details.get("model"), solution.details.get("data"))
        pairs: list[Any] = list(_values(instance, all_pairs=True))
        if pair not in pairs:
            return None
        point = np.zeros(model.n_columns)
        point[model.columns("pair")[pairs.index(pair)]] = 1.0
        return point


class Strategy(Problem):
    """Fastest training by table."""

    name = "partition.strategy"
    objectives = ("strategy",)
    title = "ways of model parallelism times ways of data parallelism, by table, training as fast as possible"
    sense = "max"
    unit = "times one device"
    uses = frozenset({"time", "tables.strategy"})
    methods = (Table(), MILP())

    def fits(self, instance: Instance) -> str | None:
        """A table."""
        if "strategy" not in instance.tables:
            return "the file has no tables.strategy with model, efficiency and epochs by number of devices or workers"
        return None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Times as fast as one device."""
        model, efficiency, epochs = _table(instance)
        m, n = solution.details.get("model"), solution.details.get("data")
        wrong = [
            f"the plan's details hold the unknown key {key!r}"
            for key in solution.details
            if key not in ("model", "data")
        ]
        for what, number, known in (("model", m, model), ("data", n, efficiency.keys() & epochs.keys())):
            if type(number) is not int or number not in known:
                wrong.append(f"the plan's {what} parallelism is {number!r}, expected one of {sorted(known)}")
        if wrong:
            return Evaluation(-math.inf, tuple(wrong))
        assert isinstance(m, int) and isinstance(n, int)
        if m * n > instance.n_devices:
            over = m * n - instance.n_devices
            wrong.append(f"{m} x {n} devices are {m * n}, and there are {instance.n_devices}: {over} too many")
        value = float(model[m] * n * efficiency[n] * epochs[1] / epochs[n])
        alone = [float(value) for (ways, _), value in _values(instance).items() if ways == 1]
        return Evaluation(value, tuple(wrong), {"model": m, "data": n, "data_alone": max(alone, default=None)})

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Replays all pairs, and linear duals."""
        if certificate.get("kind") != "table":
            return super().replay(instance, question, certificate)
        best = max(_values(instance).values(), default=Fraction(0))
        near = float(best)
        return near if Fraction(near) >= best else math.nextafter(near, math.inf)

    def sample(self, seed: int) -> Instance:
        """A few degrees of each kind; a table that leaves numbers out, devices that bind."""
        rng = np.random.default_rng([seed, 4])
        workers = [1, *sorted(rng.choice(np.arange(2, 9), int(rng.integers(1, 4)), replace=False).tolist())]
        table = {
            "model": {
                str(m): 1 + round(0.6 * (m - 1) * float(rng.random()), 3) for m in (1, 2, 4)[: rng.integers(1, 4)]
            },
            "efficiency": {str(n): round(1 - 0.02 * n * float(rng.random()), 3) for n in workers},
            "epochs": {str(n): int(rng.integers(5, 9)) + n // 2 for n in workers},
        }
        devices = [Device(name=f"g{k}", type="gpu") for k in range(int(rng.integers(1, 12)))]
        return Instance.build(
            devices, [Job(name="step", time={"gpu": 1})], tables={"strategy": table}, question={"objective": self.name}
        )

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All pairs, those beyond the devices too."""
        for m, n in _values(instance, all_pairs=True):
            yield Solution(details={"model": m, "data": n})


def _table(instance: Instance) -> tuple[dict[int, Fraction], dict[int, Fraction], dict[int, Fraction]]:
    """Speed-ups, efficiencies, epochs by number; InputError when the table is not what it should be."""
    given = instance.tables["strategy"]
    if not isinstance(given, Mapping) or set(given) != set(_KEYS):
        raise InputError(f"$.tables.strategy is not an object with {', '.join(_KEYS)}; expected that")
    tables = []
    for key in _KEYS:
        if not isinstance(given[key], Mapping) or "1" not in given[key]:
            raise InputError(
                f"$.tables.strategy.{key} is {given[key]!r}, expected numbers by number of devices, from '1' on"
            )
        row = {}
        for name, value in given[key].items():
            if not (name.isascii() and name.isdecimal() and name == str(int(name)) and int(name)):
                raise InputError(f"$.tables.strategy.{key} has the key {name!r}, expected a whole number from 1 on")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 2.0**53:
                raise InputError(f"$.tables.strategy.{key}.{name} is {value!r}, expected a number above 0")
            row[int(name)] = Fraction(value)
        tables.append(row)
    return tables[0], tables[1], tables[2]


def _values(instance: Instance, *, all_pairs: bool = False) -> dict[tuple[int, int], Fraction]:
    """Value of each pair (M, N) within the devices; or of all pairs."""
    model, efficiency, epochs = _table(instance)
    return {
        (m, n): speed * n * efficiency[n] * epochs[1] / epochs[n]
        for m, speed in sorted(model.items())
        for n in sorted(efficiency.keys() & epochs.keys())
        if all_pairs or m * n <= instance.n_devices
    }


PROBLEM = Strategy()
