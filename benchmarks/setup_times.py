"""Vallada and Ruiz's sets with setup times: the 160 small ones proved, the two large ones by annealing; a line each set.

    python benchmarks/setup_times.py

Needs the folder ``vallada-ruiz`` of the reference data (``HETOPT_DATA``). CPU seconds of this process, kernels compiled.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from pathlib import Path

import hetopt
from hetopt.io import importers


def main() -> int:
    """Print what was proved, what differs from the listed values, and the large instances."""
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "vallada-ruiz"
    if not data.is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds vallada-ruiz", file=sys.stderr)
        return 1
    listed = {}
    for size in ("small", "large"):
        with (data / f"best_known_{size}.csv").open() as stream:
            listed |= {row["instance"]: int(row["makespan"]) for row in csv.DictReader(stream)}
    load = importers.get("upmsp").load
    files = sorted((data / "small").glob("*.txt"))
    hetopt.solve(load(files[0]))
    proved = equal = 0
    longest = 0.0
    for file in files:
        instance = load(file)
        started = time.process_time()
        result = hetopt.solve(instance)
        longest = max(longest, time.process_time() - started)
        hetopt.verify(instance, result)
        proved += result.status == "optimal"
        equal += result.objective == listed[file.stem]
        if result.objective != listed[file.stem]:
            print(f"{file.stem}: verified {result.objective:.0f}, listed {listed[file.stem]}")
    print(
        f"small: {proved} of {len(files)} proved, {equal} equal to the listed optimum, at most {longest:.2f} CPU s each"
    )
    for file in sorted((data / "large").glob("*.txt")):
        instance = load(file)
        started = time.process_time()
        result = hetopt.solve(instance, time_limit=30)
        hetopt.verify(instance, result)
        value, bound, known = result.objective, result.bound, listed[file.stem]
        spent = time.process_time() - started
        print(f"{file.stem}: value {value:.0f}, bound {bound:.0f}, listed {known}, {spent:.1f} CPU s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
