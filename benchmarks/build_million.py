"""Build a model with a million nonzeros and hand it to HiGHS: CPU seconds and memory, as one line of JSON.

The model is R||Cmax with 10,000 jobs on 50 machines: 500,001 columns, 10,050 rows, 1,000,050 nonzeros. Memory is the peak
of the resident set over what it was before, less the model's own arrays. Imports and the table of times are not counted.

    python benchmarks/build_million.py [--runs 5] [--write FOLDER]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from hetopt.linear import LinearModel
from hetopt.solvers import highs

JOBS, MACHINES = 10_000, 50


def build(times: np.ndarray) -> LinearModel:
    """Assignment rows, load rows, makespan; times is (jobs, machines)."""
    jobs, machines = times.shape
    model = LinearModel("makespan")
    x = model.binary("x", times.shape)
    makespan = model.continuous("makespan")
    model.rows("assign", jobs, [(np.arange(jobs)[:, None], x, 1.0)], lower=1, upper=1)
    load = [(np.arange(machines)[None, :], x, times), (np.arange(machines), makespan, -1.0)]
    model.rows("load", machines, load, upper=0)
    model.minimize(makespan)
    return model


def array_bytes(model: LinearModel) -> int:
    """Bytes of the arrays a solver is handed."""
    a = model.matrix
    arrays = (a.data, a.indices, a.indptr, model.lower, model.upper, model.cost, model.row_lower, model.row_upper)
    return sum(v.nbytes for v in arrays) + model.integrality.nbytes


def resident(field: str) -> float:
    """``VmRSS`` or ``VmHWM`` of this process in bytes; nan where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return float("nan")
    return float(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def measured(times: np.ndarray) -> dict[str, float]:
    """One run: CPU seconds by step and megabytes beyond the arrays."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak of the imports
    except OSError:
        return {}
    before, start = resident("VmRSS"), time.process_time()
    model = build(times)
    blocks = time.process_time()
    arrays = array_bytes(model)  # assembles them
    assembled = time.process_time()
    solver = highs.load(model)
    end = time.process_time()
    if solver.getNumNz() != model.matrix.nnz:
        raise RuntimeError("HiGHS holds another model than the one it was given")
    peak = resident("VmHWM") - before
    return {
        "cpu_seconds": end - start,
        "blocks": blocks - start,
        "assembly": assembled - blocks,
        "hand_over": end - assembled,
        "arrays_mb": arrays / 1e6,
        "peak_mb": peak / 1e6,
        "beyond_arrays_mb": (peak - arrays) / 1e6,
    }


def main() -> None:
    """Print the run with the median CPU time, and the first one, whose memory is not recycled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", type=Path, help="also time writing MPS and LP files into this folder")
    options = parser.parse_args()
    times = np.random.default_rng(0).uniform(1, 100, (JOBS, MACHINES))
    highs.load(build(times[:2, :2]))  # imports and first-call costs are not the model's
    runs = [measured(times) for _ in range(options.runs)]
    middle = sorted(run["cpu_seconds"] for run in runs)[len(runs) // 2]
    record: dict[str, object] = {"nonzeros": JOBS * MACHINES * 2 + MACHINES, "median_cpu_seconds": middle, **runs[0]}
    if options.write is not None:
        model = build(times)
        for suffix in ("mps", "lp"):
            start = time.process_time()
            model.write(options.write / f"million.{suffix}")
            record[f"write_{suffix}_cpu_seconds"] = time.process_time() - start
    print(json.dumps({key: round(v, 4) if isinstance(v, float) else v for key, v in record.items()}))


if __name__ == "__main__":
    main()
