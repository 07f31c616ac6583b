"""A generated graph of many operators on 16 devices: a verified plan and a bound within a limit of time and memory.

    python benchmarks/large_graph.py [SECONDS [OPERATORS [CONTIGUOUS]]]    60 s, 50,000 operators, contiguous=ideals by default

The graph has the shape of a deep model: blocks of one to four operators side by side, each fed by one or two of the block
before, and now and then an operator fed from up to ten blocks back. Twelve accelerators in two kinds with limited memory and
four CPUs. Wall time, processor time of this process, and its largest resident memory; the import and kernels' compilation count.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

import hetopt


def made(operators: int, seed: int = 0) -> hetopt.Instance:
    """The graph and its devices, from a seed."""
    rng = np.random.default_rng(seed)
    block = np.repeat(np.arange(operators), rng.integers(1, 5, operators))[:operators]
    start = np.searchsorted(block, np.arange(block[-1] + 2))
    inner = np.flatnonzero(block > 0)
    feeds = [_fed(rng, start, block[inner] - 1)]
    second = inner[rng.random(len(inner)) < 0.4]
    feeds.append(_fed(rng, start, block[second] - 1))
    skips = inner[rng.random(len(inner)) < 0.05]
    feeds.append(_fed(rng, start, np.maximum(block[skips] - rng.integers(2, 11, len(skips)), 0)))
    edges = np.unique(np.column_stack([np.concatenate(feeds), np.concatenate([inner, second, skips])]), axis=0)
    work = rng.gamma(0.7, 1e-3, operators)
    slow = np.repeat([1.0, 1.7, 12.0], [6, 6, 4])
    memory = rng.integers(1, 40, operators) * 1e5
    accelerators = [
        hetopt.Device(name=f"{kind}{k}", type=kind, memory=float(memory.sum() / 9))
        for kind in ("fast", "slow")
        for k in range(6)
    ]
    devices = [*accelerators, *(hetopt.Device(name=f"cpu{k}", type="cpu", host=True) for k in range(4))]
    return hetopt.Instance.from_graph(
        work[:, None] * slow,
        edges,
        devices=devices,
        memory=memory,
        output=rng.integers(1, 64, operators) * 1e4,
        links=[hetopt.Link(source="*", target="*", bandwidth=1.2e10)],
        question={"objective": "throughput"},
    )


def _fed(rng: np.random.Generator, start: np.ndarray, block: np.ndarray) -> np.ndarray:
    """An operator of each of the blocks, at random."""
    return np.asarray(start[block] + rng.integers(0, start[block + 1] - start[block]))


def main() -> int:
    """Print sizes, value, bound, times and memory; returns 1 when there is no plan or no bound."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    operators = int(sys.argv[2]) if len(sys.argv) > 2 else 50_000
    contiguous = sys.argv[3] if len(sys.argv) > 3 else "ideals"
    instance = made(operators)
    began, spent = time.monotonic(), time.process_time()
    result = hetopt.solve(instance, options={"contiguous": contiguous}, time_limit=seconds)
    wall, cpu = time.monotonic() - began, time.process_time() - spent
    if result.objective is None or result.bound is None:
        print("no plan or no bound:", result.messages)
        return 1
    hetopt.verify(instance, result)
    print(
        f"{operators} operators, {len(instance.edges)} edges, {instance.n_devices} devices, contiguous={contiguous}: "
        f"{result.status}, value {result.objective:.7g}, bound {result.bound:.7g} ({result.bound_proof}), "
        f"gap {100 * (1 - result.bound / result.objective):.3f} %; {wall:.1f} s, {cpu:.1f} CPU s, "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )
    for event in result.trajectory:
        print("  ", *(f"{x:.6g}" if x is not None else "-" for x in event))
    return 0


if __name__ == "__main__":
    sys.exit(main())
