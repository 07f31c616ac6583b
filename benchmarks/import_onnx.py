"""The nine networks that come with the package onnx: import, partition over three kinds of devices, verify.

    python benchmarks/import_onnx.py [--devices rtx4090,rtx3090,cpu] [--time-limit 20]

Prints a row a network; returns 1 when one has no plan that is verified.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import onnx

import hetopt
from hetopt.io import importers


def main() -> int:
    """Run all nine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="rtx4090,rtx3090,cpu")
    parser.add_argument("--time-limit", type=float, default=20)
    given = parser.parse_args()
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    bad = 0
    print("| network | operators | parameters | status | value ms | bound ms | import s | solve s |")
    print("|" + "---|" * 8)
    for file in sorted(folder.glob("*.onnx")):
        start = time.process_time()
        instance = importers.get("onnx").load(file, devices=given.devices)
        read = time.process_time() - start
        result = hetopt.solve(instance, time_limit=given.time_limit)
        solved = time.process_time() - start - read
        parameters = instance.description.split(" parameters")[0].split()[-1]
        row: tuple[object, ...] = (file.stem.removeprefix("light_"), instance.n_tasks, parameters, result.status)
        if result.solution is None:
            bad += 1
            value = bound = "none"
        else:
            hetopt.verify(instance, result)
            value, bound = f"{1e3 * result.objective:.5g}", f"{1e3 * result.bound:.5g}"
        print("|", " | ".join(map(str, (*row, value, bound, f"{read:.2f}", f"{solved:.2f}"))), "|", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
