"""The 8 latency workloads of Tarnawski et al. (NeurIPS 2020): solve within processor seconds, verify; a row each.

    python benchmarks/latency.py [SECONDS [SUBGRAPHS]]      60 seconds and 1 subgraph an accelerator by default
    python benchmarks/latency.py --random COUNT             random small graphs, against every plan

Needs the folder ``dnn-partitioning`` of the reference data (``HETOPT_DATA``). CPU seconds of this process.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from _clock import ProcessorControl

import hetopt
from hetopt import registry
from hetopt.io import importers


def random_graphs(count: int) -> int:
    """How many of ``count`` random graphs of up to six tasks are solved to another value than the best of all plans.

    A third of them allow two subgraphs an accelerator; there, every numbering of subgraphs is a plan of its own.
    """
    problem = registry.problem("partition.latency")
    wrong = 0
    for seed in range(count):
        instance = problem.sample(seed)
        question = problem.question(instance)
        values = (problem.evaluate(instance, question, plan) for plan in problem.every_plan(instance, question))
        best = min((value.value for value in values if not value.violations), default=None)
        result = hetopt.solve(instance)
        status = "infeasible" if best is None else "optimal"
        if result.status != status or result.objective != best:
            print(f"seed {seed}: {result.status} {result.objective}, the best of all plans is {best}")
            wrong += 1
    print(f"{count} random graphs, {wrong} wrong")
    return wrong


def main() -> int:
    """Print the table; returns 1 when some workload is not proved."""
    if sys.argv[1:2] == ["--random"]:
        return 1 if random_graphs(int(sys.argv[2])) else 0
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    options = {"subgraphs": int(sys.argv[2]) if len(sys.argv) > 2 else 1}
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    files = sorted((data / "dnn-partitioning" / "latency-inputs").glob("*/*.json"))
    if not files:
        print("reference data not found: set HETOPT_DATA to the folder that holds dnn-partitioning", file=sys.stderr)
        return 1
    load = importers.get("dnn-partitioning").load
    hetopt.solve(load(files[0]), options=options, control=ProcessorControl(limit))
    print("| workload | tasks | status | value | bound | CPU s |\n|---|---|---|---|---|---|")
    unproved = 0
    for file in files:
        instance = load(file)
        began = time.process_time()
        result = hetopt.solve(instance, options=options, control=ProcessorControl(limit))
        spent = time.process_time() - began
        hetopt.verify(instance, result)
        unproved += result.status != "optimal"
        name = f"{file.parent.name[0]} {file.stem}"
        print(
            f"| {name} | {instance.n_tasks} | {result.status} | {result.objective} | {result.bound} | {spent:.1f} |",
            flush=True,
        )
    return 1 if unproved else 0


if __name__ == "__main__":
    sys.exit(main())
