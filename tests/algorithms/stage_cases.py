"""Random small partition instances and a brute force over them, for the tests of the partition kernels."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["brute_force", "device_arrays", "random_case", "read_workload"]

Case = dict[str, Any]


def random_case(rng: np.random.Generator, tasks: int = 7, *, directed: bool = False, training: bool = False) -> Case:
    """Arguments of ``contract``: up to ``tasks`` tasks with small integers, so that sums are exact and ties are common."""
    n = int(rng.integers(1, tasks + 1))
    t = int(rng.integers(1, 4))
    time = rng.integers(0, 10, (n, t)) * rng.integers(0, 2, (n, 1)).clip(rng.integers(0, 2)) * 1.0
    time[rng.random((n, t)) < 0.1] = np.inf
    backward = np.zeros(n, bool)
    if training and n > 1:
        backward[n - int(rng.integers(1, n)) :] = True
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.4]
    group = np.where(rng.random(n) < 0.5, rng.integers(0, max(1, n // 2 + 1), n), -1)
    if not training:
        group[rng.random(n) < 0.7] = -1
    rate_in = rng.integers(0, 3, t) * 1.0
    rate_out = rng.integers(0, 3, t) * 1.0 if directed else rate_in
    size = rng.integers(0, 6, n) * 1.0
    memory = np.where(rng.random(t) < 0.5, np.inf, rng.integers(4, 20, t))
    return {
        "time": time,
        "size": size,
        "edges": np.array(pairs, dtype=np.int64).reshape(-1, 2),
        "weight": rng.integers(0, 5, n) * 1.0,
        "group": group,
        "backward": backward,
        "count": rng.integers(0 if t > 1 else 1, 3, t),
        "memory": memory,
        "rate_in": rate_in,
        "rate_out": rate_out,
    }


def device_arrays(case: Case) -> Case:
    """The same case as arguments of ``check_stages``: one column a device instead of one a device type."""
    kind = np.repeat(np.arange(len(case["count"])), case["count"])
    return {
        "time": case["time"][:, kind],
        "size": case["size"],
        "edges": case["edges"],
        "weight": case["weight"],
        "memory": np.asarray(case["memory"])[kind],
        "rate_in": np.asarray(case["rate_in"])[kind],
        "rate_out": np.asarray(case["rate_out"])[kind],
        "group": case["group"],
        "backward": case["backward"],
    }


def brute_force(case: Case, contiguity: str = "ideals", variant: str = "sum", mirror_orphans: bool = True) -> float:
    """Least value over all placements, by the definition; ``inf`` when none is feasible."""
    n, backward = len(case["size"]), case["backward"]
    edges = [tuple(e) for e in case["edges"].tolist()]
    label = [g if g >= 0 else 1000 + v for v, g in enumerate(case["group"].tolist())]
    labels = sorted(set(label))
    members = [[v for v in range(n) if label[v] == g] for g in labels]
    kind = np.repeat(np.arange(len(case["count"])), case["count"]).tolist()
    has_forward = {g for v, g in enumerate(label) if not backward[v]}
    order = [(u, v) for u, v in edges if not backward[u] and not backward[v]]
    if mirror_orphans:
        order += [
            (v, u)
            for u, v in edges
            if backward[u] and backward[v] and (label[u] not in has_forward or label[v] not in has_forward)
        ]
    feeds = [sorted({v for u, v in edges if u == w}) for w in range(n)]
    best = math.inf
    for choice in itertools.product(range(len(kind)), repeat=len(labels)):
        # devices of one type are alike: take them in the order of their numbers
        fresh = [choice.index(d) if d in choice else len(choice) for d in range(len(kind))]
        if any(kind[d] == kind[d + 1] and fresh[d] > fresh[d + 1] for d in range(len(kind) - 1)):
            continue
        on = {v: d for d, part in zip(choice, members, strict=True) for v in part}
        if contiguity == "ideals" and not _ordered(len(kind), {(on[u], on[v]) for u, v in order if on[u] != on[v]}):
            continue
        loads = []
        for d, t in enumerate(kind):
            held = [v for v in range(n) if on[v] == d]
            if sum(case["size"][v] for v in held) > case["memory"][t]:
                break
            passes = [0.0, 0.0]
            for v in held:
                passes[int(backward[v])] += case["time"][v, t]
            for u in range(n):
                weight = case["weight"][u]
                if on[u] == d and any(on[v] != d for v in feeds[u]):
                    passes[int(backward[u])] += weight * case["rate_out"][t]
                if on[u] != d and any(on[v] == d for v in feeds[u]):
                    passes[int(backward[u])] += weight * case["rate_in"][t]
            loads.append(passes)
        else:
            if not loads:
                continue
            value = max(map(sum, loads)) if variant == "sum" else max(p[0] for p in loads) + max(p[1] for p in loads)
            best = min(best, value)
    return best


def _ordered(devices: int, pairs: set[tuple[int, int]]) -> bool:
    left = set(range(devices))
    while left:
        first = [d for d in left if not any(a in left and b == d for a, b in pairs)]
        if not first:
            return False
        left -= set(first)
    return True


def read_workload(path: Path) -> Case:
    """A throughput workload of Tarnawski et al. (NeurIPS 2020) as arguments of ``contract``: accelerators, then CPUs."""
    data = json.loads(path.read_text())
    nodes, number = data["nodes"], {node["id"]: k for k, node in enumerate(data["nodes"])}
    weight = np.zeros(len(nodes))
    for edge in data["edges"]:
        weight[number[edge["sourceId"]]] = edge["cost"]
    group = [node.get("colorClass") for node in nodes]
    accelerator = [node["fpgaLatency"] if node["supportedOnFpga"] else np.inf for node in nodes]
    return {
        "time": np.column_stack([accelerator, [node["cpuLatency"] for node in nodes]]),
        "size": np.array([node.get("size", 0.0) for node in nodes]),
        "edges": np.array([(number[edge["sourceId"]], number[edge["destId"]]) for edge in data["edges"]]),
        "weight": weight,
        "group": np.array([-1 if g is None else g for g in group]),
        "backward": np.array([bool(node["isBackwardNode"]) for node in nodes]),
        "count": np.array([data["maxFPGAs"], data["maxCPUs"]]),
        "memory": np.array([data["maxSizePerFPGA"], np.inf]),
        "rate_in": np.array([1.0, 0.0]),
        "rate_out": np.array([1.0, 0.0]),
    }
