"""Makespan plus weighted tardiness on generated instances: 300 of 8 x 4 solved exactly, some of 100 x 10 within a gap.

    python benchmarks/tardiness.py [how many of 100 x 10, 10 by default [first seed, 0 [seconds each]]]

CPU seconds of this process, kernels compiled; every plan and every bound is verified. Without a time limit, which would be on
the clock, each run goes on until its methods have nothing left to try.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import hetopt
from formulations.assignment import tardiness
from hetopt.algorithms.tardiness import best_tardiness
from hetopt.io import generators


def main() -> int:
    """Print mean times and ratios of the small instances, a line for each large one, and the mean gap."""
    make = generators.get("tardiness").make
    hetopt.solve(make(seed=0))
    kernel, whole, ratios, proved = [], [], [], 0
    for seed in range(300):
        instance = make(jobs=8, machines=4, seed=seed)
        shop = tardiness.shop_of(instance)
        started = time.process_time()
        best_tardiness(shop)
        kernel.append(time.process_time() - started)
        started = time.process_time()
        result = hetopt.solve(instance)
        whole.append(time.process_time() - started)
        hetopt.verify(instance, result)
        rule = hetopt.solve(instance, method="dispatch")
        assert result.objective is not None and rule.objective is not None
        proved += result.status == "optimal"
        ratios.append(rule.objective / result.objective)
    print(
        f"8 x 4: {proved} of 300 proved; kernel {1e3 * np.mean(kernel):.2f} ms, solve {1e3 * np.mean(whole):.2f} ms on "
        f"average; the dispatching rule costs {np.mean(ratios):.3f} times the optimum"
    )
    given = [int(word) for word in sys.argv[1:]]
    many, first = (*given[:2], *(10, 0)[len(given) :])
    limit = given[2] if len(given) > 2 else None
    gaps = []
    for seed in range(first, first + many):
        instance = make(jobs=100, machines=10, seed=seed)
        started = time.process_time()
        result = hetopt.solve(instance, time_limit=limit)
        spent = time.process_time() - started
        hetopt.verify(instance, result)
        assert result.objective is not None and result.bound is not None
        gaps.append(1 - result.bound / result.objective)
        print(
            f"100 x 10, seed {seed}: value {result.objective:.0f}, bound {result.bound:.0f} ({result.bound_proof}), "
            f"gap {gaps[-1]:.2%}, {result.status}, {spent:.1f} CPU s",
            flush=True,
        )
    if gaps:
        within = np.mean(np.array(gaps) <= 0.015)
        print(f"100 x 10: mean gap {np.mean(gaps):.2%}, largest {max(gaps):.2%}, within 1.5 %: {within:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
