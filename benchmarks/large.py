"""R||Cmax with many jobs: 10,000 x 100 and 100,000 x 100 generated; plan, bound, gap, processor time and largest memory.

    python benchmarks/large.py [--time 60] [--kinds u1_100,jobcorr] [--sizes 10000x100,100000x100] [--seed 1]

Each row is a process of its own with one thread, limited by its processor seconds; plan and bound are verified. Building the
instance is shown apart from solving it.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import subprocess
import sys
import time

from _clock import ProcessorControl

import hetopt
from hetopt.io import generators

HEAD = (
    "| instance | value | bound | gap % | build s | solve s | verify s | peak MiB |\n|---|---|---|---|---|---|---|---|"
)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=float, default=60.0, help="processor seconds to solve")
    parser.add_argument("--kinds", default="u1_100,jobcorr")
    parser.add_argument("--sizes", default="10000x100,100000x100")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", help=argparse.SUPPRESS)  # the child: kind,size
    asked = parser.parse_args()
    if asked.run:
        print(row(*asked.run.split(","), asked.seed, asked.time))
        return 0
    print(HEAD, flush=True)
    failed = 0
    for size in asked.sizes.split(","):
        for kind in asked.kinds.split(","):
            command = [sys.executable, __file__, "--run", f"{kind},{size}"]
            ended = subprocess.run([*command, "--seed", str(asked.seed), "--time", str(asked.time)])
            failed += ended.returncode != 0
    return 1 if failed else 0


def row(kind: str, size: str, seed: int, seconds: float) -> str:
    """Build, solve and verify one instance."""
    n, m = map(int, size.split("x"))
    make = generators.get("unrelated").make
    hetopt.solve(make(kind=kind, jobs=40, machines=4), method="climb", control=ProcessorControl(0.5))  # compiles
    at = [time.process_time()]
    instance = make(kind=kind, jobs=n, machines=m, seed=seed)
    at.append(time.process_time())
    result = hetopt.solve(instance, method="climb", control=ProcessorControl(seconds))
    at.append(time.process_time())
    hetopt.verify(instance, result)
    at.append(time.process_time())
    if result.objective is None or result.bound is None:
        raise RuntimeError(f"{kind} {size}: no plan or no bound: {'; '.join(result.messages)}")
    build, solve, verify = (f"{b - a:.1f}" for a, b in itertools.pairwise(at))
    gap = 100 * (result.objective - result.bound) / result.objective
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"| {kind} {size} | {result.objective:.0f} | {result.bound:.0f} ({result.bound_proof}) | {gap:.3f} "
        f"| {build} | {solve} | {verify} | {peak:.0f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
