"""The 16 throughput workloads of Tarnawski et al. (NeurIPS 2020) without contiguity: solve, verify, replay; a row each.

    python benchmarks/noncontiguous.py [SECONDS [RESULTS [WORD]]]     60 processor seconds a workload by default

Every workload is asked for with ``--method auto``. It is stopped, as Ctrl-C would stop it, after SECONDS of processor time of
this process, so that a busy machine changes nothing but the wall time. Rows are printed as they come. With RESULTS, a file,
each is also appended there as a line of JSON, and workloads that the file already has are only printed again. With WORD, only
workloads whose path holds it. Needs the folder ``dnn-partitioning`` of the reference data (``HETOPT_DATA``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import hetopt
from hetopt.control import Control
from hetopt.io import importers


def main() -> int:
    """Print the table; returns 1 when the reference data is missing."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    results = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    files = sorted((data / "dnn-partitioning" / "throughput-inputs").glob("*/*.json"))
    if not files:
        print("reference data not found: set HETOPT_DATA to the folder that holds dnn-partitioning", file=sys.stderr)
        return 1
    if len(sys.argv) > 3:
        files = [file for file in files if sys.argv[3] in file.as_posix()]
    known = {}
    if results is not None and results.exists():
        known = {row["workload"]: row for row in map(json.loads, results.read_text().splitlines())}
    if any(f"{file.parent.name[0]} {file.stem}" not in known for file in files):
        _run(files[0], 20.0)  # kernels are compiled and cached
    print("| workload | tasks | status | value | bound | gap | proof | CPU s |\n|---|---|---|---|---|---|---|---|")
    for file in files:
        name = f"{file.parent.name[0]} {file.stem}"
        row = known.get(name)
        if row is None:
            row = {"workload": name, **_run(file, seconds)}
            if results is not None:
                with results.open("a") as out:
                    out.write(json.dumps(row) + "\n")
        gap = 100 * (1 - row["bound"] / row["value"])
        print(
            f"| {name} | {row['tasks']} | {row['status']} | {row['value']:.7g} | {row['bound']:.7g} | {gap:.3f} % | "
            f"{row['proof']} | {row['seconds']:.1f} |",
            flush=True,
        )
    return 0


def _run(file: Path, seconds: float) -> dict[str, Any]:
    """One workload; the result has been verified and its certificate replayed."""
    instance = importers.get("dnn-partitioning").load(file)
    control = Control()
    signal.signal(signal.SIGPROF, lambda *_: control.cancel())
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    result = hetopt.solve(instance, options={"contiguous": "none"}, control=control)
    signal.setitimer(signal.ITIMER_PROF, 0)
    spent = time.process_time() - began
    hetopt.verify(instance, result)
    return {
        "tasks": instance.n_tasks,
        "status": result.status,
        "value": result.objective,
        "bound": result.bound,
        "proof": result.bound_proof,
        "seconds": round(spent, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
