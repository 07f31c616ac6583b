r"""A load that can be cut anywhere, sent from the host by one port: how much to whom, in which order, to end early.

Asked when frames, rows or samples wait on one machine and each worker must be sent its part before it can start.

Sets and data
    i in D       workers;  W units of load (``steps`` of the one job), o bytes each (``output``)
    l_i, g_i     latency of the link from "host" to i, and o / bandwidth, seconds to send a unit; 0 for the host itself (``host``)
    s_i, w_i     start-up of worker i (``tables.startup`` = {device, type or "*": seconds}, else 0), seconds of a unit (``time``)
    k = 1..n     places in the order in which the port serves, without a break

Variables
    y_ik in {0, 1}  worker i is served k-th;    a_ik >= 0  units it gets there;     T  end of the last worker

Minimise T subject to

    sum_ik a_ik = W                                                                             (1)  all
    a_ik <= W y_ik                                              for each worker and place       (2)  served
    sum_k y_ik <= 1,    sum_i y_ik <= 1                         for each worker, each place     (3) once, (4) one
    sum_{i, q <= k} (l_i y_iq + g_i a_iq) + sum_i (s_i y_ik + w_i a_ik) <= T    for each place  (5)  end

For a given order (1) and (5) are an LP whose best end is a closed form (:mod:`hetopt.algorithms.divisible`). ``orders`` tries all
of them for few workers and is exact; ``exchange`` improves an order. Leaving out l and s gives the bound ``links``, whose order
is known (fastest links first); it is replayed by computing it again.

Source: V. Bharadwaj, D. Ghose, V. Mani, T. Robertazzi, Scheduling Divisible Loads in Parallel and Distributed Systems, IEEE
Computer Society Press 1996; O. Beaumont, H. Casanova, A. Legrand, Y. Robert, Y. Yang, Scheduling divisible loads on star and tree
networks, IEEE TPDS 16 (2005) (one port, affine costs).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.splitting._curves import entry, number
from hetopt.algorithms.divisible import Star
from hetopt.control import Control
from hetopt.errors import InputError
from hetopt.formulation import (
    Evaluation,
    LinearFormulation,
    Method,
    Outcome,
    Problem,
    Question,
    Relaxed,
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job, Link
from hetopt.solution import Solution
from hetopt.verify.divisible import check_divisible

__all__ = ["MILP", "PROBLEM", "Divisible", "Exchange", "Links", "Orders"]

MOST_WORKERS = 7  # of which all orders are tried
_ROUNDING = 2.0**-36


@lru_cache(maxsize=4)
def star(instance: Instance) -> tuple[NDArray[np.int64], Star, float]:
    """Devices that can work, their seconds, and the units of load.

    Raises
    ------
    InputError
        ``tables.startup`` cannot be read, or a link from the host is missing.
    """
    table = instance.tables.get("startup", {})
    if not isinstance(table, Mapping):
        raise InputError('$.tables.startup must map devices, types or "*" to seconds')
    known = {"*", *instance.device_names, *(v.type for v in instance.devices if v.type)}
    for name, value in table.items():
        if name not in known:
            raise InputError(f"$.tables.startup names {name!r}, which is no device or type of the instance")
        number(value, f"$.tables.startup.{name}")
    who = np.flatnonzero(np.isfinite(instance.time[0]))
    rows = []
    for i in who.tolist():
        device = instance.devices[i]
        late, send = 0.0, 0.0
        if not device.host:
            link = instance.need_link("host", device.name)
            late, send = link.latency, float(instance.output[0]) / link.bandwidth if link.bandwidth else 0.0
        rows.append((late, send, float(entry(table, device.name, device.type) or 0), float(instance.time[0, i])))
    columns = np.array(rows, np.float64).reshape(-1, 4).T
    return who, Star(*columns), float(instance.columns.steps[0])


def _plan(instance: Instance, order: Sequence[int], units: Sequence[float]) -> Solution:
    """A plan of worker numbers in order, with the units of each."""
    names = [instance.device_names[star(instance)[0][i]] for i in order]
    return Solution(details={"order": names, "units": dict(zip(names, map(float, units), strict=True))})


class MILP(LinearFormulation):
    """(1)-(5)."""

    name = "milp"
    title = "MILP (1)-(5): workers in places of the order"
    kind = "exact"

    def size(self, instance: Instance, question: Question) -> int:
        """Entries of (5)."""
        return 2 * instance.n_devices**3

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``place[device,k]``, ``share[device,k]`` of the load, and ``end`` in units of one worker's whole time."""
        who, data, load = star(instance)
        n = len(who)
        names, places = [instance.device_names[i] for i in who.tolist()], [str(k) for k in range(n)]
        unit = _unit(data, load)
        model = LinearModel("divisible")
        y = model.binary("place", (n, n), labels=(names, places))
        a = model.continuous("share", (n, n), upper=1, labels=(names, places))
        end = model.continuous("end", upper=2.0)  # the quickest worker alone ends before
        i, k = (part.ravel() for part in np.indices((n, n)))
        model.rows("all", 1, [(0, a.ravel(), 1.0)], lower=1, upper=1)  # (1)
        served = [(np.arange(n * n), a.ravel(), 1.0), (np.arange(n * n), y.ravel(), -1.0)]
        model.rows("served", (n, n), served, upper=0, labels=(names, places))  # (2)
        model.rows("once", n, [(i, y.ravel(), 1.0)], upper=1, labels=(names,))  # (3)
        model.rows("one", n, [(k, y.ravel(), 1.0)], upper=1, labels=(places,))  # (4)
        row, worker, place = (part.ravel() for part in np.indices((n, n, n)))
        keep = place <= row
        row, worker, place = row[keep], worker[keep], place[keep]
        last = place == row
        terms = [
            (row, y[worker, place], (data.latency[worker] + np.where(last, data.startup[worker], 0.0)) / unit),
            (row, a[worker, place], load * (data.send[worker] + np.where(last, data.work[worker], 0.0)) / unit),
            (np.arange(n), end, -1.0),
        ]
        model.rows("end_of", n, terms, upper=0, labels=(places,))  # (5)
        model.minimize(end, unit)
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The order of the places, the units that follow from it; the model's own where the closed form has none."""
        from hetopt.algorithms.divisible import loads

        who, data, load = star(instance)
        n = len(who)
        placed = x[model.columns("place")].reshape(n, n) > 0.5
        share = np.maximum(x[model.columns("share")].reshape(n, n), 0.0)
        order = [int(np.argmax(placed[:, k])) for k in range(n) if placed[:, k].any()]
        found = loads(data, order, load)
        if found is not None:
            return _plan(instance, order, found[1])
        own = np.where(placed, share, 0.0).sum(axis=1)
        used = [i for i in order if own[i] > 1e-9]
        total = math.fsum(own[used].tolist())
        if not total:
            raise ValueError("nobody has any load")
        better = loads(data, used, load)
        return _plan(instance, used, better[1] if better else (own[used] / total * load).tolist())


def _unit(data: Star, load: float) -> float:
    """A power of two near the seconds of the quickest worker alone."""
    alone = float((data.latency + data.startup + load * (data.send + data.work)).min())
    return float(2.0 ** np.frexp(alone)[1]) if alone > 0 else 1.0


class Orders(Method):
    """All sequences of all subsets."""

    name = "orders"
    title = "the closed form for every order of every set of workers; exact"
    kind = "exact"

    def fits(self, instance: Instance, question: Question) -> str | None:
        """Few workers, each of which takes some time."""
        who, data, _ = star(instance)
        if ((data.send + data.work) <= 0).any():
            return "a worker takes no time"
        return f"{len(who)} workers are more than {MOST_WORKERS}" if len(who) > MOST_WORKERS else None

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One enumeration."""
        from hetopt.algorithms.divisible import best_order, loads

        _, data, load = star(instance)
        found = best_order(data, load, control.should_stop)
        if found is None:
            return Outcome("limit", "time")
        end, order = found
        units = loads(data, order, load)
        assert units is not None
        control.report_plan(_plan(instance, order, units[1]))
        control.report_bound(end * (1 - _ROUNDING), "algorithm")
        return Outcome()


class Exchange(Method):
    """Order by the links, then exchanges."""

    name = "exchange"
    title = "fastest links first, then insertions, removals and swaps; bound without latencies, replayed"
    kind = "search"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One descent."""
        from hetopt.algorithms.divisible import exchange, loads

        _, data, load = star(instance)
        _report_links(instance, question, control)
        _, order = exchange(data, load, control.should_stop)
        units = loads(data, order, load) if order else None
        if units is not None:
            control.report_plan(_plan(instance, order, units[1]))
        return Outcome()


class Links(Method):
    """The bound without latencies and start-ups."""

    name = "links"
    title = "closed form without latencies and start-ups, fastest links first; replayed"
    kind = "relaxation"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One closed form."""
        _report_links(instance, question, control)
        return Outcome()


def _report_links(instance: Instance, question: Question, control: Control) -> None:
    question.prove(instance, control, {"kind": "links"})


class Divisible(Problem):
    """The question."""

    name = "splitting.divisible"
    objectives = ("divisible",)
    title = "a load cut over workers that one port serves in turn, the end as early as possible"
    uses = frozenset({"time", "steps", "output", "links", "tables.startup"})
    methods = (Orders(), MILP(), Relaxed(MILP(), "(1)-(5)"), Links(), Exchange())

    def fits(self, instance: Instance) -> str | None:
        """One job with an amount of load."""
        if instance.n_tasks != 1:
            return f"it needs one job that is split, and the instance has {instance.n_tasks} tasks"
        steps = float(instance.columns.steps[0])
        return None if steps > 0 else "its job has no `steps`, the units of load (a number above 0)"

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """End of the last worker in the order."""
        star(instance)
        report = check_divisible(instance, solution.details)
        devices = {name: {"received": report.received[name], "end": end} for name, end in report.end.items()}
        value = max(report.end.values(), default=math.inf)
        return Evaluation(value, report.violations, {"devices": devices})

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """Reads what the question needs; any load can be given to any worker."""
        star(instance)
        return ()

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """All orders of few workers; else exchanges, then the program."""
        if self.method("orders").fits(instance, question) is None:
            return (Step("orders", "few workers: every order in closed form"),)
        return (Step("exchange", "a plan and a bound in moments", 0.3), Step("milp", "exact"))

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Computes the bound of the links again; replays linear duals."""
        if certificate.get("kind") != "links":
            return super().replay(instance, question, certificate)
        from hetopt.algorithms.divisible import without_latency

        _, data, load = star(instance)
        return without_latency(data, load) * (1 - _ROUNDING)

    def sample(self, seed: int) -> Instance:
        """Up to four workers, some with latencies that keep the slow ones out."""
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 5))
        names = [f"d{i}" for i in range(d)]
        times: list[float | None] = [float(t) for t in rng.integers(1, 9, d)]
        if d > 1 and rng.random() < 0.2:
            times[0] = None
        late = 4 if seed % 2 else 1
        links = [
            Link(source="host", target=name, bandwidth=float(rng.integers(1, 5)), latency=float(rng.integers(0, late)))
            for name in names
        ]
        table = {name: float(rng.integers(0, 3)) for name in names if rng.random() < 0.5}
        job = Job(name="load", steps=int(rng.integers(1, 12)), output=int(rng.integers(0, 5)), time=times)  # type: ignore[arg-type]
        return Instance.build(
            [Device(name=name) for name in names], [job], links, tables={"startup": table},
            question={"objective": self.objectives[0]},
        )  # fmt: skip

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """Ends together in every order of every set of workers, and each worker alone."""
        from hetopt.algorithms.divisible import loads

        who, data, load = star(instance)
        for size in range(1, len(who) + 1):
            for some in combinations(range(len(who)), size):
                for order in permutations(some):
                    found = loads(data, list(order), load)
                    if found is not None:
                        yield _plan(instance, order, found[1])


PROBLEM = Divisible()
