"""The 12 matrices of Braun et al. (512 jobs, 16 machines): value against the best listed one, bound, gap; a row each.

    python benchmarks/braun.py [--time 60] [--files u_c_hihi.0,...] [--log FILE] [--plans FOLDER]

Needs the folder ``hcsp`` of the reference data (``HETOPT_DATA``), which lists the values. One thread, processor seconds of this
process; times are decimals and taken as they are. Each plan and bound is verified. With ``--log`` a row is appended to FILE as a
line of JSON as soon as it is known, and files that stand there are not run again. A value below the listed one (by more than
its last digit) is called out, and with ``--plans`` its assignment is stored as ``FOLDER/braun-<file>.json``: the machine of each
job and the makespan, nothing of the matrix.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from _clock import ProcessorControl

import hetopt
from hetopt.io import generators, importers


def main() -> int:
    """Print the table; returns 1 when the data are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=float, default=60.0, help="processor seconds a file")
    parser.add_argument("--files", help="names with commas; all by default")
    parser.add_argument("--log", type=Path, help="file of JSON lines to resume from and to append to")
    parser.add_argument("--plans", type=Path, help="folder for assignments that beat the listed value")
    asked = parser.parse_args()
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "hcsp"
    if not data.is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds hcsp", file=sys.stderr)
        return 1
    with (data / "best_known_512x16.csv").open() as stream:
        listed = {row["inst"]: min(float(row["MS_best"]), float(row["CPR"])) for row in csv.DictReader(stream)}
    rows: dict[str, dict[str, Any]] = {}
    if asked.log and asked.log.exists():
        rows = {row["file"]: row for row in map(json.loads, asked.log.read_text().splitlines())}
    make = generators.get("unrelated").make
    hetopt.solve(
        make(kind="u_i_hihi", jobs=100, machines=10), method="climb", control=ProcessorControl(2.0)
    )  # compiles
    print("| matrix | value | listed | above % | bound | gap % | CPU s |\n|---|---|---|---|---|---|---|")
    for name in asked.files.split(",") if asked.files else sorted(listed):
        if name not in rows:
            rows[name] = solved(data / "512x16" / name, asked.time, asked.plans, listed[name])
            if asked.log:
                with asked.log.open("a") as stream:
                    stream.write(json.dumps(rows[name]) + "\n")
        row, best = rows[name], listed[name]
        below = " BELOW, verified" if row["value"] < best - 0.05 else ""
        print(
            f"| {name} | {row['value']:.2f} | {best:.1f} | {100 * (row['value'] / best - 1):+.4f}{below} | {row['bound']:.2f} "
            f"| {100 * (1 - row['bound'] / row['value']):.3f} | {row['seconds']:.1f} |",
            flush=True,
        )
    return 0


def solved(file: Path, seconds: float, plans: Path | None, listed: float) -> dict[str, Any]:
    """The row of a file; its assignment is stored when it beats the listed value."""
    instance = importers.get("hcsp").load(file)
    began = time.process_time()
    result = hetopt.solve(instance, method="climb", control=ProcessorControl(seconds))
    spent = time.process_time() - began
    hetopt.verify(instance, result)
    assert result.solution is not None and result.solution.placement is not None
    if plans is not None and result.objective is not None and result.objective < listed - 0.05:
        plans.mkdir(parents=True, exist_ok=True)
        plan = {"matrix": file.name, "makespan": result.objective, "machine_of_job": result.solution.placement.tolist()}
        (plans / f"braun-{file.name}.json").write_text(json.dumps(plan) + "\n")
    return {"file": file.name, "value": result.objective, "bound": result.bound, "seconds": round(spent, 1)}


if __name__ == "__main__":
    sys.exit(main())
