"""Layer sequences: 10,000 layers on 64 devices in order, and 126 layers on 12 devices in any order; CPU seconds of each proof.

    python benchmarks/chain.py

Instances are made from a seed. CPU seconds of this process, kernels compiled by a first run of each.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise

import numpy as np

import hetopt
from hetopt.records import Device, Edge, Job, Link, Task

OBJECTIVES = ("chain-bottleneck", "chain-latency", "chain-tokens", "chain-cost")


def made(layers: int, types: list[tuple[int, float, int]], links: list[Link], seed: int) -> hetopt.Instance:
    """Layers of random times, memory and output; types as (devices, slowness, bytes)."""
    rng = np.random.default_rng(seed)
    work = rng.integers(100, 2000, layers)
    devices = [
        Device(name=f"t{k}-{i}", type=f"t{k}", memory=memory, price=1.5 * (len(types) - k))
        for k, (count, _, memory) in enumerate(types)
        for i in range(count)
    ]
    tasks = [
        Task(
            name=f"l{j}",
            time={f"t{k}": float(int(work[j] * slow)) for k, (_, slow, _) in enumerate(types)},
            memory=int(rng.integers(1, 10)) * 10**6,
            output=int(rng.integers(1, 9)) * 1000,
            kv_bytes_per_token=4096,
        )
        for j in range(layers)
    ]
    edges = [Edge(source=a.name, target=b.name) for a, b in pairwise(tasks)]
    return hetopt.Instance.build(devices, [Job(name="model", tasks=tasks, edges=edges)], links)


def main() -> int:
    """Print status, value, proof and CPU seconds of each question."""
    slowness = (1, 1.5, 2.2, 3.1)
    fast = Link(source="*", target="*", bandwidth=None)
    slow = [
        Link(source="*", target="*", bandwidth=10, latency=1),
        Link(source="t0", target="t1", bandwidth=100, both=True),
    ]
    cases = (
        ("10,000 layers, 64 devices of 4 types, fixed order", "fixed",
         made(10_000, [(16, s, 10**12) for s in slowness], [fast], 1)),
        ("126 layers, 12 devices of 4 types, free order, links differ", "free",
         made(126, [(3, s, 10**11) for s in slowness], slow, 2)),
        ("126 layers, 12 different devices, free order, links differ", "free",
         made(126, [(1, 1 + k / 5, 2 * 10**11) for k in range(12)], slow, 3)),
    )  # fmt: skip
    for title, order, instance in cases:
        print(title)
        for objective in OBJECTIVES:
            for _ in range(2):
                started = time.process_time()
                result = hetopt.solve(instance, objective=objective, options={"order": order})
                spent = time.process_time() - started
            hetopt.verify(instance, result)
            print(f"  {objective:17} {result.status}, {result.objective:.9g}, {result.bound_proof}, {spent:.2f} CPU s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
