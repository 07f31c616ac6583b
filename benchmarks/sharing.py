"""Time shares of a cluster by the published throughput oracle: fairness, finish times and water filling at published sizes.

    python benchmarks/sharing.py

Needs the folder ``gavel`` of the reference data (``HETOPT_DATA``). Processor seconds of this process for a whole ``solve``:
model, solver, recomputed value, replayed proof. Every job has its own rates (noise of 0.1) but for the catalogue's; each type
has workers for a twelfth of the jobs (a sixth for water filling, whose jobs have priorities), so that all capacities bind.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import hetopt
from hetopt.io import generators, importers

RUNS = (
    ("max-min-fairness", 1000, 12, 0.1),
    ("max-min-fairness", 5000, 12, 0.1),
    ("max-min-fairness", 5000, 12, 0.0),
    ("sharing-makespan", 5000, 12, 0.1),
    ("finish-time-fairness", 1000, 12, 0.1),
    ("finish-time-fairness", 5000, 12, 0.1),
    ("water-filling", 300, 6, 0.1),
    ("water-filling", 1000, 6, 0.1),
    ("nash-welfare", 5000, 12, 0.1),
    ("packed-max-min-fairness", 512, 12, 0.0),
    ("packed-max-min-fairness", 2048, 12, 0.0),
    ("packed-max-min-fairness", 256, 12, 0.1),
    ("mean-completion", 500, 12, 0.1),
)


def main() -> int:
    """Print a line a run."""
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "gavel"
    if not data.is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds gavel", file=sys.stderr)
        return 1
    load = importers.get("gavel").load
    for question in sorted({run[0] for run in RUNS}):  # solvers imported, caches warm
        hetopt.solve(generators.get("cluster").make(jobs=12, kinds=4, question=question))
    print("| question | jobs | kinds | status | value | bound | CPU s |\n|---|---|---|---|---|---|---|")
    for question, jobs, part, noise in RUNS:
        instance = load(
            data / "simulation_throughputs.json", jobs=jobs, capacity=",".join([str(jobs // part)] * 3), noise=noise,
            priorities=question == "water-filling", objective=question,
        )  # fmt: skip
        started = time.process_time()
        result = hetopt.solve(instance)
        spent = time.process_time() - started
        hetopt.verify(instance, result)
        kinds = "all" if noise else "catalogue"
        print(
            f"| {question} | {jobs} | {kinds} | {result.status} | {result.objective:.7g} | {result.bound:.7g} | {spent:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
