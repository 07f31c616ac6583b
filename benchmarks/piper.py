"""Piper's workloads (Tarnawski et al., NeurIPS 2021) as shipped and as in the published experiments: solve, verify; a row each.

    python benchmarks/piper.py

Needs the folder ``dnn-partitioning`` of the reference data (``HETOPT_DATA``). CPU seconds of this process after a warm-up. The
column "published program" is what the authors' program gave when it was run on the same numbers (its rule for memory is
greedy), with its CPU seconds; "none" where it found no plan, "-" where it was stopped without an answer or not run.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import hetopt
from hetopt.io import importers

GIB = 2.0**30
# file, devices, GiB a device, value and CPU seconds of the published program (one run, one core of the same machine)
CASES: tuple[tuple[str, int | None, float | None, str, str], ...] = (
    ("bert32a100", None, None, "0.09772736", "0.1"),
    ("bert32a100", 8, 8, "0.16690427", "0.1"),
    ("bert32a100", 32, 8, "0.04178138", "0.2"),
    ("bert32a100", 64, 8, "0.02032022", "0.3"),
    ("bert32a100", 128, 8, "0.01018224", "0.5"),
    ("bert32a100", 32, 2, "0.06698734", "0.1"),
    ("bert32a100", 128, 2, "0.01528881", "0.4"),
    ("bert32a100", 512, 2, "0.00372988", "3.8"),
    ("bert32a100", 64, 1, "none", "0.2"),
    ("bert32a100", 512, 1, "0.00904522", "3.5"),
    ("bert32a100", 64, 80, "0.01568330", "0.4"),
    ("bert32a100", 512, 80, "0.00229306", "6.2"),
    ("bert32a100", 2048, 8, "-", "stopped at 120 s of wall time"),
    ("resnet", None, None, "46.238102", "4.5"),
    ("resnet", 8, 4, "73.493639", "4.4"),
    ("resnet", 16, 2, "76.522442", "5.6"),
    ("resnet", 32, 1.5, "50.980159", "8.8"),
    ("resnet", 64, 1, "none", "9.7"),
    ("gnmt", None, None, "-", "stopped at 900 s of wall time"),
    *(("gnmt", devices, memory, "-", "") for devices, memory in
      ((2, 2.5), (4, 1.2), (8, 0.6), (8, 2.4), (16, 0.3), (16, 1.2), (32, 0.3), (32, 0.8), (64, 0.3))),
)  # fmt: skip


def main() -> int:
    """Print the table; returns 1 when some workload is not settled."""
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    folder = data / "dnn-partitioning" / "piper-inputs"
    if not folder.is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds dnn-partitioning", file=sys.stderr)
        return 1
    load = importers.get("piper").load
    hetopt.solve(load(folder / "bert32a100.json", devices=64, memory=8 * GIB))
    print("| workload | devices | GiB | status | value | bound | CPU s | published program | its CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    unsettled = 0
    for name, devices, memory, value, seconds in CASES:
        instance = load(folder / f"{name}.json", devices=devices, memory=None if memory is None else memory * GIB)
        began = time.process_time()
        result = hetopt.solve(instance)
        spent = time.process_time() - began
        hetopt.verify(instance, result)
        unsettled += result.status not in ("optimal", "infeasible")
        room = instance.capacity[0] / GIB
        told = " | ".join("" if number is None else f"{number:.8g}" for number in (result.objective, result.bound))
        print(
            f"| {name} | {instance.n_devices} | {room:.3g} | {result.status} | {told} | {spent:.2f} | {value} | {seconds} |",
            flush=True,
        )
    return 1 if unsettled else 0


if __name__ == "__main__":
    sys.exit(main())
