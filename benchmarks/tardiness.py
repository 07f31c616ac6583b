"""Makespan plus weighted tardiness on generated instances: 300 of 8 x 4 solved exactly, some of 100 x 10 within a gap.

    python benchmarks/tardiness.py [how many of 100 x 10, 10 by default [first seed, 0 [processor seconds each, 60]]]

Processor seconds of this process, kernels compiled; every plan and every bound is verified. A large one ends early when
its gap is at most 0.2 %; columns come first, then annealing from their plan for what time is left.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from _clock import ProcessorControl

import hetopt
from formulations.assignment import tardiness
from hetopt.algorithms.tardiness import best_tardiness
from hetopt.io import generators

STOP = 0.002  # gap at which a large instance's run ends


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
    many, first, limit = (*given, *(10, 0, 60)[len(given) :])
    gaps = []
    for seed in range(first, first + many):
        instance = make(jobs=100, machines=10, seed=seed)
        started = time.process_time()
        result = hetopt.solve(instance, method="columns", gap=STOP, control=ProcessorControl(limit))
        hetopt.verify(instance, result)
        value, bound = result.objective, result.bound
        assert value is not None and bound is not None
        left = limit - (time.process_time() - started)
        if bound < (1 - STOP) * value and left > 0:
            refined = hetopt.solve(instance, method="annealing", hint=result.solution, control=ProcessorControl(left))
            hetopt.verify(instance, refined)
            assert refined.objective is not None
            value = min(value, refined.objective)
        spent = time.process_time() - started
        gaps.append(1 - bound / value)
        print(
            f"100 x 10, seed {seed}: value {value:.0f}, bound {bound:.0f} ({result.bound_proof}), gap {gaps[-1]:.2%}, "
            f"{spent:.1f} CPU s",
            flush=True,
        )
    if gaps:
        within = np.mean(np.array(gaps) <= 0.015)
        print(f"100 x 10: mean gap {np.mean(gaps):.2%}, largest {max(gaps):.2%}, within 1.5 %: {within:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
