"""The 16 throughput workloads of Tarnawski et al. (NeurIPS 2020): import, solve, verify; a row each.

    python benchmarks/maxload.py            contiguous optima, after one warm-up solve (numba compiles and caches)

Needs the folder ``dnn-partitioning`` of the reference data (``HETOPT_DATA``). CPU seconds of this process for each step, and
the process's largest resident memory.
"""

from __future__ import annotations

import itertools
import os
import resource
import sys
import time
from pathlib import Path

import hetopt
from hetopt.io import importers


def main() -> int:
    """Print the table; returns 1 when some workload is not proved."""
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    files = sorted((data / "dnn-partitioning" / "throughput-inputs").glob("*/*.json"))
    if not files:
        print("reference data not found: set HETOPT_DATA to the folder that holds dnn-partitioning", file=sys.stderr)
        return 1
    load = importers.get("dnn-partitioning").load
    hetopt.solve(load(files[0]))
    print(
        "| workload | tasks | status | value | bound | import s | solve s | verify s |\n|---|---|---|---|---|---|---|---|"
    )
    unproved = 0
    for file in files:
        seconds = [time.process_time()]
        instance = load(file)
        seconds.append(time.process_time())
        result = hetopt.solve(instance)
        seconds.append(time.process_time())
        hetopt.verify(instance, result)
        seconds.append(time.process_time())
        unproved += result.status != "optimal"
        spent = " | ".join(f"{b - a:.2f}" for a, b in itertools.pairwise(seconds))
        name = f"{file.parent.name[0]} {file.stem}"
        print(
            f"| {name} | {instance.n_tasks} | {result.status} | {result.objective:.7g} | {result.bound:.7g} | {spent} |"
        )
    print(f"\nlargest resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return 1 if unproved else 0


if __name__ == "__main__":
    sys.exit(main())
