"""The 12 matrices of Braun et al. (512 jobs, 16 machines): value against the best listed one, bound, gap; a row each.

    python benchmarks/braun.py [--time 60] [--files u_c_hihi.0,...] [--log FILE] [--plans FILE] [--verify]

Needs the folder ``hcsp`` of the reference data (``HETOPT_DATA``), which lists the values. One thread, processor seconds of this
process; times are decimals and taken as they are. Each plan and bound is verified. With ``--log`` a row is appended to FILE as a
line of JSON as soon as it is known, and files that stand there are not run again. A value below the listed one (by more than
its last digit) is called out; with ``--plans`` the assignments that match or beat the listed value are kept in FILE (the best of
each matrix: its name, the machine of each job and the makespan, nothing of the data). ``--verify`` solves nothing: it evaluates
the plans of ``benchmarks/results/braun.json`` (or FILE) on the matrices and fails when one has another value.
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

import numpy as np
from _clock import ProcessorControl

import hetopt
from hetopt.io import generators, importers
from hetopt.solution import Solution

PLANS = Path(__file__).parent / "results" / "braun.json"


def main() -> int:
    """Print the table; returns 1 when the data are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=float, default=60.0, help="processor seconds a file")
    parser.add_argument("--files", help="names with commas; all by default")
    parser.add_argument("--log", type=Path, help="file of JSON lines to resume from and to append to")
    parser.add_argument("--plans", type=Path, help="file for assignments that match or beat the listed value")
    parser.add_argument("--verify", action="store_true", help="evaluate the stored plans instead")
    asked = parser.parse_args()
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "hcsp"
    if not data.is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds hcsp", file=sys.stderr)
        return 1
    with (data / "best_known_512x16.csv").open() as stream:
        listed = {row["inst"]: min(float(row["MS_best"]), float(row["CPR"])) for row in csv.DictReader(stream)}
    if asked.verify:
        return checked(data / "512x16", asked.plans or PLANS, listed)
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
        below = below or (" matched" if row["value"] < best + 0.05 else "")
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
    if plans is not None and result.objective is not None and result.objective < listed + 0.05:
        keep(plans, file.name, result.objective, result.solution.placement.tolist())
    return {"file": file.name, "value": result.objective, "bound": result.bound, "seconds": round(spent, 1)}


def keep(file: Path, matrix: str, value: float, machines: list[int]) -> None:
    """Put a plan among the stored ones unless a better one of the same matrix stands there."""
    stored = json.loads(file.read_text()) if file.exists() else []
    known = {plan["matrix"]: plan for plan in stored}
    if matrix not in known or value < known[matrix]["makespan"]:
        known[matrix] = {"matrix": matrix, "makespan": value, "machine_of_job": machines}
    lines = ",\n".join(json.dumps(known[name]) for name in sorted(known))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[\n{lines}\n]\n")


def checked(folder: Path, file: Path, listed: dict[str, float]) -> int:
    """Print the stored plans' values as the matrices give them; 1 when one differs from what is stored."""
    wrong = 0
    print("| matrix | stored | evaluated | listed |\n|---|---|---|---|")
    for plan in json.loads(file.read_text()):
        instance = importers.get("hcsp").load(folder / plan["matrix"])
        value = hetopt.verify(instance, Solution(placement=np.array(plan["machine_of_job"]))).objective
        same = value is not None and abs(value - plan["makespan"]) <= 1e-9 * plan["makespan"]
        wrong += not same
        print(
            f"| {plan['matrix']} | {plan['makespan']:.2f} | {value:.2f} | {listed[plan['matrix']]:.1f} |"
            + ("" if same else " DIFFERS")
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
