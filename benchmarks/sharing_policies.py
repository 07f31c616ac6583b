"""Every policy's value beside the published program, stated here on its own in cvxpy (or scipy) from the file's numbers alone.

    python benchmarks/sharing_policies.py [JOBS]

Needs the folder ``gavel`` of the reference data (``HETOPT_DATA``). Jobs are drawn from the published throughput oracle, with
capacities that bind. Prints a line a policy: both values, and how far they are apart, relative; ends with 1 when more than 1e-6.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.optimize import linear_sum_assignment

import hetopt
from hetopt.instance import Instance
from hetopt.io import importers

CLOSE = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
TIGHTER = {**dict.fromkeys(CLOSE, 1e-13), **{f"reduced_{name}": 1e-11 for name in CLOSE}}
TIGHT = {"solver": "CLARABEL", **dict.fromkeys(CLOSE, 1e-10)}


class Cluster:
    """A file's numbers: T, s, w, n, C, c, and what follows from them, as the published policies compute it."""

    def __init__(self, instance: Instance, agnostic: bool = False) -> None:
        jobs = list(instance.jobs())
        self.rate = np.where(np.isfinite(instance.time), 1.0 / instance.time, 0.0)
        if agnostic:
            self.rate = np.where(self.rate > 0, self.rate.max(axis=1)[:, None], 0.0)
        self.scale, self.weight, self.steps = (
            np.array([float(getattr(job, key)) for job in jobs]) for key in ("scale", "weight", "steps")
        )
        self.workers = np.array([float(device.slots) for device in instance.devices])
        self.price = np.array([float(device.price or 0) for device in instance.devices])
        self.slo = np.array([np.inf if job.deadline is None else float(job.deadline) for job in jobs])
        self.proportional = self.rate @ self.workers / self.workers.sum()
        even = self.workers / len(jobs) / self.scale[:, None]
        self.isolated = (self.rate * even / np.maximum(even.sum(axis=1), 1.0)[:, None]).sum(axis=1)
        self.x = cp.Variable(self.rate.shape, nonneg=True)
        self.base = [cp.sum(self.x, axis=1) <= 1, self.scale @ self.x <= self.workers]
        self.got = cp.sum(cp.multiply(self.rate, self.x), axis=1)


def most(value: Any, rules: list[Any], **more: Any) -> float:
    """The optimum of a maximisation."""
    return float(cp.Problem(cp.Maximize(value), rules).solve(**{**TIGHT, **more}))


def max_min(c: Cluster) -> float:
    """max min_i s_i thr_i / (w_i p_i)."""
    return most(cp.min(cp.multiply(c.scale / (c.weight * c.proportional), c.got)), c.base)


def makespan(c: Cluster) -> float:
    """max lambda, thr_i >= n_i lambda; in units of the longest job alone."""
    unit = float((c.steps / c.rate.max(axis=1)).max())
    return unit / most(cp.min(cp.multiply(unit / c.steps, c.got)), c.base)


def finish_time(c: Cluster) -> float:
    """min rho, thr_i >= n_i / (rho D_i - t_i); nothing is done yet, so t_i = 0, D_i = n_i / iso_i: a program in 1 / rho."""
    return 1 / most(cp.min(cp.multiply(1 / c.isolated, c.got)), c.base)


def slo_rules(c: Cluster, room: Any = 1) -> list[Any]:
    """thr_i >= n_i / SLO_i."""
    due = np.flatnonzero(np.isfinite(c.slo))
    return [cp.multiply(c.slo[due] / c.steps[due], c.got[due]) >= room] if len(due) else []


def cost(c: Cluster) -> float:
    """max sum_ij T_ij / c_j X_ij with SLOs."""
    return most(cp.sum(cp.multiply(c.rate / c.price, c.x)), c.base + slo_rules(c))


def cost_ratio(c: Cluster) -> float:
    """max sum_i thr_i / sum_ij c_j s_i X_ij with SLOs, by Dinkelbach's iteration."""
    spent, ratio = np.outer(c.scale, c.price), 0.0
    for _ in range(50):
        most(cp.sum(cp.multiply(c.rate - ratio * spent, c.x)), c.base + slo_rules(c))
        new = float((c.rate * c.x.value).sum() / (spent * c.x.value).sum())
        if abs(new - ratio) <= 1e-11 * new:
            break
        ratio = new
    return new


def first_come(c: Cluster) -> float:
    """max sum_i (n + 1 - position) thr_i / thr_i(fastest); all came together here, so each has the mean position."""
    n = len(c.rate)
    return most(cp.sum(cp.multiply((n + 1) / 2 / c.rate.max(axis=1), c.got)), c.base)


def shortest(c: Cluster) -> float:
    """min over jobs of the least n_i / thr_i, a program a job."""
    return min(float(c.steps[i] / most(c.got[i], c.base)) for i in range(len(c.rate)))


def fair(c: Cluster) -> float:
    """max of the geometric mean of s_i thr_i / p_i."""
    level = cp.multiply(c.scale / c.proportional, c.got)
    return float(np.exp(most(cp.sum(cp.log(level)) / len(c.rate), c.base, **TIGHTER)))


def water_filling(c: Cluster) -> np.ndarray:
    """Levels by the published loop: a linear program, then a mixed-integer one that tells who can still rise."""
    n = len(c.rate)
    level, active, floor = cp.multiply(c.scale / c.proportional, c.got), np.ones(n, bool), np.zeros(n)
    while active.any():
        rise = most(
            cp.min((level[np.flatnonzero(active)] - floor[active]) / c.weight[active]),
            [*c.base, level >= floor * (1 - 1e-9)],
        )
        floor = np.where(active, floor + c.weight * rise, floor)
        z = cp.Variable(n, boolean=True)
        rules = [
            *c.base,
            level >= floor * (1 - 1e-7),
            level >= floor * 1.0001 - 1e3 * (1 - z),
            z <= active.astype(float),
        ]
        cp.Problem(cp.Maximize(cp.sum(z)), rules).solve(solver="HIGHS")
        active &= np.asarray(z.value) > 0.5
    return floor


def packed(instance: Instance, c: Cluster, steps: bool) -> float:
    """max min over jobs with columns for all pairs of jobs."""
    kind, names = [instance.tables["kind"][label] for label in instance.labels], instance.device_names
    beside: dict[tuple[str, str, str], float] = {}
    for name, one, two, own, other in instance.tables["together"]:
        beside[name, one, two], beside[name, two, one] = 1 / own, 1 / other
    pairs = [
        (i, k, j) for i in range(len(kind)) for k in range(i + 1, len(kind)) for j, name in enumerate(names)
        if (name, kind[i], kind[k]) in beside
    ]  # fmt: skip
    gain, own, used = (
        np.zeros((len(kind), len(pairs))),
        np.zeros((len(kind), len(pairs))),
        np.zeros((len(names), len(pairs))),
    )
    for q, (i, k, j) in enumerate(pairs):
        gain[i, q], gain[k, q] = beside[names[j], kind[i], kind[k]], beside[names[j], kind[k], kind[i]]
        own[i, q] = own[k, q] = used[j, q] = 1
    z = cp.Variable(len(pairs), nonneg=True)
    fair = c.steps if steps else c.proportional * c.weight
    unit = float((c.rate.max(axis=1) / fair).min())
    rules = [cp.sum(c.x, axis=1) + own @ z <= 1, cp.sum(c.x, axis=0) + used @ z <= c.workers]
    value = unit * most(cp.min(cp.multiply(1 / (fair * unit), c.got + gain @ z)), rules)
    return 1 / value if steps else value


def allox(c: Cluster) -> float:
    """Hungarian method on n x (workers n) places, mean completion."""
    worker = np.repeat(np.arange(len(c.workers)), c.workers.astype(int))
    time = np.where(c.rate > 0, c.steps[:, None] / np.maximum(c.rate, 1e-300), 1e15)
    matrix = np.concatenate([k * time[:, worker] for k in range(1, len(time) + 1)], axis=1)
    return float(matrix[linear_sum_assignment(matrix)].sum() / len(time))


def main(jobs: int = 48) -> int:
    """Print a line a policy."""
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "gavel"
    if not data.is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds gavel", file=sys.stderr)
        return 1

    def drawn(question: str, n: int = jobs, part: int = 12, **more: Any) -> Instance:
        capacity = ",".join([str(max(1, n // part))] * 3)
        return importers.get("gavel").load(
            data / "simulation_throughputs.json", jobs=n, seed=4, capacity=capacity, objective=question, **more
        )

    plain = [
        ("max-min-fairness", max_min, {"priorities": True}), ("sharing-makespan", makespan, {}),
        ("finish-time-fairness", finish_time, {}), ("sharing-cost", cost, {"deadlines": 0.1}),
        ("sharing-cost-ratio", cost_ratio, {"deadlines": 0.1}), ("first-in-first-out", first_come, {}),
        ("shortest-job-first", shortest, {}), ("nash-welfare", fair, {}), ("mean-completion", allox, {}),
    ]  # fmt: skip
    rows: list[tuple[str, float, float]] = []
    for question, program, more in plain:
        instance = drawn(question, noise=0.1, **more)
        rows.append((question, float(hetopt.solve(instance).objective or np.nan), program(Cluster(instance))))
        if question in ("max-min-fairness", "sharing-makespan", "finish-time-fairness"):
            value = hetopt.solve(instance, options={"agnostic": True}).objective
            rows.append((f"{question}, agnostic", float(value or np.nan), program(Cluster(instance, agnostic=True))))
    for question in ("packed-max-min-fairness", "packed-makespan"):
        instance = drawn(question, 24)
        value = hetopt.solve(instance).objective
        rows.append(
            (question, float(value or np.nan), packed(instance, Cluster(instance), question == "packed-makespan"))
        )
    instance = drawn("strategy-proof", 16, 4)
    result, c = hetopt.solve(instance), Cluster(instance)
    fair(c)
    level = np.asarray(c.scale / c.proportional * (c.rate * c.x.value).sum(axis=1))
    for i in (0, 7):
        rest = np.arange(16) != i
        alone = cp.multiply((c.scale / c.proportional)[rest], c.got[np.flatnonzero(rest)])
        part = float(np.exp(np.log(level[rest]).sum() - most(cp.sum(cp.log(alone)), c.base, **TIGHTER)))
        rows.append((f"strategy-proof, part of job {i}", float(result.evaluation["kept"][f"job{i}"]), part))
    instance = drawn("water-filling", 24, 6, priorities=True)
    ours = np.array(list(hetopt.solve(instance).evaluation["levels"].values()))
    theirs = water_filling(Cluster(instance))
    worst = int(np.abs(ours / theirs - 1).argmax())
    rows += [
        ("water-filling, least level", ours.min(), theirs.min()),
        ("water-filling, level furthest apart", ours[worst], theirs[worst]),
    ]
    print("| policy | value | published program | apart |\n|---|---|---|---|")
    for question, value, stated in rows:
        print(f"| {question} | {value:.9g} | {stated:.9g} | {abs(value / stated - 1):.1e} |")
    return int(max(abs(value / stated - 1) for _, value, stated in rows) > 1e-6)


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:2])))
