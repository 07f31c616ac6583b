"""Online methods of schedule.online beside each other: processor seconds of the rules, mean latencies over rolling's.

python benchmarks/online.py [STREAMS]
"""

from __future__ import annotations

import sys
import time

import numpy as np

import hetopt
from formulations.schedule._online import stream
from hetopt.algorithms.online_dispatch import RULES, dispatch
from hetopt.io import generators
from hetopt.registry import problem_for


def main(arguments: list[str]) -> int:
    """Twenty thousand jobs by each rule; then streams of thirty jobs at full load by every online method."""
    count = int(arguments[0]) if arguments else 3
    generator = generators.get("job-stream")
    instance = generator.make(jobs=20_000, tasks=10, seed=1, load=0.9)
    data = stream(instance, problem_for(instance).question(instance))
    for rule in RULES:
        dispatch(data, rule)
        started = time.process_time()
        dispatch(data, rule)
        print(f"{rule}: {instance.n_tasks} tasks in {time.process_time() - started:.2f} s of processor")
    rows = []
    for seed in range(1, count + 1):
        instance = generator.make(jobs=30, tasks=6, seed=seed, load=1.0)
        values = [hetopt.solve(instance, method=method).objective for method in (*RULES, "rolling")]
        bound = hetopt.bound(instance, method="bounds").bound
        rows.append([value / values[-1] for value in (*values, bound)])
        print(seed, *(f"{share:.3f}" for share in rows[-1]), flush=True)
    print("mean", *(f"{share:.3f}" for share in np.mean(rows, axis=0)), "(over rolling:", *RULES, "rolling, bound)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
