r"""Degrees of data, tensor and pipeline parallelism for equal nodes, by a table of times, with processes bound to NUMA domains.

Asked before a job is launched on a cluster: how many nodes, which degrees, which GPU's process on which cores?

Sets and data
    r in R        rows of ``tables.degrees``: {"data", "tensor", "pipeline", "seconds", "memory"}, measured or from a model;
                  memory (bytes a process) may be left out
    N, G, M, c    nodes (devices, all alike), GPUs of each (``slots``), bytes of a GPU (``memory``), price an hour
    L, H, S, m    ``tables.model``: layers, heads, samples of a batch and of a micro-batch (``batch``, ``micro``); each optional
    d_gb, k_b     ``tables.numa``: distance of GPU g to domain b, cores of each domain; ``cpus`` cores a process are asked for

Variables
    x_r in {0, 1}   row r is run, on n_r nodes with p_r processes each;     y_gb in {0, 1}  process g is bound to domain b

Minimise sum_r t_r x_r (parallelism), or sum_r c n_r t_r x_r / 3600 (parallelism-cost), subject to

    sum_r x_r = 1                                                                           (1)  choose
    data tensor pipeline = n_r p_r,  n_r = 1 or p_r = G,  n_r <= N,  tensor <= p_r          (2)  nodes
    pipeline | L,    tensor | H,    data m | S                                              (3)  divides
    memory_r <= M                                                                           (4)  memory
    sum_b y_gb = 1,  sum_g y_gb <= floor(k_b / cpus),  sum_gb d_gb y_gb least               (5)  bound

Rows that break (2)-(4) are left out, so ``table`` looks at all of them and is exact; its bound is replayed by looking again.
:mod:`hetopt.io.launch` writes the plan as lines for torchrun, srun and mpiexec and reads them back.

Source: the question is that of launch lines for clusters, M. Wang, Z. Zhang, Maple, arXiv 2510.08842, which states no program.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    RunOptions,
    Step,
)
from hetopt.instance import Instance
from hetopt.linear import LinearModel
from hetopt.records import Device, Job
from hetopt.solution import Solution
from hetopt.verify import parallelism as verify

__all__ = ["MILP", "PROBLEMS", "Parallelism", "ParallelismCost", "Table"]


MOST = 2**20
"""A degree is no more, so that products of three are exact."""


def rows_of(instance: Instance) -> list[Mapping[str, Any]]:
    """``tables.degrees``, with the other tables read as well; InputError names the path of what is wrong."""
    rows = instance.tables.get("degrees")
    if not isinstance(rows, list) or not rows:
        raise InputError("$.tables.degrees must be a list of {data, tensor, pipeline, seconds, memory}")
    for k, row in enumerate(rows):
        path = f"$.tables.degrees[{k}]"
        if not isinstance(row, Mapping) or not {*verify.DEGREES, "seconds"} <= set(row) <= {
            *verify.DEGREES,
            "seconds",
            "memory",
        }:
            raise InputError(f"{path} is {row!r}, expected data, tensor, pipeline, seconds and, if need be, memory")
        for key in verify.DEGREES:
            _whole(row[key], f"{path}.{key}", MOST)
        for key in ("seconds", "memory"):
            value = row.get(key, 0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise InputError(f"{path}.{key} is {value!r}, expected a number, 0 or more")
    if len({tuple(row[key] for key in verify.DEGREES) for row in rows}) < len(rows):
        raise InputError("$.tables.degrees has two rows of the same degrees")
    model = instance.tables.get("model", {})
    if not isinstance(model, Mapping) or not set(model) <= {"layers", "heads", "batch", "micro"}:
        raise InputError(f"$.tables.model is {model!r}, expected layers, heads, batch, micro")
    for key, value in model.items():
        _whole(value, f"$.tables.model.{key}")
    numa = instance.tables.get("numa")
    if numa is not None:
        _read_numa(numa, instance.devices[0].slots)
    return rows


def _whole(value: Any, path: str, most: int = 2**31) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(f"{path} is {value!r}, expected a whole number from 1 to {most}")


def _read_numa(numa: Any, slots: int) -> None:
    if not isinstance(numa, Mapping) or set(numa) != {"distance", "cores"} or not isinstance(numa["cores"], list):
        raise InputError("$.tables.numa must hold distance, a row for each GPU of a node, and cores of each domain")
    for b, cores in enumerate(numa["cores"]):
        _whole(cores, f"$.tables.numa.cores[{b}]")
    try:
        distance = np.array(numa["distance"], np.float64)
    except (TypeError, ValueError):
        distance = np.zeros(0)
    shape = (slots, len(numa["cores"]))
    if distance.shape != shape or not np.isfinite(distance).all() or (distance < 0).any():
        raise InputError(f"$.tables.numa.distance must be {shape[0]} x {shape[1]} numbers, 0 or more")


def _plan(instance: Instance, row: Mapping[str, Any], cpus: int) -> Solution:
    """A row as a plan, with the nearest binding."""
    from scipy.optimize import linear_sum_assignment

    placed = verify.layout(instance, row)
    assert placed is not None
    details: dict[str, Any] = {name: int(row[name]) for name in verify.DEGREES}
    details |= {"nodes": placed[0], "processes": placed[1], "cpus": cpus}
    numa = instance.tables.get("numa")
    if numa is not None:
        room = np.minimum([cores // cpus for cores in numa["cores"]], placed[1])
        seat = np.repeat(np.arange(len(room)), room)
        distance = np.array(numa["distance"], np.float64)[: placed[1]]
        details["binding"] = seat[linear_sum_assignment(distance[:, seat])[1]].tolist()
    return Solution(details=details)


def values_of(instance: Instance, cpus: int, cost: bool) -> NDArray[np.float64]:
    """(r,) value of each row, ``inf`` for one that breaks (2)-(5)."""
    rows, node, model = rows_of(instance), instance.devices[0], instance.tables.get("model", {})
    data, tensor, pipeline = np.array([[row[key] for key in verify.DEGREES] for row in rows], np.int64).T
    product = data * tensor * pipeline
    each = np.minimum(product, node.slots)
    nodes = np.maximum(product // node.slots, 1)
    able = (nodes * each == product) & (nodes <= instance.n_devices) & (tensor <= each)  # (2)
    if "layers" in model:
        able &= model["layers"] % pipeline == 0  # (3)
    if "heads" in model:
        able &= model["heads"] % tensor == 0  # (3)
    if "batch" in model:
        able &= model["batch"] % (data * model.get("micro", 1)) == 0  # (3)
    able &= np.array([row.get("memory", 0) for row in rows]) <= float(instance.capacity[0])  # (4)
    if "numa" in instance.tables:
        able &= each <= sum(cores // cpus for cores in instance.tables["numa"]["cores"])  # (5)
    seconds = np.array([row["seconds"] for row in rows], np.float64)
    price = seconds / 3600 * nodes * float(node.price or 0) if cost else seconds
    return np.where(able, price, np.inf)


class Table(Method):
    """All rows."""

    name = "table"
    title = "every row that can be run; exact, replayed by looking again"
    kind = "exact"

    def run(self, instance: Instance, question: Question, control: Control, options: RunOptions) -> Outcome:
        """One pass."""
        cpus, cost = question["cpus"], isinstance(question.problem, ParallelismCost)
        best = rows_of(instance)[int(values_of(instance, cpus, cost).argmin())]
        control.report_plan(_plan(instance, best, cpus))
        question.prove(instance, control, {"kind": "table"})
        return Outcome()


class MILP(LinearFormulation):
    """(1) over the rows that keep (2)-(4)."""

    name = "milp"
    title = "MILP (1) over the rows that keep (2)-(4)"
    kind = "exact"

    def build(self, instance: Instance, question: Question | None = None) -> LinearModel:
        """Columns ``row[data x tensor x pipeline]``, and ``cpus``, a constant."""
        question = question if question is not None else PROBLEMS[0].question(instance)
        rows, cost = rows_of(instance), isinstance(question.problem, ParallelismCost)
        value = values_of(instance, question["cpus"], cost)
        labels = ["x".join(str(row[key]) for key in verify.DEGREES) for row in rows]
        model = LinearModel("parallelism")
        x = model.binary("row", len(rows), upper=np.isfinite(value), labels=(labels,))
        model.integer("cpus", lower=question["cpus"], upper=question["cpus"])
        model.rows("choose", 1, [(0, x, 1.0)], lower=1, upper=1)  # (1)
        model.minimize(x, np.where(np.isfinite(value), value, 0.0))
        return model

    def decode(self, instance: Instance, model: LinearModel, x: NDArray[np.float64]) -> Solution:
        """The row chosen."""
        cpus = round(float(x[model.columns("cpus")]))
        return _plan(instance, rows_of(instance)[int(np.argmax(x[model.columns("row")]))], cpus)


class Parallelism(Problem):
    """Least seconds of a step."""

    name = "selection.parallelism"
    objectives = ("parallelism",)
    title = "data, tensor and pipeline degrees on equal nodes by a table of times, processes bound to NUMA domains"
    uses = frozenset({"time", "memory", "slots", "tables.degrees", "tables.model", "tables.numa"})
    options = (Option("cpus", int, 1, "cores of each process"),)
    methods = (Table(), MILP())

    def fits(self, instance: Instance) -> str | None:
        """Equal nodes and a table."""
        if "degrees" not in instance.tables:
            return "it needs tables.degrees"
        facts = {(v.slots, v.memory, v.reserved, v.price) for v in instance.devices}
        return "its nodes differ in slots, memory or price" if len(facts) > 1 else None

    def evaluate(self, instance: Instance, question: Question, solution: Solution) -> Evaluation:
        """Value of the row, everything checked."""
        rows_of(instance)
        cost = isinstance(self, ParallelismCost)
        return Evaluation(*verify.check_parallelism(instance, solution.details, question["cpus"], cost))

    def precheck(self, instance: Instance, question: Question) -> tuple[str, ...]:
        """No row that can be run: why not, of the first few."""
        _whole(question["cpus"], "$.question.cpus")
        found = [verify.row_complaints(instance, row, question["cpus"]) for row in rows_of(instance)]
        return () if not all(found) else tuple(each[0] for each in found[:5])

    def plan(self, instance: Instance, question: Question) -> Sequence[Step]:
        """The table."""
        return (Step("table", "few rows: all of them"),)

    def replay(self, instance: Instance, question: Question, certificate: Mapping[str, Any]) -> float:
        """Looks at the table again."""
        if certificate.get("kind") != "table":
            return super().replay(instance, question, certificate)
        rows_of(instance)
        least = verify.least_row(instance, question["cpus"], isinstance(self, ParallelismCost))
        if not math.isfinite(least):
            raise ValueError("no row can be run")
        return least

    def sample(self, seed: int) -> Instance:
        """Up to three nodes of up to four GPUs, two domains, a small model."""
        rng = np.random.default_rng(seed)
        slots, nodes = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        rows = [
            {
                "data": d,
                "tensor": t,
                "pipeline": p,
                "seconds": int(rng.integers(1, 20)),
                "memory": int(rng.integers(1, 9)),
            }
            for d, t, p in itertools.product((1, 2, 3), (1, 2), (1, 2))
            if (d, t, p) == (1, 1, 1) or rng.random() < 0.5
        ]
        tables: dict[str, Any] = {"degrees": rows}
        if seed % 2:
            tables["model"] = {
                "layers": int(rng.integers(1, 5)),
                "heads": 2,
                "batch": 12,
                "micro": int(rng.integers(1, 4)),
            }
        if seed % 3:
            cores = [int(rng.integers(1, 5)), int(rng.integers(2, 5))]
            tables["numa"] = {"distance": rng.integers(0, 5, (slots, 2)).tolist(), "cores": cores}
        devices = [Device(name=f"n{k}", slots=slots, memory=7, price=2) for k in range(nodes)]
        question = {"objective": self.objectives[0], "cpus": 1 + seed % 2}
        return Instance.build(devices, [Job(name="train", time=[1] * nodes)], tables=tables, question=question)

    def every_plan(self, instance: Instance, question: Question) -> Iterator[Solution]:
        """All rows with all bindings."""
        numa = instance.tables.get("numa")
        for row in rows_of(instance):
            placed = verify.layout(instance, row)
            if placed is None:
                continue
            details = {name: row[name] for name in verify.DEGREES}
            details |= {"nodes": placed[0], "processes": placed[1], "cpus": question["cpus"]}
            domains = range(len(numa["cores"])) if numa is not None else ()
            for binding in itertools.product(domains, repeat=placed[1] if numa is not None else 0):
                yield Solution(details={**details, "binding": list(binding)} if numa is not None else details)


class ParallelismCost(Parallelism):
    """Least cost of a step."""

    name = "selection.parallelism_cost"
    objectives = ("parallelism-cost",)
    title = "data, tensor and pipeline degrees on equal nodes by a table of times, least cost of a step"
    unit = ""
    uses = Parallelism.uses | {"price"}

    def fits(self, instance: Instance) -> str | None:
        """And a price."""
        if instance.devices[0].price is None:
            return "its nodes have no price"
        return super().fits(instance)


PROBLEMS = (Parallelism(), ParallelismCost())
