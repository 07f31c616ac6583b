"""The published dynamic program for max-load (Tarnawski et al., NeurIPS 2020) and ours on the same files: processor seconds.

    python benchmarks/reference_dp.py BINARY [SECONDS [GIB]]     each reference run is given 120 s of CPU and 6 GiB by default

BINARY is ``throughput-dp/dp.cpp`` of github.com/msr-fiddle/dnn-partitioning, built with ``g++ -O3``; nothing of it is kept here.
It reads a workload on standard input. Its time is the user and system time of its process. Ours is the least of three runs of
contraction, dynamic program and evaluation in this process, kernels compiled; reading the file, some hundredths of a second for
either side, counts on theirs only. The values must agree.
Needs the folder ``dnn-partitioning`` of the reference data (``HETOPT_DATA``).
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import hetopt
from formulations.partition._pipeline import pipeline_of
from hetopt.io import importers


def main() -> int:
    """Print a row for each workload, and the least ratio where the reference needs more than a second."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        print((__doc__ or "").split("\n\n")[1], file=sys.stderr)
        return 1
    binary = str(Path(sys.argv[1]).resolve())
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 120
    room = int(float(sys.argv[3]) * 2**30) if len(sys.argv) > 3 else 6 * 2**30
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    files = sorted((data / "dnn-partitioning" / "throughput-inputs").glob("*/*.json"))
    if not files:
        print("reference data not found: set HETOPT_DATA to the folder that holds dnn-partitioning", file=sys.stderr)
        return 1
    load = importers.get("dnn-partitioning").load
    hetopt.solve(load(files[0]), method="dp")
    print("| workload | reference CPU s | ours CPU s | ratio | reference value | ours |\n|---|---|---|---|---|---|")
    ratios = []
    for file in files:
        theirs, value, ended = _reference(binary, file, seconds, room)
        runs = []
        for _ in range(3):
            pipeline_of.cache_clear()
            instance = load(file)
            began = time.process_time()
            result = hetopt.solve(instance, method="dp")
            runs.append(time.process_time() - began)
        ratio = theirs / min(runs)
        if theirs > 1.0:
            ratios.append(ratio)
        told = f"{value:.10g}" if value is not None else ended
        sign = "" if value is not None else "> "
        print(
            f"| {file.parent.name[0]} {file.stem} | {sign}{theirs:.2f} | {min(runs):.3f} | {sign}{ratio:.0f} | {told} | "
            f"{result.objective:.10g} ({result.status}) |",
            flush=True,
        )
    if ratios:
        print(f"\nleast ratio where the reference needs more than a second: {min(ratios):.0f}")
    return 0


def _reference(binary: str, file: Path, seconds: int, room: int) -> tuple[float, float | None, str]:
    """Processor seconds of one run, the value it reports, and how it ended without one."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (room, room))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with file.open("rb") as source:
        run = subprocess.run([binary], stdin=source, capture_output=True, preexec_fn=limits)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    text = run.stdout.decode(errors="replace")
    start = text.find("{")
    try:
        return spent, float(json.loads(text[start:])["maxLoad"]), ""
    except (ValueError, KeyError):
        found = re.search(r'"maxLoad"\s*:\s*([0-9.eE+-]+)', text)
        return spent, float(found[1]) if found else None, f"none (ended by {run.returncode})"


if __name__ == "__main__":
    sys.exit(main())
