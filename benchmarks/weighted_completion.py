"""Total weighted completion time on unrelated machines: 80 published files by annealing, against the published values.

    python benchmarks/weighted_completion.py [CPU seconds a file, 2 by default]

Needs the folder ``weighted-completion`` of the reference data (``HETOPT_DATA``). Every plan is verified, and a value below the
published one is printed. Files without a published value are counted apart.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import hetopt
from formulations.assignment.weighted_completion import smith
from hetopt.algorithms.completion_search import anneal_completion
from hetopt.io import importers

PROPOSALS_A_SECOND = 20_000_000  # below what one core does, so that the time given is kept


def main() -> int:
    """Print a line for each size and the mean gap."""
    data = Path(os.environ.get("HETOPT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "weighted-completion"
    if not data.is_dir():
        print("reference data not found: set HETOPT_DATA to the folder that holds weighted-completion", file=sys.stderr)
        return 1
    budget = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    load = importers.get("twct").load
    anneal_completion(np.ones((4, 2)), proposals=10)
    gaps: dict[str, list[float]] = {}
    seconds, unlisted = [], 0
    for file in sorted(data.glob("*.json.gz")):
        with gzip.open(file) as stream:
            listed = json.load(stream).get("published")
        instance = load(file)
        started = time.process_time()
        found = anneal_completion(
            instance.time, instance.columns.weight, proposals=max(1, int(budget * PROPOSALS_A_SECOND))
        )
        seconds.append(time.process_time() - started)
        report = hetopt.verify(instance, smith(instance, found.plan))
        if listed is None:
            unlisted += 1
            continue
        gap = report.objective / listed["objective"] - 1
        gaps.setdefault(file.name.rpartition("_")[0], []).append(gap)
        if gap < 0:
            print(f"{file.name}: verified {report.objective:.0f}, below the published {listed['objective']}")
    for size, of_size in gaps.items():
        print(f"{size:8} {len(of_size)} files: mean gap {np.mean(of_size):.4%}, largest {max(of_size):.4%}")
    every = np.concatenate(list(gaps.values()))
    print(f"{len(every)} files with a published value, {unlisted} without: mean gap {every.mean():.4%}, "
          f"{int((every == 0).sum())} equal, at most {max(seconds):.2f} CPU s a file")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
